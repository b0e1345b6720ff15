"""Configuration as a tree whose every node knows its line and column, read strictly.

The tree is made from the events of PyYAML's C parser, so nothing of YAML that makes objects, repeats text or
guesses types is ever reached: tags, anchors, aliases and merge keys are refused, and a plain ``yes``,
``12:30`` or ``2026-01-01`` is the text that it looks like.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from delta_cdc.config.findings import Findings, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: Of a file, in bytes. A pipeline takes a few hundred.
MOST_BYTES = 4 * 1024 * 1024
#: Of values in values. What is configured needs five.
MOST_LEVELS = 20

_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
#: Without a leading zero, which means another base to some; up to what 64 bits hold.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")


@dataclass(frozen=True)
class Place:
    """Where something stands.

    :param line: counted from 1; 0 is the file as a whole
    """

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass
class Node:
    """A value, and where it stands.

    :param value: a scalar; a dict from names to nodes; or a list of nodes
    :param text: of a scalar, as it was written
    :param keys: of a mapping, where each name stands
    :param is_told: what is wrong with it has been said
    """

    place: Place
    value: Any
    text: str = ""
    keys: dict[str, Place] = field(default_factory=dict)
    is_told: bool = False

    @property
    def is_mapping(self) -> bool:
        """Return whether it is a mapping."""
        return isinstance(self.value, dict)

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def texts(self) -> Any:
        """Return the value with every scalar as it was written, so that ``1.10`` stays what it is."""
        if isinstance(self.value, dict):
            return {name: node.texts() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.texts() for node in self.value]
        return self.value if self.value is None else self.text

    def follow(self, path: Iterable[int | str], *, to_key: bool = False) -> tuple[Place, int]:
        """Return where the part stands that a path leads to, and how many steps that takes.

        :param path: names and positions; those that lead nowhere are skipped
        :param to_key: where its name stands, not its value
        """
        node, depth, place = self, 0, self.place
        for step in path:
            value = node.value
            inner = value.get(step) if isinstance(value, dict) else None
            if isinstance(value, list) and isinstance(step, int) and step < len(value):
                inner = value[step]
            if inner is not None:
                place = node.keys.get(str(step), inner.place) if to_key else inner.place
                node, depth = inner, depth + 1
        return place, depth


class _Refused(Exception):
    """Reading cannot go on."""

    def __init__(self, place: Place, message: str, remedy: str) -> None:
        self.finding = (place, message, remedy)


def read_file(path: Path, name: str, findings: Findings) -> Node | None:
    """Read a file.

    :param name: what to call it
    :param findings: gets what is wrong with it
    :return: None where it holds nothing, or cannot be read at all
    """
    try:
        return _parsed(_content(path, name), name, findings)
    except _Refused as refused:
        findings.add(*refused.finding)
        return None


def _content(path: Path, name: str) -> str:
    """Return a file's text. What is too long, or no file, is not opened."""
    place = Place(name)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise _Refused(place, "It is neither a file nor a folder.", "name a YAML file.")
        if size > MOST_BYTES:
            raise _Refused(
                place,
                f"The file has {size} bytes, and {MOST_BYTES} is the most that is read.",
                "split it into several files of one folder, and name the folder.",
            )
        with path.open("rb") as file:
            # It may have grown since.
            content = file.read(MOST_BYTES + 1)[:MOST_BYTES]
    except OSError as error:
        said = error.strerror or str(error)
        raise _Refused(
            place, f"The file cannot be read: {said}.", "correct the path, or its permissions."
        ) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, start = before.count(b"\n") + 1, before.rfind(b"\n") + 1
        column = len(before[start:].decode("utf-8", "replace")) + 1
        raise _Refused(Place(name, line, column), "The file is not UTF-8.", "save it as UTF-8.") from error


def _parsed(text: str, name: str, findings: Findings) -> Node | None:
    import yaml

    loader = getattr(yaml, "CLoader", yaml.Loader)
    reader = _Reader(iter(yaml.parse(text, Loader=loader)), name, findings)
    try:
        return reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(name) if mark is None else Place(name, mark.line + 1, mark.column + 1)
        said = ", ".join(part for part in (error.context, error.problem) if part)
        remedy = "correct it; texts with ':', '#', '{', '%' or '*' need quotes."
        raise _Refused(place, f"It is no YAML: {said}.", remedy) from error
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise _Refused(Place(name), f"It is no YAML: {said}.", "remove what cannot be printed.") from error


