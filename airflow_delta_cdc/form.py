"""The form of a manual run: its fields, its checks, and its meaning.

A DAG gets the form by ``params=run_params()``. One operator takes it over by ``**run_arguments()``; a task
that decides for several tables reads it by :func:`asked`. An unchanged form means the same as a scheduled
run: everything new since the watermark.

The DAG of a ``DeltaWhyOperator`` has a form of its own: ``params=why_params()``.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import Param

from airflow_delta_cdc.failures import log_named_errors, show_outside_group
from delta_cdc.core import arguments as given
from delta_cdc.core import rules
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import APPLY, BOUNDS, SIZE_LIMITS, RunOptions
from delta_cdc.core.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.sdk import Context

#: The modes of a run, in the order of the form.
MODES = ("incremental", "backfill", "repair", "reload")

_LABELS = {
    "incremental": "Incremental: everything new since the watermark",
    # Not labelled Backfill: Airflow's dialog uses this name for runs by dates.
    "backfill": "Range: everything up to a version or a time, in several commits",
    "repair": "Repair: compute some keys again, the watermark stays",
    "reload": "Reload: compare all keys with the source",
}
# Airflow shows fields without a section in its default section, the only one that is open at first.
_TIMES_ALONE, _REPAIR = "Times instead of versions", "Repair only: keys instead of versions"
_APPROVAL = "After LimitExceeded: approve a change"
#: The fields of the form other than mode and tables.
_FIELDS = ("dry_run", *BOUNDS, "versions_per_commit", "repair_keys", "repair_quarantined", "approve")
#: Fields that turn the mode incremental into backfill.
_OF_A_RANGE = (*BOUNDS, "versions_per_commit")
_TIMES = ("starting_timestamp", "ending_timestamp")
#: The condition, for templates, that a run belongs to a backfill by dates.
_BY_DATE = "dag_run.run_type == 'backfill'"
#: The mode of other runs, for templates.
_HAS_RANGE = " or ".join(f"params.{name} not in (none, '')" for name in _OF_A_RANGE)
_MEANT = f"('backfill' if params.mode == 'incremental' and ({_HAS_RANGE}) else params.mode)"


def run_params(*, tables: Sequence[str] = (), mode: str = "incremental") -> dict[str, Param]:
    """Return the Params of the form, for ``DAG(params=...)``.

    :param tables: names of the DAG's pipelines; with them, the form has a field to choose tables
    :param mode: the mode that the form shows at first: ``incremental``, ``backfill``, ``repair`` or
        ``reload``
    :raises InvalidConfiguration: the mode is unknown
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
        "dry_run": Param(
            False,
            # Without null, Airflow marks the field as required.
            type=["null", "boolean"],
            title="Dry run",
            description_md="Write nothing. The log of the task shows what the run would do: plan, counts and "
            "statements.",
        ),
        **({"tables": _tables(tables)} if tables else {}),
        **_versions(),
        "versions_per_commit": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Versions per commit",
            description_md="**Range** only. Commit after every so many versions, all in one Spark "
            "application. If a run dies, the next one continues after its last commit. Empty: one commit.",
        ),
        **_times(),
        "repair_keys": Param(
            None,
            type=["null", "string"],
            section=_REPAIR,
            title="Keys",
            description_md="Instead of a range: a predicate that compares the key columns with literals, "
            "such as `o_orderkey IN (7, 8)`. `true` stands for all keys. With a first version, a history is "
            "computed again from there.",
        ),
        "repair_quarantined": Param(
            False,
            type=["null", "boolean"],
            section=_REPAIR,
            title="Keys in quarantine",
            description_md="Instead of a range: the keys whose events are in quarantine. A change log first "
            "reads the records in its quarantine again; the next run applies what became an event.",
        ),
        "approve": Param(
            None,
            type=["null", "string"],
            section=_APPROVAL,
            title="Approve",
            description_md="The text behind `approve =` in the error `LimitExceeded` of an earlier run: "
            "apply exactly the change that this error describes."
            + (" Also choose its table under **Tables**." if tables else ""),
        ),
    }


