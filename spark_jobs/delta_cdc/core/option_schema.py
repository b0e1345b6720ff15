"""Every option of an apply, an ingest and a read: its name, type, default and meaning.

This is the only definition. It provides defaults and parsing, the keys of a configuration and their JSON
Schema, the template fields of the operators and the tables of the documentation. The signatures of the
operators and functions repeat the names and defaults, for editors and for Airflow; a test compares them.

Callers give everyday options as arguments, and the others in the mappings ``limits``, ``policies``,
``layout`` and ``repair``. :func:`flat` replaces these mappings by their options: the engine knows no groups.

Rules between options are code: :mod:`delta_cdc.core.options`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.key_predicates import check_key_predicate
from delta_cdc.core.spec import Query, ReadMethod, SchemaEvolution, SourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")


@dataclass(frozen=True)
class Kind:
    """A kind of value, and its parser.

    :param name: identifies the kind for types, as in the model of a configuration
    :param expects: the form that a value must have; the end of "give …"
    :param read: parses a value, which may be rendered text; takes the option's name and the value, and
        returns None if the value is not given
    :param choices: the allowed words
    """

    name: str
    expects: str
    read: Callable[[str, Any], Any]
    choices: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Option:
    """One option.

    :param doc: the meaning, without a full stop
    :param default: the value if not given
    :param templated: whether the operators render it
    :param of_run: whether it belongs to one run only, so no configuration may contain it
    :param group: the mapping in which callers give it; "" for a separate argument
    """

    name: str
    kind: Kind
    doc: str
    default: Any = None
    templated: bool = True
    of_run: bool = False
    group: str = ""

    @property
    def key(self) -> str:
        """Return the name within the group: ``repair_keys`` is ``keys`` in ``repair``."""
        return self.name.removeprefix(f"{self.group}_")

    def read(self, value: Any) -> Any:
        """Return a value as the engine uses it.

        :raises InvalidConfiguration: the value has the wrong type; names the option
        """
        parsed = self.kind.read(self.name, value)
        return self.default if parsed is None else parsed


def filled(cls: type[_T], options: Mapping[str, Option], given: Mapping[str, Any], /, **more: Any) -> _T:
    """Create a dataclass whose fields are options.

    :param cls: the dataclass; a field that is not an option keeps its default, unless ``more`` has it
    :param options: :data:`APPLY`, :data:`INGEST` or :data:`READ`
    :param given: arguments by name, as people and templates write them; unknown ones are ignored
    :param more: fields set without parsing
    :raises InvalidConfiguration: a value has the wrong type; names the option
    """
    names = [f.name for f in fields(cls) if f.name in options and f.name not in more]  # type: ignore[arg-type]
    return cls(**{name: options[name].read(given.get(name)) for name in names}, **more)


#: The purpose of the options of each group.
GROUPS = {
    "limits": "Maximum sizes of a run and of a commit",
    "policies": "What a run does with invalid input or changed tables",
    "layout": "Columns, layout and properties of the tables that the pipeline creates",
    "repair": "With mode ``repair``: the keys to compute again, instead of a range",
}


def flat(options: Mapping[str, Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without groups: the options of each group replace the group's mapping.

    :param options: :data:`APPLY`, :data:`INGEST` or :data:`READ`, or a part of one
    :param given: arguments by name, as people and templates write them
    :raises InvalidConfiguration: a group is not a mapping, or has an unknown key
    """
    ungrouped = {name: value for name, value in given.items() if name not in GROUPS}
    for group in GROUPS:
        keys = in_group(options, group)
        for key, value in arguments.mapping(group, given.get(group)).items():
            if key not in keys:
                nearest = get_close_matches(key, keys, n=1)
                hint = f"did you mean {nearest[0]!r}? " if nearest else ""
                raise InvalidConfiguration(
                    f"{group} has the key {key!r}.",
                    remedy=f"{hint}Its keys are {', '.join(keys)}.",
                    argument=group,
                )
            ungrouped[keys[key].name] = value
    return ungrouped


def in_group(options: Mapping[str, Option], group: str) -> dict[str, Option]:
    """Return the options of a group, by their keys in the group."""
    return {option.key: option for option in options.values() if option.group == group}


