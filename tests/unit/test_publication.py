"""The manifest of a group: one publish, as a whole, and never an earlier one again."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import create_views, publish_versions, published, read_published
from delta_cdc.cli import main
from delta_cdc.core.errors import InvalidConfiguration, PublicationUnreadable, StoreUnavailable
from delta_cdc.core.publication import PinnedTable, Publication, view_names
from delta_cdc.delta_log import requests
from delta_cdc.run import publication
from delta_cdc.run.publication import views_manifest
from tests.support.faulty_disk import FaultyDisk

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    return str(tmp_path / "folder" / "sales.json")


def named(**versions: int) -> dict[str, Any]:
    return {
        name: {
            "target": f"/lake/{name}",
            "target_version": version,
            "version": version + 10,
            "seals": {"target": 1},
        }
        for name, version in versions.items()
    }


def test_a_publish_replaces_the_one_before(manifest: str) -> None:
    first = publish_versions(manifest, "sales", named(a=1, b=1))
    assert published(manifest) == first
    second = publish_versions(manifest, "sales", named(a=2, b=1, c=0))
    assert published(manifest) == second
    assert second.number > first.number
    assert {name: one.target_version for name, one in second.tables.items()} == {"a": 2, "b": 1, "c": 0}
    assert publish_versions(manifest, "sales", named(a=2, b=1, c=0)) == second, "nothing is new"


def test_a_folder_that_the_disk_does_not_make_is_a_failure_of_the_store(
    manifest: str, tmp_path: Path
) -> None:
    faults = FaultyDisk(tmp_path, lambda operation, *_: "full" if operation == "write" else None)
    with faults.installed(), pytest.raises(StoreUnavailable, match="No space left on device"):
        publish_versions(manifest, "sales", named(a=1))
    assert publish_versions(manifest, "sales", named(a=1)) == published(manifest)


@pytest.mark.parametrize(
    ("versions", "is_later"),
    [
        ({"a": 1, "b": 2}, False),
        ({"a": 1, "b": 1}, False),
        ({"a": 2, "b": 1, "c": 5}, False),
        ({"a": 3, "b": 2}, True),
        # A cleared run of an earlier day: its own table is newer, and the others are older.
        ({"a": 0, "b": 3}, False),
        ({"c": 0}, True),
    ],
)
def test_a_publish_of_an_earlier_run_changes_nothing(
    manifest: str, versions: dict[str, int], is_later: bool
) -> None:
    kept = publish_versions(manifest, "sales", named(a=2, b=2))
    found = publish_versions(manifest, "sales", named(**versions))
    assert (found != kept) is is_later
    assert published(manifest) == found


@pytest.mark.parametrize(
    ("mine", "theirs", "is_older"),
    [
        (("/t", 1, "x"), ("/t", 2, "x"), True),
        (("/t", 2, "x"), ("/t", 2, "x"), False),
        # Without an id, the place is the table.
        (("/t", 1, ""), ("/t", 2, "x"), True),
        (("/t", 1, "x"), ("/t", 2, ""), True),
        # The table was made again; the target has a new place.
        (("/t", 1, "y"), ("/t", 2, "x"), False),
        (("/new", 0, "x"), ("/t", 2, "x"), False),
    ],
)
def test_only_versions_of_one_table_are_compared(
    manifest: str, mine: tuple[str, int, str], theirs: tuple[str, int, str], is_older: bool
) -> None:
    one, other = (PinnedTable(place, version, table_id=name) for place, version, name in (mine, theirs))
    assert one.is_older(other) is is_older
    publish_versions(manifest, "sales", {"a": other})
    assert publish_versions(manifest, "sales", {"a": one}).tables == {"a": other if is_older else one}


def test_a_publish_that_does_not_know_all_versions(manifest: str) -> None:
    publish_versions(manifest, "sales", named(a=1), unknown=["b"])
    kept = publish_versions(manifest, "sales", named(a=2, b=2))
    assert publish_versions(manifest, "sales", named(a=3), unknown=["b"]) == kept
    assert published(manifest) == kept
    # The group has no pipeline b any more.
    assert publish_versions(manifest, "sales", named(a=3)).tables.keys() == {"a"}
    with pytest.raises(InvalidConfiguration, match="names no table"):
        publish_versions(manifest, "sales", {})


def test_a_store_that_another_program_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore.store import MemoryStore

    store, place = MemoryStore(), "s3://lake/published/sales.json"
    monkeypatch.setattr(requests, "open_bucket", lambda *_: (store, "published"))
    publish_versions(place, "sales", named(a=1))
    real, writes = publication._write, [named(a=5), named(a=6)]

    def late(*given: Any) -> bool:
        """Let another program write between the reading and the writing."""
        monkeypatch.setattr(publication, "_write", real)
        if writes:
            publish_versions(place, "sales", writes.pop(0))
        monkeypatch.setattr(publication, "_write", late)
        return real(*given)

    monkeypatch.setattr(publication, "_write", late)
    assert publish_versions(place, "sales", named(a=2)).tables["a"].target_version == 5
    assert publish_versions(place, "sales", named(a=7)).tables["a"].target_version == 7
    assert published(place).tables["a"].target_version == 7
    assert not writes
    monkeypatch.setattr(publication, "_write", lambda *_: False)
    with pytest.raises(StoreUnavailable, match="at the same time"):
        publish_versions(place, "sales", named(a=8))


def test_the_first_writer_of_a_store_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore.store import MemoryStore

    store, place = MemoryStore(), "s3://lake/published/sales.json"
    monkeypatch.setattr(requests, "open_bucket", lambda *_: (store, "published"))
    real = publication._write

    def late(*given: Any) -> bool:
        monkeypatch.setattr(publication, "_write", real)
        publish_versions(place, "sales", named(a=5))
        return real(*given)

    monkeypatch.setattr(publication, "_write", late)
    assert publish_versions(place, "sales", named(a=2)).tables["a"].target_version == 5


def test_one_program_at_a_time_writes_a_local_manifest(manifest: str) -> None:
    import fcntl
    import os
    from pathlib import Path

    folder = str(Path(manifest).parent)
    with publication._alone(folder):
        handle = os.open(folder, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)


# -- views ----------------------------------------------------------------------------------------
class Session:
    """A catalog of schemas; ``between`` runs once, after the first view was made."""

    def __init__(self, between: Any = None) -> None:
        self.schemas: dict[str, list[str]] = {}
        self.between = between
        self.catalog = SimpleNamespace(databaseExists=lambda name: name in self.schemas)

    def sql(self, statement: str) -> Any:
        words = statement.replace("`", "").split()
        rows: list[Any] = []
        if statement.startswith("CREATE SCHEMA"):
            self.schemas.setdefault(words[5], [])
        elif statement.startswith("CREATE OR REPLACE VIEW"):
            schema, _, view = words[4].partition(".")
            self.schemas[schema].append(view)
            between, self.between = self.between, None
            if between is not None:
                between()
        elif statement.startswith("SHOW"):
            rows = [(name,) for name in self.schemas]
        elif statement.startswith("DESCRIBE"):
            rows = [("Properties", "((delta_cdc.group,sales))")]
        else:
            assert statement.startswith("DROP SCHEMA")
            del self.schemas[words[2]]
        return SimpleNamespace(collect=lambda: rows)


def test_a_slow_call_does_not_name_an_earlier_publish(manifest: str) -> None:
    publish_versions(manifest, "sales", named(a=1))
    session: Any = Session()

    def other() -> None:
        publish_versions(manifest, "sales", named(a=2))
        create_views(session, manifest, "s", keep=1)

    session.between = other
    found = create_views(session, manifest, "s", keep=1)
    assert found.tables["a"].target_version == 2
    assert published(views_manifest(manifest)) == found
    assert list(session.schemas) == [found.views]


def test_a_schema_that_was_dropped_is_made_again(manifest: str) -> None:
    publish_versions(manifest, "sales", named(a=1))
    session: Any = Session()
    first = create_views(session, manifest, "s")
    assert create_views(session, manifest, "s") == first
    session.schemas.clear()
    assert create_views(session, manifest, "s") == first
    assert session.schemas == {first.views: ["a"]}


def test_names_of_views(manifest: str) -> None:
    assert view_names(["orders-eu", "orders.v2", "a_1", "größe"]) == {
        "orders-eu": "orders_eu",
        "orders.v2": "orders_v2",
        "a_1": "a_1",
        "größe": "gr__e",
    }
    for pair in (["a-b", "a.b"], ["Orders", "orders"]):
        with pytest.raises(InvalidConfiguration, match="would have the same view"):
            view_names(pair)
    publish_versions(manifest, "sales", named(**{"orders-eu": 1}))
    session: Any = Session()
    found = create_views(session, manifest, "s")
    assert session.schemas == {found.views: ["orders_eu"]}
    assert published(views_manifest(manifest)).tables["orders-eu"].view == "orders_eu"
    twice = Publication("sales", 1, {name: PinnedTable("/t", 1) for name in ("a-b", "a.b")})
    with pytest.raises(InvalidConfiguration, match="would have the same view"):
        list(twice.statements("s"))


def test_numbers_rise_though_the_clock_goes_back(manifest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = []
    for version, clock in enumerate((5_000, 4_000, 6_000)):
        monkeypatch.setattr("time.time_ns", lambda at=clock: at * 1_000_000)
        numbers.append(publish_versions(manifest, "sales", named(a=version)).number)
    assert numbers == [5_000, 5_001, 6_000]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is no manifest of a group"),
        ('{"group":"sales"}', "is no manifest of a group"),
        ('{"format":2,"group":"sales","number":1,"tables":{},"views":""}', "has format 2"),
        ('{"format":1,"group":"other","number":1,"tables":{},"views":""}', "is the manifest of group other"),
    ],
)
def test_another_file(tmp_path: Path, content: str, problem: str) -> None:
    place = tmp_path / "m.json"
    place.write_text(content)
    with pytest.raises(PublicationUnreadable, match=problem):
        publish_versions(str(place), "sales", named(a=1))
    assert place.read_text() == content


def test_there_is_none(manifest: str) -> None:
    with pytest.raises(PublicationUnreadable, match="There is no manifest"):
        published(manifest)
    with pytest.raises(InvalidConfiguration, match="versions of a publish"):
        publish_versions(manifest, "sales", {"a": {"target": "/lake/a"}})


def test_tables_that_a_reader_cannot_have(manifest: str) -> None:
    publish_versions(manifest, "sales", {"a": {"target": "main.sales.a", "target_version": 1}})
    tables = read_published(manifest)
    with pytest.raises(InvalidConfiguration, match="a name in Spark's catalog"):
        tables.delta_table("a")
    with pytest.raises(InvalidConfiguration, match="names no pipeline b"):
        tables.arrow("b")


def test_the_command(manifest: str, tmp_path: Path, capsys: Any) -> None:
    tables = {**named(orders=41), "lines": {"target": "main.sales.lines", "target_version": 7}}
    tables["orders"]["target"] = "s3://lake/orders"
    number = publish_versions(manifest, "sales", tables).number
    assert main(["views", manifest]) == 0
    out = capsys.readouterr().out
    assert f"sales: publish {number}\n" in out
    assert "orders    s3://lake/orders       41         51" in out
    assert main(["views", manifest, "--schema", "main.sales"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        (
            f"CREATE SCHEMA IF NOT EXISTS `main`.`sales_{number}` WITH DBPROPERTIES ('delta_cdc.group' = "
            f"'sales', 'delta_cdc.groupHash' = '{hashlib.sha256(b'sales').hexdigest()}');"
        ),
        (
            f"CREATE OR REPLACE VIEW `main`.`sales_{number}`.`lines` AS "
            "SELECT * FROM `main`.`sales`.`lines` VERSION AS OF 7;"
        ),
        (
            f"CREATE OR REPLACE VIEW `main`.`sales_{number}`.`orders` AS "
            "SELECT * FROM delta.`s3a://lake/orders` VERSION AS OF 41;"
        ),
    ]
    assert main(["views", manifest, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"]["orders"]["target_version"] == 41

    configuration = tmp_path / "pipelines.yaml"
    text = "groups: {{sales: {{{}}}, other: {{}}}}\npipelines:\n"
    for name in ("sales", "other"):
        text += f"  {name}1: {{{{group: {name}, source: /s, target: /t{name}, keys: id}}}}\n"
    configuration.write_text(text.format(f"manifest: {manifest}"))
    assert main(["views", str(configuration), "--group", "sales"]) == 0
    assert f"publish {number}" in capsys.readouterr().out
    for arguments, problem in (
        ([str(configuration)], "names no group"),
        ([str(configuration), "--group", "third"], "has no group third"),
        ([str(configuration), "--group", "other"], "has no manifest"),
        ([manifest, "--group", "sales"], "--group given without a configuration"),
        ([manifest, "--remote", "sc://host"], "--remote needs --schema"),
    ):
        assert main(["views", *arguments]) == 2, arguments
        assert problem in capsys.readouterr().err
