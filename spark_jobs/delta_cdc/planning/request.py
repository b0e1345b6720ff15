"""Requests: what a flow has to do, and the saved state of earlier tries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from delta_cdc.core import validation
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.key_predicates import check_key_predicate
from delta_cdc.core.option_schema import APPLY, in_group
from delta_cdc.core.options import check_options
from delta_cdc.core.spec import ApplyRequest, QueryOptions, Request
from delta_cdc.core.uris import canonical_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delta_cdc.planning.topics import Looks

    Rules = Iterator[tuple[bool, str, str, str]]

_LIMITS = tuple(in_group(APPLY, "limits"))
_BOUNDS = (
    "take_over_from",
    "starting_version",
    "ending_version",
    "starting_timestamp",
    "ending_timestamp",
    *_LIMITS,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _check_common(request: Request) -> None:
    """Refuse a request that is invalid for both apply and read."""
    validation.check_pipeline(request.pipeline)
    check_bounds(request)


def check_apply(request: ApplyRequest) -> None:
    """Refuse an invalid apply request.

    :raises InvalidConfiguration: names the arguments
    """
    _check_common(request)
    check_options(request.options)
    refuse_same(
        source=request.source, target=request.target, staging=request.staging, quarantine=request.quarantine
    )
    if request.take_over_from is not None:
        validation.check_pipeline(request.take_over_from, "take_over_from")
        if request.take_over_from == request.pipeline:
            raise InvalidConfiguration(
                f"take_over_from is {request.take_over_from}, the pipeline's own name.",
                remedy="name the pipeline that built the target, or leave take_over_from out.",
                argument="take_over_from",
            )
    _check_initial_load(request)
    _check_staging(request)
    for refused, argument, what, remedy in (*_modes(request), *_repairs(request), *_policies(request)):
        if refused:
            raise validation.invalid(what, remedy, argument)
    if request.repair_keys is not None:
        check_key_predicate(request.repair_keys, request.options.keys)


def _check_staging(request: ApplyRequest) -> None:
    """Refuse bounds with staging: an apply takes a whole batch, so only the read accepts bounds."""
    if request.staging is None:
        return
    names = [name for name in _BOUNDS if getattr(request, name) is not None]
    if request.options.source_kind not in (None, "change_feed"):
        raise validation.invalid(
            f"staging and source_kind {request.options.source_kind!r} are given",
            "leave staging out: a staging table only holds changes of source_kind 'change_feed'.",
            "staging",
        )
    if names:
        raise InvalidConfiguration(
            f"staging and {', '.join(names)} are given.",
            remedy="set bounds in the read (DeltaReadChangesOperator): an apply takes a whole batch."
            if "take_over_from" not in names
            else "run once without staging to take over the target, then with it.",
            argument="staging",
        )


def _check_initial_load(request: ApplyRequest) -> None:
    if request.initial_load != "snapshot" and request.staging is not None:
        raise InvalidConfiguration(
            f"initial_load {request.initial_load!r} and staging are both given.",
            remedy="the first batch of a staging table is a snapshot; leave initial_load out.",
            argument="initial_load",
        )


_STARTS = ("starting_version", "starting_timestamp")
_POLICIES = ("on_source_replaced", "on_target_replaced", "on_versions_expired")


def _modes(r: ApplyRequest) -> Rules:
    """Yield the rules of a mode: whether the request breaks it, the argument, the message, and the remedy."""
    mode = r.mode
    yield (
        mode != "reset" and r.discard_history,
        "discard_history",
        f"discard_history is given with mode {mode!r}",
        "leave it out: only mode 'reset' discards history.",
    )
    yield (
        mode == "reset" and r.options.stored_as_scd_type == 2 and not r.discard_history,
        "mode",
        "mode is 'reset', which would delete the history of a target of SCD type 2",
        "set discard_history to delete it; or use mode 'reload', which keeps it.",
    )
    yield (
        mode == "reset" and r.sets_baseline,
        "mode",
        f"mode is 'reset' and initial_load is {r.initial_load!r}",
        "leave one of them out: a reset deletes the rows of the target, and this initial_load keeps them.",
    )
    if r.goes_on:
        return
    yield (
        mode == "interval" and not _is_interval(r),
        "mode",
        "mode is 'interval', which needs a starting and a later ending timestamp, and no other bound",
        "set starting_timestamp and ending_timestamp, and no version.",
    )
    limits = [name for name in _LIMITS if getattr(r, name) is not None]
    yield (
        bool(limits),
        "".join(limits[:1]),
        f"{', '.join(limits)} and mode {mode!r} are given",
        "leave them out: this mode makes one commit.",
    )
    yield (
        r.staging is not None,
        "staging",
        f"staging and mode {mode!r} are given",
        "leave staging out: this mode reads the source, not a staged batch.",
    )
    yield (
        mode == "reload" and any(getattr(r, name) is not None for name in _STARTS),
        "mode",
        "a start and mode 'reload' are given",
        "leave the start out: a reload compares all keys. Mode 'repair' compares those of a range.",
    )


def _is_interval(r: ApplyRequest) -> bool:
    start, end = r.starting_timestamp, r.ending_timestamp
    if start is None or end is None or r.starting_version is not None or r.ending_version is not None:
        return False
    return epoch_ms("starting_timestamp", start) < epoch_ms("ending_timestamp", end)


def _repairs(r: ApplyRequest) -> Rules:
    """Yield the rules of a repair, in the form of :func:`_modes`."""
    starts = any(getattr(r, name) is not None for name in _STARTS)
    ends = r.ending_version is not None or r.ending_timestamp is not None
    if r.mode != "repair":
        is_given = r.repair_keys is not None or r.repair_quarantined
        yield (
            is_given,
            "mode",
            f"repair is given with mode {r.mode!r}",
            "set mode to 'repair', or leave repair out.",
        )
        return
    what_to_name = (
        "set starting_version, and optionally ending_version, to repair the keys that they changed; "
        "or set keys in repair; or set quarantined in repair."
    )
    selections = [starts or ends, r.repair_keys is not None, r.repair_quarantined]
    yield (
        selections.count(True) != 1 or (ends and not starts),
        "mode",
        "mode is 'repair', which needs exactly one of a range, keys and quarantined",
        what_to_name,
    )


def _policies(r: ApplyRequest) -> Rules:
    """Yield the rules of policies, in the form of :func:`_modes`."""
    by_key = [f"mode {r.mode!r}"] if r.mode in ("repair", "reload") else []
    by_key += [f"{name} 'reload'" for name in _POLICIES if getattr(r, name) == "reload"]
    by_key += ["on_drift 'repair'"] if r.on_drift == "repair" else []
    yield (
        r.options.insert_only and bool(by_key),
        "insert_only",
        f"insert_only and {', '.join(by_key)} are given",
        "set keys and remove insert_only, because rows are compared by key. Or use mode 'reset'.",
    )
    yield (
        r.allow_empty and r.options.source_kind != "snapshot",
        "allow_empty",
        f"allow_empty is given with source_kind {r.options.source_kind!r}",
        "leave it out: it only applies to source_kind 'snapshot'.",
    )


@dataclass(frozen=True, kw_only=True)
class ReadRequest(Request):
    """A request for one read into staging.

    The baseline is the target's watermark. Without a target it is the last version committed in staging
    itself (:class:`CommitRequest`).

    :param staging: location of the staging table
    :param options: the query over the changes, and the read method
    :param versions_per_commit: maximum versions staged per commit (counted from the first that changes data),
        all in the same application; None: as many as one plan can hold
    :param bytes_per_commit: maximum bytes to read per commit
    :param output_path: folder in which the batch is also written as files, in its own subfolder
    :param output_format: format of those files, ``parquet`` or ``json``
    """

    staging: str
    options: QueryOptions = field(default_factory=QueryOptions)
    versions_per_commit: int | None = None
    bytes_per_commit: int | None = None
    output_path: str | None = None
    output_format: str = "parquet"

    def check(self) -> None:
        """Refuse an invalid request.

        :raises InvalidConfiguration: names the arguments
        """
        _check_common(self)
        validation.check_query(self.options)
        refuse_same(
            source=self.source, target=self.target, staging=self.staging, output_path=self.output_path
        )
        if self.target is not None and self.options.on_change_commit == "skip":
            raise InvalidConfiguration(
                "on_change_commit is 'skip', and a target is given, which would lack the skipped changes.",
                remedy="remove on_change_commit, or read without a target, for your own sink.",
                argument="on_change_commit",
            )


@dataclass(frozen=True, kw_only=True)
class CommitRequest:
    """A request to commit one batch.

    :param staging: location of the staging table
    :param ending_version: last version of the batch that has arrived; None: that of the open batch
    :param single_driver: see :class:`Request`
    :param storage_options: see :class:`Request`
    """

    pipeline: str
    staging: str
    ending_version: int | None = None
    single_driver: bool = False
    run_id: str = ""
    storage_options: dict[str, str] | None = field(default=None, repr=False)

    def check(self) -> None:
        """Refuse an invalid request.

        :raises InvalidConfiguration: names the arguments
        """
        validation.check_pipeline(self.pipeline)


def _nothing(_: str) -> int | None:
    return None


@dataclass(frozen=True)
class Memory:
    """State saved outside the logs; all of it is optional.

    :param end: returns the range's end that an earlier try of the same work decided, by ``plan_key``
    :param number: returns the seal number of that try, if it found no target, by ``plan_key``
    :param backup: returns the watermark backup
        (:meth:`delta_cdc.planning.reconcile.WatermarkBackup.to_dict`), which
        replaces a sealed commit that was cleaned from the target's log
    :param now_ms: the time in epoch milliseconds; None: now
    :param looks: connections to Kafka that several plans share (:class:`delta_cdc.planning.topics.Looks`)
    """

    end: Callable[[str], int | None] = _nothing
    number: Callable[[str], int | None] = _nothing
    backup: Callable[[], Any] | None = None
    now_ms: int | None = None
    looks: Looks | None = None


def epoch_ms(name: str, text: str) -> int:
    """Convert a time with offset (ISO 8601) to epoch milliseconds, rounded down.

    :param name: the argument's name, for the message
    :raises InvalidConfiguration: for anything else, including times without an offset
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidConfiguration(
            f"{name} is {text!r}.",
            remedy="write it as ISO 8601 with an offset, for instance 2026-01-31T18:00:00+00:00.",
            argument=name,
        )
    return (moment - _EPOCH) // timedelta(milliseconds=1)


