"""Plans the answer to: why is this row so? Decided from logs alone; the job then reads one key.

Everything is read as of one version of the target. Its seal says which version of the source it contains, and
with which options its rows were made. Of a change feed, the job reads the changes of the key as far back as
they are readable, and as ``most_bytes`` allows; of a change log or of snapshots, all events of the key.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from delta_cdc.core import why
from delta_cdc.core.char_columns import spellings_of
from delta_cdc.core.erasure import ledger_of
from delta_cdc.core.errors import (
    ChangeFeedDisabled,
    DeltaCdcError,
    InvalidConfiguration,
    LogGap,
    NotInsertOnly,
    ReadMethodUnavailable,
    SchemaChangeInRange,
    TableNotFound,
    TargetWithoutWatermark,
    VersionsExpired,
)
from delta_cdc.core.options import ApplyOptions, QueryOptions
from delta_cdc.core.quarantine import quarantine_of
from delta_cdc.core.reserved_columns import NAMING, SPARSE
from delta_cdc.core.rules import check_pipeline
from delta_cdc.core.spec import WhySpec
from delta_cdc.core.sql_tokens import bare
from delta_cdc.core.steps import Keys, Step
from delta_cdc.core.text_table import plural
from delta_cdc.core.times import epoch_ms
from delta_cdc.core.uris import spark_uri
from delta_cdc.core.validation import described, options_of
from delta_cdc.delta_log.schema_changes import char_lengths
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning import appended_events, followed_columns, preconditions, read_methods
from delta_cdc.planning.maintenance_commits import foreign_commits, in_effect
from delta_cdc.planning.plan import JobPlan, readable
from delta_cdc.planning.quarantine import missing, state_of
from delta_cdc.planning.reconcile import reconcile_async
from delta_cdc.planning.seal_chain import any_seal_of, seal_of
from delta_cdc.planning.size import table_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.steps import ReadRange
    from delta_cdc.core.watermark import Seal
    from delta_cdc.core.why import Answer, Change, Found, TargetRow, Where
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState

#: The most bytes that are read of one table, unless the caller allows more.
MOST_BYTES = 1 << 30
#: How many commits of the source are searched for the changes of a key.
_MOST_SOURCE_COMMITS = 5000
#: Versions have fewer digits.
_MOST_DIGITS = 20
#: How many commits are read at once.
_CHUNK = 200
#: How many commits of other writers a note names.
_NAMED = 3
#: Options that the answer does not show: they do not decide which values a row has.
_UNSHOWN = ("partition_by", *NAMING, *SPARSE, "keys", "source_kind", "stored_as_scd_type")
#: Options of a pipeline that no seal records, and that decide which events count.
POLICIES = ("on_conflict", "on_invalid", "on_late")
#: Kinds of steps that write all rows.
_WHOLE = ("load", "reset", "baseline")
#: Why changes cannot be read: a shorter range may be readable.
_UNREADABLE = (
    ChangeFeedDisabled,
    LogGap,
    NotInsertOnly,
    ReadMethodUnavailable,
    SchemaChangeInRange,
    VersionsExpired,
)


@dataclass(frozen=True, kw_only=True)
class WhyRequest:
    """The question for one key of one target.

    :param target: path or URI
    :param key: key column -> value, as text
    :param source: path or URI of its source; None uses the one that the seal names
    :param policies: the pipeline's values of :data:`POLICIES`
    :param at: a version of the target as text, or a time (ISO 8601 with offset); None: the newest
    :param most_bytes: the most bytes to read of one table
    :param storage_options: options of the object store, as delta-rs names them
    """

    pipeline: str
    target: str
    key: Mapping[str, str]
    source: str | None = None
    policies: Mapping[str, Any] = field(default_factory=dict)
    at: str | None = None
    most_bytes: int = MOST_BYTES
    run_id: str = ""
    storage_options: dict[str, str] | None = field(default=None, repr=False)


async def plan_why_async(request: WhyRequest, *, now_ms: int | None = None) -> JobPlan[WhySpec, Question]:
    """Find the version of the target, its seal, and the changes to read.

    :param now_ms: the time in epoch milliseconds; None is now
    :return: always with a job; :meth:`Question.answer` completes the answer with what it found
    :raises InvalidConfiguration: the key is not that of the target, or ``at`` is no version of it
    :raises TargetWithoutWatermark: no apply of the pipeline wrote the target
    :raises DeltaCdcError: a log cannot be read, or the source is another table now
    """
    check_pipeline(request.pipeline)
    log = DeltaLog(request.target, request.storage_options)
    target, seal = await _sealed(request, log)
    options = replace(options_of(seal), **request.policies)
    if options.on_conflict == "fail":
        # Whatever the policy was, an event in conflict is not in the target; the answer names it.
        options = replace(options, on_conflict="quarantine")
    key = _key(request, options, log.uri)
    source = DeltaLog(request.source or seal.source_uri, request.storage_options)
    newest = await source.snapshot()
    await preconditions.check_identity(source, newest, seal)
    watermark = seal.watermark.version
    at = newest if watermark == newest.version else await source.snapshot(max(watermark, 0))
    key = _stored(key, options, at)
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    ranges: tuple[ReadRange, ...] = ()
    first = 0
    notes: tuple[str, ...] = ()
    if not options.takes_events:
        ranges, first, notes = await _ranges(source, newest, at, watermark, options, request.most_bytes, now)
    step = Step(
        kind="repair",
        read=Keys(ranges=ranges),
        starting_version=watermark,
        applied_to=replace(seal.watermark, table_id=at.table_id),
        seal_number=seal.number,
        source_columns=at.schema_columns,
        before=seal.state,
        horizons=appended_events.lateness_bounds_at(at) if options.takes_events else (),
    ).with_allowed_lateness()
    quarantine_uri, records_uri = quarantine_of(request.target), quarantine_of(source.uri)
    quarantined, records = [
        await state_of(DeltaLog(uri, request.storage_options)) if is_read else None
        for uri, is_read in ((quarantine_uri, True), (records_uri, options.takes_events))
    ]
    lost = await missing(seal, request.target, request.storage_options)
    notes = notes if lost is None else (*notes, lost.message)
    # Also an older version of the target must not show a key that was erased since.
    ledger = ledger_of(request.target)
    remembered = await state_of(DeltaLog(ledger, request.storage_options))
    size = await table_size(source.uri, watermark, request.storage_options) if options.takes_events else None
    spec = WhySpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        source_uri=spark_uri(request.source or seal.source_uri),
        target_uri=spark_uri(request.target),
        target_version=target.version,
        options=options,
        key=key,
        quarantine_uri=quarantine_uri if quarantined is not None else "",
        records_uri=records_uri if records is not None else "",
        source_size=size,
        most_bytes=request.most_bytes,
        ledger_uri=ledger if remembered is not None else "",
        steps=(step,),
    )
    return JobPlan(spec, Question(request, log, source, target, seal, options, key, first, notes), notes)


async def _sealed(request: WhyRequest, log: DeltaLog) -> tuple[TableState, Seal]:
    """Return the target at the version of the question, and the seal in effect there."""
    if request.at is None:
        recorded = await reconcile_async(log, request.pipeline)
        if recorded is None:
            raise TableNotFound(
                f"There is no table at {log.uri}.", remedy="correct the path, or run the pipeline."
            )
        target, seal = recorded.target, recorded.seal
    else:
        newest = await log.snapshot()
        version = await _version(request.at, log, newest)
        target = newest if version == newest.version else await log.snapshot(version)
        seal = await _seal_at(log, version, request.pipeline)
    if seal is None or "keys" not in seal.state.configuration or seal.watermark.version < 0:
        raise TargetWithoutWatermark(
            f"Version {target.version} of {log.uri} has no rows that an apply of pipeline "
            f"{request.pipeline} wrote.",
            remedy="name the pipeline and the target of an apply, and a version after its first run.",
        )
    return target, seal


async def _version(at: str, log: DeltaLog, newest: TableState) -> int:
    version: int | None
    if at.isascii() and at.isdigit():
        # Python refuses to read texts of more than 4,300 digits.
        version = int(at) if len(at) < _MOST_DIGITS else None
    else:
        version = await log.version_at(epoch_ms("at", at), bound="end", state=newest)
    if version is None or version > newest.version:
        raise InvalidConfiguration(
            f"at is {at}, and {log.uri} has no such version: its newest version is {newest.version}.",
            remedy="name a version or a time after the table was made.",
            argument="at",
        )
    return version


async def _seal_at(log: DeltaLog, version: int, pipeline: str) -> Seal | None:
    async for commit in in_effect(log, version):
        seal = seal_of(commit, pipeline)
        if seal is not None:
            return seal
    return None


def _key(request: WhyRequest, options: ApplyOptions, uri: str) -> dict[str, str]:
    """Return the key with the names of the options.

    :raises InvalidConfiguration: it is not the key of the target
    """
    if not options.keys:
        raise InvalidConfiguration(
            f"{uri} has no keys (insert_only), so no change of a row is known.",
            remedy="name a target with keys.",
            argument="key",
        )
    if options.writes_events:
        raise InvalidConfiguration(
            f"{uri} is a change log, which has events and not the row of a key.",
            remedy="name the pipeline that applies it.",
            argument="pipeline",
        )
    given = {name.lower(): value for name, value in request.key.items()}
    wanted = {name.lower(): name for name in options.keys}
    if set(given) != set(wanted):
        raise InvalidConfiguration(
            f"The key of {uri} is {', '.join(options.keys)}, and the question names "
            f"{', '.join(request.key) or 'no column'}.",
            remedy=f"give a value for each key column: {', '.join(f'{name}=…' for name in options.keys)}",
            argument="key",
        )
    return {wanted[name]: given[name] for name in wanted}


def _stored(key: dict[str, str], options: ApplyOptions, source: TableState) -> dict[str, str]:
    """Return a key as the target has it: that of a CHAR column of the source ends with blanks."""
    names = {bare(one).lower() for one in options.select}
    is_whole = not names or "*" in names
    lengths = {
        name: length
        for name, length in char_lengths(source.schema_string).items()
        if is_whole or name in names
    }
    return spellings_of(key, [lengths])[-1]


# -- the changes of a feed ----------------------------------------------------------------------------
async def _ranges(
    log: DeltaLog,
    newest: TableState,
    at: TableState,
    watermark: int,
    options: ApplyOptions,
    most_bytes: int,
    now_ms: int,
) -> tuple[tuple[ReadRange, ...], int, tuple[str, ...]]:
    """Return how to read the longest readable range up to the watermark, its first version, and notes."""
    commits, why_not = await _commits(log, watermark, most_bytes)
    starts = [place for place, commit in enumerate(commits) if commit.changes_data]
    ranges: tuple[ReadRange, ...] = ()
    readable_from, unreadable_to = len(commits), -1
    while starts:
        # The first try is the whole range. If it is not readable, halve what is left: a shorter range is
        # readable if a longer one is.
        middle = 0 if unreadable_to < 0 else len(starts) // 2
        start = 0 if unreadable_to < 0 else starts[middle]
        try:
            found = await _choose(log, newest, at, commits[start:], options, now_ms)
        except _UNREADABLE as error:
            why_not, unreadable_to = f"{error.message}", start
            starts = starts[middle + 1 :]
        else:
            ranges, readable_from = found, start
            starts = starts[:middle]
    first = commits[readable_from].version if readable_from < len(commits) else watermark + 1
    notes = (f"Changes before version {first} of {log.uri} were not read. {why_not}",) if why_not else ()
    return ranges, first, notes


async def _commits(log: DeltaLog, watermark: int, most_bytes: int) -> tuple[tuple[Commit, ...], str]:
    """Return the newest commits up to the watermark, ascending, as far as the limits allow, and the limit."""
    oldest, size, changing = await log.oldest_version(), 0, 0
    found: list[Commit] = []
    version = watermark
    while version >= oldest:
        try:
            chunk = await log.commits(range(max(oldest, version - _CHUNK + 1), version + 1))
        except (VersionsExpired, LogGap) as error:
            return tuple(reversed(found)), error.message
        for commit in reversed(chunk):
            size += commit.bytes_to_read if commit.changes_data else 0
            changing += commit.changes_data
            if size > most_bytes:
                text = f"They would be more than {readable(most_bytes)} (--max-bytes)."
                return tuple(reversed(found)), text
            if changing > read_methods.MOST_VERSIONS or len(found) >= _MOST_SOURCE_COMMITS:
                text = f"One question reads at most {read_methods.MOST_VERSIONS} versions with changes."
                return tuple(reversed(found)), text
            found.append(commit)
        version -= _CHUNK
    return tuple(reversed(found)), "" if oldest == 0 else "The log does not have them any more."


async def _choose(
    log: DeltaLog,
    newest: TableState,
    at: TableState,
    commits: Sequence[Commit],
    options: ApplyOptions,
    now_ms: int,
) -> tuple[ReadRange, ...]:
    """Return how to read a range.

    :raises DeltaCdcError: one of ``_UNREADABLE``
    """
    commits = tuple(commits)
    await followed_columns.check(log, commits)
    source = read_methods.Source(log, at, newest, now_ms, commits)
    query = QueryOptions(keys=options.keys)
    ranges, _ = await read_methods.choose(source, commits, query, one_by_one=options.takes_copies)
    too_much = read_methods.beyond_limits(ranges, commits, scratch=True)
    if too_much is not None:
        raise ReadMethodUnavailable(
            f"One question reads at most {read_methods.MOST_PARTS} parts.", remedy="ask about a later time."
        )
    await read_methods.check_files(source, ranges, commits)
    return ranges


# -- the answer -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Question:
    """A planned question; :meth:`answer` looks up which commits and runs applied what the job found.

    :param log: the target's
    :param source: the source's
    :param target: the version that is read
    :param seal: the seal in effect there
    :param first: of a change feed: the first version whose changes are read
    """

    request: WhyRequest
    log: DeltaLog
    source: DeltaLog
    target: TableState
    seal: Seal
    options: ApplyOptions
    key: dict[str, str]
    first: int = 0
    notes: tuple[str, ...] = ()

    async def answer(self, found: Found) -> Answer:
        """Return the answer."""
        older = self.first > 0 or not found.all_changes
        sets = [(row, why.origins(row, found.changes, older=older)) for row in found.rows]
        wanted = [change for _, origins in sets for change in origins]
        ends = [_ends(row, found.changes) for row in found.rows]
        last = found.changes[-1] if not found.rows and found.changes else None
        wanted += [change for pair in ends for change in pair] + [last] + [one.change for one in found.lost]
        where = await self._places([one for one in wanted if one is not None])
        rows = tuple(
            self._row(found, row, origins, pair, where)
            for (row, origins), pair in zip(sets, ends, strict=True)
        )
        notes = [*self.notes]
        if not found.all_changes:
            notes.append("The key has more changes than one answer shows; the oldest were left out.")
        if found.unsearched:
            notes.append(
                f"{plural(found.unsearched, 'row')} of {quarantine_of(self.request.target)} may be of this "
                "key: they have key columns of other names."
            )
        if any(origin is None for _, origins in sets for origin in origins):
            notes.append(await self._other_writers())
        return why.Answer(
            pipeline=self.request.pipeline,
            target=self.log.uri,
            key=self.key,
            version=self.target.version,
            source=self.source.uri,
            watermark=self.seal.watermark.version,
            options=_shown_options(self.options),
            rows=rows,
            gone=where.get(id(last)) if last is not None and last.values is None else None,
            not_taken=tuple(
                why.NotTaken(one.why, where[id(one.change)], _named(found, one.change)) for one in found.lost
            ),
            notes=() if found.erased is not None else tuple(notes),
            erased=found.erased,
        )

    def _row(
        self,
        found: Found,
        row: TargetRow,
        origins: Sequence[Change | None],
        ends: tuple[Change | None, Change | None],
        where: Mapping[int, Where],
    ) -> why.ExplainedRow:
        values = tuple(
            self._value(name, value, origin, where)
            for name, value, origin in zip(found.columns, row.values, origins, strict=True)
        )
        opened, closed = (where.get(id(change)) if change is not None else None for change in ends)
        return why.ExplainedRow(values, row.start, row.end, row.deleted, opened, closed)

    def _value(
        self, name: str, value: str | None, origin: Change | None, where: Mapping[int, Where]
    ) -> why.Value:
        if origin is None:
            return why.Value(name, value, note="not from the changes of the source that could be read")
        if origin.kind == "base":
            than = f"version {self.first} of the source" if self.first > 0 else "all changes that were read"
            return why.Value(name, value, note=f"older than {than}")
        return why.Value(name, value, since=where[id(origin)])

    # -- where and when -------------------------------------------------------------------------------
    async def _places(self, changes: Sequence[Change]) -> dict[int, Where]:
        """Return the place of each change, by the change's ``id()``: equal changes may lie apart."""
        versions = sorted({one.version for one in changes if one.version is not None})
        times = await self._times(versions)
        applied = await self._applied(versions)
        return {id(one): _where(one, times, applied) for one in changes}

    async def _times(self, versions: Sequence[int]) -> dict[int, int]:
        try:
            oldest = await self.source.oldest_version()
            return await self.source.timestamps([one for one in versions if one >= oldest])
        except DeltaCdcError:
            # Times are for people: the answer is right without them.
            return {}

    async def _applied(self, versions: Sequence[int]) -> dict[int, tuple[Commit, Seal]]:
        """Return the commit of the target that first contained each version, as far as its log shows it."""
        found: dict[int, tuple[Commit, Seal]] = {}
        if not versions:
            return found
        table, lowest = self.seal.watermark.table_id, 0
        async for commit in in_effect(self.log, self.target.version):
            seal = any_seal_of(commit)
            if seal is None or seal.state.applied_to is None or seal.state.applied_to.table_id != table:
                continue
            lowest = seal.watermark.version
            found |= {one: (commit, seal) for one in versions if one <= lowest}
            if lowest < versions[0] or seal.step.kind in _WHOLE:
                break
        # A cleaned log does not show which commit was the first one with a version of before its oldest seal.
        return {one: of for one, of in found.items() if one > lowest or _takes(of[1], one)}

    async def _other_writers(self) -> str:
        """Return a sentence about commits of the target that no pipeline made."""
        others = await foreign_commits(self.log, self.target.version, _NAMED + 1)
        text = "Some values are not those that the source has now."
        if others:
            more = " and others" if len(others) > _NAMED else ""
            return f"{text} Other writers changed the target: {', '.join(others[:_NAMED])}{more}."
        return f"{text} delta-cdc verify compares all rows; mode='repair' computes this key again."

    # -- upstream -------------------------------------------------------------------------------------
    async def upstream(self) -> WhyRequest | str | None:
        """Return the same question for the source, if exactly one apply writes it.

        :return: None if no apply writes it; a sentence if the question cannot be put
        """
        seals: dict[str, Seal] = {}
        async for commit in in_effect(self.source, self.seal.watermark.version):
            seal = any_seal_of(commit)
            if seal is not None and "keys" in seal.state.configuration:
                seals.setdefault(seal.pipeline, seal)
            if seals:
                break
        if not seals:
            return None
        (seal,) = seals.values()
        options = options_of(seal)
        if options.writes_events:
            return (
                f"{self.source.uri} collects the changes of several sources: the file of an event is the "
                "pipeline of its source, and the offset is the source's version."
            )
        keys = options.keys
        mine = {name.lower(): value for name, value in self.key.items()}
        if self.options.select or not keys or any(name.lower() not in mine for name in keys):
            return (
                f"{self.source.uri} is filled by pipeline {seal.pipeline}, whose key is "
                f"{', '.join(keys) or 'none'}: ask there."
            )
        return replace(
            self.request,
            pipeline=seal.pipeline,
            target=self.source.uri,
            source=None,
            key={name: mine[name.lower()] for name in keys},
            policies={},
            at=str(self.seal.watermark.version),
        )


