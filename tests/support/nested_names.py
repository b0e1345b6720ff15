"""Nested columns whose fields every table spells and orders in its own way.

A drawn :class:`Node` is a type by its names alone. A :class:`Layout` is how one table has it: the order and
the spelling of the fields. Values are plain Python, by lower-case names; a layout turns them into rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

#: Lower-case names of fields; some need quoting, and some are names that the engine's expressions use.
NAMES = ("a", "b", "c", "x.y", "o'f", "back`tick", "e0", "level", "key", "value", "ünï")
Path = tuple[str, ...]


@dataclass
class Node:
    """A type by names: ``int``, ``string``, ``struct``, ``array`` or ``map``.

    :param parts: of a struct, by name; ``element`` of an array; ``key`` and ``value`` of a map
    :param late: the fields of a struct that the source gets later
    """

    kind: str
    parts: dict[str, Node] = field(default_factory=dict)
    late: tuple[str, ...] = ()

    def structs(self, path: Path = (), *, in_key: bool = False) -> Iterator[tuple[Path, Node, bool]]:
        """Return all structs with their paths, and whether they are part of a map's key."""
        if self.kind == "struct":
            yield path, self, in_key
        for name, part in self.parts.items():
            yield from part.structs((*path, name), in_key=in_key or (self.kind == "map" and name == "key"))


def drawn_node(draw: random.Random, depth: int = 3, *, in_key: bool = False) -> Node:
    """Draw a type that contains a struct."""
    kind = draw.choice(["struct", "struct", "array", "map"]) if depth > 1 else "struct"
    if kind == "array" and not in_key:
        return Node("array", {"element": drawn_node(draw, depth - 1)})
    if kind == "map" and not in_key:
        text = Node("string")
        key = drawn_node(draw, 1, in_key=True) if draw.random() < 0.4 else text
        value = drawn_node(draw, depth - 1) if key is text or draw.random() < 0.5 else Node("int")
        return Node("map", {"key": key, "value": value})
    names = draw.sample(NAMES, draw.randint(2, 4))
    nested = depth > 1 and not in_key and draw.random() < 0.5
    leaf = Node("int") if in_key else Node(draw.choice(["int", "int", "string"]))
    parts = dict.fromkeys(names, leaf)
    if nested:
        parts[names[0]] = drawn_node(draw, depth - 1)
    is_late = not in_key and len(names) > 2 and draw.random() < 0.6
    return Node("struct", parts, tuple(names[-1:]) if is_late else ())


