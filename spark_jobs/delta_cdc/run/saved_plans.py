"""Keeps the plans of earlier tries, so that a retry continues the same work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson

if TYPE_CHECKING:
    from delta_cdc.core.spec import ApplySpec, IngestSpec, ReadSpec
    from delta_cdc.core.steps import Step
    from delta_cdc.planning.reconcile import RecordedWatermark
    from delta_cdc.run.outcomes import Outcome

#: The saved plan must not grow without bound; no work needs this many tries.
_KEPT_FINGERPRINTS = 40


class Planned(Protocol):
    """The properties of a plan that a flow needs, for every kind of plan.

    ``ending_version`` is the end of the plan: a version of a table, or the number of an ingest's seal.
    """

    @property
    def plan_key(self) -> str: ...
    @property
    def recorded(self) -> RecordedWatermark | None: ...
    @property
    def ending_version(self) -> int | None: ...
    @property
    def spec(self) -> ApplySpec | ReadSpec | IngestSpec | None: ...
    @property
    def steps(self) -> tuple[Step, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


class SavedPlans(Protocol):
    """A store that keeps plans, as JSON objects, over the tries of the same work.

    A retry reads its saved plan. So it plans the same range, and recognizes the commit of an earlier try as
    its own: of a try that died before it published, or whose driver kept running. Therefore a saved plan
    stays until the caller calls :func:`forget_saved_plans`.

    Losing a saved plan loses no data, because the target's log is the proof. A retry may then plan a longer
    range; without :data:`delta_cdc.run.outbox.Announced`, it may not announce an earlier commit.
    """

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the saved plan, or None."""

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Save a plan."""

    def delete(self, key: str) -> None:
        """Delete a saved plan; a missing one is no error."""


class PlansInMemory:
    """Keeps plans for one call only."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Any]] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the saved plan, or None."""
        return self._kept.get(key)

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Save a plan."""
        self._kept[key] = value

    def delete(self, key: str) -> None:
        """Delete a saved plan."""
        self._kept.pop(key, None)


@dataclass(frozen=True)
class SavedPlan:
    """The plans of all tries of the same work so far.

    :param fingerprints: one per plan; each commit of these plans belongs to this work
    :param planned_version: the oldest version of the written table that a plan was made on; -1 without one
    :param seal_number: the number of a load's seal, if the target did not exist
    :param asked: the work that was requested beside the changes after the watermark; "" for no such work
    :param lasts: fingerprints of the last step of every plan for that requested work
    :param run_id: the ``run_id`` of the tries, if the caller did not give one
    :param failures: how many applications of this end failed in a way that their input may have caused
    :param more: of an ingest: the apply after its batch failed because of rows, so the next try takes one
        more batch, which may correct them
    """

    ending_version: int | None = None
    fingerprints: tuple[str, ...] = ()
    planned_version: int = -1
    seal_number: int | None = None
    asked: str = ""
    lasts: tuple[str, ...] = ()
    run_id: str = ""
    failures: int = 0
    more: bool = False

    @classmethod
    def read(cls, value: dict[str, Any] | None) -> SavedPlan:
        """Return the saved plan; an empty one if the value is not readable, because people can edit the
        store."""
        try:
            saved_plan = codec.decoded(cls, value or {})
        except UnreadableJson:
            return cls()
        # A load of no rows ends below version 0, and sets no bound for later plans.
        return (
            replace(saved_plan, ending_version=None) if (saved_plan.ending_version or 0) < 0 else saved_plan
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        encoded: dict[str, Any] = codec.encoded(self)
        return encoded

    def following(self, plan: Planned, name: str, planned: int, number: int, asked: str = "") -> SavedPlan:
        """Return this saved plan with one more plan added.

        :param asked: the requested work; the last steps of plans for other work are dropped
        """
        others = tuple(other for other in self.fingerprints if other != name)
        lasts = self.lasts if asked == self.asked else ()
        return SavedPlan(
            plan.ending_version,
            (*others, name)[-_KEPT_FINGERPRINTS:],
            min(planned, self.planned_version) if others else planned,
            number if plan.recorded is None else None,
            asked,
            (*lasts, f"{name}:{plan.steps[-1].seal_number}")[-_KEPT_FINGERPRINTS:] if asked else (),
            failures=self.failures if plan.ending_version == self.ending_version else 0,
        )


def forget_saved_plans(result: Outcome, saved_plans: SavedPlans) -> None:
    """Delete the saved plan of a result that was published; this is the caller's last call.

    Until this call, a retry of the same work returns the same result, including ``applied``. After it, a
    retry finds no work.
    """
    saved_plans.delete(result.plan_key)
