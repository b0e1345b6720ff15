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
#: A pipeline that is right, to have something to break.
RIGHT = "source: /s, target: /t, keys: id"
LOG = "source: /files, log: /log, target: /t"
ROWS = f"{LOG}, insert_only: true"
#: Another one.
OTHER = "source: /s, target: /t2, keys: id"


def found_in(tmp_path: Path, text: str) -> tuple[list[Finding], list[tuple[str, int, int]]]:
    """Return what is found, and the places that are marked."""
    path = tmp_path / "pipelines.yaml"
    path.write_text(text.replace(MARK, ""), encoding="utf-8")
    marked = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split(MARK)
        columns = [sum(map(len, parts[:count])) + 1 for count in range(1, len(parts))]
        marked += [(str(path), number, column) for column in columns]
    return lint(path), marked


def pipeline(keys: str) -> str:
    return f"pipelines:\n  p: {{{RIGHT}, {keys}}}\n"


STRUCTURE = {
    "a group without pipelines": (
        f"groups: {{{MARK}sale: {{}}, sales: {{}}}}\n{pipeline('group: sales')}",
        "The group 'sale' has no pipeline.",
        "write group: sale in its pipelines, or remove it.",
    ),
    "one target for two": (
        f"pipelines: {{p: {{{RIGHT}}}, q: {{source: /s2, {MARK}target: /t/, keys: id}}}}\n",
        "The pipelines p and q have the same target, '/t/'.",
        "give each pipeline its own table.",
    ),
    "one target for two, as a URI": (
        f"pipelines: {{p: {{{RIGHT}}}, q: {{source: /s2, {MARK}target: 'file:///t', keys: id}}}}\n",
        "The pipelines p and q have the same target, 'file:///t'.",
        "give each pipeline its own table.",
    ),
    "one log for two": (
        f"pipelines: {{p: {{{ROWS}}}, q: {{source: /x, {MARK}log: /log, insert_only: true}}}}\n",
        "The pipelines p and q have the same log, '/log'.",
        "give each pipeline its own table.",
    ),
    "files that nobody watches": (
        f"pipelines: {{p: {{{LOG}, insert_only: true, {MARK}schedule: on_change}}}}\n",
        "The source of p is no table, and schedule is on_change.",
        "set the group's schedule to a cron",
    ),
    "a source that is not known yet": (
        pipeline(f"{MARK}schedule: on_change").replace("/s", "'{{ x }}'"),
        "The source of p is only known at run time, and schedule is on_change.",
        "a literal path or URI",
    ),
    "a key of the file": (
        f"{MARK}pipeline:\n  p: {{{RIGHT}}}\n",
        "'pipeline' is no key of a configuration",
        "did you mean 'pipelines'?",
    ),
    "no mapping": (
        f"{MARK}- p\n",
        "It is no mapping.",
        "write defaults, groups, pipelines, each with a colon.",
    ),
    "a text": (f"{MARK}nonsense\n", "It is no mapping.", "write defaults, groups, pipelines"),
    "a list of pipelines": (
        f"pipelines:\n  {MARK}- p\n",
        "pipelines is no mapping.",
        "write names, each with a colon.",
    ),
    "a pipeline that is a text": (
        f"pipelines:\n  p: {MARK}/s\n",
        "The pipeline 'p' is no mapping.",
        "write its keys below it",
    ),
    "a group that is a list": (
        f"groups: {{g: {MARK}[]}}\npipelines:\n  p: {{{RIGHT}, group: g}}\n",
        "The group 'g' is no mapping.",
        "write its keys",
    ),
    "an unknown default": (
        f"defaults: {{{MARK}shedule: null}}\n{pipeline('')}",
        "'shedule' is no key of defaults",
        "did you mean 'schedule'?",
    ),
    "an unknown key of a group": (
        f"groups:\n  g:\n    {MARK}max_paralel_tables: 8\n{pipeline('group: g')}",
        "'max_paralel_tables' is no key of the group g",
        "did you mean 'max_parallel_tables'?",
    ),
    "an unknown key of a pipeline": (
        pipeline(f"{MARK}stored_as_scd_typ: 2"),
        "'stored_as_scd_typ' is no key of the pipeline p",
        "did you mean 'stored_as_scd_type'?",
    ),
    "a key that is like no other": (
        pipeline(f"{MARK}qqqq: 2"),
        "'qqqq' is no key",
        "use one of source, target, log,",
    ),
    "a key of a run": (
        pipeline(f"{MARK}mode: reset"),
        "'mode' is no key of the pipeline p",
        "remove it: it applies to one run",
    ),
    "the pipeline's name as a key": (
        pipeline(f"{MARK}pipeline: q"),
        "'pipeline' is no key of the pipeline p",
        "is the pipeline's name",
    ),
    "a merge": (
        pipeline(f"{MARK}<<: {{where: x}}"),
        "'<<' is no key",
        "put what several pipelines share into defaults or a group.",
    ),
    "a pipeline's name": (
        f"pipelines:\n  {MARK}a/b: {{{RIGHT}}}\n",
        "The pipeline name 'a/b' cannot be used.",
        "use 1 to 200 letters",
    ),
    "a group's name": (
        f"groups: {{{MARK}a b: {{}}}}\n{pipeline('')}",
        "The group's name 'a b' cannot be used",
        "use 1 to 200 letters",
    ),
    "an unknown group": (
        f"groups: {{sales: {{}}}}\n{pipeline(f'group: {MARK}sals')}",
        "The pipeline p is in the group 'sals', which does not exist.",
        "did you mean 'sales'?",
    ),
    "a group where there is none": (
        pipeline(f"group: {MARK}sales"),
        "which does not exist",
        "write groups: {sales: {}}.",
    ),
    "an unknown group by default": (
        f"defaults: {{group: {MARK}g}}\n{pipeline('')}",
        "The pipeline p is in the group 'g', which does not exist.",
        "write groups",
    ),
    "a key of a DAG in a group's pipeline": (
        f"groups: {{g: {{}}}}\n{pipeline(f'group: g, {MARK}schedule: null')}",
        "schedule is given for the pipeline p, which runs in the group g.",
        "move it to groups: g",
    ),
    "a key of an ingest": (
        pipeline(f"{MARK}format: csv"),
        "format is given for the pipeline p, which has no log.",
        "add log: with the path of the change log, or remove it.",
    ),
    "no source": (
        f"pipelines:\n  {MARK}p: {{target: /t, keys: id}}\n",
        "The pipeline p has no source.",
        "write source: with a path",
    ),
    "no target": (
        f"pipelines:\n  {MARK}p: {{source: /s, keys: id}}\n",
        "The pipeline p has no target.",
        "write target: with a path",
    ),
    "a group of a pipeline's name": (
        f"groups: {{p: {{}}}}\npipelines:\n  {MARK}p: {{{RIGHT}}}\n",
        "The pipeline p is in no group, but a group has the same name.",
        "add group: p to the pipeline",
    ),
    "no pipeline": (f"{MARK}defaults: {{}}\n", "There is no pipeline.", "write pipelines:"),
    "one id for two": (
        f"defaults: {{dag_id: x, backfill: false}}\npipelines: {{p: {{{RIGHT}}}, {MARK}q: {{{OTHER}}}}}\n",
        "q and p would both be the DAG x.",
        "put {name} into dag_id.",
    ),
    "the id of a backfill": (
        f"pipelines:\n  p: {{{RIGHT}}}\n  {MARK}p__backfill: {{source: /s, target: /t2, keys: id}}\n",
        "p__backfill and p would both be the DAG p__backfill.",
        "give one of them another name",
    ),
    "an id": (f"{pipeline(f'{MARK}dag_id: a b')}", "The DAG's id 'a b' cannot be used.", "set dag_id"),
    "an id made of a name": (
        f"pipelines:\n  {MARK}a:b: {{{RIGHT}}}\n",
        "The DAG's id 'a:b' cannot be used.",
        "set dag_id, or the name,",
    ),
}

