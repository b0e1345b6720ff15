"""The arguments of one table, and the work that they ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from delta_cdc.core.change_log import DESCRIPTION, completed, description
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import APPLY, INGEST, ApplyOptions, IngestOptions
from delta_cdc.core.rules import check_apply
from delta_cdc.planning.ingest_request import checked
from delta_cdc.run.batch import pipeline_job
from delta_cdc.run.table_arguments import ingest_options, is_ingested, pipeline_of, requests

FEED = {"pipeline": "p", "source": "/s", "target": "/t", "keys": ["id"]}
LOGGED = {**FEED, "source": "/landing", "log": "/log", "adapter_options": {"sequence_by": "n"}}


def test_what_is_not_given_is_as_the_operators_have_it() -> None:
    for given, options in ((FEED, APPLY), (LOGGED, INGEST)):
        defaults = {name: option.default for name, option in options.items()}
        assert requests(given) == requests({**defaults, **given})
    ingest, apply = requests(FEED, run_id="r", storage_options={"a": "b"}, scratch=False)
    assert ingest is None
    assert apply is not None
    assert (apply.source, apply.target, apply.run_id, apply.scratch) == ("/s", "/t", "r", False)
    assert apply.storage_options == {"a": "b"}
    check_apply(apply)


def test_a_log_stands_between() -> None:
    given = {**LOGGED, "starting_timestamp": "2026-01-01T00:00:00Z", "max_bytes": 5}
    ingest, apply = requests(given)
    assert ingest is not None
    assert apply is not None
    assert (ingest.source, ingest.log, apply.source, apply.target) == ("/landing", "/log", "/log", "/t")
    # They bound what is taken, and not what is applied of it.
    assert (ingest.max_bytes, apply.max_bytes, apply.starting_timestamp) == (5, None, None)
    checked(ingest)
    check_apply(apply)
    assert requests({**LOGGED, "target": None})[1] is None
    # What bounds a run that does not ingest is about the log.
    ingest, apply = requests(given, ingest=False)
    assert ingest is None
    assert apply is not None
    assert (apply.source, apply.starting_timestamp) == ("/log", "2026-01-01T00:00:00+00:00")


def test_options_of_kafka_are_for_topics() -> None:
    kafka_options = {"security.protocol": "SSL"}
    for source, wanted in (("/landing", None), ("kafka://broker:9092/orders", kafka_options)):
        made = pipeline_job({**LOGGED, "source": source}, kafka_options=kafka_options).ingest
        assert made is not None
        assert made.kafka_options == wanted


def test_variables_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "/lake")
    _, apply = requests({**FEED, "source": "${LAKE}/s"})
    assert apply is not None
    assert apply.source == "/lake/s"
    with pytest.raises(InvalidConfiguration, match="not set here"):
        requests({**FEED, "source": "${NO_SUCH_LAKE}/s"})


def test_rendered_flags_are_read() -> None:
    _, apply = requests({**FEED, "keys": None, "insert_only": "True", "single_driver": "false"})
    assert apply is not None
    assert (apply.options.insert_only, apply.single_driver) == (True, False)
    assert [is_ingested({"log": log}) for log in (None, "", "None", "/log")] == [False, False, False, True]


# -- ingests ------------------------------------------------------------------------------------
def test_an_ingest_as_a_form_renders_it() -> None:
    given = ingest_options(
        {
            "source": " kafka://h/t ",
            "format": "",
            "adapter": " debezium ",
            "adapter_options": '{"connector": "postgresql"}',
            "keys": "id",
            "schema": "None",
            "format_options": {"lineSep": 5, "multiLine": True},
            "insert_only": "False",
            "on_invalid": "",
            "cluster_by": ["id"],
            "log_properties": {"delta.logRetentionDuration": "interval 60 days"},
        }
    )
    assert given == IngestOptions(
        source_kind="kafka",
        adapter="debezium",
        adapter_options={"connector": "postgresql"},
        keys=("id",),
        format_options={"lineSep": "5", "multiLine": "true"},
        cluster_by=("id",),
        log_properties={"delta.logRetentionDuration": "interval 60 days"},
    )
    assert ingest_options({"source": "/in"}) == IngestOptions()
    own = ("my.module", "my.module.function", "my.module:function")
    assert [ingest_options({"adapter": name}).adapter for name in own] == list(own)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pipeline": 5}, "pipeline is 5"),
        ({"target": ""}, "target is ''"),
        ({"insert_only": "perhaps"}, "insert_only is 'perhaps'"),
        ({"max_versions": "many"}, "max_versions is 'many'"),
        ({"mode": "relaod"}, r"mode is 'relaod'.*did you mean 'reload'\?"),
        ({"log": "/log", "format": "jsonl"}, "did you mean 'json'"),
        ({"log": "/log", "adapter": "debesium"}, "did you mean 'debezium'"),
        ({"log": "/log", "on_invalid": "quarantin"}, "did you mean 'quarantine'"),
        ({"log": "/log", "adapter_options": "{"}, "adapter_options is no mapping"),
        ({"log": "/log", "adapter_options": [1]}, "adapter_options is"),
        ({"log": "/log", "format_options": "5"}, "format_options is no mapping"),
    ],
    ids=str,
)
def test_what_is_no_value(changes: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        requests({**FEED, **changes})


EVENTS = ("_op", "_sequence", "_columns", "_source_timestamp", "_position")


def of_log(**given: Any) -> ApplyOptions:
    """Return the options of the apply that follows an ingest."""
    _, apply = requests({"source": "/in", "log": "/log", "target": "/t", **given})
    assert apply is not None
    return apply.options


def test_applying_the_log_of_an_ingest() -> None:
    assert of_log(keys=["id"], sequence_by="") == ApplyOptions(
        keys=("id",),
        source_kind="change_log",
        sequence_by="_sequence",
        apply_as_deletes="_op = 'delete'",
        apply_as_truncates="_op = 'truncate'",
        columns_to_update="_columns",
        except_column_list=EVENTS,
    )
    own = {"sequence_by": "at", "apply_as_deletes": "gone", "columns_to_update": "cols"}
    made = of_log(keys=["id"], column_list=["a"], **own)
    assert {name: getattr(made, name) for name in own} == own
    assert (made.column_list, made.except_column_list) == (("a",), None)
    appended = of_log(insert_only=True)
    assert appended == ApplyOptions(insert_only=True, except_column_list=EVENTS)
    for insert_only in (True, False):
        keys = () if insert_only else ("id",)
        some = of_log(insert_only=insert_only, keys=keys, select=["id", "a + 1 AS b"])
        assert some.except_column_list is None
        whole = of_log(insert_only=insert_only, keys=keys, select=["*", "a + 1 AS b"])
        assert whole.except_column_list == EVENTS


def test_only_a_log_that_describes_itself_completes_options() -> None:
    keyed = ApplyOptions(keys=("id",), source_kind=None)
    plain = replace(keyed, source_kind="change_feed")
    assert completed(keyed, {}) == plain
    assert completed(keyed, DESCRIPTION) == of_log(keys=["id"])
    assert completed(replace(keyed, source_kind="change_log"), DESCRIPTION) == of_log(keys=["id"])
    for explicit in (plain, replace(keyed, source_kind="snapshot")):
        assert completed(explicit, DESCRIPTION) == explicit
    appended = ApplyOptions(insert_only=True, source_kind=None)
    assert completed(appended, DESCRIPTION) == ApplyOptions(insert_only=True)
    assert completed(appended, description(insert_only=True)) == of_log(insert_only=True)
    assert completed(keyed, description(insert_only=True)) == plain
    nulls = completed(replace(keyed, ignore_null_updates=True), DESCRIPTION)
    assert (nulls.columns_to_update, nulls.sequence_by) == (None, "_sequence")


@pytest.mark.parametrize(
    ("given", "pipeline"),
    [
        ({"pipeline": "p", "target": "/lake/orders"}, "p"),
        ({"target": "/lake/orders"}, "orders"),
        ({"pipeline": "", "log": "/lake/events", "target": "main.silver.orders"}, "orders"),
        ({"log": "/lake/events/", "target": ""}, "events"),
        ({"target": "${PLACE}"}, "orders"),
        *(({"pipeline": name, "target": "/lake/orders"}, name) for name in ("none", "null", "None")),
        ({"pipeline": None, "target": "/lake/orders"}, "orders"),
    ],
)
def test_a_pipeline_is_called_as_its_table(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], pipeline: str
) -> None:
    monkeypatch.setenv("PLACE", "/lake/orders")
    assert pipeline_of(given) == pipeline


def test_a_dry_run_is_no_mode() -> None:
    _, apply = requests({**FEED, "mode": "repair", "repair": {"keys": "true"}, "dry_run": "True"})
    assert apply is not None
    assert (apply.mode, apply.dry_run) == ("repair", True)
    with pytest.raises(InvalidConfiguration, match="mode is 'dry_run'"):
        requests({**FEED, "mode": "dry_run"})
