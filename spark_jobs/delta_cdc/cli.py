"""The command ``delta-cdc``. It needs no Airflow, and no Spark unless a subcommand says so.

Exit codes: 0 all is well, 1 a finding (a named error, no proof), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from delta_cdc.errors import DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except DeltaCdcError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="delta-cdc", description="Change data capture between Delta tables, exactly once."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    status = commands.add_parser(
        "status", help="show how far a pipeline got, from the target's own log (starts no Spark)"
    )
    status.add_argument("target", help="path or URI of the target table")
    status.add_argument("--pipeline", required=True, help="the pipeline's name")
    status.add_argument("--json", action="store_true", help="print the whole seal as JSON")
    status.set_defaults(run=_status)
    jars = commands.add_parser(
        "jars", help="print the Delta JARs that Spark needs; resolves them once through Spark's own Ivy"
    )
    jars.set_defaults(run=_jars)
    return parser


def _status(arguments: argparse.Namespace) -> int:
    from delta_cdc.log.table import DeltaLog
    from delta_cdc.reconcile import reconcile

    proof = reconcile(DeltaLog(arguments.target), arguments.pipeline)
    if proof is None or proof.seal is None:
        what = "there is no table" if proof is None else "the table is empty and has no seal"
        print(f"{arguments.target}: {what}; the next run of {arguments.pipeline} loads it.")
        return 1
    seal = proof.seal
    if arguments.json:
        print(json.dumps(json.loads(seal.to_json()), indent=2, sort_keys=True))
        return 0
    for note in proof.notes:
        print(note)
    print(f"pipeline      {seal.pipeline}")
    print(f"target        {proof.target.uri} (version {proof.target.version}, id {proof.target.table_id})")
    print(f"source        {seal.source_uri} (id {seal.source_table_id})")
    print(f"watermark     {seal.watermark} (versions {seal.applied_from}-{seal.watermark} are applied)")
    print(f"last step     {seal.step.kind} of {seal.step.starting_version}-{seal.step.ending_version}, "
          f"run {seal.step.run_id or '(none)'}")  # fmt: skip
    print(f"seal          {seal.number}")
    return 0


def _jars(arguments: argparse.Namespace) -> int:
    from delta_cdc.jars import delta_jars

    for jar in delta_jars():
        print(jar)
    return 0


if __name__ == "__main__":
    sys.exit(main())