VALUES = {
    "an option outside of its group": (
        f"{MARK}on_drift: accept",
        "'on_drift' is no key of the pipeline p.",
        "write it under policies:.",
    ),
    "an option in another group": (
        f"layout: {{{MARK}on_drift: accept}}",
        "'on_drift' is no key of layout of the pipeline p.",
        "write it under policies:.",
    ),
    "an unknown option of a group": (
        f"policies: {{{MARK}on_drit: accept}}",
        "'on_drit' is no key of policies of the pipeline p.",
        "did you mean 'on_drift'?",
    ),
    "a group that is a text": (
        f"limits: {MARK}5",
        "limits of the pipeline p is 5.",
        "give a mapping with keys among max_versions, max_bytes",
    ),
    "a group of a run": (
        f"{MARK}repair: {{keys: 'true'}}",
        "'repair' is no key of the pipeline p.",
        "remove it: it applies to one run",
    ),
    "a number": (
        f"limits: {{max_versions: {MARK}ten}}",
        "max_versions of the pipeline p is 'ten'",
        "give a whole number >= 1.",
    ),
    "a number in quotes": (
        f"limits: {{max_versions: {MARK}'10'}}",
        "max_versions of the pipeline p is '10'",
        "give a whole number >= 1.",
    ),
    "too small": (f"limits: {{max_bytes: {MARK}0}}", "is 0", "give a whole number >= 1."),
    "a fraction": (f"retries: {MARK}1.5", "retries of the pipeline p is 1.5", "give a whole number >= 0."),
    "true is no number": (f"retries: {MARK}true", "is True", "give a whole number >= 0."),
    "an SCD type": (f"stored_as_scd_type: {MARK}3", "is 3", "give 1 or 2."),
    "true is no SCD type": (f"stored_as_scd_type: {MARK}true", "is True", "give 1 or 2."),
    "a choice": (
        f"source_kind: {MARK}change_lg",
        "source_kind of the pipeline p is 'change_lg'",
        "give one of change_feed, change_log, snapshot (did you mean 'change_log'?).",
    ),
    "a choice like no other": (f"delete_mode: {MARK}x", "is 'x'", "give one of hard, soft."),
    "yes is a text": (
        f"layout: {{publish_changes: {MARK}yes}}",
        "publish_changes of the pipeline p is 'yes'",
        "give true or false.",
    ),
    "memory without a unit": (
        f"driver_memory: {MARK}'4096'",
        "driver_memory of the pipeline p is '4096'",
        "give a size with its unit, such as 4g.",
    ),
    "memory by a template, which nothing renders": (
        f"executor_memory: {MARK}'{{{{ params.x }}}}'",
        "executor_memory of the pipeline p is",
        "give a size with its unit, such as 4g.",
    ),
    "no template here": (f"insert_only: {MARK}'{{{{ params.x }}}}'", "insert_only of", "give true or false."),
    "a time of day": (
        f"execution_timeout: {MARK}12:30:45",
        "is '12:30:45'",
        "give seconds, or a text like '5 minutes'.",
    ),
    "a span": (
        f"retry_delay: {MARK}five minutes",
        "is 'five minutes'",
        "give seconds, or a text like '5 minutes'.",
    ),
    "before zero": (f"retry_delay: {MARK}-1", "is -1", "give seconds"),
    "a name that is a number": (
        f"take_over_from: {MARK}12",
        "is 12",
        "give a name; one that looks like a number needs quotes.",
    ),
    "a list of numbers": (
        f"keys: [id, {MARK}12]",
        "keys of the pipeline p is ['id', 12]",
        "give a text or a list of texts.",
    ),
    "a mapping of names": (
        f"layout: {{partition_by: {{y: year(d), z: {MARK}1}}}}",
        "partition_by of",
        "give a list of columns, or a mapping",
    ),
    "what wins of ties": (
        f"policies: {{on_conflict: {{{MARK}lastby: [n]}}}}",
        "on_conflict of",
        "give one of fail, quarantine, or a mapping",
    ),
    "what wins of ties, within": (
        f"policies: {{on_conflict: {{last_by: [n, {MARK}1]}}}}",
        "on_conflict of",
        "{last_by: [<column>, …]}",
    ),
    "an initial load": (
        f"initial_load: {{from_version: {MARK}x}}",
        "initial_load of",
        "{from_version: N} or {none_at: V}",
    ),
    "a near initial load": (f"initial_load: {MARK}snapshoot", "is 'snapshoot'", "(did you mean 'snapshot'?)"),
    "properties": (
        f"layout: {{target_properties: {MARK}[a]}}",
        "is ['a']",
        "give a mapping from names to values.",
    ),
    "tags": (f"tags: {MARK}lake", "tags of the pipeline p is 'lake'", "give a list of texts."),
    "a callback": (
        f"on_failure_callback: {MARK}page me",
        "is 'page me'",
        "give the dotted name of a function",
    ),
    "cron": (
        f"schedule: {MARK}'* * *'",
        "schedule of the pipeline p is '* * *'",
        "give the five fields of cron",
    ),
    "cron out of range": (
        f"schedule: {MARK}'99 99 * * *'",
        "is '99 99 * * *'",
        "give the five fields of cron",
    ),
    "cron of words": (f"schedule: {MARK}a b c d e", "is 'a b c d e'", "give the five fields of cron"),
    "a template without quotes": (
        f"starting_version: {MARK}{{{{ params.x }}}}",
        "A template without quotes stands here.",
        "put it in quotes: '{{ … }}'.",
    ),
    "a preset": (f"schedule: {MARK}'@houry'", "is '@houry'", "did you mean '@hourly'?"),
    "a schedule by no table": (
        f"schedule: {MARK}{{assets: []}}",
        "is {'assets': []}",
        "name at least one table",
    ),
    "a schedule by changes": (f"schedule: {MARK}on-change", "is 'on-change'", "did you mean 'on_change'?"),
    "a schedule by tables": (
        f"schedule: {{{MARK}asset: [/t]}}",
        "schedule of",
        "a mapping {assets: [<table>, …]}",
    ),
    "a date": (f"start_date: {MARK}31.1.2026", "is '31.1.2026'", "give a date as 2026-01-31"),
    "no offset": (f"start_date: {MARK}'2026-01-31T06:00'", "is '2026-01-31T06:00'", "18:00:00 Europe/Berlin"),
    "a deploy mode": (f"deploy_mode: {MARK}local", "is 'local'", "give one of client, cluster."),
}

