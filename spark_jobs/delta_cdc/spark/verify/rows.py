"""Check a target's own rows, independently of its source, in one scan."""

from __future__ import annotations

from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from delta_cdc.core.checks import (
    MOST_SAMPLES,
    NULL_KEYS,
    ONE_OPEN_ROW,
    OVERLAPS,
    START_BEFORE_END,
    UNIQUE_KEYS,
    Check,
    finding,
    ok,
)
from delta_cdc.core.reserved_columns import OF_END
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.apply import target_columns
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import balanced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import VerifySpec

#: The kind of a difference in a key or a row, and the number of rows with it.
KIND, AMOUNT = f"{PLAN_PREFIX}kind", f"{PLAN_PREFIX}n"
_START, _END, _NEXT = f"{PLAN_PREFIX}start", f"{PLAN_PREFIX}end", f"{PLAN_PREFIX}next"
_NEXT_END, _ROWS = f"{PLAN_PREFIX}next_end", f"{PLAN_PREFIX}rows"
_WRONG = f"{PLAN_PREFIX}wrong"

#: Messages of each check: for a pass, and for a failure.
_MESSAGES = {
    NULL_KEYS: ("no key is NULL.", "{count} row(s) have NULL in a key column."),
    UNIQUE_KEYS: ("every key has one row.", "{count} key(s) have more than one row."),
    ONE_OPEN_ROW: ("no key has two open rows.", "{count} key(s) have more than one open row."),
    OVERLAPS: ("no two rows of a key overlap.", "{count} key(s) have rows that overlap in time."),
    START_BEFORE_END: (
        "every row starts before it ends.",
        "{count} key(s) have a row without a start, or one that ends where it starts or before{layout}.",
    ),
}
_RESTORE = "RESTORE the target to the version before the damage (DESCRIBE HISTORY names it)"
_REMEDIES = {
    NULL_KEYS: f"{_RESTORE}; or delete these rows: no pipeline writes such rows.",
    UNIQUE_KEYS: f"{_RESTORE}; or delete the surplus rows, then run once with mode='repair' and repair_keys.",
}
_OF_HISTORY = (
    f"{_RESTORE}; or, where the source is a change log, run once with mode='repair' and repair_keys: "
    "the history of these keys is computed again from their events."
)


def at_version(session: SparkSession, uri: str, version: int) -> DataFrame:
    """Return a table as of a version."""
    return session.read.format("delta").load(address(uri, version))


def address(uri: str, version: int) -> str:
    """Return a path that Delta reads as the table as of a version."""
    return f"{uri.rstrip('/')}@v{version}"


def checked(session: SparkSession, spec: VerifySpec, wanted: Sequence[str]) -> list[Check]:
    """Run checks of the target's own rows.

    :param wanted: names of :data:`delta_cdc.core.checks.OF_ROWS` that apply to this target
    """
    if not wanted:
        return []
    options = spec.options
    rows = at_version(session, spec.target_uri, spec.target_version)
    keys = states.match(rows.columns, options.keys, "keys", spec.target_uri)
    per_key = _per_key(rows, keys, options)
    # Wrong rows are usually few; if not, slow samples are acceptable.
    breaks_rule = balanced(or_, [F.col(name) > 0 for name in wanted])
    wrong = per_key.where(breaks_rule).localCheckpoint()
    sums = [F.sum(name) if name == NULL_KEYS else F.count_if(F.col(name) > 0) for name in wanted]
    totals = wrong.agg(*[total.alias(name) for name, total in zip(wanted, sums, strict=True)]).collect()[0]
    return [_check(name, totals[name] or 0, wrong, keys, spec) for name in wanted]


def _per_key(rows: DataFrame, keys: Sequence[str], options: ApplyOptions) -> DataFrame:
    """Return, for each key, how many of its rows break each rule."""
    columns = [F.col(quote(key)) for key in keys]
    null_key = balanced(or_, [column.isNull() for column in columns])
    if options.stored_as_scd_type == 1:
        key_counts = rows.groupBy(*columns).agg(F.count("*").alias(_ROWS))
        rule_breaks = {UNIQUE_KEYS: F.when(F.col(_ROWS) > 1, F.col(_ROWS))}
    else:
        key_counts = _history(rows, keys, options)
        rule_breaks = {name: F.col(name) for name in (ONE_OPEN_ROW, OVERLAPS, START_BEFORE_END)}
    return key_counts.select(
        *columns,
        F.when(null_key, F.col(_ROWS)).otherwise(0).alias(NULL_KEYS),
        # Rows with a NULL key count for NULL_KEYS only.
        *[
            F.when(~null_key, F.coalesce(value, F.lit(0))).otherwise(0).alias(name)
            for name, value in rule_breaks.items()
        ],
    )


