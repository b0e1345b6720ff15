"""Lay out the files of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.operators.care import DeltaTableCareOperator
from delta_cdc.core import arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from delta_cdc.planning.consumers import Consumer
    from delta_cdc.run.maintain import Work


class DeltaOptimizeOperator(DeltaTableCareOperator):
    """Compact the files of tables, cluster them, order them along columns, or purge masked rows.

    No row changes: pipelines that read or fill the tables go on as before. A table in which nothing was
    written since it was last laid out so is left alone, and if that holds for all, no process is started.

    The XCom is a list with one dict per table: ``table``, ``status`` (``done`` or ``nothing``),
    ``files_added``, ``files_removed``, ``bytes_added``, ``bytes_removed`` and ``note``.

    Exactly one of ``table`` and ``tables`` is given.

    :param table: path, URI or catalog name, ``${ENV}`` allowed (templated)
    :param tables: several of them, done in one Spark application (templated)
    :param where: Spark SQL predicate over partition columns: only these partitions (templated)
    :param zorder_by: columns along which rows are put together; not for clustered tables (templated)
    :param full: of a clustered table, lay out also what is clustered already, for instance after new
        clustering columns (templated)
    :param purge: rewrite files with masked rows (deletion vectors) without these, instead (templated)
    :param single_driver: only one Spark driver at a time writes to the tables; needed on S3 without a log
        store for several writers (templated)
    :param kwargs: those of :class:`DeltaCdcOperator`: connections, ``storage_options``, all about Spark
    :raises InvalidConfiguration: for arguments that do not go together, or that do not fit the table
    :raises TableNotFound: for a table that does not exist
    :raises ConcurrentModification: another writer rewrote the same files
    """

    template_fields = ("where", "zorder_by", "full", "purge", *DeltaTableCareOperator.template_fields)

    def __init__(
        self,
        *,
        table: str | None = None,
        tables: Sequence[str] | None = None,
        where: str | None = None,
        zorder_by: Sequence[str] | str | None = None,
        full: bool | str = False,
        purge: bool | str = False,
        single_driver: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            table=table,
            tables=tables,
            single_driver=single_driver,
            **kwargs,
        )
        self.where = where
        self.zorder_by = zorder_by
        self.full = full
        self.purge = purge

    def plan(self, context: Context, table: str, consumers: Sequence[Consumer]) -> Work:
        """Decide from the log whether the table needs it."""

        request = engine.OptimizeRequest(
            table=table,
            where=arguments.text(self.where),
            zorder_by=arguments.names("zorder_by", self.zorder_by) or (),
            full=arguments.flag("full", self.full),
            purge=arguments.flag("purge", self.purge),
            single_driver=arguments.flag("single_driver", self.single_driver),
            run_id=context["run_id"],
            storage_options=self.options_of_storage(),
        )
        planned = engine.run_sync(engine.plan_optimize(request))
        return engine.MaintenanceWork(table, planned.spec, planned.found)
