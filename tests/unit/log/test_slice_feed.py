"""Which files a slice of the change data feed names, and when Delta's own reader has to read."""

from __future__ import annotations

import json
import random
import struct
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import manifest_columns
from delta_cdc.core.errors import CorruptLog, ReadMethodUnavailable, VersionsExpired
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.spec import ApplySpec
from delta_cdc.core.steps import ReadRange
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log import deletion_vectors, manifest_feed
from delta_cdc.delta_log.file_manifests import prepared, write_manifests
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.logs import EPOCH, FEED, SECOND, LogTable, field_of
from tests.support.random_logs import seeds
from tests.support.slow import slow_but
from tests.support.steps import step as made_step
from tests.support.vectors import masked, masking

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: What a table with deletion vectors needs of its reader.
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "changeDataFeed", "rowTracking", "domainMetadata"],
}
ROWS = 10


def seen(add: dict[str, Any], of: int = ROWS) -> set[int]:
    """Return which rows of a file a slice shows."""
    return set(range(of)) - (masked(add["deletionVector"]) if "deletionVector" in add else set())


@pytest.fixture(autouse=True)
def everything_is_worthwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_feed, "WORTHWHILE", 0)


@pytest.fixture
def source(tmp_path: Path) -> LogTable:
    made = LogTable(tmp_path / "table", configuration={**FEED, "delta.enableRowTracking": "true"})
    made.commit("CREATE TABLE", {"protocol": PROTOCOL}, made.metadata())
    made.append()
    return made


def test_only_columns_of_the_range_and_of_its_start_are_compared(source: LogTable) -> None:
    """Not those that a later version adds, and not those that an earlier one dropped."""
    for name in ("a", "b", "c"):
        source.fields = [field_of("id"), field_of(name)]
        source.commit("REPLACE COLUMNS", source.metadata())
        source.append()
    commits = run_sync(manifest_feed.Commits.of(DeltaLog(source.uri), 0, source.version))

    def names(starting: int, ending: int) -> list[str]:
        described = commits.described(ReadRange(starting, ending, "change_feed", "", 1))
        return [json.loads(one.schema_string)["fields"][1]["name"] for one in run_sync(described)]

    assert source.version == 7
    assert names(3, 4) == ["a", "b"]
    assert names(3, 5) == ["a", "b"]
    assert names(3, 3) == ["a"]
    assert names(7, 7) == []


def exchange(source: LogTable, before: set[int] | None, after: set[int] | None, *, rows: int = ROWS) -> int:
    """Commit other masked rows of the file; None is no vector at all."""
    (path,) = source.files[source.version]
    shared = {"path": path, "partitionValues": {}, "size": 100, "dataChange": True}
    remove = dict(shared, deletionTimestamp=EPOCH, extendedFileMetadata=True)
    add = dict(shared, modificationTime=EPOCH)
    add["stats"] = json.dumps({"numRecords": rows})
    if before is not None:
        remove["deletionVector"] = masking(before, rows)
    if after is not None:
        add["deletionVector"] = masking(after, rows)
    return source.commit("DELETE", {"remove": remove}, {"add": add})


def by_manifest(source: LogTable, start: int, end: int | None = None) -> list[dict[str, Any]] | None:
    """Return what the slice says; None where it was not written."""
    root = source.path.parent / "manifests"
    last = source.version if end is None else end
    (read_range,) = write_manifests(
        DeltaLog(source.uri),
        [ReadRange(start, last, "change_files", "", 0)],
        str(root),
        at=source.version,
    )
    file = root / f"{start:020d}-{last:020d}" / "_delta_log" / f"{0:020d}.json"
    assert file.exists() is read_range.by_manifest, "nothing half"
    return [json.loads(line) for line in file.read_text().splitlines()] if read_range.by_manifest else None


def adds(source: LogTable, start: int, end: int | None = None) -> list[dict[str, Any]]:
    lines = by_manifest(source, start, end)
    assert lines is not None
    return [line["add"] for line in lines if "add" in line]


def sides(add: dict[str, Any]) -> list[str]:
    values = add["partitionValues"]
    if manifest_columns.SIDE_VERSION in values:
        return [f"{values[manifest_columns.SIDES]}{values[manifest_columns.SIDE_VERSION]}"]
    return [side.partition("@")[0] for side in values[manifest_columns.SIDES].split(",")]


