"""What a commit file says about itself."""

from __future__ import annotations

import hashlib
import json

import pytest

from delta_cdc.log.actions import Add, Cdc, DeletionVector, DomainMetadata, Remove, Txn, actions, parse_commit

ADD = {"add": {"path": "a", "partitionValues": {}, "size": 5, "dataChange": True}}
MOVED = {"add": {"path": "b", "partitionValues": {}, "size": 5, "dataChange": False}}
GONE = {"remove": {"path": "a", "dataChange": True, "deletionVector": {"storageType": "u"}}}
CDC = {"cdc": {"path": "c", "size": 7, "dataChange": False}}
NO_ROWS = {f"numTargetRows{kind}": "0" for kind in ("Inserted", "Updated", "Deleted")}


def content(*lines: object) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


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


def test_every_action_is_read() -> None:
    raw = content(
        ADD,
        GONE,
        CDC,
        {"txn": {"appId": "x", "version": 4}},
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": True}},
        {"checkpointMetadata": {"version": 1}},
    )
    assert list(actions(raw)) == [
        Add("a", data_change=True, size=5),
        Remove("a", data_change=True, deletion_vector=DeletionVector("uNone", 0)),
        Cdc("c", 7),
        Txn("x", 4),
        DomainMetadata("d", "{}", True),
    ]


def test_empty_lines_and_a_missing_last_newline_do_not_matter() -> None:
    raw = b"\n" + content(ADD).strip() + b"\r\n\n" + json.dumps(GONE).encode()
    assert [type(action) for action in actions(raw)] == [Add, Remove]
