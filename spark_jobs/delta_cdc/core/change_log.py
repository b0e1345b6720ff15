"""Column names of an ingest's data: its records, and the events that the change log stores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.adapters import DELETE, TRUNCATE
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.properties import CHANGE_LOG

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from delta_cdc.core.options import IngestOptions, SourceKind

# -- records --------------------------------------------------------------------------------------
#: string: the raw record, a line or a message's value; NULL for a tombstone, and for an unreadable file.
RAW = "_raw"
#: timestamp: when the message was written to its topic, or when the file was last modified.
PUBLISHED = "_published"

# -- both ---------------------------------------------------------------------------------------
#: struct (:data:`POSITION_DDL`): where the record came from; passed on unchanged.
POSITION = "_position"
#: ``row`` counts from 0 in a file; NULL unless the adapter requests it (its ``needs_rows``).
POSITION_DDL = "struct<file: string, row: bigint, topic: string, partition: int, offset: bigint>"
#: Key of the configuration in a seal: the first name of a pipeline that got another one. The positions of a
#: log's events keep it, because ``last_by`` compares them.
ORIGIN = "origin"

# -- events: the output of an adapter; RAW and POSITION are passed on ----------------------------
#: string: one of :data:`delta_cdc.core.adapters.KINDS_OF_EVENTS`; ``ignore`` is counted, not stored.
OP = "_op"
#: the order of a key's events: any type with an order; text parts have a fixed width, so that they sort
#: correctly as text. Where several events share a source position, the last part is the event's index.
SEQUENCE = "_sequence"
#: array of strings: the columns that the event carries; NULL: all columns. Missing is not null.
COLUMNS = "_columns"
#: timestamp: when the source committed the change; for display only, never for ordering. NULL if unknown.
SOURCE_TIMESTAMP = "_source_timestamp"
#: Columns of the change log after the events' own columns, in this order.
LOG_COLUMNS = {
    OP: "string",
    SEQUENCE: None,
    COLUMNS: "array<string>",
    SOURCE_TIMESTAMP: "timestamp",
    POSITION: POSITION_DDL,
}


_PROPERTY = "delta_cdc.log."
#: The table properties in which a log gives arguments, with their values, to an apply that reads it.
DESCRIPTION = {
    f"{_PROPERTY}except_column_list": ",".join(LOG_COLUMNS),
    f"{_PROPERTY}sequence_by": SEQUENCE,
    f"{_PROPERTY}apply_as_deletes": f"{OP} = '{DELETE}'",
    f"{_PROPERTY}apply_as_truncates": f"{OP} = '{TRUNCATE}'",
    f"{_PROPERTY}columns_to_update": COLUMNS,
}


#: Those of a log that only tables write: their events carry all columns.
OF_TABLES = {name: value for name, value in DESCRIPTION.items() if value != COLUMNS}


def description(*, insert_only: bool) -> dict[str, str]:
    """Return the properties of a log; rows of an ``insert_only`` ingest have neither key nor order."""
    return dict(list(DESCRIPTION.items())[:1]) if insert_only else DESCRIPTION


def events_of_tables(options: ApplyOptions) -> ApplyOptions:
    """Return the options of an apply that appends to a change log, with the properties of such a log."""
    properties = {CHANGE_LOG: "true", **OF_TABLES, **options.target_properties}
    return replace(options, target_properties=properties)


def log_properties(options: IngestOptions) -> dict[str, str]:
    """Return the table properties of the log of an ingest, without those that depend on its columns."""
    return {CHANGE_LOG: "true", **description(insert_only=options.insert_only), **options.log_properties}


def collectors(tables: Iterable[Mapping[str, Any]], pipelines: Collection[str]) -> set[str]:
    """Return the names of the pipelines that collect the changes that some pipelines apply.

    :param tables: arguments of all pipelines
    :param pipelines: names of those that apply
    """
    logs = [table.get("source") for table in tables if table["pipeline"] in pipelines]
    return {
        table["pipeline"]
        for table in tables
        if table.get("target_kind") == "change_log" and table["target"] in logs
    }


def completed(options: ApplyOptions, properties: Mapping[str, str]) -> ApplyOptions:
    """Return the options of an apply; take options that the user omits from the source's own description.

    An ``insert_only`` apply of a log with keys copies that log, so it takes no option from the description.

    :param properties: the source's table properties, with or without :func:`description`
    """
    described = {name.removeprefix(_PROPERTY): properties[name] for name in DESCRIPTION if name in properties}
    kind: SourceKind = "change_log" if "sequence_by" in described else "change_feed"
    if options.insert_only != (kind == "change_feed") or options.source_kind not in (None, kind):
        return replace(options, source_kind=options.source_kind or "change_feed")
    if options.column_list is not None or (options.select and "*" not in options.select):
        described.pop("except_column_list", None)
    if options.is_partial:
        described.pop("columns_to_update", None)
    values: dict[str, Any] = {
        name: tuple(value.split(",")) if name == "except_column_list" else value
        for name, value in described.items()
        if getattr(options, name) == getattr(ApplyOptions, name)
    }
    return replace(options, source_kind=kind, **values)
