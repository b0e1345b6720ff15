"""Turn on the table properties that change data capture needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes, named_tables
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from delta_cdc.core import arguments
from delta_cdc.core.option import FLAG, NAME, NAMES, OPTIONAL_TABLE, TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from delta_cdc.core.option import Kind
    from delta_cdc.core.spec import EnableSpec


class DeltaEnableChangeDataFeedOperator(DeltaCdcOperator):
    """Turn the change data feed on for one table, several tables, or all tables of a schema.

    The task does not change a table that already has the wanted properties. If you give only paths, and all
    tables have them, it starts no process.

    The XCom is a list with one dict per table: ``table``, ``table_id``, ``first_readable_version`` (the
    first version whose changes the feed contains) and ``changed``.

    Give exactly one of ``table``, ``tables`` and ``schema``.

    :param table: path, URI or catalog name, ``${ENV}`` allowed (templated)
    :param tables: several tables (templated)
    :param schema: catalog schema: all its Delta tables; an error of one stops no other (templated)
    :param deletion_vectors: turn deletion vectors on (True) or off (False); None keeps the setting
        (templated)
    :param row_tracking: turn row tracking on; None keeps the setting (templated)
    :param deleted_file_retention: how long removed files stay readable, a Delta interval such as
        ``interval 30 days``; None keeps the setting (templated)
    :param log_retention: how long Delta keeps the log, in the same form; None keeps the setting (templated)
    :param single_driver: you make sure that only one Spark driver at a time writes to the tables that the
        task changes; needed on S3 if Spark's log store is not safe for several drivers, and on disks without
        hard links (templated)
    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    :raises InvalidConfiguration: the task has none or several of ``table``, ``tables`` and ``schema``
    :raises TableNotFound: a table does not exist
    :raises UnsafeLogStore: a table on S3 needs a change, Spark's log store is not safe for several drivers,
        and ``single_driver`` is not set
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "table": OPTIONAL_TABLE,
        "tables": NAMES,
        "schema": NAME,
        "deletion_vectors": FLAG,
        "row_tracking": FLAG,
        "deleted_file_retention": TEXT,
        "log_retention": TEXT,
        "single_driver": FLAG,
        **DeltaCdcOperator.kinds,
    }
    template_fields = attributes(kinds)
    ui_color = "#f4e8c8"

    def __init__(
        self,
        *,
        table: str | None = None,
        tables: Sequence[str] | None = None,
        schema: str | None = None,
        deletion_vectors: bool | str | None = None,
        row_tracking: bool | str | None = None,
        deleted_file_retention: str | None = None,
        log_retention: str | None = None,
        single_driver: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.tables = tables
        self.schema = schema
        self.deletion_vectors = deletion_vectors
        self.row_tracking = row_tracking
        self.deleted_file_retention = deleted_file_retention
        self.log_retention = log_retention
        self.single_driver = single_driver
        self.check_literals()

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Read the logs first; start Spark only to change tables or to resolve names."""

        spec = self._spec(context)
        enabled = self._already_done(spec)
        if enabled is not None:
            self.log.info("Nothing to do: %s", _summary(enabled))
            return enabled
        result = self.run_to_end(context, spec)
        tables = engine.run_sync(
            engine.described_tables(result.tables, storage_options=self.options_of_storage())
        )
        self.log.info("%s", _summary(tables))
        return tables

    def _spec(self, context: Context) -> EnableSpec:
        return engine.EnableSpec(
            run_id=context["run_id"],
            tables=tuple(named_tables(self, "table", "tables", "schema")),
            schema=arguments.text("schema", self.schema),
            properties=self._properties(),
            single_driver=arguments.flag("single_driver", self.single_driver),
        )

    def _properties(self) -> dict[str, str]:
        properties = {
            "delta.enableChangeDataFeed": "true",
            "delta.enableDeletionVectors": _switch("deletion_vectors", self.deletion_vectors),
            "delta.enableRowTracking": _switch("row_tracking", self.row_tracking),
            "delta.deletedFileRetentionDuration": arguments.text(
                "deleted_file_retention", self.deleted_file_retention
            ),
            "delta.logRetentionDuration": arguments.text("log_retention", self.log_retention),
        }
        return {name: value for name, value in properties.items() if value is not None}

    def _already_done(self, spec: EnableSpec) -> list[dict[str, Any]] | None:
        """Return the rows of the XCom if no table needs a change; None if Spark is needed."""

        if spec.schema or not all(engine.is_path(table) for table in spec.tables):
            return None
        return engine.run_sync(
            engine.already_enabled(
                spec.tables,
                spec.properties,
                storage_options=self.options_of_storage(),
            )
        )


def _switch(name: str, value: Any) -> str | None:
    return str(arguments.flag(name, value)).lower() if arguments.is_given(value) else None


def _summary(tables: list[dict[str, Any]]) -> str:
    return "; ".join(
        f"{entry['table']}: change data feed {'turned on' if entry['changed'] else 'already on'}, "
        f"readable from version {entry['first_readable_version']}"
        for entry in tables
    )