def parameters(options: Mapping[str, Option], *, templated: bool = False) -> tuple[str, ...]:
    """Return the names of the arguments with which callers give options: a group counts as one argument.

    :param templated: return only arguments that the operators render
    """
    selected = (option for option in options.values() if option.templated or not templated)
    return tuple(dict.fromkeys(option.group or option.name for option in selected))


def kinds(options: Mapping[str, Option]) -> dict[str, Kind]:
    """Return the kinds of the arguments with which callers give options: a group is one mapping."""
    of_groups = {
        group: Kind("mapping", MAPPING.expects, partial(_read_group, options))
        for group in GROUPS
        if in_group(options, group)
    }
    return {
        name: of_groups[name] if name in of_groups else options[name].kind for name in parameters(options)
    }


def _read_group(options: Mapping[str, Option], group: str, value: Any) -> dict[str, Any]:
    return {name: options[name].read(item) for name, item in flat(options, {group: value}).items()}


def _by_name(*options: Option) -> dict[str, Option]:
    return {option.name: option for option in options}


# -- kinds --------------------------------------------------------------------------------------
def choice(*choices: str) -> Kind:
    """Return the kind whose values are the given words."""
    return Kind("choice", f"one of {', '.join(choices)}", partial(arguments.one_of, choices), choices)


def _predicate(name: str, value: Any) -> str | None:
    text = arguments.text(name, value)
    if text is not None:
        check_key_predicate(text)
    return text


NAME = Kind("name", "a name; one that looks like a number needs quotes", arguments.name)
TABLE = Kind("name", NAME.expects, arguments.table)
OPTIONAL_TABLE = Kind("name", NAME.expects, arguments.optional_table)
TEXT = Kind("text", "a text; one that looks like a number needs quotes", arguments.text)
PREDICATE = Kind("text", "a predicate over the key columns", _predicate)
NAMES = Kind("names", "a text or a list of texts", arguments.names)
KEYS = Kind("names", "a text or a list of texts", lambda name, value: arguments.columns(name, value) or ())
PROJECTIONS = Kind("names", KEYS.expects, arguments.projections)
#: An empty list differs from a list that is not given.
COLUMNS = Kind("names", KEYS.expects, arguments.columns)
COUNT = Kind("count", "a whole number >= 0", arguments.whole_number)
SPAN = Kind("span", "seconds, or a text like '5 minutes'", arguments.span)
POSITIVE = Kind("positive", "a whole number >= 1", partial(arguments.whole_number, minimum=1))
FLAG = Kind("flag", "true or false", arguments.flag)
SCD_TYPE = Kind("scd_type", "1 or 2", arguments.scd_type, (1, 2))
SEQUENCE = Kind("names", KEYS.expects, arguments.sequences)
CONFLICT = Kind(
    "conflict",
    "one of fail, quarantine, or a mapping {last_by: [<column>, …]}",
    arguments.conflict,
    arguments.CONFLICTS,
)
INITIAL_LOAD = Kind(
    "initial_load",
    "one of snapshot, none, or a mapping {from_version: N} or {none_at: V}",
    arguments.initial_load,
    arguments.INITIAL_LOADS,
)
PARTITIONS = Kind(
    "partitions", "a list of columns, or a mapping from a column to its expression", arguments.partitions
)
PROPERTIES = Kind("texts", "a mapping from names to values", arguments.properties)
MAPPING = Kind("mapping", "a mapping from names to values", arguments.mapping)
MAPPINGS = Kind("mappings", "a list of mappings", arguments.mappings)
SETTINGS = Kind("texts", MAPPING.expects, arguments.settings)
LISTED = Kind("names", NAMES.expects, arguments.listed)
ADAPTER = Kind("name", NAME.expects, arguments.adapter)
MODE = choice(*arguments.MODES, arguments.DRY_RUN)
FAIL_OR_RELOAD = choice("fail", "reload")