@dataclass
class Layout:
    """How one table has a type: order and spelling of the fields of each struct, by path."""

    node: Node
    names: dict[Path, list[str]]

    @classmethod
    def drawn(cls, draw: random.Random, node: Node) -> Layout:
        """Draw a layout without the fields that come later."""
        names = {}
        for path, struct, _ in node.structs():
            present = [name for name in struct.parts if name not in struct.late]
            names[path] = [spelt(draw, name) for name in draw.sample(present, len(present))]
        return cls(node, names)

    def type(self, node: Node | None = None, path: Path = ()) -> T.DataType:
        """Return the type in Spark."""
        node = node or self.node
        parts = {name: self.type(part, (*path, name)) for name, part in node.parts.items()}
        if node.kind == "struct":
            return T.StructType([T.StructField(name, parts[name.lower()]) for name in self.names[path]])
        if node.kind == "array":
            return T.ArrayType(parts["element"])
        if node.kind == "map":
            return T.MapType(parts["key"], parts["value"])
        return T.IntegerType() if node.kind == "int" else T.StringType()

    def ddl(self, node: Node | None = None, path: Path = ()) -> str:
        """Return the type as SQL."""
        node = node or self.node
        parts = {name: self.ddl(part, (*path, name)) for name, part in node.parts.items()}
        if node.kind == "struct":
            return f"STRUCT<{', '.join(f'{quoted(n)}: {parts[n.lower()]}' for n in self.names[path])}>"
        return f"{node.kind.upper()}<{', '.join(parts.values())}>" if parts else node.kind.upper()

    def written(self, value: Any, node: Node | None = None, path: Path = ()) -> Any:
        """Return a value as a row of the table has it."""
        node = node or self.node
        if value is None or not node.parts:
            return value
        if node.kind == "struct":
            return tuple(
                self.written(value.get(name.lower()), node.parts[name.lower()], (*path, name.lower()))
                for name in self.names[path]
            )
        if node.kind == "array":
            return [self.written(item, node.parts["element"], (*path, "element")) for item in value]
        key, entry = node.parts["key"], node.parts["value"]
        return {
            self.written(by_name(k), key, (*path, "key")): self.written(v, entry, (*path, "value"))
            for k, v in value.items()
        }

    def mixed_up(self, value: Any, other: Layout, path: Path = ()) -> Any:
        """Return what ``value`` becomes if a row of ``other`` is read by position in this layout."""
        node = self.node
        for name in path:
            node = node.parts[name]
        if value is None or not node.parts:
            return value
        if node.kind == "array":
            return [self.mixed_up(item, other, (*path, "element")) for item in value]
        if node.kind == "map":
            return {
                frozen(self.mixed_up(by_name(k), other, (*path, "key"))): self.mixed_up(
                    v, other, (*path, "value")
                )
                for k, v in value.items()
            }
        own, theirs = self.names[path], other.names[path]
        if any(part.parts for part in node.parts.values()) or len(own) != len(theirs):
            return {name: self.mixed_up(part, other, (*path, name)) for name, part in value.items()}
        moved = {to.lower(): value[at.lower()] for to, at in zip(own, theirs, strict=True)}
        return {name: moved.get(name) for name in value}

    def add_late(self, draw: random.Random | None, column: str) -> Iterator[str]:
        """Add the fields that come later, at a drawn place or at the end; return them for ``ADD COLUMNS``."""
        for path, struct, _ in self.node.structs():
            for name in struct.late:
                place = len(self.names[path]) if draw is None else draw.randrange(len(self.names[path]))
                after = f"AFTER {quoted(self.names[path][place - 1])}" if place else "FIRST"
                self.names[path].insert(place, name)
                whole = ".".join(map(quoted, (column, *path, name)))
                yield f"{whole} {self.ddl(struct.parts[name])} {after}"


def spelt(draw: random.Random, name: str) -> str:
    """Return a name in one of its spellings."""
    return draw.choice([name, name, name.upper(), name.capitalize()])


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return "`" + name.replace("`", "``") + "`"


def frozen(value: Any) -> Any:
    """Return a value as a key of a dict."""
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def by_name(key: Any) -> Any:
    """Return a key of :func:`frozen` as it was."""
    return dict(key) if isinstance(key, tuple) else key


def drawn_value(draw: random.Random, node: Node, *, late: bool) -> Any:
    """Draw a value of few different ones; now and then NULL.

    :param late: draw values for the fields that come later; otherwise they are NULL
    """
    if node.kind in ("int", "string"):
        number = draw.randrange(3)
        return None if draw.random() < 0.1 else number if node.kind == "int" else f"t{number}"
    if draw.random() < 0.05:
        return None
    if node.kind == "struct":
        return {
            name: drawn_value(draw, part, late=late) if late or name not in node.late else None
            for name, part in node.parts.items()
        }
    if node.kind == "array":
        return [drawn_value(draw, node.parts["element"], late=late) for _ in range(draw.randrange(3))]
    entries = {}
    for _ in range(draw.randrange(3)):
        key = _key(draw, node.parts["key"])
        entries[frozen(key)] = drawn_value(draw, node.parts["value"], late=late)
    return entries


def _key(draw: random.Random, node: Node) -> Any:
    if node.kind == "struct":
        return {name: draw.randrange(3) for name in node.parts}
    return f"k{draw.randrange(3)}"


def read(value: Any, node: Node) -> Any:
    """Return a value that Spark collected, by lower-case names; a field that its table lacks is None."""
    if value is None or not node.parts:
        return value
    if node.kind == "struct":
        found = {name.lower(): part for name, part in value.asDict().items()}
        return {name: read(found.get(name), part) for name, part in node.parts.items()}
    if node.kind == "array":
        return [read(item, node.parts["element"]) for item in value]
    key, entry = node.parts["key"], node.parts["value"]
    return {frozen(read(k, key)): read(v, entry) for k, v in value.items()}
