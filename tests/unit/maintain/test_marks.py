"""Which commits are those of an expiry: the mark and what the commit did have to say so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delta_cdc.core import maintenance_tags
from delta_cdc.core.watermark import Seal
from delta_cdc.delta_log.actions import CommitInfo
from delta_cdc.planning import maintenance_commits

ONLY_DELETES = {
    "matchedPredicates": '[{"actionType":"delete"}]',
    "notMatchedPredicates": "[]",
    "notMatchedBySourcePredicates": "[]",
}
MARK = maintenance_tags.written("expire", below="30")


def info(text: str | None = MARK, operation: str = "MERGE", **parameters: Any) -> CommitInfo:
    return CommitInfo(
        operation=operation, user_metadata=text, operation_parameters={**ONLY_DELETES, **parameters}
    )


def test_an_expiry() -> None:
    assert maintenance_commits.expired_below(info()) == "30"
    assert Seal.from_json(MARK) is None


@pytest.mark.parametrize(
    "given",
    [
        info(None),
        info("30"),
        info("{delta_cdc_maintenance"),
        info('["delta_cdc_maintenance"]'),
        info(MARK.replace(":1", ":2")),
        info(maintenance_tags.written("optimize", below="30")),
        info(maintenance_tags.written("expire", below=30)),
        # The conf leaks into commits that follow in the same session.
        info(operation="UPDATE"),
        info(operation="WRITE"),
        info(matchedPredicates='[{"actionType":"update"}]'),
        info(matchedPredicates='[{"actionType":"delete"},{"actionType":"update"}]'),
        info(matchedPredicates="[]"),
        info(matchedPredicates="delete"),
        info(matchedPredicates=None),
        info(notMatchedPredicates='[{"actionType":"insert"}]'),
        info(notMatchedBySourcePredicates='[{"actionType":"delete"}]'),
        info(notMatchedBySourcePredicates=json.dumps({"actionType": "delete"})),
    ],
)
def test_what_is_none(given: CommitInfo) -> None:
    assert maintenance_commits.expired_below(given) is None