# -- options ------------------------------------------------------------------------------------
#: Options of an apply.
APPLY = _by_name(
    Option(
        "pipeline",
        NAME,
        "Name of the pipeline, which each of its commits records. None takes the last part of the name of "
        "the target or, if there is no target, of the change log. Do not change the name while that table "
        "exists. Two pipelines that write one table need different names",
    ),
    Option("source", TABLE, "Path, URI or catalog name of the source, ``${ENV}`` allowed"),
    Option(
        "target",
        TABLE,
        "Path, URI or catalog name of the target, ``${ENV}`` allowed. If the catalog does not have the name, "
        "the run that creates the target registers it",
    ),
    Option(
        "source_kind",
        choice(*get_args(SourceKind)),
        "``change_feed``: a table whose rows are inserted, updated and deleted; ``change_log``: an "
        "append-only table of events, which may come late and twice; ``snapshot``: full copies, one per "
        "version or per value of ``snapshot_version_column``. None means ``change_log`` for a log that an "
        "ingest made, and ``change_feed`` for any other table",
    ),
    Option("keys", KEYS, "Columns that identify a row; may be empty only with ``insert_only``"),
    Option(
        "insert_only",
        FLAG,
        "The source is append-only: it never updates or deletes rows",
        default=False,
        templated=False,
    ),
    Option(
        "stored_as_scd_type",
        SCD_TYPE,
        "1 keeps the current rows, 2 keeps every version of each row",
        default=1,
    ),
    Option(
        "sequence_by",
        SEQUENCE,
        "For a change log: one or more expressions that order the events of a key (the first one decides "
        "first). Required unless an ingest made the log. For other sources, type 2 only: the value for the "
        "start and end columns: ``_commit_version`` (default), ``_commit_timestamp``, or an expression "
        "over the columns",
    ),
    Option(
        "delete_sequence",
        TEXT,
        "For a change feed, type 2: the value of the end column of a deleted row. Required if "
        "``sequence_by`` is an expression over columns, because a deleted row has only its old values. "
        "Both must have the same type. If ``sequence_by`` is a time, you can use ``_commit_timestamp``",
    ),
    Option("starting_version", COUNT, "First version, inclusive; None continues after the watermark"),
    Option("ending_version", COUNT, "Last version, inclusive; None is the newest one"),
    Option(
        "starting_timestamp",
        TEXT,
        "First version at or after a time, such as ``2026-01-31T18:00:00+01:00``; in Airflow and for "
        "an apply also ``2026-01-31T18:00:00 Europe/Berlin``",
    ),
    Option(
        "ending_timestamp",
        TEXT,
        "Last version at or before a time",
    ),
    Option(
        "max_versions",
        POSITIVE,
        "Maximum number of versions of the source in one run, counted from the first one that changes data",
        group="limits",
    ),
    Option(
        "max_bytes",
        POSITIVE,
        "Maximum size of the changes in one run, in bytes, by the file sizes in the source's log. A run "
        "takes at least one version",
        group="limits",
    ),
    Option(
        "versions_per_commit",
        POSITIVE,
        "Maximum number of versions in one commit. One application makes all commits of a run, and a retry "
        "continues after the last one. None makes one commit per run, or several if the range is too long "
        "for one Spark plan",
        group="limits",
    ),
    Option(
        "bytes_per_commit", POSITIVE, "Maximum size of the changes in one commit, in bytes", group="limits"
    ),
    Option(
        "where",
        TEXT,
        "Predicate on rows. The run deletes a row that no longer matches, and inserts a row that matches "
        "now. From a change log, it ignores events that do not match",
    ),
    Option("select", PROJECTIONS, "Expressions that compute the columns; ``*`` means all columns"),
    Option(
        "apply_as_deletes",
        TEXT,
        "Predicate over the source's columns. In a change log, an event that matches is a delete. In other "
        "sources, the run treats a row that matches as absent",
    ),
    Option(
        "apply_as_truncates",
        TEXT,
        "Predicate: an event of a change log that matches is a truncate. It has no key, and deletes all "
        "rows with a lower sequence",
    ),
    Option(
        "column_list", COLUMNS, "Columns, after ``select``, that the target gets; it always gets the keys"
    ),
    Option("except_column_list", COLUMNS, "Columns, after ``select``, that the target does not get"),
    Option(
        "track_history_column_list", COLUMNS, "Type 2: only a change of these columns makes a new version"
    ),
    Option(
        "track_history_except_column_list",
        COLUMNS,
        "Type 2: a change of only these columns makes no new version",
    ),
    Option("ignore_null_updates", FLAG, "A NULL in an event does not change the column", default=False),
    Option(
        "ignore_null_updates_column_list",
        COLUMNS,
        "``ignore_null_updates`` only for these columns, or leaf fields of structs (``a.b``)",
    ),
    Option(
        "ignore_null_updates_except_column_list",
        COLUMNS,
        "``ignore_null_updates`` for all columns except these",
    ),
    Option(
        "columns_to_update",
        TEXT,
        "Column of the source whose array names the columns that an event contains. Other columns keep their "
        "values. A NULL array means all columns",
    ),
    Option("start_column", NAME, "Type 2: name of the start column", default="__START_AT", group="layout"),
    Option(
        "end_column",
        NAME,
        "Type 2: name of the end column (NULL in the current version)",
        default="__END_AT",
        group="layout",
    ),
    Option(
        "on_conflict",
        CONFLICT,
        "If different events of one key in a change log have the same sequence: ``fail``, ``quarantine``, "
        'or ``{"last_by": [<column>, ...]}``, which applies the event with the greatest values in these '
        "columns",
        default="fail",
        group="policies",
    ),
    Option(
        "on_invalid",
        choice("fail", "quarantine"),
        "If an event has no key or no sequence: ``fail``, or ``quarantine`` (into the table "
        "``<target>__quarantine``)",
        default="fail",
        group="policies",
    ),
    Option(
        "delete_mode",
        choice("hard", "soft"),
        "``hard`` deletes the row; ``soft`` (type 1) keeps the row, with ``_deleted`` true",
        default="hard",
    ),
    Option(
        "initial_load",
        INITIAL_LOAD,
        'First run: ``snapshot`` loads the newest version; ``{"from_version": N}`` loads version N - 1, and '
        "applies the changes since; ``none`` loads nothing: the target already equals the newest version of "
        'the source; ``{"none_at": V}`` loads nothing: the target already equals version V',
        default="snapshot",
    ),
    Option(
        "partition_by",
        PARTITIONS,
        "Partition columns, or a mapping from a new partition column to its expression",
        group="layout",
    ),
    Option(
        "cluster_by",
        COLUMNS,
        "Clustering columns. None takes up to four keys, unless ``partition_by`` is set; an empty list means "
        "no clustering",
        group="layout",
    ),
    Option(
        "target_properties",
        PROPERTIES,
        "Table properties of a target that the pipeline creates",
        group="layout",
    ),
    Option(
        "target_location",
        OPTIONAL_TABLE,
        "If the target is a catalog name: path or URI of its table, ``${ENV}`` allowed. None takes the "
        "location in the catalog. For a new table, None takes the folder with the table's name in the "
        "location of its schema",
        group="layout",
    ),
    Option(
        "target_comment",
        TEXT,
        "Comment of a table that this pipeline registers in the catalog",
        group="layout",
    ),
    Option(
        "publish_changes",
        FLAG,
        "Turn on the change data feed of a target that the pipeline creates",
        default=False,
        group="layout",
    ),
    Option(
        "schema_evolution",
        choice(*get_args(SchemaEvolution)),
        "``additive``: the target gets new columns; ``none``: new columns are an error; ``widen``: as "
        "``additive``, and column types widen as in the source, also in an ingest's change log; "
        "``keep_dropped``: as ``widen``, and a column that the source drops stays, with NULL in new rows; "
        "``mirror``: as ``widen``, and the target drops and renames columns as the source does",
        default="additive",
        group="policies",
    ),
    Option(
        "mode",
        MODE,
        "``incremental`` (also an empty text): apply the changes after the watermark. ``backfill``: the "
        "same, up to an end. ``dry_run``: ``incremental`` with ``dry_run=True``. ``repair``: compute again "
        "the rows of the keys that changed in a range, or that ``repair`` selects; the watermark stays. "
        "``reload``: compute again the rows of all keys. ``reset``: delete the target's rows, and load it "
        "again. ``interval``, for runs with a data interval: apply the changes before the end of the "
        "interval; if they are already applied, repair the keys that changed in the interval",
        default="incremental",
        of_run=True,
    ),
    Option(
        "discard_history",
        FLAG,
        "Allow ``reset`` of type 2, which deletes the history",
        default=False,
        of_run=True,
    ),
    Option(
        "repair_keys",
        PREDICATE,
        "Predicate over the key columns: repair these keys, instead of a range. It compares the columns with "
        "literals; no function or subquery is allowed",
        of_run=True,
        group="repair",
    ),
    Option(
        "repair_quarantined",
        FLAG,
        "Repair the keys in the quarantine table",
        default=False,
        of_run=True,
        group="repair",
    ),
    Option(
        "on_late",
        choice("fail", "discard"),
        "If an event of a change log is below the lateness horizon: ``fail`` or ``discard``",
        default="fail",
        group="policies",
    ),
    Option(
        "on_drift",
        choice("fail", "accept", "repair"),
        "If the options differ from those that built the target: ``fail``; ``accept``: use the new ones "
        "from now on; ``repair``: use the new ones, and reload the target",
        default="fail",
        group="policies",
    ),
    Option(
        "on_source_replaced",
        FAIL_OR_RELOAD,
        "If another table replaced the source: ``fail`` or ``reload``",
        default="fail",
        group="policies",
    ),
    Option(
        "on_target_replaced",
        FAIL_OR_RELOAD,
        "If another writer replaced or overwrote the target: ``fail`` or ``reload``",
        default="fail",
        group="policies",
    ),
    Option(
        "on_versions_expired",
        FAIL_OR_RELOAD,
        "If retention removed versions that the run must apply: ``fail`` or ``reload``",
        default="fail",
        group="policies",
    ),
    Option(
        "allow_empty",
        FLAG,
        "Full copies (``source_kind`` ``snapshot``): apply a copy without rows, which deletes or closes "
        "every row of the target. Otherwise the run fails with ``EmptyCopy``",
        default=False,
        group="policies",
    ),
    Option(
        "take_over_from",
        NAME,
        "Old name of the pipeline that built the target: this pipeline continues at the old watermark, and "
        "later runs under the old name fail",
    ),
    Option(
        "snapshot_version_column",
        NAME,
        "With ``source_kind`` ``snapshot``: the column that distinguishes the copies. A later copy must have "
        "a greater value",
    ),
    Option(
        "freshness",
        SPAN,
        "Maximum age of a change that is not applied, such as ``30 minutes``. ``delta-cdc status``, the "
        "metrics and the results of runs report a pipeline with an older change as late",
        templated=False,
    ),
    Option(
        "single_driver",
        FLAG,
        "True: you make sure that only one Spark driver at a time writes to the table. Needed on S3 if "
        "Spark's log store is not safe for several drivers, and on disks without hard links",
        default=False,
        templated=False,
    ),
    Option(
        "dry_run", FLAG, "Plan, count and show the statements, but write nothing", default=False, of_run=True
    ),
    Option(
        "staging",
        OPTIONAL_TABLE,
        "Staging table of ``DeltaReadChangesOperator``: apply the batch in it, instead of reading the source",
        of_run=True,
    ),
)