# -- what is listed -----------------------------------------------------------------------------
def test_change_files_stand_for_their_commit(source: LogTable) -> None:
    cdc = {
        "cdc": {"path": "_change_data/a%20b.parquet", "partitionValues": {}, "size": 7, "dataChange": False}
    }
    source.commit("UPDATE", *source.removes(), source.add(), cdc)
    found = adds(source, 1)
    assert [sides(add) for add in found] == [["i1"], ["c2"]]
    assert found[1]["path"].endswith("/table/_change_data/a%20b.parquet")
    assert found[1]["partitionValues"][manifest_columns.SIDE_TIME] == str(EPOCH + 2 * SECOND)


def test_a_file_that_came_and_went_is_listed_once(source: LogTable) -> None:
    source.truncate()
    (add,) = adds(source, 1)
    assert sides(add) == ["i1", "d2"]
    assert add["partitionValues"][manifest_columns.SIDES] == f"i1@{EPOCH + SECOND},d2@{EPOCH + 2 * SECOND}"


def test_commits_without_changes_are_no_side(source: LogTable) -> None:
    source.optimize()
    none = dict.fromkeys(("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"), "0")
    source.commit("MERGE", *source.removes(), source.add(), metrics=none)
    (remove,) = source.removes()
    remove["remove"]["partitionValues"] = {}
    source.commit("DELETE", remove)
    assert [sides(add) for add in adds(source, 1)] == [["i1"], ["d4"]]


def test_row_ids_are_nothing_to_the_feed(source: LogTable) -> None:
    """With row tracking on, Delta would refuse every file without ids."""
    add = source.add()
    add["add"] |= {"baseRowId": 3, "defaultRowCommitVersion": 2}
    source.commit("WRITE", add)
    lines = by_manifest(source, 1)
    assert lines is not None
    protocol, metadata = lines[0]["protocol"], lines[1]["metaData"]
    assert "rowTracking" not in protocol["writerFeatures"]
    assert "changeDataFeed" in protocol["writerFeatures"]
    assert "delta.enableRowTracking" not in metadata["configuration"]
    assert not any("baseRowId" in line["add"] for line in lines[2:])


@pytest.mark.parametrize("seed", slow_but(seeds(4), *seeds(2)))
@pytest.mark.parametrize("rows", [ROWS, 70_000])
def test_only_rows_whose_mask_changed_are_shown(source: LogTable, seed: int, rows: int) -> None:
    draw = random.Random(seed)
    before: set[int] | None = None
    expected = []
    for _ in range(8):
        after = draw.choice([None, set(draw.sample(range(rows), draw.randint(0, 9))), set(range(rows - 3))])
        if after == before:
            continue
        version = exchange(source, before, after, rows=rows)
        left, came = (after or set()) - (before or set()), (before or set()) - (after or set())
        expected += [(f"d{version}", left)] * bool(left) + [(f"i{version}", came)] * bool(came)
        before = after
    found = [(side, frozenset(seen(add, rows))) for add in adds(source, 2) for side in sides(add)]
    assert sorted(found, key=str) == sorted(((side, frozenset(some)) for side, some in expected), key=str)


# -- what is left to Delta's reader --------------------------------------------------------------
def untold(source: LogTable) -> None:
    exchange(source, None, {1})
    text = source.file(source.version).read_text()
    source.file(source.version).write_text(text.replace("numRecords", "numNothing"))


def too_few(source: LogTable) -> None:
    exchange(source, None, {1, 9})
    text = source.file(source.version).read_text()
    source.file(source.version).write_text(text.replace('"numRecords\\": 10', '"numRecords\\": 9'))


def itself(source: LogTable) -> None:
    (path,) = source.files[source.version]
    add = source.add()
    add["add"]["path"] = path
    source.commit("WRITE", *source.removes(), add)


def twice(source: LogTable) -> None:
    source.commit("WRITE", source.add(), source.add())


def beyond(source: LogTable) -> None:
    exchange(source, None, {1})
    data = struct.pack("<IQ", 1_681_511_377, 2) + bytes(24)
    change_vector(source, {"pathOrInlineDv": deletion_vectors.encode(data), "sizeInBytes": len(data)})


