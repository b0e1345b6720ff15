"""Each kind of broken configuration is told with its place and what to do; all of them at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from delta_cdc.config import Finding, findings, lint, load, tree
from delta_cdc.core.errors import InvalidConfiguration

#: Stands before what a finding points at.
MARK = "▶"
#: Pipelines that are right, to have something to break; the tables below name them.
PARTS = {
    "RIGHT": "source: /s, target: /t, keys: id",
    "OTHER": "source: /s, target: /t2, keys: id",
    "ROWS": "source: /files, log: /log, target: /t, insert_only: true",
    "LOG": "source: /files, log: /log, target: /t",
}
RIGHT = PARTS["RIGHT"]

#: A whole file, with ¶ for the end of a line, or its pipelines, from p on | the message | the remedy.
WHOLE = """\
groups: {▶sale: {}, sales: {}}¶pipelines: {p: {RIGHT, group: sales}} | 'sale' has no pipeline | group: sale
p: {RIGHT}, q: {source: /s2, ▶target: /t/, keys: id} | p and q have the same target | its own
p: {RIGHT, ▶shadow_of: p} | shadow_of is its own name. | whose target this one's is to replace
p: {RIGHT}, q: {OTHER, ▶shadow_of: pp} | shadow_of is 'pp', which is no pipeline. | did you mean 'p'?
p: {RIGHT}, q: {OTHER, shadow_of: p}, r: {source: /s, target: /u, ▶shadow_of: q, keys: k} | a shadow | of q:
p: {RIGHT}, q: {source: /x, target: /t2, keys: id, ▶shadow_of: p} | has another source | the same source
p: {RIGHT}, q: {OTHER, where: n > 1, ▶shadow_of: p} | has another where | the same where
p: {ROWS}, q: {source: /files, target: /t2, keys: id, ▶shadow_of: p} | has another source | is the log
p: {source: /f, log: /s, insert_only: true}, q: {OTHER, ▶shadow_of: p} | p has no target | targets
p: {RIGHT}, q: {source: /s, ▶target: /t, keys: id, shadow_of: p} | p and q have the same target | its own
p: {RIGHT, ▶shadow_of: {q: /t}} | shadow_of names the target of this pipeline | its own target
p: {RIGHT}, q: {source: /x, ▶target: 'file:///t', keys: id} | the same target, 'file:///t' | its own
p: {source: /s, ▶target: /s/t, keys: id} | target /s/t lies in the folder of source | outside
p: {▶source: /t/s, target: /t, keys: id} | source /t/s lies in the folder of target | outside
p: {RIGHT}, q: {source: /x, ▶target: /t/u, keys: id} | lies in the folder of the target of p | outside
p: {ROWS}, q: {▶source: /log/u, target: /v, keys: id} | The source of q lies in the folder | outside
p: {ROWS}, q: {source: /x, ▶log: /log, insert_only: true} | p and q have the same log | its own
p: {RIGHT, manifest: /m.json}, q: {OTHER, ▶manifest: /m.json} | p and q have the same manifest | its own file
p: {source: main.bronze.s, target: /t, keys: id, ▶schedule: on_change} | p is a catalog name | to a cron
p: {RIGHT, ▶schedule: on_change, delta_conn_id: '{{ x }}'} | with delta_conn_id, which | a cron
p: {RIGHT, schedule: ▶{assets: ['{{ x }}']}} | schedule of | by literal paths
p: {RIGHT, schedule: ▶{assets: [kafka://b/t]}} | schedule of | name Delta tables
p: {RIGHT, schedule: '@continuous', ▶max_active_runs: 3} | has one run at once | remove it
p: {RIGHT, tags: ▶['{{ x }}']} | tags of the pipeline p is | a literal value
p: {RIGHT, pool: ▶'{{ x }}'} | pool of the pipeline p is | a literal value
p: {RIGHT, execution_timeout: ▶1e300} | is 1e+300 | at most 100 years
p: {source: /f, log: /t, insert_only: true}, q: {source: /x, ▶target: /t, keys: id} | the same table | own
p: {ROWS, ▶schedule: on_change} | p is no table, and schedule is on_change | schedule to a cron
p: {source: '{{ x }}', target: /t, keys: id, ▶schedule: on_change} | known at run time | literal
▶pipeline:¶  p: {RIGHT}¶ | 'pipeline' is no key of a configuration | did you mean 'pipelines'?
▶- p¶ | It is no mapping. | write defaults, groups, pipelines, each with a colon.
pipelines:¶  ▶- p¶ | pipelines is no mapping. | write names, each with a colon.
pipelines:¶  p: ▶/s¶ | The pipeline 'p' is no mapping. | write its keys below it
groups: {g: ▶[]}¶pipelines: {p: {RIGHT, group: g}} | The group 'g' is no mapping. | write its keys
defaults: {▶shedule: null}¶pipelines: {p: {RIGHT}} | 'shedule' is no key of defaults | you mean 'schedule'?
groups:¶  g:¶    ▶max_paralel_tables: 8¶pipelines: {p: {RIGHT, group: g}} | of the group g | 'max_parallel_
pipelines: {▶a/b: {RIGHT}} | The pipeline name 'a/b' cannot be used. | use 1 to 200 letters
groups: {g: {}}¶pipelines: {▶'group:x': {group: g, RIGHT}} | name 'group:x' cannot be used. | of a group.
groups: {▶a b: {}}¶pipelines: {p: {RIGHT}} | The group's name 'a b' cannot be used | use 1 to 200 letters
groups: {sales: {}}¶pipelines: {p: {RIGHT, group: ▶sals}} | 'sals', which does not exist. | mean 'sales'?
p: {RIGHT, group: ▶sales} | which does not exist | write groups: {sales: {}}.
defaults: {group: ▶g}¶pipelines: {p: {RIGHT}} | p is in the group 'g', which does not exist. | write groups
groups: {g: {}}¶pipelines: {p: {RIGHT, group: g, ▶schedule: null}} | in the group g. | move it to groups: g
▶p: {target: /t, keys: id} | The pipeline p has no source. | write source: with a path
▶p: {source: /s, keys: id} | The pipeline p has no target. | write target: with a path
groups: {p: {}}¶pipelines: {▶p: {RIGHT}} | in no group, but a group has the same name. | add group: p
▶defaults: {} | There is no pipeline. | write pipelines:
defaults: {dag_id: x, backfill: false}¶pipelines: {p: {RIGHT}, ▶q: {OTHER}} | be the DAG x. | put {name}
defaults: {storage_options: {key: ▶[HUSH]}}¶pipelines: {p: {RIGHT}} | with a value that is no text | give
defaults: {conf: ▶HUSH}¶pipelines: {p: {RIGHT}} | conf of defaults is no mapping (type str). | give
defaults: {▶format_options: {sep: x}}¶pipelines: {p: {LOG, keys: k}} | 'sep' | format_options: null in the
p: {RIGHT}, ▶p__backfill: {OTHER} | would both be the DAG p__backfill. | another name
pipelines: {▶'a:b': {RIGHT}} | The DAG's id 'a:b' cannot be used. | set dag_id, or
p: {source: /s, target: /t, keys: [id, ▶12]} | keys of the pipeline p is ['id', 12] | list of texts
p: {LOG, keys: id, ▶source_kind: snapshot} | source_kind is 'snapshot', and log is given. | leave it
p: {LOG, keys: id, ▶source_kind: change_feed} | is 'change_feed', and log is given. | leave it out
p: {▶source: main.sales.o, target: main.sales.o, keys: id} | the same table | two different tables.
p: {source: 's3://b/', ▶target: 's3://t/', keys: id} | target s3://t/ is a whole bucket | s3://t/target
p: {source: /f, ▶log: 's3a://b', target: /t, keys: id} | log s3a://b is a whole bucket | s3a://b/log
p: {▶source: /s, target: /s/, keys: id} | source and target are the same table | two different
p: {source: /s, ▶target: 'kafka://b:9092/t', keys: id} | has the scheme kafka: | a URI of one of s3
p: {source: /s, ▶target: LONG, keys: id} | File name too long | correct
▶p: {source: /s, target: /t} | The pipeline p: keys are missing. | name the key columns, or
p: {source: /s, target: /t, ▶keys: [id, ID]} | names a column twice (id, ID) | each column once.
p: {LOG, keys: id, ▶adapter: debezum} | adapter is 'debezum' | (did you mean 'debezium'?)
p: {LOG, keys: id, ▶adapter_options: {op: x}} | adapter_options of 'plain' has 'op' | it is one of
p: {LOG, ▶insert_only: true, keys: id} | insert_only and keys are given | leave keys out
p: {source: 'kafka://b:9092/t', log: /l, keys: id, limits: {▶max_files: 5}} | a topic | max_offsets
p: {▶source: /files, log: /files/log, keys: id} | contains the other | use separate folders
pipelines:¶  p: ▶&a {RIGHT}¶ | An anchor (&…) stands here. | put what several pipelines share into
pipelines:¶  p: ▶*a¶ | An alias (*…) stands here. | put what several pipelines share
p: {RIGHT, glob: *▶.json} | It is no YAML: while scanning an alias | ':', '#', '{', '%' or '*' need
p: {where: ▶!!python/object/apply:os.system [exit]} | A tag (!…) stands here. | remove it
p: {where: ▶!env X} | A tag (!…) stands here. | remove it, or quote
▶!!set {a}¶ | A tag (!…) stands here. | remove it
pipelines:¶  p: {¶RIGHT,¶▶source: /o}¶ | 'source' is written twice, first in line 3. | keep one of them.
pipelines:¶  p: {RIGHT}¶  ▶p: {RIGHT}¶ | 'p' is written twice, first in line 2. | keep one of them.
p: {RIGHT, ? ▶[a] : b} | A key is no text. | write a name and a colon.
pipelines: {p: {RIGHT}}¶▶---¶pipelines: {}¶ | A second document begins. | split it into several files
pipelines:¶  p: {source: /s¶▶ | It is no YAML: while parsing a flow mapping | correct it
pipelines:¶▶\tp: x¶ | found character that cannot start any token | YAML does not allow tabs for indentation.
pipelines:¶  p:¶    source: /s¶▶\ttarget: /t¶ | a tab character that violates indentation. | not allow tabs
pipelines:¶  p:¶    source: /s¶   ▶target: /t¶ | did not find expected key. | indent all keys of a mapping by
pipelines:¶  p:¶    source: /s¶     target▶: /t¶ | mapping values are not allowed | indent all keys of a
pipelines: NEST▶[DEEP | Values lie more than 20 levels deep. | write it flat.
- - - - - - - - - - - - - - - - - - - - - ▶- a¶ | Values lie more than 20 levels deep. | write it flat."""

#: Keys of a pipeline that is right without them | the message | the remedy.
KEYS = """\
▶stored_as_scd_typ: 2 | 'stored_as_scd_typ' is no key of the pipeline p | did you mean 'stored_as_scd_type'?
▶qqqq: 2 | 'qqqq' is no key | use one of source, target, log,
▶mode: reset | 'mode' is no key of the pipeline p | remove it: it applies to one run
▶repair: {keys: 'true'} | 'repair' is no key of the pipeline p. | remove it: it applies to one run
▶pipeline: q | 'pipeline' is no key of the pipeline p | is the pipeline's name
▶pipelines: {} | 'pipelines' is no key of the pipeline p | write pipelines: at the left margin.
▶<<: {where: x} | '<<' is no key | put what several pipelines share into defaults or a group.
▶format: csv | format is given for the pipeline p, which has no log. | add log: with the path
▶dag_id: a b | The DAG's id 'a b' cannot be used. | set dag_id
▶on_drift: accept | 'on_drift' is no key of the pipeline p. | write it under policies:.
layout: {▶on_drift: accept} | 'on_drift' is no key of layout of the pipeline p. | write it under policies:.
policies: {▶on_drit: accept} | 'on_drit' is no key of policies of the pipeline p. | did you mean 'on_drift'?
limits: ▶5 | limits of the pipeline p is 5. | give a mapping with keys among max_versions, max_bytes
limits: {max_versions: ▶ten} | max_versions of the pipeline p is 'ten' | give a whole number >= 1.
limits: {max_versions: ▶'10'} | max_versions of the pipeline p is '10' | give a whole number >= 1.
limits: {max_bytes: ▶0} | is 0 | give a whole number >= 1.
retries: ▶1.5 | retries of the pipeline p is 1.5 | give a whole number >= 0.
retries: ▶true | is True | give a whole number >= 0.
stored_as_scd_type: ▶3 | is 3 | give 1 or 2.
stored_as_scd_type: ▶true | is True | give 1 or 2.
source_kind: ▶change_lg | source_kind of the pipeline p is 'change_lg' | (did you mean 'change_log'?).
delete_mode: ▶x | is 'x' | give one of hard, soft, new_version.
layout: {publish_changes: ▶yes} | publish_changes of the pipeline p is 'yes' | give true or false.
driver_memory: ▶'4096' | driver_memory of the pipeline p is '4096' | give a size with its unit, such as 4g.
executor_memory: ▶'{{ params.x }}' | executor_memory of the pipeline p is | give a size with its unit
insert_only: ▶'{{ params.x }}' | insert_only of | give true or false.
execution_timeout: ▶12:30:45 | is '12:30:45' | give seconds, or a text like '5 minutes'.
retry_delay: ▶five minutes | is 'five minutes' | give seconds, or a text like '5 minutes'.
retry_delay: ▶-1 | is -1 | give seconds
take_over_from: ▶12 | is 12 | give a name; one that looks like a number needs quotes.
layout: {partition_by: {y: year(d), z: ▶1}} | partition_by of | give a list of columns, or a mapping
policies: {on_conflict: {▶lastby: [n]}} | on_conflict of | give one of fail, quarantine, or a mapping
policies: {on_conflict: {last_by: [n, ▶1]}} | on_conflict of | {last_by: [<column>, …]}
initial_load: {from_version: ▶x} | initial_load of | {from_version: N} or {none_at: V}
initial_load: ▶snapshoot | is 'snapshoot' | (did you mean 'snapshot'?)
layout: {target_properties: ▶[a]} | is ['a'] | give a mapping from names to values.
tags: ▶lake | tags of the pipeline p is 'lake' | give a list of texts.
on_failure_callback: ▶page me | is 'page me' | give the dotted name of a function
schedule: ▶'* * *' | schedule of the pipeline p is '* * *' | give the five fields of cron
schedule: ▶'99 99 * * *' | is '99 99 * * *' | give the five fields of cron
schedule: ▶a b c d e | is 'a b c d e' | give the five fields of cron
schedule: ▶'@houry' | is '@houry' | did you mean '@hourly'?
schedule: ▶{assets: []} | is {'assets': []} | name at least one table
schedule: ▶on-change | is 'on-change' | did you mean 'on_change'?
schedule: {▶asset: [/t]} | schedule of | a mapping {assets: [<table>, …]}
starting_version: ▶{{ params.x }} | A template without quotes stands here. | put it in quotes: '{{ … }}'.
start_date: ▶31.1.2026 | is '31.1.2026' | give a date as 2026-01-31
start_date: ▶'2026-01-31T06:00' | is '2026-01-31T06:00' | 18:00:00 Europe/Berlin
deploy_mode: ▶local | is 'local' | give one of client, cluster.
▶sequence_by: n | sequence_by is given with SCD type 1 | leave it out
except_column_list: a, ▶column_list: b | column_list and except_column_list are both given | give one of them.
▶starting_timestamp: '2026-01-01T00:00:00' | starting_timestamp | offset
starting_version: 5, ▶ending_version: 4 | ending_version 4 lies before starting_version 5 | both ends are
▶starting_version: 5, starting_timestamp: '2026-01-01T00:00:00Z' | starting_version | one"""


def found_in(tmp_path: Path, text: str) -> list[Finding]:
    """Return what is found, which is at the places that are marked."""
    path = tmp_path / "pipelines.yaml"
    path.write_text(text.replace(MARK, ""), encoding="utf-8")
    marked = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split(MARK)
        columns = [sum(map(len, parts[:count])) + 1 for count in range(1, len(parts))]
        marked += [(str(path), number, column) for column in columns]
    found = lint(path)
    places = [(one.place.file, one.place.line, one.place.column) for one in found]
    assert places == marked, [str(one) for one in found]
    return found


def named(text: str) -> str:
    """Return a row's text with what its names stand for."""
    special = {"¶": "\n", "LONG": "x" * 300, "NEST": "[" * 20, "DEEP": "[" * 10_000}
    for name, part in {**PARTS, **special}.items():
        text = text.replace(name, part)
    return text


@pytest.mark.parametrize("row", [*WHOLE.splitlines(), *KEYS.splitlines()])
def test_one_mistake(tmp_path: Path, row: str) -> None:
    """It is one finding, where the mark is, and loading says the same."""
    text, message, remedy = row.split(" | ")
    if row in KEYS.splitlines():
        text = f"p: {{RIGHT, {text}}}"
    if text.startswith(("p: ", f"{MARK}p: ")):
        text = f"pipelines: {{{text}}}¶"
    (one,) = found_in(tmp_path, named(text))
    assert message in one.message
    assert remedy in one.remedy
    assert one.message[-1] == "."
    place = f"{one.place.file}:{one.place.line}:{one.place.column}"
    assert str(one) == f"{place}: {one.message} Remedy: {one.remedy}"
    with pytest.raises(InvalidConfiguration) as raised:
        load(one.place.file)
    assert str(one) in str(raised.value)


def test_all_at_once_in_order(tmp_path: Path) -> None:
    text = f"""\
defaults:
  {MARK}retrys: 3
groups:
  g: {{max_active_runs: {MARK}none}}
pipelines:
  a: {{group: {MARK}gg, {MARK}sorce: /s}}
  b:
    {MARK}source: /x
    target: /x
    keys: id
  c: {{{RIGHT}, {MARK}keys: k, source_kind: {MARK}change_fed}}
{MARK}nothing: 1
"""
    found_in(tmp_path, text)


def test_a_value_from_afar_is_shown_where_it_stands(tmp_path: Path) -> None:
    found = found_in(tmp_path, f"defaults:\n  {MARK}sequence_by: n\npipelines:\n  p: {{{RIGHT}}}\n")
    assert found[0].message.startswith("The pipeline p: ")


def test_two_files_of_one_folder(tmp_path: Path) -> None:
    one, two = tmp_path / "1.yaml", tmp_path / "2.yml"
    one.write_text(f"defaults: {{retries: 1}}\ngroups: {{g: {{}}}}\npipelines:\n  p: {{{RIGHT}, group: g}}\n")
    two.write_text(f"defaults: {{retries: 2}}\ngroups: {{g: {{}}}}\npipelines:\n  p: {{{RIGHT}, group: g}}\n")
    remedy = "Remedy: keep one of them, or give one another name."
    assert [str(finding) for finding in lint(tmp_path)] == [
        f"{two}:1:12: The default 'retries' is written twice, first in {one}:1. {remedy}",
        f"{two}:2:10: The group 'g' is written twice, first in {one}:2. {remedy}",
        f"{two}:4:3: The pipeline 'p' is written twice, first in {one}:4. {remedy}",
    ]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    absent, empty, pipe, latin, blank, control = (
        tmp_path / name
        for name in ("absent.yaml", "empty", "pipe.yaml", "latin.yaml", "blank.yaml", "control.yaml")
    )
    empty.mkdir()
    (empty / "notes.txt").write_text("pipelines: {}")
    os.mkfifo(pipe)
    latin.write_bytes("defaults: {}\n# für\n".encode("latin-1"))
    blank.write_text("# nothing yet\n")
    control.write_bytes(b"defaults: {owner: a\x07b}\n")
    expected = {
        absent: f"{absent}: The file cannot be read: No such file or directory. Remedy: correct the path",
        empty: f"{empty}: The folder holds no YAML file. Remedy: name a file, or a folder that holds *.yaml",
        pipe: f"{pipe}: It is neither a file nor a folder. Remedy: name a YAML file.",
        latin: f"{latin}:2:4: The file is not UTF-8. Remedy: save it as UTF-8.",
        blank: f"{blank}: There is no pipeline. Remedy: write pipelines:",
        control: f"{control}: It is no YAML: ",
    }
    for path, said in expected.items():
        (found,) = lint(path)
        assert str(found).startswith(said), path


def test_a_file_that_is_too_long_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.yaml"
    short = tmp_path / "short.yaml"
    for each, size in ((path, 100 * 1024 * 1024), (short, tree.MOST_BYTES)):
        with each.open("wb") as file:
            file.truncate(size)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("it was opened")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refused)
        (found,) = lint(path)
        assert found.message == "The file has 104857600 bytes, and 4194304 is the most that is read."
        assert found.remedy.startswith("split it into several files of one folder")
        with pytest.raises(AssertionError, match="it was opened"):
            lint(short)


def test_nothing_is_parsed_behind_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bomb of anchors is refused at the first one, and a deep nest at its twenty-first level."""
    seen = []
    take = tree._Composer.get_event

    def counted(self: Any) -> Any:
        seen.append(take(self))
        return seen[-1]

    monkeypatch.setattr(tree._Composer, "get_event", counted)
    bomb = "a: &a [x, x]\n" + "".join(
        f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    deep = "[" * 10_000
    for text, most in ((bomb, 5), (deep, 25)):
        seen.clear()
        path = tmp_path / "hostile.yaml"
        path.write_text(text)
        assert len(lint(path)) == 1
        assert len(seen) <= most


@pytest.mark.parametrize(
    "value",
    ["[HUSH]", "{a: HUSH}", "*HUSH", "!HUSH x", "&HUSH x", "HUSH\n    b: c", "'HUSH", "%HUSH", "@HUSH"],
)
@pytest.mark.parametrize("key", ["storage_options", "kafka_options", "conf", "storage_option"])
def test_no_finding_shows_a_secret(tmp_path: Path, key: str, value: str) -> None:
    """Airflow shows findings as errors of a DAG file, and CI in a public log."""
    path = tmp_path / "p.yaml"
    path.write_text(
        f"defaults: {{{key}: {{a.password: {value}}}}}\np: {{source: /s, target: /t, keys: id}}\n"
    )
    found = lint(path)
    assert found
    assert "HUSH" not in "\n".join(map(str, found))


def test_mappings_have_paths_in_the_place_of_lines() -> None:
    given = {
        "defaults": {"on_failure_callback": print},
        "pipelines": {"p": {"source": "/s", "target": "/t", "keys": ["id", 5], "retrys": 1}},
    }
    assert [str(finding).split(" Remedy: ")[0] for finding in lint(given)] == [
        "mapping defaults.on_failure_callback: A builtin_function_or_method stands here.",
        "mapping pipelines.p.keys[1]: keys of the pipeline p is ['id', 5].",
        "mapping pipelines.p.retrys: 'retrys' is no key of the pipeline p.",
    ]
    assert [finding.message for finding in lint({})] == ["There is no pipeline."]
    loop: dict[str, Any] = {"source": "/s", "log": "/l", "adapter": "my.own", "keys": "id"}
    loop["adapter_options"] = loop
    said = {finding.message for finding in lint({"pipelines": {"p": loop}})}
    assert said == {"Values lie more than 20 levels deep."}


def test_templates_and_variables_are_left_to_the_run(tmp_path: Path) -> None:
    """What is rendered later cannot be judged now; what is not templated still is."""
    text = f"""\
defaults:
  limits: {{max_versions: "{{{{ params.n }}}}"}}
pipelines:
  a: {{source: "${{NOT_SET_HERE}}/s", target: "{{{{ var.value.lake }}}}/t", keys: "{{{{ params.keys }}}}"}}
  b: {{source: "$NOT_SET_HERE", log: /log, limits: {{max_offsets: 5, max_versions: null}}, keys: id}}
  c: {{source: "{{{{ x }}}}", log: /log2, limits: {{max_offsets: 5}}, keys: id}}
  d:
    {{source: /s, target: "{{% if x %}}/t{{% endif %}}", stored_as_scd_type: "{{{{ n }}}}"}}
  e: {{{MARK}source: "${{NOT_SET_HERE}}/t", target: "${{NOT_SET_HERE}}/t", keys: id, limits: null}}
"""
    found_in(tmp_path, text)


def test_nobody_looks_for_more_than_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gives the wrong file hears so soon: looking for near names takes its time."""
    looked = []
    near = findings.get_close_matches
    monkeypatch.setattr(findings, "get_close_matches", lambda *a, **n: looked.append(a) or near(*a, **n))
    given = {"defaults": {f"schedul{number}": 1 for number in range(20_000)}}
    found = lint(given)
    assert len(found) == findings.MOST + 1
    assert len(looked) <= findings.MOST + 1
    said = [finding.message for finding in found if finding.message.startswith("There are more than 200")]
    assert len(said) == 1


def test_long_values_are_cut() -> None:
    assert findings.shown("x" * 200) == f"'{'x' * 79}…"
    assert tree.MOST_BYTES == 4 * 1024 * 1024