class Bounds(Protocol):
    """Bounds of a range of versions."""

    @property
    def starting_version(self) -> int | None: ...
    @property
    def ending_version(self) -> int | None: ...
    @property
    def starting_timestamp(self) -> str | None: ...
    @property
    def ending_timestamp(self) -> str | None: ...


def check_bounds(bounds: Bounds) -> None:
    """Refuse bounds that are invalid or contradict each other.

    Delta does not always refuse a version and a time for the same bound.

    :raises InvalidConfiguration: names the arguments
    """
    for bound in ("starting", "ending"):
        version, time = getattr(bounds, f"{bound}_version"), getattr(bounds, f"{bound}_timestamp")
        if version is not None and time is not None:
            raise InvalidConfiguration(
                f"{bound}_version {version} and {bound}_timestamp {time} are both given.",
                remedy="set only one of the two.",
                argument=f"{bound}_version",
            )
        if time is not None:
            epoch_ms(f"{bound}_timestamp", time)
    validation.check_versions(bounds.starting_version, bounds.ending_version)


def refuse_same(**tables: str | None) -> None:
    """Refuse the same table in two roles.

    :raises InvalidConfiguration: names both
    """
    seen: dict[str, str] = {}
    for role, table in tables.items():
        if table is None:
            continue
        uri = canonical_uri(table)
        if uri in seen:
            raise InvalidConfiguration(
                f"{seen[uri]} and {role} are the same table, {uri}.",
                remedy="name two different tables.",
                argument=seen[uri],
            )
        seen[uri] = role
