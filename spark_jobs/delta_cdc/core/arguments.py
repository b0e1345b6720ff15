"""Parsers, one for each kind of argument: from user input to the engine's types.

Values may come from Python, from a rendered template or from a form, where ``""`` and ``"None"`` mean
"not given": a parser then returns None, unless it documents otherwise.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

from delta_cdc.core import codec
from delta_cdc.core.adapters import BUNDLED
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.guard import approved_version, share
from delta_cdc.core.reserved_columns import COMMIT_VERSION
from delta_cdc.core.variables import expand

#: The texts to which an empty form field or an unset Param renders.
_NOT_GIVEN = ("", "none", "null")
#: The same texts for a choice and for the name of a pipeline, of which the word ``none`` may be one.
_NO_CHOICE = ("", "None", "null")
#: The work of a run: apply all new changes, all up to a bound, or those of a time interval; compute some keys
#: again; compute all keys again; or load the target from the start.
MODES: tuple[str, ...] = ("incremental", "backfill", "interval", "repair", "reload", "reset")
#: The modes that apply the changes after the watermark; each other one makes one commit.
ONWARDS = ("incremental", "backfill")
#: The ways to handle conflicting events, besides ``{"last_by": [<column>, ...]}``.
CONFLICTS: tuple[str, ...] = ("fail", "quarantine")
#: The ways to fill a new target, besides ``{"from_version": N}`` and ``{"none_at": V}``.
INITIAL_LOADS: tuple[str, ...] = ("snapshot", "none")
#: The name of a custom adapter: a module, and a name in it.
_DOTTED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+", re.ASCII)
_DURATION = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(second|minute|hour|day)s?\s*", re.IGNORECASE)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_SIZE = re.compile(r"\s*(\d{1,15})\s*(|b|kib|mib|gib|tib)\s*", re.IGNORECASE | re.ASCII)
_BYTES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
#: A template in a text. One that never ends takes the rest, so that a text is read once.
_TEMPLATE = re.compile(r"\{\{.*?(?:\}\}|\Z)|\{%.*?(?:%\}|\Z)", re.DOTALL)


def is_given(value: Any) -> bool:
    """Return whether an argument, which may be rendered text, has a value."""
    return value is not None and not (isinstance(value, str) and value.strip().lower() in _NOT_GIVEN)


def spelled(value: Any) -> Any:
    """Return the list, tuple or mapping that a text spells; any other value unchanged.

    A template whose value is one renders such a text: as Python writes it, or as JSON.
    """
    if isinstance(value, str) and value.lstrip().startswith(("[", "(", "{")):
        for parse in (codec.parsed, ast.literal_eval):
            with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                found = parse(value.strip())
                return found if isinstance(found, list | tuple | dict) else value
    return value


def refused(name: str, value: Any, remedy: str) -> InvalidConfiguration:
    """Return the error for an invalid value of an argument.

    :param name: the argument's name; for a part of it, followed by the part's name
    """
    return InvalidConfiguration(f"{name} is {value!r}.", remedy=remedy, argument=name.partition(" ")[0])


def one_of(choices: Collection[str], name: str, value: Any, others: str = "") -> Any:
    """Read a choice. Another spelling, such as ``FAIL``, is an error that names the right one.

    ``""``, ``"None"`` and ``"null"``, which templates and forms render, mean "not given". ``"none"`` does
    not mean that, because it is a choice of some arguments.

    :param others: further allowed values, as the message lists them
    :raises InvalidConfiguration: for any other value; names the nearest choice
    """
    given = value.strip() if isinstance(value, str) else value
    if given is None or given in _NO_CHOICE:
        return None
    if given not in choices:
        nearest = get_close_matches(str(given).lower(), choices, n=1)
        hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        raise refused(name, value, f"use one of {', '.join(choices)}{others}{hint}.")
    return given


def some_of(choices: Collection[str], name: str, value: Any) -> tuple[str, ...] | None:
    """Read a list of choices, each once, in the order of the choices.

    :raises InvalidConfiguration: for anything but a list of them, or the text of one
    """
    given = names(name, value)
    if given is None:
        return None
    chosen = {one_of(choices, name, item) for item in given}
    return tuple(choice for choice in choices if choice in chosen)


def whole_number(name: str, value: Any, *, minimum: int = 0) -> int | None:
    """Read a whole number that may come as rendered text.

    :raises InvalidConfiguration: for anything except a whole number >= ``minimum``
    """
    if not is_given(value):
        return None
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and value.strip().isdecimal():
        number = int(value)
    if number is None or number < minimum:
        raise refused(name, value, f"give a whole number >= {minimum}, or leave it empty.")
    return number


def row_limit(name: str, value: Any) -> int | str | None:
    """Read a number of rows, or a share of the target's rows such as ``5 %``.

    :raises InvalidConfiguration: for anything except a whole number >= 0, or a share up to 100 %
    """
    if isinstance(value, str) and is_given(value) and not value.strip().isdecimal():
        if share(value) is None:
            raise refused(name, value, "give a whole number of rows, or a share such as '5 %', up to 100 %.")
        return value.strip()
    return whole_number(name, value)


def approval_text(name: str, value: Any) -> str | None:
    """Read the text that approves a step (:func:`delta_cdc.core.guard.approval`).

    :raises InvalidConfiguration: it is no such text
    """
    given = text(name, value)
    if given is not None and approved_version(given.strip()) is None:
        raise refused(name, value, "copy the text from the error LimitExceeded, such as 12-0a1b2c3d4e5f.")
    return given.strip() if given is not None else None


def seconds(text: str) -> float | None:
    """Return how long ``5 minutes`` is, in seconds; None if the text is not like that."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    number = float(match[1]) * _SECONDS[match[2].lower()]
    return int(number) if number.is_integer() else number


