"""Chooses the read method for each part of a range, from the log alone.

A range is split into smaller ranges (``ReadRange``): consecutive commits that one read method (``method``)
reads. If the change data feed is on, it is read, unless comparing the two ends of the range is cheaper. If it
is off, rows are matched by row id if the table tracks rows; commits that only add files need neither; a net
query by key can always compare the two ends. Each commit is in at most one ``ReadRange``.

A new read method also needs code in :mod:`delta_cdc.delta_log.file_manifests` and
:mod:`delta_cdc.delta_log.manifest_table` (the files that it reads), and in
:mod:`delta_cdc.spark.changes.manifests` (their rows).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from delta_cdc.core.errors import (
    ChangeFeedDisabled,
    LogGap,
    NotInsertOnly,
    ReadMethodUnavailable,
    VersionsExpired,
)
from delta_cdc.core.properties import CHANGE_FEED, ROW_TRACKING, feed_on, row_id_column
from delta_cdc.core.steps import ReadRange
from delta_cdc.delta_log.actions import IDS_KEPT
from delta_cdc.delta_log.file_manifests import net_bytes
from delta_cdc.planning import preconditions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from delta_cdc.core.options import QueryOptions, RangeMethod
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import DeltaLog, TableState

#: Bytes of the change feed that take as long to read as one byte through row tracking:
#: benchmarks/changes.py, docs/contributing/benchmarks.md.
CROSSOVER = 4.0
#: Minimum bytes of changes for which the two read methods are compared by cost.
WORTHWHILE = 16 * 1024 * 1024
#: Maximum versions that one plan reads one by one, and how many of those may need deletion vectors compared
#: by Delta's own reader. Each of the latter adds a scan or two, and costs a CPU second or more:
#: benchmarks/changes.py.
MOST_VERSIONS, MOST_COMPARED = 500, 20
#: Maximum ``ReadRange`` count of one plan; each adds a scan.
MOST_PARTS = 50
_COPY = "each version is a full copy, compared with the one before it by key"


@dataclass(frozen=True)
class Source:
    """Input of the choice: the table's log, its state at the end of the range, and the time.

    :param newest: the newest state, whose retention settings apply
    :param now_ms: epoch milliseconds
    :param commits: commits of the whole range
    """

    log: DeltaLog
    at_end: TableState
    newest: TableState
    now_ms: int
    commits: Sequence[Commit] = field(repr=False, compare=False)
    _times: dict[int, int] = field(default_factory=dict, repr=False, compare=False)

    async def times(self, part: list[_Version]) -> tuple[tuple[int, int], ...]:
        """Return version and time (epoch milliseconds) of the commits that change data.

        The first call lists the log, for the whole range.
        """
        if not self._times:
            changing = [commit.version for commit in self.commits if commit.changes_data]
            self._times.update(await self.log.timestamps(changing, self.commits))
        return tuple((v.commit.version, self._times[v.commit.version]) for v in part if v.commit.changes_data)


@dataclass(frozen=True)
class _Version:
    """A commit, and the read methods its version of the table allows.

    :param feed: the change data feed was on
    :param tracked: rows had ids before and after the commit, and kept them
    """

    commit: Commit
    feed: bool
    tracked: bool

    @property
    def only_adds(self) -> bool:
        return not self.commit.changes_data or (not self.commit.n_data_removes and not self.commit.has_cdc)

    @property
    def may_carry_over(self) -> bool:
        """Whether rows may be removed and added back unchanged: files were exchanged, rows not recorded.

        An overwrite deletes the rows its replaceWhere matches and rewrites them, so its change files do not
        show which rows are unchanged either.
        """
        commit = self.commit
        exchanged = bool(commit.n_data_adds and commit.n_data_removes)
        silent = not commit.has_cdc or commit.info.operation == "WRITE"
        return commit.changes_data and silent and exchanged and not commit.paired

    @property
    def may_carry_over_with_new_ids(self) -> bool:
        """Whether rows may be added back unchanged under new row ids."""
        return self.may_carry_over and self.commit.info.tags.get(IDS_KEPT) != "true"


async def choose(
    source: Source,
    commits: Sequence[Commit],
    options: QueryOptions,
    *,
    left_out: Collection[int] = (),
    one_by_one: bool = False,
) -> tuple[tuple[ReadRange, ...], tuple[str, ...]]:
    """Choose the ``ReadRange`` list of a range; the preconditions are checked later (:func:`check_files`).

    :param commits: commits of the range, ascending and gap-free
    :param left_out: versions that are not read
    :param one_by_one: compare the two ends of every version that changes data by key, even if other read
        methods are available: the table's files show who wrote them, not what changed
    :raises ChangeFeedDisabled: the feed is off in a version, and no other read method works
    :raises ReadMethodUnavailable: the requested read method cannot read a version
    :raises NotInsertOnly: ``added_files`` was requested, and a commit removes rows
    """
    _refuse_unfit(source, options)
    versions = _trimmed(await _versions(source, commits))
    if not versions:
        return (), ()
    if one_by_one:
        changing = [version for version in versions if version.commit.changes_data]
        return tuple([await _by_ends(source, [changed], "snapshot_diff", _COPY) for changed in changing]), ()
    skipped: list[_Version] = []
    if options.method == "added_files" and options.on_change_commit == "skip":
        skipped = [version for version in versions if not version.only_adds]
    chosen_ranges: list[ReadRange] = []
    for part in _without(versions, {*left_out, *(version.commit.version for version in skipped)}):
        chosen_ranges += await _read_ranges(source, part, options)
    notes: tuple[str, ...] = ()
    if skipped:
        version_list = ", ".join(str(version.commit.version) for version in skipped[:10])
        ellipsis = ", …" if len(skipped) > 10 else ""
        text = f"{len(skipped)} commit(s) of {source.log.uri} that remove rows are left out, as requested"
        notes = (f"{text} (on_change_commit is skip): versions {version_list}{ellipsis}.",)
    return tuple(chosen_ranges), notes


def beyond_limits(
    read_ranges: Sequence[ReadRange], commits: Sequence[Commit], *, scratch: bool
) -> int | None:
    """Return the version at which the ranges exceed the limits of one plan; None if they fit.

    :param scratch: the feed is read through file manifests, in which deletion vectors are already compared
    """
    counted = compared = 0
    first = commits[0].version
    for number, read_range in enumerate(read_ranges, start=1):
        if number > MOST_PARTS:
            return read_range.starting_version
        if read_range.net:
            continue
        for commit in commits[read_range.starting_version - first : read_range.ending_version + 1 - first]:
            counted += commit.changes_data
            compared += (
                commit.changes_data and commit.compares_vectors and not (scratch or read_range.needs_manifest)
            )
            if counted > MOST_VERSIONS or compared > MOST_COMPARED:
                return commit.version
    return None


def window(commits: tuple[Commit, ...], options: QueryOptions) -> tuple[Commit, ...]:
    """Return the beginning of a range that one plan may hold, as far as the commits alone show it.

    Rows matched only by row id are matched between the two ends of the whole range.
    """
    if options.is_net and options.by_row_id:
        return commits
    counted = 0
    for position, commit in enumerate(commits):
        counted += commit.changes_data
        if counted > MOST_VERSIONS:
            return commits[:position]
    return commits


# -- read methods of each version ---------------------------------------------------------------
async def _versions(source: Source, commits: Sequence[Commit]) -> list[_Version]:
    first = commits[0].version
    before: dict[str, str] | None = source.at_end.configuration
    if any(commit.metadata is not None for commit in commits):
        before = await _configuration_at(source.log, first - 1)
    versions = []
    current = before
    # Before version 0 there are no rows that could lack an id.
    had_ids = None if first == 0 else row_id_column(before or {})
    for commit in commits:
        if commit.metadata is not None:
            current = commit.metadata.configuration
        if current is None:
            current = (await source.log.snapshot(commit.version)).configuration
        ids = row_id_column(current)
        # A REPLACE keeps ids in another column, which does not have the ids of earlier rows.
        tracked = ids is not None and commit.keeps_row_ids and (commit.version == 0 or had_ids == ids)
        tracked = tracked and commit.rows_identified
        versions.append(_Version(commit, feed_on(current), tracked))
        had_ids = ids
    return versions


async def _configuration_at(log: DeltaLog, version: int) -> dict[str, str] | None:
    if version < 0:
        return None
    try:
        return (await log.snapshot(version)).configuration
    except (VersionsExpired, LogGap):
        return None


def _trimmed(versions: list[_Version]) -> list[_Version]:
    """Drop the commits before the first data change and after the last one."""
    changing = [position for position, version in enumerate(versions) if version.commit.changes_data]
    return versions[changing[0] : changing[-1] + 1] if changing else []


def _without(versions: list[_Version], left_out: set[int]) -> list[list[_Version]]:
    groups = groupby(versions, key=lambda version: version.commit.version in left_out)
    parts = [_trimmed(list(group)) for out, group in groups if not out]
    return [part for part in parts if part]


# -- read method --------------------------------------------------------------------------------
def _refuse_unfit(source: Source, options: QueryOptions) -> None:
    """Refuse a read method that can never answer the query."""
    reason_text = None
    if options.method == "snapshot_diff" and not options.is_net:
        reason_text = "the two ends of a range do not show the changes between them"
    elif options.by_row_id and options.method not in ("auto", "row_tracking"):
        reason_text = "without keys only row ids show which rows belong together"
    if reason_text is not None:
        is_answered = options.is_net or options.method != "snapshot_diff"
        ways = "give keys" if is_answered else "use query min_delta or upsert, with keys"
        raise ReadMethodUnavailable(
            f"{options.query} of {source.log.uri} cannot be answered by {options.method}: {reason_text}.",
            remedy=f"{ways}, or leave method at auto.",
        )


async def _read_ranges(source: Source, part: list[_Version], options: QueryOptions) -> list[ReadRange]:
    if options.method == "change_files" or options.raw:
        first_off = next((v for v in part if v.commit.changes_data and not v.feed), None)
        if first_off is not None:
            raise preconditions.feed_disabled(source.log.uri, first_off.commit.version)
        requested = "the query is raw" if options.raw else "method is change_files"
        reason = f"{requested}, and {CHANGE_FEED} is on throughout"
        return [read_range for _, group in _by_flag(part) for read_range in _by_feed(group, options, reason)]
    if options.method == "row_tracking" or options.needs_row_ids:
        reason = (
            "row_ids is set" if options.row_ids else "no keys are set, so the query compares rows by row id"
        )
        if options.method == "row_tracking":
            reason = "method is row_tracking"
        _refuse_untracked(source, part, options)
        return await _by_row_ids(source, part, options, reason)
    if options.method == "snapshot_diff":
        return [await _by_ends(source, part, "snapshot_diff", "method is snapshot_diff")]
    if options.method == "added_files":
        _refuse_removing(source, part)
        return [
            await _by_added_files(source, part, "method is added_files, and every commit only adds files")
        ]
    read_ranges: list[ReadRange] = []
    for with_feed, group in _by_flag(part):
        read_ranges += await (_feed_ranges if with_feed else _without_feed)(source, group, options)
    return read_ranges


def _by_flag(part: list[_Version]) -> list[tuple[bool, list[_Version]]]:
    """Split where the feed is turned on or off: Delta refuses a range in which it is off in any version."""
    runs = groupby(part, key=lambda version: version.feed)
    groups = [(feed, _trimmed(list(group))) for feed, group in runs]
    return [(feed, group) for feed, group in groups if group]


def _runs(part: list[_Version], flag: Callable[[_Version], bool]) -> list[tuple[bool, list[_Version]]]:
    """Split where the result of ``flag`` changes; commits without data changes join those before them."""
    runs: list[tuple[bool, list[_Version]]] = []
    for version in part:
        if runs and (not version.commit.changes_data or runs[-1][0] == flag(version)):
            runs[-1][1].append(version)
        else:
            runs.append((flag(version), [version]))
    return [(is_set, _trimmed(group)) for is_set, group in runs]


async def _feed_ranges(source: Source, part: list[_Version], options: QueryOptions) -> list[ReadRange]:
    feed_size = sum(version.commit.bytes_to_read for version in part)
    # A feed of one commit is never longer than the files that the commit exchanged.
    if options.is_net and len(part) > 1 and feed_size >= WORTHWHILE and _all_tracked(part):
        size = await _size_of_ends(source, part)
        if size is not None and size * CROSSOVER < feed_size:
            reason = f"{ROW_TRACKING} is on, and the two ends are smaller than {feed_size} bytes of changes"
            return [await _by_ends(source, part, "row_tracking", reason, size)]
    return _by_feed(part, options, f"{CHANGE_FEED} is on throughout")


async def _without_feed(source: Source, part: list[_Version], options: QueryOptions) -> list[ReadRange]:
    off = f"{CHANGE_FEED} is off"
    if _all_tracked(part):
        return await _by_row_ids(source, part, options, f"{off}, {ROW_TRACKING} is on")
    if options.is_net:
        return await _net_without_feed(source, part, off)
    read_ranges: list[ReadRange] = []
    for tracked, group in _runs(part, lambda version: version.tracked):
        if tracked:
            read_ranges += await _by_row_ids(source, group, options, f"{off}, {ROW_TRACKING} is on")
            continue
        removing = next((version for version in group if not version.only_adds), None)
        if removing is not None:
            raise _nothing_serves(source, removing, options)
        read_ranges.append(await _by_added_files(source, group, f"{off}, and every commit only adds files"))
    return read_ranges


async def _net_without_feed(source: Source, part: list[_Version], off: str) -> list[ReadRange]:
    """Compare the two ends from the first to the last commit that removes rows; else read the added files."""
    only_adds = f"{off}, and every commit only adds files"
    removing = [position for position, version in enumerate(part) if not version.only_adds]
    if not removing:
        return [await _by_added_files(source, part, only_adds)]
    read_ranges = []
    head, tail = _trimmed(part[: removing[0]]), _trimmed(part[removing[-1] + 1 :])
    if head:
        read_ranges.append(await _by_added_files(source, head, only_adds))
    reason = f"{off}, and not all versions have row ids: the two ends are compared by key"
    read_ranges.append(await _by_ends(source, part[removing[0] : removing[-1] + 1], "snapshot_diff", reason))
    if tail:
        read_ranges.append(await _by_added_files(source, tail, only_adds))
    return read_ranges


def _nothing_serves(source: Source, version: _Version, options: QueryOptions) -> ChangeFeedDisabled:
    commit = version.commit
    return ChangeFeedDisabled(
        f"The change data feed of {source.log.uri} is off in version {commit.version} ({CHANGE_FEED} is not "
        f"true), which removes rows ({commit.info.operation or 'unknown operation'}); without row ids "
        f"({ROW_TRACKING}), no other read method answers {options.query}.",
        remedy="turn the feed on with DeltaEnableChangeDataFeedOperator, or ALTER TABLE … SET TBLPROPERTIES "
        f"('{CHANGE_FEED}' = 'true'). The feed does not hold the earlier versions: read their net effect "
        "(min_delta, or upsert by key), or, for a type 2 target, run once with mode='reload'.",
    )


def _all_tracked(part: list[_Version]) -> bool:
    return all(version.tracked for version in part)


def _refuse_untracked(source: Source, part: list[_Version], options: QueryOptions) -> None:
    # Ids that change between two commits matter only if the two ends are compared.
    matters = [version for version in part if options.is_net or version.commit.changes_data]
    untracked = next((version for version in matters if not version.tracked), None)
    if untracked is None:
        return
    commit = untracked.commit
    reason_text = f"{ROW_TRACKING} is off in this version or the one before, or was turned on again"
    if not commit.rows_identified:
        reason_text = "not every file that it adds has row ids"
    elif not commit.keeps_row_ids:
        reason_text = (
            f"{commit.info.operation or 'an unknown operation'} did not promise to keep the rows' ids"
        )
    raise ReadMethodUnavailable(
        f"Version {commit.version} of {source.log.uri} cannot be read by row_tracking: {reason_text}.",
        remedy=f"{_without_row_ids(options)}; or set {ROW_TRACKING} to true, and start after that version.",
    )


def refuse_untracked_snapshot(at: TableState, options: QueryOptions) -> None:
    """Refuse a snapshot whose rows have no row ids, if they are requested.

    :raises ReadMethodUnavailable: row tracking is off in that version
    """
    if options.row_ids and row_id_column(at.configuration) is None:
        raise ReadMethodUnavailable(
            f"The rows of {at.uri}, version {at.version}, have no row ids: {ROW_TRACKING} is not true.",
            remedy=f"leave row_ids out; or set {ROW_TRACKING} to true, which gives all rows ids.",
        )


def _without_row_ids(options: QueryOptions) -> str:
    """Return what makes a query do without row ids."""
    ways = ["leave row_ids out"] if options.row_ids else []
    ways += ["give keys"] if options.by_row_id else []
    ways += ["leave method at auto"] if options.method == "row_tracking" else []
    return " and ".join(ways)


def _refuse_removing(source: Source, part: list[_Version]) -> None:
    removing = next((version for version in part if not version.only_adds), None)
    if removing is not None:
        commit = removing.commit
        raise NotInsertOnly(
            f"Version {commit.version} of {source.log.uri} ({commit.info.operation or 'unknown operation'}) "
            "removes rows, and added_files reads added ones only.",
            remedy="set method to 'auto', or skip such commits with on_change_commit='skip'.",
        )


# -- ranges (ReadRange) ---------------------------------------------------------------------------
def _by_feed(part: list[_Version], options: QueryOptions, reason: str) -> list[ReadRange]:
    read_ranges = []
    for compare, group in _compared(part, options, lambda version: version.may_carry_over):
        size = sum(version.commit.bytes_to_read for version in group)
        text = reason
        if compare:
            text += "; commits rewrote files, so rows that did not change are left out"
        read_ranges.append(ReadRange(*_ends(group), "change_files", text, size, compare=compare))
    return read_ranges


async def _by_row_ids(
    source: Source, part: list[_Version], options: QueryOptions, reason: str
) -> list[ReadRange]:
    if options.is_net:
        return [await _by_ends(source, part, "row_tracking", reason)]
    read_ranges = []
    for compare, group in _compared(part, options, lambda version: version.may_carry_over_with_new_ids):
        size = sum(v.commit.bytes_added + v.commit.bytes_removed for v in group if v.commit.changes_data)
        times = await source.times(group)
        read_range = ReadRange(*_ends(group), "row_tracking", reason, size, compare=compare, timestamps=times)
        read_ranges.append(read_range)
    return read_ranges


async def _by_ends(
    source: Source, part: list[_Version], method: RangeMethod, reason: str, size: int | None = None
) -> ReadRange:
    if size is None:
        size = await _size_of_ends(source, part) or 0
    times = await source.times(part)
    if any(version.commit.info.operation == "RESTORE" for version in part):
        # A restored row has the time it was written, not that of the RESTORE; so all rows get the last time.
        times = times[-1:]
    return ReadRange(*_ends(part), method, reason, size, net=True, timestamps=times)


async def _by_added_files(source: Source, part: list[_Version], reason: str) -> ReadRange:
    size = sum(version.commit.bytes_added for version in part if version.commit.changes_data)
    times = await source.times(part)
    return ReadRange(*_ends(part), "added_files", reason, size, timestamps=times)


async def _size_of_ends(source: Source, part: list[_Version]) -> int | None:
    return await net_bytes(source.log, tuple(version.commit for version in part))


def _compared(
    part: list[_Version], options: QueryOptions, carries: Callable[[_Version], bool]
) -> list[tuple[bool, list[_Version]]]:
    """Split so that only commits that may carry rows over are compared; net queries never need it."""
    # A row that is rewritten under another row id is another row, for who asks for row ids.
    as_they_are = options.is_net or options.raw or options.needs_row_ids
    return [(False, part)] if as_they_are else _runs(part, carries)


def _ends(part: list[_Version]) -> tuple[int, int]:
    return part[0].commit.version, part[-1].commit.version


# -- preconditions ------------------------------------------------------------------------------
async def check_files(source: Source, read_ranges: Sequence[ReadRange], commits: Sequence[Commit]) -> None:
    """Refuse ranges whose files may be deleted.

    :param commits: commits of the whole range, ascending and gap-free
    :raises VersionsExpired: names a version or file
    """
    first = commits[0].version
    for read_range in read_ranges:
        inside = commits[read_range.starting_version - first : read_range.ending_version + 1 - first]
        changing = [commit for commit in inside if commit.changes_data]
        feed = not read_range.needs_manifest
        if feed:
            preconditions.check_retention(changing[0], source.newest, source.now_ms)
            # Delta's own feed reader also needs the snapshot that it starts from.
            await preconditions.check_start(source.log, changing[0].version)
        else:
            # A comparison of two ends also reads files that were only rewritten.
            removing = [c for c in inside if (c.n_removes if read_range.net else c.n_data_removes)]
            if removing:
                # Removed files expire that long after their removal; files still in the table do not expire.
                preconditions.check_retention(removing[0], source.newest, source.now_ms)
        for commit in _sample_for_vacuum(changing, feed=feed):
            await preconditions.check_files(source.log, commit, feed=feed)


def _sample_for_vacuum(changing: list[Commit], *, feed: bool) -> tuple[Commit, ...]:
    """Return the commits whose files best show whether VACUUM deleted files of the range.

    VACUUM deletes, by age, files that the newest version does not need. So the files to check are those of
    the oldest change, the oldest change files, and the oldest removed files.
    """
    with_files = [commit for commit in changing if feed and commit.has_cdc]
    removing = [commit for commit in changing if commit.n_removes and not (feed and commit.has_cdc)]
    chosen = {some[0].version: some[0] for some in (changing, with_files, removing) if some}
    return tuple(chosen.values())
