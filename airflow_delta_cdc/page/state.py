"""From the rows of the metadata database to the JSON of the page; pure functions."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_delta_cdc.page.errors import ERROR_KEY
from airflow_delta_cdc.page.memo import Memo
from delta_cdc.core import left_out
from delta_cdc.core.quarantine import then_repair, where_rows_are
from delta_cdc.core.text_table import plural
from delta_cdc.core.value_rules import broken_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from airflow_delta_cdc.page.declared import Declared

#: Keys of the XComs that hold figures: of one pipeline, and of all tables of a group.
PUBLISHED_KEY, TABLES_KEY = "return_value", "tables"
KEYS = (PUBLISHED_KEY, TABLES_KEY, ERROR_KEY)
#: What Airflow has rights of their own for, as the page names it.
RUNS, TASKS, XCOMS, LOGS, EVENTS = "runs", "task instances", "XComs", "task logs", "asset events"
#: States of a pipeline, the most urgent first.
STATES = ("failed", "retrying", "expiring", "late", "behind", "running", "hidden", "never", "ok")
#: Fields that only the page of one pipeline shows.
_OF_ONE = (
    "dags",
    "seconds",
    "starting_version",
    "ending_version",
    "target_version",
    "lag_bytes",
    "freshness",
    "as_of",
    "newly_quarantined",
    "held",
    "rules",
    "left_out",
    "differing",
    "findings",
    "hidden",
)
#: Figures that are unknown after a failed run which did not publish them. Others stay true: versions that are
#: applied, and how long the oldest change that is not applied has waited.
_OF_LAST_RUN = (
    "rows",
    "quarantined",
    "newly_quarantined",
    "rules",
    "left_out",
    "differing",
    "lag_versions",
    "lag_bytes",
)
#: Before its readable range ends, a pipeline is listed as expiring for this long.
_WARNED = timedelta(days=2)
_FINISHED = ("success", "failed")
_ROWS = ("inserted", "updated", "deleted", "closed")
_VERSIONS = ("version", "starting_version", "ending_version", "target_version")
#: The page reads no table.
_HOW_MANY = "to see how many are still there, run delta-cdc status with the configuration"
#: Numbers that the page can show.
_LEAST, _GREATEST = -1e15, 1e15
_NUMBERS = frozenset({int, float})
#: Figures of the page, and their names in a published lag.
_LAG = {
    "source_version": "source_version",
    "lag_versions": "versions",
    "lag_bytes": "bytes",
    "freshness": "freshness",
}


#: Returns JSON without spaces.
as_json = json.JSONEncoder(separators=(",", ":")).encode


class Dag(NamedTuple):
    """A DAG as the database describes it."""

    dag_id: str
    is_paused: bool
    has_schedule: bool


class Run(NamedTuple):
    """One DAG run.

    :param is_dry_run: whether its form says so
    :param has_form: whether a person filled in a form for it
    :param tables: the pipelines that the form names; empty: all
    """

    id: int
    dag_id: str
    run_id: str
    state: str
    run_type: str
    start: datetime | None
    end: datetime | None
    is_dry_run: bool = False
    has_form: bool = False
    tables: Collection[str] = ()


class Task(NamedTuple):
    """One task instance.

    :param name: the name of its map index
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    name: str | None
    state: str | None
    start: datetime | None
    end: datetime | None
    try_number: int


class Value(NamedTuple):
    """One XCom.

    :param run: ``Run.id``
    """

    run: int
    task_id: str
    map_index: int
    key: str
    value: Any


class Event(NamedTuple):
    """One event of an asset that a pipeline wrote.

    :param start: when the task instance started that published it; None if its row is gone
    """

    pipeline: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    extra: dict[str, Any]
    timestamp: datetime
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True)
class Rights:
    """What a user may read of the DAGs of some pipelines.

    :param hidden: the ids of the DAGs whose :data:`RUNS`, :data:`TASKS`, :data:`XCOMS` or :data:`LOGS` the
        user may not read, by that name
    :param events: whether the user may read the events of assets
    """

    hidden: Mapping[str, Collection[str]] = field(default_factory=dict)
    events: bool = True

    def has(self, dag_id: str, *names: str) -> bool:
        """Return whether the user may read all of some kinds of things of a DAG."""
        return not any(dag_id in self.hidden.get(name, ()) for name in names)

    def with_kind(self, name: str, dag_ids: Iterable[str]) -> set[str]:
        """Return those of some DAGs of which the user may read one kind of things."""
        return {dag_id for dag_id in dag_ids if self.has(dag_id, name)}

    def hidden_of(self, dag_ids: Iterable[str]) -> list[str]:
        """Return the kinds of things of some DAGs that the user may not read, for people."""
        if self.events and not any(self.hidden.values()):
            # It runs for each of a thousand pipelines.
            return []
        listed = list(dag_ids)
        names = [
            name for name in (RUNS, TASKS, XCOMS, LOGS) if len(self.with_kind(name, listed)) < len(listed)
        ]
        return names if self.events else [*names, EVENTS]


