"""The work that ``delta-cdc plan`` shows and ``delta-cdc run`` does. Both take the same arguments."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, get_args

from delta_cdc.cli.common import bounds, flags, newest_seal, refuse
from delta_cdc.cli.pipelines import at_its_place, chosen, each, source_of, takes_pipelines
from delta_cdc.core.arguments import MODES, ONWARDS
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option import filled, in_group, options_in
from delta_cdc.core.options import APPLY, INGEST, ApplyOptions, IngestOptions, IngestRunOptions, SourceKind
from delta_cdc.core.requests import MENDED_BY_RESET, IngestRequest
from delta_cdc.core.topics import is_topics
from delta_cdc.core.validation import ingest_options_of, options_of
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning import quarantine
from delta_cdc.run.batch import PipelineJob, pipeline_job
from delta_cdc.run.table_arguments import apply_request, is_ingested

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from delta_cdc.cli.pipelines import Chosen
    from delta_cdc.core.watermark import Seal

#: Arguments that replace a missing watermark, as attributes of the arguments.
_FIRST_LOAD = ("source_kind", "keys", "sequence_by")
_FLAGS = {name for table in (APPLY, INGEST) for name, one in table.items() if one.flag}
#: Arguments that fit only one pipeline, because each has its own versions and keys.
_OF_ONE = tuple(name for name in APPLY if APPLY[name].of_one)
#: Arguments that only an ingest has, only an apply, and both.
OF_AN_INGEST = tuple(name for name in INGEST if name in _FLAGS and name not in APPLY)
_OF_BOTH = tuple(name for name in options_in(IngestRunOptions) if name in _FLAGS and name in APPLY)
_OF_AN_APPLY = tuple(name for name in APPLY if name in _FLAGS and name not in _OF_BOTH)


def takes_work(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name pipelines, and that select what a run does."""
    takes_pipelines(parser)
    limits = parser.add_argument_group("bounds, with the names of the operator's arguments")
    bounds(limits, limits)
    flags(limits, in_group(APPLY, "limits").values())
    mode = parser.add_argument_group("what the run is to do")
    mode.add_argument("--mode", choices=MODES, default="incremental", help="default: incremental")
    flags(mode, (one for one in APPLY.values() if one.flag and one.of_run))
    first = parser.add_argument_group("before the first load, without a configuration")
    first.add_argument("--source-kind", choices=get_args(SourceKind),
                       help="default: change_log for a log of an ingest, else change_feed")  # fmt: skip
    first.add_argument("--key", "--keys", dest="keys", action="append", metavar="COLUMN",
                       help="column that identifies a row, repeatable; before the first load, a run needs "
                       "it, and a plan does not")  # fmt: skip
    first.add_argument("--sequence-by", action="append", metavar="SQL",
                       help="for a change log: the order of its events, repeatable")  # fmt: skip


def working(arguments: argparse.Namespace) -> list[Chosen]:
    """Return the pipelines that a run or a plan is about.

    A pipeline with several sources includes those, except in a mode that computes rows again.
    """
    onwards = arguments.mode in ONWARDS
    pipelines = chosen(arguments, with_sources=onwards)
    others = [one for one in pipelines if onwards or not one.table.collects]
    return others or pipelines


def jobs_of(
    arguments: argparse.Namespace,
    pipelines: list[Chosen],
    settings: Mapping[str, Any],
    *,
    run_id: str = "",
    is_plan: bool = False,
) -> list[PipelineJob]:
    """Return the jobs of pipelines. A job whose arguments cannot be used has an error.

    :param settings: see :func:`delta_cdc.cli.application.settings_of`
    :param is_plan: the jobs are only planned, so that options may be unknown
    :raises InvalidConfiguration: an argument does not fit the pipelines, or no job can be used
    """
    if len(pipelines) > 1:
        where, remedy = f"for {len(pipelines)} pipelines", "name one pipeline, or use times."
        refuse(arguments, _OF_ONE, f"{where}, and each has its own versions and keys", remedy)
        if arguments.mode == "reset":
            raise InvalidConfiguration(
                f"--mode reset given {where}, whose rows it would delete.", remedy="name one pipeline."
            )
    if pipelines[0].group is None:
        return [_recorded(arguments, one, settings, run_id=run_id, is_plan=is_plan) for one in pipelines]
    refuse(arguments, _FIRST_LOAD, "with a configuration")
    overrides = {one.pipeline: _overrides(arguments, one) for one in pipelines}
    made = each(
        pipelines, lambda one: _configured(arguments, one, overrides[one.pipeline], settings, run_id=run_id)
    )
    return [
        PipelineJob(error=job, name=one.pipeline) if isinstance(job, InvalidConfiguration) else job
        for one, job in zip(pipelines, made, strict=True)
    ]


