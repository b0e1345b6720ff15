"""Read the AUTO CDC flows of a Python file as a syntax tree. The file is never run.

Calls count with literals, columns and constants of the module, at module level or in loops over literals
(:mod:`~delta_cdc.config.autocdc.python_unrolled`).
"""

from __future__ import annotations

import ast
import warnings
from difflib import get_close_matches
from typing import Any

from delta_cdc.config.autocdc import clauses
from delta_cdc.config.autocdc.clauses import Clause, by_argument
from delta_cdc.config.autocdc.program import GIVE_THE_TABLE, Flow, Program, Value
from delta_cdc.config.autocdc.python_names import PIPELINES, Names, Source, shown
from delta_cdc.config.autocdc.python_reads import Reads
from delta_cdc.config.autocdc.python_unrolled import unrolled
from delta_cdc.config.autocdc.python_values import Values
from delta_cdc.config.findings import Place
from delta_cdc.config.tree import Refused

#: The functions that make flows; True: from full copies.
_FLOWS = {
    "create_auto_cdc_flow": False,
    "apply_changes": False,
    "create_auto_cdc_from_snapshot_flow": True,
    "apply_changes_from_snapshot": True,
}
_TABLES = ("create_streaming_table", "create_target_table", "create_streaming_live_table")
#: Arguments that may be given by position. The vendors disagree on the order of the others.
_POSITIONAL = {False: ("target", "source", "keys", "sequence_by"), True: ("target", "source", "keys")}
#: Decorators of functions that define a dataset.
_DATASETS = ("table", "view", "temporary_view", "materialized_view", "append_flow")
#: Decorators that only count rows.
_HARMLESS = ("expect", "expect_all")
#: Definitions that no flow can read.
_OTHERS = ("create_sink", "foreach_batch_sink", "on_event_hook")
_TOO_DEEP = "The code is nested too deeply."


def read(text: str, name: str) -> tuple[Program, list[Refused]]:
    """Return what a Python file defines, and the errors of parts that cannot be read.

    :param text: the content of the file
    :param name: its name in messages
    :raises Refused: the file is no Python, or has no flow
    """
    try:
        return _Reader(_parsed(text, name), Source(text, name)).program()
    except RecursionError as error:
        raise Refused(Place(name, 1, 1), _TOO_DEEP, "write it flat.") from error


