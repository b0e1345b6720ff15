"""The command ``delta-cdc``. It needs no Airflow, and no Spark unless a subcommand says so.

Exit codes: 0 all is well, 1 a finding (a named error, no proof), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from delta_cdc.checks import options_of
from delta_cdc.errors import DeltaCdcError, InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delta_cdc.status import Status


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except InvalidConfiguration as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except DeltaCdcError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


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
        description="Without a watermark it tells the initial load. Configuration is taken from the seal.",
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
    plan.set_defaults(run=_plan)
    jars = commands.add_parser(
        "jars", help="print the Delta JARs that Spark needs; resolves them once through Spark's own Ivy"
    )
    jars.set_defaults(run=_jars)
    return parser


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
    from delta_cdc.log.table import DeltaLog
    from delta_cdc.plan import ApplyRequest, plan_apply
    from delta_cdc.reconcile import reconcile
    from delta_cdc.spec import ApplyOptions

    proof = reconcile(DeltaLog(arguments.target), arguments.pipeline)
    seal = proof.seal if proof is not None else None
    names = ("starting_version", "ending_version", "starting_timestamp", "ending_timestamp", "max_versions",
             "max_bytes", "milestone_versions", "milestone_bytes")  # fmt: skip
    request = ApplyRequest(
        pipeline=arguments.pipeline,
        source=arguments.source,
        target=arguments.target,
        # Without a seal nothing is known of the rows, and a load asks for nothing.
        options=options_of(seal) if seal is not None else ApplyOptions(insert_only=True),
        **{name: getattr(arguments, name) for name in names},
    )
    print(plan_apply(request))
    return 0


def _jars(arguments: argparse.Namespace) -> int:
    from delta_cdc.jars import delta_jars

    for jar in delta_jars():
        print(jar)
    return 0


if __name__ == "__main__":
    sys.exit(main())
