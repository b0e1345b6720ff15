"""Delete files that tables do not need any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes
from airflow_delta_cdc.operators.care import DeltaConsumedTableOperator
from delta_cdc.core import arguments
from delta_cdc.core.option import FLAG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.core.option import Kind
    from delta_cdc.core.spec import VacuumSpec
    from delta_cdc.planning.consumers import Consumer
    from delta_cdc.planning.plan import JobPlan


class DeltaVacuumOperator(DeltaConsumedTableOperator):
    """VACUUM tables, but keep the versions that a consumer has not read yet.

    Delta keeps removed files for the table's own ``delta.deletedFileRetentionDuration`` (7 days by default).
    First, the task reads the consumers' watermarks from their targets. If a consumer would lose an unread
    version, the task fails with its name, and changes nothing; with ``extend_retention``, it raises the
    property instead. A pipeline in ``config`` that has not run yet needs no version (``note`` names it),
    unless a template gives its target: then the task fails. With nothing to delete, no process starts.

    The XCom is a list with one dict per table: ``table``, ``status`` (``done`` or ``nothing``),
    ``retention``, ``files`` and ``bytes`` (of the deleted files; in a dry run, of the files to delete, at
    most 1000) and ``note``.

    Give exactly one of ``table`` and ``tables``.

    :param table: path, URI or catalog name, ``${ENV}`` allowed (templated)
    :param tables: several tables, processed in one Spark application (templated)
    :param consumers: the pipelines that read the tables: a list of ``{"pipeline": …, "target": …}``, with
        ``"source"`` if you know it; ``${ENV}`` and catalog names are allowed. The task ignores consumers of
        other tables (templated)
    :param config: a configuration file or folder for ``build_dags``; all its pipelines are consumers, too. A
        relative path counts from the folder of the DAG's file (templated)
    :param extend_retention: if a consumer would lose versions, raise the table's retention, and run the
        VACUUM. The new retention is twice the age of the oldest unread version, plus one day (templated)
    :param full: True: list the table's folder, and also delete files that a crash left there. False: delete
        only files that the log records as removed, which is faster (templated)
    :param dry_run: log the files to delete, and delete nothing (templated)
    :param single_driver: you make sure that only one Spark driver at a time writes to the tables; needed on
        S3 if Spark's log store is not safe for several drivers, and on disks without hard links (templated)
    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    :raises VacuumWouldLose: a consumer would lose versions that it has not read, or the task cannot read its
        watermark; the message names the consumer, its first unread version, and until when Delta keeps the
        files
    :raises InvalidConfiguration: arguments contradict each other
    :raises TableNotFound: a table does not exist
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "extend_retention": FLAG,
        "full": FLAG,
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
        extend_retention: bool | str = False,
        full: bool | str = True,
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
        self.extend_retention = extend_retention
        self.full = full
        self.check_literals()

    def plan(
        self, context: Context, table: str, consumers: Sequence[Consumer]
    ) -> JobPlan[VacuumSpec, dict[str, Any]]:
        """Decide from the logs whether a VACUUM is due and allowed."""
        if not consumers:
            self.log.warning("No consumer of %s is set, so VACUUM keeps no files for consumers.", table)
        spec = engine.VacuumSpec(
            run_id=context["run_id"],
            table_uri=table,
            lite=not arguments.flag("full", self.full),
            dry_run=arguments.flag("dry_run", self.dry_run),
            single_driver=arguments.flag("single_driver", self.single_driver),
        )
        extend = arguments.flag("extend_retention", self.extend_retention)
        return engine.run_sync(
            engine.plan_vacuum(
                spec, consumers, extend_retention=extend, storage_options=self.options_of_storage()
            )
        )
