"""Delete events of change logs that no consumer needs any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes
from airflow_delta_cdc.operators.care import DeltaConsumedTableOperator
from delta_cdc.core import arguments
from delta_cdc.core.option import TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.core.option import Kind
    from delta_cdc.core.spec import ExpireSpec
    from delta_cdc.planning.consumers import Consumer
    from delta_cdc.planning.plan import JobPlan


class DeltaExpireEventsOperator(DeltaConsumedTableOperator):
    """Delete events of change logs that are older than the lateness horizon, and raise the horizon.

    The horizon is the lowest sequence that a late event may have. If every consumer has applied all events
    that were in the log when the current horizon was set, a run deletes the events below this horizon, and
    then sets the new one. Otherwise it does neither, and ``note`` names the consumer that is behind. If
    neither step is due, the task starts no process.

    Which events stay, so that targets get the same rows, and what happens to an event that arrives below the
    horizon: ``docs/howto/expire-events.md``.

    The XCom is a list with one dict per log: ``table``, ``status`` (``done`` or ``nothing``), ``horizon``,
    ``deleted`` (rows) and ``note``.

    Give exactly one of ``table`` and ``tables``, and at most one of ``horizon`` and ``keep``.

    :param table: path, URI or catalog name of a change log, ``${ENV}`` allowed (templated)
    :param tables: several change logs, processed in one Spark application (templated)
    :param consumers: all pipelines that apply events from the logs: a list of ``{"pipeline": …, "target":
        …}``, with ``"source"`` if you know it; ``${ENV}`` and catalog names are allowed. The task ignores
        consumers of other tables (templated)
    :param config: a configuration file or folder for ``build_dags``; all its pipelines are consumers, too. A
        relative path counts from the folder of the DAG's file (templated)
    :param horizon: the new lateness horizon, a sequence as Spark casts it to a string; a run never lowers it
        (templated)
    :param keep: the distance between the horizon and the newest event that all consumers have applied, a
        Delta interval such as ``interval 7 days``; only for sequences that are times (templated)
    :param dry_run: count the events that the task would delete, and write nothing (templated)
    :param single_driver: you make sure that only one Spark driver at a time writes to the logs; needed on S3
        if Spark's log store is not safe for several drivers, and on disks without hard links (templated)
    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    :raises InvalidConfiguration: there is no consumer; a consumer reads rows, not events; the horizon does
        not have the type of the consumers' sequence, or is above all events that they have applied
    :raises ConsumerUnreadable: the log of a consumer's target does not show the consumer's watermark
    :raises ConcurrentModification: another writer committed first; the task changed nothing
    :raises TableNotFound: a table does not exist
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "horizon": TEXT,
        "keep": TEXT,
        **DeltaConsumedTableOperator.kinds,
    }
    template_fields = attributes(kinds)

    def __init__(
        self,
        *,
        table: str | None = None,
        tables: Sequence[str] | None = None,
        consumers: Sequence[Mapping[str, str]] | None = None,
        config: str | None = None,
        horizon: str | int | None = None,
        keep: str | None = None,
        dry_run: bool | str = False,
        single_driver: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            table=table,
            tables=tables,
            consumers=consumers,
            config=config,
            dry_run=dry_run,
            single_driver=single_driver,
            **kwargs,
        )
        self.horizon = horizon
        self.keep = keep
        self.check_literals()

    def plan(
        self, context: Context, table: str, consumers: Sequence[Consumer]
    ) -> JobPlan[ExpireSpec, dict[str, Any]]:
        """Decide from the logs which step is due."""
        spec = engine.ExpireSpec(
            run_id=context["run_id"],
            table_uri=table,
            horizon=arguments.name("horizon", arguments.text("horizon", self.horizon)),
            dry_run=arguments.flag("dry_run", self.dry_run),
            single_driver=arguments.flag("single_driver", self.single_driver),
        )
        keep = arguments.text("keep", self.keep)
        return engine.run_sync(
            engine.plan_expiry(spec, consumers, keep=keep, storage_options=self.options_of_storage())
        )
