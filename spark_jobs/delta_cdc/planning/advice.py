"""Advice about a pipeline, from the evidence of the logs alone: a table of rules.

Each rule compares figures of the logs with what a setting would change. It is silent without evidence, and
if the
setting would save little. The figures of an advice are those that later runs show, so that a user can
compare them.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.concurrency import settled
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.groups import ON_CHANGE
from delta_cdc.core.properties import (
    CHANGE_FEED,
    DELETION_VECTORS,
    STATISTICS_COLUMNS,
    WHOLE_FILES_TARGET,
    feed_on,
)
from delta_cdc.core.retention import (
    FILE_RETENTION,
    LOG_RETENTION,
    extended,
    milliseconds_of,
    text_of,
)
from delta_cdc.core.retention import readable as span
from delta_cdc.core.sql import quote
from delta_cdc.core.text_table import plural
from delta_cdc.planning.evidence import Bounds, Evidence, Run, gather
from delta_cdc.planning.plan import readable as size
from delta_cdc.planning.schedule import runs_between

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from delta_cdc.delta_log.actions import Commit, CommitInfo

#: The least number of bytes that a setting must save, in all runs of the evidence.
LEAST_BYTES = 16 * 1024**2
#: A setting must save at least this share of the bytes: one half.
LEAST_FACTOR = 2
#: The least number of files of a table whose layout matters; of runs that show a habit; of scheduled runs.
LEAST_FILES, LEAST_RUNS, LEAST_SCHEDULED = 16, 3, 10
#: Delta's OPTIMIZE writes files of up to this size, ``spark.databricks.delta.optimize.maxFileSize``.
FULL_FILE = 1024**3
#: A partition with fewer bytes is too small for its own files.
_SMALL_PARTITION = 16 * 1024**2
#: The share of masked rows from which readers pay for them: one in so many.
_MASKED = 5
#: In ordered files, a file overlaps its neighbours at most: Delta mixes a few rows of adjacent files.
_NEIGHBOURS = 3
#: A run's rows are this much fewer than the rows that it copies.
_COPIED = 10


@dataclass(frozen=True)
class Advice:
    """One setting that the logs show to be worth changing.

    :param rule: name of the rule
    :param table: location of the table, or the name of the group, that has the setting
    :param found: what the logs prove, as a sentence
    :param setting: what to change
    :param value: its new value
    :param cost: what the change costs, as a sentence
    :param figures: the numbers of ``found``, by name; ``expected_…`` are those that the next runs show
    """

    rule: str
    table: str
    found: str
    setting: str
    value: str
    cost: str
    figures: dict[str, int | float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield the form for people."""
        yield f"{self.rule}: {self.found}"
        yield f"set {self.setting} = {self.value} ({self.table})"
        yield f"cost: {self.cost}"


@dataclass(frozen=True)
class AboutTable:
    """A table that a pipeline writes: what :func:`advise_all` advises about.

    :param target: path or URI of the target, or of the change log
    :param source: path or URI; None: the source that the seal names
    :param freshness: seconds, from the configuration or the command line
    :param group: the group of the pipeline in a configuration
    :param schedule: that of the group
    :param tables_of_group: how many tables the group writes
    :param is_watchable: whether the schedule of the group may be ``on_change``
    """

    pipeline: str
    target: str
    source: str | None = None
    storage_options: dict[str, str] | None = None
    freshness: float | None = None
    group: str | None = None
    schedule: Any = None
    tables_of_group: int = 0
    is_watchable: bool = True


