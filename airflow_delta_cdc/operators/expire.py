"""Delete events of change logs that no consumer needs any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.operators.care import DeltaConsumedTableOperator
from delta_cdc.core import arguments
from delta_cdc.core.spec import ExpireSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.planning.consumers import Consumer
    from delta_cdc.planning.plan import JobPlan


class DeltaExpireEventsOperator(DeltaConsumedTableOperator):
    """Keep change logs from growing for ever: delete events behind the lateness horizon, and raise it.

    Each run first deletes what lies behind the horizon that is in effect, once every consumer has all that
    came before that horizon was set; and then sets the new one. What a late event at or after the horizon
    needs to be placed rightly stays: of each key the last event before it, with consumers whose events carry
    some of the columns all that still author a value, and the last truncate. So targets are what they would
    be with the whole log. What arrives below the horizon from then on is late: an ingest puts it into its
    quarantine, an apply from a log that others write raises ``TooLate`` or discards it.

    Where neither is due, no process is started.

    The XCom is a list with one dict per log: ``table``, ``status`` (``done`` or ``nothing``), ``horizon``,
    ``deleted`` (rows) and ``note``.

    Exactly one of ``table`` and ``tables`` is given, and at most one of ``horizon`` and ``keep``.

    :param table: path, URI or catalog name of a change log, ``${ENV}`` allowed (templated)
    :param tables: several of them, done in one Spark application (templated)
    :param consumers: all pipelines that apply events from the logs: a list of ``{"pipeline": …, "target":
        …}``, with ``"source"`` where it is known; ``${ENV}`` and catalog names are allowed. Those of other
        tables are left out (templated)
    :param config: instead or beside, a configuration file or folder as ``build_dags`` takes it: all of its
        pipelines. A relative path counts from the DAG's file (templated)
    :param horizon: the new lateness horizon, a sequence as Spark casts it to a string; it is never lowered
        (templated)
    :param keep: by how much it lies behind the newest event that all consumers have applied, a Delta interval
        such as ``interval 7 days``; for sequences that are times (templated)
    :param dry_run: count what would be deleted, and write nothing (templated)
    :param single_driver: only one Spark driver at a time writes to the logs; needed on S3 without a log store
        for several writers (templated)
    :param kwargs: those of :class:`DeltaCdcOperator`: connections, ``storage_options``, all about Spark
    :raises InvalidConfiguration: there is no consumer, one reads rows and not events, or the horizon is not
        one of their sequences, or above all that they have applied
    :raises ConsumerUnreadable: the log does not show how far a consumer is
    :raises ConcurrentModification: another writer won the race; nothing is lost
    :raises TableNotFound: for a table that does not exist
    """

    template_fields = ("horizon", "keep", *DeltaConsumedTableOperator.template_fields)

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

    def plan(
        self, context: Context, table: str, consumers: Sequence[Consumer]
    ) -> JobPlan[ExpireSpec, dict[str, Any]]:
        """Decide from the logs what is due."""
        spec = ExpireSpec(
            run_id=context["run_id"],
            table_uri=table,
            horizon=str(self.horizon).strip() if arguments.is_given(self.horizon) else None,
            dry_run=arguments.flag("dry_run", self.dry_run),
            single_driver=arguments.flag("single_driver", self.single_driver),
        )
        keep = arguments.text(self.keep)
        return engine.run_sync(
            engine.plan_expiry(spec, consumers, keep=keep, storage_options=self.options_of_storage())
        )
