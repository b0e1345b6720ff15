"""Care of several tables in one application; what becomes of one is no matter to the others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import DeltaCdcError, JobFailed, TablesFailed, TablesRefused
from delta_cdc.core.spec import BundleSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta_cdc.core.spec import CareSpec, JobResult, Spec


@dataclass(frozen=True)
class Work:
    """One table.

    :param table: as the user named it
    :param spec: what is to be done; None where nothing is
    :param found: for people; ``table`` is among it
    :param error: why it was not done
    """

    table: str
    spec: CareSpec | None = None
    found: dict[str, Any] = field(default_factory=dict)
    error: DeltaCdcError | None = None

    @property
    def row(self) -> dict[str, Any]:
        """Return what became of it, for logs and XCom."""
        status = "done" if self.spec is not None else "nothing"
        if self.error is not None:
            return {"table": self.table, "status": "failed", "note": type(self.error).__name__}
        return {
            "table": self.table,
            "status": status,
            **{k: v for k, v in self.found.items() if k != "table"},
        }


def run(works: Sequence[Work], *, execute: Callable[[Spec], JobResult], run_id: str) -> list[Work]:
    """Do what there is to do.

    :param execute: runs a spec in a Spark application
    :return: the same tables, with what became of them
    """
    todo = [work for work in works if work.spec is not None and work.error is None]
    if not todo:
        return list(works)
    specs = tuple(work.spec for work in todo if work.spec is not None)
    result = execute(specs[0] if len(specs) == 1 else BundleSpec(run_id=run_id, parts=specs))
    # An application that fails before its parts says so once, for all of them.
    parts = result.parts or (result,) * len(specs)
    done = {work.table: _ended(work, part) for work, part in zip(todo, parts, strict=True)}
    return [done.get(work.table, work) for work in works]


def _ended(work: Work, result: JobResult) -> Work:
    if result.status not in ("committed", "planned"):
        error = DeltaCdcError.from_dict(result.error) if result.error is not None else _unnamed(work, result)
        return replace(work, error=error)
    said = {name: value for entry in result.tables for name, value in entry.items() if name != "table"}
    return replace(work, found={**work.found, **said})


def _unnamed(work: Work, result: JobResult) -> JobFailed:
    return JobFailed(
        f"{work.table}: the job ended as {result.status}: {result.message}", remedy="run again: it finds out."
    )


def raise_failed(works: Sequence[Work]) -> None:
    """Raise what went wrong; of several tables with one name, where it is one.

    :raises DeltaCdcError: the named error of a table; of several different ones :class:`TablesFailed`
    """
    errors = {work.table: work.error for work in works if work.error is not None}
    if not errors:
        return
    first = next(iter(errors.values()))
    if len(errors) == 1:
        raise first
    kinds = {type(error) for error in errors.values()}
    if len(kinds) == 1:
        raise type(first)(
            " ".join(error.message for error in errors.values()), remedy=first.remedy, argument=first.argument
        )
    passing = any(error.retryable for error in errors.values())
    raise (TablesFailed if passing else TablesRefused)(
        " ".join(f"{table}: {type(error).__name__}: {error.message}" for table, error in errors.items()),
        remedy=" ".join(dict.fromkeys(error.remedy for error in errors.values())),
    )
