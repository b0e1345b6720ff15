"""Bring the raw records of a batch to the function that makes events of them (:mod:`delta_cdc.ingest`).

Spark reads bytes, and only bytes: lines, messages, or whole files. Parquet stays in columns. The function
runs in Python on the executors, on Arrow batches.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import sql_tokens
from delta_cdc.core.adapters import OFFSET, ROW
from delta_cdc.core.change_log import POSITION, PUBLISHED, RAW, SEQUENCE
from delta_cdc.core.column_changes import FOLLOWED
from delta_cdc.core.reader_options import option
from delta_cdc.ingest import adapters, formats, sources
from delta_cdc.ingest.batch import UNKNOWN, Found, found_of, ids_of, output_type, read_of, rows_of
from delta_cdc.ingest.layout import Layout, dropped, layout
from delta_cdc.ingest.reading import Reading
from delta_cdc.ingest.records.avro import MOST_SCHEMAS, SchemaId
from delta_cdc.ingest.types import STRING, Type
from delta_cdc.spark.ingest import columnar, expressions, lines, readable_files
from delta_cdc.spark.ingest.widening import may_widen, of_spark, struct_to_spark, to_spark
from delta_cdc.spark.sessions import set_or_restore, set_where_allowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.options import IngestOptions
    from delta_cdc.core.spec import IngestSpec, SourceFile
    from delta_cdc.ingest.record import Adapter, Invalid
    from delta_cdc.ingest.records.registry import Registry

_TASKS_OF_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_HEADERS = "array<struct<key: string, value: binary>>"
_MOST_BYTES, _FEWEST_PARTS = "spark.sql.files.maxPartitionBytes", "spark.sql.files.minPartitionNum"
#: What Spark counts for each file besides its bytes: up to this size, each file has a task of its own.
_OPEN_COST = 4 << 20


class Decoding:
    """The records of a batch: raw frames, and how each is read."""

    def __init__(
        self,
        options: IngestOptions,
        *,
        declared: T.StructType | None,
        known: T.StructType | None,
        log_sequence: T.DataType | None,
    ) -> None:
        """Keep what the batch is read by.

        :param declared: the option ``schema``
        :param known: the columns of the log; None before its first batch
        :param log_sequence: the type of its sequence
        :raises InvalidConfiguration: an option of format or adapter is wrong
        """
        formats.check(options.format, options.format_options, has_schema=declared is not None)
        self._options = options
        self._declared = None if declared is None else of_spark(declared)
        self._known = None if known is None else of_spark(known)
        self._reading = Reading(
            format=options.format,
            adapter=options.adapter,
            adapter_options=checked(options),
            format_options=options.format_options,
            keys=options.keys,
            declared=declared is not None,
            widens=declared is None and known is not None and options.schema_evolution in FOLLOWED,
            names=tuple(declared.names) if declared is not None else (),
            insert_only=options.insert_only,
            log_sequence=None if log_sequence is None else of_spark(log_sequence),
        )
        self.adapter: Adapter = self._reading.made_adapter()
        self._frames: list[tuple[DataFrame, Reading]] = []
        self._given: dict[str, Type] = {}
        self._found = Found()

    # -- what is read -----------------------------------------------------------------------------
    def add_messages(self, messages: DataFrame, registry: Registry | None = None) -> None:
        """Add messages of topics (:func:`delta_cdc.spark.ingest.kafka.read`).

        :param registry: has the schemas of messages in Avro
        """
        schemas = {} if registry is None else _schemas(messages, registry)
        self._frames.append((messages, replace(self._reading, is_messages=True, schemas=schemas)))

    def add_again(self, records: DataFrame, registry: Registry | None = None) -> None:
        """Add records of the quarantine: RAW, PUBLISHED and POSITION.

        :param registry: has the schemas of messages in Avro
        """
        schemas = {}
        if registry is not None:
            in_base64 = F.col(RAW).startswith(sources.BASE64)
            value = F.try_to_binary(F.substring(RAW, len(sources.BASE64) + 1, 12), F.lit("base64"))
            schemas = _schemas(records.where(in_base64).select(value.alias(sources.VALUE)), registry)
        place = F.col(POSITION)
        raw = records.select(
            F.col(RAW).alias(sources.VALUE),
            *[
                place.getField(name).alias(column)
                for name, column in (
                    ("file", sources.FILE),
                    ("row", sources.ROW),
                    ("topic", sources.TOPIC),
                    ("partition", sources.PARTITION),
                    ("offset", sources.OFFSET),
                )
            ],
            F.unix_micros(PUBLISHED).alias(sources.PUBLISHED),
        )
        self._frames.append((raw, replace(self._reading, is_again=True, schemas=schemas)))

    def add_files(
        self, session: SparkSession, files: Sequence[SourceFile], *, may_have_grown: bool = False
    ) -> None:
        """Add the records of files.

        :param session: a private session, because this changes its confs
        :param may_have_grown: files may be longer than their sizes, which an earlier run recorded
        """
        set_where_allowed(session, {_TASKS_OF_LISTING: "16"})
        options, format_options = self._options, self._options.format_options
        if options.format == "parquet":
            parts, widest = columnar.read(session, files, format_options)
            self._frames += [(rows, self._reading) for _, rows in parts]
            self._given = {field.name: of_spark(field.dataType) for field in widest.fields}
            return
        numbered = self.adapter.needs_rows
        if options.format == "csv" or numbered:
            # One task reads a file from its first byte: its header and its row numbers are known there.
            _split_at(session, max(file.size for file in files))
        raw = raw_files(session, files, options)
        reading = replace(
            self._reading,
            numbered=numbered,
            sizes={}
            if options.format != "csv" or may_have_grown
            else {file.uri: file.size for file in files},
            is_whole=formats.is_whole(options.format, options.format_options),
        )
        self._frames.append((raw, reading))

    # -- columns ----------------------------------------------------------------------------------
    def look(self) -> None:
        """Find the columns of a first batch, in one pass; needed only if nothing else gives them."""
        if self._declared is None and self._known is None and not self._given:
            looks = [
                frame.mapInArrow(found_of(reading), f"{UNKNOWN} string") for frame, reading in self._frames
            ]
            self.learn([row[0] for row in reduce(DataFrame.union, looks).collect()])

    def learn(self, found: Sequence[str]) -> None:
        """Take what records showed of columns that were not known."""
        for text in found:
            self._found.merge(Found.of_text(text))

    def dropped(self) -> tuple[str, ...]:
        """Return the members of the records, as far as they are read, that ``schema`` leaves out."""
        if self._declared is None:
            return ()
        seen = {*self._found.dropped, *self._given}
        return dropped(self.adapter, self._declared, seen, self._reading.adapter_options)

    def layout(self) -> Layout:
        """Return the columns that are known by now."""
        return layout(
            self.adapter,
            self._declared,
            self._known,
            self._given,
            self._found,
            keys=self._options.keys,
            excluded=self._reading.adapter_options.get("except_column_list") or (),
            widens=self._may_widen,
        )

    def _may_widen(self, name: str, one: Type, other: Type) -> bool:
        return self._reading.widens and may_widen(self._options, name, to_spark(one), to_spark(other))

    # -- rows -------------------------------------------------------------------------------------
    def rows(self) -> tuple[DataFrame, T.StructType, T.DataType]:
        """Return the rows of the batch, the columns of their payload, and the type of their sequence.

        :raises InvalidExpression: the adapter's options order events by something without an order
        """
        columns, others = self.layout()
        texts = (*self.adapter.expressions, *filter(None, [self.adapter.timestamp_expression]))
        if texts:
            others = _named(texts, columns, (*others, *self.adapter.member_types.items()))
        sequence = self.adapter.sequence(dict((*columns, *others)), self._reading.log_sequence).type
        parts = []
        for frame, reading in self._frames:
            complete = replace(reading.with_columns(columns, others), gives_others=bool(texts and others))
            schema = struct_to_spark(output_type(complete, sequence).fields)
            parts.append(frame.mapInArrow(rows_of(complete), schema))
        rows = reduce(DataFrame.unionByName, parts)
        if texts:
            declared = {name.lower() for name, _ in self._declared.fields} if self._declared else set()
            log_sequence = self._reading.log_sequence
            log_type = None if log_sequence is None else to_spark(log_sequence)
            rows = expressions.evaluated(rows, self.adapter, declared, log_type)
        return rows, struct_to_spark(columns), rows.schema[SEQUENCE].dataType


def _schemas(messages: DataFrame, registry: Registry) -> dict[SchemaId, str | Invalid | None]:
    """Return the schemas that messages name. The driver alone knows the registry, and its secrets."""
    start = {name: F.substring(name, 1, 9) for name in (sources.VALUE, sources.KEY)}
    if sources.KEY not in messages.columns:
        start[sources.KEY] = F.lit(None).cast("binary")
    headers = F.col(sources.HEADERS) if sources.HEADERS in messages.columns else F.lit(None).cast(_HEADERS)
    beginnings = messages.select(
        *[column.alias(name) for name, column in start.items()], headers.alias(sources.HEADERS)
    )
    found = beginnings.mapInArrow(ids_of, "number bigint, is_content boolean").groupBy("number", "is_content")
    # Noise may look like ids. The schemas of a batch are few, and each of its records names one of them.
    rows = found.count().orderBy(F.desc("count")).limit(MOST_SCHEMAS).collect()
    ids = [SchemaId(row["number"] % 2**64, row["is_content"]) for row in rows]
    return {id_: registry.schema(id_.number, is_content=id_.is_content) for id_ in ids}


def _named(
    texts: Sequence[str], columns: Sequence[tuple[str, Type]], others: Sequence[tuple[str, Type]]
) -> tuple[tuple[str, Type], ...]:
    """Return the members that expressions name: with their types, or as text."""
    types = {name.lower(): (name, kind) for name, kind in (*others, *columns)}
    found = [
        sql_tokens.bare(sql_tokens.names(token.text)[0])
        for text in texts
        for token in sql_tokens.tokens(text)
        if token.kind == "name"
    ]
    by_lower = {name.lower(): types.get(name.lower(), (name, STRING)) for name in found}
    # Keywords and functions have such names, too: they become members that no record has.
    return tuple(field for name, field in by_lower.items() if name not in (ROW, OFFSET))


def _split_at(session: SparkSession, largest: int) -> None:
    """Have Spark read files up to a size without splitting them, each in a task of its own.

    All that the session reads is split like this, also the logs of tables: so not below the open cost.
    """
    set_or_restore(session, _MOST_BYTES, str(max(largest, _OPEN_COST)))
    set_or_restore(session, _FEWEST_PARTS, "1")


def restore_splits(session: SparkSession) -> None:
    """Have a session split files as its user wants, once the records of a batch are read."""
    set_or_restore(session, _MOST_BYTES, None)
    set_or_restore(session, _FEWEST_PARTS, None)


def raw_files(session: SparkSession, files: Sequence[SourceFile], options: IngestOptions) -> DataFrame:
    """Return the bytes of text files, with the columns of :mod:`delta_cdc.ingest.sources`."""
    line_sep = option(options.format_options, "lineSep")
    if options.format == "csv":
        # A CR before it may belong to a quoted value.
        line_sep = line_sep or "\n"
    return lines.raw(
        session, files, line_sep=line_sep, is_whole=formats.is_whole(options.format, options.format_options)
    )


def content_of(session: SparkSession, spec: IngestSpec) -> DataFrame:
    """Return the content of the files of a batch, undecoded: whoever reads all of it finds damaged files."""
    files, options = readable_files.readable(spec), spec.options
    if formats.is_whole(options.format, options.format_options):
        # Only the function itself finds out whether their content is damaged.
        reading = Reading(options.format, options.adapter, format_options=options.format_options)
        return raw_files(session, files, options).mapInArrow(read_of(reading), f"{UNKNOWN} string")
    if options.format != "parquet":
        return raw_files(session, files, options)
    parts, _ = columnar.read(session, files, options.format_options)
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), [rows for _, rows in parts])


def checked(options: IngestOptions) -> dict[str, Any]:
    """Return the adapter's options with their defaults: the job repeats the planner's check."""
    return adapters.check(
        options.adapter,
        options.adapter_options,
        keys=options.keys,
        format=options.format,
        insert_only=options.insert_only,
    )
