"""What the ingest operator asks for, one table or many, and what it publishes."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.serialization.serialized_objects import DagSerialization

from airflow_delta_cdc.assets import delta_asset, pipeline_alias
from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaIngestChangesOperator
from delta_cdc.api.changes import ingest_changes
from delta_cdc.core.errors import InvalidConfiguration, InvalidRecord, JobFailed, TablesFailed
from delta_cdc.core.option_schema import INGEST
from delta_cdc.core.watermark import TableVersion
from delta_cdc.run.batch import PieceResult
from delta_cdc.run.outcomes import ApplyResult, IngestResult
from tests.unit.airflow.test_apply_operator import AssetStores, Ti
from tests.unit.airflow.test_base_operator import Store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delta_cdc.run.batch import Piece

LANDING, LOG, TARGET = "/landing/orders", "/lake/orders_log", "/lake/orders"


def operator(**arguments: Any) -> DeltaIngestChangesOperator:
    given = {"pipeline": "orders", "source": LANDING, "log": LOG, "keys": ["id"]}
    return DeltaIngestChangesOperator(task_id="ingest", **{**given, **arguments})


def ingested(pipeline: str = "orders", **changed: Any) -> IngestResult:
    found: dict[str, Any] = {
        "applied": True,
        "pipeline": pipeline,
        "seal": 7,
        "log_table": LOG,
        "log_table_id": "l",
        "log_version": 4,
        "counts": {"events": 3, "quarantined": 1, "files": 2},
        "left": {},
        "pin_key": f"pin:{pipeline}:l",
    }
    return IngestResult(**{**found, **changed})


def applied(pipeline: str = "orders", **changed: Any) -> ApplyResult:
    found: dict[str, Any] = {
        "applied": True,
        "versions": None,
        "watermark": TableVersion("l", 4),
        "counts": {"inserted": 3},
        "target_version": 2,
        "pipeline": pipeline,
        "seal": 9,
        "source_table": LOG,
        "target_table": TARGET,
        "target_table_id": "t",
        "pin_key": f"pin:{pipeline}:t",
        "mirror": {"seal": {"watermark": 4}},
    }
    return ApplyResult(**{**found, **changed})


def one(**changed: Any) -> PieceResult:
    found: dict[str, Any] = {"pipeline": "orders", "ingested": ingested(), "applied": None, "error": None}
    return PieceResult(**{**found, **changed})


class World:
    """The context of one try, and what the operator asked of the flow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: PieceResult, **context: Any) -> None:
        self.pieces: Sequence[Piece] = ()
        self.how: dict[str, Any] = {}
        self.context: dict[str, Any] = {
            "ti": Ti(),
            "run_id": "manual__1",
            "task_state_store": Store(),
            "asset_state_store": AssetStores(),
            "outlet_events": OutletEventAccessors(),
            **context,
        }

        def run_bundle(pieces: Sequence[Piece], **how: Any) -> list[PieceResult]:
            self.pieces, self.how = pieces, how
            return list(answers)

        monkeypatch.setattr("delta_cdc.run.batch.run_bundle", run_bundle)

    def run(self, task: DeltaIngestChangesOperator) -> Any:
        return task.execute(cast("Any", self.context))

    def events(self, pipeline: str = "orders") -> list[str]:
        found = self.context["outlet_events"][pipeline_alias(pipeline)].asset_alias_events
        return [event.dest_asset_key.uri for event in found]


# -- asking ---------------------------------------------------------------------------------------
def test_it_takes_what_the_function_takes() -> None:
    """The same names with the same defaults; the differences are these."""
    function = inspect.signature(ingest_changes).parameters
    task = inspect.signature(inspect.unwrap(DeltaIngestChangesOperator.__init__)).parameters
    base = inspect.signature(inspect.unwrap(DeltaApplyChangesOperator.__init__)).parameters
    taken = {**base, **task}
    # A session, and what the operator knows from its run.
    assert set(function) - set(taken) == {"spark", "run_id"}
    mine = set(function) & set(taken)
    # With `tables`, these stand there.
    optional = {"pipeline", "source", "log"}
    assert {n: taken[n].default for n in mine - optional} == {n: function[n].default for n in mine - optional}
    # What is of tasks, and what says what becomes of the target.
    assert set(task) - set(function) == {
        "self", "target", "tables", "source_kind", "kafka_conn_id", "kwargs"
    }  # fmt: skip


