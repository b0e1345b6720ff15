"""Erases keys from the tables of pipelines: a whole erasure, in rounds of jobs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.char_columns import spellings_of
from delta_cdc.core.errors import DeltaCdcError, VacuumWouldLose
from delta_cdc.core.spec import EraseSpec, OptimizeSpec, VacuumSpec
from delta_cdc.core.text_table import grid
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning import erasure
from delta_cdc.planning.optimize import plan_optimize
from delta_cdc.planning.vacuum import plan_vacuum
from delta_cdc.run import maintain

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from delta_cdc.core.spec import BatchSpec, JobResult, Part
    from delta_cdc.planning.consumers import Consumer
    from delta_cdc.planning.erasure import Flow, Place
    from delta_cdc.planning.plan import JobPlan


@dataclass(frozen=True)
class Erasure:
    """What to erase, and how.

    :param keys: each key: column -> its value as text
    :param flows: the pipelines whose tables lose the keys, with those that read these tables
    :param consumers: pipelines that must have read a table before its old files are deleted
    :param purge: also remove masked rows from the current files, and VACUUM where no consumer needs old files
    :param deletes_records: delete the records in the quarantine of an ingest that may be of a key
    :param dry_run: count what would be deleted, and write nothing
    :param refused: see :class:`~delta_cdc.planning.erasure.Flows`: an error of the report for each
    :param unknown: see :class:`~delta_cdc.planning.erasure.Flows`
    """

    keys: tuple[dict[str, str], ...] = field(repr=False)
    flows: tuple[Flow, ...]
    consumers: tuple[Consumer, ...] = ()
    purge: bool = False
    deletes_records: bool = False
    dry_run: bool = False
    single_driver: bool = False
    refused: Mapping[str, DeltaCdcError] = field(default_factory=dict)
    unknown: tuple[DeltaCdcError, ...] = ()


_NO_ROW = (
    "No row has this key: it was erased before, or the tables write it in another way, as those of a CHAR "
    "column, whose values end with blanks, if its source is not named or cannot be read."
)


@dataclass(frozen=True)
class Report:
    """What an erasure did.

    :param rows: one per table: ``table``, ``what`` it is, ``status``, ``deleted`` rows, what
        :func:`delta_cdc.planning.erasure.remains` returns, and ``note``
    :param outside: what it cannot reach, one sentence each
    :param errors: table -> why it failed; of a pipeline whose tables are not known, its name
    :param dry_run: whether the rows were only counted
    """

    rows: list[dict[str, Any]]
    outside: list[str]
    errors: dict[str, DeltaCdcError]
    dry_run: bool = False

    def __str__(self) -> str:
        """Return the table for people, under a title that says whether anything was deleted."""
        title = (
            "Dry run: nothing was written. deleted is the number of rows that an erasure would delete."
            if self.dry_run
            else "The erased rows, and until when old versions have them:"
        )
        return f"{title}\n{grid(self.rows)}"


def run(
    work: Erasure,
    *,
    execute: Callable[[BatchSpec], JobResult],
    run_id: str,
    storage_options: dict[str, str] | None = None,
) -> Report:
    """Erase keys from targets and change logs, then from the tables beside them, then purge.

    An erasure that was killed, or failed for some tables, is run again: it finds what is done.

    :param execute: runs a batch in a Spark application
    """
    lengths = run_sync(erasure.lengths_of_chars(work.flows, storage_options))
    keys = tuple(one for key in work.keys for one in spellings_of(key, lengths))
    work = replace(work, keys=keys)
    places = {place.table: place for place in erasure.places(work.flows)}
    owners = [table for table, place in places.items() if place.remembers]
    rows: dict[str, dict[str, Any]] = {}
    errors: dict[str, DeltaCdcError] = dict(work.refused)

    def noted(table: str, note: str) -> None:
        rows[table]["note"] = "; ".join(text for text in (rows[table].get("note"), note) if text)

    def run_round(plans: dict[str, JobPlan[Part, dict[str, Any]] | DeltaCdcError]) -> list[dict[str, Any]]:
        done, failed = maintain.run(plans, execute=execute, run_id=run_id, storage_options=storage_options)
        errors.update(failed)
        return done

    def erase(tables: Sequence[str]) -> None:
        plans = {table: _plan(_erase(work, places[table], run_id, storage_options)) for table in tables}
        for row in run_round(plans):
            found, unsearched = row.pop("found", 0), row.pop("unsearched", 0)
            place = places[row["table"]]
            rows[row["table"]] = {"table": row["table"], "what": place.what, **row}
            if found:
                noted(
                    row["table"],
                    f"{found} records contain the key's values and may be of it: look at them, then delete "
                    "them with quarantined_records",
                )
            if unsearched:
                noted(
                    row["table"],
                    f"{unsearched} records are bytes, in which a key may have another form: look at them"
                    if place.place == "records"
                    else f"{unsearched} rows have key columns of other names: look at them",
                )

    erase(owners)
    # A table beside another one needs the ledger of that table.
    erase([table for table, place in places.items() if not place.remembers and place.owner not in errors])
    existing = [table for table, row in rows.items() if row["status"] == "done"]
    if work.purge and not work.dry_run:
        _purge(work, existing, noted, run_round, run_id, storage_options)
    for table in existing:
        try:
            rows[table] |= run_sync(erasure.remains(table, storage_options))
        except DeltaCdcError as error:
            errors.setdefault(table, error)
    outside = [*_if_nothing(rows.values(), errors), *erasure.outside_reach(work.flows, work.unknown)]
    return Report(list(rows.values()), outside, errors, work.dry_run)


def _if_nothing(rows: Iterable[Mapping[str, Any]], errors: Mapping[str, DeltaCdcError]) -> Sequence[str]:
    """Return why no row may have had the key, although all tables were searched."""
    return () if errors or any(row.get("deleted") for row in rows) else (_NO_ROW,)


def _plan(planning: Coroutine[Any, Any, Any]) -> Any:
    """Return what a plan returns, or its error."""
    try:
        return run_sync(planning)
    except DeltaCdcError as error:
        return error


def _erase(
    work: Erasure, place: Place, run_id: str, storage_options: dict[str, str] | None
) -> Coroutine[Any, Any, JobPlan[EraseSpec, dict[str, Any]]]:
    spec = EraseSpec(
        run_id=run_id,
        table_uri=place.table,
        keys=work.keys,
        deletes_records=work.deletes_records,
        dry_run=work.dry_run,
        single_driver=work.single_driver,
    )
    return erasure.plan_erase(spec, place, storage_options)


# -- purge ------------------------------------------------------------------------------------------
def _purge(
    work: Erasure,
    tables: Sequence[str],
    noted: Callable[[str, str], None],
    run_round: Callable[[dict[str, Any]], list[dict[str, Any]]],
    run_id: str,
    storage_options: dict[str, str] | None,
) -> None:
    """Remove masked rows from the tables' current files, then delete old files that no consumer needs."""

    def optimized(table: str, *, purge: bool = False, full: bool = False) -> Any:
        spec = OptimizeSpec(
            run_id=run_id, table_uri=table, single_driver=work.single_driver, purge=purge, full=full
        )
        return _plan(plan_optimize(spec, storage_options))

    run_round({table: optimized(table, purge=True) for table in tables})
    # A log that cannot be read now is an error of the report.
    left = {table: _plan(erasure.remains(table, storage_options)) for table in tables}
    masked = [table for table, found in left.items() if isinstance(found, dict) and found["masked"]]
    if masked:
        # Delta's REORG leaves clustered files as they are.
        run_round({table: optimized(table, full=True) for table in masked})
    vacuums: dict[str, Any] = {}
    for table in tables:
        spec = VacuumSpec(run_id=run_id, table_uri=table, single_driver=work.single_driver)
        plan = _plan(plan_vacuum(spec, work.consumers, always=True, storage_options=storage_options))
        if isinstance(plan, VacuumWouldLose):
            noted(table, f"no VACUUM yet: {plan.message}")
            continue
        vacuums[table] = plan
    for row in run_round(vacuums):
        noted(row["table"], row["note"])
