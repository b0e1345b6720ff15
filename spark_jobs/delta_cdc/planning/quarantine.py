"""Resumes a try that died after its commit to the quarantine table and before its commit to the target."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core.errors import NotADeltaTable, QuarantineMissing, TableNotFound
from delta_cdc.core.quarantine import ASIDE, NULL_KEY, SETTLED_BY, SETTLING, Held, quarantine_of
from delta_cdc.core.reasons import reason
from delta_cdc.core.uris import canonical_uri
from delta_cdc.core.watermark import app_id, refused_id
from delta_cdc.delta_log.requests import Storage
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.seal_chain import Back, seal_of
from delta_cdc.planning.taken_files import read_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from delta_cdc.core.requests import ApplyRequest
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.observe import Observation


logger = logging.getLogger(__name__)

#: The most files that are read for a count.
_MOST_FILES = 50


async def resumed(observed: Observation[ApplyRequest]) -> Observation[ApplyRequest]:
    """Return the observation, with the end of a try that died after its commit to the quarantine.

    The quarantine holds that try's rows under the target's next seal number. The same end is used again, so
    that exactly the next commit leaves out the rows that are in quarantine. If the target refused the rows of
    that try, the end is free: at the same end, the target would refuse them again.

    :raises CorruptLog: the quarantine's log is damaged
    """
    request = observed.request
    unfinished = await _begun(observed)
    if unfinished is None:
        return observed
    ending = unfinished.step.ending_version
    note = (
        f"An earlier try has written what versions {unfinished.step.starting_version}-{ending} of "
        f"{observed.source.uri} leave in quarantine, but did not commit them: they are applied now."
    )
    limited = replace(
        request, versions_per_commit=None, bytes_per_commit=None, max_versions=None, max_bytes=None
    )
    return replace(
        observed,
        request=limited,
        ending=None,
        saved_end=ending,
        found=(*observed.found, note),
        drops_limits=request.may_end_early,
    )


async def _begun(observed: Observation[ApplyRequest]) -> Seal | None:
    request = observed.request
    if not request.goes_on or request.staging is not None or request.quarantine is None:
        return None
    log = DeltaLog(request.quarantine, request.storage_options)
    state = await state_of(log)
    number = observed.next_number
    if state is None or await log.transaction(app_id(request.pipeline)) != number:
        return None
    if await log.transaction(refused_id(request.pipeline)) == number:
        return None
    seal = await newest_seal(log, state.version, request.pipeline)
    if seal is None or seal.number != number or seal.step.ending_version > observed.source.version:
        return None
    follows = observed.seal is None or seal.step.starting_version == observed.seal.watermark.version + 1
    kind = "load" if observed.seal is None else "apply"
    return seal if follows and seal.step.kind == kind else None


async def state_of(log: DeltaLog) -> TableState | None:
    """Return the quarantine's state; None if it was never written to."""
    try:
        return await log.snapshot()
    except (TableNotFound, NotADeltaTable):
        if await log.left_over():
            return None
        raise


async def missing(
    seal: Seal, target: str, storage_options: dict[str, str] | None = None
) -> QuarantineMissing | None:
    """Return why the rows that a pipeline has set aside are not where a run looks for them; None if they are.

    :param seal: the pipeline's newest seal
    :param target: location of the target
    """
    beside = quarantine_of(target)
    is_known = bool(seal.state.configuration.get(ASIDE))
    if not is_known or await state_of(DeltaLog(beside, storage_options)) is not None:
        return None
    return QuarantineMissing(
        f"Pipeline {seal.pipeline} has set rows of {canonical_uri(target)} aside, and there is no table "
        f"{canonical_uri(beside)}.",
        remedy="if the target was moved, move its quarantine beside it, under this name. If these rows are "
        'given up, run once with mode="reload" (or "reset"), which sets rows aside again.',
    )


async def refuse_missing(observed: Observation[ApplyRequest], seal: Seal) -> None:
    """Refuse to go on beside an empty place: a new quarantine there would hide that the old one is elsewhere.

    :raises QuarantineMissing: names the place
    """
    request = observed.request
    error = await missing(seal, request.target, request.storage_options)
    if error is not None:
        raise error


async def newest_seal(log: DeltaLog, newest: int, pipeline: str) -> Seal | None:
    """Return the newest seal of a pipeline in an auxiliary table; None if it has none.

    :param newest: the table's newest version
    """
    async for commit in Back(log.history(), newest):
        seal = seal_of(commit, pipeline)
        if seal is not None:
            return seal
    return None


async def held(
    table: str,
    pipeline: str,
    storage_options: dict[str, str] | None,
    seal: Seal | None = None,
    *,
    is_log: bool,
) -> Held | None:
    """Return the rows of a pipeline in the quarantine of a table; None if nothing was ever put there, and if
    it cannot be read.

    It costs one look at the log of the quarantine, and if that has rows, one column of its files.

    :param table: location of the target, or of the change log
    :param seal: see :func:`rows_held`
    """
    place = quarantine_of(table)
    try:
        if await state_of(DeltaLog(place, storage_options)) is None:
            return None
        rows = await rows_held(place, pipeline, storage_options, seal)
        return Held(canonical_uri(table), rows, is_log)
    except Exception as error:  # noqa: BLE001 - for people alone: a damaged file must not fail a run
        logger.warning("Cannot count the rows in the quarantine %s: %s", place, reason(error))
        return None


