"""The form of a run by hand: its fields, what contradicts itself, and what it means.

A DAG gets the form by ``params=run_params()``. One operator takes it over by ``**run_arguments()``; a task
that decides for several tables reads it by :func:`asked`. As it stands, the form means what a scheduled run
does: everything new since the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowSkipException

from airflow_delta_cdc import engine
from delta_cdc.core import arguments as given
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option_schema import APPLY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.sdk import Context

    Rules = Iterator[tuple[bool, str, str]]

#: What a run may be asked to do, in the order of the form.
MODES = ("incremental", "backfill", "repair", "reload", "dry_run")

_LABELS = {
    "incremental": "Incremental: everything new since the watermark",
    "backfill": "Backfill: everything up to a version or a time, in several commits",
    "repair": "Repair: compute some keys again, the watermark stays",
    "reload": "Reload: compare all keys with the source",
    "dry_run": "Dry run: show what would be done, write nothing",
}
# Fields without a section are in Airflow's own, the only one that is open at first.
_TIMES_ALONE, _REPAIR = "Times instead of versions", "Repair only: keys instead of versions"
_VERSIONS = ("starting_version", "ending_version")
_TIMES = ("starting_timestamp", "ending_timestamp")
_BOUNDS = (*_VERSIONS, *_TIMES)
#: What the form says beside mode and tables.
_OF_A_RUN = (*_BOUNDS, "repair_keys", "versions_per_commit", "repair_quarantined")
#: Modes of one commit, and what of a task does not go with them.
_AT_ONCE = ("repair", "reload", "interval")
_LIMITS = ("max_versions", "max_bytes", "versions_per_commit", "bytes_per_commit")
#: What Airflow calls a run that was made for a backfill by dates.
_BY_DATE = "dag_run.run_type == 'backfill'"


def run_params(*, tables: Sequence[str] = (), mode: str = "incremental") -> dict[str, Param]:
    """Return the Params of the form, for ``DAG(params=...)``.

    :param tables: names (pipelines) of the tables that the DAG keeps; with them the form lets choose among
        them
    :param mode: the mode that the form shows at first, one of :data:`MODES`
    :raises InvalidConfiguration: for another mode
    """
    if mode not in MODES:
        raise InvalidConfiguration(f"mode is {mode!r}.", remedy=f"use one of {', '.join(MODES)}.")
    return {
        "mode": Param(
            mode,
            type="string",
            enum=list(MODES),
            values_display=dict(_LABELS),
            title="Mode",
            description_md=_MODE_HELP,
        ),
        **({"tables": _tables(tables)} if tables else {}),
        **_versions(),
        "versions_per_commit": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Versions per commit",
            description_md="**Backfill** only. Commit after every so many versions, all in one Spark "
            "application. A run that dies goes on behind its last commit. Empty: one commit at the end.",
        ),
        **_times(),
        "repair_keys": Param(
            None,
            type=["null", "string"],
            section=_REPAIR,
            title="Keys",
            description_md="Instead of versions: a predicate over the key columns in Spark SQL, such as "
            "`o_orderkey IN (7, 8)`. `true` stands for all keys.",
        ),
        "repair_quarantined": Param(
            False,
            type="boolean",
            section=_REPAIR,
            title="Keys in quarantine",
            description_md="Instead of versions: the keys whose events are in quarantine.",
        ),
    }


_MODE_HELP = """\
* **Incremental** takes no further field.
* **Backfill** goes on from the watermark up to an end, or to the newest version. Without a target yet, a \
start loads the source as it was before that version, and applies what follows. What is applied already is \
left out, and the log says so.
* **Repair** needs versions at or below the watermark, or keys (below). Only differences are written.
* **Reload** may take an end. History (SCD type 2) is closed and opened, never overwritten.
* **Dry run** shows plan, counts and statements in the log of the task."""


def _tables(tables: Sequence[str]) -> Param:
    return Param(
        None,
        type=["null", "array"],
        items={"type": "string"},
        # Proposals and no enumeration: for an unknown name, the error names the nearest one.
        examples=list(tables),
        title="Tables",
        description_md="Only these tables. Empty: all. Versions and keys need exactly one table, because "
        "each table counts its own; times may have many.",
    )


def _versions() -> dict[str, Param]:
    return {
        "starting_version": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="First version",
            description_md="Of the source, inclusive. Empty: right after the watermark.",
        ),
        "ending_version": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="Last version",
            description_md="Of the source, inclusive. Empty: the newest one.",
        ),
    }


def _times() -> dict[str, Param]:
    return {
        "starting_timestamp": Param(
            None,
            type=["null", "string"],
            format="date-time",
            section=_TIMES_ALONE,
            title="From (time)",
            description_md="Instead of the first version: the first one committed at this time or after it.",
        ),
        "ending_timestamp": Param(
            None,
            type=["null", "string"],
            format="date-time",
            section=_TIMES_ALONE,
            title="Until (time)",
            description_md="Instead of the last version: the last one committed at this time or before it.",
        ),
    }


def range_params() -> dict[str, Param]:
    """Return the Params of a range alone, for a task that has no modes: versions and times."""
    return {**_versions(), **_times()}


def range_arguments() -> dict[str, str]:
    """Return templates that hand :func:`range_params` to an operator that takes a range."""
    return {name: f"{{{{ params.{name} }}}}" for name in _BOUNDS}


def run_arguments() -> dict[str, Any]:
    """Return the arguments that hand the form to one
    :class:`~airflow_delta_cdc.operators.DeltaApplyChangesOperator`.

    All are templates but ``pre_execute``, by which the task checks the form before it does anything. A run of
    a backfill by dates hands over its data interval instead.
    """
    plain = ("starting_version", "ending_version", "versions_per_commit", "repair_keys", "repair_quarantined")
    return {
        "mode": f"{{{{ 'interval' if {_BY_DATE} else params.mode }}}}",
        **{name: f"{{{{ params.{name} }}}}" for name in plain},
        "starting_timestamp": _time("start"),
        "ending_timestamp": _time("end"),
        "pre_execute": checked,
    }


def _time(bound: str) -> str:
    interval = f"data_interval_{bound}.isoformat() if {_BY_DATE}"
    return f"{{{{ {interval} else params.{bound}ing_timestamp }}}}"


def checked(context: Context) -> None:
    """Check the form of a DAG with one table; for ``pre_execute`` of the task that applies.

    In the modes that are done in one commit, the task's limits of size are left out: they are there for what
    the schedule does.

    :raises InvalidConfiguration: fields that contradict each other
    """
    run, task = asked(context), context.get("task")
    for name in _LIMITS if run.mode in _AT_ONCE else ():
        if given.is_given(getattr(task, name, None)):
            setattr(task, name, None)


def skip_waiting(context: Context) -> None:
    """Check the form, and skip a task that waits for changes in a run started by hand; for
    ``pre_execute`` of a sensor, before a task with ``trigger_rule="none_failed"``.

    :raises InvalidConfiguration: fields that contradict each other
    :raises AirflowSkipException: the form names another mode than incremental
    """
    run = asked(context)
    if run.explicit:
        raise AirflowSkipException(
            f"This run was started by hand (mode {run.mode}): it does not wait for changes."
        )


@dataclass(frozen=True)
class Run:
    """What a run was asked to do.

    :param mode: one of :data:`MODES`, or ``interval`` in a run of a backfill by dates
    :param tables: the tables it is about, in the DAG's order; of a DAG without a choice none
    :param arguments: what the form says, by the names of the operators' arguments, to be put over those of
        each table; only what was given, and nothing in a scheduled run
    :param date_interval: start and end of the data interval, ISO 8601, where ``mode`` is ``interval``
    """

    mode: str = "incremental"
    tables: tuple[str, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)
    date_interval: tuple[str, str] | None = None

    @property
    def explicit(self) -> bool:
        """Return whether its form names a mode; a scheduled run, and an empty form, do not."""
        return self.mode != "incremental"


def asked(context: Mapping[str, Any], *, tables: Sequence[str] = ()) -> Run:
    """Read the form of a run, and check what no field can check alone.

    :param context: the task's context, or the form's values alone
    :param tables: the tables of the DAG, among which the form chooses
    :raises InvalidConfiguration: fields that contradict each other, or an unknown table; the message
        names the fields
    """
    params = context.get("params", context)
    dag_run = context.get("dag_run")
    _refuse_lost(context, getattr(dag_run, "conf", None) or {}, params)
    run = _asked(params, tables)
    if dag_run is not None and dag_run.run_type == "backfill":
        return _by_date(context, run)
    return run


def _refuse_lost(context: Mapping[str, Any], conf: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """Refuse a configuration of the run that reaches no field: the run would do more than the user wants.

    Airflow takes any key for the configuration of a run, and puts it beside the Params.
    """
    known = {name for owner in ("dag", "task") if owner in context for name in context[owner].params}
    for name, value in conf.items():
        if name in known and params.get(name) != value:
            raise InvalidConfiguration(
                f"The run was started with {name} {value!r}, and its tasks are given {params.get(name)!r}.",
                remedy="set [core] dag_run_conf_overrides_params, without which no run takes a form.",
            )
        if name not in known:
            nearest = get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {nearest[0]!r}? Else " if nearest else ""
            raise InvalidConfiguration(
                f"The run was started with {name!r}, which is no field of its form.",
                remedy=f"{hint}leave it out; or declare a Param of that name, where another task reads it.",
            )


def _asked(params: Mapping[str, Any], tables: Sequence[str]) -> Run:
    mode = given.text(params.get("mode")) or "incremental"
    _refuse_unknown("mode", mode, MODES)
    values = _values(params)
    chosen = _chosen(params.get("tables"), tables)
    for refused, what, remedy in (*_ranges(mode, values), *_fields(mode, values), *_one(values, chosen)):
        if refused:
            raise InvalidConfiguration(f"The form of this run contradicts itself: {what}.", remedy=remedy)
    return Run(mode, chosen, {"mode": mode, **values} if mode != "incremental" else values)


def _values(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that were filled in, beside mode and tables."""
    values = {name: APPLY[name].read(params.get(name)) for name in _OF_A_RUN}
    values |= {name: engine.iso_time(name, params.get(name)) for name in _TIMES}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def _chosen(names: Any, tables: Sequence[str]) -> tuple[str, ...]:
    chosen = given.names("tables", names) or ()
    for name in chosen:
        _refuse_unknown("tables", name, tables)
    return tuple(table for table in tables if table in chosen) if chosen else tuple(tables)


