"""What outlives a process, or what people read, compared with the files under ``tests/golden``.

``UPDATE_GOLDEN=1 pytest tests/unit/test_golden.py`` rewrites the files; read their difference before you
commit it. What a group publishes is in ``tests/unit/airflow/test_golden.py``.

The plans are made from hand-written logs, and the seals by those functions of the engine that make them in
Spark. In the files ``/lake`` stands for the folder of the test, and ``<sha256>`` and the like for hashes; the
time is that of the hand-written logs.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import types as T

from delta_cdc.core import maintenance_tags, properties, reserved_columns, retention, validation
from delta_cdc.core import spec as specs
from delta_cdc.core.change_log import DESCRIPTION, LOG_COLUMNS
from delta_cdc.core.checks import finding, ok
from delta_cdc.core.options import ApplyOptions, IngestOptions, QueryOptions
from delta_cdc.core.requests import ApplyRequest, CommitRequest, ReadRequest
from delta_cdc.core.spec import JobResult, Spec
from delta_cdc.core.watermark import Seal, TableVersion
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.apply import plan_apply
from delta_cdc.planning.consumers import Consumer
from delta_cdc.planning.expiry import plan_expiry
from delta_cdc.planning.ingest import plan_ingest
from delta_cdc.planning.optimize import plan_optimize
from delta_cdc.planning.plan import JobPlan
from delta_cdc.planning.read import plan_read
from delta_cdc.planning.vacuum import plan_vacuum
from delta_cdc.planning.verify import VerifyRequest
from delta_cdc.run import maintain
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import PlansInMemory
from delta_cdc.run.verify import run_verify
from delta_cdc.spark import quarantine, staging
from delta_cdc.spark.apply import engine as apply_engine
from delta_cdc.spark.apply import layout
from delta_cdc.spark.apply.prepared_step import PreparedStep
from delta_cdc.spark.apply.rows import Shape
from delta_cdc.spark.ingest import engine as ingest_engine
from delta_cdc.spark.ingest import ingested
from delta_cdc.spark.ingest.events import Batch
from tests.support import golden
from tests.support.ingest_model import Boom, Broker, Topics, World
from tests.support.ingest_model import rows_of as recorded_rows
from tests.support.logs import FEED, SECOND, LogTable
from tests.support.tables import KEYED, NOW, Tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delta_cdc.core.steps import Step

DAY = 86_400 * SECOND
HISTORY = ApplyOptions(
    keys=("id",), stored_as_scd_type=2, track_history_except_column_list=("note",), partition_by={"day": None}
)
LOG = ApplyOptions(
    keys=("id",),
    source_kind="change_log",
    sequence_by=("at", "n"),
    apply_as_deletes="op = 'd'",
    apply_as_truncates="op = 't'",
    except_column_list=("op",),
    ignore_null_updates=True,
    on_conflict=("n",),
    on_invalid="quarantine",
    on_late="discard",
)
SOFT = ApplyOptions(keys=("id",), delete_mode="soft", where="id > 'a'", select=("id", "upper(name) AS name"))
APPENDED = ApplyOptions(insert_only=True)
NET = QueryOptions("min_delta", keys=("id",))
FILES = IngestOptions(
    format="csv",
    adapter="of.my_own",
    adapter_options={"a": [1]},
    keys=("id",),
    format_options={"sep": ";", "header": "true"},
)
TOPIC = IngestOptions(source_kind="kafka", adapter="debezium", keys=("id",), schema="id STRING, name STRING")
TRACKED = {
    **FEED,
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row_id",
}


# -- the cases --------------------------------------------------------------------------------------
@dataclass
class Story:
    """What one piece of work leaves behind, in every form.

    :param plan: the plan's text
    :param said: what the log of the task shows
    :param spec: what Spark is given; None where no job runs
    :param seals: those that the work writes, in order
    :param published: what XCom gets
    :param kept: what the task keeps outside of the table: the pin of a retry and the copy of the seal
    :param folder: of all tables
    """

    folder: Path
    plan: str = ""
    said: list[str] = field(default_factory=list)
    spec: Spec | None = None
    seals: list[Seal] = field(default_factory=list)
    published: Any = None
    kept: dict[str, Any] = field(default_factory=dict)


def lake(folder: Path) -> Tables:
    """Return a source with versions 0-5 and all columns that a case names; its target does not exist yet."""
    columns = ("id", "name", "note", "day", "at", "n", "op")
    source = LogTable(folder / "source", table_id="source-id", columns=columns, configuration=dict(FEED))
    source.create()
    for _ in range(5):
        source.append()
    return Tables(source, LogTable(folder / "target"), LogTable(folder / "staging", table_id="st"))


class Job:
    """The job, without Spark: it makes the seals with the engine's functions and writes them into logs."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.spec: Any = None
        self.seals: list[Seal] = []

    def apply(self, spec: specs.ApplySpec) -> JobResult:
        self.spec = spec
        if spec.dry_run:
            return JobResult("planned", {"inserted": 3, "deleted": 1}, statements=("MERGE INTO t …",))
        target, state = self.tables.target, None
        for step in spec.steps:
            if step.planned_on is None and target.version >= 0:
                step = replace(step, planned_on=TableVersion(target.table_id, target.version))
            step = replace(step, before=state if step.before is None else step.before)
            step = step.with_allowed_lateness()
            moving = step.kind not in ("take_over", "renew")
            work = PreparedStep(
                lambda: None,
                {"suppressed": 4} if moving else {},
                str(step.at) if moving else step.highest_sequence,
                shape_of(spec.options) if moving else None,
                ("1",) if spec.options.takes_events else (),
            )
            seal = apply_engine.ApplySteps(cast("Any", None), spec).seal(step, work)
            state = seal.state
            self.seals.append(seal)
            target.write_seal(seal, rows=moving and not step.read.is_empty, **written(step))
        return JobResult("committed")

    def read(self, spec: specs.ReadSpec) -> JobResult:
        self.spec = spec
        for step in spec.steps:
            seal = staging.ReadSteps(cast("Any", None), spec).seal(step)
            self.seals.append(seal)
            self.tables.staging.write_seal(seal, operation="WRITE", metrics={"numOutputRows": "12"})
        return JobResult("committed")

    def commit(self, spec: specs.ReadSpec) -> JobResult:
        self.spec = spec
        seal = staging.ReadSteps(cast("Any", None), spec).seal(spec.steps[0])
        self.seals.append(seal)
        self.tables.staging.write_seal(seal, rows=False)
        return JobResult("committed")


