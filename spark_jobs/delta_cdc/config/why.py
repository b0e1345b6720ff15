"""Build the question where a row comes from, for a target of a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.config.verification import request_of as verify_request_of
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.planning.why import POLICIES, WhyRequest

if TYPE_CHECKING:
    from collections.abc import Mapping


def request_of(given: Mapping[str, Any], **question: Any) -> WhyRequest:
    """Return the question for one key of a target.

    :param given: arguments of the table (:func:`delta_cdc.run.table_arguments.requests`)
    :param question: the fields of the request that do not depend on the table, such as ``key`` and ``at``
    :raises InvalidConfiguration: the arguments are invalid, or have no target
    """
    known = verify_request_of(
        given,
        wanted=(),
        run_id=question.get("run_id", ""),
        storage_options=question.get("storage_options"),
    )
    if known.options is None:
        raise InvalidConfiguration(
            f"No pipeline applies the change log of {known.pipeline} in this configuration.",
            remedy="name a pipeline with a target.",
            argument="pipeline",
        )
    policies = {name: getattr(known.options, name) for name in POLICIES}
    return WhyRequest(
        pipeline=known.pipeline, target=known.target, source=known.source, policies=policies, **question
    )
