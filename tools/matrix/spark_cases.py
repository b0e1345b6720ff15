"""The cases that each pair of Spark and Delta must pass, run in that pair's environment.

``python -m tools.matrix.spark_cases <folder>`` prints a JSON object per case. With ``kill`` before it, the
process applies changes and kills itself before the commit; with ``connect``, it uses Spark Connect.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc import apply_changes, get_session, ingest_changes, read_changes, verify_table
from delta_cdc.core import failpoints
from delta_cdc.core.errors import VersionsUnsupported
from delta_cdc.core.spark_versions import CONNECT_SINCE, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_FEED = "'delta.enableChangeDataFeed' = 'true'"
_TRACKED = "'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true'"
#: To compile each of many tiny queries takes longer than to interpret it.
_CONFS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.log.level": "ERROR",
}
Rows = list[tuple[Any, ...]]


class Tables:
    """Tables below one folder, and the session for them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def path(self, name: str) -> str:
        """Return the path of a table."""
        return str(self.folder / name)

    def sql(self, *statements: str) -> None:
        """Run statements, in which ``@name`` stands for the table of that name."""
        for statement in statements:
            words = (
                word if word[0] != "@" else f"delta.`{self.path(word[1:])}`" for word in statement.split()
            )
            self.spark.sql(" ".join(words))

    def source(self, name: str, properties: str = _FEED) -> str:
        """Create a table of three rows, and return its path."""
        self.sql(
            f"CREATE TABLE @{name} (id INT, v STRING) USING delta TBLPROPERTIES ({properties})",
            f"INSERT INTO @{name} VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        )
        return self.path(name)

    def change(self, name: str) -> None:
        """Update a row, delete one, insert one."""
        self.sql(
            f"UPDATE @{name} SET v = 'B' WHERE id = 2",
            f"DELETE FROM @{name} WHERE id = 3",
            f"INSERT INTO @{name} VALUES (4, 'd')",
        )

    def events(self, name: str) -> str:
        """Create a table of events, and return its path."""
        self.sql(
            f"CREATE TABLE @{name} (id INT, v STRING, op STRING, at INT) USING delta "
            "TBLPROPERTIES ('delta.appendOnly' = 'true')",
            f"INSERT INTO @{name} VALUES (1, 'a', 'u', 10), (2, 'b', 'u', 10), "
            "(1, 'c', 'u', 30), (2, NULL, 'd', 40)",
        )
        return self.path(name)

    def rows(self, name: str, *columns: str) -> Rows:
        """Return a table's rows, sorted."""
        frame = self.spark.read.format("delta").load(self.path(name))
        return sorted((tuple(row) for row in frame.select(*columns).collect()), key=str)

    def verified(self, name: str, pipeline: str) -> None:
        """Check that a verification of a target finds nothing."""
        found = verify_table(self.spark, self.path(name), pipeline=pipeline)
        assert found.findings == (), found.findings


_CHANGED = [(1, "a"), (2, "B"), (4, "d")]
_LOG = {
    "source_kind": "change_log",
    "keys": ["id"],
    "sequence_by": "at",
    "apply_as_deletes": "op = 'd'",
    "except_column_list": ["op", "at"],
}


# -- the cases --------------------------------------------------------------------------------------
def feed_type_1(tables: Tables) -> None:
    source, given = tables.source("s"), {"pipeline": "p", "keys": ["id"]}
    apply_changes(tables.spark, source, tables.path("t"), **given)
    tables.change("s")
    done = apply_changes(tables.spark, source, tables.path("t"), **given)
    assert tables.rows("t", "id", "v") == _CHANGED
    assert done.counts["deleted"] == 1
    tables.verified("t", "p")
    again = apply_changes(tables.spark, source, tables.path("t"), **given)
    assert not again.applied


def feed_type_2(tables: Tables) -> None:
    source = tables.source("s")
    given: dict[str, Any] = {"pipeline": "p", "keys": ["id"], "stored_as_scd_type": 2}
    apply_changes(tables.spark, source, tables.path("t"), **given)
    tables.change("s")
    apply_changes(tables.spark, source, tables.path("t"), **given)
    assert tables.rows("t", "id", "v", "__START_AT", "__END_AT") == [
        (1, "a", 1, None),
        (2, "B", 2, None),
        (2, "b", 1, 2),
        (3, "c", 1, 3),
        (4, "d", 4, None),
    ]
    tables.verified("t", "p")


def log_type_1(tables: Tables) -> None:
    source = tables.events("s")
    apply_changes(tables.spark, source, tables.path("t"), pipeline="p", **_LOG)
    assert tables.rows("t", "id", "v") == [(1, "c")]
    tables.sql("INSERT INTO @s VALUES (1, 'late', 'u', 20), (2, 'back', 'u', 50)")
    apply_changes(tables.spark, source, tables.path("t"), pipeline="p", **_LOG)
    assert tables.rows("t", "id", "v") == [(1, "c"), (2, "back")]
    tables.verified("t", "p")


def log_type_2(tables: Tables) -> None:
    source = tables.events("s")
    given: dict[str, Any] = {"pipeline": "p", "stored_as_scd_type": 2, **_LOG}
    apply_changes(tables.spark, source, tables.path("t"), **given)
    tables.sql("INSERT INTO @s VALUES (1, 'late', 'u', 20)")
    apply_changes(tables.spark, source, tables.path("t"), **given)
    assert tables.rows("t", "id", "v", "__START_AT", "__END_AT") == [
        (1, "a", 10, 20),
        (1, "c", 30, None),
        (1, "late", 20, 30),
        (2, "b", 10, 40),
    ]
    tables.verified("t", "p")


def _snapshots(tables: Tables, scd_type: int) -> None:
    tables.sql(
        "CREATE TABLE @s (id INT, v STRING) USING delta",
        "INSERT OVERWRITE @s VALUES (1, 'a'), (2, 'b')",
    )
    given: dict[str, Any] = {
        "pipeline": "p",
        "source_kind": "snapshot",
        "keys": ["id"],
        "stored_as_scd_type": scd_type,
    }
    apply_changes(tables.spark, tables.path("s"), tables.path("t"), **given)
    tables.sql("INSERT OVERWRITE @s VALUES (2, 'B'), (3, 'c')")
    apply_changes(tables.spark, tables.path("s"), tables.path("t"), **given)
    tables.verified("t", "p")


def snapshots_type_1(tables: Tables) -> None:
    _snapshots(tables, 1)
    assert tables.rows("t", "id", "v") == [(2, "B"), (3, "c")]


def snapshots_type_2(tables: Tables) -> None:
    _snapshots(tables, 2)
    assert tables.rows("t", "id", "v", "__START_AT", "__END_AT") == [
        (1, "a", 1, 2),
        (2, "B", 2, None),
        (2, "b", 1, 2),
        (3, "c", 2, None),
    ]


def row_tracking(tables: Tables) -> None:
    source = tables.source("s", _TRACKED)
    apply_changes(tables.spark, source, tables.path("t"), pipeline="p", keys=["id"])
    tables.change("s")
    changes = read_changes(tables.spark, source, starting_version=2, ending_version=4)
    assert sorted(row["_change_type"] for row in changes.collect()) == [
        "delete",
        "insert",
        "update_postimage",
        "update_preimage",
    ]
    apply_changes(tables.spark, source, tables.path("t"), pipeline="p", keys=["id"])
    assert tables.rows("t", "id", "v") == _CHANGED


def net_changes(tables: Tables) -> None:
    source = tables.source("s")
    tables.change("s")
    tables.sql("UPDATE @s SET v = 'BB' WHERE id = 2")
    net = read_changes(
        tables.spark, source, starting_version=2, ending_version=5, query="min_delta", keys=["id"]
    )
    assert sorted((row["id"], row["v"], row["_change_type"]) for row in net.collect()) == [
        (2, "BB", "update_postimage"),
        (2, "b", "update_preimage"),
        (3, "c", "delete"),
        (4, "d", "insert"),
    ]


def new_columns(tables: Tables, scd_type: int) -> None:
    source = tables.source("s")
    given: dict[str, Any] = {"pipeline": "p", "keys": ["id"], "stored_as_scd_type": scd_type}
    apply_changes(tables.spark, source, tables.path("t"), **given)
    tables.sql("ALTER TABLE @s ADD COLUMN w INT", "INSERT INTO @s VALUES (4, 'd', 40)")
    tables.sql("UPDATE @s SET w = 10 WHERE id = 1")
    apply_changes(tables.spark, source, tables.path("t"), **given)
    current = [(1, "a", 10), (2, "b", None), (3, "c", None), (4, "d", 40)]
    closed = [(1, "a", None)] if scd_type == 2 else []
    assert tables.rows("t", "id", "v", "w") == sorted([*current, *closed], key=str)
    tables.verified("t", "p")


def new_column_type_1(tables: Tables) -> None:
    new_columns(tables, 1)


def new_column_type_2(tables: Tables) -> None:
    new_columns(tables, 2)


def ingest(tables: Tables) -> None:
    landing = tables.folder / "landing"
    landing.mkdir()

    def deliver(name: str, *records: dict[str, Any]) -> None:
        (landing / f"{name}.json").write_text("\n".join(map(json.dumps, records)))
        given: dict[str, Any] = {
            "keys": ["id"],
            "adapter_options": {"operation_column": "op", "sequence_by": "n"},
        }
        schema = "id INT, v STRING, n INT"
        log = tables.path("log")
        ingest_changes(tables.spark, str(landing), log, pipeline="in", schema=schema, **given)
        apply_changes(tables.spark, log, tables.path("t"), pipeline="p", keys=["id"])

    deliver("1", {"id": 1, "v": "a", "n": 1, "op": "I"}, {"id": 2, "v": "b", "n": 1, "op": "I"})
    assert tables.rows("t", "id", "v") == [(1, "a"), (2, "b")]
    deliver("2", {"id": 1, "v": "A", "n": 2, "op": "U"}, {"id": 2, "n": 2, "op": "D"})
    assert tables.rows("t", "id", "v") == [(1, "A")]
    assert len(tables.rows("log", "id")) == 4


def killed(tables: Tables) -> None:
    source = tables.source("s")
    apply_changes(tables.spark, source, tables.path("t"), pipeline="p", keys=["id"])
    tables.change("s")
    before = tables.rows("t", "id", "v")
    ended = _child("kill", tables.folder)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    assert tables.rows("t", "id", "v") == before
    done = apply_changes(tables.spark, source, tables.path("t"), pipeline="p", keys=["id"])
    assert done.counts["deleted"] == 1
    assert tables.rows("t", "id", "v") == _CHANGED


def connect(tables: Tables) -> str:
    tables.source("s")
    ended = _child("connect", tables.folder)
    assert ended.returncode == 0, ended.stderr[-2000:]
    if numbers(tables.spark.version) < numbers(CONNECT_SINCE):
        assert VersionsUnsupported.__name__ in ended.stdout, ended.stdout
        return "refused by name"
    assert tables.rows("t", "id", "v") == _CHANGED
    return "yes"


#: The cases by their titles in the table; what one returns stands there, or else "yes".
CASES: dict[str, Callable[[Tables], str | None]] = {
    "change feed, type 1": feed_type_1,
    "change feed, type 2": feed_type_2,
    "change log, type 1": log_type_1,
    "change log, type 2": log_type_2,
    "full copies, type 1": snapshots_type_1,
    "full copies, type 2": snapshots_type_2,
    "row tracking": row_tracking,
    "net changes": net_changes,
    "new column, type 1": new_column_type_1,
    "new column, type 2": new_column_type_2,
    "files to log to table": ingest,
    "kill and retry": killed,
    "Spark Connect": connect,
}


# -- processes of their own -------------------------------------------------------------------------
def _child(what: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.matrix.spark_cases", what, str(folder)]
    # A group of its own, which ends with its JVM.
    pipe = subprocess.PIPE
    return subprocess.run(command, stdout=pipe, stderr=pipe, text=True, check=False, start_new_session=True)


def _kill(folder: Path) -> None:
    """Apply the changes of a case, and kill this process and its JVM right before the commit."""

    def at(point: str) -> None:
        if point == "before_commit":
            os.killpg(os.getpgrp(), signal.SIGKILL)

    failpoints.install(at)
    tables = Tables(get_session("killed", cores=2, quick_start=True, **_CONFS), folder)
    apply_changes(tables.spark, tables.path("s"), tables.path("t"), pipeline="p", keys=["id"])


def _connect(folder: Path) -> None:
    """Apply changes through a Spark Connect server of this environment."""
    from pyspark.sql import SparkSession

    from tests.support.connect_server import connect_server

    (folder / "server").mkdir()
    with connect_server(folder / "server") as server:
        tables = Tables(SparkSession.builder.remote(server.url).getOrCreate(), folder)
        try:
            apply_changes(tables.spark, tables.path("s"), tables.path("t"), pipeline="p", keys=["id"])
            tables.change("s")
            apply_changes(tables.spark, tables.path("s"), tables.path("t"), pipeline="p", keys=["id"])
        except VersionsUnsupported as error:
            print(type(error).__name__, error)
        finally:
            # At exit, PySpark 4.1 asks the server of an open session to clean up. Without a server, it tries
            # again for ten minutes.
            tables.spark.stop()


def main() -> None:
    """Run the cases, or what one of them needs in another process."""
    if sys.argv[1] in ("kill", "connect"):
        {"kill": _kill, "connect": _connect}[sys.argv[1]](Path(sys.argv[2]))
        return
    spark = get_session("matrix", cores=2, quick_start=True, **_CONFS)
    for title, case in CASES.items():
        folder = Path(sys.argv[1]) / title.replace(" ", "-").replace(",", "")
        folder.mkdir()
        start = time.monotonic()
        error, cell = "", None
        try:
            cell = case(Tables(spark.newSession(), folder))
        except Exception as raised:  # noqa: BLE001 - the table has it
            traceback.print_exc()
            error = f"{type(raised).__name__}: {raised}"
        cell = "**fails**" if error else cell or "yes"
        answer = {"case": title, "cell": cell, "error": error, "seconds": time.monotonic() - start}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
