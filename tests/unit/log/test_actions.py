"""What a commit file says about itself."""

from __future__ import annotations

import hashlib
import json

import pytest

from delta_cdc.delta_log.actions import (
    Action,
    Add,
    Commit,
    CommitFold,
    DeletionVector,
    Remove,
    parse_lines,
)

ADD = {"add": {"path": "a", "partitionValues": {}, "size": 5, "dataChange": True}}
MOVED = {"add": {"path": "b", "partitionValues": {}, "size": 5, "dataChange": False}}
GONE = {"remove": {"path": "a", "dataChange": True, "deletionVector": {"storageType": "u"}}}
CDC = {"cdc": {"path": "c", "size": 7, "dataChange": False}}
NO_ROWS = {f"numTargetRows{kind}": "0" for kind in ("Inserted", "Updated", "Deleted")}


def content(*lines: object) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def parsed(raw: bytes) -> list[Action]:
    return [action for action in parse_lines(raw.split(b"\n")) if action is not None]


def parse_commit(version: int, raw: bytes, *, modified: int = 0) -> Commit:
    fold = CommitFold()
    for action in parsed(raw):
        fold.add(action)
    return fold.commit(version, sha256=hashlib.sha256(raw).hexdigest(), modified=modified)


def info(operation: str, **metrics: str) -> dict[str, object]:
    return {"commitInfo": {"timestamp": 7, "operation": operation, "operationMetrics": metrics}}


@pytest.mark.parametrize(
    ("lines", "changes"),
    [
        ([info("WRITE"), ADD], True),
        ([info("DELETE"), GONE], True),
        ([info("OPTIMIZE"), MOVED], False),
        ([info("MERGE"), MOVED, CDC], True),
        ([info("SET TBLPROPERTIES")], False),
        ([info("MERGE", **NO_ROWS), ADD, GONE], False),
        ([info("MERGE", **{**NO_ROWS, "numTargetRowsDeleted": "1"}), ADD, GONE], True),
        ([info("MERGE"), ADD, GONE], True),
    ],
)
def test_a_commit_changes_data_or_not(lines: list[object], changes: bool) -> None:
    assert parse_commit(3, content(*lines)).changes_data is changes


def test_a_commit_counts_its_files_and_keeps_none() -> None:
    raw = content(info("MERGE"), ADD, ADD, GONE, CDC)
    commit = parse_commit(3, raw, modified=99)
    assert (commit.n_adds, commit.n_removes, commit.n_cdc, commit.has_cdc) == (2, 1, 1, True)
    assert commit.sha256 == hashlib.sha256(raw).hexdigest()
    assert commit.timestamp == 99


def test_the_in_commit_timestamp_counts_before_the_files_time() -> None:
    raw = content({"commitInfo": {"inCommitTimestamp": 5, "timestamp": 6, "operation": "WRITE"}})
    assert parse_commit(0, raw, modified=99).timestamp == 5


def test_empty_lines_and_a_missing_last_newline_do_not_matter() -> None:
    raw = b"\n" + content(ADD).strip() + b"\r\n\n" + json.dumps(GONE).encode()
    assert [type(action) for action in parsed(raw)] == [Add, Remove]


# -- what a commit adds up to ---------------------------------------------------------------------
def add(size: int, values: dict[str, str | None] | None = None, *, data: bool = True) -> dict[str, object]:
    return {"add": {"path": "p", "partitionValues": values or {}, "size": size, "dataChange": data}}


def remove(size: int | None, values: dict[str, str | None] | None, *, data: bool = True) -> dict[str, object]:
    return {"remove": {"path": "p", "partitionValues": values, "size": size, "dataChange": data}}


def cdc(size: int, values: dict[str, str | None] | None = None) -> dict[str, object]:
    return {"cdc": {"path": "c", "partitionValues": values or {}, "size": size, "dataChange": False}}


@pytest.mark.parametrize(
    ("lines", "added", "removed", "changes", "to_read"),
    [
        ([add(5), add(7), remove(3, {}), remove(None, {})], 12, 3, 0, 15),
        ([add(5), remove(3, {}), cdc(2), cdc(4)], 5, 3, 6, 6),
        ([add(5, data=False), remove(3, {}, data=False)], 0, 0, 0, 0),
        ([add(5), add(100, data=False)], 5, 0, 0, 5),
        ([info("MERGE", **NO_ROWS), add(5), remove(3, {})], 5, 3, 0, 0),
    ],
)
def test_bytes(lines: list[object], added: int, removed: int, changes: int, to_read: int) -> None:
    commit = parse_commit(3, content(*lines))
    assert (commit.bytes_added, commit.bytes_removed, commit.bytes_cdc) == (added, removed, changes)
    assert commit.bytes_to_read == to_read


def test_partitions_are_those_of_data_changes() -> None:
    lines = [
        add(1, {"b": "x", "a": "1"}),
        add(1, {"a": "1", "b": "x"}),
        remove(1, {"a": "2", "b": None}),
        cdc(1, {"a": "3", "b": ""}),
        add(1, {"a": "4", "b": "moved"}, data=False),
    ]
    commit = parse_commit(3, content(*lines))
    pairs = {("1", "x"), ("2", None), ("3", None)}
    assert commit.partitions == {(("a", a), ("b", b)) for a, b in pairs}


def test_a_remove_without_partition_values_changes_data() -> None:
    commit = parse_commit(3, content(add(1, {"a": "1"}), remove(1, None)))
    assert commit.partitions == {(("a", "1"),)}
    assert parse_commit(3, content(remove(1, None))).changes_data
    assert parse_commit(3, content(add(1))).partitions == {()}


