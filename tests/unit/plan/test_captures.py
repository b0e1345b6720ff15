"""Which method reads which part of a range, decided from the log alone."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import (
    ChangeFeedDisabled,
    NotInsertOnly,
    RangeNotContiguous,
    RangeTooLong,
    ReadMethodUnavailable,
    SchemaChangeInRange,
    VersionsExpired,
)
from delta_cdc.core.options import ApplyOptions, QueryOptions
from delta_cdc.core.requests import ChangesRequest
from delta_cdc.core.spec import ApplySpec, fingerprint, from_json, to_json
from delta_cdc.core.steps import ReadRange
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.file_manifests import write_manifests
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning import read_methods
from delta_cdc.planning.changes import ChangesPlan, plan_changes_async
from tests.support.http_store import HttpStore
from tests.support.logs import EPOCH, FEED, SECOND, LogTable, field_of
from tests.support.steps import step as made_step
from tests.unit.plan.test_ranges import iso

if TYPE_CHECKING:
    from pathlib import Path

TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col",
}
NET = QueryOptions("min_delta", keys=("id",))
FULL = QueryOptions("full_delta")
APPENDS = QueryOptions("append_only")


def table(folder: Path, **configuration: str) -> LogTable:
    """Return a table without rows; ``delta.`` goes without saying."""
    properties = {name.replace("__", "."): value for name, value in configuration.items()}
    return LogTable(folder / "table", configuration=properties).create()


def plan(
    source: LogTable, start: int, end: int | None = None, options: QueryOptions = FULL, **given: Any
) -> ChangesPlan:
    request = ChangesRequest(
        table=source.uri, starting_version=start, ending_version=end, options=options, **given
    )
    return run_sync(plan_changes_async(request, now_ms=EPOCH + 3_600 * SECOND))


def told(found: ChangesPlan) -> list[tuple[int, int, str]]:
    return [(s.starting_version, s.ending_version, s.method) for s in found.read_ranges]


def tracked_removes(source: LogTable) -> list[dict[str, Any]]:
    found = source.removes()
    for action in found:
        action["remove"] |= {
            "partitionValues": {},
            "baseRowId": 0,
            "defaultRowCommitVersion": 1,
            "extendedFileMetadata": True,
        }
    return found


def update(source: LogTable, *, cdc: bool = False) -> int:
    """Rewrite every file, as UPDATE does without deletion vectors."""
    path = f"_change_data/{source.version}"
    change = {"cdc": {"path": path, "partitionValues": {}, "size": 7, "dataChange": False}}
    kept = {"delta.rowTracking.preserved": "true"}
    actions = [source.add(), *tracked_removes(source), *([change] if cdc else [])]
    return source.commit("UPDATE", *actions, tags=kept)


@pytest.mark.parametrize(
    ("options", "feed"), [(FULL, FEED), (NET, FEED), (FULL, {}), (NET, {})], ids=lambda given: str(given)[:28]
)
def test_a_query_reads_each_commit_once(tmp_path: Path, options: QueryOptions, feed: dict[str, str]) -> None:
    """This counts the reads of the plan and of the file manifests together."""
    source = LogTable(tmp_path / "t", configuration={**TRACKED, **feed}).create()
    for _ in range(4):
        source.append()
        update(source)
    with HttpStore(tmp_path) as store:
        given = {"storage_options": store.options(), "options": options}
        request = ChangesRequest(table=store.uri("t"), starting_version=2, **given)
        found = run_sync(plan_changes_async(request, now_ms=EPOCH + 3_600 * SECOND))
        (method,) = {read_range.method for read_range in found.read_ranges}
        assert method == ("change_files" if feed else "row_tracking")
        write_manifests(found.log, found.read_ranges, str(tmp_path / "manifests"), at=found.table.version)
        reads = Counter(one for one in store.asked() if re.match(r"GET .*/\d+\.json$", one))
        assert set(reads.values()) == {1}, reads
        assert len(reads) >= 7


# -- the feed -----------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [FULL, APPENDS, NET])
def test_the_feed_is_read_where_it_is_on(tmp_path: Path, options: QueryOptions) -> None:
    source = table(tmp_path, **FEED)
    source.append()
    source.optimize()
    update(source, cdc=True)
    source.optimize()
    found = plan(source, 0, options=options)
    assert told(found) == [(1, 3, "change_files")], "commits without changes at both ends are not read"
    assert found.versions == VersionRange(0, 4)
    assert not found.read_ranges[0].net
    assert not found.read_ranges[0].compare


def test_only_commits_that_exchange_files_are_compared(tmp_path: Path) -> None:
    """Rows can only come back unchanged where files were exchanged without change files.

    But a replaceWhere on data deletes rows, with change files for them, and writes them anew.
    """
    source = table(tmp_path, **FEED)
    source.append()
    source.overwrite()
    source.append()
    update(source, cdc=True)
    for options in (QueryOptions("full_delta", raw=True), NET):
        assert told(plan(source, 1, options=options)) == [(1, 4, "change_files")]
    change = {"cdc": {"path": "_change_data/1", "partitionValues": {}, "size": 7, "dataChange": False}}
    source.commit("WRITE", source.add(), *source.removes(), change, parameters={"mode": "Overwrite"})
    assert [(s.starting_version, s.ending_version, s.compare) for s in plan(source, 1).read_ranges] == [
        (1, 1, False),
        (2, 2, True),
        (3, 4, False),
        (5, 5, True),
    ]


def test_the_plan_says_what_is_read_and_why(tmp_path: Path) -> None:
    source = table(tmp_path, **FEED)
    source.append()
    source.optimize()
    assert re.search(
        r"read +1-1 by change_files, 100 B: delta.enableChangeDataFeed is on", str(plan(source, 1))
    )
    found = plan(source, 2)
    assert found.read_ranges == ()
    assert "nothing: no commit of the range changes data" in str(found)


def test_no_segment_of_the_feed_holds_a_version_without_it(tmp_path: Path) -> None:
    """Delta refuses such a range, even where nothing changed while the feed was off."""
    source = table(tmp_path, **FEED)
    source.append()
    source.set_properties()
    source.set_properties(delta__enableChangeDataFeed="true")
    source.append()
    for options in (FULL, NET, QueryOptions(method="change_files"), QueryOptions(raw=True)):
        assert told(plan(source, 1, options=options)) == [(1, 1, "change_files"), (4, 4, "change_files")]


# -- holes in the feed --------------------------------------------------------------------------
def test_commits_that_only_add_need_no_feed(tmp_path: Path) -> None:
    source = table(tmp_path)
    source.append()
    source.append()
    for options in (FULL, APPENDS, NET):
        found = plan(source, 1, options=options)
        assert told(found) == [(1, 2, "added_files")]
        assert found.read_ranges[0].timestamps == ((1, EPOCH + SECOND), (2, EPOCH + 2 * SECOND))


def test_a_hole_is_bridged_by_its_two_ends_where_only_the_net_effect_counts(tmp_path: Path) -> None:
    source = table(tmp_path, **FEED)
    source.append()
    source.set_properties()
    source.append()
    source.overwrite()
    source.append()
    source.set_properties(delta__enableChangeDataFeed="true")
    source.append()
    found = plan(source, 1, options=NET)
    assert told(found) == [
        (1, 1, "change_files"),
        (3, 3, "added_files"),
        (4, 4, "snapshot_diff"),
        (5, 5, "added_files"),
        (7, 7, "change_files"),
    ]
    assert [s.net for s in found.read_ranges] == [False, False, True, False, False]
    assert found.read_ranges[2].size == 300, "two files left, one came"
    with pytest.raises(ChangeFeedDisabled, match=r"in version 4 .*removes rows.*full_delta") as failed:
        plan(source, 1)
    assert "net effect" in failed.value.remedy
    with pytest.raises(ChangeFeedDisabled, match=r"in version 4 .*append_only"):
        plan(source, 1, options=APPENDS)


def test_a_commit_that_kept_no_ids_is_not_read_by_them(tmp_path: Path) -> None:
    source = table(tmp_path, **TRACKED)
    source.commit("WRITE", source.add())
    source.commit("UPDATE", source.add(), *tracked_removes(source))
    with pytest.raises(ReadMethodUnavailable, match=r"Version 2 .*UPDATE did not promise to keep"):
        plan(source, 1, options=QueryOptions(method="row_tracking"))
    with pytest.raises(ChangeFeedDisabled, match="version 2"):
        plan(source, 1)
    assert told(plan(source, 2, options=NET)) == [(2, 2, "snapshot_diff")]


def test_rows_need_ids_on_both_sides(tmp_path: Path) -> None:
    """The version that turned row tracking on has ids; the one before it has none."""
    source = table(tmp_path)
    source.append()
    source.configuration = dict(TRACKED)
    source.commit("SET TBLPROPERTIES", source.metadata(), source.add())
    update(source)
    with pytest.raises(ReadMethodUnavailable, match=r"Version 2 .*is off in this version or the one before"):
        plan(source, 2, options=QueryOptions(method="row_tracking"))
    assert told(plan(source, 1)) == [(1, 2, "added_files"), (3, 3, "row_tracking")]


def test_a_file_whose_rows_have_no_ids_is_not_read_by_them(tmp_path: Path) -> None:
    source = table(tmp_path, **TRACKED)
    source.append()
    action = source.add()
    del action["add"]["baseRowId"]
    source.commit("WRITE", action)
    with pytest.raises(ReadMethodUnavailable, match=r"Version 2 .*not every file .* row ids"):
        plan(source, 1, options=QueryOptions(method="row_tracking"))
    assert told(plan(source, 1)) == [(1, 1, "row_tracking"), (2, 2, "added_files")]


def test_ids_that_began_anew_are_not_compared(tmp_path: Path) -> None:
    """A REPLACE keeps row ids in a column of another name."""
    source = table(tmp_path, **TRACKED)
    source.commit("WRITE", source.add())
    source.configuration = {**TRACKED, "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-2"}
    source.commit("CREATE OR REPLACE TABLE AS SELECT", source.metadata(), source.add(),
                  *tracked_removes(source))  # fmt: skip
    update(source)
    with pytest.raises(ReadMethodUnavailable, match=r"Version 2 .*or was turned on again"):
        plan(source, 1, options=QueryOptions(method="row_tracking"))
    assert told(plan(source, 1, options=NET)) == [(1, 1, "added_files"), (2, 3, "snapshot_diff")]
    assert told(plan(source, 3)) == [(3, 3, "row_tracking")]


def test_files_that_were_only_rewritten_need_no_ids_but_between_two_ends(tmp_path: Path) -> None:
    source = table(tmp_path, **TRACKED)
    source.commit("WRITE", source.add())
    source.commit("OPTIMIZE", *source.removes(data_change=False), source.add(data_change=False))
    update(source)
    assert told(plan(source, 1)) == [(1, 3, "row_tracking")]
    assert told(plan(source, 1, options=NET)) == [(1, 1, "added_files"), (3, 3, "snapshot_diff")]
    with pytest.raises(ReadMethodUnavailable, match="Version 2 "):
        plan(source, 1, options=QueryOptions("min_delta", ("id",), method="row_tracking"))


def test_rows_that_a_restore_brought_back_are_told_at_the_end(tmp_path: Path) -> None:
    """They carry the version that wrote them, not the one that brought them back."""
    source = table(tmp_path, **TRACKED)
    source.commit("WRITE", source.add())
    update(source)
    net = QueryOptions("min_delta", ("id",), method="row_tracking")
    assert [version for version, _ in plan(source, 1, options=net).read_ranges[0].timestamps] == [1, 2]
    source.commit("RESTORE", *source.removes(), source.add(), parameters={"version": 1})
    assert [version for version, _ in plan(source, 1, options=net).read_ranges[0].timestamps] == [3]


def test_row_ids_stand_in_for_keys(tmp_path: Path) -> None:
    source = table(tmp_path, **TRACKED, **FEED)
    source.commit("WRITE", source.add())
    update(source, cdc=True)
    assert told(plan(source, 1, options=QueryOptions("min_delta"))) == [(1, 2, "row_tracking")]
    plain = table(tmp_path / "plain", **FEED)
    plain.append()
    with pytest.raises(ReadMethodUnavailable, match="row_tracking"):
        plan(plain, 1, options=QueryOptions("min_delta"))


def test_the_two_ends_are_read_where_they_are_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed of a table that is overwritten again and again holds every row of every commit."""
    source = table(tmp_path, **TRACKED, **FEED)
    source.commit("WRITE", source.add())
    for _ in range(5):
        source.commit("WRITE", source.add(), *tracked_removes(source), parameters={"mode": "Overwrite"})
    assert told(plan(source, 2, options=NET)) == [(2, 6, "change_files")], "too small to look"
    monkeypatch.setattr(read_methods, "WORTHWHILE", 0)
    found = plan(source, 2, options=NET)
    assert told(found) == [(2, 6, "row_tracking")]
    assert found.read_ranges[0].size == 200
    assert told(plan(source, 2, options=APPENDS)) != told(found), "what happened in between counts there"
    assert told(plan(source, 6, options=NET)) == [(6, 6, "change_files")]


