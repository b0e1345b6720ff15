"""Pipelines in the code of AUTO CDC: Python or SQL of Spark Declarative Pipelines and of Databricks.

The code is read, never run. It becomes the same tree as a YAML file would, with the places of the code, so
every later check names them. :mod:`~delta_cdc.config.autocdc.clauses` has each clause with its option.

Most configurations are YAML, so this package loads its readers at first use.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.config.autocdc.code import Code

if TYPE_CHECKING:
    from delta_cdc.config.findings import Findings
    from delta_cdc.config.tree import Node

__all__ = ["CODE_SUFFIXES", "Code", "is_code", "tree_of"]

#: The suffixes of files with code.
CODE_SUFFIXES = (".py", ".sql")


def is_code(source: object) -> bool:
    """Return whether a source is a file with code."""
    return isinstance(source, str | Path) and Path(source).suffix in CODE_SUFFIXES


def tree_of(path: Path, code: Code, findings: Findings) -> tuple[Node | None, list[str]]:
    """Return the tree of the configuration that a file with code defines, and notices of what is left out.

    :param code: what the caller gives besides the file
    :param findings: receives the problems
    :return: no tree if there are problems
    """
    reading: Any = import_module(f"{__name__}.reading")
    tree, notices = reading.tree_of(path, code, findings)
    return tree, notices
