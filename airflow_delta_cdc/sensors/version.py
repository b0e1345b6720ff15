"""Wait until a Delta table has changes."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import RenderedArguments, attributes, is_literal
from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.backup import stored_copy
from airflow_delta_cdc.compat import AirflowRescheduleException
from airflow_delta_cdc.failures import log_named_errors
from airflow_delta_cdc.hooks.table import storage_options
from airflow_delta_cdc.metrics import are_published, emit_lag
from airflow_delta_cdc.names import cached_location
from airflow_delta_cdc.triggers.base import configured_interval
from airflow_delta_cdc.triggers.patience import MOST_REFUSALS, is_final, message_of
from airflow_delta_cdc.triggers.sensor import DeltaVersionSensorTrigger
from delta_cdc.core import arguments
from delta_cdc.core.errors import (
    DeltaCdcError,
    InvalidConfiguration,
    NotADeltaTable,
    StoreRefused,
    TableNotFound,
)
from delta_cdc.core.option import (
    COUNT,
    MAPPING,
    NAMES,
    OPTIONAL_TABLE,
    PIPELINE,
    POSITIVE,
    SETTINGS,
    TABLE,
    TEXT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.core.option import Kind
    from delta_cdc.core.watermark import Seal
    from delta_cdc.planning.reconcile import RecordedWatermark
    from delta_cdc.planning.waiting import Condition, News, Position


T = TypeVar("T")

#: The key of the number of refused checks in the task state store.
_REFUSALS = "refusals"


@dataclass(frozen=True)
class _Baseline:
    """The position after which changes count, and when the wait ends without any (epoch milliseconds)."""

    position: Position
    seal_due_at: int | None = None


class DeltaVersionSensor(RenderedArguments, BaseSensorOperator):
    """Succeed as soon as a table has new commits that change data (OPTIMIZE does not).

    New commits are those after a baseline. With ``pipeline`` and ``target``, the baseline is the pipeline's
    watermark, which every poke, or a deferred sensor once, reads from the target's log. So the sensor
    succeeds when the apply task has work, also the renewal of an idle pipeline's seal before retention
    removes it. Otherwise, the baseline is ``baseline_version``, or else the table's version at the first
    poke; later pokes and retries keep it.

    The sensor also waits for a table that doesn't exist yet, and for a store that doesn't answer. It works
    deferred (one check per interval in the triggerer), in mode ``reschedule`` and in mode ``poke``, and never
    starts a JVM. After ``timeout``, the task fails, or is skipped with ``soft_fail``. An error that waiting
    cannot solve fails the task, or skips it with ``never_fail``; ``soft_fail`` does not hide it.

    The XCom is a dict: ``table``, ``table_id``, ``version`` (the newest), ``previous_version`` (the
    baseline), ``timestamp`` (of the newest commit that counted, ISO 8601 in UTC) and ``reason``
    (``new_versions``, ``table_created``, ``table_recreated`` or ``seal_due``).

    :param table: path or URI of the table to watch, ``${ENV}`` allowed; or a catalog name that an operator
        has resolved before (templated)
    :param pipeline: the pipeline whose watermark is the baseline; needs ``target`` (templated)
    :param target: the target of that pipeline, ``${ENV}`` allowed (templated)
    :param baseline_version: only commits after this version count (templated)
    :param min_versions: the number of counted commits after which the sensor succeeds (templated)
    :param operations: a name or a list of names of operations, as in ``DESCRIBE HISTORY``, in upper or lower
        case, such as ``MERGE``: only commits of these operations count (templated)
    :param partitions: a value, or a list of values, for each partition column, such as ``{"country": ["DE",
        "FR"]}``: only commits that add or remove rows in these partitions count (templated)
    :param allow_recreation: True: the sensor succeeds, with the reason ``table_recreated``, if another job
        dropped the table and created it again. False: the sensor fails in this case
    :param deferrable: True: wait in the triggerer. False: wait on a worker, as ``mode`` defines
    :param poke_interval: seconds between two checks; default ``[delta_cdc] poll_interval``
    :param delta_conn_id: connection of type ``delta`` for the object store of both tables (templated)
    :param storage_options: options of the object store, which override the connection's. The DAG shows them,
        so they must not contain secrets (templated)
    :raises InvalidConfiguration: only one of ``pipeline`` and ``target`` is given, or ``partitions`` names a
        column that is not a partition column
    :raises SourceTableReplaced: without ``allow_recreation``: another table is at the same location
    :raises SourceHistoryChanged: without ``allow_recreation``: the table has the same id, but another
        history, for example after a copy from a backup
    :raises TableNameUnresolved: no operator has resolved the catalog name yet
    :raises StoreRefused: storage refused access at six checks in a row (in mode ``reschedule`` only from
        Airflow 3.3 on)
    :raises UnsupportedTable: the table uses a Delta feature that this package does not support, so its log
        alone does not show the changes
    :raises DeltaCdcError: the target's log has no valid watermark; the class of the error shows why
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "table": TABLE,
        "pipeline": PIPELINE,
        "target": OPTIONAL_TABLE,
        "baseline_version": COUNT,
        "min_versions": POSITIVE,
        "operations": NAMES,
        "partitions": MAPPING,
        "delta_conn_id": TEXT,
        "storage_options": SETTINGS,
    }
    template_fields = attributes(kinds)
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
        #: The baseline of the first look, where Airflow has no task state store.
        self._first: Position | None = None
        #: The checks in a row at which storage refused access; None before the first check of this process.
        self._refusals: int | None = None
        self.check_literals()
        if is_literal(table):
            self.add_inlets([delta_asset(table)])

    def pre_execute(self, context: Context) -> None:
        """Prepare the log for named errors, and read the arguments."""
        log_named_errors()
        self.read_arguments()

    def execute(self, context: Context) -> Any:
        """Look once; without changes, defer the task (or go on poking)."""
        if self.deferrable:
            return self._look_or_defer(context)
        with self._never_failing():
            return super().execute(context)

    def look_again(
        self, context: Context, event: Any = None, until: float = 0, refusals: int | None = None
    ) -> Any:
        """Look after a pause, because the baseline could not be read before.

        :param until: when the wait ends, in epoch seconds
        :param refusals: the checks in a row at which storage refused access
        """
        self._refusals = refusals
        return self._look_or_defer(context, until)

    def _look_or_defer(self, context: Context, until: float | None = None) -> Any:
        with self._never_failing():
            baseline, news = self._look_if_possible(context)
            if news is not None:
                return news.to_dict()
            # The triggerer cannot read the baseline: it has neither the state store nor the pipeline's copy.
            trigger = None if baseline is None else self._if_possible(self._trigger, context, baseline)
        left = self.timeout if until is None else max(0.0, until - time.time())
        timeout = timedelta(seconds=left)
        if trigger is not None:
            self.defer(trigger=trigger, method_name="execute_complete", timeout=timeout)
        from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger

        pause = TimeDeltaTrigger(timedelta(seconds=self.poke_interval))
        until = time.time() + left if until is None else until
        kwargs = {"until": until, "refusals": self._refusals}
        return self.defer(trigger=pause, method_name="look_again", kwargs=kwargs, timeout=timeout)

    def _trigger(self, context: Context, baseline: _Baseline) -> DeltaVersionSensorTrigger:
        return DeltaVersionSensorTrigger(
            table=self._located(context, "table", self.table),
            baseline=engine.position_to_json(baseline.position),
            min_versions=arguments.whole_number("min_versions", self.min_versions, minimum=1) or 1,
            operations=self.operations,
            partitions=self.partitions,
            allow_recreation=self.allow_recreation,
            seal_due_at=baseline.seal_due_at,
            poll_interval=self.poke_interval,
            # The triggerer reads the connection: a trigger's arguments are stored in the database.
            delta_conn_id=self.delta_conn_id,
            storage_options=self.storage_options,
        )

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        _, news = self._look_if_possible(context)
        return PokeReturnValue(is_done=news is not None, xcom_value=news.to_dict() if news else None)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the event of the trigger.

        :raises DeltaCdcError: the error that ended the trigger
        """
        with self._never_failing():
            if "error" in event:
                raise DeltaCdcError.from_dict(event["error"])
        return event

    @contextmanager
    def _never_failing(self) -> Iterator[None]:
        """Turn an error of a look into the task's state, in the triggerer and on the worker.

        ``never_fail`` skips the task for any error. ``soft_fail`` skips it only for Airflow's own errors that
        end a wait, such as a timeout.
        """
        try:
            yield
        except (AirflowSkipException, AirflowRescheduleException):
            raise
        except (AirflowSensorTimeout, AirflowTaskTimeout, AirflowFailException) as error:
            if self.soft_fail or self.never_fail:
                raise AirflowSkipException(f"The wait for {self.table} ended: {error}") from error
            raise
        except Exception as error:
            if self.never_fail:
                raise AirflowSkipException(str(error)) from error
            raise

    # -- one look -------------------------------------------------------------------------------
    def _look_if_possible(self, context: Context) -> tuple[_Baseline | None, News | None]:
        with self._counting_refusals(context):
            baseline = self._if_possible(self._baseline, context)
            news = self._if_possible(self._look, context, baseline) if baseline is not None else None
        return baseline, news

    @contextmanager
    def _counting_refusals(self, context: Context) -> Iterator[None]:
        """Count the checks in a row at which storage refuses access.

        Each check has a process of its own in mode ``reschedule``, for which the task state store keeps the
        number, and after a pause of a deferred task, which keeps the number in its arguments. An error that
        ends the wait ends the count, too: a retry begins again.
        """
        store = context.get("task_state_store")
        known = self._refusals
        if known is None:
            saved = store.get(_REFUSALS) if store is not None else None
            # People can edit the store.
            known = saved if isinstance(saved, int) and 0 <= saved <= MOST_REFUSALS else 0
        self._refusals, goes_on = known, False
        try:
            yield
            goes_on = True
        finally:
            if not goes_on or self._refusals == known:
                self._refusals = 0
            if store is not None and self._refusals != known:
                store.set(_REFUSALS, self._refusals)

    def _if_possible(self, step: Callable[..., T | None], *given: Any) -> T | None:
        """Return the result of a step; None after an error that may pass: the sensor looks again later."""
        try:
            return step(*given)
        except DeltaCdcError as error:
            count = (self._refusals or 0) + isinstance(error, StoreRefused)
            if is_final(error) or count >= MOST_REFUSALS:
                raise
            self._refusals = count
            self.log.warning("Cannot check %s. The sensor tries again: %s", self.table, message_of(error))
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
        pipeline = arguments.pipeline("pipeline", self.pipeline)
        if (pipeline is not None) != arguments.is_given(self.target):
            raise InvalidConfiguration(
                f"The sensor {self.task_id} was given only one of pipeline and target.",
                remedy="give both to wait for versions beyond the watermark, or none.",
            )
        if pipeline is not None:
            return self._watermark(context, pipeline)
        version = arguments.whole_number("baseline_version", self.baseline_version)
        return _Baseline(self._first_position(context) if version is None else version)

    def _watermark(self, context: Context, pipeline: str) -> _Baseline:
        """Return the watermark in the target's log; without one, the position before all versions."""
        options = self._storage_options()
        log = engine.DeltaLog(self._located(context, "target", self.target), options)
        recorded = engine.reconcile(
            log, pipeline, backup=partial(stored_copy, context, self.inlets, self.table, pipeline)
        )
        recorded = engine.run_sync(engine.arrived(log, pipeline, recorded))
        if recorded is None or recorded.seal is None:
            return _Baseline(-1)
        return _Baseline(recorded.seal.watermark, self._seal_due_at(context, recorded, recorded.seal))

    def _seal_due_at(self, context: Context, recorded: RecordedWatermark, seal: Seal) -> int | None:
        source = engine.DeltaLog(self._located(context, "table", self.table), self._storage_options())
        try:
            state = engine.run_sync(source.snapshot())
        except (TableNotFound, NotADeltaTable):
            # The sensor waits for the table; an apply could not renew the seal either.
            return None
        if are_published():
            with suppress(DeltaCdcError):
                # The look at the source's log reports what is wrong with it.
                most = engine.MOST_COMMITS
                lag = engine.run_sync(engine.lag_of(source, state, recorded, seal, most=most))
                emit_lag(seal.pipeline, lag.to_dict())
        return engine.seal_due_at(state, recorded)

    def _first_position(self, context: Context) -> Position:
        """Return the table's position at the first look of this task, in any try or poke."""

        table = self._located(context, "table", self.table)
        key = f"baseline:{delta_asset(table).uri}"[:512]
        store = context.get("task_state_store")
        if store is None and self.reschedule and not self.deferrable:
            raise InvalidConfiguration(
                f"The sensor {self.task_id} has no baseline, and this Airflow release cannot store one "
                "between two checks in mode reschedule.",
                remedy="give pipeline and target, or baseline_version; or let it wait with deferrable=True.",
                argument="mode",
            )
        saved = self._first if store is None else engine.position_from_json(store.get(key))
        if saved is None:
            saved = engine.run_sync(engine.position_now(table, storage_options=self._storage_options()))
            if store is None:
                self._first = saved
            else:
                store.set(key, engine.position_to_json(saved))
        return saved

    def _located(self, context: Context, argument: str, table: str | None) -> str:
        """Return the location of a table, or its catalog name if no operator has looked it up yet."""

        path_or_name = arguments.table(argument, table)
        return cached_location(context, path_or_name, self._storage_options()) or path_or_name

    def _condition(self) -> Condition:
        return engine.Condition.of(
            min_versions=self.min_versions, operations=self.operations, partitions=self.partitions
        )

    def _storage_options(self) -> dict[str, str] | None:
        return storage_options(self.delta_conn_id, self.storage_options)
