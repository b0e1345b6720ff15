"""What several subcommands need."""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.errors import DeltaCdcError, InvalidConfiguration, JobFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from delta_cdc.config import Group, Table
    from delta_cdc.watermark import Seal


def pipeline_and_table(text: str) -> tuple[str, str]:
    """Read ``PIPELINE=TABLE``.

    :raises InvalidConfiguration: it is something else
    """
    pipeline, equals, target = text.partition("=")
    if not equals or not pipeline or not target:
        raise InvalidConfiguration(
            f"{text!r} names no pipeline and target.",
            remedy="write PIPELINE=TARGET, for instance orders=/lake/orders.",
        )
    return pipeline, target


def json_object(text: str) -> dict[str, Any]:
    """Read an argument that is a JSON object; for argparse."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    return found


def refuse(arguments: argparse.Namespace, names: Sequence[str], where: str) -> None:
    """Refuse options that mean nothing here.

    :param names: their names, as attributes of ``arguments``
    :raises InvalidConfiguration: names those that are given
    """
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name)]
    if given:
        raise InvalidConfiguration(f"{', '.join(given)} given {where}.", remedy="leave them out.")


def newest_seal(table: str, pipeline: str) -> Seal | None:
    """Return what a table's log says of a pipeline; None where it says nothing."""
    from delta_cdc.log.table import DeltaLog
    from delta_cdc.reconcile import reconcile

    proof = reconcile(DeltaLog(table), pipeline)
    return proof.seal if proof is not None else None


def tables_of(
    file: str, group: str | None = None, pipelines: Sequence[str] | None = None
) -> list[tuple[Group, tuple[Table, ...]]]:
    """Read a configuration, and return the groups with those of their tables that are asked for.

    :param file: file or folder
    :param group: only this one
    :param pipelines: only these
    :raises InvalidConfiguration: for a configuration that is none, or a name that is not in it
    """
    from delta_cdc.config import load
    from delta_cdc.config.findings import nearest

    groups = [found for found in load(file).groups if group in (None, found.name)]
    if not groups:
        names = [found.name for found in load(file).groups]
        raise InvalidConfiguration(f"{file} has no group {group!r}.", remedy=nearest(str(group), names))
    known = [table.pipeline for found in groups for table in found.tables]
    for name in pipelines or ():
        if name not in known:
            raise InvalidConfiguration(f"{file} has no pipeline {name!r}.", remedy=nearest(name, known))
    wanted = set(pipelines or known)
    chosen = [(found, tuple(t for t in found.tables if t.pipeline in wanted)) for found in groups]
    return [(found, tables) for found, tables in chosen if tables]


@contextmanager
def session(
    name: str = "delta-cdc changes",
    *,
    locations: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    quick_start: bool = True,
    **extra: Any,
) -> Iterator[SparkSession]:
    """Start Spark in this process; use the one that runs here, if there is one.

    :param name: of the application
    :param locations: what it has to reach: Spark is told how
    :param storage_options: of the object store there; None is what the environment says
    :param quick_start: see :func:`delta_cdc.session.embedded_session`
    :param extra: more for it
    """
    from pyspark.sql import SparkSession

    from delta_cdc.session import embedded_session
    from delta_cdc.storage import spark_storage
    from delta_cdc.telling import telling

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    confs: dict[str, Any] = {
        # What fails arrives here as an error; Spark would tell it beforehand, at length.
        "spark.log.level": "OFF",
        # Readers of Parquet beside Spark have stopped to understand its older default.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    with tempfile.TemporaryDirectory(prefix="delta-cdc-") as folder:
        with telling(spark_storage(storage_options, locations), Path(folder)) as told:
            confs |= {"quick_start": quick_start, "locations": locations, **told, **extra}
            started = embedded_session(name, **confs)
        try:
            yield started
        finally:
            started.stop()


@contextmanager
def named(place: str) -> Iterator[None]:
    """Give what Spark raises its name, once, on one line.

    :param place: table and versions
    """
    from delta_cdc.quiet import quietly

    try:
        with quietly():
            yield
    except (DeltaCdcError, BrokenPipeError):
        raise
    except Exception as error:
        from delta_cdc import job

        failure = job.named(error, place)
        if isinstance(failure, JobFailed):
            remedy = "for Spark's whole story, call the function in a session of your own."
            raise JobFailed(failure.message, remedy=remedy) from error
        raise failure from error
