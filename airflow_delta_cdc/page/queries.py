"""The rows of Airflow's metadata database that the page shows.

Most queries are bounded, whatever the age of the database: by the newest runs and events, or by primary keys.
Two are not: see :func:`_newest_versions` and :func:`_newest_run_ids`.
"""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from airflow.models.asset import AssetAliasModel, AssetEvent, asset_alias_asset_event_association_table
from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import Text, and_, case, cast, func, or_, select, union_all

from airflow_delta_cdc.assets import ALIAS_OF_PIPELINE
from airflow_delta_cdc.page.declared import EXPLAINING, Declared, Explaining, declared, explaining
from airflow_delta_cdc.page.state import (
    KEYS,
    PUBLISHED_KEY,
    RUNS,
    TASKS,
    XCOMS,
    Dag,
    Event,
    Rights,
    Run,
    Stored,
    Task,
    Value,
    select_events,
)
from delta_cdc.core.codec import TooDeep, UnreadableJson, parsed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from sqlalchemy.orm import Session


#: States of task instances that the page looks at; all others mean that nothing is wrong, or nothing began.
NOTABLE = ("failed", "upstream_failed", "up_for_retry", "running", "deferred", "restarting")
#: Among so many of the newest runs of all DAGs, the newest run of each DAG is searched first.
_NEWEST_RUNS = 20_000
#: Runs and events of one pipeline, and events of a trend.
_MOST_RUNS, _MOST_EVENTS, _MOST_OF_A_TREND = 30, 200, 20
#: XComs whose Python objects a process keeps, and the most characters of one; most have fewer than 1,000.
_MOST_KEPT, _LONGEST_KEPT = 5_000, 8_000
#: Serialized DAGs, and events, that one statement loads.
_AT_ONCE, _EVENTS_AT_ONCE = 200, 10_000

#: What the serialized form of a DAG contains that has or explains pipelines.
_SOUGHT = (ALIAS_OF_PIPELINE, *EXPLAINING)
#: What the page reads of a serialized DAG.
_Found = tuple[tuple[Declared, ...], tuple[Explaining, ...]]

_SERIALIZED = SerializedDagModel.metadata.tables["serialized_dag"]
#: Whether a run has arguments. Airflow stores an empty form as {}, or as no value at all.
_HAS_CONF: Any = func.coalesce(cast(DagRun.conf, Text), "null").not_in(("{}", "null"))
#: Whether the form of a run says that it writes nothing. Most runs have no form, which the first part finds
#: without a look into JSON.
#: SQLite has 1 for the ``true`` of JSON. A cast to boolean would fail for other values.
_IS_DRY_RUN: Any = and_(
    _HAS_CONF, func.coalesce(cast(DagRun.conf["dry_run"].as_string(), Text), "").in_(("true", "1"))
)
#: Whether a person filled in the form of a run.
_HAS_FORM: Any = and_(DagRun.run_type == "manual", _HAS_CONF)
_OF_ALIAS = asset_alias_asset_event_association_table


