"""Build verification requests for the targets of a configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.core.options import check_options
from delta_cdc.core.uris import canonical_uri
from delta_cdc.core.validation import comparable, described
from delta_cdc.core.variables import expand
from delta_cdc.planning.verify import SAME_ROWS, VerifyRequest
from delta_cdc.run import table_arguments as engine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
        message = f"Pipeline {given.get('pipeline')}: {error.message}"
        raise InvalidConfiguration(message, remedy=error.remedy, argument=error.argument) from error
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


def paired(requests: Sequence[VerifyRequest]) -> list[VerifyRequest]:
    """Compare each history with the current rows of the same source, if exactly one pipeline makes them.

    :param requests: with locations instead of catalog names, as far as these are known
    """
    alike: dict[Any, list[VerifyRequest]] = {}
    for one in requests:
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
        for one in requests
    ]


def _likeness(one: VerifyRequest) -> tuple[Any, ...]:
    assert one.options is not None
    assert one.source is not None
    return _place(one.source), *[comparable(name, described(one.options)[name]) for name in SAME_ROWS]


def _place(table: str) -> str:
    try:
        return canonical_uri(table)
    except TableNameUnresolved:
        return table
