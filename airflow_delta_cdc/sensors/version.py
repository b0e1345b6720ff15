"""Wait until a Delta table has changes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_delta_cdc.assets import delta_asset, expand, is_literal
from airflow_delta_cdc.triggers.version import DeltaVersionTrigger
from delta_cdc import arguments
from delta_cdc.errors import DeltaCdcError, InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from delta_cdc.waiting import News

_POLL_INTERVAL = 30.0


class DeltaVersionSensor(BaseSensorOperator):
    """Succeed as soon as a table has commits that change data after a baseline. OPTIMIZE doesn't count.

    With ``pipeline`` and ``target`` the baseline is the pipeline's watermark, read from the target's log at
    every look: the sensor lets the apply task run exactly when it has work. Without them it is
    ``baseline_version``, else the version found at the first look, which is kept across retries.

    A table that doesn't exist yet is waited for. Works deferred (one look per interval in the triggerer),
    in mode ``reschedule`` and in mode ``poke``; never starts a JVM.

    The XCom is a dict: ``table``, ``table_id``, ``version`` and ``previous_version``.

    :param table: path or URI of the table to watch, ``${ENV}`` allowed (templated)
    :param pipeline: the flow whose watermark is the baseline; needs ``target`` (templated)
    :param target: the target of that flow, ``${ENV}`` allowed (templated)
    :param baseline_version: commits after this version count (templated)
    :param min_versions: how many commits that change data it takes (templated)
    :param deferrable: wait in the triggerer (default), or hold a worker slot as ``mode`` says
    :param poke_interval: seconds between two looks; default ``[delta_cdc] poll_interval``
    :param storage_options: options of the object store; no secrets (templated)
    :raises InvalidConfiguration: for ``pipeline`` without ``target`` or the other way round
    :raises DeltaCdcError: a named error where the target's log holds no usable proof
    """

    template_fields = (
        "table",
        "pipeline",
        "target",
        "baseline_version",
        "min_versions",
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
        deferrable: bool = True,
        storage_options: Mapping[str, str] | None = None,
        poke_interval: timedelta | float | None = None,
        **kwargs: Any,
    ) -> None:
        if poke_interval is None:
            poke_interval = conf.getfloat("delta_cdc", "poll_interval", fallback=_POLL_INTERVAL)
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.table = table
        self.pipeline = pipeline
        self.target = target
        self.baseline_version = baseline_version
        self.min_versions = min_versions
        self.deferrable = deferrable
        self.storage_options = storage_options
        if is_literal(table):
            self.add_inlets([delta_asset(table)])

    def execute(self, context: Context) -> Any:
        """Look once; where there is nothing yet, defer (or go on poking)."""
        if not self.deferrable:
            return super().execute(context)
        baseline = self._baseline(context)
        news = self._look(baseline)
        if news is None:
            self._wait_in_triggerer(baseline)
            return None
        return news.to_dict()

    def _wait_in_triggerer(self, baseline: int) -> None:
        self.defer(
            trigger=DeltaVersionTrigger(
                table=self._table(),
                baseline_version=baseline,
                min_versions=self._min_versions(),
                poll_interval=self.poke_interval,
                storage_options=self._storage_options(),
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        news = self._look(self._baseline(context))
        return PokeReturnValue(is_done=news is not None, xcom_value=news.to_dict() if news else None)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return what the trigger found.

        :raises DeltaCdcError: the named error the trigger gave up with
        """
        if "error" in event:
            raise DeltaCdcError.from_dict(event["error"])
        return event

    # -- one look -------------------------------------------------------------------------------
    def _look(self, baseline: int) -> News | None:
        from delta_cdc.log import run_sync
        from delta_cdc.waiting import Watch

        watch = Watch(
            self._table(),
            baseline_version=baseline,
            min_versions=self._min_versions(),
            storage_options=self._storage_options(),
        )
        return run_sync(watch.look())

    def _baseline(self, context: Context) -> int:
        given = arguments.is_given
        if given(self.pipeline) != given(self.target):
            raise InvalidConfiguration(
                f"The sensor {self.task_id} was given only one of pipeline and target.",
                remedy="give both to wait for versions beyond the watermark, or none.",
            )
        if given(self.pipeline):
            return self._watermark()
        version = arguments.whole_number("baseline_version", self.baseline_version)
        return self._pinned(context) if version is None else version

    def _watermark(self) -> int:
        """Return the version that the target's log proves, or -1 where nothing is proved yet."""
        from delta_cdc.log import DeltaLog
        from delta_cdc.reconcile import reconcile
        from delta_cdc.waiting import BEFORE_EVERYTHING

        log = DeltaLog(expand(arguments.required("target", self.target)), self._storage_options())
        proof = reconcile(log, arguments.required("pipeline", self.pipeline))
        if proof is None or proof.seal is None:
            return BEFORE_EVERYTHING
        return proof.seal.watermark

    def _pinned(self, context: Context) -> int:
        """Return the version found at the first look of this task, in whatever try that was."""
        from delta_cdc.log import run_sync
        from delta_cdc.waiting import newest_version

        store = context.get("task_state_store")
        pinned = store.get(self._pin_key()) if store is not None else None
        if isinstance(pinned, int):
            return pinned
        newest = run_sync(newest_version(self._table(), storage_options=self._storage_options()))
        if store is not None:
            store.set(self._pin_key(), newest)
        return newest

    def _pin_key(self) -> str:
        return f"baseline:{delta_asset(self._table()).uri}"[:512]

    def _table(self) -> str:
        return expand(arguments.required("table", self.table))

    def _min_versions(self) -> int:
        return arguments.whole_number("min_versions", self.min_versions, minimum=1) or 1

    def _storage_options(self) -> dict[str, str] | None:
        return dict(self.storage_options) if self.storage_options else None
