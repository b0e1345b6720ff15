"""What the operators that take care of tables share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import named_tables
from airflow_delta_cdc.files import configuration
from airflow_delta_cdc.names import each_located, located
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from delta_cdc.core import arguments
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.text_table import grid
from delta_cdc.core.variables import expand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.planning.consumers import Consumer
    from delta_cdc.run.maintain import Work


class DeltaTableCareOperator(DeltaCdcOperator):
    """Base of the operators that take care of one table, or of several in one Spark application.

    Their logs are looked at first, and no process is started where none of them needs anything. Where some
    tables fail, the others are done all the same, and the task fails at its end.

    :param table: path, URI or catalog name, ``${ENV}`` allowed (templated)
    :param tables: several of them (templated)
    :param single_driver: only one Spark driver at a time writes to the tables; needed on S3 without a log
        store for several writers (templated)
    :param kwargs: those of :class:`DeltaCdcOperator`: connections, ``storage_options``, all about Spark
    """

    template_fields: Sequence[str] = (
        "table",
        "tables",
        "single_driver",
        *DeltaCdcOperator.template_fields,
    )
    ui_color = "#dfe8d8"

    def __init__(
        self,
        *,
        table: str | None = None,
        tables: Sequence[str] | None = None,
        single_driver: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.tables = tables
        self.single_driver = single_driver

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Look at the logs, do what is due, and say what was done: one dict per table."""

        names = named_tables(self, "table", "tables")
        at = located(self, context, names)
        consumers = self._located(context, self._consumers(context))
        works = [self._planned(context, name, at[name], consumers) for name in names]
        if any(work.spec is not None for work in works):
            with self.application(context) as execute:
                works = engine.run_maintenance(works, execute=execute, run_id=context["run_id"])
            works = [self._finished(work) for work in works]
        rows = [work.row for work in works]
        self.log.info("%s\n%s", type(self).__name__, grid(rows))
        engine.raise_failed_maintenance(works)
        return rows

    def _located(self, context: Context, consumers: Sequence[Consumer]) -> list[Consumer]:
        """Return consumers with the locations of their tables; without one, a consumer holds the error."""
        expanded: dict[str, str] = {}
        at: dict[str, str | DeltaCdcError] = {}
        for name in dict.fromkeys(name for one in consumers for name in (one.source, one.target) if name):
            try:
                expanded[name] = expand(name)
            except DeltaCdcError as error:
                at[name] = error
        places = each_located(self, context, list(expanded.values()))
        at |= {name: places[table] for name, table in expanded.items()}
        return [_at(one, at) for one in consumers]

    def _consumers(self, context: Context) -> list[Consumer]:
        """Return who reads the tables; only operators that delete need it."""
        return []

    def _planned(self, context: Context, name: str, location: str, consumers: Sequence[Consumer]) -> Work:
        try:
            return replace(self.plan(context, location, consumers), table=name)
        except DeltaCdcError as error:
            return engine.MaintenanceWork(name, error=error)

    def _finished(self, work: Work) -> Work:
        return self.finished(work) if work.spec is not None and work.error is None else work

    @abstractmethod
    def plan(self, context: Context, table: str, consumers: Sequence[Consumer]) -> Work:
        """Decide what is to be done for one table, from its log.

        :param table: path or URI
        """

    def finished(self, work: Work) -> Work:
        """Complete the result of a table that was worked on."""
        return work


def _at(consumer: Consumer, places: Mapping[str, str | DeltaCdcError]) -> Consumer:
    target = places[consumer.target]
    if isinstance(target, DeltaCdcError):
        consumer = replace(consumer, unknown=target)
    else:
        consumer = replace(consumer, target=target)
    source = places[consumer.source] if consumer.source else None
    return consumer if isinstance(source, DeltaCdcError) else replace(consumer, source=source)


class DeltaConsumedTableOperator(DeltaTableCareOperator):
    """Base of the operators that delete what no reader needs: they have to know who reads the tables.

    :param consumers: the pipelines that read the tables: a list of ``{"pipeline": …, "target": …}``, with
        ``"source"`` where it is known; ``${ENV}`` and catalog names are allowed. Those of other tables are
        left out (templated)
    :param config: instead or beside, a configuration file or folder as ``build_dags`` takes it: all of its
        pipelines. A relative path counts from the DAG's file (templated)
    :param dry_run: find out what would be deleted, and delete nothing (templated)
    """

    template_fields: Sequence[str] = (
        "consumers",
        "config",
        "dry_run",
        *DeltaTableCareOperator.template_fields,
    )

    def __init__(
        self,
        *,
        consumers: Sequence[Mapping[str, str]] | None = None,
        config: str | None = None,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.consumers = consumers
        self.config = config
        # Hides BaseOperator.dry_run(), which only prints template fields, and which Airflow does not call.
        self.dry_run = dry_run  # type: ignore[method-assign, assignment]

    def _consumers(self, context: Context) -> list[Consumer]:
        found = list(engine.consumers_of(self.consumers))
        if arguments.is_given(self.config):
            found += configuration(self, context, str(self.config)).consumers()
        return list(dict.fromkeys(found))
