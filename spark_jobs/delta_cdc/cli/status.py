"""``delta-cdc status``: show the progress of pipelines."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.common import refuse
from delta_cdc.cli.pipelines import Chosen, chosen, takes_pipelines
from delta_cdc.config.combine import unwatchable
from delta_cdc.core.arguments import seconds
from delta_cdc.core.errors import DeltaCdcError
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


def _span(text: str) -> float:
    found = seconds(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration like '30 minutes'")
    return found


def _status(arguments: argparse.Namespace) -> int:
    if arguments.metrics:
        refuse(arguments, ("advise",), "with --metrics")
    # A pipeline that ingests and applies has two tables whose logs record its progress.
    tables = [(one, table) for one in chosen(arguments) for table in one.written]
    # Before the first run, no log names the source. With a change log, the log itself does not exist yet.
    sources = [one.source if one.log is None else None for one, _ in tables]
    results = run_sync(
        status_of_all(
            [(one.pipeline, table) for one, table in tables],
            [one.storage_options for one, _ in tables],
            sources,
            [{"collects": one.table.collects, "once": one.table.once} for one, _ in tables],
        )
    )
    expected = [
        result.expected(_freshness(arguments, one)) if isinstance(result, Status) else result
        for (one, _), result in zip(tables, results, strict=True)
    ]
    expected = [
        replace(result, findings=(*result.findings, *_not_named(one)))
        if isinstance(result, Status)
        else result
        for (one, _), result in zip(tables, expected, strict=True)
    ]
    if arguments.metrics:
        print(_metrics([one for one, _ in tables], expected), end="")
        return 0
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    is_healthy = True
    advice = _advice(tables, arguments) if arguments.advise else [[]] * len(tables)
    for (one, table), result, advised in zip(tables, expected, advice, strict=True):
        # A pipeline with a change log and a target has two parts below its name.
        lines += [one.pipeline] if not rows or rows[-1]["pipeline"] != one.pipeline else []
        if isinstance(result, DeltaCdcError):
            is_healthy = False
            lines.append(f"  {type(result).__name__}: {result}")
            rows.append({"pipeline": one.pipeline, "target": table, "error": result.to_dict()})
        elif isinstance(result, Status):
            is_healthy = is_healthy and not result.findings
            lines += _lines(result)
            rows.append(result.to_dict())
        else:
            raise result
        if arguments.advise:
            rows[-1]["advice"] = [one_advice.to_dict() for one_advice in advised]
            lines += _advised(advised)
    print(json.dumps(rows, indent=2) if arguments.json else "\n".join(lines))
    return 0 if is_healthy else 1


def _advice(tables: Sequence[tuple[Chosen, str]], arguments: argparse.Namespace) -> list[list[Advice]]:
    """Return the advice about each table; that about the schedule of a group is with its first table."""
    given = (
        AboutTable(
            pipeline=one.pipeline,
            target=table,
            source=one.source if one.log is None else None,
            storage_options=one.storage_options,
            freshness=_freshness(arguments, one),
            group=one.group.name if one.group is not None else None,
            schedule=one.group.settings.get("schedule") if one.group is not None else None,
            tables_of_group=_tables_of(one.group) if one.group is not None else 0,
            is_watchable=one.group is None or not any(unwatchable(table) for table in one.group.tables),
        )
        for one, table in tables
    )
    return run_sync(advise_all(list(given)))


def _tables_of(group: Group) -> int:
    """Return how many tables a group writes, chosen or not."""
    return sum(len(Chosen(table, group).written) for table in group.tables)


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


def _metrics(pipelines: Sequence[Chosen], results: Sequence[Status | Exception]) -> str:
    """Return the metrics of all pipelines in the text format of Prometheus."""
    now = datetime.now(UTC)
    combined: dict[tuple[str, ...], Sample] = {}
    for one, result in zip(pipelines, results, strict=True):
        if isinstance(result, Status):
            samples = list(result.samples(now))
        elif isinstance(result, DeltaCdcError):
            samples = [Sample(METRICS["problems"], one.pipeline, 1)]
        else:
            raise result
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