# -- what is asked for --------------------------------------------------------------------------
def test_the_capture_that_is_asked_for_is_taken_or_refused(tmp_path: Path) -> None:
    source = table(tmp_path)
    source.append()
    source.overwrite()
    with pytest.raises(ChangeFeedDisabled, match="version 1"):
        plan(source, 1, options=QueryOptions(method="change_files"))
    with pytest.raises(ChangeFeedDisabled, match="version 1"):
        plan(source, 1, options=QueryOptions(raw=True))
    asked = QueryOptions("min_delta", keys=("id",), method="snapshot_diff")
    assert told(plan(source, 1, options=asked)) == [(1, 2, "snapshot_diff")]


@pytest.mark.parametrize(
    "options",
    [
        QueryOptions("full_delta", method="snapshot_diff"),
        QueryOptions("append_only", method="snapshot_diff"),
        QueryOptions("min_delta", method="snapshot_diff"),
        QueryOptions("min_delta", method="change_files"),
        QueryOptions("min_delta", method="added_files"),
        QueryOptions("full_delta", method="change_files", wide=True),
        QueryOptions("append_only", method="change_files", only_surviving=True),
    ],
)
def test_a_capture_that_cannot_answer_is_refused_by_name(tmp_path: Path, options: QueryOptions) -> None:
    source = table(tmp_path, **FEED, **TRACKED)
    source.append()
    with pytest.raises(ReadMethodUnavailable, match=f"{options.query} of .* by {options.method}"):
        plan(source, 1, options=options)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (
            QueryOptions(row_ids=True),
            "leave row_ids out; or set delta.enableRowTracking to true, and start after",
        ),
        (QueryOptions(wide=True), "give keys; or set"),
        (QueryOptions("min_delta", row_ids=True), "leave row_ids out and give keys; or set"),
        (QueryOptions("append_only", only_surviving=True), "give keys; or set"),
        (QueryOptions(method="row_tracking"), "leave method at auto; or set"),
    ],
)
def test_who_has_no_row_ids_learns_what_to_do(tmp_path: Path, options: QueryOptions, remedy: str) -> None:
    source = table(tmp_path, **FEED)
    source.append()
    with pytest.raises(
        ReadMethodUnavailable, match=r"Version 1 .* cannot be read by row_tracking"
    ) as refused:
        plan(source, 1, options=options)
    assert remedy in refused.value.remedy


