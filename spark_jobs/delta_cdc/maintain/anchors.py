"""Which events behind a horizon a consumer still needs, so that the law holds for all that may yet come.

Of each key the last event stays: what comes at or after the horizon is placed on top of it. Where events may
carry some of the columns only, all stay that author a value of the row. A deleted row that stays in its
target keeps its last values, so the events that made these stay.

An event is *sure* if it is the only one of its key and sequence. What becomes of several is up to rules that
nobody has written down in the target (``on_tie``): they may merge, one may win, or all may be taken out. So
they stay, and the last sure event before them, too.

Worked example, horizon 10, events of one key (what each carries)::

    1: a, b     2: delete     4: a, b     6: a     8: b     12: a
                ^ ends what 1 said
                              authors nothing any more: 6 and 8 say both
                                          ^ stays    ^ stays; 12 is not behind the horizon
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.apply import leaves
from delta_cdc.apply.events import AUTHORED, DELETE, KIND, TRUNCATE, UPSERT
from delta_cdc.changes import states
from delta_cdc.sql import PLAN_PREFIX, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from delta_cdc.apply.rows import Shape
    from delta_cdc.spec import ApplyOptions

#: What an event says, as text: two of a key and sequence that say the same are one.
SAID = f"{PLAN_PREFIX}said"
_SURE, _BASE, _KIND = f"{PLAN_PREFIX}sure", f"{PLAN_PREFIX}base", f"{PLAN_PREFIX}last_kind"
_DIED, _CUT, _CUTS = f"{PLAN_PREFIX}died", f"{PLAN_PREFIX}cut", f"{PLAN_PREFIX}cuts"
_LEAF = f"{PLAN_PREFIX}leaf"


def needed(found: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Return those of some events that stay.

    :param found: valid events behind the horizon: keys, SEQUENCE, KIND, AUTHORED, :data:`SAID`, and whatever
        else, which is passed on
    """
    from pyspark.sql import functions as F

    is_truncate = F.col(KIND) == TRUNCATE
    of_keys, place = found.where(~is_truncate), [*shape.keys, states.SEQUENCE]
    kept = of_keys.join(_places(of_keys, found.where(is_truncate), shape, options), place, "left_semi")
    if options.apply_as_truncates is None:
        return kept
    return kept.unionByName(_truncates(found.where(is_truncate), options))


def _truncates(found: DataFrame, options: ApplyOptions) -> DataFrame:
    """Return the last truncate. Rows that outlive one keep the values from before it, piece by piece."""
    from pyspark.sql import functions as F

    if _is_soft(options) and options.is_partial:
        return found
    last = found.agg(F.max(states.SEQUENCE).alias(states.SEQUENCE))
    return found.join(F.broadcast(last), states.SEQUENCE, "left_semi").select(*found.columns)


def _is_soft(options: ApplyOptions) -> bool:
    return options.delete_mode == "soft" and options.stored_as_scd_type == 1


def _places(of_keys: DataFrame, truncates: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Return keys and sequences whose events stay."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = [F.col(quote(key)) for key in shape.keys]
    sequence, along = F.col(states.SEQUENCE), Window.partitionBy(*keys)
    groups = of_keys.groupBy(*keys, sequence).agg(
        (F.count_distinct(SAID) == 1).alias(_SURE),
        F.min(KIND).alias(KIND),
        F.first(AUTHORED).alias(AUTHORED),
    )
    last = F.when(F.col(_SURE), sequence)
    base = F.max(last).over(along)
    if _is_soft(options):
        # The last values, also of a row that is deleted by now; those of a tie may be the only ones.
        upsert = F.when(F.col(_SURE) & (F.col(KIND) == UPSERT), sequence)
        alone = F.when(F.min(_SURE).over(along), base)
        base = F.coalesce(F.max(upsert).over(along), alone)
    groups = groups.withColumns({_BASE: base, _KIND: F.max_by(KIND, last).over(along)})
    on_top = F.col(_BASE).isNull() | (sequence >= F.col(_BASE))
    place = [*keys, sequence]
    if not options.is_partial:
        return groups.where(on_top).select(*place)
    lives = _with_life(groups, truncates, shape, options)
    in_life = _in_life(options)
    boundary = sequence.eqNullSafe(F.col(_DIED))
    stay = lives.where(on_top | boundary | (in_life & ~F.col(_SURE))).select(*place)
    says = in_life & F.col(_SURE) & (F.col(KIND) == UPSERT) & (sequence <= F.col(_BASE))
    return stay.unionByName(_authors(lives.where(says), shape, options)).distinct()


def _with_life(groups: DataFrame, truncates: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Add where the life of the row that the base belongs to began: after a delete, or at a truncate."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    along = Window.partitionBy(*[F.col(quote(key)) for key in shape.keys])
    sequence = F.col(states.SEQUENCE)
    deletes = F.col(_SURE) & (F.col(KIND) == DELETE) & (sequence < F.col(_BASE))
    lives = groups.withColumn(_DIED, F.max(F.when(deletes, sequence)).over(along))
    if options.apply_as_truncates is None:
        return lives.withColumn(_CUT, F.lit(None).cast(groups.schema[states.SEQUENCE].dataType))
    cuts = truncates.agg(F.collect_set(states.SEQUENCE).alias(_CUTS))
    before = F.array_max(F.filter(_CUTS, lambda cut: cut <= F.col(_BASE)))
    return lives.crossJoin(F.broadcast(cuts)).withColumn(_CUT, before).drop(_CUTS)


def _in_life(options: ApplyOptions) -> Column:
    from pyspark.sql import functions as F

    sequence = F.col(states.SEQUENCE)
    after = F.col(_DIED).isNull() | (sequence > F.col(_DIED))
    since = F.col(_CUT).isNull() | (sequence >= F.col(_CUT))
    if _is_soft(options):
        return after & since
    # Of a row that is deleted nothing is inherited.
    return after & since & (F.col(_KIND) == UPSERT)


def _authors(says: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Return the places of the upserts that said last what a leaf holds."""
    from pyspark.sql import functions as F

    keys = [F.col(quote(key)) for key in shape.keys]
    every = F.array_repeat(F.lit(True), len(leaves.leaves(shape, options)))
    told = says.select(
        *keys, states.SEQUENCE, F.posexplode(F.coalesce(F.col(AUTHORED), every)).alias(_LEAF, _SURE)
    )
    last = told.where(F.col(_SURE)).groupBy(*keys, _LEAF).agg(F.max(states.SEQUENCE).alias(states.SEQUENCE))
    return last.select(*keys, states.SEQUENCE)
