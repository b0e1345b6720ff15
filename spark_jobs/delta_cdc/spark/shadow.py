"""Compare the current rows of two targets of a source, and record the result in the second one.

The comparison needs no key: it counts equal rows on both sides, and only rows whose counts differ go on. If
both have the original's key columns, these rows are grouped by them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import codec
from delta_cdc.core.shadow import MOST_COLUMNS, MOST_SAMPLES, Comparison, Sample, app_id, shortened, status_of
from delta_cdc.core.spec import JobResult
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark import named_errors
from delta_cdc.spark.changes import feed
from delta_cdc.spark.changes.equality import comparable, nullable
from delta_cdc.spark.sealed.commit import is_conflict, nothing_added, stamped
from delta_cdc.spark.sealed.commit_safety import refuse_unsafe_log_store
from delta_cdc.spark.sessions import private_session, set_where_allowed
from delta_cdc.spark.verify.current import living
from delta_cdc.spark.verify.rows import at_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.shadow import Difference
    from delta_cdc.core.spec import ComparedTarget, ShadowSpec

log = logging.getLogger(__name__)

_BY_NAME = "spark.databricks.delta.timeTravel.resolveOnIdentifier.enabled"
_ORIGINAL, _SHADOW = f"{PLAN_PREFIX}original", f"{PLAN_PREFIX}shadow"
_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
#: The digits that each type of whole numbers needs as a decimal.
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
_MOST_DIGITS = 38
#: Attempts to commit the result.
_ATTEMPTS = 3
#: Parts of the value in which a number of binary floating point meets a decimal.
_EXACT, _OTHER = "exact", "other"


def run(spark: SparkSession, spec: ShadowSpec) -> JobResult:
    """Compare, and record the result.

    If another run has recorded a comparison since planning, Delta skips the commit: one record is enough.

    :return: ``tables`` has one entry, the :class:`~delta_cdc.core.shadow.Comparison`
    :raises DeltaCdcError: a table cannot be read or written
    """
    feed.refuse_forbidden_confs(spark)
    log.info("%s: comparing at version %s of the source", spec.name, spec.source)
    try:
        with private_session(spark) as session:
            # The paths of tables contain the version (rows.address).
            set_where_allowed(session, {_BY_NAME: "true"})
            found = compared(session, spec)
            refuse_unsafe_log_store(session, spec.shadow.uri, single_driver=spec.single_driver)
            _record(session, spec, found)
    except Exception as error:
        raise named_errors.named(error, spec.name) from error
    log.info("%s: %s", spec.name, found)
    return JobResult("committed", tables=(codec.encoded(found),))


def _record(session: SparkSession, spec: ShadowSpec, found: Comparison) -> None:
    """Commit the result. After a conflict, Delta skips the next attempt if another run has recorded one."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with stamped(session, app_id(spec.pair.shadow), spec.number, found.tag()):
                nothing_added(session, spec.shadow.uri)()
            return
        except Exception as error:
            if attempt == _ATTEMPTS or not is_conflict(error):
                raise
            log.info("%s: another writer committed first; recording the result again", spec.name)


@dataclass(frozen=True)
class _Columns:
    """The columns that are compared.

    :param keys: the original's keys, if the shadow has all of them; else ()
    :param types: name as the original spells it -> the types in the original and in the shadow, and the type
        in which values of both meet
    """

    keys: tuple[str, ...]
    types: dict[str, tuple[T.DataType, T.DataType, T.DataType]]

    def __iter__(self) -> Any:
        return iter(self.types)


