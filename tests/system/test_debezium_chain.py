"""The real chain: PostgreSQL, Debezium in Kafka Connect, a Kafka broker, an ingest, and two targets.

The targets must equal the PostgreSQL table row by row, whatever happened to it on the way, and although Kafka
Connect was killed and delivered some of its events twice.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, ingest_changes
from tests.support.kafka_connect import connect
from tests.support.postgres import server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from demo.postgres import Postgres
    from tests.support.kafka_broker import Broker
    from tests.support.kafka_connect import Connect

pytestmark = pytest.mark.slow

SEED = 20261121
TABLE = "public.things"
#: How the end of a phase is known: the row of this name has arrived in the topic.
MARK = "mark-{}"

#: Columns whose long values come only with a change of their own: a connector has a placeholder for them.
_STORED_APART = ("big", "raw", "docb", "tags", "numbers")
_CREATE = f"""
CREATE TABLE things (
    id INT PRIMARY KEY, name TEXT, big TEXT, price NUMERIC(38,10), at TIMESTAMP, atz TIMESTAMPTZ, day DATE,
    raw BYTEA, doc JSON, docb JSONB, uid UUID, tags TEXT[], numbers INT[], flag BOOLEAN, ratio FLOAT8,
    huge BIGINT);
ALTER TABLE things {", ".join(f"ALTER {name} SET STORAGE EXTERNAL" for name in _STORED_APART)}
"""
#: The table's rows as texts that Spark's side can be brought to, too.
_ROWS = """
SELECT id, name, big, price, to_char(at, 'YYYY-MM-DD HH24:MI:SS.US'),
    to_char(atz AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), day, encode(raw, 'hex'), doc, docb, uid,
    array_to_json(tags), array_to_json(numbers), flag, ratio, huge