def shape_of(options: ApplyOptions) -> Shape:
    """Return the rows of every case: two columns, of which the second one is tracked."""
    kind = T.LongType() if options.stored_as_scd_type == 2 or options.takes_events else None
    schema = T.StructType([T.StructField(name, T.StringType()) for name in ("id", "name")])
    return Shape(options.keys, ("id", "name"), ("name",), tuple(options.partition_by), schema, kind, kind)


def written(step: Step) -> dict[str, Any]:
    """Return how Delta's log tells of the write of a step."""
    if step.kind in ("load", "reset", "baseline"):
        mode = "Overwrite" if step.kind == "reset" else "ErrorIfExists"
        rows = "0" if step.read.is_empty else "50"
        return {"operation": "WRITE", "metrics": {"numOutputRows": rows}, "parameters": {"mode": mode}}
    if not step.read.has_rows:
        return {"operation": "WRITE", "metrics": {"numOutputRows": "0"}}
    return {}


@dataclass(frozen=True)
class Case:
    """One piece of work.

    :param prepare: what lies there before it
    :param asked: arguments of the request
    :param days: since the logs were written
    """

    prepare: Callable[[Any], object] = lambda _: None
    asked: dict[str, Any] = field(default_factory=dict)
    days: int = 0


def built(watermark: int, options: ApplyOptions = KEYED, **more: Any) -> Callable[[Tables], None]:
    """Return what seals the target at a watermark, as built with some options."""
    kind = "bigint" if options.stored_as_scd_type == 2 or options.takes_events else None
    written = {**validation.described(options), "sequence_by_type": kind}
    return lambda tables: tables.sealed(watermark, configuration=written, **more)