#: The rights to read everything.
EVERYTHING = Rights()


@dataclass(frozen=True)
class Stored:
    """What the database holds about some pipelines, and the user may read.

    :param runs: of each DAG the newest run, the newest finished one, and the newest finished one without a
        form, other than dry runs; or others
    :param tasks: the task instances of these runs that are in :data:`~.queries.NOTABLE` states
    :param values: XComs of these runs, see :data:`KEYS`
    :param events: the newest event of each pipeline, and of others, which do not count
    :param rights: why something is missing
    """

    dags: Mapping[str, Dag]
    pipelines: Sequence[Declared]
    runs: Sequence[Run] = ()
    tasks: Sequence[Task] = ()
    values: Sequence[Value] = ()
    events: Sequence[Event] = ()
    rights: Rights = EVERYTHING


@dataclass
class _Facts:
    """What one run left behind.

    :param is_complete: whether the user may read all that the outcome of a pipeline depends on
    :param has_logs: whether the user may read the logs of its tasks
    """

    run: Run
    is_complete: bool = True
    has_logs: bool = True
    tasks: list[Task] = field(default_factory=list)
    #: What the tasks published, by pipeline and task: the map index, and the value.
    published: dict[tuple[str, str], tuple[int, dict[str, Any]]] = field(default_factory=dict)
    #: What the detection found, by pipeline.
    detected: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: By task and map index.
    errors: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def published_by(self, pipeline: Declared) -> tuple[str, int, dict[str, Any]] | None:
        """Return the last task of a pipeline that published, its map index, and the value."""
        for task_id in reversed(pipeline.task_ids):
            if (found := self.published.get((pipeline.pipeline, task_id))) is not None:
                return task_id, *found
        return None


@dataclass(frozen=True)
class _Outcome:
    """What one run means for one pipeline.

    :param state: ``success``, ``failed``, ``retrying`` or ``running``; ``hidden`` if the user may not read
        what it depends on
    :param task: the task instance that failed, or that runs
    :param is_blocked: whether that task is not the pipeline's own, but stopped the run before it
    """

    run: Run
    state: str
    task: Task | None = None
    error: dict[str, Any] | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    is_blocked: bool = False
    has_logs: bool = True

    @property
    def is_dry_run(self) -> bool:
        """Whether the run wrote nothing for the pipeline: by its form, or by the options of the task."""
        return self.run.is_dry_run or "is_dry_run" in self.figures

    @property
    def decides(self) -> bool:
        """Whether the state of the pipeline comes from the run.

        It does not come from a dry run, or from a run with a form that failed before it worked on the
        pipeline: the next run without that form may well succeed.
        """
        has_worked = (
            self.task is not None
            and not self.is_blocked
            and (self.error or {}).get("class") != "InvalidConfiguration"
        )
        is_broken = self.state in ("failed", "retrying")
        return not self.is_dry_run and (has_worked or not is_broken or not self.run.has_form)


# -- what a pipeline is -----------------------------------------------------------------------------
def by_id(pipelines: Iterable[Declared]) -> dict[str, list[Declared]]:
    """Return the pipelines of DAGs by their ids: the name, and the target.

    The name alone may be that of several pipelines. Where a DAG does not hold the target, another DAG of its
    group may; otherwise the group stands for it.
    """
    listed = list(pipelines)
    of_group = {(one.pipeline, one.group): one.target for one in listed if one.group and one.target}
    found: dict[str, list[Declared]] = defaultdict(list)
    for one in listed:
        place = one.target or (one.group and of_group.get((one.pipeline, one.group), one.group))
        found[f"{one.pipeline}@{place}" if place else one.pipeline].append(one)
    return found


def of(pipelines: Iterable[Declared], name: str) -> list[Declared]:
    """Return one pipeline of each of its DAGs, by its id; by a name, all pipelines that have it."""
    found = by_id(pipelines)
    return found.get(name) or [one for ones in found.values() for one in ones if one.pipeline == name]


def _ids(pipelines: Iterable[Declared]) -> dict[tuple[str, str, str], str]:
    """Return the ids by name, DAG and task."""
    return {
        (one.pipeline, one.dag_id, task_id): key
        for key, ones in by_id(pipelines).items()
        for one in ones
        for task_id in one.task_ids
    }