def test_it_takes_all_of_the_apply_operator() -> None:
    """Each under its own name, of one table or of all."""
    names = set(inspect.signature(inspect.unwrap(DeltaApplyChangesOperator.__init__)).parameters)
    names -= {"self", "kwargs"}
    assert {name for name in names if not hasattr(operator(), name)} == set()
    assert names - set(INGEST) == {"staging", "storage_options"}


#: Every argument of the ingest beside its tables, as a form renders it, and what the engine gets of it.
_GIVEN: dict[str, tuple[Any, Any]] = {
    "format": ("csv", "csv"),
    "adapter": ("dms", "dms"),
    "adapter_options": ({"sequence_by": "ts"}, {"sequence_by": "ts"}),
    "keys": ("id", ("id",)),
    "schema": ("id INT", "id INT"),
    "format_options": ({"sep": ";"}, {"sep": ";"}),
    "starting_timestamp": ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00"),
    "max_files": ("5", 5),
    "max_bytes": ("6", 6),
    "max_offsets": ("7", 7),
    "glob": ("*.csv", "*.csv"),
    "lexical_order": ("True", True),
    "on_invalid": ("fail", "fail"),
    "on_expired": ("continue", "continue"),
    "replay": ("True", True),
    "cluster_by": (["day"], ("day",)),
    "log_properties": ({"delta.appendOnly": True}, {"delta.appendOnly": "true"}),
    "single_driver": (True, True),
}


