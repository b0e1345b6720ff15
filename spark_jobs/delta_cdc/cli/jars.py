"""``delta-cdc jars``: the JARs that Spark needs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import EnvironmentNotReady
from delta_cdc.launch.jars import needed
from delta_cdc.launch.session import engine_zip

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    jars = commands.add_parser(
        "jars",
        help="print the JARs that Spark needs (downloads them once)",
        description="The command prints one path for each JAR. Spark's own Ivy downloads missing JARs into "
        "$DELTA_CDC_HOME, where the engine is kept, too.",
    )
    jars.add_argument("--kafka", action="store_true", help="with the JARs for reading topics")
    jars.add_argument("--s3", action="store_true", help="with the JARs for tables on S3")
    jars.set_defaults(run=_jars)


def _jars(arguments: argparse.Namespace) -> int:
    with suppress(EnvironmentNotReady):
        # An image that has run this command needs no write access to its cache. If the file is missing then,
        # the task that needs it says why.
        engine_zip()
    for jar in needed(["s3:"] if arguments.s3 else [], kafka=arguments.kafka):
        print(jar)
    return 0
