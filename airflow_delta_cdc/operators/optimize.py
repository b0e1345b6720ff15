"""Optimize the file layout of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes
from airflow_delta_cdc.operators.care import DeltaTableCareOperator
from delta_cdc.core import arguments
from delta_cdc.core.option import FLAG, NAMES, TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from delta_cdc.core.option import Kind
    from delta_cdc.core.spec import OptimizeSpec
    from delta_cdc.planning.consumers import Consumer
    from delta_cdc.planning.plan import JobPlan


class DeltaOptimizeOperator(DeltaTableCareOperator):
    """Compact the files of tables, cluster them, Z-order them by columns, or purge deleted rows.

    The rows do not change, so the task does not affect pipelines that read or fill the tables. It skips a
    table that no job has written to since the last OPTIMIZE with the same arguments. If it skips all tables,
    it starts no process.

    The XCom is a list with one dict per table: ``table``, ``status`` (``done`` or ``nothing``),
    ``files_added``, ``files_removed``, ``bytes_added``, ``bytes_removed`` and ``note``.

    Give exactly one of ``table`` and ``tables``.

    :param table: path, URI or catalog name, ``${ENV}`` allowed (templated)
    :param tables: several tables, processed in one Spark application (templated)
    :param where: Spark SQL predicate over partition columns: optimize only these partitions (templated)
    :param zorder_by: columns of the Z-order; not for clustered tables (templated)
    :param full: also rewrite the clustered files of a clustered table, for instance after a change of the
        clustering columns (templated)
    :param purge: instead of compacting, rewrite the files with deletion vectors, without their deleted rows
        (templated)
    :param single_driver: you make sure that only one Spark driver at a time writes to the tables; needed on
        S3 if Spark's log store is not safe for several drivers, and on disks without hard links (templated)
    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    :raises InvalidConfiguration: arguments contradict each other, or do not fit the table
    :raises TableNotFound: a table does not exist
    :raises ConcurrentModification: another writer rewrote the same files
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "where": TEXT,
        "zorder_by": NAMES,
        "full": FLAG,
        "purge": FLAG,
        **DeltaTableCareOperator.kinds,
    }
    template_fields = attributes(kinds)

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
        self.check_literals()

    def plan(
        self, context: Context, table: str, consumers: Sequence[Consumer]
    ) -> JobPlan[OptimizeSpec, dict[str, Any]]:
        """Decide from the log whether the table needs an optimization."""
        spec = engine.OptimizeSpec(
            run_id=context["run_id"],
            table_uri=table,
            where=arguments.text("where", self.where),
            zorder_by=arguments.names("zorder_by", self.zorder_by) or (),
            full=arguments.flag("full", self.full),
            purge=arguments.flag("purge", self.purge),
            single_driver=arguments.flag("single_driver", self.single_driver),
        )
        return engine.run_sync(engine.plan_optimize(spec, self.options_of_storage()))