COMBINATIONS = {
    "a log is no snapshot": (
        f"p: {{{LOG}, keys: id, {MARK}source_kind: snapshot}}",
        "source_kind is 'snapshot', and log is given.",
        "leave it out: a log holds events.",
    ),
    "a log is no feed": (
        f"p: {{{LOG}, keys: id, {MARK}source_kind: change_feed}}",
        "source_kind is 'change_feed', and log is given.",
        "leave it out",
    ),
    "one name twice": (
        f"p: {{{MARK}source: main.sales.orders, target: main.sales.orders, keys: id}}",
        "source and target are the same table",
        "name two different tables.",
    ),
    "a scheme": (
        f"p: {{source: /s, {MARK}target: 'kafka://b:9092/t', keys: id}}",
        "has the scheme kafka:, which cannot be read without Spark.",
        "use a path, or a URI of one of s3",
    ),
    "a name that is too long": (
        f"p: {{source: /s, {MARK}target: {'x' * 300}, keys: id}}",
        "File name too long",
        "correct",
    ),
    "keys are missing": (
        f"{MARK}p: {{source: /s, target: /t}}",
        "The pipeline p: keys are missing.",
        "name the key columns, or set insert_only",
    ),
    "one table twice": (
        f"p: {{{MARK}source: /s, target: /s/, keys: id}}",
        "source and target are the same table",
        "name two different tables.",
    ),
    "an order for type 1": (
        f"p: {{{RIGHT}, {MARK}sequence_by: n}}",
        "sequence_by is given with SCD type 1",
        "",
    ),
    "a column twice": (
        f"p: {{source: /s, target: /t, {MARK}keys: [id, ID]}}",
        "keys names a column twice (id, ID)",
        "name each column once.",
    ),
    "two lists": (
        f"p: {{{RIGHT}, except_column_list: a, {MARK}column_list: b}}",
        "column_list and except_column_list are both given",
        "give one of them.",
    ),
    "a time without offset": (
        f"p: {{{RIGHT}, {MARK}starting_timestamp: '2026-01-01T00:00:00'}}",
        "starting_timestamp",
        "offset",
    ),
    "bounds the wrong way": (
        f"p: {{{RIGHT}, starting_version: 5, {MARK}ending_version: 4}}",
        "ending_version 4 lies before starting_version 5",
        "both ends are inclusive.",
    ),
    "two starts": (
        f"p: {{{RIGHT}, {MARK}starting_version: 5, starting_timestamp: '2026-01-01T00:00:00Z'}}",
        "starting_version",
        "",
    ),
    "an adapter": (
        f"p: {{{LOG}, keys: id, {MARK}adapter: debezum}}",
        "adapter is 'debezum'",
        "(did you mean 'debezium'?)",
    ),
    "an adapter's option": (
        f"p: {{{LOG}, keys: id, {MARK}adapter_options: {{op: x}}}}",
        "adapter_options of 'plain' has 'op'",
        "it is one of",
    ),
    "keys of inserts": (
        f"p: {{{LOG}, {MARK}insert_only: true, keys: id}}",
        "insert_only and keys are given",
        "leave keys out",
    ),
    "files of a topic": (
        f"p: {{source: 'kafka://b:9092/t', log: /log, keys: id, limits: {{{MARK}max_files: 5}}}}",
        "max_files and a source of a topic are given",
        "max_offsets and kafka_options are for a topic",
    ),
    "a log among its files": (
        f"p: {{{MARK}source: /files, log: /files/log, keys: id}}",
        "contains the other",
        "use separate folders",
    ),
}

