"""Turn the arguments of tables into jobs of the engine, with locations for catalog names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.announced import announcements
from airflow_delta_cdc.backup import stored_copy
from airflow_delta_cdc.lookups import chosen, each_located
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration
from delta_cdc.core.options import APPLY
from delta_cdc.core.uris import is_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc.operators.base import DeltaCdcOperator
    from delta_cdc.core.requests import ApplyRequest, IngestRequest
    from delta_cdc.run.batch import PipelineJob

    Requests = tuple[IngestRequest | None, ApplyRequest | None]


def source_of(given: Mapping[str, Any]) -> Any:
    """Return the table that the target is applied from: the change log, or else the source."""
    return given["log"] if engine.is_ingested(given) else given.get("source")


def pipeline_jobs(
    operator: DeltaCdcOperator,
    context: Context,
    tables: Sequence[Mapping[str, Any]],
    *,
    ingest: Callable[[Mapping[str, Any]], bool] | None = None,
    located: Sequence[Mapping[str, str]] | None = None,
    known_seals: Mapping[str, Mapping[str, int]] | None = None,
) -> list[PipelineJob]:
    """Return the job of each table, with locations for catalog names, or with the error of its arguments.

    :param operator: provides the connections, and the Spark that looks up catalog names
    :param tables: arguments of each table (:func:`delta_cdc.run.table_arguments.requests`)
    :param ingest: whether to read a table's source, not only its log; None: if it has a log
    :param located: of each table: the locations of its arguments that are catalog names, if they are known;
        those of paths and URIs do not count
    :param known_seals: seals that were announced, by pipeline (:func:`airflow_delta_cdc.announced.announced`)
    """
    # Once for all tables: each call may query a secrets backend.
    connected, kafka = operator.connected(), operator.options_of_kafka()
    work_id = operator.work_id(context)
    reads_source = ingest or engine.is_ingested

    def requested(table: Mapping[str, Any]) -> Requests | DeltaCdcError:
        try:
            # Needed only after the commit, but a mistake has to be found before it.
            APPLY["freshness"].read(table.get("freshness"))
            APPLY["on_limit"].read(table.get("on_limit"))
            return engine.table_requests(
                table if operator.approval is None else {**table, "approve": operator.approval},
                run_id=work_id,
                kafka_options=kafka,
                ingest=reads_source(table),
                **connected,
            )
        except InvalidConfiguration as error:
            text = f"Pipeline {table.get('pipeline')}: {error.message}"
            return InvalidConfiguration(text, remedy=error.remedy, argument=error.argument)
        except DeltaCdcError as error:
            return error

    requests = [requested(table) for table in tables]
    named = [
        _tables_of(table, *pair) if isinstance(pair, tuple) else {}
        for table, pair in zip(tables, requests, strict=True)
    ]
    known: dict[str, str | DeltaCdcError] = {}
    for names, locations in zip(named, located or (), strict=False):
        known |= {
            names[argument]: uri
            for argument, uri in locations.items()
            if argument in names and is_name(names[argument])
        }
    missing = [name for names in named for name in names.values() if name not in known]
    targets = [
        engine.TargetName(
            name=apply.target.strip(),
            location=apply.target_location or "",
            comment=apply.target_comment or "",
            dry_run=apply.dry_run,
        )
        for pair in requests
        if isinstance(pair, tuple) and (apply := pair[1]) is not None
    ]
    known |= each_located(operator, context, missing, targets)

    def pipeline_job(
        table: Mapping[str, Any], names: Mapping[str, str], pair: Requests | DeltaCdcError
    ) -> PipelineJob:
        try:
            if isinstance(pair, DeltaCdcError):
                raise pair
            batch, apply = pair
            uris = chosen(known, names.values())
            if apply is not None:
                apply = engine.placed(apply, uris[apply.source], uris[apply.target])
        except DeltaCdcError as error:
            return engine.PipelineJob(error=error, name=table["pipeline"])
        return engine.PipelineJob(
            ingest=engine.placed_ingest(batch, uris[batch.log]) if batch is not None else None,
            apply=apply,
            backup=partial(stored_copy, context, operator.inlets, source_of(table), table["pipeline"]),
            announced=announcements(
                context,
                table["pipeline"],
                known_seals or {},
                by_task=operator.announces(table["pipeline"]),
            ),
        )

    return [pipeline_job(*one) for one in zip(tables, named, requests, strict=True)]


def planned(jobs: list[PipelineJob]) -> list[PipelineJob]:
    """Return the jobs, if none has an error.

    :raises DeltaCdcError: the first error among them
    """
    for job in jobs:
        if job.error is not None:
            raise job.error
    return jobs


def _tables_of(
    given: Mapping[str, Any], batch: IngestRequest | None, apply: ApplyRequest | None
) -> dict[str, str]:
    """Return the tables that requests name, as paths, URIs or catalog names, by the arguments that gave them.

    :param given: the arguments of the table
    """
    named = {"log": batch.log} if batch is not None else {}
    if apply is None:
        return named
    return {**named, "log" if engine.is_ingested(given) else "source": apply.source, "target": apply.target}
