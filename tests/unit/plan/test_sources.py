"""Tables of events and of full copies: which commits count, what may still arrive, how each is read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import maintenance_tags, validation
from delta_cdc.core.change_log import LOG_COLUMNS
from delta_cdc.core.errors import (
    ChangeFeedDisabled,
    CorruptLog,
    EmptyCopy,
    InvalidConfiguration,
    LimitExceeded,
    NotAppendOnly,
    QuarantineMissing,
    VersionsExpired,
)
from delta_cdc.core.quarantine import ASIDE
from delta_cdc.core.spec import ApplySpec
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import refused_id
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.status import status_async
from delta_cdc.planning.verify import VerifyRequest, plan_verify_async
from tests.support.logs import FEED, LogTable, seal
from tests.support.tables import KEYED, Tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.steps import Step
    from delta_cdc.planning.plan import Plan

TYPE_2 = replace(KEYED, stored_as_scd_type=2)
LOG = replace(KEYED, source_kind="change_log", sequence_by="at")
VERSIONED = replace(KEYED, source_kind="snapshot", snapshot_version_column="name")
HISTORY = replace(LOG, stored_as_scd_type=2)
COPIES = replace(KEYED, source_kind="snapshot")
HORIZON = "delta_cdc.latenessHorizon"


def steps(plan: Plan) -> tuple[Step, ...]:
    assert isinstance(plan.spec, ApplySpec)
    return plan.spec.steps


def read(step: Step) -> list[tuple[int, int, str]]:
    return [(s.starting_version, s.ending_version, s.method) for s in step.read.ranges]


def built(tables: Tables, watermark: int, options: ApplyOptions = LOG, **changes: Any) -> None:
    tables.sealed(watermark, configuration=validation.described(options), **changes)


# -- events -------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [LOG, replace(LOG, stored_as_scd_type=2), VERSIONED])
def test_new_events_are_those_that_were_added(tables: Tables, options: ApplyOptions) -> None:
    built(tables, 2, options, highest_sequence="9", truncate_sequences=("4", "5"))
    (step,) = steps(tables.apply(options=options))
    assert (step.kind, read(step)) == ("apply", [(3, 5, "change_files")])
    assert (step.highest_sequence, step.truncate_sequences, step.horizons) == ("9", ("4", "5"), ())
    tables.source.set_properties()
    tables.source.append()
    (step,) = steps(tables.apply(options=options))
    assert read(step) == [(3, 5, "change_files"), (7, 7, "added_files")], "no feed is needed"


@pytest.mark.parametrize("options", [LOG, VERSIONED])
@pytest.mark.parametrize(
    "happens",
    [
        lambda t: t.overwrite(),
        lambda t: t.truncate(),
        lambda t: t.restore(2),
        lambda t: t.commit("UPDATE", *t.removes(), t.add()),
        lambda t: t.commit("MERGE", *t.removes(), t.add(), parameters={"predicate": "x"}),
        lambda t: t.delete("at < 3"),
    ],
    ids=["overwrite", "truncate", "restore", "update", "merge", "delete"],
)
def test_events_that_were_changed(
    tables: Tables, options: ApplyOptions, happens: Callable[[LogTable], int]
) -> None:
    built(tables, 5, options)
    at = happens(tables.source)
    tables.source.append()
    with pytest.raises(NotAppendOnly, match=f"Version {at} of ") as failed:
        tables.apply(options=options)
    assert 'mode="reload"' in failed.value.remedy
    assert [step.kind for step in steps(tables.apply(options=options, mode="reload"))] == ["reload"]


def test_events_that_were_changed_and_go_to_a_log(tables: Tables) -> None:
    """Its rows cannot be computed again, so the way out is another name."""
    into_a_log = replace(LOG, target_kind="change_log", columns_to_update=None)
    tables.target.columns = ("id", "name", *LOG_COLUMNS)
    built(tables, 5, into_a_log)
    tables.source.delete("at < 3")
    with pytest.raises(NotAppendOnly) as failed:
        tables.apply(options=into_a_log)
    assert "another name" in failed.value.remedy
    assert "reload" not in failed.value.remedy


def test_events_are_still_told_from_maintenance(tables: Tables) -> None:
    """A horizon allows deletes, and nothing else; and it does so from its own version on."""
    tables.source.set_properties(**FEED, **{HORIZON: "3"})
    built(tables, 6)
    tables.source.overwrite()
    with pytest.raises(NotAppendOnly, match="Version 7"):
        tables.apply(options=LOG)


def test_what_maintenance_deletes_is_no_event(tables: Tables) -> None:
    tables.source.set_properties(**FEED, **{HORIZON: "3"})
    built(tables, 5)
    tables.source.append()
    tables.source.delete("at < 3")
    tables.source.append()
    plan = tables.apply(options=LOG)
    (step,) = steps(plan)
    assert read(step) == [(7, 7, "change_files"), (9, 9, "change_files")]
    assert plan.versions == VersionRange(6, 9)
    built(tables, 9, number=101)
    expire(tables, "3")
    tables.source.delete("at < 3")
    assert tables.apply(options=LOG).spec is None, "nothing to apply"
    tables.source.append()
    assert tables.apply(options=LOG, max_versions=1).versions == VersionRange(10, 12), "nor is it counted"


@pytest.mark.parametrize("expires", [False, True])
def test_a_delete_before_there_was_an_allowed_lateness(tables: Tables, expires: bool) -> None:
    built(tables, 5)
    if expires:
        expire(tables, "3")
    else:
        tables.source.delete("at < 3")
    tables.source.set_properties(**FEED, **{HORIZON: "3"})
    tables.source.append()
    with pytest.raises(NotAppendOnly, match=rf"Version 6 .*(no {HORIZON}|\(MERGE\))"):
        tables.apply(options=LOG)


# -- the lateness horizon -----------------------------------------------------------------------


def test_a_load_knows_the_horizon(tables: Tables) -> None:
    (step,) = steps(tables.apply(options=LOG))
    assert step.horizons == ()
    tables.source.set_properties(**FEED, **{HORIZON: '["3","b"]'})
    (step,) = steps(tables.apply(options=LOG))
    assert (step.kind, step.horizons) == ("load", ((6, '["3","b"]'),))
    (step,) = steps(tables.apply(options=KEYED))
    assert step.horizons == (), "only events can be late"


def test_a_horizon_that_moves_parts_the_events(tables: Tables) -> None:
    built(tables, 2)
    tables.source.set_properties(**FEED, **{HORIZON: "3"})  # 6
    tables.source.append()
    tables.source.append()
    tables.source.set_properties(**FEED, **{HORIZON: "5"})  # 9
    tables.source.append()
    tables.source.set_properties(**FEED)  # 11
    tables.source.append()
    tables.source.optimize()
    made = steps(tables.apply(options=LOG))
    assert [(s.ending_version, s.horizons) for s in made] == [
        (6, ()),
        (9, ((6, "3"),)),
        (11, ((9, "5"),)),
        (13, ()),
    ]
    assert [read(step)[0][:2] for step in made] == [(3, 5), (7, 8), (10, 10), (12, 12)]
    limited = steps(tables.apply(options=LOG, versions_per_commit=1))
    assert [s.horizons for s in limited] == [(), (), (), ((6, "3"),), ((7, "3"),), ((9, "5"),), ()]


def test_the_horizon_before_a_range_that_ends_in_the_past(tables: Tables) -> None:
    tables.source.set_properties(**FEED, **{HORIZON: "3"})
    tables.source.append()
    built(tables, 7)
    tables.source.append()
    tables.source.set_properties(**FEED)
    tables.source.append()
    (step,) = steps(tables.apply(options=LOG, ending_version=8))
    assert step.horizons == ((7, "3"),)
    assert steps(tables.apply(options=LOG, ending_version=8, mode="reload"))[0].horizons == ((8, "3"),)
    repaired = tables.apply(options=LOG, mode="repair", repair_keys="true")
    assert steps(repaired)[0].horizons == ((7, "3"),)


# -- row tracking ---------------------------------------------------------------------------------
UNDER = {**FEED, HORIZON: "3"}
TRACKED = {**UNDER, "delta.enableRowTracking": "true"}


def tracked(tables: Tables, *, watermark: int = 6) -> None:
    """A horizon that is known since version 1, and row tracking that comes later, with version 7."""
    tables.source.set_properties(**UNDER)
    built(tables, watermark, horizons=((1, "2"), (6, "3")))
    tables.source.set_properties(**TRACKED)


def test_a_known_horizon_counts_from_row_tracking_on(tables: Tables) -> None:
    """To the table, whatever was in it before came with the version that turned tracking on, or before it."""
    tracked(tables)
    tables.source.append()
    (step,) = steps(tables.apply(options=LOG))
    assert (step.before.horizons, step.horizons) == (((7, "2"), (7, "3")), ((7, "3"),))
    built(tables, 8, horizons=((7, "2"), (7, "3")), number=101)
    tables.source.set_properties(**TRACKED, **{"delta.appendOnly": "true"})
    tables.source.append()
    (step,) = steps(tables.apply(options=LOG))
    assert step.before.horizons == ((7, "2"), (7, "3")), "it was on already"
    off = {**TRACKED, "delta.rowTrackingSuspended": "true"}
    built(tables, 10, horizons=((7, "3"),), number=102)
    tables.source.set_properties(**off)
    tables.source.set_properties(**TRACKED)
    tables.source.append()
    (step,) = steps(tables.apply(options=LOG))
    assert step.before.horizons == ((12, "3"),), "it was suspended in between"


def test_every_step_of_a_plan_passes_row_tracking(tables: Tables) -> None:
    """Each goes on with what the one before it held: an event that one let in is not late to the next."""
    tables.source.set_properties(**UNDER)
    built(tables, 6, horizons=((1, "3"),))
    tables.source.append()  # 7
    tables.source.set_properties(**TRACKED)
    tables.source.append()
    tables.source.append()
    made = steps(tables.apply(options=LOG, versions_per_commit=1))
    assert [(s.ending_version, s.horizons) for s in made] == [
        (7, ((8, "3"),)),
        (9, ((8, "3"),)),
        (10, ((9, "3"),)),
    ]
    assert made[0].before.horizons == ((8, "3"),)
    load, *made_ = steps(tables.apply(options=LOG, mode="reset", starting_version=7))
    assert (load.ending_version, load.horizons) == (6, ((8, "3"),))
    assert made_[-1].ending_version == 10


def test_row_tracking_without_a_horizon(tables: Tables) -> None:
    built(tables, 2)
    tables.source.set_properties(**FEED, **{"delta.enableRowTracking": "true"})
    tables.source.commit("MERGE", tables.source.add(), parameters={"predicate": "x"})
    (step,) = steps(tables.apply(options=LOG))
    assert (step.ending_version, step.before.horizons, step.horizons) == (7, (), ())
    assert read(step)[0][:2] == (3, 7), "rows that a MERGE only adds are events"


def test_a_seal_alone_and_a_reload_pass_row_tracking_too(tables: Tables) -> None:
    tracked(tables)
    (step,) = steps(tables.apply(options=LOG, now=tables.source.created + 40 * 86_400_000))
    assert (step.kind, step.ending_version) == ("renew", 7)
    assert step.before.horizons == ((7, "2"), (7, "3"))
    tables.source.append()
    (step,) = steps(tables.apply(options=LOG, mode="reload"))
    assert (step.before.horizons, step.horizons) == (((7, "2"), (7, "3")), ((8, "3"),))
    (step,) = steps(tables.apply(options=LOG, mode="reload", ending_version=6))
    assert step.before.horizons == ((1, "2"), (6, "3")), "nothing lies in between"


@pytest.mark.parametrize(("on_late", "known"), [("fail", ((9, "3"),)), ("discard", ((1, "3"),))])
def test_a_reload_beyond_a_cleaned_log(tables: Tables, on_late: Any, known: Any) -> None:
    """Where nothing can have been discarded, all events that are there count."""
    options = replace(LOG, on_late=on_late)
    tables.source.set_properties(**UNDER)
    built(tables, 5, options, horizons=((1, "3"),))
    tables.source.set_properties(**TRACKED)
    tables.source.append()
    tables.source.checkpoint(*range(8))
    tables.source.append()
    (step,) = steps(tables.apply(options=options, on_versions_expired="reload"))
    assert (step.kind, step.ending_version, step.before.horizons) == ("reload", 9, known)


def test_a_pipeline_that_takes_over_knows_row_tracking(tables: Tables) -> None:
    tracked(tables)
    tables.source.append()
    plan = tables.apply(options=LOG, pipeline="q", take_over_from="p")
    assert [step.kind for step in steps(plan)] == ["take_over", "take_over", "apply"]
    assert steps(plan)[-1].before.horizons == ((7, "2"), (7, "3"))


# -- full copies --------------------------------------------------------------------------------
def test_each_copy_is_told_from_the_one_before(tables: Tables) -> None:
    tables.source.overwrite()
    tables.source.optimize()
    tables.source.overwrite()
    built(tables, 5, replace(COPIES, stored_as_scd_type=2))
    (step,) = steps(tables.apply(options=replace(COPIES, stored_as_scd_type=2)))
    assert read(step) == [(6, 6, "snapshot_diff"), (8, 8, "snapshot_diff")]
    assert all(read_range.net and len(read_range.timestamps) == 1 for read_range in step.read.ranges)
    partial = replace(COPIES, ignore_null_updates=True)
    built(tables, 5, partial, number=101)
    assert read(steps(tables.apply(options=partial))[0]) == read(step)


def test_of_type_1_only_the_newest_copy_counts(tables: Tables) -> None:
    tables.source.set_properties()
    tables.source.overwrite()
    tables.source.overwrite()
    for options in (COPIES, replace(COPIES, stored_as_scd_type=2), LOG):
        assert tables.apply(options=options).notes == (), "copies and events need no feed"
    assert "feed" in tables.apply(options=KEYED).notes[0]
    built(tables, 6, COPIES)
    (step,) = steps(tables.apply(options=COPIES))
    assert read(step) == [(7, 8, "snapshot_diff")]


@pytest.mark.parametrize("options", [COPIES, replace(COPIES, stored_as_scd_type=2)], ids=["newest", "each"])
def test_a_copy_that_replaces_the_table_needs_no_feed(tables: Tables, options: ApplyOptions) -> None:
    tables.source.set_properties()
    built(tables, 6, options)
    tables.source.configuration = {}
    tables.source.replace_table("other")
    plan = tables.apply(options=options)
    assert read(steps(plan)[0]) == [(7, 7, "snapshot_diff")]
    assert steps(plan)[-1].watermark.table_id == "other"
    assert "replaced inside its log" in plan.notes[0]


@pytest.mark.parametrize("options", [COPIES, replace(COPIES, stored_as_scd_type=2)], ids=["newest", "each"])
@pytest.mark.parametrize(
    "empties",
    [lambda t: t.truncate(), lambda t: t.commit("WRITE", *t.removes(), t.add(rows=0))],
    ids=["no file", "a file without rows"],
)
def test_a_copy_without_rows_is_refused(
    tables: Tables, options: ApplyOptions, empties: Callable[[LogTable], Any]
) -> None:
    each = options.stored_as_scd_type == 2
    built(tables, 5, options)
    empties(tables.source)
    for mode in ("incremental", "reload", "reset"):
        given: dict[str, Any] = {"mode": mode, "discard_history": mode == "reset" and each}
        with pytest.raises(EmptyCopy, match="The copy in version 6 of"):
            tables.apply(options=options, **given)
        allowed = tables.apply(options=options, allow_empty=True, **given)
        assert steps(allowed)[-1].ending_version == 6
    # A whole copy follows. A current table takes the newest copy alone; a history has each of them.
    tables.source.overwrite()
    refused = {} if each else {"versions_per_commit": 1}
    with pytest.raises(EmptyCopy, match="version 6"):
        tables.apply(options=options, **refused)
    assert steps(tables.apply(options=options, mode="reload" if each else "incremental"))[-1].at == 7


def test_a_copy_whose_rows_the_log_does_not_count(tables: Tables) -> None:
    """Without statistics, the file itself decides; a file that is missing counts as one with rows."""
    built(tables, 5, COPIES)
    tables.source.commit("WRITE", *tables.source.removes(), tables.source.add(rows=None))
    assert steps(tables.apply(options=COPIES))[-1].ending_version == 6


NEWEST_ALONE, EACH = COPIES, replace(COPIES, stored_as_scd_type=2)


_PARTLY = {"mode": "Overwrite", "predicate": "day = 1"}


def copy_of(table: LogTable, rows: int | None, **parameters: str) -> int:
    actions = (table.add(rows=rows), *table.removes())
    return table.commit("WRITE", *actions, parameters={"mode": "Overwrite", **parameters})


@pytest.mark.parametrize("operation", ["CREATE TABLE AS SELECT", "WRITE"])
@pytest.mark.parametrize("options", [NEWEST_ALONE, EACH], ids=["newest", "each"])
def test_the_commit_that_creates_the_table_is_a_copy(
    tmp_path: Path, options: ApplyOptions, operation: str
) -> None:
    source = LogTable(tmp_path / "source", table_id="source-id")
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
    given = {"mode": "ErrorIfExists"} if operation == "WRITE" else None
    source.commit(operation, protocol, source.metadata(), source.add(rows=1000), parameters=given)
    tables = Tables(source, LogTable(tmp_path / "target"), LogTable(tmp_path / "staging", table_id="st"))
    built(tables, 0, options)
    copy_of(source, 400)
    with pytest.raises(LimitExceeded, match=r"version 1 of .* has 400 rows, .* version 0 has 1000"):
        tables.apply(options=options)


@pytest.mark.parametrize("options", [NEWEST_ALONE, EACH], ids=["newest", "each"])
@pytest.mark.parametrize(
    ("rows", "refused"),
    [(1000, False), (501, False), (500, True), (1, True), (None, False)],
)
def test_a_copy_that_was_cut_off_is_refused(
    tables: Tables, options: ApplyOptions, rows: int | None, *, refused: bool
) -> None:
    copy_of(tables.source, 1000)
    copy_of(tables.source, rows)
    built(tables, 6, options)
    if not refused:
        assert steps(tables.apply(options=options))[-1].ending_version == 7
        return
    with pytest.raises(
        LimitExceeded, match=rf"version 7 of .* has {rows} rows, .* version 6 has 1000"
    ) as found:
        tables.apply(options=options)
    # A person approves exactly this copy; a limit of one's own, which the job checks, replaces the default.
    text = found.value.remedy.partition("approve = ")[2].partition(";")[0]
    assert text.startswith("7-")
    assert steps(tables.apply(options=options, approve=text))[-1].ending_version == 7
    assert steps(tables.apply(options=options, max_deleted="60 %"))[-1].ending_version == 7
    with pytest.raises(LimitExceeded, match="approve is 7-000000000000, which is for another change"):
        tables.apply(options=options, approve="7-000000000000")
    if options is NEWEST_ALONE:
        # Another copy was not approved.
        copy_of(tables.source, 3)
        with pytest.raises(LimitExceeded):
            tables.apply(options=options, approve=text)


def test_the_copy_before_is_found_behind_maintenance(tables: Tables) -> None:
    copy_of(tables.source, 1000)
    for _ in range(3):
        tables.source.optimize()
    built(tables, 9, COPIES)
    copy_of(tables.source, 400)
    with pytest.raises(LimitExceeded, match="version 6 has 1000"):
        tables.apply(options=COPIES)
    # A reload takes the same copy; a limit on what it changes is the job's.
    with pytest.raises(LimitExceeded, match="version 6 has 1000"):
        tables.apply(options=COPIES, mode="reload")
    assert steps(tables.apply(options=COPIES, max_changed="90 %"))[-1].ending_version == 10


def test_an_empty_copy_that_is_allowed_has_lost_no_rows(tables: Tables) -> None:
    copy_of(tables.source, 1000)
    built(tables, 6, COPIES)
    copy_of(tables.source, 0)
    with pytest.raises(EmptyCopy):
        tables.apply(options=COPIES)
    assert steps(tables.apply(options=COPIES, allow_empty=True))[-1].ending_version == 7


def test_small_copies_and_partial_writes_are_not_compared(tables: Tables) -> None:
    copy_of(tables.source, 999)
    built(tables, 6, COPIES)
    copy_of(tables.source, 1)
    assert steps(tables.apply(options=COPIES))[-1].ending_version == 7
    copy_of(tables.source, 5000)
    copy_of(tables.source, 10, predicate="day = 1")
    assert steps(tables.apply(options=COPIES))[-1].ending_version == 9
    built(tables, 8, COPIES, number=101)
    assert steps(tables.apply(options=COPIES))[-1].ending_version == 9


def test_a_copy_has_at_least_so_many_rows(tables: Tables) -> None:
    copy_of(tables.source, 50)
    built(tables, 5, COPIES)
    assert steps(tables.apply(options=COPIES, min_source_rows=50))[-1].ending_version == 6
    with pytest.raises(LimitExceeded, match="it has 50 rows, and min_source_rows is 51"):
        tables.apply(options=COPIES, min_source_rows=51)


@pytest.mark.parametrize("options", [NEWEST_ALONE, EACH], ids=["newest", "each"])
@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.commit("WRITE", *t.removes(), t.add(rows=40), parameters=_PARTLY),
        lambda t: t.commit("DELETE", *t.removes(), t.add(rows=40), parameters={"predicate": '["id > 9"]'}),
        lambda t: t.commit("MERGE", *t.removes(), t.add(rows=40)),
    ],
    ids=["replaceWhere", "DELETE", "MERGE"],
)
def test_a_copy_has_at_least_so_many_rows_however_it_is_written(
    tables: Tables, options: ApplyOptions, write: Callable[[LogTable], Any]
) -> None:
    copy_of(tables.source, 50)
    built(tables, 6, options)
    write(tables.source)
    for mode in ("incremental", "reload"):
        applied = steps(tables.apply(options=options, min_source_rows=40, mode=mode))[-1]
        assert applied.ending_version == 7
        with pytest.raises(LimitExceeded, match=r"version 7 of .* has 40 rows, and min_source_rows is 41"):
            tables.apply(options=options, min_source_rows=41, mode=mode)


def test_the_rows_of_a_copy_that_is_appended_after_a_truncate_are_counted(tables: Tables) -> None:
    copy_of(tables.source, 50)
    built(tables, 6, COPIES)
    tables.source.truncate()
    tables.source.commit("WRITE", tables.source.add(rows=40), parameters={"mode": "Append"})
    assert steps(tables.apply(options=COPIES, min_source_rows=40))[-1].ending_version == 8
    with pytest.raises(LimitExceeded, match=r"version 8 of .* has 40 rows, and min_source_rows is 41"):
        tables.apply(options=COPIES, min_source_rows=41)
    # The log does not count the rows of every file.
    tables.source.commit("WRITE", tables.source.add(rows=None), parameters={"mode": "Append"})
    assert steps(tables.apply(options=COPIES, min_source_rows=41))[-1].ending_version == 9


def test_only_copies_may_not_be_empty(tables: Tables) -> None:
    built(tables, 5, KEYED)
    tables.source.truncate()
    assert steps(tables.apply(options=KEYED))[-1].ending_version == 6
    with pytest.raises(InvalidConfiguration, match="allow_empty is given with source_kind 'change_feed'"):
        tables.apply(options=KEYED, allow_empty=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"ignore_null_updates": True},
        {"ignore_null_updates_column_list": ("name",)},
        {"columns_to_update": "name"},
        {"delete_mode": "soft"},
    ],
    ids=str,
)
def test_changes_that_must_not_be_netted(tables: Tables, changes: dict[str, Any]) -> None:
    """Columns that only the first of two changes carried would be lost, or the values of a deleted row."""
    tables.source.set_properties()
    tables.source.overwrite()
    tables.source.overwrite()
    built(tables, 6, KEYED)
    assert read(steps(tables.apply())[0]) == [(7, 8, "snapshot_diff")]
    options = replace(KEYED, **changes)
    built(tables, 6, options, number=101)
    with pytest.raises(ChangeFeedDisabled):
        tables.apply(options=options)
    copies = replace(COPIES, **changes)
    built(tables, 6, copies, number=102)
    assert [end for end, _, _ in read(steps(tables.apply(options=copies))[0])] == [7, 8]


# -- the quarantine -----------------------------------------------------------------------------
QUARANTINES = replace(LOG, on_invalid="quarantine")


def beside(tables: Tables) -> LogTable:
    return LogTable(tables.target.path.with_name("target__quarantine"), table_id="q")


def put_aside(tables: Tables, number: int, start: int, end: int, kind: str = "apply") -> LogTable:
    table = beside(tables)
    table.write_seal(seal(number, end, source=tables.source, start=start, kind=kind), operation="WRITE")
    return table


def test_the_quarantine_lies_beside_the_target(tables: Tables) -> None:
    for options, uri in ((QUARANTINES, beside(tables).uri), (LOG, "")):
        plan = tables.apply(options=options, target=tables.target.uri + "/")
        assert isinstance(plan.spec, ApplySpec)
        assert plan.spec.quarantine_uri == uri
    with pytest.raises(InvalidConfiguration, match="source and quarantine are the same table"):
        tables.apply(options=QUARANTINES, source=beside(tables).uri)


def test_a_range_whose_quarantine_is_written_is_finished_first(tables: Tables) -> None:
    built(tables, 2)
    put_aside(tables, 101, 3, 4)
    for given in ({}, {"ending_version": 3}, {"versions_per_commit": 1}, {"max_versions": 1}):
        plan = tables.apply(options=QUARANTINES, **given)
        (step,) = steps(plan)
        assert (step.starting_version, step.ending_version, step.seal_number) == (3, 4, 101)
        assert "versions 3-4" in plan.notes[0]
    assert tables.apply(options=LOG).versions == VersionRange(3, 5), "no quarantine is asked for"


def test_a_target_that_was_moved_without_its_quarantine(tables: Tables) -> None:
    """A new quarantine at the new place would hide that the rows of the old one are elsewhere."""
    built(tables, 2)
    configuration = {**validation.described(QUARANTINES), ASIDE: True}
    tables.sealed(3, 101, configuration=configuration)
    for given in ({}, {"mode": "repair", "starting_version": 2}, {"mode": "repair", "repair_keys": "id = 1"}):
        for options in (QUARANTINES, LOG):
            with pytest.raises(QuarantineMissing, match=r"there is no table .*target__quarantine"):
                tables.apply(options=options, **given)
    place = (tables.target.uri, tables.source.uri)
    assert "move its quarantine" in run_sync(status_async("p", place[0], source=place[1])).findings[-1]
    verified = run_sync(plan_verify_async(VerifyRequest(pipeline="p", target=place[0]))).outcome
    assert [one.check for one in verified.checks if "has set rows" in one.detail] == ["seal"]
    # These modes set rows aside again.
    for mode in ("reload", "reset"):
        assert tables.apply(options=QUARANTINES, mode=mode).spec is not None
    beside(tables).create()
    assert tables.apply(options=QUARANTINES).versions == VersionRange(4, 5)


@pytest.mark.parametrize(
    ("number", "start", "end", "kind"),
    [
        (100, 1, 2, "apply"),
        (102, 3, 4, "apply"),
        (101, 2, 4, "apply"),
        (101, 3, 4, "repair"),
        (101, 4, 4, "reload"),
    ],
)
def test_a_quarantine_that_says_nothing_of_the_next_range(
    tables: Tables, number: int, start: int, end: int, kind: str
) -> None:
    built(tables, 2)
    assert tables.apply(options=QUARANTINES).versions == VersionRange(3, 5), "it is not there"
    table = put_aside(tables, number, start, end, kind)
    assert tables.apply(options=QUARANTINES).versions == VersionRange(3, 5)
    table.file(0).write_text("{")
    with pytest.raises(CorruptLog):
        tables.apply(options=QUARANTINES)


@pytest.mark.parametrize(("refused", "end"), [(100, 4), (101, 5)])
def test_a_range_whose_rows_the_target_refused_may_end_later(tables: Tables, refused: int, end: int) -> None:
    """With the same end, the rows that correct the refused ones would never be read."""
    built(tables, 2)
    table = put_aside(tables, 101, 3, 4)
    txn = {"appId": refused_id(seal(101, 4, source=tables.source).pipeline), "version": refused}
    table.commit("WRITE", {"txn": {**txn, "lastUpdated": 0}}, user_metadata="refused")
    assert tables.apply(options=QUARANTINES).versions == VersionRange(3, end)


def test_a_load_whose_quarantine_is_written_keeps_its_version(tables: Tables) -> None:
    tables.target.create()
    put_aside(tables, tables.target.created, 4, 4, "load")
    (step,) = steps(tables.apply(options=QUARANTINES))
    assert (step.kind, step.ending_version) == ("load", 4)


# -- deletions of an expiry -----------------------------------------------------------------------
ONLY_DELETES = {
    "matchedPredicates": '[{"actionType":"delete"}]',
    "notMatchedPredicates": "[]",
    "notMatchedBySourcePredicates": "[]",
}


def expire(tables: Tables, below: str) -> int:
    """Delete as an expiry does; what is none of them is in tests/unit/maintain/test_marks.py."""
    text = maintenance_tags.written("expire", below=below)
    source = tables.source
    return source.commit(
        "MERGE", *source.removes(), source.add(), parameters=dict(ONLY_DELETES), user_metadata=text
    )


def test_events_from_before_a_deletion_are_applied_as_they_were(tables: Tables) -> None:
    """A target that was restored to before them: the log as of their step has all that it deletes."""
    built(tables, 2)
    tables.source.set_properties(**FEED, **{HORIZON: "3"})  # 6
    expire(tables, "3")  # 7
    (step,) = steps(tables.apply(options=LOG))
    assert (step.starting_version, step.ending_version, step.horizons) == (3, 6, ())
    tables.source.append()  # 8
    made = steps(tables.apply(options=LOG))
    assert [(s.starting_version, s.ending_version, s.horizons) for s in made] == [
        (3, 6, ()),
        (7, 8, ((7, "3"),)),
    ]
    # Events that came under the very horizon are none that it deletes.
    built(tables, 7, number=101)
    expire(tables, "3")  # 9
    tables.source.append()  # 10
    assert [(s.starting_version, s.ending_version) for s in steps(tables.apply(options=LOG))] == [(8, 10)]


def test_a_reload_over_a_deletion_that_came_first(tables: Tables) -> None:
    built(tables, 2, options=HISTORY)
    tables.source.set_properties(**FEED, **{HORIZON: "3"})  # 6
    (step,) = steps(tables.apply(options=HISTORY, mode="reload"))
    assert step.kind == "reload"
    expire(tables, "3")  # 7
    with pytest.raises(VersionsExpired, match=r"Events of version 3 .* A reload would lose them") as refused:
        tables.apply(options=HISTORY, mode="reload")
    assert 'mode="reset"' in refused.value.remedy
    built(tables, 6, options=HISTORY, number=101)
    assert [s.kind for s in steps(tables.apply(options=HISTORY, mode="reload"))] == ["reload"]
