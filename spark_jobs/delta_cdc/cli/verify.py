"""``delta-cdc verify``: check that targets match their pipelines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import Application, settings_of
from delta_cdc.cli.common import last_by, refuse
from delta_cdc.cli.pipelines import chosen, each, takes_pipelines
from delta_cdc.config.verification import paired, request_of
from delta_cdc.core.checks import CHECKS, Verification
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.planning.verify import VerifyRequest, check_names
from delta_cdc.run.verify import run_verify, text_of

if TYPE_CHECKING:
    import argparse

    from delta_cdc.cli.pipelines import Chosen

_OF_A_TARGET = ("source", "current", "last_by")


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    verify = commands.add_parser(
        "verify",
        help="check that targets match their sources (starts Spark here, to read their rows)",
        description="The command checks logs and rows as of one version of each target, and writes nothing. "
        "Exit code 1: a check has findings, or could not run.",
    )
    takes_pipelines(verify)
    verify.add_argument(
        "--checks", metavar="A,B",
        help=f"only these of {', '.join(CHECKS)}; the first four read only logs and start no Spark",
    )  # fmt: skip
    target = verify.add_argument_group("for one target, without a configuration")
    target.add_argument("--source", metavar="TABLE", help="the source, if it was moved")
    target.add_argument("--current", metavar="TABLE", help="a target of the other SCD type, to compare with")
    last_by(target)
    verify.add_argument("--json", action="store_true", help="print every check as JSON")
    verify.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    checks = CHECKS if arguments.checks is None else tuple(filter(None, arguments.checks.split(",")))
    check_names(checks)
    pipelines = chosen(arguments)
    settings = settings_of(pipelines)
    requests = _requests(arguments, pipelines, checks, settings["storage_options"])
    with Application(settings, requests) as application:
        results = run_verify(requests, execute=application.execute, run_id="delta-cdc-verify")
    failed = [
        {"pipeline": one.pipeline, "table": one.table, "error": one.error.to_dict()}
        for one in results
        if one.error is not None
    ]
    rows = [*[row for one in results for row in one.to_rows()], *failed]
    print(json.dumps(rows, indent=2) if arguments.json else text_of(results))
    return 1 if any(one.error is not None or one.findings for one in results) else 0


def _requests(
    arguments: argparse.Namespace,
    pipelines: list[Chosen],
    checks: tuple[str, ...],
    storage_options: dict[str, str] | None,
) -> list[VerifyRequest | Verification]:
    """Return the request of each pipeline, or the result of one whose arguments cannot be used."""
    if pipelines[0].group is not None:
        refuse(arguments, _OF_A_TARGET, "with a configuration")
        made = each(
            pipelines,
            lambda one: request_of(one.table.arguments, wanted=checks, storage_options=storage_options),
        )
        return paired(
            [
                _refused(one, request) if isinstance(request, InvalidConfiguration) else request
                for one, request in zip(pipelines, made, strict=True)
            ]
        )
    if len(pipelines) > 1:
        refuse(arguments, _OF_A_TARGET, "with several targets")
    if pipelines[0].source is not None:
        refuse(arguments, ("source",), "with SOURCE TARGET")
    return [
        VerifyRequest(
            pipeline=one.pipeline,
            target=str(one.target),
            source=one.source or arguments.source,
            current=arguments.current,
            on_conflict=tuple(arguments.last_by or ()) or "fail",
            wanted=checks,
            storage_options=storage_options,
        )
        for one in pipelines
    ]


def _refused(one: Chosen, error: InvalidConfiguration) -> Verification:
    """Return the result of a pipeline whose arguments cannot be used. Its table is as the file has it."""
    given = one.table.arguments
    return Verification(one.pipeline, str(given.get("target") or given.get("log")), error=error)
