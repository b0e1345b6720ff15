"""Delete files that tables do not need any more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.operators.care import DeltaConsumedTableOperator
from delta_cdc.core import arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.planning.consumers import Consumer
    from delta_cdc.run.maintain import Work


class DeltaVacuumOperator(DeltaConsumedTableOperator):
    """VACUUM tables, but not what a consumer has not read yet.

    How long removed files are kept is the table's own ``delta.deletedFileRetentionDuration``, 7 days by
    default; Delta takes no other word for it. Before anything starts, the watermarks that the consumers have
    sealed in their targets are read: where one would lose a version that it has not read, the table is left
    alone and the task fails, naming that consumer; or, with ``extend_retention``, the property is raised
    first. A consumer that has no target yet needs nothing, and the log names it.

    Where no file can have become free since the last VACUUM, no process is started.

    The XCom is a list with one dict per table: ``table``, ``status`` (``done`` or ``nothing``),
    ``retention``, ``files`` and ``bytes`` (deleted; of a dry run the files that would be, at most 1000) and
    ``note``.

    Exactly one of ``table`` and ``tables`` is given.

    :param table: path, URI or catalog name, ``${ENV}`` allowed (templated)
    :param tables: several of them, done in one Spark application (templated)
    :param consumers: the pipelines that read the tables: a list of ``{"pipeline": …, "target": …}``, with
        ``"source"`` where it is known; ``${ENV}`` and catalog names are allowed. Those of other tables are
        left out (templated)
    :param config: instead or beside, a configuration file or folder as ``build_dags`` takes it: all of its
        pipelines. A relative path counts from the DAG's file (templated)
    :param extend_retention: where a consumer would lose something, raise the table's retention to twice the
        age of what it has not read, and a day, and go on (templated)
    :param full: list the table's folder; False deletes only what the log says was removed, which is faster,
        and leaves what a crash left behind (templated)
    :param dry_run: say which files would be deleted, and delete nothing (templated)
    :param single_driver: only one Spark driver at a time writes to the tables; needed on S3 without a log
        store for several writers (templated)
    :param kwargs: those of :class:`DeltaCdcOperator`: connections, ``storage_options``, all about Spark
    :raises VacuumWouldLose: names each consumer, what it has not read, and until when that is kept
    :raises InvalidConfiguration: for arguments that do not go together
    :raises TableNotFound: for a table that does not exist
    """

    template_fields = ("extend_retention", "full", *DeltaConsumedTableOperator.template_fields)

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

    def plan(self, context: Context, table: str, consumers: Sequence[Consumer]) -> Work:
        """Decide from the logs whether a VACUUM is due, and may run."""

        if not consumers:
            self.log.warning("No consumer of %s is named, so nothing of it is held back for any.", table)
        request = engine.VacuumRequest(
            table=table,
            consumers=consumers,
            extend_retention=arguments.flag("extend_retention", self.extend_retention),
            full=arguments.flag("full", self.full),
            dry_run=arguments.flag("dry_run", self.dry_run),
            single_driver=arguments.flag("single_driver", self.single_driver),
            run_id=context["run_id"],
            storage_options=self.options_of_storage(),
        )
        planned = engine.run_sync(engine.plan_vacuum(request))
        return engine.MaintenanceWork(table, planned.spec, {**planned.found, "version": planned.version})

    def finished(self, work: Work) -> Work:
        """Read from the log what was deleted."""

        found = {name: value for name, value in work.found.items() if name != "version"}
        if not arguments.flag("dry_run", self.dry_run):
            uri, version = work.found["table"], work.found["version"]
            found |= engine.run_sync(
                engine.deleted_files(uri, version, storage_options=self.options_of_storage())
            )
        return replace(work, found=found)