def span(name: str, value: Any) -> float | None:
    """Read a duration: seconds, or a text like ``5 minutes``.

    :raises InvalidConfiguration: for anything else
    """
    if not is_given(value):
        return None
    number: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str):
        number = seconds(value)
    if number is None or not 0 <= number < float("inf"):
        raise refused(name, value, "give seconds, or a text like '5 minutes'.")
    return number


def size(name: str, value: Any) -> int | None:
    """Read a number of bytes: a whole number >= 1, or a text like ``20GiB``.

    :raises InvalidConfiguration: for anything else
    """
    if not is_given(value):
        return None
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        number = int(match[1]) * _BYTES[match[2].lower()]
    if number is None or number < 1:
        raise refused(name, value, "give bytes, or a text like 20GiB.")
    return number


def scd_type(name: str, value: Any) -> int | None:
    """Read 1 or 2.

    :raises InvalidConfiguration: for anything else
    """
    number = whole_number(name, value)
    if number not in (None, 1, 2):
        raise refused(name, value, "use 1 or 2.")
    return number


def text(name: str, value: Any) -> str | None:
    """Read an optional text, which may also be a number, a time or a path.

    :raises InvalidConfiguration: for anything else
    """
    if not is_given(value):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal | date | PurePath):
        raise refused(name, value, "give a text.")
    return str(value)


def name(name: str, value: Any) -> str | None:
    """Read an optional name.

    :raises InvalidConfiguration: for anything except a text
    """
    return required(name, value) if is_given(value) else None


def required(name: str, value: Any) -> str:
    """Read a required text.

    :raises InvalidConfiguration: if it is empty
    """
    if not isinstance(value, str) or not is_given(value):
        raise refused(name, value, "give a text." if is_given(value) else f"give {name} a value.")
    return value.strip()


def pipeline(name: str, value: Any) -> str | None:
    """Read the optional name of a pipeline.

    ``"none"`` is a name, as in a configuration. ``""``, ``"None"`` and ``"null"``, which templates render,
    mean "not given".

    :raises InvalidConfiguration: for anything except a text
    """
    if value is None or (isinstance(value, str) and value.strip() in _NO_CHOICE):
        return None
    if not isinstance(value, str):
        raise refused(name, value, "give a text.")
    return value.strip()


def required_pipeline(name: str, value: Any) -> str:
    """Read the name of a pipeline.

    :raises InvalidConfiguration: if there is no name, or for anything except a text
    """
    found = pipeline(name, value)
    if found is None:
        raise refused(name, value, f"give {name} a value.")
    return found


def table(name: str, value: Any) -> str:
    """Read a path, URI or catalog name, and substitute ``${ENV}``.

    :raises InvalidConfiguration: if it is empty, or a variable is not set
    """
    return expand(required(name, value))


def optional_table(name: str, value: Any) -> str | None:
    """Read an optional path, URI or catalog name, as :func:`table` does."""
    return table(name, value) if is_given(value) else None


def last_part(table: str) -> str:
    """Return the last part of a table's path or catalog name.

    :param table: templates in it stay unchanged
    """
    text = table.strip()
    parts = _TEMPLATE.sub(lambda template: "x" * len(template[0]), text).rstrip("/")
    separator = "/" if "/" in parts else "."
    return text[parts.rfind(separator) + 1 : len(parts)].strip()