def select_events(events: Iterable[Event], pipelines: Iterable[Declared]) -> list[tuple[str, Event]]:
    """Return the events that tasks of some pipelines published, each with the id of its pipeline.

    An event of a DAG that the user may not read does not count.

    :param pipelines: those of DAGs that the user may read
    """
    ids = _ids(pipelines)
    found = [(ids.get((event.pipeline, event.dag_id, event.task_id)), event) for event in events]
    return [(key, event) for key, event in found if key is not None]


# -- figures ----------------------------------------------------------------------------------------
def figures(published: Mapping[str, Any], moment: datetime | None = None) -> dict[str, Any]:
    """Return the figures of one pipeline, from an XCom, a summary of a detection, or an event's extra.

    Whatever a release did not publish is missing, and a value of another type counts as missing. What a dry
    run would do is missing, too: the range and the rows.

    :param moment: when they were published, if they don't say so themselves
    """
    ingested, lag = _mapping(published.get("ingested")), _mapping(published.get("lag"))
    counts, of_ingest = _mapping(published.get("counts")), _mapping(ingested.get("counts"))
    tables = {name: _text(published.get(name)) for name in ("source", "target")}
    seconds = _mapping(published.get("seconds"))
    found: dict[str, Any] = {
        "source": _text(published.get("source_table")) or tables["source"],
        "target": _text(published.get("target_table"))
        or tables["target"]
        or _text(published.get("log_table")),
        "as_of": _text(published.get("timestamp")) or _iso(moment),
        "readable_until": _text(lag.get("readable_until")),
        "seconds": {name: value for name, value in seconds.items() if _is_number(value)} or None,
        "is_dry_run": True if "dry_run" in published else None,
        "held": list(_held(published)) or None,
        **{name: _if_number(published.get(name)) for name in _VERSIONS},
        **{name: _if_number(lag.get(key)) for name, key in _LAG.items()},
    }
    if found["is_dry_run"]:
        found |= dict.fromkeys(("starting_version", "ending_version"))
    elif "counts" in published or of_ingest:
        found["rows"] = {name: _number(counts.get(name)) for name in _ROWS}
        found["newly_quarantined"] = list(_newly_quarantined(published))
        found["quarantined"] = sum(one["rows"] for one in found["newly_quarantined"])
        found["left_out"] = left_out.columns_in({**of_ingest, **counts})
        found["rules"] = {name: _number(count) for name, count in broken_in(counts)}
        found["differing"] = _differing(published.get("shadow"))
    then = _moment(found["as_of"])
    if _number(lag.get("seconds")) and then is not None:
        found["behind_since"] = _iso(_before(then, lag["seconds"]))
    return {name: value for name, value in found.items() if value is not None}


