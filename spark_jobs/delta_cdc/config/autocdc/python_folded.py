"""Expressions of Python whose names are known: their values, without running anything."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Any

from delta_cdc.config.autocdc.python_names import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from delta_cdc.config.autocdc.python_names import Names

_TEXT_METHODS: dict[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper, "strip": str.strip}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Unknown(Exception):
    """Only a run of the code would show what it does.

    :param node: the part of the code
    """

    def __init__(self, node: ast.AST, message: str) -> None:
        super().__init__(message)
        self.node = node


class Folding:
    """Evaluates expressions as far as literals and constants of the module decide them.

    :param names: the names of the module
    """

    def __init__(self, names: Names) -> None:
        self._names = names

    def inside(self, node: Any, values: Mapping[str, ast.expr]) -> Any:
        """Return a copy of a part of the code with the values of local names, evaluated where possible."""
        return _Substitution(self, values).visit(copy.deepcopy(node))

    def constant(self, node: ast.expr) -> ast.expr:
        """Return the expression that a constant of the module stands for; any other expression as it is."""
        seen: set[str] = set()
        while isinstance(node, ast.Name) and node.id in self._names.constants and node.id not in seen:
            seen.add(node.id)
            node = self._names.constants[node.id]
        return node

    # -- control ----------------------------------------------------------------------------------
    def truth(self, test: ast.expr) -> bool:
        """Return whether a test holds.

        :raises Unknown: more than literals decide it
        """
        node = self._plain(test)
        if isinstance(node, ast.Constant):
            return bool(node.value)
        if isinstance(node, ast.List | ast.Tuple | ast.Set) and not _has_star(node.elts):
            return bool(node.elts)
        if isinstance(node, ast.Dict) and None not in node.keys:
            return bool(node.keys)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self.truth(node.operand)
        if isinstance(node, ast.BoolOp):
            found = (self.truth(one) for one in node.values)
            return all(found) if isinstance(node.op, ast.And) else any(found)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(node)
        raise Unknown(test, f"Whether {shown(test)} holds is not known without running the code")

    def _compared(self, node: ast.Compare) -> bool:
        operator = node.ops[0]
        left, right = self._plain(node.left), self._plain(node.comparators[0])
        if isinstance(left, ast.Constant):
            if isinstance(operator, ast.Eq | ast.Is) and isinstance(right, ast.Constant):
                return bool(left.value == right.value)
            if isinstance(operator, ast.NotEq | ast.IsNot) and isinstance(right, ast.Constant):
                return bool(left.value != right.value)
            if isinstance(operator, ast.In | ast.NotIn) and not isinstance(right, ast.Constant):
                items = [self._plain(one) for one in self.items(right)]
                if all(isinstance(one, ast.Constant) for one in items):
                    has = left.value in [one.value for one in items]  # type: ignore[attr-defined]
                    return has == isinstance(operator, ast.In)
        raise Unknown(node, f"Whether {shown(node)} holds is not known without running the code")

    def _plain(self, node: ast.expr) -> ast.expr:
        """Return the literal of a constant or of an f-string; anything else as it is."""
        node = self.constant(node)
        text = self.text(node) if isinstance(node, ast.JoinedStr) else None
        return node if text is None else ast.copy_location(ast.Constant(text), node)

    def items(self, iterable: ast.expr) -> list[ast.expr]:
        """Return the items of a loop.

        :raises Unknown: they are no literals
        """
        node = self.constant(iterable)
        if isinstance(node, ast.List | ast.Tuple | ast.Set) and not _has_star(node.elts):
            return node.elts
        if isinstance(node, ast.Dict):
            return [name for name, _ in self._pairs(node)]
        if isinstance(node, ast.Call) and not node.keywords:
            method = node.func.attr if isinstance(node.func, ast.Attribute) and not node.args else ""
            if method in ("items", "keys", "values"):
                owner = self.constant(node.func.value)  # type: ignore[attr-defined]
                if isinstance(owner, ast.Dict):
                    return [_part(method, pair) for pair in self._pairs(owner)]
            if isinstance(node.func, ast.Name) and node.func.id == "enumerate" and len(node.args) == 1:
                found = self.items(node.args[0])
                return [_tuple(ast.Constant(at), one) for at, one in enumerate(found)]
        raise Unknown(iterable, f"The loop over {shown(iterable)} is no loop over literals")

    def _pairs(self, node: ast.Dict) -> list[tuple[ast.expr, ast.expr]]:
        """Return the keys of a mapping with their last values."""
        found: dict[Any, tuple[ast.expr, ast.expr]] = {}
        for name, value in zip(node.keys, node.values, strict=True):
            plain = None if name is None else self.constant(name)
            if not isinstance(plain, ast.Constant):
                raise Unknown(node, f"The keys of {shown(node)} are no literals")
            found[plain.value] = (plain, value)
        return list(found.values())

    def bound(self, target: ast.expr, item: ast.expr) -> dict[str, ast.expr]:
        """Return the names of a loop's target with their values.

        :raises Unknown: the item has another form
        """
        if isinstance(target, ast.Name):
            return {target.id: item}
        parts = self.constant(item)
        if isinstance(target, ast.Tuple | ast.List) and isinstance(parts, ast.Tuple | ast.List):
            return self._bound_each(target, parts)
        raise Unknown(target, f"{shown(target)} does not fit {shown(item)}")

    def _bound_each(self, target: ast.Tuple | ast.List, item: ast.Tuple | ast.List) -> dict[str, ast.expr]:
        if len(target.elts) != len(item.elts) or _has_star([*target.elts, *item.elts]):
            raise Unknown(target, f"{shown(target)} does not fit {shown(item)}")
        found: dict[str, ast.expr] = {}
        for one, value in zip(target.elts, item.elts, strict=True):
            found |= self.bound(one, value)
        return found

    def arguments(self, function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr]:
        """Return the parameters of a function with the values that a call gives them.

        :param call: with the values of the caller's names
        :raises Unknown: they do not fit, or have stars
        """
        parameters = [*function.args.posonlyargs, *function.args.args]
        by_name = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
        names = [one.arg for one in parameters]
        is_odd = (
            function.args.vararg or function.args.kwarg or _has_star(call.args) or len(call.args) > len(names)
        )
        given = dict(zip(names, call.args, strict=False))
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg in given or keyword.arg not in by_name:
                is_odd = True
            else:
                given[keyword.arg] = keyword.value
        values = defaults(function) | given
        if is_odd or any(one.arg not in values for one in (*parameters, *function.args.kwonlyargs)):
            raise Unknown(call, f"{shown(call)} does not fit the parameters of {function.name}")
        return values

    # -- values -----------------------------------------------------------------------------------
    def item(self, owner: ast.expr, place: ast.expr) -> ast.expr | None:
        """Return ``owner[place]``; None if it is not known."""
        owner, place = self.constant(owner), self.constant(place)
        if not isinstance(place, ast.Constant):
            return None
        if isinstance(owner, ast.Dict):
            try:
                return next((value for name, value in self._pairs(owner) if name.value == place.value), None)  # type: ignore[attr-defined]
            except Unknown:
                return None
        if isinstance(owner, ast.List | ast.Tuple) and not _has_star(owner.elts):
            at = place.value
            if type(at) is int and -len(owner.elts) <= at < len(owner.elts):
                return owner.elts[at]
        return None

    def text(self, node: ast.expr) -> str | None:
        """Return the value of a text; None for anything else."""
        node = self.constant(node)
        if isinstance(node, ast.JoinedStr):
            parts = [
                self.text(one.value)
                if isinstance(one, ast.FormattedValue) and one.conversion == -1 and one.format_spec is None
                else self.text(one)
                for one in node.values
            ]
            return None if None in parts else "".join(map(str, parts))
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


class _Substitution(ast.NodeTransformer):
    """Puts values in the places of names, and evaluates what they decide. It may change the tree in place."""

    def __init__(self, fold: Folding, values: Mapping[str, ast.expr]) -> None:
        self._fold, self._values = fold, dict(values)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self._values:
            return copy.deepcopy(self._values[node.id])
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Subscript(owner, place, ast.Load()):
                found = self._fold.item(owner, place)
                return node if found is None else copy.deepcopy(found)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add):
            left, right = self._fold.text(node.left), self._fold.text(node.right)
            if left is not None and right is not None:
                return ast.copy_location(ast.Constant(left + right), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        node.keywords = [one for given in node.keywords for one in self._unpacked(given)]
        if not isinstance(node.func, ast.Attribute) or node.keywords:
            return node
        owner = self._fold.constant(node.func.value)
        if node.func.attr == "get" and isinstance(owner, ast.Dict) and len(node.args) in (1, 2):
            return self._got(node, owner)
        text, method = self._fold.text(owner), _TEXT_METHODS.get(node.func.attr)
        if method is not None and text is not None and not node.args:
            return ast.copy_location(ast.Constant(method(text)), node)
        return node

    def _got(self, node: ast.Call, owner: ast.Dict) -> ast.expr:
        """Return the value of ``owner.get(name, default)``."""
        name = self._fold.constant(node.args[0])
        names = [None if one is None else self._fold.constant(one) for one in owner.keys]
        if not all(isinstance(one, ast.Constant) for one in (name, *names)):
            return node
        found = self._fold.item(owner, name)
        if found is not None:
            return copy.deepcopy(found)
        return node.args[1] if len(node.args) == 2 else ast.copy_location(ast.Constant(None), node)

    def _unpacked(self, keyword: ast.keyword) -> Iterable[ast.keyword]:
        """Return the arguments that ``**mapping`` gives."""
        owner = self._fold.constant(keyword.value)
        names = [self._fold.text(one) for one in owner.keys if one] if isinstance(owner, ast.Dict) else []
        if keyword.arg is not None or not isinstance(owner, ast.Dict) or None in (*names, *owner.keys):
            return [keyword]
        return [
            ast.copy_location(ast.keyword(name, copy.deepcopy(value)), value)
            for name, value in zip(names, owner.values, strict=True)
        ]

    # A name that an inner part binds itself is another name.
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        node.args = self.visit(node.args)
        inner = self._without(node.args, *node.body)
        node.body = [inner.visit(one) for one in node.body]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        node.args = self.visit(node.args)
        node.body = self._without(node.args).visit(node.body)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, (*_COMPREHENSIONS, ast.AsyncFunctionDef, ast.ClassDef)):
            return super(_Substitution, self._without(node)).generic_visit(node)
        return super().generic_visit(node)

    def _without(self, *nodes: ast.AST) -> _Substitution:
        own = {
            one.arg if isinstance(one, ast.arg) else one.id
            for node in nodes
            for one in ast.walk(node)
            if isinstance(one, ast.arg) or (isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load))
        }
        return _Substitution(self._fold, {name: v for name, v in self._values.items() if name not in own})


def defaults(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return the parameters of a function that have defaults, with these."""
    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args]
    found = zip(parameters[len(parameters) - len(arguments.defaults) :], arguments.defaults, strict=True)
    by_name = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {one.arg: value for one, value in (*found, *by_name) if value is not None}


def _has_star(nodes: Iterable[ast.expr]) -> bool:
    return any(isinstance(one, ast.Starred) for one in nodes)


def _tuple(*parts: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Tuple(list(parts), ast.Load()), parts[-1])


def _part(method: str, pair: tuple[ast.expr, ast.expr]) -> ast.expr:
    return _tuple(*pair) if method == "items" else pair[method == "values"]
