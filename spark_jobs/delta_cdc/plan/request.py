"""What a flow is asked to do, and what it remembers of earlier tries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from delta_cdc import checks
from delta_cdc.errors import InvalidConfiguration
from delta_cdc.log.store import canonical_uri, spark_uri
from delta_cdc.options import check_options
from delta_cdc.spec import QueryOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delta_cdc.ingest.topics import Looks
    from delta_cdc.spec import ApplyOptions

    Rules = Iterator[tuple[bool, str, str]]

_BOUNDS = (
    "adopt_from",
    "starting_version",
    "ending_version",
    "starting_timestamp",
    "ending_timestamp",
    "max_versions",
    "max_bytes",
    "milestone_versions",
    "milestone_bytes",
)
#: What the name of a target's quarantine ends with.
_QUARANTINE = "__quarantine"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What apply and read have in common.

    :param source: path or URI of the source
    :param target: path or URI of the target, whose watermark counts; None only for a read
    :param starting_version: explicit start (inclusive); without a target: the first version whose changes
        are applied, on top of the snapshot before it
    :param ending_version: explicit end (inclusive)
    :param starting_timestamp: the start as a time (ISO 8601 with offset): the first version at or after it
    :param ending_timestamp: the end as a time: the last version at or before it
    :param max_versions: at most so many versions, counted from the first one that changes data
    :param max_bytes: at most so many bytes to read by the log, but at least one version
    :param single_driver: the user vouches that only one Spark driver at a time writes; needed on S3 without
        a log store for several writers
    :param scratch: a folder for slices will be there; without, Delta's own reader reads the change feed
    :param storage_options: options of the object store, as delta-rs names them
    """

    pipeline: str
    source: str
    target: str | None = None
    starting_version: int | None = None
    ending_version: int | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    max_versions: int | None = None
    max_bytes: int | None = None
    single_driver: bool = False
    run_id: str = ""
    scratch: bool = True
    storage_options: dict[str, str] | None = field(default=None, repr=False)

    def check(self) -> None:
        """Refuse what cannot be meant.

        :raises InvalidConfiguration: names the arguments
        """
        checks.check_pipeline(self.pipeline)
        check_bounds(self)
        _check_sizes(max_versions=self.max_versions, max_bytes=self.max_bytes)


