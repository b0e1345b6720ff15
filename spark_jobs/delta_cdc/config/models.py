"""The keys of a configuration, with the types of their values.

Arguments of an operator keep its names. This module imports pydantic, so only functions import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Required, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from delta_cdc.core.option import CONFLICT, GROUPS, INITIAL_LOAD, SPAN, in_group
from delta_cdc.core.options import APPLY, INGEST
from delta_cdc.core.value_rules import OnBreak


@dataclass(frozen=True)
class Expects:
    """The expected value, for messages: the end of "give …"."""

    text: str


#: A template, which Airflow renders when the table is processed.
_Template = Annotated[str, Field(pattern=r"\{[{%]", description="a template")]
_STRICT = ConfigDict(strict=True, extra="forbid")

_Text = Annotated[str, Expects("a text; one that looks like a number needs quotes")]
_Name = Annotated[str, Field(min_length=1), Expects("a name; one that looks like a number needs quotes")]
_Count = Annotated[Annotated[int, Field(ge=0)] | _Template, Expects("a whole number >= 0")]
_Whole = Annotated[Annotated[int, Field(ge=0)], Expects("a whole number >= 0")]
_FromOne = Annotated[Annotated[int, Field(ge=1)], Expects("a whole number >= 1")]
#: A flag without templates: the operators do not render it.
_Bool = Annotated[bool, Expects("true or false")]
#: Without its unit, a number means bytes to Java, and MiB to Spark.
_Memory = Annotated[
    Annotated[str, Field(pattern=r"^[0-9]+[kmgtKMGT]$")], Expects("a size with its unit, such as 4g")
]
_OnBreak = Annotated[OnBreak, Expects("one of fail, quarantine, flag")]
_Texts = Annotated[dict[str, str], Expects("a mapping from names to values")]
_Seconds = Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0)] | str
_Span = Annotated[_Seconds, Expects(SPAN.expects)]
_Dotted = Annotated[
    str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"), Expects("the dotted name of a function")
]
_Callback = Annotated[_Dotted | list[_Dotted], Expects("the dotted name of a function, or a list of them")]


@with_config(_STRICT)
class FromVersion(TypedDict):
    """``initial_load``: the snapshot before a version, and the changes since."""

    from_version: _Count


@with_config(_STRICT)
class NoneAt(TypedDict):
    """``initial_load``: load no rows, and assume that the target has the rows of the source at a version."""

    none_at: _Count


@with_config(_STRICT)
class LastBy(TypedDict):
    """``on_conflict``: apply the event with the greatest values in these columns."""

    last_by: str | list[str]


@with_config(_STRICT)
class CheckedRule(TypedDict, total=False):
    """``rules``: a predicate, and what a run does with a row for which it is not true."""

    check: Required[str]
    on_break: _OnBreak


@with_config(_STRICT)
class Assets(TypedDict):
    """``schedule``: run when another DAG has written one of these tables."""

    assets: str | list[str]


@with_config(_STRICT)
class Discover(TypedDict, total=False):
    """``discover``: where the tables of a group come from, and where the targets of new ones go."""

    tables: Required[_Name]
    target: Required[_Name]
    leave_out: str | list[str]
    depth: Annotated[int, Field(ge=0)]
    add: bool


#: The type of each kind of option; a choice uses its words.
_TYPES: dict[str, Any] = {
    "name": Annotated[str, Field(min_length=1)],
    "text": str,
    "names": str | list[str],
    "count": Annotated[int, Field(ge=0)] | _Template,
    "positive": Annotated[int, Field(ge=1)] | _Template,
    "row_limit": Annotated[int, Field(ge=0)] | str,
    "span": _Seconds,
    "scd_type": Annotated[int, Field(ge=1, le=2)] | _Template,
    "conflict": Literal[CONFLICT.choices] | LastBy | _Template,
    "initial_load": Literal[INITIAL_LOAD.choices] | FromVersion | NoneAt | _Template,
    "partitions": str | list[str] | dict[str, str | None],
    "texts": dict[str, str],
    "mapping": dict[str, Any],
    "pipeline_tables": str | dict[str, str],
    "value_rules": dict[str, str | CheckedRule],
}


def _key(name: str) -> Any:
    """Return the annotation of the key for an option."""
    option = INGEST[name]
    kind = option.kind
    if kind.name == "choice":
        value_type: Any = Literal[kind.choices] | _Template
    elif kind.name == "flag":
        value_type = bool | _Template if option.templated else bool
    else:
        value_type = _TYPES[kind.name]
    docs = [one.doc for one in (APPLY.get(name), option) if one is not None]
    # An ingest documents some options differently.
    description = docs[0] if len(set(docs)) == 1 else f"{docs[0]}. In a table with `log`: {docs[1]}"
    return Annotated[value_type, Expects(kind.expects), Field(description=f"{description}.")]


_OF_A_TABLE: dict[str, Any] = {
    **{name: _key(name) for name, one in INGEST.items() if name != "pipeline" and not one.of_run},
    "own_application": Annotated[
        _Bool,
        Field(description="Run this table in its own Spark application, for instance because it is large."),
    ],
}


@with_config(_STRICT)
class DagKeys(TypedDict, total=False):
    """Keys of a group: its DAG, its tasks and its Spark application."""

    schedule: Annotated[
        str | Assets | None,
        Expects("a cron text, a preset like '@hourly', on_change, null, or a mapping {assets: [<table>, …]}"),
        Field(
            description="Cron text (in the zone of start_date, or else Airflow's default zone) or preset; "
            "null, the default: only manual runs. on_change: run when a source has a new version. assets: "
            "run when another DAG has written one of these tables. Both also run once a day."
        ),
    ]
    start_date: Annotated[
        _Text,
        Field(description="Start of the first interval: a date (in UTC), or a time with offset or zone."),
    ]
    catchup: Annotated[
        _Bool, Field(description="Also run the past intervals since start_date; default false.")
    ]
    max_active_runs: Annotated[
        _FromOne, Field(description="Maximum number of concurrent runs of the DAG; default 1.")
    ]
    max_parallel_tables: Annotated[
        _FromOne, Field(description="Maximum number of concurrent tables in the application; default 8.")
    ]
    dag_id: Annotated[_Name, Field(description="The DAG's id; {name} is the group's name. Default: {name}.")]
    tags: Annotated[list[str], Expects("a list of texts"), Field(description="The DAG's tags.")]
    owner: Annotated[_Text, Field(description="The tasks' owner.")]
    doc_md: Annotated[_Text, Field(description="The DAG's documentation, in Markdown.")]
    description: Annotated[_Text, Field(description="The DAG's description in one line.")]
    pool: Annotated[_Name, Field(description="The tasks' pool.")]
    queue: Annotated[_Name, Field(description="The tasks' queue.")]
    retries: Annotated[_Whole, Field(description="Number of retries of each task.")]
    retry_delay: Annotated[_Span, Field(description="Time between two tries of a task.")]
    execution_timeout: Annotated[_Span, Field(description="Maximum time of a task.")]
    on_failure_callback: Annotated[
        _Callback, Field(description="Functions that Airflow calls if a task fails.")
    ]
    on_success_callback: Annotated[
        _Callback, Field(description="Functions that Airflow calls if a task succeeds.")
    ]
    on_retry_callback: Annotated[_Callback, Field(description="Functions that Airflow calls before a retry.")]
    on_late_callback: Annotated[
        _Callback,
        Field(
            description="Async functions, such as airflow_delta_cdc.deadline.log_missed, that Airflow calls "
            "if a run takes longer than the shortest freshness of its pipelines."
        ),
    ]
    is_paused_upon_creation: Annotated[_Bool, Field(description="Whether a new DAG is paused at first.")]
    discover: Annotated[
        Discover,
        Expects("a mapping {tables: <folder, schema or kafka://…/prefix>, target: <folder or schema>}"),
        Field(
            description="Where `delta-cdc discover` looks for new tables, and where their targets go. "
            "leave_out: patterns of names; depth: levels of folders; add: true writes what is proven into "
            "the configuration. Runs do not use it."
        ),
    ]
    backfill: Annotated[
        _Bool, Field(description="Also make the DAG <dag_id>__backfill, for manual runs; default true.")
    ]
    why: Annotated[
        _Bool,
        Field(description="Also make the DAG <dag_id>__why, which explains rows of targets; default false."),
    ]
    manifest: Annotated[
        _Text,
        Field(
            description="File that the task publish replaces with the versions that belong together, as a "
            "path or URI ending in .json; may have ${VARIABLES}. Without it, only the group's asset has them."
        ),
    ]
    spark_conn_id: Annotated[
        _Name, Field(description="Spark connection; without one, Spark runs in the worker.")
    ]
    delta_conn_id: Annotated[_Name, Field(description="Connection for the object store.")]
    kafka_conn_id: Annotated[_Name, Field(description="Connection of type kafka.")]
    deploy_mode: Annotated[
        Literal["client", "cluster"] | _Template,
        Expects("one of client, cluster"),
        Field(description="Deploy mode of the Spark application."),
    ]
    conf: Annotated[_Texts, Field(description="Spark confs.")]
    jars: Annotated[_Text, Field(description="JARs instead of the provider's.")]
    packages: Annotated[_Text, Field(description="Maven coordinates instead of the provider's JARs.")]
    driver_memory: Annotated[_Memory, Field(description="Memory of the driver, such as 4g.")]
    executor_memory: Annotated[_Memory, Field(description="Memory of an executor, such as 4g.")]
    executor_cores: Annotated[_FromOne, Field(description="Cores of an executor.")]
    num_executors: Annotated[_FromOne, Field(description="Number of executors.")]
    storage_options: Annotated[_Texts, Field(description="Options of the object store; no secrets.")]
    kafka_options: Annotated[_Texts, Field(description="Options of Kafka's client; no secrets.")]


_KEYS: dict[str, Any] = {
    **_OF_A_TABLE,
    **get_type_hints(DagKeys, include_extras=True),
    "group": Annotated[_Name, Field(description="Name of the group that runs the pipeline.")],
    "removed": Annotated[
        _Bool, Field(description="The source is not read any more; its events stay in the change log.")
    ],
}
#: The key whose value has the sources of a pipeline by their names, each a mapping of its own.
SOURCES = "sources"
#: The keys of one source of several, in order.
SOURCE_KEYS = (
    *("source", "source_kind", "once", "where", "select", "column_list", "except_column_list"),
    *("apply_as_deletes", "sequence_by", "delete_sequence", "initial_load", "take_over_from", "freshness"),
    *("policies", "limits", "removed"),
)
#: All keys: those allowed in ``defaults``.
Keys = with_config(_STRICT)(TypedDict("Keys", _KEYS, total=False))  # type: ignore[operator]


#: Settings of programs: messages do not show them.
MAY_HAVE_SECRETS = ("conf", "storage_options", "kafka_options")
#: Mappings whose values are always read as text.
OF_TEXTS = (
    *(name for name in _OF_A_TABLE if name in INGEST and INGEST[name].kind.name == "texts"),
    *MAY_HAVE_SECRETS,
)


@cache
def adapter() -> TypeAdapter[Any]:
    """Return the validator for the keys of one place."""
    return TypeAdapter(Keys)


@cache
def expectations() -> dict[str, str]:
    """Return the expected value of every key."""
    return {name: _expected(hint) for name, hint in _KEYS.items()}


def _expected(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        texts = [extra.text for extra in hint.__metadata__ if isinstance(extra, Expects)]
        if texts:
            return str(texts[-1])
        return _expected(get_args(hint)[0])
    return "another value"


#: The keys in each group of options.
IN_GROUPS = {
    group: names
    for group in GROUPS
    if (names := tuple(key for key, one in in_group(INGEST, group).items() if one.name in _OF_A_TABLE))
}


def table_keys() -> tuple[str, ...]:
    """Return the names of a pipeline's options, in order."""
    return tuple(_OF_A_TABLE)


def _written_keys() -> tuple[str, ...]:
    """Return the keys of a pipeline, in order: the name of an option group replaces its options."""
    return tuple(dict.fromkeys(INGEST[n].group or n if n in INGEST else n for n in _OF_A_TABLE))


def dag_keys() -> tuple[str, ...]:
    """Return the names of the keys of a group, in order."""
    return tuple(DagKeys.__annotations__)


def default_keys() -> tuple[str, ...]:
    """Return the names of all keys: those of ``defaults``, and of a pipeline without a group."""
    return (*_written_keys(), *dag_keys(), "group")


def pipeline_keys() -> tuple[str, ...]:
    """Return the names of a pipeline's keys, in order."""
    return (*default_keys(), SOURCES)


def group_keys() -> tuple[str, ...]:
    """Return the names of a group's keys: its own, and those for its pipelines."""
    return (*dag_keys(), *_written_keys())