class _Reader:
    """Makes the tree from the parser's events.

    :param events: as the parser finds them: nothing behind what is refused is parsed
    """

    def __init__(self, events: Iterator[Any], name: str, findings: Findings) -> None:
        self._events = events
        self._name = name
        self._findings = findings

    def document(self) -> Node | None:
        """Return the one document; None where there is none."""
        from yaml import events as kinds

        root = None
        for event in self._events:
            if isinstance(event, kinds.DocumentStartEvent):
                if root is not None:
                    remedy = "split it into several files of one folder, and name the folder."
                    raise _Refused(self._place(event), "A second document begins.", remedy)
                root = self._node(next(self._events), 0)
        return root

    def _node(self, event: Any, level: int) -> Node:
        from yaml import events as kinds

        self._refuse(event, level)
        place = self._place(event)
        if isinstance(event, kinds.ScalarEvent):
            plain = event.implicit[0]
            return Node(place, _scalar(event.value) if plain else event.value, text=event.value)
        if isinstance(event, kinds.SequenceStartEvent):
            return Node(place, list(self._items(level)))
        return self._mapping(place, level)

    def _items(self, level: int) -> Iterator[Node]:
        from yaml import events as kinds

        for event in self._events:
            if isinstance(event, kinds.SequenceEndEvent):
                return
            yield self._node(event, level + 1)

    def _mapping(self, place: Place, level: int) -> Node:
        from yaml import events as kinds

        found = Node(place, {})
        for event in self._events:
            if isinstance(event, kinds.MappingEndEvent):
                break
            key = self._node(event, level + 1)
            node = self._node(next(self._events), level + 1)
            if isinstance(key.value, dict | list):
                self._no_key(found, key)
            elif key.text in found.keys:
                before = found.keys[key.text]
                message = f"{shown(key.text)} is written twice, first in line {before.line}."
                self._findings.add(key.place, message, "keep one of them.")
            else:
                found.value[key.text] = node
                found.keys[key.text] = key.place
        return found

    def _no_key(self, found: Node, key: Node) -> None:
        found.is_told = True
        if key.is_mapping and key.place.line == found.place.line:
            # To YAML, {{ name }} is a mapping whose key is a mapping.
            remedy = "put it in quotes: '{{ … }}'."
            self._findings.add(found.place, "A template without quotes stands here.", remedy)
        else:
            self._findings.add(key.place, "A key is no text.", "write a name and a colon.")

    def _refuse(self, event: Any, level: int) -> None:
        from yaml import events as kinds

        place = self._place(event)
        if isinstance(event, kinds.AliasEvent) or event.anchor is not None:
            what = "An alias (*…)" if isinstance(event, kinds.AliasEvent) else "An anchor (&…)"
            remedy = "put what several pipelines share into defaults or a group; quote a text that begins so."
            raise _Refused(place, f"{what} stands here: {shown(event.anchor)}.", remedy)
        if event.tag is not None:
            raise _Refused(
                place, f"A tag stands here: {shown(event.tag)}.", "remove it, or quote a text that begins so."
            )
        if level > MOST_LEVELS:
            raise _Refused(place, f"Values lie more than {MOST_LEVELS} levels deep.", "write it flat.")

    def _place(self, event: Any) -> Place:
        return Place(self._name, event.start_mark.line + 1, event.start_mark.column + 1)


def _scalar(text: str) -> Any:
    """Return what a text without quotes stands for."""
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


def from_value(value: Any, findings: Findings, path: str = "") -> Node:
    """Return the tree of a mapping made by code.

    :param findings: gets what has no counterpart in a file
    :param path: of the value, for messages
    """
    return _Values(findings).node(value, path, 0)


class _Values:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def node(self, value: Any, path: str, level: int) -> Node:
        place = Place(f"mapping {path}".rstrip())
        if level > MOST_LEVELS:
            message = f"Values lie more than {MOST_LEVELS} levels deep."
            self._findings.add(place, message, "write it flat.")
            return Node(place, None)
        if isinstance(value, Mapping):
            nodes = {str(k): self.node(v, f"{path}.{k}".lstrip("."), level + 1) for k, v in value.items()}
            return Node(place, nodes, keys={name: node.place for name, node in nodes.items()})
        if isinstance(value, list | tuple):
            nodes_ = [self.node(v, f"{path}[{n}]", level + 1) for n, v in enumerate(value)]
            return Node(place, nodes_)
        return self._leaf(value, place)

    def _leaf(self, value: Any, place: Place) -> Node:
        if isinstance(value, datetime | date):
            value = value.isoformat()
        elif isinstance(value, timedelta):
            value = value.total_seconds()
        if isinstance(value, bool):
            return Node(place, value, text=str(value).lower())
        if value is None or isinstance(value, str | int | float):
            return Node(place, value, text="" if value is None else str(value))
        what = f"A {type(value).__name__} stands here."
        self._findings.add(place, what, "use texts, numbers, true or false, lists and mappings.")
        return Node(place, None)
