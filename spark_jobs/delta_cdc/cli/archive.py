"""``delta-cdc archive``: make the class-data archive that an embedded Spark starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.warmup import make_archive

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    archive = commands.add_parser(
        "archive",
        help="make the class-data archive that lets an embedded Spark start faster (starts Spark here)",
        description="The command runs a small workload. Then the JVM writes the classes that it has loaded "
        "into a file of about 200 MB. This takes half a minute. Each set of JARs has its own archive. Exit "
        "code 1: no archive was made, and the command prints the reason.",
    )
    archive.add_argument("--kafka", action="store_true", help="with the JARs for reading topics")
    archive.add_argument("--s3", action="store_true", help="with the JARs for tables on S3")
    archive.add_argument("--again", action="store_true", help="replace an existing archive")
    archive.set_defaults(run=_archive)


def _archive(arguments: argparse.Namespace) -> int:
    status = make_archive(kafka=arguments.kafka, s3=arguments.s3, again=arguments.again)
    print(status.reason)
    return 0 if status.state == "ready" else 1
