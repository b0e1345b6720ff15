"""What a slice names: which files of a range, under which URIs, from when to when, and what it refuses."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import (
    CorruptLog,
    ReadMethodUnavailable,
    ReservedColumnName,
    StoreUnavailable,
    VersionsExpired,
)
from delta_cdc.core.manifest_columns import MARKS, SIDES, location
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.spec import ApplySpec, fingerprint
from delta_cdc.core.steps import ReadRange, Staging
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log import deletion_vectors
from delta_cdc.delta_log.file_manifests import forget, net_bytes, prepared, write_manifests
from delta_cdc.delta_log.requests import put_stream
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.checkpoints import checkpoint
from tests.support.http_store import HttpStore, always
from tests.support.logs import EPOCH, SECOND, LogTable, field_of
from tests.support.steps import step as made_step
from tests.support.vectors import masked, masking

if TYPE_CHECKING:
    from collections.abc import Iterable

TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "ids",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "versions",
}


def add(path: str, base: int | None = 0, *, data: bool = True, vector: Any = None, **more: Any) -> Any:
    given = {"path": path, "partitionValues": {}, "size": 100, "modificationTime": EPOCH, "dataChange": data}
    if base is not None:
        given |= {"baseRowId": base, "defaultRowCommitVersion": 1}
    if vector is not None:
        given |= {"deletionVector": vector, "stats": json.dumps({"numRecords": 10})}
    return {"add": given | more}


def remove(path: str, base: int | None = 0, *, vector: Any = None, **more: Any) -> Any:
    ((_, given),) = add(path, base, vector=vector, **more).items()
    return {"remove": given}


def bare(path: str, *, data: bool = True) -> Any:
    """Return a remove that tells nothing but which file, as old writers do."""
    return {"remove": {"path": path, "deletionTimestamp": EPOCH, "dataChange": data}}


def masks(*rows: int) -> dict[str, Any]:
    """Return an inline vector that masks some of ten rows."""
    return masking(set(rows))


def read_range(
    start: int, end: int, method: Any = "row_tracking", *, net: bool = False, data: Iterable[int] = ()
) -> ReadRange:
    """Return a segment all of whose versions (or those given) change data."""
    times = tuple((version, EPOCH + version) for version in (data or range(start, end + 1)))
    return ReadRange(start, end, method, "test", 0, net=net, timestamps=times)


def table(path: Path, **configuration: str) -> LogTable:
    return LogTable(path / "t", configuration={**TRACKED, **configuration}).create()


def written(made: LogTable, wanted: ReadRange, at: int | None = None) -> dict[str, Any]:
    """Write a slice; return its actions: protocol, metaData, and the adds by path and sides."""
    root = str(made.path.parent / "slice")
    write_manifests(DeltaLog(made.uri), [wanted], root, at=wanted.ending_version if at is None else at)
    lines = (Path(location(root, wanted)) / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    found: dict[str, Any] = {}
    for line in lines:
        ((kind, data),) = json.loads(line).items()
        if kind == "add":
            # The timestamps are EPOCH + version.
            assert all(int(one.partition("@")[2]) == EPOCH + int(one.partition("@")[0][1:])
                       for one in data["partitionValues"][SIDES].split(","))  # fmt: skip
            sides = ",".join(one.partition("@")[0] for one in data["partitionValues"][SIDES].split(","))
            found[f"{data['path'].rpartition('/')[2]} {sides}"] = data
        else:
            found[kind] = data
    return found


def files(found: dict[str, Any]) -> list[str]:
    return [name for name in found if name not in ("protocol", "metaData")]


# -- which files ----------------------------------------------------------------------------------
def test_files_of_commits_and_when_they_came_and_went(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a"), add("b", 10))
    made.commit("MERGE", add("c", 20), remove("a"))
    made.commit("DELETE", remove("b", 10))
    made.commit("OPTIMIZE", add("d", 30, data=False), remove("c", 20, data=False, dataChange=False))
    made.commit("RESTORE", add("a"), remove("d", 30))
    found = written(made, read_range(1, 5, data=(1, 2, 3, 5)))
    # With one side only there is nothing to match; what only moved rows is no change.
    assert files(found) == ["a i1,-2,+5", "b i1,d3", "c +2", "d -5"]
    assert found["c +2"]["baseRowId"] == 20
    assert found["metaData"]["partitionColumns"] == [SIDES]


def test_of_masked_rows_only_those_that_changed_are_shown(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a"), add("b", 10))
    made.commit("DELETE", add("a", vector=masks(1, 2)), remove("a"))
    made.commit("UPDATE", add("a", vector=masks(1, 2, 5)), remove("a", vector=masks(1, 2)), add("c", 20))
    made.commit("RESTORE", add("a", vector=masks(1)), remove("a", vector=masks(1, 2, 5)), remove("c", 20))
    found = written(made, read_range(2, 4))
    assert files(found) == ["a d2", "a -3", "c +3,-4", "a +4"]
    seen = {name: set(range(10)) - masked(found[name]["deletionVector"]) for name in ("a d2", "a -3", "a +4")}
    assert seen == {"a d2": {1, 2}, "a -3": {5}, "a +4": {2, 5}}
    assert found["a d2"]["deletionVector"]["cardinality"] == 8
    net = written(made, read_range(2, 4, net=True))
    assert files(net) == ["a d4"]
    assert masked(net["a d4"]["deletionVector"]) == set(range(10)) - {1}
    assert files(written(made, read_range(2, 4, "snapshot_diff", net=True))) == ["a d4"]


@pytest.mark.parametrize(
    ("damage", "more"),
    [
        ({"sizeInBytes": 12}, {}),
        ({"pathOrInlineDv": "~"}, {}),
        ({"storageType": "u", "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^", "offset": 1}, {}),
        ({}, {"stats": "{}"}),
    ],
    ids=["size", "text", "no file", "the number of rows is unknown"],
)
def test_where_a_vector_cannot_be_read_the_file_is_read_whole(
    tmp_path: Path, damage: dict[str, Any], more: dict[str, str]
) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a"))
    made.commit("DELETE", add("a", vector=masks(1) | damage, **more), remove("a"))
    assert files(written(made, read_range(2, 2))) == ["a -2", "a +2"]
    if damage:
        assert files(written(made, read_range(2, 2, net=True))) == ["a -2", "a +2"]


def test_the_net_of_a_range(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("kept"), add("moved", 10), add("gone", 20))
    made.commit("WRITE", add("new", 30), add("brief", 40))
    made.commit("DELETE", remove("gone", 20), remove("brief", 40), tags={})
    made.commit("OPTIMIZE", add("to", 50, data=False), remove("moved", 10, dataChange=False))
    made.commit("RESTORE", remove("kept"))
    made.commit("RESTORE", add("kept"))
    found = written(made, read_range(2, 6, net=True, data=(2, 3, 5, 6)))
    assert files(found) == ["gone -6", "moved -6", "new +6", "to +6"]
    by_key = written(made, read_range(2, 6, "snapshot_diff", net=True, data=(2, 3, 5, 6)))
    assert files(by_key) == ["gone d6", "moved d6", "new i6", "to i6"]
    assert files(written(made, read_range(2, 2, net=True))) == ["new i2", "brief i2"]


def test_a_file_of_which_more_is_told_was_there_before(tmp_path: Path) -> None:
    """As when row tracking is turned on: the files are added once more, with ids."""
    made = table(tmp_path)
    made.commit("WRITE", add("a", None), add("b", None))
    made.commit("ROW TRACKING BACKFILL", add("a", 0, data=False), add("b", 10, data=False))
    made.commit("DELETE", remove("b", None))
    found = written(made, read_range(2, 3, net=True, data=(3,)))
    assert files(found) == ["b d3"]
    assert found["b d3"]["baseRowId"] == 10


def test_a_net_whose_last_commit_changes_no_data(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a"), at=EPOCH + 1)
    made.commit("OPTIMIZE", add("b", 10, data=False), remove("a", dataChange=False), at=EPOCH + 2)
    assert files(written(made, read_range(1, 2, data=(1,)))) == ["a i1"]
    assert files(written(made, read_range(1, 2, net=True, data=(1,)))) == ["b i2"]


def test_files_that_are_only_added(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a", None, stats='{"numRecords":3}'))
    made.commit("WRITE", add("b", None))
    made.commit("DELETE", remove("a", None))
    found = written(made, read_range(1, 2, "added_files"))
    assert files(found) == ["a i1", "b i2"]
    assert found["a i1"]["stats"] == '{"numRecords":3}'
    with pytest.raises(ReadMethodUnavailable, match=r"Version 3 .* removes rows \(file a\)"):
        written(made, read_range(1, 3, "added_files"))
    assert files(written(made, read_range(1, 3, "added_files", data=(1, 2)))) == ["a i1", "b i2"]


# -- what removals leave out ----------------------------------------------------------------------
@pytest.mark.parametrize("net", [False, True])
@pytest.mark.parametrize("kind", ["log", "classic", "v2-json-sidecars"])
def test_what_a_removal_leaves_out_is_looked_up(tmp_path: Path, kind: str, net: bool) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a", None), add("b%20c", None))
    if kind != "log":
        checkpoint(made, kind=kind)
        made.file(0).unlink()
    made.commit("DELETE", bare("b%20c"))
    found = written(made, read_range(2, 2, "snapshot_diff", net=net))
    assert files(found) == ["b%20c d2"]
    assert found["b%20c d2"]["size"] == 100


def test_a_file_that_the_range_itself_added(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a"))
    made.commit("OPTIMIZE", add("b", 10, data=False), remove("a", dataChange=False))
    made.commit("DELETE", bare("b"))
    assert written(made, read_range(2, 3, data=(3,)))["b d3"]["baseRowId"] == 10


def test_what_cannot_be_looked_up(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a"))
    made.commit("DELETE", bare("other"))
    with pytest.raises(
        ReadMethodUnavailable, match=r"Version 2 of .* removes the file other without its size"
    ):
        written(made, read_range(2, 2, "snapshot_diff", net=True))
    checkpoint(made)
    made.file(0).unlink()
    made.file(1).unlink()
    with pytest.raises(VersionsExpired):
        written(made, read_range(2, 2, "snapshot_diff", net=True))
    assert not (tmp_path / "slice").exists()


# -- what is refused ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("tracked", "action", "error", "message"),
    [
        (True, add("a", None), ReadMethodUnavailable, r"The file a of .* \(version 1\) has no row ids"),
        (False, add("a"), ReadMethodUnavailable, "does not track rows"),
        (
            True,
            add("a", partitionValues={"old": "1"}),
            ReadMethodUnavailable,
            r"version 1\) is partitioned by \['old'\]",
        ),
        (
            True,
            add("a", vector={"storageType": "u", "cardinality": 1}),
            CorruptLog,
            r"deletion vector of a .* \(version 1\)",
        ),
    ],
    ids=["no row ids", "no row tracking", "other partitions", "a vector that says nothing"],
)
def test_files_that_are_refused(
    tmp_path: Path, tracked: bool, action: Any, error: type[Exception], message: str
) -> None:
    made = table(tmp_path) if tracked else LogTable(tmp_path / "t").create()
    made.commit("WRITE", action)
    with pytest.raises(error, match=message):
        written(made, read_range(1, 1))


def test_row_ids_under_another_name(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a"))
    made.configuration = {**TRACKED, "delta.rowTracking.materializedRowIdColumnName": "other"}
    made.commit("REPLACE TABLE", made.metadata(), add("b"), remove("a"))
    made.configuration = TRACKED
    made.commit("REPLACE TABLE", made.metadata(), add("c"), remove("b"))
    for net in (False, True):
        with pytest.raises(ReadMethodUnavailable, match=r"Version 2 of .* changed .*materializedRowId"):
            written(made, read_range(2, 3, net=net))
    assert files(written(made, read_range(2, 3, "snapshot_diff", net=True))) == ["a d3", "c i3"]


def test_a_column_of_the_name_that_a_slice_needs(tmp_path: Path) -> None:
    made = LogTable(tmp_path / "t", columns=("id", SIDES.upper())).create()
    made.append()
    with pytest.raises(ReservedColumnName, match="__DELTA_CDC_SIDES"):
        written(made, read_range(1, 1, "added_files"))


# -- how files are named --------------------------------------------------------------------------
def test_paths_are_absolute_and_encoded_once(tmp_path: Path) -> None:
    made = LogTable(tmp_path / "a b%20ü#?", configuration=TRACKED).create()
    made.commit(
        "WRITE",
        add("p=a%2520b/x%20y.parquet"),
        add("file:/else/where%20x.parquet", 10),
        add("s3://bucket/z.parquet", 20),
        add("v", 30, vector={"storageType": "u", "pathOrInlineDv": "a b^-aqEH.-t@S}K{vb[*k^", "offset": 4,
                             "sizeInBytes": 9, "cardinality": 6}),
    )  # fmt: skip
    found = written(made, read_range(1, 1))
    base = f"file://{tmp_path}/a%20b%2520%C3%BC%23%3F"
    assert [found[name]["path"] for name in files(found)] == [
        f"{base}/p=a%2520b/x%20y.parquet",
        "file:/else/where%20x.parquet",
        "s3://bucket/z.parquet",
        f"{base}/v",
    ]
    assert found["v i1"]["deletionVector"] == {
        "storageType": "p",
        "pathOrInlineDv": f"{base}/a%20b/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        "offset": 4,
        "sizeInBytes": 9,
        "cardinality": 6,
    }


def test_object_stores_are_named_as_spark_names_them() -> None:
    from delta_cdc.delta_log.actions import MetaData, Protocol
    from delta_cdc.delta_log.manifest_table import Table

    schema = json.dumps({"type": "struct", "fields": [field_of("id")]})
    made = Table("s3://bucket/a b%/t", Protocol(), MetaData(id="x", schema_string=schema))
    assert made.absolute("x%20y") == "s3a://bucket/a%20b%25/t/x%20y"


# -- what a slice says of the table ---------------------------------------------------------------
def test_properties_that_only_a_log_needs_are_left_out(tmp_path: Path) -> None:
    made = table(
        tmp_path,
        **{"delta.enableInCommitTimestamps": "true", "delta.enableChangeDataFeed": "true",
           "delta.checkpointPolicy": "v2", "delta.constraints.c": "id > 0"},
    )  # fmt: skip
    made.commit("WRITE", add("a"))
    found = written(made, read_range(1, 1))
    assert found["metaData"]["configuration"] == TRACKED
    assert found["metaData"]["id"] != made.table_id
    extra = json.loads(found["metaData"]["schemaString"])["fields"][-1]
    assert (extra["name"], extra["type"], extra["metadata"]) == (SIDES, "string", {MARKS: "i"})


def test_mapped_columns_and_physical_partitions(tmp_path: Path) -> None:
    made = table(tmp_path, **{"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "7"})
    made.fields = [field_of("id", mapped=1), field_of("p", mapped=2)]
    metadata = made.metadata()
    metadata["metaData"]["partitionColumns"] = ["p"]
    made.commit("SET", metadata)
    made.commit("WRITE", add("a", partitionValues={"col-2": "x"}), add("b", 10, partitionValues={}))
    found = written(made, read_range(2, 2))
    assert found["metaData"]["configuration"]["delta.columnMapping.maxColumnId"] == "8"
    assert found["metaData"]["partitionColumns"] == ["p", SIDES]
    extra = json.loads(found["metaData"]["schemaString"])["fields"][-1]["metadata"]
    assert (extra["delta.columnMapping.id"], extra["delta.columnMapping.physicalName"]) == (8, SIDES)
    assert found["a i2"]["partitionValues"]["col-2"] == "x"


def test_the_schema_is_that_of_the_ranges_end(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a"))
    made.alter(field_of("id"), field_of("name"), field_of("more"), operation="ADD COLUMNS")
    for at, names in ((None, ["id", "name", SIDES]), (2, ["id", "name", "more", SIDES])):
        found = written(made, read_range(1, 1), at)
        assert [f["name"] for f in json.loads(found["metaData"]["schemaString"])["fields"]] == names


def test_a_slice_is_written_over_and_always_the_same(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a"), add("b", 10))
    written(made, read_range(1, 1))
    file = Path(location(str(tmp_path / "slice"), read_range(1, 1))) / "_delta_log" / f"{0:020d}.json"
    first = file.read_bytes()
    file.write_bytes(b"half of")
    written(made, read_range(1, 1))
    assert file.read_bytes() == first
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_table_and_its_slice_in_an_object_store(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a"))
    vector = {"storageType": "u", "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^", "offset": 1}
    data = deletion_vectors.decode(masks(1)["pathOrInlineDv"])[: (size := masks(1)["sizeInBytes"])]
    stored = b"\x01" + struct.pack(">I", size) + data + struct.pack(">I", zlib.crc32(data))
    (made.path / deletion_vectors.file_of(str(vector["pathOrInlineDv"]))).write_bytes(stored)
    made.commit("DELETE", add("a", vector=vector | {"sizeInBytes": size, "cardinality": 1}), remove("a"))
    with HttpStore(tmp_path) as store:
        root, options = store.uri("runs/s l%"), store.options()
        write_manifests(
            DeltaLog(store.uri("t"), options), [read_range(2, 2)], root, at=2, storage_options=options
        )
        write_manifests(
            DeltaLog(store.uri("t"), options), [read_range(1, 2)], root, at=2, storage_options=options
        )
        folder = Path(location(str(tmp_path / "runs" / "s l%"), read_range(1, 2)))
        lines = (folder / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
        run_sync(put_stream(store.uri("runs/s l%2"), "y", iter([b"z"]), store.options()))
        for _ in range(2):
            forget(store.uri("runs/s l%"), store.options())
            assert [file.name for file in (tmp_path / "runs").rglob("*") if file.is_file()] == ["y"]
        store.faults = always("denied")
        with pytest.raises(StoreUnavailable, match="refused access"):
            run_sync(put_stream(store.uri("x"), "y", iter([b"z"]), store.options()))
        with pytest.raises(StoreUnavailable, match="refused access"):
            forget(store.uri("runs"), store.options())
    adds = [json.loads(line)["add"] for line in lines if "add" in json.loads(line)]
    assert [one["path"] for one in adds] == ["s3a://lake/t/a"] * 2
    # The vector's file was read: of the file only the row is shown that went.
    assert set(range(10)) - masked(adds[1]["deletionVector"]) == {1}


# -- specs ----------------------------------------------------------------------------------------
def _spec(made: LogTable, *read_ranges: ReadRange, at: int = 2, **more: Any) -> ApplySpec:
    step = made_step(
        kind="apply",
        starting_version=1, watermark=TableVersion(made.table_id, at), seal_number=1,
        source_columns=("id",), ranges=read_ranges, **more,
    )  # fmt: skip
    return ApplySpec(
        pipeline="p",
        run_id="r",
        source_uri=made.uri,
        target_uri="/target",
        options=ApplyOptions(keys=("id",)),
        steps=(step,),
    )


@pytest.mark.parametrize("watermark", [2, 3])
def test_a_spec_gets_the_slices_of_its_segments(tmp_path: Path, watermark: int) -> None:
    """With the columns of the watermark, which lies behind the range of a repair."""
    made = table(tmp_path)
    made.commit("WRITE", add("a"))
    if watermark == 3:
        made.commit("WRITE", add("b"))
    made.alter(field_of("id"), field_of("name"), field_of("more"), operation="ADD COLUMNS")
    root, tracked = tmp_path / "manifests", read_range(1, 1)
    spec = _spec(made, tracked, at=watermark)
    found = prepared(spec, str(root))
    assert found.manifests_uri == str(root)
    assert [one.by_manifest for one in found.steps[0].read.ranges] == [True]
    assert fingerprint(found) == fingerprint(spec)
    file = Path(location(str(root), tracked)) / "_delta_log" / f"{0:020d}.json"
    assert "more" in file.read_text()


def test_a_spec_that_needs_no_slice_stays_as_it_is(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a"))
    root = tmp_path / "manifests"
    staged = _spec(made, staging=Staging("/staging", 0, "changes"))
    assert prepared(staged, str(root)) is staged
    assert not root.exists()
    # Nowhere to put it, which the change feed can do without.
    feed = _spec(made, ReadRange(1, 1, "change_files", "", 0))
    assert prepared(feed, "") is feed
    with pytest.raises(ReadMethodUnavailable, match="Versions 1-1 are read by row_tracking"):
        write_manifests(DeltaLog(made.uri), [read_range(1, 1)], "", at=1)


# -- how much a range takes -----------------------------------------------------------------------
def test_the_bytes_of_two_ends(tmp_path: Path) -> None:
    made = table(tmp_path)
    made.commit("WRITE", add("a", size=1), add("b", size=10))
    made.commit("WRITE", add("c", size=100), add("brief", size=1_000))
    made.commit("DELETE", remove("a", size=1), remove("brief", size=1_000))
    made.commit("UPDATE", add("b", size=10, vector=masks(1)), remove("b", size=10))
    made.commit("COMPUTE STATS", add("c", size=100, data=False))
    log = DeltaLog(made.uri)
    commits = run_sync(log.commits(range(2, 6)))
    assert run_sync(net_bytes(log, commits)) == 1 + 10 + 100
    made.commit("DELETE", bare("c"))
    assert run_sync(net_bytes(log, run_sync(log.commits(range(2, 7))))) == 1 + 10
    assert run_sync(net_bytes(log, run_sync(log.commits(range(6, 7))))) is None


# -- commit timestamps ----------------------------------------------------------------------------
def test_timestamps_increase_from_a_hundred_commits_before(tmp_path: Path) -> None:
    made = LogTable(tmp_path / "t").create(at=EPOCH + 500 * SECOND)
    for version in range(1, 120):
        made.append(at=EPOCH + version * SECOND)
    log = DeltaLog(made.uri)
    late = EPOCH + 500 * SECOND
    assert run_sync(log.timestamps(range(1, 4))) == {1: late + 1, 2: late + 2, 3: late + 3}
    assert run_sync(log.timestamps([100])) == {100: late + 100}
    assert run_sync(log.timestamps([101, 119])) == {101: EPOCH + 101_000, 119: EPOCH + 119_000}
    assert run_sync(log.timestamps([])) == {}


def test_in_commit_timestamps_come_first(tmp_path: Path) -> None:
    made = LogTable(tmp_path / "t").create()
    made.append(stamp=EPOCH + 7)
    made.append()
    log = DeltaLog(made.uri)
    assert run_sync(log.timestamps(range(3))) == {0: EPOCH, 1: EPOCH + 7, 2: EPOCH + 2_000}
    commits = run_sync(log.commits(range(3)))
    # Those at hand are not read again.
    at_hand = replace(commits[1], info=replace(commits[1].info, in_commit_timestamp=9))
    assert run_sync(log.timestamps([1], [at_hand])) == {1: 9}
    made.file(0).unlink()
    with pytest.raises(VersionsExpired):
        run_sync(log.timestamps(range(3), commits))