def both(*some: Callable[[Any], object]) -> Callable[[Any], None]:
    def prepare(tables: Any) -> None:
        for one in some:
            one(tables)

    return prepare


def quarantined(tables: Tables) -> None:
    LogTable(tables.target.path.with_name("target__quarantine")).create().append()


def limited(tables: Tables) -> None:
    """Set a lateness horizon."""
    tables.source.set_properties(**FEED, **{properties.LATENESS_HORIZON: "3"})
    tables.source.append()


def tracked(tables: Tables) -> None:
    tables.source.set_properties(**TRACKED)
    tables.sealed(6, 101)
    for _ in range(2):
        tables.source.append()


def without_feed(tables: Tables) -> None:
    tables.source.set_properties()
    tables.sealed(6, 101)
    tables.source.append()
    tables.source.overwrite()


APPLIES = {
    "initial_load": Case(),
    "load_from_a_version": Case(asked={"initial_load": {"from_version": 2}}),
    "load_of_nothing": Case(asked={"initial_load": "none"}),
    "nothing_new": Case(built(5)),
    "maintenance_only": Case(both(built(5), lambda tables: tables.source.optimize())),
    "changes": Case(built(2, highest_sequence="2")),
    "history": Case(built(2, HISTORY, loaded_version=0), {"options": HISTORY}),
    "change_log": Case(
        both(built(4, LOG, horizons=((1, "2"),), truncate_sequences=("1",)), limited), {"options": LOG}
    ),
    "soft_deletes": Case(asked={"options": SOFT}),
    "appended_files": Case(
        both(built(5, APPENDED), lambda t: t.source.set_properties(), lambda t: t.source.append()),
        {"options": APPENDED},
    ),
    "ends_of_a_range": Case(without_feed),
    "row_ids": Case(
        both(
            tracked,
            lambda t: t.source.set_properties(
                **{name: value for name, value in TRACKED.items() if name not in FEED}
            ),
            lambda t: t.source.append(),
        )
    ),
    "milestones": Case(built(1), {"versions_per_commit": 2}),
    "up_to_a_version": Case(built(2), {"ending_version": 4}),
    "backfill": Case(built(1), {"mode": "backfill", "starting_version": 2, "ending_version": 3}),
    "repair_of_a_range": Case(built(4), {"mode": "repair", "starting_version": 2, "ending_version": 3}),
    "repair_of_keys": Case(
        built(4, HISTORY), {"mode": "repair", "repair_keys": "id = 'a'", "options": HISTORY}
    ),
    "repair_of_the_quarantine": Case(
        both(built(4), quarantined), {"mode": "repair", "repair_quarantined": True}
    ),
    "reload": Case(built(3, highest_sequence="3"), {"mode": "reload"}),
    "reset": Case(built(3, HISTORY), {"mode": "reset", "options": HISTORY, "discard_history": True}),
    "adoption": Case(built(3, highest_sequence="3"), {"pipeline": "q", "take_over_from": "p"}),
    "staged_batch": Case(both(built(2), lambda tables: tables.staged(101, 3, 4)), {"staging": "staging"}),
    "renew": Case(built(5, highest_sequence="5"), days=4),
    "dry_run": Case(built(2), {"dry_run": True, "versions_per_commit": 2}),
}
READS = {
    "read_snapshot": Case(),
    "read_changes": Case(built(2)),
    "read_by_row_ids": Case(tracked, {"options": QueryOptions("min_delta")}),
    "read_of_both_ends": Case(without_feed, {"options": NET}),
    "read_of_added_files": Case(
        built(2, APPENDED), {"options": QueryOptions("append_only", method="added_files")}
    ),
    "read_in_milestones": Case(built(2), {"options": NET, "versions_per_commit": 2}),
    "read_nothing_new": Case(built(5)),
}
SINKS = {"committed": {}, "committed_before": {"ending_version": 5}}


