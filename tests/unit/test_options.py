"""Which options go together: every refusal by itself, with what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import APPLY, ApplyOptions
from delta_cdc.core.rules import check_options
from delta_cdc.core.value_rules import ValueRule

FEED = ApplyOptions(keys=("id",))
TYPE_2 = replace(FEED, stored_as_scd_type=2)
LOG = replace(FEED, source_kind="change_log", sequence_by="at")
COPIES = replace(FEED, source_kind="snapshot")
INSERTS = ApplyOptions(insert_only=True)
RULES = {"r": ValueRule("a > 0")}

REFUSED: list[tuple[str, ApplyOptions, dict[str, Any], str]] = [
    ("no-keys", FEED, {"keys": ()}, "keys are missing"),
    # -- insert_only
    ("inserts-keys", INSERTS, {"keys": ("id",)}, "insert_only and keys are given"),
    ("inserts-history", INSERTS, {"stored_as_scd_type": 2}, "inserts alone make no history"),
    ("inserts-of-log", INSERTS, {"source_kind": "change_log"}, "insert_only is given with source_kind"),
    ("inserts-deletes", INSERTS, {"apply_as_deletes": "gone"}, "insert_only and apply_as_deletes"),
    ("inserts-nulls", INSERTS, {"ignore_null_updates": True}, "insert_only and ignore_null_updates"),
    ("inserts-partial", INSERTS, {"columns_to_update": "c"}, "insert_only and columns_to_update"),
    ("inserts-soft", INSERTS, {"delete_mode": "soft"}, "delete_mode 'soft', or with a quarantine"),
    ("inserts-quarantine", INSERTS, {"on_invalid": "quarantine"}, "or with a quarantine"),
    ("inserts-sequence", INSERTS, {"sequence_by": "at"}, "sequence_by is given with SCD type 1"),
    # -- the order
    ("feed-sequence", FEED, {"sequence_by": "_commit_timestamp"}, "sequence_by is given with SCD type 1"),
    ("copies-sequence", COPIES, {"sequence_by": "at"}, "sequence_by is given with SCD type 1"),
    ("feed-delete-sequence", FEED, {"delete_sequence": "now"}, "delete_sequence is given with SCD type 1"),
    ("history-of-expression", TYPE_2, {"sequence_by": "at"}, "delete_sequence is missing"),
    ("history-of-parts", TYPE_2, {"sequence_by": ("_commit_version", "n")}, "delete_sequence is missing"),
    ("log-arrival", LOG, {"sequence_by": "_commit_timestamp"}, "the time when an event arrived"),
    ("log-arrival-in", LOG, {"sequence_by": ("at", "-_COMMIT_version")}, "the time when an event arrived"),
    ("log-delete-sequence", LOG, {"delete_sequence": "at"}, "delete_sequence is given with a change log"),
    *(
        (
            f"versioned-{name}",
            COPIES,
            {"snapshot_version_column": "v", name: "v"},
            "with snapshot_version_column",
        )
        for name in ("sequence_by", "delete_sequence")
    ),
    # -- what only some kinds have
    ("feed-truncates", FEED, {"apply_as_truncates": "t"}, "apply_as_truncates is given without a change log"),
    ("copies-truncates", COPIES, {"apply_as_truncates": "t"}, "apply_as_truncates is given without"),
    ("feed-tie", FEED, {"on_conflict": "quarantine"}, "on_conflict is 'quarantine' without a change log"),
    ("feed-late", FEED, {"on_late": "discard"}, "on_late is 'discard' without a change log"),
    ("feed-version", FEED, {"snapshot_version_column": "v"}, "given with source_kind 'change_feed'"),
    ("log-version", LOG, {"snapshot_version_column": "v"}, "given with source_kind 'change_log'"),
    (
        "soft-of-dated-copies",
        replace(COPIES, stored_as_scd_type=2, snapshot_version_column="v"),
        {"delete_mode": "soft"},
        "delete_mode is 'soft' with SCD type 2 and snapshot_version_column",
    ),
    *(
        (
            f"events-{name}",
            replace(FEED, target_kind="change_log"),
            {name: value},
            f"{name} {value!r} and target",
        )
        for name, value in (("delete_mode", "soft"), ("schema_evolution", "keep_dropped"))
    ),
    ("new-version-1", FEED, {"delete_mode": "new_version"}, "delete_mode is 'new_version' with SCD type 1"),
    # -- columns
    ("both-lists", FEED, {"column_list": ("a",), "except_column_list": ("b",)}, "column_list and except_"),
    ("no-column", FEED, {"column_list": ()}, "column_list is empty"),
    ("key-left-out", FEED, {"except_column_list": ("ID",)}, "except_column_list names the key id"),
    (
        "tracked-left-out",
        TYPE_2,
        {"except_column_list": ("a",), "track_history_column_list": ("b", "A")},
        "track_history_column_list names A, which the target does not get",
    ),
    (
        "partition-left-out",
        FEED,
        {"column_list": ("a",), "partition_by": {"id": None, "b": None}},
        "partition_by names b, which the target does not get",
    ),
    # -- events that carry some columns only
    (
        "both-nulls",
        FEED,
        {f"ignore_null_updates{kind}_column_list": ("a",) for kind in ("", "_except")},
        "ignore_null_updates_column_list and ignore_null_updates_except_column_list are both given",
    ),
    *(
        (f"{name}-and-list", LOG, {name: value, "columns_to_update": "c"}, "and ignore-null are")
        for name, value in (("ignore_null_updates", True), ("ignore_null_updates_except_column_list", ("a",)))
    ),
    # -- history
    ("tracked-1", FEED, {"track_history_column_list": ("a",)}, "track_history_column_list is given with SCD"),
    ("tracked-2", FEED, {"track_history_except_column_list": ("a",)}, "it only applies to type 2"),
    (
        "both-tracked",
        TYPE_2,
        {"track_history_column_list": ("a",), "track_history_except_column_list": ("b",)},
        "are both given",
    ),
    ("one-column", TYPE_2, {"start_column": "x", "end_column": "X"}, "start_column and end_column"),
    ("current-1", FEED, {"current_column": "is_current"}, "current_column is given with SCD type 1"),
    ("end-1", FEED, {"end_value": "9999-12-31"}, "end_value is given with SCD type 1"),
    ("current-is-end", TYPE_2, {"current_column": "__end_at"}, "end_column and current_column are both"),
    (
        "current-is-mark",
        TYPE_2,
        {"current_column": "_DELETED", "delete_mode": "soft"},
        "current_column is '_DELETED', the name of the column that delete_mode 'soft' adds",
    ),
    (
        "end-of-parts",
        replace(TYPE_2, delete_sequence="struct(a, b)"),
        {"sequence_by": ("a", "b"), "end_value": "9"},
        "end_value is given with a sequence_by of several",
    ),
    (
        "current-clusters",
        TYPE_2,
        {"current_column": "now", "cluster_by": ("id", "NOW")},
        "cluster_by names the column 'now' of current_column",
    ),
    *(
        (f"{name}-2", TYPE_2, {name: "at"}, f"{name} is given with SCD type 2")
        for name in ("created_column", "changed_column")
    ),
    *(
        (
            f"{name}-events",
            replace(FEED, target_kind="change_log"),
            {name: "at"},
            f"{name} and target_kind 'change_log' are given",
        )
        for name in ("created_column", "changed_column", "row_hash_column")
    ),
    ("created-inserts", INSERTS, {"created_column": "at"}, "insert_only and created_column are both given"),
    (
        "one-time",
        FEED,
        {"created_column": "at", "changed_column": "AT"},
        "created_column and changed_column are",
    ),
    (
        "hash-is-time",
        FEED,
        {"changed_column": "h", "row_hash_column": "h"},
        "changed_column and row_hash_column",
    ),
    ("hash-is-end", TYPE_2, {"row_hash_column": "__END_AT"}, "end_column and row_hash_column are both"),
    (
        "hash-is-mark",
        replace(FEED, delete_mode="soft"),
        {"row_hash_column": "_deleted"},
        "row_hash_column is '_deleted', the name of the column that delete_mode 'soft' adds",
    ),
    # -- rules
    *(
        (f"rules-{name}", replace(FEED, rules=RULES), {name: value}, "events with only some of the columns")
        for name, value in (
            ("ignore_null_updates", True),
            ("ignore_null_updates_column_list", ("a",)),
            ("columns_to_update", "c"),
        )
    ),
    ("inserts-aside", INSERTS, {"rules": {"r": ValueRule("a > 0", "quarantine")}}, "or with a quarantine"),
    # -- the table
    ("layout", FEED, {"partition_by": {"id": None}, "cluster_by": ("id",)}, "clusters or partitions"),
    ("clustering", FEED, {"cluster_by": ("a", "b", "c", "d", "e")}, "cluster_by names 5 columns"),
    (
        "retention",
        FEED,
        {"target_properties": {"delta.setTransactionRetentionDuration": "1 day"}},
        "Delta would delete the transactions",
    ),
]


@pytest.mark.parametrize(
    ("options", "changes", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_does_not_go_together(options: ApplyOptions, changes: dict[str, Any], said: str) -> None:
    check_options(options)
    with pytest.raises(InvalidConfiguration) as failed:
        check_options(replace(options, **changes))
    assert said in str(failed.value)
    assert failed.value.argument in APPLY
    assert failed.value.argument in failed.value.message
    assert failed.value.remedy.endswith(".")


@pytest.mark.parametrize(
    "options",
    [
        replace(TYPE_2, sequence_by=("a", "b"), delete_sequence="struct(a, b)"),
        replace(LOG, stored_as_scd_type=2),
        replace(LOG, sequence_by=("at", "my_commit_version_2"), apply_as_truncates="op = 't'"),
        replace(LOG, on_conflict=("n",), on_invalid="quarantine", on_late="discard"),
        replace(LOG, delete_mode="soft", columns_to_update="cols", apply_as_deletes="op = 'd'"),
        replace(FEED, ignore_null_updates=True, ignore_null_updates_column_list=("a", "b.c")),
        replace(FEED, apply_as_deletes="gone", on_invalid="quarantine", delete_mode="soft"),
        replace(COPIES, snapshot_version_column="v", stored_as_scd_type=2),
        replace(TYPE_2, delete_mode="soft", end_value="9", current_column="now", partition_by={"now": None}),
        replace(TYPE_2, delete_mode="new_version", column_list=("a",), current_column="_deleted_now"),
        replace(TYPE_2, row_hash_column="h"),
        replace(LOG, created_column="c", changed_column="d", row_hash_column="h", delete_mode="soft"),
        replace(INSERTS, row_hash_column="h"),
        replace(COPIES, stored_as_scd_type=2, sequence_by="_commit_timestamp"),
        replace(INSERTS, column_list=("a",)),
        replace(INSERTS, rules={**RULES, "s": ValueRule("b > 0", "flag")}),
        replace(FEED, column_list=("a",), partition_by={"id": None, "made": "left(b, 1)"}),
    ],
)
def test_what_goes_together(options: ApplyOptions) -> None:
    check_options(options)
