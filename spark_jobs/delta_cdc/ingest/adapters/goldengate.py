"""Read Oracle GoldenGate's JSON, modelled by operation or by row, and its delimited text.

``op_type`` is the operation: ``I``, ``U``, ``D``, ``T`` (truncate) and ``K`` (an update of the key, which
needs the image of the old row). ``pos``, the position in the trail, is the order. An event does not carry a
column that is absent (updates may contain only keys and changed columns), or whose ``<column>_isMissing`` is
true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.adapters import DELETE, TRUNCATE, UPSERT
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.ingest.adapters.common import OfTable, ignored, key_change
from delta_cdc.ingest.adapters.members import Names, Remembered
from delta_cdc.ingest.ordering import digits
from delta_cdc.ingest.record import Event, Invalid
from delta_cdc.ingest.types import BOOLEAN
from delta_cdc.ingest.values import MISFIT, converter, plain, timestamp_micros

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.ingest.record import Record, Sequencer
    from delta_cdc.ingest.types import Type

#: The operation of an update of a key (in the option ``operations``, too).
KEY_CHANGE = "key_change"
OPERATIONS = {"i": UPSERT, "u": UPSERT, "d": DELETE, "t": TRUNCATE, "k": KEY_CHANGE}
#: Members that describe the operation of a record. They are not columns of the table.
META = ("table", "op_type", "op_ts", "current_ts", "pos", "csn", "xid", "primary_keys", "tokens")
_MISSING = "_ismissing"
_POS_DIGITS = 24
_UNKNOWN_OLD = Invalid("a key change without the image before it: its old key is unknown")
_NO_IMAGE = Invalid("no value for after, or of a delete for before")
_BOOLEAN = converter(plain(BOOLEAN))


class Goldengate(OfTable):
    """Reads records of GoldenGate.

    :param options: checked options
    :param keys: the key columns
    :param format: the format of the records
    """

    def __init__(self, options: Mapping[str, Any], *, keys: Sequence[str], format: str) -> None:  # noqa: A002
        self._by_row = options["model"] == "row"
        described = (*META, options["sequence_column"])
        super().__init__(options, keys, OPERATIONS, described=described if self._by_row else ())
        self._is_columnar = format == "parquet"
        wanted = ("op_type", "table", "op_ts", options["sequence_column"])
        self._names = Names((*wanted, "before", "after"))
        self._meta = Names(described)
        self.reads = frozenset(name.lower() for name in wanted)
        self._table: str | None = None if options["table"] is None else options["table"].lower()
        self._lacking = Invalid(f"no value for {options['sequence_column']}, or no whole number in it")
        self._flags = Remembered(_flags)

    def describes(self, name: str) -> bool:
        """Return whether a column describes the event: a field of the operation, or a flag."""
        return super().describes(name) or _is_flag(name)

    def sequence(self, types: Mapping[str, Type], log_type: Type | None) -> Sequencer:
        """Return how sequences become values: they are texts.

        :raises InvalidConfiguration: Parquet files have flags, which only a reader of all columns can follow
        """
        if self._is_columnar and any(map(_is_flag, types)):
            raise InvalidConfiguration(
                "The Parquet files have columns of flags (…_isMissing), and the adapter 'goldengate' needs "
                "JSON or delimited text for these.",
                remedy="let GoldenGate write JSON or delimited text.",
            )
        return super().sequence(types, log_type)

    # -- events -----------------------------------------------------------------------------------
    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a record."""
        value = record.value
        if type(value) is not dict:
            return self._read_other(record)
        code, table, time, place, before, after = self._names.values(value)
        # The option has the schema, if the records have it.
        if self._table is not None and (not isinstance(table, str) or table.lower() != self._table):
            return ignored()
        op = self._operation(code)
        if isinstance(op, Invalid):
            return op
        pos = digits(place, _POS_DIGITS)
        if pos is None:
            return self._lacking
        moment = timestamp_micros(time)
        if self._by_row:
            return self._read_row(op, value, f"{pos}/1", moment)
        return self._read_images(op, before, after, pos, moment)

    def _read_row(
        self, op: str, row: dict[str, Any], sequence: str, moment: int | None
    ) -> Sequence[Event] | Invalid:
        if op == KEY_CHANGE:
            return _UNKNOWN_OLD
        for name in self._meta.of(row):
            # The option sequence_column may name one of the others.
            if name is not None:
                row.pop(name, None)
        flawed = self._drop_missing(row)
        return flawed or (Event(op, row, sequence, moment),)

    def _read_images(
        self, op: str, before: Any, after: Any, pos: str, moment: int | None
    ) -> Sequence[Event] | Invalid:
        """Return the events of the rows before and after an operation."""
        if op not in (UPSERT, DELETE, KEY_CHANGE):
            return (Event(op, {}, f"{pos}/1", moment),)
        for name, image in (("before", before), ("after", after)):
            if image is None:
                continue
            if type(image) is not dict:
                return Invalid(f"{name} is no object")
            flawed = self._drop_missing(image)
            if flawed is not None:
                return flawed
        if op == DELETE:
            row = after if before is None else before
            return _NO_IMAGE if row is None else (Event(DELETE, row, f"{pos}/1", moment),)
        if op == KEY_CHANGE and (before is None or self._keys.lacking(before) is not None):
            return _UNKNOWN_OLD
        if after is None:
            return _NO_IMAGE
        if before is not None and self._keys.differ(before, after):
            return key_change(before, after, (f"{pos}/0", f"{pos}/1"), moment)
        return (Event(UPSERT, after, f"{pos}/1", moment),)

    # -- missing values ---------------------------------------------------------------------------
    def _drop_missing(self, row: dict[str, Any]) -> Invalid | None:
        """Remove the flags, and the columns that they call missing."""
        for flag, column in self._flags.of(row):
            value = row.pop(flag)
            is_missing = value if type(value) is bool else _BOOLEAN(value)
            if is_missing is MISFIT:
                return Invalid(f"column {flag} is no boolean")
            if is_missing and column is not None:
                row.pop(column, None)
        return None


def _is_flag(name: str) -> bool:
    return name[-len(_MISSING) :].lower() == _MISSING and len(name) > len(_MISSING)


def _flags(members: tuple[str, ...]) -> tuple[tuple[str, str | None], ...]:
    """Return each flag with the column that it describes; None if the row lacks the column."""
    flags = [name for name in members if _is_flag(name)]
    by_lower = {name.lower(): name for name in members} if flags else {}
    exact = set(members)
    found = []
    for flag in flags:
        column = flag[: -len(_MISSING)]
        found.append((flag, column if column in exact else by_lower.get(column.lower())))
    return tuple(found)
