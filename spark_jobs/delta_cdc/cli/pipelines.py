"""Select the pipelines of a subcommand, by the same arguments in all subcommands."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from delta_cdc.cli.common import newest_seal, refuse
from delta_cdc.config import SUFFIXES, Table, load
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option_schema import APPLY, INGEST, filled
from delta_cdc.core.spec import ApplyOptions, IngestOptions, SourceKind
from delta_cdc.core.topics import is_topics
from delta_cdc.core.validation import ingest_options_of, options_of
from delta_cdc.core.variables import expand
from delta_cdc.planning.ingest_request import IngestRequest
from delta_cdc.run.batch import PipelineJob, pipeline_job
from delta_cdc.run.table_arguments import apply_request

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from delta_cdc.config import Group
    from delta_cdc.core.watermark import Seal

#: Arguments that replace a missing watermark, as attributes of the arguments.
FIRST_LOAD = ("source_kind", "keys", "sequence_by")

_HELP = (
    "FILE: a configuration (a file or a folder), with all its pipelines, or only those that you name after "
    "it. SOURCE TARGET: the tables of one pipeline. PIPELINE=TARGET: a target or a change log, whose seal "
    "contains the source and the options"
)


@dataclass(frozen=True)
class Chosen:
    """One pipeline that the command line names.

    :param table: its arguments; without a configuration only ``target``, and ``source`` for SOURCE TARGET
    :param group: its group in a configuration; None without a configuration
    """

    table: Table
    group: Group | None = None

    @property
    def pipeline(self) -> str:
        """Return the pipeline's name."""
        return self.table.pipeline

    @property
    def log(self) -> str | None:
        """Return the change log, if a configuration has one."""
        return self._location("log")

    @property
    def source(self) -> str | None:
        """Return the table that the target is applied from: the change log, or else the source, or None."""
        return self.log or self._location("source")

    @property
    def target(self) -> str | None:
        """Return the target; None if a configuration has only a change log."""
        return self._location("target")

    @property
    def written(self) -> list[str]:
        """Return the tables that the pipeline writes."""
        return [place for place in (self.log, self.target) if place is not None]

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Return the options of the object store, if a configuration has any."""
        return self.group.settings.get("storage_options") if self.group is not None else None

    def _location(self, name: str) -> str | None:
        location = self.table.arguments.get(name)
        if not location or self.group is None:
            # A shell has already substituted the variables of a command line.
            return location
        try:
            return expand(str(location))
        except InvalidConfiguration as error:
            raise _of(self, error) from error


def takes_pipelines(parser: argparse.ArgumentParser, *more: str) -> None:
    """Add the arguments that name a subcommand's tables.

    :param more: further forms that this subcommand accepts
    """
    forms = ("FILE [PIPELINE ...]", "SOURCE TARGET --pipeline NAME", "PIPELINE=TARGET ...", *more)
    parser.usage = "\n       ".join(f"%(prog)s {form} [options]" for form in forms)
    parser.add_argument("tables", nargs="+", metavar="TABLE", help=_HELP)
    parser.add_argument(
        "--pipeline", dest="pipelines", action="append", metavar="NAME",
        help="with SOURCE TARGET: the pipeline's name; with FILE: only this pipeline, repeatable",
    )  # fmt: skip
    parser.add_argument("--group", metavar="NAME", help="with FILE: only the pipelines of this group")


def chosen(arguments: argparse.Namespace) -> list[Chosen]:
    """Return the pipelines that a command line names.

    :raises InvalidConfiguration: the command line names no pipeline, or a name is not in the configuration
    """
    first, *others = arguments.tables
    if is_configuration(first):
        for text in others:
            if is_pair(text) or is_configuration(text):
                raise _no_pair(text)
        names = [*others, *(arguments.pipelines or ())] or None
        return [Chosen(table, group) for group, table in load(first).chosen(arguments.group, names)]
    refuse(arguments, ("group",), "without a configuration")
    if len(arguments.tables) == 2 and not any(is_pair(text) for text in arguments.tables):
        return [_source_and_target(first, others[0], arguments.pipelines or ())]
    pairs = [_pair(text) for text in arguments.tables]
    refuse(arguments, ("pipelines",), "with PIPELINE=TARGET")
    return pairs


def the_one(arguments: argparse.Namespace) -> Chosen:
    """Return the pipeline of a subcommand that accepts only one.

    :raises InvalidConfiguration: the command line names several pipelines
    """
    pipelines = chosen(arguments)
    if len(pipelines) > 1:
        names = ", ".join(one.pipeline for one in pipelines[:10])
        raise InvalidConfiguration(f"This command takes one pipeline, not {names}.", remedy="name one.")
    return pipelines[0]


def before_the_first_load(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that replace a watermark before the first load."""
    options = parser.add_argument_group("before the first load, without a configuration")
    options.add_argument("--source-kind", choices=get_args(SourceKind), help="default: change_feed")
    options.add_argument("--key", "--keys", dest="keys", action="append", metavar="COLUMN",
                         help="column that identifies a row, repeatable")  # fmt: skip
    options.add_argument("--sequence-by", action="append", metavar="SQL",
                         help="order of the events of a change log, repeatable")  # fmt: skip


