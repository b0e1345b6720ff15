"""Make a configuration of what the code of a pipeline defines, with the places of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.config.autocdc import clauses
from delta_cdc.config.autocdc.kinds import kind, of_a_feed, of_events
from delta_cdc.config.autocdc.program import Value, key
from delta_cdc.config.autocdc.sources import found, target_of
from delta_cdc.config.combine import is_template
from delta_cdc.config.findings import Place
from delta_cdc.config.sources import name_problem
from delta_cdc.config.tree import Node, Refused
from delta_cdc.core.arguments import last_part
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.options import APPLY
from delta_cdc.core.sql_tokens import bare, names
from delta_cdc.core.uris import is_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.config.autocdc.clauses import Clause
    from delta_cdc.config.autocdc.code import Code
    from delta_cdc.config.autocdc.program import Flow, Program
    from delta_cdc.config.autocdc.sources import Found

#: Properties of a table that only the vendor's pipelines read.
_OF_PIPELINES = "pipelines."
#: Options that each of several flows into one target has for itself. The others belong to the target.
_OF_A_FLOW = (
    *("source", "source_kind", "where", "column_list", "except_column_list", "apply_as_deletes"),
    *("sequence_by", "once"),
)
_INTO_ONE = "let all sources append to one Delta table of events, and read this table in one flow."


class Converter:
    """Makes pipelines of flows.

    :param program: the content of the code
    :param code: what the caller gives besides
    """

    def __init__(self, program: Program, code: Code) -> None:
        self._program = program
        self._code = code

    def pipeline(self, flows: Sequence[Flow]) -> tuple[Value, Node]:
        """Return the name of the pipeline of the flows into a target, and its tree.

        :raises Refused: a clause has no equivalent, or the flows contradict each other
        """
        first = flows[0]
        if len(flows) == 1:
            name, options = self._options(first)
            return name, _tree(options, first.place)
        shared: dict[str, Value] = {}
        sources = Node(first.place, {})
        for flow in flows:
            name, options = self._options(flow)
            _refuse_among_others(flow, options, name)
            own = {option: options.pop(option) for option in _OF_A_FLOW if option in options}
            _refuse_contradiction(flow, first, options, shared or options)
            shared = shared or options
            if name.value in sources.value:
                raise Refused(
                    name.place,
                    f"Two flows into {flow.target.value} have the name {name.value}.",
                    "give each its own name.",
                )
            sources.value[name.value], sources.keys[name.value] = _tree(own, flow.place), name.place
        tree = _tree(shared, first.place)
        tree.value["sources"], tree.keys["sources"] = sources, first.place
        return Value(last_part(target_name(first)), first.target.place), tree

    def _options(self, flow: Flow) -> tuple[Value, dict[str, Value]]:
        """Return the name of a flow, and the options that its clauses and those of its target mean."""
        given = self._known(flow)
        target = target_of(flow, self._code)
        source = self._source(flow)
        options: dict[str, Value] = {
            "source": Value(source.table, source.place),
            "target": target,
            "source_kind": Value(kind(flow, source), flow.place),
        }
        for argument, value in given.items():
            options[self._clause(flow, argument).option] = _read(argument, value)
        name = options.pop("pipeline", Value(last_part(target_name(flow)), flow.target.place))
        if source.filters:
            own = [options["where"].value] if "where" in options else []
            parts = [*source.filters, *own]
            text = parts[0] if len(parts) == 1 else " AND ".join(f"({part})" for part in parts)
            options["where"] = Value(text, source.place)
        if flow.is_snapshot:
            self._order_copies(options, flow)
        elif source.is_feed:
            of_a_feed(options, source, flow)
        else:
            of_events(options, flow)
        if "where" in given:
            text = "a row that does not match is ignored here, and an error in AUTO CDC"
            self._program.notices.append(f"{given['where'].place}: where (WHERE): {text}.")
        self._table_clauses(flow, options)
        for option, value in [*options.items(), ("name", name)]:
            if option not in ("source", "target") and is_template(_plain(value.value)):
                raise Refused(
                    value.place,
                    "A text contains {{ or {%, which Airflow would render.",
                    "write the text without them, or write the pipeline in YAML.",
                )
        return name, options

    def _known(self, flow: Flow) -> dict[str, Value]:
        """Return the clauses of a flow that have an effect.

        :raises Refused: one has an effect that this project does not have
        """
        kept = {}
        for argument, value in flow.clauses.items():
            clause = self._clause(flow, argument)
            if value.value in (False, [], {}, ""):
                continue
            if not clause.option:
                raise Refused(value.place, f"{clause.shown} has no equivalent here.", clause.instead)
            kept[argument] = value
        return kept

    def _clause(self, flow: Flow, argument: str) -> Clause:
        return clauses.by_argument(clauses.SNAPSHOTS if flow.is_snapshot else clauses.EVENTS)[argument]

    def _source(self, flow: Flow) -> Found:
        try:
            return found(flow, self._program, self._code)
        except Refused as refused:
            place, message, remedy = refused.finding
            raise Refused(place, message.replace("{target}", flow.target.value), remedy) from refused

    def _order_copies(self, options: dict[str, Value], flow: Flow) -> None:
        """Give copies their order: a named table counts them by time, a function by its versions."""
        if _meant("stored_as_scd_type", options.get("stored_as_scd_type")) != 2:
            return
        place = flow.source.place
        if flow.source.value.endswith("()"):
            table = options["source"].value
            self._program.notices.append(
                f"{place}: The first run loads only the newest copy of {table}. For a history of all "
                "copies, set initial_load: {from_version: N}; N is the version of the second copy."
            )
        else:
            options["sequence_by"] = Value("_commit_timestamp", place)

    # -- the target -------------------------------------------------------------------------------
    def _table_clauses(self, flow: Flow, options: dict[str, Value]) -> None:
        """Add the clauses of the target's definition."""
        dataset = self._program.datasets.get(key(flow.target.value))
        if dataset is None:
            return
        self._program.used.add(key(dataset.name))
        if dataset.reads:
            raise Refused(
                dataset.place,
                f"{dataset.name} is the target of an AUTO CDC flow and of another query.",
                "keep one of them.",
            )
        known = by_table_argument()
        for argument, value in dataset.clauses.items():
            clause = known[argument]
            if value.value in (False, [], {}, ""):
                continue
            if argument == "format" and str(value.value).lower() == "delta":
                continue
            if clause.kind == clauses.CHECKS:
                self._add_rules(options, argument, value)
            elif clause.option:
                self._add(options, clause, value)
            elif clause.instead:
                raise Refused(value.place, f"{clause.shown} has no equivalent here.", clause.instead)
            else:
                self._leave_out(value.place, clause.shown, clause.reason)

    def _add(self, options: dict[str, Value], clause: Clause, value: Value) -> None:
        """Add a clause that has an option with its meaning."""
        by_path = not _is_name(options["target"].value)
        if clause.argument == "path" and by_path:
            self._leave_out(value.place, clause.shown, "the target is given by its path")
        elif clause.argument == "comment" and by_path:
            self._leave_out(value.place, clause.shown, "a comment needs a target by name")
        elif clause.argument == "table_properties":
            kept = {name: text for name, text in value.value.items() if not name.startswith(_OF_PIPELINES)}
            for name in value.value.keys() - kept.keys():
                self._leave_out(value.place, name, "only the vendor's pipelines read it")
            if kept:
                options[clause.option] = Value(kept, value.place)
        else:
            options[clause.option] = value

    def _add_rules(self, options: dict[str, Value], argument: str, value: Value) -> None:
        if not isinstance(value.value, dict):
            raise Refused(value.place, f"{argument} is no mapping.", "write names with predicates.")
        reaction = clauses.ON_BREAK[argument]
        rules = options.setdefault("rules", Value({}, value.place)).value
        for name, check in value.value.items():
            if name in rules:
                raise Refused(value.place, f"The expectation {name} is given twice.", "rename one of them.")
            rules[name] = check if reaction == "fail" else {"check": check, "on_break": reaction}
            if reaction == "quarantine":
                text = "a row that breaks it goes into <target>__quarantine, and is not dropped"
                self._program.notices.append(f"{value.place}: The expectation {name}: {text}.")

    def _leave_out(self, place: Place, what: str, reason: str) -> None:
        self._program.notices.append(f"{place}: {what} is left out: {reason}.")


