"""The keys of a configuration, with the types of their values.

Arguments of an operator keep its names. This module imports pydantic, so nothing but a function imports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict


@dataclass(frozen=True)
class Expects:
    """What a value has to be, for messages: the end of "give …"."""

    text: str


#: Rendered when the table's turn comes.
_Template = Annotated[str, Field(pattern=r"\{[{%]", description="a template")]
_STRICT = ConfigDict(strict=True, extra="forbid")

_Text = Annotated[str, Expects("a text; one that looks like a number needs quotes")]
_Name = Annotated[str, Field(min_length=1), Expects("a name; one that looks like a number needs quotes")]
_Names = Annotated[str | list[str], Expects("a text or a list of texts")]
_Count = Annotated[Annotated[int, Field(ge=0)] | _Template, Expects("a whole number >= 0")]
_Positive = Annotated[Annotated[int, Field(ge=1)] | _Template, Expects("a whole number >= 1")]
_Whole = Annotated[Annotated[int, Field(ge=0)], Expects("a whole number >= 0")]
_FromOne = Annotated[Annotated[int, Field(ge=1)], Expects("a whole number >= 1")]
_Flag = Annotated[bool | _Template, Expects("true or false")]
#: Not templated by the operators.
_Bool = Annotated[bool, Expects("true or false")]
_Texts = Annotated[dict[str, str], Expects("a mapping from names to values")]
_Anything = Annotated[dict[str, Any], Expects("a mapping from names to values")]
_Reload = Annotated[Literal["fail", "reload"] | _Template, Expects("one of fail, reload")]
_Span = Annotated[
    Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0)] | str,
    Expects("seconds, or a text like '5 minutes'"),
]
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
    """``initial_load``: what the target holds counts as the source at a version."""

    none_at: _Count


@with_config(_STRICT)
class LastBy(TypedDict):
    """``on_tie``: the event with the greatest values wins."""

    last_by: str | list[str]


@with_config(_STRICT)
class Assets(TypedDict):
    """``schedule``: runs when one of some tables was written by another pipeline."""

    assets: str | list[str]


@with_config(_STRICT)
class TableKeys(TypedDict, total=False):
    """What may be said of one pipeline; the names are the operators' arguments."""

    source: Annotated[
        _Name,
        Field(description="Path, URI or catalog name; with a log: files, or kafka://<servers>/<topics>."),
    ]
    target: Annotated[_Name, Field(description="Path, URI or catalog name of the table that is kept.")]
    log: Annotated[
        _Name,
        Field(
            description="The change log between files or topics and the target. With it the pipeline ingests."
        ),
    ]
    own_application: Annotated[
        _Bool,
        Field(description="A large table: it gets a Spark application of its own, beside the shared one."),
    ]
    source_kind: Annotated[
        Literal["change_feed", "change_log", "snapshot"] | _Template,
        Expects("one of change_feed, change_log, snapshot"),
        Field(description="What the source is."),
    ]
    keys: Annotated[_Names, Field(description="Columns that identify a row.")]
    insert_only: Annotated[_Bool, Field(description="The source is appended to only; needs no keys.")]
    stored_as_scd_type: Annotated[
        Annotated[int, Field(ge=1, le=2)] | _Template,
        Expects("1 or 2"),
        Field(description="1 keeps the current rows, 2 every version of them."),
    ]
    sequence_by: Annotated[
        _Names, Field(description="The order of events; of type 2 over a table, what start and end hold.")
    ]
    delete_sequence: Annotated[_Text, Field(description="The same for deletes of a change feed.")]
    starting_version: Annotated[_Count, Field(description="First version to apply, inclusive.")]
    ending_version: Annotated[_Count, Field(description="Last version to apply, inclusive.")]
    starting_timestamp: Annotated[_Text, Field(description="The start as a time, ISO 8601 with offset.")]
    ending_timestamp: Annotated[_Text, Field(description="The end as a time, ISO 8601 with offset.")]
    max_versions: Annotated[_Positive, Field(description="At most so many versions per run.")]
    max_bytes: Annotated[_Positive, Field(description="At most so many bytes per run; with a log: of files.")]
    milestone_versions: Annotated[_Positive, Field(description="Commit after at most so many versions.")]
    milestone_bytes: Annotated[_Positive, Field(description="Commit after at most so many bytes of changes.")]
    where: Annotated[_Text, Field(description="Spark SQL predicate on rows.")]
    select: Annotated[_Names, Field(description="Spark SQL projections; * stands for all columns.")]
    apply_as_deletes: Annotated[_Text, Field(description="Predicate: such an event is a delete.")]
    apply_as_truncates: Annotated[_Text, Field(description="Predicate: such an event deletes all before it.")]
    column_list: Annotated[_Names, Field(description="The columns that land; keys always do.")]
    except_column_list: Annotated[_Names, Field(description="The columns that don't land.")]
    track_history_column_list: Annotated[_Names, Field(description="Type 2: only these make a new version.")]
    track_history_except_column_list: Annotated[_Names, Field(description="Type 2: all but these do.")]
    ignore_null_updates: Annotated[_Flag, Field(description="A NULL keeps the value that was there.")]
    ignore_null_updates_column_list: Annotated[_Names, Field(description="Only in these columns.")]
    ignore_null_updates_except_column_list: Annotated[_Names, Field(description="In all columns but these.")]
    columns_to_update: Annotated[
        _Text, Field(description="Column with the names of the columns that an event carries.")
    ]
    start_column: Annotated[_Name, Field(description="Type 2: name of the start column.")]
    end_column: Annotated[_Name, Field(description="Type 2: name of the end column.")]
    on_tie: Annotated[
        Literal["fail", "quarantine"] | LastBy | _Template,
        Expects("one of fail, quarantine, or a mapping {last_by: [<column>, …]}"),
        Field(description="Different events of one key at one sequence."),
    ]
    on_invalid: Annotated[
        Literal["fail", "quarantine"] | _Template,
        Expects("one of fail, quarantine"),
        Field(description="What is no event."),
    ]
    on_late: Annotated[
        Literal["fail", "discard"] | _Template,
        Expects("one of fail, discard"),
        Field(description="An event below the lateness horizon."),
    ]
    delete_mode: Annotated[
        Literal["hard", "soft"] | _Template,
        Expects("one of hard, soft"),
        Field(description="soft: a deleted row stays, marked."),
    ]
    initial_load: Annotated[
        Literal["snapshot", "none"] | FromVersion | NoneAt | _Template,
        Expects("one of snapshot, none, or a mapping {from_version: N} or {none_at: V}"),
        Field(description="What a target begins with."),
    ]
    partition_by: Annotated[
        str | list[str] | dict[str, str | None],
        Expects("a list of columns, or a mapping from a column to its expression"),
        Field(description="Partition columns, or new columns with their expressions."),
    ]
    cluster_by: Annotated[_Names, Field(description="Clustering columns; an empty list is none.")]
    target_properties: Annotated[_Texts, Field(description="Table properties of a target that is made here.")]
    publish_changes: Annotated[_Bool, Field(description="Give the target a change data feed of its own.")]
    schema_evolution: Annotated[
        Literal["additive", "none"] | _Template,
        Expects("one of additive, none"),
        Field(description="Whether new columns are added."),
    ]
    on_drift: Annotated[
        Literal["fail", "accept", "repair"] | _Template,
        Expects("one of fail, accept, repair"),
        Field(description="Other options than the target was built with."),
    ]
    on_source_replaced: Annotated[_Reload, Field(description="The source was made again.")]
    on_target_replaced: Annotated[_Reload, Field(description="Somebody else replaced the target.")]
    on_versions_expired: Annotated[_Reload, Field(description="Versions to apply are gone.")]
    adopt_from: Annotated[_Name, Field(description="The pipeline that built the target until now.")]
    snapshot_version_column: Annotated[_Name, Field(description="Each value of it is one full copy.")]
    single_driver: Annotated[_Bool, Field(description="Only one Spark driver at a time writes the target.")]
    format: Annotated[
        Literal["json", "csv", "parquet"] | _Template,
        Expects("one of json, csv, parquet"),
        Field(description="Of files."),
    ]
    adapter: Annotated[_Name, Field(description="plain, debezium, dms, goldengate, or a dotted name.")]
    adapter_options: Annotated[_Anything, Field(description="What the adapter is told.")]
    schema: Annotated[_Text, Field(description="The events' columns as Spark SQL DDL.")]
    format_options: Annotated[_Texts, Field(description="Options of Spark's reader of files.")]
    max_files: Annotated[_Positive, Field(description="At most so many files per run.")]
    max_offsets: Annotated[_Positive, Field(description="At most so many records of a topic per run.")]
    glob: Annotated[_Text, Field(description="Pattern over the files' own names.")]
    lexical_order: Annotated[_Flag, Field(description="Names of new files always sort last.")]
    on_expired: Annotated[
        Literal["fail", "continue"] | _Template,
        Expects("one of fail, continue"),
        Field(description="Records that a topic lost before they were taken."),
    ]
    log_properties: Annotated[_Texts, Field(description="Table properties of a log that is made here.")]