def _parsed(text: str, name: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            # Python warns of escapes such as "\d", which belong to the author of the file.
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        place = Place(name, error.lineno or 1, error.offset or 1)
        raise Refused(place, f"It is no Python: {error.msg}.", "correct the syntax.") from error
    except (ValueError, MemoryError) as error:
        # Such as a zero byte, or brackets beyond the parser's limit.
        cause = str(error) or "it is nested too deeply"
        raise Refused(Place(name, 1, 1), f"It is no Python: {cause}.", "correct the syntax.") from error


class _Reader:
    def __init__(self, tree: ast.Module, source: Source) -> None:
        self._source = source
        self._names = Names(tree)
        followed = unrolled(tree, source, self._names, self._makes_flows)
        self._tree, self._late = followed.module, followed.late
        self._top = set(map(id, self._tree.body))
        self._functions = {one.name for one in self._tree.body if isinstance(one, ast.FunctionDef)}
        self._values = Values(source, self._names)
        self._reads = Reads(source, self._names, self._values)
        self._program = Program()
        self._errors: list[Refused] = followed.refused

    def program(self) -> tuple[Program, list[Refused]]:
        """Return the content of the file, and the errors."""
        top_calls: list[ast.Call] = []
        for statement in self._tree.body:
            if isinstance(statement, ast.FunctionDef):
                self._collect(self._take_function, statement)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                top_calls.append(statement.value)
                self._collect(self._take_call, statement.value)
        for node in ast.walk(self._tree):
            if isinstance(node, ast.FunctionDef) and id(node) not in self._top:
                self._collect(self._take_function, node)
        for problem in self._out_of_place(top_calls):
            self._errors.append(problem)
        return self._program, self._errors

    def _collect(self, take: Any, node: Any) -> None:
        try:
            take(node)
        except Refused as refused:
            self._errors.append(refused)

    # -- datasets ---------------------------------------------------------------------------------
    def _take_function(self, function: ast.FunctionDef) -> None:
        kind, decorator, changes = "", None, ""
        for one in function.decorator_list:
            home, name = self._names.called(one.func if isinstance(one, ast.Call) else one)
            if home == PIPELINES and name in _DATASETS:
                kind, decorator = name, one
            elif home != PIPELINES or name not in _HARMLESS:
                changes = f"has @{shown(one)}, which may change rows"
        if decorator is None:
            return
        if id(function) not in self._top:
            changes = "is defined in a loop, a condition or a function"
        if id(function) in self._late:
            changes = f"reads {self._late[id(function)]} when the loop is over, so it has only the last value"
        try:
            name = self._name_of(function, decorator, "target" if kind == "append_flow" else "name")
        except Refused as refused:
            self._program.notices.append(
                f"{refused.finding[0]}: {function.name} is left out: its name is computed."
            )
            return
        place = self._source.place(function)
        dataset = self._program.dataset(name, kind, place)
        found = self._reads.of(function)
        if changes:
            found = Refused(place, f"{function.name} {changes}.", GIVE_THE_TABLE)
        dataset.reads.append(found)

    def _name_of(self, function: ast.FunctionDef, decorator: ast.expr, argument: str) -> str:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == argument:
                if self._is_none(keyword.value):
                    break
                return self._values.text(keyword.value)
            if keyword.arg is None:
                raise self._source.refused(decorator, f"{shown(decorator)} unpacks a mapping.", "")
        return function.name

    # -- calls ------------------------------------------------------------------------------------
    def _take_call(self, call: ast.Call) -> None:
        home, name = self._names.called(call.func)
        if home != PIPELINES:
            return
        if name in _FLOWS:
            self._program.flows.append(self._flow(call, name))
        elif name in _TABLES:
            given = self._arguments(call, name, ("name",))
            if "name" not in given:
                raise self._source.refused(call, f"{name} has no name.", "give name, the name of the table.")
            target = self._values.text(given.pop("name"))
            known = by_argument(clauses.TABLE)
            dataset = self._program.dataset(target, "streaming table", self._source.place(call))
            dataset.clauses.update(self._clauses(given, known, name))
        elif _is_of_flows(name):
            remedy = f"use one of {', '.join(_FLOWS)}."
            raise self._source.refused(call, f"{name} is no function that is known here.", remedy)
        elif name in _OTHERS:
            self._program.notices.append(f"{self._source.place(call)}: {name} is left out: it is no flow.")

    def _flow(self, call: ast.Call, function: str) -> Flow:
        is_snapshot = _FLOWS[function]
        given = self._arguments(call, function, _POSITIONAL[is_snapshot])
        for name in ("target", "source", "keys"):
            if name not in given:
                raise self._source.refused(call, f"{function} has no {name}.", f"give {name}.")
        target, source = given.pop("target"), given.pop("source")
        known = by_argument(clauses.SNAPSHOTS if is_snapshot else clauses.EVENTS)
        return Flow(
            self._source.place(call),
            is_snapshot,
            Value(self._values.text(target), self._source.place(target)),
            Value(self._source_name(source, is_snapshot), self._source.place(source)),
            self._clauses(given, known, function),
        )

    def _source_name(self, node: ast.expr, is_snapshot: bool) -> str:
        """Return the name of a source; of a function that returns copies, its name."""
        if is_snapshot and isinstance(node, ast.Name) and node.id in self._functions:
            return f"{node.id}()"
        if is_snapshot and isinstance(node, ast.Lambda):
            raise self._source.refused(
                node,
                "The source is a function of copies.",
                "write the function with def, and give a Delta table whose versions are the copies as its "
                "source.",
            )
        return self._values.text(node)

    def _arguments(self, call: ast.Call, function: str, positional: tuple[str, ...]) -> dict[str, ast.expr]:
        """Return the arguments of a call by their names."""
        if len(call.args) > len(positional) or any(isinstance(one, ast.Starred) for one in call.args):
            place = call.args[-1]
            remedy = f"write the names of the arguments after {positional[-1]}, such as apply_as_deletes=…."
            raise self._source.refused(place, f"{shown(place)} has no name in {function}.", remedy)
        given = dict(zip(positional, call.args, strict=False))
        for keyword in call.keywords:
            if keyword.arg is None:
                message = f"{function} gets arguments from {shown(keyword.value)}."
                raise self._source.refused(keyword.value, message, "write each argument with its name.")
            if keyword.arg in given:
                raise self._source.refused(
                    keyword.value, f"{keyword.arg} is given twice.", "keep one of them."
                )
            given[keyword.arg] = keyword.value
        return given

    def _clauses(
        self, given: dict[str, ast.expr], known: dict[str, Clause], function: str
    ) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for name, node in given.items():
            clause = known.get(name)
            if clause is None:
                near = get_close_matches(name, known, n=1)
                remedy = f"did you mean {near[0]}?" if near else f"use some of {', '.join(known)}."
                raise self._source.refused(node, f"{function} has no argument {name} here.", remedy)
            if not self._is_none(node):
                found[clause.argument] = Value(self._value(node, clause), self._source.place(node))
        return found

    def _is_none(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) and node.value is None

    def _value(self, node: ast.expr, clause: Clause) -> Any:
        """Return the value of a clause in the form of its kind."""
        if clause.option == "" and clause.kind != clauses.FLAG:
            # It is refused anyway; its value may be anything, such as StructType(…).
            return self._constant_or_code(node)
        if clause.kind == clauses.NAMES:
            return self._names_in(node, qualified=clause.argument.startswith("ignore_null"))
        if clause.kind in (clauses.PREDICATE, clauses.ORDER):
            return self._values.sql(node)
        if clause.kind == clauses.NAME:
            return self._values.column_name(node)
        return self._values.literal(node)

    def _constant_or_code(self, node: ast.expr) -> Any:
        try:
            return self._values.literal(node)
        except Refused:
            return shown(node)

    def _names_in(self, node: ast.expr, *, qualified: bool) -> list[str]:
        if isinstance(node, ast.Name) and node.id in self._names.constants:
            node = self._names.constants[node.id]
        if not isinstance(node, ast.List | ast.Tuple):
            remedy = 'write a list, such as ["id"] or [col("id")].'
            raise self._source.refused(node, f"{shown(node)} is no list of columns.", remedy)
        return [self._values.column_name(one, qualified=qualified) for one in node.elts]

    # -- what cannot be read ----------------------------------------------------------------------
    def _out_of_place(self, top_calls: list[ast.Call]) -> list[Refused]:
        """Return an error for each use of a function of flows that is no call at module level."""
        functions = {id(call.func) for call in top_calls}
        found = []
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Attribute | ast.Name) or id(node) in functions:
                continue
            if self._makes_flows(node):
                name = self._names.called(node)[1]
                message = f"{name} is in a loop, a condition, a function or an expression."
                remedy = (
                    "write one call per flow, at the left margin of the file, or in a loop over literals."
                )
                found.append(self._source.refused(node, message, remedy))
        return found

    def _makes_flows(self, node: ast.AST) -> bool:
        """Return whether an expression is a function of flows, or of their tables."""
        home, name = self._names.called(node)
        return home == PIPELINES and (name in _TABLES or _is_of_flows(name))


def _is_of_flows(name: str) -> bool:
    """Return whether a function of the pipeline's module makes AUTO CDC flows, in this or another release."""
    return name in _FLOWS or "auto_cdc" in name or name.startswith("apply_changes")
