"""``delta-cdc verify``: check that targets match their pipelines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import Application, refuse_templates, told_of
from delta_cdc.cli.common import last_by, refuse
from delta_cdc.cli.pipelines import chosen, groups_of, takes_pipelines
from delta_cdc.config.verification import paired, request_of
from delta_cdc.core.checks import CHECKS
from delta_cdc.planning.verify import VerifyRequest, check_names
from delta_cdc.run.verify import run_verify, text_of

if TYPE_CHECKING:
    import argparse


_OF_A_TARGET = ("source", "current", "last_by")


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    verify = commands.add_parser(
        "verify",
        help="look whether targets are what their pipelines say they are (starts Spark for their rows)",
        description="Looks at logs and rows as of one version of each target; nothing is written. Exit code "
        "1: something was found, or could not be looked at.",
    )
    takes_pipelines(verify)
    verify.add_argument("--checks", metavar="A,B", help="only these; the four of the logs start no Spark")
    verify.add_argument("--source", metavar="TABLE", help="the source, where it lies elsewhere now")
    verify.add_argument("--current", metavar="TABLE", help="a target of the other SCD type, to compare with")
    last_by(verify)
    verify.add_argument("--json", action="store_true", help="print every check as JSON")
    verify.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    requests, told = _asked(arguments)
    with Application(told, requests) as application:
        found = run_verify(requests, execute=application.execute, run_id="delta-cdc-verify")
    if arguments.json:
        failed = [
            {"pipeline": one.pipeline, "table": one.table, "error": one.error.to_dict()}
            for one in found
            if one.error is not None
        ]
        rows = [row for one in found for row in one.to_rows()]
        print(json.dumps([*rows, *failed], indent=2))
    else:
        print(text_of(found))
    return 1 if any(one.error is not None or one.findings for one in found) else 0


def _asked(arguments: argparse.Namespace) -> tuple[list[VerifyRequest], dict[str, Any]]:
    """Return the requests to verify, and the application's settings."""
    wanted = CHECKS if arguments.checks is None else tuple(filter(None, arguments.checks.split(",")))
    check_names(wanted)
    found = chosen(arguments)
    tables = [one.table for one in found if one.table is not None]
    if tables:
        refuse(arguments, _OF_A_TARGET, "with a configuration")
        refuse_templates(tables)
        told = told_of(groups_of(found))
        options = told["storage_options"]
        return paired(
            [request_of(table.arguments, wanted=wanted, storage_options=options) for table in tables]
        ), told
    if len(found) > 1:
        refuse(arguments, _OF_A_TARGET, "with several targets")
    if found[0].source is not None:
        refuse(arguments, ("source",), "with SOURCE TARGET")
    return [
        VerifyRequest(
            pipeline=one.pipeline,
            target=str(one.target),
            source=one.source or arguments.source,
            current=arguments.current,
            on_conflict=tuple(arguments.last_by or ()) or "fail",
            wanted=wanted,
        )
        for one in found
    ], {}
