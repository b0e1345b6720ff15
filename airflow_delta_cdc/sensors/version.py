"""Wait until a Delta table has changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowSkipException

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import expand, is_literal
from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.backup import kept
from airflow_delta_cdc.hooks.table import storage_options
from airflow_delta_cdc.names import cached_location
from airflow_delta_cdc.triggers.base import configured_interval
from airflow_delta_cdc.triggers.patience import is_final, message_of
from airflow_delta_cdc.triggers.sensor import DeltaVersionSensorTrigger
from delta_cdc.core import arguments
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration, NotADeltaTable, TableNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.planning.reconcile import RecordedWatermark
    from delta_cdc.planning.waiting import Condition, News, Position


@dataclass(frozen=True)
class _Baseline:
    """Where to go on from, and when the wait ends without any change (epoch milliseconds)."""

    position: Position
    seal_due_at: int | None = None


class DeltaVersionSensor(BaseSensorOperator):
    """Succeed as soon as a table has commits that change data after a baseline. OPTIMIZE doesn't count.

    With ``pipeline`` and ``target`` the baseline is the pipeline's watermark, read from the target's log at
    every look of the task: the sensor lets the apply task run exactly when it has work. That includes the
    seal that an idle pipeline renews before its watermark leaves the log. Without them the baseline is
    ``baseline_version``, else the version found at the first look, which is kept across retries and pokes.

    A table that doesn't exist yet is waited for, and so is a store that doesn't answer. Works deferred (one
    look per interval in the triggerer), in mode ``reschedule`` and in mode ``poke``; never starts a JVM.
    After ``timeout`` the task fails, or is skipped with ``soft_fail``, in each of these ways.

    The XCom is a dict: ``table``, ``table_id``, ``version`` (the newest), ``previous_version`` (the
    baseline), ``timestamp`` (of the newest commit that counted, ISO 8601 in UTC) and ``reason``
    (``new_versions``, ``table_created``, ``table_recreated`` or ``seal_due``).

    :param table: path or URI of the table to watch, ``${ENV}`` allowed; a catalog name too, once an operator
        has looked it up (templated)
    :param pipeline: the flow whose watermark is the baseline; needs ``target`` (templated)
    :param target: the target of that flow, ``${ENV}`` allowed (templated)
    :param baseline_version: commits after this version count (templated)
    :param min_versions: how many commits that count it takes (templated)
    :param operations: only commits of these operations count, as ``DESCRIBE HISTORY`` names them, in any
        case: a name or a list (templated)
    :param partitions: only commits that add or remove rows in such partitions count: a value, or a list of
        values, by partition column (templated)
    :param allow_recreation: whether a table dropped and made again ends the wait with the reason
        ``table_recreated``; else it is an error
    :param deferrable: wait in the triggerer (default), or hold a worker slot as ``mode`` says
    :param poke_interval: seconds between two looks; default ``[delta_cdc] poll_interval``
    :param delta_conn_id: connection of type ``delta`` for the object store of both tables (templated)
    :param storage_options: options of the object store; no secrets; they win over the connection's
        (templated)
    :raises InvalidConfiguration: for ``pipeline`` without ``target`` or the other way round, or partitions by
        a column that is no partition column
    :raises SourceTableReplaced: without ``allow_recreation``, for another table at the same place
    :raises SourceHistoryChanged: without ``allow_recreation``, for a copy of the table with another history
    :raises TableNameUnresolved: for a catalog name that no operator has looked up yet
    :raises UnsupportedTable: for a table whose log alone doesn't tell what happened
    :raises DeltaCdcError: a named error where the target's log holds no usable proof
    """

    template_fields = (
        "table",
        "pipeline",
        "target",
        "baseline_version",
        "min_versions",
        "operations",
        "partitions",
        "delta_conn_id",
        "storage_options",
    )
    ui_color = "#e8e0f5"

    def __init__(
        self,
        *,
        table: str,
        pipeline: str | None = None,
        target: str | None = None,
        baseline_version: int | str | None = None,
        min_versions: int | str = 1,
        operations: Sequence[str] | str | None = None,
        partitions: Mapping[str, Any] | None = None,
        allow_recreation: bool = False,
        deferrable: bool = True,
        delta_conn_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        poke_interval: timedelta | float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            poke_interval=configured_interval() if poke_interval is None else poke_interval, **kwargs
        )
        self.table = table
        self.pipeline = pipeline
        self.target = target
        self.baseline_version = baseline_version
        self.min_versions = min_versions
        self.operations = operations
        self.partitions = partitions
        self.allow_recreation = allow_recreation
        self.deferrable = deferrable
        self.delta_conn_id = delta_conn_id
        self.storage_options = storage_options
        if is_literal(table):
            self.add_inlets([delta_asset(table)])

    def execute(self, context: Context) -> Any:
        """Look once; where there is nothing yet, defer (or go on poking)."""
        if not self.deferrable:
            return super().execute(context)
        baseline = self._baseline(context)
        news = self._look_if_possible(context, baseline)
        if news is None:
            self._wait_in_triggerer(context, baseline)
            return None
        return news.to_dict()

    def _wait_in_triggerer(self, context: Context, baseline: _Baseline) -> None:
        self.defer(
            trigger=DeltaVersionSensorTrigger(
                table=self._located(context, "table", self.table),
                baseline=engine.position_to_json(baseline.position),
                min_versions=arguments.whole_number("min_versions", self.min_versions, minimum=1) or 1,
                operations=self.operations,
                partitions=self.partitions,
                allow_recreation=self.allow_recreation,
                seal_due_at=baseline.seal_due_at,
                poll_interval=self.poke_interval,
                # The connection is read in the triggerer: what a trigger is given is kept in the database.
                delta_conn_id=arguments.text(self.delta_conn_id),
                storage_options=self.storage_options,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        news = self._look_if_possible(context, self._baseline(context))
        return PokeReturnValue(is_done=news is not None, xcom_value=news.to_dict() if news else None)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return what the trigger found.

        :raises DeltaCdcError: the named error the trigger gave up with
        """
        if "error" not in event:
            return event
        error = DeltaCdcError.from_dict(event["error"])
        if self.never_fail:
            # Poking does the same; Airflow knows nothing of our errors here.
            raise AirflowSkipException(str(error)) from error
        raise error

    # -- one look -------------------------------------------------------------------------------
    def _look_if_possible(self, context: Context, baseline: _Baseline) -> News | None:
        try:
            return self._look(context, baseline)
        except DeltaCdcError as error:
            if is_final(error):
                raise
            self.log.warning("Cannot look, and will go on trying: %s", message_of(error))
            return None

    def _look(self, context: Context, baseline: _Baseline) -> News | None:
        watch = engine.Watch(
            self._located(context, "table", self.table),
            position=baseline.position,
            condition=self._condition(),
            allow_recreation=self.allow_recreation,
            seal_due_at=baseline.seal_due_at,
            storage_options=self._storage_options(),
        )
        return engine.run_sync(watch.look())

    def _baseline(self, context: Context) -> _Baseline:
        given = arguments.is_given
        if given(self.pipeline) != given(self.target):
            raise InvalidConfiguration(
                f"The sensor {self.task_id} was given only one of pipeline and target.",
                remedy="give both to wait for versions beyond the watermark, or none.",
            )
        if given(self.pipeline):
            return self._watermark(context)
        version = arguments.whole_number("baseline_version", self.baseline_version)
        return _Baseline(self._pinned(context) if version is None else version)

    def _watermark(self, context: Context) -> _Baseline:
        """Return what the target's log proves, or before everything where nothing is proved yet."""

        options, pipeline = self._storage_options(), arguments.required("pipeline", self.pipeline)
        log = engine.DeltaLog(self._located(context, "target", self.target), options)
        recorded = engine.reconcile(
            log, pipeline, backup=partial(kept, context, self.inlets, self.table, pipeline)
        )
        if recorded is None or recorded.seal is None:
            return _Baseline(-1)
        return _Baseline(recorded.seal.watermark, self._seal_due_at(context, recorded))

    def _seal_due_at(self, context: Context, recorded: RecordedWatermark) -> int | None:
        source = engine.DeltaLog(self._located(context, "table", self.table), self._storage_options())
        try:
            return engine.seal_due_at(engine.run_sync(source.snapshot()), recorded)
        except (TableNotFound, NotADeltaTable):
            # It is waited for; an apply could not seal anything either.
            return None

    def _pinned(self, context: Context) -> Position:
        """Return where the table was at the first look of this task, in whatever try or poke that was."""

        table = self._located(context, "table", self.table)
        key = f"baseline:{delta_asset(table).uri}"[:512]
        store = context.get("task_state_store")
        saved = engine.position_from_json(store.get(key)) if store is not None else None
        if saved is None:
            saved = engine.run_sync(engine.position_now(table, storage_options=self._storage_options()))
            if store is not None:
                store.set(key, engine.position_to_json(saved))
        return saved

    @staticmethod
    def _located(context: Context, argument: str, table: str | None) -> str:
        """Return where a table lies; a name stays one where no operator has looked it up yet."""

        given = expand(arguments.required(argument, table))
        return cached_location(context, given) or given

    def _condition(self) -> Condition:
        return engine.Condition.of(
            min_versions=self.min_versions, operations=self.operations, partitions=self.partitions
        )

    def _storage_options(self) -> dict[str, str] | None:
        return storage_options(arguments.text(self.delta_conn_id), self.storage_options)
