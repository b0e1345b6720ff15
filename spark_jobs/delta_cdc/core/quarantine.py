"""Where the quarantine of a table is, and what to do with its rows: the same sentences in logs and pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.core.sql import string
from delta_cdc.core.text_table import plural
from delta_cdc.core.uris import spark_uri

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

#: Suffix of the name of a target's or change log's quarantine.
QUARANTINE = "__quarantine"
#: Key of the configuration in a seal: the pipeline has put rows into the quarantine beside its target.
ASIDE = "set_aside"
#: Key of the configuration in a seal: rows with this mark are no longer in quarantine, but in the table.
SETTLING = "settling"
#: Column of a quarantine: the marks of the tries that took the row out (:data:`SETTLING`); NULL in most rows.
SETTLED_BY = "settled_by"


@dataclass(frozen=True)
class Held:
    """The rows of a pipeline that are in quarantine now, as a run publishes them.

    :param table: location of the target or of the change log, beside which the quarantine is
    """

    table: str
    rows: int
    is_log: bool


def settling_of(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a seal's configuration that the next step needs, even if it takes nothing else."""
    return {SETTLING: configuration[SETTLING]} if SETTLING in configuration else {}


def quarantine_of(table: str) -> str:
    """Return the location of a table's quarantine, as Spark names it."""
    return f"{spark_uri(table).rstrip('/')}{QUARANTINE}"


def key_text_sql(keys: str, name: str) -> str:
    """Return the SQL of the text of a key column in a quarantine; NULL without such a column.

    The source, the target and ``select`` may spell a name in other cases, which are one name for Spark.

    :param keys: the SQL of the column ``keys``
    """
    return f"try_element_at({_texts_sql(keys)}, lower({string(name)}))"


def has_key_sql(keys: str, name: str) -> str:
    """Return the SQL of whether a row of a quarantine has a key column; NULL for a row without keys.

    :param keys: the SQL of the column ``keys``
    """
    return f"map_contains_key({_texts_sql(keys)}, lower({string(name)}))"


def other_names_sql(keys: str, names: Sequence[str]) -> str:
    """Return the SQL of whether a row of a quarantine has a key of other columns, as from before a rename.

    :param keys: the SQL of the column ``keys``
    :param names: of the key columns now
    """
    return " OR ".join(f"NOT {has_key_sql(keys, name)}" for name in names)


def _texts_sql(keys: str) -> str:
    return f"transform_keys(from_json({keys}, 'MAP<STRING, STRING>'), (name, text) -> lower(name))"


def where_rows_are(rows: int, table: str, noun: str = "row") -> str:
    """Return a sentence about rows that a run put into the quarantine of a table.

    :param noun: ``row``, ``record`` or ``event``
    """
    return f"{plural(rows, noun)} in quarantine, each with its reason: {table}{QUARANTINE}."


def replay(pipeline: str, table: str, configuration: str = "") -> str:
    """Return the command that processes the rows in quarantine again.

    :param configuration: its file, whose options a replay takes; "": those of the table's seal
    """
    chosen = f"{configuration} {pipeline}" if configuration else f"{pipeline}={table}"
    return f"delta-cdc replay {chosen}"


def no_records(table: str, pipeline: str, others: Sequence[str] = ()) -> str:
    """Return a sentence about a quarantine that has nothing to replay.

    :param others: the pipelines whose rows it has, as those of an ingest that got another name
    """
    text = f"The quarantine {quarantine_of(table)} has no records of pipeline {pipeline}."
    if not others:
        return text
    return f"{text} It has records of {', '.join(others)}; replay them by: {replay(others[0], table)}"


#: The reason of rows without a key, which a replay leaves where they are.
NULL_KEY = "null_key"
#: A run of a task that takes the rows in quarantine again, with the task's own options.
REPAIR = 'start a run with mode repair and repair_quarantined (in code: repair={"quarantined": True})'


def then_replay(pipeline: str, table: str, configuration: str = "", *, is_log: bool) -> str:
    """Return the remedy, for a person who has the command."""
    return f"{_corrected(is_log=is_log)}, then run: {replay(pipeline, table, configuration)}"


def then_repair(*, is_log: bool) -> str:
    """Return the remedy, for a person in Airflow. A command would take rules and policies of the seal."""
    return f"{_corrected(is_log=is_log)}, then {REPAIR}."


def _corrected(*, is_log: bool) -> str:
    # A replay reads a log's records again, and computes a target's keys as of its watermark.
    if is_log:
        return "correct the options or the records there (or deliver a file again, corrected, under its name)"
    return "correct the source, run the pipeline"
