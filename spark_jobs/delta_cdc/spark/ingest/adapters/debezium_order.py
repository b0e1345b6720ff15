"""Find the position of a Debezium event in its database's log, as one text that sorts in event order.

| connector | order |
|---|---|
| postgresql | last commit before the transaction, snapshot before changes, position of the change |
| mysql, mariadb | number of the binlog file, position, snapshot before changes, row in the event |
| sqlserver | commit, change (log sequence numbers), number of the event in it |
| oracle | commit's system change number, the change's own, its place in the redo log |

The database's position of a change alone (PostgreSQL's ``lsn``, Oracle's ``scn``) gives a wrong order if
transactions overlap a snapshot: the snapshot's row would win over a change that was written earlier but
committed after the snapshot. So the order of commits comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delta_cdc.spark.ingest.adapters import parsing, values

if TYPE_CHECKING:
    from collections.abc import Callable

#: The members of ``source`` that order events or identify their table.
SOURCE_FIELDS = (
    "connector", "db", "schema", "table", "collection", "snapshot", "ts_ms", "ts_us", "ts_ns", "sequence",
    "lsn", "txId", "xmin", "file", "pos", "row", "gtid", "server_id", "thread", "scn", "commit_scn", "rs_id",
    "ssn", "lcr_position", "redo_thread", "change_lsn", "commit_lsn", "event_serial_no", "ord", "vgtid",
)  # fmt: skip
#: ``_WIDE`` is the number of digits of 64 bits without sign.
_WIDE, _NARROW = 20, 10
_SERVER_LSN = r"^[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}\z"
_REDO = r"^\s*(?:0x)?([0-9a-f]{6,10})\.([0-9a-f]{8})\.([0-9a-f]{4})\s*\z"
_PREFIX = f"{parsing.ROW}_event_"


def member(name: str) -> str:
    """Return the name of the column with a member of the envelope, as text."""
    return f"{_PREFIX}{name}"


def source_name(name: str) -> str:
    """Return the name of the column with a member of ``source``, as text."""
    return f"{_PREFIX}source_{name}"


def source(name: str) -> Column:
    return F.col(source_name(name))


def with_source(frame: DataFrame, text: Column) -> DataFrame:
    """Add a column for each member of the object ``source``."""
    members_of = f"{_PREFIX}members"
    frame = frame.withColumn(members_of, parsing.json_object(text, SOURCE_FIELDS))
    members = {source_name(name): F.col(members_of).getField(name) for name in SOURCE_FIELDS}
    return frame.withColumns(members).drop(members_of)


def is_table(name: str) -> Column:
    """Return whether an event belongs to a table.

    :param name: the table, optionally with its schema or database: ``schema.table``
    """
    *qualifiers, table = name.lower().split(".")
    is_same_name = F.lower(F.coalesce(source("table"), source("collection"))).eqNullSafe(table)
    if not qualifiers:
        return is_same_name
    is_same_schema = F.lower(F.coalesce(source("schema"), source("db"))).eqNullSafe(qualifiers[-1])
    return is_same_name & is_same_schema


def _is_read(op: Column) -> Column:
    """Return whether an event is a row of a snapshot. Rows of incremental snapshots count as changes."""
    return (op == "r") & ~F.lower(source("snapshot")).eqNullSafe("incremental")


def _rank(op: Column) -> Column:
    return F.when(_is_read(op), "0").otherwise("1")


def _postgresql(op: Column, in_order: bool) -> Column:
    # The sequence has two parts: the last commit before the transaction, or null; the position of the change.
    positions = values.texts(source("sequence"))
    commit, change = F.get(positions, F.lit(0)), F.get(positions, F.lit(1))
    # The commit is null until the first commit after a snapshot. Also then, the snapshot's rows sort lower.
    before_first = F.when(_is_read(op), change).otherwise(F.lit("0")) if in_order else F.lit("0")
    committed = F.when(F.size(positions) == 2, F.coalesce(commit, before_first))
    return parsing.joined([values.digits(committed, _WIDE), _rank(op), values.digits(change, _WIDE)])


def _mysql(op: Column, in_order: bool) -> Column:
    number = F.regexp_extract(source("file"), r"\.(\d+)\z", 1)
    row = F.coalesce(source("row"), F.lit("0"))
    parts = [values.digits(number, _NARROW), values.digits(source("pos"), _WIDE), _rank(op)]
    return parsing.joined([*parts, values.digits(row, _NARROW)])


def _sqlserver(op: Column, in_order: bool) -> Column:
    def lsn(name: str) -> Column:
        text = F.lower(source(name))
        return F.when(text.rlike(_SERVER_LSN), text)

    zero = F.when(_is_read(op), "00000000:00000000:0000")
    serial = F.coalesce(source("event_serial_no"), F.when(_is_read(op), "0"))
    change = F.coalesce(lsn("change_lsn"), zero)
    return parsing.joined([lsn("commit_lsn"), change, values.digits(serial, _NARROW)])


def _oracle(op: Column, in_order: bool) -> Column:
    commit = F.coalesce(source("commit_scn"), F.when(_is_read(op), source("scn")))
    redo = F.lower(source("rs_id"))
    groups = [F.regexp_extract(redo, _REDO, group) for group in (1, 2, 3)]
    # Without it, changes of one key with the same change number are conflicting events, which apply detects.
    has_redo = redo.isNotNull() & redo.rlike(_REDO)
    place = F.concat(F.lpad(groups[0], 10, "0"), F.lit("."), groups[1], F.lit("."), groups[2])
    no_redo = "0000000000.00000000.0000"
    number = F.coalesce(values.digits(source("ssn"), _NARROW), F.lit("0" * _NARROW))
    return parsing.joined(
        [
            values.digits(commit, _WIDE),
            _rank(op),
            values.digits(source("scn"), _WIDE),
            F.when(has_redo, place).otherwise(no_redo),
            number,
        ]
    )


PLACES: dict[str, tuple[Callable[[Column, bool], Column], str]] = {
    "postgresql": (_postgresql, "source.sequence"),
    "mysql": (_mysql, "source.file and source.pos"),
    "mariadb": (_mysql, "source.file and source.pos"),
    "sqlserver": (_sqlserver, "source.commit_lsn, change_lsn and event_serial_no"),
    "oracle": (_oracle, "source.commit_scn and source.scn"),
}


def place(connector: str | None, op: Column, in_order: bool = False) -> tuple[Column, Column]:
    """Return the position of an event, and the error for an event without position.

    :param connector: the connector of all events; None: each event names its connector
    :param in_order: for a connector that does not know which commits precede a snapshot: order the snapshot's
        rows by the position of the snapshot, not below every change
    """
    if connector is not None:
        make, needed = PLACES[connector]
        return make(op, in_order), F.lit(f"no value for {needed}")
    connector_name = F.lower(source("connector"))
    position, lacking = F.lit(None).cast("string"), F.lit(None).cast("string")
    for name, (make, needed) in PLACES.items():
        position = F.when(connector_name == name, make(op, in_order)).otherwise(position)
        lacking = F.when(connector_name == name, f"no value for {needed}").otherwise(lacking)
    shown_name = F.coalesce(F.substring(connector_name, 1, 40), F.lit(""))
    unknown = F.concat(
        F.lit("no order is known for the connector '"),
        shown_name,
        F.lit("': give adapter_options sequence_by"),
    )
    return position, F.coalesce(lacking, unknown)
