"""Helpers that several subcommands share."""

from __future__ import annotations

import argparse
import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration, JobFailed
from delta_cdc.core.option import COUNT, FLAG, KEYS, POSITIVE, PROJECTIONS
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.launch.session import get_session
from delta_cdc.planning.reconcile import reconcile
from delta_cdc.planning.staging import arrived
from delta_cdc.spark import named_errors
from delta_cdc.spark.silence_loggers import quietly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from delta_cdc.core.option import Option
    from delta_cdc.core.watermark import Seal


def exit_code(error: DeltaCdcError) -> int:
    """Return the exit code of a command for its problem: 2 for wrong usage, else 1."""
    return 2 if isinstance(error, InvalidConfiguration) else 1


# -- arguments ------------------------------------------------------------------------------------
def json_object(text: str) -> dict[str, Any]:
    """Read an argument that is a JSON object; for argparse."""
    return _object(text, "the argument")


def json_file(path: str) -> dict[str, str]:
    """Read an argument that names a file with a JSON object of texts; for argparse."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
        ) from None
    return {str(name): str(value) for name, value in _object(text, path).items()}


def _object(text: str, description: str) -> dict[str, Any]:
    try:
        value = codec.parsed(text)
    except ValueError as error:
        # The whole message of the parser would repeat a part of the text, which may hold a secret.
        line = (
            f" (line {error.__cause__.lineno})" if isinstance(error.__cause__, json.JSONDecodeError) else ""
        )
        raise argparse.ArgumentTypeError(f"{description} is no JSON{line}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{description} is no JSON object")
    return value


def bounds(start: Any, end: Any) -> None:
    """Add the arguments for a range of versions; both ends are inclusive.

    :param start: argument group for the first version
    :param end: argument group for the last version
    """
    for group, short, long, which in ((start, "from", "starting", "first"), (end, "to", "ending", "last")):
        name = (f"{long}_version", f"{long}_timestamp")
        group.add_argument(f"--{short}", f"--{long}-version", dest=name[0], type=int, metavar="N",
                           help=f"{which} version, inclusive")  # fmt: skip
        group.add_argument(f"--{short}-time", f"--{long}-timestamp", dest=name[1], metavar="TIME",
                           help=f"{which} version, as a time: ISO 8601 with offset")  # fmt: skip


def flags(group: Any, options: Iterable[Option]) -> None:
    """Add the flags of options, with their names and meanings. An option that is not given is None, or false.

    A flag of a list is repeatable, and a list of columns also has the name of one: ``--key`` and ``--keys``.
    """
    for one in options:
        kind, names = one.kind, [f"--{one.name.replace('_', '-')}"]
        more: dict[str, Any] = {"metavar": "SQL" if kind.is_sql else "TEXT"}
        # argparse formats help texts.
        text = one.doc.replace("``", "").replace("%", "%%")
        if kind is FLAG:
            more = {"action": "store_true"}
        elif kind in (COUNT, POSITIVE):
            more = {"type": int, "metavar": "N"}
        elif kind.choices:
            more = {"choices": kind.choices}
            text = f"{text}; default: {one.default}"
        elif kind in (KEYS, PROJECTIONS):
            more = {"action": "append", "metavar": "SQL" if kind.is_sql else "COLUMN"}
            text = f"{text}; repeatable"
            names = [names[0].removesuffix("s"), *names] if kind is KEYS else names
        elif kind.annotation.startswith("Mapping"):
            more = {"type": json_object, "metavar": "JSON"}
        group.add_argument(*names, dest=one.name, help=text, **more)


def given(arguments: argparse.Namespace, options: Iterable[Option]) -> dict[str, Any]:
    """Return the options that are given, as arguments of a function: those of a group in its mapping."""
    found: dict[str, Any] = {}
    for one in options:
        value = getattr(arguments, one.name)
        if value is not None:
            (found.setdefault(one.group, {}) if one.group else found)[one.key] = value
    return found


def last_by(group: Any) -> None:
    """Add the argument for the columns of ``last_by``."""
    group.add_argument(
        "--last-by", action="extend", type=lambda text: text.split(","), metavar="A,B",
        help="last_by of the pipeline's on_conflict: of conflicting events, apply the one with the greatest "
        "values in these columns; repeatable",
    )  # fmt: skip


def single_driver(group: Any, scope: str) -> None:
    """Add the argument by which a user states that the table has a single writer.

    :param scope: when the argument applies; the beginning of its help
    """
    group.add_argument(
        "--single-driver", action="store_true",
        help=f"{scope}you make sure that no other job writes to the table during the command; needed on S3 "
        "if Spark's log store is not safe for several drivers, and on disks without hard links",
    )  # fmt: skip


def refuse(
    arguments: argparse.Namespace, names: Sequence[str], where: str, remedy: str = "leave them out."
) -> None:
    """Reject options that do not fit a case.

    :param names: their names, as attributes of ``arguments``
    :param where: the case, for the error
    :raises InvalidConfiguration: names the options that are given
    """
    given_options = [_option(name) for name in names if getattr(arguments, name)]
    if given_options:
        raise InvalidConfiguration(f"{', '.join(given_options)} given {where}.", remedy=remedy)


def _option(name: str) -> str:
    """Return an option's spelling.

    :param name: its attribute of the parsed arguments
    """
    return "--pipeline" if name == "pipelines" else f"--{name.replace('_', '-')}"


# -- tables ---------------------------------------------------------------------------------------
def newest_seal(table: str, pipeline: str, storage_options: Mapping[str, str] | None = None) -> Seal | None:
    """Return a pipeline's newest seal in a table's log; None if there is no seal.

    In the staging table of a sink, it is that of the newest committed batch.
    """
    log = DeltaLog(table, dict(storage_options) if storage_options else None)
    recorded = run_sync(arrived(log, pipeline, reconcile(log, pipeline)))
    return recorded.seal if recorded is not None else None


@contextmanager
def session(
    name: str = "delta-cdc",
    *,
    locations: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    quick_start: bool = True,
    **extra: Any,
) -> Iterator[SparkSession]:
    """Start Spark in this process, or use the session that already runs in it.

    :param name: name of the application
    :param locations: the locations that Spark has to reach, and is configured for
    :param storage_options: options of their object store; None takes those of the environment
    :param quick_start: see :func:`delta_cdc.launch.session.get_session`
    :param extra: more arguments for that function
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    confs: dict[str, Any] = {
        # The caller gets an exception; Spark would also log it, at length.
        "spark.log.level": "OFF",
        # Parquet readers other than Spark no longer support its older default.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    confs |= {"quick_start": quick_start, "locations": locations, **extra}
    spark = get_session(name, storage_options=storage_options, **confs)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def named(place: str) -> Iterator[None]:
    """Turn Spark's exceptions into named errors, reported once, on one line.

    :param place: table and versions, for the error
    """
    try:
        with quietly():
            yield
    except (DeltaCdcError, BrokenPipeError):
        raise
    except Exception as error:
        failure = named_errors.named(error, place)
        if isinstance(failure, JobFailed):
            remedy = "for Spark's whole error, call the function in a session of your own."
            raise JobFailed(failure.message, remedy=remedy) from error
        raise failure from error
