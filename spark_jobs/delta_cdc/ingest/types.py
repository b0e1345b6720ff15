"""Column types as plain values: what Spark's schemas say, without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Type:
    """A type of Spark.

    :param name: as in Spark's JSON schemas: ``boolean``, ``byte``, ``short``, ``integer``, ``long``,
        ``float``, ``double``, ``decimal``, ``string``, ``binary``, ``date``, ``timestamp``,
        ``timestamp_ntz``, ``variant``, ``void``, ``array``, ``map`` or ``struct``. No value
        fits a type of any other name
    :param precision: digits of a decimal
    :param scale: its digits after the point
    :param element: the type of an array's elements, or of a map's values
    :param key: the type of a map's keys
    :param fields: names and types of a struct
    """

    name: str
    precision: int = 0
    scale: int = 0
    element: Type | None = None
    key: Type | None = None
    fields: tuple[tuple[str, Type], ...] = ()

    @property
    def is_nested(self) -> bool:
        """Return whether the type is an array, a map or a struct."""
        return self.name in ("array", "map", "struct")

    def __str__(self) -> str:
        """Return the type as SQL has it; names of fields are quoted where they must be."""
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name == "array":
            return f"array<{self.element}>"
        if self.name == "map":
            return f"map<{self.key},{self.element}>"
        if self.name == "struct":
            return f"struct<{','.join(f'{_quoted(name)}:{kind}' for name, kind in self.fields)}>"
        return _TO_SQL.get(self.name, self.name)


BOOLEAN, STRING, BINARY, VOID = Type("boolean"), Type("string"), Type("binary"), Type("void")
BYTE, SHORT, INTEGER, LONG = Type("byte"), Type("short"), Type("integer"), Type("long")
FLOAT, DOUBLE, VARIANT = Type("float"), Type("double"), Type("variant")
DATE, TIMESTAMP, TIMESTAMP_NTZ = Type("date"), Type("timestamp"), Type("timestamp_ntz")
#: The bits of the types of whole numbers.
BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}

_TO_SQL = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def decimal(precision: int, scale: int) -> Type:
    """Return a decimal type."""
    return Type("decimal", precision, scale)


def array(element: Type) -> Type:
    """Return an array type."""
    return Type("array", element=element)


def map_of(key: Type, value: Type) -> Type:
    """Return a map type."""
    return Type("map", key=key, element=value)


def struct(fields: Sequence[tuple[str, Type]]) -> Type:
    """Return a struct type."""
    return Type("struct", fields=tuple(fields))


def inner_names(kind: Type) -> set[str]:
    """Return the names of a type and of all types inside of it."""
    parts = (*filter(None, (kind.element, kind.key)), *(part for _, part in kind.fields))
    return {kind.name}.union(*map(inner_names, parts))


# -- Spark's JSON -------------------------------------------------------------------------------
def of_json(value: Any) -> Type:
    """Return a type from Spark's JSON of it (``DataType.jsonValue``), without lengths and collations."""
    if isinstance(value, Mapping):
        kind = value["type"]
        if kind == "array":
            return array(of_json(value["elementType"]))
        if kind == "map":
            return map_of(of_json(value["keyType"]), of_json(value["valueType"]))
        if kind == "struct":
            return struct([(field["name"], of_json(field["type"])) for field in value["fields"]])
        return Type(str(kind))
    text = str(value)
    numbers = re.fullmatch(r"decimal\((\d+),\s*(-?\d+)\)", text)
    if numbers:
        return decimal(int(numbers[1]), int(numbers[2]))
    return STRING if re.match(r"(string|char|varchar)\b", text) else Type(text)


def to_json(kind: Type) -> Any:
    """Return Spark's JSON of a type; all parts are nullable."""
    if kind.name == "decimal":
        return str(kind)
    if kind.name == "array":
        assert kind.element is not None
        return {"type": "array", "elementType": to_json(kind.element), "containsNull": True}
    if kind.name == "map":
        assert kind.key is not None
        assert kind.element is not None
        return {
            "type": "map",
            "keyType": to_json(kind.key),
            "valueType": to_json(kind.element),
            "valueContainsNull": True,
        }
    if kind.name == "struct":
        return {
            "type": "struct",
            "fields": [
                {"name": name, "type": to_json(part), "nullable": True, "metadata": {}}
                for name, part in kind.fields
            ],
        }
    return kind.name


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else "`" + name.replace("`", "``") + "`"
