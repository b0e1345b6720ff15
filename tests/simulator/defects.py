"""Planted defects: each breaks one rule of the planner, the loop, the seal or the outbox.

The simulator must find each one within the number of schedules that stands with it.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulator import memo
from tests.simulator.plots import plotted
from tests.simulator.schedules import Failure, drawn, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

F = TypeVar("F")


@dataclass(frozen=True)
class Defect:
    """One broken rule.

    :param rule: what the code does without the defect
    :param module: below ``delta_cdc``, or a module of the provider
    :param find: text of the module, which occurs once
    :param within: how many schedules, from seed 0 on, find it at the latest
    :param plot: the family of these schedules; "" for those of the defect's world
    """

    rule: str
    module: str
    find: str
    replace: str
    within: int
    plot: str = ""


DEFECTS = (
    Defect(
        "The newest seal is announced, if no event has its number.",
        "run.outbox",
        "    if last is not None and seal.number <= last:",
        "    if last is not None and seal.number <= last + 1:",
        65,
    ),
    Defect(
        "The commits of every kind that moves rows are announced.",
        "run.outbox",
        "    return seal.step.kind in _MOVING[table] and",
        '    return seal.step.kind == "load" and',
        2,
    ),
    Defect(
        "Files that VACUUM deleted are looked for before a job starts.",
        "planning.preconditions",
        "        if not is_there:",
        "        if False:",
        87,
    ),
    Defect(
        "The events of a replaced target leave out the commits before.",
        "planning.reconcile",
        "            if table_id_of(seal, commit) not in (None, state.table_id):",
        "            if False:",
        46,
    ),
    Defect(
        "A commit has the transaction of its pipeline.",
        "spark.sealed.commit",
        "confs = {_TXN_APP: app, _TXN_VERSION: str(number), _USER_METADATA: text}",
        "confs = {_USER_METADATA: text}",
        2,
    ),
    Defect(
        "The seal has the watermark of its step.",
        "spark.apply.engine",
        "            applied_to=step.watermark,\n            highest",
        "            applied_to=before.applied_to,\n            highest",
        2,
    ),
    Defect(
        "The watermark names the commit that ends the range.",
        "planning.ranges",
        "    return TableVersion(source.table_id, commit.version, commit.sha256)",
        "    return TableVersion(source.table_id, commit.version, source.table_id)",
        1,
    ),
    Defect(
        "The range begins after the watermark.",
        "planning.ranges",
        "        watermark + 1,\n        ending,",
        "        min(watermark + 2, ending),\n        ending,",
        3,
    ),
    Defect(
        "The range does not begin before the watermark's successor.",
        "planning.ranges",
        "        watermark + 1,\n        ending,",
        "        watermark,\n        ending,",
        2,
    ),
    Defect(
        "The watermark of a step is its last version.",
        "planning.ranges",
        "applied_to=ended(chosen.at_end, last),",
        "applied_to=ended(chosen.at_end, commits[0]),",
        3,
    ),
    Defect(
        "A source that is another table is refused.",
        "planning.preconditions",
        "    if same_id and (same_commit or cleaned):",
        "    if True:",
        10,
    ),
    Defect(
        "A RESTORE of the target takes the watermark back.",
        "planning.reconcile",
        "    back = Back(history, state.version, restored=partial(restored_to, log))\n"
        "    async for commit in back:\n        walk.seal",
        "    back = Back(history, state.version)\n    async for commit in back:\n        walk.seal",
        54,
    ),
    Defect(
        "A target that was overwritten is refused.",
        "planning.reconcile",
        "        elif walk.replaced is None and replaces(commit):",
        "        elif False:",
        6,
    ),
    Defect(
        "Each seal has the next number.",
        "planning.reconcile",
        "        next_number=number + 1,\n        target=state,\n        notes=tuple(walk.notes),",
        "        next_number=number + 2,\n        target=state,\n        notes=tuple(walk.notes),",
        2,
    ),
    Defect(
        "A RESTORE does not take the numbers of seals back.",
        "planning.reconcile",
        "    number = seal.number if stored is None else stored\n",
        "    number = seal.number\n",
        54,
    ),
    Defect(
        "Rows of another pipeline are refused.",
        "planning.reconcile",
        "    if not empty and not",
        "    if False and not",
        3,
    ),
    Defect(
        "A commit file that was overwritten is found.",
        "planning.seal_chain",
        "    if planned is None or planned.commit_hash in (None, before.sha256):",
        "    if before.sha256:",
        55,
    ),
    Defect(
        "What was not announced is announced by the next run.",
        "run.outbox",
        "    return tuple(pair for pair in found if is_announced(table, pair[0]))",
        "    return ()",
        17,
    ),
    Defect(
        "Every commit that was not announced is announced.",
        "run.outbox",
        "    return tuple(pair for pair in found if is_announced(table, pair[0]))",
        "    return tuple(pair for pair in found if is_announced(table, pair[0]))[-1:]",
        45,
    ),
    Defect(
        "The commits after the announced seal begin with its successor.",
        "planning.reconcile",
        "            if number is not None and seal.number <= number:",
        "            if number is not None and seal.number <= number + 1:",
        45,
    ),
    Defect(
        "A result covers all commits of its work.",
        "run.apply",
        '        return merged(await unannounced(self.log, "target", recorded, self.services.announced), '
        "ours)",
        "        return ours",
        17,
    ),
    Defect(
        "The published range covers all its commits.",
        "run.apply",
        "    return VersionRange(min(starting), max(",
        "    return VersionRange(max(starting), max(",
        25,
    ),
    Defect(
        "Each step of a job is planned on the commit before.",
        "spark.sealed.steps",
        "            planned = TableVersion(planned.table_id, version, own_hash)",
        "            planned = TableVersion(planned.table_id, version - 1, own_hash)",
        47,
    ),
    Defect(
        "A reset replaces all rows.",
        "planning.apply",
        '    reset = replace(load, kind="reset")',
        "    reset = load",
        3,
    ),
    Defect(
        "A failed request is no missing file.",
        "delta_log.requests",
        "        return self._unavailable(error)\n\n    def _unavailable",
        "        return FileNotFoundError(self.uri)\n\n    def _unavailable",
        5,
    ),
    Defect(
        "A transaction that a checkpoint has is found.",
        "delta_log.replay",
        "            self._keep_newest(await read_state(self._storage, base))",
        "            self._keep_newest((await read_state(self._storage, base))[:2])",
        10,
    ),
    Defect(
        "A pipeline whose target was taken over has ended.",
        "planning.observe",
        "    if seal.successor is None:\n        closing",
        "    if False:\n        closing",
        47,
    ),
    Defect(
        "A take-over begins with the watermark of the pipeline before.",
        "planning.observe",
        "        applied_to=seal.watermark,\n        seal_number=seal.number,",
        "        applied_to=observed.recorded.seal.watermark if observed.recorded and observed.recorded.seal"
        " else replace(seal.watermark, version=0),\n        seal_number=seal.number,",
        47,
    ),
    Defect(
        "A job that failed is published only if the log has its commit.",
        "run.loop",
        "        if not own.complete:\n            raise error",
        "        if not own.complete and False:\n            raise error",
        125,
    ),
    Defect(
        "A RESTORE between planning and commit is found by the job.",
        "spark.sealed.commit",
        "        undoes_commits = is_restore(operation) or replaces_all_rows",
        "        undoes_commits = False and replaces_all_rows",
        462,
    ),
    Defect(
        "The steps of one job follow each other.",
        "spark.sealed.steps",
        "planned_on=planned, before=seal.state if step.before is None else step.before)",
        "planned_on=step.planned_on, before=seal.state if step.before is None else step.before)",
        47,
    ),
    Defect(
        "One table's failure does not stop the others of its group.",
        "run.detect_changes",
        '        return DetectedChanges(pipeline=pipeline, found=f"{type(error).__name__}: {error}", '
        "error=error)",
        "        raise",
        6,
    ),
    Defect(
        "A commit that no event announced is work of the group.",
        "run.detect_changes",
        "    if not commits:\n        return replace(detected, announced=numbers)",
        "    if commits is not None:\n        return replace(detected, announced=numbers)",
        368,
    ),
    Defect(
        "A publish is announced if the newest event of the group lacks a seal.",
        "airflow_delta_cdc.groups.publish",
        "                changed = changed or (known is not None and seals != known.get(pipeline, {}))",
        "                pass",
        12,
    ),
    Defect(
        "The event of a group has the seals that the detection found announced.",
        "airflow_delta_cdc.groups.publish",
        "    seals = {**known.get(pipeline, {}), **summary.announced}",
        "    seals = {**known.get(pipeline, {})}",
        3,
    ),
    Defect(
        "A publish names a watermark with the version that has it.",
        "airflow_delta_cdc.groups.publish",
        '            versions = engine.versions_of(table["pipeline"], location, self.options_of_storage())\n',
        '            versions = engine.versions_of(table["pipeline"], location, self.options_of_storage())\n'
        "            versions = versions and (versions[0], summary.version, *versions[2:])\n",
        3,
    ),
    Defect(
        "The published watermark is that of the seal.",
        "run.apply",
        "            watermark=seal.watermark if seal is not None else None,",
        "            watermark=None,",
        1,
    ),
    Defect(
        "The published seal is the newest one.",
        "run.apply",
        "            seal=seal.number if seal is not None else None,",
        "            seal=seal.number - 1 if seal is not None else None,",
        1,
    ),
    Defect(
        "The counts of several commits are added.",
        "run.outcomes",
        "            together[name] = together.get(name, 0) + count",
        "            together[name] = count",
        45,
    ),
    Defect(
        "The watermark of a load is the version that it loaded.",
        "planning.ranges",
        "        applied_to=ended(at, commit),",
        "        applied_to=TableVersion(at.table_id, max(version - 1, 0), commit.sha256),",
        6,
    ),
    Defect(
        "No part of a range is left out.",
        "planning.ranges",
        "            parts.append(part)\n            part, counted, taken = [], 0, 0",
        "            parts = [part]\n            part, counted, taken = [], 0, 0",
        174,
    ),
    Defect(
        "A job reads the source that was planned for.",
        "spark.sealed.steps",
        "problem = changed_source or changed_table.result()",
        "problem = changed_table.result()",
        1,
        "source put back while a job runs",
    ),
    Defect(
        "A change of the target between planning and commit is found.",
        "planning.reconcile",
        "    cleaned = await _refuse_underneath(history, state, seal, commit)",
        "    cleaned = None",
        1,
        "target overwritten while a job runs",
    ),
    Defect(
        "A copy of the watermark is that of the newest seal.",
        "planning.reconcile",
        "        and (backup.seal.pipeline, backup.seal.number) == (pipeline, stored)",
        "        and backup.seal.pipeline == pipeline",
        1,
        "copy of a lost seal",
    ),
    Defect(
        "A copy of the watermark is refused if the commits after it were cleaned.",
        "planning.reconcile",
        "not walk.is_plain or walk.cleaned > backup.target.version:",
        "not walk.is_plain:",
        1,
        "restored, then cleaned",
    ),
    Defect(
        "The first seal of a take-over has a number after all that the pipeline has used.",
        "planning.observe",
        "    number = max(closing + 1, recorded.next_number)",
        "    number = closing + 1",
        1,
        "taken over twice",
    ),
    Defect(
        "A source with the same id and another history is refused.",
        "planning.preconditions",
        "    if same_id and (same_commit or cleaned):",
        "    if same_id:",
        1,
        "source put back",
    ),
    Defect(
        "A range whose first snapshot cannot be rebuilt is refused.",
        "planning.preconditions",
        "    if not await log.has_commit(0):\n        await log.snapshot(version)",
        "    pass",
        1,
        "source without a snapshot",
    ),
    Defect(
        "A source whose watermark was cleaned is refused.",
        "planning.preconditions",
        "    if identity.unproven:",
        "    if False:",
        1,
        "source put back, then cleaned",
    ),
    Defect(
        "A commit that a RESTORE undid is not published.",
        "run.apply",
        "        recorded = self._in_effect(proof if in_effect else None)",
        "        recorded = self._in_effect(proof)",
        1,
        "restored before it is published",
    ),
    Defect(
        "The watermark of a reload is the version that it compared.",
        "planning.modes",
        "        applied_to=load.watermark,",
        "        applied_to=load.watermark if seal is None or other_source else seal.watermark,",
        1,
        "reload",
    ),
    Defect(
        "A commit that was planned on a version which a put-back table has lost is refused.",
        "planning.reconcile",
        "    if planned.table_id == state.table_id and planned.version >= commit.version:",
        "    if False:",
        1,
        "target put back while a job runs",
    ),
    Defect(
        "The numbers of the seals of a table rise.",
        "planning.seal_chain",
        "        if number is not None and seal.number >= number:",
        "        if False:",
        2,
        "a number twice",
    ),
    Defect(
        "A seal whose commit is lost is found by its transaction.",
        "planning.reconcile",
        "    if walk.seal is None or walk.commit is None or walk.notes or walk.seal.number == stored:",
        "    if True:",
        1,
        "a seal overwritten",
    ),
    Defect(
        "A table that was put back from a copy announces its new seals.",
        "run.outbox",
        "    if last is not None and last >= recorded.next_number:",
        "    if False:",
        1,
        "numbers given again",
    ),
    Defect(
        "A manifest does not go back.",
        "core.publication",
        "        return not any(self.tables[name].is_older(earlier.tables[name]) for name in both)",
        "        return True",
        1,
        "a publish that was frozen",
    ),
    Defect(
        "A plan records the hash of the commit that it was made on.",
        "planning.reconcile",
        "    return replace(recorded, newest_hash=known_hash(history, state.version))",
        "    return replace(recorded, newest_hash=None)",
        1,
        "a commit overwritten",
    ),
)

#: What ``RECREATED`` shows, of a target and of a log; random schedules hardly meet it.
MADE_AGAIN = Defect(
    "A table that an append made again, planned on an earlier one, is refused.",
    "planning.reconcile",
    "    if planned.table_id != commit.metadata.id:\n        raise TargetRecreated",
    "    if False:\n        raise TargetRecreated",
    1,
)

#: Those that nothing can show, each with the reason.
UNFOUND = (
    # The next planner refuses such a commit, too: the job only spares the way out.
    Defect(
        "A target with newer commits than planned is looked at again before the commit.",
        "spark.sealed.commit",
        '    if found == "newest":\n        return None',
        '    if found != "other":\n        return None',
        0,
    ),
    # The hash of the planned version, or else the next planner's look for strays, refuses it, too.
    Defect(
        "A job does not commit into another table than planned.",
        "spark.sealed.commit",
        "    if now.table_id != planned_on.table_id:",
        "    if False:",
        0,
    ),
    # A later table has greater numbers, and an event with a number beyond the next one counts for nothing.
    Defect(
        "An event counts for the table that it names.",
        "airflow_delta_cdc.announced",
        "            if of_table == (uri, table_id) and isinstance(seal, int):",
        "            if isinstance(seal, int):",
        0,
    ),
)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _functions(namespace: dict[str, Any], module: str) -> Iterator[FunctionType]:
    for value in namespace.values():
        inner = value
        if isinstance(value, property):
            inner = value.fget
        elif isinstance(value, cached_property):
            inner = value.func
        inner = inspect.unwrap(getattr(inner, "__func__", inner)) if callable(inner) else inner
        if isinstance(inner, FunctionType) and inner.__module__ == module:
            yield inner
        elif isinstance(inner, type) and inner.__module__ == module:
            yield from _functions(dict(vars(inner)), module)


@contextmanager
def planted(defect: Defect) -> Iterator[None]:
    """Plant a defect into the loaded module while the ``with`` block runs."""
    of_provider = defect.module.startswith("airflow_delta_cdc.")
    module = import_module(defect.module if of_provider else f"delta_cdc.{defect.module}")
    memo.forgotten()
    source = inspect.getsource(module)
    if source.count(defect.find) != 1:
        raise LookupError(f"{defect.module} has {source.count(defect.find)} times: {defect.find}")
    mutated = compile(source.replace(defect.find, defect.replace), module.__file__ or "", "exec")
    sound = compile(source, module.__file__ or "", "exec")
    before = {code.co_qualname: code for code in _codes(sound)}
    changed = {
        code.co_qualname: code for code in _codes(mutated) if not _same(code, before[code.co_qualname])
    }
    replaced = []
    for function in _functions(vars(module), module.__name__):
        code = changed.get(function.__code__.co_qualname)
        if code is not None:
            replaced.append((function, function.__code__))
            function.__code__ = code
    assert replaced, f"no function of {defect.module} changed"
    try:
        yield
    finally:
        for function, code in replaced:
            function.__code__ = code
        memo.forgotten()


def _same(one: CodeType, other: CodeType) -> bool:
    plain = one.co_code == other.co_code and one.co_names == other.co_names
    consts = [
        [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
        for code in (one, other)
    ]
    inner = [
        [constant for constant in code.co_consts if isinstance(constant, CodeType)] for code in (one, other)
    ]
    nested = len(inner[0]) == len(inner[1]) and all(map(_same, *inner))
    return plain and consts[0] == consts[1] and nested


def _played(defect: Defect, seed: int) -> Failure | None:
    return outcome(plotted(defect.plot, seed) if defect.plot else drawn(seed))


def found(
    defect: Defect,
    most: int | None = None,
    first: int = 0,
    played: Callable[[Defect, int], F | None] = _played,  # type: ignore[assignment]
) -> tuple[int, F] | None:
    """Return how many schedules it took to find a defect, and how it shows; None if it was not found.

    :param played: plays a schedule of the defect and a seed, and returns how it fails
    """
    with planted(defect):
        for count, seed in enumerate(range(first, first + (most or defect.within)), start=1):
            failure = played(defect, seed)
            if failure is not None:
                return count, failure
    return None
