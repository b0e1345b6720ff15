"""Read a configuration strictly, as a tree of nodes with their lines and columns.

PyYAML's composer makes nodes with marks, but no Python objects. Tags, anchors and aliases are errors. A merge
key is an ordinary name, and a plain ``yes``, ``12:30`` or ``2026-01-01`` stays text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from yaml.composer import Composer, ComposerError

from delta_cdc.config.findings import Findings, Place, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: The suffixes of configuration files.
SUFFIXES = (".yaml", ".yml")
#: The maximum size of a file, in bytes. A pipeline takes a few hundred.
MOST_BYTES = 4 * 1024 * 1024
#: The maximum nesting of values. A configuration needs five levels.
MOST_LEVELS = 20
_TOO_DEEP = f"Values lie more than {MOST_LEVELS} levels deep."

_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
#: Without a leading zero, which some readers interpret as another base; up to 64 bits.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")


@dataclass
class Node:
    """A value and its place.

    :param value: a scalar; a dict from names to nodes; or a list of nodes
    :param text: for a scalar, its text as written
    :param keys: for a mapping, the place of each name
    :param is_reported: whether its problem is already reported
    """

    place: Place
    value: Any
    text: str = ""
    keys: dict[str, Place] = field(default_factory=dict)
    is_reported: bool = False

    @property
    def is_mapping(self) -> bool:
        """Return whether the value is a mapping."""
        return isinstance(self.value, dict)

    def plain(self, *, as_written: bool = False) -> Any:
        """Return the value without places.

        :param as_written: return every scalar as its text, so that ``1.10`` keeps its form
        """
        if isinstance(self.value, dict):
            return {name: node.plain(as_written=as_written) for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain(as_written=as_written) for node in self.value]
        return self.text if as_written and self.value is not None else self.value

    def follow(self, path: Iterable[int | str], *, to_key: bool = False) -> tuple[Place, int]:
        """Return the place of the part at a path, and the number of steps followed.

        :param path: names and positions; those that do not exist are skipped
        :param to_key: return the place of the part's name, not of its value
        """
        node, depth, place = self, 0, self.place
        for step in path:
            inner = None
            if isinstance(node.value, dict):
                inner = node.value.get(step)
            elif isinstance(node.value, list) and isinstance(step, int) and step < len(node.value):
                inner = node.value[step]
            if inner is not None:
                place = node.keys.get(str(step), inner.place) if to_key else inner.place
                node, depth = inner, depth + 1
        return place, depth


def read(source: str | Path | Mapping[str, Any], findings: Findings) -> tuple[list[Node], tuple[str, ...]]:
    """Return the trees of a source, and the files it consists of.

    :param source: see :func:`delta_cdc.config.load`
    :param findings: receives the problems of the files
    """
    if isinstance(source, Mapping):
        return [from_value(source, findings)], ()
    path = Path(source)
    files = [path]
    try:
        if path.is_dir():
            files = files_of(path)
    except OSError as error:
        cause = error.strerror or str(error)
        findings.add(Place(str(path)), f"The folder cannot be read: {cause}.", "correct its permissions.")
        return [], ()
    if not files:
        remedy = "name a file, or a folder that holds *.yaml or *.yml."
        findings.add(Place(str(path)), "The folder holds no YAML file.", remedy)
    nodes = [read_file(one, str(one), findings) for one in files]
    return [node for node in nodes if node is not None], tuple(map(str, files))


def files_of(folder: Path) -> list[Path]:
    """Return the files of a folder that are a configuration, sorted."""
    return sorted(one for one in folder.iterdir() if one.suffix in SUFFIXES and one.name[0] != ".")


class Refused(Exception):
    """Stops the reading of a file at a problem."""

    def __init__(self, place: Place, message: str, remedy: str) -> None:
        super().__init__(message)
        self.finding = (place, message, remedy)


def read_file(
    path: Path,
    name: str,
    findings: Findings,
    parse: Callable[[str, str, Findings], Node | None] | None = None,
) -> Node | None:
    """Read a file.

    :param name: name of the file in messages
    :param findings: receives the problems of the file
    :param parse: makes the tree of the file's text and name, and may raise :class:`Refused`; None reads YAML
    :return: None if the file is empty or cannot be read
    """
    try:
        return (parse or _parsed)(_content(path, name), name, findings)
    except Refused as refused:
        findings.add(*refused.finding)
        findings.is_partial = True
        return None


def _content(path: Path, name: str) -> str:
    """Return a file's text; refuse too long files, and paths that are not files, without opening them."""
    place = Place(name)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise Refused(place, "It is neither a file nor a folder.", "name a YAML file.")
        if size > MOST_BYTES:
            raise Refused(
                place,
                f"The file has {size} bytes, and {MOST_BYTES} is the most that is read.",
                "split it into several files of one folder, and name the folder.",
            )
        with path.open("rb") as file:
            # Limited again, because the file may have grown since.
            content = file.read(MOST_BYTES + 1)[:MOST_BYTES]
    except OSError as error:
        cause = error.strerror or str(error)
        raise Refused(
            place, f"The file cannot be read: {cause}.", "correct the path, or its permissions."
        ) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, start = before.count(b"\n") + 1, before.rfind(b"\n") + 1
        column = len(before[start:].decode("utf-8", "replace")) + 1
        raise Refused(Place(name, line, column), "The file is not UTF-8.", "save it as UTF-8.") from error