def by_table_argument() -> dict[str, Clause]:
    """Return the clauses of a target's definition by their names in Python."""
    return clauses.by_argument(clauses.TABLE)


def target_name(flow: Flow) -> str:
    """Return the name of a flow's target as the code has it, without back-ticks."""
    return ".".join(bare(part) for part in names(flow.target.value)) or flow.target.value


def group_name(file: str) -> str:
    """Return the name of the group for the flows of a file."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", Path(file).stem) or "pipeline"


def configuration(program: Program, code: Code, name: str) -> tuple[Node, list[Refused]]:
    """Return the tree of a configuration, and the errors of flows without an equivalent.

    :param name: name of the file
    """
    converter = Converter(program, code)
    errors: list[Refused] = []
    start = Place(name, 1, 1)
    group = group_name(name)
    pipelines = Node(start, {})
    by_target: dict[str, list[Flow]] = {}
    for flow in program.flows:
        by_target.setdefault(key(flow.target.value), []).append(flow)
    for flows in by_target.values():
        flow = flows[0]
        try:
            pipeline, tree = converter.pipeline(flows)
            if pipeline.value in pipelines.value:
                raise Refused(
                    pipeline.place,
                    f"Two flows have the name {pipeline.value}.",
                    "give one of them another name.",
                )
            tree.value["group"] = Node(flow.place, group, text=group)
            tree.keys["group"] = flow.place
            pipelines.value[pipeline.value] = tree
            pipelines.keys[pipeline.value] = pipeline.place
        except Refused as refused:
            errors.append(refused)
    for dataset in program.datasets.values():
        if key(dataset.name) not in program.used:
            program.notices.append(
                f"{dataset.place}: {dataset.name} ({dataset.kind.replace('_', ' ')}) is left out: no flow "
                "reads or writes it."
            )
    groups = Node(start, {group: Node(start, None)}, keys={group: start})
    root = Node(start, {"groups": groups, "pipelines": pipelines})
    root.keys = dict.fromkeys(root.value, start)
    return root, errors


# -- several flows into one target ------------------------------------------------------------------
def _refuse_among_others(flow: Flow, options: dict[str, Value], name: Value) -> None:
    """Refuse a flow that cannot share its target with others.

    :raises Refused: names why
    """
    several = f"Several flows write {flow.target.value}"
    if options["source_kind"].value != "change_log":
        what = "full copies" if flow.is_snapshot else "a change feed"
        remedy = "write the pipeline in YAML, with sources (docs/howto/several-sources.md)."
        raise Refused(flow.place, f"{several}, and this one reads {what}.", remedy)
    if "apply_as_truncates" in options:
        message = f"{several}, and this one has apply_as_truncates: it would delete the rows of the others."
        raise Refused(options["apply_as_truncates"].place, message, "remove it.")
    if "columns_to_update" in options:
        message = f"{several}, and this one has columns_to_update."
        raise Refused(options["columns_to_update"].place, message, _INTO_ONE)
    if name_problem(str(name.value)):
        raise Refused(
            name.place, f"{several}, and the name {name.value} fits no source.", name_problem(str(name.value))
        )


def _refuse_contradiction(
    flow: Flow, first: Flow, options: dict[str, Value], shared: dict[str, Value]
) -> None:
    """Refuse a flow whose options of the target differ from those of the first flow.

    :raises Refused: names the option, and both lines
    """
    for option in sorted(options.keys() | shared.keys()):
        mine, theirs = options.get(option), shared.get(option)
        if _meant(option, mine) != _meant(option, theirs):
            raise Refused(
                mine.place if mine is not None else flow.place,
                f"The flows into {flow.target.value} differ in {option}; the first one is in line "
                f"{first.place.line}.",
                "give all of them the same value.",
            )


# -- values ---------------------------------------------------------------------------------------
def _meant(option: str, value: Value | None) -> Any:
    """Return the value of an option, which is its default if the code does not give it."""
    if value is not None:
        return value.value
    return APPLY[option].default if option in APPLY else None


def _read(argument: str, value: Value) -> Value:
    """Return the value of a clause as the option has it."""
    if argument != "stored_as_scd_type":
        return value
    if str(value.value).strip() not in ("1", "2"):
        remedy = "write 1 or 2: there are no bitemporal tables here; type 2 has one time axis."
        raise Refused(value.place, f"stored_as_scd_type (STORED AS) is {value.value}.", remedy)
    return Value(int(value.value), value.place)


def _plain(value: Any) -> Any:
    """Return a value whose texts :func:`is_template` finds, those of keys too."""
    return [[name, _plain(item)] for name, item in value.items()] if isinstance(value, dict) else value


def _is_name(table: str) -> bool:
    try:
        return is_name(table)
    except DeltaCdcError:
        return False


def _tree(options: dict[str, Value], place: Place) -> Node:
    """Return the tree of a pipeline; ``layout.cluster_by`` is under ``layout``."""
    root = Node(place, {})
    for path, value in options.items():
        group, _, name = path.rpartition(".")
        into = root
        if group:
            into = root.value.setdefault(group, Node(value.place, {}))
            root.keys.setdefault(group, value.place)
        into.value[name] = _node(value.value, value.place)
        into.keys[name] = value.place
    return root


def _node(value: Any, place: Place) -> Node:
    if isinstance(value, dict):
        return Node(
            place,
            {name: _node(item, place) for name, item in value.items()},
            keys=dict.fromkeys(value, place),
        )
    if isinstance(value, list):
        return Node(place, [_node(item, place) for item in value])
    text = "" if value is None else str(value)
    return Node(place, value, text=text.lower() if isinstance(value, bool) else text)