class Declarations:
    """The pipelines of all DAGs, read again only for a DAG whose serialized form has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Found] = {}
        self._lock = Lock()

    def all(self, session: Session) -> tuple[dict[str, Dag], list[Declared], list[Explaining]]:
        """Return the DAGs that have or explain pipelines, by their ids, and both kinds of entries."""
        newest = _newest_versions(session)
        with self._lock:
            # Other requests wait: they would read the same.
            missing = {row.id: (row.dag_id, row.dag_hash) for row in newest if _key(row) not in self._known}
            known = {_key(row): self._known[_key(row)] for row in newest if _key(row) in self._known}
            self._known = known | _loaded(session, missing)
            found = [(row, self._known[_key(row)]) for row in newest]
        dags = {
            row.dag_id: Dag(row.dag_id, bool(row.is_paused), row.timetable_summary not in (None, "None"))
            for row, one in found
            if any(one)
        }
        pipelines = [declared for _, one in found for declared in one[0]]
        return dags, pipelines, [explaining for _, one in found for explaining in one[1]]


def _key(row: Any) -> tuple[str, str]:
    return row.dag_id, row.dag_hash


def _newest_versions(session: Session) -> Sequence[Any]:
    """Return the newest serialized form of each DAG, searched among all versions of all DAGs."""
    newest = (
        select(DagVersion.dag_id, func.max(DagVersion.version_number).label("number"))
        .group_by(DagVersion.dag_id)
        .subquery()
    )
    return session.execute(
        select(
            SerializedDagModel.id,
            SerializedDagModel.dag_id,
            SerializedDagModel.dag_hash,
            DagModel.is_paused,
            DagModel.timetable_summary,
        )
        .join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
        .join(
            newest,
            and_(DagVersion.dag_id == newest.c.dag_id, DagVersion.version_number == newest.c.number),
        )
        .join(DagModel, DagModel.dag_id == SerializedDagModel.dag_id)
        .where(~DagModel.is_stale)
        .order_by(SerializedDagModel.dag_id)
    ).all()


def _loaded(session: Session, missing: dict[UUID, tuple[str, str]]) -> dict[tuple[str, str], _Found]:
    """Read the pipelines of some serialized DAGs; most DAGs of an Airflow have none."""
    found: dict[tuple[str, str], _Found] = dict.fromkeys(missing.values(), ((), ()))
    ids = list(missing)
    for at in range(0, len(ids), _AT_ONCE):
        for dag_id, dag_hash, data in _serialized(session, ids[at : at + _AT_ONCE]):
            found[dag_id, dag_hash] = declared(dag_id, data or {}), explaining(dag_id, data or {})
    return found


def _serialized(session: Session, ids: Sequence[UUID]) -> Iterator[tuple[str, str, Any]]:
    """Yield the serialized DAGs among some that may have or explain pipelines: id, hash, and content."""
    columns = _SERIALIZED.c
    # Not as entities, whose contents would all be there at once: the collection of garbage takes longer
    # than the rest.
    plain = session.execute(
        select(columns.dag_id, columns.dag_hash, columns.data).where(
            columns.id.in_(ids), or_(*(cast(columns.data, Text).like(f"%{text}%") for text in _SOUGHT))
        )
    )
    yield from (tuple(row) for row in plain)
    # The text of these cannot be searched. Their column for data has the null of JSON.
    compressed = select(SerializedDagModel).where(columns.id.in_(ids), columns.data_compressed.is_not(None))
    yield from ((one.dag_id, one.dag_hash, one.data) for one in session.scalars(compressed))


def stored(session: Session, dags: dict[str, Dag], pipelines: Sequence[Declared], rights: Rights) -> Stored:
    """Return what a user may see of some pipelines: of the newest runs, and of their newest events."""
    dag_ids = rights.with_kind(RUNS, {one.dag_id for one in pipelines})
    of_runs = _read_runs(session, _newest_run_ids(session, dag_ids), pipelines, rights)
    return Stored(
        dags=dags,
        pipelines=pipelines,
        # Pipelines of the same name share an alias, whose newest event is that of only one of them. The
        # others have what their runs published.
        events=_newest_events(session, of_runs) if rights.events else (),
        **of_runs,
    )


def history(
    session: Session, dags: dict[str, Dag], pipelines: Sequence[Declared], rights: Rights
) -> tuple[Stored, list[Event]]:
    """Return the newest runs and events of one pipeline that a user may see.

    :param pipelines: that pipeline, in each DAG that has it
    """
    dag_ids = [one.dag_id for one in pipelines]
    ids = session.scalars(
        select(DagRun.id)
        .where(DagRun.dag_id.in_(rights.with_kind(RUNS, dag_ids)))
        .order_by(DagRun.id.desc())
        .limit(_MOST_RUNS)
    ).all()
    names = {pipelines[0].pipeline}
    published = events_of(session, names, dag_ids, most=_MOST_EVENTS) if rights.events else []
    # Other pipelines may have the same name.
    events = [event for _, event in select_events(published, pipelines)]
    of_runs = _read_runs(session, ids, pipelines, rights)
    return Stored(dags=dags, pipelines=pipelines, events=events[:1], **of_runs), events


def one_run(
    session: Session, dags: dict[str, Dag], pipelines: Sequence[Declared], run_id: str, rights: Rights
) -> Stored | None:
    """Return one run of a DAG; None if it does not exist, or the user may not read it.

    :param pipelines: those of the DAG
    """
    number = session.scalar(
        select(DagRun.id).where(
            DagRun.dag_id.in_(rights.with_kind(RUNS, [pipelines[0].dag_id])), DagRun.run_id == run_id
        )
    )
    if number is None:
        return None
    return Stored(dags=dags, pipelines=pipelines, **_read_runs(session, [number], pipelines, rights))


# -- runs -------------------------------------------------------------------------------------------
def _newest_run_ids(session: Session, dag_ids: Collection[str]) -> set[int]:
    """Return the ids of the runs of each DAG that may decide about its pipelines, other than dry runs.

    These are the newest run, the newest finished one, and the newest finished one without a form: a run with
    a form may leave tables out, or fail before it works on any.

    They are searched among the newest runs of all DAGs; for a DAG without any there, among all its runs.
    """
    is_finished = DagRun.state.in_(("success", "failed"))
    finished, without_form = (
        case((when, DagRun.id)) for when in (is_finished, and_(is_finished, ~_HAS_FORM))
    )

    def of(some: Iterable[str]) -> Any:
        return (
            select(DagRun.dag_id, func.max(DagRun.id), func.max(finished), func.max(without_form))
            .where(DagRun.dag_id.in_(some), ~_IS_DRY_RUN)
            .group_by(DagRun.dag_id)
        )

    floor = select(func.max(DagRun.id) - _NEWEST_RUNS).scalar_subquery()
    rows = list(session.execute(of(dag_ids).where(DagRun.id > floor)))
    rest = set(dag_ids) - {row[0] for row in rows}
    if rest:
        rows += session.execute(of(rest))
    return {number for _, *numbers in rows for number in numbers if number is not None}


def _read_runs(
    session: Session, ids: Collection[int], pipelines: Sequence[Declared], rights: Rights
) -> dict[str, Any]:
    """Return runs by their ids, with their task instances and XComs, as arguments of :class:`Stored`.

    Of the values that tasks return, only those of the tasks of ``pipelines``: others may be large.
    """
    if not ids:
        return {"rights": rights}
    rows: Any = session.execute(
        select(
            *(DagRun.id, DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.run_type),
            *(DagRun.start_date, DagRun.end_date, _IS_DRY_RUN, _HAS_FORM, DagRun.conf),
        ).where(DagRun.id.in_(ids))
    )
    runs = [Run(*(*row[:-1], _chosen(row.conf))) for row in rows]

    def readable(kind: str) -> list[int]:
        return [run.id for run in runs if rights.has(run.dag_id, kind)]

    # Expressions for state and key, so that no database begins at the index of these columns: it has the rows
    # of all times.
    # A task without a name for its map index has its number here.
    name_of_index: Any = TaskInstance.rendered_map_index
    tasks: Any = session.execute(
        select(
            *(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.map_index),
            *(name_of_index, TaskInstance.state),
            *(TaskInstance.start_date, TaskInstance.end_date, TaskInstance.try_number),
        )
        .join(DagRun, and_(DagRun.dag_id == TaskInstance.dag_id, DagRun.run_id == TaskInstance.run_id))
        .where(DagRun.id.in_(readable(TASKS)), func.coalesce(TaskInstance.state, "").in_(NOTABLE))
    )
    key = func.coalesce(XComModel.key, "")
    values: Any = session.execute(
        select(
            *(XComModel.dag_run_id, XComModel.task_id, XComModel.map_index, XComModel.key),
            cast(XComModel.value, Text).label("text"),
        ).where(
            XComModel.dag_run_id.in_(readable(XCOMS)),
            key.in_(KEYS),
            or_(
                key != PUBLISHED_KEY,
                XComModel.task_id.in_({name for one in pipelines for name in one.task_ids}),
            ),
        )
    )
    return {
        "rights": rights,
        "runs": runs,
        "tasks": [Task(*row) for row in tasks],
        "values": [
            Value(row.dag_run_id, row.task_id, row.map_index, row.key, _value(row.text)) for row in values
        ],
    }


def _chosen(conf: Any) -> frozenset[str]:
    """Return the pipelines that the form of a run names; none if it names all, or is no form of ours."""
    names = conf.get("tables") if isinstance(conf, dict) else None
    return frozenset(one for one in names if isinstance(one, str)) if isinstance(names, list) else frozenset()


def _value(text: str | None) -> Any:
    """Return the value of an XCom; None if it cannot be read.

    :param text: the stored JSON
    """
    return _decoded(text) if text is None or len(text) > _LONGEST_KEPT else _kept(text)


@lru_cache(_MOST_KEPT)
def _kept(text: str) -> Any:
    """Return the same object for the same text; no caller changes it."""
    return _decoded(text)


def _decoded(text: str | None) -> Any:
    """Return the value of an XCom; None if it cannot be read.

    :param text: the stored JSON, which often is a string with the JSON of the value

    Airflow's own parser makes objects of any class that a value names. The page compares values, which not
    all objects allow (a DataFrame), and shows JSON alone: a NaN of a user's own value is None here.
    """
    if text is None:
        return None
    value: Any = text
    try:
        value = parsed(text, nan_is_none=True)
        return parsed(value, nan_is_none=True) if isinstance(value, str) else value
    except TooDeep:
        return None
    except UnreadableJson:
        # The text of a value that is a text.
        return value if value is not text else None


# -- events -----------------------------------------------------------------------------------------
def _newest_events(session: Session, of_runs: Mapping[str, Any]) -> list[Event]:
    """Return the newest event of each pipeline of this Airflow.

    A task returns all that it puts into its event. So the figures of an event are read only if those of its
    task are not known yet: most events come from the newest runs.

    :param of_runs: what :func:`_read_runs` has read
    """
    newest = (
        select(func.max(_OF_ALIAS.c.event_id))
        .where(_OF_ALIAS.c.alias_id == AssetAliasModel.id)
        .correlate(AssetAliasModel)
        .scalar_subquery()
    )
    listed = (
        select(newest.label("event_id"), AssetAliasModel.name)
        .where(AssetAliasModel.name.like(f"{ALIAS_OF_PIPELINE}%"))
        .subquery()
    )
    rows = session.execute(
        select(
            *(listed.c.name, listed.c.event_id),
            *(AssetEvent.source_dag_id, AssetEvent.source_run_id, AssetEvent.source_task_id),
            *(AssetEvent.source_map_index, AssetEvent.timestamp),
        ).join(listed, listed.c.event_id == AssetEvent.id)
    ).all()
    runs = {run.id: (run.dag_id, run.run_id) for run in of_runs.get("runs", ())}
    known = {
        (value.value.get("pipeline"), *runs[value.run], value.task_id, value.map_index): value.value
        for value in of_runs.get("values", ())
        if value.key == PUBLISHED_KEY and value.run in runs and isinstance(value.value, dict)
        # A person can edit an XCom.
        if isinstance(value.value.get("pipeline"), str)
    }
    unknown = [number for alias, number, *source, _ in rows if (_pipeline(alias), *source) not in known]
    extras: dict[int, Any] = {}
    for at in range(0, len(unknown), _EVENTS_AT_ONCE):
        some = unknown[at : at + _EVENTS_AT_ONCE]
        read = session.execute(select(AssetEvent.id, AssetEvent.extra).where(AssetEvent.id.in_(some)))
        extras |= {row.id: row.extra for row in read}
    return [
        _event(alias, *source, known.get((_pipeline(alias), *source)) or extras.get(number), timestamp)
        for alias, number, *source, timestamp in rows
    ]


def events_of(
    session: Session, pipelines: Collection[str], dag_ids: Collection[str], *, most: int = _MOST_OF_A_TREND
) -> list[Event]:
    """Return the newest events of some pipelines that some DAGs published, the newest first.

    :param most: the most events of each pipeline
    """
    aliases = session.execute(
        select(AssetAliasModel.id, AssetAliasModel.name).where(
            AssetAliasModel.name.in_([f"{ALIAS_OF_PIPELINE}{name}" for name in pipelines])
        )
    ).all()
    if not aliases:
        return []
    # One subquery for each pipeline, because each only reads the newest entries of an index.
    newest = [
        select(
            select(_OF_ALIAS.c.event_id)
            .where(_OF_ALIAS.c.alias_id == row.id)
            .order_by(_OF_ALIAS.c.event_id.desc())
            .limit(most)
            .subquery()
        )
        for row in aliases
    ]
    ids = union_all(*newest).subquery()
    rows = session.execute(
        select(
            AssetAliasModel.name,
            *(AssetEvent.source_dag_id, AssetEvent.source_run_id, AssetEvent.source_task_id),
            *(AssetEvent.source_map_index, AssetEvent.extra, AssetEvent.timestamp),
            *(TaskInstance.start_date, TaskInstance.end_date),
        )
        .join(ids, ids.c.event_id == AssetEvent.id)
        .join(_OF_ALIAS, _OF_ALIAS.c.event_id == AssetEvent.id)
        .join(AssetAliasModel, AssetAliasModel.id == _OF_ALIAS.c.alias_id)
        .outerjoin(
            TaskInstance,
            and_(
                TaskInstance.dag_id == AssetEvent.source_dag_id,
                TaskInstance.run_id == AssetEvent.source_run_id,
                TaskInstance.task_id == AssetEvent.source_task_id,
                TaskInstance.map_index == AssetEvent.source_map_index,
            ),
        )
        .where(
            AssetAliasModel.id.in_([row.id for row in aliases]), AssetEvent.source_dag_id.in_(list(dag_ids))
        )
        .order_by(AssetEvent.id.desc())
    )
    return [_event(*row) for row in rows]


def _event(
    alias: str, dag_id: str, run_id: str, task_id: str, map_index: int, extra: Any, *times: Any
) -> Event:
    known = extra if isinstance(extra, dict) else {}
    return Event(_pipeline(alias), dag_id, run_id, task_id, map_index, known, *times)


def _pipeline(alias: str) -> str:
    return alias.removeprefix(ALIAS_OF_PIPELINE)