def compared(session: SparkSession, spec: ShadowSpec) -> Comparison:
    """Return how the current rows of two targets differ."""
    original, shadow = (_rows(session, side) for side in (spec.original, spec.shadow))
    theirs = {field.name.lower(): field for field in shadow.schema.fields}
    ours = {field.name.lower() for field in original.schema.fields}
    types, incomparable = {}, []
    for field in original.schema.fields:
        other = theirs.get(field.name.lower())
        if other is None:
            continue
        common = meeting_type(field.dataType, other.dataType)
        if common is None:
            incomparable.append(
                f"{field.name} ({field.dataType.simpleString()}, {other.dataType.simpleString()})"
            )
        else:
            types[field.name] = (field.dataType, other.dataType, common)
    names = {name.lower(): name for name in types}
    keys = tuple(names[key.lower()] for key in spec.original.options.keys if key.lower() in names)
    if len(keys) < len(spec.original.options.keys):
        keys = ()
    columns = _Columns(keys, types)
    result = Comparison(
        status="agreed",
        original=spec.pair.original,
        shadow=spec.pair.shadow,
        original_uri=spec.original.uri,
        original_table=spec.original.read,
        shadow_table=spec.shadow.read,
        source=spec.source,
        share=spec.share,
        by_key=bool(keys),
        only_original=tuple(name for name in original.columns if name.lower() not in theirs),
        only_shadow=tuple(name for name in shadow.columns if name.lower() not in ours),
        incomparable=tuple(incomparable),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        run_id=spec.run_id,
    )
    if not types:
        return replace(result, status="not_compared", why="the targets have no comparable column in common")
    sides = (_side(original, columns, 0, spec), _side(shadow, columns, 1, spec))
    return _with_differences(result, columns, *sides)


def _rows(session: SparkSession, side: ComparedTarget) -> DataFrame:
    return living(at_version(session, side.uri, side.read.version), side.options)


def _side(rows: DataFrame, columns: _Columns, position: int, spec: ShadowSpec) -> DataFrame:
    """Return the sample of one target: comparable values, and 1 in the column of this target."""
    values = {
        name: F.expr(met(quote(name), types[position], types[2])) for name, types in columns.types.items()
    }
    if spec.share > 1:
        hashed = F.xxhash64(
            *[_hashable(values[name], columns.types[name][2]) for name in columns.keys or values]
        )
        rows = rows.where(F.pmod(hashed, F.lit(spec.share)) == spec.share_of)
    counts = [
        F.lit(int(side == position)).cast("bigint").alias(name)
        for side, name in enumerate((_ORIGINAL, _SHADOW))
    ]
    return rows.select(*[value.alias(name) for name, value in values.items()], *counts)


def _hashable(value: Column, kind: T.DataType) -> Column:
    # 0.0 equals -0.0, but has another hash.
    return value + F.lit(0.0).cast(kind) if isinstance(kind, T.DoubleType | T.FloatType) else value


def _with_differences(
    result: Comparison, columns: _Columns, original: DataFrame, shadow: DataFrame
) -> Comparison:
    counted = (
        original.unionByName(shadow)
        .groupBy(*[quote(name) for name in columns])
        .agg(F.sum(_ORIGINAL).alias(_ORIGINAL), F.sum(_SHADOW).alias(_SHADOW))
    )
    differs = F.col(_ORIGINAL) != F.col(_SHADOW)
    totals = counted.agg(F.sum(_ORIGINAL).alias("rows"), F.count_if(differs).alias("wrong")).collect()[0]
    result = replace(result, rows=totals["rows"] or 0)
    if not totals["wrong"]:
        return result
    wrong = counted.where(differs).localCheckpoint()
    more, less = (F.col(_ORIGINAL) > F.col(_SHADOW)), (F.col(_ORIGINAL) < F.col(_SHADOW))
    surplus = F.col(_ORIGINAL) - F.col(_SHADOW)
    if columns.keys:
        per_key = wrong.groupBy(*[quote(key) for key in columns.keys]).agg(
            F.max(more).alias(_ORIGINAL), F.max(less).alias(_SHADOW)
        )
        ours, theirs = F.col(_ORIGINAL), F.col(_SHADOW)
        found = per_key.agg(
            F.count_if(ours & theirs).alias("changed"),
            F.count_if(ours & ~theirs).alias("missing"),
            F.count_if(~ours & theirs).alias("extra"),
        )
    else:
        found = wrong.agg(
            F.sum(F.when(more, surplus).otherwise(0)).alias("missing"),
            F.sum(F.when(less, -surplus).otherwise(0)).alias("extra"),
        )
    counts = {name: int(count) for name, count in found.collect()[0].asDict().items() if count}
    return replace(
        result, status=status_of(counts), counts=counts, samples=tuple(_samples(wrong, columns, counts))
    )


