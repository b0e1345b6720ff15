"""The base of the operators that maintain tables."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes, named_tables
from airflow_delta_cdc.files import configuration, consumers
from airflow_delta_cdc.lookups import each_located, located_consumers
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from delta_cdc.core import arguments
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.option import FLAG, MAPPINGS, NAMES, OPTIONAL_TABLE, TEXT
from delta_cdc.core.text_table import grid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.core.option import Kind
    from delta_cdc.core.spec import Part
    from delta_cdc.planning.consumers import Consumer
    from delta_cdc.planning.plan import JobPlan


class DeltaTableCareOperator(DeltaCdcOperator):
    """Base of the operators that maintain one table, or several in one Spark application.

    The task reads the tables' logs first; if no table needs work, no process starts. If some tables fail, the
    others are still maintained, and the task fails at its end.

    :param table: path, URI or catalog name, ``${ENV}`` allowed (templated)
    :param tables: several tables (templated)
    :param single_driver: only one Spark driver at a time writes to the tables; needed on S3 without a log
        store for several writers (templated)
    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "table": OPTIONAL_TABLE,
        "tables": NAMES,
        "single_driver": FLAG,
        **DeltaCdcOperator.kinds,
    }
    template_fields: Sequence[str] = attributes(kinds)
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
        self.check_literals()

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Read the logs, do the work that is due, and return one dict per table."""
        names = named_tables(self, "table", "tables")
        locations = each_located(self, context, names)
        consumers = located_consumers(self, context, self._consumers(context))
        plans = {name: self._planned(context, locations[name], consumers) for name in names}
        options = self.options_of_storage()
        with self.application(context) as execute:
            rows, errors = engine.run_maintenance(
                plans, execute=execute, run_id=context["run_id"], storage_options=options
            )
        self.log.info("%s\n%s", type(self).__name__, grid(rows))
        engine.raise_failed_maintenance(errors)
        return rows

    def _consumers(self, context: Context) -> list[Consumer]:
        """Return the consumers of the tables, for operators that need them."""
        return []

    def _planned(
        self, context: Context, table: str | DeltaCdcError, consumers: Sequence[Consumer]
    ) -> JobPlan[Part, dict[str, Any]] | DeltaCdcError:
        """Return the plan of a table, or the error of its location or its log."""
        if isinstance(table, DeltaCdcError):
            return table
        try:
            plan = self.plan(context, table, consumers)
        except DeltaCdcError as error:
            return error
        self.log.info("%s\n%s", table, plan)
        return plan

    @abstractmethod
    def plan(
        self, context: Context, table: str, consumers: Sequence[Consumer]
    ) -> JobPlan[Part, dict[str, Any]]:
        """Decide from the log of one table what to do.

        :param table: path or URI
        """


class DeltaConsumedTableOperator(DeltaTableCareOperator):
    """Base of the operators that delete files or events that no consumer needs.

    :param consumers: the pipelines that read the tables: a list of ``{"pipeline": …, "target": …}``, with
        ``"source"`` if it is known; ``${ENV}`` and catalog names are allowed. Consumers of other tables are
        ignored (templated)
    :param config: a configuration file or folder for ``build_dags``; all its pipelines are consumers, too. A
        relative path counts from the folder of the DAG's file (templated)
    :param dry_run: show what the task would delete, and delete nothing (templated)
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "consumers": MAPPINGS,
        "config": TEXT,
        "dry_run": FLAG,
        **DeltaTableCareOperator.kinds,
    }
    template_fields: Sequence[str] = attributes(kinds)

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
        named = list(engine.consumers_of(self.consumers))
        config = arguments.text("config", self.config)
        if config is not None:
            named += consumers(self, context, configuration(context, config))
        return list(dict.fromkeys(named))