def _takes(seal: Seal, version: int) -> bool:
    """Return whether the commit of a seal applied a version itself, and not an earlier one."""
    step = seal.step
    return step.kind in _WHOLE or (step.kind == "apply" and step.starting_version <= version)


def _ends(row: TargetRow, changes: Sequence[Change]) -> tuple[Change | None, Change | None]:
    """Return the changes that began and that ended a row."""
    if not row.deleted or row.start is not None:
        return why.with_sequence(changes, row.start), why.with_sequence(changes, row.end)
    taken = why.until(row, changes)
    return None, changes[len(taken)] if len(taken) < len(changes) else None


def _where(change: Change, times: Mapping[int, int], applied: Mapping[int, tuple[Commit, Seal]]) -> Where:
    record = {name: value for name, value in change.record.items() if name != "time" and value is not None}
    time_of = change.record.get("time")
    if change.version is None:
        return why.Where(time=time_of, record=record, sequence=change.sequence)
    if time_of is None and change.version in times:
        time_of = _iso(times[change.version])
    if change.version not in applied:
        return why.Where(change.version, time_of, record, change.sequence)
    commit, seal = applied[change.version]
    return why.Where(
        change.version,
        time_of,
        record,
        change.sequence,
        target_version=commit.version,
        applied_at=_iso(commit.timestamp),
        run_id=seal.step.run_id,
        work=seal.step.kind,
    )


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).isoformat(timespec="seconds")


def _named(found: Found, change: Change) -> dict[str, str | None]:
    return {} if change.values is None else dict(zip(found.columns, change.values, strict=True))


def _shown_options(options: ApplyOptions) -> dict[str, Any]:
    defaults = described(ApplyOptions())
    return {
        name: value
        for name, value in described(options).items()
        if name not in _UNSHOWN and value != defaults.get(name)
    }
