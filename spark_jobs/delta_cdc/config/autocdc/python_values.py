"""Values in Python code: literals, constants of the module, and columns, which become SQL."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from delta_cdc.config.autocdc.python_names import FUNCTIONS, shown
from delta_cdc.core.sql import quote, string
from delta_cdc.core.sql_tokens import names as parts_of

if TYPE_CHECKING:
    from delta_cdc.config.autocdc.python_names import Names, Source

_LITERALS = (
    "write a literal, a list or mapping of literals, or a constant of the module that has one; the code is "
    "not run."
)
_PLAIN = re.compile(r"(?!\d)\w+", re.ASCII)
#: Characters that a name may have in Python code, and only in quotes in SQL.
_AT = frozenset("$@#")
_COMPARED: dict[type[ast.AST], str] = {
    ast.Eq: "=",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_COMBINED: dict[type[ast.AST], str] = {ast.BitAnd: "AND", ast.BitOr: "OR"}
#: Methods of a column without arguments, and what follows the column in SQL.
_TESTS = {"isNull": "IS NULL", "isNotNull": "IS NOT NULL"}


class Values:
    """Reads the values of a file.

    :param source: the file
    :param names: its names
    """

    def __init__(self, source: Source, names: Names) -> None:
        self._source = source
        self._names = names

    # -- literals ---------------------------------------------------------------------------------
    def literal(self, node: ast.expr) -> Any:
        """Return the value of a literal: a text, number, flag or None, or a list or mapping of these.

        :raises Refused: for any other expression
        """
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bool | int | float | None):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.literal(node.operand)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value
        if isinstance(node, ast.List | ast.Tuple):
            return [self.literal(item) for item in node.elts]
        if isinstance(node, ast.Dict):
            return {self._key(name, node): self.literal(item) for name, item in self._items(node)}
        if isinstance(node, ast.JoinedStr):
            return "".join(self._part(part) for part in node.values)
        if isinstance(node, ast.Name) and node.id in self._names.constants:
            return self.literal(self._names.constants[node.id])
        raise self._source.refused(node, f"{shown(node)} is no literal.", _LITERALS)

    def text(self, node: ast.expr) -> str:
        """Return the value of a literal that is a text.

        :raises Refused: for any other value
        """
        value = self.literal(node)
        if not isinstance(value, str) or not value.strip():
            raise self._source.refused(node, f"{shown(node)} is no text.", "write a text.")
        return value

    def _items(self, node: ast.Dict) -> list[tuple[ast.expr | None, ast.expr]]:
        return list(zip(node.keys, node.values, strict=True))

    def _key(self, name: ast.expr | None, node: ast.Dict) -> str:
        if name is None:
            raise self._source.refused(node, f"{shown(node)} unpacks a mapping.", _LITERALS)
        return self.text(name)

    def _part(self, part: ast.expr) -> str:
        """Return a part of an f-string."""
        if isinstance(part, ast.FormattedValue):
            if part.conversion != -1 or part.format_spec is not None:
                raise self._source.refused(part, f"{shown(part)} has a format.", _LITERALS)
            value = self.literal(part.value)
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise self._source.refused(part, f"{shown(part)} is no text.", _LITERALS)
            return str(value)
        return str(self.literal(part))

    # -- columns ----------------------------------------------------------------------------------
    def column_name(self, node: ast.expr, *, qualified: bool = False) -> str:
        """Return the name of a column, from a text or ``col("…")``.

        :param qualified: whether a field of a struct is allowed, as ``a.b``
        :raises Refused: for anything else
        """
        kind, name = self._function(node)
        inner = node
        if isinstance(node, ast.Call) and (kind, name) in ((FUNCTIONS, "col"), (FUNCTIONS, "column")):
            inner = self._arguments(node, 1)[0]
        elif isinstance(node, ast.Call):
            raise self._source.refused(
                node, f"{shown(node)} is no name of a column.", 'write its name, such as "id" or col("id").'
            )
        text = self.text(inner)
        parts = parts_of(text)
        if len(parts) > 1 and not qualified and "." in text:
            raise self._source.refused(
                node, f"{shown(node)} is a qualified name.", "write the name of the column alone."
            )
        return text[1:-1].replace("``", "`") if text.startswith("`") and text.endswith("`") else text

    def sql(self, node: ast.expr) -> str:
        """Return the SQL of a column or of a text with SQL.

        :raises Refused: for an expression without a form here
        """
        if isinstance(node, ast.Name) and node.id in self._names.constants:
            return self.sql(self._names.constants[node.id])
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.Name):
            return _as_column(self.text(node))
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
            right = self._operand(node.comparators[0])
            return f"{self._operand(node.left)} {_COMPARED[type(node.ops[0])]} {right}"
        if isinstance(node, ast.BinOp) and type(node.op) in _COMBINED:
            return f"({self.sql(node.left)}) {_COMBINED[type(node.op)]} ({self.sql(node.right)})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return f"NOT ({self.sql(node.operand)})"
        raise self._no_column(node)

    def _call(self, node: ast.Call) -> str:
        kind, name = self._function(node)
        if kind == FUNCTIONS and name == "expr":
            return self.text(self._arguments(node, 1)[0])
        if kind == FUNCTIONS and name in ("col", "column"):
            return _column(self.text(self._arguments(node, 1)[0]))
        if kind == FUNCTIONS and name == "struct":
            return f"struct({', '.join(self._fields(node))})"
        if kind == "" and isinstance(node.func, ast.Attribute):
            return self._test(node, node.func)
        raise self._no_column(node)

    def _fields(self, node: ast.Call) -> list[str]:
        fields = self._arguments(node)
        if len(fields) == 1 and isinstance(fields[0], ast.List | ast.Tuple):
            fields = fields[0].elts
        if not fields:
            raise self._no_column(node)
        # In struct(), a text is the name of a column.
        return [
            _column(self.text(one)) if isinstance(one, ast.Constant | ast.Name) else self.sql(one)
            for one in fields
        ]

    def _test(self, node: ast.Call, method: ast.Attribute) -> str:
        """Return the SQL of a method of a column."""
        if method.attr in _TESTS and not node.args and not node.keywords:
            return f"{self._operand(method.value)} {_TESTS[method.attr]}"
        if method.attr == "isin" and node.args:
            items = self._arguments(node)
            items = items[0].elts if isinstance(items[0], ast.List | ast.Tuple) else items
            if items:
                values = ", ".join(self._literal_sql(one) for one in items)
                return f"{self._operand(method.value)} IN ({values})"
        raise self._no_column(node)

    def _operand(self, node: ast.expr) -> str:
        """Return the SQL of one side of a comparison."""
        if isinstance(node, ast.Call):
            kind, name = self._function(node)
            if kind == FUNCTIONS and name == "lit":
                return self._literal_sql(self._arguments(node, 1)[0])
            text = self._call(node)
            return text if (kind, name) in ((FUNCTIONS, "col"), (FUNCTIONS, "column")) else f"({text})"
        return self._literal_sql(node)

    def _literal_sql(self, node: ast.expr) -> str:
        value = self.literal(node)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int):
            return str(value)
        if isinstance(value, str):
            return string(value)
        raise self._no_column(node)

    def _arguments(self, node: ast.Call, count: int = 0) -> list[ast.expr]:
        """Return the arguments of a call without names; of another number, the call is refused."""
        is_plain = not node.keywords and not any(isinstance(one, ast.Starred) for one in node.args)
        if not is_plain or (count and len(node.args) != count):
            raise self._no_column(node)
        return node.args

    def _function(self, node: ast.expr) -> tuple[str, str]:
        return self._names.called(node.func) if isinstance(node, ast.Call) else ("", "")

    def _no_column(self, node: ast.expr) -> Exception:
        return self._source.refused(
            node,
            f"{shown(node)} cannot be read as SQL.",
            'write the SQL: a text, or expr("…"), such as expr("operation = \'DELETE\'").',
        )


def _column(name: str) -> str:
    """Return the SQL of the argument of ``col``: a name, or a path to a field of a struct."""
    parts = parts_of(name) if "`" in name else name.split(".")
    return ".".join(one if _PLAIN.fullmatch(one) or one.startswith("`") else quote(one) for one in parts)


def _as_column(text: str) -> str:
    """Return a text with SQL; one that can only be the name of a column is quoted, such as ``__$seqval``."""
    return quote(text) if re.fullmatch(r"[\w$@#]+", text) and not _AT.isdisjoint(text) else text
