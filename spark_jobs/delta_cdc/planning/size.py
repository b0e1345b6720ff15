"""Estimates, without a JVM, the maximum bytes a job reads and rewrites, to choose how an embedded JVM starts.

A JVM that uses only its quick compiler starts in half the CPU time, but computes three times as long once it
is warm. That pays off if startup is most of the job's cost (:func:`is_small`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import DeltaCdcError, NotADeltaTable, TableNotFound
from delta_cdc.core.spec import (
    ApplySpec,
    ApplyStep,
    BatchSpec,
    CareSpec,
    IngestSpec,
    LoadStep,
    ReadSpec,
    VerifySpec,
    ranges_of,
)
from delta_cdc.delta_log.table import DeltaLog, run_sync

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from delta_cdc.core.spec import ReadStep, Spec, TargetStep

#: Maximum bytes of Parquet, read and rewritten, of a small job. A cautious guess;
#: ``benchmarks/start.py`` can measure it.
SMALL = 64 << 20

#: Assumed size of a topic's record, in bytes.
_RECORD = 1_024
#: A table without a checksum and with at most this many versions is sized from its commits.
_YOUNG = 20
#: Steps without rows.
_ALONE = ("baseline", "renew", "take_over", "complete", "commit")


def is_small(spec: Spec, storage_options: Mapping[str, str] | None = None) -> bool:
    """Return whether startup is most of a job's cost; False if its size is not known.

    This costs one small read per table.

    :param storage_options: of the object store, as delta-rs names them
    """
    options = dict(storage_options) if storage_options else None
    try:
        size = run_sync(work_size(spec, options))
    except DeltaCdcError:
        # The code that needs the table reports its errors.
        return False
    return size is not None and size <= SMALL


async def work_size(spec: Spec, storage_options: dict[str, str] | None = None) -> int | None:
    """Return the maximum bytes that a job reads and may rewrite; None if unknown.

    :param storage_options: see :func:`is_small`
    :raises DeltaCdcError: a table's log cannot be read
    """
    if isinstance(spec, BatchSpec):
        return await _sum(work_size(part, storage_options) for part in spec.parts)
    if isinstance(spec, ApplySpec | ReadSpec):
        return await _of_steps(spec, storage_options)
    if isinstance(spec, IngestSpec):
        return await _of_batch(spec, storage_options)
    if isinstance(spec, VerifySpec):
        tables = [table_size(spec.target_uri, spec.target_version, storage_options)]
        if spec.current is not None:
            tables.append(table_size(spec.current.uri, spec.current.version, storage_options))
        if spec.source_uri is not None and spec.step is not None:
            tables.append(table_size(spec.source_uri, spec.step.at, storage_options))
        return await _sum(tables)
    if isinstance(spec, CareSpec):
        return await table_size(spec.table_uri, None, storage_options)
    return 0


async def table_size(
    uri: str, version: int | None, storage_options: dict[str, str] | None = None
) -> int | None:
    """Return the bytes of a table's files, from one read of its log; None if the log does not show them.

    Some writers, such as Delta's own, store the size beside the commit (``.crc``). For a young table without
    it, the result is the bytes its commits ever added, which is at least the current size.

    :param version: None: the newest
    """
    log = DeltaLog(uri, storage_options)
    newest = await log.newest_version() if version is None else version
    if newest < 0:
        return 0
    checksum = await log.checksum_size(newest)
    if checksum is not None:
        return checksum
    if newest >= _YOUNG:
        return None
    commits = await log.commits(range(newest + 1))
    return sum(commit.bytes_added for commit in commits)


async def _of_steps(spec: ApplySpec | ReadSpec, options: dict[str, str] | None) -> int | None:
    steps = [step for step in spec.steps if step.kind not in _ALONE]
    read = await _sum(_read(spec, step, options) for step in steps)
    planned_on = next((step.planned_on for step in steps if step.planned_on is not None), None)
    if read is None or planned_on is None or isinstance(spec, ReadSpec):
        return read
    target = spec.target_bytes
    if target is None:
        target = await table_size(spec.target_uri, planned_on.version, options)
    # Each step may read all of the target.
    return None if target is None else read + target * len(steps)


async def _read(
    spec: ApplySpec | ReadSpec, step: TargetStep | ReadStep, options: dict[str, str] | None
) -> int | None:
    if isinstance(step, LoadStep | ApplyStep) and step.staging is not None:
        return await table_size(step.staging.uri, step.staging.version, options)
    read_ranges = ranges_of((step,))
    if read_ranges:
        return sum(read_range.size for read_range in read_ranges)
    if isinstance(step, LoadStep) and step.is_empty:
        return 0
    return await table_size(spec.source_uri, step.ending_version, options)


async def _of_batch(spec: IngestSpec, options: dict[str, str] | None) -> int | None:
    if any(file.again for file in spec.files) or any(part.again for part in spec.offsets):
        # The job looks up their records in the log, so the size is unknown.
        return None
    size = sum(file.size for file in spec.files)
    size += _RECORD * sum(part.ending_offset - part.starting_offset for part in spec.offsets)
    if spec.after is None or size > SMALL:
        return size
    # The job applies everything in the log after the watermark, not only this batch.
    tables = await _sum(_if_it_exists(uri, options) for uri in (spec.log_uri, spec.after.target))
    return None if tables is None else 2 * size + tables


async def _if_it_exists(uri: str, options: dict[str, str] | None) -> int | None:
    try:
        return await table_size(uri, None, options)
    except (TableNotFound, NotADeltaTable):
        return 0


async def _sum(parts: Iterable[Coroutine[Any, Any, int | None]]) -> int | None:
    total = 0
    for size in await gathered(parts):
        if size is None:
            return None
        total += size
    return total
