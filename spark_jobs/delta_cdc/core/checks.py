"""Names and results of verification checks. Standard library only: it travels to the Spark driver."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from delta_cdc.core.errors import DeltaCdcError

Status = Literal["ok", "finding", "skipped"]

SEAL, WATERMARK, BACKUP, CONFIGURATION = "seal", "watermark", "backup", "configuration"
NULL_KEYS, UNIQUE_KEYS = "null_keys", "unique_keys"
ONE_OPEN_ROW, OVERLAPS, START_BEFORE_END = "one_open_row", "overlaps", "start_before_end"
EQUALS_SOURCE, CURRENT_EQUALS_HISTORY = "equals_source", "current_equals_history"

#: Checks that read only the logs.
OF_LOGS = (SEAL, WATERMARK, BACKUP, CONFIGURATION)
#: Checks made by one scan of the target.
OF_ROWS = (NULL_KEYS, UNIQUE_KEYS, ONE_OPEN_ROW, OVERLAPS, START_BEFORE_END)
#: All checks, in the order of the report; the last two compare with another table.
CHECKS = (*OF_LOGS, *OF_ROWS, EQUALS_SOURCE, CURRENT_EQUALS_HISTORY)

#: The most keys that a check lists as samples.
MOST_SAMPLES = 5
_LONGEST_SAMPLE, _LONGEST_DETAIL = 160, 600


@dataclass(frozen=True)
class Check:
    """The result of one check.

    :param check: its name, one of :data:`CHECKS`
    :param status: ``ok``, ``finding``, or ``skipped``: not applicable, or not possible
    :param count: the number of wrong keys, rows or facts
    :param detail: a sentence: what was checked, what is wrong, or why the check was skipped
    :param samples: some of the keys, as texts
    :param remedy: what to do about a finding
    """

    check: str
    status: Status
    count: int = 0
    detail: str = ""
    samples: tuple[str, ...] = ()
    remedy: str = ""

    def __post_init__(self) -> None:
        samples = tuple(_shortened(sample, _LONGEST_SAMPLE) for sample in self.samples[:MOST_SAMPLES])
        object.__setattr__(self, "samples", samples)
        object.__setattr__(self, "detail", _shortened(self.detail, _LONGEST_DETAIL))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "samples": list(self.samples)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Check:
        """Read the JSON form."""
        return cls(**{**data, "samples": tuple(data.get("samples", ()))})


@dataclass(frozen=True)
class Verification:
    """The result of the verification of one target.

    :param table: its location
    :param version: the version that all checks read; None if there is no table
    :param checks: one per requested check, in the order of :data:`CHECKS`
    :param error: the reason why some or all checks did not run
    """

    pipeline: str
    table: str
    version: int | None = None
    checks: tuple[Check, ...] = ()
    error: DeltaCdcError | None = None

    def __post_init__(self) -> None:
        ordered = sorted(self.checks, key=lambda one: CHECKS.index(one.check))
        object.__setattr__(self, "checks", tuple(ordered))

    @property
    def findings(self) -> tuple[Check, ...]:
        """Return the checks that found a problem."""
        return tuple(check for check in self.checks if check.status == "finding")

    def to_rows(self) -> list[dict[str, Any]]:
        """Return the plain JSON form that is published: one entry per check."""
        identity = {"pipeline": self.pipeline, "table": self.table, "version": self.version}
        return [{**identity, **check.to_dict()} for check in self.checks]


def ok(check: str, detail: str = "") -> Check:
    """Return the result of a check that found nothing wrong."""
    return Check(check, "ok", detail=detail)


def skipped(check: str, why: str) -> Check:
    """Return the result of a check that was not run."""
    return Check(check, "skipped", detail=why)


def finding(check: str, detail: str, remedy: str, *, count: int = 1, samples: tuple[str, ...] = ()) -> Check:
    """Return the result of a check that found a problem."""
    return Check(check, "finding", count, detail, samples, remedy)


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