def _history(rows: DataFrame, keys: Sequence[str], options: ApplyOptions) -> DataFrame:
    columns = [F.col(quote(key)) for key in keys]
    start, end = F.col(_START), F.col(_END)
    window = Window.partitionBy(*columns).orderBy(start, end.asc_nulls_last())
    wrong = F.expr(target_columns.wrong(options, target_columns.end_type(rows, options)))
    periods = target_columns.plain(rows.withColumn(_WRONG, wrong), options).select(
        *columns,
        _WRONG,
        F.col(quote(options.start_column)).alias(_START),
        F.col(quote(options.end_column)).alias(_END),
    )
    # If any two rows of a key overlap, two neighbours overlap. Only ONE_OPEN_ROW reports two open rows.
    placed = periods.withColumns({_NEXT: F.lead(start).over(window), _NEXT_END: F.lead(end).over(window)})
    overlaps = F.when(end.isNull(), F.col(_NEXT_END).isNotNull()).otherwise(F.col(_NEXT) < end)
    unbounded = start.isNull() | F.coalesce(~(start < end), F.lit(False))
    n_open = F.count_if(end.isNull())
    return placed.groupBy(*columns).agg(
        F.count("*").alias(_ROWS),
        F.when(n_open > 1, n_open).otherwise(0).alias(ONE_OPEN_ROW),
        F.count_if(overlaps).alias(OVERLAPS),
        F.count_if(unbounded | F.col(_WRONG)).alias(START_BEFORE_END),
    )


def _check(name: str, count: int, wrong: DataFrame, keys: Sequence[str], spec: VerifySpec) -> Check:
    passed, failed = _MESSAGES[name]
    if not count:
        return ok(name, passed)
    samples = keys_of(wrong.where(F.col(name) > 0), keys)
    remedy, layout = _REMEDIES.get(name, _OF_HISTORY), ""
    given = [option for option in OF_END if getattr(spec.options, option) is not None]
    if name == START_BEFORE_END and given:
        layout = f", or one that contradicts {' or '.join(given)}"
        remedy += " An UPDATE corrects the columns of the layout: set them by the end of each row."
    text = failed.format(count=count, layout=layout)
    return finding(name, text, remedy, count=count, samples=samples)


def differences(
    check: str, wrong: DataFrame, keys: Sequence[str], detail: str, remedy: Callable[[set[str]], str]
) -> Check:
    """Return the result of a comparison.

    :param wrong: the keys that differ, with :data:`KIND`, and with :data:`AMOUNT` if it is not always 1
    :param detail: what was compared, for the message
    :param remedy: returns the remedy for some kinds of differences
    """
    copies = F.abs(F.col(AMOUNT)) if AMOUNT in wrong.columns else F.lit(1)
    wrong = wrong.select(*[quote(key) for key in keys], KIND, copies.alias(AMOUNT)).localCheckpoint()
    counts = dict(map(tuple, wrong.groupBy(KIND).agg(F.sum(AMOUNT)).orderBy(KIND).collect()))
    if not counts:
        return ok(check, f"{detail}.")
    # The first samples cover every kind, because a check shows only these.
    share = max(1, MOST_SAMPLES // len(counts))
    first_samples: list[str] = []
    other_samples: list[str] = []
    for kind in counts:
        texts = [f"{kind}: {text}" for text in keys_of(wrong.where(F.col(KIND) == kind), keys)]
        first_samples += texts[:share]
        other_samples += texts[share:]
    amounts = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return finding(
        check,
        f"{amounts} ({detail}).",
        remedy(set(counts)),
        count=sum(counts.values()),
        samples=(*first_samples, *other_samples),
    )


def keys_of(rows: DataFrame, keys: Sequence[str]) -> tuple[str, ...]:
    """Return up to MOST_SAMPLES keys as text."""
    key_texts = [f"coalesce(cast({quote(key)} AS string), 'NULL') AS {quote(key)}" for key in keys]
    sample = rows.selectExpr(*key_texts).limit(MOST_SAMPLES).collect()
    return tuple(", ".join(f"{key} = {row[key]}" for key in keys) for row in sample)
