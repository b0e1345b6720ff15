"""``delta-cdc jars``: the JARs that Spark needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.launch.jars import needed

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    jars = commands.add_parser(
        "jars", help="print the Delta JARs that Spark needs; resolves them once through Spark's own Ivy"
    )
    jars.add_argument("--kafka", action="store_true", help="the JARs of Spark's connector to Kafka as well")
    jars.add_argument("--s3", action="store_true", help="the JARs of Hadoop's file system for S3 as well")
    jars.set_defaults(run=_jars)


def _jars(arguments: argparse.Namespace) -> int:
    for jar in needed(["s3:"] if arguments.s3 else [], kafka=arguments.kafka):
        print(jar)
    return 0
