"""Configuration of many pipelines: in a file, in a folder of files, or in a mapping that code built."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from delta_cdc.config.configuration import Configuration, Group, Table
from delta_cdc.config.findings import Enough, Finding, Findings
from delta_cdc.config.resolve import resolved
from delta_cdc.config.schema import json_schema
from delta_cdc.config.tree import SUFFIXES, read
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.text_table import plural

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "MORE",
    "SUFFIXES",
    "Configuration",
    "Finding",
    "Group",
    "Table",
    "checked",
    "json_schema",
    "lint",
    "load",
]

#: Follows findings that prevented other checks.
MORE = "More checks follow when these are corrected."


def load(source: str | Path | Mapping[str, Any]) -> Configuration:
    """Read a configuration, without network access, and without running any part of it.

    :param source: path of a YAML file, or of a folder whose ``*.yaml`` and ``*.yml`` belong together; or a
        mapping with the content of a file
    :raises InvalidConfiguration: lists every problem, one per line
    """
    configuration, findings, is_partial = _read(source)
    if configuration is None:
        lines = [*map(str, findings), *([MORE] if is_partial else [])]
        raise InvalidConfiguration(
            "\n".join([f"{plural(len(findings), 'finding')} in the configuration:", *lines, ""]),
            remedy="correct each of them; delta-cdc lint checks it.",
        )
    return configuration


def lint(source: str | Path | Mapping[str, Any]) -> list[Finding]:
    """Return every problem of a configuration, in the order of their places.

    :param source: see :func:`load`
    """
    return checked(source)[0]


def checked(source: str | Path | Mapping[str, Any]) -> tuple[list[Finding], bool]:
    """Return the problems of a configuration, and whether they prevented other checks.

    :param source: see :func:`load`
    """
    return _read(source)[1:]


def _read(source: str | Path | Mapping[str, Any]) -> tuple[Configuration | None, list[Finding], bool]:
    findings = Findings()
    configuration = None
    with suppress(Enough):
        configuration = resolved(*read(source, findings), findings)
    problems = findings.sorted()
    return (None if problems else configuration), problems, findings.is_partial
