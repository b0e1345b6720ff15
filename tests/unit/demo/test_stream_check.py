"""The check of a change stream: histories cut from landed events, and PostgreSQL's own rows."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from demo import stream_check, workload
from demo.check import Check
from demo.landing import Landing
from demo.workload import TABLES, Table
from tests.support.postgres import server

if TYPE_CHECKING:
    from pathlib import Path

_TABLE = Table("t", "k", {"k": "INT", "v": "STRING", "n": "DECIMAL(5,2)"})
#: Sequence, operation, key, and what the event carries.
_EVENTS: list[tuple[str, str, int | None, dict[str, str | None]]] = [
    ("01", "insert", 1, {"v": "a", "n": "1"}),
    ("02", "update", 1, {"v": "b"}),
    ("03", "update", 1, {"v": "b", "n": "1.00"}),
    ("04", "update", 1, {"n": None}),
    ("05", "insert", 2, {"v": None, "n": None}),
    ("06", "delete", 2, {}),
    ("07", "insert", 2, {"v": None}),
    ("08", "truncate", None, {}),
    ("09", "insert", 1, {"v": "c"}),
    ("10", "delete", 3, {}),
]
_HISTORY = (
    "(1, 'a', 1.00, '01', '02'), (1, 'b', 1.00, '02', '04'), (1, 'b', NULL, '04', '08'), "
    "(1, 'c', NULL, '09', NULL), (2, NULL, NULL, '05', '06'), (2, NULL, NULL, '07', '08')"
)


def _land(folder: Path, events: list[Any]) -> Path:
    """Spread events over some files, in whatever order."""
    random.Random(7).shuffle(events)
    for number in range(3):
        lines = [
            {"pg_op": op, "pg_sequence": at, **({} if key is None else {"k": str(key)}), **values}
            for at, op, key, values in events[number::3]
        ]
        file = folder / "t" / f"2026-01-0{number + 1}" / "part.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def _rows(values: str) -> str:
    return (
        "SELECT CAST(k AS INTEGER) AS k, v, CAST(n AS DECIMAL(5,2)) AS n, s AS __START_AT, e AS __END_AT "
        f"FROM (VALUES {values}) AS t(k, v, n, s, e)"
    )


def test_the_history_is_cut_from_events(tmp_path: Path) -> None:
    cut = stream_check.history(_land(tmp_path, list(_EVENTS)), _TABLE)
    with Check() as check:
        found = check.same_rows("history", _rows(_HISTORY), cut)
    assert found.holds, found.sample
    assert found.rows == 6


@pytest.mark.parametrize("left_out", [0, 1, 3, 5, 7, 8])
def test_every_event_counts(tmp_path: Path, left_out: int) -> None:
    events = [event for number, event in enumerate(_EVENTS) if number != left_out]
    with Check() as check:
        assert not check.same_rows(
            "history", _rows(_HISTORY), stream_check.history(_land(tmp_path, events), _TABLE)
        ).holds


@pytest.mark.slow
def test_postgresql_agrees_with_its_own_changes(tmp_path: Path) -> None:
    """Real scripts, a real slot: the open rows of the history are the rows of the table, to the last byte."""
    with server() as running:
        landing = Landing(running, tmp_path / "landed", tables=tuple(table.name for table in TABLES))
        landing.open()
        workload.create(running)
        workload.fill(running, accounts=2_000)
        running.execute(
            r"INSERT INTO documents VALUES (-1, '\N', '', NULL, NULL, '{}', now()), "
            r"(-2, 'NULL', E'a\r\nb\u2028', 1, true, '{NULL}', '2020-01-01')"
        )
        scripts = workload.scripts(tmp_path, *TABLES, accounts=2_000)
        running.run("pgbench", "-n", "-c", "4", "-t", "500", "-b", "tpcb-like", *scripts)
        while landing.drain():
            continue
        with Check() as check:
            for table in TABLES:
                rows = stream_check.export(running, table, tmp_path / "exports")
                cut = stream_check.history(tmp_path / "landed", table)
                latest = f"SELECT * EXCLUDE (__START_AT, __END_AT) FROM ({cut}) WHERE __END_AT IS NULL"
                found = check.same_rows(table.name, rows, latest)
                assert found.holds, found
                told = stream_check.sequences(tmp_path / "landed", table)
                assert check.rows(f"SELECT count(*), count(DISTINCT seq) FROM ({told})") == [
                    (landing.landed[table.name],) * 2
                ]
                operations = stream_check.operations(tmp_path / "landed", table)
                assert {name for (name,) in check.rows(f"SELECT op FROM ({operations})")} >= {
                    "insert",
                    "update",
                    "delete",
                }
