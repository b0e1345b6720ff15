"""A user's session is left as it is: none of its confs is another one after anything that we do with it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import job
from delta_cdc.api.changes import apply_changes, ingest_changes, read_changes
from delta_cdc.api.maintain import expire_events
from delta_cdc.api.verify import verify_table
from delta_cdc.core.spec import EnableSpec, OptimizeSpec, VacuumSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

#: What our own sessions, and single statements of them, set; some with values that are none of ours.
THEIRS = {
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.databricks.delta.autoCompact.enabled": "true",
    "spark.databricks.delta.vacuum.logging.enabled": "false",
    "spark.databricks.delta.changeDataFeed.allowTimeTravelOptionsForSchema": "false",
    "spark.sql.shuffle.partitions": "3",
    "a.conf.of.their.own": "1",
}
WIDE = [f"id + {number} AS c{number}" for number in range(40)]


@pytest.fixture
def user(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with confs of the user's own.

    A new session is the active one of its thread from then on, so later tests of this process may meet it:
    they get it without these confs.
    """
    session = spark.newSession()
    for name, value in THEIRS.items():
        session.conf.set(name, value)
    yield session
    for name in THEIRS:
        session.conf.unset(name)


def confs(session: SparkSession) -> dict[str, str]:
    """Return the confs of a session, but for two that Delta itself sets in it when it reads a table."""
    ours = dict(session.conf.getAll)
    return {name: value for name, value in ours.items() if not name.startswith("spark.sql.parquet.fieldId.")}


@pytest.mark.slow
def test_files_events_targets_and_care(user: SparkSession, tmp_path: Path) -> None:
    landing, log, target = tmp_path / "landing", str(tmp_path / "log"), str(tmp_path / "target")
    landing.mkdir()
    records = [{"id": key, "ts": key, "op": "I", "name": "a"} for key in range(4)]
    (landing / "1.json").write_text("\n".join(map(json.dumps, records)))
    before = confs(user)

    def same_after(what: str, made: Any) -> Any:
        assert confs(user) == before, what
        return made

    given = {"pipeline": "in", "keys": ["id"], "adapter_options": {"sequence_by": "ts"}}
    assert same_after("ingest", ingest_changes(user, str(landing), log, **given))
    given = {"pipeline": "p", "keys": ["id"], "source_kind": "change_log", "sequence_by": "_sequence"}
    assert same_after("apply", apply_changes(user, log, target, **given))
    assert same_after("verify", verify_table(user, target, pipeline="p")).findings == ()
    consumers = [{"pipeline": "p", "target": target}]
    for lowest in ("2", "3"):
        same_after("expire", expire_events(user, log, consumers=consumers, horizon=lowest))
    for spec in (
        OptimizeSpec(run_id="r", table_uri=target),
        VacuumSpec(run_id="r", table_uri=target),
        EnableSpec(run_id="r", tables=(target,), schema=None, properties={"delta.appendOnly": "false"}),
    ):
        done = job.run(user, spec)
        assert done.error is None, done.error
        same_after(type(spec).__name__, done)
    with pytest.raises(Exception, match="not_there"):
        apply_changes(user, log, target, **given, where="not_there > 1")
    same_after("an apply that fails", None)


def test_reads_in_many_threads(spark: SparkSession, user: SparkSession, tmp_path: Path) -> None:
    """Some are read with the columns of then, and some expressions judged by a long plan: both take confs."""
    table = str(tmp_path / "table")
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    # Delta notes in the session that commits what it committed, so that is another one.
    spark.sql(f"CREATE TABLE delta.`{table}` (id INT) USING delta {feed}")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1)")
    spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMN later STRING")
    before = confs(user)

    def read(number: int) -> int:
        more: dict[str, Any] = {"select": WIDE} if number % 2 else {}
        return read_changes(user, table, starting_version=1, ending_version=1, keys=["id"], **more).count()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, range(8))) == [1] * 8
    assert confs(user) == before
