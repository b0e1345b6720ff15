"""``delta-cdc doctor``: check this installation, and name remedies."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from typing import Any

from delta_cdc.cli.common import json_file
from delta_cdc.doctor import DEFAULT_TIMEOUT, Questions, examined, print_report


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    doctor = commands.add_parser(
        "doctor",
        help="check Java, Spark, packages, JARs and folders; on request storage, tables and clusters",
        description="The command prints one line for each check: status, what the check found, and, if "
        "something is wrong, what to do. It never prints secrets. Exit code 0: no check failed (there may be "
        "warnings); 1: a check failed; 2: wrong usage. `airflow delta-cdc doctor` also checks Airflow's "
        "connections.",
    )
    text = "folder in which to write, list, read and delete an object, and to try a MERGE"
    doctor.add_argument("--storage", metavar="URI", help=text)
    text = "JSON file with options of the store, with delta-rs's names; default: the environment's"
    doctor.add_argument("--storage-options", type=json_file, metavar="FILE", help=text)
    repeatable = (
        ("table", str, "URI", "table whose log to read"),
        ("master", str, "URL", "master to run a small job on: local[*], spark://host:7077"),
        ("remote", _remote, "URL", "Spark Connect server to run a small job on: sc://host:15002"),
        ("conf", conf, "NAME=VALUE", "conf of Spark for --master; secrets belong in --storage-options"),
    )
    for name, kind, metavar, text in repeatable:
        doctor.add_argument(
            f"--{name}", dest=f"{name}s", action="append", default=[], type=kind, metavar=metavar,
            help=f"{text}; repeatable",
        )  # fmt: skip
    doctor.add_argument(
        "--kafka", action="store_true", help="warn if the JARs for reading topics are missing"
    )
    doctor.add_argument("--s3", action="store_true", help="warn if the JARs for tables on S3 are missing")
    text = f"maximum time of each check; default: {DEFAULT_TIMEOUT:g}"
    doctor.add_argument("--timeout", type=_seconds, default=DEFAULT_TIMEOUT, metavar="SECONDS", help=text)
    doctor.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    doctor.set_defaults(run=_run)


def questions(arguments: argparse.Namespace) -> Questions:
    """Return the requested checks."""
    values = {field.name: getattr(arguments, field.name) for field in fields(Questions)}
    return Questions(**{**values, "confs": dict(values["confs"])})


def _run(arguments: argparse.Namespace) -> int:
    requested = questions(arguments)
    results = examined(requested.checks(), timeout=requested.timeout, secrets=requested.secrets)
    return print_report(results, sys.stdout, as_json=arguments.json)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 1 to 3600")
    return seconds


def _remote(url: str) -> str:
    if not url.startswith("sc://"):
        raise argparse.ArgumentTypeError(f"{url} is no URL of Spark Connect; write sc://host:15002")
    return url


def conf(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{name} has no value; write NAME=VALUE")
    return name, value