@pytest.mark.parametrize(
    "options",
    [
        QueryOptions("full_delta", row_ids=True),
        QueryOptions("full_delta", wide=True),
        QueryOptions("append_only", only_surviving=True),
    ],
)
def test_who_needs_row_ids_reads_by_them_and_compares_no_content(
    tmp_path: Path, options: QueryOptions
) -> None:
    """Of two equal rows, content does not say which one was written again under another id."""
    source = table(tmp_path, **TRACKED, **FEED)
    source.append()
    source.overwrite()
    found = plan(source, 1, options=options).read_ranges
    assert [(one.method, one.compare) for one in found] == [("row_tracking", False)]
    with_keys = replace(options, keys=("id",), row_ids=False)
    assert {one.method for one in plan(source, 1, options=with_keys).read_ranges} == {"change_files"}


def test_added_files_fail_at_a_commit_that_removes_or_leave_it_out(tmp_path: Path) -> None:
    source = table(tmp_path)
    source.append()
    source.overwrite()
    source.append()
    with pytest.raises(NotInsertOnly, match=r"Version 2 .*\(WRITE\) removes rows"):
        plan(source, 1, options=QueryOptions("append_only", method="added_files"))
    skip = QueryOptions("append_only", method="added_files", on_change_commit="skip")
    found = plan(source, 1, options=skip)
    assert told(found) == [(1, 1, "added_files"), (3, 3, "added_files")]
    assert found.notes[0].startswith("1 commit(s) of ")
    assert found.notes[0].endswith("versions 2.")