_INGEST = _by_name(
    Option(
        "source",
        TABLE,
        "Folder or prefix of files, or ``kafka://<host:port>,…/<topic>,…``; ``${ENV}`` allowed",
    ),
    Option(
        "log",
        TABLE,
        "Path, URI or catalog name of the change log, ``${ENV}`` allowed. The ingest creates it if needed",
    ),
    Option(
        "target",
        OPTIONAL_TABLE,
        "Path, URI or catalog name of the table to which the run applies the log; None only ingests",
    ),
    Option(
        "format",
        choice("json", "csv", "parquet", "avro"),
        "Format of files: ``json`` (one object per line; with the format option ``multiLine``, one array per "
        "file), ``csv``, ``parquet`` or ``avro`` (object container files). Of topics: ``json``, or ``avro`` "
        "with the ids of a schema registry",
        default="json",
    ),
    Option(
        "adapter",
        ADAPTER,
        "What converts a record into an event: ``plain``, ``canal``, ``debezium``, ``dms``, ``goldengate``, "
        "``maxwell``, ``mongodb``, or the dotted name of your function",
        default="plain",
    ),
    Option("adapter_options", MAPPING, "Options of the adapter"),
    Option("schema", TEXT, "The events' columns as Spark SQL DDL; None infers them from the records"),
    Option("format_options", PROPERTIES, 'Options of the format, such as ``{"sep": ";"}``'),
    Option(
        "starting_timestamp",
        TEXT,
        "Skip files and records before this time, such as ``2026-01-31T18:00:00+01:00``, and count them",
    ),
    Option("max_files", POSITIVE, "Maximum number of files in one run", group="limits"),
    Option(
        "max_bytes",
        POSITIVE,
        "Maximum size of the files in one run, in bytes. A run takes at least one file",
        group="limits",
    ),
    Option("max_offsets", POSITIVE, "Kafka: maximum number of records in one run", group="limits"),
    Option("glob", TEXT, "Pattern for the names of files, without their folders, such as ``orders-*.json``"),
    Option(
        "lexical_order",
        FLAG,
        "True: the name of each new file sorts after the names of all earlier files, so a run lists only "
        "the names after the last one",
        default=False,
    ),
    Option(
        "follow_links",
        FLAG,
        "True: follow links in a local folder that lead out of it. Whoever can write into it can then "
        "have the run ingest any file that the task can read",
        default=False,
    ),
    Option(
        "on_invalid",
        choice("fail", "quarantine"),
        "If a record is not an event: ``quarantine`` or ``fail``",
        default="quarantine",
        group="policies",
    ),
    Option(
        "on_expired",
        choice("fail", "continue"),
        "If Kafka deleted records before an ingest read them: ``fail``, or ``continue`` at the oldest "
        "record that remains",
        default="fail",
        group="policies",
    ),
    Option(
        "replay",
        FLAG,
        "Ingest the records in quarantine again, with the current arguments, instead of new records",
        default=False,
        of_run=True,
    ),
    Option(
        "source_kind",
        choice(*get_args(SourceKind)),
        "How the apply reads the log; None is ``change_log``, or ``change_feed`` with ``insert_only``",
    ),
    Option(
        "log_properties", PROPERTIES, "Table properties of a log that the pipeline creates", group="layout"
    ),
)
#: Options of an ingest, including those of the apply of its log.
INGEST = {
    **{name: APPLY[name] for name in ("pipeline", "source", "target")},
    "log": _INGEST["log"],
    **{name: option for name, option in APPLY.items() if name != "staging"},
    **_INGEST,
}