@with_config(_STRICT)
class DagKeys(TypedDict, total=False):
    """What may be said of a group: its DAG, its tasks and its Spark application."""

    schedule: Annotated[
        str | Assets | None,
        Expects("a cron text, a preset like '@hourly', on_change, null, or a mapping {assets: [<table>, …]}"),
        Field(description="Cron, preset, on_change: a source has a new version; or after tables of others."),
    ]
    start_date: Annotated[_Text, Field(description="First moment, as 2026-01-31 or with a time.")]
    catchup: Annotated[_Bool, Field(description="Make up for intervals that passed.")]
    max_active_runs: Annotated[_FromOne, Field(description="Runs of the DAG at a time.")]
    max_parallel_tables: Annotated[
        _FromOne, Field(description="Tables at a time within the shared application; default 8.")
    ]
    dag_id: Annotated[_Name, Field(description="The DAG's id; {name} is the group's name, the default.")]
    tags: Annotated[list[str], Expects("a list of texts"), Field(description="The DAG's tags.")]
    owner: Annotated[_Text, Field(description="The tasks' owner.")]
    doc_md: Annotated[_Text, Field(description="The DAG's documentation, Markdown.")]
    description: Annotated[_Text, Field(description="The DAG's one line.")]
    pool: Annotated[_Name, Field(description="The tasks' pool.")]
    queue: Annotated[_Name, Field(description="The tasks' queue.")]
    retries: Annotated[_Whole, Field(description="Of a task.")]
    retry_delay: Annotated[_Span, Field(description="Seconds, or a text like '5 minutes'.")]
    execution_timeout: Annotated[_Span, Field(description="Of a task; seconds, or a text like '2 hours'.")]
    on_failure_callback: Annotated[_Callback, Field(description="Dotted names of functions, for tasks.")]
    on_success_callback: Annotated[_Callback, Field(description="The same for success.")]
    on_retry_callback: Annotated[_Callback, Field(description="The same for retries.")]
    is_paused_upon_creation: Annotated[_Bool, Field(description="Whether a new DAG waits to be unpaused.")]
    backfill: Annotated[
        _Bool, Field(description="Make a DAG of the name and __backfill as well; default true.")
    ]
    spark_conn_id: Annotated[_Name, Field(description="Spark connection; none runs inside the worker.")]
    delta_conn_id: Annotated[_Name, Field(description="Connection for the object store.")]
    kafka_conn_id: Annotated[_Name, Field(description="Connection of type kafka.")]
    deploy_mode: Annotated[
        Literal["client", "cluster"] | _Template,
        Expects("one of client, cluster"),
        Field(description="Of the Spark application."),
    ]
    conf: Annotated[_Texts, Field(description="Spark confs.")]
    jars: Annotated[_Text, Field(description="JARs in the place of the provider's.")]
    packages: Annotated[_Text, Field(description="Maven coordinates in the place of the provider's JARs.")]
    driver_memory: Annotated[_Text, Field(description="For instance 4g.")]
    executor_memory: Annotated[_Text, Field(description="For instance 4g.")]
    executor_cores: Annotated[_FromOne, Field(description="Of each executor.")]
    num_executors: Annotated[_FromOne, Field(description="Number of executors.")]
    storage_options: Annotated[_Texts, Field(description="Options of the object store; no secrets.")]
    kafka_options: Annotated[_Texts, Field(description="Options of Kafka's client; no secrets.")]