def names(name: str, value: Any) -> tuple[str, ...] | None:
    """Read a list of column names or expressions; a text that spells no list means a list of that text.

    :raises InvalidConfiguration: for anything except texts
    """
    if not is_given(value):
        return None
    found = spelled(value)
    items = found if not isinstance(found, Mapping) else value
    items = (items,) if isinstance(items, str) else items
    is_list = isinstance(items, Collection) and not isinstance(items, Mapping)
    if not is_list or not all(isinstance(item, str) for item in items):
        raise refused(name, value, "give a list of texts.")
    return tuple(items)


def columns(name: str, value: Any) -> tuple[str, ...] | None:
    """Read a list of distinct column names, compared without case.

    :raises InvalidConfiguration: for anything except texts, a text that lists names, or a duplicate name
    """
    if isinstance(value, str) and "," in value and not isinstance(spelled(value), list | tuple):
        names_text = ", ".join(repr(part.strip()) for part in value.split(","))
        raise InvalidConfiguration(
            f"{name} is a text, {value!r}: it would be the name of one column.",
            remedy=f"give a list: [{names_text}].",
            argument=name,
        )
    column_names = names(name, value)
    if column_names is not None and len({column.lower() for column in column_names}) < len(column_names):
        raise InvalidConfiguration(
            f"{name} names a column twice ({', '.join(column_names)}).",
            remedy="name each column once.",
            argument=name,
        )
    return column_names


def projections(name: str, value: Any) -> tuple[str, ...]:
    """Read a list of expressions; not given means an empty list.

    :raises InvalidConfiguration: for anything except texts, or an empty text
    """
    expressions = names(name, value) or ()
    if not all(expression.strip() for expression in expressions):
        raise refused(name, value, "leave it out, or give an expression in each place.")
    return expressions


def flag(name: str, value: Any) -> bool:
    """Read a boolean that may come as rendered text; not given means False.

    :raises InvalidConfiguration: for anything except a boolean, ``"true"`` or ``"false"``
    """
    if isinstance(value, bool):
        return value
    if not is_given(value):
        return False
    booleans = {"true": True, "false": False}
    word = value.strip().lower() if isinstance(value, str) else None
    if word not in booleans:
        raise refused(name, value, "give true or false.")
    return booleans[word]


def mapping(name: str, value: Any) -> dict[str, Any]:
    """Read a mapping, which may come as text from a form or a template; not given means an empty one.

    :raises InvalidConfiguration: for anything else; the message hides the value, which may contain secrets
    """
    if not is_given(value):
        return {}
    parsed = spelled(value)
    if not isinstance(parsed, Mapping) or not all(isinstance(key, str) for key in parsed):
        raise InvalidConfiguration(
            f"{name} is no mapping (type {type(value).__name__}).",
            remedy="give a mapping from names to values, or its JSON text.",
            argument=name,
        )
    return dict(parsed)


def key_values(name: str, value: Any) -> dict[str, str] | None:
    """Read a key: a mapping from columns to values, or a text such as ``id=17, line=3``.

    A text may also be the JSON of a mapping: only there, a value may be empty or contain a comma.

    :return: the value of each column as text
    :raises InvalidConfiguration: for anything else, a column without a value, or one that is named twice
    """
    if not is_given(value):
        return None
    found = spelled(value)
    pairs = list(found.items()) if isinstance(found, Mapping) else _pairs(name, value)
    for column, one in pairs:
        if not isinstance(column, str) or not column.strip():
            raise refused(name, value, _KEY_REMEDY)
        if one is None or not isinstance(one, str | int | float | Decimal | date):
            raise refused(f"{name} of {column}", one, "give the value of this key column.")
    if not pairs or len({column.strip().lower() for column, _ in pairs}) < len(pairs):
        raise refused(name, value, "give each key column one value.")
    return {column.strip(): property_text(one) for column, one in pairs}


_KEY_REMEDY = "give a mapping from the key columns to their values, or a text such as id=17, line=3."


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if not isinstance(value, str):
        raise refused(name, value, _KEY_REMEDY)
    pairs = []
    for part in value.split(","):
        column, _, one = (text.strip() for text in part.partition("="))
        if not one:
            remedy = f'{_KEY_REMEDY} A value with a comma needs JSON: {{"name": "Doe, Jane"}}.'
            raise refused(name, value, remedy)
        pairs.append((column, one))
    return pairs


