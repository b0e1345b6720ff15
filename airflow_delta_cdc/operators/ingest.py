"""Bring external change sets, from files or Kafka, into a change log, and from there into a target."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc.arguments import expand, is_literal, is_template
from airflow_delta_cdc.assets import delta_asset, pipeline_alias
from airflow_delta_cdc.mirror import kept
from airflow_delta_cdc.operators.apply import DeltaApplyChangesOperator, shortened
from airflow_delta_cdc.operators.pins import TaskPins
from delta_cdc import arguments
from delta_cdc.errors import DeltaCdcError, InvalidConfiguration, TableNotFound, TablesFailed

if TYPE_CHECKING:
    from airflow.sdk import Context

    from delta_cdc.flow import Piece, PieceResult, Pins
    from delta_cdc.plan import ApplyRequest, IngestRequest

#: Arguments of one table of ``tables``; the others are of the application.
_OF_THE_INGEST = (
    "pipeline",
    "source",
    "log",
    "target",
    "format",
    "adapter",
    "adapter_options",
    "schema",
    "format_options",
    "starting_timestamp",
    "max_files",
    "max_bytes",
    "max_offsets",
    "glob",
    "lexical_order",
    "on_invalid",
    "on_expired",
    "replay",
    "log_properties",
)
_OF_THE_APPLICATION = ("dry_run", "staging", "storage_options")
#: An operator's ``log`` is its logger.
_ATTRIBUTES = {"log": "log_table"}

#: What the flow's line begins with, behind the table's name, where there is nothing to do.
_IDLE = ": Nothing to "
_SAID = {
    "applied": "ingested and applied",
    "ingested": "ingested",
    "failed": "failed",
    "nothing": "had nothing new",
}
#: Of many tables, what an XCom takes, and an error's text.
_MOST_BYTES = 48 * 1024
_MOST_OF_AN_ERROR = 300
_MOST_OF_A_PLAN = 4 * 1024


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

    :param pipeline: the flow's name in the log, and in the target. It must stay the same as long as they
        live. Required without ``tables`` (templated)
    :param source: folder or prefix of files, or ``kafka://<host:port>,…/<topic>,…``; ``${ENV}`` allowed.
        Required without ``tables`` (templated)
    :param log: path, URI or catalog name of the change log, ``${ENV}`` allowed. It is created where it
        doesn't exist. Required without ``tables`` (templated)
    :param target: path, URI or catalog name of the table to apply the log to; None only ingests (templated)
    :param tables: several tables in one task: a list of mappings, each with ``pipeline``, ``source``, ``log``
        and any other argument that is about a table; the task's own arguments stand in for what it doesn't
        name (templated)
    :param keys: columns that identify a row; may be empty only with ``insert_only`` (templated)
    :param format: of files: ``json`` (one object per line), ``csv`` or ``parquet``; of a topic: ``json``
        (templated)
    :param adapter: how a record becomes an event: ``plain``, ``debezium``, ``dms``, ``goldengate``, or the
        dotted name of a function of your own (templated)
    :param adapter_options: what the adapter is told (templated)
    :param schema: the events' columns as Spark SQL DDL; None takes what the records show (templated)
    :param format_options: of Spark's reader, for instance ``{"sep": ";"}`` (templated)
    :param insert_only: every record is a new row; no keys
    :param starting_timestamp: files and records before it (ISO 8601 with offset) are left out, and counted
        (templated)
    :param max_files: take at most so many files (templated)
    :param max_bytes: take files of at most so many bytes, but at least one (templated)
    :param max_offsets: Kafka: take at most so many records (templated)
    :param glob: pattern over the files' own names, for instance ``orders-*.json`` (templated)
    :param lexical_order: names of new files always sort behind those taken, so only the rest of the listing
        is asked for (templated)
    :param on_invalid: what is no event: ``quarantine`` or ``fail`` (templated)
    :param on_expired: Kafka: records that the topic has lost before they were taken: ``fail``, or
        ``continue`` behind them (templated)
    :param replay: take the records in quarantine again, with the arguments as they are now, instead of new
        ones (templated)
    :param source_kind: of the log for the apply; None is ``change_log``, or with ``insert_only``
        ``change_feed`` (templated)
    :param log_properties: table properties of a log that is created here (templated)
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
        "format",
        "adapter",
        "adapter_options",
        "schema",
        "format_options",
        "max_files",
        "max_offsets",
        "glob",
        "lexical_order",
        "on_expired",
        "replay",
        "log_properties",
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
        _refuse_unknown(kwargs, _parameters(type(self)), f"{type(self).__name__} takes no")
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
            source_kind=source_kind,  # type: ignore[arg-type]
            **kwargs,
        )
        self.format = format
        self.adapter = adapter
        self.adapter_options = adapter_options
        self.schema = schema
        self.format_options = format_options
        self.max_files = max_files
        self.max_offsets = max_offsets
        self.glob = glob
        self.lexical_order = lexical_order
        self.on_expired = on_expired
        self.replay = replay
        self.log_properties = log_properties
        self.kafka_options = kafka_options
        self.kafka_conn_id = kafka_conn_id

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
    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan without Spark, run at most one application per attempt, confirm from the logs, publish."""
        from delta_cdc.flow import run_bundle

        many, tables = self.tables is not None, self._tables()
        pieces = self._pieces(context, tables)
        if arguments.flag("dry_run", self.dry_run):
            return self._looked_at(context, tables, pieces)
        pins = TaskPins(context)
        try:
            outcomes = run_bundle(
                pieces,
                run_id=context["run_id"],
                execute=partial(self.run_job, context),
                pins=pins,
                say=self._say if many else self.log.info,
            )
        finally:
            self.forget_job(context)
        for outcome in outcomes:
            self._warn(outcome)
        if not many and outcomes[0].error is not None:
            raise outcomes[0].error
        if many:
            self.log.info("%s.", _counted(outcomes))
        told = [_told(outcome) for outcome in outcomes]
        answer = _summaries(outcomes, told) if many else told[0]
        context["ti"].xcom_push(key="watermark", value=answer)
        for given, outcome, published in zip(tables, outcomes, told, strict=True):
            self._announce(context, given, outcome, published)
        # A task that fails announces nothing, so what is through stays pinned, and its retry announces it.
        _raise_failures(outcomes)
        for piece, outcome in zip(pieces, outcomes, strict=True):
            _forget(piece, outcome, pins)
        return answer

    # -- arguments ------------------------------------------------------------------------------
    def _tables(self) -> list[SimpleNamespace]:
        """Return the arguments of each table as attributes of their own names.

        :raises InvalidConfiguration: for arguments that are unknown, or pipelines that share a name
        """
        names = _of_a_table()
        own = {name: getattr(self, _ATTRIBUTES.get(name, name)) for name in names}
        if self.tables is None:
            return [SimpleNamespace(**own)]
        if not isinstance(self.tables, list | tuple) or not all(isinstance(t, Mapping) for t in self.tables):
            raise InvalidConfiguration(
                f"tables of the task {self.task_id} is {type(self.tables).__name__}, not a list of mappings.",
                remedy="give a list of mappings, as Python or as the output of a task; a text that a "
                "template made is none, unless the DAG has render_template_as_native_obj=True.",
            )
        for number, table in enumerate(self.tables, 1):
            _refuse_unknown(table, names, f"Table {number} ({table.get('pipeline')}) takes no")
        found = [SimpleNamespace(**{**own, **table}) for table in self.tables]
        pipelines = [table.pipeline for table in found]
        twice = sorted({str(name) for name in pipelines if pipelines.count(name) > 1})
        if twice:
            raise InvalidConfiguration(
                f"Several tables of the task {self.task_id} have the pipeline {', '.join(twice)}.",
                remedy="give each a pipeline of its own: it names the flow in its log and its target.",
            )
        return found

    def _pieces(self, context: Context, tables: Sequence[SimpleNamespace]) -> list[Piece]:
        from delta_cdc.flow import Piece

        # Once for all: each look may ask a secrets backend.
        connected, kafka = self.connected(), self.options_of_kafka()
        ingests, applies = [], []
        for given in tables:
            try:
                ingests.append(self._ingest_request(context, given, connected, kafka))
                applies.append(self._apply_request(context, given, connected))
            except InvalidConfiguration as error:
                if self.tables is None:
                    raise
                said = f"Pipeline {given.pipeline}: {error.message}"
                raise InvalidConfiguration(said, remedy=error.remedy) from error
        located = self._located(context, ingests, applies)
        return [
            Piece(
                ingest=ingest,
                apply=apply,
                mirror=partial(kept, context, self.inlets, given.log, given.pipeline),
            )
            for given, (ingest, apply) in zip(tables, located, strict=True)
        ]

    def _ingest_request(
        self,
        context: Context,
        given: SimpleNamespace,
        connected: dict[str, Any],
        kafka: dict[str, str] | None,
    ) -> IngestRequest:
        from delta_cdc.plan import IngestRequest

        number = arguments.whole_number
        request = IngestRequest(
            pipeline=arguments.required("pipeline", given.pipeline),
            source=expand(arguments.required("source", given.source)),
            log=expand(arguments.required("log", given.log)),
            options=arguments.ingest_options(
                source=given.source,
                format=given.format,
                adapter=given.adapter,
                adapter_options=given.adapter_options,
                keys=given.keys,
                schema=given.schema,
                format_options=given.format_options,
                insert_only=given.insert_only,
                on_invalid=given.on_invalid,
                cluster_by=given.cluster_by,
                log_properties=given.log_properties,
            ),
            starting_timestamp=arguments.text(given.starting_timestamp),
            max_files=number("max_files", given.max_files, minimum=1),
            max_bytes=number("max_bytes", given.max_bytes, minimum=1),
            max_offsets=number("max_offsets", given.max_offsets, minimum=1),
            glob=arguments.text(given.glob),
            lexical_order=arguments.flag("lexical_order", given.lexical_order),
            replay=arguments.flag("replay", given.replay),
            on_expired=arguments.text(given.on_expired) or "fail",
            single_driver=given.single_driver,
            run_id=context["run_id"],
            storage_options=connected["storage_options"],
        )
        # Of many tables, some may come from files.
        told = self.tables is None or request.is_kafka
        return replace(request, kafka_options=kafka) if told else request

    def _apply_request(
        self, context: Context, given: SimpleNamespace, connected: dict[str, Any]
    ) -> ApplyRequest | None:
        if not arguments.is_given(given.target):
            return None
        # A sequence of the user's own may be NULL where that of the log never is.
        checked = given.insert_only or not arguments.is_given(given.sequence_by)
        read = {
            **vars(given),
            "source": given.log,
            "on_invalid": "fail" if checked else given.on_invalid,
            "dry_run": self.dry_run,
            # These bound the ingest.
            "starting_timestamp": None,
            "max_bytes": None,
            "staging": None,
        }
        return self._request(context, SimpleNamespace(**arguments.of_ingested_log(read)), connected)

    def options_of_kafka(self) -> dict[str, str] | None:
        """Return the options of Kafka's client: those of the connection, and explicit ones, which win.

        :raises KafkaConnectionNotFound: the named connection doesn't exist
        """
        from airflow_delta_cdc.kafka import kafka_options

        return kafka_options(arguments.text(self.kafka_conn_id), self.kafka_options)

    def _located(
        self,
        context: Context,
        ingests: Sequence[IngestRequest],
        applies: Sequence[ApplyRequest | None],
    ) -> list[tuple[IngestRequest, ApplyRequest | None]]:
        """Return the requests with locations in the place of catalog names."""
        from airflow_delta_cdc.names import all_located

        named = [
            [i.log, *([a.target] if a is not None else [])] for i, a in zip(ingests, applies, strict=True)
        ]
        found = iter(all_located(self, context, [table for tables in named for table in tables]))
        pairs: list[tuple[IngestRequest, ApplyRequest | None]] = []
        for ingest, apply in zip(ingests, applies, strict=True):
            log = next(found)
            then = replace(apply, source=log, target=next(found)) if apply is not None else None
            pairs.append((replace(ingest, log=log), then))
        return pairs

    # -- a dry run --------------------------------------------------------------------------------
    def _looked_at(
        self, context: Context, tables: Sequence[SimpleNamespace], pieces: Sequence[Piece]
    ) -> dict[str, Any]:
        """Say what would be taken and applied; write nothing, and pin nothing."""
        from delta_cdc.flow import PieceResult

        found: dict[str, Any] = {}
        outcomes = []
        for given, piece in zip(tables, pieces, strict=True):
            self.log.info("Dry run of %s", given.pipeline)
            try:
                found[given.pipeline] = self._would_do(context, piece)
            except DeltaCdcError as error:
                if self.tables is None:
                    raise
                outcomes.append(PieceResult(pipeline=given.pipeline, error=error))
        answer = found if self.tables is not None else found[tables[0].pipeline]
        context["ti"].xcom_push(key="watermark", value=answer)
        _raise_failures(outcomes, len(tables))
        return answer

    def _would_do(self, context: Context, piece: Piece) -> dict[str, Any]:
        from delta_cdc.flow import run_apply
        from delta_cdc.plan import plan_ingest

        assert piece.ingest is not None
        plan = str(plan_ingest(piece.ingest))
        self.log.info("Would take:\n%s", plan)
        would: dict[str, Any] = {
            "applied": False,
            "pipeline": piece.ingest.pipeline,
            "dry_run": {"ingest": plan[:_MOST_OF_A_PLAN]},
        }
        if piece.apply is None:
            return would
        try:
            applied = run_apply(piece.apply, execute=partial(self.run_job, context), say=self.log.info)
        except TableNotFound:
            self.log.info("There is no log yet, so there is nothing to apply.")
            return would
        finally:
            self.forget_job(context)
        shown = shortened(applied.to_dict())
        return {**shown, "dry_run": {**would["dry_run"], **shown["dry_run"]}}

    # -- publishing -----------------------------------------------------------------------------
    def _say(self, line: str) -> None:
        """Say one line of one of many tables; that there was nothing to do is said once, of all."""
        (self.log.debug if _IDLE in line else self.log.info)("%s", line)

    def _warn(self, outcome: PieceResult) -> None:
        """Say what waits in quarantine, and how it gets out."""
        found = []
        if outcome.ingested is not None:
            found.append((outcome.ingested.counts, outcome.ingested.log_table, "records that are no events"))
        if outcome.applied is not None and outcome.applied.target_table is not None:
            found.append((outcome.applied.counts, outcome.applied.target_table, "events that do not apply"))
        for counts, table, what in found:
            if counts.get("quarantined"):
                self.log.warning(
                    "%d %s are in %s__quarantine, each with its reason. Once mended: delta-cdc replay %s=%s",
                    counts["quarantined"],
                    what,
                    table,
                    outcome.pipeline,
                    table,
                )

    def _announce(
        self, context: Context, given: SimpleNamespace, outcome: PieceResult, published: dict[str, Any]
    ) -> None:
        ingested = outcome.ingested
        if ingested is not None and ingested.applied and ingested.counts.get("events"):
            names = ("pipeline", "seal", "log_table_id", "log_version", "counts")
            told = ingested.to_dict()
            context["outlet_events"][pipeline_alias(given.pipeline)].add(
                delta_asset(given.log), extra={name: told[name] for name in names}
            )
        if outcome.applied is not None:
            source = SimpleNamespace(**{**vars(given), "source": given.log})
            self.announce(context, source, outcome.applied.to_dict(), outcome.applied.mirror)