_MODE_HELP = """\
* **Incremental** needs no other field. With a version, a time or versions per commit, it means **Range**.
* **Range** (*backfill* in REST) applies the versions after the watermark, up to the last version, or to the \
newest one. If the target does not exist, the run loads the source as it was before the first version, and \
applies the versions from there. It skips versions that are already applied, and logs this.
* **Repair** needs versions at or below the watermark, or keys (below). It writes only rows that differ.
* **Reload** may have a last version. It closes and opens rows of a history (SCD type 2), and overwrites none.

The log of the newest run shows the watermark and the version of the source at that time. \
*delta-cdc status* shows the current ones."""


def _tables(tables: Sequence[str]) -> Param:
    return Param(
        None,
        type=["null", "array"],
        items={"type": "string"},
        # Examples, not an enumeration: so the error for an unknown name can propose the nearest one.
        examples=list(tables),
        title="Tables",
        description_md="Only these tables. Empty: all. Versions, keys and an approval need exactly one "
        "table, because each table has its own; times work with several tables.",
    )


def _versions() -> dict[str, Param]:
    return {
        "starting_version": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="First version",
            description_md="First version of the source, inclusive. Empty: the one after the watermark.",
        ),
        "ending_version": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="Last version",
            description_md="Last version of the source, inclusive. Empty: the newest one.",
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
            description_md="Instead of the first version: the first version at or after this time.",
        ),
        "ending_timestamp": Param(
            None,
            type=["null", "string"],
            format="date-time",
            section=_TIMES_ALONE,
            title="Until (time)",
            description_md="Instead of the last version: the last version at or before this time.",
        ),
    }


def names() -> dict[str, Any]:
    """Return the names of the modes and the fields, for the page; of each field also its type and minimum."""
    return {
        "modes": {mode: label.partition(":")[0] for mode, label in _LABELS.items()},
        "fields": {name: _named(param.schema) for name, param in run_params().items()},
    }


def _named(schema: Mapping[str, Any]) -> dict[str, Any]:
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    (type_,) = (one for one in types if one != "null")
    minimum = {"minimum": schema["minimum"]} if "minimum" in schema else {}
    return {"label": schema["title"], "type": type_, **minimum}


def range_params() -> dict[str, Param]:
    """Return the Params of a range, versions and times, for a task without modes."""
    return {**_versions(), **_times()}


def range_arguments() -> dict[str, str]:
    """Return templates that pass the values of :func:`range_params` to an operator that takes a range."""
    return {name: f"{{{{ params.{name} }}}}" for name in BOUNDS}


def why_params(*, pipelines: Sequence[str] = ()) -> dict[str, Param]:
    """Return the Params of the question where a row comes from, for the DAG of a ``DeltaWhyOperator``.

    Pass their values to the operator by ``**why_arguments()``. The page "Delta CDC" starts runs of such DAGs.

    :param pipelines: the pipelines that the DAG explains, if they are several: the form then has the field
        ``pipeline``, for ``pipeline="{{ params.pipeline }}"``
    """
    return {
        **(
            {
                "pipeline": Param(
                    None,
                    type="string",
                    enum=list(pipelines),
                    title="Pipeline",
                    description_md="The pipeline that fills the target.",
                )
            }
            if pipelines
            else {}
        ),
        "key": Param(
            None,
            type="string",
            minLength=1,
            title="Key",
            description_md="Each key column with its value, such as `id=17` or `id=17, line=3`. A value with "
            'a comma needs JSON: `{"name": "Doe, Jane"}`.',
        ),
        "columns": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Columns",
            description_md="Explain only these columns. Empty: all.",
        ),
        "at": Param(
            None,
            type=["null", "string"],
            title="As of",
            description_md="A version of the target, or a time such as `2026-01-31T03:00:00+00:00`. Empty: "
            "the newest version.",
        ),
    }


def why_arguments() -> dict[str, Any]:
    """Return the arguments that pass the values of :func:`why_params` to a ``DeltaWhyOperator``.

    The arguments are templates, except ``pre_execute``, which refuses unknown fields before the task starts.
    """
    return {
        **{name: f"{{{{ params.{name} }}}}" for name in why_params()},
        "pre_execute": refuse_unknown_fields,
    }


