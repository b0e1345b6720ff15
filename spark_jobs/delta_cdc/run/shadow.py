"""Compares a target with its shadow on demand, and lets the shadow replace it.

A promotion has two parts. First the original pipeline takes over the shadow's target: two seals without rows
end the shadow's pipeline and begin the original one there, at the same watermark. Then, for targets by
catalog name, the names are exchanged. A promotion that was interrupted is run again: it finds what is done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec
from delta_cdc.core.errors import (
    ConcurrentModification,
    DeltaCdcError,
    InvalidConfiguration,
    JobFailed,
    PromotionRefused,
    TableNotFound,
)
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.core.shadow import (
    RUNS,
    Agreement,
    Comparison,
    Names,
    Pair,
    Standing,
    next_move,
    refusals,
)
from delta_cdc.core.spec import ApplySpec, BatchSpec, ExchangeSpec
from delta_cdc.core.uris import canonical_uri, is_name, spark_uri
from delta_cdc.core.validation import options_of
from delta_cdc.core.watermark import app_id
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning import shadow as planning
from delta_cdc.planning.apply import plan_apply_async

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delta_cdc.core.spec import JobResult, Part
    from delta_cdc.core.watermark import Seal
    from delta_cdc.planning.shadow import Target

    Execute = Callable[[BatchSpec], JobResult]


@dataclass(frozen=True)
class Work:
    """A pair, and what a command does with it.

    :param pair: targets by location or by catalog name, both in the same way
    :param execute: runs a batch in a Spark application
    :param storage_options: options of the object store, as delta-rs names them
    """

    pair: Pair
    execute: Execute
    run_id: str
    single_driver: bool = False
    storage_options: dict[str, str] | None = None

    def ran(self, spec: Part) -> JobResult:
        """Run one job, and return its result.

        :raises DeltaCdcError: the job failed
        """
        batch = self.execute(BatchSpec(run_id=self.run_id, parts=(spec,)))
        (result,) = batch.parts
        if result.error is not None:
            raise DeltaCdcError.from_dict(result.error)
        if result.status not in ("committed", "planned", "skipped", "conflict", "stale"):
            raise JobFailed(
                f"{spec.name}: the job ended as {result.status}: {result.message}",
                remedy="run again: the next run finds what was done.",
            )
        return result


# -- where the tables are ---------------------------------------------------------------------------
@dataclass(frozen=True)
class Located:
    """A pair whose tables are found.

    :param pair: with the locations of both targets
    :param names: None if the targets were given by their locations
    :param at: id of the table of each name that exists
    """

    pair: Pair
    names: Names | None = None
    at: dict[str, str] | None = None


def located(work: Work) -> Located:
    """Find the tables of a pair. For catalog names, one job looks them up, also those of a broken exchange.

    :raises InvalidConfiguration: one target is given by name, and the other one by its location
    :raises TableNotFound: a table is missing
    """
    pair = work.pair
    by_name = [is_name(target) for target in (pair.original_target, pair.shadow_target)]
    if not any(by_name):
        return Located(
            replace(
                pair,
                original_target=canonical_uri(pair.original_target),
                shadow_target=canonical_uri(pair.shadow_target),
            )
        )
    if not all(by_name):
        raise InvalidConfiguration(
            f"Of the targets {pair.original_target} and {pair.shadow_target}, only one is a catalog name.",
            remedy="give both by catalog name, or both by location.",
        )
    names = Names(pair.original_target.strip(), pair.shadow_target.strip())
    rows = work.ran(ExchangeSpec(run_id=work.run_id, names=names)).tables
    tables = {row["table_id"]: canonical_uri(row["location"]) for row in rows}
    of_shadow = [one for one in tables if run_sync(_is_of(tables[one], pair.shadow, work.storage_options))]
    if len(of_shadow) > 1:
        of_shadow = run_sync(
            _newest_shadow(pair, {one: tables[one] for one in of_shadow}, work.storage_options)
        )
    if len(tables) == len(of_shadow) == 1:
        # A crash left both names with the shadow's table. Its log has the location of the other one.
        tables |= run_sync(_compared_with(pair, tables[of_shadow[0]], work.storage_options))
    others = [one for one in tables if one not in of_shadow]
    if len(of_shadow) != 1 or len(others) != 1:
        raise TableNotFound(
            f"Of the names {', '.join(names.all)}, {len(of_shadow)} are of a table that {pair.shadow} fills, "
            f"and {len(others)} of another one.",
            remedy=f"run {pair.original} and {pair.shadow}, so that each fills its own target.",
        )
    (new,), (old,) = of_shadow, others
    return Located(
        replace(pair, original_target=tables[old], shadow_target=tables[new]),
        names,
        {row["table"]: row["table_id"] for row in rows},
    )


async def _compared_with(
    pair: Pair, shadow_target: str, storage_options: dict[str, str] | None
) -> dict[str, str]:
    """Return the table that the shadow was last compared with: its id and its location."""
    log = DeltaLog(shadow_target, storage_options)
    found = await planning.comparisons(log, pair, pair.shadow, 1)
    known = [one for one in found if one.original_table is not None and one.original_uri]
    return {
        one.original_table.table_id: canonical_uri(one.original_uri) for one in known if one.original_table
    }


async def _newest_shadow(
    pair: Pair, tables: Mapping[str, str], storage_options: dict[str, str] | None
) -> list[str]:
    """Return the tables that a shadow fills, without the one that its original took over before.

    The newest shadow was compared with the table of the original. Before its first comparison, its pipeline
    has not ended.

    :param tables: location of each table in which the shadow's pipeline committed
    """
    compared = [
        one
        for one, location in tables.items()
        if tables.keys() & (await _compared_with(pair, location, storage_options)).keys() - {one}
    ]
    return compared or [
        one for one, location in tables.items() if not await _has_ended(pair, location, storage_options)
    ]


async def _has_ended(pair: Pair, location: str, storage_options: dict[str, str] | None) -> bool:
    """Return whether the original took over a table of its shadow."""
    try:
        target = await planning.target_of(location, pair.shadow, storage_options, closed=True)
    except DeltaCdcError:
        # Of a seal that is too old to be in the log.
        return await _is_of(location, pair.original, storage_options)
    return target.seal.successor == pair.original


async def _is_of(location: str, pipeline: str, storage_options: dict[str, str] | None) -> bool:
    return await DeltaLog(location, storage_options).transaction(app_id(pipeline)) is not None


# -- compare ----------------------------------------------------------------------------------------
def compare(work: Work, *, whole: bool) -> Comparison:
    """Compare a pair, and record the result in the shadow's target.

    :param whole: compare all rows, not a sample
    :raises DeltaCdcError: a table cannot be read, or its log does not prove a watermark
    """
    planned = run_sync(
        planning.plan_comparison(
            located(work).pair,
            run_id=work.run_id,
            whole=whole,
            again=True,
            single_driver=work.single_driver,
            storage_options=work.storage_options,
        )
    )
    if isinstance(planned, Comparison):
        return planned
    (row,) = work.ran(planned).tables
    return codec.decoded(Comparison, row)


# -- promote ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Report:
    """What a promotion did, or would do.

    :param refused: why it must not be done now, a sentence each
    :param lines: what was done, would be done, or is already done, one text each
    """

    refused: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


def promote(work: Work, *, runs: int = RUNS, dry_run: bool = True) -> Report:
    """Let the original pipeline go on in the shadow's target, under the original's name.

    :param runs: number of newest comparisons that must agree
    :param dry_run: only report
    :raises PromotionRefused: not a dry run, and the shadow must not be promoted now
    :raises ConcurrentModification: a run of one of the pipelines committed meanwhile
    :raises DeltaCdcError: a log does not prove a watermark, or the catalog refuses a statement
    """
    found = located(work)
    pair, lines = found.pair, []
    ends = run_sync(_closing_seal(pair, work.storage_options))
    if ends is not None and run_sync(_goes_on(pair, work.storage_options)):
        lines.append(f"{pair.original} has taken over {pair.shadow_target} at watermark {ends.watermark}.")
    else:
        standing = None
        if ends is None:
            standing = run_sync(planning.standing(pair, work.storage_options))
            refused = tuple(refusals(pair, standing, runs))
            if refused and not dry_run:
                raise PromotionRefused(
                    f"{pair.shadow} must not replace {pair.original} now. {' '.join(refused)}",
                    remedy="run both pipelines, and look at all differences: delta-cdc shadow compare --all.",
                )
            if dry_run:
                return Report(refused, tuple(_would_do(found, standing)))
        elif dry_run:
            return Report((), (f"{pair.original} would finish to take over {pair.shadow_target}.",))
        lines.append(_take_over(work, pair, standing))
    return Report((), (*lines, *_exchanged(work, found, dry_run=dry_run)))


async def _closing_seal(pair: Pair, storage_options: dict[str, str] | None) -> Seal | None:
    """Return the seal that ended the shadow's pipeline in favour of the original; None without one."""
    target = await planning.target_of(pair.shadow_target, pair.shadow, storage_options, closed=True)
    return target.seal if target.seal.successor == pair.original else None


