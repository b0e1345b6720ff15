"""Every clause of AUTO CDC: its names in Python and in SQL, and the option that has its meaning.

Both readers, the converter and the error messages use these tables, so a clause is one entry here.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The kinds of values: a list of columns; the name of one column; a predicate; the order of events; true or
#: false; the SCD type; a text; a mapping of texts; predicates by names.
NAMES, NAME, PREDICATE, ORDER, FLAG, SCD_TYPE, TEXT, TEXTS, CHECKS = (
    "a list of columns",
    "the name of a column",
    "a predicate",
    "the column or struct that orders events",
    "true or false",
    "1 or 2",
    "a text",
    "a mapping of texts",
    "a mapping of predicates",
)


@dataclass(frozen=True)
class Clause:
    """A clause.

    :param argument: its name in Python
    :param kind: the kind of its value
    :param words: the words that introduce it in SQL; "" if SQL lacks it
    :param option: the option of a pipeline, with its group (``layout.cluster_by``); "" without one
    :param instead: without an option: what to do instead. Empty: the clause changes no row, and is left out
    :param also: further names in Python
    :param reason: of a left-out clause, why it is left out
    """

    argument: str
    kind: str
    words: str = ""
    option: str = ""
    instead: str = ""
    also: tuple[str, ...] = ()
    reason: str = ""

    @property
    def shown(self) -> str:
        """Return its names for a message."""
        return f"{self.argument} ({self.words})" if self.words else self.argument


_NO_BITEMPORAL = "remove it: there are no bitemporal tables here; type 2 has one time axis."
_CONF = "remove it, and write conf in the defaults or the group: it holds the confs of the Spark application."

#: The clauses of a flow that applies events.
EVENTS: tuple[Clause, ...] = (
    Clause("keys", NAMES, "KEYS", "keys"),
    Clause("where", PREDICATE, "WHERE", "where"),
    Clause("ignore_null_updates", FLAG, "IGNORE NULL UPDATES", "ignore_null_updates"),
    Clause(
        "ignore_null_updates_column_list", NAMES, "IGNORE NULL UPDATES ON", "ignore_null_updates_column_list"
    ),
    Clause(
        "ignore_null_updates_except_column_list",
        NAMES,
        "IGNORE NULL UPDATES ON * EXCEPT",
        "ignore_null_updates_except_column_list",
    ),
    Clause("apply_as_deletes", PREDICATE, "APPLY AS DELETE WHEN", "apply_as_deletes"),
    Clause("apply_as_truncates", PREDICATE, "APPLY AS TRUNCATE WHEN", "apply_as_truncates"),
    Clause("sequence_by", ORDER, "SEQUENCE BY", "sequence_by"),
    Clause("system_sequence_by", ORDER, "SYSTEM SEQUENCE BY", instead=_NO_BITEMPORAL),
    Clause("column_list", NAMES, "COLUMNS", "column_list"),
    Clause("except_column_list", NAMES, "COLUMNS * EXCEPT", "except_column_list"),
    Clause("columns_to_update", NAME, "COLUMNS TO UPDATE", "columns_to_update"),
    Clause("stored_as_scd_type", SCD_TYPE, "STORED AS", "stored_as_scd_type"),
    Clause("track_history_column_list", NAMES, "TRACK HISTORY ON", "track_history_column_list"),
    Clause(
        "track_history_except_column_list",
        NAMES,
        "TRACK HISTORY ON * EXCEPT",
        "track_history_except_column_list",
    ),
    Clause("name", TEXT, "", "pipeline", also=("flow_name",)),
    Clause("once", FLAG, "ONCE", "once"),
    Clause("spark_conf", TEXTS, "", instead=_CONF, also=("spark_confs",)),
)
#: The clauses of a flow that compares full copies.
SNAPSHOTS: tuple[Clause, ...] = tuple(
    one
    for one in EVENTS
    if one.argument
    in (
        "keys",
        "stored_as_scd_type",
        "track_history_column_list",
        "track_history_except_column_list",
        "name",
        "once",
        "spark_conf",
    )
)
#: The clauses of the definition of a target.
TABLE: tuple[Clause, ...] = (
    Clause("comment", TEXT, "COMMENT", "layout.target_comment"),
    Clause("table_properties", TEXTS, "TBLPROPERTIES", "layout.target_properties"),
    Clause("partition_cols", NAMES, "PARTITIONED BY", "layout.partition_by"),
    Clause("cluster_by", NAMES, "CLUSTER BY", "layout.cluster_by"),
    Clause("path", TEXT, "LOCATION", "layout.target_location"),
    Clause("expect_all", CHECKS, "", "rules"),
    Clause("expect_all_or_drop", CHECKS, "", "rules"),
    Clause("expect_all_or_fail", CHECKS, "", "rules"),
    Clause("format", TEXT, "USING", instead="write delta: the target is a Delta table."),
    Clause("cluster_by_auto", FLAG, "CLUSTER BY AUTO", reason="the run clusters the target by its keys"),
    Clause(
        "schema",
        TEXT,
        "(columns)",
        instead="remove it: the target gets the columns and types of the source. To convert values, use "
        "select in the configuration.",
    ),
    Clause("row_filter", TEXT, "WITH ROW FILTER", instead="remove it: open-source Delta has no row filters."),
    Clause("spark_conf", TEXTS, "", instead=_CONF),
    Clause("schedule", TEXT, "SCHEDULE", instead="remove it, and write schedule in the defaults."),
)
#: What a run does with a row that breaks an expectation.
ON_BREAK = {"expect_all": "flag", "expect_all_or_drop": "quarantine", "expect_all_or_fail": "fail"}
#: The reaction that SQL names after ON VIOLATION; without one, the row counts as a warning.
ON_VIOLATION = {
    "": "expect_all",
    "DROP ROW": "expect_all_or_drop",
    "FAIL UPDATE": "expect_all_or_fail",
}
#: Options of a reader that change no row, but only the size of a batch.
SIZES = ("maxfilespertrigger", "maxbytespertrigger")
#: Options that turn on Delta's change feed.
FEED = ("readchangefeed", "readchangedata")


def by_argument(clauses: tuple[Clause, ...]) -> dict[str, Clause]:
    """Return clauses by all their names in Python."""
    return {name: one for one in clauses for name in (one.argument, *one.also)}
