"""The MERGE: its text, and, for a dry run, the counts of what it would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from delta_cdc import sql
from delta_cdc.sql import PLAN_PREFIX, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VIEW = f"{PLAN_PREFIX}source"
_MATCHED = f"{PLAN_PREFIX}matched"


@dataclass(frozen=True)
class Clause:
    """One WHEN clause.

    :param matched: WHEN MATCHED, else WHEN NOT MATCHED
    :param action: what is counted; ``text`` is what is done
    :param raises: SQL of the message, where the clause is there to fail
    """

    matched: bool
    condition: str | None
    action: Literal["insert", "update", "delete"]
    text: str
    raises: str | None = None

    @property
    def told(self) -> str:
        """Return the SQL of what a count calls the action."""
        return f"'{self.action}'" if self.raises is None else f"raise_error({self.raises})"

    def __str__(self) -> str:
        when = "WHEN MATCHED" if self.matched else "WHEN NOT MATCHED"
        condition = f" AND {self.condition}" if self.condition is not None else ""
        return f"{when}{condition} THEN {self.text}"


@dataclass(frozen=True)
class Merge:
    """A MERGE of ``source`` (alias ``s``) into the table ``target`` (alias ``t``).

    :param on: conjuncts of ON
    :param clauses: in order; the first whose condition holds acts
    :param confs: Spark confs for this statement alone
    """

    target: str
    source: DataFrame
    on: tuple[str, ...]
    clauses: tuple[Clause, ...]
    evolve: bool = False
    confs: dict[str, str] = field(default_factory=dict)

    @property
    def statement(self) -> str:
        """Return the SQL text."""
        return sql.merge(
            target=self.target,
            source_view=_VIEW,
            on=self.on,
            clauses=map(str, self.clauses),
            evolve=self.evolve,
        )

    def run(self, session: SparkSession) -> None:
        """Run the statement."""
        self.source.createOrReplaceTempView(_VIEW)
        before = {name: session.conf.get(name, None) for name in self.confs}
        for name, value in self.confs.items():
            session.conf.set(name, value)
        try:
            session.sql(self.statement)
        finally:
            session.catalog.dropTempView(_VIEW)
            for name, old in before.items():
                if old is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, old)

    def counted(self, session: SparkSession) -> dict[str, int]:
        """Return how many rows the statement would insert, update and delete; writes nothing.

        It fails where the statement would.
        """
        self.source.createOrReplaceTempView(_VIEW)
        chosen = " ".join(
            f"WHEN {'' if clause.matched else 'NOT '}{_MATCHED} AND {clause.condition or 'true'} "
            f"THEN {clause.told}"
            for clause in self.clauses
        )
        text = "\n".join(
            [
                f"SELECT action, count(*) AS n FROM (SELECT CASE {chosen} END AS action FROM",
                f"(SELECT s.*, true AS {quote(_SOURCE)} FROM {quote(_VIEW)} AS s) AS s",
                f"LEFT JOIN (SELECT *, true AS {quote(_FOUND)} FROM {sql.table(self.target)}) AS t",
                f"ON {' AND '.join(self.on)})",
                "WHERE action IS NOT NULL GROUP BY action",
            ]
        ).replace(_MATCHED, f"(t.{quote(_FOUND)} IS NOT NULL)")
        found = {row["action"]: row["n"] for row in session.sql(text).collect()}
        return {done: found.get(action, 0) for action, done in _DONE.items()}


_FOUND, _SOURCE = f"{PLAN_PREFIX}found", f"{PLAN_PREFIX}from_source"
_DONE = {"insert": "inserted", "update": "updated", "delete": "deleted"}
