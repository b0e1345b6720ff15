"""Link each pipeline with ``shadow_of`` to its original: both get the name and the target of the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.config.combine import is_template, same_place
from delta_cdc.config.findings import nearest, shown
from delta_cdc.core.validation import comparable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.config.configuration import Group, Table

#: Takes the pipeline, what is wrong with its shadow_of, and the remedy.
Report = Callable[[str, str, str], None]


def linked(groups: Sequence[Group], report: Report) -> tuple[Group, ...]:
    """Return the groups, with mappings for the names in ``shadow_of``; originals get ``shadowed_by``.

    :param report: takes each pipeline whose original does not fit
    """
    tables = {table.pipeline: table for group in groups for table in group.tables}
    targets: dict[str, dict[str, dict[str, str]]] = {}
    for table in tables.values():
        name = table.arguments.get("shadow_of")
        if not isinstance(name, str):
            # A mapping names a pipeline outside of this configuration.
            continue
        wrong = _wrong(table, name, tables)
        if wrong is not None:
            report(table.pipeline, *wrong)
            continue
        original = tables[name].arguments
        targets.setdefault(table.pipeline, {})["shadow_of"] = {name: original["target"]}
        known = original.get("shadowed_by")
        of_original = targets.setdefault(name, {})
        shadowed_by = of_original.setdefault("shadowed_by", dict(known) if isinstance(known, dict) else {})
        shadowed_by[table.pipeline] = table.arguments["target"]
    return tuple(
        replace(group, tables=tuple(_with(table, targets.get(table.pipeline, {})) for table in group.tables))
        for group in groups
    )


def _with(table: Table, arguments: dict[str, Any]) -> Table:
    return replace(table, arguments={**table.arguments, **arguments}) if arguments else table


def _wrong(table: Table, name: str, tables: dict[str, Table]) -> tuple[str, str] | None:
    """Return why a pipeline cannot shadow another one, and what to do; None if it can."""
    given = table.arguments
    if name == table.pipeline:
        return "shadow_of is its own name.", "name the pipeline whose target this one's is to replace."
    if name not in tables:
        return f"shadow_of is {shown(name)}, which is no pipeline.", nearest(name, list(tables))
    original = tables[name].arguments
    if "shadow_of" in original:
        return (
            f"shadow_of is {name}, which is a shadow itself.",
            f"name the original of {name}: a pipeline may have several shadows.",
        )
    if "target" not in original or "target" not in given:
        lacking = name if "target" not in original else table.pipeline
        return f"shadow_of is {name}, and {lacking} has no target.", "name pipelines with targets."
    for what, ours, theirs in (
        ("source", _source(given), _source(original)),
        ("where", comparable("where", given.get("where")), comparable("where", original.get("where"))),
    ):
        if ours != theirs and not any(is_template(one.get(what)) for one in (given, original)):
            return (
                f"shadow_of is {name}, which has another {what}.",
                f"give both the same {what}; the source of a pipeline with a change log is the log.",
            )
    return None


def _source(arguments: dict[str, Any]) -> str:
    """Return the table that the target is applied from, comparable."""
    return same_place(str(arguments.get("log") or arguments.get("source")))