def _told(outcome: PieceResult) -> dict[str, Any]:
    """Return the dict that is published of one table."""
    ingested = outcome.ingested.to_dict() if outcome.ingested is not None else {}
    return ingested if outcome.applied is None else {**outcome.applied.to_dict(), "ingested": ingested}


def _forget(piece: Piece, outcome: PieceResult, pins: Pins) -> None:
    """Say that everybody knows of a table's results."""
    from delta_cdc.flow import published
    from delta_cdc.flow.bundle import since_key

    if piece.apply is not None:
        pins.delete(since_key(piece.apply))
    for result in (outcome.ingested, outcome.applied):
        if result is not None:
            published(result, pins)


def _parameters(cls: type) -> set[str]:
    """Return the names of all arguments that a class and its bases take."""
    makers = [vars(one)["__init__"] for one in cls.__mro__[:-1] if "__init__" in vars(one)]
    found = [inspect.signature(inspect.unwrap(maker)).parameters for maker in makers]
    return {name for parameters in found for name in parameters} - {"self", "args", "kwargs"}


def _of_a_table() -> tuple[str, ...]:
    """Return the names of the arguments that may differ from table to table."""
    apply = inspect.signature(inspect.unwrap(DeltaApplyChangesOperator.__init__)).parameters
    mine = dict.fromkeys((*_OF_THE_INGEST, *apply))
    return tuple(name for name in mine if name not in ("self", "kwargs", *_OF_THE_APPLICATION))