@dataclass(frozen=True, kw_only=True)
class ApplyRequest(Request):
    """What one apply is asked to do.

    :param milestone_versions: commit after at most so many versions (from the first that changes data), all
        in the same application; None commits the whole range at once
    :param milestone_bytes: the same by bytes to read
    :param initial_load: ``"snapshot"``; ``{"from_version": N}``; ``"none"`` or ``{"none_at": V}``: the
        target's rows, if any, count as the source at its newest version, or at V
    :param adopt_from: the pipeline that built this target, whose state this pipeline takes over
    :param staging: location of a staging table whose open batch is applied instead of the source
    :param mode: ``incremental``; ``backfill``, which is the same, said by people; ``interval``: the
        first fill up to a time, or the repair of what is applied already, from the starting timestamp
        (inclusive) to the ending timestamp (exclusive); ``repair`` (some keys are computed again), ``reload``
        (all keys are) or ``reset`` (a load in the place of what is there)
    :param discard_history: ``reset`` of type 2: the history may go
    :param repair_keys: ``repair``: Spark SQL predicate over the key columns, instead of a range
    :param repair_quarantined: ``repair``: the keys are those in the quarantine table
    :param on_drift: ``fail``, ``accept`` another configuration from now on, or ``repair``: and reload
    :param on_source_replaced: ``fail`` or ``reload``
    :param on_target_replaced: ``fail`` or ``reload``
    :param on_versions_expired: ``fail`` or ``reload``
    :param dry_run: find out what would be written, and write nothing
    """

    target: str
    options: ApplyOptions
    milestone_versions: int | None = None
    milestone_bytes: int | None = None
    initial_load: str | dict[str, int] = "snapshot"
    adopt_from: str | None = None
    staging: str | None = None
    mode: str = "incremental"
    discard_history: bool = False
    repair_keys: str | None = None
    repair_quarantined: bool = False
    on_drift: str = "fail"
    on_source_replaced: str = "fail"
    on_target_replaced: str = "fail"
    on_versions_expired: str = "fail"
    dry_run: bool = False

    @property
    def quarantine(self) -> str | None:
        """Return where the quarantine is, beside the target, as Spark names it; None where none is."""
        if not (self.options.quarantines or self.repair_quarantined):
            return None
        return f"{spark_uri(self.target).rstrip('/')}{_QUARANTINE}"

    @property
    def goes_on(self) -> bool:
        """Return whether the run applies what comes after the watermark, and nothing else."""
        return self.mode in _ONWARDS

    @property
    def declares_state(self) -> bool:
        """Return whether the user vouches for the rows of a target without a seal."""
        return self.initial_load == "none" or (
            isinstance(self.initial_load, dict) and "none_at" in self.initial_load
        )

    def check(self) -> None:
        """Refuse what cannot be meant.

        :raises InvalidConfiguration: names the arguments
        """
        super().check()
        check_options(self.options)
        _check_sizes(milestone_versions=self.milestone_versions, milestone_bytes=self.milestone_bytes)
        refuse_same(source=self.source, target=self.target, staging=self.staging, quarantine=self.quarantine)
        if self.adopt_from is not None:
            checks.check_pipeline(self.adopt_from)
            if self.adopt_from == self.pipeline:
                raise InvalidConfiguration(
                    f"adopt_from is {self.adopt_from}, the pipeline's own name.",
                    remedy="name the pipeline that built the target, or leave adopt_from out.",
                )
        self._check_initial_load()
        self._check_staging()
        for refused, what, remedy in (*_modes(self), *_repairs(self), *_policies(self)):
            if refused:
                raise checks.invalid(what, remedy)

    def _check_staging(self) -> None:
        """A staged batch is applied as a whole, so what would change it can only be told to the read."""
        if self.staging is None:
            return
        names = [name for name in _BOUNDS if getattr(self, name) is not None]
        if self.options.source_kind != "change_feed":
            raise checks.invalid(
                f"staging and source_kind {self.options.source_kind!r} are given",
                "leave staging out: what is staged are changes of a table.",
            )
        if names:
            raise InvalidConfiguration(
                f"staging and {', '.join(names)} are given.",
                remedy="give bounds to the read (DeltaReadChangesOperator): a batch is applied as a whole."
                if "adopt_from" not in names
                else "run once without staging to adopt the target, then with it.",
            )

    def _check_initial_load(self) -> None:
        load = self.initial_load
        if load not in ("snapshot", "none") and not (
            isinstance(load, dict)
            and set(load) in ({"from_version"}, {"none_at"})
            and all(_is_version(version) for version in load.values())
        ):
            raise InvalidConfiguration(
                f"initial_load is {load!r}.",
                remedy='use "snapshot", "none", {"from_version": N} or {"none_at": V}.',
            )
        if load != "snapshot" and self.staging is not None:
            raise InvalidConfiguration(
                f"initial_load {load!r} and staging are both given.",
                remedy="the first batch of a staging table is a snapshot; leave initial_load out.",
            )


_ONWARDS = ("incremental", "backfill")
_MODES = (*_ONWARDS, "interval", "repair", "reload", "reset")
_LIMITS = ("max_versions", "max_bytes", "milestone_versions", "milestone_bytes")
_STARTS = ("starting_version", "starting_timestamp")
_POLICIES = ("on_source_replaced", "on_target_replaced", "on_versions_expired")


