"""``delta-cdc status``: show the progress of pipelines."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.common import refuse
from delta_cdc.cli.pipelines import WRITTEN, Chosen, at_its_place, chosen, takes_pipelines
from delta_cdc.config.combine import is_template, unwatchable
from delta_cdc.core.arguments import seconds
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration
from delta_cdc.core.metrics import METRICS, Sample, prometheus_text
from delta_cdc.core.options import APPLY
from delta_cdc.core.retention import readable as span
from delta_cdc.core.text_table import plural
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.advice import AboutTable, advise_all
from delta_cdc.planning.plan import readable as size
from delta_cdc.planning.status import Status, not_named, status_of_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delta_cdc.config import Group
    from delta_cdc.planning.advice import Advice


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    status = commands.add_parser(
        "status",
        help="show how far pipelines are behind their sources, from the logs alone (starts no Spark)",
        description="The command prints the source's version, the watermark, the lag, and the time until "
        "which the pipeline can continue. Exit code 1: a pipeline has no valid watermark, is late, or still "
        "needs a commit that is older than half of its retention.",
    )
    takes_pipelines(status)
    status.add_argument(
        "--freshness", metavar="SPAN", type=_span,
        help="maximum age of a change that is not applied yet, such as '30 minutes'; if a change is "
        "older, the pipeline is late; default: the freshness in the configuration",
    )  # fmt: skip
    forms = status.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print everything as JSON, with the newest seals")
    forms.add_argument(
        "--metrics", action="store_true", help="print metrics in the text format of Prometheus; exit code 0"
    )
    status.add_argument(
        "--advise", action="store_true",
        help="also print which settings the logs show to be worth changing, each with its figures and its "
        "cost; does not change the exit code",
    )  # fmt: skip
    status.set_defaults(run=_status)


#: Metrics of which a pipeline with a change log and a target shows the lesser value; of others, the sum.
_LEAST = ("seconds_until_unreadable", "last_commit_age_seconds")


@dataclass(frozen=True)
class _Part:
    """A table whose log records the progress of a pipeline.

    :param source: the table that it is applied from, where the configuration names it
    :param error: why the tables of the pipeline are not known here
    """

    one: Chosen
    table: str
    source: str | None = None
    error: InvalidConfiguration | None = None


def _span(text: str) -> float:
    found = seconds(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration like '30 minutes'")
    return found


def _status(arguments: argparse.Namespace) -> int:
    if arguments.metrics:
        refuse(arguments, ("advise",), "with --metrics")
    # A pipeline that ingests and applies has two tables whose logs record its progress.
    parts = [part for one in chosen(arguments) for part in _parts(one)]
    results = _results(parts, arguments)
    if arguments.metrics:
        print(_metrics([part.one for part in parts], results), end="")
        return 0
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    is_healthy = True
    advice = _advice(parts, arguments) if arguments.advise else [[]] * len(parts)
    for part, result, advised in zip(parts, results, advice, strict=True):
        # A pipeline with a change log and a target has two parts below its name.
        pipeline = part.one.pipeline
        lines += [pipeline] if not rows or rows[-1]["pipeline"] != pipeline else []
        if isinstance(result, DeltaCdcError):
            is_healthy = False
            lines.append(f"  {type(result).__name__}: {result}")
            rows.append({"pipeline": pipeline, "target": part.table, "error": result.to_dict()})
        else:
            is_healthy = is_healthy and not result.findings
            lines += _lines(result)
            rows.append(result.to_dict())
        if arguments.advise:
            rows[-1]["advice"] = [one_advice.to_dict() for one_advice in advised]
            lines += _advised(advised)
    print(json.dumps(rows, indent=2) if arguments.json else "\n".join(lines))
    return 0 if is_healthy else 1


def _parts(one: Chosen) -> list[_Part]:
    """Return the tables of a pipeline; if a place is not known here, one part with the reason."""
    given = one.table.arguments
    # What is ingested is no table, and only its change log is read here.
    needed = WRITTEN if given.get("log") else ("target", "source")
    places = {name: str(given[name]) for name in needed if given.get(name)}
    try:
        for name, place in places.items():
            if one.group is not None and is_template(place):
                error = InvalidConfiguration(
                    f"{name} is {place!r}, a template: the table is only known at run time.",
                    remedy="give the command PIPELINE=TARGET with the location, or write ${VARIABLE} in the "
                    "configuration.",
                )
                raise at_its_place(one, error)
        # Before the first run, no log names the source.
        source = one.source if one.log is None else None
        return [_Part(one, table, source) for table in one.written]
    except InvalidConfiguration as error:
        return [_Part(one, next(iter(places.values())), error=error)]


def _results(parts: Sequence[_Part], arguments: argparse.Namespace) -> list[Status | DeltaCdcError]:
    """Return the status, or the error, of each part."""
    known = [part for part in parts if part.error is None]
    looks = iter(
        run_sync(
            status_of_all(
                [(part.one.pipeline, part.table) for part in known],
                [part.one.storage_options for part in known],
                [part.source for part in known],
                [{"collects": part.one.table.collects, "once": part.one.table.once} for part in known],
            )
        )
    )
    return [part.error or _expected(part.one, next(looks), arguments) for part in parts]


def _expected(
    one: Chosen, result: Status | DeltaCdcError, arguments: argparse.Namespace
) -> Status | DeltaCdcError:
    """Return a status with what the configuration expects."""
    if not isinstance(result, Status):
        return result
    result = result.expected(_freshness(arguments, one))
    return replace(result, findings=(*result.findings, *_not_named(one)))


def _advice(parts: Sequence[_Part], arguments: argparse.Namespace) -> list[list[Advice]]:
    """Return the advice about each table; that about the schedule of a group is with its first table."""
    given = [
        AboutTable(
            pipeline=part.one.pipeline,
            target=part.table,
            source=part.source,
            storage_options=part.one.storage_options,
            freshness=_freshness(arguments, part.one),
            group=group.name if group is not None else None,
            schedule=group.settings.get("schedule") if group is not None else None,
            tables_of_group=_tables_of(group) if group is not None else 0,
            is_watchable=group is None or not any(unwatchable(table) for table in group.tables),
        )
        for part in parts
        if part.error is None
        for group in (part.one.group,)
    ]
    advice = iter(run_sync(advise_all(given)))
    return [next(advice) if part.error is None else [] for part in parts]


def _tables_of(group: Group) -> int:
    """Return how many tables a group writes, chosen or not."""
    return sum(bool(table.arguments.get(name)) for table in group.tables for name in WRITTEN)


def _advised(advice: Sequence[Advice]) -> Iterator[str]:
    for one in advice:
        first, *others = one.lines()
        yield f"  advice     {first}"
        yield from (f"             {line}" for line in others)


def _not_named(one: Chosen) -> tuple[str, ...]:
    """Return a finding about sources that a configuration does not name any more."""
    if not one.table.sources or one.source is None:
        return ()
    return run_sync(not_named(one.source, one.table.sources, one.storage_options))


def _freshness(arguments: argparse.Namespace, one: Chosen) -> float | None:
    given: float | None = arguments.freshness
    return APPLY["freshness"].read(one.table.arguments.get("freshness")) if given is None else given


def _metrics(pipelines: Sequence[Chosen], results: Sequence[Status | DeltaCdcError]) -> str:
    """Return the metrics of all pipelines in the text format of Prometheus."""
    now = datetime.now(UTC)
    combined: dict[tuple[str, ...], Sample] = {}
    for one, result in zip(pipelines, results, strict=True):
        if isinstance(result, Status):
            samples = list(result.samples(now))
        else:
            samples = [Sample(METRICS["problems"], one.pipeline, 1)]
        for sample in samples:
            key = (sample.metric.name, *sample.labels.values())
            other = combined.get(key)
            if other is not None:
                combine = min if sample.metric.name in _LEAST else sum
                sample = replace(sample, value=combine((sample.value, other.value)))
            combined[key] = sample
    return prometheus_text(combined.values())


def _lines(status: Status) -> Iterator[str]:
    if status.target_version is None:
        yield f"  target     {status.target} (no table: check the path if you expected one)"
    else:
        label = "target" if status.ingest is None else "log"
        yield f"  {label:<10} {status.target} (version {status.target_version})"
    if status.ingest is not None:
        yield f"  source     {status.source or 'unknown'}"
        yield from (f"  {name:<10} {text}" for name, text in status.ingest.lines())
    else:
        yield f"  source     {status.source or 'unknown'} (version {_or_none(status.source_version)})"
    lag = status.lag
    if lag is None and status.ingest is None and status.committed is not None:
        yield f"  watermark  {status.committed}, loaded once"
        yield f"  good until {status.readable_until or 'unknown'}"
    if lag is not None:
        changes = f"{plural(lag.commits or 0, 'commit')} with changes, {size(lag.size or 0)}, the oldest "
        changes += f"{span(int(lag.seconds * 1000))} old"
        yield f"  watermark  {status.committed}"
        yield f"  lag        {plural(lag.versions, 'version')}: {changes if lag.commits else 'no changes'}"
        if status.late is not None:
            yield f"  state      {'late' if status.late else 'in time'}"
        yield f"  good until {status.readable_until or 'unknown'}"
    if status.rows_in_quarantine:
        yield f"  quarantine {plural(status.rows_in_quarantine, 'row')}: {status.quarantine}"
    if status.shadow is not None:
        yield f"  shadow     {status.shadow}"
    for finding in status.findings:
        yield f"  !          {finding}"


def _or_none(version: int | None) -> str:
    return "none" if version is None else str(version)