def delivered(world: World) -> None:
    world.deliver("a.csv", ["1", "2"])
    world.deliver("b.csv", ["3"])


def died(world: World) -> None:
    delivered(world)
    with pytest.raises(Boom):
        world.unpublished(lambda spec: world.engine(spec, "recorded"), options=FILES)


def ingested_before(world: World) -> None:
    delivered(world)
    world.ingest(options=FILES)


INGESTS = {
    "ingest_of_files": Case(delivered, {"options": FILES, "max_files": 1}),
    "ingest_of_a_recorded_batch": Case(died, {"options": FILES}),
    "ingest_of_a_grown_file": Case(
        both(ingested_before, lambda world: world.deliver("b.csv", ["3", "4"])), {"options": FILES}
    ),
    "ingest_of_nothing_new": Case(ingested_before, {"options": FILES}),
    "ingest_reseal": Case(ingested_before, {"options": FILES}, days=20),
    "ingest_replay": Case(ingested_before, {"options": FILES, "replay": True}),
    "ingest_and_apply": Case(delivered, {"options": FILES, "then": LOG}),
    "ingest_of_a_topic": Case(asked={"options": TOPIC, "max_offsets": 5}),
}
STORIES = [*APPLIES, *READS, *SINKS, *INGESTS]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return what sets the time, a number of days after the one of the hand-written logs."""

    def set_to(days: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: (NOW + days * DAY) * 1_000_000)

    set_to(0)
    return set_to


#: Each piece of work is done once for all tests.
_TOLD: dict[str, Story] = {}


@pytest.fixture
def told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Callable[[int], None]
) -> Callable[[str], Story]:
    """Return what does a piece of work, and tells everything of it."""

    def tell(name: str) -> Story:
        if name not in _TOLD:
            _TOLD[name] = do(name)
        return _TOLD[name]

    def do(name: str) -> Story:
        if name in INGESTS:
            return ingest(tmp_path, monkeypatch, INGESTS[name], clock)
        tables = lake(tmp_path)
        job = Job(tables)
        if name in SINKS:
            return commit(tables, job, SINKS[name])
        case = {**APPLIES, **READS}[name]
        case.prepare(tables)
        clock(case.days)
        places = {key: str(tmp_path / value) for key, value in case.asked.items() if key == "staging"}
        return (apply if name in APPLIES else read)(tables, job, {**case.asked, **places})

    return tell


def folder_of(tables: Tables) -> Path:
    return tables.source.path.parent


def apply(tables: Tables, job: Job, asked: dict[str, Any]) -> Story:
    request, saved_plans = tables.request(**asked), PlansInMemory()
    said: list[str] = []
    plan = str(plan_apply(request))
    done = run(request, Services(execute=job.apply, saved_plans=saved_plans, say=said.append))
    # It is the newest seal again, as a text: one case is enough.
    kept = {"pin": saved_plans._kept, **({} if asked else {"backup": done.backup})}
    return Story(folder_of(tables), plan, said, job.spec, job.seals, done.to_dict(), kept)


def read(tables: Tables, job: Job, asked: dict[str, Any]) -> Story:
    given = {"pipeline": "p", "source": tables.source.uri, "target": tables.target.uri, "run_id": "r"}
    request, saved_plans = ReadRequest(**{**given, "staging": tables.staging.uri, **asked}), PlansInMemory()
    said: list[str] = []
    plan = str(plan_read(request))
    done = run(request, Services(execute=job.read, saved_plans=saved_plans, say=said.append))
    return Story(
        folder_of(tables), plan, said, job.spec, job.seals, done.to_dict(), {"pin": saved_plans._kept}
    )


def commit(tables: Tables, job: Job, asked: dict[str, Any]) -> Story:
    read(tables, job, {"target": None})
    request = CommitRequest(pipeline="p", staging=tables.staging.uri, run_id="r")
    said: list[str] = []
    if asked:
        run(request, Services(execute=job.commit))
    job.seals.clear()
    done = run(replace(request, run_id="s", **asked), Services(execute=job.commit, say=said.append))
    return Story(folder_of(tables), "", said, None if asked else job.spec, job.seals, done.to_dict())


def ingest(folder: Path, patch: pytest.MonkeyPatch, case: Case, clock: Callable[[int], None]) -> Story:
    broker = Broker()
    broker.has(0, 3, 6)
    broker.has(1, 0, 9)
    patch.setattr("delta_cdc.planning.topics.Looks.offsets", broker)
    world = (Topics if case.asked["options"] is TOPIC else World)(folder)
    case.prepare(world)
    if case.asked.get("replay"):
        beside = world.root / "log__quarantine"
        made = LogTable(beside).create()
        made.append()
        patch.setattr("delta_cdc.planning.ingest.holds_rows", answer_yes)
        patch.setattr("delta_cdc.planning.ingest.has_rows_of", answer_no)
    clock(case.days)
    asked, log = dict(case.asked), str(folder / "log")
    options = asked.pop("then", None)
    then = options and ApplyRequest(
        pipeline="p", source=log, target=str(folder / "target"), options=options, run_id="r"
    )
    story, request, saved_plans = Story(folder), world.request(**asked), PlansInMemory()
    story.plan = str(plan_ingest(request))

    def execute(spec: specs.IngestSpec) -> JobResult:
        story.spec = spec
        read = Batch(spec, *[cast("Any", None)] * 4, counts={"events": 2, "files": len(spec.files)})
        seal = ingest_engine.IngestSteps(cast("Any", None), spec).seal(spec.step, read)
        story.seals.append(seal)
        world.record.write(seal, recorded_rows(spec))
        world.append(seal, [])
        return JobResult("committed")

    done = run(
        replace(request, after=() if then is None else (then,)),
        Services(execute=execute, saved_plans=saved_plans, say=story.said.append),
    )
    story.published, story.kept = done.to_dict(), {"pin": saved_plans._kept}
    return story


async def answer_yes(*_: Any) -> bool:
    return True


async def answer_no(*_: Any) -> bool:
    return False


#: The options of a bundled adapter hold tuples, which JSON reads back as lists.
TUPLES_BECOME_LISTS = ("ingest_of_a_topic",)


# -- what they leave --------------------------------------------------------------------------------
@pytest.mark.parametrize("name", STORIES)
def test_plans_and_task_logs(name: str, told: Callable[[str], Story]) -> None:
    story = told(name)
    text = "\n".join([story.plan, "", "-- log of the task --", *story.said]).strip() + "\n"
    golden.check(f"plans/{name}.txt", golden.stable(text, story.folder))


@pytest.mark.parametrize("name", STORIES)
def test_seals(name: str, told: Callable[[str], Story]) -> None:
    story = told(name)
    texts = [seal.to_json() for seal in story.seals]
    golden.check(f"seals/{name}.json", golden.as_json([json.loads(text) for text in texts], story.folder))
    if name not in TUPLES_BECOME_LISTS:
        assert [Seal.from_json(text) for text in texts] == story.seals
    for kept in json.loads((golden.FOLDER / "seals" / f"{name}.json").read_text()):
        seal = Seal.from_json(json.dumps(kept))
        assert seal is not None
        assert json.loads(seal.to_json()) == kept


def test_every_kind_of_seal_is_among_them() -> None:
    files = (golden.FOLDER / "seals").iterdir()
    kinds = {seal["step"]["kind"] for file in files for seal in json.loads(file.read_text())}
    assert kinds == {"load", "baseline", "apply", "read", "commit", "renew", "take_over", "reload", "reset",
                     "repair", "ingest", "replay"}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_what_is_published_and_kept(name: str, told: Callable[[str], Story]) -> None:
    story = told(name)
    told_of = {"xcom": story.published, **story.kept}
    golden.check(f"published/{name}.json", golden.as_json(told_of, story.folder))


# -- specs ------------------------------------------------------------------------------------------
#: Of these pieces of work, and of what follows below.
SPECS = ["load_from_a_version", "change_log", "milestones", "staged_batch", "read_in_milestones", "committed",
         "ingest_of_files", "ingest_and_apply", "ingest_of_a_topic"]  # fmt: skip


def check_spec(name: str, spec: Spec | None, folder: Path) -> None:
    assert spec is not None
    if name not in TUPLES_BECOME_LISTS:
        assert specs.from_json(specs.to_json(spec)) == spec
    golden.check(f"specs/{name}.json", golden.as_json(json.loads(specs.to_json(spec)), folder))
    kept = (golden.FOLDER / "specs" / f"{name}.json").read_text()
    assert json.loads(specs.to_json(specs.from_json(kept))) == json.loads(kept)


@pytest.mark.parametrize("name", SPECS)
def test_specs(name: str, told: Callable[[str], Story]) -> None:
    story = told(name)
    check_spec(name, story.spec, story.folder)


@pytest.mark.parametrize(
    "spec",
    [
        specs.EnableSpec(run_id="r", tables=("/lake/t",), properties=dict(FEED), single_driver=True),
        specs.ResolveSpec(run_id="r", tables=("main.orders",)),
    ],
    ids=lambda spec: spec.job,
)
def test_specs_without_a_plan(spec: Spec, tmp_path: Path) -> None:
    check_spec(spec.job, spec, tmp_path)


def test_the_result_of_a_job(tmp_path: Path) -> None:
    part = JobResult("failed", error={"type": "NullKey", "message": "m", "remedy": "r"})
    result = JobResult(
        "committed", {"inserted": 3}, "m", ({"table": "t"},), None, ("MERGE",), (part,), (part,)
    )
    assert JobResult.from_json(result.to_json()) == result
    golden.check("specs/result.json", golden.as_json(json.loads(result.to_json()), tmp_path))


# -- verify and care --------------------------------------------------------------------------------
def test_verify(tmp_path: Path, clock: Callable[[int], None]) -> None:
    tables, given = lake(tmp_path), []
    both(built(4), built(4, number=101))(tables)

    def execute(bundle: specs.BatchSpec) -> JobResult:
        given.append(bundle)
        found = [ok("null_keys", "d"), finding("unique_keys", "d", "r", count=2, samples=("a",))]
        return JobResult(
            "committed", parts=(JobResult("committed", tables=tuple(c.to_dict() for c in found)),)
        )

    found = run_verify([VerifyRequest(pipeline="p", target=tables.target.uri)], execute=execute, run_id="r")
    check_spec("verify", given[0], tmp_path)
    golden.check(
        "published/verify.json", golden.as_json([row for one in found for row in one.to_rows()], tmp_path)
    )


def planned_care(tables: Tables) -> dict[str, Any]:
    """Return the plan of each kind of care."""
    reader = [Consumer("p", tables.source.uri, tables.target.uri)]
    table = tables.source.uri
    by_id = specs.OptimizeSpec(run_id="r", table_uri=table, zorder_by=("id",))
    vacuum, late = specs.VacuumSpec(run_id="r", table_uri=table), NOW + 30 * DAY
    return {
        "optimize": run_sync(plan_optimize(by_id)),
        "vacuum": run_sync(plan_vacuum(vacuum, reader, extend_retention=True, now=late)),
        "expire": run_sync(plan_expiry(specs.ExpireSpec(run_id="r", table_uri=table, horizon="35"), reader)),
    }


CARE: dict[str, dict[str, Any]] = {
    "optimize": {"files_added": 1, "files_removed": 5, "bytes_added": 100, "bytes_removed": 500},
    "vacuum": {},
    "expire": {"deleted": 3, "horizon": "35"},
}


@pytest.mark.parametrize("kind", CARE)
def test_care(kind: str, tmp_path: Path, clock: Callable[[int], None]) -> None:
    tables = lake(tmp_path)
    options = replace(LOG, sequence_by="at", on_conflict="fail")
    tables.source.set_properties(**FEED, **{properties.LATENESS_HORIZON: "3"})
    built(6 if kind == "expire" else 4, options, highest_sequence="40", horizons=((1, "2"),))(tables)
    planned = planned_care(tables)[kind]
    check_spec(kind, planned.spec, tmp_path)
    idle: JobPlan[Any, dict[str, Any]] = JobPlan(None, {}, ("nothing to do",))
    told_of = {"table": tables.source.uri, **CARE[kind]}
    rows, _ = maintain.run(
        {tables.source.uri: planned, "idle": idle},
        execute=lambda _: JobResult("committed", parts=(JobResult("committed", tables=(told_of,)),)),
        run_id="r",
    )
    golden.check(f"published/{kind}.json", golden.as_json(rows, tmp_path))


def test_marks_of_maintenance(tmp_path: Path) -> None:
    spec = specs.OptimizeSpec(
        run_id="r", table_uri="/lake/t", where="day > '2027'", zorder_by=("id",), full=True
    )
    layout = spec.tag
    made = {
        "optimize": maintenance_tags.written("optimize", **layout),
        "expire": maintenance_tags.written("expire", below="30"),
    }
    golden.check("marks.json", golden.as_json({k: json.loads(v) for k, v in made.items()}, tmp_path))
    for kind, text in made.items():
        assert maintenance_tags.read(text, kind) == json.loads(text)


# -- tables -----------------------------------------------------------------------------------------
def test_columns_of_the_tables_beside(tmp_path: Path) -> None:
    found: dict[str, dict[str, Any]] = {
        "__quarantine": quarantine.COLUMNS,
        "__ingested": ingested.COLUMNS,
        "change log": LOG_COLUMNS,
    }
    listed = {name: [f"{column}: {kind}" for column, kind in of.items()] for name, of in found.items()}
    listed["staging, behind the columns of the source"] = [
        *reserved_columns.METADATA_COLUMNS,
        reserved_columns.ORDER,
    ]
    golden.check("columns.json", golden.as_json(listed, tmp_path))


def test_table_properties(tmp_path: Path) -> None:
    own = {"delta_cdc.targetFileSize": "1000", "mine": "1"}
    options = replace(HISTORY, target_properties=own, publish_changes=True)
    shape = shape_of(replace(HISTORY, partition_by={}))
    found = {
        "target, type 1": layout.properties(shape_of(KEYED), KEYED),
        "target, type 2": layout.properties(shape, options),
        "__quarantine": quarantine._PROPERTIES,
        "__ingested": ingested._PROPERTIES,
        "names": sorted(
            [
                layout.FILE_SIZE,
                properties.CHANGE_LOG,
                *DESCRIPTION,
                properties.CHANGE_FEED,
                properties.LATENESS_HORIZON,
                properties.EXPIRED_BELOW,
                retention.FILE_RETENTION,
                retention.LOG_RETENTION,
            ]
        ),
    }
    golden.check("properties.json", golden.as_json(found, tmp_path))


def test_no_file_is_left_over() -> None:
    """A case that goes takes its files with it."""
    kept = {file.stem for folder in ("plans", "seals") for file in (golden.FOLDER / folder).iterdir()}
    assert kept == set(STORIES)
