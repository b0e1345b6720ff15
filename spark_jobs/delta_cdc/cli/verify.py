"""``delta-cdc verify``: whether targets are what their pipelines say they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import Application, refuse_templates, told_of
from delta_cdc.cli.common import pipeline_and_table, refuse, tables_of
from delta_cdc.errors import InvalidConfiguration

if TYPE_CHECKING:
    import argparse

    from delta_cdc.verify.request import VerifyRequest

_OF_A_FILE = ("group", "pipelines")
_OF_A_TARGET = ("source", "current", "last_by")


def add(commands: Any) -> None:
    """Declare the subcommand."""
    verify = commands.add_parser(
        "verify",
        help="look whether targets are what their pipelines say they are (starts Spark for their rows)",
        description="Looks at logs and rows as of one version of each target; nothing is written. Exit code "
        "1: something was found, or could not be looked at.",
    )
    verify.add_argument(
        "what",
        nargs="+",
        metavar="PIPELINE=TARGET|FILE",
        help="pipelines and their targets, or one configuration: a file or folder",
    )
    verify.add_argument("--checks", metavar="A,B", help="only these; the four of the logs start no Spark")
    verify.add_argument("--source", metavar="TABLE", help="the source, where it lies elsewhere now")
    verify.add_argument("--current", metavar="TABLE", help="a target of the other SCD type, to compare with")
    verify.add_argument(
        "--last-by",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="a change log with ties: the columns of last_by, as the pipeline has them",
    )
    verify.add_argument("--group", metavar="NAME", help="of a configuration: only this group")
    verify.add_argument(
        "--pipeline", dest="pipelines", action="append", metavar="NAME", help="only this one, repeatable"
    )
    verify.add_argument("--json", action="store_true", help="print every check as JSON")
    verify.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from delta_cdc.verify.flow import rows_of, run_verify
    from delta_cdc.verify.text import text_of

    requests, told = _asked(arguments)
    with Application(told, requests) as application:
        found = run_verify(requests, execute=application.execute, run_id="delta-cdc-verify")
    if arguments.json:
        failed = [
            {"pipeline": one.pipeline, "table": one.table, "error": one.error.to_dict()}
            for one in found
            if one.error is not None
        ]
        print(json.dumps([*rows_of(found), *failed], indent=2))
    else:
        print(text_of(found))
    return 1 if any(one.error is not None or one.findings for one in found) else 0


def _asked(arguments: argparse.Namespace) -> tuple[list[VerifyRequest], dict[str, Any]]:
    """Return what is to be verified, and what the application is told."""
    from delta_cdc.verify.checks import CHECKS
    from delta_cdc.verify.request import VerifyRequest, check_names
    from delta_cdc.verify.tables import paired, request_of

    wanted = CHECKS if arguments.checks is None else tuple(filter(None, arguments.checks.split(",")))
    check_names(wanted)
    if _names_a_file(arguments.what):
        refuse(arguments, _OF_A_TARGET, "with a configuration")
        chosen = tables_of(arguments.what[0], arguments.group, arguments.pipelines)
        tables = [table for _, tables in chosen for table in tables]
        refuse_templates(tables)
        told = told_of([group for group, _ in chosen])
        options = told["storage_options"]
        return paired(
            [request_of(table.arguments, wanted=wanted, storage_options=options) for table in tables]
        ), told
    refuse(arguments, _OF_A_FILE, "without a configuration")
    pairs = [pipeline_and_table(text) for text in arguments.what]
    if len(pairs) > 1:
        refuse(arguments, _OF_A_TARGET, "with several targets")
    ties = tuple(arguments.last_by or ())
    return [
        VerifyRequest(
            pipeline=pipeline,
            target=target,
            source=arguments.source,
            current=arguments.current,
            on_tie="last_by" if ties else "fail",
            tie_order=ties,
            wanted=wanted,
        )
        for pipeline, target in pairs
    ], {}


def _names_a_file(what: list[str]) -> bool:
    """Tell a configuration from targets; a path may have an equals sign, too.

    :raises InvalidConfiguration: both are given, or several configurations
    """
    files = [text for text in what if "=" not in text or Path(text).exists()]
    if files and len(what) > 1:
        raise InvalidConfiguration(
            f"{files[0]} names no pipeline and target.",
            remedy="write PIPELINE=TARGET for each target, or name one configuration alone.",
        )
    return bool(files)
