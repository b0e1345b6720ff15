"""Which columns of a table may be its key, by their names and types. Only a count over the rows proves it.

A name is a reason to count, never a proof. A column is a candidate alone if its name says that it identifies
the rows of *this* table (``id``, ``order_id`` in ``orders``), or at least that it identifies something
(``rental_id``); a column that names another table of the same folder (``customer_id``, beside ``customers``)
is a candidate only in a pair. Columns without such a name are no candidates, even if their values differ:
amounts of money often do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from delta_cdc.delta_log.schema_changes import read_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

#: The most single columns, and the most pairs, that are counted for one table.
MOST_SINGLES, MOST_PAIRS = 8, 15
#: The most candidates that one reading of a table counts: Spark keeps the values of each.
_AT_ONCE = 8

_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+")
_WHOLE = ("byte", "short", "integer", "long")
_DATES = ("date", "timestamp", "timestamp_ntz")
_DECIMAL = re.compile(r"decimal\(\d+,0\)")
#: Words that say that a column identifies something; as a whole name, a row of the table itself.
_IDENTIFIERS = ("id", "key", "uuid", "guid", "pk", "sk", "rowid", "rowguid", "oid")
#: Words that identify a row only together with the table's own name: there are other numbers and codes.
_NUMBERS = ("no", "nr", "num", "number", "code", "nbr")
#: Names in lower case often have no separator: ``orderid``, ``custkey``.
_ENDINGS = ("uuid", "guid", "key", "id")
#: Words of columns that distinguish the rows of one parent, besides dates.
_DISTINGUISHING = (
    *("line", "position", "pos", "seq", "sequence", "index", "idx", "ordinal", "item", "rank", "version"),
    *("lang", "language", "locale", "currency", "country", "region", "type", "kind"),
    *("date", "day", "week", "month", "quarter", "year", "hour", "period", *_NUMBERS, "linenumber"),
)
#: Prefixes of tables' names that say where a table lies, not what it holds.
_LAYERS = ("bronze", "silver", "gold", "raw", "stg", "staging", "src", "dim", "fact", "fct", "tbl", "t")
#: Words of columns that order the changes of a row, with what they say; the best first.
_ORDERS = (
    (("lsn", "scn", "binlog"), "a position in a database's log, by its name"),
    (("updated", "update", "modified", "changed", "change"), "the time of a change, by its name and type"),
    (("committed", "commit", "event", "ts", "timestamp"), "the time of an event, by its name and type"),
    (("version", "seq", "sequence", "revision"), "a number of versions, by its name and type"),
)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    :param kind: Delta's name of its type; "" for structs, lists and maps
    :param file_name: its name in the files, which column mapping may have changed
    :param is_identity: whether Delta generates its values
    """

    name: str
    kind: str
    file_name: str
    is_identity: bool = False

    @property
    def may_identify(self) -> bool:
        """Return whether its type is one of keys: whole numbers, texts and bytes."""
        return self.kind in (*_WHOLE, "string", "binary") or _DECIMAL.fullmatch(self.kind) is not None

    @property
    def words(self) -> list[str]:
        """Return the words of its name, in lower case."""
        return [word.lower() for word in _WORDS.findall(self.name)]


@dataclass(frozen=True)
class Candidate:
    """Columns that may be a key.

    :param reason: what their names say, for people
    """

    columns: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return ", ".join(self.columns)


@dataclass(frozen=True)
class Order:
    """A column that may order the events of a key, and why."""

    column: str
    reason: str


def columns_of(schema_string: str) -> tuple[Column, ...]:
    """Return the top-level columns of a schema.

    :param schema_string: ``metaData.schemaString``
    """
    return tuple(_column(field) for field in read_schema(schema_string)["fields"])


def _column(field: dict[str, Any]) -> Column:
    metadata = field.get("metadata") or {}
    kind = field.get("type")
    return Column(
        name=field["name"],
        kind=kind if isinstance(kind, str) else "",
        file_name=metadata.get("delta.columnMapping.physicalName", field["name"]),
        is_identity="delta.identity.start" in metadata,
    )


def candidates(
    table: str,
    columns: Sequence[Column],
    partition_columns: Collection[str] = (),
    others: Collection[str] = (),
) -> list[Candidate]:
    """Return the columns, and the pairs of columns, that may be the key of a table, the best first.

    :param table: its name; of a path, the last part counts
    :param others: the names of other tables, to which columns may refer
    """
    own = _stems(table)
    foreign = {stem for other in others for stem in _stems(other)} - own
    prefix = _shared_word(columns)
    ranked = [
        (*found, position, column)
        for position, column in enumerate(columns)
        if column.may_identify and (found := _rank(column, own, foreign, prefix)) is not None
    ]
    ranked.sort(key=lambda one: (one[0], one[2]))
    singles = [Candidate((column.name,), reason) for rank, reason, _, column in ranked if rank < _FOREIGN][
        :MOST_SINGLES
    ]
    return [*singles, *_pairs(columns, [one[3] for one in ranked], partition_columns)]