async def advise_all(tables: Sequence[AboutTable], *, now_ms: int | None = None) -> list[list[Advice]]:
    """Return the advice about each table, in their order.

    Advice about the schedule of a group is with its first table, and needs all its tables. A table whose logs
    cannot be read has none: its status has the error.

    :param now_ms: epoch milliseconds; None is now
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    found = await settled(
        gather(
            one.pipeline,
            one.target,
            source=one.source,
            storage_options=one.storage_options,
            freshness=one.freshness,
            now_ms=now,
        )
        for one in tables
    )
    for error in found:
        if isinstance(error, Exception) and not isinstance(error, DeltaCdcError):
            raise error
    gathered = [
        replace(one, schedule=table.schedule, is_watchable=table.is_watchable)
        if isinstance(one, Evidence)
        else None
        for one, table in zip(found, tables, strict=True)
    ]
    known = [evidence for evidence in gathered if evidence is not None]
    advice = [advice_on(one, known) if one is not None else [] for one in gathered]
    for group in dict.fromkeys(one.group for one in tables if one.group is not None):
        places = [place for place, one in enumerate(tables) if one.group == group]
        of_group = [evidence for place in places if (evidence := gathered[place]) is not None]
        schedule = tables[places[0]].schedule
        # A table that was not chosen, or that cannot be read, may have had work.
        if len(of_group) == tables[places[0]].tables_of_group and isinstance(schedule, str):
            advice[places[0]] += idle_runs(group, schedule, of_group)
    return advice


def advice_on(evidence: Evidence, others: Sequence[Evidence] = ()) -> list[Advice]:
    """Return all advice about one pipeline.

    :param others: the evidence about other pipelines, which may read the same source
    """
    return [advice for rule in RULES for advice in rule(evidence, others)]


# -- change feed ----------------------------------------------------------------------------------
def _metric(info: CommitInfo, *names: str) -> int:
    """Return the sum of metrics, which Spark and delta-rs spell differently; a missing one counts as 0."""
    return sum(info.metric(name) or info.metric(_snake(name)) or 0 for name in names)


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def _feed_of(commit: Commit) -> tuple[int, int] | None:
    """Return the rows and bytes that a change feed would have for a commit; None if the log does not show "
    "it."""
    info = commit.info
    if not commit.changes_data:
        return 0, 0
    if not commit.n_data_removes:
        return None if commit.rows_added is None else (commit.rows_added, commit.bytes_added)
    inserted = _metric(info, "numTargetRowsInserted")
    updated = _metric(info, "numTargetRowsUpdated", "numUpdatedRows")
    deleted = _metric(info, "numTargetRowsDeleted", "numDeletedRows")
    changed = inserted + 2 * updated + deleted
    if not changed or not commit.rows_added:
        return None
    if info.operation == "DELETE" and commit.paired:
        # It only masks rows: the feed compares the files, too.
        return changed, commit.bytes_to_read
    return changed, round(changed * commit.bytes_added / commit.rows_added)


def _change_feed(evidence: Evidence, others: Sequence[Evidence]) -> Iterator[Advice]:
    source, options = evidence.source, evidence.options
    if source is None or options is None or options.takes_copies or feed_on(source.configuration):
        return
    read = rows = feed = 0
    runs = []
    methods: set[str] = set()
    for run in evidence.applied:
        whole = [one for one in run.ranges if one.method in ("snapshot_diff", "row_tracking")]
        found = [_feed_of(commit) for commit in run.read]
        if not whole or None in found:
            continue
        runs.append(run)
        methods.update(one.method for one in whole)
        read += sum(one.size for one in run.ranges)
        rows += sum(one[0] for one in found if one is not None)
        feed += sum(one[1] for one in found if one is not None)
    if not runs or read - feed < LEAST_BYTES or read < LEAST_FACTOR * feed:
        return
    first, last = runs[0].seal.step.starting_version, runs[-1].seal.step.ending_version
    yield Advice(
        rule="change_feed",
        table=source.uri,
        found=f"{plural(len(runs), 'run')} of {evidence.pipeline} read {size(read)} of whole files for "
        f"versions "
        f"{first}-{last} of the source ({' and '.join(sorted(methods))}); the feed of these versions has "
        f"about "
        f"{size(feed)} ({plural(rows, 'row')}).",
        setting=CHANGE_FEED,
        value="true",
        cost=f"the writers of the source write about {size(feed)} more for such versions; a MERGE or an "
        f"UPDATE "
        "takes up to a quarter longer.",
        figures={
            "runs": len(runs),
            "starting_version": first,
            "ending_version": last,
            "bytes_read": read,
            "expected_bytes_read": feed,
            "expected_rows_read": rows,
        },
    )


# -- what the merges write ------------------------------------------------------------------------
def _rewriting(evidence: Evidence) -> list[tuple[Run, int, int]]:
    """Return the merges that copied rows: each with its changed and its copied rows."""
    found = []
    for run in evidence.applied:
        info = run.commit.info
        names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
        changed, copied = _metric(info, *names), _metric(info, "numTargetRowsCopied")
        if changed and copied:
            found.append((run, changed, copied))
    return found


