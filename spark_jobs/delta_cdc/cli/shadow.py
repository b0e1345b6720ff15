"""``delta-cdc shadow compare``: compare a target with its shadow now."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import Application, settings_of
from delta_cdc.cli.common import single_driver
from delta_cdc.cli.pipelines import refuse_templates, takes_pipelines, the_one
from delta_cdc.config.combine import is_template
from delta_cdc.core import codec
from delta_cdc.core.arguments import pipeline_tables
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.shadow import Pair
from delta_cdc.run.shadow import Work, compare

if TYPE_CHECKING:
    import argparse

    from delta_cdc.cli.pipelines import Chosen


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    shadow = commands.add_parser(
        "shadow",
        help="compare the target of a pipeline with its shadow (starts Spark here)",
        description="Name the shadow: a pipeline with shadow_of. The command compares the current rows of "
        "both targets, if they contain the same version of the source, and records the result in the "
        "shadow's log. Exit code 1: they differ, or were not compared.",
    )
    shadow.add_argument("action", choices=("compare",), help="what to do")
    takes_pipelines(shadow)
    shadow.usage = shadow.usage.replace("%(prog)s", "%(prog)s compare")
    takes_original(shadow)
    shadow.add_argument("--all", action="store_true", help="compare all current rows, not a sample of keys")
    single_driver(shadow, "")
    shadow.add_argument("--json", action="store_true", help="print the result as JSON")
    shadow.set_defaults(run=_compare)


def takes_original(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the original of a shadow outside of a configuration."""
    parser.add_argument(
        "--shadow-of", metavar="PIPELINE=TARGET",
        help="with PIPELINE=TARGET: the original pipeline and its target",
    )  # fmt: skip


def _compare(arguments: argparse.Namespace) -> int:
    one = the_one(arguments)
    pair, settings = pair_of(arguments, one), settings_of([one])
    refuse_templates(one)
    with Application(settings) as application:
        found = compare(work_of(arguments, pair, settings, application), whole=arguments.all)
    if arguments.json:
        print(json.dumps(codec.encoded(found), indent=2))
    else:
        print("\n  ".join([f"{pair.shadow}, shadow of {pair.original}: {found}", *found.details()]))
    return 0 if found.status == "agreed" else 1


def work_of(
    arguments: argparse.Namespace, pair: Pair, settings: dict[str, Any], application: Application
) -> Work:
    """Return the work of a subcommand."""
    return Work(
        pair=pair,
        execute=application.execute,
        run_id=f"delta-cdc-{arguments.parser.prog.split()[-1]}-{uuid.uuid4().hex[:12]}",
        single_driver=arguments.single_driver,
        storage_options=settings["storage_options"],
    )


def pair_of(arguments: argparse.Namespace, one: Chosen) -> Pair:
    """Return the pair that a command line names by its shadow.

    :raises InvalidConfiguration: the pipeline is no shadow, or its original is not known
    """
    given = one.table.arguments.get("shadow_of")
    if arguments.shadow_of is not None:
        name, sign, target = arguments.shadow_of.partition("=")
        if one.group is not None or not (name and sign and target):
            raise InvalidConfiguration(
                f"--shadow-of is {arguments.shadow_of!r}.",
                remedy="write PIPELINE=TARGET, of the original; leave it out with a configuration.",
                argument="shadow_of",
            )
        given = {name: target}
    original = pipeline_tables("shadow_of", given)
    if not original or one.target is None:
        shadows = ", ".join(one.table.arguments.get("shadowed_by", {}))
        raise InvalidConfiguration(
            f"{one.pipeline} is no shadow of another pipeline.",
            remedy=f"name its shadow, {shadows}." if shadows else "set shadow_of in the configuration.",
        )
    if is_template(given):
        raise InvalidConfiguration(
            f"The target of {next(iter(original))} contains a template, which only Airflow renders.",
            remedy="write its value, or give the tables with PIPELINE=TARGET and --shadow-of.",
        )
    ((name, target),) = original.items()
    return Pair(name, target, one.pipeline, one.target)
