"""``delta-cdc decode``: show what an ingest would make of a file, before anything is written."""

from __future__ import annotations

import base64
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.common import json_object
from delta_cdc.core import left_out
from delta_cdc.core.adapters import IGNORE
from delta_cdc.core.errors import ColumnNotFound, InvalidConfiguration, SourceUnreadable
from delta_cdc.core.spec import SourceFile
from delta_cdc.core.text_table import clipped, grid, plural
from delta_cdc.delta_log.table import run_sync
from delta_cdc.ingest import adapters, ddl, formats, local
from delta_cdc.ingest.adapters.guess import likely_adapter
from delta_cdc.ingest.batch import COLUMNS, OP, POSITION, RAW, REASON, SEQUENCE
from delta_cdc.ingest.reading import Reading
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.records.compression import FIRST_BYTES, flaw
from delta_cdc.ingest.sources import FileDamaged
from delta_cdc.ingest.values import json_text
from delta_cdc.planning.parquet_footers import footers

if TYPE_CHECKING:
    import argparse

    from delta_cdc.ingest.types import Type

#: Events and samples of a reason that are shown.
_EVENTS, _SAMPLES, _WIDEST = 10, 3, 100
#: A reason also says what to do.
_LONGEST_REASON = 300


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    decode = commands.add_parser(
        "decode",
        help="show what an ingest would make of a file (starts no Spark, writes nothing)",
        description="The command decodes a file of this machine with the options of ingest_changes. It "
        "prints the columns that the change log would get, the first events, and the records that are no "
        "events, with their reasons. Exit code 1: some records are no events.",
    )
    decode.add_argument(
        "file", metavar="FILE", type=Path, help="the file; .gz, .bz2 and .zst are decompressed"
    )
    decode.add_argument(
        "--format", default="json", choices=("json", "csv", "parquet", "avro"), help="default: json"
    )
    decode.add_argument("--adapter", default="plain", metavar="NAME", help="default: plain")
    decode.add_argument("--adapter-options", type=json_object, default={}, metavar="JSON",
                        help="options of the adapter")  # fmt: skip
    decode.add_argument("--format-options", type=json_object, default={}, metavar="JSON",
                        help="options of the format")  # fmt: skip
    decode.add_argument("--schema", metavar="DDL",
                        help="the events' columns as Spark SQL DDL, without other fields")  # fmt: skip
    decode.add_argument("--key", "--keys", dest="keys", action="append", default=[], metavar="COLUMN",
                        help="column that identifies a row, repeatable")  # fmt: skip
    decode.add_argument("--insert-only", action="store_true", help="the records have no key and no order")
    decode.add_argument("--rows", type=int, default=_EVENTS, metavar="N", help="events to show; default: 10")
    decode.add_argument("--json", action="store_true", help="print all of it as JSON")
    decode.set_defaults(run=_decode)


def _decode(arguments: argparse.Namespace) -> int:
    reading, rows, dropped = _read(arguments)
    rejects = [row for row in rows if row[REASON] is not None]
    events = [row for row in rows if row[REASON] is None and row[OP] != IGNORE]
    ignored = len(rows) - len(events) - len(rejects)
    columns = {name: str(kind) for name, kind in reading.columns}
    if arguments.json:
        found = {"columns": columns, "events": events, "ignored": ignored, "rejects": rejects}
        print(json.dumps({**found, "dropped": dropped}, default=_text, indent=2))
        return 1 if rejects else 0
    print(
        f"{plural(len(events), 'event')}, {ignored} ignored, {plural(len(rejects), 'record')} for quarantine"
    )
    if columns:
        print("\nColumns of the change log:\n" + grid([{"column": n, "type": t} for n, t in columns.items()]))
    if dropped:
        print(f"\n{left_out.sentence(dropped)} Remedy: {left_out.REMEDY}")
    if events:
        print(f"\nEvents{'' if len(events) <= arguments.rows else f' (the first {arguments.rows})'}:")
        print(grid([_shown(row, columns) for row in events[: arguments.rows]]))
    _show_rejects(rejects, reading)
    return 1 if rejects else 0


