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

import re
from typing import TYPE_CHECKING, Any

from delta_cdc.ingest.adapters.common import shown
from delta_cdc.ingest.ordering import digits, joined
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.records.json import value as json_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Place = Callable[[bool, Mapping[str, Any], bool], str | None]

#: The members of ``source`` that order events or identify their table.
SOURCE_FIELDS = (
    "connector", "db", "schema", "table", "collection", "snapshot", "ts_ms", "ts_us", "ts_ns", "sequence",
    "lsn", "txId", "xmin", "file", "pos", "row", "gtid", "server_id", "thread", "scn", "commit_scn", "rs_id",
    "ssn", "lcr_position", "redo_thread", "change_lsn", "commit_lsn", "event_serial_no", "ord", "vgtid",
)  # fmt: skip
#: ``_WIDE`` is the number of digits of 64 bits without sign.
_WIDE, _NARROW = 20, 10
_SERVER_LSN = re.compile(r"[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}")
_NO_SERVER_LSN = "00000000:00000000:0000"
_REDO = re.compile(r"\s*(?:0x)?([0-9a-f]{6,10})\.([0-9a-f]{8})\.([0-9a-f]{4})\s*")
_NO_REDO = "0000000000.00000000.0000"


def is_read(op: str, source: Mapping[str, Any]) -> bool:
    """Return whether an event is a row of a snapshot. Rows of incremental snapshots count as changes."""
    return op == "r" and shown(source.get("snapshot")).lower() != "incremental"


def is_table(source: Mapping[str, Any], name: str) -> bool:
    """Return whether an event belongs to a table.

    :param name: the table in lower case, optionally with its schema or database: ``schema.table``
    """
    *qualifiers, table = name.split(".")
    if shown(source.get("table") or source.get("collection")).lower() != table:
        return False
    return not qualifiers or shown(source.get("schema") or source.get("db")).lower() == qualifiers[-1]


def _digits(value: Any, width: int) -> str | None:
    return None if value is None else digits(shown(value), width)


def _postgresql(read: bool, source: Mapping[str, Any], in_order: bool) -> str | None:
    # The sequence has two parts: the last commit before the transaction, or null; the position of the change.
    positions = source.get("sequence")
    if isinstance(positions, str):
        positions = _sequence(positions)
    if not isinstance(positions, list) or len(positions) != 2:
        return None
    commit, change = positions
    if commit is None:
        # It is null until the first commit after a snapshot. Also then, the snapshot's rows sort lower.
        commit = change if read and in_order else "0"
    return joined((_digits(commit, _WIDE), "0" if read else "1", _digits(change, _WIDE)))


def _sequence(text: str) -> Any:
    """Return the list in PostgreSQL's ``sequence``: a JSON text."""
    parts = text.split('"')
    if len(parts) == 5 and parts[0] == "[" and parts[4] == "]" and parts[2] == "," and "\\" not in text:
        return [parts[1], parts[3]]
    found = json_value(text.encode("utf-8", "replace"))
    return None if isinstance(found, Invalid) else found


def _mysql(read: bool, source: Mapping[str, Any], in_order: bool) -> str | None:
    name, row = shown(source.get("file")), source.get("row")
    _, point, number = name.rpartition(".")
    return joined(
        (
            _digits(number, _NARROW) if point and number.isdigit() else None,
            _digits(source.get("pos"), _WIDE),
            "0" if read else "1",
            _digits("0" if row is None else row, _NARROW),
        )
    )


def _sqlserver(read: bool, source: Mapping[str, Any], in_order: bool) -> str | None:
    def lsn(name: str) -> str | None:
        text = shown(source.get(name)).lower()
        return text if _SERVER_LSN.fullmatch(text) else None

    serial = source.get("event_serial_no")
    if serial is None and read:
        serial = "0"
    change = lsn("change_lsn") or (_NO_SERVER_LSN if read else None)
    return joined((lsn("commit_lsn"), change, _digits(serial, _NARROW)))


def _oracle(read: bool, source: Mapping[str, Any], in_order: bool) -> str | None:
    commit = source.get("commit_scn")
    if commit is None and read:
        commit = source.get("scn")
    redo = _REDO.fullmatch(shown(source.get("rs_id")).lower())
    # Without it, changes of one key with the same change number are conflicting events, which apply detects.
    place = f"{redo[1].rjust(10, '0')}.{redo[2]}.{redo[3]}" if redo else _NO_REDO
    return joined(
        (
            _digits(commit, _WIDE),
            "0" if read else "1",
            _digits(source.get("scn"), _WIDE),
            place,
            _digits(source.get("ssn"), _NARROW) or "0" * _NARROW,
        )
    )


#: For each connector: its place, and what it needs for it.
PLACES: dict[str, tuple[Place, str]] = {
    "postgresql": (_postgresql, "source.sequence"),
    "mysql": (_mysql, "source.file and source.pos"),
    "mariadb": (_mysql, "source.file and source.pos"),
    "sqlserver": (_sqlserver, "source.commit_lsn, change_lsn and event_serial_no"),
    "oracle": (_oracle, "source.commit_scn and source.scn"),
}


def place(connector: Any, op: str, source: Mapping[str, Any], in_order: bool) -> str | Invalid:
    """Return the position of an event, or why it has none.

    :param connector: the connector of the event
    :param in_order: for a connector that does not know which commits precede a snapshot: order the snapshot's
        rows by the position of the snapshot, not below every change
    """
    name = shown(connector).lower()
    found = PLACES.get(name)
    if found is None:
        return Invalid(f"no order is known for the connector '{name[:40]}': give adapter_options sequence_by")
    make, needed = found
    return make(is_read(op, source), source, in_order) or Invalid(f"no value for {needed}")