def test_everything_an_action_says() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 4, "sizeInBytes": 9, "cardinality": 6}
    given = {
        "path": "p=1/a%20b",
        "partitionValues": {"p": "1"},
        "size": 5,
        "modificationTime": 8,
        "dataChange": True,
        "stats": "{}",
        "tags": {"t": "v"},
        "deletionVector": vector,
        "baseRowId": 0,
        "defaultRowCommitVersion": 7,
    }
    (made,) = parsed(content({"add": given}))
    assert made == Add(
        path="p=1/a%20b",
        data_change=True,
        size=5,
        partition_values={"p": "1"},
        deletion_vector=DeletionVector("u", "ab", offset=4, size_in_bytes=9, cardinality=6),
        base_row_id=0,
        row_commit_version=7,
        stats="{}",
    )
    assert made.key == ("p=1/a b", "uab@4")
    (gone,) = parsed(content({"remove": {**given, "deletionTimestamp": 3}}))
    assert isinstance(gone, Remove)
    assert (gone.partition_values, gone.key) == ({"p": "1"}, made.key)
    assert (gone.base_row_id, gone.row_commit_version, gone.stats) == (0, 7, "{}")


# -- what planning asks of a commit -------------------------------------------------------------------
def file(kind: str, path: str, *, data: bool = True, base: int | None = 0) -> dict[str, object]:
    return {kind: {"path": path, "partitionValues": {}, "size": 1, "dataChange": data, "baseRowId": base}}


def done(operation: str, *, preserved: str | None = None) -> dict[str, object]:
    tags = {} if preserved is None else {"delta.rowTracking.preserved": preserved}
    return {"commitInfo": {"operation": operation, "tags": tags}}


ADDED, REMOVED = file("add", "a"), file("remove", "a")
OTHER_ADDED, OTHER_REMOVED = file("add", "b"), file("remove", "b")
MOVED_TO, MOVED_FROM = file("add", "c", data=False), file("remove", "d", data=False)


@pytest.mark.parametrize(
    ("lines", "paired", "compares", "adds", "removes"),
    [
        ([], False, False, 0, 0),
        ([ADDED], False, False, 1, 0),
        ([REMOVED], False, False, 0, 1),
        ([ADDED, REMOVED], True, True, 1, 1),
        ([ADDED, REMOVED, OTHER_ADDED], False, True, 2, 1),
        ([ADDED, REMOVED, OTHER_REMOVED], False, True, 1, 2),
        ([ADDED, OTHER_REMOVED], False, False, 1, 1),
        ([ADDED, REMOVED, MOVED_TO, MOVED_FROM], True, True, 1, 1),
        ([ADDED, REMOVED, CDC], True, False, 1, 1),
        ([MOVED_TO, file("remove", "c", data=False)], False, False, 0, 0),
    ],
)
def test_which_files_of_a_commit_are_the_same(
    lines: list[object], paired: bool, compares: bool, adds: int, removes: int
) -> None:
    commit = parse_commit(3, content(done("DELETE"), *lines))
    assert (commit.paired, commit.compares_vectors) == (paired, compares)
    assert (commit.n_data_adds, commit.n_data_removes) == (adds, removes)


@pytest.mark.parametrize(
    ("lines", "keeps"),
    [
        ([done("unheard of"), ADDED], True),
        ([done("unheard of"), REMOVED], True),
        ([done("DELETE"), ADDED, REMOVED], True),
        ([done("DELETE"), OTHER_ADDED, REMOVED], False),
        ([done("DELETE", preserved="true"), OTHER_ADDED, REMOVED], True),
        ([OTHER_ADDED, REMOVED, done("DELETE", preserved="true")], True),
        ([done("DELETE", preserved="false"), OTHER_ADDED, REMOVED], False),
        ([done("OPTIMIZE"), MOVED_TO, MOVED_FROM], False),
        ([done("DELETE"), ADDED, REMOVED, MOVED_TO], False),
        ([done("UPDATE"), ADDED, REMOVED, OTHER_ADDED], False),
        ([done("WRITE"), OTHER_ADDED, REMOVED], True),
        ([done("STREAMING UPDATE"), OTHER_ADDED, REMOVED], True),
        ([done("RESTORE"), OTHER_ADDED, REMOVED], True),
        ([done("CREATE OR REPLACE TABLE AS SELECT"), OTHER_ADDED, REMOVED], True),
    ],
)
def test_whether_rows_that_were_copied_keep_their_ids(lines: list[object], keeps: bool) -> None:
    assert parse_commit(3, content(*lines)).keeps_row_ids is keeps


def test_whether_every_row_has_an_id() -> None:
    assert parse_commit(3, content(done("WRITE"), ADDED, file("remove", "x", base=None))).rows_identified
    assert not parse_commit(3, content(done("WRITE"), ADDED, file("add", "x", base=None))).rows_identified
    assert not parse_commit(3, content(file("add", "x", base=None, data=False))).rows_identified


def test_columns_with_nulls_are_those_of_visible_rows() -> None:
    stats = '{"numRecords":2,"nullCount":{"a":1,"b":0,"c":{"d":2}}}'
    given = {"path": "p", "size": 1, "partition_values": {"day": None, "to": "x", "none": ""}, "stats": stats}
    assert Add(**given).columns_with_nulls() == {"a", "day", "none"}
    masked = DeletionVector(storage_type="i", cardinality=1)
    assert Add(**given, deletion_vector=masked).columns_with_nulls() == set()
    assert Add(**{**given, "stats": '{"numRecords":0}'}).columns_with_nulls() == set()
    assert Add(**{**given, "stats": '{"numRecords":1,"nullCount":[1]}'}).columns_with_nulls() == {
        "day",
        "none",
    }
    assert Add("p").columns_with_nulls() == set()