def _show_rejects(rejects: list[dict[str, Any]], reading: Reading) -> None:
    """Print samples of what is no event, by reason, and the adapter that it may be for."""
    for reason, count in Counter(row[REASON] for row in rejects).most_common():
        print(f"\n{plural(count, 'record')}: {clipped(reason, _LONGEST_REASON)}")
        for row in [row for row in rejects if row[REASON] == reason][:_SAMPLES]:
            print(f"  {_place(row)}{clipped(row[RAW] or '', _WIDEST)}")
    adapter = likely_adapter([row[RAW] for row in rejects[:_SAMPLES] if row[RAW] is not None])
    chosen = f"{reading.adapter} (adapter_options unwrapped)"
    is_chosen = adapter == (chosen if reading.adapter_options.get("unwrapped") else reading.adapter)
    if adapter is not None and not is_chosen:
        print(f"\nThe records look as if they were for --adapter {adapter}.")


def _read(arguments: argparse.Namespace) -> tuple[Reading, list[dict[str, Any]], tuple[str, ...]]:
    """Return how the file is read, the rows that it becomes, and the columns that ``--schema`` leaves out."""
    reading, declared = _reading(arguments)
    try:
        _refuse_container(arguments.file, arguments.format)
        try:
            reading = local.complete(reading, arguments.file, declared)
        except ColumnNotFound as error:
            # The records are probably those of another adapter.
            adapter = likely_adapter(local.first_lines(arguments.file))
            hint = f"use --adapter {adapter}" if adapter is not None else error.remedy
            raise ColumnNotFound(error.message, remedy=hint) from error
        rows = local.rows_of_file(reading, arguments.file)
        return reading, rows, local.dropped(reading, arguments.file, declared, rows) if declared else ()
    except FileDamaged as error:
        raise SourceUnreadable(f"{error}.", remedy="deliver the whole file again.") from error
    except (OSError, EOFError) as error:
        raise SourceUnreadable(
            f"{arguments.file} cannot be read: {getattr(error, 'strerror', None) or error}.",
            remedy="name a file of this machine, with the ending of its compression (.gz, .bz2 or .zst).",
        ) from error


def _reading(arguments: argparse.Namespace) -> tuple[Reading, Type | None]:
    """Return how the file is read, and the columns of ``--schema``."""
    declared = None
    if arguments.schema:
        parsed = ddl.parse_ddl(arguments.schema)
        if isinstance(parsed, Invalid):
            raise InvalidConfiguration(
                f"schema is no list of columns: {parsed.reason}.",
                remedy='write it as Spark does: "id INT, v STRING".',
                argument="schema",
            )
        declared = parsed
    formats.check(arguments.format, arguments.format_options, has_schema=declared is not None)
    keys = tuple(arguments.keys)
    reading = Reading(
        format=arguments.format,
        adapter=arguments.adapter,
        adapter_options=adapters.check(
            arguments.adapter,
            arguments.adapter_options,
            keys=keys,
            format=arguments.format,
            insert_only=arguments.insert_only,
        ),
        format_options=arguments.format_options,
        keys=keys,
        declared=declared is not None,
        names=tuple(name for name, _ in declared.fields) if declared is not None else (),
        insert_only=arguments.insert_only,
        is_whole=formats.is_whole(arguments.format, arguments.format_options),
        numbered=True,
    )
    return reading, declared


def _refuse_container(file: Path, format_: str) -> None:
    """Refuse a file that no ingest would read as what it is.

    :raises SourceUnreadable: says what the file is
    """
    with file.open("rb") as opened:
        found = flaw(file.name, opened.read(FIRST_BYTES), format_)
    if not found and format_ == "parquet":
        (looked,) = run_sync(footers([SourceFile(str(file.absolute()), file.stat().st_size, 0)]))
        found = looked.unreadable
    if found:
        what, _, remedy = found.partition("; ")
        raise SourceUnreadable(
            f"An ingest does not read {file}: {what}.", remedy=f"{remedy or 'deliver a correct file'}."
        )


def _shown(row: dict[str, Any], columns: dict[str, str]) -> dict[str, Any]:
    """Return an event for the table: a column that it does not carry has a dash."""
    carried = row[COLUMNS]
    values = {
        name: _cell(row[name], kind) if carried is None or name in carried else "-"
        for name, kind in columns.items()
    }
    return {"event": row[OP], "sequence": row[SEQUENCE], **values}


def _cell(value: Any, kind: str) -> Any:
    """Return a value for the table: nested ones as JSON, binary ones in base64."""
    if isinstance(value, list | dict):
        # Arrow gives the entries of a map as pairs.
        return json_text(dict(value) if kind.startswith("map<") else value)
    return _text(value) if isinstance(value, bytes) else value


def _text(value: Any) -> str:
    """Return a value that JSON does not have."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _place(row: dict[str, Any]) -> str:
    number = row[POSITION]["row"]
    return "" if number is None else f"row {number}: "