# -- bounds -------------------------------------------------------------------------------------
def test_an_end_that_is_not_there_is_never_clipped(tmp_path: Path) -> None:
    source = table(tmp_path, **FEED)
    source.append()
    with pytest.raises(
        RangeNotContiguous, match=r"ending_version 2 does not exist yet.*newest version .* is 1"
    ):
        plan(source, 1, 2)
    assert plan(source, 2).versions is None, "the next version is nothing yet"


def test_times_between_two_commits_hold_nothing(tmp_path: Path) -> None:
    source = table(tmp_path, **FEED)
    source.append()
    request = ChangesRequest(table=source.uri, starting_timestamp=iso(0.2), ending_timestamp=iso(0.7))
    found = run_sync(plan_changes_async(request, now_ms=EPOCH + 9 * SECOND))
    assert (found.versions, found.read_ranges) == (None, ())


@pytest.mark.parametrize(
    ("limit", "most", "go_on"),
    [("MOST_VERSIONS", 3, "read versions 1-3 first, and continue at 4"), ("MOST_PARTS", 2, "continue at 3")],
)
def test_a_range_is_cut_where_one_plan_would_hold_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, go_on: str
) -> None:
    monkeypatch.setattr(read_methods, limit, most)
    source = table(tmp_path, **FEED)
    source.append()
    source.overwrite()
    for _ in range(3):
        source.append()
    with pytest.raises(RangeTooLong, match=r"Versions 1-5 .*") as failed:
        plan(source, 1)
    assert go_on in failed.value.remedy
    assert plan(source, 1, most)


