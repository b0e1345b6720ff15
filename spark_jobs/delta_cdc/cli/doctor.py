"""``delta-cdc doctor``: what is wrong with this installation, and what to do about it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Protocol

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.doctor import DEFAULT_TIMEOUT, Questions, examined, told


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    doctor = commands.add_parser(
        "doctor",
        help="check Java, Spark, packages, JARs and folders, and if asked storage, tables and clusters",
        description="One line for each check: status, what was found, and what to do where something is "
        "wrong. Exit code 0: nothing failed (warnings may be told); 1: something did; 2: wrong usage. "
        "Secrets are never printed. Airflow's connections are checked by `airflow delta-cdc doctor`.",
    )
    options(doctor)
    doctor.set_defaults(run=_run)


class Declares(Protocol):
    """A parser that accepts arguments as argparse does."""

    def add_argument(self, *flags: str, **told: Any) -> Any:
        """Add an argument."""


def options(parser: Declares) -> None:
    """Add the arguments for the checks; Airflow's command has the same."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="for each check (default: 120)")
    parser.add_argument(
        "--storage",
        metavar="URI",
        help="folder where an object is written, listed, read and deleted, and a MERGE is tried",
    )
    parser.add_argument(
        "--storage-options",
        type=Path,
        metavar="FILE",
        help="JSON file with options as delta-rs names them (default: the environment's)",
    )
    _repeatable(parser, "--table", "URI", "table whose log is to be read")
    _repeatable(parser, "--master", "URL", "master to run a small job on: local[*], spark://host:7077")
    _repeatable(parser, "--remote", "URL", "Spark Connect server to run it on: sc://host:15002")
    _repeatable(
        parser, "--conf", "NAME=VALUE", "conf of Spark for --master; for secrets, use --storage-options"
    )
    parser.add_argument("--kafka", action="store_true", help="topics are to be read: their JARs are needed")
    parser.add_argument("--s3", action="store_true", help="the same for tables on S3")


def _repeatable(parser: Declares, name: str, metavar: str, text: str) -> None:
    parser.add_argument(
        name,
        dest=f"{name.removeprefix('--')}s",
        action="append",
        default=[],
        metavar=metavar,
        help=f"{text} (repeatable)",
    )


def questions(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the requested checks, as arguments of :class:`delta_cdc.doctor.Questions`.

    :raises InvalidConfiguration: a file or a conf cannot be read
    """
    return {
        "storage": arguments.storage,
        "storage_options": _options(arguments.storage_options),
        "tables": tuple(arguments.tables),
        "masters": tuple(arguments.masters),
        "remotes": tuple(_remote(url) for url in arguments.remotes),
        "confs": dict(_conf(text) for text in arguments.confs),
        "kafka": arguments.kafka,
        "s3": arguments.s3,
        "timeout": arguments.timeout or DEFAULT_TIMEOUT,
    }


def _run(arguments: argparse.Namespace) -> int:
    asked = Questions(**questions(arguments))
    entries = examined(asked.checks(), timeout=asked.timeout, hide=asked.hide)
    return told(entries, sys.stdout, as_json=arguments.json)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1 <= found <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 1 to 3600")
    return found


def _options(file: Path | None) -> dict[str, str] | None:
    if file is None:
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        # A parser's message may hold a part of the text.
        what = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise InvalidConfiguration(
            f"{file} cannot be read: {what}.", remedy="name a file that holds a JSON object."
        ) from None
    if not isinstance(found, dict):
        raise InvalidConfiguration(f"{file} holds no JSON object.", remedy="write one.")
    return {str(name): str(value) for name, value in found.items()}


def _remote(url: str) -> str:
    if not url.startswith("sc://"):
        raise InvalidConfiguration(
            f"--remote {url} is no URL of Spark Connect.", remedy="write sc://host:15002."
        )
    return url


def _conf(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidConfiguration(f"--conf {name} has no value.", remedy="write NAME=VALUE.")
    return name, value