def test_every_argument_reaches_the_ingest(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is mixed up with another one, and none is dropped."""
    world = World(monkeypatch, one())
    world.run(operator(**{name: value for name, (value, _) in _GIVEN.items()}))
    (piece,) = world.pieces
    asked = {name: getattr(piece.ingest if hasattr(piece.ingest, name) else piece.ingest.options, name)
             for name in _GIVEN}  # fmt: skip
    assert asked == {name: got for name, (_, got) in _GIVEN.items()}
    assert (piece.ingest.pipeline, piece.ingest.source, piece.ingest.log) == ("orders", LANDING, LOG)
    assert (piece.ingest.run_id, piece.ingest.options.source_kind) == ("manual__1", "files")
    assert piece.apply is None
    # What is asked without a JVM may be asked for every argument of the function.
    fixed = {
        "insert_only",
        "kafka_options",
        "storage_options",
        "run_id",
        "spark",
        "source",
        "log",
        "pipeline",
    }
    assert set(inspect.signature(ingest_changes).parameters) - fixed == set(_GIVEN)


def test_an_empty_form_is_a_plain_ingest(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, world = World(monkeypatch, one()), None
    plain.run(operator())
    for empty in ("", "None"):
        world = World(monkeypatch, one())
        fixed = {"keys", "single_driver", "adapter_options", "format_options", "log_properties"}
        world.run(operator(**dict.fromkeys(set(_GIVEN) - fixed, empty)))
        assert world.pieces[0].ingest == plain.pieces[0].ingest


def test_with_a_target_the_log_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, one(applied=applied()))
    world.run(
        operator(
            target=TARGET,
            stored_as_scd_type="2",
            track_history_column_list=["name"],
            max_bytes="6",
            starting_timestamp="2026-01-01T00:00:00+00:00",
        )
    )
    (piece,) = world.pieces
    then = piece.apply
    assert then is not None
    assert (then.pipeline, then.source, then.target) == ("orders", LOG, TARGET)
    options = then.options
    assert (options.source_kind, options.sequence_by) == ("change_log", "_sequence")
    assert (options.apply_as_deletes, options.columns_to_update) == ("_op = 'delete'", "_columns")
    assert (options.stored_as_scd_type, options.track_history_column_list) == (2, ("name",))
    # They bound the ingest: an apply that leaves something behind would have to catch up later.
    assert (then.max_bytes, then.starting_timestamp) == (None, None)
    # Whatever is in the log has a key and a sequence.
    assert (piece.ingest.options.on_invalid, options.on_invalid) == ("quarantine", "fail")


def test_a_sequence_of_ones_own_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, one(applied=applied()))
    world.run(operator(target=TARGET, sequence_by="changed_at"))
    then = world.pieces[0].apply
    assert then is not None
    assert (then.options.sequence_by, then.options.on_invalid) == ("changed_at", "quarantine")


def test_inserts_are_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, one(applied=applied()))
    world.run(operator(target=TARGET, insert_only=True, keys=None))
    then = world.pieces[0].apply
    assert then is not None
    assert (then.options.source_kind, then.options.insert_only) == ("change_feed", True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"adpter": "dms"}, "did you mean 'adapter'"),
        ({"colum_list": ["a"]}, "did you mean 'column_list'"),
        ({"spark_connid": "x"}, "did you mean 'spark_conn_id'"),
    ],
)
def test_a_misspelt_argument_names_the_nearest(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        operator(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"pipeline": ["orders"]},
        {"log": None},
        {"source": "${NOT_SET_ANYWHERE}/t"},
        {"format": "xml"},
        {"on_invalid": "drop"},
        {"max_files": "0"},
        {"replay": "perhaps"},
        {"tables": "[{'pipeline': 'a'}]"},
        {"tables": [{"pipeline": "a", "sorce": "/x"}]},
        {"tables": [{"pipeline": "a", "storage_options": {}}]},
        {"tables": [{"pipeline": "a"}, {"pipeline": "a"}]},
        {"target": TARGET, "on_conflict": "never"},
    ],
)
def test_wrong_arguments_are_named_before_anything_happens(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    world = World(monkeypatch)
    with pytest.raises(InvalidConfiguration):
        world.run(operator(**wrong))
    assert world.pieces == ()


def test_every_argument_of_the_users_is_templated() -> None:
    task = operator()
    fixed = {"insert_only", "publish_changes", "single_driver"}
    own = set(DeltaIngestChangesOperator.__init__.__annotations__) - {"kwargs", "return", "log"} - fixed
    fields = DeltaIngestChangesOperator.template_fields
    assert own | {"log_table"} <= set(fields)
    assert set(DeltaApplyChangesOperator.template_fields) <= set(fields)
    assert all(hasattr(task, name) for name in fields)


def test_templates_are_rendered_in_tables_too() -> None:
    table = {"pipeline": "a", "source": "/landing/{{ ds }}", "adapter_options": {"operation": "{{ op }}"}}
    task = operator(log="/lake/{{ ds }}", tables=[table], glob="{{ ds }}/*")
    task.render_template_fields({"ds": "2026", "op": "flag"})  # type: ignore[arg-type]
    assert (task.log_table, task.glob) == ("/lake/2026", "2026/*")
    assert task.tables == [
        {"pipeline": "a", "source": "/landing/2026", "adapter_options": {"operation": "flag"}}
    ]


def test_it_can_be_serialized() -> None:
    with DAG("flow") as dag:
        operator(tables=[{"pipeline": "a", "source": "/s", "log": "/l"}])
    copy = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert copy.get_task("ingest").tables == [{"pipeline": "a", "source": "/s", "log": "/l"}]


def test_assets_are_known_when_the_file_is_parsed() -> None:
    assert operator().inlets == [delta_asset(LOG)]
    assert operator().outlets == [pipeline_alias("orders")]
    many = operator(
        pipeline="", tables=[{"pipeline": "a", "log": "/lake/a"}, {"pipeline": "{{ b }}", "log": "/lake/b"}]
    )
    assert many.inlets == [delta_asset("/lake/a"), delta_asset("/lake/b")]
    assert many.outlets == [pipeline_alias("a")]
    unknown = operator(log="/lake/{{ ds }}", pipeline="{{ p }}")
    assert (unknown.inlets, unknown.outlets) == ([], [])


# -- many tables ----------------------------------------------------------------------------------
def test_the_tasks_own_arguments_are_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [
        {"pipeline": "a", "source": "/landing/a", "log": "/lake/a_log"},
        {"pipeline": "b", "source": "/landing/b", "log": "/lake/b_log", "keys": ["x", "y"], "max_files": "3"},
        {"pipeline": "c", "source": "/landing/c", "log": "/lake/c_log", "target": "/lake/c"},
    ]
    answers = [one(pipeline=name, ingested=ingested(name)) for name in "abc"]
    world = World(monkeypatch, *answers)
    world.run(operator(pipeline="", source="", log="", max_files=9, tables=tables))
    a, b, c = world.pieces
    assert [(p.ingest.pipeline, p.ingest.source, p.ingest.log) for p in (a, b, c)] == [
        ("a", "/landing/a", "/lake/a_log"),
        ("b", "/landing/b", "/lake/b_log"),
        ("c", "/landing/c", "/lake/c_log"),
    ]
    assert [(p.ingest.options.keys, p.ingest.max_files) for p in (a, b)] == [(("id",), 9), (("x", "y"), 3)]
    assert (a.apply, b.apply) == (None, None)
    assert c.apply is not None
    assert (c.apply.source, c.apply.target) == ("/lake/c_log", "/lake/c")


_TWO = [{"pipeline": name, "source": f"/landing/{name}", "log": f"/lake/{name}"} for name in ("a", "b")]


def test_a_table_that_fails_leaves_the_others_through(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = InvalidRecord("2 records of b are no events.", remedy="mend them.")
    answers = one(pipeline="a", ingested=ingested("a")), one(pipeline="b", ingested=None, error=bad)
    store = Store(**{"pin:a:l": {"of": "a"}})
    world = World(monkeypatch, *answers, task_state_store=store)
    with pytest.raises(TablesFailed) as raised:
        world.run(operator(tables=_TWO))
    assert "1 of 2 tables failed" in str(raised.value)
    assert "b: InvalidRecord: 2 records of b are no events." in str(raised.value)
    told = world.context["ti"].pushed["watermark"]
    assert (told["a"]["status"], told["b"]["status"]) == ("ingested", "failed")
    assert told["b"]["error"].startswith("InvalidRecord: 2 records")
    # Airflow drops the events of a task that fails: the retry has to know what to announce.
    assert store.kept == {"pin:a:l": {"of": "a"}}
    healed = World(monkeypatch, answers[0], one(pipeline="b", ingested=ingested("b")), task_state_store=store)
    answer = healed.run(operator(tables=_TWO))
    assert {name: found["status"] for name, found in answer.items()} == {"a": "ingested", "b": "ingested"}
    assert healed.events("a") == ["file:///lake/a"]
    assert store.kept == {}


def test_an_application_that_died_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    died = JobFailed("The application died.", remedy="retry.")
    world = World(monkeypatch, *(one(pipeline=name, ingested=None, error=died) for name in ("a", "b")))
    with pytest.raises(TablesFailed) as raised:
        world.run(operator(tables=_TWO))
    assert str(raised.value).count("The application died") == 1
    assert "a, b: JobFailed" in str(raised.value)


def test_a_wrong_argument_of_a_table_names_its_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    with pytest.raises(InvalidConfiguration, match="Pipeline b: format is 'xml'"):
        world.run(operator(tables=[_TWO[0], {**_TWO[1], "format": "xml"}]))
    assert world.pieces == ()


def test_a_dry_run_looks_at_every_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is run and pinned; a table that cannot be looked at does not hide the others."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.json").write_text('{"id": 1}\n')
    world = World(monkeypatch)
    tables = [
        {"pipeline": name, "source": str(tmp_path / name), "log": str(tmp_path / "lake" / name)}
        for name in ("b", "a")
    ]
    task = operator(tables=tables, dry_run=True, adapter_options={"sequence_by": "id"})
    with pytest.raises(TablesFailed, match=r"1 of 2 tables failed") as raised:
        world.run(task)
    assert "b: SourceNotFound: " in str(raised.value)
    told = world.context["ti"].pushed["watermark"]
    assert set(told) == {"a"}
    assert "to do      1 file (" in told["a"]["dry_run"]["ingest"]
    assert (world.pieces, world.context["task_state_store"].kept) == ((), {})


def test_idle_tables_are_one_line(monkeypatch: pytest.MonkeyPatch, records: Any) -> None:
    """Of hundreds of tables, every few minutes, the log shows those where something happened."""
    still = one(pipeline="b", ingested=ingested("b", applied=False, counts={}))
    world = World(monkeypatch, one(pipeline="a", ingested=ingested("a"), applied=applied("a")), still)
    task = operator(tables=_TWO, target=TARGET)
    monkeypatch.setattr(type(task), "log", records)
    world.run(task)
    say = world.how["say"]
    say("a: Planned: 2 files of /landing/a into /lake/a (100 % new).")
    say("b: Nothing to ingest: 2 files of /landing/b looked at, nothing new for /lake/b.")
    assert records.at("info") == [
        "2 tables: 1 ingested and applied, 1 had nothing new.",
        "a: Planned: 2 files of /landing/a into /lake/a (100 % new).",
    ]
    assert len(records.at("debug")) == 1


def test_connections_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    task = operator(target=TARGET, tables=[{**table, "target": f"/t/{n}"} for n, table in enumerate(_TWO)])
    for name in ("options_of_storage", "options_of_kafka", "has_scratch"):
        monkeypatch.setattr(type(task), name, lambda _, name=name: asked.append(name) or {})
    World(monkeypatch, *(one(pipeline=name, ingested=ingested(name)) for name in "ab")).run(task)
    assert sorted(asked) == ["has_scratch", "options_of_kafka", "options_of_storage"]


def test_no_table_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert World(monkeypatch).run(operator(tables=[])) == {}


@pytest.mark.parametrize("number", [65, 2_000])
def test_summaries_fit_into_an_xcom(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    names = [f"a_pipeline_with_a_long_name_{n:05}" for n in range(number)]
    error = InvalidRecord("x" * 10_000, remedy="y" * 10_000)
    answers = [
        one(
            pipeline=name,
            ingested=ingested(name, applied=n % 9 == 0),
            applied=applied(name, applied=n % 9 == 0),
        )
        for n, name in enumerate(names)
    ]
    answers[1] = one(pipeline=names[1], ingested=None, error=error)
    world = World(monkeypatch, *answers)
    tables = [{"pipeline": name, "source": "/s", "log": "/l", "target": "/t"} for name in names]
    with pytest.raises(TablesFailed):
        world.run(operator(tables=tables))
    told = world.context["ti"].pushed["watermark"]
    assert len(json.dumps(told)) <= 48 * 1024
    assert (told[names[0]]["status"], told[names[1]]["status"]) == ("applied", "failed")


# -- publishing -----------------------------------------------------------------------------------
def test_a_log_alone_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(**{"pin:orders:l": {"n": 1}})
    world = World(monkeypatch, one(), task_state_store=store)
    answer = world.run(operator())
    assert answer == ingested(timestamp=answer["timestamp"]).to_dict()
    assert world.context["ti"].pushed == {"watermark": answer}
    assert world.events() == ["file:///lake/orders_log"]
    (event,) = world.context["outlet_events"][pipeline_alias("orders")].asset_alias_events
    assert (event.extra["log_version"], event.extra["counts"]["events"]) == (4, 3)
    assert store.kept == {}


def test_log_and_target_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    pins = ("pin:orders:l", "pin:orders:t", f"since:orders:{TARGET}")
    store = Store(**{name: {"n": 1} for name in pins})
    world = World(monkeypatch, one(applied=applied()), task_state_store=store)
    answer = world.run(operator(target=TARGET))
    assert (answer["target_version"], answer["ingested"]["log_version"]) == (2, 4)
    assert answer["ingested"]["counts"]["quarantined"] == 1
    assert world.events() == ["file:///lake/orders_log", "file:///lake/orders"]
    kept = world.context["asset_state_store"].kept["file:///lake/orders_log", "committed:orders"]
    assert kept["mirror"] == {"seal": {"watermark": 4}}
    assert store.kept == {}


@pytest.mark.parametrize(
    ("log", "target", "events"),
    [
        (ingested(applied=False), applied(applied=False), []),
        # An earlier run died before its apply.
        (ingested(applied=False), applied(), ["file:///lake/orders"]),
        # All that came was in vain: the log has a new seal, and no new event.
        (ingested(counts={"events": 0, "quarantined": 4}), applied(applied=False), []),
    ],
    ids=["nothing", "caught up", "all in quarantine"],
)
def test_only_what_was_written_is_announced(
    monkeypatch: pytest.MonkeyPatch, log: IngestResult, target: ApplyResult, events: list[str]
) -> None:
    world = World(monkeypatch, one(ingested=log, applied=target))
    world.run(operator(target=TARGET))
    assert world.events() == events


def test_what_waits_in_quarantine_is_said(monkeypatch: pytest.MonkeyPatch, records: Any) -> None:
    task = operator(target=TARGET)
    monkeypatch.setattr(type(task), "log", records)
    World(monkeypatch, one(applied=applied(counts={"inserted": 1, "quarantined": 2}))).run(task)
    log, target = (line for line in records.at("warning") if "__quarantine" in line)
    assert log.startswith(f"1 records that are no events are in {LOG}__quarantine")
    assert log.endswith(f"delta-cdc replay orders={LOG}")
    assert target.startswith(f"2 events that do not apply are in {TARGET}__quarantine")
    records.lines.clear()
    World(monkeypatch, one(ingested=ingested(counts={"events": 3}), applied=applied())).run(task)
    assert not [line for line in records.at("warning") if "__quarantine" in line]


def test_one_table_raises_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = InvalidRecord("2 records are no events.", remedy="mend them.")
    world = World(monkeypatch, one(ingested=None, error=bad))
    with pytest.raises(InvalidRecord, match="2 records"):
        world.run(operator())


def test_the_pins_go_after_everything_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(Ti):
        def xcom_push(self, *, key: str, value: Any) -> None:
            raise SystemExit

    store = Store(**{"pin:orders:l": {"n": 1}})
    world = World(monkeypatch, one(), task_state_store=store, ti=Dying())
    with pytest.raises(SystemExit):
        world.run(operator())
    assert store.kept == {"pin:orders:l": {"n": 1}}