_OF_A_RANGE = (
    "starting_version",
    "ending_version",
    "starting_timestamp",
    "ending_timestamp",
    "max_versions",
    "max_bytes",
    "versions_per_commit",
    "bytes_per_commit",
    "single_driver",
)
#: Options of a read of changes.
READ = {
    **_by_name(
        Option("pipeline", NAME, "The pipeline's name, the same as in the apply or commit task"),
        Option("table", TABLE, "Path, URI or catalog name of the source, ``${ENV}`` allowed"),
        Option("staging", TABLE, "Path or URI of the staging table. The read creates it if needed"),
        Option(
            "target",
            OPTIONAL_TABLE,
            "Path, URI or catalog name of the target with the watermark; None for your own sink",
        ),
        Option(
            "query",
            choice(*get_args(Query)),
            "``full_delta``: every change, with pre-images; ``append_only``: every inserted row, with the "
            "inserted values; ``min_delta``: the net change of each key; ``upsert``: the last row of every "
            "changed key that still exists. An apply accepts only ``full_delta``",
            default="full_delta",
        ),
        Option(
            "keys",
            KEYS,
            "Columns that identify a row; required for ``upsert`` and with ``where``, and for ``min_delta`` "
            "unless row tracking is on",
        ),
        Option(
            "method",
            choice(*get_args(ReadMethod)),
            "``change_files`` (Delta's change data feed), ``row_tracking``, ``snapshot_diff`` or "
            "``added_files``; ``auto`` chooses one of them for each part of the range",
            default="auto",
        ),
        Option(
            "where",
            TEXT,
            "Spark SQL predicate on rows. A row that no longer matches becomes a delete, and a row that "
            "matches now becomes an insert",
        ),
        Option("select", PROJECTIONS, "Spark SQL expressions that compute the columns"),
        Option(
            "raw",
            FLAG,
            "For ``full_delta``: return exactly the rows of the change data feed, also those that a commit "
            "rewrote unchanged",
            default=False,
            templated=False,
        ),
        Option(
            "on_change_commit",
            choice("fail", "skip"),
            "For the method ``added_files``: ``fail`` at a commit that removes rows, or ``skip`` it; "
            "``skip`` is not possible with a ``target``",
            default="fail",
            group="policies",
        ),
        Option(
            "output_path",
            OPTIONAL_TABLE,
            "Folder for readers without Delta: the read also writes the batch as files into its subfolder "
            "``<starting>-<ending>-<plan>``. Read only the subfolder that the XCom's ``output`` names",
        ),
        Option(
            "output_format",
            choice("parquet", "json"),
            "Format of the files in ``output_path``: ``parquet`` or ``json``",
            default="parquet",
        ),
    ),
    **{name: APPLY[name] for name in _OF_A_RANGE},
}