def unsized(source: LogTable) -> None:
    (action,) = source.removes()
    action["remove"] |= {"size": None, "partitionValues": {}}
    source.commit("TRUNCATE", action)


def elsewhere(source: LogTable) -> None:
    exchange(source, None, {1})
    change_vector(source, {"storageType": "p", "pathOrInlineDv": "viewfs://cluster/a.bin", "offset": 1})


def without_the_feature(source: LogTable) -> None:
    exchange(source, None, {1})
    plain = PROTOCOL | {"readerFeatures": [], "writerFeatures": ["changeDataFeed"]}
    source.commit("DROP FEATURE", {"protocol": plain})


def partitioned_now(source: LogTable) -> None:
    metadata = source.metadata()
    metadata["metaData"]["partitionColumns"] = ["name"]
    add = source.add()
    add["add"]["partitionValues"] = {"name": "x"}
    source.commit("CREATE OR REPLACE TABLE", metadata, *source.removes(), add)


def mapped_anew(source: LogTable) -> None:
    source.configuration = {
        **FEED,
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "9",
    }
    source.fields = [field_of("id", mapped=8), field_of("name", mapped=9)]
    source.commit("CREATE OR REPLACE TABLE", source.metadata(), *source.removes(), source.add())


def by_id(source: LogTable) -> None:
    source.configuration = {**FEED, "delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "2"}
    source.fields = [field_of("id", mapped=1), field_of("name", mapped=2)]
    source.commit("CREATE OR REPLACE TABLE", source.metadata())
    cdc = {"cdc": {"path": "_change_data/a", "partitionValues": {}, "size": 7, "dataChange": False}}
    source.commit("UPDATE", cdc)


def reserved(source: LogTable) -> None:
    source.alter(field_of("id"), field_of(manifest_columns.SIDES))
    source.append()


def change_vector(source: LogTable, changes: dict[str, Any]) -> None:
    file = source.file(source.version)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["deletionVector"] |= changes
    file.write_text("\n".join(map(json.dumps, lines)))


SPOILED = {
    untold: "does not say how many rows part-00001-0.parquet has",
    too_few: "masks rows that part-00001-0.parquet does not have",
    itself: "exchanges part-00001-0.parquet for itself",
    twice: "names a file twice",
    beyond: "masks rows beyond 2^32",
    unsized: "does not describe part-00001-0.parquet",
    elsewhere: "cannot be looked up",
    without_the_feature: "no deletion vectors any more",
    partitioned_now: "the partition columns changed",
    mapped_anew: "the column id has another name in older files",
    by_id: "columns are mapped by id",
    reserved: manifest_columns.SIDES,
}


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_what_is_not_as_expected_is_left_to_deltas_reader(
    source: LogTable, spoil: Callable[[LogTable], None], caplog: pytest.LogCaptureFixture
) -> None:
    spoil(source)
    with caplog.at_level("INFO", logger="delta_cdc"):
        assert by_manifest(source, 3 if spoil is by_id else 2) is None
    assert SPOILED[spoil] in caplog.text


def test_little_is_left_to_deltas_reader(source: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark takes longer to open a log for the first time; deletion vectors it compares one by one."""
    monkeypatch.setattr(manifest_feed, "WORTHWHILE", 1)
    for row in range(manifest_feed.COMPARED):
        exchange(source, {row - 1} if row else None, {row})
    assert by_manifest(source, 3) is None
    assert by_manifest(source, 2) is not None
    monkeypatch.setattr(manifest_feed, "WORTHWHILE", 0)
    assert by_manifest(source, 3) is not None


@pytest.mark.parametrize("is_extended", [False, None, "true", 1])
def test_what_deltas_reader_refuses_is_never_left_to_it(
    source: LogTable, monkeypatch: pytest.MonkeyPatch, is_extended: object
) -> None:
    monkeypatch.setattr(manifest_feed, "WORTHWHILE", 1000)
    (path,) = source.files[source.version]
    remove = {"path": path, "partitionValues": {}, "size": 100, "dataChange": True}
    source.commit("DELETE", {"remove": {**remove, "extendedFileMetadata": True}})
    assert by_manifest(source, 2) is None
    source.append()
    (path,) = source.files[source.version]
    more = {} if is_extended is None else {"extendedFileMetadata": is_extended}
    source.commit("DELETE", {"remove": {**remove, "path": path, **more}})
    (add,) = adds(source, 4)
    assert add["path"].endswith(path)
    change = {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 7, "dataChange": False}}
    source.append()
    (path,) = source.files[source.version]
    source.commit("DELETE", {"remove": {**remove, "path": path, **more}}, change)
    assert by_manifest(source, 6) is None, "the change files count"


@pytest.mark.parametrize("is_extended", [True, False])
def test_an_omitted_partition_value_is_null_where_the_record_is_whole(
    tmp_path: Path, is_extended: bool
) -> None:
    made = LogTable(tmp_path / "table", configuration=FEED)
    metadata = made.metadata()
    metadata["metaData"]["partitionColumns"] = ["id"]
    made.commit("CREATE TABLE", {"protocol": PROTOCOL}, metadata)
    made.append()
    (path,) = made.files[made.version]
    gone = {"path": path, "partitionValues": {}, "size": 100, "dataChange": True}
    made.commit("DELETE", {"remove": {**gone, "extendedFileMetadata": is_extended}})
    assert (by_manifest(made, made.version) is not None) is is_extended


def test_too_much_is_left_to_deltas_reader(source: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    source.append()
    source.append()
    assert by_manifest(source, 1) is not None
    monkeypatch.setattr(manifest_feed, "MOST_FILES", 2)
    assert by_manifest(source, 1, 2) is not None
    assert by_manifest(source, 0, 3) is None
    exchange_of = LogTable(source.path.parent / "other", configuration=FEED)
    exchange_of.commit("CREATE TABLE", {"protocol": PROTOCOL}, exchange_of.metadata())
    exchange_of.append()
    exchange(exchange_of, None, {1})
    monkeypatch.setattr(manifest_feed, "MOST_VECTOR_BYTES", 10)
    assert by_manifest(exchange_of, 2) is None


def test_damaged_and_missing_vectors_are_named(source: LogTable) -> None:
    version = exchange(source, None, {1})
    change_vector(source, {"pathOrInlineDv": "0" * 40})
    with pytest.raises(CorruptLog, match=rf"part-00001-0\.parquet \(version {version} "):
        by_manifest(source, 2)
    change_vector(source, {"storageType": "u", "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^", "offset": 1})
    with pytest.raises(
        VersionsExpired, match=rf"VACUUM deleted .*part-00001-0\.parquet, .* version {version} "
    ):
        by_manifest(source, 2)


# -- who asks -----------------------------------------------------------------------------------
def spec_of(source: LogTable, *read_ranges: ReadRange) -> ApplySpec:
    step = made_step("apply", 1, TableVersion("i", source.version), 1, ("id",), ranges=read_ranges)
    return ApplySpec(
        pipeline="p",
        run_id="r",
        source_uri=source.uri,
        target_uri="/target",
        options=ApplyOptions(keys=("id",)),
        steps=(step,),
    )


def test_a_prepared_spec_says_what_is_sliced(source: LogTable, tmp_path: Path) -> None:
    itself(source)
    times = ((1, EPOCH + SECOND),)
    spec = spec_of(
        source,
        ReadRange(1, 1, "added_files", "", 0, timestamps=times),
        ReadRange(1, 1, "change_files", "", 0),
        ReadRange(2, 2, "change_files", "", 0),
    )
    found = prepared(spec, str(tmp_path / "manifests"))
    assert [read_range.by_manifest for read_range in found.steps[0].read.ranges] == [True, True, False]
    assert found.manifests_uri == str(tmp_path / "manifests")


def test_without_a_folder_only_what_needs_one_fails(source: LogTable) -> None:
    spec = spec_of(source, ReadRange(1, 1, "change_files", "", 0))
    assert prepared(spec, "") == spec
    with pytest.raises(ReadMethodUnavailable, match="Versions 1-1 are read by row_tracking") as failed:
        prepared(spec_of(source, ReadRange(1, 1, "row_tracking", "", 0)), "")
    assert "scratch=" in failed.value.remedy
