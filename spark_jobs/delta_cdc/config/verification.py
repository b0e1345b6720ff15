"""Build verification requests for the targets of a configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.checks import Verification
from delta_cdc.core.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.core.rules import check_options
from delta_cdc.core.uris import canonical_uri
from delta_cdc.core.validation import comparable, described
from delta_cdc.core.value_rules import those_that
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

    :param given: arguments of the table (:func:`delta_cdc.run.table_arguments.requests`)
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
    common: dict[str, Any] = {"wanted": tuple(wanted), "run_id": run_id, "storage_options": storage_options}
    if apply is None:
        # In this configuration, no pipeline applies the change log.
        return VerifyRequest(pipeline=given["pipeline"], target=expand(given["log"]), **common)
    return VerifyRequest(
        pipeline=apply.pipeline,
        target=apply.target,
        source=apply.source,
        options=apply.options,
        takes_drift=apply.on_drift != "fail",
        once=apply.once,
        **common,
    )


def paired(requests: Sequence[VerifyRequest | Verification]) -> list[VerifyRequest | Verification]:
    """Let each history be compared with the current rows of its source, if exactly one pipeline builds them.

    :param requests: requests with locations instead of catalog names, as far as these are known; a result is
        left as it is
    """
    by_likeness: dict[Any, list[VerifyRequest]] = {}
    for request in requests:
        if isinstance(request, Verification):
            continue
        if request.options is not None and request.options.keys and request.source is not None:
            by_likeness.setdefault(_likeness(request), []).append(request)
    current_of: dict[int, VerifyRequest] = {}
    for group in by_likeness.values():
        types = {
            request.options.stored_as_scd_type: request for request in group if request.options is not None
        }
        if len(group) == 2 and set(types) == {1, 2}:
            current_of[id(types[2])] = types[1]
    return [
        request
        if isinstance(request, Verification) or (other := current_of.get(id(request))) is None
        else replace(request, current=other.target, current_pipeline=other.pipeline)
        for request in requests
    ]


def _likeness(request: VerifyRequest) -> tuple[Any, ...]:
    assert request.options is not None
    assert request.source is not None
    same_rows = [comparable(name, described(request.options)[name]) for name in SAME_ROWS]
    aside = those_that(request.options.rules, "quarantine")
    return _place(request.source), *same_rows, tuple(sorted(aside.items(), key=str))


def _place(table: str) -> str:
    try:
        return canonical_uri(table)
    except TableNameUnresolved:
        return table
