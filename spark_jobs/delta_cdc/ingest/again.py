"""What a batch brings that the log does not hold yet: rows of files and offsets that were taken before.

A file that was delivered again, whole, grown or changed, brings what is more in it than in what was taken of
it. Rows are counted, not only compared: of three equal rows in a file whose first delivery had two, one is
new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.changes.equality import comparable
from delta_cdc.ingest.shape import OP, POSITION, SEQUENCE
from delta_cdc.sql import PLAN_PREFIX, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from delta_cdc.spec import IngestSpec

_KEY, _NUMBER, _HELD = f"{PLAN_PREFIX}key", f"{PLAN_PREFIX}number", f"{PLAN_PREFIX}held"
#: Of a log's own columns, those that tell one event from another. The list of what an event carries does not:
#: it depends on which columns were known when the event was taken.
_TELLING = (OP, SEQUENCE)


def flagged(spec: IngestSpec) -> Column | None:
    """Tell which records may have been taken before, by their position; None where none may."""
    from pyspark.sql import functions as F

    files = [file.uri for file in spec.files if file.again]
    if files:
        if len(files) == len(spec.files):
            return F.lit(True)
        return F.col(f"{POSITION}.file").isin(files)
    parts = [
        (F.col(f"{POSITION}.topic") == part.topic) & (F.col(f"{POSITION}.partition") == part.partition)
        for part in spec.offsets
        if part.again
    ]
    if not parts:
        return None
    return F.lit(True) if len(parts) == len(spec.offsets) else _any(parts)


def _any(parts: Sequence[Column]) -> Column:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole | part
    return whole


def place(*, exact: bool) -> Column:
    """Return where a record came from: its file alone, because its rows may have moved, or its exact place.

    A record of a topic has only an exact one.
    """
    from pyspark.sql import functions as F

    at = F.col(POSITION)
    row = at.getField("row") if exact else F.lit(None).cast("bigint")
    return F.struct(
        at.getField("file").alias("file"),
        row.alias("row"),
        *[at.getField(name).alias(name) for name in ("topic", "partition", "offset")],
    )


def identity(rows: DataFrame, types: dict[str, DataType]) -> Column:
    """Return what two rows of a log have in common where they are the same event.

    :param types: columns to compare, with the types of both sides; one that ``rows`` lacks is NULL
    """
    from pyspark.sql import functions as F

    there = {name.lower(): name for name in rows.columns}
    parts = []
    for name, kind in types.items():
        own = there.get(name.lower())
        value = F.lit(None).cast(kind) if own is None else _as(rows, own, kind)
        parts.append(comparable(value, kind).alias(name))
    return F.struct(*parts)


def _as(rows: DataFrame, name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    value, own = F.col(quote(name)), rows.schema[name].dataType
    if isinstance(kind, T.StringType) and not isinstance(own, T.AtomicType):
        return F.to_json(value)
    return value if own == kind else value.cast(kind)


def compared(events: DataFrame, log: DataFrame) -> dict[str, DataType]:
    """Return the columns by which events are compared with those of their log, and the types."""
    from pyspark.sql import types as T

    from delta_cdc.ingest.shape import LOG_COLUMNS
    from delta_cdc.ingest.widening import wider

    found = {field.name: field.dataType for field in log.schema.fields}
    known = {name.lower(): name for name in found}
    for field in events.schema.fields:
        own = known.setdefault(field.name.lower(), field.name)
        theirs = found.get(own, field.dataType)
        nested = not isinstance(theirs, T.AtomicType)
        # The text of a nested value leaves NULLs out, and so the fields that one side does not have.
        kind = T.StringType() if nested and theirs != field.dataType else wider(theirs, field.dataType)
        found[own] = theirs if kind is None else kind
    return {name: kind for name, kind in found.items() if name not in LOG_COLUMNS or name in _TELLING}


def beyond(rows: DataFrame, held: DataFrame, own: Column, theirs: Column) -> DataFrame:
    """Return the rows that are more than those held: the difference of two multisets.

    :param own: by what a row is known, of a type that has an equality; ``theirs`` is the same of ``held``
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = F.struct(F.col(f"{POSITION}.row"), F.col(f"{POSITION}.offset"))
    numbers = F.row_number().over(Window.partitionBy(_KEY).orderBy(place))
    counted = rows.withColumn(_KEY, own).withColumn(_NUMBER, numbers).alias("r")
    known = held.select(theirs.alias(_KEY)).groupBy(_KEY).agg(F.count("*").alias(_HELD)).alias("h")
    joined = counted.join(known, F.col(f"r.{_KEY}") == F.col(f"h.{_KEY}"), "left")
    more = F.col(_NUMBER) > F.coalesce(F.col(_HELD), F.lit(0))
    return joined.where(more).select("r.*").drop(_KEY, _NUMBER)


def without(rows: DataFrame, held: DataFrame) -> DataFrame:
    """Return the rows of records of which nothing is held, by topic, partition and offset.

    One record may have become several events; they were written together.
    """
    from pyspark.sql import functions as F

    known = held.select(place(exact=True).alias(_KEY)).distinct()
    own = rows.withColumn(_KEY, place(exact=True))
    return own.join(known, _KEY, "left_anti").select(*[F.col(quote(name)) for name in rows.columns])