async def rows_held(
    quarantine: str, pipeline: str, storage_options: dict[str, str] | None = None, seal: Seal | None = None
) -> int:
    """Return how many rows of a pipeline a quarantine has, 0 without a table.

    If it also has rows of other pipelines, or its log has no counts, deleted rows may count, too. If it has
    many files, the rows of all pipelines count, because each file would be read.

    :param quarantine: location of the table
    :param seal: the newest seal in effect: if its run died after the commit, what it took out does not count
    """
    storage, files, known = await _files(quarantine, storage_options)
    if known is not None and len(files) > _MOST_FILES:
        return known
    names = [name for name, *_ in files]
    mine, others = await asyncio.to_thread(_counted, storage, names, pipeline)
    rows = mine if others or known is None else known
    mark = seal.state.configuration.get(SETTLING) if seal is not None else None
    if mark is None:
        return rows
    # Of a file with masked rows, the rows with the mark may be gone.
    whole = [name for name, _, masked in files if not masked]
    return rows - await asyncio.to_thread(_marked, storage, whole, mark)


async def holds_rows(quarantine: str, pipeline: str, storage_options: dict[str, str] | None = None) -> bool:
    """Return whether a quarantine may hold rows of a pipeline; deleted rows may count.

    :param quarantine: location of the table
    """
    return await _has_any(lambda row: row["pipeline"] == pipeline, ("pipeline",), quarantine, storage_options)


async def may_replay(quarantine: str, pipeline: str, storage_options: dict[str, str] | None = None) -> bool:
    """Return whether a quarantine may hold rows of a pipeline that a replay applies; deleted rows may count.

    :param quarantine: location of the table
    """

    def has_key(row: dict[str, Any]) -> bool:
        return bool(row["pipeline"] == pipeline and row["reason"] != NULL_KEY)

    return await _has_any(has_key, ("pipeline", "reason"), quarantine, storage_options)


async def other_pipelines(
    quarantine: str, pipeline: str, storage_options: dict[str, str] | None = None
) -> list[str]:
    """Return the other pipelines whose rows a quarantine has, in order; deleted rows may count.

    :param quarantine: location of the table
    """
    found: set[str] = set()

    def is_mine(row: dict[str, Any]) -> bool:
        found.add(row["pipeline"] or pipeline)
        return False

    await _has_any(is_mine, ("pipeline",), quarantine, storage_options)
    return sorted(found - {pipeline})


async def has_rows_of(
    ranges: Sequence[Sequence[int]],
    quarantine: str,
    pipeline: str,
    storage_options: dict[str, str] | None = None,
) -> bool:
    """Return whether a quarantine has rows of a pipeline with numbers in ranges, or without a number.

    Deleted rows may count.

    :param ranges: first and last number of each
    :param quarantine: location of the table
    """

    def is_one(row: dict[str, Any]) -> bool:
        number = row.get("seal")
        is_within = number is None or any(first <= number <= last for first, last in ranges)
        return row["pipeline"] == pipeline and is_within

    return bool(ranges) and await _has_any(is_one, ("pipeline", "seal"), quarantine, storage_options)


async def _has_any(
    is_one: Callable[[dict[str, Any]], bool],
    columns: tuple[str, ...],
    quarantine: str,
    storage_options: dict[str, str] | None,
) -> bool:
    """Return whether a row of a quarantine fulfils a condition on some of its columns."""
    storage, files, _ = await _files(quarantine, storage_options)

    def found() -> bool:
        with storage.named():
            return any(any(map(is_one, read_columns(storage, one, columns).to_pylist())) for one, *_ in files)

    return await asyncio.to_thread(found)


async def _files(
    quarantine: str, storage_options: dict[str, str] | None
) -> tuple[Storage, list[tuple[str, str, int]], int | None]:
    """Return a quarantine's storage, its data files (:meth:`~delta_cdc.delta_log.table.DeltaLog.files`), and
    its number of rows; None if the log has no counts.

    A table that does not exist, or is empty, has no file.
    """
    uri = canonical_uri(quarantine)
    log, storage = DeltaLog(uri, storage_options), Storage(uri, storage_options)
    state = await state_of(log)
    if state is None or await asyncio.to_thread(lambda: state.is_empty):
        return storage, [], 0
    rows = await asyncio.to_thread(lambda: state.num_rows)
    return storage, list(await log.files(state.version)), rows


def _counted(storage: Storage, names: list[str], pipeline: str) -> tuple[int, int]:
    """Return the number of rows of a pipeline, and of others, in files of a quarantine."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    mine = others = 0
    with storage.named():
        for name in names:
            column = read_columns(storage, name, ("pipeline",))["pipeline"]
            rows = pc.sum(pc.equal(column, pipeline)).as_py() or 0
            mine, others = mine + rows, others + len(column) - rows
    return mine, others


def _marked(storage: Storage, names: list[str], mark: str) -> int:
    """Return how many rows of files a run with a mark took out (:data:`SETTLED_BY`)."""
    with storage.named():
        found = [read_columns(storage, name, (SETTLED_BY,)).to_pylist() for name in names]
    return sum(mark in (row.get(SETTLED_BY) or ()) for rows in found for row in rows)