def _parsed(text: str, name: str, findings: Findings) -> Node | None:
    try:
        root = _Composer(text, name).get_single_node()
    except ComposerError as error:
        remedy = "split it into several files of one folder, and name the folder."
        raise Refused(_place(name, error.problem_mark), "A second document begins.", remedy) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        cause = ", ".join(part for part in (error.context, error.problem) if part)
        place = Place(name) if mark is None else _place(name, mark)
        raise Refused(place, f"It is no YAML: {cause}.", _remedy(cause, text, mark)) from error
    except yaml.YAMLError as error:
        cause = " ".join(str(error).split())
        raise Refused(Place(name), f"It is no YAML: {cause}.", "remove what cannot be printed.") from error
    return None if root is None else _node(root, name, findings)


def _remedy(cause: str, text: str, mark: Any) -> str:
    """Return the remedy for a text that is no YAML."""
    lines = text.splitlines()
    rest = lines[mark.line][mark.column :] if mark is not None and mark.line < len(lines) else ""
    if rest.startswith("\t") or "tab character" in cause:
        return "write spaces: YAML does not allow tabs for indentation."
    quotes = "texts with ':', '#', '{', '%' or '*' need quotes."
    if "block mapping" in cause or "mapping values" in cause:
        return f"indent all keys of a mapping by the same number of spaces; {quotes}"
    return f"correct it; {quotes}"


def _place(name: str, mark: Any) -> Place:
    return Place(name, mark.line + 1, mark.column + 1)


# Python's composer over the C parser, because the C parser's own composer cannot be extended.
_BASES = (Composer, yaml.CSafeLoader) if hasattr(yaml, "CSafeLoader") else (yaml.SafeLoader,)


class _Composer(*_BASES):  # type: ignore[misc]
    """Composes PyYAML's nodes of plain data; stops at the first refused item."""

    def __init__(self, text: str, name: str) -> None:
        _BASES[-1].__init__(self, text)
        Composer.__init__(self)
        self._name = name
        self._level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        place = _place(self._name, event.start_mark)
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            item = "An alias (*…)" if isinstance(event, yaml.AliasEvent) else "An anchor (&…)"
            remedy = "put what several pipelines share into defaults or a group; quote a text that begins so."
            # Its name may be a secret without quotes.
            raise Refused(place, f"{item} stands here.", remedy)
        if event.tag is not None:
            remedy = "remove it, or quote a text that begins so."
            raise Refused(place, "A tag (!…) stands here.", remedy)
        if self._level > MOST_LEVELS:
            raise Refused(place, _TOO_DEEP, "write it flat.")
        self._level += 1
        node = super().compose_node(parent, index)
        self._level -= 1
        return node


def _node(parsed: Any, name: str, findings: Findings) -> Node:
    place = _place(name, parsed.start_mark)
    if isinstance(parsed, yaml.ScalarNode):
        return Node(place, parsed.value if parsed.style else scalar(parsed.value), text=parsed.value)
    if isinstance(parsed, yaml.SequenceNode):
        return Node(place, [_node(item, name, findings) for item in parsed.value])
    mapping = Node(place, {})
    for key, value in parsed.value:
        where = _place(name, key.start_mark)
        if not isinstance(key, yaml.ScalarNode):
            mapping.is_reported = True
            if isinstance(key, yaml.MappingNode) and where.line == place.line:
                # YAML parses {{ name }} as a mapping whose key is a mapping.
                remedy = "put it in quotes: '{{ … }}'."
                findings.add(place, "A template without quotes stands here.", remedy)
            else:
                findings.add(where, "A key is no text.", "write a name and a colon.")
        elif key.value in mapping.keys:
            message = f"{shown(key.value)} is written twice, first in line {mapping.keys[key.value].line}."
            findings.add(where, message, "keep one of them.")
        else:
            mapping.value[key.value] = _node(value, name, findings)
            mapping.keys[key.value] = where
    return mapping


def scalar(text: str) -> Any:
    """Return the value of a text without quotes, as a configuration has it."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and not _LEADING_ZERO.match(text) and any(c in text for c in ".eE"):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def from_value(value: Any, findings: Findings, path: str = "", level: int = 0) -> Node:
    """Return the tree of a mapping that code built.

    :param findings: receives values that a file cannot express
    :param path: path of the value, for messages
    """
    place = Place(f"mapping {path}".rstrip())
    if level > MOST_LEVELS:
        findings.add(place, _TOO_DEEP, "write it flat.")
        return Node(place, None)
    if isinstance(value, Mapping):
        nodes = {
            str(key): from_value(item, findings, f"{path}.{key}".lstrip("."), level + 1)
            for key, item in value.items()
        }
        return Node(place, nodes, keys={name: node.place for name, node in nodes.items()})
    if isinstance(value, list | tuple):
        items = enumerate(value)
        return Node(
            place, [from_value(item, findings, f"{path}[{index}]", level + 1) for index, item in items]
        )
    if isinstance(value, datetime | date):
        value = value.isoformat()
    elif isinstance(value, timedelta):
        value = value.total_seconds()
    if value is not None and not isinstance(value, str | bool | int | float):
        message = f"A {type(value).__name__} stands here."
        findings.add(place, message, "use texts, numbers, true or false, lists and mappings.")
        return Node(place, None)
    text = "" if value is None else str(value)
    return Node(place, value, text=text.lower() if isinstance(value, bool) else text)
