"""Find the position of a Debezium event in its database's log, as one text that sorts in event order.

| connector | order |
|---|---|
| postgresql | last commit before the transaction, snapshot before changes, position of the change |
| mysql, mariadb | number of the binlog file, position, snapshot before changes, row in the event |
| sqlserver | commit, change (log sequence numbers), number of the event in it |
| oracle | commit's system change number, the change's own, its place in the redo log |
| mongodb | second and place of the log's entry, snapshot before changes, place in the transaction |

The database's position of a change alone (PostgreSQL's ``lsn``, Oracle's ``scn``) gives a wrong order if
transactions overlap a snapshot: the snapshot's row would win over a change that was written earlier but
committed after the snapshot. So the order of commits comes first.

All changes of a transaction of MongoDB have one entry in the log. Their order in it is known only if the
connector provides the metadata of transactions (``provide.transaction.metadata``); else several changes of
one document in one transaction have the same position.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from delta_cdc.core.adapters import DELETE, IGNORE, TRUNCATE, UPSERT
from delta_cdc.ingest.adapters.members import path_of, shown
from delta_cdc.ingest.ddl import parse_ddl
from delta_cdc.ingest.ordering import digits, joined
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.records.json import value as json_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delta_cdc.ingest.types import Type

    Place = Callable[[bool, Mapping[str, Any], bool], str | None]

OPERATIONS = {"c": UPSERT, "r": UPSERT, "u": UPSERT, "d": DELETE, "t": TRUNCATE, "m": IGNORE}
NO_OPERATION = Invalid("no value for op: no change event")
#: The members of ``source`` that order events or identify their table.
SOURCE_FIELDS = (
    "connector", "db", "schema", "table", "collection", "snapshot", "ts_ms", "ts_us", "ts_ns", "sequence",
    "lsn", "txId", "xmin", "file", "pos", "row", "gtid", "server_id", "thread", "scn", "commit_scn", "rs_id",
    "ssn", "lcr_position", "redo_thread", "change_lsn", "commit_lsn", "event_serial_no", "ord", "vgtid",
)  # fmt: skip
#: ``_WIDE`` is the number of digits of 64 bits without sign.
_WIDE, _NARROW = 20, 10
#: The most characters of a connector's name.
_MOST_NAME = 100
_SERVER_LSN = re.compile(r"[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}")
_NO_SERVER_LSN = "00000000:00000000:0000"
_REDO = re.compile(r"\s*(?:0x)?([0-9a-f]{6,10})\.([0-9a-f]{8})\.([0-9a-f]{4})\s*")
_NO_REDO = "0000000000.00000000.0000"
#: What ``source.snapshot`` says of a row of a snapshot.
_SNAPSHOT = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last")


def is_read(op: str, source: Mapping[str, Any]) -> bool:
    """Return whether an event is a row of a snapshot. Rows of incremental snapshots count as changes.

    :param op: the operation; "" if an unwrapped event does not have it, so that ``snapshot`` says it
    """
    snapshot = shown(source.get("snapshot")).lower()
    return snapshot != "incremental" if op == "r" else not op and snapshot in _SNAPSHOT


def table_of(source: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the table of an event, and its schema or database."""
    return source.get("table") or source.get("collection"), source.get("schema") or source.get("db")


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
    return joined((digits(commit, _WIDE), "0" if read else "1", digits(change, _WIDE)))


def _sequence(text: str) -> Any:
    """Return the list in PostgreSQL's ``sequence``: a JSON text."""
    parts = text.split('"')
    if len(parts) == 5 and parts[0] == "[" and parts[4] == "]" and parts[2] == "," and "\\" not in text:
        return [parts[1], parts[3]]
    found = json_value(text.encode("utf-8", "replace"))
    return None if isinstance(found, Invalid) else found