async def _goes_on(pair: Pair, storage_options: dict[str, str] | None) -> bool:
    """Return whether the original pipeline has a seal in the shadow's target."""
    return await _is_of(pair.shadow_target, pair.original, storage_options)


def _would_do(found: Located, standing: Standing) -> list[str]:
    pair = found.pair
    lines = []
    if standing.comparisons:
        agreement = Agreement.of(standing.comparisons)
        lines += [f"{pair.shadow}, shadow {agreement}", *agreement.newest.details()]
    lines.append(
        f"{pair.original} would take over {pair.shadow_target} from {pair.shadow} at watermark "
        f"{standing.shadow_at}, and leave {pair.original_target} as it is."
    )
    if found.names is not None:
        lines.append(f"{found.names.original} and {found.names.shadow} would exchange their tables.")
    return lines


def _take_over(work: Work, pair: Pair, standing: Standing | None) -> str:
    """Commit the seals of the take-over, on exactly the versions that were checked.

    :param standing: what was checked; None to finish a take-over
    """
    spec, seal = run_sync(_takeover_spec(work, pair, standing))
    result = work.ran(spec)
    if result.status != "committed":
        raise _raced(pair, result.message)
    return f"{pair.original} took over {pair.shadow_target} from {pair.shadow} at watermark {seal.watermark}."