YAML = {
    "an anchor": (
        f"pipelines:\n  p: {MARK}&a {{{RIGHT}}}\n",
        "An anchor (&…) stands here: 'a'.",
        "put what several pipelines share into defaults or a group; quote",
    ),
    "an alias": (
        f"pipelines:\n  p: {MARK}*a\n",
        "An alias (*…) stands here: 'a'.",
        "put what several pipelines share",
    ),
    "a glob without quotes": (
        pipeline(f"glob: *{MARK}.json"),
        "It is no YAML: while scanning an alias",
        "correct it; texts with ':', '#', '{', '%' or '*' need quotes.",
    ),
    "an object": (
        pipeline(f"where: {MARK}!!python/object/apply:os.system [exit]"),
        "A tag stands here: 'tag:yaml.org,2002:python/object/apply:os.system'.",
        "remove it, or quote",
    ),
    "a tag of one's own": (
        pipeline(f"where: {MARK}!env X"),
        "A tag stands here: '!env'.",
        "remove it, or quote",
    ),
    "a plain tag": (pipeline(f"where: {MARK}!!str 1"), "A tag stands here", "remove it"),
    "a tagged key": (f"{MARK}!!set {{a}}\n", "A tag stands here", "remove it"),
    "a key twice": (
        f"pipelines:\n  p:\n    source: /s\n    target: /t\n    keys: id\n    {MARK}source: /other\n",
        "'source' is written twice, first in line 3.",
        "keep one of them.",
    ),
    "a pipeline twice": (
        f"pipelines:\n  p: {{{RIGHT}}}\n  {MARK}p: {{{RIGHT}}}\n",
        "'p' is written twice, first in line 2.",
        "keep one of them.",
    ),
    "a key that is a list": (pipeline(f"? {MARK}[a] : b"), "A key is no text.", "write a name and a colon."),
    "two documents": (
        f"{pipeline('where: x')}{MARK}---\npipelines: {{}}\n",
        "A second document begins.",
        "split it into several files of one folder",
    ),
    "no end": (
        f"pipelines:\n  p: {{source: /s\n{MARK}",
        "It is no YAML: while parsing a flow mapping",
        "correct it",
    ),
    "a tab": (
        f"pipelines:\n{MARK}\tp: x\n",
        "It is no YAML: while scanning for the next token, found character that cannot start any token",
        "write spaces: YAML does not allow tabs for indentation.",
    ),
    "a tab behind a value": (
        f"pipelines:\n  p:\n    source: /s\n{MARK}\ttarget: /t\n",
        "It is no YAML: while scanning a plain scalar, found a tab character that violates indentation.",
        "write spaces: YAML does not allow tabs for indentation.",
    ),
    "too little indentation": (
        f"pipelines:\n  p:\n    source: /s\n   {MARK}target: /t\n",
        "It is no YAML: while parsing a block mapping, did not find expected key.",
        "indent all keys of a mapping by the same number of spaces; texts with ':',",
    ),
    "too much indentation": (
        f"pipelines:\n  p:\n    source: /s\n     target{MARK}: /t\n",
        "It is no YAML: mapping values are not allowed in this context.",
        "indent all keys of a mapping by the same number of spaces; texts with ':',",
    ),
    "too deep": (
        "pipelines: " + "[" * 20 + f"{MARK}[" + "[" * 10_000,
        "Values lie more than 20 levels deep.",
        "write it flat.",
    ),
    "too deep in blocks": (
        "- " * 21 + f"{MARK}- a\n",
        "Values lie more than 20 levels deep.",
        "write it flat.",
    ),
}


