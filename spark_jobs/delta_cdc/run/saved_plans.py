"""What the tries of one piece of work know of each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson

if TYPE_CHECKING:
    from delta_cdc.core.spec import ApplySpec, CommitSpec, IngestSpec, ReadSpec, Step
    from delta_cdc.planning.reconcile import RecordedWatermark

#: More tries than anybody waits for; the pin must not grow without bound.
_KEPT_FINGERPRINTS = 40


class Planned(Protocol):
    """What a flow has to know of a plan, whichever kind it is.

    ``ending_version`` is where the plan ends: a version of a table, or the number of an ingest's seal.
    """

    @property
    def plan_key(self) -> str: ...
    @property
    def recorded(self) -> RecordedWatermark | None: ...
    @property
    def ending_version(self) -> int | None: ...
    @property
    def spec(self) -> ApplySpec | ReadSpec | CommitSpec | IngestSpec | None: ...
    @property
    def steps(self) -> tuple[Step, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


class SavedPlans(Protocol):
    """Keeps what was planned, a JSON object, across the tries of one piece of work.

    With it a retry plans the same range, and knows the commit of a try that died before it published, or
    whose driver lived on, as its own. So a pin stays until :func:`published` is called.

    A lost pin costs nothing but a longer range, and a commit that is not announced: the target's log is
    what proves.
    """

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what was pinned, or None."""

    def set(self, key: str, value: dict[str, Any]) -> None:
        """SavedPlan a value."""

    def delete(self, key: str) -> None:
        """Forget a pin; one that isn't there is no error."""


class PlansInMemory:
    """Keeps pins for one call only."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Any]] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what was pinned, or None."""
        return self._kept.get(key)

    def set(self, key: str, value: dict[str, Any]) -> None:
        """SavedPlan a value."""
        self._kept[key] = value

    def delete(self, key: str) -> None:
        """Forget a pin."""
        self._kept.pop(key, None)


@dataclass(frozen=True)
class SavedPlan:
    """What the tries of one piece of work have planned so far.

    :param fingerprints: of the plan of every try; each commit of these plans is ours
    :param planned_version: the oldest version of the written table that one of them was planned on; -1 is
        none
    :param seal_number: the number of a load's seal, where there was no target
    :param asked: what was asked for beside the changes after the watermark; "" is nothing
    :param lasts: fingerprints of the last step of every plan for it
    :param run_id: who made the tries, where the caller did not say it
    """

    ending_version: int | None = None
    fingerprints: tuple[str, ...] = ()
    planned_version: int = -1
    seal_number: int | None = None
    asked: str = ""
    lasts: tuple[str, ...] = ()
    run_id: str = ""

    @classmethod
    def read(cls, value: dict[str, Any] | None) -> SavedPlan:
        """People can edit the store: what is not as we write it is no pin."""
        try:
            saved_plan = codec.decoded(cls, value or {})
        except UnreadableJson:
            return cls()
        # A load of no rows ends before version 0, and bounds nothing.
        return (
            replace(saved_plan, ending_version=None) if (saved_plan.ending_version or 0) < 0 else saved_plan
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        made: dict[str, Any] = codec.encoded(self)
        return made

    def following(self, plan: Planned, name: str, planned: int, number: int, asked: str = "") -> SavedPlan:
        """Return the pin with one more plan.

        :param asked: what the plan is for; plans for other work are not taken for it
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
        )
