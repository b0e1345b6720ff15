"""Every range of changes that is refused from the log alone: by name, with a remedy, before Spark starts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import plan_changes
from delta_cdc.core.errors import DeltaCdcError, VersionsExpired
from tests.support.logs import EPOCH, FEED, LogTable, field_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version",
}
MAPPED = {**FEED, "delta.columnMapping.mode": "name"}
NET = {"query": "min_delta", "keys": ["id"]}
AT = "2026-01-01T00:00:00Z"


def _grown(folder: Path, configuration: dict[str, str], **given: Any) -> LogTable:
    """Versions 1-3 append a file each."""
    table = LogTable(folder / "table", configuration=dict(configuration), **given).create()
    for _ in range(3):
        table.append()
    return table


def nowhere(folder: Path) -> LogTable:
    return LogTable(folder / "table")


def fed(folder: Path) -> LogTable:
    return _grown(folder, FEED)


def plain(folder: Path) -> LogTable:
    """Neither feed nor row tracking, and version 2 removes rows."""
    table = LogTable(folder / "table").create()
    table.append()
    table.delete("id = 1")
    table.append()
    return table


def with_hole(folder: Path) -> LogTable:
    """The feed is off in versions 2 and 3, and version 3 removes rows; on again from version 4."""
    table = LogTable(folder / "table", configuration=dict(FEED)).create()
    table.append()
    table.set_properties(delta__enableChangeDataFeed="false")
    table.delete("id = 1")
    table.set_properties(delta__enableChangeDataFeed="true")
    table.append()
    return table


def broken_identity(folder: Path) -> LogTable:
    """Rows are tracked, and an UPDATE that did not promise to keep their ids."""
    table = _grown(folder, {**FEED, **ROWS})
    table.commit("UPDATE", *table.removes(), table.add())
    return table


def gap(folder: Path) -> LogTable:
    table = fed(folder)
    table.file(2).unlink()
    return table


def cleaned(folder: Path) -> LogTable:
    table = fed(folder)
    for version in (0, 1):
        table.file(version).unlink()
    return table


def _columns(*names: str) -> Callable[[Path], LogTable]:
    return lambda folder: _grown(folder, FEED, columns=("id", *names))


def _altered(*fields: dict[str, Any], mapped: bool = False) -> Callable[[Path], LogTable]:
    """Version 4 alters the columns of a table ``id, name, n``; version 5 appends."""

    def make(folder: Path) -> LogTable:
        first = [
            field_of(name, of, mapped=number if mapped else None)
            for number, (name, of) in enumerate((("id", "string"), ("name", "string"), ("n", "integer")), 1)
        ]
        table = _grown(folder, MAPPED if mapped else FEED, fields=first)
        table.alter(*fields)
        table.append()
        return table

    return make


def old(folder: Path) -> LogTable:
    """Version 1 is older than the retention of files, versions 2 and 3 are not."""
    table = LogTable(folder / "table", configuration=dict(FEED)).create(at=EPOCH // 2)
    table.append(at=EPOCH // 2 + 1)
    table.append()
    table.append()
    return table


def vacuumed(folder: Path) -> LogTable:
    table = fed(folder)
    (table.path / "part-00002-0.parquet").unlink()
    return table


def removing_old(folder: Path) -> LogTable:
    """Rows are tracked, no feed; version 2 removed a file that VACUUM took since."""
    table = LogTable(folder / "table", configuration=dict(ROWS)).create()
    table.append()
    removed = sorted(table.files[1])[0]
    table.overwrite()
    (table.path / removed).unlink()
    return table


def long(folder: Path) -> LogTable:
    table = LogTable(folder / "table", configuration=dict(FEED)).create()
    for _ in range(501):
        table.append()
    return table


#: By the error: the table, the request, and what the message names.
REFUSED: dict[str, list[tuple[Callable[[Path], LogTable], dict[str, Any], tuple[str, ...]]]] = {
    "RangeNotContiguous": [
        (fed, {"ending_version": 4}, ("ending_version 4", " 3.")),
        (fed, {"starting_version": 9}, ("starting_version 9",)),
        (fed, {"ending_timestamp": "1999-01-01T00:00:00Z"}, ("ending_timestamp",)),
    ],
    "LogGap": [(gap, {}, ("2",))],
    "TableNotFound": [(nowhere, {}, ())],
    "RangeTooLong": [(long, {}, ("1-501", "500"))],
    "VersionsExpired": [
        (cleaned, {}, ("1",)),
        (old, {}, ("Version 1", "delta.deletedFileRetentionDuration")),
        (vacuumed, {"starting_version": 2}, ("part-00002-0", "version 2")),
        (removing_old, {"method": "row_tracking", "starting_version": 2}, ("part-00001-0", "version 2")),
        (removing_old, {"method": "snapshot_diff", "starting_version": 2, **NET}, ("part-00001-0",)),
    ],
    "ReadMethodUnavailable": [
        (broken_identity, {"query": "min_delta"}, ("Version 4", "UPDATE")),
        (broken_identity, {"row_ids": True}, ("Version 4", "UPDATE")),
        (broken_identity, {"wide": True}, ("Version 4", "UPDATE")),
        (fed, {"row_ids": True}, ("Version 1", "has row ids")),
        (fed, {"wide": True, "method": "change_files"}, ("full_delta", "without keys")),
        (fed, {"only_surviving": True, "query": "append_only"}, ("Version 1", "has row ids")),
    ],
    "InvalidConfiguration": [
        (fed, {"ending_version": 0}, ("0", "1")),
        (fed, {"starting_version": None}, ("has no start",)),
        (fed, {"starting_version": -1}, ("-1",)),
        (fed, {"starting_timestamp": AT}, ("starting_version 1", "starting_timestamp")),
        (fed, {"ending_version": 2, "ending_timestamp": AT}, ("ending_version 2", "ending_timestamp")),
        (fed, {"starting_version": None, "starting_timestamp": "yesterday"}, ("starting_timestamp",)),
        (fed, {"query": "max_delta"}, ("max_delta",)),
        (fed, {"method": "cdf"}, ("cdf",)),
        (fed, {"policies": {"on_change_commit": "ignore"}}, ("ignore",)),
        (fed, {"query": "upsert"}, ("keys",)),
        (fed, {"where": "id > 1"}, ("where", "keys")),
        (fed, {**NET, "keys": ["id", "ID"]}, ("keys",)),
        (fed, {"raw": True, "query": "append_only"}, ("raw",)),
        (fed, {"raw": True, "where": "id > 1", "keys": ["id"]}, ("raw",)),
        (fed, {"raw": True, "select": ["id"]}, ("raw",)),
        (fed, {"raw": True, "method": "row_tracking"}, ("raw",)),
        (fed, {"raw": True, "wide": True}, ("raw and wide",)),
        (fed, {"raw": True, "row_ids": True}, ("raw and row_ids",)),
        (fed, {"wide": True, "query": "append_only"}, ("wide", "append_only")),
        (fed, {"wide": True, "query": "upsert", "keys": ["id"]}, ("wide", "upsert")),
        (fed, {"wide": True, "policies": {"on_change_commit": "skip"}}, ("wide", "skip")),
        *(
            (fed, {**NET, "method": method, "policies": {"on_change_commit": "skip"}}, ("skip", method))
            for method in ("auto", "change_files", "row_tracking", "snapshot_diff")
        ),
        (fed, {"only_surviving": True}, ("only_surviving", "full_delta")),
        (
            fed,
            {"only_surviving": True, "query": "append_only", "policies": {"on_change_commit": "skip"}},
            ("only_surviving", "skip"),
        ),
        (fed, {"row_ids": True, "method": "change_files"}, ("row_ids", "change_files")),
        (fed, {"row_ids": True, "method": "snapshot_diff", **NET}, ("row_ids", "snapshot_diff")),
    ],
    "ReservedColumnName": [
        (_columns("_change_type"), {}, ("_change_type",)),
        (_columns("_Commit_Version"), {}, ("_Commit_Version",)),
        (_columns("__delta_cdc_x"), {}, ("__delta_cdc_x",)),
    ],
    "SchemaChangeInRange": [
        (
            _altered(
                field_of("id", mapped=1),
                field_of("title", mapped=2),
                field_of("n", "integer", mapped=3),
                mapped=True,
            ),
            {},
            ("version 4", "name"),
        ),
        (_altered(field_of("id"), field_of("name"), field_of("n", "long")), {}, ("version 4", "n")),
    ],
}


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, cases in REFUSED.items() for number in range(len(cases))]
)
def test_refused(tmp_path: Path, name: str, number: int) -> None:
    make, asked, words = REFUSED[name][number]
    table = make(tmp_path)
    before = _files(tmp_path)
    with pytest.raises(DeltaCdcError) as refused:
        plan_changes(table.uri, **{"starting_version": 1, **asked})
    assert type(refused.value).__name__ == name, refused.value
    assert refused.value.remedy
    for word in words:
        assert word in refused.value.message
    assert _files(tmp_path) == before


def _files(folder: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in folder.rglob("*")}


def test_a_time_before_the_oldest_commit(tmp_path: Path) -> None:
    """The oldest commit that is left is not the first one since then."""
    table = fed(tmp_path)
    table.checkpoint(0, 1, at=1)
    for second in (-5, 0, 1):
        start = datetime.fromtimestamp(EPOCH / 1000 + second, UTC).isoformat()
        with pytest.raises(VersionsExpired, match="the first one that it has is version 2"):
            plan_changes(table.uri, starting_timestamp=start)
    start = datetime.fromtimestamp(EPOCH / 1000 + 2, UTC).isoformat()
    found = plan_changes(table.uri, starting_timestamp=start)
    assert found.versions is not None
    assert found.versions.starting_version == 2


def test_a_time_in_a_gap_of_the_log(tmp_path: Path) -> None:
    table = fed(tmp_path)
    table.checkpoint(1, 2, at=2)
    start = datetime.fromtimestamp(EPOCH / 1000 + 1, UTC).isoformat()
    with pytest.raises(VersionsExpired, match="the first one that it has is version 3"):
        plan_changes(table.uri, starting_timestamp=start)


def test_a_refused_feed_names_every_way_out(tmp_path: Path) -> None:
    with pytest.raises(DeltaCdcError) as refused:
        plan_changes(plain(tmp_path).uri, starting_version=1)
    for way in ("delta.enableChangeDataFeed", "min_delta", "upsert"):
        assert way in refused.value.remedy


@pytest.mark.parametrize(
    ("make", "asked"),
    [
        (fed, {"ending_version": 3}),
        (fed, {"starting_version": 4}),
        (old, {"starting_version": 2}),
        (vacuumed, {"starting_version": 3}),
        (with_hole, NET),
        (with_hole, {"starting_version": 4}),
        (broken_identity, NET),
        (broken_identity, {"method": "row_tracking", "ending_version": 3}),
        (long, {"starting_version": 2}),
        (_altered(field_of("id"), field_of("name"), field_of("n", "integer"), field_of("more")), {}),
        (_altered(field_of("id"), field_of("name"), field_of("n", "long")), {"ending_version": 3}),
        (_altered(field_of("id"), field_of("name"), field_of("n", "long")), {"starting_version": 5}),
    ],
)
def test_what_lies_right_beside_it_is_read(
    tmp_path: Path, make: Callable[[Path], LogTable], asked: dict[str, Any]
) -> None:
    plan_changes(make(tmp_path).uri, **{"starting_version": 1, **asked})