def _modes(r: ApplyRequest) -> Rules:
    """Yield what a mode does not go with: whether it is so, what is said, and the remedy."""
    mode = r.mode
    yield mode not in _MODES, f"mode is {mode!r}", f"use one of {', '.join(_MODES)}."
    yield (
        mode != "reset" and r.discard_history,
        f"discard_history is given with mode {mode!r}",
        "leave it out: only a reset throws history away.",
    )
    yield (
        mode == "reset" and r.options.stored_as_scd_type == 2 and not r.discard_history,
        "mode is 'reset' for a target of SCD type 2, and its history would be lost",
        "set discard_history where it may go; mode 'reload' keeps it.",
    )
    yield (
        mode == "reset" and r.declares_state,
        f"mode is 'reset' and initial_load is {r.initial_load!r}",
        "leave one of them out: what is there is thrown away, or declared.",
    )
    if r.goes_on:
        return
    yield (
        mode == "interval" and not _is_interval(r),
        "mode is 'interval', and what is given is not a starting and a later ending timestamp alone",
        "give both times, and no version.",
    )
    limits = [name for name in _LIMITS if getattr(r, name) is not None]
    yield (
        bool(limits),
        f"{', '.join(limits)} and mode {mode!r} are given",
        "leave them out: it is done in one commit.",
    )
    yield (
        r.staging is not None,
        f"staging and mode {mode!r} are given",
        "leave staging out: a staged batch holds changes, and this reads the source itself.",
    )
    yield (
        mode == "reload" and any(getattr(r, name) is not None for name in _STARTS),
        "a start and mode 'reload' are given",
        "leave the start out: all keys are compared; some of them are by mode 'repair'.",
    )


def _is_interval(r: ApplyRequest) -> bool:
    start, end = r.starting_timestamp, r.ending_timestamp
    if start is None or end is None or r.starting_version is not None or r.ending_version is not None:
        return False
    return epoch_ms("starting_timestamp", start) < epoch_ms("ending_timestamp", end)


def _repairs(r: ApplyRequest) -> Rules:
    """Yield what a repair does not go with, likewise."""
    starts = any(getattr(r, name) is not None for name in _STARTS)
    ends = r.ending_version is not None or r.ending_timestamp is not None
    if r.mode != "repair":
        given = r.repair_keys is not None or r.repair_quarantined
        yield (
            given,
            f"repair_keys or repair_quarantined is given with mode {r.mode!r}",
            "set mode to 'repair', or leave them out.",
        )
        return
    what_to_name = (
        "name the versions whose keys are computed again, from starting_version to ending_version or the "
        "watermark; or the keys (repair_keys); or those in quarantine (repair_quarantined)."
    )
    named = [starts or ends, r.repair_keys is not None, r.repair_quarantined]
    yield (
        named.count(True) != 1 or (ends and not starts),
        "mode is 'repair', and not exactly one of a range, repair_keys and repair_quarantined is given",
        what_to_name,
    )
    yield (
        r.repair_keys is not None and not r.repair_keys.strip(),
        "repair_keys is empty",
        "give a predicate over the key columns; true stands for all keys.",
    )


def _policies(r: ApplyRequest) -> Rules:
    """Yield policies that are none, or that cannot be kept."""
    yield (
        r.on_drift not in ("fail", "accept", "repair"),
        f"on_drift is {r.on_drift!r}",
        "use one of fail, accept, repair.",
    )
    for name in _POLICIES:
        value = getattr(r, name)
        yield value not in ("fail", "reload"), f"{name} is {value!r}", "use 'fail' or 'reload'."
    by_key = [f"mode {r.mode!r}"] if r.mode in ("repair", "reload") else []
    by_key += [f"{name} 'reload'" for name in _POLICIES if getattr(r, name) == "reload"]
    by_key += ["on_drift 'repair'"] if r.on_drift == "repair" else []
    yield (
        r.options.insert_only and bool(by_key),
        f"insert_only and {', '.join(by_key)} are given",
        "give keys and drop insert_only: without keys rows cannot be compared; mode 'reset' loads anew.",
    )


