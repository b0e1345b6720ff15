"""``delta-cdc views``: show the versions that a group published, and make views of them."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from delta_cdc.api.views import create_views
from delta_cdc.cli.common import named, refuse
from delta_cdc.cli.pipelines import connected, is_configuration
from delta_cdc.config import load
from delta_cdc.core import codec
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.text_table import grid
from delta_cdc.core.variables import expand
from delta_cdc.run.publication import published

if TYPE_CHECKING:
    from delta_cdc.config import Group

_REMOTE = "sc://"


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    views = commands.add_parser(
        "views",
        help="show the versions that a group published together, and make views of them (starts no Spark)",
        description="The command reads the manifest that the task publish of a group writes. With --schema, "
        "it prints the SQL that makes a schema of views, one for each target as of its version; with "
        "--remote, it runs this SQL on a Spark Connect server, and names the schema in "
        "sales.views.json for the manifest sales.json.",
    )
    views.add_argument(
        "manifest", metavar="MANIFEST",
        help="path or URI of the manifest; or a configuration, whose group has the key manifest",
    )  # fmt: skip
    views.add_argument("--group", metavar="NAME", help="with a configuration of several groups: the group")
    views.add_argument(
        "--schema", metavar="NAME",
        help="what the names of the schemas begin with, such as main.sales; each publish has its own",
    )  # fmt: skip
    views.add_argument("--remote", metavar="URL", type=_remote, help="Spark Connect server: sc://host:15002")
    views.add_argument(
        "--keep", metavar="N", type=int, default=2,
        help="number of schemas that stay, the new one included; default: 2",
    )  # fmt: skip
    views.add_argument("--json", action="store_true", help="print the manifest as JSON")
    views.set_defaults(run=_views)


def _remote(url: str) -> str:
    if not url.startswith(_REMOTE):
        raise argparse.ArgumentTypeError(f"{url} is no URL of Spark Connect; write sc://host:15002")
    return url


def _views(arguments: argparse.Namespace) -> int:
    manifest, options = _manifest(arguments)
    if arguments.remote is not None:
        if arguments.schema is None:
            raise InvalidConfiguration("--remote needs --schema.", remedy="name the schema of the views.")
        publication = _made(arguments, manifest, options)
    else:
        publication = published(manifest, storage_options=options)
    if arguments.json:
        print(json.dumps(codec.encoded(publication), indent=2))
    elif arguments.schema is not None and arguments.remote is None:
        print(*(f"{statement};" for statement in publication.statements(arguments.schema)), sep="\n")
    else:
        rows = [
            {"pipeline": name, "target": one.target, "version": one.target_version, "watermark": one.version}
            for name, one in sorted(publication.tables.items())
        ]
        print(f"{publication.group}: publish {publication.number}")
        print(*([f"views in {publication.views}"] if publication.views else []), grid(rows), sep="\n")
    return 0


def _made(arguments: argparse.Namespace, manifest: str, options: dict[str, str] | None) -> Any:
    from pyspark.sql import SparkSession

    with named(arguments.schema):
        spark = SparkSession.builder.remote(arguments.remote).create()
        try:
            return create_views(
                spark, manifest, arguments.schema, keep=arguments.keep, storage_options=options
            )
        finally:
            spark.stop()


def _manifest(arguments: argparse.Namespace) -> tuple[str, dict[str, str] | None]:
    """Return the manifest, and the options of its object store."""
    if not is_configuration(arguments.manifest):
        refuse(arguments, ("group",), "without a configuration")
        return arguments.manifest, connected(arguments).get("storage_options")
    groups = {group.name: group for group in load(arguments.manifest).groups}
    chosen = _group(groups, arguments.group)
    location = chosen.settings.get("manifest")
    if location is None:
        raise InvalidConfiguration(
            f"The group {chosen.name} has no manifest.",
            remedy="write manifest: <path> for the group; its task publish then writes the file.",
        )
    return expand(location), connected(arguments, chosen).get("storage_options")


def _group(groups: dict[str, Group], name: str | None) -> Group:
    if name is None and len(groups) == 1:
        return next(iter(groups.values()))
    if name is None or name not in groups:
        problem = "names no group" if name is None else f"has no group {name}"
        raise InvalidConfiguration(
            f"The command {problem}." if name is None else f"The configuration {problem}.",
            remedy=f"give --group with one of {', '.join(sorted(groups))}.",
        )
    return groups[name]
