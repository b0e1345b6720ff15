"""Which partitions some commits changed, and how a key names a partition."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import example, given
from hypothesis import strategies as st

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.partitions import (
    ALL,
    MOST_PARTITIONS,
    partition_key,
    partition_predicate,
    partition_values,
)
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.partitions import changed_partitions
from delta_cdc.planning.reconcile import RecordedWatermark
from delta_cdc.planning.waiting import MOST_COMMITS, Condition, News, Watch
from delta_cdc.run.apply import partitions_of
from tests.support.logs import LogTable, field_of

if TYPE_CHECKING:
    from pathlib import Path

NULL = "__HIVE_DEFAULT_PARTITION__"
MAPPED = {"delta.columnMapping.mode": "name"}


# -- keys -----------------------------------------------------------------------------------------
@given(st.dictionaries(st.text(min_size=1), st.none() | st.text(min_size=1), min_size=1, max_size=3))
@example({"a": NULL, "b": None})
@example({"a/b": "c=d/e", "%": "%2F", "all": "all"})
@example({"a": " ", "b": "\ud800", "c": "\U0001f600"})
def test_each_partition_has_one_key_and_each_key_is_of_one_partition(values: dict[str, str | None]) -> None:
    key = partition_key(values)
    if key is None:
        return
    assert partition_values(key) == values
    # Airflow's databases: some hold no characters of four bytes, and some ignore spaces at the end.
    assert key.isascii()
    assert key.strip() == key != ALL
    assert len(key) <= 250


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"country": "DE", "day": "2026-11-28"}, "country=DE/day=2026-11-28"),
        ({"at": "2026-11-28T10:00:00.000000Z"}, "at=2026-11-28T10:00:00.000000Z"),
        ({"day": None}, f"day={NULL}"),
        ({"day": NULL}, "day=%5F_HIVE_DEFAULT_PARTITION__"),
        ({"city": "New York / Köln"}, "city=New%20York%20%2F%20K%C3%B6ln"),
        ({"a": "x" * 248}, f"a={'x' * 248}"),
        ({"a": "x" * 249}, None),
    ],
)
def test_how_keys_look(values: dict[str, str | None], key: str | None) -> None:
    assert partition_key(values) == key


@pytest.mark.parametrize("wrong", ["", "DE", "=DE", "a=b=c", "a=1/", "a=1/a=2", "a=1//b=2", None, 7])
def test_what_is_no_key(wrong: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="is not the key of a partition"):
        partition_values(wrong)
    with pytest.raises(InvalidConfiguration, match="is not the key of a partition"):
        partition_predicate(wrong)


def test_predicates() -> None:
    assert partition_predicate(ALL) == "TRUE"
    key = partition_key({"a`b": "it's \\", "c": None})
    assert key is not None
    assert partition_predicate(key) == "`a``b` = 'it\\'s \\\\' AND `c` IS NULL"
    assert partition_predicate(ALL, "ansi") == "TRUE"
    ansi = partition_key({'a"b': "it's \\", "c": None})
    assert ansi is not None
    assert partition_predicate(ansi, "ansi") == '"a""b" = \'it\'\'s \\\' AND "c" IS NULL'


@pytest.mark.parametrize("value", ["2026-11-28", "7", "1.50", "it's", "2026-11-28 10:00:00"])
def test_deltalake_compares_the_texts_of_a_key(value: str) -> None:
    columns = {
        "2026-11-28": pa.array([date(2026, 11, 28), date(2026, 11, 29), None]),
        "7": pa.array([7, 70, None], pa.int64()),
        "1.50": pa.array([Decimal("1.50"), Decimal("1.51"), None]),
        "it's": pa.array(["it's", "its", None]),
        "2026-11-28 10:00:00": pa.array([datetime(2026, 11, 28, 10), datetime(2026, 11, 28, 11), None]),  # noqa: DTZ001
    }
    assert rows_of(columns[value], value) == 1
    assert rows_of(columns[value], None) == 1


def test_deltalake_does_not_compare_a_text_with_a_boolean() -> None:
    """The documentation says so: if this fails, the packages have changed, and the text can go."""
    with pytest.raises(Exception, match=r"(?i)boolean"):
        rows_of(pa.array([True, False, None]), "true")
    assert "boolean" in (partition_predicate.__doc__ or "")


def rows_of(column: pa.Array, value: str | None) -> int:
    """Return how many rows of a partition the package ``deltalake`` finds."""
    key = partition_key({"c": value})
    assert key is not None
    with tempfile.TemporaryDirectory() as folder:
        write_deltalake(folder, pa.table({"c": column, "id": [1, 2, 3]}), partition_by=["c"])
        query = QueryBuilder().register("t", DeltaTable(folder))
        found = query.execute(f"SELECT COUNT(*) FROM t WHERE {partition_predicate(key, 'ansi')}").read_all()
    return int(found.column(0)[0].as_py())


# -- commits --------------------------------------------------------------------------------------
def file(kind: str, path: str, values: dict[str, str | None] | None, **more: Any) -> dict[str, Any]:
    action = {"path": path, "size": 1, "dataChange": True, "modificationTime": 0, **more}
    return {kind: action if values is None else {**action, "partitionValues": values}}


def add(path: str, values: dict[str, str | None] | None, **more: Any) -> dict[str, Any]:
    return file("add", path, values, **more)


def remove(path: str, values: dict[str, str | None] | None, **more: Any) -> dict[str, Any]:
    return file("remove", path, values, **more)


def create(path: Path, *columns: str, mapped: bool = False) -> LogTable:
    """Create a table that is partitioned by some columns; with column mapping, they are ``col-1``, …"""
    made = LogTable(path, configuration=MAPPED if mapped else {})
    names = (*columns, "id")
    made.fields = [field_of(name, mapped=number if mapped else None) for number, name in enumerate(names, 1)]
    metadata = made.metadata()
    metadata["metaData"]["partitionColumns"] = list(columns)
    made.commit("CREATE TABLE", {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, metadata)
    return made


def changed(table: LogTable, *versions: int) -> tuple[str, ...] | None:
    async def read() -> tuple[str, ...] | None:
        log = DeltaLog(table.uri)
        return changed_partitions([await log.find(v) for v in versions], await log.snapshot())

    return run_sync(read())


def test_files_that_came_and_went_are_changes_and_rewritten_ones_are_not(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "day", "region")
    de, fr = {"day": "1", "region": "DE"}, {"day": "1", "region": "FR"}
    at = table.commit("WRITE", add("a", de), add("b", fr), add("c", {"day": "", "region": None}))
    assert changed(table, at) == ("day=1/region=DE", "day=1/region=FR", f"day={NULL}/region={NULL}")
    # A row moves from one partition to another.
    moved = table.commit("MERGE", remove("a", de), add("d", {"day": "2", "region": "DE"}))
    assert changed(table, moved) == ("day=1/region=DE", "day=2/region=DE")
    assert changed(table, at, moved, at) == (
        *changed(table, at)[:2],
        "day=2/region=DE",
        changed(table, at)[2],
    )  # type: ignore[index]
    optimized = table.commit("OPTIMIZE", remove("b", fr, dataChange=False), add("e", fr, dataChange=False))
    assert changed(table, optimized) == ()
    zero = dict.fromkeys(("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"), "0")
    no_op = table.commit("MERGE", remove("e", fr), add("f", fr), metrics=zero)
    assert changed(table, no_op) == ()
    # Change rows alone: deletion vectors of a MERGE.
    cdc = table.commit("MERGE", file("cdc", "_change_data/g", fr, dataChange=False))
    assert changed(table, cdc) == ("day=1/region=FR",)


def test_a_removed_file_lacks_what_is_null(tmp_path: Path) -> None:
    """So Spark writes it, other than the NULL of an added file."""
    table = create(tmp_path / "t", "day", "region")
    at = table.commit("MERGE", remove("a", {}), remove("b", {"region": "DE"}))
    assert changed(table, at) == (f"day={NULL}/region=DE", f"day={NULL}/region={NULL}")


def test_a_table_without_partitions_has_none(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    at = table.commit("WRITE", add("a", {}))
    assert changed(table, at) is None


@pytest.mark.parametrize(
    "actions",
    [
        [remove("a", None)],
        [remove("a", {"region": "DE"})],
        [{"metaData": None}, remove("a", {}), add("b", {"day": "1"})],
        [add("a", {"day": "x" * 300})],
    ],
    ids=["no values", "of another partitioning", "was not partitioned", "too long for a key"],
)
def test_what_cannot_be_named_is_the_whole_table(tmp_path: Path, actions: list[dict[str, Any]]) -> None:
    table = create(tmp_path / "t", "day")
    metadata = table.metadata()
    metadata["metaData"]["partitionColumns"] = ["day"]
    actions = [metadata if "metaData" in action else action for action in actions]
    at = table.commit("MERGE", *actions, add("c", {"day": "2"}))
    assert changed(table, at) == (ALL,)
    # Its file was cleaned from the log.
    assert changed(table, at + 1) == (ALL,)


def test_beyond_the_limit_it_is_the_whole_table(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "n")
    at = table.commit("WRITE", *(add(str(n), {"n": str(n)}) for n in range(MOST_PARTITIONS)))
    assert len(changed(table, at) or ()) == MOST_PARTITIONS
    one = table.commit("WRITE", add("more", {"n": "more"}))
    assert changed(table, one) == ("n=more",)
    assert changed(table, at, one) == (ALL,), "of several commits together"
    assert changed(table, at, at) == changed(table, at)


def test_mapped_columns_have_their_own_names(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "day", "region", mapped=True)
    at = table.commit("WRITE", add("a", {"col-1": "1", "col-2": "DE"}), add("b", {"col-2": "FR"}))
    # Spark omits NULL.
    assert changed(table, at) == ("day=1/region=DE", f"day={NULL}/region=FR")
    other = table.commit("WRITE", remove("a", {"col-3": "1"}))
    assert changed(table, other) == (ALL,)


def test_a_mapped_table_that_was_not_partitioned_is_changed_as_a_whole(tmp_path: Path) -> None:
    """Its removed files have no values, and their rows are of any day, not of those without a day."""
    table = create(tmp_path / "t", "day", mapped=True)
    metadata = table.metadata()
    metadata["metaData"]["partitionColumns"] = ["day"]
    replaced = table.commit("WRITE", metadata, remove("a", {}), add("b", {"col-1": "1"}))
    assert changed(table, replaced) == (ALL,)
    # Without removed files, only NULL is missing.
    added = table.commit("WRITE", metadata, add("c", {}), add("d", {"col-1": "2"}))
    assert changed(table, added) == ("day=2", f"day={NULL}")
    # Without new metadata, the partitioning is the same.
    removed = table.commit("MERGE", remove("c", {}))
    assert changed(table, removed) == (f"day={NULL}",)


# -- what a watcher lists -------------------------------------------------------------------------
def look(watch: Watch) -> News | None:
    return asyncio.run(watch.look())


def test_a_watcher_lists_what_changed_since_its_last_news(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "day")
    at = table.commit("WRITE", add("a", {"day": "1"}))
    first = look(Watch(table.uri, position=-1, lists_partitions=True))
    assert first is not None
    assert first.to_dict()["partitions"] == [ALL], "the whole table is new"
    watch = Watch(table.uri, position=at, lists_partitions=True)
    assert look(watch) is None
    table.commit("WRITE", add("b", {"day": "2"}))
    table.commit("OPTIMIZE", remove("a", {"day": "1"}, dataChange=False))
    table.commit("DELETE", remove("b", {"day": "2"}), add("c", {"day": "3"}))
    news = look(watch)
    assert news is not None
    assert (news.partitions, news.position.version) == (("day=2", "day=3"), at + 3)
    watch.go_on_after(news)
    table.commit("WRITE", add("d", {"day": "4"}))
    again = look(watch)
    assert again is not None
    assert again.partitions == ("day=4",)
    unwanted = look(Watch(table.uri, position=at))
    assert unwanted is not None
    assert "partitions" not in unwanted.to_dict()


def test_a_watcher_lists_only_what_counts(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "day")
    table.commit("WRITE", add("a", {"day": "1"}))
    table.commit("MERGE", add("b", {"day": "2"}))
    condition = Condition.of(operations="MERGE")
    news = look(Watch(table.uri, position=0, condition=condition, lists_partitions=True))
    assert news is not None
    assert news.partitions == ("day=2",)


def test_a_watcher_reads_no_endless_number_of_commits(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "day")
    for number in range(MOST_COMMITS):
        table.commit("WRITE", add(f"a{number}", {"day": "1"}))
    news = look(Watch(table.uri, position=0, lists_partitions=True))
    assert news is not None
    assert news.partitions == ("day=1",)
    table.commit("WRITE", add("b", {"day": "1"}))
    more = look(Watch(table.uri, position=0, lists_partitions=True))
    assert more is not None
    assert more.partitions == (ALL,)


def test_a_commit_that_was_cleaned_from_the_log_may_have_changed_any_partition(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "day")
    for day in "1234":
        table.commit("WRITE", add(day, {"day": day}))
    table.checkpoint(0, 1, 2)
    news = look(Watch(table.uri, position=1, lists_partitions=True))
    assert news is not None
    assert news.partitions == (ALL,)
    newer = look(Watch(table.uri, position=2, lists_partitions=True))
    assert newer is not None
    assert newer.partitions == ("day=3", "day=4")


def test_a_result_without_known_commits_names_the_whole_table(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "day")
    at = table.commit("WRITE", add("a", {"day": "1"}))
    log = DeltaLog(table.uri)
    commit = run_sync(log.find(at))
    assert commit is not None
    recorded = RecordedWatermark(seal=None, next_number=1, target=run_sync(log.snapshot()))
    assert partitions_of(recorded, (commit,)) == ("day=1",)
    assert partitions_of(recorded, ()) == (ALL,)
    assert partitions_of(None, ()) is None


def test_a_table_made_again_is_changed_as_a_whole(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "day")
    table.commit("WRITE", add("a", {"day": "1"}))
    watch = Watch(table.uri, position=0, lists_partitions=True)
    news = look(watch)
    assert news is not None
    watch.go_on_after(news)
    for log in table.file(0).parent.iterdir():
        log.unlink()
    again = create(tmp_path / "t", "day")
    for number in range(3):
        again.commit("WRITE", add(f"b{number}", {"day": "2"}), at=0)
    made_again = look(watch)
    assert made_again is not None
    assert (made_again.reason, made_again.partitions) == ("table_recreated", (ALL,))
