"""Rows and expressions of Spark, as far as the ingest's own code builds them: lists of dicts, and functions.

The job's statements over the record and the quarantine are the project's own code, which runs on these.
"""

from __future__ import annotations

import json
import operator
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta_cdc.core.change_log import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulator.spark import Session

Row = dict[str, Any]


class Column:
    """An expression over a row."""

    def __init__(self, of: Callable[[Row], Any], name: str = "", *, inlined: bool = False) -> None:
        self.of, self.name, self.inlined = of, name, inlined

    def alias(self, name: str) -> Column:
        return Column(self.of, name)

    def cast(self, kind: object) -> Column:
        return Column(self.of, self.name)

    def getField(self, name: str) -> Column:  # noqa: N802 - Spark's name
        return Column(lambda row: None if (found := self.of(row)) is None else found.get(name), name)

    def isNull(self) -> Column:  # noqa: N802 - Spark's name
        return Column(lambda row: self.of(row) is None)

    def isNotNull(self) -> Column:  # noqa: N802 - Spark's name
        return Column(lambda row: self.of(row) is not None)

    def isin(self, *values: Any) -> Column:
        among = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        return self._strict(lambda found: found in among)

    def between(self, first: int, last: int) -> Column:
        return self._strict(lambda found: first <= found <= last)

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return self._with(other, lambda one, two: one == two)

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return self._with(other, lambda one, two: one != two)

    def __lt__(self, other: Any) -> Column:
        return self._with(other, lambda one, two: one < two)

    def __gt__(self, other: Any) -> Column:
        return self._with(other, lambda one, two: one > two)

    def __and__(self, other: Any) -> Column:
        """SQL's AND: NULL beside true is NULL, which selects no row."""
        two = _column(other)
        return Column(lambda row: False if self.of(row) is False else self.of(row) and two.of(row))

    def __or__(self, other: Any) -> Column:
        two = _column(other)
        return Column(lambda row: self.of(row) or two.of(row))

    def __invert__(self) -> Column:
        return self._strict(lambda found: not found)

    __hash__ = None  # type: ignore[assignment]

    def _strict(self, make: Callable[[Any], Any]) -> Column:
        return Column(lambda row: None if (found := self.of(row)) is None else make(found))

    def _with(self, other: Any, make: Callable[[Any, Any], Any]) -> Column:
        two = _column(other)

        def of(row: Row) -> Any:
            left, right = self.of(row), two.of(row)
            return None if left is None or right is None else make(left, right)

        return Column(of)


def _column(value: Any) -> Column:
    return value if isinstance(value, Column) else Column(lambda row: value)


class Functions:
    """The functions of ``pyspark.sql.functions`` that the ingest uses."""

    @staticmethod
    def col(name: str) -> Column:
        name = name.strip("`")
        outer, _, inner = name.partition(".")
        if inner:
            return Column(lambda row: row[outer]).getField(inner)
        return Column(lambda row: row[name], name)

    @staticmethod
    def lit(value: Any) -> Column:
        return Column(lambda row: value)

    @staticmethod
    def coalesce(*columns: Column) -> Column:
        return Column(lambda row: next((v for column in columns if (v := column.of(row)) is not None), None))

    @staticmethod
    def struct(*columns: Column) -> Column:
        return Column(lambda row: {column.name: column.of(row) for column in columns})

    @staticmethod
    def array_contains(column: Column, value: Any) -> Column:
        return Column(lambda row: None if (found := column.of(row)) is None else value in found)

    @staticmethod
    def current_timestamp() -> Column:
        return Column(lambda row: None)

    @staticmethod
    def from_json(text: Column, kind: str) -> Column:
        return Column(lambda row: json.loads(text.of(row)))

    @staticmethod
    def inline(entries: Column) -> Column:
        return Column(entries.of, inlined=True)


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def parsed(condition: str) -> Column:
    """Return an SQL condition: comparisons of columns with numbers or texts, with AND, or (with OR)."""
    if " AND " in condition:
        parts = [parsed(text) for text in condition.split(" AND ")]
        return Column(lambda row: all(part.of(row) for part in parts))
    if condition.startswith("("):
        parts = [parsed(text) for text in condition[1:-1].split(" OR ")]
        return Column(lambda row: any(part.of(row) for part in parts))
    name, sign, value = condition.split(" ", 2)
    compare, wanted = _COMPARED[sign], value.strip("'") if value.startswith("'") else int(value)
    return Column(lambda row: compare(row[name], wanted))


