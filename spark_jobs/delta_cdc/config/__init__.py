"""Configuration of many pipelines: in a file, in a folder of files, in AUTO CDC code, or in a mapping."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.config.autocdc import CODE_SUFFIXES, Code, is_code, tree_of
from delta_cdc.config.configuration import Configuration, Group, Table
from delta_cdc.config.findings import Enough, Finding, Findings
from delta_cdc.config.resolve import resolved
from delta_cdc.config.schema import json_schema
from delta_cdc.config.tree import SUFFIXES, Node, read
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.text_table import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CODE_SUFFIXES",
    "MORE",
    "SUFFIXES",
    "Code",
    "Configuration",
    "Finding",
    "Group",
    "Table",
    "checked",
    "imported",
    "is_code",
    "json_schema",
    "lint",
    "load",
]

#: Follows findings that prevented other checks.
MORE = "More checks follow when these are corrected."


def load(source: str | Path | Mapping[str, Any], code: Code | None = None) -> Configuration:
    """Read a configuration, without network access, and without running any part of it.

    :param source: path of a YAML file; of a folder whose ``*.yaml`` and ``*.yml`` belong together; or of a
        file with AUTO CDC code, ``*.py`` or ``*.sql``. Or a mapping with the content of a YAML file
    :param code: for a file with code: the places of its tables, and keys of ``defaults``
    :raises InvalidConfiguration: lists every problem, one per line
    """
    configuration, findings, is_partial, _, _ = _read(source, code)
    if configuration is None:
        raise _invalid(findings, is_partial=is_partial)
    return configuration


def imported(source: str | Path, code: Code | None = None) -> tuple[dict[str, Any], list[str]]:
    """Return the content of the YAML file that is equivalent to a file with AUTO CDC code, and notices.

    :param source: path of the file, ``*.py`` or ``*.sql``
    :param code: see :func:`load`
    :return: the mapping, and a line for each part of the code that is left out
    :raises InvalidConfiguration: lists every problem, one per line; or the file is no code
    """
    if not is_code(source):
        raise InvalidConfiguration(
            f"{source} is no file with AUTO CDC code.", remedy=f"name a file {' or '.join(CODE_SUFFIXES)}."
        )
    configuration, findings, is_partial, tree, notices = _read(source, code)
    if configuration is None or tree is None:
        raise _invalid(findings, is_partial=is_partial)
    return tree.plain(), notices


def _invalid(findings: list[Finding], *, is_partial: bool) -> InvalidConfiguration:
    lines = [*map(str, findings), *([MORE] if is_partial else [])]
    return InvalidConfiguration(
        "\n".join([f"{plural(len(findings), 'finding')} in the configuration:", *lines, ""]),
        remedy="correct each of them; delta-cdc lint checks it.",
    )


def lint(source: str | Path | Mapping[str, Any]) -> list[Finding]:
    """Return every problem of a configuration, in the order of their places.

    :param source: see :func:`load`
    """
    return checked(source)[0]


def checked(source: str | Path | Mapping[str, Any]) -> tuple[list[Finding], bool]:
    """Return the problems of a configuration, and whether they prevented other checks.

    :param source: see :func:`load`
    """
    return _read(source)[1:3]


def _read(
    source: str | Path | Mapping[str, Any], code: Code | None = None
) -> tuple[Configuration | None, list[Finding], bool, Node | None, list[str]]:
    """Return the configuration, its problems, whether checks are missing; of code, its tree and notices."""
    findings = Findings()
    configuration = None
    tree: Node | None = None
    notices: list[str] = []
    if code is not None and code.given and not is_code(source):
        raise InvalidConfiguration(
            f"{' and '.join(code.given)} given for {_shown(source)}, which is no AUTO CDC code.",
            remedy="leave them out: a configuration has its own sources, targets and defaults.",
        )
    with suppress(Enough):
        if isinstance(source, str | Path) and is_code(source):
            tree, notices = tree_of(Path(source), code or Code(), findings)
            configuration = resolved([tree] if tree is not None else [], (str(source),), findings)
        else:
            configuration = resolved(*read(source, findings), findings)
    problems = findings.sorted()
    return (None if problems else configuration), problems, findings.is_partial, tree, notices


def _shown(source: str | Path | Mapping[str, Any]) -> str:
    return str(source) if isinstance(source, str | Path) else "a mapping"
