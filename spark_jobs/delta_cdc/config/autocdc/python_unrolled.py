"""Loops, conditions and functions of a Python module, followed without running it.

A program with many tables often makes its flows in a loop over a list, or in a function that the loop calls.
Where the list and the arguments are literals, the module means the same as one with a statement for each
flow: these statements are the result. What cannot be followed is refused, or stays as it is.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delta_cdc.config.autocdc.python_folded import Folding, Unknown, defaults
from delta_cdc.config.autocdc.python_names import PIPELINES, bound, changed, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from delta_cdc.config.autocdc.python_names import Names, Source
    from delta_cdc.config.tree import Refused

#: Most statements, and the depth of calls. Only a mistake, or malice, needs more.
_MOST, _DEEPEST = 10_000, 20
_REMEDY = (
    "loop over a list or mapping of literals, and call functions of this file with literals; or write one "
    "call per flow."
)
#: Statements that end the ones around them.
_ENDS = (ast.Continue, ast.Break, ast.Return)


@dataclass
class _Scope:
    """The names of the module, or of one call of a function.

    :param values: the expressions that local names stand for
    :param loose: names that get several values: a function that is made here sees only the last ones
    :param depth: number of loops and calls around the statement; 0 is the level of the module
    :param returned: what the call returns
    """

    values: dict[str, ast.expr] = field(default_factory=dict)
    loose: set[str] = field(default_factory=set)
    depth: int = 0
    returned: ast.expr = field(default_factory=lambda: ast.Constant(None, lineno=1, col_offset=0))

    def forget(self, names: Iterable[str], line: int) -> None:
        """Make the values of names unknown, which a statement in a line binds."""
        for name in names:
            self.values[name] = ast.Name(f"{name} of line {line}", ast.Load(), lineno=line, col_offset=0)


@dataclass(frozen=True)
class Unrolled:
    """A module without the loops, conditions and calls that could be followed.

    :param module: copies of statements, with their places in the code
    :param late: a function of ``module``, by its ``id`` -> a name that it reads after a loop has changed it
    :param refused: why some flows cannot be followed
    """

    module: ast.Module
    late: dict[int, str]
    refused: list[Refused]


def unrolled(
    tree: ast.Module, source: Source, names: Names, makes_flows: Callable[[ast.AST], bool]
) -> Unrolled:
    """Follow the statements of a module.

    :param makes_flows: whether a name is a function for flows, or for their tables
    """
    return _Unrolling(tree, source, names, makes_flows).result()


class _Unrolling:
    def __init__(
        self, tree: ast.Module, source: Source, names: Names, makes_flows: Callable[[ast.AST], bool]
    ) -> None:
        self._tree, self._source, self._names, self._is_of_flows = tree, source, names, makes_flows
        self._fold = Folding(names)
        self._made: list[ast.stmt] = []
        self._late: dict[int, str] = {}
        self._called: set[str] = set()
        self._steps = 0
        #: The functions of the module that make datasets or flows, or call one that does.
        self._makers: dict[str, ast.FunctionDef] = {}
        plain = [one for one in tree.body if isinstance(one, ast.FunctionDef) and not one.decorator_list]
        while found := {
            one.name: one
            for one in plain
            if one.name not in self._makers and names.is_bound_once(one.name) and self._matters(one)
        }:
            self._makers |= found

    def result(self) -> Unrolled:
        refused = []
        scope = _Scope()
        for statement in self._tree.body:
            if isinstance(statement, ast.FunctionDef) and statement.name in self._makers:
                continue
            made, late, called = len(self._made), dict(self._late), set(self._called)
            try:
                self._statement(statement, scope)
            except Unknown as unknown:
                del self._made[made:]
                self._late, self._called, scope = late, called, _Scope()
                if self._makes_flows(statement):
                    refused.append(self._source.refused(unknown.node, f"{unknown}.", _REMEDY))
                    self._called |= self._makers.keys() & _names(statement)
                else:
                    self._made.append(statement)
        # The reader refuses a function that nothing calls, or that is used where it could not be followed.
        used = {name for made in self._made for name in _names(made)} | self._makers.keys() - self._called
        self._made += [one for name, one in self._makers.items() if name in used]
        return Unrolled(ast.Module(self._made, []), self._late, refused)

    # -- what matters -----------------------------------------------------------------------------
    def _matters(self, node: ast.AST) -> bool:
        """Return whether a part of the code makes datasets or flows, perhaps by a function."""
        return any(
            (isinstance(one, ast.Name) and one.id in self._makers)
            or (isinstance(one, ast.Attribute | ast.Name) and self._names.called(one)[0] == PIPELINES)
            for one in ast.walk(node)
        )

    def _makes_flows(self, node: ast.AST) -> bool:
        """Return whether a part of the code makes flows or their tables, perhaps by a function."""
        waiting, seen = [node], set[str]()
        while waiting:
            for one in ast.walk(waiting.pop()):
                if self._is_of_flows(one):
                    return True
                if isinstance(one, ast.Name) and one.id in self._makers and one.id not in seen:
                    seen.add(one.id)
                    waiting.append(self._makers[one.id])
        return False

    # -- statements -------------------------------------------------------------------------------
    def _body(self, statements: Sequence[ast.stmt], scope: _Scope) -> ast.stmt | None:
        """Follow statements; return the one that ended them early."""
        for statement in statements:
            end = self._statement(statement, scope)
            if end is not None:
                return end
        return None

    def _statement(self, node: ast.stmt, scope: _Scope) -> ast.stmt | None:
        self._steps += 1
        if self._steps > _MOST:
            raise Unknown(node, f"The code makes more than {_MOST:,} steps")
        if isinstance(node, ast.For) and self._matters(node):
            return self._loop(node, scope)
        if isinstance(node, ast.If) and (self._matters(node) or (scope.depth and _ends(node))):
            self._require_plain(node.test)
            taken = node.body if self._fold.truth(self._fold.inside(node.test, scope.values)) else node.orelse
            return self._body(taken, scope)
        if isinstance(node, ast.Expr) and self._is_call(node.value, scope):
            self._call(node.value, scope)
            return None
        if scope.depth and isinstance(node, _ENDS):
            if isinstance(node, ast.Return) and node.value is not None:
                scope.returned = self._returned(node.value, scope)
            return node
        self._take(node, scope)
        return None

    def _returned(self, value: ast.expr, scope: _Scope) -> ast.expr:
        """Follow the value of a return; return what it is."""
        if self._is_call(value, scope):
            return self._call(value, scope)
        folded: ast.expr = self._fold.inside(value, scope.values)
        if isinstance(value, ast.Call) and self._is_of_flows(value.func):
            self._made.append(ast.copy_location(ast.Expr(folded), value))
            return ast.copy_location(ast.Constant(None), value)
        self._require_plain(value)
        return folded

    def _require_plain(self, node: ast.expr) -> None:
        """Refuse an expression that makes datasets or flows where they cannot be followed.

        :raises Unknown: names it
        """
        if self._matters(node):
            raise Unknown(node, f"What {shown(node)} makes is not known")

    def _take(self, node: ast.stmt, scope: _Scope) -> None:
        """Take a statement that is not followed.

        :raises Unknown: it may end a body, or change a local value in place
        """
        if scope.depth and _ends(node):
            raise Unknown(node, f"Where {shown(node)} ends is not known")
        if set(changed(node)) & scope.values.keys():
            raise Unknown(node, f"{shown(node)} changes a value in place")
        if isinstance(node, ast.FunctionDef):
            self._function(node, scope)
        elif not (scope.depth and isinstance(node, ast.Assign) and self._assign(node, scope)):
            self._made.append(self._fold.inside(node, scope.values))
            if scope.depth:
                scope.forget(bound(node), node.lineno)

    def _assign(self, node: ast.Assign, scope: _Scope) -> bool:
        """Take the value of a local name; return False for other targets."""
        (target, *others) = node.targets
        if others or not isinstance(target, ast.Name):
            return False
        if self._is_call(node.value, scope):
            scope.values[target.id] = self._call(node.value, scope)
        else:
            made = self._fold.inside(node, scope.values)
            self._made.append(made)
            scope.values[target.id] = made.value
        return True

    def _loop(self, node: ast.For, scope: _Scope) -> ast.stmt | None:
        self._require_plain(node.iter)
        own = {name for part in (node.target, *node.body) for name in bound(part)}
        before = dict(scope.values)
        scope.loose |= own
        scope.depth += 1
        end: ast.stmt | None = None
        for item in self._fold.items(self._fold.inside(node.iter, scope.values)):
            scope.values |= self._fold.bound(node.target, item)
            end = self._body(node.body, scope)
            if isinstance(end, ast.Break | ast.Return):
                break
        scope.depth -= 1
        if not scope.depth:
            # At module level, a name that a loop binds is no constant.
            scope.values, scope.loose = before, set()
        if isinstance(end, ast.Return):
            return end
        return None if isinstance(end, ast.Break) else self._body(node.orelse, scope)

    # -- functions --------------------------------------------------------------------------------
    def _is_call(self, node: ast.expr, scope: _Scope) -> bool:
        """Return whether an expression is a call of a function of the module that can be followed."""
        name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        return name in self._makers and name not in scope.values

    def _call(self, node: ast.expr, scope: _Scope) -> ast.expr:
        """Follow a call of a function of the module; return its value."""
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        function = self._makers[node.func.id]
        if scope.depth >= _DEEPEST:
            raise Unknown(node, f"The calls of {function.name} are nested too deeply")
        if any(isinstance(one, ast.Global | ast.Nonlocal) for one in ast.walk(function)):
            raise Unknown(node, f"{function.name} changes names outside of it")
        own = [name for one in function.body for name in bound(one)]
        hidden = self._makers.keys() & set(own)
        if hidden:
            raise Unknown(node, f"{function.name} has a {min(hidden)} of its own")
        for one in (*node.args, *(keyword.value for keyword in node.keywords)):
            self._require_plain(one)
        given = self._fold.inside(node, scope.values)
        given.func = node.func
        values = self._fold.arguments(function, given)
        times = Counter([*values, *own])
        inner = _Scope(values, {name for name in times if times[name] > 1}, scope.depth + 1)
        self._called.add(function.name)
        self._body(function.body, inner)
        return inner.returned

    def _function(self, node: ast.FunctionDef, scope: _Scope) -> None:
        """Add a function that is made here. Its decorators and defaults are evaluated now, its body later."""
        kept = {name: value for name, value in scope.values.items() if name not in scope.loose}
        made: ast.FunctionDef = self._fold.inside(node, kept)
        made.decorator_list = [self._fold.inside(one, scope.values) for one in node.decorator_list]
        made.args = self._fold.inside(node.args, scope.values)
        parameters = {one.arg for one in ast.walk(made.args) if isinstance(one, ast.arg)}
        given = defaults(made)
        if scope.depth and parameters and parameters == given.keys():
            # Such as "def view(table=table)", which keeps the value that a loop's name has now.
            made.body = [self._fold.inside(one, given) for one in made.body]
            made.args = ast.arguments([], [], None, [], [], None, [])
        own = parameters | {name for one in node.body for name in bound(one)}
        late = sorted({name for one in node.body for name in _names(one)} & scope.loose - own)
        if late:
            self._late[id(made)] = late[0]
        self._made.append(made)


def _names(node: ast.AST) -> set[str]:
    """Return the names that a part of the code reads."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _ends(node: ast.AST) -> bool:
    """Return whether a statement may end the ones around it."""
    waiting: list[ast.AST] = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (*_ENDS, ast.Raise)):
            return True
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(one))
    return False
