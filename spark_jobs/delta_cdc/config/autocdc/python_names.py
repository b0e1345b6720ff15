"""The names of a Python module, without running it: what its imports and its constants stand for."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

from delta_cdc.config.findings import Place
from delta_cdc.config.tree import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The modules that define pipelines, and those of SQL functions.
_PIPELINES = ("dlt", "pyspark.pipelines", "databricks.pipelines")
_FUNCTIONS = ("pyspark.sql.functions", "pyspark.sql.connect.functions")
PIPELINES, FUNCTIONS = "pipelines", "functions"
#: Methods that change no value.
_READING = frozenset(
    ("get", "items", "keys", "values", "format", "join", "lower", "replace", "split", "strip", "upper")
)
#: Methods that change a list, a mapping or a set.
_CHANGING = frozenset(
    [
        *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse"),
        *("setdefault", "sort", "update"),
    ]
)
_DISPLAYS = (ast.List, ast.Dict, ast.Set)
#: Longest piece of code in a message.
_SHOWN = 60


class Source:
    """A file of Python.

    :param text: its content
    :param name: its name in messages
    """

    def __init__(self, text: str, name: str) -> None:
        self._lines = text.splitlines()
        self.name = name

    def place(self, node: ast.AST) -> Place:
        """Return the place of a part; its column counts characters, where the parser counts bytes."""
        line, start = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        before = self._lines[line - 1].encode()[:start] if line <= len(self._lines) else b""
        return Place(self.name, line, len(before.decode(errors="replace")) + 1)

    def refused(self, node: ast.AST, message: str, remedy: str) -> Refused:
        """Return the error for a part of the code."""
        return Refused(self.place(node), message, remedy)


def shown(node: ast.AST) -> str:
    """Return a part of the code for a message, in one line."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class Names:
    """What the names of a module stand for.

    :param tree: the module
    """

    def __init__(self, tree: ast.Module) -> None:
        #: Local name -> dotted name of the module, or of its part.
        self._imports: dict[str, str] = {}
        self._stars: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._imports[alias.asname or alias.name] = alias.name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    if alias.name == "*":
                        self._stars.append(node.module)
                    else:
                        self._imports[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        self._bound = Counter(bound(tree))
        self.constants = _constants(tree, self._bound)

    def is_bound_once(self, name: str) -> bool:
        """Return whether the module gives a name one value only."""
        return self._bound[name] == 1

    @property
    def defines_pipelines(self) -> bool:
        """Return whether the module imports one of the modules that define pipelines."""
        found = (*self._imports.values(), *self._stars)
        return any(text == one or text.startswith(f"{one}.") for text in found for one in _PIPELINES)

    def called(self, node: ast.AST) -> tuple[str, str]:
        """Return the module and the name of a function, as ``("pipelines", "table")``; else two empty texts.

        :param node: an expression, such as ``dp.table``
        """
        dotted = _dotted(node)
        for candidate in self._candidates(dotted):
            for kind, modules in ((PIPELINES, _PIPELINES), (FUNCTIONS, _FUNCTIONS)):
                home, _, name = candidate.rpartition(".")
                if any(home == one or home.startswith(f"{one}.") for one in modules):
                    return kind, name
        return "", ""

    def _candidates(self, dotted: str) -> Iterator[str]:
        """Yield the full names that a dotted name may have."""
        if not dotted:
            return
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            head = ".".join(parts[:end])
            if head in self._imports:
                yield ".".join([self._imports[head], *parts[end:]])
                return
        if len(parts) == 1 and dotted not in self._bound:
            yield from (f"{module}.{dotted}" for module in self._stars)


def _dotted(node: ast.AST) -> str:
    """Return the text of a name such as ``a.b.c``; "" for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _constants(tree: ast.Module, times: Counter[str]) -> dict[str, ast.expr]:
    """Return the names of the module that have one value, which nothing changes, with its expression."""
    in_place, is_lost = set(changed(tree)), _changes_aliases(tree)
    values: dict[str, ast.expr] = {}
    for statement in tree.body:
        target: ast.expr | None = None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target = statement.target
        if isinstance(target, ast.Name) and times[target.id] == 1 and target.id not in in_place:
            value: ast.expr = statement.value  # type: ignore[attr-defined]
            if not (is_lost and any(isinstance(one, _DISPLAYS) for one in ast.walk(value))):
                values[target.id] = value
    return values


def bound(tree: ast.AST) -> Iterator[str]:
    """Yield each name as often as a part of the code binds it, outside of functions and classes."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            yield from (name for one in ast.walk(node) if isinstance(one, ast.Global) for name in one.names)
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        waiting.extend(ast.iter_child_nodes(node))


def changed(tree: ast.AST) -> Iterator[str]:
    """Yield the names whose values the code may change in place, such as ``KEYS.append(…)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in _READING:
                yield from _root(node.func.value)
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield from _root(node.value)


def _root(node: ast.expr) -> Iterator[str]:
    """Yield the name of which an expression is a part, such as ``a`` of ``a["b"][0]``."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _changes_aliases(tree: ast.Module) -> bool:
    """Return whether the code changes a list or mapping in place that may have another name, too.

    It does so by a parameter, the variable of a loop, or a part of a value. Then no list is a constant.
    """
    functions = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    new = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_new(node.value, functions)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    others = {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.For | ast.comprehension):
            parts = [node.target]
        elif isinstance(node, ast.withitem):
            parts = [node.optional_vars]
        elif isinstance(node, ast.Assign | ast.NamedExpr) and not _is_new(node.value, functions):
            parts = [*(node.targets if isinstance(node, ast.Assign) else [node.target])]
        others |= {one.id for part in parts if part for one in ast.walk(part) if isinstance(one, ast.Name)}
    return any(
        name not in imported and (not is_direct or name in others or name not in new)
        for name, is_direct in _in_place(tree)
    )


def _is_new(value: ast.expr, functions: set[str]) -> bool:
    """Return whether an expression gives a value that nothing else holds."""
    if isinstance(value, ast.Call):
        return not (isinstance(value.func, ast.Name) and value.func.id in functions)
    return isinstance(
        value, (*_DISPLAYS, ast.Constant, ast.JoinedStr, ast.ListComp, ast.DictComp, ast.SetComp)
    )


def _in_place(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield the name of each value that the code changes in place; False: it changes a part of that value."""
    for node in ast.walk(tree):
        part: ast.expr | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            part = node.func.value if node.func.attr in _CHANGING else None
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            part = node.value
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            part = node.target
        if part is not None:
            yield from ((name, isinstance(part, ast.Name)) for name in _root(part))