def refuse_an_apply(arguments: argparse.Namespace, where: str) -> None:
    """Reject the arguments of an apply in a case.

    :param where: the case, for the error
    :raises InvalidConfiguration: names the arguments that are given
    """
    refuse(arguments, (*_OF_AN_APPLY, *_FIRST_LOAD), where)
    if arguments.mode != "incremental":
        raise InvalidConfiguration(f"--mode given {where}.", remedy="leave it out.")


def _overrides(arguments: argparse.Namespace, one: Chosen) -> dict[str, Any]:
    """Return the arguments of a configured pipeline that the command line overrides.

    :raises InvalidConfiguration: an argument has no meaning for the pipeline
    """
    table, given = one.table.arguments, vars(arguments)
    names = (*_OF_AN_APPLY, *OF_AN_INGEST, *_OF_BOTH)
    overrides = {name: value for name in names if (value := given.get(name)) not in (None, False)}
    if arguments.mode != "incremental":
        overrides["mode"] = arguments.mode
    options = INGEST if is_ingested(table) else APPLY
    unknown = [f"--{name.replace('_', '-')}" for name in overrides if name not in options]
    if unknown:
        raise InvalidConfiguration(
            f"{', '.join(unknown)} given for {table['pipeline']}, where it has no meaning.",
            remedy="leave it out, or name only pipelines where it has one.",
        )
    return overrides


def _configured(
    arguments: argparse.Namespace,
    one: Chosen,
    overrides: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    run_id: str,
) -> PipelineJob:
    """Return the job of a configured pipeline."""
    try:
        return pipeline_job(
            {**one.table.arguments, **overrides},
            run_id=run_id,
            storage_options=settings["storage_options"],
            kafka_options=vars(arguments).get("kafka_options") or settings["kafka_options"],
        )
    except InvalidConfiguration as error:
        raise at_its_place(one, error) from error


def _recorded(
    arguments: argparse.Namespace,
    one: Chosen,
    settings: Mapping[str, Any],
    *,
    run_id: str,
    is_plan: bool,
) -> PipelineJob:
    """Return the job of a pipeline without a configuration, with the options in its target's watermark.

    :raises InvalidConfiguration: the options are unknown, or are given although a watermark records them
    """
    target, given = str(one.target), vars(arguments)
    seal = _seal_of(arguments, one)
    common: dict[str, Any] = {"pipeline": one.pipeline, "source": source_of(one, seal), "run_id": run_id}
    common["storage_options"] = settings["storage_options"]
    ingest_options = ingest_options_of(seal) if seal is not None else None
    if ingest_options is not None or given.get("ingest"):
        refuse_an_apply(arguments, "for a change log")
        kind: Any = "kafka" if is_topics(common["source"]) else "files"
        # A plan needs no keys: it reads no record.
        common["options"] = ingest_options or IngestOptions(source_kind=kind, insert_only=True)
        common["kafka_options"] = given.get("kafka_options") or settings["kafka_options"]
        return PipelineJob(ingest=filled(IngestRequest, INGEST, given, log=target, **common))
    options = _apply_options(arguments, seal)
    if options is None and is_plan:
        # For a plan of the first load, insert_only replaces unknown keys: it requires nothing of the rows.
        options = filled(ApplyOptions, APPLY, {"insert_only": True})
        sys.stderr.write(f"{one.pipeline}: the plan checks no keys, because --key is missing.\n")
    elif options is None:
        raise InvalidConfiguration(
            f"It is unknown how {one.pipeline} builds {target}: it has no watermark yet.",
            remedy="name the keys with --key, and the rest as --help says; or write a configuration.",
        )
    return PipelineJob(apply=apply_request(given, target=target, options=options, **common))


def _seal_of(arguments: argparse.Namespace, one: Chosen) -> Seal | None:
    """Return the pipeline's newest seal; None without one.

    :raises DeltaCdcError: the target has no usable seal. A reset mends that, with the options of the newest
        seal in its log; without any, the options are unknown
    """
    try:
        return newest_seal(str(one.target), one.pipeline, one.storage_options)
    except MENDED_BY_RESET:
        seal = run_sync(_last_seal(one)) if arguments.mode == "reset" else None
        if seal is None:
            raise
        return seal


async def _last_seal(one: Chosen) -> Seal | None:
    """Return the newest seal of a pipeline in its target's log, whether or not it is in effect."""
    log = DeltaLog(str(one.target), one.storage_options)
    return await quarantine.newest_seal(log, await log.newest_version(), one.pipeline)


def _apply_options(arguments: argparse.Namespace, seal: Seal | None) -> ApplyOptions | None:
    """Return the options of the seal or, without a seal, those of the command line; None if it has none."""
    options = {name: getattr(arguments, name) for name in _FIRST_LOAD if getattr(arguments, name)}
    if seal is None:
        return filled(ApplyOptions, APPLY, options) if options else None
    if options:
        raise InvalidConfiguration(
            f"{', '.join(options)} given, and the pipeline has a watermark (seal {seal.number}).",
            remedy="leave them out: the watermark records how the target was built.",
        )
    return options_of(seal)
