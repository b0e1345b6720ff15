"""The targets of a configuration, as what is to be verified."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from delta_cdc import tables as engine
from delta_cdc.checks import described
from delta_cdc.errors import InvalidConfiguration
from delta_cdc.log.store import canonical_uri
from delta_cdc.verify.request import VerifyRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.config import Configuration

#: In which of them two pipelines have to agree for their rows to be the same.
_SAME = ("keys", "where", "select", "apply_as_deletes", "apply_as_truncates", "source_kind")


def chosen(
    configuration: Configuration, group: str | None, pipelines: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Return the arguments of the tables of a configuration that are asked for.

    :param group: only this one; None is all
    :param pipelines: only these; None is all
    :raises InvalidConfiguration: for a name that is not in it
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


def requests_of(
    tables: Sequence[Mapping[str, Any]],
    *,
    wanted: Sequence[str],
    run_id: str = "",
    storage_options: dict[str, str] | None = None,
) -> list[VerifyRequest]:
    """Return what is to be verified of tables, one request for each.

    Where a pipeline of type 1 and one of type 2 make the same rows of one source, and no other does, the
    history is compared with the current rows, too.

    :param tables: arguments of each (:func:`delta_cdc.tables.requests`)
    :param wanted: names of :data:`delta_cdc.verify.checks.CHECKS`
    :raises InvalidConfiguration: for arguments that are none
    """
    found = [_request(given, tuple(wanted), run_id, storage_options) for given in tables]
    return _paired(found)


def _request(
    given: Mapping[str, Any], wanted: tuple[str, ...], run_id: str, storage_options: dict[str, str] | None
) -> VerifyRequest:
    try:
        _, apply = engine.requests(given, run_id=run_id, storage_options=storage_options, ingest=False)
        if apply is not None:
            apply.check()
    except InvalidConfiguration as error:
        said = f"Pipeline {given.get('pipeline')}: {error.message}"
        raise InvalidConfiguration(said, remedy=error.remedy) from error
    more: dict[str, Any] = {"wanted": wanted, "run_id": run_id, "storage_options": storage_options}
    if apply is None:
        # A change log that nothing is applied from here.
        return VerifyRequest(pipeline=given["pipeline"], target=given["log"], **more)
    return VerifyRequest(
        pipeline=apply.pipeline,
        target=apply.target,
        source=apply.source if apply.staging is None else None,
        options=apply.options,
        takes_drift=apply.on_drift != "fail",
        **more,
    )


def _paired(found: Sequence[VerifyRequest]) -> list[VerifyRequest]:
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
    told = described(one.options)
    return canonical_uri(one.source), *[repr(told[name]) for name in _SAME]