async def _takeover_spec(work: Work, pair: Pair, standing: Standing | None) -> tuple[ApplySpec, Seal]:
    options = work.storage_options
    target: Target = await planning.target_of(pair.shadow_target, pair.shadow, options, closed=True)
    seal = target.seal
    request = ApplyRequest(
        pipeline=pair.original,
        source=seal.source_uri,
        target=pair.shadow_target,
        options=options_of(seal),
        take_over_from=pair.shadow,
        ending_version=seal.watermark.version,
        run_id=work.run_id,
        single_driver=work.single_driver,
        storage_options=options,
    )
    plan = await plan_apply_async(request)
    if not isinstance(plan.spec, ApplySpec) or any(step.kind != "take_over" for step in plan.spec.steps):
        raise _raced(pair, "the plan of the take-over has rows")
    if standing is not None:
        planned_on = plan.spec.steps[0].planned_on
        now = await DeltaLog(pair.original_target, options).newest_version()
        if planned_on is None or planned_on.version != standing.shadow_table.version:
            raise _raced(pair, f"{pair.shadow_target} has a newer version")
        if now != standing.original_table.version:
            raise _raced(pair, f"{pair.original_target} has version {now}")
    return plan.spec, seal


def _raced(pair: Pair, what: str) -> ConcurrentModification:
    return ConcurrentModification(
        f"{pair.shadow} was not promoted: a run of it or of {pair.original} committed meanwhile ({what}).",
        remedy="wait until no run is in flight, and run promote again.",
    )


def _exchanged(work: Work, found: Located, *, dry_run: bool) -> list[str]:
    """Exchange the names; return what was done."""
    names = found.names
    if names is None or found.at is None:
        return []
    ids = run_sync(_ids(found.pair, work.storage_options))
    is_done = next_move(names, found.at, *ids, repoints=True) is None
    if dry_run and not is_done:
        return [f"{names.original} and {names.shadow} would exchange their tables."]
    if not dry_run:
        # If the names are exchanged, the tables may still record the old ones.
        work.ran(
            ExchangeSpec(
                run_id=work.run_id,
                names=names,
                original_id=ids[0],
                original_uri=spark_uri(found.pair.original_target),
                shadow_id=ids[1],
                shadow_uri=spark_uri(found.pair.shadow_target),
            )
        )
    return [f"{names.original} is the shadow's table, and {names.shadow} the original's."]


async def _ids(pair: Pair, storage_options: dict[str, str] | None) -> tuple[str, str]:
    states: list[Any] = [
        await DeltaLog(target, storage_options).snapshot()
        for target in (pair.original_target, pair.shadow_target)
    ]
    return states[0].table_id, states[1].table_id