def _mysql(read: bool, source: Mapping[str, Any], in_order: bool) -> str | None:
    # The place in the transaction (``total_order``) is no help where events share a position: after a restart
    # in the transaction, connectors before July 2026 count from 1 again (debezium/dbz#633).
    name, row = source.get("file"), source.get("row")
    _, point, number = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    return joined(
        (
            digits(number, _NARROW) if point and number.isdigit() else None,
            digits(source.get("pos"), _WIDE),
            "0" if read else "1",
            digits("0" if row is None else row, _NARROW),
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
    return joined((lsn("commit_lsn"), change, digits(serial, _NARROW)))


def _oracle(read: bool, source: Mapping[str, Any], in_order: bool) -> str | None:
    commit = source.get("commit_scn")
    if commit is None and read:
        commit = source.get("scn")
    redo = _REDO.fullmatch(shown(source.get("rs_id")).lower())
    # Without it, changes of one key with the same change number are conflicting events, which apply detects.
    place = f"{redo[1].rjust(10, '0')}.{redo[2]}.{redo[3]}" if redo else _NO_REDO
    return joined(
        (
            digits(commit, _WIDE),
            "0" if read else "1",
            digits(source.get("scn"), _WIDE),
            place,
            digits(source.get("ssn"), _NARROW) or "0" * _NARROW,
        )
    )


def _mongodb(read: bool, source: Mapping[str, Any], in_order: bool) -> str | None:
    # The position of a snapshot's rows is the log's end when it began, so that each later change wins.
    millis = source.get("ts_ms")
    if isinstance(millis, str) and len(millis) <= _WIDE and millis.isdigit() and millis.isascii():
        millis = int(millis)
    seconds = millis // 1000 if isinstance(millis, int) and not isinstance(millis, bool) else None
    return joined((digits(seconds, _NARROW), digits(source.get("ord"), _NARROW), "0" if read else "1"))


_OF_REPLICATOR = "OpenLogReplicator sends no commit_scn: give adapter_options sequence_by"
#: For each connector: its place, and what it needs for it.
PLACES: dict[str, tuple[Place, str]] = {
    "postgresql": (_postgresql, "source.sequence"),
    "mysql": (_mysql, "source.file and source.pos"),
    "mariadb": (_mysql, "source.file and source.pos"),
    "sqlserver": (_sqlserver, "source.commit_lsn, change_lsn and event_serial_no"),
    "oracle": (_oracle, f"source.commit_scn and source.scn ({_OF_REPLICATOR})"),
    "mongodb": (_mongodb, "source.ts_ms and source.ord"),
}


def place(
    connector: Any, op: str, source: Mapping[str, Any], in_order: bool, transaction: Any = None
) -> str | Invalid:
    """Return the position of an event, or why it has none.

    :param connector: the connector of the event
    :param in_order: for a connector that does not know which commits precede a snapshot: order the snapshot's
        rows by the position of the snapshot, not below every change
    :param transaction: the member ``transaction`` of the event
    """
    known = PLACES.get(connector) if type(connector) is str else None
    if known is None:
        name = shown(connector)
        name = name.lower() if len(name) <= _MOST_NAME else name
        known = PLACES.get(name)
        if known is None:
            return Invalid(
                f"no order is known for the connector '{name[:40]}': give adapter_options sequence_by"
            )
    make, needed = known
    found = make(is_read(op, source), source, in_order)
    if make is _mongodb and found is not None:
        found = joined((found, _in_transaction(transaction)))
    return Invalid(f"no value for {needed}") if found is None else found


def _in_transaction(transaction: Any) -> str | None:
    """Return the place of a change in its transaction; zeros if nothing says it."""
    number = transaction.get("total_order") if isinstance(transaction, dict) else None
    return "0" * _NARROW if number is None else digits(number, _NARROW)


# -- the option sequence_by -----------------------------------------------------------------------
class Part(NamedTuple):
    """A part of ``sequence_by``.

    :param path: the names of a member
    :param kind: the type of a cast; None without a cast
    """

    path: tuple[str, ...]
    kind: Type | None = None


_WHOLE = "tinyint|smallint|int|integer|bigint|long|decimal|dec|numeric"
_CAST = re.compile(
    rf"\s*+(?:try_)?cast\s*+\(\s*+(?P<path>[^\s()]++)\s++as\s++(?P<kind>(?:{_WHOLE})\b(?:\s*+\(\s*+[0-9]{{1,2}}\s*+\))?)"
    rf"\s*+\)\s*+|\s*+(?P<call>tinyint|smallint|int|bigint)\s*+\(\s*+(?P<of>[^\s()]++)\s*+\)\s*+",
    re.IGNORECASE,
)


def part_of(text: str) -> Part | None:
    """Return what a part of ``sequence_by`` names: a member, or its cast to a whole number.

    :return: None for other SQL
    """
    match, path, kind = _CAST.fullmatch(text), text, None
    if match is not None:
        path = match["path"] or match["of"]
        columns = parse_ddl(f"v {match['kind'] or match['call']}")
        if isinstance(columns, Invalid):
            return None
        kind = columns.fields[0][1]
    names = path_of(path)
    return None if names is None else Part(names, kind)