def _deletion_vectors(evidence: Evidence, others: Sequence[Evidence]) -> Iterator[Advice]:
    target, layout = evidence.target, evidence.layout
    is_on = target.configuration.get(DELETION_VECTORS, "").lower() == "true"
    if is_on or layout is None or layout.bytes <= WHOLE_FILES_TARGET:
        return
    runs = [one for one in _rewriting(evidence) if one[0].commit.rows_added]
    changed, copied = sum(one[1] for one in runs), sum(one[2] for one in runs)
    written = sum(run.commit.bytes_added for run, _, _ in runs)
    new = 0
    for run, _, _ in runs:
        rows = _metric(run.commit.info, "numTargetRowsInserted", "numTargetRowsUpdated")
        new += round(rows * run.commit.bytes_added / (run.commit.rows_added or 1))
    if copied < _COPIED * changed or written - new < LEAST_BYTES:
        return
    first, last = runs[0][0].commit.version, runs[-1][0].commit.version
    yield Advice(
        rule="deletion_vectors",
        table=target.uri,
        found=f"{plural(len(runs), 'MERGE')} (versions {first}-{last}) changed {plural(changed, 'row')} and "
        f"copied "
        f"{plural(copied, 'row')} that did not change: they wrote {size(written)}, of which the changed "
        f"rows are "
        f"about {size(new)}.",
        setting=DELETION_VECTORS,
        value="true",
        cost="readers of the table must know deletion vectors; the masked rows stay in the files until an "
        "OPTIMIZE "
        "with purge.",
        figures={
            "merges": len(runs),
            "starting_version": first,
            "ending_version": last,
            "rows_changed": changed,
            "rows_copied": copied,
            "bytes_written": written,
            "expected_bytes_written": new,
            "expected_rows_copied": 0,
        },
    )


# -- which files a merge can skip -----------------------------------------------------------------
def _key_statistics(evidence: Evidence, others: Sequence[Evidence]) -> Iterator[Advice]:
    layout, target, options = evidence.layout, evidence.target, evidence.options
    if layout is None or options is None or len(layout.bounds) < LEAST_FILES or layout.bytes < LEAST_BYTES:
        return
    lacking = {key for key in evidence.bounded_keys if not any(key in one.of_keys for one in layout.bounds)}
    if not lacking:
        return
    listed = target.configuration.get(STATISTICS_COLUMNS, "")
    value = ",".join(filter(None, [listed, *map(quote, sorted(lacking))]))
    yield Advice(
        rule="key_statistics",
        table=target.uri,
        found=f"{len(layout.bounds)} of {layout.files} files have no bounds of "
        f"{', '.join(sorted(lacking))}: a run "
        f"that looks up a key can skip no file, and reads the keys of {size(layout.bytes)}.",
        setting=STATISTICS_COLUMNS,
        value=value,
        cost="only the named columns get bounds: add those by which readers filter. Files get them when "
        "they are "
        "written again, for instance by an OPTIMIZE.",
        figures={
            "files": layout.files,
            "files_without_bounds": len(layout.bounds),
            "bytes": layout.bytes,
            "expected_files_without_bounds": 0,
        },
    )


def depth(bounds: Sequence[Bounds], key: str) -> float | None:
    """Return with how many files a file shares values of a key on average, itself included.

    :return: 1 if no two files overlap; None if the bounds cannot be compared
    """
    pairs = [one.of_keys[key] for one in bounds if key in one.of_keys]
    try:
        least, greatest = sorted(pair[0] for pair in pairs), sorted(pair[1] for pair in pairs)
        # A file overlaps those that begin before its end, without those that end before it begins.
        shared = [bisect_right(least, pair[1]) - bisect_left(greatest, pair[0]) for pair in pairs]
    except TypeError:
        return None
    return sum(shared) / len(shared) if shared else None


