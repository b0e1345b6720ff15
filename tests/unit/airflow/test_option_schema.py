"""Options are declared once: what else has their names and defaults, agrees with the schema."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc.operators import (
    DeltaApplyChangesOperator,
    DeltaIngestChangesOperator,
    DeltaReadChangesOperator,
)
from delta_cdc import apply_changes, ingest_changes, plan_changes, read_changes
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option import GROUPS, TABLE, Option, filled, flat, in_group, parameters
from delta_cdc.core.options import APPLY, INGEST, READ, ApplyOptions, IngestOptions, QueryOptions
from delta_cdc.core.requests import ApplyRequest, ChangesRequest, IngestRequest, ReadRequest

if TYPE_CHECKING:
    from collections.abc import Callable

OPERATORS = [
    (DeltaApplyChangesOperator, APPLY, set()),
    (DeltaIngestChangesOperator, INGEST, {"kafka_options", "kafka_conn_id"}),
    (DeltaReadChangesOperator, READ, set()),
]
#: Beside options, a function takes what runs it.
OF_A_CALL = {"spark", "scratch", "storage_options", "run_id", "kafka_options"}
#: What a required argument has, or one that the user may leave out.
EMPTY = (None, "", inspect.Parameter.empty)


def signature(cls: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a constructor."""
    found = inspect.signature(inspect.unwrap(cls.__init__)).parameters
    return {name: one for name, one in found.items() if name not in ("self", "kwargs")}


def same(default: Any, option: Option | None) -> bool:
    """Tell whether a default is that of an option, or for a group of options, None."""
    wanted = option.default if option is not None else None
    return default == wanted or (default in EMPTY and wanted is None)


@pytest.mark.parametrize(("cls", "options", "more"), OPERATORS)
def test_an_operator_has_the_options_with_their_defaults(
    cls: type, options: dict[str, Option], more: set[str]
) -> None:
    taken = signature(cls)
    assert set(taken) - more == set(parameters(options))
    wrong = {name for name in parameters(options) if not same(taken[name].default, options.get(name))}
    assert wrong == set()


@pytest.mark.parametrize(("cls", "options", "more"), OPERATORS)
def test_an_operator_renders_what_is_templated(cls: Any, options: dict[str, Option], more: set[str]) -> None:
    # An operator's attribute `log` is its logger.
    rendered = {"log" if name == "log_table" else name for name in cls.template_fields}
    assert len(rendered) == len(cls.template_fields)
    assert set(parameters(options)) & rendered == set(parameters(options, templated=True))


@pytest.mark.parametrize(
    ("function", "options", "some"),
    [
        (apply_changes, APPLY, False),
        (ingest_changes, INGEST, True),
        (read_changes, READ, True),
        (plan_changes, READ, True),
    ],
)
def test_a_function_has_the_options_with_their_defaults(
    function: Callable[..., Any], options: dict[str, Option], some: bool
) -> None:
    taken = {n: p for n, p in inspect.signature(function).parameters.items() if n not in OF_A_CALL}
    assert set(taken) <= set(parameters(options))
    assert some or set(parameters(options)) - set(taken) == {"staging", "freshness"}
    assert {name for name in taken if not same(taken[name].default, options.get(name))} == set()


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (ApplyOptions, {**APPLY, "source_kind": None}),
        (IngestOptions, {**INGEST, "source_kind": None}),
        (QueryOptions, READ),
        (ApplyRequest, APPLY),
        (IngestRequest, INGEST),
        (ReadRequest, READ),
        (ChangesRequest, READ),
    ],
)
def test_what_the_engine_takes_where_nothing_is_given(cls: Any, options: dict[str, Option | None]) -> None:
    for field in fields(cls):
        option = options.get(field.name)
        made = field.default_factory is not MISSING
        default = field.default_factory() if made else field.default  # type: ignore[misc]
        if option is not None and option.kind is not TABLE and default is not MISSING:
            assert option.read(option.default) == option.read(None) == default, field.name


def test_every_option_is_read_and_every_error_names_it() -> None:
    for options in (APPLY, INGEST, READ):
        for name, option in options.items():
            assert option.name == name
            assert not option.doc.endswith(".")
            with pytest.raises(InvalidConfiguration, match=name) as failed:
                option.read(object())
            assert failed.value.argument == name


