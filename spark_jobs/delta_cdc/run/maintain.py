"""Runs the maintenance of several tables in one application; a failure of one does not affect the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import DeltaCdcError, JobFailed, TablesFailed, TablesRefused
from delta_cdc.core.spec import VacuumSpec
from delta_cdc.planning.vacuum import deleted
from delta_cdc.run.rounds import in_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delta_cdc.core.spec import BatchSpec, JobResult, Part
    from delta_cdc.planning.plan import JobPlan
    from delta_cdc.run.rounds import Application

    Plans = Mapping[str, JobPlan[Part, dict[str, Any]] | DeltaCdcError]


def run(
    plans: Plans,
    *,
    execute: Callable[[BatchSpec], JobResult],
    run_id: str,
    storage_options: dict[str, str] | None = None,
) -> tuple[list[dict[str, Any]], dict[str, DeltaCdcError]]:
    """Run the jobs of plans. If none of them has a job, ``execute`` is not called.

    :param plans: by the table's name, as the user wrote it: its plan, or why there is no plan
    :param execute: runs a batch in a Spark application
    :return: for logs and XCom: ``table``, ``status`` (``done``, ``nothing`` or ``failed``) and the outcome of
        each table; and the errors of the tables that failed
    """
    errors: dict[str, DeltaCdcError] = {}

    async def maintained(table: str, application: Application) -> dict[str, Any]:
        plan = plans[table]
        try:
            if isinstance(plan, DeltaCdcError):
                raise plan
            row = {"table": table, "status": "nothing", **plan.outcome, "note": "; ".join(plan.notes)}
            if plan.spec is not None:
                row |= {"status": "done", **_outcome(table, await application.run(plan.spec))}
                if isinstance(plan.spec, VacuumSpec) and not plan.spec.dry_run:
                    row |= await deleted(plan.spec, storage_options)
        except DeltaCdcError as error:
            errors[table] = error
            return {"table": table, "status": "failed", "note": type(error).__name__}
        return row

    rows = in_rounds(maintained, list(plans), execute, run_id=run_id)
    return rows, {table: errors[table] for table in plans if table in errors}


def _outcome(table: str, result: JobResult) -> dict[str, Any]:
    """Return what a job reports.

    :raises DeltaCdcError: the job failed
    """
    if result.status in ("committed", "planned"):
        return {name: value for row in result.tables for name, value in row.items() if name != "table"}
    if result.error is not None:
        raise DeltaCdcError.from_dict(result.error)
    raise JobFailed(
        f"{table}: the job ended as {result.status}: {result.message}",
        remedy="run again: the next plan shows what remains.",
    )


def raise_failed(errors: Mapping[str, DeltaCdcError]) -> None:
    """Raise the errors of tables, as one.

    :raises DeltaCdcError: if all tables have the same error class, this one; else :class:`TablesFailed`
    """
    if not errors:
        return
    first = next(iter(errors.values()))
    if len(errors) == 1:
        raise first
    if len({type(error) for error in errors.values()}) == 1:
        raise type(first)(
            " ".join(error.message for error in errors.values()), remedy=first.remedy, argument=first.argument
        )
    passing = any(error.retryable for error in errors.values())
    raise (TablesFailed if passing else TablesRefused)(
        " ".join(f"{table}: {type(error).__name__}: {error.message}" for table, error in errors.items()),
        remedy=" ".join(dict.fromkeys(error.remedy for error in errors.values())),
    )
