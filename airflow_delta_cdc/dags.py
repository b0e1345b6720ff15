"""Build DAGs from a configuration: for each group of tables, for its backfills, and to explain its rows."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any
from zlib import crc32

from airflow.sdk import DAG, AssetAny, get_parsing_context

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import is_literal
from airflow_delta_cdc.assets import delta_asset, pipeline_alias, written_assets
from airflow_delta_cdc.compat import (
    AssetOrTimeSchedule,
    CronDataIntervalTimetable,
    CronTriggerTimetable,
)
from airflow_delta_cdc.deadline import freshness_deadline
from airflow_delta_cdc.form import run_params, why_arguments, why_params
from airflow_delta_cdc.groups.base import collects, has_target
from airflow_delta_cdc.groups.cannot_be_built import CannotBeBuiltOperator
from airflow_delta_cdc.groups.detect_changes import DetectChangesOperator
from airflow_delta_cdc.groups.publish import PublishOperator
from airflow_delta_cdc.groups.run_spark import RunSparkOperator
from airflow_delta_cdc.groups.table import ApplyTableOperator
from airflow_delta_cdc.groups.why import ExplainRowOperator
from airflow_delta_cdc.lazy import Lazy
from airflow_delta_cdc.retry import DELTA_CDC_RETRY_POLICY
from airflow_delta_cdc.triggers import watched_asset
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration
from delta_cdc.core.groups import BACKFILL_SUFFIX, ON_CHANGE, WATCHABLE_REMEDY, WHY_SUFFIX, dag_ids
from delta_cdc.core.options import APPLY
from delta_cdc.core.times import start

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from airflow.sdk import Asset, Param
    from airflow.sdk.definitions.deadline import DeadlineAlert

    from airflow_delta_cdc import jobs
    from delta_cdc.config import Group, Table
else:
    jobs = Lazy("airflow_delta_cdc.jobs")

#: Settings of tasks, of DAGs, and of the applications that tasks start.
_OF_TASKS = ("owner", "pool", "queue", "retries")
_SPANS = ("retry_delay", "execution_timeout")
_CALLBACKS = ("on_failure_callback", "on_success_callback", "on_retry_callback")
_OF_DAGS = ("description", "catchup", "max_active_runs", "is_paused_upon_creation")
_OF_APPLICATIONS = (
    "spark_conn_id",
    "delta_conn_id",
    "kafka_conn_id",
    "deploy_mode",
    "conf",
    "jars",
    "packages",
    "driver_memory",
    "executor_memory",
    "executor_cores",
    "num_executors",
    "storage_options",
    "kafka_options",
)
#: The settings that determine to which tables the names in the configuration refer.
_OF_THE_WORK = ("spark_conn_id", "delta_conn_id", "kafka_conn_id", "storage_options", "kafka_options")
_PARALLEL = 8
#: Airflow needs a start date for a schedule. A constant gives the same schedule wherever the file is parsed.
_START = datetime(2020, 1, 1, tzinfo=UTC)
#: Presets that are no cron.
_NO_CRON = ("@once", "@continuous")


def build_dags(
    source: str | Path | Mapping[str, Any],
    *,
    sources: Mapping[str, str] | None = None,
    targets: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    default_args: Mapping[str, Any] | None = None,
    **dag_arguments: Any,
) -> dict[str, DAG]:
    """Build the DAGs of a configuration, and register them with Airflow.

    .. code-block:: python

        from airflow_delta_cdc.dags import build_dags

        build_dags("sales.yaml")

    Each group becomes a DAG and, unless it sets ``backfill: false``, a second DAG ``<dag_id>__backfill``
    without a schedule, for long manual runs that would delay the scheduled runs. With ``why: true``, it also
    becomes the DAG ``<dag_id>__why``, whose manual runs explain the row of a key. The function opens no
    connection and reads no table.

    If a group's DAG cannot be built, such as for a callback that cannot be imported, the others come. This
    DAG then has no schedule, and one task, which fails with the error.

    :param source: path of a YAML file, of a folder of such files, or of a file with AUTO CDC code (``*.py``
        or ``*.sql``), which is read and not run; or a mapping with the content of a YAML file. A relative
        path counts from the folder of the calling file
    :param sources: only for code: names of sources in it, and the Delta tables that they stand for
    :param targets: only for code: the same for the tables that it writes
    :param defaults: only for code: keys of ``defaults`` of a configuration, such as ``schedule``
    :param default_args: Airflow's ``default_args``: arguments of tasks that the configuration does not set
    :param dag_arguments: arguments of the DAGs that the configuration does not set
    :return: the DAGs by their ids. While Airflow runs a task, the dict has only the DAG of this task
    :raises InvalidConfiguration: the configuration has problems; the message names all, one per line; or no
        DAG can be built
    """

    caller = sys._getframe(1).f_globals.get("__file__") or ""
    wanted = get_parsing_context().dag_id
    place = "a mapping"
    if isinstance(source, str | Path):
        source, place = _placed(Path(source), Path(caller).parent if caller else Path())
    dags: dict[str, DAG] = {}
    problems: dict[str, tuple[_Maker, InvalidConfiguration]] = {}
    code = engine.Code(sources or {}, targets or {}, defaults or {})
    for group in engine.load_configuration(source, code).groups:
        maker = _Maker(group, place, caller, dict(default_args or {}), dag_arguments)
        for dag_id, suffix in maker.wanted(wanted):
            try:
                dags[dag_id] = maker.made(dag_id, suffix)
            except InvalidConfiguration as error:
                problems[dag_id] = maker, error
    if problems and not dags:
        raise next(problem for _, problem in problems.values())
    for dag_id, (maker, problem) in problems.items():
        dags[dag_id] = maker.failing(dag_id, problem)
    return dags


def _placed(source: Path, folder: Path) -> tuple[Path, str]:
    """Return the path of a configuration, and the same for people.

    The latter is relative to the folder of the DAG file: it is a part of the DAG, so a copy of the project at
    another place, such as each version in a Git bundle, would otherwise make a new version of each DAG.
    """
    path = folder / source
    if not source.is_absolute():
        return path, str(source)
    is_apart = os.path.commonpath([path, folder.absolute()]) == path.anchor
    return path, str(path) if is_apart else os.path.relpath(path, folder)


@dataclass(frozen=True)
class _Maker:
    """Builds the DAGs of one group.

    :param place: location of its configuration, for people
    :param file: the DAG file
    """

    group: Group
    place: str
    file: str
    default_args: dict[str, Any]
    dag_arguments: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return [table.pipeline for table in self.group.tables]

    @property
    def _dag_id(self) -> str:
        """Return the id of the group's scheduled DAG: unlike its name, no other file may have it, too."""
        return str(self.group.settings.get("dag_id", self.group.name))

    @cached_property
    def _work_fingerprint(self) -> str:
        """Return a hash of the settings that define the work; others, such as the schedule, may change."""
        settings = {name: self.group.settings.get(name) for name in _OF_THE_WORK}
        # Each task adds the arguments of its table: another table may change.
        return engine.Group(self.group.name, settings, ()).fingerprint

    @property
    def _place(self) -> str:
        return self.group.place or self.place

    def wanted(self, only: str | None) -> Iterator[tuple[str, str]]:
        """Yield the ids of the DAGs to build, each with its suffix.

        :param only: build only the DAG with this id; None builds all
        """
        ids = dag_ids(self._dag_id, self.group.settings)
        yield from (one for one in ids.items() if only in (None, one[0]))

    def made(self, dag_id: str, suffix: str) -> DAG:
        """Build a DAG; an error names the place in the configuration."""
        try:
            return self.dag(dag_id, suffix)
        except DeltaCdcError as error:
            text = f"{self._place}: {error.message}"
            raise InvalidConfiguration(text, remedy=error.remedy, argument=error.argument) from error
        except (ValueError, TypeError) as error:
            raise InvalidConfiguration(
                f"{self._place}: Airflow refuses the DAG {dag_id}: {error}",
                remedy="correct this argument, in the group or in the call of build_dags.",
            ) from error

    def failing(self, dag_id: str, error: InvalidConfiguration) -> DAG:
        """Build a DAG that shows why the real one cannot be built.

        An import error would show this, too, but Airflow then stops all DAGs of the file. Without a schedule,
        a run of a data interval does not go by: the corrected DAG starts it.
        """
        warnings.warn(f"The DAG {dag_id} cannot be built: {error}", stacklevel=3)
        with DAG(
            dag_id,
            schedule=None,
            start_date=_START,
            is_paused_upon_creation=False,
            default_args=dict(self.default_args),
            tags=["delta-cdc", "cannot-be-built"],
            doc_md=f"**This DAG cannot be built.** {error}\n\n{self._doc(None)}",
        ) as dag:
            dag.fileloc = self.file or dag.fileloc
            CannotBeBuiltOperator(task_id="cannot_be_built", error=str(error), retries=0)
        return dag

    def dag(self, dag_id: str, suffix: str) -> DAG:
        settings = self.group.settings
        by_hand = suffix != ""
        explains = suffix == WHY_SUFFIX
        arguments = {
            "catchup": False,
            "max_active_runs": 1,
            "start_date": _START,
            **self.dag_arguments,
            **{name: settings[name] for name in _OF_DAGS if name in settings},
            **{name: start(name, settings[name]) for name in ("start_date",) if name in settings},
            # It has no schedule, so unpausing it starts no run.
            **({"max_active_runs": 1, "is_paused_upon_creation": False} if by_hand else {}),
        }
        if arguments["catchup"] and arguments["start_date"] == _START:
            raise InvalidConfiguration(
                f"The group {self.group.name} has catchup, but no start_date.",
                remedy="set start_date, where its runs begin.",
            )
        with DAG(
            dag_id,
            **{
                **arguments,
                "schedule": None if by_hand else self._schedule(arguments),
                "params": {**self._params(suffix), **arguments.get("params", {})},
                # No person is on call for a question that another one asks.
                "default_args": self._default_args(left_out=_CALLBACKS if explains else ()),
                "tags": ["delta-cdc", *arguments.get("tags", ()), *settings.get("tags", ())],
                "doc_md": self._doc(arguments.get("doc_md")),
                **({} if by_hand or "deadline" in arguments else {"deadline": self._deadlines()}),
            },
        ) as dag:
            # Otherwise, Airflow takes this module for the DAG file.
            dag.fileloc = self.file or dag.fileloc
            # Airflow would register a DAG that an error leaves without some of its tasks.
            dag.auto_register = False
            if explains:
                self._explaining_task()
            else:
                self._tasks()
            dag.auto_register = True
        return dag

    def _params(self, suffix: str) -> dict[str, Param]:
        if suffix == WHY_SUFFIX:
            names = [table["pipeline"] for table in self._explained]
            return why_params(pipelines=names if len(names) > 1 else ())
        names = self.names if len(self.names) > 1 else []
        return run_params(tables=names, mode="backfill" if suffix == BACKFILL_SUFFIX else "incremental")

    # -- tasks ----------------------------------------------------------------------------------
    def _tasks(self) -> None:
        small = [table for table in self.group.tables if not table.own_application]
        large = [table for table in self.group.tables if table.own_application]
        detections, applies = [], []
        for tables, suffix in ((small, ""), (large, "_large")):
            if tables:
                detect, apply = self._chain(tables, suffix, shares=not suffix)
                detections.append(detect)
                applies.append(apply)
        publish = PublishOperator(
            task_id="publish",
            group=self._dag_id,
            detections=[detect.task_id for detect in detections],
            applies=[apply.task_id for apply in applies],
            manifest=self.group.settings.get("manifest"),
            trigger_rule="none_failed",
            **self._task_arguments(),
        )
        [*detections, *applies] >> publish

    @property
    def _explained(self) -> list[Mapping[str, Any]]:
        """Return the arguments of the tables that have a target, or else of all."""
        tables: list[Mapping[str, Any]] = [table.arguments for table in self.group.tables]
        return [table for table in tables if has_target(table)] or tables

    def _explaining_task(self) -> None:
        """Build the task that explains the rows of the group's targets."""
        tables, given = self._explained, self._task_arguments()
        ExplainRowOperator(
            task_id="why",
            tables=tables,
            group=self._dag_id,
            pipeline="{{ params.pipeline }}" if len(tables) > 1 else tables[0]["pipeline"],
            **why_arguments(),
            **{name: value for name, value in given.items() if not name.startswith("kafka_")},
        )

    def _chain(self, tables: Sequence[Table], suffix: str, *, shares: bool) -> tuple[Any, Any]:
        """Build the tasks of some tables: one that detects changes, and one for each table with work.

        :param shares: whether one application does the work of all tables; otherwise each has its own
        """
        parallel = self.group.settings.get("max_parallel_tables", _PARALLEL)
        tables_arguments = [table.arguments for table in tables]
        sources = [jobs.source_of(one) for one in tables_arguments]
        inlets = [delta_asset(one) for one in dict.fromkeys(s for s in sources if is_literal(s))]
        detect = DetectChangesOperator(
            task_id=f"detect_changes{suffix}",
            tables=tables_arguments,
            pipelines=self.names,
            fingerprint=self._work_fingerprint,
            group=self._dag_id,
            inlets=inlets,
            **self._task_arguments(),
        )
        run_spark = None
        if shares:
            run_spark = RunSparkOperator(
                task_id="run_spark",
                work=detect.output,
                detection=detect.task_id,
                parallel=parallel,
                inlets=inlets,
                **self._task_arguments(),
            )
        apply = ApplyTableOperator.partial(
            task_id=f"apply{suffix}",
            detection=detect.task_id,
            run_spark=run_spark.task_id if run_spark is not None else None,
            trigger_rule="all_done",
            map_index_template="{{ task.pipeline }}",
            max_active_tis_per_dagrun=parallel,
            inlets=inlets,
            outlets=[
                *(pipeline_alias(table.pipeline) for table in tables),
                *written_assets(one.get(name) for one in tables_arguments for name in ("log", "target")),
            ],
            **self._task_arguments(),
        ).expand(item=detect.output)
        if run_spark is not None:
            run_spark >> apply
        return detect, apply

    def _task_arguments(self) -> dict[str, Any]:
        """Return arguments of all tasks: those of their applications, and that their XComs stay on.

        The tasks pass their work to each other by XCom; a user may have turned XComs off in ``default_args``.
        """
        return {"do_xcom_push": True, **self._application_arguments()}

    def _application_arguments(self) -> dict[str, Any]:
        return {name: value for name, value in self.group.settings.items() if name in _OF_APPLICATIONS}

    # -- arguments of DAG and tasks -------------------------------------------------------------
    def _default_args(self, *, left_out: Collection[str] = ()) -> dict[str, Any]:
        settings = self.group.settings
        known = {
            "retry_policy": DELTA_CDC_RETRY_POLICY,
            **self.dag_arguments.get("default_args", {}),
            **self.default_args,
            **{name: settings[name] for name in _OF_TASKS if name in settings},
            **{name: timedelta(seconds=settings[name]) for name in _SPANS if name in settings},
            **{name: [_callback(one) for one in settings[name]] for name in _CALLBACKS if name in settings},
        }
        return {name: value for name, value in known.items() if name not in left_out}

    def _deadlines(self) -> list[DeadlineAlert]:
        """Return the deadlines of a run: the shortest freshness of the group's pipelines, per callback.

        None without a callback: Airflow's ``dag.test()`` fails for a DAG with a deadline.
        """
        given = [APPLY["freshness"].read(table.arguments.get("freshness")) for table in self.group.tables]
        spans = [seconds for seconds in given if seconds is not None]
        callbacks = self.group.settings.get("on_late_callback", ())
        return [freshness_deadline(min(spans), callback) for callback in callbacks] if spans else []

    def _schedule(self, arguments: Mapping[str, Any]) -> Any:
        settings = self.group.settings
        schedule = settings.get("schedule", self.dag_arguments.get("schedule"))
        if schedule == ON_CHANGE:
            return self._also_daily(self._watched())
        if isinstance(schedule, dict) and set(schedule) == {"assets"}:
            return self._also_daily([delta_asset(table) for table in schedule["assets"]])
        if isinstance(schedule, str) and schedule not in _NO_CRON:
            # A backfill by dates needs data intervals.
            return CronDataIntervalTimetable(schedule, timezone=self._zone(arguments["start_date"]))
        return schedule

    def _also_daily(self, assets: list[Asset]) -> Any:
        """Return a schedule on assets, and once a day, at a time that follows from the group's name.

        No event starts the run that renews the seal of an idle pipeline, or applies what a limit left over.
        """
        hour, minute = divmod(crc32(self.group.name.encode()) % (24 * 60), 60)
        daily = CronTriggerTimetable(f"{minute} {hour} * * *", timezone="UTC")
        return AssetOrTimeSchedule(timetable=daily, assets=AssetAny(*assets))

    def _zone(self, start: Any) -> Any:
        """Return the zone of the schedule by Airflow's own rule: that of the start date, or Airflow's."""
        given = None if start == _START else start
        return DAG("zone", schedule=None, start_date=given, default_args=self._default_args()).timezone

    def _watched(self) -> list[Asset]:
        """Return the assets of the sources.

        The reader of the configuration has checked a schedule of the configuration. Here, the schedule may
        also come from the call of :func:`build_dags`, and a source may name a variable that is not set.

        :raises InvalidConfiguration: a source cannot be watched
        """
        settings = self.group.settings
        options = {name: settings[name] for name in ("delta_conn_id", "storage_options") if name in settings}
        # The group itself writes the logs that collect the changes of several sources.
        collected = {table.arguments["target"] for table in self.group.tables if collects(table.arguments)}
        watched = [table for table in self.group.tables if table.arguments["source"] not in collected]
        sources = {table.pipeline: table.arguments["source"] for table in watched}
        for table in watched:
            if engine.is_ingested(table.arguments) or not is_literal(sources[table.pipeline]):
                raise InvalidConfiguration(
                    f"{table.pipeline} ({table.place}) is in a group with schedule on_change, and its "
                    "source cannot be watched.",
                    remedy=WATCHABLE_REMEDY,
                )
        return [watched_asset(source, **options) for source in dict.fromkeys(sources.values())]

    def _doc(self, default_text: str | None) -> str:
        own_text = self.group.settings.get("doc_md", default_text)
        made = (
            f"Made from `{self.place}`, group `{self.group.name}`: {len(self.names)} "
            f"table{'s' if len(self.names) > 1 else ''}. Configuration `{self.group.fingerprint}`."
        )
        return f"{own_text.rstrip()}\n\n{made}" if own_text else made


def _callback(dotted: str) -> Any:
    """Return the function with a dotted name.

    :raises InvalidConfiguration: the name does not exist
    """
    try:
        return resolve_name(dotted)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidConfiguration(
            f"There is no callback {dotted}: {error}.",
            remedy="name a function by its module, in a module that the DAG processor can import.",
        ) from error
