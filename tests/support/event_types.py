"""Two sides of a table, before and after: the same as a change feed, and as a log of events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.engine import versions
from tests.support.event_flow import LogFlow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

#: Ways of a value.
SAME, CHANGED, GONE, CAME = range(4)
FEED, EVENTS, LATE = "change feed", "events", "late events"


@dataclass(frozen=True)
class Kind:
    """A type with a value, one that is equal to it, and one that is not, as Spark SQL."""

    type: str
    value: str
    equal: str
    other: str


def same(type_: str, value: str, other: str) -> Kind:
    return Kind(type_, value, value, other)


def _cast(kind: Kind, value: str) -> str:
    return f"CAST({value} AS {kind.type})"


def sides(spark: SparkSession, kinds: Mapping[str, Kind]) -> tuple[DataFrame, DataFrame]:
    """Return the rows before and after: ``way`` says how the value of the column ``place`` goes."""
    before, after = [], []
    for place, (name, kind) in enumerate(kinds.items()):
        value, equal, other = (_cast(kind, text) for text in (kind.value, kind.equal, kind.other))
        here = f"CASE WHEN place <> {place} THEN {value}"
        before.append(f"{here} WHEN way = {CAME} THEN NULL ELSE {value} END AS `{name}`")
        after.append(
            f"{here} WHEN way = {SAME} THEN {equal} WHEN way = {CHANGED} THEN {other} "
            f"WHEN way = {CAME} THEN {value} END AS `{name}`"
        )
    count = len(kinds)
    rows = spark.range(4 * count, numPartitions=1).selectExpr(
        "CAST(id AS INT) AS id", f"CAST(id % {count} AS INT) AS place", f"CAST(id DIV {count} AS INT) AS way"
    )
    return rows.selectExpr("*", *before), rows.selectExpr("*", *after)


def _number(text: str) -> Any:
    return 0.0 if float(text) == 0 else text


def texts(frame: DataFrame, names: Iterable[str]) -> dict[int, Any]:
    """Return rows as JSON, by id: the order of a map's entries and the sign of zero are gone."""
    listed = ", ".join(f"`{name.replace('`', '``')}`" for name in names)
    shown = f"to_json(struct({listed}), map('ignoreNullFields', 'false')) AS text"
    found = frame.selectExpr("id", shown).collect()
    made = {row["id"]: json.loads(row["text"], parse_float=_number) for row in found}
    assert len(made) == len(found)
    return made


@dataclass
class Tables:
    """The same two sides as a table with a change feed, and as logs of events in order and backwards."""

    spark: SparkSession
    folder: Path
    before: DataFrame
    after: DataFrame

    def source(self, way: str) -> str:
        path = self.folder / way
        if not path.exists():
            {FEED: self._feed, EVENTS: self._events, LATE: self._late}[way](str(path))
        return str(path)

    def _feed(self, path: str) -> None:
        # In one write, Delta refuses a feed together with names that need mapping.
        self.before.limit(0).write.format("delta").option("delta.columnMapping.mode", "name").save(path)
        table = f"delta.`{path}`"
        self.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
        self.before.write.format("delta").mode("append").save(path)
        self.after.createOrReplaceTempView("after_side")
        self.spark.sql(
            f"MERGE INTO {table} t USING after_side s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
        )

    def _events(self, path: str, *, late: bool = False) -> None:
        both = [
            self.before.selectExpr("*", "1 AS `at seq`"),
            self.after.selectExpr("*", "2 AS `at seq`"),
        ]
        first, second = reversed(both) if late else both
        first.limit(0).write.format("delta").option("delta.columnMapping.mode", "name").save(path)
        for batch in (first, second):
            batch.write.format("delta").mode("append").save(path)

    def _late(self, path: str) -> None:
        self._events(path, late=True)

    def applied(self, way: str, scd_type: int, **more: Any) -> LogFlow:
        """Apply both sides, one after the other."""
        arguments: dict[str, Any] = {"keys": ["id"], "stored_as_scd_type": scd_type, **more}
        if way == FEED:
            arguments["source_kind"] = "change_feed"
        else:
            arguments |= {"sequence_by": "`at seq`", "except_column_list": ["at seq"]}
        target = str(self.folder / f"{way} {scd_type}")
        flow = LogFlow(self.spark, self.source(way), target, arguments)
        newest = versions(self.source(way))[-1]
        flow.apply(newest - 1)
        flow.apply(newest)
        return flow

    def check(self, way: str, scd_type: int, names: Iterable[str], unchanged: set[int]) -> LogFlow:
        """Apply both sides, and compare with what was written to the source."""
        flow = self.applied(way, scd_type)
        target = self.spark.read.format("delta").load(flow.target)
        names = list(names)
        before, after = texts(self.before, names), texts(self.after, names)
        if scd_type == 1:
            assert texts(target, names) == after
            # Rows whose values are equal are not written: those of events that come late, none.
            updated = flow.results[-1].counts.get("updated", 0)
            assert updated == (0 if way == LATE else len(before) - len(unchanged))
            return flow
        assert texts(target.where("__END_AT IS NULL"), names) == after
        closed = {id_: text for id_, text in before.items() if id_ not in unchanged}
        assert texts(target.where("__END_AT IS NOT NULL"), names) == closed
        return flow
