"""Expand a pipeline with several sources: one pipeline per source, which collects its changes, and the apply.

Each source gets a pipeline ``<pipeline>.<source>``, which appends the source's changes to a change log. The
pipeline itself applies this log. So each source has a watermark, a status and errors of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from delta_cdc.core.change_log import LOG_COLUMNS, OP, SEQUENCE
from delta_cdc.core.options import APPLY
from delta_cdc.core.reserved_columns import COMMIT_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Arguments of a pipeline that say which changes of its sources count: each is the default of its sources.
_OF_ROWS = (
    *("source_kind", "where", "select", "column_list", "except_column_list"),
    *("apply_as_deletes", "sequence_by", "delete_sequence"),
)
#: Arguments that both the sources and the apply have.
_OF_BOTH = (
    *("keys", "schema_evolution", "single_driver"),
    *("max_versions", "max_bytes", "versions_per_commit", "bytes_per_commit"),
)
#: Arguments that only a source can have, or that a pipeline with several sources cannot have.
_OF_A_SOURCE = (
    *("once", "initial_load", "starting_version", "starting_timestamp", "ending_version", "ending_timestamp"),
    *("apply_as_truncates", "snapshot_version_column", "columns_to_update", "insert_only", "target_kind"),
)
#: Those of them that say what an event means.
_OF_EVENTS = ("apply_as_truncates", "columns_to_update")
#: The end of the location of a change log beside its target.
LOG = "__log"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-]*")


def name_problem(source: str) -> str:
    """Return why a name cannot be that of a source; "" if it can."""
    return (
        "" if _NAME.fullmatch(source) else "use letters, digits, '_' or '-', starting with a letter or digit."
    )


def problems(
    arguments: Mapping[str, Any], own: Mapping[str, Any], *, has_events: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield what keeps a pipeline from having several sources: the argument, the problem and the remedy.

    :param arguments: all arguments of the pipeline
    :param own: those that are written for it, and not for a group or for all
    :param has_events: whether one of the sources is a table of events
    """
    if own.get("source") is not None:
        yield "source", "has source and sources.", "write source in each of the sources alone."
    if arguments.get("target") is None:
        yield "target", "has sources and no target.", "write target: with a path, a URI or a catalog name."
    for name in _OF_A_SOURCE:
        # What a group gives to its other tables does not matter here, but these would change events.
        matters = arguments if has_events and name in _OF_EVENTS else own
        if matters.get(name) is not None:
            remedy = "write it for one of the sources." if name in ("once", "initial_load") else "remove it."
            yield name, f"has {name}, and several sources.", remedy
    if own.get("own_application") is True:
        yield (
            "own_application",
            "has own_application, and several sources.",
            ("remove it: the sources and the apply share one application."),
        )


def order_problem(arguments: Mapping[str, Any]) -> str:
    """Return why the changes of a source have no place among those of the others; "" if they have one.

    :param arguments: all arguments of the source
    """
    given = arguments.get("sequence_by")
    texts = [given] if isinstance(given, str) else given or []
    if not texts:
        return "has no sequence_by, which orders the changes of all sources."
    if any(COMMIT_VERSION in str(text).lower() for text in (*texts, arguments.get("delete_sequence"))):
        return f"is ordered by {COMMIT_VERSION}, and each source counts its own versions."
    return ""


def log_of(arguments: Mapping[str, Any]) -> str:
    """Return the change log of a pipeline with several sources."""
    return str(arguments.get("log") or f"{str(arguments['target']).rstrip('/')}{LOG}")


def pipeline_of(pipeline: str, source: str) -> str:
    """Return the name of the pipeline that collects the changes of a source."""
    return f"{pipeline}.{source}"


def collecting(
    pipeline: str, name: str, arguments: Mapping[str, Any], source: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of the pipeline that collects the changes of a source.

    :param arguments: those of the pipeline
    :param source: those that are written for the source; an empty one overrides that of the pipeline
    """
    shared = {key: value for key, value in arguments.items() if key in (*_OF_ROWS, *_OF_BOTH)}
    merged = {**shared, **source}
    if merged.get("source_kind") == "change_log" and "delete_sequence" not in source:
        # It is for the other sources: a delete of this one is an event with its own sequence.
        merged.pop("delete_sequence", None)
    predecessor = arguments.get("take_over_from")
    if predecessor is not None and "take_over_from" not in merged:
        # The pipeline had another name, and so had its sources, except those that are new.
        merged |= {"take_over_from": pipeline_of(predecessor, name), "inherits_take_over": True}
    given = {key: value for key, value in merged.items() if value is not None and key != "removed"}
    return {
        "pipeline": pipeline_of(pipeline, name),
        **given,
        "target": log_of(arguments),
        "target_kind": "change_log",
    }


def applying(pipeline: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the pipeline that applies the collected changes."""
    dropped = (*_OF_ROWS, *_OF_A_SOURCE, "log", "source")
    kept = {key: value for key, value in arguments.items() if key in APPLY and key not in dropped}
    return {
        **kept,
        "pipeline": pipeline,
        "source": log_of(arguments),
        "source_kind": "change_log",
        "sequence_by": SEQUENCE,
        "apply_as_deletes": f"{OP} = 'delete'",
        "except_column_list": list(LOG_COLUMNS),
    }
