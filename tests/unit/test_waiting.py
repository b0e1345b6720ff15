"""Which commits are worth waking up for."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from delta_cdc.core.errors import (
    InvalidConfiguration,
    SourceHistoryChanged,
    SourceTableReplaced,
    TableNameUnresolved,
    UnsupportedTable,
)
from delta_cdc.core.watermark import TableVersion
from delta_cdc.planning.waiting import (
    CHECK_EVERY,
    Condition,
    News,
    Position,
    Watch,
    position_from_json,
    position_now,
)
from tests.support.logs import LogTable, field_of, struct_of
from tests.unit.airflow.tables import append, compact, set_properties

if TYPE_CHECKING:
    from pathlib import Path


def look(watch: Watch) -> News | None:
    return asyncio.run(watch.look())


def found(watch: Watch) -> News:
    news = look(watch)
    assert news is not None
    return news


def now(table: Path) -> Position:
    return asyncio.run(position_now(str(table)))


def table_id(table: Path) -> str:
    return str(DeltaTable(str(table)).metadata().id)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "t"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the requests to the store."""
    counted: Counter[str] = Counter()

    def counting(name: str) -> Any:
        real = getattr(obstore, name)

        def request(*args: Any, **kwargs: Any) -> Any:
            counted[name] += 1
            return real(*args, **kwargs)

        return request

    for name in ("head_async", "get_async", "list"):
        monkeypatch.setattr(obstore, name, counting(name))
    return counted


@pytest.mark.parametrize("edited", [True, -2, -(10**9), 2**70, "7", None, [7]])
def test_an_edited_position_counts_as_no_position(edited: Any) -> None:
    assert position_from_json({"version": edited}) is None
    assert position_from_json({"version": 7}) == 7


def test_a_seal_that_is_due_is_news_without_any_change(table: Path) -> None:
    assert look(Watch(str(table), position=-1, seal_due_at=1)) is None, "no table, no seal"
    append(table, [1])
    due = Watch(str(table), position=now(table), seal_due_at=1)
    assert (found(due).reason, found(due).position.version) == ("seal_due", 0)
    assert look(Watch(str(table), position=now(table), seal_due_at=9_999_999_999_999)) is None
    append(table, [2])
    assert found(due).reason == "new_versions"


# -- what counts ----------------------------------------------------------------------------------
def test_a_missing_table_is_waited_for(table: Path) -> None:
    assert now(table) == -1
    watch = Watch(str(table), position=-1)
    assert look(watch) is None
    append(table, [1])
    news = found(watch)
    assert news.to_dict() == {
        "table": str(table),
        "table_id": table_id(table),
        "version": 0,
        "previous_version": None,
        "timestamp": written(table, 0),
        "reason": "table_created",
    }


def test_rewriting_and_renaming_are_no_changes(table: Path) -> None:
    append(table, [1])
    baseline = append(table, [2])
    watch = Watch(str(table), position=baseline)
    assert compact(table) == baseline + 1
    assert look(watch) is None
    assert set_properties(table, delta__appendOnly="false") == baseline + 2
    assert look(watch) is None
    deletes = Watch(str(table), position=baseline, condition=Condition.of(operations=["delete", "Update"]))
    append(table, [3])
    assert look(watch) is not None
    assert look(deletes) is None
    DeltaTable(str(table)).delete("id = 1")
    assert found(deletes).position.version == baseline + 4


def test_min_versions_counts_changes_across_looks(table: Path) -> None:
    append(table, [1])
    watch = Watch(str(table), position=0, condition=Condition.of(min_versions="2"))
    append(table, [2])
    assert look(watch) is None
    assert look(watch) is None
    set_properties(table, delta__appendOnly="false")
    assert look(watch) is None
    append(table, [3])
    assert found(watch).position.version == 3


def test_many_versions_at_once(table: Path) -> None:
    append(table, [0])
    for i in range(30):
        append(table, [i])
    assert look(Watch(str(table), position=0, condition=Condition(min_versions=31))) is None
    assert found(Watch(str(table), position=0, condition=Condition(min_versions=30))).position.version == 30


