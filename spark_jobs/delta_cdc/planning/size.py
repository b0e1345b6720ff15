"""Estimates, without a JVM, the maximum bytes a job reads and rewrites, to choose how an embedded JVM starts.

A JVM that uses only its quick compiler starts in half the CPU time, but computes three times as long once it
is warm. That pays off if startup is most of the job's cost (:data:`SMALL`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import DeltaCdcError, NotADeltaTable, TableNotFound
from delta_cdc.delta_log.table import DeltaLog, run_sync

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from delta_cdc.core.spec import Spec

#: Maximum bytes of Parquet, read and rewritten, of a small job. A cautious guess;
#: ``benchmarks/start.py`` can measure it.
SMALL = 64 << 20
#: Maximum bytes of a job whose expressions Spark interprets: to compile them would take longer than its rows.
TINY = 4 << 20

#: A table without a checksum and with at most this many versions is sized from its commits.
_YOUNG = 20


def job_size(spec: Spec, storage_options: Mapping[str, str] | None = None) -> float:
    """Return the maximum bytes that a job reads and may rewrite; infinite if they are not known.

    This costs one small read per table.

    :param storage_options: of the object store, as delta-rs names them
    """
    options = dict(storage_options) if storage_options else None
    try:
        size = run_sync(work_size(spec, options))
    except DeltaCdcError:
        # The code that needs the table reports its errors.
        return math.inf
    return math.inf if size is None else size


async def work_size(spec: Spec, storage_options: dict[str, str] | None = None) -> int | None:
    """Return the maximum bytes that a job reads and may rewrite; None if unknown.

    :param storage_options: see :func:`job_size`
    :raises DeltaCdcError: a table's log cannot be read
    """
    return await _sum(_job_size(part, storage_options) for part in spec.each)


async def _job_size(spec: Spec, options: dict[str, str] | None) -> int | None:
    size = spec.input_bytes
    if size is None or size > SMALL:
        return size
    # The tables of an apply that follows an ingest may come into being before it.
    read = _if_it_exists if spec.after else table_size
    of_tables = await _sum(read(uri, version, options) for uri, version in spec.whole_tables)
    return None if of_tables is None else size + of_tables


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


async def _if_it_exists(uri: str, version: int | None, options: dict[str, str] | None) -> int | None:
    try:
        return await table_size(uri, version, options)
    except (TableNotFound, NotADeltaTable):
        return 0


async def _sum(parts: Iterable[Coroutine[Any, Any, int | None]]) -> int | None:
    total = 0
    for size in await gathered(parts):
        if size is None:
            return None
        total += size
    return total
