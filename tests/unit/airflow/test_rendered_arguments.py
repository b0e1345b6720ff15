"""Arguments that exist only at run time: outputs of tasks, templates, native values, nothing."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import jinja2
import pytest
from airflow.sdk import DAG, task, task_group
from airflow.sdk.definitions._internal.expandinput import DictOfListsExpandInput
from airflow.sdk.definitions._internal.types import NOTSET, SET_DURING_EXECUTION
from airflow.serialization.serialized_objects import DagSerialization

from airflow_delta_cdc.arguments import _ATTRIBUTES, RenderedArguments
from airflow_delta_cdc.decorators.changes import _DeltaChangesDecoratedOperator
from airflow_delta_cdc.groups.base import GroupOperator
from airflow_delta_cdc.operators import (
    DeltaApplyChangesOperator,
    DeltaCommitWatermarkOperator,
    DeltaEnableChangeDataFeedOperator,
    DeltaExpireEventsOperator,
    DeltaIngestChangesOperator,
    DeltaOptimizeOperator,
    DeltaReadChangesOperator,
    DeltaVacuumOperator,
    DeltaVerifyOperator,
    DeltaWhyOperator,
)
from airflow_delta_cdc.operators.base import DEFAULT_NAME, DeltaCdcOperator
from airflow_delta_cdc.sensors import DeltaVersionSensor
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option import TABLE
from delta_cdc.planning.waiting import Condition

if TYPE_CHECKING:
    from tests.unit.airflow.conftest import StandIn

#: The required arguments of each operator and sensor.
REQUIRED: dict[Any, dict[str, Any]] = {
    DeltaApplyChangesOperator: {"source": "/s", "target": "/t"},
    DeltaIngestChangesOperator: {"source": "/s", "log": "/l"},
    DeltaReadChangesOperator: {"pipeline": "p", "table": "/s", "staging": "/w"},
    DeltaCommitWatermarkOperator: {"pipeline": "p", "staging": "/w"},
    DeltaEnableChangeDataFeedOperator: {"table": "/s"},
    DeltaExpireEventsOperator: {"table": "/s"},
    DeltaOptimizeOperator: {"table": "/s"},
    DeltaVacuumOperator: {"table": "/s"},
    DeltaVerifyOperator: {"pipeline": "p", "target": "/t"},
    DeltaWhyOperator: {"pipeline": "p", "target": "/t", "key": "id=1"},
    DeltaVersionSensor: {"table": "/s"},
    _DeltaChangesDecoratedOperator: {
        "pipeline": "p",
        "table": "/s",
        "staging": "/w",
        "python_callable": lambda changes: None,
    },
}
#: A pipeline has a name when Airflow parses the file, or its user gives one.
NAMED: dict[Any, dict[str, Any]] = {
    DeltaApplyChangesOperator: {"pipeline": "p"},
    DeltaIngestChangesOperator: {"pipeline": "p"},
}
#: Arguments that only a process of ``spark-submit`` has a use for, so the decorator refuses them.
REFUSED = {
    _DeltaChangesDecoratedOperator: {
        *("target", "files", "py_files", "driver_class_path", "proxy_user", "env_vars"),
        *("post_submit_commands", "properties_file"),
    }
}
CLASSES = [pytest.param(cls, id=cls.__name__) for cls in REQUIRED]
#: The same, for tests of many values; the three that are not slow have every kind of argument.
MOST = [
    pytest.param(
        cls,
        id=cls.__name__,
        marks=()
        if cls in (DeltaApplyChangesOperator, DeltaExpireEventsOperator, DeltaVersionSensor)
        else pytest.mark.slow,
    )
    for cls in REQUIRED
]


def names_of(cls: Any) -> list[str]:
    """Return the names of the templated arguments of a class."""
    by_attribute = {attribute: name for name, attribute in _ATTRIBUTES.items()}
    own = {"op_args", "op_kwargs", "templates_dict"}
    refused = REFUSED.get(cls, set())
    named = [by_attribute.get(attribute, attribute) for attribute in cls.template_fields]
    return [name for name in named if name not in own | refused]


def made(cls: Any, task_id: str, **given: Any) -> Any:
    return cls(task_id=task_id, **{**REQUIRED[cls], **NAMED.get(cls, {}), **given})


def attribute(operator: Any, name: str) -> Any:
    return getattr(operator, _ATTRIBUTES.get(name, name))


def dag(**how: Any) -> DAG:
    return DAG("d", schedule=None, **how)


class Ti:
    """The XComs of a run: the value under each key, or a list for the results of tasks."""

    dag_id = "d"

    def xcom_pull(self, task_ids: str, key: str, **_: Any) -> Any:
        return [f"{task_ids}/{key}"] if task_ids == "many" else f"{task_ids}/{key}"


def context(**params: Any) -> Any:
    return {"ti": Ti(), "task_instance": Ti(), "params": params, "run_id": "r"}


def refused(operator: Any) -> InvalidConfiguration | None:
    """Return the named error of an argument; any other error passes through."""
    try:
        operator.read_arguments()
    except InvalidConfiguration as error:
        return error
    return None


@task
def one() -> str:
    """Return a value."""
    return "v"


@task
def many() -> list[str]:
    """Return values."""
    return ["v"]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_argument_has_a_kind(cls: Any) -> None:
    for name in names_of(cls):
        assert name in cls.kinds, name
    assert "tables" not in GroupOperator.template_fields
    assert cls.render_template is GroupOperator.render_template is RenderedArguments.render_template


@pytest.mark.parametrize("cls", MOST)
def test_every_argument_takes_the_output_of_a_task(cls: Any) -> None:
    """``target=path.output`` was no DAG: ``unhashable type: 'PlainXComArg'``."""
    with dag() as built:
        value, values = one(), many()
        shapes: dict[str, tuple[Any, Any, set[str]]] = {
            "plain": (value, "one/return_value", {"one"}),
            "keyed": (value["k"], "one/k", {"one"}),
            "text": (f"a/{value}", "a/one/return_value", set()),
            "list": ([value, "b"], ["one/return_value", "b"], {"one"}),
            "mapping": ({"a": [value]}, {"a": ["one/return_value"]}, {"one"}),
            "map": (values.map(str.upper), ["MANY/RETURN_VALUE"], {"many"}),
            "zip": (values.zip(values), [("many/return_value",) * 2], {"many"}),
            "concat": (values.concat(values), ["many/return_value"] * 2, {"many"}),
            "sentinel": (NOTSET, None, set()),
            "dynamic": (SET_DURING_EXECUTION, None, set()),
        }
        tasks = {
            (name, shape): made(cls, f"{name}_{shape}", **{name: given})
            for name in names_of(cls)
            for shape, (given, _, _) in shapes.items()
        }
    DagSerialization.to_dict(built)
    for (name, shape), operator in tasks.items():
        _, expected, upstream = shapes[shape]
        assert operator.upstream_task_ids == upstream, (name, shape)
        operator.render_template_fields(context())
        rendered = attribute(operator, name)
        if upstream == {"many"}:
            rendered = list(rendered)
        assert rendered == expected, (name, shape)


@pytest.mark.parametrize("cls", [cls for cls in MOST if "Decorated" not in str(cls.id)])
def test_every_argument_can_be_mapped(cls: Any) -> None:
    fixed = {**REQUIRED[cls], **NAMED.get(cls, {})}
    with dag() as built:
        values = many()

        @task_group
        def each(given: Any) -> None:
            for name in names_of(cls):
                made(cls, name, **{name: given})

        each.expand(given=values)
        each.override(group_id="literal")(given=one())
        for name in names_of(cls):
            others = {other: value for other, value in fixed.items() if other != name}
            cls.partial(task_id=f"expanded_{name}", **others).expand(**{name: values})
    DagSerialization.to_dict(built)
    for name in names_of(cls):
        assert built.task_dict[f"each.{name}"].upstream_task_ids == {"many"}
        assert built.task_dict[f"literal.{name}"].upstream_task_ids == {"one"}
        mapped = cast("Any", built.task_dict[f"expanded_{name}"])
        assert mapped.upstream_task_ids == {"many"}
        assert isinstance(mapped.unmap({name: None}), cls)


def test_the_value_of_a_mapped_group_in_a_text_is_refused() -> None:
    """Otherwise the task would make a table that has the name of an object."""
    with dag():

        @task_group
        def each(name: Any) -> None:
            made(DeltaApplyChangesOperator, "within", target=f"/lake/{name}")

        with pytest.raises(InvalidConfiguration, match="f-string") as failed:
            each.expand(name=["a", "b"])
        assert failed.value.argument == "target"
        with pytest.raises(InvalidConfiguration, match="f-string"):
            made(DeltaApplyChangesOperator, "mapped", target=f"/lake/{many().map(str)}")


# -- native values --------------------------------------------------------------------------------
#: Texts that Python, or Jinja with native types, reads as something else.
EXACT = (
    *("2026_01", "'eu'", '"eu"', "00123", "1e5", "0x10", "2024", "1.10", "True", "None ", "[1, 2]", "(1, 2)"),
    *("{'a': 1}", "id > 3", "x = 'a'", "line\n", "50%", "{ x }", "-1", "1_000", "b'x'"),
)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("cls", CLASSES)
def test_a_text_without_a_template_stays(cls: Any, native: bool) -> None:
    """``2026_01`` was 202601 with native rendering, and ``'eu'`` lost its quotes."""
    with dag(render_template_as_native_obj=native):
        operator = made(cls, "t")
    given = [*EXACT, [*EXACT], {"a": [*EXACT]}]
    for name in names_of(cls):
        setattr(operator, _ATTRIBUTES.get(name, name), given)
    operator.render_template_fields(context())
    for name in names_of(cls):
        assert attribute(operator, name) == given, name


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("text", EXACT)
def test_a_text_in_a_template_stays(text: str, native: bool) -> None:
    with dag(render_template_as_native_obj=native):
        operator = made(DeltaApplyChangesOperator, "t")
    cases = {
        "{{ params.v }}": text,
        "{{ params['v'] }}{# why #}": text,
        "a/{{ params.v }}": f"a/{text}",
        "{{ params.v }}/{{ params.v }}": f"{text}/{text}",
    }
    for template, expected in cases.items():
        assert operator.render_template(template, context(v=text)) == expected
        assert operator.render_template([{"a": template}], context(v=text)) == [{"a": expected}]


def test_native_values_stay_what_they_are() -> None:
    signs = {"variable_start_string": "<<", "variable_end_string": ">>"}
    with dag(render_template_as_native_obj=True):
        native = made(DeltaApplyChangesOperator, "t")
    with dag():
        plain = made(DeltaApplyChangesOperator, "t")
    with dag(jinja_environment_kwargs=signs):
        other_signs = made(DeltaApplyChangesOperator, "t")
    for value in ([1, "2"], {"a": None}, None, 7, True, 1.5):
        assert native.render_template("{{ params.v }}", context(v=value)) == value
    assert native.render_template("{{ params.v }}{{ params.v }}", context(v=[1])) == "[1][1]"
    assert plain.render_template("{{ params.v }}", context(v=[1])) == "[1]"
    assert other_signs.render_template("<< params.v >> {{ x }}", context(v=1)) == "1 {{ x }}"


@pytest.mark.parametrize("native", [False, True])
def test_a_number_that_stands_for_a_name_is_its_digits(native: bool) -> None:
    fields = dict.fromkeys(("pipeline", "target", "where", "starting_version"), "{{ params.v }}")
    with dag(render_template_as_native_obj=native):
        operator = made(DeltaApplyChangesOperator, "t", **fields, keys=["{{ params.v }}"])
    operator.render_template_fields(context(v=2024))
    operator.pre_execute(context())
    arguments = operator.table_arguments()
    assert [arguments[name] for name in ("pipeline", "target", "where")] == ["2024"] * 3
    assert list(arguments["keys"]) == ["2024"]
    assert int(arguments["starting_version"]) == 2024


def test_a_value_that_is_missing_is_an_error_or_not_given() -> None:
    for native in (False, True):
        with dag(render_template_as_native_obj=native):
            operator = made(DeltaApplyChangesOperator, "t")
        with pytest.raises(jinja2.UndefinedError):
            operator.render_template("{{ nothing }}", context())
        with dag(render_template_as_native_obj=native, template_undefined=jinja2.Undefined):
            operator = made(DeltaApplyChangesOperator, "t", where="{{ nothing }}")
        operator.render_template_fields(context())
        assert operator.where == ""


# -- kinds ----------------------------------------------------------------------------------------
NOT_GIVEN = (None, "None", "", "  ", "null")
#: Values of which each is right for some arguments.
VALUES = (
    *('{"a": "b"}', "{'a': 'b'}", '["a"]', "['a', 'b']", "('a',)", "[{'pipeline': 'p', 'target': '/t'}]"),
    *("true", "False", "7", "text", "[1, 2", "{'a'", "{1: 2}", "[[1]]", "[" * 10_000, "(" * 10_000),
    *([["a", "b"], {"a": "b"}, {1: 2}, [1], 7, 1.5, True, object(), b"x", {"a": object()}, {"a": {"b"}}]),
)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("cls", MOST)
def test_every_rendered_value_is_right_or_named(cls: Any, native: bool) -> None:
    with dag(render_template_as_native_obj=native):
        operator = made(cls, "t")
    for value in (*NOT_GIVEN, *VALUES):
        rendered = operator.render_template("{{ params.v }}", context(v=value))
        for name in names_of(cls):
            place = _ATTRIBUTES.get(name, name)
            given = getattr(operator, place)
            setattr(operator, place, rendered)
            named = refused(operator)
            if named is not None:
                assert named.argument == name, (name, value)
                assert value not in NOT_GIVEN or cls.kinds[name] is TABLE
            elif value in NOT_GIVEN:
                read = cls.kinds[name].read
                assert read(name, attribute(operator, name)) == read(name, None)
            setattr(operator, place, given)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_wrong_literal_is_an_error_of_the_dag_file(cls: Any) -> None:
    for name in names_of(cls):
        with pytest.raises(InvalidConfiguration) as failed:
            made(cls, "t", **{name: [[1]]})
        assert failed.value.argument == name


@pytest.mark.parametrize(
    ("cls", "given"),
    [
        (DeltaVerifyOperator, {"on_finding": "warn"}),
        (DeltaWhyOperator, {"key": "17"}),
        (DeltaWhyOperator, {"max_bytes": "20 GB"}),
        (DeltaApplyChangesOperator, {"limits": {"max_versions": 0}}),
        (DeltaApplyChangesOperator, {"insert_only": "perhaps"}),
        (DeltaVacuumOperator, {"consumers": [1]}),
        (DeltaVersionSensor, {"min_versions": 0}),
        (DeltaOptimizeOperator, {"deploy_mode": "clustr"}),
    ],
)
def test_other_literals_that_are_wrong(cls: Any, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfiguration):
        made(cls, "t", **given)


def test_a_variable_that_only_a_worker_has_is_no_error_of_the_dag_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LAKE", raising=False)
    assert made(DeltaApplyChangesOperator, "t", pipeline=None, target="${LAKE}/orders").pipeline == "orders"


def test_what_spark_gets_when_params_are_unset(stand_in: StandIn) -> None:
    """It got ``--jars None``, ``--proxy-user None`` and a connection called ``None``."""
    from tests.unit.airflow.test_base_operator import COMMITTED, run

    unset = dict.fromkeys(DeltaCdcOperator.kinds, "{{ params.v }}")
    operator = made(DeltaOptimizeOperator, "t", **unset)
    operator.render_template_fields(context(v=None))
    operator.pre_execute(context())
    assert operator.spark_conn_id is None
    assert operator.options_of_storage() is None
    stand_in.does(COMMITTED)
    run(operator)
    assert not [argument for argument in stand_in.arguments if "None" in argument]
    assert stand_in.option("--name") == [DEFAULT_NAME]


def test_what_spark_gets_from_texts(stand_in: StandIn) -> None:
    from tests.unit.airflow.test_base_operator import COMMITTED, run

    texts = {
        "conf": json.dumps({"spark.a": True, "spark.b": "00123", "spark.c": None, "spark.d": "None"}),
        "env_vars": "{'A': '1_0', 'B': None}",
        "files": "['/a', '/b']",
        "post_submit_commands": "touch /done",
        "storage_options": '{"AWS_REGION": "eu-1", "AWS_SECRET_ACCESS_KEY": "00123"}',
    }
    operator = made(DeltaOptimizeOperator, "t", **{name: f"{{{{ params.{name} }}}}" for name in texts})
    operator.render_template_fields(context(**texts))
    operator.pre_execute(context())
    assert operator.conf == {"spark.a": "true", "spark.b": "00123"}
    assert operator.env_vars == {"A": "1_0"}
    assert operator.files == "/a,/b"
    assert list(operator.post_submit_commands or ()) == ["touch /done"]
    assert operator.options_of_storage() == {"AWS_REGION": "eu-1", "AWS_SECRET_ACCESS_KEY": "00123"}
    stand_in.does(COMMITTED)
    run(operator)
    assert stand_in.confs["spark.b"] == "00123"
    assert stand_in.environment["A"] == "1_0"


def test_an_error_shows_no_secret() -> None:
    operator = made(DeltaOptimizeOperator, "t", storage_options="{{ params.v }}")
    operator.render_template_fields(context(v='{"AWS_SECRET_ACCESS_KEY": "hush"'))
    with pytest.raises(InvalidConfiguration) as failed:
        operator.pre_execute(context())
    assert "hush" not in str(failed.value)


@pytest.mark.parametrize("given", ["['MERGE', 'UPDATE']", '["merge", "update"]', ["MERGE", "UPDATE", "None"]])
def test_operations_from_a_template(given: Any) -> None:
    """The text of a list was one name, and the sensor waited for ever."""
    assert Condition.of(operations=given).operations == {"merge", "update"}


@pytest.mark.parametrize("given", ["[MERGE, UPDATE]", "MERGE,UPDATE", "('MERGE'", ["{'MERGE'}"]])
def test_what_is_no_operation(given: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="give a list of names") as failed:
        Condition.of(operations=given)
    assert failed.value.argument == "operations"


def test_a_mapped_value_of_another_task_is_no_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another system wrote it: a template in it would read variables and connections."""
    text = "name <> '{{ var.value.lake_password }}'"
    with DAG("d"):

        @task
        def predicates() -> list[str]:
            return [text]

        partial = DeltaReadChangesOperator.partial(
            task_id="read", pipeline="p", table="{{ 'a' }}/lake", staging="/s"
        )
        mapped = partial.expand(where=predicates())
    value = text[:1] + text[1:]
    resolved = ({"where": value}, {id(value)})
    monkeypatch.setattr(DictOfListsExpandInput, "resolve", lambda *_: resolved)
    context: Any = {
        "var": {"value": {"lake_password": "secret"}},
        "params": {},
        "ti": SimpleNamespace(map_index=0),
        "dag": mapped.dag,
        "dag_run": SimpleNamespace(conf={}),
    }
    mapped.render_template_fields(context)
    assert (context["task"].where, context["task"].table) == (text, "a/lake")
