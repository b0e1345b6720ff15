"""Checks the arguments of an ingest (:class:`delta_cdc.core.requests.IngestRequest`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import adapters, rules
from delta_cdc.core.errors import InvalidConfiguration, invalid
from delta_cdc.core.quarantine import quarantine_of
from delta_cdc.core.topics import parse
from delta_cdc.core.uris import canonical_uri
from delta_cdc.ingest import formats
from delta_cdc.ingest.ddl import parse_ddl
from delta_cdc.ingest.types import Type, inner_names
from delta_cdc.planning.file_listing import check_glob, hides, read_source
from delta_cdc.planning.taken_files import INGESTED, beside

if TYPE_CHECKING:
    from delta_cdc.core.options import IngestOptions
    from delta_cdc.core.requests import IngestRequest


def checked(request: IngestRequest) -> IngestOptions:
    """Refuse arguments that cannot be used.

    The job checks the options of a custom adapter, because it may not be installed on this machine.

    :return: the options, with the adapter's options as the adapter parses them
    :raises InvalidConfiguration: names the arguments
    """
    rules.check_ingest(request)
    if request.is_kafka:
        parse(request.source_uri)
    else:
        check_glob(request.glob)
        _refuse_overlap(request)
    options = request.options
    formats.check(options.format, options.format_options, has_schema=bool(options.schema))
    _refuse_inner_variant(options.schema)
    return replace(options, adapter_options=_adapted(options))


def _refuse_overlap(request: IngestRequest) -> None:
    """Refuse a source whose files may be the log's own."""
    log = canonical_uri(request.log)
    sides = {"ingested": beside(request.log, INGESTED), "quarantine": quarantine_of(request.log)}
    rules.refuse_same(source=request.source, log=request.log, **sides)
    source = read_source(request.source)
    tables = [log, *map(canonical_uri, sides.values())]
    within = [_below(f"{table}/part-0.parquet", source) for table in tables]
    around = [table for table in tables if _below(f"{source}/", table) is not None]
    if around or any(below is not None and not hides(below) for below in within):
        raise invalid(
            f"the folder of the source {request.source} or of the change log {request.log} contains the "
            "other",
            "use separate folders, neither of which contains the other.",
            "source",
        )


def _refuse_inner_variant(schema: str | None) -> None:
    """Refuse a VARIANT inside of a struct, an array or a map: its values come from Python as texts."""
    columns = parse_ddl(schema) if schema else None
    # The job reports a text that is no list of columns.
    for name, kind in columns.fields if isinstance(columns, Type) else ():
        if kind.is_nested and "variant" in inner_names(kind):
            raise invalid(
                f"schema gives the column {name} the type {str(kind)[:200]}, which has a VARIANT inside",
                f"make the whole column {name} a VARIANT, or the inner one a STRING.",
                "schema",
            )


def _below(uri: str, root: str) -> str | None:
    """Return a location relative to a folder; None if it is outside."""
    home = f"{root.rstrip('/')}/"
    return uri[len(home) :] if uri.startswith(home) else None


def _adapted(options: IngestOptions) -> dict[str, Any]:
    if "." in options.adapter or ":" in options.adapter:
        return options.adapter_options
    try:
        return adapters.check(
            options.adapter,
            options.adapter_options,
            keys=options.keys,
            format=options.format,
            insert_only=options.insert_only,
        )
    except InvalidConfiguration as error:
        error.argument = error.argument or "adapter_options"
        raise
