"""Plain reads in Python: functions of a pipeline whose result is one table, at most with filters."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from delta_cdc.config.autocdc.program import GIVE_THE_TABLE, Read, Value
from delta_cdc.config.autocdc.python_names import PIPELINES, shown
from delta_cdc.config.tree import Refused

if TYPE_CHECKING:
    from delta_cdc.config.autocdc.python_names import Names, Source
    from delta_cdc.config.autocdc.python_values import Values

#: Functions of the pipeline's module that read a table; True: as a stream.
_READERS = {"read": False, "read_stream": True, "readStream": True}
#: Attributes of ``spark`` that begin a read.
_BEGINNINGS = {"read": False, "readStream": True}


class _Step(NamedTuple):
    """A call in a chain of methods."""

    method: str
    call: ast.Call


class Reads:
    """Reads the functions of a file.

    :param source: the file
    :param names: its names
    :param values: its values
    """

    def __init__(self, source: Source, names: Names, values: Values) -> None:
        self._source = source
        self._names = names
        self._values = values

    def of(self, function: ast.FunctionDef) -> Read | Refused:
        """Return the read that a function returns, or the error that says why it is no plain read."""
        body = [one for one in function.body if not _is_remark(one)]
        try:
            if any(isinstance(one, ast.arg) for one in ast.walk(function.args)):
                # Its parameters hide constants of the module.
                raise self._source.refused(
                    function, f"The function {function.name} has parameters.", GIVE_THE_TABLE
                )
            if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
                raise self._source.refused(
                    function, f"The function {function.name} is more than one return.", GIVE_THE_TABLE
                )
            return self._query(body[0].value)
        except Refused as refused:
            return refused

    def _query(self, node: ast.expr) -> Read:
        start, steps = _chain(node)
        filters = []
        while steps and steps[-1].method in ("filter", "where"):
            call = steps.pop().call
            filters.append(self._values.sql(self._argument(call)))
        filters.reverse()
        read = self._read(node, start, steps)
        return Read(read.table, read.place, read.is_stream, tuple(filters), read.options)

    def _read(self, node: ast.expr, start: ast.expr, steps: list[_Step]) -> Read:
        """Return the read of a chain without its filters.

        :param start: the expression before the first method
        """
        place = self._source.place(node)
        if isinstance(start, ast.Call) and not steps:
            kind, name = self._names.called(start.func)
            table = _only_argument(start)
            if kind == PIPELINES and name in _READERS and table is not None:
                return Read(self._values.text(table), place, _READERS[name])
        is_spark = isinstance(start, ast.Name) and start.id == "spark"
        if is_spark and len(steps) == 1 and steps[0].method == "table":
            return Read(self._table(steps[0].call), place, is_stream=False)
        if not isinstance(start, ast.Attribute) or not _is_spark(start.value) or not steps:
            raise self._failure(node)
        if start.attr not in _BEGINNINGS or steps[-1].method not in ("table", "load"):
            raise self._failure(node)
        options, format_ = self._options(steps[:-1])
        if steps[-1].method == "load" and format_ != "delta":
            raise self._failure(steps[-1].call)
        return Read(self._table(steps[-1].call), place, _BEGINNINGS[start.attr], (), options)

    def _options(self, steps: list[_Step]) -> tuple[dict[str, Value], str]:
        """Return the options and the format of a reader."""
        options: dict[str, Value] = {}
        format_ = ""
        for method, call in steps:
            if method == "format" and (argument := _only_argument(call)) is not None:
                format_ = self._values.text(argument).lower()
                if format_ != "delta":
                    raise self._failure(call)
            elif method == "option" and len(call.args) == 2 and not call.keywords:
                self._take(options, self._values.text(call.args[0]), call.args[1])
            elif method == "options" and not call.args:
                for keyword in call.keywords:
                    self._take(options, keyword.arg or "", keyword.value)
            else:
                raise self._failure(call)
        return options, format_

    def _take(self, options: dict[str, Value], name: str, value: ast.expr) -> None:
        found = self._values.literal(value)
        text = str(found).lower() if isinstance(found, bool) else str(found)
        options[name.lower()] = Value(text, self._source.place(value))

    def _argument(self, call: ast.Call) -> ast.expr:
        argument = _only_argument(call)
        if argument is None:
            raise self._failure(call)
        return argument

    def _table(self, call: ast.Call) -> str:
        return self._values.text(self._argument(call))

    def _failure(self, node: ast.expr) -> Refused:
        """Return the error for a query that is more than a plain read."""
        return self._source.refused(node, f"{shown(node)} is no plain read of a Delta table.", GIVE_THE_TABLE)


def _chain(node: ast.expr) -> tuple[ast.expr, list[_Step]]:
    """Return the beginning of a chain of methods, and its calls in order."""
    steps: list[_Step] = []
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        inner = node.func.value
        # A module's function, such as dp.read("x"), is the beginning.
        if isinstance(inner, ast.Name) and inner.id != "spark":
            break
        steps.append(_Step(node.func.attr, node))
        node = inner
    return node, steps[::-1]


def _is_spark(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "spark"


def _only_argument(call: ast.Call) -> ast.expr | None:
    """Return the only argument of a call; None if it has none, or more."""
    arguments = [*call.args, *(one.value for one in call.keywords)]
    return arguments[0] if len(arguments) == 1 and not isinstance(arguments[0], ast.Starred) else None


def _is_remark(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
