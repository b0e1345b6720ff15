"""Build verification requests for the targets of a configuration."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.core.options import check_options
from delta_cdc.core.uris import canonical_uri
from delta_cdc.core.validation import comparable, described
from delta_cdc.core.variables import expand
from delta_cdc.planning.verify_request import VerifyRequest
from delta_cdc.run import table_arguments as engine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.config import Configuration

#: Options in which two pipelines must agree to have the same rows.
_SAME = ("keys", "where", "select", "apply_as_deletes", "apply_as_truncates", "source_kind")


def chosen(
    configuration: Configuration, group: str | None, pipelines: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Return the arguments of the selected tables of a configuration.

    :param group: only this one; None is all
    :param pipelines: only these; None is all
    :raises InvalidConfiguration: a name is not in it
    """
    groups = configuration.groups
    _refuse_unknown("group", [group] if group is not None else [], [one.name for one in groups])
    tables = [table for one in groups if group in (None, one.name) for table in one.tables]
    _refuse_unknown("pipeline", pipelines or (), [table.pipeline for table in tables])
    return [table.arguments for table in tables if pipelines is None or table.pipeline in pipelines]


def _refuse_unknown(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1) or known[:10]
            raise InvalidConfiguration(
                f"The configuration has no {what} {name!r}.",
                remedy=f"use one that it has: {', '.join(near)}.",
            )


def request_of(
    given: Mapping[str, Any],
    *,
    wanted: Sequence[str],
    run_id: str = "",
    storage_options: dict[str, str] | None = None,
) -> VerifyRequest:
    """Return the verification request of a table.

    :param given: its arguments (:func:`delta_cdc.run.table_arguments.requests`)
    :param wanted: names of :data:`delta_cdc.core.checks.CHECKS`
    :raises InvalidConfiguration: the arguments are invalid
    """
    try:
        _, apply = engine.requests(given, run_id=run_id, storage_options=storage_options, ingest=False)
        if apply is not None:
            check_options(apply.options)
    except InvalidConfiguration as error:
        said = f"Pipeline {given.get('pipeline')}: {error.message}"
        raise InvalidConfiguration(said, remedy=error.remedy, argument=error.argument) from error
    more: dict[str, Any] = {"wanted": tuple(wanted), "run_id": run_id, "storage_options": storage_options}
    if apply is None:
        # A change log without an apply in this configuration.
        return VerifyRequest(pipeline=given["pipeline"], target=expand(given["log"]), **more)
    return VerifyRequest(
        pipeline=apply.pipeline,
        target=apply.target,
        source=apply.source,
        options=apply.options,
        takes_drift=apply.on_drift != "fail",
        **more,
    )


def paired(found: Sequence[VerifyRequest]) -> list[VerifyRequest]:
    """Compare each history with the current rows of the same source, if exactly one pipeline makes them.

    :param found: with locations instead of catalog names, as far as these are known
    """
    alike: dict[Any, list[VerifyRequest]] = {}
    for one in found:
        if one.options is not None and one.options.keys and one.source is not None:
            alike.setdefault(_likeness(one), []).append(one)
    current: dict[int, VerifyRequest] = {}
    for group in alike.values():
        types = {one.options.stored_as_scd_type: one for one in group if one.options is not None}
        if len(group) == 2 and set(types) == {1, 2}:
            current[id(types[2])] = types[1]
    return [
        one
        if (other := current.get(id(one))) is None
        else replace(one, current=other.target, current_pipeline=other.pipeline)
        for one in found
    ]


def _likeness(one: VerifyRequest) -> tuple[Any, ...]:
    assert one.options is not None
    assert one.source is not None
    return _place(one.source), *[comparable(name, described(one.options)[name]) for name in _SAME]


def _place(table: str) -> str:
    try:
        return canonical_uri(table)
    except TableNameUnresolved:
        return table