@dataclass(frozen=True, kw_only=True)
class ReadRequest(Request):
    """What one read into staging is asked to do.

    The baseline is the target's watermark. Without a target it is what was committed last in staging itself
    (:class:`CommitRequest`).

    :param staging: location of the staging table
    :param options: what is asked of the changes, and how they are to be read
    :param milestone_versions: stage at most so many versions (from the first that changes data) per commit,
        all in the same application; None is as many as one plan can hold
    :param milestone_bytes: the same by bytes to read
    :param output_path: folder under which the batch is written as files, too, in a folder of its own
    :param output_format: of those files, ``parquet`` or ``json``
    """

    staging: str
    options: QueryOptions = field(default_factory=QueryOptions)
    milestone_versions: int | None = None
    milestone_bytes: int | None = None
    output_path: str | None = None
    output_format: str = "parquet"

    def check(self) -> None:
        """Refuse what cannot be meant.

        :raises InvalidConfiguration: names the arguments
        """
        super().check()
        checks.check_query(self.options)
        _check_sizes(milestone_versions=self.milestone_versions, milestone_bytes=self.milestone_bytes)
        refuse_same(
            source=self.source, target=self.target, staging=self.staging, output_path=self.output_path
        )
        if self.target is not None and self.options.on_change_commit == "skip":
            raise InvalidConfiguration(
                "on_change_commit is 'skip', and a target is given: its rows would miss what is left out.",
                remedy="leave on_change_commit out; or read without a target, for a sink of your own.",
            )
        if self.output_format not in ("parquet", "json"):
            raise InvalidConfiguration(
                f"output_format is {self.output_format!r}.", remedy="use 'parquet' or 'json'."
            )


@dataclass(frozen=True, kw_only=True)
class CommitRequest:
    """What one commit of a batch is asked to do.

    :param staging: location of the staging table
    :param ending_version: the last version of the batch that has arrived; None is the open batch's, whichever
        that is
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
        """Refuse what cannot be meant.

        :raises InvalidConfiguration: names the arguments
        """
        checks.check_pipeline(self.pipeline)
        checks.check_versions(None, self.ending_version, None)


def _nothing(_: str) -> int | None:
    return None


@dataclass(frozen=True)
class Memory:
    """What is known beyond the logs; all of it may be missing.

    :param end: returns the range's end that an earlier try of the same work decided, by pin key
    :param number: returns the seal number of that try, where it found no target, by pin key
    :param mirror: returns the copy of the newest seal (:meth:`delta_cdc.reconcile.Mirror.to_dict`) that
        proves in the place of a commit that was cleaned from the target's log
    :param now_ms: the time in epoch milliseconds; None is now
    :param looks: connections to Kafka that several plans share (:class:`delta_cdc.ingest.topics.Looks`)
    """

    end: Callable[[str], int | None] = _nothing
    number: Callable[[str], int | None] = _nothing
    mirror: Callable[[], Any] | None = None
    now_ms: int | None = None
    looks: Looks | None = None


def epoch_ms(name: str, text: str) -> int:
    """Read a time with offset (ISO 8601) in epoch milliseconds, rounded down.

    :param name: the argument's name, for the message
    :raises InvalidConfiguration: for anything else, times without an offset included
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidConfiguration(
            f"{name} is {text!r}.",
            remedy="write it as ISO 8601 with an offset, for instance 2026-01-31T18:00:00+00:00.",
        )
    return (moment - _EPOCH) // timedelta(milliseconds=1)


class Bounds(Protocol):
    """What names a range of versions."""

    @property
    def starting_version(self) -> int | None: ...
    @property
    def ending_version(self) -> int | None: ...
    @property
    def starting_timestamp(self) -> str | None: ...
    @property
    def ending_timestamp(self) -> str | None: ...


def check_bounds(bounds: Bounds) -> None:
    """Refuse bounds that contradict each other, or are none.

    Delta does not always refuse a version and a time for the same bound.

    :raises InvalidConfiguration: names the arguments
    """
    for bound in ("starting", "ending"):
        version, time = getattr(bounds, f"{bound}_version"), getattr(bounds, f"{bound}_timestamp")
        if version is not None and time is not None:
            raise InvalidConfiguration(
                f"{bound}_version {version} and {bound}_timestamp {time} are both given.",
                remedy="give one of the two.",
            )
        if time is not None:
            epoch_ms(f"{bound}_timestamp", time)
    checks.check_versions(bounds.starting_version, bounds.ending_version, None)


def refuse_same(**tables: str | None) -> None:
    """Refuse two roles for one table.

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
            )
        seen[uri] = role


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_sizes(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise InvalidConfiguration(f"{name} is {size}.", remedy="give a number >= 1, or leave it out.")
