"""Bring external change sets, from files or Kafka, into a change log, and from there into a target."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc import tables as many_tables
from airflow_delta_cdc.arguments import is_literal, is_template, take
from airflow_delta_cdc.assets import delta_asset, pipeline_alias
from airflow_delta_cdc.kafka import kafka_options
from airflow_delta_cdc.operators.apply import DeltaApplyChangesOperator
from airflow_delta_cdc.operators.pins import TaskPins
from airflow_delta_cdc.tables import raise_failures, refuse_unknown, would_do
from delta_cdc.core import arguments
from delta_cdc.core.arguments import last_part
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration
from delta_cdc.core.option_schema import APPLY, INGEST, templated

if TYPE_CHECKING:
    from airflow.sdk import Context

    from delta_cdc.run.batch import Piece, PieceResult

#: An operator's ``log`` is its logger.
_ATTRIBUTES = {"log": "log_table"}
#: What an ingest takes beside an apply.
_OWN = {name: one for name, one in INGEST.items() if name not in APPLY and name != "log"}

#: What the flow's line begins with, behind the table's name, where there is nothing to do.
_IDLE = ": Nothing to "


class DeltaIngestChangesOperator(DeltaApplyChangesOperator):
    """Bring the change sets of files or Kafka topics into a change log, and with a target into that.

    A change log is an append-only Delta table of events; each comes from one record of a file or topic, once,
    however often a file is delivered and a try is killed. What cannot be an event goes to the quarantine
    ``<log>__quarantine``. With a ``target``, the same Spark application applies the log to it, as SCD type 1
    or 2. With no new file and no new record no process is started and nothing is written.

    Every parameter of :class:`DeltaApplyChangesOperator` is taken as well, but for ``staging``; it says what
    becomes of the target's rows. Its defaults are those that fit the log's own columns. ``max_bytes`` and
    ``starting_timestamp`` bound the ingest; ``cluster_by`` is for log and target.

    With ``tables`` one task keeps many logs and targets: all are looked at without Spark, and those with work
    share one application. A table that fails stops no other; the task then fails with ``TablesFailed``, and a
    retry only does what is left.

    The XCom ``return_value`` and the key ``watermark`` hold the same dict. With a target it is that of the
    apply, and in ``ingested`` that of the ingest; without one it is that of the ingest: applied, pipeline,
    seal, log_table, log_table_id, log_version, counts, left, timestamp. With ``tables`` it has a summary for
    each pipeline. Asset events for the log and for the target come through the alias
    ``delta_cdc:<pipeline>``, each only when something was written to it.

    A dry run says what would be taken now, and what the apply would do with what the log holds already.

    The options and what they mean: :data:`delta_cdc.core.option_schema.INGEST`.

    :param tables: several tables in one task: a list of mappings, each with ``pipeline``, ``source``, ``log``
        and any other argument that is about a table; the task's own arguments stand in for what it doesn't
        name (templated)
    :param kafka_options: options of the Kafka client, by the names of its own configuration, winning over
        those of ``kafka_conn_id``; no secrets: they stand in the DAG (templated)
    :param kafka_conn_id: Airflow connection of type ``kafka``, whose extra holds the configuration of the
        client (templated)
    :param kwargs: all of :class:`DeltaApplyChangesOperator`; ``spark_conn_id``, ``delta_conn_id``,
        ``deploy_mode``, all of :class:`SparkSubmitOperator`
    :raises TablesFailed: some of ``tables`` failed, each with the error that is named; the others are through
    :raises DeltaCdcError: a named error, with its remedy, for everything that stops the flow
    """

    template_fields = (
        "log_table",
        "tables",
        *templated(_OWN),
        "kafka_options",
        "kafka_conn_id",
        *DeltaApplyChangesOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DeltaApplyChangesOperator.template_fields_renderers,
        "tables": "json",
        "adapter_options": "json",
        "format_options": "json",
        "log_properties": "json",
    }
    ui_color = "#f7dce0"

    def __init__(
        self,
        *,
        pipeline: str = "",
        source: str = "",
        log: str = "",
        target: str | None = None,
        tables: Sequence[Mapping[str, Any]] | None = None,
        keys: Sequence[str] | str | None = None,
        format: str = "json",  # noqa: A002 - the option's name everywhere
        adapter: str = "plain",
        adapter_options: Mapping[str, Any] | None = None,
        schema: str | None = None,
        format_options: Mapping[str, str] | None = None,
        insert_only: bool = False,
        starting_timestamp: str | None = None,
        max_files: int | str | None = None,
        max_bytes: int | str | None = None,
        max_offsets: int | str | None = None,
        glob: str | None = None,
        lexical_order: bool | str = False,
        on_invalid: str = "quarantine",
        on_expired: str = "fail",
        replay: bool | str = False,
        source_kind: str | None = None,
        log_properties: Mapping[str, Any] | None = None,
        kafka_options: Mapping[str, str] | None = None,
        kafka_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        given = locals()
        refuse_unknown(kwargs, _parameters(type(self)), f"{type(self).__name__} takes no")
        # Before the base class, which asks for the assets.
        self.log_table = log
        self.tables = tables
        super().__init__(
            pipeline=pipeline,
            source=source,
            target=target,  # type: ignore[arg-type]
            keys=keys,
            insert_only=insert_only,
            starting_timestamp=starting_timestamp,
            max_bytes=max_bytes,
            on_invalid=on_invalid,
            source_kind=source_kind,
            **kwargs,
        )
        take(self, _OWN, given)
        self.kafka_options = kafka_options
        self.kafka_conn_id = kafka_conn_id

    def _default_pipeline(self) -> str:
        return super()._default_pipeline() or last_part(os.path.expandvars(self.log_table or ""))

    def declare_assets(self) -> None:
        """Tell Airflow the logs and the pipelines that are known while it parses."""
        for given in self._known_tables():
            if is_literal(given.get("log")):
                self.add_inlets([delta_asset(given["log"])])
            if not is_template(given.get("pipeline")) and given["pipeline"]:
                self.add_outlets([pipeline_alias(given["pipeline"])])

    def _known_tables(self) -> list[Mapping[str, Any]]:
        own = {"log": self.log_table, "pipeline": self.pipeline}
        if self.tables is None:
            return [own]
        if not isinstance(self.tables, list | tuple):
            return []
        return [{**own, **table} for table in self.tables if isinstance(table, Mapping)]

    # -- running --------------------------------------------------------------------------------
    def execute(self, context: Context) -> dict[str, Any]:
        """Plan without Spark, run at most one application per attempt, confirm from the logs, publish."""

        many, tables = self.tables is not None, self._tables()
        pieces = self._pieces(context, tables)
        if arguments.flag("dry_run", self.dry_run):
            return self._looked_at(context, tables, pieces)
        pins = TaskPins(context)
        try:
            outcomes = engine.run_bundle(
                pieces,
                run_id=self.work_id(context),
                execute=partial(self.run_job, context),
                pins=pins,
                say=self._say if many else self.log.info,
            )
        finally:
            self.forget_job(context)
        for outcome in outcomes:
            many_tables.warn(self.log, outcome)
        if not many and outcomes[0].error is not None:
            raise outcomes[0].error
        if many:
            self.log.info("%s.", many_tables.counted(outcomes))
        told = [many_tables.told(outcome) for outcome in outcomes]
        answer = many_tables.summaries(outcomes, told) if many else told[0]
        context["ti"].xcom_push(key="watermark", value=answer)
        for given, outcome in zip(tables, outcomes, strict=True):
            self._announce(context, given, outcome)
        # A task that fails announces nothing, so what is through stays pinned, and its retry announces it.
        raise_failures(outcomes)
        for piece, outcome in zip(pieces, outcomes, strict=True):
            many_tables.forget(piece, outcome, pins)
        return answer

    # -- arguments ------------------------------------------------------------------------------
    def _tables(self) -> list[dict[str, Any]]:
        """Return the arguments of each table by their names.

        :raises InvalidConfiguration: for arguments that are unknown, or pipelines that share a name
        """
        own = {name: getattr(self, _ATTRIBUTES.get(name, name)) for name in INGEST}
        if self.tables is None:
            return [own]
        if not isinstance(self.tables, list | tuple) or not all(isinstance(t, Mapping) for t in self.tables):
            raise InvalidConfiguration(
                f"tables of the task {self.task_id} is {type(self.tables).__name__}, not a list of mappings.",
                remedy="give a list of mappings, as Python or as the output of a task; a text that a "
                "template made is none, unless the DAG has render_template_as_native_obj=True.",
            )
        for number, table in enumerate(self.tables, 1):
            refuse_unknown(
                table, set(INGEST) - {"dry_run"}, f"Table {number} ({table.get('pipeline')}) takes no"
            )
        found = [{**own, **table} for table in self.tables]
        found = [{**table, "pipeline": engine.pipeline_of(table)} for table in found]
        pipelines = [table["pipeline"] for table in found]
        twice = sorted({str(name) for name in pipelines if pipelines.count(name) > 1})
        if twice:
            raise InvalidConfiguration(
                f"Several tables of the task {self.task_id} have the pipeline {', '.join(twice)}.",
                remedy="give each a pipeline of its own: it names the flow in its log and its target.",
            )
        return found

    def _pieces(self, context: Context, tables: Sequence[dict[str, Any]]) -> list[Piece]:
        for table in tables:
            # Without one, it would be applied from the source itself.
            arguments.required("log", table["log"])
        many = self.tables is not None
        pieces = many_tables.pieces(self, context, tables, named=many)
        ingest = pieces[0].ingest if not many else None
        if ingest is None or ingest.is_kafka:
            return pieces
        # Given to one table, they are meant for it, and refused where it has no use for them.
        return [replace(pieces[0], ingest=replace(ingest, kafka_options=self.options_of_kafka()))]

    def options_of_kafka(self) -> dict[str, str] | None:
        """Return the options of Kafka's client: those of the connection, and explicit ones, which win.

        :raises KafkaConnectionNotFound: the named connection doesn't exist
        """

        return kafka_options(arguments.text(self.kafka_conn_id), self.kafka_options)

    # -- a dry run --------------------------------------------------------------------------------
    def _looked_at(
        self, context: Context, tables: Sequence[Mapping[str, Any]], pieces: Sequence[Piece]
    ) -> dict[str, Any]:
        """Say what would be taken and applied; write nothing, and pin nothing."""

        found: dict[str, Any] = {}
        outcomes = []
        for given, piece in zip(tables, pieces, strict=True):
            self.log.info("Dry run of %s", given["pipeline"])
            try:
                found[given["pipeline"]] = would_do(self, context, piece)
            except DeltaCdcError as error:
                if self.tables is None:
                    raise
                outcomes.append(engine.PieceResult(pipeline=given["pipeline"], error=error))
        answer = found if self.tables is not None else found[tables[0]["pipeline"]]
        context["ti"].xcom_push(key="watermark", value=answer)
        raise_failures(outcomes, len(tables))
        return answer

    # -- publishing -----------------------------------------------------------------------------
    def _say(self, line: str) -> None:
        """Say one line of one of many tables; that there was nothing to do is said once, of all."""
        (self.log.debug if _IDLE in line else self.log.info)("%s", line)

    def _announce(self, context: Context, given: Mapping[str, Any], outcome: PieceResult) -> None:
        many_tables.announce(context, self.inlets, given, outcome)


def _parameters(cls: type) -> set[str]:
    """Return the names of all arguments that a class and its bases take."""
    makers = [vars(one)["__init__"] for one in cls.__mro__[:-1] if "__init__" in vars(one)]
    found = [inspect.signature(inspect.unwrap(maker)).parameters for maker in makers]
    return {name for parameters in found for name in parameters} - {"self", "args", "kwargs"}
