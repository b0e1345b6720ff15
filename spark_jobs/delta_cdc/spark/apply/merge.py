"""Build and run a MERGE; count its effect for a dry run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core import sql
from delta_cdc.core.spark_versions import SCHEMA_EVOLUTION
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.changes.equality import conformed
from delta_cdc.spark.sessions import set_where_allowed, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_VIEW = f"{PLAN_PREFIX}source"
_WRITES = f"{PLAN_PREFIX}writes"


def from_source(names: Iterable[str]) -> dict[str, str]:
    """Return each column with the SQL of its value in the MERGE's source."""
    return {name: sql.column("s", name) for name in names}


@dataclass(frozen=True)
class Clause:
    """One WHEN clause.

    :param matched: WHEN MATCHED, else WHEN NOT MATCHED
    :param sets: column of the target -> SQL of its new value
    :param raises: SQL of the message, if the clause exists only to fail
    """

    matched: bool
    condition: str
    action: Literal["insert", "update", "delete"]
    sets: Mapping[str, str] = field(default_factory=dict)
    raises: str | None = None

    def __str__(self) -> str:
        action = "DELETE"
        if self.action != "delete":
            action = sql.insert(self.sets) if self.action == "insert" else sql.update_set(self.sets)
        return f"WHEN {'' if self.matched else 'NOT '}MATCHED AND {self.condition} THEN {action}"


@dataclass(frozen=True)
class Ends:
    """The keys that a statement would change.

    :param keys: one row per key
    :param ended: whether its row ends, and it gets no other one
    """

    keys: DataFrame
    ended: Column


