"""CHAR columns of a source: the tables that are made of it have STRING columns, whose values end with blanks.

Only the source's schema knows the length, so it completes a key that a person writes without these blanks.

Standard library only: this module travels to the Spark driver.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Key in the metadata of a field by which Spark marks a STRING as CHAR or VARCHAR, with that type.
CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(r"char\((\d+)\)", re.IGNORECASE)


def lengths_of(fields: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the lengths of the CHAR columns of a schema, by lower-case name.

    :param fields: the columns, as the schema in a Delta log has them
    """
    types = {field["name"].lower(): (field.get("metadata") or {}).get(CHAR_TYPE) for field in fields}
    found = {name: _CHAR.fullmatch(type_) for name, type_ in types.items() if isinstance(type_, str)}
    return {name: int(match[1]) for name, match in found.items() if match is not None}


def padded(text: str, length: int) -> str:
    """Return a value of CHAR(length) as Spark reads it."""
    return text.rstrip(" ").ljust(length)


def spellings_of(key: Mapping[str, str], lengths: Iterable[Mapping[str, int]]) -> list[dict[str, str]]:
    """Return a key as it is given, and as the tables made of some sources have it.

    :param key: column -> value
    :param lengths: for each source, see :func:`lengths_of`
    """
    found = [dict(key)]
    for one in lengths:
        completed = {
            name: padded(value, one[name.lower()]) if name.lower() in one else value
            for name, value in key.items()
        }
        if completed not in found:
            found.append(completed)
    return found
