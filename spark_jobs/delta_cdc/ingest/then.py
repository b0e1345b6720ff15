"""The apply behind an ingest, in the same application: planned where the ingest ran, from the log it wrote.

It is what :func:`delta_cdc.apply_changes` does in a plain session, and needs what reads logs without Spark
(obstore). Where the driver does not have that, whoever started the application applies in one of its own.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.errors import InvalidConfiguration
from delta_cdc.spec import ApplyOptions, ApplySpec, JobResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from delta_cdc.plan import ApplyRequest

log = logging.getLogger(__name__)

#: Names a JSON file, readable by nobody else, with the options of the object store.
STORAGE_OPTIONS = "DELTA_CDC_STORAGE_OPTIONS"


def described(request: ApplyRequest) -> dict[str, Any]:
    """Return a request as a spec carries it: JSON, without the credentials of the object store."""
    data = {f.name: getattr(request, f.name) for f in fields(request) if f.name != "storage_options"}
    found: dict[str, Any] = json.loads(json.dumps({**data, "options": asdict(request.options)}))
    return found


def rebuilt(data: Mapping[str, Any], storage_options: Mapping[str, str] | None = None) -> ApplyRequest:
    """Return the request that :func:`described` was given.

    :param storage_options: options of the object store, which it does not carry
    """
    from delta_cdc.plan import ApplyRequest

    given: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in data["options"].items()
    }
    return ApplyRequest(
        **{
            **data,
            "options": ApplyOptions(**given),
            "storage_options": dict(storage_options) if storage_options else None,
        }
    )


def run(
    spark: SparkSession,
    data: Mapping[str, Any],
    storage_options: Mapping[str, str] | None = None,
    scratch: str | None = None,
) -> JobResult:
    """Apply what a change log holds beyond its target's watermark.

    :param data: of :func:`described`
    :param storage_options: None takes those of the file that :data:`STORAGE_OPTIONS` names, if it is set
    :param scratch: a folder for slices that this process and Spark's executors reach; None where Spark runs
        on this machine alone
    :return: ``committed``; ``skipped`` where there was nothing to do; ``planned`` where it was not run,
        because this driver cannot read logs without Spark; ``failed`` with the named error. The ingest
        stands, whichever it is
    """
    from delta_cdc import job

    if find_spec("obstore") is None:
        return JobResult("planned", message="not run: obstore is not installed where the driver runs")
    place = f"{data['source']} into {data['target']}"
    log.info("applying %s", place)
    try:
        from delta_cdc.flow import run_apply

        options = storage_options if storage_options is not None else _from_environment()
        request = rebuilt(data, options)
        done = run_apply(request, execute=partial(_execute, spark, options, scratch), say=log.info)
    except Exception as error:  # noqa: BLE001 - what was ingested stands; the result says the rest by name
        return job.failed(error, place)
    message = f"target version {done.target_version}"
    return JobResult("committed" if done.applied else "skipped", counts=dict(done.counts), message=message)


def _execute(
    spark: SparkSession, storage_options: Mapping[str, str] | None, scratch: str | None, spec: ApplySpec
) -> JobResult:
    from delta_cdc import job
    from delta_cdc.log.slices import prepared
    from delta_cdc.scratch import folder_for

    segments = [segment for step in spec.steps for segment in step.segments]
    folder = folder_for(spark, segments, scratch)
    options = dict(storage_options) if storage_options else None
    return job.run(spark, prepared(spec, folder, options))


def _from_environment() -> dict[str, str] | None:
    path = os.environ.get(STORAGE_OPTIONS)
    if not path:
        return None
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise InvalidConfiguration(
            f"{STORAGE_OPTIONS} names {path}, which cannot be read: {error}.",
            remedy="name a JSON file with the options of the object store, or leave the variable unset.",
        ) from error
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}
