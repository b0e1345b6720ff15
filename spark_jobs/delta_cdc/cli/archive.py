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
        help="make the file from which an embedded Spark starts in less time (starts Spark here)",
        description="Runs a small workload and has the JVM write its classes when it ends: half a minute, "
        "200 MB. There is one archive for each set of JARs. Exit code 1: none could be made, and why.",
    )
    archive.add_argument("--kafka", action="store_true", help="for applications that read from Kafka")
    archive.add_argument("--s3", action="store_true", help="for applications with tables on S3")
    archive.add_argument("--again", action="store_true", help="make it anew if there is one")
    archive.set_defaults(run=_archive)


def _archive(arguments: argparse.Namespace) -> int:
    made = make_archive(kafka=arguments.kafka, s3=arguments.s3, again=arguments.again)
    print(made.reason)
    return 0 if made.state == "ready" else 1
