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
from typing import TYPE_CHECKING, Any

from tests.simulator.schedules import Failure, drawn, outcome

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Defect:
    """One broken rule.

    :param rule: what the code does without the defect
    :param module: below ``delta_cdc``
    :param find: text of the module, which occurs once
    :param within: how many schedules, from seed 0 on, find it at the latest
    """

    rule: str
    module: str
    find: str
    replace: str
    within: int


DEFECTS = (
    Defect(
        "The newest seal is announced, if no event has its number.",
        "run.outbox",
        "    if last is not None and seal.number <= last:",
        "    if last is not None and seal.number <= last + 1:",
        30,
    ),
    Defect(
        "The commits of every kind that moves rows are announced.",
        "run.outbox",
        "    return seal.step.kind in _MOVING[table] and",
        '    return seal.step.kind == "load" and',
        30,
    ),
    Defect(
        "Files that VACUUM deleted are looked for before a job starts.",
        "planning.preconditions",
        "        if not is_there:",
        "        if False:",
        80,
    ),
    Defect(
        "The events of a replaced target leave out the commits before.",
        "planning.reconcile",
        "            if _table_id(seal, commit) not in (None, state.table_id):",
        "            if False:",
        40,
    ),
    Defect(
        "A commit has the transaction of its pipeline.",
        "spark.sealed.commit",
        "confs = {_TXN_APP: app, _TXN_VERSION: str(number), _USER_METADATA: text}",
        "confs = {_USER_METADATA: text}",
        30,
    ),
    Defect(
        "The seal has the watermark of its step.",
        "spark.apply.engine",
        "            applied_to=step.watermark,\n            highest",
        "            applied_to=before.applied_to,\n            highest",
        30,
    ),
    Defect(
        "A job reads the source that was planned for.",
        "spark.sealed.steps",
        "problem = changed_source or changed_table.result()",
        "problem = changed_table.result()",
        30,
    ),
    Defect(
        "The watermark names the commit that ends the range.",
        "planning.ranges",
        "    return TableVersion(source.table_id, commit.version, commit.sha256)",
        "    return TableVersion(source.table_id, commit.version, source.table_id)",
        30,
    ),
    Defect(
        "The range begins after the watermark.",
        "planning.ranges",
        "        watermark + 1,\n        ending,",
        "        min(watermark + 2, ending),\n        ending,",
        30,
    ),
    Defect(
        "The range does not begin before the watermark's successor.",
        "planning.ranges",
        "        watermark + 1,\n        ending,",
        "        watermark,\n        ending,",
        30,
    ),
    Defect(
        "The watermark of a step is its last version.",
        "planning.ranges",
        "applied_to=ended(chosen.at_end, last),",
        "applied_to=ended(chosen.at_end, commits[0]),",
        30,
    ),
    Defect(
        "A source that is another table is refused.",
        "planning.preconditions",
        "    if same_id and (same_commit or cleaned):",
        "    if True:",
        30,
    ),
    Defect(
        "A RESTORE of the target takes the watermark back.",
        "planning.reconcile",
        "    back = Back(history, state.version, restored=partial(restored_to, log))\n"
        "    async for commit in back:\n        walk.seal",
        "    back = Back(history, state.version)\n    async for commit in back:\n        walk.seal",
        30,
    ),
    Defect(
        "A target that was overwritten is refused.",
        "planning.reconcile",
        "        elif walk.replaced is None and replaces(commit):",
        "        elif False:",
        30,
    ),
    Defect(
        "A change of the target between planning and commit is found.",
        "planning.reconcile",
        "    await _refuse_underneath(history, state, seal, commit)",
        "    pass",
        500,
    ),
    Defect(
        "Each seal has the next number.",
        "planning.reconcile",
        "        next_number=number + 1,\n        target=state,\n        notes=tuple(walk.notes),",
        "        next_number=number + 2,\n        target=state,\n        notes=tuple(walk.notes),",
        30,
    ),
    Defect(
        "A RESTORE does not take the numbers of seals back.",
        "planning.reconcile",
        "    number = seal.number if stored is None else stored\n",
        "    number = seal.number\n",
        30,
    ),
    Defect(
        "Rows of another pipeline are refused.",
        "planning.reconcile",
        "    if not empty and not",
        "    if False and not",
        30,
    ),
    Defect(
        "A commit file that was overwritten is found.",
        "planning.seal_chain",
        "            if planned is not None and commit.sha256 != planned.commit_hash:",
        "            if False:",
        500,
    ),
    Defect(
        "What was not announced is announced by the next run.",
        "run.outbox",
        "    return tuple(pair for pair in found if is_announced(table, pair[0]))",
        "    return ()",
        30,
    ),
    Defect(
        "Every commit that was not announced is announced.",
        "run.outbox",
        "    return tuple(pair for pair in found if is_announced(table, pair[0]))",
        "    return tuple(pair for pair in found if is_announced(table, pair[0]))[-1:]",
        400,
    ),
    Defect(
        "The commits after the announced seal begin with its successor.",
        "planning.reconcile",
        "            if number is not None and seal.number <= number:",
        "            if number is not None and seal.number <= number + 1:",
        30,
    ),
    Defect(
        "A result covers all commits of its work.",
        "run.apply",
        '        return merged(await unannounced(self.log, "target", recorded, self.services.announced), '
        "ours)",
        "        return ours",
        30,
    ),
    Defect(
        "The published range covers all its commits.",
        "run.apply",
        "    return VersionRange(min(starting), max(",
        "    return VersionRange(max(starting), max(",
        30,
    ),
    Defect(
        "Each step of a job is planned on the commit before.",
        "spark.sealed.steps",
        "            planned = TableVersion(planned.table_id, version, own_hash)",
        "            planned = TableVersion(planned.table_id, version - 1, own_hash)",
        30,
    ),
    Defect(
        "A reset replaces all rows.",
        "planning.apply",
        '    reset = replace(load, kind="reset")',
        "    reset = load",
        30,
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
    module = import_module(f"delta_cdc.{defect.module}")
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


def found(defect: Defect, most: int | None = None, first: int = 0) -> tuple[int, Failure] | None:
    """Return how many schedules it took to find a defect, and how it shows; None if it was not found."""
    with planted(defect):
        for count, seed in enumerate(range(first, first + (most or defect.within)), start=1):
            failure = outcome(drawn(seed))
            if failure is not None:
                return count, failure
    return None