@dataclass(frozen=True)
class Merge:
    """A MERGE of ``source`` (alias ``s``) into the table ``target`` (alias ``t``).

    :param on: conditions of ON, joined by AND
    :param clauses: in order; the first clause whose condition is true acts
    :param evolve: whether the statement adds columns to the target
    :param confs: Spark confs for this statement only, which save time
    """

    target: str
    source: DataFrame
    on: tuple[str, ...]
    clauses: tuple[Clause, ...]
    evolve: bool = False
    confs: dict[str, str] = field(default_factory=dict)

    @property
    def statement(self) -> str:
        """Return the SQL text, as a reader can run it."""
        return self._text(evolve=self.evolve)

    def _text(self, *, evolve: bool) -> str:
        return sql.merge(
            target=self.target,
            source_view=_VIEW,
            on=self.on,
            clauses=map(str, self.clauses),
            evolve=evolve,
        )

    def run(self, session: SparkSession) -> None:
        """Run the statement."""
        self.source.createOrReplaceTempView(_VIEW)
        evolution = SCHEMA_EVOLUTION if self.evolve else {}
        previous = {name: value_of(session, name) for name in (*self.confs, *evolution)}
        taken = set_where_allowed(session, {**self.confs, **evolution})
        try:
            # A platform that refuses the conf has the clause, which Delta before 4.4 refuses.
            session.sql(self._text(evolve=self.evolve and not evolution.keys() <= set(taken)))
        finally:
            session.catalog.dropTempView(_VIEW)
            set_where_allowed(session, {name: previous[name] for name in taken})

    def counted(self, session: SparkSession) -> dict[str, int]:
        """Return how many rows the statement would insert, update and delete. Nothing is written.

        This fails if the statement would fail.
        """
        self.source.createOrReplaceTempView(_VIEW)
        action = self._chosen(
            [
                f"raise_error({clause.raises})" if clause.raises else f"'{clause.action}'"
                for clause in self.clauses
            ]
        )
        text = f"SELECT action, count(*) AS n FROM ({self._joined({'action': action})}) GROUP BY action"
        counts = {row["action"]: row["n"] for row in session.sql(text).collect()}
        return {count_name: counts.get(name, 0) for name, count_name in _DONE.items()}

    def ends(
        self, session: SparkSession, keys: Sequence[str], dead: Mapping[str, Callable[[str], str]]
    ) -> Ends:
        """Return the keys that the statement would change, and which of them would have no row any more.

        Nothing is written.

        :param keys: columns of the source
        :param dead: columns of the target whose values end a row, and their tests, see
            :func:`delta_cdc.spark.apply.target_columns.gone`; empty if only a delete ends a row
        """
        self.source.createOrReplaceTempView(_VIEW)

        def lives(values: Mapping[str, str]) -> str:
            tests = [f"NOT ({test(values[name])})" for name, test in dead.items() if name in values]
            return " AND ".join(tests) or "true"

        before = {name: sql.column("t", name) for name in dead}
        after = [
            "false"
            if clause.action == "delete"
            else lives({**(before if clause.matched else {}), **clause.sets})
            for clause in self.clauses
        ]
        columns = {
            **{key: sql.column("s", key) for key in keys},
            _BEFORE: f"t.{quote(_FOUND)} IS NOT NULL AND {lives(before)}",
            _AFTER: self._chosen(after),
        }
        acted = session.sql(self._joined(columns)).where(F.col(_AFTER).isNotNull())
        per_key = acted.groupBy(*[quote(key) for key in keys]).agg(
            F.max(_BEFORE).alias(_BEFORE), F.max(_AFTER).alias(_AFTER)
        )
        return Ends(per_key, F.col(_BEFORE) & ~F.col(_AFTER))

    def written(self, session: SparkSession) -> DataFrame:
        """Return the rows that the statement would insert or update, with their new values.

        They have the columns that an insert sets, because only Delta knows the other values of a new row.
        """
        self.source.createOrReplaceTempView(_VIEW)
        found, given = (
            {field.name.lower(): field.dataType for field in rows.schema.fields}
            for rows in (session.read.format("delta").load(self.target), self.source)
        )
        inserts = [clause for clause in self.clauses if clause.action == "insert"]
        names = [name for name in inserts[0].sets if all(name in clause.sets for clause in inserts)]
        columns = {}
        for name in names:
            current_value, current_type = "NULL", found.get(name.lower())
            if current_type is not None:
                wanted = given.get(name.lower(), current_type)
                current_value = conformed(sql.column("t", name), current_type, wanted)
            columns[name] = self._chosen([clause.sets.get(name, current_value) for clause in self.clauses])
        acts = self._chosen([str(clause.action != "delete").lower() for clause in self.clauses])
        return session.sql(self._joined({**columns, _WRITES: acts})).where(quote(_WRITES)).drop(_WRITES)

    def _chosen(self, values: Sequence[str]) -> str:
        """Return SQL for the value of the clause that acts on a row; NULL if no clause acts.

        :param values: one for each clause
        """
        has_row = f"(t.{quote(_FOUND)} IS NOT NULL)"
        cases = " ".join(
            f"WHEN {'' if clause.matched else 'NOT '}{has_row} AND {clause.condition} THEN {value}"
            for clause, value in zip(self.clauses, values, strict=True)
        )
        return f"CASE {cases} END"

    def _joined(self, columns: Mapping[str, str]) -> str:
        """Return the query that joins columns of the source's rows with those of the matching target rows."""
        select_list = ", ".join(f"{value} AS {quote(name)}" for name, value in columns.items())
        return "\n".join(
            [
                f"SELECT {select_list} FROM",
                f"(SELECT s.*, true AS {quote(_SOURCE)} FROM {quote(_VIEW)} AS s) AS s",
                f"LEFT JOIN (SELECT *, true AS {quote(_FOUND)} FROM {sql.table(self.target)}) AS t",
                f"ON {' AND '.join(self.on)}",
            ]
        )


_BEFORE, _AFTER = f"{PLAN_PREFIX}lived", f"{PLAN_PREFIX}lives"
_FOUND, _SOURCE = f"{PLAN_PREFIX}found", f"{PLAN_PREFIX}from_source"
_DONE = {"insert": "inserted", "update": "updated", "delete": "deleted"}