def _clustering(evidence: Evidence, others: Sequence[Evidence]) -> Iterator[Advice]:
    layout, target, options = evidence.layout, evidence.target, evidence.options
    if layout is None or options is None or len(layout.sizes) > 1 or layout.bytes < LEAST_BYTES:
        return
    files = len(layout.bounds)
    rows = [changed for run in evidence.applied if (changed := _touched(run))]
    depths = {key: found for key in options.keys if (found := depth(layout.bounds, key)) is not None}
    if files < LEAST_FILES or files < layout.files / 2 or len(rows) < LEAST_RUNS or not depths:
        return
    key = min(depths, key=lambda name: depths[name])
    batch = round(median(rows))
    if depths[key] * LEAST_FACTOR < files or batch * LEAST_FACTOR > files:
        return
    is_clustered = "clustering" in target.features
    # A clustered table has no other order than that of its columns, which the user chose.
    if is_clustered and key.lower() not in clustering_columns(evidence):
        return
    yield Advice(
        rule="clustering",
        table=target.uri,
        found=f"the bounds of {key} in a file overlap those of {depths[key]:.0f} of {files} files on "
        f"average, "
        f"so a MERGE skips few files; a run changes {plural(batch, 'row')} (median of {len(rows)}). In files "
        f"that are ordered by {key}, it needs at most {plural(batch, 'file')}.",
        setting="DeltaOptimizeOperator(full)" if is_clustered else "DeltaOptimizeOperator(zorder_by)",
        value="True" if is_clustered else f'["{key}"]',
        cost=f"it writes {size(layout.bytes)} again; new files are not ordered until the next OPTIMIZE.",
        figures={
            "files": files,
            "overlapping_files": round(depths[key], 1),
            "expected_overlapping_files": _NEIGHBOURS,
            "rows_of_a_run": batch,
            "bytes": layout.bytes,
        },
    )


def clustering_columns(evidence: Evidence) -> tuple[str, ...]:
    """Return the columns by which the target is clustered, in lower case; () if the logs do not show them.

    An OPTIMIZE and the statements that set the columns record them in their commits. Without such a commit,
    those that the pipeline sets count.
    """
    for commit in reversed(evidence.commits):
        given = commit.info.operation_parameters
        found = given.get("newClusteringColumns", given.get("clusterBy"))
        if isinstance(found, str) and (columns := _columns_in(found)):
            return columns
    options = evidence.options
    return tuple(name.lower() for name in (options.cluster_by if options is not None else None) or ())


def _columns_in(text: str) -> tuple[str, ...]:
    try:
        found = codec.parsed(text)
    except UnreadableJson:
        found = text.split(",")
    names = found if isinstance(found, list) else []
    return tuple(str(name).strip().strip("`").lower() for name in names if str(name).strip())


def _touched(run: Run) -> int:
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    return _metric(run.commit.info, *names)


