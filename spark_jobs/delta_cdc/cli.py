"""The command ``delta-cdc``. It needs no Airflow, and no Spark unless a subcommand says so.

``changes`` starts Spark in this process, once it knows that there are rows to read.

Exit codes: 0 all is well, 1 a finding (a named error, no proof), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from delta_cdc import output
from delta_cdc.arguments import MODES, sequences
from delta_cdc.checks import ingest_options_of, options_of
from delta_cdc.errors import DeltaCdcError, InvalidConfiguration, JobFailed, TableNotFound
from delta_cdc.spec import ApplyOptions, Capture, IngestOptions, Query, SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.plan import ChangesPlan
    from delta_cdc.spec import ApplySpec, JobResult
    from delta_cdc.status import Status
    from delta_cdc.watermark import Seal


_TABLE_LIMIT = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        code = int(arguments.run(arguments))
        sys.stdout.flush()
        return code
    except InvalidConfiguration as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except DeltaCdcError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader, such as head, has had enough; Python would complain again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="delta-cdc", description="Change data capture between Delta tables, exactly once."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    status = commands.add_parser(
        "status",
        help="show how far pipelines are behind their sources, from the logs alone (starts no Spark)",
        description="Prints source version, watermark, lag and until when it can be caught up with. Exit "
        "code 1: somebody should look, as nothing is proved, or more than half of a retention has passed.",
    )
    status.add_argument("pairs", nargs="+", metavar="PIPELINE=TARGET", help="a pipeline and its target")
    status.add_argument("--json", action="store_true", help="print everything, the newest seals too, as JSON")
    status.set_defaults(run=_status)
    plan = commands.add_parser(
        "plan",
        help="show what the next run of a pipeline would do, from the logs alone (starts no Spark)",
        description="Without a watermark it tells the initial load. Configuration is taken from the seal; "
        "--key, --source-kind and --sequence-by stand in for it before there is one.",
    )
    plan.add_argument("source", help="path or URI of the source table")
    plan.add_argument("target", help="path or URI of the target table")
    plan.add_argument("--pipeline", required=True, help="the pipeline's name")
    bounds = plan.add_argument_group("bounds, as the operator's arguments of the same names")
    for name in ("starting-version", "ending-version", "max-versions", "max-bytes"):
        bounds.add_argument(f"--{name}", type=int, metavar="N")
    for name in ("milestone-versions", "milestone-bytes"):
        bounds.add_argument(f"--{name}", type=int, metavar="N")
    for name in ("starting-timestamp", "ending-timestamp"):
        bounds.add_argument(f"--{name}", metavar="TIME")
    mode = plan.add_argument_group("what the run is to do")
    mode.add_argument("--mode", choices=MODES, default="incremental", help="default: incremental")
    mode.add_argument("--repair-keys", metavar="SQL", help="repair: predicate over the key columns")
    mode.add_argument("--repair-quarantined", action="store_true", help="repair: the keys in quarantine")
    mode.add_argument("--discard-history", action="store_true", help="reset of type 2: its history may go")
    told = plan.add_argument_group("before the first load")
    told.add_argument("--source-kind", choices=get_args(SourceKind), help="default: change_feed")
    told.add_argument("--key", dest="keys", action="append", metavar="COLUMN", help="repeatable")
    told.add_argument("--sequence-by", action="append", metavar="SQL", help="repeatable; of a change log")
    ingest = plan.add_argument_group("a look at what an ingest would take")
    ingest.add_argument(
        "--ingest", action="store_true",
        help="SOURCE is a folder of files or kafka://<host:port>,…/<topic>,…, and TARGET its change log",
    )  # fmt: skip
    for name in ("max-files", "max-offsets"):
        ingest.add_argument(f"--{name}", type=int, metavar="N")
    ingest.add_argument("--glob", metavar="PATTERN", help="over the files' own names")
    ingest.add_argument("--kafka-options", type=Path, metavar="FILE",
                        help="JSON file with the configuration of Kafka's client")  # fmt: skip
    plan.set_defaults(run=_plan)
    _add_changes(commands)
    _add_replay(commands)
    jars = commands.add_parser(
        "jars", help="print the Delta JARs that Spark needs; resolves them once through Spark's own Ivy"
    )
    jars.add_argument("--kafka", action="store_true", help="the JARs of Spark's connector to Kafka as well")
    jars.set_defaults(run=_jars)
    return parser


def _add_changes(commands: Any) -> None:
    changes = commands.add_parser(
        "changes",
        help="show what changed in a table between two versions (starts Spark here, if there is anything)",
        description="Without --to the range ends at the newest version. Both ends are inclusive. Sorted by "
        "version, then key (without keys: the first column), the state before ahead of the one after.",
    )
    changes.add_argument("table", metavar="TABLE", help="path or URI of the table")
    start = changes.add_mutually_exclusive_group(required=True)
    end = changes.add_mutually_exclusive_group()
    for group, short, long in ((start, "from", "starting"), (end, "to", "ending")):
        name, which = (f"{long}_version", f"{long}_timestamp"), "first" if long == "starting" else "last"
        group.add_argument(f"--{short}", f"--{long}-version", dest=name[0], type=int, metavar="N",
                           help=f"{which} version")  # fmt: skip
        group.add_argument(f"--{short}-time", f"--{long}-timestamp", dest=name[1], metavar="TIME",
                           help="the same as a time, ISO 8601 with offset")  # fmt: skip
    asked = changes.add_argument_group("what is asked, as the parameters of read_changes")
    asked.add_argument("--query", choices=get_args(Query), default="full_delta", help="default: full_delta")
    asked.add_argument(
        "--key", dest="keys", action="append", default=[], metavar="COLUMN",
        help="column that identifies a row, repeatable; needed by min_delta, upsert and --where",
    )  # fmt: skip
    asked.add_argument("--capture", choices=get_args(Capture), default="auto", help="default: auto")
    asked.add_argument("--raw", action="store_true", help="full_delta: exactly what the change feed holds")
    asked.add_argument("--where", metavar="SQL", help="predicate on rows: leaving it is a delete")
    asked.add_argument("--select", action="append", metavar="SQL", help="projection of rows, repeatable")
    asked.add_argument(
        "--on-change-commit", choices=("fail", "skip"), default="fail",
        help="capture added_files: what to do at a commit that removes rows",
    )  # fmt: skip
    shown = changes.add_argument_group("how it is shown")
    shown.add_argument("--plan", action="store_true", help="only say how it would be read; starts no Spark")
    shown.add_argument("--format", choices=output.FORMATS, default="table", help="default: table")
    shown.add_argument(
        "--limit", type=int, metavar="N",
        help=f"show so many rows; default: {_TABLE_LIMIT} in a table, all in the other formats",
    )  # fmt: skip
    shown.add_argument("--output", type=Path, metavar="FILE", help="write csv, json or parquet there")
    changes.set_defaults(run=_changes)


def _add_replay(commands: Any) -> None:
    replay = commands.add_parser(
        "replay",
        help="try again what is in quarantine, after mending (starts Spark here, if there is anything)",
        description="Of a change log, the records are read again; what is an event now goes into the log. Of "
        "a target, the rows of the keys are computed again. Both take from their seal what they were made "
        "with; the options below stand in for it. Exit code 1: some of it still has to stay in quarantine.",
    )
    replay.add_argument("pair", metavar="PIPELINE=TABLE", help="a pipeline, and its change log or target")
    log = replay.add_argument_group("for a change log, as the arguments of ingest_changes")
    log.add_argument("--adapter", metavar="NAME")
    log.add_argument("--adapter-options", type=_json_object, metavar="JSON")
    log.add_argument("--format-options", type=_json_object, metavar="JSON")
    log.add_argument("--schema", metavar="DDL")
    log.add_argument("--key", dest="keys", action="append", metavar="COLUMN", help="repeatable")
    target = replay.add_argument_group("for a target")
    target.add_argument(
        "--last-by", action="append", metavar="COLUMN",
        help="of events with one sequence the greatest wins, repeatable; as on_tie",
    )  # fmt: skip
    replay.set_defaults(run=_replay)


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    return found


def _status(arguments: argparse.Namespace) -> int:
    from delta_cdc.log.table import run_sync
    from delta_cdc.status import Status, status_of_all

    pairs = [_pair(text) for text in arguments.pairs]
    found = run_sync(status_of_all(pairs))
    named = []
    for entry in found:
        if not isinstance(entry, Status | DeltaCdcError):
            raise entry
        named.append(entry)
    if arguments.json:
        print(json.dumps([_as_json(*both) for both in zip(pairs, named, strict=True)], indent=2))
    else:
        for both in zip(pairs, named, strict=True):
            print("\n".join(_status_lines(*both)))
    return 1 if any(isinstance(entry, DeltaCdcError) or entry.findings for entry in named) else 0


def _pair(text: str) -> tuple[str, str]:
    pipeline, equals, target = text.partition("=")
    if not equals or not pipeline or not target:
        raise InvalidConfiguration(
            f"{text!r} names no pipeline and target.",
            remedy="write PIPELINE=TARGET, for instance orders=/lake/orders.",
        )
    return pipeline, target


def _as_json(pair: tuple[str, str], found: Status | DeltaCdcError) -> dict[str, Any]:
    if isinstance(found, DeltaCdcError):
        return {"pipeline": pair[0], "target": pair[1], "error": found.to_dict()}
    return found.to_dict()


def _status_lines(pair: tuple[str, str], found: Status | DeltaCdcError) -> Iterator[str]:
    from delta_cdc.plan.result import readable as size
    from delta_cdc.retention import readable as span

    yield pair[0]
    if isinstance(found, DeltaCdcError):
        yield f"  {type(found).__name__}: {found}"
        return
    yield f"  target     {found.target} (version {_or_none(found.target_version)})"
    if found.ingest is not None:
        yield f"  source     {found.source or 'unknown'}"
        yield from (f"  {name:<10} {text}" for name, text in found.ingest.lines())
    else:
        yield f"  source     {found.source or 'unknown'} (version {_or_none(found.source_version)})"
    if found.committed is not None:
        commits, bytes_, seconds = found.lag_commits or 0, found.lag_bytes or 0, found.lag_seconds or 0
        lag = f"{commits} commits with changes, {size(bytes_)}, the oldest {span(int(seconds * 1000))} old"
        yield f"  watermark  {found.committed}"
        yield f"  lag        {found.lag_versions} versions" + (f": {lag}" if commits else ": no changes")
        yield f"  good until {found.readable_until or 'unknown'}"
    for finding in found.findings:
        yield f"  !          {finding}"


def _or_none(version: int | None) -> str:
    return "none" if version is None else str(version)


def _plan(arguments: argparse.Namespace) -> int:
    if arguments.ingest:
        return _plan_ingest(arguments)
    _refuse(arguments, ("max_files", "max_offsets", "glob", "kafka_options"), "without --ingest")
    from delta_cdc.log.table import DeltaLog
    from delta_cdc.plan import ApplyRequest, plan_apply
    from delta_cdc.reconcile import reconcile

    proof = reconcile(DeltaLog(arguments.target), arguments.pipeline)
    seal = proof.seal if proof is not None else None
    names = ("starting_version", "ending_version", "starting_timestamp", "ending_timestamp", "max_versions",
             "max_bytes", "milestone_versions", "milestone_bytes", "mode", "repair_keys",
             "repair_quarantined", "discard_history")  # fmt: skip
    request = ApplyRequest(
        pipeline=arguments.pipeline,
        source=arguments.source,
        target=arguments.target,
        options=_options(arguments, seal),
        **{name: getattr(arguments, name) for name in names},
    )
    print(plan_apply(request))
    return 0


_OF_AN_APPLY = ("starting_version", "ending_version", "ending_timestamp", "max_versions",
                "milestone_versions", "milestone_bytes", "repair_keys", "repair_quarantined",
                "discard_history", "source_kind", "keys", "sequence_by")  # fmt: skip


def _refuse(arguments: argparse.Namespace, names: Sequence[str], where: str) -> None:
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name)]
    if given:
        raise InvalidConfiguration(f"{', '.join(given)} given {where}.", remedy="leave them out.")


def _plan_ingest(arguments: argparse.Namespace) -> int:
    from delta_cdc.plan import IngestRequest, plan_ingest

    _refuse(arguments, _OF_AN_APPLY, "with --ingest")
    if arguments.mode != "incremental":
        raise InvalidConfiguration("--mode given with --ingest.", remedy="leave it out.")
    seal = _newest_seal(arguments.target, arguments.pipeline)
    told = ingest_options_of(seal) if seal is not None else None
    kafka = arguments.source.strip().lower().startswith("kafka://")
    # A look needs no keys: it reads no record.
    options = told or IngestOptions(source_kind="kafka" if kafka else "files", insert_only=True)
    names = ("starting_timestamp", "max_files", "max_bytes", "max_offsets", "glob")
    request = IngestRequest(
        pipeline=arguments.pipeline,
        source=arguments.source,
        log=arguments.target,
        options=options,
        kafka_options=_client_options(arguments.kafka_options),
        **{name: getattr(arguments, name) for name in names},
    )
    print(plan_ingest(request))
    return 0


def _client_options(file: Path | None) -> dict[str, str] | None:
    if file is None:
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidConfiguration(
            f"{file} cannot be read: {error}.", remedy="name a file that holds a JSON object."
        ) from error
    if not isinstance(found, dict):
        raise InvalidConfiguration(f"{file} holds no JSON object.", remedy="write one.")
    return {str(name): str(value) for name, value in found.items()}


def _newest_seal(table: str, pipeline: str) -> Seal | None:
    from delta_cdc.log.table import DeltaLog
    from delta_cdc.reconcile import reconcile

    proof = reconcile(DeltaLog(table), pipeline)
    return proof.seal if proof is not None else None


# -- replay ---------------------------------------------------------------------------------------
_OF_A_LOG = ("adapter", "adapter_options", "format_options", "schema", "keys")


def _replay(arguments: argparse.Namespace) -> int:
    from delta_cdc.ingest.taken import QUARANTINE, beside
    from delta_cdc.log.table import run_sync
    from delta_cdc.plan.quarantine import holds_records

    pipeline, table = _pair(arguments.pair)
    seal = _newest_seal(table, pipeline)
    if seal is None:
        raise TableNotFound(
            f"There is no table of pipeline {pipeline} at {table}.",
            remedy="write PIPELINE=TABLE, as the task has pipeline and log, or target.",
        )
    quarantine = beside(table, QUARANTINE)
    # What an ingest takes is no table, so its seal names none.
    is_log = not seal.source_table_id
    _refuse(arguments, ("last_by",) if is_log else _OF_A_LOG,
            f"for {table}, which is {'a' if is_log else 'no'} change log")  # fmt: skip
    if not run_sync(holds_records(quarantine, pipeline)):
        print(f"Nothing of {pipeline} is in quarantine ({quarantine}).")
        return 0
    with _session() as spark, _named(table):
        again = _ingest_again if is_log else _apply_again
        counts = again(spark, arguments, seal, table)
    rest = run_sync(holds_records(quarantine, pipeline))
    print(", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing moved")
    if rest:
        print(f"Some of it has to stay in quarantine: {quarantine} says why.", file=sys.stderr)
    return 1 if rest else 0


def _ingest_again(spark: SparkSession, arguments: argparse.Namespace, seal: Seal, log: str) -> dict[str, int]:
    from delta_cdc.api import ingest_changes

    names = ("format", "adapter", "adapter_options", "keys", "schema", "format_options", "insert_only",
             "on_invalid")  # fmt: skip
    # A seal leaves out what would make it too long.
    told = ingest_options_of(seal) or IngestOptions()
    known = {name: getattr(told, name) for name in names}
    given = {name: getattr(arguments, name) for name in _OF_A_LOG if getattr(arguments, name)}
    done = ingest_changes(
        spark, seal.source_uri, log, pipeline=seal.pipeline, replay=True, **{**known, **given}
    )
    return done.counts


def _apply_again(
    spark: SparkSession, arguments: argparse.Namespace, seal: Seal, target: str
) -> dict[str, int]:
    from delta_cdc import job
    from delta_cdc.flow import run_apply
    from delta_cdc.log.slices import prepared
    from delta_cdc.plan import ApplyRequest
    from delta_cdc.scratch import folder_for

    def execute(spec: ApplySpec) -> JobResult:
        segments = [segment for step in spec.steps for segment in step.segments]
        return job.run(spark, prepared(spec, folder_for(spark, segments, None)))

    ties = tuple(arguments.last_by or ())
    options = replace(
        options_of(seal),
        on_tie="last_by" if ties else "quarantine",
        tie_order=ties,
        on_invalid="quarantine",
    )
    request = ApplyRequest(
        pipeline=seal.pipeline,
        source=seal.source_uri,
        target=target,
        options=options,
        mode="repair",
        repair_quarantined=True,
    )
    return run_apply(request, execute=execute).counts


def _options(arguments: argparse.Namespace, seal: Seal | None) -> ApplyOptions:
    """Return the options of the seal, or, where there is none, what the command line says of them."""
    names = ("source_kind", "keys", "sequence_by")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name)}
    if seal is not None:
        if given:
            raise InvalidConfiguration(
                f"{', '.join(given)} given, and the pipeline has a watermark (seal {seal.number}).",
                remedy="leave them out: the seal says what the target was built with.",
            )
        return options_of(seal)
    return ApplyOptions(
        keys=tuple(given.get("keys", ())),
        source_kind=given.get("source_kind", ApplyOptions.source_kind),
        sequence_by=sequences(given.get("sequence_by")),
        # Where nothing is said, a load asks for nothing of the rows.
        insert_only=not given,
    )


def _changes(arguments: argparse.Namespace) -> int:
    from delta_cdc.api import plan_changes

    output.check(arguments.format, arguments.output, arguments.limit)
    names = ("query", "keys", "capture", "raw", "where", "select", "on_change_commit")
    asked = {name: getattr(arguments, name) for name in names}
    bounds = ("starting_version", "ending_version", "starting_timestamp", "ending_timestamp")
    plan = plan_changes(arguments.table, **{name: getattr(arguments, name) for name in bounds}, **asked)
    if arguments.plan:
        print(plan)
        return 0
    for note in plan.notes:
        print(note, file=sys.stderr)
    # The columns' names and types are part of what is written; of a projection only Spark knows them.
    typed = arguments.format == "parquet" or (arguments.format == "csv" and bool(arguments.select))
    if plan.segments or typed:
        with _session() as spark, _named(f"{plan.uri}, {_where(plan)}"):
            _show(_read(spark, plan, asked), plan, arguments)
    else:
        _show_nothing(plan, arguments)
    return 0


def _read(spark: SparkSession, plan: ChangesPlan, asked: dict[str, Any]) -> DataFrame:
    """Read what was planned, whatever is committed in the meantime."""
    from delta_cdc.api import read_changes

    # Not as it was written: a folder without a slash in its name is a catalog name to Spark.
    table = plan.uri
    if plan.versions is None:
        return read_changes(spark, table, starting_version=plan.at + 1, **asked)
    start, end = plan.versions.starting_version, plan.versions.ending_version
    return read_changes(spark, table, starting_version=start, ending_version=end, **asked)


def _show(rows: DataFrame, plan: ChangesPlan, arguments: argparse.Namespace) -> None:
    from delta_cdc.changes.states import match

    # full_delta does not use keys, so only the sort would notice one that is no column.
    keys = match(output.values(rows), arguments.keys, "keys", plan.uri)
    limit, path = arguments.limit, arguments.output
    if arguments.format == "table":
        lines, counts = output.table(rows, keys, limit or _TABLE_LIMIT)
        print(*lines, "", f"{counts} in {_where(plan)}", sep="\n")
        return
    with output.written(rows, keys, arguments.format, limit=limit, beside=path) as (file, counts):
        if path is not None:
            output.keep(file, path)
        else:
            with file.open(encoding="utf-8", newline="") as text:
                shutil.copyfileobj(text, sys.stdout)
    print(f"{counts} in {_where(plan)}", file=sys.stderr)


def _show_nothing(plan: ChangesPlan, arguments: argparse.Namespace) -> None:
    from delta_cdc.changes.feed import METADATA_COLUMNS

    header = output.csv_line([*plan.columns, *METADATA_COLUMNS]) if arguments.format == "csv" else ""
    if arguments.output is not None:
        arguments.output.write_text(header, encoding="utf-8")
    else:
        sys.stdout.write(header)
    print(f"0 rows in {_where(plan)}", file=sys.stdout if arguments.format == "table" else sys.stderr)


def _where(plan: ChangesPlan) -> str:
    """Return the range and how it was read, for people."""
    if plan.versions is None:
        return f"no version: the newest one is {plan.at}"
    if not plan.segments:
        return f"versions {plan.versions}, none of which changes data"
    return f"versions {plan.versions}, read by {', '.join(dict.fromkeys(s.capture for s in plan.segments))}"


@contextmanager
def _session() -> Iterator[SparkSession]:
    """Start Spark in this process; use the one that runs here, if there is one."""
    from pyspark.sql import SparkSession

    from delta_cdc.session import embedded_session

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
    session = embedded_session("delta-cdc changes", quick_start=True, **confs)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _named(place: str) -> Iterator[None]:
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


def _jars(arguments: argparse.Namespace) -> int:
    from delta_cdc.jars import delta_jars, kafka_jars

    for jar in (*delta_jars(), *(kafka_jars() if arguments.kafka else ())):
        print(jar)
    return 0


if __name__ == "__main__":
    sys.exit(main())
