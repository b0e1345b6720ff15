"""Plans an ingest: an unfinished batch of an earlier try, new files, new topic records, or a replay."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from delta_cdc.core.change_log import log_properties
from delta_cdc.core.concurrency import both, gathered
from delta_cdc.core.kafka_options import for_registry
from delta_cdc.core.properties import LATENESS_HORIZON
from delta_cdc.core.quarantine import no_records, quarantine_of
from delta_cdc.core.requests import IngestRequest
from delta_cdc.core.retention import LOG_RETENTION, milliseconds_of
from delta_cdc.core.retention import readable as readable_time
from delta_cdc.core.spec import IngestSpec, SourceFile
from delta_cdc.core.steps import NoRows, Records, Step
from delta_cdc.core.text_table import named_counts, plural
from delta_cdc.core.uris import canonical_uri, spark_uri
from delta_cdc.core.validation import check_order_drift
from delta_cdc.core.watermark import PipelineState
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning import erased_keys, topic_partitions
from delta_cdc.planning.file_heads import heads
from delta_cdc.planning.file_listing import find_file, hides, list_files, read_source
from delta_cdc.planning.ingest_batches import Chosen, Standing, look_at
from delta_cdc.planning.ingest_request import checked
from delta_cdc.planning.memory import Memory, plan_key
from delta_cdc.planning.parquet_footers import footers
from delta_cdc.planning.plan import readable
from delta_cdc.planning.quarantine import has_rows_of, holds_rows, other_pipelines
from delta_cdc.planning.taken_files import INGESTED, beside, same
from delta_cdc.planning.unfinished_files import finished

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from delta_cdc.planning.reconcile import RecordedWatermark
    from delta_cdc.planning.taken_files import Identity

__all__ = ["IngestPlan", "IngestRequest", "plan_ingest", "plan_ingest_async"]


@dataclass(frozen=True)
class IngestPlan:
    """The plan of an ingest, made without Spark. ``str()`` gives readable lines.

    :param spec: the job; None if there is nothing to do
    :param notes: notes for users, one sentence each
    :param left: see :class:`~delta_cdc.planning.ingest_batches.Chosen`
    :param looked: how many files or partitions were observed
    """

    request: IngestRequest
    recorded: RecordedWatermark | None
    spec: IngestSpec | None
    notes: tuple[str, ...] = ()
    left: dict[str, int] = field(default_factory=dict)
    looked: int = 0

    @property
    def source(self) -> str:
        """Return the source as Spark names it."""
        return self.request.source_uri

    @property
    def log(self) -> str:
        """Return the location of the change log."""
        return canonical_uri(self.request.log)

    @property
    def plan_key(self) -> str:
        """Return the key of the plan that is saved for a retry."""
        return _plan_key(self.request)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the sealed commit that the job makes; empty without a job."""
        return self.spec.steps if self.spec is not None else ()

    @property
    def ending_version(self) -> int | None:
        """Return the number of the batch; None without a job."""
        return self.spec.step.seal_number if self.spec is not None else None

    @property
    def description(self) -> str:
        """Return a description of the job, for users."""
        spec = self.spec
        if spec is None:
            return "nothing: no process is started and nothing is written"
        if spec.step.kind == "replay":
            return f"the records of {spec.quarantine_uri} again"
        if spec.files:
            size = readable(sum(file.size for file in spec.files))
            return f"{plural(len(spec.files), 'file')} ({size}) of {self.source}"
        if spec.offsets:
            counts = [part.ending_offset - part.starting_offset for part in spec.offsets]
            n_partitions = len([count for count in counts if count])
            return f"{plural(sum(counts), 'record')} of {plural(n_partitions, 'partition')} of {self.source}"
        return "a seal alone"

    def __str__(self) -> str:
        return "\n".join(f"{name:<10} {text}".rstrip() for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "source", self.source
        state = self.recorded.target if self.recorded is not None else None
        yield "log", self.log if state is not None else f"{self.log} does not exist yet"
        yield "to do", self.description
        if self.spec is not None:
            if state is not None:
                yield "seal", str(self.spec.step.seal_number)
            for file in self.spec.files:
                yield "", f"{file.uri}, {readable(file.size)}{_remarks(file)}"
            for part in self.spec.offsets:
                yield "", f"{part.topic} {part.partition}: {part.starting_offset}-{part.ending_offset - 1}"
        for unit, count in self.left.items():
            yield "left", named_counts({unit: count})
        for note in self.notes:
            yield "note", note


def plan_ingest(request: IngestRequest, memory: Memory | None = None) -> IngestPlan:
    """Plan an ingest; see :func:`plan_ingest_async`."""
    return run_sync(plan_ingest_async(request, memory))


async def plan_ingest_async(request: IngestRequest, memory: Memory | None = None) -> IngestPlan:
    """Observe log, record and source, and choose the next batch. Starts no process and writes nothing.

    :param memory: saved state of earlier tries; the logs take precedence
    :raises SourceNotFound: there is no such path or topic
    :raises OffsetsExpired: a topic dropped records that were not ingested
    :raises TopicReplaced: a topic was deleted and recreated
    :raises DeltaCdcError: another named error with its remedy for everything that stops the flow
    """
    # The check reads the disk: a source that looks like a pattern may be an existing folder.
    request = replace(request, options=await asyncio.to_thread(checked, request))
    if request.is_kafka and request.options.format == "avro":
        for_registry(request.kafka_options)
    state = memory or Memory()
    now = time.time_ns() // 1_000_000 if state.now_ms is None else state.now_ms
    no_list = request.is_kafka or request.lexical_order or request.replay
    standing, listed = await both(
        look_at(request, state, state.number(_plan_key(request)), now),
        asyncio.sleep(0, []) if no_list else _listed(request),
    )
    accepted: tuple[str, ...] = ()
    if standing.seal is not None:
        accepted = check_order_drift(standing.seal, request.options, request.log, request.on_drift)
    observed = _Observed(request, standing, now, listed, accepted)
    if standing.pending is not None:
        chosen = await _pending(observed, state)
    elif request.replay:
        chosen = await _replay(observed)
    elif request.is_kafka:
        chosen = await topic_partitions.choose(request, standing, state.looks)
    else:
        chosen = await _files(observed)
    if chosen.kind == "replay":
        place = (quarantine_of(request.log), request.pipeline, request.storage_options)
        chosen = replace(chosen, undone=await has_rows_of(standing.void, *place))
    return await _planned(observed, chosen)


async def _listed(request: IngestRequest, after: str | None = None) -> list[SourceFile]:
    return await list_files(
        request.source, request.storage_options, request.glob, after, follow_links=request.follow_links
    )


@dataclass(frozen=True)
class _Observed:
    """The input of a plan: the request, the batches so far, the time, and the listed files."""

    request: IngestRequest
    standing: Standing
    now_ms: int
    listed: list[SourceFile]
    accepted: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        recorded, lost = self.standing.recorded, self.standing.found_lost
        notes = (*(recorded.notes if recorded is not None else ()), *self.accepted)
        if not lost:
            return notes
        return (
            *notes,
            f"{lost} The run compares input that is not in the record with the log, to add no event twice.",
        )

    def again(self, uri: str) -> bool:
        """Return whether a file may already be in the log, in full or in another state."""
        standing = self.standing
        return (
            standing.doubtful
            or uri in standing.counted.files
            or standing.is_vanished(uri)
            or uri in standing.taken.others_files
        )


async def _planned(observed: _Observed, chosen: Chosen) -> IngestPlan:
    """Return the plan of a batch; without a batch, that of a new seal if it is due."""
    request, standing = observed.request, observed.standing
    recorded, spec = standing.recorded, None
    if chosen.kind is None:
        due = _seal_due(recorded, observed.now_ms)
        if due is not None:
            chosen = replace(chosen, kind="renew", notes=(*chosen.notes, due))
    if chosen.kind is not None:
        target = recorded.target if recorded is not None else None
        configuration = standing.configuration(request.options, chosen)
        step = Step(
            kind=chosen.kind,
            read=NoRows() if chosen.kind == "renew" else Records(),
            seal_number=standing.number,
            starting_version=standing.number,
            applied_to=None,
            planned_on=recorded.target_version if recorded is not None else None,
            before=PipelineState(None, standing.applied_from, configuration=configuration),
        )
        spec = IngestSpec(
            pipeline=request.pipeline,
            run_id=request.run_id,
            source_uri=request.source_uri,
            log_uri=spark_uri(request.log),
            ingested_uri=beside(request.log, INGESTED),
            quarantine_uri=quarantine_of(request.log),
            options=request.options,
            steps=(step,),
            files=chosen.files,
            offsets=chosen.offsets,
            recorded=chosen.recorded,
            horizon=target.configuration.get(LATENESS_HORIZON) if target is not None else None,
            single_driver=request.single_driver,
            may_lack_layout=recorded is None or recorded.may_lack_layout(log_properties(request.options)),
            log_name=request.log_name,
            erased=await erased_keys.left_out(request.log, recorded, request.storage_options),
        )
    notes = (*observed.notes, *chosen.notes)
    return IngestPlan(request, recorded, spec, notes, chosen.left, chosen.looked)


# -- files --------------------------------------------------------------------------------------
async def _files(observed: _Observed) -> Chosen:
    request, counted = observed.request, observed.standing.counted
    listed = observed.listed
    if request.lexical_order:
        after = await asyncio.to_thread(_last, request, observed.standing)
        listed = await _listed(request, after)
    new, older = _new(observed, listed)
    notes = []
    if older:
        notes.append(
            f"{plural(older, 'file')} of {request.source_uri} last modified before "
            f"{request.starting_timestamp} left out."
        )
    if not new:
        return Chosen(None, tuple(notes), looked=len(listed))
    bounded, rest = _bounded(request, new)
    batch = await finished(bounded, request, observed.now_ms)
    notes += batch.notes
    chosen, left = batch.files, _left((*batch.held, *rest))
    if not chosen:
        return Chosen(None, tuple(notes), left=left, looked=len(listed))
    changed = sum(1 for file in chosen if file.uri in counted.files)
    if changed and not observed.standing.doubtful:
        notes.append(
            f"{plural(changed, 'file')} changed since they were taken: only what is new in them is added."
        )
    files = await _described(request, [replace(file, again=observed.again(file.uri)) for file in chosen])
    return Chosen("ingest", tuple(notes), files, left=left, looked=len(listed))


def _last(request: IngestRequest, standing: Standing) -> str | None:
    """Return the greatest ingested file name; files with greater names are new.

    Returns None if files have vanished, because they may reappear under their old names. Files ingested from
    elsewhere, before the source was moved, do not count.
    """
    if standing.vanished:
        return None
    home = spark_uri(read_source(request.source))
    inside = f"{home.rstrip('/')}/"
    names = standing.counted.files
    return max(
        (uri for uri in names if uri == home or (uri.startswith(inside) and not hides(uri[len(inside) :]))),
        default=None,
    )


def _new(observed: _Observed, listed: Iterable[SourceFile]) -> tuple[list[SourceFile], int]:
    """Return the files that were not ingested yet, and how many are too old to be ingested."""
    starting = observed.request.starting_ms
    ingested, standing = observed.standing.counted.files, observed.standing
    new, older = [], 0
    for file in listed:
        identity = ingested.get(file.uri)
        if (
            identity is not None
            and same(identity, (file.size, file.modified, file.etag))
            and not standing.is_vanished(file.uri)
        ):
            continue
        if starting is not None and file.modified < starting:
            older += 1
        else:
            new.append(file)
    return new, older


def _bounded(request: IngestRequest, new: list[SourceFile]) -> tuple[list[SourceFile], list[SourceFile]]:
    """Return the files that the limits allow, and those that they leave for another run, in order.

    The order is by time of modification, the oldest first; with ``lexical_order``, by name.
    """
    if request.lexical_order:
        ordered = sorted(new, key=lambda file: file.uri)
    else:
        ordered = sorted(new, key=lambda file: (file.modified, file.uri))
    limit = len(ordered) if request.max_files is None else request.max_files
    size, count = 0, 0
    for file in ordered[:limit]:
        size += file.size
        if request.max_bytes is not None and count and size > request.max_bytes:
            break
        count += 1
    return ordered[:count], ordered[count:]


def _left(files: Sequence[SourceFile]) -> dict[str, int]:
    """Return how much is left for another run; empty if it is nothing."""
    return {"files": len(files), "bytes": sum(file.size for file in files)} if files else {}


async def _described(request: IngestRequest, files: list[SourceFile]) -> tuple[SourceFile, ...]:
    """Return the files with what their footers (Parquet) or their first bytes (text) say of them."""
    if request.options.format == "parquet":
        return await footers(files, request.storage_options)
    return await heads(files, request.options.format, request.storage_options)


# -- a batch that was recorded but not appended -------------------------------------------------
async def _pending(observed: _Observed, memory: Memory) -> Chosen:
    """Plan the batch that an earlier try recorded but whose events are not in the log."""
    batch = observed.standing.batch
    note = (
        f"An earlier try recorded batch {observed.standing.number}, but did not write its events to "
        f"{canonical_uri(observed.request.log)}. This run ingests them."
    )
    if batch.kind is not None and batch.kind != "ingest":
        return Chosen(batch.kind, (note,), recorded=True)
    if batch.ranges:
        chosen = await topic_partitions.recorded(
            observed.request, observed.standing, batch.ranges, memory.looks
        )
        return replace(chosen, notes=(note, *chosen.notes), recorded=True)
    files, gone = await _recorded(observed, batch.files)
    without = f"The run ingests the batch without {plural(gone, 'file')} deleted since then."
    vanished = (without,) if gone else ()
    listed = {file.uri for file in observed.listed}
    waiting = [file for file in _new(observed, observed.listed)[0] if file.uri not in dict(batch.files)]
    return Chosen("ingest", (note, *vanished), files, recorded=True, left=_left(waiting), looked=len(listed))


async def _recorded(
    observed: _Observed, files: tuple[tuple[str, Identity], ...]
) -> tuple[tuple[SourceFile, ...], int]:
    """Return the files of a recorded batch, and how many no longer exist."""
    listed = {file.uri: file.unreadable for file in observed.listed}
    unlisted = [uri for uri, _ in files if uri not in listed]
    looks = (find_file(uri, observed.request.storage_options) for uri in unlisted)
    found_files = dict(zip(unlisted, await gathered(looks), strict=True))
    described = await _described(
        observed.request,
        [
            SourceFile(
                uri,
                *identity,
                again=observed.again(uri),
                unreadable=listed.get(uri, ""),
                missing=uri in found_files and found_files[uri] is None,
            )
            for uri, identity in files
        ],
    )
    return described, sum(1 for file in described if file.missing)


# -- quarantine ---------------------------------------------------------------------------------
async def _replay(observed: _Observed) -> Chosen:
    request = observed.request
    where, options = quarantine_of(request.log), request.storage_options
    if observed.standing.recorded is None or not await holds_rows(where, request.pipeline, options):
        others = await other_pipelines(where, request.pipeline, options)
        return Chosen(None, (no_records(request.log, request.pipeline, others),))
    return Chosen("replay")


# -- helpers ------------------------------------------------------------------------------------
def _plan_key(request: IngestRequest) -> str:
    return plan_key(request.pipeline, canonical_uri(request.log))


def _seal_due(recorded: RecordedWatermark | None, now_ms: int) -> str | None:
    """Return why an idle pipeline has to renew its seal before log cleanup removes it; None if not due."""
    if recorded is None or recorded.seal is None:
        return None
    kept = milliseconds_of(LOG_RETENTION, recorded.target.configuration)
    age = kept if recorded.commit is None else now_ms - recorded.commit.timestamp
    if age <= kept // 2:
        return None
    return (
        f"The newest seal of the log is {readable_time(age)} old, which is more than half of the log's "
        f"retention ({readable_time(kept)}). The run renews the seal."
    )


def _remarks(file: SourceFile) -> str:
    remarks = {
        "compared with the log": file.again,
        "gone": file.missing,
        f"unreadable ({file.unreadable})": bool(file.unreadable),
    }
    listed = ", ".join(text for text, applies in remarks.items() if applies)
    return f": {listed}" if listed else ""
