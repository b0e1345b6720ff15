"""What the code of a pipeline defines, in either language: datasets, flows, and the places of all parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.core.sql_tokens import bare, names

if TYPE_CHECKING:
    from delta_cdc.config.findings import Place
    from delta_cdc.config.tree import Refused

#: The schema that older pipelines write before the names of their own tables.
_OWN_SCHEMA = "live"
#: How to go on if a query of the code is more than a plain read.
GIVE_THE_TABLE = (
    "write its rows to a Delta table with a job of your own, and give that table as the source: in sources "
    "of build_dags, or with --source NAME=TABLE."
)


@dataclass(frozen=True)
class Value:
    """A value that the code gives, and its place."""

    value: Any
    place: Place


@dataclass(frozen=True)
class Read:
    """A read of one table without any change except filters.

    :param table: name of a dataset of the code or of a catalog, or a path
    :param is_stream: whether it reads only what is new
    :param filters: SQL predicates; a row must match all
    :param options: the reader's options by their names in lower case
    """

    table: str
    place: Place
    is_stream: bool = True
    filters: tuple[str, ...] = ()
    options: dict[str, Value] = field(default_factory=dict)


@dataclass
class Dataset:
    """A table or view that the code defines.

    :param kind: what the code calls it, for messages
    :param reads: the queries that fill it; one that is no plain read is the error that says so
    :param clauses: clauses of the definition by their Python names
    """

    name: str
    kind: str
    place: Place
    reads: list[Read | Refused] = field(default_factory=list)
    clauses: dict[str, Value] = field(default_factory=dict)


@dataclass
class Flow:
    """A flow that applies changes to a table.

    :param is_snapshot: whether its source contains full copies, not events
    :param source: the name of a dataset or a table; or, in SQL, a :class:`Read`
    :param clauses: the other clauses by their Python names
    """

    place: Place
    is_snapshot: bool
    target: Value
    source: Value
    clauses: dict[str, Value]


@dataclass
class Program:
    """The content of a file.

    :param datasets: by :func:`key` of their names
    :param notices: what was left out, with the reason
    :param used: the datasets that a flow reads or writes, by :func:`key` of their names
    """

    datasets: dict[str, Dataset] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def dataset(self, name: str, kind: str, place: Place) -> Dataset:
        """Return the dataset with a name, which may be new."""
        return self.datasets.setdefault(key(name), Dataset(name, kind, place))


def table_name(text: str) -> str:
    """Return a name without back-ticks, and without the schema ``LIVE``."""
    parts = [bare(part) for part in names(text)] if "/" not in text else [text]
    if len(parts) > 1 and parts[0].lower() == _OWN_SCHEMA:
        parts = parts[1:]
    return ".".join(parts)


def key(name: str) -> str:
    """Return the form of a name that is equal for all its spellings."""
    return table_name(name).lower()
