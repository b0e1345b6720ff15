"""Runs the maintenance of several tables in one application; a failure of one does not affect the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import DeltaCdcError, JobFailed, TablesFailed, TablesRefused
from delta_cdc.core.spec import BundleSpec, VacuumSpec
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.vacuum import deleted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delta_cdc.core.spec import CareSpec, JobResult, Spec
    from delta_cdc.planning.plan import JobPlan

    Plans = Mapping[str, JobPlan[CareSpec, dict[str, Any]] | DeltaCdcError]


def run(
    plans: Plans,
    *,
    execute: Callable[[Spec], JobResult],
    run_id: str,
    storage_options: dict[str, str] | None = None,
) -> tuple[list[dict[str, Any]], dict[str, DeltaCdcError]]:
    """Run the jobs of plans. If none of them has a job, ``execute`` is not called.

    :param plans: by the table's name, as the user wrote it: its plan, or why there is no plan
    :param execute: runs a spec in a Spark application
    :return: for logs and XCom: ``table``, ``status`` (``done``, ``nothing`` or ``failed``) and the outcome of
        each table; and the errors of the tables that failed
    """
    errors = {table: plan for table, plan in plans.items() if isinstance(plan, DeltaCdcError)}
    outcomes: dict[str, dict[str, Any]] = {}
    jobs: dict[str, CareSpec] = {}
    for table, plan in plans.items():
        if isinstance(plan, DeltaCdcError):
            continue
        status = "nothing" if plan.spec is None else "done"
        outcomes[table] = {"status": status, **plan.outcome, "note": "; ".join(plan.notes)}
        if plan.spec is not None:
            jobs[table] = plan.spec
    if jobs:
        specs = tuple(jobs.values())
        result = execute(specs[0] if len(specs) == 1 else BundleSpec(run_id=run_id, parts=specs))
        # An application that fails before its parts has one result for all of them.
        parts = result.parts or (result,) * len(specs)
        for (table, spec), part in zip(jobs.items(), parts, strict=True):
            if part.status not in ("committed", "planned"):
                errors[table] = _error_of(table, part)
                continue
            outcomes[table] |= {k: v for row in part.tables for k, v in row.items() if k != "table"}
            if isinstance(spec, VacuumSpec) and not spec.dry_run:
                outcomes[table] |= run_sync(deleted(spec, storage_options))
    return [
        {"table": table, "status": "failed", "note": type(errors[table]).__name__}
        if table in errors
        else {"table": table, **outcomes[table]}
        for table in plans
    ], errors


def _error_of(table: str, result: JobResult) -> DeltaCdcError:
    if result.error is not None:
        return DeltaCdcError.from_dict(result.error)
    return JobFailed(
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