@with_config(_STRICT)
class Keys(TableKeys, DagKeys, total=False):
    """All of them: what may stand in ``defaults``."""

    group: Annotated[_Name, Field(description="The group that the pipeline runs in.")]


#: Mappings whose values are text to whoever reads them.
OF_TEXTS = (
    "target_properties",
    "format_options",
    "log_properties",
    "conf",
    "storage_options",
    "kafka_options",
)


@cache
def adapter() -> TypeAdapter[Any]:
    """Return what validates the keys of one place."""
    return TypeAdapter(Keys)


@cache
def expectations() -> dict[str, str]:
    """Return of every key what its value has to be."""
    hints = get_type_hints(Keys, include_extras=True)
    return {name: _expected(hint) for name, hint in hints.items()}


def _expected(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        said = [extra.text for extra in hint.__metadata__ if isinstance(extra, Expects)]
        if said:
            return str(said[-1])
        return _expected(get_args(hint)[0])
    return "another value"


def table_keys() -> tuple[str, ...]:
    """Return the names of the keys of a pipeline, in order."""
    return tuple(TableKeys.__annotations__)


def dag_keys() -> tuple[str, ...]:
    """Return the names of the keys of a group, in order."""
    return tuple(DagKeys.__annotations__)


def default_keys() -> tuple[str, ...]:
    """Return the names of all keys: those of ``defaults``, and of a pipeline without a group."""
    return (*table_keys(), *dag_keys(), "group")


def group_keys() -> tuple[str, ...]:
    """Return the names of the keys that a group may have: its own, and those it has for its pipelines."""
    return (*dag_keys(), *table_keys())
