"""Preconditions of a range of source versions, checked before it is read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import (
    ChangeFeedDisabled,
    EmptyCopy,
    LimitExceeded,
    LogGap,
    SourceHistoryChanged,
    SourceTableReplaced,
    VersionsExpired,
)
from delta_cdc.core.guard import Effect, approval, has_shrunk, of_another_change
from delta_cdc.core.history import replaces_all_rows
from delta_cdc.core.properties import CHANGE_FEED, feed_on
from delta_cdc.core.retention import (
    FILE_RETENTION,
    LOG_GAP_REMEDY,
    expired,
    milliseconds_of,
    readable,
    text_of,
)
from delta_cdc.core.uris import canonical_uri
from delta_cdc.delta_log.actions import Add, Cdc, Remove

if TYPE_CHECKING:
    from delta_cdc.core.requests import ApplyRequest
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import DeltaLog, TableState
    from delta_cdc.planning.observe import Observation

#: Number of files checked per commit. VACUUM deletes by age, so it deletes the files of a commit together.
_SAMPLE = 32
#: How many versions the search for the copy before goes back.
_MOST_STEPS_BACK = 50


@dataclass(frozen=True)
class Identity:
    """Result of comparing the source with the table of the watermark.

    :param replaced: the same log has another table id: a REPLACE, whose changes are in the change data feed
    :param unproven: only the table's id was compared, because the watermark's commit was cleaned
    """

    replaced: bool = False
    unproven: bool = False
    note: str | None = None


async def check_identity(log: DeltaLog, source: TableState, seal: Seal) -> Identity:
    """Compare the source with the one the seal was made from.

    :raises SourceTableReplaced: the location now holds another table
    :raises SourceHistoryChanged: the table has the same id but another history
    """
    same_id = source.table_id == seal.watermark.table_id
    commit = None
    if 0 <= seal.watermark.version <= source.version:
        commit = await log.find(seal.watermark.version)
    same_commit = commit is not None and commit.sha256 == seal.watermark.commit_hash
    cleaned = commit is None and seal.watermark.version <= source.version
    if same_id and (same_commit or cleaned):
        return Identity(unproven=cleaned and seal.watermark.version >= 0)
    if same_commit:
        return Identity(
            replaced=True,
            note=f"The source {source.uri} was replaced inside its log after version {seal.watermark} (its "
            f"id is {source.table_id}, it was {seal.watermark.table_id}). The run continues.",
        )
    if same_id:
        raise SourceHistoryChanged(
            f"The source {source.uri} (version {source.version}) has another history than the one applied up "
            f"to version {seal.watermark}: {_difference(source, seal)}.",
            remedy='set on_source_replaced in policies to "reload", which compares all keys with this '
            "source. Or drop the target. Or use a new target.",
        )
    raise replaced(source, seal)


def refuse_unproven(identity: Identity, source: TableState, seal: Seal) -> None:
    """Refuse to continue after a watermark whose commit was cleaned from the source's log.

    A table that was restored from a backup has the same id, and may have another history.

    :raises VersionsExpired: nothing is left to compare
    """
    if identity.unproven:
        raise expired(
            f"Version {seal.watermark} of {source.uri}, the watermark of pipeline {seal.pipeline}, was "
            "removed from the log. So nothing shows whether the later versions continue the history that was "
            "applied, or the table was restored from a backup."
        )


async def other_history(log: DeltaLog, source: TableState, batch: Seal) -> str | None:
    """Describe how the source differs from the one that a staged batch was read from; None if it is the same.

    If the log was cleaned beyond the batch's end, only its length can be compared.
    """
    if batch.watermark.version > source.version:
        return f"its newest version is {source.version}"
    commit = await log.find(batch.watermark.version)
    if commit is not None and commit.sha256 != batch.watermark.commit_hash:
        return f"the commit file of version {batch.watermark} differs"
    return None


def _difference(source: TableState, seal: Seal) -> str:
    if source.version < seal.watermark.version:
        return "its log ends before it"
    return "the commit file of that version differs"


def replaced(source: TableState, seal: Seal, and_then: str = "") -> SourceTableReplaced:
    """Build the error for a source that is now another table.

    :param and_then: ends the remedy
    """
    return SourceTableReplaced(
        f"The source {source.uri} (version {source.version}) is another table now: its id is "
        f"{source.table_id}, and {seal.watermark.table_id} was applied up to version {seal.watermark}.",
        remedy='set on_source_replaced in policies to "reload", which compares all keys with the new table. '
        f"Or drop the target. Or use a new target{and_then}.",
    )


def feed_disabled(uri: str, version: int) -> ChangeFeedDisabled:
    """Build the error for a version without change data feed."""
    return ChangeFeedDisabled(
        f"The change data feed of {uri} is off in version {version} ({CHANGE_FEED} is not true).",
        remedy="turn it on with DeltaEnableChangeDataFeedOperator, or ALTER TABLE … SET TBLPROPERTIES "
        f"('{CHANGE_FEED}' = 'true'), and start after that commit, because the feed has no earlier changes. "
        "Or set method to 'auto'.",
    )


async def check_feed(log: DeltaLog, commits: tuple[Commit, ...], at_end: TableState) -> None:
    """Refuse a range if the change data feed is off in any of its versions.

    :param commits: the commits to be read, ascending; the last one is ``at_end``'s
    :raises ChangeFeedDisabled: names the first such version
    """
    described = [commit for commit in commits if commit.metadata is not None]
    first = commits[0]
    if first.metadata is not None:
        configuration = first.metadata.configuration
    elif described:
        configuration = (await log.snapshot(first.version)).configuration
    else:
        configuration = at_end.configuration
    if not feed_on(configuration):
        raise feed_disabled(at_end.uri, first.version)
    for commit in described:
        if commit.metadata is not None and not feed_on(commit.metadata.configuration):
            raise feed_disabled(at_end.uri, commit.version)


async def refuse_empty_copy(request: ApplyRequest, copy: TableState) -> None:
    """Refuse a full copy without rows: more often a failed export than the end of all rows.

    :raises EmptyCopy: the source consists of full copies, and ``allow_empty`` is not set
    """
    if request.options.source_kind != "snapshot" or request.allow_empty:
        return
    if await asyncio.to_thread(lambda: copy.is_empty):
        effect = "close" if request.options.stored_as_scd_type == 2 else "delete"
        raise EmptyCopy(
            f"The copy in version {copy.version} of {copy.uri} has no rows, so pipeline {request.pipeline} "
            f"would {effect} every row of {canonical_uri(request.target)}.",
            remedy="if this is a mistake, deliver a whole copy, and run once with mode='reload', which takes "
            "the newest copy alone. If it is right, set allow_empty in policies.",
        )


async def copy_at(log: DeltaLog, version: int) -> Commit | None:
    """Return the newest commit up to a version that changed data; None if the log does not show it.

    Maintenance of the source may have moved the watermark beyond its last copy.
    """
    for earlier in range(version, max(version - _MOST_STEPS_BACK, -1), -1):
        try:
            (commit,) = await log.commits(range(earlier, earlier + 1))
        except (VersionsExpired, LogGap):
            return None
        if commit.changes_data:
            return commit
    return None


def asking(observed: Observation[ApplyRequest], name: str, why: str) -> Observation[ApplyRequest]:
    """Return an observation whose run a person must approve, if ``approval_for`` has its name.

    The job asks, because only it knows what the run would do to the rows.

    :param name: ``reset``, ``reload`` or ``drift``
    :param why: a sentence without a subject
    """
    if name not in (observed.request.approval_for or ()) or observed.recorded is None:
        return observed
    also = f"{observed.asks}; " if observed.asks else ""
    return replace(observed, asks=f"{also}{why}, and approval_for has {name}")


_IS_WHOLE = (
    "look whether the copy is whole. If it is not, deliver a whole one, and run once with mode='reload', "
    "because for SCD type 2 each copy counts."
)


async def refuse_small_copy(observed: Observation[ApplyRequest], version: int, copy: Commit | None) -> None:
    """Refuse a full copy with fewer rows than ``min_source_rows``, however the copy was written.

    :param version: of the source, whose rows are the copy
    :param copy: the commit that wrote the copy; None if it is unknown
    :raises LimitExceeded: by the statistics of the log; without them, nothing is refused
    """
    request = observed.request
    least = request.min_source_rows
    if least is None:
        return
    rows = None if copy is None else _rows_of_copy(copy)
    if rows is None:
        # Other commits keep rows of the version before.
        state = await observed.at(version)
        rows = await asyncio.to_thread(lambda: state.num_rows)
    if rows is None or rows >= least or (rows == 0 and request.allow_empty):
        return
    raise LimitExceeded(
        f"{_not_applied(request, version, rows)}min_source_rows is {least}. Nothing was written.",
        remedy=f"{_IS_WHOLE} If it is right, lower min_source_rows.",
        argument="limits",
    )


def _not_applied(request: ApplyRequest, version: int, rows: int) -> str:
    source, target = canonical_uri(request.source), canonical_uri(request.target)
    return f"The copy in version {version} of {source} was not applied to {target}: it has {rows} rows, and "


def refuse_shrunk_copy(
    request: ApplyRequest, before: Commit | None, copy: Commit, *, needs_approval: bool = False
) -> None:
    """Refuse a full copy that has far fewer rows than the one before, by the statistics of their files.

    It compares commits that replace all rows. If the run has limits of its own, the job counts the rows that
    it would change instead.

    :param before: the commit of the copy before it; None if unknown
    :param needs_approval: a person must approve the step anyway, and sees then how many rows it ends
    :raises LimitExceeded: the copy has at most half of the rows of the one before
    """
    rows, earlier = _rows_of_copy(copy), None
    if before is not None:
        # The commit that created the table wrote all its rows, whatever the operation was.
        earlier = before.rows_added if before.version == 0 else _rows_of_copy(before)
    if rows is None or (rows == 0 and request.allow_empty):
        return
    if needs_approval or request.guard.limits_rows or before is None or earlier is None:
        return
    if not has_shrunk(rows, earlier):
        return
    text = approval(
        copy.version,
        Effect(earlier, earlier - rows, 0),
        pipeline=request.pipeline,
        options=request.options,
        copy=copy.sha256,
    )
    if request.approve != text:
        raise LimitExceeded(
            f"{_not_applied(request, copy.version, rows)}the copy in version {before.version} has {earlier}; "
            "by default, a copy must have more than half of the rows of the one before."
            f"{of_another_change(request.approve)} Nothing was written.",
            remedy=f"{_IS_WHOLE} If it is right, run once with "
            f"approve = {text}; or set max_deleted in limits, such as '80 %'.",
            argument="limits",
            approval=text,
        )


def _rows_of_copy(commit: Commit) -> int | None:
    """Return the rows of a commit that replaces all rows; None for another commit, or if unknown."""
    replaces = replaces_all_rows(commit.info.operation, commit.info.operation_parameters)
    return commit.rows_added if replaces else None


def check_retention(commit: Commit, state: TableState, now_ms: int) -> None:
    """Refuse a start to which Delta no longer allows time travel, whether or not VACUUM ran.

    :param commit: the first commit that is read
    :raises VersionsExpired: the commit is older than ``delta.deletedFileRetentionDuration``
    """
    limit = milliseconds_of(FILE_RETENTION, state.configuration)
    age = now_ms - commit.timestamp
    if age > limit:
        raise expired(
            f"Version {commit.version} of {state.uri} is {readable(age)} old, which is longer than "
            f"{FILE_RETENTION} = {text_of(FILE_RETENTION, state.configuration)}. VACUUM may have deleted its "
            "files, so Delta refuses to read it.",
            or_else=f"raise {FILE_RETENTION} of the source, if VACUUM has not deleted its files yet; else ",
        )


async def check_start(log: DeltaLog, version: int) -> None:
    """Refuse a range whose first version cannot be rebuilt: the feed's reader starts from that snapshot.

    :raises VersionsExpired: the checkpoints and commits needed were cleaned
    """
    if not await log.has_commit(0):
        await log.snapshot(version)


async def check_files(log: DeltaLog, commit: Commit, *, feed: bool = True) -> None:
    """Refuse a commit whose changes are no longer on storage.

    The log does not record what VACUUM deleted, so the files themselves are checked: of a large commit, a
    sample.

    :param commit: a commit that changes data
    :param feed: check the change files if the commit has any; else only the files added and removed
    :raises VersionsExpired: names a missing file
    """
    paths = [
        action.path
        async for action in log.actions(commit.version)
        if (isinstance(action, Cdc) and feed)
        or (isinstance(action, Add | Remove) and action.data_change and not (feed and commit.has_cdc))
    ]
    sample = paths[:: max(1, -(-len(paths) // _SAMPLE))]
    exists = await gathered((log.has_file(path) for path in sample), limit=_SAMPLE)
    for path, is_there in zip(sample, exists, strict=True):
        if not is_there:
            raise expired(
                f"The file {path}, which holds changes of version {commit.version} of {log.uri}, is gone "
                "(VACUUM)."
            )


async def read_range(log: DeltaLog, starting: int, ending: int) -> tuple[Commit, ...]:
    """Return every commit of a range; Delta's own feed reader would silently skip a gap.

    :raises VersionsExpired: the log was cleaned beyond the start
    :raises LogGap: a commit file is missing
    """
    commits = await log.commits(range(starting, ending + 1))
    numbers = [commit.version for commit in commits]
    if numbers != list(range(starting, ending + 1)):
        raise LogGap(
            f"Some of the commits {starting}-{ending} of {log.uri} are missing.",
            remedy=LOG_GAP_REMEDY,
        )
    return commits