def run_arguments(*, limits: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the arguments that pass the values of the form to a ``DeltaApplyChangesOperator``.

    The arguments are templates, except ``pre_execute``, which checks the form before the task starts. In one
    of Airflow's backfills (by dates), they pass the data interval of the run instead of the form.

    :param limits: limits of the task, without ``versions_per_commit``, which the form sets
    """
    groups: dict[str, dict[str, Any]] = {"limits": dict(limits or {})}
    for name in ("versions_per_commit", "repair_keys", "repair_quarantined"):
        groups.setdefault(APPLY[name].group, {})[APPLY[name].key] = f"{{{{ params.{name} }}}}"
    fields = [name for name in ("dry_run", *BOUNDS, "approve") if name not in _TIMES]
    return {
        "mode": f"{{{{ 'interval' if {_BY_DATE} else {_MEANT} }}}}",
        **{name: f"{{{{ params.{name} }}}}" for name in fields},
        "starting_timestamp": _time("start"),
        "ending_timestamp": _time("end"),
        **groups,
        "pre_execute": checked,
    }


def _time(bound: str) -> str:
    interval = f"data_interval_{bound}.isoformat() if {_BY_DATE}"
    return f"{{{{ {interval} else params.{bound}ing_timestamp }}}}"


def checked(context: Context) -> None:
    """Check the form of a DAG with one table. Pass it as ``pre_execute`` of the task that applies.

    In modes that make one commit, the function removes the task's size limits, which are meant for scheduled
    runs.

    :raises InvalidConfiguration: fields of the form contradict each other
    """
    run = _form_for_hook(context)
    task: Any = context.get("task")
    limits = given.mapping("limits", getattr(task, "limits", None))
    if run.mode not in given.ONWARDS and limits:
        task.limits = {name: value for name, value in limits.items() if name not in SIZE_LIMITS}


def skip_waiting(context: Context) -> None:
    """Check the form, and skip the sensor if the form asks for another mode than incremental, or a dry run.

    Pass it as ``pre_execute`` of a sensor; the next task needs ``trigger_rule="none_failed"``.

    :param context: the task's context, which Airflow passes
    :raises InvalidConfiguration: fields of the form contradict each other
    :raises AirflowSkipException: the run does not wait
    """
    run = _form_for_hook(context)
    if run.explicit:
        raise AirflowSkipException(f"This run was started by hand ({run}): it does not wait for changes.")


def refuse_unknown_fields(context: Context) -> None:
    """Refuse a run whose configuration reaches no field of the form. Pass it as ``pre_execute`` of a task.

    :raises InvalidConfiguration: the configuration has a name that is not a field
    """
    conf = getattr(context.get("dag_run"), "conf", None) or {}
    with _shown_errors():
        _refuse_lost(context, conf, context.get("params", {}))


def _form_for_hook(context: Context) -> Run:
    """Read and check the form for a hook."""
    with _shown_errors():
        return asked(context)


@contextmanager
def _shown_errors() -> Iterator[None]:
    """Let the task's log show an error of the block all the same: a hook runs before the task prepares it."""
    try:
        yield
    except InvalidConfiguration:
        log_named_errors()
        show_outside_group()
        raise


@dataclass(frozen=True)
class Run:
    """The mode, tables and arguments of a run.

    :param mode: one of :data:`MODES`, or ``interval`` in a run of a backfill by dates
    :param tables: the chosen tables, in the DAG's order; empty if the DAG offers no choice
    :param arguments: the fields that the user filled in, under the names of the operators' arguments; they
        override those of each table. Empty in a scheduled run
    :param date_interval: start and end of the data interval, ISO 8601, if ``mode`` is ``interval``
    """

    mode: str = "incremental"
    tables: tuple[str, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)
    date_interval: tuple[str, str] | None = None

    @property
    def explicit(self) -> bool:
        """Return whether the run differs from scheduled ones: by its mode, or because it writes nothing."""
        return self.mode != "incremental" or "dry_run" in self.arguments

    @property
    def with_sources(self) -> bool:
        """Return whether a chosen pipeline with several sources includes those.

        It does not in a mode that computes rows again, nor with a value that fits only one pipeline.
        """
        of_one = any(APPLY[name].of_one for name in self.arguments)
        return self.mode in given.ONWARDS and not of_one

    def __str__(self) -> str:
        return f"mode {self.mode}{', dry run' if 'dry_run' in self.arguments else ''}"


def asked(context: Mapping[str, Any], *, tables: Sequence[str] = ()) -> Run:
    """Read the form of a run, and check the fields together.

    :param context: the task's context, or only the form's values
    :param tables: the tables of the DAG, which the form offers
    :raises InvalidConfiguration: fields contradict each other, or a table is unknown; the message names the
        fields
    """
    params = context.get("params", context)
    dag_run = context.get("dag_run")
    _refuse_lost(context, getattr(dag_run, "conf", None) or {}, params)
    run = _parsed(params, tables)
    if dag_run is not None and dag_run.run_type == "backfill":
        return _by_date(context, run)
    return run


def _refuse_lost(context: Mapping[str, Any], conf: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """Refuse a run configuration that reaches no field: the run would do more than the user wants.

    Airflow accepts any key in the configuration of a run, whether or not a Param has its name.
    """
    known = {name for owner in ("dag", "task") if owner in context for name in context[owner].params}
    for name, value in conf.items():
        if name in known and params.get(name) != value:
            raise InvalidConfiguration(
                f"The form of this run has {name} {value!r}, but its tasks get {params.get(name)!r}.",
                remedy="set [core] dag_run_conf_overrides_params to True: without it, Airflow ignores forms.",
            )
        if name not in known:
            nearest = get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {nearest[0]!r}? Else " if nearest else ""
            raise InvalidConfiguration(
                f"The configuration of this run has {name!r}, which is not a field of its form.",
                remedy=f"{hint}remove it. Or, if another task reads it, define a Param of that name.",
            )


def _parsed(params: Mapping[str, Any], tables: Sequence[str]) -> Run:
    mode = given.text("mode", params.get("mode")) or "incremental"
    _refuse_unknown("mode", mode, MODES)
    values = _values(params)
    if mode == "incremental" and any(name in values for name in _OF_A_RANGE):
        mode = "backfill"
    chosen = _chosen(params.get("tables"), tables)
    options = RunOptions(mode=mode, **values)
    broken = [
        (rule.problem, rule.form_remedy)
        for rule in (*rules.bounds_rules(options), *rules.mode_rules(options))
        if rule.is_broken
    ]
    alone = [name for name in values if APPLY[name].of_one]
    if len(chosen) > 1 and alone:
        remedy = "choose exactly one table, because each has its own versions, keys and approval"
        remedy += "; or use times." if set(alone) & set(BOUNDS) else "."
        broken.append((f"{len(chosen)} tables are chosen, and {_and(alone)} fits only one", remedy))
    if broken:
        reasons = "; ".join(reason for reason, _ in broken)
        raise InvalidConfiguration(
            f"In the form, {reasons}.", remedy=" ".join(dict.fromkeys(remedy for _, remedy in broken))
        )
    return Run(mode, chosen, {"mode": mode, **values} if mode != "incremental" else values)


def _values(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filled-in fields other than mode and tables."""
    values = {name: APPLY[name].read(params.get(name)) for name in _FIELDS}
    values |= {name: iso(name, params.get(name)) for name in _TIMES}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def _chosen(names: Any, tables: Sequence[str]) -> tuple[str, ...]:
    chosen = given.names("tables", names) or ()
    for name in chosen:
        _refuse_unknown("tables", name, tables)
    return tuple(table for table in tables if table in chosen) if chosen else tuple(tables)


def _refuse_unknown(field_name: str, value: str, choices: Sequence[str]) -> None:
    if value in choices:
        return
    nearest = get_close_matches(value, choices, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    shown = ", ".join(choices[:20]) + (", …" if len(choices) > 20 else "")
    raise InvalidConfiguration(
        f"The form names {value!r} under {field_name}, which is unknown.",
        remedy=f"choose among {shown}{hint}."
        if choices
        else f"leave {field_name} empty: there is no choice.",
    )


def _by_date(context: Mapping[str, Any], run: Run) -> Run:
    """Return the run of a backfill by dates, whose range is its data interval."""
    filled = [name for name in run.arguments if name != "mode"]
    if run.mode not in ("incremental", "backfill") or filled:
        raise InvalidConfiguration(
            f"This run belongs to a backfill by dates, but its form has {_and([run.mode, *filled])}.",
            remedy="leave the form of the backfill as it is: its dates are the range. To backfill versions, "
            "start a separate run with mode backfill.",
        )
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None or not start < end:
        raise InvalidConfiguration(
            f"The data interval of this run ({start} to {end}) is empty, so a backfill by dates has no "
            "range.",
            remedy="give the DAG a CronDataIntervalTimetable, whose runs each have an interval.",
        )
    interval = (start.isoformat(), end.isoformat())
    arguments = {"mode": "interval", **dict(zip(_TIMES, interval, strict=True))}
    return Run("interval", run.tables, arguments, interval)


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)