def _refuse_unknown(given: Mapping[str, Any], known: Collection[str], said: str) -> None:
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "take it out."
            raise InvalidConfiguration(f"{said} argument {name!r}.", remedy=hint)


# -- many tables ----------------------------------------------------------------------------------
def _status(outcome: PieceResult) -> str:
    if outcome.error is not None:
        return "failed"
    if outcome.applied is not None and outcome.applied.applied:
        return "applied"
    return "ingested" if outcome.ingested is not None and outcome.ingested.applied else "nothing"


def _counted(outcomes: Sequence[PieceResult]) -> str:
    """Return how many tables came to what, for people."""
    numbers = Counter(_status(outcome) for outcome in outcomes)
    told = ", ".join(f"{numbers[status]} {said}" for status, said in _SAID.items() if numbers[status])
    return f"{len(outcomes)} tables: {told or 'none'}"


def _summaries(outcomes: Sequence[PieceResult], told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what is published of many tables: as much of each as fits."""
    whole, short = {}, {}
    for outcome, published in zip(outcomes, told, strict=True):
        error = {"error": _shortened(outcome.error)} if outcome.error is not None else {}
        status = {"status": _status(outcome), **error}
        short[outcome.pipeline] = status
        whole[outcome.pipeline] = {**status, **_summary(published)}
    for answer in (whole, short):
        if len(json.dumps(answer)) <= _MOST_BYTES:
            return answer
    busy = {name: found for name, found in short.items() if found["status"] != "nothing"}
    return {name: {"status": found["status"]} for name, found in busy.items()}


def _summary(published: dict[str, Any]) -> dict[str, Any]:
    ingested = published.get("ingested", published)
    done: dict[str, Any] = {
        name: published[name] for name in ("version", "target_version") if name in published
    }
    if published.get("applied"):
        done["counts"] = published["counts"]
    if ingested.get("applied"):
        names = ("seal", "log_version", "counts", "left")
        done["ingested"] = {name: ingested[name] for name in names if ingested.get(name)}
    return done


def _shortened(error: DeltaCdcError) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _MOST_OF_AN_ERROR else f"{text[:_MOST_OF_AN_ERROR]}… (cut; see the log)"


def _raise_failures(outcomes: Sequence[PieceResult], of: int | None = None) -> None:
    """Raise the one error that names those of the tables.

    :param of: how many tables there are, if not all are among the outcomes
    :raises TablesFailed: where there are any
    """
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if not failed:
        return
    by_error: dict[str, list[str]] = {}
    for outcome in failed:
        # An application that died is the error of all that it was to do.
        by_error.setdefault(f"{type(outcome.error).__name__}: {outcome.error}", []).append(outcome.pipeline)
    lines = "".join(f"\n  {', '.join(names)}: {error}" for error, names in by_error.items())
    raise TablesFailed(
        f"{len(failed)} of {of or len(outcomes)} tables failed; the others are through.{lines}\n",
        remedy="see to each of them; a retry only does what is left.",
    )