def configured_work(one: Chosen, given: Mapping[str, Any], **options: Any) -> PipelineJob:
    """Return the job of a pipeline of a configuration; with an error if its arguments cannot be used here.

    :param given: its arguments
    :param options: see :func:`delta_cdc.run.batch.pipeline_job`
    """
    try:
        return pipeline_job(given, **options)
    except InvalidConfiguration as error:
        return PipelineJob(error=_of(one, error), name=one.pipeline)


def refuse_only_errors(jobs: Sequence[PipelineJob]) -> None:
    """Raise the first error if no job can be used."""
    errors = [job.error for job in jobs if job.error is not None]
    if errors and len(errors) == len(jobs):
        raise errors[0]


def _of(one: Chosen, error: InvalidConfiguration) -> InvalidConfiguration:
    """Return an error of a configured pipeline, with its name and its place."""
    where = f"The pipeline {one.pipeline} in {one.table.place}:"
    return InvalidConfiguration(f"{where} {error.message}", remedy=error.remedy, argument=error.argument)


def recorded_work(
    arguments: argparse.Namespace, one: Chosen, *, run_id: str = "", is_plan: bool = False
) -> PipelineJob:
    """Return the job of a pipeline without a configuration, with the options in its target's watermark.

    :param is_plan: whether the job is only planned, so that its options may be unknown
    :raises InvalidConfiguration: the options are unknown, or are given although a watermark records them
    """
    target, given = str(one.target), vars(arguments)
    seal = newest_seal(target, one.pipeline)
    common: dict[str, Any] = {"pipeline": one.pipeline, "source": source_of(one, seal), "run_id": run_id}
    ingest_options = ingest_options_of(seal) if seal is not None else None
    if ingest_options is not None or given.get("ingest"):
        refuse(arguments, FIRST_LOAD, "for a change log that has a watermark")
        kind: Any = "kafka" if is_topics(common["source"]) else "files"
        # A plan needs no keys: it reads no record.
        common["options"] = ingest_options or IngestOptions(source_kind=kind, insert_only=True)
        common["kafka_options"] = given.get("kafka_options")
        return PipelineJob(ingest=filled(IngestRequest, INGEST, given, log=target, **common))
    options = _apply_options(arguments, seal)
    if options is None and is_plan:
        # For a plan of the first load, insert_only replaces unknown keys: it requires nothing of the rows.
        options = ApplyOptions(insert_only=True)
        sys.stderr.write(f"{one.pipeline}: the plan checks no keys, because --key is missing.\n")
    elif options is None:
        raise InvalidConfiguration(
            f"It is unknown how {one.pipeline} builds {target}: it has no watermark yet.",
            remedy="name the keys with --key, and the rest as --help says; or write a configuration.",
        )
    return PipelineJob(apply=apply_request(given, target=target, options=options, **common))


def _apply_options(arguments: argparse.Namespace, seal: Seal | None) -> ApplyOptions | None:
    """Return the options of the seal or, without a seal, those of the command line; None if it has none."""
    options = {name: getattr(arguments, name) for name in FIRST_LOAD if getattr(arguments, name)}
    if seal is None:
        return filled(ApplyOptions, APPLY, options) if options else None
    if options:
        raise InvalidConfiguration(
            f"{', '.join(options)} given, and the pipeline has a watermark (seal {seal.number}).",
            remedy="leave them out: the watermark records how the target was built.",
        )
    return options_of(seal)


def source_of(one: Chosen, seal: Seal | None) -> str:
    """Return the source of a target.

    :raises InvalidConfiguration: neither the arguments nor the seal name it
    """
    source = one.source or (seal.source_uri if seal is not None else None)
    if source is None:
        raise InvalidConfiguration(
            f"{one.target} has no watermark of pipeline {one.pipeline} that names its source.",
            remedy="write SOURCE TARGET, with --pipeline.",
        )
    return source


def is_configuration(text: str) -> bool:
    """Return whether a text names a configuration, a file or a folder of them, and not a table."""
    path = Path(text)
    # Path("") would be the working directory.
    if not text.strip():
        return False
    if not path.is_dir():
        return path.suffix in SUFFIXES
    return not (path / "_delta_log").is_dir() and any(entry.suffix in SUFFIXES for entry in path.iterdir())


def is_pair(text: str) -> bool:
    """Return whether a text is PIPELINE=TARGET, not a path that contains an equals sign."""
    return "=" in text and not Path(text).exists() and "/" not in text.partition("=")[0]


def _source_and_target(source: str, target: str, names: Sequence[str]) -> Chosen:
    if len(names) != 1:
        problem = f"{len(names)} pipelines are named" if names else "the pipeline is not named"
        raise InvalidConfiguration(
            f"{source} and {target} are given as source and target, and {problem}.",
            remedy="name it with --pipeline; write PIPELINE=TARGET for a target alone.",
        )
    return Chosen(Table(names[0], {"source": source, "target": target}))


def _pair(text: str) -> Chosen:
    pipeline, _, target = text.partition("=")
    if not is_pair(text) or not pipeline or not target:
        raise _no_pair(text)
    return Chosen(Table(pipeline, {"target": target}))


def _no_pair(text: str) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"{text!r} names no pipeline and target.",
        remedy="write PIPELINE=TARGET for each, for instance orders=/lake/orders; or SOURCE TARGET with "
        "--pipeline; or one configuration, followed by the names of some of its pipelines.",
    )
