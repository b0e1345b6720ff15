"""Resolves mode ``interval``: a backfill up to the interval's end, or a repair of what is already applied.

A backfill by dates processes the source interval by interval. If the watermark is before the end of an
interval, the run applies everything up to that end. Otherwise it computes the keys that changed in the
interval again and leaves the watermark unchanged, so the intervals may run in any order, also on a target
that is ahead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import validation
from delta_cdc.core.retention import expired
from delta_cdc.core.rules import check_apply
from delta_cdc.core.uris import canonical_uri
from delta_cdc.planning.observe import first_version
from delta_cdc.planning.plan import Plan

if TYPE_CHECKING:
    from delta_cdc.core.requests import ApplyRequest
    from delta_cdc.planning.observe import Observation


async def resolved(observed: Observation[ApplyRequest]) -> Observation[ApplyRequest] | Plan:
    """Return what mode ``interval`` means for the target's current state: another mode, or an empty plan.

    :param observed: its bounds are the first and the last version of the interval; the last is -1 if all
        versions are later
    :raises VersionsExpired: the log no longer contains the versions of the interval
    """
    request = observed.request
    assert observed.starting is not None
    assert observed.ending is not None
    uri, seal = observed.source.uri, observed.seal
    bounds = f"from {request.starting_timestamp} to {request.ending_timestamp}"
    if observed.ending < 0:
        oldest = await observed.log.oldest_version()
        if oldest > 0:
            raise expired(
                f"The log of {uri} begins with version {oldest}, which is later than the interval {bounds}.",
                or_else="begin the backfill at a later date; or ",
            )
        return _nothing(observed, f"{uri} did not exist yet in the interval {bounds}.")
    if seal is None or seal.watermark.version < observed.ending:
        note = f"The interval {bounds} ends with version {observed.ending} of {uri}, where the run ends."
        forward = _resolved(request, mode="backfill", ending_version=observed.ending)
        return replace(observed, request=forward, starting=None, found=(*observed.found, note))
    if request.options.insert_only:
        return _nothing(
            observed, f"The interval {bounds} is applied, and rows without keys are not repaired."
        )
    first = observed.starting
    if validation.needs_history(request.options):
        # History begins with the load, so only the rest of the interval can be repaired.
        first = max(first, seal.state.loaded_version + 1)
    if first > observed.ending:
        if first > observed.starting:
            return _nothing(
                observed,
                f"Nothing of the interval {bounds} is to be repaired: the history in "
                f"{canonical_uri(request.target)} begins with version {seal.state.loaded_version} of {uri}.",
            )
        return _nothing(
            observed, f"Nothing of the interval {bounds} is to be repaired: {uri} got no version in it."
        )
    if first == observed.starting and request.starting_timestamp is not None:
        await first_version(observed.log, request.starting_timestamp, observed.source)
    note = (
        f"The interval {bounds} is applied already (the watermark is {seal.watermark}): the keys that "
        f"versions {first}-{observed.ending} of {uri} changed are computed again."
    )
    again = _resolved(request, mode="repair", starting_version=first, ending_version=observed.ending)
    return replace(observed, request=again, starting=first, found=(*observed.found, note))


def _resolved(
    request: ApplyRequest, *, mode: str, ending_version: int, starting_version: int | None = None
) -> ApplyRequest:
    """Return the request with the resolved mode and versions.

    :raises InvalidConfiguration: the request does not allow this mode
    """
    resolved_request = replace(
        request,
        mode=mode,
        starting_version=starting_version,
        ending_version=ending_version,
        starting_timestamp=None,
        ending_timestamp=None,
    )
    check_apply(resolved_request)
    return resolved_request


def _nothing(observed: Observation[Any], text: str) -> Plan:
    seal = observed.seal
    return Plan.nothing(observed, seal.watermark.version if seal is not None else -1, text)
