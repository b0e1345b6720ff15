"""The question about a key of a configured pipeline."""

from __future__ import annotations

import pytest

from delta_cdc.config import load
from delta_cdc.config.why import request_of
from delta_cdc.core.errors import InvalidConfiguration


def test_a_question_has_the_options_that_no_seal_records() -> None:
    ordered = {"adapter_options": {"sequence_by": "at"}}
    read = load(
        {
            "pipelines": {
                "p": {
                    "source": "/events",
                    "log": "/log",
                    "target": "/t",
                    "keys": ["id"],
                    "policies": {"on_conflict": {"last_by": ["n"]}},
                    **ordered,
                },
                "q": {"source": "/events", "log": "/log2", "keys": ["id"], **ordered},
            }
        }
    )
    tables = {table.pipeline: table.arguments for table in read.tables()}
    question = request_of(tables["p"], key={"id": "1"}, at="3", most_bytes=5, run_id="r")
    # The change log is the source of the target.
    assert (question.pipeline, question.source, question.target) == ("p", "/log", "/t")
    assert (question.key, question.at, question.most_bytes, question.run_id) == ({"id": "1"}, "3", 5, "r")
    assert question.policies == {"on_conflict": ("n",), "on_invalid": "fail", "on_late": "fail"}
    with pytest.raises(InvalidConfiguration, match="No pipeline applies the change log of q"):
        request_of(tables["q"], key={"id": "1"})