def test_versions_that_compare_vectors_count_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_methods, "MOST_COMPARED", 1)
    source = table(tmp_path, **FEED)
    source.append()
    for masked in (1, 2):
        old = source.removes()
        new = source.add()
        new["add"]["path"] = old[0]["remove"]["path"]
        new["add"]["deletionVector"] = {"storageType": "i", "pathOrInlineDv": f"x{masked}", "sizeInBytes": 4,
                                        "cardinality": masked}  # fmt: skip
        if masked > 1:
            old[0]["remove"]["deletionVector"] = {"storageType": "i", "pathOrInlineDv": "x1",
                                                  "sizeInBytes": 4, "cardinality": 1}  # fmt: skip
        source.commit("DELETE", *old, new)
    with pytest.raises(RangeTooLong, match="compare deletion vectors"):
        plan(source, 1, scratch=False)
    assert told(plan(source, 1)) == [(1, 3, "change_files")], "a slice has compared them already"
    found = plan(source, 1, 2)
    assert [s.compare for s in found.read_ranges] == [False], "masking rows of a file carries none over"


def test_another_partitioning_ends_a_range(tmp_path: Path) -> None:
    """The files from before hold no values of the new partition columns: they would be read as NULL."""
    source = table(tmp_path, **FEED)
    source.append()
    action = source.metadata()
    action["metaData"]["partitionColumns"] = ["name"]
    source.commit("WRITE", action, source.add(), *source.removes(), parameters={"mode": "Overwrite"})
    for options in (FULL, NET):
        with pytest.raises(SchemaChangeInRange, match=r"version 2 .*partitioned by name, and was by nothing"):
            plan(source, 1, options=options)
        with pytest.raises(SchemaChangeInRange, match=r"version 2 "):
            plan(source, 2, options=options)


def test_columns_under_other_names_in_the_files_end_a_range(tmp_path: Path) -> None:
    """A REPLACE by a table with column mapping names its columns anew: old files would be read as NULL."""
    source = table(tmp_path, **FEED)
    source.append()
    source.fields = [field_of("id", mapped=1), field_of("name", mapped=2)]
    source.configuration = {**FEED, "delta.columnMapping.mode": "name"}
    source.replace_table("id-2")
    with pytest.raises(
        SchemaChangeInRange, match=r"version 2 .*the data files have another name for column id"
    ):
        plan(source, 1)
    source.append()
    assert told(plan(source, 3)) == [(3, 3, "change_files")]


# -- gates --------------------------------------------------------------------------------------


def test_what_was_removed_long_ago_may_be_gone(tmp_path: Path) -> None:
    source = table(tmp_path, delta__deletedFileRetentionDuration="interval 1 day")
    source.append()
    source.overwrite()
    request = ChangesRequest(table=source.uri, starting_version=1, options=NET)
    late = EPOCH + 2 * 86_400 * SECOND
    with pytest.raises(VersionsExpired, match="Version 2"):
        run_sync(plan_changes_async(request, now_ms=late))
    append = ChangesRequest(table=source.uri, starting_version=1, ending_version=1, options=FULL)
    found = run_sync(plan_changes_async(append, now_ms=late))
    assert told(found) == [(1, 1, "added_files")], "what was only added is still needed, whatever its age"


def test_a_segment_travels() -> None:
    read_range = ReadRange(1, 3, "row_tracking", "why", 9, net=True, timestamps=((1, 5), (3, 8)))
    step = made_step("apply", 1, TableVersion("i", 3), 7, ("id",), ranges=(read_range,))
    spec = ApplySpec(
        pipeline="p",
        run_id="r",
        source_uri="/s",
        target_uri="/t",
        options=ApplyOptions(keys=("id",)),
        steps=(step,),
    )
    assert from_json(to_json(spec)) == spec
    by_manifest = step.reading(ranges=(replace(read_range, by_manifest=True),))
    prepared = replace(spec, steps=(by_manifest,), manifests_uri="/tmp/somewhere")
    assert from_json(to_json(prepared)) == prepared
    assert fingerprint(prepared) == fingerprint(spec), "how it is read says nothing about the work"
    assert fingerprint(replace(spec, steps=(step.reading(ranges=()),))) != fingerprint(spec)