def test_groups_are_dissolved() -> None:
    given = {"keys": "id", "limits": {"max_versions": 5}, "repair": '{"keys": "true"}', "layout": "None"}
    assert flat(APPLY, given) == {"keys": "id", "max_versions": 5, "repair_keys": "true"}
    assert flat(APPLY, {"policies": {"on_late": "{{ x }}"}}) == {"on_late": "{{ x }}"}
    without = {"single_driver": True, "on_late": "discard"}
    assert flat(APPLY, without) == without
    for options in (APPLY, INGEST, READ):
        assert {option.group for option in options.values()} <= {"", *GROUPS}
        for group in GROUPS:
            for key, option in in_group(options, group).items():
                assert flat(options, {group: {key: 1}}) == {option.name: 1}
    # What is no option of a class is left alone.
    filled_in = filled(QueryOptions, READ, {"query": "upsert", "keys": "id", "nonsense": 1})
    assert filled_in == QueryOptions(query="upsert", keys=("id",))


@pytest.mark.parametrize(
    ("group", "value", "said"),
    [
        ("policies", {"on_lat": "fail"}, "policies has the key 'on_lat'. Remedy: did you mean 'on_late'?"),
        ("limits", {"x": 5}, "versions_per_commit, bytes_per_commit, max_deleted, max_changed"),
        ("limits", {"max_files": 5}, "limits has the key 'max_files'"),
        ("repair", {"repair_keys": "true"}, "Its keys are keys, quarantined."),
        ("layout", ["cluster_by"], "give a mapping from names to values, or its JSON text."),
        ("layout", "{cluster_by: id", "layout is no mapping (type str)"),
    ],
)
def test_what_a_group_cannot_be(group: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidConfiguration) as failed:
        flat(APPLY, {group: value})
    assert said in str(failed.value)
    assert failed.value.argument == group


def test_a_pipeline_is_called_as_its_table() -> None:
    def made(**given: Any) -> str:
        kind = DeltaIngestChangesOperator if "log" in given else DeltaApplyChangesOperator
        return kind(task_id="t", source="/s", keys=["id"], **given).pipeline

    assert made(target="s3://lake/silver/orders/") == "orders"
    assert made(target="main.silver.orders", log="/lake/events") == "orders"
    assert made(log="/lake/events") == "events"
    assert made(target="/lake/{{ params.table }}") == "{{ params.table }}"
    assert made(target="/lake/orders", pipeline="p") == "p"


@pytest.mark.parametrize(
    ("options", "name", "value", "said"),
    [
        (APPLY, "mode", "relaod", "did you mean 'reload'"),
        (APPLY, "stored_as_scd_type", 3, "use 1 or 2"),
        (APPLY, "schema_evolution", "all", "use one of additive, none, widen, keep_dropped, mirror"),
        (APPLY, "on_conflict", "first", "use one of fail, quarantine or"),
        (APPLY, "on_conflict", {"last_by": ["n", "N"]}, "on_conflict names a column twice (n, N)"),
        (APPLY, "keys", ["id", "ID"], "keys names a column twice (id, ID)"),
        (
            APPLY,
            "keys",
            "company, n",
            "it would be the name of one column. Remedy: give a list: ['company', 'n']",
        ),
        (APPLY, "select", ["id", " "], "give an expression in each place"),
        (APPLY, "sequence_by", ["at", " "], "give an expression or a list of them"),
        (APPLY, "starting_version", -1, "give a whole number >= 0"),
        (APPLY, "max_versions", 0, "give a whole number >= 1"),
        (APPLY, "initial_load", {"none_at": True}, "give a whole number >= 0"),
        (APPLY, "initial_load", {"at": 3}, "use one of snapshot, none"),
        (INGEST, "adapter", "debesium", "did you mean 'debezium'"),
        (READ, "method", "cdf", "use one of auto"),
    ],
)
def test_what_an_option_cannot_be(options: dict[str, Option], name: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidConfiguration) as failed:
        options[name].read(value)
    assert said in str(failed.value)
    assert failed.value.argument == name


CHOICES = [
    pytest.param(option, id=f"{scope} {option.name}")
    for scope, options in (("apply", APPLY), ("ingest", INGEST), ("read", READ))
    for option in options.values()
    if option.kind.choices and option.kind.name != "scd_type"
]


@pytest.mark.parametrize("option", CHOICES)
def test_every_choice_is_read_in_one_way(option: Option) -> None:
    """``NONE`` was a snapshot where ``none`` declares that the target holds everything."""
    for choice in option.kind.choices:
        assert option.read(choice) == option.read(f" {choice} ") == choice
        for other in {choice.upper(), choice.capitalize()} - {"None"}:
            with pytest.raises(InvalidConfiguration, match=rf"{option.name} is .*did you mean '{choice}'"):
                option.read(other)
    for nothing in (None, "", " ", "None", "null"):
        assert option.read(nothing) == option.default
    for wrong in ("NONE", "Null", "nONE", 0, False, []):
        with pytest.raises(InvalidConfiguration, match=f"{option.name} is"):
            option.read(wrong)
