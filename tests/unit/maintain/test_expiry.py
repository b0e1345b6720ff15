"""What an expiry has to do, by the logs: nothing that a consumer still needs, and nothing twice."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import maintenance_tags, validation
from delta_cdc.core.errors import ConsumerUnreadable, InvalidConfiguration
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.properties import EXPIRED_BELOW, LATENESS_HORIZON
from delta_cdc.core.spec import ExpireSpec, from_json, to_json
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.consumers import Consumer
from delta_cdc.planning.expiry import plan_expiry
from tests.support.checkpoints import checkpoint
from tests.support.logs import FEED, LogTable, changed, seal
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.planning.plan import JobPlan

LOG = ApplyOptions(keys=("id",), source_kind="change_log", sequence_by="at", ignore_null_updates=True)
TRACKED = {**FEED, "delta.enableRowTracking": "true"}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A change log with events in versions 1-5, without a horizon."""
    made = Tables.made_in(tmp_path)
    made.source.set_properties(**TRACKED)  # 6
    return made


def built(
    tables: Tables,
    watermark: int,
    number: int = 100,
    *,
    options: ApplyOptions = LOG,
    kind: str = "bigint",
    highest: str | None = "40",
    **more: Any,
) -> None:
    configuration = {**validation.described(options), "sequence_by_type": kind}
    tables.sealed(watermark, number, configuration=configuration, highest_sequence=highest, **more)


def plan(
    tables: Tables, *more: Consumer, keep: str | None = None, horizon: str | None = None
) -> JobPlan[ExpireSpec, dict[str, Any]]:
    consumers = [Consumer("p", tables.source.uri, tables.target.uri), *more]
    return run_sync(
        plan_expiry(
            ExpireSpec(run_id="r", table_uri=tables.source.uri, horizon=horizon), consumers, keep=keep
        )
    )


def horizon(tables: Tables, text: str, **more: str) -> int:
    return tables.source.set_properties(**TRACKED, **{LATENESS_HORIZON: text}, **more)


def test_first_the_horizon_then_the_deletion(tables: Tables) -> None:
    built(tables, 5, horizons=((1, "3"),))
    assert plan(tables).spec is None
    planned = plan(tables, horizon="30").spec
    assert (planned.below, planned.horizon, planned.table_id) == (None, "30", "source-id")
    (reader,) = planned.readers
    assert (reader.pipeline, reader.state.highest_sequence) == ("p", "40")
    assert validation.options_of(reader).ignore_null_updates
    assert from_json(to_json(planned)) == planned

    horizon(tables, "30")  # 7
    due = plan(tables, horizon="35").spec
    assert (due.below, due.since, due.horizon) == ("30", 7, "35")
    assert plan(tables, horizon="30").spec is not None, "what is behind it is not deleted yet"
    horizon(tables, "30", **{EXPIRED_BELOW: "30"})
    assert plan(tables, horizon="30").spec is None
    assert plan(tables).notes[0] == "nothing to do"
    last = plan(tables, horizon="35").spec
    assert (last.below, last.horizon) == (None, "35")


def test_it_waits_for_every_consumer(tables: Tables, tmp_path: Path) -> None:
    built(tables, 4)
    horizon(tables, "30")  # 7
    tables.source.append()  # 8
    planned = plan(tables, horizon="35")
    assert planned.spec is None
    assert "waits until p (watermark 4) has version 7" in planned.notes[0]
    built(tables, 5, 101)
    # Between its watermark and the horizon no event came, so that it has all that it needs.
    due = plan(tables, horizon="35").spec
    assert due.since == 7
    lagging = LogTable(tmp_path / "lagging")
    lagging.write_seal(replace(seal(1, 3, source=tables.source), pipeline="q"))
    other = Consumer("q", None, lagging.uri)
    with pytest.raises(InvalidConfiguration, match=r"q reads .* as rows"):
        plan(tables, other)
    lagging.write_seal(
        changed(seal(2, 3, source=tables.source), pipeline="q", configuration=validation.described(LOG))
    )
    assert "waits until q (watermark 3)" in plan(tables, other).notes[0]


def test_an_expiry_itself_is_no_event_that_is_waited_for(tables: Tables) -> None:
    built(tables, 5)
    horizon(tables, "30")  # 7
    source = tables.source
    clauses = {
        "matchedPredicates": '[{"actionType":"delete"}]',
        "notMatchedPredicates": "[]",
        "notMatchedBySourcePredicates": "[]",
    }
    text = maintenance_tags.written("expire", below="30")
    source.commit("MERGE", *source.removes(), source.add(), parameters=clauses, user_metadata=text)
    horizon(tables, "35", **{EXPIRED_BELOW: "30"})  # 9
    due = plan(tables).spec
    assert (due.below, due.since) == ("35", 9)