def written(table: Path, version: int) -> str:
    """Return when a commit was written."""
    nanoseconds = (table / "_delta_log" / f"{version:020d}.json").stat().st_mtime_ns
    return datetime.fromtimestamp(nanoseconds // 1_000_000 / 1000, UTC).isoformat(timespec="milliseconds")


def test_the_time_is_that_of_the_newest_commit_that_counts(table: Path) -> None:
    append(table, [1])
    append(table, [2])
    compact(table)
    news = found(Watch(str(table), position=0))
    assert (news.position.version, news.timestamp) == (2, written(table, 1))


def test_what_comes_after_the_news_is_counted_anew(table: Path) -> None:
    append(table, [0])
    append(table, [1])
    watch = Watch(str(table), position=-1)
    news = found(watch)
    watch.go_on_after(news)
    assert look(watch) is None
    append(table, [2])
    append(table, [3])
    later = found(watch)
    assert (later.reason, later.previous_version, later.position.version) == ("new_versions", 1, 3)
    assert later.position == now(table)


def test_a_log_cleaned_beyond_the_baseline_is_news(table: Path) -> None:
    for i in range(4):
        append(table, [i])
    DeltaTable(str(table)).create_checkpoint()
    for version in (0, 1, 2):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    assert look(Watch(str(table), position=0)) is not None
    assert (
        look(Watch(str(table), position=TableVersion(table_id(table), 0, "of a file that is gone")))
        is not None
    )


def test_partitions(table: Path) -> None:
    def write(day: str | None, region: str) -> None:
        rows = pa.table({"day": pa.array([day], pa.string()), "region": [region], "n": [1]})
        write_deltalake(str(table), rows, mode="append", partition_by=["day", "region"])

    write("2026-01-01", "eu")

    def watch(**partitions: Any) -> Watch:
        return Watch(str(table), position=0, condition=Condition.of(partitions=partitions))

    one, several, empty = watch(DAY="2026-01-02", region="eu"), watch(region=["us", "asia"]), watch(day=None)
    write("2026-01-02", "us")
    assert [look(w) is not None for w in (one, several, empty)] == [False, True, False]
    write("2026-01-02", "eu")
    write(None, "eu")
    assert found(one).position.version == 3
    assert found(empty).position.version == 3
    with pytest.raises(InvalidConfiguration, match=r"not partitioned by n .*day, region"):
        look(watch(n=1))


def test_partitions_under_column_mapping(tmp_path: Path) -> None:
    made = LogTable(tmp_path / "t", configuration={"delta.columnMapping.mode": "name"})
    made.create()
    schema = json.dumps(struct_of(field_of("day", "string", mapped=1), field_of("n", mapped=2)))
    log = made.file(0)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"] |= {"schemaString": schema, "partitionColumns": ["day"]}
    physical = json.loads(schema)["fields"][0]["metadata"]["delta.columnMapping.physicalName"]
    add = {"path": "a.parquet", "partitionValues": {physical: "a"}, "size": 1, "modificationTime": 0}
    lines.append({"add": {**add, "dataChange": True}})
    log.write_text("\n".join(map(json.dumps, lines)) + "\n")
    for day, is_news in (("a", True), ("b", False)):
        watch = Watch(made.uri, position=-1, condition=Condition.of(partitions={"day": day}))
        assert (look(watch) is not None) is is_news


@pytest.mark.parametrize(
    "wrong", [{"min_versions": 0}, {"operations": [1]}, {"partitions": "day=1"}, {"partitions": {"day": []}}]
)
def test_conditions_that_say_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfiguration):
        Condition.of(**wrong)
    # Values are compared as Delta writes them.
    condition = Condition.of(partitions={"a": [1, True, None, ""], "b": date(2026, 1, 2)})
    assert condition.partitions == {"a": {"1", "true", None}, "b": {"2026-01-02"}}


# -- is it still the same table -------------------------------------------------------------------
def _make_again(table: Path, versions: int, ids: range = range(100, 200)) -> None:
    shutil.rmtree(table)
    for version in range(versions):
        append(table, [ids[version]])


@pytest.mark.parametrize("versions", [1, 3, 5])
def test_made_again_before_the_first_look(table: Path, versions: int) -> None:
    for i in range(3):
        append(table, [i])
    before = now(table)
    _make_again(table, versions)
    news = found(Watch(str(table), position=before))
    assert (news.reason, news.position.version, news.previous_version) == ("table_recreated", versions - 1, 2)
    assert news.position == now(table)


@pytest.mark.parametrize("versions", [4, 5])
def test_made_again_with_a_longer_log_is_noticed_at_once(table: Path, versions: int) -> None:
    for i in range(3):
        append(table, [i])
    watch = Watch(str(table), position=2, condition=Condition.of(min_versions=10, operations="MERGE"))
    assert look(watch) is None
    _make_again(table, versions)
    news = found(watch)
    assert (news.reason, news.position.version) == ("table_recreated", versions - 1)


