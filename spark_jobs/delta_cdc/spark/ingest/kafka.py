"""Read records from Kafka: exactly the planned offsets of a batch, with Spark's batch reader.

A spec contains no credentials. They come from a file that only this user can read (client mode), from a conf
that such a file sets (driver on a cluster), or from the caller (plain session).
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core import codec, private_files
from delta_cdc.core.errors import (
    DeltaCdcError,
    EnvironmentNotReady,
    InvalidConfiguration,
    OffsetsExpired,
    SourceNotFound,
    StoreUnavailable,
    TopicReplaced,
)
from delta_cdc.core.kafka_options import for_java, for_registry
from delta_cdc.core.reasons import reason
from delta_cdc.core.topics import servers_of
from delta_cdc.ingest import sources
from delta_cdc.ingest.records.registry import Registry
from delta_cdc.spark.sessions import value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delta_cdc.core.spec import IngestSpec, OffsetRange

#: Environment variable of a driver on the worker: the path of a JSON file with the options. Only one user can
#: read this file.
OPTIONS_VARIABLE = "DELTA_CDC_KAFKA_OPTIONS"
#: The conf with the same JSON, for a driver on another machine; a properties file sets it. Because the name
#: contains "secret", Spark redacts the value wherever it shows confs.
OPTIONS_CONF = "spark.delta_cdc.kafka.secretOptions"

_RAW_DDL = (
    f"{sources.VALUE} binary, {sources.KEY} binary, "
    f"{sources.HEADERS} array<struct<key: string, value: binary>>, "
    f"{sources.TOPIC} string, {sources.PARTITION} int, {sources.OFFSET} bigint, {sources.PUBLISHED} bigint"
)

#: Error texts of Spark and of Kafka's client -> our error class and remedy. The first match wins.
_KNOWN: tuple[tuple[tuple[str, ...], type[DeltaCdcError], str], ...] = (
    (
        ("Failed to find data source: kafka", "DATA_SOURCE_NOT_FOUND", "NoClassDefFoundError"),
        EnvironmentNotReady,
        "give the session the JARs that delta-cdc jars --kafka names (spark.jars, or the class path).",
    ),
    (
        ("KAFKA_DATA_LOSS", "failOnDataLoss", "OffsetOutOfRange", "out of range"),
        OffsetsExpired,
        "raise retention.ms of the topic, and continue after the gap with on_expired='continue'.",
    ),
    (
        ("don't match what are assigned",),
        TopicReplaced,
        "the topic was created again with fewer partitions. Run again: the next error has the remedy.",
    ),
    (
        ("UnknownTopicOrPartition", "does not host this topic-partition"),
        SourceNotFound,
        "check whether the topic was deleted.",
    ),
    (
        ("SaslAuthenticationException", "SslAuthenticationException", "AuthorizationException"),
        InvalidConfiguration,
        "correct kafka_options: the brokers accepted the planner's client, but not Spark's reader.",
    ),
    (
        ("org.apache.kafka.common.errors.TimeoutException", "No resolvable bootstrap urls"),
        StoreUnavailable,
        "see that Spark's driver and executors reach the brokers; a retry reads the same offsets.",
    ),
)


def read(session: SparkSession, spec: IngestSpec, options: Mapping[str, str] | None = None) -> DataFrame:
    """Return the messages at the offsets of a batch, with the columns of :mod:`delta_cdc.ingest.sources`.

    The frame is lazy; :func:`named` maps Kafka's errors during its computation. Spark skips offsets without a
    record (in compacted topics, or between transactions).

    :param options: see :mod:`delta_cdc.core.kafka_options`; None: use the options that this driver got
    :raises InvalidConfiguration: the options are invalid
    """
    client_options = handed_over(session) if options is None else options
    read_options = {
        **{f"kafka.{name}": value for name, value in for_java(client_options).items()},
        "kafka.bootstrap.servers": servers_of(spec.source_uri, client_options),
        # Fail on missing offsets. Otherwise Spark skips them silently.
        "failOnDataLoss": "true",
        "includeHeaders": "true",
    }
    frame: DataFrame | None = None
    for ranges in _rounds(spec.offsets):
        read = session.read.format("kafka").options(**read_options, **_offsets(ranges)).load()
        frame = read if frame is None else frame.union(read)
    if frame is None:
        return session.createDataFrame([], _RAW_DDL)
    return frame.select(
        F.col("value").alias(sources.VALUE),
        F.col("key").alias(sources.KEY),
        F.col("headers").alias(sources.HEADERS),
        F.col("topic").alias(sources.TOPIC),
        F.col("partition").alias(sources.PARTITION),
        F.col("offset").alias(sources.OFFSET),
        # Old producers omit the timestamp; Kafka then reports -1.
        F.when(F.col("timestamp") >= F.timestamp_millis(F.lit(0)), F.unix_micros("timestamp")).alias(
            sources.PUBLISHED
        ),
    )


def registry(session: SparkSession, options: Mapping[str, str] | None = None) -> Registry:
    """Return the registry with the schemas of messages in Avro.

    :param options: as for :func:`read`
    :raises InvalidConfiguration: the options name no registry
    """
    return Registry.of(for_registry(handed_over(session) if options is None else options))


def handed_over(session: SparkSession) -> dict[str, str] | None:
    """Return the options that this driver was started with; None if it has no options.

    :raises InvalidConfiguration: the file or conf does not hold a JSON object
    """
    path = os.environ.get(OPTIONS_VARIABLE)
    try:
        text = private_files.text_of(path) if path else value_of(session, OPTIONS_CONF)
        options = codec.parsed(text) if text else None
    except (OSError, ValueError) as error:
        options = error
    if options is None:
        return None
    if not isinstance(options, dict):
        # Do not show the content, because it may contain secrets.
        raise InvalidConfiguration(
            f"{OPTIONS_VARIABLE if path else OPTIONS_CONF} is not a JSON object with options of Kafka.",
            remedy="clear the task. The next try writes the options again.",
        )
    return {str(name): str(value) for name, value in options.items()}


def named(error: Exception, spec: IngestSpec) -> DeltaCdcError | None:
    """Return our error for an error that Spark raised during the read; None if Kafka did not cause it.

    :param error: the error that Spark raised
    """
    text = str(error)
    if not spec.offsets or "afka" not in text:
        return None
    for marks, cls, remedy in _KNOWN:
        if any(mark in text for mark in marks):
            return cls(f"{spec.source_uri}: {reason(error)}", remedy=remedy)
    return None


def _rounds(offsets: Iterable[OffsetRange]) -> list[list[OffsetRange]]:
    """Split ranges into rounds: each has at most one range per partition, because Spark reads only one."""
    rounds: list[list[OffsetRange]] = []
    last_rounds: dict[tuple[str, int], int] = {}
    for offset_range in offsets:
        if offset_range.starting_offset >= offset_range.ending_offset:
            continue
        number = last_rounds[offset_range.topic, offset_range.partition] = (
            last_rounds.get((offset_range.topic, offset_range.partition), -1) + 1
        )
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(offset_range)
    return rounds


def _offsets(ranges: list[OffsetRange]) -> dict[str, str]:
    partitions: dict[str, list[int]] = {}
    starting: dict[str, dict[str, int]] = {}
    ending: dict[str, dict[str, int]] = {}
    for offset_range in ranges:
        partitions.setdefault(offset_range.topic, []).append(offset_range.partition)
        starting.setdefault(offset_range.topic, {})[str(offset_range.partition)] = (
            offset_range.starting_offset
        )
        ending.setdefault(offset_range.topic, {})[str(offset_range.partition)] = offset_range.ending_offset
    return {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(starting),
        "endingOffsets": json.dumps(ending),
    }
