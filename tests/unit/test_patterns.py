"""No regular expression of the two packages takes longer than in proportion to its text.

The patterns come from the source text, so that a new one is tested without a change here. The texts come from
the pattern itself: each part that it can repeat, and each beginning of it, 10,000 times (long ones up to
60,000 characters).
"""

from __future__ import annotations

import ast
import importlib
import re
import re._compiler as sre
import re._parser as parser
import signal
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import airflow_delta_cdc
import delta_cdc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

#: Patterns that depend on values of a run: the module and the argument's text, and such patterns.
BUILT: dict[tuple[str, str], tuple[str, ...]] = {
    ("delta_cdc.spark.changes.manifests", "marks"): ("[CDI]", "C", "[DI]"),
    ("delta_cdc.ingest.records.csv_times", "expression"): (
        r"(?P<year>\d{4})\-(?P<month>\d{2})T(?P<second>\d{2})\.(?P<fraction>\d{1,6})(?P<offset>Z|[+-]\d{4})",
        r"(?P<day>\d{1,2})\ (?P<name>jan|feb|mar|apr|may)\ (?P<half>\d{1,2})\ (?P<noon>AM|PM)",
    ),
}
TIMES, LENGTH = 10_000, 60_000
#: Seconds of CPU time that stop a search in one text. In proportion to the text, it takes some 0.01 s.
GUARD = 1.0
#: Characters that a pattern may ask for, by class; the first ones belong to the most classes.
ALPHABET = " a0-\n.'\"`,:/\\(){}[]<>=*?^$%_+@;#&!|~\t\rZé\x00"


class Use(NamedTuple):
    module: str
    pattern: str
    flags: int
    methods: tuple[str, ...]


def _uses() -> Iterator[Use]:
    for package in (airflow_delta_cdc, delta_cdc):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            text = path.read_text()
            assert "from re import" not in text
            if not re.search(r"\bre\.", text):
                continue
            name = ".".join((root.name, *path.relative_to(root).with_suffix("").parts))
            yield from _of_module(name, ast.parse(text))


def _of_module(module: str, tree: ast.Module) -> Iterator[Use]:
    nodes = list(ast.walk(tree))
    for call in nodes:
        if not isinstance(call, ast.Call):
            continue
        function = call.func
        if not (isinstance(function, ast.Attribute) and _is_re(function.value)):
            continue
        if function.attr in ("escape", "purge"):
            continue
        methods = _methods(nodes, call) if function.attr == "compile" else {function.attr}
        given = (
            [*call.args[1:], *(word.value for word in call.keywords)] if function.attr == "compile" else []
        )
        given += [word.value for word in call.keywords if word.arg == "flags"]
        flags = 0
        for flag in given:
            flags |= int(eval(ast.unparse(flag), {"re": re}))
        for pattern in _values(module, call.args[0]):
            yield Use(module, pattern, flags, tuple(sorted(methods)))


def _is_re(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "re"


def _methods(nodes: list[ast.AST], compiled: ast.Call) -> set[str]:
    """Return the methods by which the module uses a pattern that it compiles."""
    names = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and node.value is compiled
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    used = {
        call.func.attr
        for call in nodes
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in names
    }
    return used or {"search", "fullmatch"}


def _values(module: str, node: ast.expr) -> tuple[str, ...]:
    """Return the patterns that an argument stands for; ``x`` for each part of a run."""
    built = BUILT.get((module, ast.unparse(node)))
    if built is not None:
        return built
    scope = {} if isinstance(node, ast.Constant) else vars(importlib.import_module(module))
    try:
        if isinstance(node, ast.JoinedStr):
            return ("".join(_part(part, scope) for part in node.values),)
        return (str(eval(ast.unparse(node), dict(scope))),)
    except NameError:
        raise AssertionError(f"{module}: add the patterns of {ast.unparse(node)} to BUILT") from None


def _part(node: ast.expr, scope: dict[str, Any]) -> str:
    text = ast.unparse(ast.JoinedStr([node]))
    try:
        return str(eval(text, dict(scope)))
    except NameError:
        return "x"


# -- texts --------------------------------------------------------------------------------------
def _texts(use: Use) -> Iterator[str]:
    tree = parser.parse(use.pattern, use.flags)
    whole = next(_samples(list(tree), tree), "") or "x"
    for before, unit in dict.fromkeys((*_repeated(list(tree), "", tree), ("", whole))):
        text = before + unit * min(TIMES, LENGTH // len(unit))
        yield from (text, text + "\x00")


def _repeated(nodes: list[Any], before: str, tree: Any) -> Iterator[tuple[str, str]]:
    """Yield each text that a part of a pattern can repeat, after a text that leads to the part."""
    for node in nodes:
        kind, value = node
        for inner in _bodies(kind, value):
            yield from _repeated(list(inner), before, tree)
        if "REPEAT" in str(kind):
            for unit in _some(list(value[2]), tree):
                yield before, unit
                yield before + unit, before + unit
        before += next(_samples([node], tree), "")
        if before and str(kind) != "LITERAL":
            yield before, before


def _bodies(kind: Any, value: Any) -> list[Any]:
    match str(kind):
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return [value[2]]
        case "SUBPATTERN":
            return [value[3]]
        case "ATOMIC_GROUP":
            return [value]
        case "BRANCH":
            return list(value[1])
        case "ASSERT" | "ASSERT_NOT":
            return [value[1]]
        case _:
            return []


def _some(nodes: list[Any], tree: Any) -> list[str]:
    return [text for text in dict.fromkeys(islice(_samples(nodes, tree), 4)) if text]


def _samples(nodes: list[Any], tree: Any) -> Iterator[str]:
    """Yield texts that nodes of a pattern match, apart from what they look ahead or back for."""
    for parts in product(*[_of_node(node, tree) for node in nodes]):
        yield "".join(parts)


def _of_node(node: Any, tree: Any) -> list[str]:
    kind, value = node
    match str(kind):
        case "LITERAL" | "NOT_LITERAL" | "IN" | "ANY" | "CATEGORY":
            return _characters(node, tree)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least = max(value[0], min(1, value[1]))
            return [text * least for text in _some(list(value[2]), tree)]
        case "SUBPATTERN" | "ATOMIC_GROUP" | "BRANCH":
            return [text for body in _bodies(kind, value) for text in _some(list(body), tree)] or [""]
        case _:
            return [""]


def _characters(node: Any, tree: Any) -> list[str]:
    if str(node[0]) == "LITERAL":
        return [chr(node[1])]
    one = sre.compile(parser.SubPattern(tree.state, [node]), tree.state.flags & ~re.VERBOSE)
    return [character for character in ALPHABET if one.fullmatch(character)][:3]


USES = list(_uses())


def _work(use: Use, texts: Iterable[str]) -> None:
    pattern = re.compile(use.pattern, use.flags)
    for text in texts:
        signal.setitimer(signal.ITIMER_VIRTUAL, GUARD)
        for method in use.methods:
            if method in ("match", "search", "fullmatch"):
                getattr(pattern, method)(text)
            else:
                all(pattern.finditer(text))


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise AssertionError("The work of this pattern is not in proportion to its text.")


@pytest.mark.parametrize("use", USES, ids=[f"{use.module}-{at}" for at, use in enumerate(USES)])
def test_a_pattern_and_texts_made_for_it(use: Use) -> None:
    before = signal.signal(signal.SIGVTALRM, _stop)
    try:
        _work(use, _texts(use))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