# -- files of the target --------------------------------------------------------------------------
def _small_files(evidence: Evidence, others: Sequence[Evidence]) -> Iterator[Advice]:
    layout, target = evidence.layout, evidence.target
    if layout is None:
        return
    expected = sum(max(1, -(-sum(sizes) // FULL_FILE)) for sizes in layout.sizes.values())
    average = layout.bytes // layout.files
    if layout.files < LEAST_FILES or layout.files < 4 * expected or average > _SMALL_PARTITION:
        return
    done = [commit.version for commit in evidence.commits if commit.info.operation == "OPTIMIZE"]
    newest = f"the last OPTIMIZE is version {done[-1]}" if done else "these commits have no OPTIMIZE"
    first, last = evidence.commits[0].version, evidence.commits[-1].version
    yield Advice(
        rule="small_files",
        table=target.uri,
        found=f"version {target.version} has {layout.files} files of {size(average)} on average in "
        f"{plural(len(layout.sizes), 'partition')} (versions {first}-{last}: {newest}); OPTIMIZE leaves "
        f"{plural(expected, 'file')}.",
        setting="DeltaOptimizeOperator(tables)",
        value=f'["{target.uri}"]',
        cost=f"each OPTIMIZE writes the small files again, now {size(layout.bytes)}; VACUUM deletes the old "
        f"ones.",
        figures={"files": layout.files, "bytes": layout.bytes, "expected_files": expected},
    )


def _partitions(evidence: Evidence, others: Sequence[Evidence]) -> Iterator[Advice]:
    layout, target = evidence.layout, evidence.target
    if layout is None or evidence.options is None or not target.partition_columns:
        return
    partitions = len(layout.sizes)
    average = layout.bytes // partitions
    expected = max(1, -(-layout.bytes // FULL_FILE))
    loses = (
        " It needs discard_history, because it drops the closed versions of all rows (SCD type 2)."
        if evidence.options.stored_as_scd_type == 2
        else ""
    )
    if partitions < LEAST_FILES or average > _SMALL_PARTITION or partitions < 4 * expected:
        return
    yield Advice(
        rule="partitions",
        table=target.uri,
        found=f"version {target.version} has {plural(layout.files, 'file')} in {partitions} partitions by "
        f"{', '.join(target.partition_columns)}, with {size(average)} each on average: no file can be "
        f"larger than its "
        f"partition. Without partitions, the rows need {plural(expected, 'file')}.",
        setting="partition_by",
        value="null, with cluster_by for the columns by which readers filter",
        cost=f'one run with mode="reset" writes all rows again ({size(layout.bytes)}). Readers that filter '
        f"by the "
        f"partition columns then skip files by their bounds.{loses}",
        figures={
            "files": layout.files,
            "partitions": partitions,
            "bytes": layout.bytes,
            "expected_files": expected,
        },
    )


def _masked_rows(evidence: Evidence, others: Sequence[Evidence]) -> Iterator[Advice]:
    layout, target = evidence.layout, evidence.target
    if layout is None or not layout.rows or layout.bytes < LEAST_BYTES:
        return
    if layout.masked_rows * _MASKED < layout.rows:
        return
    share = layout.masked_rows / layout.rows
    kept = layout.rows - layout.masked_rows
    yield Advice(
        rule="masked_rows",
        table=target.uri,
        found=f"{layout.masked_rows} of {layout.rows} rows in the files of version {target.version} are "
        f"deleted "
        f"({share:.0%}): every reader reads them, about {size(round(layout.bytes * share))}.",
        setting="DeltaOptimizeOperator(purge)",
        value="True",
        cost=f"it writes the other rows of these files again, at most {size(layout.bytes)}.",
        figures={
            "rows_in_files": layout.rows,
            "masked_rows": layout.masked_rows,
            "bytes": layout.bytes,
            "expected_rows_in_files": kept,
            "expected_masked_rows": 0,
        },
    )


def _vacuum(evidence: Evidence, others: Sequence[Evidence]) -> Iterator[Advice]:
    garbage, target = evidence.garbage, evidence.target
    if garbage is None or garbage.bytes < LEAST_BYTES:
        return
    if garbage.bytes * LEAST_FACTOR < evidence.target_bytes:
        return
    kept = text_of(FILE_RETENTION, target.configuration)
    yield Advice(
        rule="vacuum",
        table=target.uri,
        found=f"{plural(garbage.files, 'file')} that commits removed since version {garbage.since}, more "
        f"than {kept} ago, still exist: {size(garbage.bytes)}.",
        setting="DeltaVacuumOperator(tables)",
        value=f'["{target.uri}"]',
        cost=f"versions older than {kept} cannot be read any more. The operator waits for the pipelines that "
        "consumers or config name.",
        figures={
            "since_version": garbage.since,
            "expected_files_deleted": garbage.files,
            "expected_bytes_deleted": garbage.bytes,
        },
    )


# -- schedule -------------------------------------------------------------------------------------
def _late_runs(evidence: Evidence, others: Sequence[Evidence]) -> Iterator[Advice]:
    freshness = evidence.freshness
    waits = {run.seal.number: waited for run in evidence.applied if (waited := run.waited) is not None}
    if freshness is None or len(waits) < LEAST_RUNS:
        return
    late = [waited for waited in waits.values() if waited > freshness * 1000]
    if len(late) * LEAST_FACTOR < len(waits):
        return
    minutes = max(1, int(freshness // 120))
    schedule, day = evidence.schedule, 86_400_000
    often = runs_between(schedule if isinstance(schedule, str) else None, evidence.now - day, evidence.now)
    if schedule == ON_CHANGE or (often is not None and often * minutes * 60_000 >= day):
        # Runs start soon enough, and another schedule would not help.
        return
    on_change = f"{ON_CHANGE}, or " if evidence.is_watchable else ""
    runs = [run for run in evidence.applied if run.seal.number in waits]
    yield Advice(
        rule="late_runs",
        table=evidence.pipeline,
        found=f"{len(late)} of {plural(len(waits), 'run')} (versions {runs[0].commit.version}-"
        f"{runs[-1].commit.version} of the target) applied changes that were older than the freshness of "
        f"{span(round(freshness * 1000))}; the oldest was {span(max(late))} old.",
        setting="schedule",
        value=f"{on_change}one run each {plural(minutes, 'minute')}",
        cost="more runs; those without work start no Spark.",
        figures={
            "runs": len(waits),
            "late_runs": len(late),
            "longest_seconds": max(late) / 1000,
            "freshness_seconds": freshness,
            "expected_late_runs": 0,
        },
    )


# -- retention ------------------------------------------------------------------------------------
def _longest(evidence: Evidence) -> tuple[int, Run] | None:
    """Return how old the oldest change was that a run applied, in milliseconds, and that run."""
    waits = [(waited, run) for run in evidence.applied if (waited := run.waited) is not None]
    return max(waits, key=lambda one: one[0], default=None)


def _retention(evidence: Evidence, others: Sequence[Evidence]) -> Iterator[Advice]:
    source, longest = evidence.source, _longest(evidence)
    if source is None or longest is None:
        return
    waited, run = longest
    slower = [
        found[0]
        for other in others
        if other.source is not None and other.source.table_id == source.table_id
        if (found := _longest(other)) is not None and found[0] > waited
    ]
    removes = any(commit.n_data_removes or commit.has_cdc for one in evidence.applied for commit in one.read)
    # Files that no commit removes stay; then only the log counts.
    names = (FILE_RETENTION, LOG_RETENTION) if removes else (LOG_RETENTION,)
    name = min(names, key=lambda one: milliseconds_of(one, source.configuration))
    kept = milliseconds_of(name, source.configuration)
    if slower or waited * LEAST_FACTOR <= kept:
        return
    properties = {one: text for one, text in extended(source.configuration, waited).items() if one in names}
    if milliseconds_of(name, {**source.configuration, **properties}) <= kept:
        return
    removed = sum(commit.bytes_removed + commit.bytes_cdc for one in evidence.applied for commit in one.read)
    times = [commit.timestamp for one in evidence.applied for commit in one.read]
    days = max((max(times) - min(times)) / 86_400_000, 1)
    more = milliseconds_of(name, properties) - kept if name in properties else 0
    yield Advice(
        rule="retention",
        table=source.uri,
        found=f"{evidence.pipeline}, the slowest reader, applied version {run.seal.step.starting_version} "
        f"of the source "
        f"{span(waited)} after its commit (version {run.commit.version} of the target), and {name} is "
        f"{text_of(name, source.configuration)}: less than twice as long.",
        setting=", ".join(properties),
        value=", ".join(properties.values()),
        cost=f"removed files stay longer: at the rate of these commits, about "
        f"{size(round(removed / days * more / 86_400_000))} more.",
        figures={
            "longest_seconds": waited / 1000,
            "kept_seconds": kept / 1000,
            "expected_kept_seconds": milliseconds_of(name, {**source.configuration, **properties}) / 1000,
            "source_version": run.seal.step.starting_version,
            "target_version": run.commit.version,
        },
    )


#: All rules, in the order in which their advice is shown. A rule yields its advice about one pipeline; it
#: takes the
#: evidence about it, and that about the other pipelines.
RULES: tuple[Callable[[Evidence, Sequence[Evidence]], Iterator[Advice]], ...] = (
    _change_feed,
    _deletion_vectors,
    _key_statistics,
    _clustering,
    _small_files,
    _partitions,
    _masked_rows,
    _vacuum,
    _late_runs,
    _retention,
)


def idle_runs(group: str, schedule: str | None, evidences: Sequence[Evidence]) -> Iterator[Advice]:
    """Yield advice about the schedule of a group, if most of its runs had nothing to do.

    A run without work leaves no trace in a log: the schedule shows how many there were, if it was the same
    all that time. A group whose sources cannot be watched keeps its schedule.

    :param schedule: as in a configuration
    :param evidences: about all tables of the group
    """
    if not evidences or any(not one.commits or not one.is_watchable for one in evidences):
        return
    now = max(evidence.now for evidence in evidences)
    start = max(evidence.commits[0].timestamp for evidence in evidences)
    scheduled = runs_between(schedule, start, now)
    worked = {
        run.seal.step.run_id
        for evidence in evidences
        for run in evidence.runs
        if run.commit.timestamp > start and run.seal.step.kind != "renew"
    }
    if scheduled is None or scheduled < LEAST_SCHEDULED or len(worked) * LEAST_FACTOR > scheduled:
        return
    idle = scheduled - len(worked)
    yield Advice(
        rule="idle_runs",
        table=group,
        found=f"in the last {span(now - start)}, the schedule {schedule!r} would start {scheduled} runs, and "
        f"{plural(len(worked), 'run')} committed changes to {plural(len(evidences), 'table')}: {idle} runs "
        f"would have no work.",
        setting="schedule",
        value=ON_CHANGE,
        cost="the triggerer looks at the logs of the sources about once a minute.",
        figures={"scheduled_runs": scheduled, "runs_with_work": len(worked), "expected_idle_runs": idle},
    )
