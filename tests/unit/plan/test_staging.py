"""Batches in staging: milestones, what a retry goes on with, sinks without a target, what an apply takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import codec
from delta_cdc.core.errors import (
    BatchNotApplicable,
    InvalidConfiguration,
    NoOpenBatch,
    OtherBatchOpen,
    RangeNotContiguous,
    ReadMethodUnavailable,
    SchemaChangeInRange,
    SourceHistoryChanged,
    TargetWithoutWatermark,
    TransactionRetentionSet,
    VersionsExpired,
    WatermarkExpired,
)
from delta_cdc.core.options import QueryOptions
from delta_cdc.core.requests import CommitRequest, ReadRequest
from delta_cdc.core.spec import ReadSpec
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.commit import CommitPlan, plan_commit_async
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.read import plan_read
from delta_cdc.planning.staging import BatchConfiguration
from tests.support.logs import EPOCH, changed, field_of, seal, unhashed

if TYPE_CHECKING:
    from delta_cdc.planning.plan import Plan
    from tests.support.tables import Tables

NET = QueryOptions("min_delta", keys=("id",))
SURVIVING = QueryOptions("append_only", keys=("id",), only_surviving=True)
FULL: dict[str, Any] = {
    "query": "full_delta",
    "keys": [],
    "method": "auto",
    "raw": False,
    "where": None,
    "select": [],
    "on_change_commit": "fail",
}
MINIMAL = {**FULL, "query": "min_delta", "keys": ["id"]}


def spec_of(plan: Plan) -> ReadSpec:
    assert isinstance(plan.spec, ReadSpec)
    return plan.spec


def told(plan: Plan) -> list[tuple[str, int, int]]:
    return [(step.kind, step.starting_version, step.ending_version) for step in plan.steps]


def said(plan: Plan, text: str) -> bool:
    return any(text in note for note in plan.notes)


def staged(tables: Tables, number: int, start: int, end: int, **configuration: Any) -> int:
    """Seal a batch, or its beginning, as the job does; without ``committed`` it is for a target."""
    made = seal(number, end, source=tables.source, start=start, kind="read")
    given = {"batch": "changes", "complete": True, "options": FULL, "ending": end, **configuration}
    return tables.staging.write_seal(changed(made, configuration=given), operation="WRITE")


def committed(tables: Tables, number: int, end: int) -> int:
    made = seal(number, end, source=tables.source, kind="commit")
    return tables.staging.write_seal(changed(made, configuration={}), operation="WRITE", rows=False)


def mark(tables: Tables, version: int) -> dict[str, Any]:
    return {
        "table_id": tables.source.table_id,
        "version": version,
        "commit_hash": tables.source.sha256(version),
    }


def commit(tables: Tables, ending: int | None = None) -> CommitPlan:
    return run_sync(
        plan_commit_async(CommitRequest(pipeline="p", staging=tables.staging.uri, ending_version=ending))
    )


# -- milestones ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "steps", "plain"),
    [
        (QueryOptions(), [("apply", 3, 4), ("apply", 5, 5)], False),
        (NET, [("apply", 3, 4), ("apply", 5, 5), ("answer", 3, 5)], True),
        (SURVIVING, [("apply", 3, 4), ("apply", 5, 5), ("answer", 3, 5)], True),
        (QueryOptions(keys=("id",), wide=True), [("apply", 3, 4), ("apply", 5, 5)], False),
    ],
)
def test_milestones(tables: Tables, options: QueryOptions, steps: list[Any], plain: bool) -> None:
    tables.sealed(2)
    plan = tables.read(options=options, versions_per_commit=2)
    spec = spec_of(plan)
    assert told(plan) == steps
    assert [step.seal_number for step in spec.steps] == list(range(101, 101 + len(steps)))
    assert all(step.read.ranges for step in spec.steps if step.kind == "apply")
    assert (spec.starting_version, plan.versions, spec.plain) == (3, VersionRange(3, 5), plain)
    assert (spec.continues, spec.configuration["ending"]) == (False, 5)


def test_one_milestone_needs_no_second_look(tables: Tables) -> None:
    tables.sealed(2)
    plan = tables.read(options=NET)
    assert (told(plan), spec_of(plan).plain) == ([("apply", 3, 5)], False)
    steps = [("apply", 3, 3), ("apply", 4, 4), ("answer", 3, 4)]
    assert told(tables.read(options=NET, bytes_per_commit=100, ending_version=4)) == steps


def test_what_row_ids_match_is_read_at_once(tables: Tables) -> None:
    tables.sealed(2)
    tables.source.set_properties(
        delta__enableChangeDataFeed="true",
        delta__enableRowTracking="true",
        delta__rowTracking__materializedRowIdColumnName="_row_id",
    )
    tables.sealed(6, 101)
    for _ in range(3):
        tables.source.append()
    plan = tables.read(options=QueryOptions("min_delta"), versions_per_commit=1)
    assert told(plan) == [("apply", 7, 9)]


# -- going on -----------------------------------------------------------------------------------
def test_the_beginning_of_a_batch_is_gone_on_with(tables: Tables) -> None:
    tables.sealed(2)
    staged(tables, 101, 3, 3, complete=False, ending=5)
    tables.source.append()
    plan = tables.read(versions_per_commit=1)
    spec = spec_of(plan)
    assert told(plan) == [("apply", 4, 4), ("apply", 5, 5)], "its range was decided when it began"
    assert [step.seal_number for step in spec.steps] == [102, 103]
    assert (spec.continues, spec.starting_version, plan.versions) == (True, 3, VersionRange(3, 5))
    assert unhashed(spec.steps[0].planned_on) == TableVersion("st", 0)
    assert said(plan, "holds versions 3-3: the read continues after them")
    assert told(tables.read(ending_version=4)) == [("apply", 4, 4)]
    assert told(tables.read(starting_version=3, ending_version=4)) == [("apply", 4, 4)]
    assert not said(tables.read(starting_version=3), "already applied")


@pytest.mark.parametrize(
    ("end", "steps"),
    [(4, [("apply", 5, 5), ("answer", 3, 5)]), (5, [("answer", 3, 5)])],
)
def test_what_is_missing_of_a_net_query(tables: Tables, end: int, steps: list[Any]) -> None:
    tables.sealed(2)
    staged(tables, 101, 3, end, complete=False, ending=5, options=MINIMAL, plain=True)
    plan = tables.read(options=NET)
    assert told(plan) == steps
    assert spec_of(plan).plain
    last = spec_of(plan).steps[-1]
    assert (last.ending_version, last.watermark.commit_hash) == (5, tables.source.sha256(5))
    assert last.source_columns == ("id", "name")


def test_all_versions_staged_and_not_the_word(tables: Tables) -> None:
    tables.sealed(2)
    staged(tables, 101, 3, 5, complete=False)
    assert told(tables.read()) == [("complete", 3, 5)]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"options": QueryOptions(where="id > 1", keys=("id",))}, "read with other options"),
        ({"options": QueryOptions(raw=True)}, "read with other options"),
        ({"ending_version": 3}, "goes beyond version 3"),
        ({}, "was read from another history"),
    ],
)
def test_the_beginning_of_another_batch_is_given_up(
    tables: Tables, changes: dict[str, Any], note: str
) -> None:
    tables.sealed(2)
    staged(tables, 101, 3, 4, complete=False, ending=5)
    if not changes:
        file = tables.source.file(4)
        file.write_text(file.read_text().replace("Append", "append"))
    plan = tables.read(**changes)
    assert said(plan, f"The unfinished batch 3-4 in staging {tables.staging.uri} ")
    assert said(plan, note)
    assert told(plan)[0][1] == 3
    assert not spec_of(plan).continues
    assert spec_of(plan).steps[0].seal_number == 102


@pytest.mark.parametrize("when", ["since", "underneath"])
def test_the_beginning_of_a_batch_that_others_changed(tables: Tables, when: str) -> None:
    tables.sealed(2)
    staged(tables, 101, 3, 3, complete=False, ending=5)
    if when == "since":
        tables.staging.delete("id = 1")
    else:
        planned = TableVersion("st", tables.staging.version)
        tables.staging.append()
        made = seal(102, 4, source=tables.source, start=3, kind="read", planned_on=planned)
        given = {"batch": "changes", "complete": False, "options": FULL, "ending": 5, "adds": True}
        tables.staging.write_seal(changed(made, configuration=given), operation="WRITE")
    plan = tables.read()
    assert said(plan, "was changed by others and is replaced")
    assert (told(plan), spec_of(plan).continues) == ([("apply", 3, 5)], False)


def test_a_whole_batch_is_read_by_its_version(tables: Tables) -> None:
    tables.sealed(2, configuration={"keys": ["id"]})
    version = staged(tables, 101, 3, 5)
    tables.staging.delete("id = 1")
    plan = tables.read()
    assert (plan.spec, plan.versions) == (None, VersionRange(3, 5))
    (step,) = tables.apply(staging=tables.staging.uri).steps
    assert step.read.staging.version == version
    assert step.before.configuration == {"keys": ["id"]}


def test_an_open_batch_that_was_asked_for_otherwise_is_replaced(tables: Tables) -> None:
    tables.sealed(2)
    staged(tables, 101, 3, 5)
    assert tables.read().batch is not None
    plan = tables.read(options=NET)
    assert said(plan, "The open batch 3-5")
    assert (told(plan), spec_of(plan).continues) == ([("apply", 3, 5)], False)


def test_a_batch_of_milestones_is_in_turn_until_the_target_moves(tables: Tables) -> None:
    """Several seals in staging, one in the target: a RESTORE of it must not bring back what was applied."""
    tables.sealed(2)
    staged(tables, 105, 3, 4, turn=101)
    assert tables.apply(staging=tables.staging.uri).versions == VersionRange(3, 4)
    tables.sealed(4, 101, start=3)
    tables.target.restore(0)
    assert tables.apply(staging=tables.staging.uri).spec is None
    spec = spec_of(tables.read())
    assert (spec.steps[0].seal_number, spec.configuration["turn"]) == (106, 102)


# -- what an apply takes ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("configuration", "message", "remedy"),
    [
        ({"complete": False, "ending": 5}, "only the first part", "clear the read"),
        ({"options": MINIMAL}, "query 'min_delta'", "query='full_delta'"),
        ({"options": {**FULL, "where": "id > 1", "keys": ["id"]}}, "where 'id > 1'", "another staging table"),
        ({"options": {**FULL, "select": ["id"]}}, r"select \['id'\]", "another staging table"),
        (
            {"options": {**FULL, "wide": True, "keys": ["id"]}},
            "wide True",
            "without on_change_commit and wide",
        ),
        (
            {"options": {**FULL, "method": "added_files", "on_change_commit": "skip"}},
            "on_change_commit 'skip'",
            "without on_change_commit",
        ),
    ],
)
def test_what_an_apply_cannot_take(
    tables: Tables, configuration: dict[str, Any], message: str, remedy: str
) -> None:
    tables.sealed(2)
    staged(tables, 101, 3, 4, **configuration)
    with pytest.raises(BatchNotApplicable, match=f"versions 3-4 .*{message}") as refused:
        tables.apply(staging=tables.staging.uri)
    assert remedy in refused.value.remedy
    tables.sealed(4, 101, start=3)
    assert tables.apply(staging=tables.staging.uri).spec is None, "it no longer continues the target"


@pytest.mark.parametrize("options", [FULL, {**FULL, "raw": True, "method": "change_files"}])
def test_what_an_apply_can_take(tables: Tables, options: dict[str, Any]) -> None:
    tables.sealed(2)
    staged(tables, 101, 3, 4, options=options)
    assert tables.apply(staging=tables.staging.uri).versions == VersionRange(3, 4)


# -- custom sinks -------------------------------------------------------------------------------
def test_the_first_batch_of_a_sink_is_a_snapshot(tables: Tables) -> None:
    plan = tables.read(target=None)
    spec = spec_of(plan)
    assert (told(plan), spec.kind) == ([("load", 5, 5)], "snapshot")
    assert spec.configuration["committed"] is None
    with pytest.raises(InvalidConfiguration, match=r"staging .* has no watermark yet"):
        tables.read(target=None, starting_version=3)


def test_a_snapshot_without_row_ids_is_refused(tables: Tables) -> None:
    with pytest.raises(ReadMethodUnavailable, match=r"version 5, have no row ids") as refused:
        tables.read(target=None, options=QueryOptions(row_ids=True))
    assert "leave row_ids out" in refused.value.remedy


def test_a_sink_goes_on_behind_what_was_committed(tables: Tables) -> None:
    staged(tables, 7, 2, 2, batch="snapshot", committed=None)
    assert tables.read(target=None).batch is not None, "open until it is committed"
    committed(tables, 8, 2)
    plan = tables.read(target=None, versions_per_commit=2)
    spec = spec_of(plan)
    assert told(plan) == [("apply", 3, 4), ("apply", 5, 5)]
    assert spec.configuration["committed"] == mark(tables, 2)
    assert [step.seal_number for step in spec.steps] == [9, 10]
    with pytest.raises(RangeNotContiguous):
        tables.read(target=None, starting_version=4)
    # Every seal carries what was committed, so the newest one tells.
    staged(tables, 9, 3, 4, committed=mark(tables, 2), complete=False, ending=5)
    assert told(tables.read(target=None)) == [("apply", 5, 5)]
    staged(tables, 10, 3, 5, committed=mark(tables, 2))
    plan = tables.read(target=None)
    assert (plan.spec, plan.versions) == (None, VersionRange(3, 5))
    committed(tables, 11, 5)
    assert (tables.read(target=None).spec, tables.read(target=None).batch) == (None, None)


def test_a_sink_whose_source_is_another_table_now(tables: Tables) -> None:
    staged(tables, 7, 2, 2, batch="snapshot", committed=None)
    committed(tables, 8, 2)
    file = tables.source.file(2)
    file.write_text(file.read_text().replace("Append", "append"))
    with pytest.raises(SourceHistoryChanged) as refused:
        tables.read(target=None)
    assert "new staging table" in refused.value.remedy
    tables.sealed(2)
    file.write_text(file.read_text().replace("append", "APPEND"))
    with pytest.raises(SourceHistoryChanged) as refused:
        tables.read()
    assert "new staging table" not in refused.value.remedy


def test_a_sink_whose_source_lost_a_column(tables: Tables) -> None:
    """There is no target to load again."""
    staged(tables, 7, 2, 2, batch="snapshot", committed=None)
    committed(tables, 8, 2)
    tables.source.alter(field_of("id"), operation="REPLACE COLUMNS")
    tables.source.append()
    with pytest.raises(SchemaChangeInRange) as refused:
        tables.read(target=None)
    for part in ("the versions before this one (ending_version)", "name a new staging table"):
        assert part in refused.value.remedy
    assert tables.read(target=None, ending_version=5).versions == VersionRange(3, 5)
    tables.sealed(2)
    with pytest.raises(SchemaChangeInRange) as refused:
        tables.read()
    assert "staging" not in refused.value.remedy


def test_a_sink_is_no_target(tables: Tables) -> None:
    staged(tables, 7, 2, 2, batch="snapshot", committed=None)
    for _ in ("read", "committed"):
        with pytest.raises(InvalidConfiguration, match="is the staging table of a sink"):
            tables.apply(target=tables.staging.uri)
        committed(tables, 8, 2)


def test_nothing_that_happens_to_staging_takes_back_what_was_committed(tables: Tables) -> None:
    staged(tables, 7, 2, 2, batch="snapshot", committed=None)
    committed(tables, 8, 2)
    tables.staging.restore(0)
    assert told(tables.read(target=None)) == [("apply", 3, 5)]
    staged(tables, 9, 3, 5, committed=mark(tables, 2))
    tables.staging.optimize()
    assert tables.read(target=None).batch is not None
    tables.staging.delete("id = 1")
    plan = tables.read(target=None)
    assert (told(plan), spec_of(plan).continues) == ([("apply", 3, 5)], False), "its rows are no longer it"
    with pytest.raises(NoOpenBatch, match="another writer changed"):
        commit(tables)


def test_staging_that_proves_nothing(tables: Tables) -> None:
    with pytest.raises(NoOpenBatch, match="holds no batch"):
        commit(tables)
    staged(tables, 7, 5, 5, batch="snapshot")
    for look in (lambda: tables.read(target=None), lambda: commit(tables)):
        with pytest.raises(InvalidConfiguration, match="filled for a target"):
            look()


def test_staging_of_somebody_else(tables: Tables) -> None:
    tables.staging.create()
    with pytest.raises(NoOpenBatch):
        commit(tables)
    assert unhashed(spec_of(tables.read(target=None)).steps[0].planned_on) == TableVersion("st", 0)
    tables.staging.append()
    for look in (lambda: tables.read(target=None), lambda: commit(tables)):
        with pytest.raises(TargetWithoutWatermark, match="staging table"):
            look()


def test_staging_that_forgets(tables: Tables) -> None:
    staged(tables, 7, 5, 5, batch="snapshot", committed=None)
    committed(tables, 8, 5)
    tables.staging.append()
    tables.staging.checkpoint(1)
    with pytest.raises(WatermarkExpired, match="version 1 was cleaned"):
        tables.read(target=None)
    tables.staging.set_properties(delta__setTransactionRetentionDuration="interval 7 days")
    with pytest.raises(TransactionRetentionSet):
        tables.read(target=None)


def test_a_commit_takes_the_open_batch(tables: Tables) -> None:
    staged(tables, 7, 3, 3, batch="snapshot", committed=None, complete=False)
    with pytest.raises(NoOpenBatch, match="only the beginning of a batch, 3-3"):
        commit(tables)
    staged(tables, 8, 3, 3, batch="snapshot", committed=None)
    plan = commit(tables)
    step = plan.spec.steps[0]
    assert (step.kind, step.starting_version, step.ending_version, step.seal_number) == ("commit", 3, 3, 9)
    assert step.watermark.commit_hash == tables.source.sha256(3)
    assert plan.spec.steps[-1].watermark.table_id == tables.source.table_id
    with pytest.raises(OtherBatchOpen, match=r"Version 5 is to be committed .* is 3-3"):
        commit(tables, 5)
    with pytest.raises(OtherBatchOpen):
        commit(tables, 2)
    committed(tables, 9, 3)
    for ending in (None, 3, 2):
        again = commit(tables, ending)
        assert again.spec is None
        assert again.recorded.seal.watermark.version == 3
    with pytest.raises(NoOpenBatch, match="its watermark is 3"):
        commit(tables, 4)


def test_a_late_commit_of_an_older_batch_leaves_the_new_one_alone(tables: Tables) -> None:
    staged(tables, 7, 3, 3, batch="snapshot", committed=None)
    committed(tables, 8, 3)
    staged(tables, 9, 4, 5, committed=mark(tables, 3))
    assert commit(tables, 3).spec is None
    assert commit(tables, 5).spec is not None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"options": QueryOptions("upsert")}, "keys"),
        ({"options": QueryOptions("min_delta", keys=("id",), raw=True)}, "raw"),
        (
            {"options": QueryOptions(method="added_files", on_change_commit="skip")},
            "on_change_commit is 'skip', and a target",
        ),
    ],
)
def test_what_cannot_be_meant(tables: Tables, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfiguration, match=named):
        tables.read(**changes)


def test_a_sink_of_ones_own_may_leave_commits_out(tables: Tables) -> None:
    staged(tables, 7, 2, 2, batch="snapshot", committed=None)
    committed(tables, 8, 2)
    options = QueryOptions(method="added_files", on_change_commit="skip")
    assert told(tables.read(target=None, options=options)) == [("apply", 3, 5)]


DAY = 86_400_000


def test_an_idle_sink_is_not_sealed_over_what_nothing_proves(tables: Tables) -> None:
    staged(tables, 7, 5, 5, batch="snapshot", committed=None)
    committed(tables, 8, 5)
    tables.source.optimize()
    tables.source.checkpoint(*range(6))
    request = ReadRequest(pipeline="p", source=tables.source.uri, staging=tables.staging.uri)
    assert plan_read(request, Memory(now_ms=EPOCH + 3 * DAY)).spec is None
    with pytest.raises(VersionsExpired, match=r"Version 5 of .* was removed from the log"):
        plan_read(request, Memory(now_ms=EPOCH + 4 * DAY))


def test_a_sink_that_was_idle_for_long_seals_what_needs_not_arrive(tables: Tables) -> None:
    """Else the watermark of a source that is only optimized leaves the source's log."""
    staged(tables, 7, 5, 5, batch="snapshot", committed=None)
    committed(tables, 8, 5)
    tables.source.optimize()
    request = ReadRequest(pipeline="p", source=tables.source.uri, staging=tables.staging.uri)

    def read(days: float) -> Plan:
        return plan_read(request, Memory(now_ms=EPOCH + int(days * DAY)))

    assert read(3).spec is None
    plan = read(4)
    (step,) = spec_of(plan).steps
    assert (step.kind, step.starting_version, step.ending_version, step.seal_number) == ("commit", 6, 6, 9)
    assert step.watermark.commit_hash == tables.source.sha256(6)
    assert (plan.versions, said(plan, "The run renews the seal.")) == (None, True)
    assert "everything up to version 6" in str(plan)
    committed(tables, 9, 6)
    assert read(4.1).spec is None, "nothing newer, so nothing to seal"
    tables.source.alter(field_of("id"))
    with pytest.raises(SchemaChangeInRange):
        read(40)


def test_a_batch_with_an_unreadable_configuration_is_unfinished() -> None:
    """People can edit a log. Other entries than those of a batch do not matter."""
    defaults = codec.encoded(QueryOptions())
    for edited in ({"complete": "no"}, {"batch": "changes", "ending": None, "turn": "x"}, {"options": []}):
        known = changed(seal(1, 2), configuration=edited)
        assert BatchConfiguration.read(known) == BatchConfiguration(complete=False, options=defaults)
    known = changed(seal(1, 2), configuration={"committed": None, "turn": 4, "options": {"query": "upsert"}})
    assert BatchConfiguration.read(known) == BatchConfiguration(
        turn=4, options={**defaults, "query": "upsert"}
    )
