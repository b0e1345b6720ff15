"""The options of a pipeline by the kind of its source: events, a change feed, or full copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.config.autocdc.program import Value
from delta_cdc.config.tree import Refused
from delta_cdc.core.sql_tokens import bare, names, tokens

if TYPE_CHECKING:
    from delta_cdc.config.autocdc.program import Flow
    from delta_cdc.config.autocdc.sources import Found

#: Columns that Delta adds to the rows of a change feed.
FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
_FEED_ORDERS = ("_commit_version", "_commit_timestamp")
_IS_DELETE = ("_change_type='delete'", '_change_type="delete"')


def kind(flow: Flow, source: Found) -> str:
    """Return the kind of a flow's source, as ``source_kind`` names it.

    :raises Refused: a flow of full copies reads a part of the table
    """
    if flow.is_snapshot:
        if source.is_feed or source.from_start:
            message = "The source of copies is a change feed, or begins at a version."
            raise Refused(source.place, message, "read the table itself.")
        return "snapshot"
    return "change_feed" if source.is_feed else "change_log"


def of_events(options: dict[str, Value], flow: Flow) -> None:
    """Complete the options of a flow of events."""
    if "sequence_by" not in options:
        message = f"The flow into {flow.target.value} has no sequence_by (SEQUENCE BY)."
        raise Refused(flow.place, message, "name the column that orders the events of a key.")
    order = options["sequence_by"]
    columns = _columns_in(order.value)
    parts = _struct_parts(order.value)
    options["sequence_by"] = Value(parts if len(parts) > 1 else parts[0], order.place)
    tracks = [name for name in options if name.startswith("track_history")]
    is_history = "stored_as_scd_type" in options and options["stored_as_scd_type"].value == 2
    if is_history and not tracks and not columns <= _left_out(options, columns):
        # AUTO CDC tracks the columns of the sequence if the target gets them. The default here does not.
        options["track_history_except_column_list"] = Value([], order.place)


def of_a_feed(options: dict[str, Value], source: Found, flow: Flow) -> None:
    """Complete the options of a flow of a change feed: what the feed itself says is left out."""
    order = options.pop("sequence_by", None)
    if order is None or order.value.lower() not in _FEED_ORDERS:
        raise Refused(
            order.place if order is not None else flow.place,
            "The source is a change feed, and sequence_by is no version of it.",
            'write sequence_by="_commit_version": the commits order the changes.',
        )
    is_history = "stored_as_scd_type" in options and options["stored_as_scd_type"].value == 2
    if is_history and order.value.lower() != "_commit_version":
        options["sequence_by"] = Value(order.value.lower(), order.place)
    deletes = options.pop("apply_as_deletes", None)
    if deletes is None or "".join(deletes.value.lower().split()) not in _IS_DELETE:
        raise Refused(
            deletes.place if deletes is not None else flow.place,
            "The source is a change feed, and apply_as_deletes is not its deletes.",
            "write apply_as_deletes=expr(\"_change_type = 'delete'\").",
        )
    _without_feed_columns(options, flow)
    if source.from_start:
        options["initial_load"] = Value({"from_version": 0}, source.place)


def _without_feed_columns(options: dict[str, Value], flow: Flow) -> None:
    """Remove the columns of the feed from lists; a target that would get them is refused."""
    for name, value in list(options.items()):
        if name.endswith("except_column_list"):
            kept = [column for column in value.value if column.lower() not in FEED_COLUMNS]
            if name == "except_column_list":
                _refuse_kept(set(FEED_COLUMNS) - {column.lower() for column in value.value}, flow)
            options[name] = Value(kept, value.place)
            if not kept:
                del options[name]
        elif name.endswith("column_list"):
            _refuse_kept({column.lower() for column in value.value} & set(FEED_COLUMNS), flow)
    if "column_list" not in options and "except_column_list" not in flow.clauses:
        _refuse_kept(set(FEED_COLUMNS), flow)


def _refuse_kept(kept: set[str], flow: Flow) -> None:
    if kept:
        names_ = ", ".join(sorted(kept))
        raise Refused(
            flow.place,
            f"{flow.target.value} would get the columns {names_} of the change feed.",
            "name all three in except_column_list (COLUMNS * EXCEPT): a target here never has them.",
        )


# -- expressions -------------------------------------------------------------------------------------
def _columns_in(sql: str) -> set[str]:
    """Return the names in an expression, in lower case."""
    return {bare(names(token.text)[-1]).lower() for token in tokens(sql) if token.kind == "name"} - {"struct"}


def _left_out(options: dict[str, Value], columns: set[str]) -> set[str]:
    """Return those columns that the target does not get."""
    if "column_list" in options:
        return columns - {name.lower() for name in options["column_list"].value}
    if "except_column_list" in options:
        return columns & {name.lower() for name in options["except_column_list"].value}
    return set()


def _struct_parts(sql: str) -> list[str]:
    """Return the expressions of ``struct(a, b)``; of any other expression, the expression alone."""
    found_ = [token for token in tokens(sql) if token.kind != "gap"]
    inner = found_[2:-1]
    is_struct = len(found_) > 3 and found_[0].text.lower() == "struct"
    if not is_struct or (found_[1].text, found_[-1].text) != ("(", ")"):
        return [sql]
    depth, parts = 0, [[inner[0].start, inner[0].start]]
    for token in inner:
        depth += (token.text in "([") - (token.text in ")]")
        if depth < 0 or token.text.upper() == "AS":
            return [sql]
        if token.text == "," and depth == 0:
            parts.append([token.start + 1, token.start + 1])
        else:
            parts[-1][1] = token.start + len(token.text)
    texts = [sql[start:end].strip() for start, end in parts]
    return texts if all(texts) else [sql]
