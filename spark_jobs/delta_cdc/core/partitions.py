"""Names of a table's partitions, for events: ``country=DE/day=2026-11-28``, as in the folders of Delta.

Each partition has one key, each key is of one partition, and both directions are total: any value that a log
may have can be in a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote

from delta_cdc.core import sql
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The key of the whole table, where the changed partitions are not known, or are too many. No partition has
#: this key, because that of a partition has a "=".
ALL = "all"
#: The most partitions that an event lists.
MOST_PARTITIONS = 100
#: The most characters of a key, as in Airflow's database.
_MOST_CHARACTERS = 250
#: NULL in a folder's name. A value that is equal to this text has its first character encoded.
_NULL = "__HIVE_DEFAULT_PARTITION__"
_NULL_AS_TEXT = f"%5F{_NULL[1:]}"
#: Characters that stay as they are, beside letters, digits and "_.-~", so that times can be read.
_PLAIN = ":,+@"


def partition_key(values: Mapping[str, str | None]) -> str | None:
    """Return the key of a partition; None if it is longer than Airflow allows.

    :param values: the values of all partition columns, as texts of the table's log, in the order of the
        columns; None is NULL
    """
    key = "/".join(f"{_encoded(column)}={_value(value)}" for column, value in values.items())
    return key if len(key) <= _MOST_CHARACTERS else None


def partition_values(key: str) -> dict[str, str | None]:
    """Return the values of a partition's columns; the empty dict for the whole table.

    :param key: the key of an event's partition, in Airflow ``dag_run.partition_key``: such as
        ``country=DE/day=2026-11-28``, or ``all``
    :return: the value of each partition column as a text of the table's log, such as ``2026-11-28``; None is
        NULL
    :raises InvalidConfiguration: ``key`` is not the key of a partition
    """
    if key == ALL:
        return {}
    values: dict[str, str | None] = {}
    for part in key.split("/") if isinstance(key, str) else [""]:
        column, equals, value = part.partition("=")
        if not (column and equals) or "=" in value or _decoded(column) in values:
            raise _refused(key)
        values[_decoded(column)] = None if value == _NULL else _decoded(value)
    return values


def partition_predicate(key: str, dialect: Literal["spark", "ansi"] = "spark") -> str:
    """Return an SQL predicate that is true for the rows of a partition, such as ``country = 'DE'``.

    The engines compare a text with a date, a time or a number as a value of that type. Of the whole table,
    the predicate is ``TRUE``.

    :param key: see :func:`partition_values`
    :param dialect: how names and texts are quoted: ``ansi`` is for engines with the quotes of standard
        SQL. That of the package ``deltalake`` does not compare a text with a boolean: for a boolean column,
        write the condition from :func:`partition_values`
    :raises InvalidConfiguration: ``key`` is not the key of a partition
    """
    name, text = (sql.quote, sql.string) if dialect == "spark" else (_ansi_name, _ansi_text)
    conditions = [
        f"{name(column)} IS NULL" if value is None else f"{name(column)} = {text(value)}"
        for column, value in partition_values(key).items()
    ]
    return " AND ".join(conditions) or "TRUE"


def _ansi_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _ansi_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _encoded(text: str) -> str:
    # A log may have any text of JSON, also half of a surrogate pair.
    return quote(text, safe=_PLAIN, errors="surrogatepass")


def _decoded(text: str) -> str:
    return unquote(text, errors="surrogatepass")


def _value(value: str | None) -> str:
    if value is None:
        return _NULL
    return _NULL_AS_TEXT if value == _NULL else _encoded(value)


def _refused(key: Any) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"{key!r} is not the key of a partition.",
        remedy=f'use a key of an event, such as "country=DE", or "{ALL}" for the whole table.',
    )
