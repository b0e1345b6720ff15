"""How much a job reads and rewrites at most. Every file of these tables has 100 bytes, as their logs say."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.options import ApplyOptions, IngestOptions
from delta_cdc.core.spec import (
    BatchSpec,
    ComparedTarget,
    EnableSpec,
    IngestSpec,
    OffsetRange,
    OptimizeSpec,
    ResolveSpec,
    SourceFile,
    VacuumSpec,
    VerifySpec,
)
from delta_cdc.core.steps import NoRows
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning import size
from tests.support.steps import ingest_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.logs import LogTable
    from tests.support.tables import Tables


def _told(table: LogTable, size: object) -> None:
    """Leave what Delta's writer leaves beside a commit."""
    file = table.file(table.version).with_suffix(".crc")
    file.write_text(size if isinstance(size, str) else json.dumps({"tableSizeBytes": size, "numFiles": 1}))


def _load(tables: Tables) -> Any:
    return tables.apply().spec


def _apply(tables: Tables) -> Any:
    tables.sealed(3)
    return tables.apply().spec


def _staged(tables: Tables) -> Any:
    tables.sealed(3)
    tables.staged(101, 4, 5)
    return tables.apply(staging=tables.staging.uri).spec


def _reload(tables: Tables) -> Any:
    tables.sealed(3)
    return tables.apply(mode="reload").spec


def _reseal(tables: Tables) -> Any:
    spec = _apply(tables)
    return replace(spec, steps=(replace(spec.steps[0], kind="renew", read=NoRows()),))


def _ingest(tables: Tables, **more: Any) -> IngestSpec:
    step = ingest_step(applied_from=0)
    files = (SourceFile("a", 30, 0), SourceFile("b", 12, 0))
    made = IngestSpec(
        pipeline="p",
        run_id="r",
        source_uri="/in",
        log_uri=tables.source.uri,
        ingested_uri="/i",
        quarantine_uri="/q",
        options=IngestOptions(),
        steps=(step,),
        files=files,
    )
    return replace(made, **more)


def _verify(tables: Tables) -> VerifySpec:
    tables.sealed(3)
    other = ComparedTarget(tables.source.uri, TableVersion("other", 2), ApplyOptions())
    return VerifySpec(
        pipeline="p",
        run_id="r",
        target_uri=tables.target.uri,
        target_version=0,
        options=ApplyOptions(),
        checks=(),
        current=other,
    )


#: A job of tables whose source has five files, and the bytes of it.
def _milestones(tables: Tables) -> Any:
    tables.sealed(3)
    return tables.apply(versions_per_commit=1).spec


def _of_files(*files: SourceFile, **more: Any) -> Callable[[Tables], IngestSpec]:
    return lambda tables: _ingest(tables, files=files, **more)


#: A job of tables whose source has five files, and the bytes of it.
JOBS: dict[str, tuple[Callable[[Tables], Any], int | None]] = {
    "load: all of the source": (_load, 500),
    "apply: the range, and the target": (_apply, 200 + 100),
    "two steps: each may go through the whole target": (_milestones, 200 + 2 * 100),
    "reload: all of the source, and the target": (_reload, 500 + 100),
    "a batch that is staged, and the target": (_staged, 100 + 100),
    "a seal alone": (_reseal, 0),
    "two of them": (lambda t: BatchSpec(run_id="r", parts=(_load(t), _ingest(t))), 500 + 10),
    "files of text": (_ingest, 30 // 4 + 12 // 4),
    "files of text, one compressed": (
        _of_files(SourceFile("a.JSON.gz", 30, 0), SourceFile("b", 12, 0)),
        2 * 30 + 12 // 4,
    ),
    "files of Parquet": (lambda t: _ingest(t, options=IngestOptions(format="parquet")), 42),
    "files, some of them again": (_of_files(SourceFile("a", 3, 0, again=True)), None),
    "records": (_of_files(offsets=(OffsetRange("t", 0, 5, 8),)), 3 * 1024 // 4),
    "records, some of them again": (_of_files(offsets=(OffsetRange("t", 0, 5, 8, True),)), None),
    "files, and an apply of all the log holds": (
        lambda t: (t.sealed(3), _ingest(t, after=(t.request(),)))[1],
        2 * 10 + 500 + 100,
    ),
    "files, and two applies of all the log holds": (
        lambda t: (t.sealed(3), _ingest(t, after=(t.request(), t.request())))[1],
        3 * 10 + 2 * (500 + 100),
    ),
    "files, and an apply to none yet": (
        lambda t: _ingest(t, log_uri=t.staging.uri, after=(t.request(),)),
        2 * 10,
    ),
    "two targets compared": (_verify, 100 + 200),
    "maintenance": (lambda t: OptimizeSpec(run_id="r", table_uri=t.source.uri), 500),
    "features": (lambda t: EnableSpec(run_id="r", tables=(t.source.uri,)), 0),
    "names": (lambda t: ResolveSpec(run_id="r", tables=("a.b",)), 0),
}


@pytest.mark.parametrize(("job", "bytes_"), JOBS.values(), ids=JOBS.keys())
def test_the_size_of_a_job(tables: Tables, job: Any, bytes_: int | None) -> None:
    assert run_sync(size.work_size(job(tables))) == bytes_


@pytest.mark.parametrize(
    ("told", "found"), [(7_000, 7_000), ("{", 500), ("{}", 500), ('{"tableSizeBytes": "9"}', 500)]
)
def test_a_checksum_file_is_believed_and_not_needed(tables: Tables, told: object, found: int) -> None:
    _told(tables.source, told)
    assert run_sync(size.table_size(tables.source.uri, None)) == found


def test_of_an_old_table_without_one_nothing_is_known(tables: Tables) -> None:
    while tables.source.version < size._YOUNG:
        tables.source.append()
    assert run_sync(size.table_size(tables.source.uri, None)) is None
    assert run_sync(size.work_size(_load(tables))) is None
    _told(tables.source, 7)
    assert run_sync(size.work_size(_load(tables))) == 7


def test_a_job_of_unknown_size_is_not_small(tables: Tables) -> None:
    assert size.job_size(_load(tables)) == 500
    assert size.job_size(_ingest(tables, files=(SourceFile("a", 3, 0, again=True),))) == math.inf
    assert size.job_size(VacuumSpec(run_id="r", table_uri=f"{tables.source.uri}-gone")) == math.inf