def _newly_quarantined(published: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the number of rows that the last run put into each quarantine, and its table."""
    for part in (_mapping(published.get("ingested")), published):
        rows = _number(_mapping(part.get("counts")).get("quarantined"))
        if rows:
            log, target = (_text(part.get(name)) for name in ("log_table", "target_table"))
            yield {"rows": rows, "table": target or log or "<table>", "is_log": log is not None}


def _held(published: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the number of rows that each quarantine had at the end of a run or a detection, and its table."""
    for part in (_mapping(published.get("ingested")), published):
        given = part.get("in_quarantine")
        for one in map(_mapping, given if isinstance(given, list) else [given]):
            table = _text(one.get("table"))
            if table is not None and _is_number(one.get("rows")):
                yield {"rows": int(one["rows"]), "table": table, "is_log": one.get("is_log") is True}


def _differing(comparisons: Any) -> list[str]:
    """Return the pairs of a pipeline and its shadow whose rows differ."""
    found = map(_mapping, comparisons) if isinstance(comparisons, list) else ()
    return [
        f"{_text(one.get('original'))} and its shadow {_text(one.get('shadow'))}"
        for one in found
        if one.get("status") == "differing"
    ]


def _merged(*known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the newest figures; where the newest lack the tables' names, those of older ones."""
    newest: dict[str, Any] = dict(next((one for one in known if one), {}))
    for name in ("source", "target"):
        value = next((one[name] for one in known if one.get(name)), None)
        if value is not None:
            newest[name] = value
    return newest


# -- runs -------------------------------------------------------------------------------------------
def _facts(stored: Stored, memo: Memo) -> dict[str, list[_Facts]]:
    """Return the facts of the runs of each DAG, the newest run first."""
    rights = stored.rights
    tasks: dict[tuple[str, str], list[Task]] = defaultdict(list)
    for task in stored.tasks:
        tasks[task.dag_id, task.run_id].append(task)
    values: dict[int, list[Value]] = defaultdict(list)
    for value in stored.values:
        values[value.run].append(value)
    by_dag: dict[str, list[_Facts]] = defaultdict(list)
    for run in sorted(stored.runs, key=lambda run: run.id, reverse=True):
        readable = rights.has(run.dag_id, TASKS, XCOMS), rights.has(run.dag_id, LOGS)
        left = tasks[run.dag_id, run.run_id], values[run.id]
        by_dag[run.dag_id].append(memo.of((_facts_of, run.id, readable), _facts_of, run, *readable, *left))
    return by_dag


def _facts_of(
    run: Run, is_complete: bool, has_logs: bool, tasks: list[Task], values: Iterable[Value]
) -> _Facts:
    """Return the facts of one run."""
    facts = _Facts(run, is_complete, has_logs, tasks)
    for value in values:
        if not isinstance(value.value, dict):
            continue
        if value.key == TABLES_KEY:
            facts.detected |= {name: one for name, one in value.value.items() if isinstance(one, dict)}
        elif value.key == ERROR_KEY:
            facts.errors[value.task_id, value.map_index] = value.value
        elif isinstance(value.value.get("pipeline"), str):
            facts.published[value.value["pipeline"], value.task_id] = value.map_index, value.value
    return facts


def _outcome(pipeline: Declared, facts: _Facts) -> _Outcome | None:
    """Return what a run means for a pipeline; None if the run left the pipeline out."""
    tables = facts.run.tables
    detected = facts.detected.get(pipeline.pipeline)
    is_named = pipeline.pipeline in tables or not any(name == "tables" for name, _ in pipeline.form)
    # A pipeline with several sources that the form names includes those.
    if tables and not is_named and detected is None:
        return None
    *_, published = facts.published_by(pipeline) or (None,)
    if published is None and detected is not None and detected.get("status") == "left out":
        return None
    if published is not None:
        shown = figures(published, facts.run.end or facts.run.start)
    else:
        shown = figures(detected, facts.run.start) if detected is not None else {}
    if not facts.is_complete:
        # The run itself tells only if all of it succeeded, or if it is not at its end.
        known = {"success": "success", "failed": "hidden"}.get(facts.run.state, "running")
        return _Outcome(facts.run, known, figures=shown, has_logs=facts.has_logs)
    own = [task for task in facts.tasks if _is_of(task, pipeline)]
    blocked = [task for task in own if task.state != "upstream_failed"] or (
        _others(facts, pipeline) if own or _is_unknown(pipeline, facts) else []
    )
    for names, state in (
        (("failed", "upstream_failed"), "failed"),
        (("up_for_retry",), "retrying"),
    ):
        task = next((task for task in blocked if task.state in names), None)
        if task is not None:
            error = facts.errors.get((task.task_id, task.map_index))
            return _Outcome(facts.run, state, task, error, shown, task not in own, facts.has_logs)
    is_done = published is not None or (detected is not None and detected.get("status") == "nothing")
    if facts.run.state in _FINISHED or (is_done and not own):
        is_failed = facts.run.state == "failed" and _is_unknown(pipeline, facts)
        return _Outcome(facts.run, "failed" if is_failed else "success", None, None, shown)
    return _Outcome(facts.run, "running", own[0] if own else None, None, shown, has_logs=facts.has_logs)


def _is_of(task: Task, pipeline: Declared) -> bool:
    if task.task_id not in pipeline.task_ids:
        return False
    return not pipeline.is_mapped or task.map_index < 0 or task.name == pipeline.pipeline


def _is_unknown(pipeline: Declared, facts: _Facts) -> bool:
    """Return whether the run has ended before it knew anything about the pipeline."""
    return facts.published_by(pipeline) is None and pipeline.pipeline not in facts.detected


def _others(facts: _Facts, pipeline: Declared) -> list[Task]:
    """Return the tasks of a run that may have stopped it before the pipeline's own task."""
    return [
        task
        for task in facts.tasks
        if task.task_id not in pipeline.task_ids and task.state != "upstream_failed"
    ]


# -- the overview -----------------------------------------------------------------------------------
@dataclass
class _Lasting:
    """What holds for a pipeline at any time, as long as the rows of the database are the same.

    :param item: the pipeline, without its state and its findings
    :param last: the run that decides about it
    """

    item: dict[str, Any]
    last: _Outcome | None
    #: What the list shows of the pipeline, as JSON, by state.
    listed: dict[str, str] = field(default_factory=dict)


def overview(stored: Stored, now: datetime) -> dict[str, Any]:
    """Return all pipelines, the most urgent first, with totals."""
    ranked = _ranked(stored, now, Memo())
    return {
        **_totals(stored, ranked, now),
        "pipelines": [_whole(one, state, now) for state, one in ranked],
    }


def listed(stored: Stored, now: datetime, memo: Memo) -> str:
    """Return the overview as JSON, with only what the list shows: a thousand pipelines are one answer.

    :param memo: what earlier calls made of the same rows
    """
    ranked = _ranked(stored, now, memo)
    totals = as_json(_totals(stored, ranked, now))
    return f'{totals[:-1]},"pipelines":[{",".join(_listed(one, state) for state, one in ranked)}]}}'


def _ranked(stored: Stored, now: datetime, memo: Memo) -> list[tuple[str, _Lasting]]:
    """Return all pipelines with their states, the most urgent first."""
    facts, rights, dags = _facts(stored, memo), stored.rights, stored.dags
    events = dict(select_events(stored.events, stored.pipelines))
    found = []
    for key, declared_in in by_id(stored.pipelines).items():
        dag_ids = [one.dag_id for one in declared_in]
        hidden = rights.hidden_of(dag_ids)
        left = [dags[dag_id] for dag_id in dag_ids], [facts.get(dag_id, []) for dag_id in dag_ids]
        # Users with other rights see it otherwise.
        place = (_lasting, key, *dag_ids, *hidden)
        one = memo.of(place, _lasting, key, declared_in, *left, events.get(key), hidden)
        found.append((_state(one.item, one.last, now), one))
    return sorted(found, key=lambda both: (STATES.index(both[0]), both[1].item["id"]))


def _totals(stored: Stored, ranked: Sequence[tuple[str, _Lasting]], now: datetime) -> dict[str, Any]:
    items = [one.item for _, one in ranked]
    states = Counter(state for state, _ in ranked)
    rows = [item["rows"] for item in items if "rows" in item]
    known = {
        # Of a release that published only what its last run put there, this is what is known.
        "quarantined": [item.get("held_rows", item.get("quarantined")) for item in items],
        "lag_versions": [item.get("lag_versions") for item in items],
    }
    sums = {name: [number for number in numbers if number is not None] for name, numbers in known.items()}
    return {
        "as_of": _iso(now),
        "hidden": stored.rights.hidden_of({one.dag_id for one in stored.pipelines}),
        "totals": {
            "pipelines": len(items),
            "states": {state: states[state] for state in STATES},
            # Without a number that is known, the sum is unknown.
            **({"rows": {name: sum(one[name] for one in rows) for name in _ROWS}} if rows else {}),
            **{name: sum(numbers) for name, numbers in sums.items() if numbers},
        },
    }


def _whole(lasting: _Lasting, state: str, now: datetime) -> dict[str, Any]:
    """Return all about a pipeline."""
    item = {**lasting.item, "state": state}
    return {**item, "findings": [*_failures(lasting.last), *_findings(item, now)]}


def _listed(lasting: _Lasting, state: str) -> str:
    """Return what the list shows of a pipeline, as JSON. Of the findings, that is the failure."""
    known = lasting.listed.get(state)
    if known is None:
        shown = {name: value for name, value in lasting.item.items() if name not in _OF_ONE}
        failures = _failures(lasting.last)
        known = as_json({**shown, "state": state, **({"findings": failures} if failures else {})})
        lasting.listed[state] = known
    return known


def _lasting(
    key: str,
    declared_in: Sequence[Declared],
    dags: Sequence[Dag],
    facts: Sequence[Sequence[_Facts]],
    event: Event | None,
    hidden: list[str],
) -> _Lasting:
    """Return one pipeline.

    :param dags: each DAG that has it, in the order of ``declared_in``
    :param facts: of the runs of each of them
    :param hidden: the kinds of things that the user may not read, for people
    """
    outcomes = sorted(
        (
            outcome
            for one, of_dag in zip(declared_in, facts, strict=True)
            for of_run in of_dag
            if (outcome := _outcome(one, of_run)) is not None and outcome.decides
        ),
        key=lambda outcome: outcome.run.id,
        reverse=True,
    )
    last = outcomes[0] if outcomes else None
    # The scheduled DAG stands for the pipeline, not the one for backfills.
    places = list(zip(declared_in, dags, strict=True))
    main, of_main = next((both for both in places if both[1].has_schedule), places[0])
    item = {
        "id": key,
        "pipeline": main.pipeline,
        "group": main.group,
        "dag_id": main.dag_id,
        "is_paused": of_main.is_paused,
        "dags": [
            {"dag_id": one.dag_id, "form": dict(one.form), "is_paused": dag.is_paused} for one, dag in places
        ],
        **_shown(declared_in, outcomes, event),
        "hidden": hidden,
    }
    if last is not None:
        item["run"] = _run(last)
        if last.error is not None:
            item["error"] = {key: str(last.error.get(key, "")) for key in ("class", "message", "remedy")}
    return _Lasting(item, last)


def _shown(
    declared_in: Sequence[Declared], outcomes: Sequence[_Outcome], event: Event | None
) -> dict[str, Any]:
    """Return the figures of one pipeline.

    :param outcomes: of its runs, the newest first
    """
    last = outcomes[0] if outcomes else None
    declared = {
        name: text for one in declared_in for name, text in (("source", one.source), ("target", one.target))
    }
    known = [outcome.figures for outcome in outcomes if "version" in outcome.figures]
    of_event = _of_event(event, known)
    is_newer = not known or (of_event.get("as_of", "") > known[0].get("as_of", ""))
    shown = _merged(*([of_event] if is_newer else []), *known, of_event, declared)
    shown |= _now_held(outcomes, event)
    if last is not None and last.figures:
        shown |= {
            name: last.figures[name]
            for name in ("rows", "quarantined", "newly_quarantined", "rules", "left_out", "differing")
            if name in last.figures
        }
    if last is not None and last.state in ("failed", "retrying", "hidden"):
        unknown = [name for name in _OF_LAST_RUN if name not in last.figures]
        shown = {name: value for name, value in shown.items() if name not in unknown}
        if "readable_until" in shown and _is_older(shown, last):
            if shown.get("as_of"):
                shown["readable_as_of"] = shown["as_of"]
            else:
                del shown["readable_until"]
    return shown


def _now_held(outcomes: Sequence[_Outcome], event: Event | None) -> dict[str, Any]:
    """Return what each quarantine of a pipeline holds, by the newest figures that say so.

    Only a commit of the pipeline changes it, so a run that publishes nothing of it leaves it as it was.
    """
    known = [outcome.figures for outcome in outcomes if "held" in outcome.figures]
    if event is not None and "in_quarantine" in event.extra:
        known.append(figures(event.extra, event.timestamp))
    if not known:
        return {}
    found: dict[str, dict[str, Any]] = {}
    # The newest run is the first one, also of two of the same second.
    known.reverse()
    for one in sorted(known, key=lambda one: one.get("as_of", "")):
        found |= {held["table"]: held for held in one.get("held", ())}
    return {"held": list(found.values()), "held_rows": sum(held["rows"] for held in found.values())}


def _is_older(shown: Mapping[str, Any], last: _Outcome) -> bool:
    """Return whether figures are older than a run: the source may have newer versions by then."""
    if {"lag_versions", "readable_until"} & last.figures.keys():
        return False
    moment = _moment(shown.get("as_of"))
    return moment is None or last.run.start is None or moment < last.run.start


def _of_event(event: Event | None, known: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of an event; none if those of the runs are newer, and complete.

    :param known: the figures of the runs, the newest first
    """
    if event is None:
        return {}
    has_names = all(any(one.get(name) for one in known) for name in ("source", "target"))
    if known and has_names:
        as_of = _text(event.extra.get("timestamp")) or _iso(event.timestamp) or ""
        if as_of <= known[0].get("as_of", ""):
            return {}
    return figures(event.extra, event.timestamp)


def _run(outcome: _Outcome) -> dict[str, Any]:
    run, task = outcome.run, outcome.task
    # Of the pipeline's own task: other tables of the run may have taken longer.
    seconds = round(sum(stages.values()), 1) if (stages := outcome.figures.get("seconds")) else None
    if task is not None:
        seconds = None if outcome.is_blocked else _seconds(task.start, task.end)
    started = {
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "run_type": run.run_type,
        "state": outcome.state,
        "is_dry_run": outcome.is_dry_run,
        "started": _iso(run.start),
        "seconds": seconds,
    }
    if task is None:
        return started
    return {
        **started,
        "task_id": task.task_id,
        "map_index": task.map_index,
        "try_number": task.try_number,
        "has_log": outcome.has_logs,
    }


def _state(item: Mapping[str, Any], last: _Outcome | None, now: datetime) -> str:
    if last is not None and last.state in ("failed", "retrying", "hidden"):
        return last.state
    until, since = _moment(item.get("readable_until")), _moment(item.get("behind_since"))
    if until is not None and until < now + _WARNED:
        return "expiring"
    if since is not None and "freshness" in item and (now - since).total_seconds() > item["freshness"]:
        return "late"
    if last is not None and last.state == "running":
        # What the run before it left may be what it applies.
        return "running"
    if since is not None and "freshness" not in item:
        return "behind"
    if last is None and RUNS in item["hidden"]:
        return "hidden"
    if last is None:
        return "ok" if "version" in item else "never"
    return "ok"


def _failures(last: _Outcome | None) -> list[dict[str, str]]:
    failure = _failure(last) if last is not None else None
    return [failure] if failure is not None else []


def _failure(outcome: _Outcome) -> dict[str, str] | None:
    """Return why a run failed, with the remedy; None if it did not."""
    if outcome.state not in ("failed", "retrying"):
        return None
    task, error = outcome.task, outcome.error
    if error is not None:
        text, remedy = f"{error.get('class', '')}: {error.get('message', '')}", str(error.get("remedy", ""))
    else:
        # Errors of other packages are not stored, and a task that something killed stores nothing.
        name = f"Task {task.task_id}" if task is not None else f"The run {outcome.run.run_id}"
        text = f"{name} ended without a stored error."
        remedy = (
            "read the end of its log. If the log only stops there, something ended the task from outside: "
            "read the log of Airflow's scheduler or executor. A retry is safe."
        )
    if task is not None and outcome.is_blocked:
        text = f"Not run, because task {task.task_id} failed: {text}"
        remedy = f"for task {task.task_id}: {remedy}"
    return {"level": "error", "text": text, "remedy": remedy}


def _findings(item: Mapping[str, Any], now: datetime) -> Iterator[dict[str, str]]:
    """Yield what else needs attention, each with its remedy, the most urgent first."""
    until = _moment(item.get("readable_until"))
    if until is not None and until < now + _WARNED:
        as_of = item.get("readable_as_of")
        older = f", as of {as_of}; newer changes may go earlier" if as_of else ""
        yield {
            "level": "error" if until < now else "warning",
            "text": "The versions that the pipeline needs next can be read until "
            f"{item['readable_until']}{older}.",
            "remedy": "run it before; after that, a run with mode reload brings the target to its source.",
        }
    if item.get("behind_since"):
        yield {
            "level": "warning" if item["state"] in ("late", "behind") else "note",
            "text": f"{item.get('lag_versions', 'Some')} versions are not applied; the oldest change is of "
            f"{item['behind_since']}{_allowed(item)}.",
            "remedy": _catching_up(item),
        }
    yield from _quarantined(item)
    if names := item.get("left_out"):
        yield {"level": "warning", "text": left_out.sentence(names), "remedy": left_out.REMEDY}
    for name, number in item.get("rules", {}).items():
        yield {
            "level": "warning",
            "text": f"{plural(number, 'row')} of the last run broke the rule {name}.",
            "remedy": "correct them at the source; or change the rule, after delta-cdc rules try.",
        }
    for pair in item.get("differing", []):
        yield {
            "level": "warning",
            "text": f"Their rows differ: {pair}.",
            "remedy": "look at the differences: delta-cdc shadow compare --all.",
        }
    if item["is_paused"]:
        text = f"{item['dag_id']} is paused: no scheduled run starts."
        yield {"level": "note", "text": text, "remedy": "unpause it when runs are wanted."}
    if item["state"] == "never":
        text = "No run has worked on the pipeline yet."
        yield {"level": "note", "text": text, "remedy": "start a run: the first one loads the target."}


def _quarantined(item: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield a finding for each quarantine that has rows, as far as it is known; else for what the last run
    put there."""
    known = item.get("held", ())
    counted = {one["table"] for one in known}
    texts = [(one, "") for one in known if one["rows"]]
    texts += [
        (one, "The last run put ") for one in item.get("newly_quarantined", ()) if one["table"] not in counted
    ]
    for one, text in texts:
        yield {
            "level": "warning",
            "text": f"{text}{where_rows_are(one['rows'], one['table'])}",
            "remedy": then_repair(is_log=one["is_log"]),
        }


def earlier_quarantined(events: Sequence[Event], item: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield a finding for each quarantine that commits before those of the item's figures put rows into.

    It is about quarantines of which no run has published how many rows they have now.

    :param events: of one pipeline, the newest first
    :param item: the pipeline
    """
    of_item = {(item.get("as_of"), one["table"]) for one in item.get("newly_quarantined", ())}
    counted = {one["table"] for one in item.get("held", ())}
    held: dict[str, dict[str, Any]] = {}
    for event in events:
        known = figures(event.extra, event.timestamp)
        for one in known.get("newly_quarantined", ()):
            if (known["as_of"], one["table"]) in of_item or one["table"] in counted:
                continue  # These rows have a finding of their own.
            newest = held.setdefault(one["table"], {**one, "rows": 0, "as_of": known["as_of"]})
            newest["rows"] += one["rows"]
    for table, one in held.items():
        yield {
            "level": "note",
            "text": f"Earlier commits (below) put {where_rows_are(one['rows'], table)} "
            f"The newest of these commits is of {one['as_of']}.",
            "remedy": f"{_HOW_MANY}."
            if table in {place for _, place in of_item}
            else f"{_HOW_MANY}. If there are any, {then_repair(is_log=one['is_log'])}",
        }


def _catching_up(item: Mapping[str, Any]) -> str:
    if item["state"] in ("failed", "retrying"):
        return "correct the cause of the failed run. The next run applies the changes."
    if item["state"] == "running":
        return "wait for the end of the active run."
    if item["is_paused"]:
        return f"unpause {item['dag_id']}, or start a run."
    return "start a run; a limit of versions or bytes per run leaves the rest for the next one."


def _allowed(item: Mapping[str, Any]) -> str:
    return f", and freshness is {item['freshness']:g} s" if "freshness" in item else ""


# -- one pipeline -----------------------------------------------------------------------------------
def commits(events: Iterable[Event], rights: Rights = EVERYTHING) -> list[dict[str, Any]]:
    """Return the commits of a pipeline, in the order of the events.

    :param rights: those of the user, who may read the events
    """
    return [
        {
            **figures(event.extra, event.timestamp),
            **(_describe_run(event, rights) if rights.has(event.dag_id, RUNS) else {}),
        }
        for event in events
    ]


def _describe_run(event: Event, rights: Rights) -> dict[str, Any]:
    """Return the run of an event, and its task, as far as the user may read them."""
    of_run = {"dag_id": event.dag_id, "run_id": event.run_id}
    if not rights.has(event.dag_id, TASKS):
        return of_run
    return {
        **of_run,
        "task_id": event.task_id,
        "map_index": event.map_index,
        "started": _iso(event.start),
        "task_seconds": _seconds(event.start, event.end),
        "has_log": rights.has(event.dag_id, LOGS),
    }


def runs(stored: Stored) -> list[dict[str, Any]]:
    """Return what each run meant for one pipeline, the newest first."""
    facts = _facts(stored, Memo())
    outcomes = [
        outcome
        for one in stored.pipelines
        for of_run in facts.get(one.dag_id, ())
        if (outcome := _outcome(one, of_run)) is not None
    ]
    outcomes.sort(key=lambda outcome: outcome.run.id, reverse=True)
    return [
        {**_run(outcome), "failure": _failure(outcome), "figures": outcome.figures} for outcome in outcomes
    ]


def describe_task(stored: Stored, task_id: str, map_index: int) -> list[dict[str, Any]]:
    """Return what one task instance meant for its pipelines; a task of a whole group, for all of the group.

    :param stored: one run
    """
    (facts,) = (one for some in _facts(stored, Memo()).values() for one in some)
    at = (task_id, map_index)
    names = {task.name for task in facts.tasks if (task.task_id, task.map_index) == at}
    own = [one for one in stored.pipelines if task_id in one.task_ids]
    ids = _ids(stored.pipelines)
    outcomes = [
        (pipeline, outcome)
        for pipeline in own or stored.pipelines
        if task_id not in pipeline.task_ids
        or not pipeline.is_mapped
        or (facts.published_by(pipeline) or ())[:2] == at
        or pipeline.pipeline in names
        if (outcome := _outcome(pipeline, facts)) is not None
    ]
    return [
        {
            "id": ids[pipeline.pipeline, pipeline.dag_id, pipeline.task_ids[0]],
            "pipeline": pipeline.pipeline,
            "state": outcome.state,
            "is_dry_run": outcome.is_dry_run,
            "failure": _failure(outcome),
            "figures": outcome.figures,
        }
        for pipeline, outcome in outcomes
    ]


def trends(events: Iterable[Event], pipelines: Iterable[Declared]) -> dict[str, list[int]]:
    """Return the rows that the last commits of each pipeline moved, the oldest first, by its id."""
    found: dict[str, list[int]] = defaultdict(list)
    for key, event in select_events(events, pipelines):
        found[key].append(sum(figures(event.extra).get("rows", {}).values()))
    return {key: numbers[::-1] for key, numbers in found.items()}


# -- values -----------------------------------------------------------------------------------------
def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat(timespec="seconds") if moment is not None else None


def _moment(text: Any) -> datetime | None:
    """Return a time in UTC; None without one, or if it is outside the years that Python knows."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) and text else None
        if moment is None:
            return None
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _before(moment: datetime, seconds: float) -> datetime | None:
    """Return an earlier time; None if it is outside the years that Python knows."""
    try:
        return moment - timedelta(seconds=seconds)
    except OverflowError:
        return None


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return round((end - start).total_seconds(), 1) if start is not None and end is not None else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _is_number(value: Any) -> bool:
    # By the type itself, because this runs for each figure of each pipeline: JSON has no other numbers.
    # An XCom may hold any number, also NaN and infinities.
    return type(value) in _NUMBERS and _LEAST < value < _GREATEST


def _if_number(value: Any) -> Any:
    return value if _is_number(value) else None


def _number(value: Any) -> int:
    return int(value) if _is_number(value) else 0