def mappings(name: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    """Read a list of mappings; not given means an empty one.

    :raises InvalidConfiguration: for anything else
    """
    items = spelled(value) if is_given(value) else ()
    if not isinstance(items, Sequence) or not all(isinstance(item, Mapping) for item in items):
        raise refused(name, value, "give a list of mappings.")
    return tuple(items)


def properties(name: str, value: Any) -> dict[str, str]:
    """Read a mapping whose values are texts. A value of None is left out.

    Python's booleans become ``true`` and ``false``, as in Delta; lists and mappings become JSON.

    :raises InvalidConfiguration: for anything except a mapping
    """
    return {key: property_text(item) for key, item in mapping(name, value).items() if item is not None}


def property_text(value: Any) -> str:
    """Return the value of a property as text, for Delta, Spark, a store or Kafka."""
    if isinstance(value, bool | list | tuple | dict):
        with suppress(TypeError):
            return json.dumps(value)
    return str(value)


def settings(name: str, value: Any) -> dict[str, str]:
    """Read the settings of a program as :func:`properties` does, without those that a template left unset.

    :raises InvalidConfiguration: for anything except a mapping
    """
    return {key: item for key, item in properties(name, value).items() if item.strip() != "None"}


def pipeline_tables(name: str, value: Any) -> dict[str, str]:
    """Read a mapping from names of pipelines to tables, or one name alone, whose table is then ``""``.

    :raises InvalidConfiguration: for anything else
    """
    if not is_given(value):
        return {}
    found = spelled(value)
    if isinstance(found, str):
        return {required(name, found): ""}
    return {pipeline: table(name, target) for pipeline, target in mapping(name, found).items()}


def listed(name: str, value: Any) -> str | None:
    """Read a text with commas, such as ``a.jar,b.jar``, or a list of its parts.

    :raises InvalidConfiguration: for anything except texts
    """
    return ",".join(part.strip() for part in names(name, value) or ()) or None


def partitions(name: str, value: Any) -> dict[str, str | None]:
    """Read a list of columns, or a mapping from a column to its expression (or None).

    :raises InvalidConfiguration: for anything else
    """
    value = spelled(value)
    if isinstance(value, Mapping):
        return {str(column): text(name, expression) for column, expression in value.items()}
    return dict.fromkeys(names(name, value) or ())


def sequences(name: str, value: Any) -> str | tuple[str, ...]:
    """Read an expression, or a list of expressions to compare in order.

    :return: for a list of one expression, that expression; if not given, the commit version
    :raises InvalidConfiguration: for anything except texts, or an empty list
    """
    expressions = names(name, value)
    if expressions is None:
        return COMMIT_VERSION
    if not expressions or not all(is_given(expression) for expression in expressions):
        raise refused(name, value, "give an expression or a list of them, or leave it out.")
    return expressions[0] if len(expressions) == 1 else expressions


def conflict(name: str, value: Any) -> str | tuple[str, ...] | None:
    """Read how conflicting events are handled: a word, or the columns of ``{"last_by": [<column>, ...]}``.

    :raises InvalidConfiguration: for anything else
    """
    value = spelled(value)
    if isinstance(value, Mapping) and set(value) == {"last_by"}:
        last_by = columns(name, value["last_by"])
        if last_by and all(is_given(column) for column in last_by):
            return last_by
    word: str | None = one_of(
        CONFLICTS, name, value, ' or {"last_by": [<column>, ...]}, of which the greatest wins'
    )
    return word


def initial_load(name: str, value: Any) -> str | dict[str, int] | None:
    """Read ``"snapshot"``, ``"none"``, ``{"from_version": N}`` or ``{"none_at": V}``.

    A ``from_version`` without a value means ``snapshot``. A ``none_at`` needs its version: any default would
    give a baseline that covers rows that were never checked.

    :raises InvalidConfiguration: for anything else
    """
    value = spelled(value)
    if isinstance(value, Mapping) and len(value) == 1 and set(value) <= {"from_version", "none_at"}:
        ((key, raw_version),) = value.items()
        version = whole_number(f"{name} {key}", raw_version)
        if version is not None:
            return {key: version}
        if key == "from_version":
            return None
    word: str | None = one_of(
        INITIAL_LOADS, name, value, ', {"from_version": <version>} or {"none_at": <version>}'
    )
    return word


def adapter(name: str, value: Any) -> str | None:
    """Read the name of a bundled adapter, or the dotted name of a custom function.

    :raises InvalidConfiguration: for anything else
    """
    adapter_name = text(name, value)
    if adapter_name is not None and _DOTTED.fullmatch(adapter_name.strip()):
        return adapter_name.strip()
    bundled: str | None = one_of(BUNDLED, name, adapter_name)
    return bundled