def test_the_version_that_set_the_allowed_lateness(tables: Tables) -> None:
    built(tables, 5)
    horizon(tables, "30")  # 7
    tables.source.optimize()
    horizon(tables, "30", **{"delta.logRetentionDuration": "interval 40 days"})  # 9
    due = plan(tables).spec
    assert due.since == 7
    # What is told no more is taken for later than it was.
    checkpoint(tables.source, version=8)
    for version in range(8):
        tables.source.file(version).unlink()
    tables.sealed(9, 101, configuration=validation.described(LOG))
    due = plan(tables).spec
    assert due.since == 8


def test_rows_that_are_not_tracked_and_a_horizon_of_long_ago(tables: Tables) -> None:
    built(tables, 5)
    tables.source.set_properties(**FEED, **{LATENESS_HORIZON: "30"})  # 7, years in the future
    due = plan(tables).spec
    assert due.since == 7
    tables.source.set_properties(
        **FEED, **{LATENESS_HORIZON: "30", "delta.deletedFileRetentionDuration": "interval 0 hours"}
    )
    os.utime(tables.source.file(7), (1, 1))
    none = plan(tables)
    assert none.spec is None
    assert "enableRowTracking" in none.notes[0]
    raised = plan(tables, horizon="35").spec
    assert (raised.below, raised.horizon) == (None, "35")


@pytest.mark.parametrize(
    ("kind", "highest", "keep", "expected"),
    [
        ("timestamp", "2026-01-09 00:00:00.25", "interval 2 days", "2026-01-07 00:00:00.25"),
        ("timestamp_ntz", "2026-01-09 00:00:00", "1 hour", "2026-01-08 23:00:00"),
        ("date", "2026-01-09", "interval 1 week", "2026-01-02"),
        ("timestamp", None, "interval 2 days", None),
    ],
)
def test_how_far_behind_the_newest_event(
    tables: Tables, kind: str, highest: str | None, keep: str, expected: str | None
) -> None:
    built(tables, 5, kind=kind, highest=highest)
    planned = plan(tables, keep=keep).spec
    assert (planned.horizon if planned is not None else None) == expected


def test_the_slowest_consumer_counts(tables: Tables, tmp_path: Path) -> None:
    built(tables, 5, kind="timestamp", highest="2026-01-09 00:00:00")
    slow = LogTable(tmp_path / "slow")
    configuration = {**validation.described(LOG), "sequence_by_type": "timestamp"}
    made = changed(
        seal(1, 4, source=tables.source),
        pipeline="q",
        configuration=configuration,
        highest_sequence="2026-01-05 00:00:00",
    )
    slow.write_seal(made)
    planned = plan(tables, Consumer("q", None, slow.uri), keep="interval 1 day").spec
    assert planned.horizon == "2026-01-04 00:00:00"


def test_what_is_refused(tables: Tables, tmp_path: Path) -> None:
    assert plan(tables, horizon="30").notes[0] == "waits until p has run once"
    built(tables, 5)
    never = Consumer("n", tables.source.uri, str(tmp_path / "never"))
    horizon(tables, "30")
    waiting = plan(tables, never, horizon="35")
    assert (waiting.spec, waiting.notes[0]) == (None, "waits until n has run once")
    with pytest.raises(ConsumerUnreadable, match="Pipeline n has not committed"):
        plan(tables, replace(never, expected=True))
    for asked, text in (
        ({"horizon": "3", "keep": "1 day"}, "both given"),
        ({"keep": "interval -1 days"}, "keep is"),
        ({"keep": "soon"}, "not readable"),
        ({"keep": f"{'9' * 5_000} days"}, "not readable"),
        ({"keep": "1 day"}, "bigint, which is not a time"),
    ):
        with pytest.raises(InvalidConfiguration, match=text):
            plan(tables, **asked)
    with pytest.raises(InvalidConfiguration, match="No consumer"):
        run_sync(plan_expiry(ExpireSpec(run_id="r", table_uri=tables.source.uri), ()))
    tables.source.set_properties(**TRACKED, **{"delta.appendOnly": "true"})
    with pytest.raises(InvalidConfiguration, match=r"delta\.appendOnly"):
        plan(tables)
    tables.source.set_properties(**TRACKED)
    tables.target.truncate()
    with pytest.raises(ConsumerUnreadable, match=r"p of .* TargetReplaced"):
        plan(tables)
    copies = LogTable(tmp_path / "copies")
    copies.write_seal(
        changed(
            seal(1, 4, source=tables.source),
            pipeline="q",
            configuration=validation.described(replace(LOG, source_kind="snapshot")),
        )
    )
    with pytest.raises(InvalidConfiguration, match=r"q reads .* as rows"):
        run_sync(
            plan_expiry(
                ExpireSpec(run_id="r", table_uri=tables.source.uri), [Consumer("q", None, copies.uri)]
            )
        )