def _refuse_unknown(field_name: str, value: str, known: Sequence[str]) -> None:
    if value in known:
        return
    nearest = get_close_matches(value, known, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    shown = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
    raise InvalidConfiguration(
        f"The form names {value!r} under {field_name}, which is unknown.",
        remedy=f"choose among {shown}{hint}." if known else f"leave {field_name} empty: there is no choice.",
    )


def _ranges(mode: str, values: Mapping[str, Any]) -> Rules:
    """Yield rules about bounds: whether one is broken, the message, and the remedy."""
    bounds = [name for name in _BOUNDS if name in values]
    starts = [name for name in bounds if name.startswith("starting")]
    yield (
        mode == "incremental" and bool(bounds),
        f"{_and(bounds)} is filled in, and mode is incremental, which takes everything new",
        "choose backfill to apply up to there, repair to compute keys again, dry_run to look; or empty it.",
    )
    yield (
        mode == "reload" and bool(starts),
        f"{_and(starts)} is filled in, and mode is reload, which compares all keys",
        "leave the start empty; mode repair computes the keys of a range again.",
    )
    for bound in ("starting", "ending"):
        both = [f"{bound}_version", f"{bound}_timestamp"]
        yield (
            all(name in values for name in both),
            f"{_and(both)} are both filled in",
            "leave one of them empty: they name the same end of the range.",
        )
    for kind in ("version", "timestamp"):
        first, last = values.get(f"starting_{kind}"), values.get(f"ending_{kind}")
        yield (
            first is not None and last is not None and _is_later(kind, first, last),
            f"starting_{kind} {first} lies after ending_{kind} {last}",
            "exchange them, or leave one of them empty.",
        )


def _is_later(kind: str, first: Any, last: Any) -> bool:
    if kind == "timestamp":
        first, last = engine.moment("starting_timestamp", first), engine.moment("ending_timestamp", last)
    return bool(first > last)


def _fields(mode: str, values: Mapping[str, Any]) -> Rules:
    """Yield which fields belong to other modes, likewise, and what a repair needs."""
    named = [name for name in ("repair_keys", "repair_quarantined") if name in values]
    ranged = any(name in values for name in _BOUNDS)
    yield (
        mode != "backfill" and "versions_per_commit" in values,
        f"versions_per_commit is filled in, and mode is {mode}",
        "leave it empty: only a backfill is cut into several commits.",
    )
    yield (
        mode != "repair" and bool(named),
        f"{_and(named)} is filled in, and mode is {mode}",
        "choose mode repair, or leave it empty.",
    )
    if mode != "repair":
        return
    yield (
        not named and not ranged,
        "mode is repair, and nothing says which keys",
        "name versions, from a first one on; or fill in repair_keys; or choose repair_quarantined.",
    )
    yield (
        len(named) + ranged > 1,
        f"mode is repair, and {_and([*named, *(['a range'] if ranged else [])])} are both filled in",
        "give one of them: each says which keys are computed again.",
    )
    yield (
        ranged and not any(f"starting_{kind}" in values for kind in ("version", "timestamp")),
        "mode is repair, and the range has no start",
        "name its first version, or its time; without an end it goes up to the watermark.",
    )


def _one(values: Mapping[str, Any], chosen: Sequence[str]) -> Rules:
    """Yield what only makes sense for one table, likewise."""
    alone = [name for name in (*_VERSIONS, "repair_keys") if name in values]
    yield (
        len(chosen) > 1 and bool(alone),
        f"{_and(alone)} is filled in for {len(chosen)} tables",
        "choose exactly one table: each counts its own versions, and has its own keys. Times may have many.",
    )


def _by_date(context: Mapping[str, Any], run: Run) -> Run:
    """Return what a run of a backfill by dates does: each has its data interval for a range."""
    filled = [name for name in run.arguments if name != "mode"]
    if run.mode not in ("incremental", "backfill") or filled:
        raise InvalidConfiguration(
            f"This run belongs to a backfill by dates, and its form says {_and([run.mode, *filled])}.",
            remedy="leave the form of the backfill as it is: its dates are the range. Versions are "
            "backfilled by a run of their own, with mode backfill.",
        )
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None or not start < end:
        raise InvalidConfiguration(
            f"The data interval of this run ({start} to {end}) is empty: a backfill by dates has nothing to "
            "go by.",
            remedy="give the DAG a CronDataIntervalTimetable, whose runs each have an interval.",
        )
    interval = (start.isoformat(), end.isoformat())
    arguments = {"mode": "interval", **dict(zip(_TIMES, interval, strict=True))}
    return Run("interval", run.tables, arguments, interval)


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)