@pytest.mark.parametrize(("text", "message", "remedy"), STRUCTURE.values(), ids=STRUCTURE)
def test_structure(tmp_path: Path, text: str, message: str, remedy: str) -> None:
    check(tmp_path, text, message, remedy)


@pytest.mark.parametrize(("keys", "message", "remedy"), VALUES.values(), ids=VALUES)
def test_values(tmp_path: Path, keys: str, message: str, remedy: str) -> None:
    text = pipeline(keys)
    check(tmp_path, text.replace("keys: id, ", "") if keys.startswith("keys") else text, message, remedy)


@pytest.mark.parametrize(("entry", "message", "remedy"), COMBINATIONS.values(), ids=COMBINATIONS)
def test_combinations(tmp_path: Path, entry: str, message: str, remedy: str) -> None:
    check(tmp_path, f"pipelines:\n  {entry}\n", message, remedy)


@pytest.mark.parametrize(("text", "message", "remedy"), YAML.values(), ids=YAML)
def test_yaml(tmp_path: Path, text: str, message: str, remedy: str) -> None:
    check(tmp_path, text, message, remedy)


def check(tmp_path: Path, text: str, message: str, remedy: str) -> None:
    """Demand one finding, where the mark is, and that loading says the same."""
    found, marked = found_in(tmp_path, text)
    assert [(one.place.file, one.place.line, one.place.column) for one in found] == marked, [
        str(one) for one in found
    ]
    (one,) = found
    assert message in one.message
    assert remedy in one.remedy
    assert one.message[-1] == "."
    assert (
        str(one)
        == f"{one.place.file}:{one.place.line}:{one.place.column}: {one.message} Remedy: {one.remedy}"
    )
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
    found, marked = found_in(tmp_path, text)
    assert [(one.place.file, one.place.line, one.place.column) for one in found] == marked


def test_a_value_from_afar_is_shown_where_it_stands(tmp_path: Path) -> None:
    text = f"defaults:\n  {MARK}sequence_by: n\npipelines:\n  p: {{{RIGHT}}}\n"
    found, marked = found_in(tmp_path, text)
    assert [(one.place.file, one.place.line, one.place.column) for one in found] == marked
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
    found, marked = found_in(tmp_path, text)
    assert [(one.place.file, one.place.line, one.place.column) for one in found] == marked, [
        str(one) for one in found
    ]


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
