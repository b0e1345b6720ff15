"""``delta-cdc init`` and ``discover`` where nothing has to be counted: they start no Spark."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake

from delta_cdc.cli import main, proposing
from delta_cdc.cli.proposing import Known, Proposing, Search
from delta_cdc.config import lint, load
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.planning.topic_samples import SampledTable
from tests.support.logs import LogTable

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.config.proposals import Proposal

_APPENDED = {"delta.appendOnly": "true"}


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("delta_cdc.cli.common.get_session", refused)


def _table(path: Path, *, properties: dict[str, str] | None = None, **columns: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_deltalake(str(path), pa.table(columns or {"url": ["a"]}), configuration=properties)
    return str(path)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two tables whose rows can only be added, and one beside them that this package keeps."""
    for name in ("clicks", "deep/views", "deep/tmp_1", "clicks__quarantine", "x__ingested"):
        _table(tmp_path / "bronze" / name, properties=_APPENDED)
    return tmp_path / "bronze"


def _proposed(table: str, **given: Any) -> Proposal:
    (found,) = Proposing(Search(tables=table, target="/t", **given), Known()).run().proposals
    return found


def test_init_writes_a_file_that_lint_accepts(lake: Path, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "made.yaml"
    command = ["init", f"{lake}/", "--target", "/silver/{name}/now", "--leave-out", "tmp_*", "--group", "web"]
    assert main([*command, "--output", str(file)]) == 0
    assert capsys.readouterr() == ("", "")
    assert lint(file) == []
    (group,) = load(file).groups
    assert group.settings["discover"] == {
        "tables": str(lake),
        "target": "/silver/{name}/now",
        "leave_out": ["tmp_*"],
    }
    assert {table.pipeline: table.arguments for table in group.tables} == {
        name: {
            "pipeline": name,
            "source": f"{lake}/{path}",
            "target": f"/silver/{path}/now",
            "insert_only": True,
        }
        for name, path in (("clicks", "clicks"), ("deep_views", "deep/views"))
    }
    # The same without a file; and a file that exists stays.
    assert main(command) == 0
    assert capsys.readouterr().out == file.read_text()
    assert main([*command, "--output", str(file)]) == 2
    assert "cannot be written: File exists" in capsys.readouterr().err


def test_paths_do_not_depend_on_the_working_folder(
    lake: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake.parent)
    assert main(["init", "bronze", "--target", "./silver"]) == 0
    text = capsys.readouterr().out
    assert f"tables: {lake}\n" in text
    assert f"target: {lake.parent}/silver/deep/views\n" in text
    assert main(["init", "bronze", "--target", "main.silver", "--leave-out", "*/*"]) == 0
    assert "target: main.silver.clicks\n" in capsys.readouterr().out


def test_targets_in_a_schema_are_names(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slash or a dot of a table's name makes neither a path nor another schema."""
    monkeypatch.chdir(tmp_path)
    for name in ("sales/orders", "orders.v1", "sales-orders", "Sales_Orders"):
        _table(tmp_path / "bronze" / name, properties=_APPENDED)
    assert main(["init", "bronze", "--target", "main.silver"]) == 1
    shown = capsys.readouterr()
    targets = [line.split()[1] for line in shown.out.splitlines() if line.startswith("    target:")]
    assert targets == ["main.silver.Sales_Orders", "main.silver.orders_v1"]
    assert shown.err.splitlines() == [
        f"left out: {tmp_path}/bronze/{name}: its target main.silver.sales_orders would be that of "
        f"{tmp_path}/bronze/Sales_Orders"
        for name in ("sales-orders", "sales/orders")
    ]
    search = Search(tables="x", target="main.{name}.now")
    assert search.target_of("a/b.c") == "main.a_b_c.now"
    assert Search(tables="x", target="/t").target_of("a/b.c") == "/t/a/b.c"


def test_a_target_that_a_pipeline_has_is_not_proposed(lake: Path) -> None:
    known = Known(places=frozenset({"main.silver.Clicks"}))
    found = Proposing(Search(tables=str(lake), target="main.silver"), known).run()
    assert [one.pipeline for one in found.proposals] == ["deep_tmp_1", "deep_views"]
    assert "main.silver.clicks would be that of a pipeline of the configuration" in found.remarks[0]


def test_a_target_with_a_variable(
    lake: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's variable stays in what discover proposes; init makes absolute places, and refuses one."""
    file = tmp_path / "p.yaml"
    one = "pipelines: {p: {group: g, source: /s, target: /t, keys: id}}"
    text = f"groups: {{g: {{discover: {{tables: %s, target: '%s'}}}}}}\n{one}\n"
    file.write_text(text % ("'${LAKE}/bronze'", "${LAKE}/silver"))
    monkeypatch.setenv("LAKE", str(tmp_path))
    assert main(["discover", str(file)]) == 1
    shown = capsys.readouterr()
    assert "    target: ${LAKE}/silver/clicks\n" in shown.out
    assert (shown.out.count("target:"), shown.err) == (3, "")
    # Where the variable is the name of a schema, so are the targets.
    file.write_text(text % (lake, "${LAKE}"))
    monkeypatch.setenv("LAKE", "main.silver")
    assert main(["discover", str(file)]) == 1
    assert "    target: ${LAKE}.deep_views\n" in capsys.readouterr().out
    for target in ("${LAKE}/silver", "{{ var.value.lake }}"):
        assert main(["init", str(lake), "--target", target]) == 2
        assert "has a $ or a template" in capsys.readouterr().err
    monkeypatch.delenv("LAKE")
    assert main(["discover", str(file)]) == 2
    assert "variable that is not set here" in capsys.readouterr().err
    with pytest.raises(InvalidConfiguration, match="has a template"):
        Proposing(Search(tables=str(lake), target="{{ x }}/silver"), Known()).run()


def test_a_conf_that_may_be_a_secret_is_not_written(lake: Path, capsys: Any) -> None:
    confs = {
        "spark.sql.catalog.main": "org.Catalog",
        "spark.sql.catalog.main.token": "s3cret",
        "spark.sql.catalog.main.uri": "jdbc:x://h/d?user=u&password=s3cret",
        "spark.sql.catalog.main.url": "http://u:s3cret@h",
    }
    given = [f"--conf={name}={value}" for name, value in confs.items()]
    assert main(["init", str(lake), "--target", "/t", *given]) == 0
    text = capsys.readouterr().out
    assert "s3cret" not in text
    assert "    conf:\n      spark.sql.catalog.main: org.Catalog\n" in text
    names = " ".join(line.strip(" #") for line in text.splitlines() if "#" in line)
    assert "TODO conf: spark.sql.catalog.main.token, spark.sql.catalog.main.uri, " in names


def test_a_file_that_exists_is_refused_before_the_search(
    lake: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Proposing, "run", None)
    (tmp_path / "made.yaml").touch()
    for name, problem in (("made.yaml", "File exists"), ("none/made.yaml", "No such file")):
        assert main(["init", str(lake), "--target", "/t", "--output", str(tmp_path / name)]) == 2
        assert f"cannot be written: {problem}" in capsys.readouterr().err


def test_only_new_tables_of_a_schema_are_located(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark needs some jobs for each location."""
    located = []

    def location_of(_: object, name: str) -> str:
        located.append(name)
        return str(lake / name.removeprefix("m.s."))

    names = ["clicks", "deep", "known", "tmp_1", "x__ingested"]
    monkeypatch.setattr(proposing, "tables_of", lambda *_: names)
    monkeypatch.setattr(proposing, "location_of", location_of)
    monkeypatch.setattr(proposing, "session", lambda *_, **__: nullcontext())
    known = Known(places=frozenset({"m.s.known", str(lake / "deep")}))
    found = Proposing(Search(tables="m.s", target="/t", leave_out=("tmp_*",)), known).run()
    assert [one.values["source"] for one in found.proposals] == ["m.s.clicks"]
    assert located == ["m.s.clicks", "m.s.deep"]


def test_a_long_path_has_a_pipeline(tmp_path: Path, capsys: Any) -> None:
    path = "/".join(["level" * 10] * 4)
    _table(tmp_path / "lake" / path, properties=_APPENDED)
    assert main(["init", str(tmp_path / "lake"), "--target", "/t"]) == 0
    assert f"  {path.replace('/', '_')[:195]}:\n" in capsys.readouterr().out


def test_what_cannot_be_searched_is_named(tmp_path: Path, capsys: Any) -> None:
    assert main(["init", str(tmp_path / "none"), "--target", "/t"]) == 1
    assert "There is no folder" in capsys.readouterr().err
    (tmp_path / "bronze").mkdir()
    assert main(["init", str(tmp_path / "bronze"), "--target", "/t"]) == 2
    assert "has no table for which a pipeline can be proposed" in capsys.readouterr().err
    source = _table(tmp_path / "bronze" / "clicks", properties=_APPENDED)
    assert main(["init", source, "--target", str(tmp_path / "bronze")]) == 2
    assert "clicks: source and target are the same table" in capsys.readouterr().err


def test_a_table_whose_keys_are_not_known_has_a_reason(tmp_path: Path) -> None:
    whole = _proposed(_table(tmp_path / "a", amount=[1.5], city=["x"]))
    assert (whole.missing, "keys" in whole.values) == ("no column has the name of a key", False)
    empty = _proposed(_table(tmp_path / "b", id=pa.array([], pa.int64())))
    assert empty.missing == "the table has no rows, so that no key can be proven"
    large = _proposed(_table(tmp_path / "c", id=[1], ordered_on=["x"]), max_bytes=10)
    assert large.missing.startswith("id is not counted: the table has ")
    assert large.missing.endswith(", and --max-bytes is 10 B")
    # A NULL that the log shows needs no count.
    nulls = _proposed(_table(tmp_path / "d", id=[1, None], uuid=[None, "x"]))
    assert nulls.missing == (
        "no candidate is unique without NULL: id has NULLs; uuid has NULLs; id, uuid has NULLs"
    )
    # Of events, only the table's own order is proposed, in a comment.
    events = _proposed(_table(tmp_path / "e", op=["u"], event_time=pa.array([0], pa.timestamp("us", "UTC"))))
    assert "sequence_by: event_time" in events.comments[""][0]
    made = LogTable(tmp_path / "f", configuration={"delta_cdc.changeLog": "true", **_APPENDED}).create()
    made.append()
    log = _proposed(made.uri)
    assert "its rows are events" in log.missing


def test_discover_finds_what_no_pipeline_has(lake: Path, tmp_path: Path, capsys: Any) -> None:
    file, given = tmp_path / "p.yaml", f"tables: {lake}, target: {lake}/out, leave_out: '*tmp*'"
    text = f"""
groups: {{g: {{discover: {{{given}}}}}}}
pipelines:
  one:
    group: g
    source: file://{lake}/clicks/
    target: {lake}/out/clicks
    insert_only: true
"""
    file.write_text(text)
    _table(lake / "out" / "clicks")
    assert main(["discover", str(file)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("pipelines:\n  deep_views:\n    group: g\n")
    assert printed.count("group: g") == 1
    assert file.read_text() == text
    # A pipeline of the same name exists; a table without a key would stop the others, so it is not added.
    _table(lake / "one", properties=_APPENDED)
    _table(lake / "two", amount=[1.5])
    file.write_text(text.replace("leave_out", "add: true, leave_out"))
    assert main(["discover", str(file), "--group", "g"]) == 1
    shown = capsys.readouterr()
    assert f"2 pipelines added to {file}: deep_views, one_2" in shown.out
    assert "TODO keys" in shown.out
    assert shown.err == f"no key:   {lake}/two: no column has the name of a key\n"
    assert [table.pipeline for table in load(file).tables()] == ["deep_views", "one", "one_2"]
    assert main(["discover", str(file)]) == 1
    assert "pipelines added" not in capsys.readouterr().out
    (lake / "two").rename(tmp_path / "two")
    assert main(["discover", str(file)]) == 0
    assert capsys.readouterr().out == "# g: no new table\n"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("${NOPE}/bronze/clicks", "its variable is not set here"),
        ("{{ lake }}/bronze/clicks", "only a run fills its template"),
        ("main.bronze.clicks", "it is a catalog name, and the new tables have locations"),
    ],
)
def test_nothing_is_added_beside_a_place_that_cannot_be_compared(
    lake: Path, tmp_path: Path, capsys: Any, place: str, why: str
) -> None:
    """It may be one of the new tables: where the place is known, two pipelines would have one target."""
    file = tmp_path / "p.yaml"
    text = f"""
groups: {{g: {{discover: {{tables: {lake}, target: {tmp_path}/silver, leave_out: '*/*', add: true}}}}}}
pipelines:
  clicks: {{group: g, source: '{place}', target: '{place}_now', insert_only: true}}
"""
    file.write_text(text)
    for add in (", add: true", ""):
        file.write_text(text.replace(", add: true", add))
        assert main(["discover", str(file)]) == 1
        shown = capsys.readouterr()
        assert shown.out.startswith("pipelines:\n  clicks_2:\n    group: g\n")
        assert shown.err == (
            f"g: {'nothing is added: ' if add else ''}discover cannot compare the new tables with the source "
            f"of the pipeline clicks, {place}: {why} (and 1 more place). Compare them yourself before you "
            "add the printed lines.\n"
        )
        assert file.read_text() == text.replace(", add: true", add)
    # What is a topic cannot be a table.
    given = f"source: 'kafka://${{NOPE}}/clicks', log: {tmp_path}/log, adapter: debezium, keys: [id]"
    file.write_text(text.replace(f"source: '{place}', target: '{place}_now', insert_only: true", given))
    assert main(["discover", str(file)]) == 0
    assert "1 pipeline added" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "target", "why"),
    [
        ("Main.Bronze.Clicks", "main.silver.other", ""),
        ("other.silver.clicks", "x.y.clicks", None),
        ("bronze.clicks", "main.silver.clicks", "it has more or fewer parts than the new names"),
        ("clicks", "main.silver.clicks", "it has more or fewer parts than the new names"),
        ("main.bronze.clicks", "/silver/clicks", "it is a location, and the new targets are not"),
        ("main.bronze.clicks", "silver.clicks", "it has more or fewer parts than the new names"),
    ],
)
def test_names_of_a_catalog_are_compared(
    lake: Path, tmp_path: Path, capsys: Any, monkeypatch: Any, name: str, target: str, why: str | None
) -> None:
    monkeypatch.setattr(proposing, "tables_of", lambda *_: ["clicks", *(["more"] if why else [])])
    monkeypatch.setattr(proposing, "location_of", lambda *_: str(lake / "clicks"))
    monkeypatch.setattr(proposing, "session", lambda *_, **__: nullcontext())
    file = tmp_path / "p.yaml"
    file.write_text(f"""
groups: {{g: {{discover: {{tables: main.bronze, target: main.silver, add: true}}}}}}
pipelines:
  one: {{group: g, source: {name}, target: {target}, insert_only: true}}
""")
    assert main(["discover", str(file)]) == (1 if why else 0)
    shown = capsys.readouterr()
    if why is None:
        assert "1 pipeline added" in shown.out
    elif why:
        assert f": {why}. Compare" in shown.err
    else:
        assert shown.out == "# g: no new table\n"


@pytest.mark.parametrize(
    ("source", "settings", "given", "why"),
    [
        # As far as the configuration says, it is the same topic.
        ("kafka://us:9092/shop.orders", "", "", None),
        ("kafka://eu,US/shop.orders", "", "", None),
        ("kafka:///shop.orders", "kafka_options: {bootstrap.servers: 'eu:9092, us'}", "", None),
        ("kafka:///shop.orders", "kafka_conn_id: k", "kafka_conn_id: k", None),
        ("kafka:///shop.orders", "", "kafka_options: {bootstrap.servers: us}", "does not give its brokers"),
        # It is another one, or may be.
        ("kafka://eu:9092/shop.orders", "", "", ""),
        ("kafka:///shop.orders", "kafka_options: {bootstrap.servers: eu}", "", ""),
        ("kafka:///other.orders", "kafka_conn_id: k", "", ""),
        ("kafka:///shop.orders", "kafka_conn_id: k", "kafka_conn_id: other", "does not give its brokers"),
        ("kafka://${NOPE}/shop.orders", "", "", "its variable is not set here"),
        ("kafka:///shop.orders", "kafka_options: {bootstrap.servers: '{{x}}'}", "", "give its brokers"),
        (
            "kafka:///shop.orders",
            "kafka_options: {bootstrap.servers: 'PLAINTEXT://eu:9092'}",
            "",
            "give its brokers",
        ),
    ],
)
def test_topics_are_compared_with_their_brokers(
    tmp_path: Path, capsys: Any, monkeypatch: Any, source: str, settings: str, given: str, why: str | None
) -> None:
    """Two clusters, such as one for each region, have topics of the same names."""

    class Reader:
        prefix = "shop."

        def __init__(self, address: str, _: Any) -> None:
            self.address = address

        def topics(self) -> list[str]:
            return ["shop.orders"]

        def source(self, topic: str) -> str:
            return self.address.replace("shop.", topic)

        def sample(self, _: str) -> list[Any]:
            return []

        def close(self) -> None:
            pass

    found = SampledTable(("id",), "json", ("e",), ("k",))
    monkeypatch.setattr(proposing, "TopicReader", Reader)
    monkeypatch.setattr(proposing, "sampled_table", lambda *_: found)
    options = tmp_path / "kafka.json"
    options.write_text('{"bootstrap.servers": "us:9092"}')
    file = tmp_path / "p.yaml"
    address = "kafka:///shop." if given else "kafka://us/shop."
    discover = f"discover: {{tables: '{address}', target: {tmp_path}/us, add: true}}"
    file.write_text(f"""
groups:
  other: {{{settings}}}
  us: {{{", ".join(filter(None, (given, discover)))}}}
pipelines:
  eu: {{group: other, source: '{source}', log: /eu/log, target: /eu/orders, keys: id, adapter: debezium}}
  one: {{group: us, source: /s, target: /one, insert_only: true}}
""")
    command = ["discover", str(file), *(["--kafka-options", str(options)] if given else [])]
    assert main(command) == (1 if why else 0)
    shown = capsys.readouterr()
    if why is None:
        assert shown.out == "# us: no new table\n"
    elif why:
        assert why in shown.err
        assert "pipelines:\n  orders:\n" in shown.out
    else:
        assert "1 pipeline added" in shown.out


@pytest.mark.parametrize("form", ["flow", "not last"])
def test_what_cannot_be_added_is_printed(lake: Path, tmp_path: Path, capsys: Any, form: str) -> None:
    discover = f"groups: {{g: {{discover: {{tables: {lake}, target: /t, leave_out: '*/*', add: true}}}}}}\n"
    one = "{group: g, source: /s, target: /one, insert_only: true}"
    text = (
        f"{discover}pipelines: {{one: {one}}}\n"
        if form == "flow"
        else f"pipelines:\n  one: {one}\n{discover}"
    )
    file = tmp_path / "p.yaml"
    file.write_text(text)
    assert main(["discover", str(file)]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"g: InvalidConfiguration: Nothing is added to {file}: pipelines: is not its")
    assert "add the printed lines yourself" in shown.err
    assert shown.out.startswith("pipelines:\n  clicks:\n    group: g\n")
    assert file.read_text() == text


def test_a_group_that_cannot_be_searched_stops_no_other(lake: Path, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "p.yaml"
    text = f"""
groups:
  a: {{discover: {{tables: {tmp_path}/none, target: /a}}}}
  b: {{discover: {{tables: '{{{{ lake }}}}/bronze', target: /b}}}}
  c: {{discover: {{tables: {lake}, target: /c, leave_out: '*/*'}}}}
pipelines:
  a1: {{group: a, source: /s1, target: /a1, insert_only: true}}
  b1: {{group: b, source: /s2, target: /b1, insert_only: true}}
  c1: {{group: c, source: /s3, target: /c1, insert_only: true}}
"""
    file.write_text(text)
    assert main(["discover", str(file)]) == 2
    shown = capsys.readouterr()
    first, second = shown.err.splitlines()
    assert first.startswith(f"a: SourceNotFound: There is no folder {tmp_path}/none")
    assert second.startswith("b: InvalidConfiguration: The tables {{ lake }}/bronze has a template")
    assert shown.out.startswith("pipelines:\n  clicks:\n    group: c\n")
    assert main(["discover", str(file), "--group", "a"]) == 1


def test_discover_of_a_pipeline_without_a_group(lake: Path, tmp_path: Path, capsys: Any) -> None:
    """What it prints, and adds, has no group, either."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    file = folder / "p.yaml"
    text = f"""
pipelines:
  one:
    source: /s
    target: /one
    insert_only: true
    discover: {{tables: {lake}, target: {tmp_path}/silver, leave_out: '*/*'}}
"""
    file.write_text(text)
    assert main(["discover", str(file)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("pipelines:\n  clicks:\n")
    file.write_text(text + printed.removeprefix("pipelines:\n"))
    assert lint(file) == []
    file.write_text(text.replace("leave_out", "add: true, leave_out"))
    assert main(["discover", str(folder)]) == 0
    assert (folder / "discovered-one.yaml").read_text() == printed
    assert [group.name for group in load(folder).groups] == ["clicks", "one"]


@pytest.mark.parametrize("add", ["true", "false"])
def test_a_table_that_two_groups_find_is_proposed_once(
    lake: Path, tmp_path: Path, capsys: Any, add: str
) -> None:
    """As with discover in defaults. Two tables of the same name get two names."""
    _table(tmp_path / "more" / "clicks", properties=_APPENDED)
    file = tmp_path / "p.yaml"
    file.write_text(f"""
defaults: {{discover: {{tables: {lake}, target: /t, leave_out: '*/*', add: {add}}}}}
groups: {{g: {{}}, h: {{}}, i: {{discover: {{tables: {tmp_path}/more, target: /i}}}}}}
pipelines:
  one: {{group: g, source: /s1, target: /one, insert_only: true}}
  two: {{group: h, source: /s2, target: /two, insert_only: true}}
  six: {{group: i, source: /s6, target: /six, insert_only: true}}
""")
    assert main(["discover", str(file)]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("# h: no new table\n") == 1
    assert shown.out.count(f"source: {lake}/clicks\n") == (0 if add == "true" else 1)
    assert "  clicks_2:\n    group: i\n" in shown.out
    assert shown.err == ""


def test_a_source_that_is_removed_is_known(tmp_path: Path, capsys: Any) -> None:
    for name in ("north", "south"):
        _table(tmp_path / "bronze" / name, properties=_APPENDED)
    file = tmp_path / "p.yaml"
    file.write_text(f"""
groups: {{g: {{discover: {{tables: {tmp_path}/bronze, target: /t, add: true}}}}}}
pipelines:
  orders:
    group: g
    target: /t/orders
    keys: id
    sequence_by: at
    delete_sequence: at
    sources:
      north: {{source: {tmp_path}/bronze/north, removed: true}}
      south: {{source: {tmp_path}/bronze/south}}
      west: {{removed: true}}
""")
    assert main(["discover", str(file)]) == 0, capsys.readouterr()
    assert capsys.readouterr().out == "# g: no new table\n"


def test_discover_needs_a_group_with_discover(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("pipelines: {p: {source: /s, target: /t, keys: id}}\n")
    assert main(["discover", str(file)]) == 2
    assert "No group has discover" in capsys.readouterr().err
    file.write_text("pipelines: {p: {source: /s, target: /t, keys: id, discover: {tables: /s}}}\n")
    (finding,) = lint(file)
    assert finding.message.startswith("discover of the pipeline p is {'tables': '/s'}.")


def test_a_damaged_table_stops_no_other(lake: Path, capsys: Any) -> None:
    (lake / "bad" / "_delta_log").mkdir(parents=True)
    (lake / "bad" / "_delta_log" / f"{0:020d}.json").write_text("{no")
    _table(lake / "pri$ce", properties=_APPENDED)
    _table(lake / "{{ x }}", properties=_APPENDED)
    assert main(["init", str(lake), "--target", "/t"]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("insert_only: true") == 3
    assert [line.split(": ")[1:3] for line in shown.err.splitlines()] == [
        [f"{lake}/bad", "CorruptLog"],
        [f"{lake}/pri$ce", "its name has a $ or a template, which a configuration would replace"],
        [f"{lake}/{{{{ x }}}}", "its name has a $ or a template, which a configuration would replace"],
    ]


def test_missing_keys_of_many_tables_hide_no_other_finding(tmp_path: Path, capsys: Any) -> None:
    """More findings than lint lists; and a DAG's id that cannot be used is found all the same."""
    for number in range(210):
        LogTable(tmp_path / "lake" / f"t{number}").create()
    file = tmp_path / "made.yaml"
    assert main(["init", str(tmp_path / "lake"), "--target", "/t", "--output", str(file)]) == 1
    assert capsys.readouterr().err.count("no key: ") == 210
    assert file.read_text().count("TODO keys") == 210
    assert main(["init", str(tmp_path / "lake"), "--target", "/t", "--group", "no name"]) == 2
    assert "The group's name 'no name' cannot be used" in capsys.readouterr().err