def rounds(found: Sequence[Candidate]) -> list[Sequence[Candidate]]:
    """Return candidates in groups, each of which one reading of the table counts: four groups at most.

    The best candidate is alone, because it is mostly the key, so that the others need no count.
    """
    return [found[:1], *(found[at : at + _AT_ONCE] for at in range(1, len(found), _AT_ONCE))]


#: Ranks of single columns; one of this rank or a greater one is a candidate only in a pair.
_FOREIGN = 4


def _rank(column: Column, own: set[str], foreign: set[str], prefix: str) -> tuple[int, str] | None:
    """Return how well a name says that the column is the key, and what it says; None for no such name."""
    if column.is_identity:
        return 0, "Delta generates its values (an identity column)"
    words = column.words
    if prefix and words[:1] == [prefix]:
        words = words[1:]
    stem, ending = _split(words, own | foreign)
    if not ending:
        return None
    if ending in _NUMBERS:
        return (2, "by its name, the table's own number") if stem in own else (_FOREIGN + 1, "a number")
    if not stem or stem in ("row", "record", "unique", "global"):
        return 1, "by its name, the table's own key"
    if stem in own:
        return 2, "by its name, the table's own key"
    if stem in foreign:
        return _FOREIGN, "by its name, the key of another table"
    return 3, "by its name a key, perhaps of another table"


def _split(words: list[str], stems: set[str]) -> tuple[str, str]:
    """Return what a name identifies, and the word that says so; both are "" if no word does."""
    if not words:
        return "", ""
    if words[-1] in (*_IDENTIFIERS, *_NUMBERS):
        return "".join(words[:-1]), words[-1]
    if words[0] == "id" and len(words) > 1:
        return "".join(words[1:]), "id"
    for ending in _ENDINGS:
        stem = "".join(words).removesuffix(ending)
        # A word may end with "id" or "key" by chance, as paid and monkey do.
        known = any(one.startswith(stem) and len(stem) >= _SHORTEST for one in stems)
        if stem != "".join(words) and stem and (known or ending in ("uuid", "guid")):
            full = next((one for one in sorted(stems) if one.startswith(stem)), stem)
            return full, ending
    return "", ""


#: Letters of a shortened table's name, as ``cust`` in ``custkey``.
_SHORTEST = 4
#: Letters of a prefix that all columns of a table share.
_LONGEST_PREFIX = 3


def _pairs(
    columns: Sequence[Column], identifying: Sequence[Column], partition_columns: Collection[str]
) -> list[Candidate]:
    """Return pairs of columns that identify something, or of one and a column that distinguishes its rows."""
    more = [
        column
        for column in columns
        if column not in identifying
        and (column.may_identify or column.kind in _DATES)
        and (
            column.name in partition_columns
            or column.kind == "date"
            or any(word in _DISTINGUISHING for word in column.words)
        )
    ]
    found = [*combinations(identifying, 2), *((one, other) for one in identifying for other in more)]
    positions = {column.name: position for position, column in enumerate(columns)}
    return [
        Candidate(
            tuple(sorted((one.name, other.name), key=positions.__getitem__)),
            "by their names, each identifies a part",
        )
        for one, other in found
    ][:MOST_PAIRS]


def orders(columns: Sequence[Column]) -> list[Order]:
    """Return the columns that may order events, the best first: times, and numbers of versions."""
    found = []
    for column in columns:
        for rank, (words, reason) in enumerate(_ORDERS):
            is_time = column.kind in _DATES[1:]
            fits = is_time if "time" in reason else column.kind in _WHOLE or column.kind == "string"
            if fits and set(words) & set(column.words):
                found.append((rank, Order(column.name, reason)))
                break
    return [order for _, order in sorted(found, key=lambda one: one[0])]


def _stems(table: str) -> set[str]:
    """Return what other tables may call a table: its words together, in singular and plural."""
    words = [word.lower() for word in _WORDS.findall(re.split(r"[/.]", table.rstrip("/"))[-1])]
    while len(words) > 1 and words[0] in _LAYERS:
        words = words[1:]
    whole = "".join(words)
    return {form for form in (whole, *_singulars(whole)) if form}


def _singulars(word: str) -> list[str]:
    found = [word[:-1]] if word.endswith("s") and not word.endswith("ss") else []
    found += [f"{word[:-3]}y"] if word.endswith("ies") else []
    return [*found, *([word[:-2]] if re.search(r"(s|x|z|ch|sh)es$", word) else [])]


def _shared_word(columns: Sequence[Column]) -> str:
    """Return the short first word of all names, as in the tables of TPC-H (``o_``, ``ps_``); else ""."""
    first = {column.words[0] if column.words else "" for column in columns}
    word = first.pop() if len(first) == 1 and len(columns) > 1 else ""
    return word if len(word) <= _LONGEST_PREFIX else ""