@dataclass
class Frame:
    """Rows, and the columns that they have even if there is no row."""

    session: Session
    rows: list[Row]
    columns: list[str]

    def where(self, given: Column | str) -> Frame:
        condition = parsed(given) if isinstance(given, str) else given
        return Frame(self.session, [row for row in self.rows if condition.of(row) is True], self.columns)

    def select(self, *wanted: Any) -> Frame:
        columns = [Functions.col(one) if isinstance(one, str) else one for one in wanted]
        if len(columns) == 1 and columns[0].inlined:
            rows = [entry for row in self.rows for entry in columns[0].of(row)]
            names = list(dict.fromkeys(name for row in rows for name in row))
            return Frame(self.session, [{name: row.get(name) for name in names} for row in rows], names)
        names = [column.name for column in columns]
        made = [{column.name: column.of(_Row(row)) for column in columns} for row in self.rows]
        return Frame(self.session, made, names)

    def withColumn(self, name: str, value: Column) -> Frame:  # noqa: N802 - Spark's name
        rows = [{**row, name: value.of(row)} for row in self.rows]
        return Frame(self.session, rows, [*self.columns, name])

    def drop(self, *names: str) -> Frame:
        rows = [{name: value for name, value in row.items() if name not in names} for row in self.rows]
        return Frame(self.session, rows, [name for name in self.columns if name not in names])

    def unionByName(self, other: Frame) -> Frame:  # noqa: N802 - Spark's name
        return Frame(self.session, [*self.rows, *other.rows], self.columns)

    def distinct(self) -> Frame:
        return Frame(self.session, list({value_of(row): row for row in self.rows}.values()), self.columns)

    def join(self, other: Frame, key: str, how: str) -> Frame:
        assert how == "left_anti"
        theirs = {value_of(row[key]) for row in other.rows}
        rows = [row for row in self.rows if value_of(row[key]) not in theirs]
        return Frame(self.session, rows, self.columns)

    def localCheckpoint(self) -> Frame:  # noqa: N802 - Spark's name
        return self

    def limit(self, number: int) -> Frame:
        return Frame(self.session, self.rows[:number], self.columns)

    def count(self) -> int:
        return len(self.rows)

    def isEmpty(self) -> bool:  # noqa: N802 - Spark's name
        return not self.rows

    def createOrReplaceTempView(self, name: str) -> None:  # noqa: N802 - Spark's name
        self.session.views[name] = self.rows

    @property
    def write(self) -> Writer:
        return Writer(self)


class _Row(dict[str, Any]):
    """A row in which a column that no record has is NULL, as in rows of ``from_json``."""

    def __missing__(self, name: str) -> None:
        return None


def value_of(value: Any) -> str:
    """Return a text that equal values share."""
    return json.dumps(value, sort_keys=True, default=str)


def beyond(rows: Frame, held: Frame, own: Column, theirs: Column, columns: Sequence[str] = ()) -> Frame:
    """Return the rows that exceed those in ``held``: what ``redelivery.beyond`` computes by a window."""
    keys = [value_of(theirs.of(row)) for row in held.rows]
    left, found = Counter(keys), []
    lists: dict[str, list[Any]] = {}
    for key, row in zip(keys, held.rows, strict=True):
        lists.setdefault(key, []).append(row.get(COLUMNS))
    for row in rows.rows:
        key = value_of(own.of(row))
        listed = lists.get(key, [None])
        is_more = None not in listed and not {*(row.get(COLUMNS) or columns)} <= set().union(*listed)
        if left[key] > 0 and not (columns and is_more):
            left[key] -= 1
        else:
            found.append(row)
    return Frame(rows.session, found, rows.columns)


class Writer:
    """A write of a frame into a Delta table."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._mode, self._properties = "error", dict[str, str]()
        self._replaced = ""

    def format(self, name: str) -> Writer:
        self._format = name
        return self

    def mode(self, name: str) -> Writer:
        self._mode = name
        return self

    def option(self, name: str, value: str) -> Writer:
        if name == "replaceWhere":
            self._replaced = value
        return self

    def options(self, **given: str) -> Writer:
        self._properties = given
        return self

    def save(self, uri: str | None = None) -> None:
        if self._format == "noop":
            return
        assert uri is not None
        if self._mode == "overwrite":
            self._frame.session.replace(uri, self._frame.rows, parsed(self._replaced))
            return
        self._frame.session.append(uri, self._frame.rows, self._properties, may_exist=self._mode == "append")