FROM things
"""
_COLUMNS = (
    "id INT, name STRING, big STRING, price DECIMAL(38,10), at TIMESTAMP, atz TIMESTAMP, day DATE, "
    "raw BINARY, doc STRING, docb STRING, uid STRING, tags ARRAY<STRING>, numbers ARRAY<INT>, flag BOOLEAN, "
    "ratio DOUBLE, huge BIGINT"
)
_NAMES = tuple(column.split()[0] for column in _COLUMNS.replace("38,10", "").split(", "))

#: Name of connector, slot and topics -> what the connector is told, and what the ingest is told.
WAYS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "with_schema": ({}, {}),
    "without_schema": (
        {
            "value_converter": "org.apache.kafka.connect.json.JsonConverter",
            "value_converter_schemas_enable": "false",
            "key_converter": "org.apache.kafka.connect.json.JsonConverter",
            "key_converter_schemas_enable": "false",
        },
        {
            "schema": _COLUMNS,
            "adapter_options": {
                "decimal_handling_mode": "precise",
                "time_precision_mode": "adaptive",
                "time_units": {"at": "us"},
            },
        },
    ),
}


@dataclass
class Changes:
    """Makes changes to the table, by a seed."""

    postgres: Postgres
    dice: random.Random
    ids: int = 0

    def insert(self, count: int) -> None:
        first, self.ids = self.ids + 1, self.ids + count
        self._run(f"INSERT INTO things VALUES {self._row(number)}" for number in range(first, self.ids + 1))

    def stir(self, count: int) -> None:
        """Update some columns of rows, delete rows, give rows another key, and insert rows."""
        self._run(self._one() for _ in range(count))

    def mark(self, name: str) -> None:
        self.ids += 1
        self._run([f"INSERT INTO things (id, name) VALUES ({self.ids}, '{name}')"])

    def _run(self, statements: Any) -> None:
        self.postgres.execute(";\n".join(statements))

    def _one(self) -> str:
        dice, some = self.dice, self.dice.randint(1, max(self.ids, 1))
        kind = dice.choices(("update", "delete", "key", "insert"), (60, 15, 10, 15))[0]
        if kind == "update":
            changed = dice.sample(sorted(_LITERALS), dice.randint(1, 4))
            told = ", ".join(f"{name} = {_LITERALS[name](dice)}" for name in changed)
            return f"UPDATE things SET {told} WHERE id = {some}"
        if kind == "delete":
            return f"DELETE FROM things WHERE id = {some}"
        self.ids += 1
        if kind == "key":
            # An unchanged value that is stored apart does not come along, and cannot be known of the new key.
            told = ", ".join(f"{name} = {_LITERALS[name](dice)}" for name in _STORED_APART)
            return f"UPDATE things SET id = {self.ids}, {told} WHERE id = {some}"
        return f"INSERT INTO things VALUES {self._row(self.ids)}"

    def _row(self, number: int) -> str:
        return f"({number}, {', '.join(make(self.dice) for make in _LITERALS.values())})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _or_null(make: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
    return lambda dice: "NULL" if dice.random() < 0.1 else make(dice)


def _text(dice: random.Random, length: int) -> str:
    return "".join(dice.choices("abc äß€😀'\"\\\n\t{},", k=length))


def _moment(dice: random.Random) -> str:
    day = f"{dice.randint(1905, 2100)}-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}"
    return f"{day} {dice.randint(0, 23):02}:{dice.randint(0, 59):02}:{dice.uniform(0, 59):09.6f}"


def _document(dice: random.Random) -> str:
    return json.dumps({"b": dice.random(), "a": [dice.randint(0, 9), None, _text(dice, 5)]})


def _array(dice: random.Random, element: Callable[[], str]) -> str:
    # Now and then so long that it is stored apart, and left out of changes to other columns.
    length = dice.choice((0, 1, 3, 900))
    return ", ".join("NULL" if dice.random() < 0.1 else element() for _ in range(length))


_LITERALS: dict[str, Callable[[random.Random], str]] = {
    name: _or_null(make)
    for name, make in {
        "name": lambda dice: _quoted(_text(dice, 8)),
        "big": lambda dice: _quoted(_text(dice, dice.choice((3, 6000)))),
        "price": lambda dice: f"{dice.randint(-(10**28) + 1, 10**28 - 1)}.{dice.randint(0, 10**10 - 1):010}",
        "at": lambda dice: _quoted(_moment(dice)),
        "atz": lambda dice: _quoted(f"{_moment(dice)}{dice.choice('+-')}{dice.randint(0, 12):02}:30"),
        "day": lambda dice: _quoted(_moment(dice)[:10]),
        "raw": lambda dice: f"'\\x{dice.randbytes(dice.choice((0, 7, 4000))).hex()}'",
        "doc": lambda dice: _quoted(_document(dice)),
        "docb": lambda dice: _quoted(json.dumps([_document(dice)] * dice.choice((1, 90)))),
        "uid": lambda dice: _quoted(f"{dice.getrandbits(128):032x}"),
        "tags": lambda dice: f"ARRAY[{_array(dice, lambda: _quoted(_text(dice, 4)))}]::TEXT[]",
        "numbers": lambda dice: f"ARRAY[{_array(dice, lambda: str(dice.randint(-9, 9)))}]::INT[]",
        "flag": lambda dice: dice.choice(("true", "false")),
        "ratio": lambda dice: repr(dice.gauss(0, 1e9)),
        "huge": lambda dice: str(dice.randint(-(2**63), 2**63 - 1)),
    }.items()
}


@dataclass
class Way:
    """From one connector's topic into a log and two targets."""

    name: str
    topic: str
    folder: Path
    spark: SparkSession
    kafka: Broker

    def bring(self) -> dict[str, int]:
        """Ingest all there is, and apply it; return the counts of the ingest."""
        log = str(self.folder / "log")
        result = ingest_changes(
            self.spark,
            f"kafka://{self.kafka.servers}/{self.topic}",
            log,
            pipeline=f"{self.name}_log",
            keys=["id"],
            adapter="debezium",
            **WAYS[self.name][1],
        )
        assert result.applied
        for kind in (1, 2):
            apply_changes(
                self.spark,
                log,
                self.target(kind),
                pipeline=f"{self.name}_{kind}",
                keys=["id"],
                stored_as_scd_type=kind,
            )
        return result.counts

    def target(self, kind: int) -> str:
        return str(self.folder / f"scd{kind}")

    def rows(self, kind: int, where: str = "true") -> list[tuple[Any, ...]]:
        """Return rows of a target, comparable with those of :func:`expected`."""
        moments = {
            name: f"date_format({name}, 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS {name}" for name in ("at", "atz")
        }
        found = self.spark.read.format("delta").load(self.target(kind)).where(where)
        return sorted(
            tuple(_plain(value) for value in row)
            for row in found.selectExpr(*[moments.get(name, name) for name in _NAMES]).collect()
        )


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if value is None or isinstance(value, str | int | float | list):
        return value
    return f"{value:f}" if hasattr(value, "as_tuple") else str(value)


