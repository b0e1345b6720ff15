"""The arguments of one table, and the work that they ask for."""

from __future__ import annotations

from typing import Any

import pytest

from delta_cdc.errors import InvalidConfiguration
from delta_cdc.tables import APPLY_DEFAULTS, INGEST_DEFAULTS, is_ingested, piece, requests

FEED = {"pipeline": "p", "source": "/s", "target": "/t", "keys": ["id"]}
LOGGED = {**FEED, "source": "/landing", "log": "/log", "adapter_options": {"sequence_by": "n"}}


def test_what_is_not_given_is_as_the_operators_have_it() -> None:
    assert requests(FEED) == requests({**APPLY_DEFAULTS, **FEED})
    assert requests(LOGGED) == requests({**INGEST_DEFAULTS, **LOGGED})
    ingest, apply = requests(FEED, run_id="r", storage_options={"a": "b"}, scratch=False)
    assert ingest is None
    assert apply is not None
    assert (apply.source, apply.target, apply.run_id, apply.scratch) == ("/s", "/t", "r", False)
    assert apply.storage_options == {"a": "b"}
    apply.check()


def test_a_log_stands_between() -> None:
    ingest, apply = requests({**LOGGED, "starting_timestamp": "2026-01-01T00:00:00Z", "max_bytes": 5})
    assert ingest is not None
    assert apply is not None
    assert (ingest.source, ingest.log, apply.source, apply.target) == ("/landing", "/log", "/log", "/t")
    # They bound what is taken, and not what is applied of it.
    assert (ingest.max_bytes, apply.max_bytes, apply.starting_timestamp) == (5, None, None)
    ingest.check()
    apply.check()
    assert requests({**LOGGED, "target": None})[1] is None


def test_the_log_alone() -> None:
    """What bounds a run that does not ingest is about the log."""
    ingest, apply = requests({**LOGGED, "starting_timestamp": "2026-01-01T00:00:00Z"}, ingest=False)
    assert ingest is None
    assert apply is not None
    assert (apply.source, apply.starting_timestamp) == ("/log", "2026-01-01T00:00:00Z")


def test_options_of_kafka_are_for_topics() -> None:
    told = {"security.protocol": "SSL"}
    for source, wanted in (("/landing", None), ("kafka://broker:9092/orders", told)):
        made = piece({**LOGGED, "source": source}, kafka_options=told).ingest
        assert made is not None
        assert made.kafka_options == wanted


def test_variables_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "/lake")
    _, apply = requests({**FEED, "source": "${LAKE}/s"})
    assert apply is not None
    assert apply.source == "/lake/s"
    with pytest.raises(InvalidConfiguration, match="not set here"):
        requests({**FEED, "source": "${NO_SUCH_LAKE}/s"})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"pipeline": None}, "pipeline is None"),
        ({"target": ""}, "target is ''"),
        ({"insert_only": "perhaps"}, "insert_only is 'perhaps'"),
        ({"max_versions": "many"}, "max_versions is 'many'"),
    ],
)
def test_what_is_no_value(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        requests({**FEED, **changed})


def test_rendered_flags_are_read() -> None:
    _, apply = requests({**FEED, "keys": None, "insert_only": "True", "single_driver": "false"})
    assert apply is not None
    assert (apply.options.insert_only, apply.single_driver) == (True, False)
    assert [is_ingested({"log": log}) for log in (None, "", "None", "/log")] == [False, False, False, True]