@pytest.mark.parametrize("versions", [1, 3])
def test_made_again_with_no_longer_log_is_noticed_later(table: Path, versions: int) -> None:
    for i in range(3):
        append(table, [i])
    watch = Watch(str(table), position=2)
    assert look(watch) is None
    _make_again(table, versions)
    looks = [look(watch) for _ in range(CHECK_EVERY)]
    assert looks[:-1] == [None] * (CHECK_EVERY - 1)
    assert looks[-1] is not None
    assert looks[-1].reason == "table_recreated"


def test_dropped_while_waiting_and_made_again(table: Path) -> None:
    append(table, [1])
    watch = Watch(str(table), position=0)
    assert look(watch) is None
    shutil.rmtree(table)
    assert [look(watch) for _ in range(CHECK_EVERY + 1)] == [None] * (CHECK_EVERY + 1)
    append(table, [2])
    assert found(watch).reason == "table_recreated"


def test_recreation_can_be_refused(table: Path) -> None:
    append(table, [1])
    watch = Watch(str(table), position=now(table), allow_recreation=False)
    old = table_id(table)
    assert look(watch) is None
    _make_again(table, 2)
    with pytest.raises(SourceTableReplaced, match=old):
        look(watch)
    with pytest.raises(SourceTableReplaced, match="version 7"):
        look(Watch(str(table), position=7, allow_recreation=False))


def test_a_copy_with_another_history(table: Path) -> None:
    append(table, [1])
    backup = table.parent / "backup"
    shutil.copytree(table, backup)
    append(table, [2])
    seen = now(table)
    shutil.rmtree(table)
    shutil.copytree(backup, table)
    append(table, [3])
    with pytest.raises(SourceHistoryChanged):
        look(Watch(str(table), position=seen, allow_recreation=False))
    assert found(Watch(str(table), position=seen)).reason == "table_recreated"


def test_the_same_bytes_elsewhere_are_the_same_table(table: Path) -> None:
    append(table, [1])
    watch = Watch(str(table), position=0, allow_recreation=False)
    assert look(watch) is None
    copy = table.parent / "copy"
    shutil.copytree(table, copy, copy_function=shutil.copyfile)
    shutil.rmtree(table)
    copy.rename(table)
    assert [look(watch) for _ in range(CHECK_EVERY)] == [None] * CHECK_EVERY
    append(table, [2])
    assert found(watch).reason == "new_versions"


def test_replaced_inside_its_log_goes_on(table: Path) -> None:
    append(table, [1])
    watch = Watch(str(table), position=now(table), allow_recreation=False)
    assert look(watch) is None
    _replace_in_log(table)
    news = found(watch)
    assert (news.reason, news.position.table_id) == ("new_versions", "another-id")


def _replace_in_log(table: Path) -> None:
    """CREATE OR REPLACE: another id in the same log."""
    version = append(table, [9])
    log = table / "_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    (metadata,) = [line for line in first if "metaData" in line]
    metadata["metaData"]["id"] = "another-id"
    with (log / f"{version:020d}.json").open("a") as commit:
        commit.write("\n" + json.dumps(metadata))


# -- what a look costs ----------------------------------------------------------------------------
def test_a_quiet_look_is_one_request(table: Path, requests: Counter[str]) -> None:
    for i in range(30):
        append(table, [i])
    watch = Watch(str(table), position=29)
    assert look(watch) is None
    requests.clear()
    for _ in range(2 * CHECK_EVERY):
        assert look(watch) is None
    assert requests == {"head_async": 2 * CHECK_EVERY + 2}


# -- what can't be watched ------------------------------------------------------------------------
def test_a_catalog_name_cannot_be_watched() -> None:
    with pytest.raises(TableNameUnresolved):
        Watch("main.sales.orders", position=0)


@pytest.mark.parametrize("feature", ["catalogManaged", "somethingNewer"])
def test_an_unsupported_table_is_refused_at_the_first_look(table: Path, feature: str) -> None:
    append(table, [1])
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    with (table / "_delta_log" / f"{1:020d}.json").open("w") as commit:
        commit.write(json.dumps(protocol) + "\n")
    with pytest.raises(UnsupportedTable, match=feature):
        look(Watch(str(table), position=1))
