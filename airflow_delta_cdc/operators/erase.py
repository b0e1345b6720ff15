"""Erase keys from the tables of pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes
from airflow_delta_cdc.files import configuration, consumers, rendered
from airflow_delta_cdc.lookups import chosen, each_located, located_consumers
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from delta_cdc.core import arguments
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration
from delta_cdc.core.option import FLAG, MAPPINGS, NAMES, PROPERTIES, TEXT
from delta_cdc.core.uris import is_name
from delta_cdc.core.variables import expand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from delta_cdc.config import Table
    from delta_cdc.core.option import Kind
    from delta_cdc.planning.consumers import Consumer
    from delta_cdc.planning.erasure import Flow

#: Keys of an entry of ``tables``.
_TABLES = ("pipeline", "source", "log", "target", "staging")


class HiddenKey(Mapping[str, Any]):
    """A key whose text shows the columns, and no values.

    Airflow stores the rendered arguments of a task, and shows them to whoever may read the DAG.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return str(dict.fromkeys(self._values, "***"))


class DeltaEraseOperator(DeltaCdcOperator):
    """Remove a key from the tables of pipelines for good.

    The task deletes the rows of the key from change logs and targets, their quarantine and staging tables,
    and the tables of all pipelines that read these. Change logs and targets remember a keyed hash of the key,
    so that no replay, reload, redelivery or late event brings it back. If the task dies, run it again.

    The XCom is a list with one dict per table: ``table``, ``what`` it is, ``status``, ``deleted`` (rows),
    ``version``, ``files``, ``masked`` (files with rows behind deletion vectors), ``old_versions_until`` and
    ``statistics_until`` (when the last old file, and the last bounds of columns in the log, may be deleted),
    ``statistics_version`` (the last version whose commit may have such bounds), and ``note``. The log of the
    task also names what the task cannot reach.

    Give either ``config`` or ``tables``. The rendered arguments of the task hide the values of the key.

    :param key: the key columns and their values, ``{"id": "17"}``. A value is written as Spark casts it to
        text (templated)
    :param config: a configuration file or folder for ``build_dags``. A relative path counts from the folder
        of the DAG's file (templated)
    :param group: only the pipelines of this group of the configuration, and those that read their tables
        (templated)
    :param pipelines: only these pipelines of the configuration, and those that read their tables (templated)
    :param tables: the pipelines, without a configuration: a list of ``{"pipeline": …, "source": …, "log": …,
        "target": …, "staging": …}``; all but ``pipeline`` may be missing, and ``log`` is a change log that
        the pipeline ingests into. ``${ENV}`` and catalog names are allowed (templated)
    :param purge: also remove rows behind deletion vectors from the current files, and VACUUM the tables where
        all pipelines of the configuration have read what a VACUUM may delete (templated)
    :param quarantined_records: also delete the records in the quarantine of an ingest that contain the
        values of the key; without it, the task counts them, because such a record may be of another key
        (templated)
    :param dry_run: count what the task would delete, and write nothing (templated)
    :param single_driver: you make sure that only one Spark driver at a time writes to the tables; needed on
        S3 if Spark's log store is not safe for several drivers, and on disks without hard links (templated)
    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    :raises InvalidConfiguration: the columns are not the key of a table, or a value does not fit its column
    :raises ColumnNotFound: a table has no such column
    :raises ConcurrentModification: another writer committed first; run the task again
    :raises TableNotFound: a target or change log does not exist
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "key": PROPERTIES,
        "config": TEXT,
        "group": TEXT,
        "pipelines": NAMES,
        "tables": MAPPINGS,
        "purge": FLAG,
        "quarantined_records": FLAG,
        "dry_run": FLAG,
        "single_driver": FLAG,
        **DeltaCdcOperator.kinds,
    }
    template_fields: Sequence[str] = attributes(kinds)
    ui_color = "#dfe8d8"

    def __init__(
        self,
        *,
        key: Mapping[str, Any],
        config: str | None = None,
        group: str | None = None,
        pipelines: Sequence[str] | str | None = None,
        tables: Sequence[Mapping[str, str]] | None = None,
        purge: bool | str = False,
        quarantined_records: bool | str = False,
        dry_run: bool | str = False,
        single_driver: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.key = key
        self.config = config
        self.group = group
        self.pipelines = pipelines
        self.tables = tables
        self.purge = purge
        self.quarantined_records = quarantined_records
        # Hides BaseOperator.dry_run(), which only prints template fields, and which Airflow does not call.
        self.dry_run = dry_run  # type: ignore[method-assign, assignment]
        self.single_driver = single_driver
        self.check_literals()

    def render_template(self, content: Any, *rest: Any, **how: Any) -> Any:
        """Render a template; hide the values of the key."""
        rendered = super().render_template(content, *rest, **how)
        if content is not self.key:
            return rendered
        try:
            return HiddenKey(arguments.mapping("key", rendered))
        except InvalidConfiguration:
            # The check before the task starts refuses it, and shows the error in the log.
            return "***"

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Erase the key, and return one dict per table."""
        key = arguments.properties("key", self.key)
        if not key or not all(value.strip() for value in key.values()):
            raise InvalidConfiguration(
                "key has no value.", remedy="give a value for each key column of the tables.", argument="key"
            )
        purge = arguments.flag("purge", self.purge)
        flows, consumers, unusable = self._flows(context)
        work = engine.Erasure(
            keys=(key,),
            flows=flows,
            consumers=tuple(located_consumers(self, context, consumers)) if purge else (),
            purge=purge,
            deletes_records=arguments.flag("quarantined_records", self.quarantined_records),
            dry_run=arguments.flag("dry_run", self.dry_run),
            single_driver=arguments.flag("single_driver", self.single_driver),
            **unusable,
        )
        with self.application(context) as execute:
            report = engine.run_erasure(
                work, execute=execute, run_id=context["run_id"], storage_options=self.options_of_storage()
            )
        self.log.info("%s", report)
        self.log.info("Outside the reach of this task:\n%s", "\n".join(report.outside))
        engine.raise_failed_maintenance(report.errors)
        return report.rows

    def _flows(self, context: Context) -> tuple[tuple[Flow, ...], Sequence[Consumer], dict[str, Any]]:
        """Return the chosen pipelines with those downstream, the consumers of all tables, and what is to be
        reported of pipelines whose tables are not known, by parameters of an erasure.

        :raises InvalidConfiguration: neither, or both, of config and tables are given; or a table is unknown
        """
        config = arguments.text("config", self.config)
        given = arguments.mappings("tables", self.tables)
        group, names = arguments.text("group", self.group), arguments.names("pipelines", self.pipelines)
        if (config is None) == (not given) or (given and (group is not None or names)):
            raise InvalidConfiguration(
                "config and tables say which pipelines the task erases from.",
                remedy="give either config, with group or pipelines for some of them, or tables.",
                argument="config",
            )
        if config is None:
            for entry in given:
                has_table = bool({"log", "target"} & set(entry))
                if "pipeline" not in entry or not set(entry) <= set(_TABLES) or not has_table:
                    raise InvalidConfiguration(
                        f"tables has an entry with the keys {', '.join(entry)}.",
                        remedy=f"give pipeline, and the tables by {', '.join(_TABLES[1:])}; at least log or "
                        "target.",
                        argument="tables",
                    )
            named = [_flow(entry) for entry in given]
            flows = self._located(context, named, named)
            return flows, engine.readers(flows), {}
        written = configuration(context, config)
        wanted = {table.pipeline for _, table in written.chosen(group, names or None, with_sources=True)}
        # Of all tables: each may be downstream of a chosen one.
        found = engine.sorted_out(
            [(table.pipeline, self._rendered(context, table)) for table in written.tables()], chosen=wanted
        )
        flows = self._located(context, found.first, found.flows)
        unusable = {"refused": found.refused, "unknown": found.unknown}
        return flows, consumers(self, context, written), unusable

    def _rendered(self, context: Context, table: Table) -> Flow | DeltaCdcError:
        """Return the tables of a pipeline, or why they are not known: that does not affect the others."""
        try:
            places = {name: table.arguments[name] for name in _TABLES if name in table.arguments}
            places = rendered(self, context, replace(table, arguments=places))
            return _flow({**places, "shadow_of": table.arguments.get("shadow_of")})
        except DeltaCdcError as error:
            return error

    def _located(
        self, context: Context, first: Sequence[Flow], everything: Sequence[Flow]
    ) -> tuple[Flow, ...]:
        """Return the first pipelines, and those downstream of them, with the locations of their tables.

        All tables are located before: a pipeline may read by a name what another one writes by a location.

        :raises DeltaCdcError: a table of these pipelines has no location; it does not matter for the others
        """
        found = each_located(self, context, [table for flow in everything for table in _tables_of(flow)])
        located = [_at(flow, found) for flow in everything]
        pairs = list(zip(everything, located, strict=True))
        flows = engine.with_downstream([new for old, new in pairs if old in first], located)
        chosen(found, [table for old, new in pairs if new in flows for table in _tables_of(old)])
        return flows


def _tables_of(flow: Flow) -> list[str]:
    """Return the tables of a pipeline that may have names in the catalog."""
    tables = (flow.log, flow.target, flow.staging, _name_of(flow.source))
    return [table for table in tables if table is not None]


def _at(flow: Flow, found: Mapping[str, str | DeltaCdcError]) -> Flow:
    """Return a pipeline with the locations of its tables; a table without one keeps its name."""

    def at(table: str | None) -> str | None:
        location = found.get(table) if table is not None else None
        return location if isinstance(location, str) else table

    return replace(
        flow, source=at(flow.source), log=at(flow.log), target=at(flow.target), staging=at(flow.staging)
    )


def _name_of(source: str | None) -> str | None:
    """Return a source that is a catalog name; None for a location, or for topics."""
    try:
        return source if source is not None and is_name(source) else None
    except InvalidConfiguration:
        return None


def _flow(given: Mapping[str, Any]) -> Flow:
    """Return the tables of a pipeline from its arguments."""
    tables = {name: expand(str(given[name])) for name in _TABLES[1:] if given.get(name)}
    return engine.Flow(pipeline=given["pipeline"], shadow_of=tuple(given.get("shadow_of") or ()), **tables)
