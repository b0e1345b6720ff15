"""The columns of a target's layout together with what else a pipeline may do: few tables, many targets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import job
from delta_cdc.core import codec
from delta_cdc.core.shadow import Comparison, Pair
from delta_cdc.planning.erasure import Flow
from delta_cdc.planning.verify import VerifyRequest
from delta_cdc.run.erase import Erasure
from delta_cdc.run.erase import run as erase
from delta_cdc.run.maintain import raise_failed
from delta_cdc.run.shadow import Work, promote
from delta_cdc.run.verify import run_verify
from tests.support.event_flow import LogFlow, expired
from tests.support.event_streams import (
    SPAN,
    TRUNCATED,
    append,
    create_log,
    delivered_late,
    drawn_world,
)
from tests.support.oracle import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

END = 1_000_000
HISTORY: dict[str, Any] = {
    "stored_as_scd_type": 2,
    "start_column": "valid_from",
    "end_column": "valid_to",
    "end_value": str(END),
    "current_column": "is_current",
    "row_hash_column": "row_hash",
}
CURRENT = {"created_column": "created_at", "changed_column": "changed_at", "row_hash_column": "row_hash"}
LAYOUTS = {
    **{f"history_{mode}": {**HISTORY, "delete_mode": mode} for mode in ("hard", "soft", "new_version")},
    **{f"current_{mode}": {**CURRENT, "delete_mode": mode} for mode in ("hard", "soft")},
}


def all_rows(flow: LogFlow) -> list[Any]:
    return rows_of(flow.rows(), sorted(flow.rows()[0]))


def verified(flow: LogFlow) -> dict[str, str]:
    """Return the checks of a target that found something."""
    request = VerifyRequest(pipeline=flow.pipeline, target=flow.target)
    (found,) = run_verify([request], execute=partial(job.run, flow.spark))
    assert found.error is None, found.error
    return {one.check: f"{one.detail} {one.samples}" for one in found.checks if one.status == "finding"}


# -- expiry ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("seed", "partial_columns"), [(0, False), (1, True)])
def test_an_expired_log_gives_the_rows_of_the_whole_one(
    spark: SparkSession, tmp_path: Path, seed: int, partial_columns: bool
) -> None:
    """Two logs get the same events; one of them is expired in between."""
    world = drawn_world(seed, TRUNCATED, range(25))
    logs = {name: str(tmp_path / name) for name in ("whole", "expired")}
    arguments = {
        "keys": ["history", "id"],
        "sequence_by": "seq",
        "apply_as_deletes": "op = 'delete'",
        "apply_as_truncates": "op = 'truncate'",
        "column_list": ["v", "n"],
        **({"columns_to_update": "cols"} if partial_columns else {}),
    }
    flows: dict[str, list[LogFlow]] = {}
    for name, log in logs.items():
        create_log(spark, log)
        spark.sql(f"ALTER TABLE delta.`{log}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
        flows[name] = [
            LogFlow(spark, log, f"{log} {layout}", {**arguments, **options}, pipeline=layout)
            for layout, options in LAYOUTS.items()
        ]
    deleted, batches = 0, delivered_late(world)
    for number, batch in enumerate(batches):
        for log in logs.values():
            append(spark, log, [posted.row(history) for history, posted in batch])
        if number % 3 and number + 1 < len(batches):
            continue
        for flow in (*flows["whole"], *flows["expired"]):
            flow.apply()
        deleted += expired(flows["expired"], min(max(0, number - 1) * SPAN, world.windows * SPAN - 1))
    assert deleted > 10, "hardly anything was deleted, so little is shown"
    for mode in ("incremental", "reload"):
        for whole, other in zip(flows["whole"], flows["expired"], strict=True):
            expected, found = all_rows(whole), all_rows(other)
            wrong = (
                [row for row in found if row not in expected],
                [row for row in expected if row not in found],
            )
            assert wrong == ([], []), (mode, whole.pipeline, sorted(whole.rows()[0]), wrong)
            other.apply(mode="reload")
    for flow in flows["expired"]:
        assert verified(flow) == {}, flow.pipeline


# -- a feed: dated copies, shadows, erased keys, chains ---------------------------------------------
def _source(spark: SparkSession, folder: Path) -> str:
    source = str(folder / "source")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id INT, name STRING) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 'Ada'), (2, 'Bo'), (3, 'Cy'), (4, 'Di')")
    return source


CHANGES = (
    "UPDATE {source} SET name = 'Bob' WHERE id = 2",
    "DELETE FROM {source} WHERE id IN (1, 3)",
    "INSERT INTO {source} VALUES (1, 'Ada'), (5, 'Ed')",
    "UPDATE {source} SET name = 'Ed' WHERE id = 5",
)


def _feed_flows(spark: SparkSession, source: str, folder: Path, **more: Any) -> list[LogFlow]:
    arguments = {"source_kind": "change_feed", "keys": ["id"], **more}
    return [
        LogFlow(spark, source, str(folder / layout), {**arguments, **options}, pipeline=layout)
        for layout, options in LAYOUTS.items()
    ]


def test_dated_copies_of_which_the_old_ones_go(spark: SparkSession, tmp_path: Path) -> None:
    """What a target has of copies that the source lacks stays, also if it is computed again."""
    source, ddl = str(tmp_path / "copies"), "id int, name string, day int"
    create_log(spark, source, ddl, ("id",))
    arguments = {
        "source_kind": "snapshot",
        "snapshot_version_column": "day",
        "keys": ["id"],
        "except_column_list": ["day"],
    }
    flows = [
        LogFlow(spark, source, str(tmp_path / layout), {**arguments, **options}, pipeline=layout)
        for layout, options in LAYOUTS.items()
        if layout != "history_soft"
    ]
    copies = {
        10: {1: "Ada", 2: "Bo", 3: "Cy"},
        11: {1: "Ada", 2: "Bob"},
        12: {1: "Ada", 2: "Bob", 3: "Cy"},
        13: {1: "Ann", 3: "Cy", 4: "Di"},
        14: {1: "Ann", 3: "Cy", 4: "Di"},
    }
    for day, rows in copies.items():
        append(spark, source, [(id_, name, day) for id_, name in rows.items()], ddl)
        for flow in flows:
            flow.apply()
    before = {flow.pipeline: all_rows(flow) for flow in flows}
    current = {row["id"]: (row["created_at"], row["changed_at"]) for row in flows[-1].rows()}
    assert current == {1: (10, 13), 2: (10, 13), 3: (12, 12), 4: (13, 13)}
    assert {(row["id"], row["valid_from"]) for row in flows[1].rows() if row["is_current"]} == {
        (1, 13),
        (2, 13),
        (3, 12),
        (4, 13),
    }
    for flow in flows:
        assert verified(flow) == {}, flow.pipeline
    spark.sql(f"DELETE FROM delta.`{source}` WHERE day < 13")
    for flow in flows:
        flow.apply(mode="reload")
        kept = all_rows(flow)
        # A soft-deleted row of a copy that is gone has no values in the source any more, and stays.
        assert kept == before[flow.pipeline], flow.pipeline
        assert verified(flow) == {}, flow.pipeline


def test_a_shadow_with_another_layout(spark: SparkSession, tmp_path: Path) -> None:
    """Added columns do not count: a plain target agrees with one that has them, and can be replaced by it."""
    source, plain = _source(spark, tmp_path), str(tmp_path / "plain")
    flows = _feed_flows(spark, source, tmp_path, shadow_of={"plain": plain})
    first = LogFlow(spark, source, plain, {"source_kind": "change_feed", "keys": ["id"]}, pipeline="plain")

    def compared() -> dict[str, Comparison]:
        first.apply()
        found = {}
        for flow in flows:
            outcome = flow.apply()
            assert outcome.shadow is not None, flow.pipeline
            (row,) = outcome.shadow
            found[flow.pipeline] = codec.decoded(Comparison, row)
        return found

    for change in ("SELECT 1", *CHANGES):
        spark.sql(change.format(source=f"delta.`{source}`"))
        for name, found in compared().items():
            assert (found.status, found.counts) == ("agreed", {}), (name, change, found)
            assert found.only_original == found.only_shadow == (), name
    spark.sql(f"UPDATE delta.`{flows[-1].target}` SET name = 'x' WHERE id = 2")
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (6, 'Flo')")
    assert compared()["current_soft"].counts == {"changed": 1}
    shadow = flows[2]
    pair = Pair("plain", plain, shadow.pipeline, shadow.target)
    done = promote(Work(pair, partial(job.run, spark), run_id="by-hand"), dry_run=False)
    assert "took over" in done.lines[0], done
    after = LogFlow(spark, source, shadow.target, {**shadow.arguments, "shadow_of": None}, pipeline="plain")
    spark.sql(f"DELETE FROM delta.`{source}` WHERE id = 6")
    after.apply()
    of_key = {(row["name"], row["_deleted"], row["is_current"]) for row in after.rows("id = 6")}
    assert of_key == {("Flo", False, False), ("Flo", True, True)}
    assert verified(after) == {}


def _beside_erased(flow: LogFlow) -> list[str]:
    return sorted(str(row) for row in flow.rows() if row["id"] not in (2, 3))


def test_an_erased_key(spark: SparkSession, tmp_path: Path) -> None:
    """Its rows go, those with ``_deleted`` true, too, and nothing brings them back."""
    source = _source(spark, tmp_path)
    flows = _feed_flows(spark, source, tmp_path)
    for change in CHANGES[:2]:
        for flow in flows:
            flow.apply()
        spark.sql(change.format(source=f"delta.`{source}`"))
    for flow in flows:
        flow.apply()
    others = {flow.pipeline: _beside_erased(flow) for flow in flows}
    kinds = [Flow(flow.pipeline, source, target=flow.target) for flow in flows]
    for key in ("2", "3"):
        report = erase(
            Erasure(keys=({"id": key},), flows=tuple(kinds)), execute=partial(job.run, spark), run_id="erase"
        )
        raise_failed(report.errors)
    spark.sql(f"UPDATE delta.`{source}` SET name = 'back' WHERE id = 2")
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (3, 'back')")
    for mode in ("incremental", "reload"):
        for flow in flows:
            flow.apply(mode=mode)
            assert [row for row in flow.rows() if row["id"] in (2, 3)] == [], (mode, flow.pipeline)
            assert _beside_erased(flow) == others[flow.pipeline], (mode, flow.pipeline)
            assert verified(flow) == {}, flow.pipeline


def test_a_chain_of_targets(spark: SparkSession, tmp_path: Path) -> None:
    """The open rows of a history with deleted rows are the rows of a current target."""
    source = _source(spark, tmp_path)
    flows = _feed_flows(spark, source, tmp_path, publish_changes=True)
    direct = LogFlow(
        spark,
        source,
        str(tmp_path / "direct"),
        {"source_kind": "change_feed", "keys": ["id"]},
        pipeline="direct",
    )
    nexts = []
    for flow in flows:
        conditions = [
            *(["is_current"] if "history" in flow.pipeline else []),
            *([] if flow.arguments["delete_mode"] == "hard" else ["NOT _deleted"]),
        ]
        arguments = {
            "source_kind": "change_feed",
            "keys": ["id"],
            "where": " AND ".join(conditions) or None,
            "column_list": ["id", "name"],
            "created_column": "made_at",
            "changed_column": "altered_at",
            "row_hash_column": "own_hash",
        }
        nexts.append(
            LogFlow(spark, flow.target, f"{flow.target} next", arguments, pipeline=f"{flow.pipeline}_next")
        )
    for change in ("SELECT 1", *CHANGES):
        spark.sql(change.format(source=f"delta.`{source}`"))
        for flow in (direct, *flows, *nexts):
            flow.apply()
        expected = rows_of(direct.rows(), ("id", "name"))
        for flow in nexts:
            assert rows_of(flow.rows(), ("id", "name")) == expected, (change, flow.pipeline)
            hashes = {row["id"]: row["own_hash"] for row in flow.rows()}
            of_source = next(one for one in flows if one.target == flow.log)
            alive = {
                row["id"]: row["row_hash"]
                for row in of_source.rows()
                if row.get("is_current", True) and not row.get("_deleted", False)
            }
            assert hashes == alive, (change, flow.pipeline)
    for flow in nexts:
        assert verified(flow) == {}, flow.pipeline
