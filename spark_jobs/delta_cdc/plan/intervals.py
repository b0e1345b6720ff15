"""What a share of time asks for: a first fill up to its end, or the repair of what is applied already.

A backfill by dates goes through the source interval by interval. Where the target does not hold the end of an
interval yet, everything up to it is applied, as a first fill needs it. Where it does, the keys that changed
within are computed again, and the watermark stays: so it does no harm to a target that is ahead, in whatever
order the intervals come.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc import checks
from delta_cdc.errors import VersionsExpired
from delta_cdc.log.store import canonical_uri

if TYPE_CHECKING:
    from delta_cdc.plan.request import ApplyRequest
    from delta_cdc.plan.result import Plan
    from delta_cdc.plan.sight import Sight


async def resolved(request: ApplyRequest, sight: Sight) -> tuple[ApplyRequest, Sight] | Plan:
    """Return what mode ``interval`` means for a target as it is now; or the plan that does nothing.

    :param sight: its bounds are the first version of the interval and the last one, -1 where all are later
    :raises VersionsExpired: the log no longer says which versions the interval had
    """
    assert sight.starting is not None
    assert sight.ending is not None
    uri, seal = sight.source.uri, sight.seal
    told = f"from {request.starting_timestamp} to {request.ending_timestamp}"
    if sight.ending < 0:
        oldest = await sight.log.oldest_version()
        if oldest > 0:
            raise VersionsExpired(
                f"The log of {uri} begins with version {oldest}, which is later than the interval {told}.",
                remedy="begin the backfill at a later date; or apply what is left, with mode 'incremental'.",
            )
        return _nothing(sight, f"{uri} was not there yet in the interval {told}.")
    if seal is None or seal.watermark < sight.ending:
        note = f"The interval {told} ends with version {sight.ending} of {uri}, which is the end."
        forward = _as(request, mode="backfill", ending_version=sight.ending)
        return forward, replace(sight, request=forward, starting=None, found=(*sight.found, note))
    if request.options.insert_only:
        return _nothing(sight, f"The interval {told} is applied, and rows without keys are not repaired.")
    first = sight.starting
    if checks.needs_history(request.options):
        # What lies before the load was never told; the rest of the interval can be.
        first = max(first, seal.loaded_version + 1)
    if first > sight.ending:
        text = f"Nothing of the interval {told} is to be repaired"
        if first > sight.starting:
            history = f"the history in {canonical_uri(request.target)}"
            return _nothing(sight, f"{text}: {history} begins with version {seal.loaded_version} of {uri}.")
        return _nothing(sight, f"{text}: {uri} got no version in it.")
    note = (
        f"The interval {told} is applied already (the watermark is {seal.watermark}): the keys that versions "
        f"{first}-{sight.ending} of {uri} changed are computed again."
    )
    again = _as(request, mode="repair", starting_version=first, ending_version=sight.ending)
    return again, replace(sight, request=again, starting=first, found=(*sight.found, note))


def _as(
    request: ApplyRequest, *, mode: str, ending_version: int, starting_version: int | None = None
) -> ApplyRequest:
    """Return the request in the mode that it comes to.

    :raises InvalidConfiguration: this target takes no such mode
    """
    found = replace(
        request,
        mode=mode,
        starting_version=starting_version,
        ending_version=ending_version,
        starting_timestamp=None,
        ending_timestamp=None,
    )
    found.check()
    return found


def _nothing(sight: Sight, text: str) -> Plan:
    seal = sight.seal
    return sight.nothing(seal.watermark if seal is not None else -1, text)
