"""Try rules on rows of a source, without a target: how many rows would break each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns
from delta_cdc.core.adapters import UPSERT
from delta_cdc.core.sql import quote
from delta_cdc.core.value_rules import COUNT
from delta_cdc.spark.apply import events, refusals, rows, value_rules
from delta_cdc.spark.apply.prepared_step import effective
from delta_cdc.spark.changes import feed
from delta_cdc.spark.changes.states import BROKEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delta_cdc.core.options import ApplyOptions


@dataclass(frozen=True)
class Trial:
    """The result for one rule.

    :param broken: number of rows that break it
    :param samples: up to three keys of these rows, as text
    """

    rule: str
    check: str
    broken: int
    samples: str


def tried(changes: DataFrame, options: ApplyOptions, source: str) -> tuple[int, tuple[Trial, ...]]:
    """Test the rows that changes insert or update by the rules of ``options``, as an apply would.

    :param changes: columns of the source, and those of a change feed
    :param options: of a pipeline, with ``source_kind``
    :param source: the source, for messages
    :return: the number of rows that were tested, and the result for each rule
    :raises InvalidExpression: a check does not resolve, or is not a predicate
    """
    options = effective(options)
    after = changes.where(feed.is_after())
    if options.takes_events:
        dropped = (reserved_columns.CHANGE_TYPE, reserved_columns.COMMIT_TIMESTAMP)
        read = events.of_rows(after.drop(*dropped), options, source)
        tested = read.rows.where(F.col(events.KIND) == UPSERT)
        # An event without key or sequence is never applied, whatever the rules are.
        tested = tested.where(F.col(events.REASON).isNull() | value_rules.is_reason(F.col(events.REASON)))
        shape = read.shape
    else:
        tested, shape = rows.read(after, options, source)
    named = [total.alias(name) for name, total in value_rules.totals(options).items()]
    # The samples would read the source again. Only what they need is kept: the rows may be those of a table.
    tested = tested.select(*map(quote, shape.keys), BROKEN).localCheckpoint()
    counts = tested.agg(F.count("*").alias("rows"), *named).collect()[0].asDict()
    trials = []
    for name, rule in options.rules.items():
        broken = counts[f"{COUNT}{name}"]
        has_samples = broken and shape.keys
        samples = refusals.samples(tested, shape.keys, value_rules.breaks(name)) if has_samples else ""
        trials.append(Trial(name, rule.check, broken, samples))
    return counts["rows"], tuple(trials)


def as_inserts(source_rows: DataFrame, version: int) -> DataFrame:
    """Return the rows of a version of a table as changes that insert them."""
    return source_rows.withColumns(
        {
            reserved_columns.CHANGE_TYPE: F.lit("insert"),
            reserved_columns.COMMIT_VERSION: F.lit(version).cast("bigint"),
            reserved_columns.COMMIT_TIMESTAMP: F.current_timestamp(),
        }
    )
