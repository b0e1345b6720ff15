"""What the ingest operator asks for, and what it publishes."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_delta_cdc.assets import delta_asset, pipeline_alias
from airflow_delta_cdc.operators import DeltaIngestChangesOperator
from delta_cdc.api.changes import ingest_changes
from delta_cdc.core.errors import InvalidRecord
from delta_cdc.core.watermark import TableVersion
from delta_cdc.run.batch import PipelineResult
from delta_cdc.run.outcomes import Outcome
from tests.support.grouped import grouped
from tests.unit.airflow.test_apply_operator import AssetStores, Ti
from tests.unit.airflow.test_base_operator import Store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delta_cdc.run.batch import PipelineJob

LANDING, LOG, TARGET = "/landing/orders", "/lake/orders_log", "/lake/orders"


def operator(**arguments: Any) -> DeltaIngestChangesOperator:
    given = {"pipeline": "orders", "source": LANDING, "log": LOG, "keys": ["id"]}
    return DeltaIngestChangesOperator(task_id="ingest", **{**given, **grouped(arguments)})


def ingested(pipeline: str = "orders", **changed: Any) -> Outcome:
    found: dict[str, Any] = {
        "kind": "ingest",
        "applied": True,
        "pipeline": pipeline,
        "seal": 7,
        "log_table": LOG,
        "log_table_id": "l",
        "log_version": 4,
        "counts": {"events": 3, "quarantined": 1, "files": 2},
        "left": {},
        "plan_key": f"pin:{pipeline}:l",
    }
    return Outcome(**{**found, **changed})


def applied(pipeline: str = "orders", **changed: Any) -> Outcome:
    found: dict[str, Any] = {
        "kind": "apply",
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
        "plan_key": f"pin:{pipeline}:t",
        "backup": {"seal": {"watermark": 4}},
    }
    return Outcome(**{**found, **changed})


def one(**changed: Any) -> PipelineResult:
    found: dict[str, Any] = {"pipeline": "orders", "ingested": ingested(), "applied": None, "error": None}
    return PipelineResult(**{**found, **changed})


class World:
    """The context of one try, and what the operator asked of the flow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: PipelineResult, **context: Any) -> None:
        self.pipeline_jobs: Sequence[PipelineJob] = ()
        self.how: dict[str, Any] = {}
        self.context: dict[str, Any] = {
            "ti": Ti(),
            "run_id": "manual__1",
            "task_state_store": Store(),
            "asset_state_store": AssetStores(),
            "outlet_events": OutletEventAccessors(),
            **context,
        }

        def run_batch(
            pipeline_jobs: Sequence[PipelineJob], services: Any, **how: Any
        ) -> list[PipelineResult]:
            self.pipeline_jobs, self.how = pipeline_jobs, how
            return list(answers)

        monkeypatch.setattr("delta_cdc.run.batch.run_batch", run_batch)

    def run(self, task: DeltaIngestChangesOperator) -> Any:
        return task.execute(cast("Any", self.context))

    def events(self, pipeline: str = "orders") -> list[str]:
        found = self.context["outlet_events"][pipeline_alias(pipeline)].asset_alias_events
        return [event.dest_asset_key.uri for event in found]


# -- asking ---------------------------------------------------------------------------------------
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
    "follow_links": ("True", True),
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
    (pipeline_job,) = world.pipeline_jobs
    ingest = pipeline_job.ingest
    asked = {name: getattr(ingest if hasattr(ingest, name) else ingest.options, name) for name in _GIVEN}
    assert asked == {name: got for name, (_, got) in _GIVEN.items()}
    assert (ingest.pipeline, ingest.source, ingest.log) == ("orders", LANDING, LOG)
    assert (ingest.run_id, ingest.options.source_kind) == ("manual__1", "files")
    assert pipeline_job.apply is None
    # What is asked without a JVM may be asked for every argument of the function.
    fixed = {"insert_only", "kafka_options", "storage_options", "run_id", "spark"}
    fixed |= {"source", "log", "pipeline"}
    assert set(inspect.signature(ingest_changes).parameters) - fixed == set(grouped(dict.fromkeys(_GIVEN)))