def expected(postgres: Postgres) -> list[tuple[Any, ...]]:
    """Return PostgreSQL's rows."""
    read: dict[str, Callable[[str], Any]] = {
        "id": int,
        "huge": int,
        "ratio": float,
        "tags": json.loads,
        "numbers": json.loads,
        "flag": lambda text: text in ("t", "true"),
    }
    return sorted(
        tuple(
            None if text is None else read.get(name, str)(text)
            for name, text in zip(_NAMES, row, strict=True)
        )
        for row in postgres.rows(_ROWS)
    )


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with server() as running:
        running.execute(_CREATE)
        yield running


def _assert_equal(way: Way, rows: list[tuple[Any, ...]]) -> None:
    for kind, found in ((1, way.rows(1)), (2, way.rows(2, "__END_AT IS NULL"))):
        assert [row[0] for row in found] == [row[0] for row in rows], (way.name, kind)
        for have, want in zip(found, rows, strict=True):
            different = {
                name: (one, other)
                for name, one, other in zip(_NAMES, have, want, strict=True)
                if one != other
            }
            assert not different, (way.name, kind, want[0])


def _settled(postgres: Postgres, changes: Changes, ways: list[Way], phase: int) -> list[tuple[Any, ...]]:
    """End a phase: wait until all of it is in the topics, bring it on, and compare."""
    mark = MARK.format(phase)
    changes.mark(mark)
    for way in ways:
        way.kafka.messages_until(way.topic, lambda value: f'"{mark}"'.encode() in value)
    rows = expected(postgres)
    for way in ways:
        counts = way.bring()
        assert counts.get("quarantined", 0) == 0, (way.name, counts)
        _assert_equal(way, rows)
    return rows


def _started(
    connector: Connect, postgres: Postgres, kafka: Broker, spark: SparkSession, folder: Path
) -> list[Way]:
    return [
        Way(name, connector.follow(name, postgres, table=TABLE, **told), folder / name, spark, kafka)
        for name, (told, _) in WAYS.items()
    ]


def test_targets_equal_postgresql(
    spark: SparkSession, kafka: Broker, postgres: Postgres, tmp_path: Path
) -> None:
    """A snapshot, changes, a truncate and more of them, with a death of Kafka Connect in between."""
    changes = Changes(postgres, random.Random(SEED))
    changes.insert(30)
    with connect(tmp_path / "connect", kafka) as connector:
        ways = _started(connector, postgres, kafka, spark, tmp_path)
        assert len(_settled(postgres, changes, ways, 1)) == 31

        changes.stir(150)
        postgres.execute("UPDATE things SET flag = NOT flag")
        assert _settled(postgres, changes, ways, 2)

        changes.stir(20)
        postgres.execute("TRUNCATE things")
        changes.insert(20)
        changes.mark("before death")
        for way in ways:
            kafka.messages_until(way.topic, lambda value: b'"before death"' in value)
        connector.kill()
        # What was done while it was dead is in PostgreSQL's own log.
        changes.stir(60)
        connector.start()
        last = _settled(postgres, changes, ways, 3)
    assert len(last) > 10
    for way in ways:
        log = spark.read.format("delta").load(str(way.folder / "log"))
        kinds = {row[0]: row[1] for row in log.groupBy("_op").count().collect()}
        assert kinds["delete"] > 10
        assert kinds["truncate"] >= 1
        # What PostgreSQL stores apart did not come with changes of other columns.
        partial = log.where("_op = 'upsert' AND NOT array_contains(_columns, 'big')").count()
        assert partial > 10
        history = spark.read.format("delta").load(way.target(2))
        assert history.where("__END_AT <= __START_AT").count() == 0
        assert history.where("__END_AT IS NOT NULL").count() > 100
        twice = history.groupBy("id", "__START_AT").count().where("count > 1").count()
        assert twice == 0
