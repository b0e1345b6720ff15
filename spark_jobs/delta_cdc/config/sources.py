"""Read the source of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.config.findings import Place
from delta_cdc.config.tree import from_value, read_file

if TYPE_CHECKING:
    from delta_cdc.config.findings import Findings
    from delta_cdc.config.tree import Node

SUFFIXES = (".yaml", ".yml")


def read(source: str | Path | Mapping[str, Any], findings: Findings) -> tuple[list[Node], tuple[str, ...]]:
    """Return the trees of a source, and the files it consists of.

    :param source: see :func:`delta_cdc.config.load`
    :param findings: receives their problems
    """
    if isinstance(source, Mapping):
        return [from_value(source, findings)], ()
    path = Path(source)
    if not path.is_dir():
        return _trees([path], findings), (str(path),)
    try:
        files = sorted(entry for entry in path.iterdir() if entry.suffix in SUFFIXES and entry.name[0] != ".")
    except OSError as error:
        why = error.strerror or str(error)
        findings.add(Place(str(path)), f"The folder cannot be read: {why}.", "correct its permissions.")
        return [], ()
    if not files:
        remedy = "name a file, or a folder that holds *.yaml or *.yml."
        findings.add(Place(str(path)), "The folder holds no YAML file.", remedy)
    return _trees(files, findings), tuple(map(str, files))


def _trees(files: list[Path], findings: Findings) -> list[Node]:
    nodes = [read_file(path, str(path), findings) for path in files]
    return [node for node in nodes if node is not None]
