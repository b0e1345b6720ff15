"""A slot becomes files of events: all of them, in order, each once, also where the process died."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from demo import landing
from demo.decoding import Change, NotUnderstood
from demo.landing import Draining, Landing, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from demo.postgres import Postgres


@pytest.fixture
def open_landing(running: Postgres, tmp_path: Path) -> Iterator[Landing]:
    running.execute(
        "DROP TABLE IF EXISTS a, b, other",
        "CREATE TABLE a (id int, part text, value text, PRIMARY KEY (part, id))",
        "CREATE TABLE b (id int PRIMARY KEY, body text)",
        "ALTER TABLE b ALTER body SET STORAGE EXTERNAL",
        "CREATE TABLE other (id int)",
    )
    made = Landing(running, tmp_path / "landed", tables=("a", "b"), slot="tested")
    made.open()
    yield made
    running.value("SELECT 1 FROM pg_drop_replication_slot('tested')")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _events(folder: Path, table: str) -> list[dict[str, Any]]:
    """Return the events of a table without what differs from run to run; check their order on the way."""
    lines = [line for path in _files(folder / "landed" / table) for line in path.read_text().splitlines()]
    events = [json.loads(line) for line in lines]
    sequences = [event["pg_sequence"] for event in events]
    assert sequences == sorted(set(sequences))
    return [
        {name: value for name, value in event.items() if name == "pg_op" or not name.startswith("pg_")}
        for event in events
    ]


def test_rows_come_change_and_go(running: Postgres, open_landing: Landing, tmp_path: Path) -> None:
    running.execute(
        "INSERT INTO a VALUES (1, 'x', 'it''s'), (2, 'x', NULL)",
        "UPDATE a SET value = E'two\\nlines' WHERE id = 2",
        "BEGIN; UPDATE a SET id = 3 WHERE id = 2; DELETE FROM a WHERE id = 1; INSERT INTO other VALUES (1); "
        "INSERT INTO b VALUES (1, 'short'); COMMIT",
        "TRUNCATE a, b",
    )
    assert open_landing.drain() == 9
    assert _events(tmp_path, "a") == [
        {"pg_op": "insert", "id": "1", "part": "x", "value": "it's"},
        {"pg_op": "insert", "id": "2", "part": "x", "value": None},
        {"pg_op": "update", "id": "2", "part": "x", "value": "two\nlines"},
        {"pg_op": "delete", "id": "2", "part": "x"},
        {"pg_op": "insert", "id": "3", "part": "x", "value": "two\nlines"},
        {"pg_op": "delete", "id": "1", "part": "x"},
        {"pg_op": "truncate"},
    ]
    assert _events(tmp_path, "b") == [{"pg_op": "insert", "id": "1", "body": "short"}, {"pg_op": "truncate"}]
    assert open_landing.landed == {"a": 7, "b": 2}
    assert open_landing.drain() == 0
    (file,) = _files(tmp_path / "landed" / "a")
    event = json.loads(file.read_text().splitlines()[0])
    assert event["pg_committed_at"].startswith(file.parent.name)
    assert event["pg_sequence"].partition("/")[0] == file.stem


def test_a_column_that_is_not_carried_is_not_there(
    running: Postgres, open_landing: Landing, tmp_path: Path
) -> None:
    long = "y" * 4000
    running.execute(
        f"INSERT INTO b VALUES (1, '{long}')", "UPDATE b SET id = id", "ALTER TABLE b REPLICA IDENTITY FULL"
    )
    running.execute("UPDATE b SET id = 2")
    open_landing.drain()
    assert _events(tmp_path, "b") == [
        {"pg_op": "insert", "id": "1", "body": long},
        {"pg_op": "update", "id": "1"},
        # Under another key the row is a new one: it needs all its columns.
        {"pg_op": "delete", "id": "1"},
        {"pg_op": "insert", "id": "2", "body": long},
    ]


def test_what_postgresql_does_not_say_is_not_made_up(
    running: Postgres, open_landing: Landing, tmp_path: Path
) -> None:
    running.execute(f"INSERT INTO b VALUES (1, '{'y' * 4000}')", "UPDATE b SET id = 2")
    with pytest.raises(NotUnderstood, match="REPLICA IDENTITY FULL"):
        open_landing.drain()
    assert _files(tmp_path) == []
    gone = Change("public.c", "DELETE", old={"id": "1"})
    with pytest.raises(NotUnderstood, match="primary key"):
        told(gone, ())
    with pytest.raises(NotUnderstood, match="primary key"):
        told(gone, ("id", "part"))


class Died(Exception):
    pass


def _dying(point: str, server: Postgres) -> tuple[object, str, Callable[..., Any]]:
    """Return what to replace, so that draining dies at a point."""

    def die(*_: object) -> None:
        raise Died

    where = {"write": (landing.json, "dumps"), "rename": (Path, "replace"), "advance": (server, "value")}
    return (*where[point], die)


@pytest.mark.parametrize("point", ["write", "rename", "advance"])
def test_dying_anywhere_loses_nothing_and_doubles_nothing(
    running: Postgres, open_landing: Landing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    running.execute("INSERT INTO a VALUES (1, 'x', 'one')", "INSERT INTO b VALUES (1, 'one')")

    with monkeypatch.context() as patched:
        patched.setattr(*_dying(point, running))
        with pytest.raises(Died):
            open_landing.drain()
    whole = [path for path in _files(tmp_path) if path.suffix == ".jsonl"]
    assert len(whole) == (2 if point == "advance" else 0)
    running.execute("INSERT INTO a VALUES (2, 'x', 'two')")
    again = Landing(running, tmp_path / "landed", tables=("a", "b"), slot="tested")
    again.drain()
    assert [path.suffix for path in _files(tmp_path)] == [".jsonl", ".jsonl"]
    assert [event["id"] for event in _events(tmp_path, "a")] == ["1", "2"]
    assert [event["id"] for event in _events(tmp_path, "b")] == ["1"]


def test_a_file_ends_with_a_transaction(running: Postgres, open_landing: Landing, tmp_path: Path) -> None:
    for number in range(4):
        running.execute(f"INSERT INTO b VALUES ({2 * number}, 'x'), ({2 * number + 1}, 'x')")
    small = Landing(running, tmp_path / "landed", tables=("b",), slot="tested", most_events=3)
    assert small.drain() == 8
    assert [len(path.read_text().splitlines()) for path in _files(tmp_path)] == [4, 4]
    assert [event["id"] for event in _events(tmp_path, "b")] == [str(number) for number in range(8)]


def test_draining_goes_on_until_the_end(running: Postgres, open_landing: Landing, tmp_path: Path) -> None:
    with Draining(open_landing, pause=0.01) as draining:
        for number in range(20):
            running.execute(f"INSERT INTO b VALUES ({number}, 'x')")
        draining.finish()
    assert [event["id"] for event in _events(tmp_path, "b")] == [str(number) for number in range(20)]
    assert len(_files(tmp_path)) > 1


def test_draining_that_failed_is_told(running: Postgres, tmp_path: Path) -> None:
    with Draining(Landing(running, tmp_path, tables=("b",), slot="nobody"), pause=0.01) as draining:
        draining.join()
        with pytest.raises(RuntimeError, match=r"could not be drained.*does not exist"):
            draining.finish()