def test_an_empty_form_is_a_plain_ingest(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, world = World(monkeypatch, one()), None
    plain.run(operator())
    for empty in ("", "None"):
        world = World(monkeypatch, one())
        fixed = {"keys", "single_driver", "adapter_options", "format_options", "log_properties"}
        world.run(operator(**dict.fromkeys(set(_GIVEN) - fixed, empty)))
        assert world.pipeline_jobs[0].ingest == plain.pipeline_jobs[0].ingest


def test_with_a_target_the_log_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    def requested(**given: Any) -> tuple[Any, Any]:
        world = World(monkeypatch, one(applied=applied()))
        world.run(operator(target=TARGET, **given))
        (pipeline_job,) = world.pipeline_jobs
        return pipeline_job.ingest, pipeline_job.apply

    bounds = {"max_bytes": "6", "starting_timestamp": "2026-01-01T00:00:00+00:00"}
    first, then = requested(stored_as_scd_type="2", track_history_column_list=["name"], **bounds)
    assert (then.pipeline, then.source, then.target) == ("orders", LOG, TARGET)
    options = then.options
    assert (options.source_kind, options.sequence_by) == ("change_log", "_sequence")
    assert (options.apply_as_deletes, options.columns_to_update) == ("_op = 'delete'", "_columns")
    assert (options.stored_as_scd_type, options.track_history_column_list) == (2, ("name",))
    # They bound the ingest: an apply that leaves something behind would have to catch up later.
    assert (then.max_bytes, then.starting_timestamp) == (None, None)
    # Whatever is in the log has a key and a sequence. One of the user's own may be missing.
    assert (first.options.on_invalid, options.on_invalid) == ("quarantine", "fail")
    own = requested(sequence_by="changed_at")[1].options
    assert (own.sequence_by, own.on_invalid) == ("changed_at", "quarantine")
    inserts = requested(insert_only=True, keys=None)[1].options
    assert (inserts.source_kind, inserts.insert_only) == ("change_feed", True)


def test_assets_are_known_when_the_file_is_parsed() -> None:
    assert operator().inlets == [delta_asset(LOG)]
    assert operator().outlets == [pipeline_alias("orders"), delta_asset(LOG)]
    assert operator(target=TARGET).outlets[1:] == [delta_asset(LOG), delta_asset(TARGET)]
    unknown = operator(log="/lake/{{ ds }}", pipeline="{{ p }}")
    assert (unknown.inlets, unknown.outlets) == ([], [])


def test_a_dry_run_looks_and_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n')
    world = World(monkeypatch)
    given = {"source": str(tmp_path / "in"), "log": str(tmp_path / "log")}
    answer = world.run(operator(**given, dry_run="True", adapter_options={"sequence_by": "id"}))
    assert "to do      1 file (" in answer["dry_run"]["ingest"]
    assert world.context["ti"].pushed == {"return_value": answer}
    assert (world.pipeline_jobs, world.context["task_state_store"].kept) == ((), {})


# -- publishing -----------------------------------------------------------------------------------
def test_a_log_alone_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(**{"pin:orders:l": {"n": 1}})
    world = World(monkeypatch, one(), task_state_store=store)
    answer = world.run(operator())
    assert answer == ingested(timestamp=answer["timestamp"]).to_dict()
    assert world.context["ti"].pushed == {"return_value": answer}
    assert world.events() == ["file:///lake/orders_log"]
    (event,) = world.context["outlet_events"][pipeline_alias("orders")].asset_alias_events
    assert (event.extra["log_version"], event.extra["counts"]["events"]) == (4, 3)
    assert store.kept == {}


def test_log_and_target_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    saved_plans = ("pin:orders:l", "pin:orders:t", f"since:orders:{TARGET}")
    store = Store(**{name: {"n": 1} for name in saved_plans})
    world = World(monkeypatch, one(applied=applied()), task_state_store=store)
    answer = world.run(operator(target=TARGET))
    assert (answer["target_version"], answer["ingested"]["log_version"]) == (2, 4)
    assert answer["ingested"]["counts"]["quarantined"] == 1
    assert world.events() == ["file:///lake/orders_log", "file:///lake/orders"]
    kept = world.context["asset_state_store"].kept["file:///lake/orders_log", "committed:orders"]
    assert kept["backup"] == {"seal": {"watermark": 4}}
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
    monkeypatch: pytest.MonkeyPatch, log: Outcome, target: Outcome, events: list[str]
) -> None:
    world = World(monkeypatch, one(ingested=log, applied=target))
    world.run(operator(target=TARGET))
    assert world.events() == events


def test_what_waits_in_quarantine_is_said(monkeypatch: pytest.MonkeyPatch, records: Any) -> None:
    task = operator(target=TARGET)
    monkeypatch.setattr(type(task), "log", records)
    World(monkeypatch, one(applied=applied(counts={"inserted": 1, "quarantined": 2}))).run(task)
    log, target = (line for line in records.at("warning") if "__quarantine" in line)
    assert log.startswith(f"orders: 1 record in quarantine, each with its reason: {LOG}__quarantine.")
    text = (
        "correct the options or the records there (or deliver a file again, corrected, under its name), then"
    )
    assert f"{text} start a run with mode repair" in log
    assert target.startswith(f"orders: 2 events in quarantine, each with its reason: {TARGET}__quarantine.")
    records.lines.clear()
    World(monkeypatch, one(ingested=ingested(counts={"events": 3}), applied=applied())).run(task)
    assert not [line for line in records.at("warning") if "__quarantine" in line]


def test_the_pins_go_after_everything_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(Ti):
        def xcom_push(self, *, key: str, value: Any) -> None:
            raise SystemExit

    store = Store(**{"pin:orders:l": {"n": 1}})
    with pytest.raises(SystemExit):
        World(monkeypatch, one(), task_state_store=store, ti=Dying()).run(operator())
    assert store.kept == {"pin:orders:l": {"n": 1}}
    bad = InvalidRecord("2 records are not valid events.", remedy="correct them.")
    with pytest.raises(InvalidRecord, match="2 records"):
        World(monkeypatch, one(ingested=None, error=bad)).run(operator())