# -- samples --------------------------------------------------------------------------------------
def _samples(wrong: DataFrame, columns: _Columns, counts: dict[str, int]) -> list[Sample]:
    """Return samples of every kind of difference; of the kinds together at most MOST_SAMPLES."""
    order = [F.col(quote(key)) for key in columns.keys]
    keys = columns.keys or tuple(columns)
    side = F.when(F.col(_ORIGINAL) > F.col(_SHADOW), F.lit(0)).otherwise(F.lit(1)).alias(_ORIGINAL)
    texts = [_text(name, columns.types[name][2]).alias(name) for name in columns]
    if not columns.keys:
        rows = wrong.select(*texts, side).orderBy(_ORIGINAL).limit(MOST_SAMPLES).collect()
        return [_one_sided(row, columns) for row in rows]
    grouped = wrong.groupBy(*order).agg(
        F.max(F.col(_ORIGINAL) > F.col(_SHADOW)).alias(f"{_ORIGINAL}?"),
        F.max(F.col(_ORIGINAL) < F.col(_SHADOW)).alias(f"{_SHADOW}?"),
    )
    # The least of each kind come first, so that each kind is shown.
    kind = F.when(~F.col(f"{_SHADOW}?"), 1).when(~F.col(f"{_ORIGINAL}?"), 2).otherwise(0)
    share = max(1, MOST_SAMPLES // len(counts))
    chosen = None
    for number in range(3):
        of_kind = grouped.where(kind == number).limit(share).select(*order)
        chosen = of_kind if chosen is None else chosen.unionByName(of_kind)
    assert chosen is not None
    chosen = chosen.localCheckpoint()
    same = [wrong[quote(key)].eqNullSafe(chosen[quote(key)]) for key in columns.keys]
    joined = wrong.join(F.broadcast(chosen), same, "left_semi")
    rows = joined.select(*texts, side).limit(4 * MOST_SAMPLES).collect()
    by_key: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_key.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [_sample(found, columns) for found in by_key.values()][:MOST_SAMPLES]


def _sample(rows: Sequence[Row], columns: _Columns) -> Sample:
    """Return the difference of one key."""
    key = {name: shortened(rows[0][name]) for name in columns.keys}
    ours = next((row for row in rows if row[_ORIGINAL] == 0), None)
    theirs = next((row for row in rows if row[_ORIGINAL] == 1), None)
    if ours is None or theirs is None:
        return replace(_one_sided(rows[0], columns), key=key)
    names = [name for name in columns if ours[name] != theirs[name]][:MOST_COLUMNS]
    return Sample(
        "changed",
        key,
        {name: shortened(ours[name]) for name in names},
        {name: shortened(theirs[name]) for name in names},
    )


def _one_sided(row: Row, columns: _Columns) -> Sample:
    names = [name for name in columns if name not in columns.keys][:MOST_COLUMNS]
    values = {name: shortened(row[name]) for name in names}
    kind: Difference = "missing" if row[_ORIGINAL] == 0 else "extra"
    return Sample(
        kind, original=values if kind == "missing" else {}, shadow=values if kind == "extra" else {}
    )


def _text(name: str, kind: T.DataType) -> Column:
    value = F.col(quote(name))
    if _is_mixed(kind):
        return F.coalesce(value[_EXACT].cast("string"), value[_OTHER].cast("string"))
    return F.hex(value) if isinstance(kind, T.BinaryType) else value.cast("string")


# -- types ----------------------------------------------------------------------------------------
def meeting_type(one: T.DataType, other: T.DataType) -> T.DataType | None:
    """Return the type in which values of two columns are compared; None if they cannot be.

    It is :func:`common_type`, or the type of :func:`met` for a decimal and a number of binary floating point.
    """
    common = common_type(one, other)
    exact = next((kind for kind in (one, other) if _is_exact(kind)), None)
    if common is not None or exact is None or not any(map(_is_binary, (one, other))):
        return common
    parts = {_EXACT: T.DecimalType(_MOST_DIGITS, _digits(exact)[1]), _OTHER: T.DoubleType()}
    return T.StructType([T.StructField(name, kind) for name, kind in parts.items()])


def met(value: str, kind: T.DataType, common: T.DataType) -> str:
    """Return SQL of a value in the type of :func:`meeting_type`.

    A number of binary floating point is the decimal that people write for it, the shortest text that stands
    for exactly this number. If the other column has too few digits for it, it equals no value there.

    :param value: SQL of the value
    :param kind: its type
    """
    if not _is_mixed(common) or isinstance(kind, T.StructType):
        return comparable(value, kind, common)
    assert isinstance(common, T.StructType)
    decimal = common[_EXACT].dataType.simpleString()
    if _is_exact(kind):
        exact, rest = f"CAST({value} AS {decimal})", "CAST(NULL AS DOUBLE)"
    else:
        near = f"TRY_CAST({value} AS {decimal})"
        is_same = f"COALESCE(CAST({near} AS {kind.simpleString()}) = {value}, FALSE)"
        exact = f"CASE WHEN {is_same} THEN {near} END"
        rest = f"CASE WHEN NOT {is_same} THEN CAST({value} AS DOUBLE) END"
    return f"named_struct('{_EXACT}', {exact}, '{_OTHER}', {rest})"


def _is_mixed(kind: T.DataType) -> bool:
    return isinstance(kind, T.StructType) and kind.names == [_EXACT, _OTHER]


def _is_binary(kind: T.DataType) -> bool:
    return isinstance(kind, T.FloatType | T.DoubleType)


def common_type(one: T.DataType, other: T.DataType) -> T.DataType | None:
    """Return a type that has every value of both types exactly; None if there is no such type.

    Whole numbers and decimals meet in a decimal, a date and a time without a zone in such a time, and a text
    meets whole numbers, booleans and dates, which have one text each. Fields of structs match by name.
    """
    if nullable(one) == nullable(other):
        return one
    for first, second in ((one, other), (other, one)):
        found = _wider(first, second)
        if found is not None:
            return found
    return _nested(one, other)


def _wider(one: T.DataType, other: T.DataType) -> T.DataType | None:
    if _is_exact(one) and _is_exact(other):
        (digits, scale), (other_digits, other_scale) = _digits(one), _digits(other)
        most_scale = max(scale, other_scale)
        precision = max(digits - scale, other_digits - other_scale) + most_scale
        return T.DecimalType(precision, most_scale) if precision <= _MOST_DIGITS else None
    if isinstance(one, T.FloatType) and isinstance(other, T.DoubleType):
        return other
    if isinstance(one, T.DateType) and isinstance(other, T.TimestampNTZType):
        return other
    if isinstance(one, T.StringType) and isinstance(
        other, (*_WHOLE, T.BooleanType, T.DateType, T.StringType)
    ):
        return T.StringType()
    return None


def _is_exact(kind: T.DataType) -> bool:
    return isinstance(kind, (*_WHOLE, T.DecimalType))


def _digits(kind: T.DataType) -> tuple[int, int]:
    return (kind.precision, kind.scale) if isinstance(kind, T.DecimalType) else (_DIGITS[type(kind)], 0)


def _nested(one: T.DataType, other: T.DataType) -> T.DataType | None:
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        element = common_type(one.elementType, other.elementType)
        return None if element is None else T.ArrayType(element)
    if isinstance(one, T.MapType) and isinstance(other, T.MapType):
        key, value = common_type(one.keyType, other.keyType), common_type(one.valueType, other.valueType)
        return None if key is None or value is None else T.MapType(key, value)
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        theirs = {field.name.lower(): field.dataType for field in other.fields}
        if sorted(theirs) != sorted(field.name.lower() for field in one.fields):
            return None
        found = [(f.name, common_type(f.dataType, theirs[f.name.lower()])) for f in one.fields]
        fields = [T.StructField(name, kind) for name, kind in found if kind is not None]
        return T.StructType(fields) if len(fields) == len(found) else None
    return None
