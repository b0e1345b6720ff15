"""Random histories of Delta tables, and a ledger that tells what each of their versions is.

The ledger reads nothing but the commit files, right after they were written: it still knows what a version
was when the log has been cleaned beyond it, and shares no code with the reader under test.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import DeltaLog

_SEED = "DELTA_CDC_SEED"
_NO_ROWS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


def seeds(count: int, *, first: int = 1) -> list[int]:
    """Return the seeds of a test; the variable ``DELTA_CDC_SEED`` replays one, or several (``7,8``)."""
    given = os.environ.get(_SEED)
    return [int(seed) for seed in given.split(",")] if given else list(range(first, first + count))


@contextmanager
def replayable(seed: int, test: str, steps: list[str]) -> Iterator[None]:
    """Tell with a failure which steps led to it, and the one command that does it again."""
    try:
        yield
    except BaseException as error:
        command = f"{_SEED}={seed} {Path(sys.executable).name} -m pytest '{test}'"
        error.add_note(f"seed {seed} after the steps {' '.join(steps)}\nreplay: {command}")
        raise


# -- what a version is --------------------------------------------------------------------------
@dataclass(frozen=True)
class Masked:
    """An active file: its path as the log has it, and its deletion vector."""

    path: str
    vector: str | None = None
    rows: int = 0

    @property
    def name(self) -> str:
        """Return the last part of the path, as on disk."""
        return unquote(self.path).rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Told:
    """A version, and the commit that made it.

    :param modified: of the commit file, epoch milliseconds
    """

    version: int
    actions: tuple[dict[str, Any], ...]
    sha256: str
    modified: int
    metadata: dict[str, Any]
    protocol: dict[str, Any]
    txns: dict[str, int]
    files: frozenset[Masked]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the commit's actions of one kind."""
        return [action[kind] for action in self.actions if kind in action]

    @property
    def info(self) -> dict[str, Any]:
        found = self.of("commitInfo")
        return found[0] if found else {}

    @property
    def features(self) -> tuple[str, ...]:
        named = {*(self.protocol.get("readerFeatures") or ()), *(self.protocol.get("writerFeatures") or ())}
        return tuple(sorted(named))

    @property
    def changes_data(self) -> bool:
        if self.of("cdc"):
            return True
        metrics = {k: str(v) for k, v in self.info.get("operationMetrics", {}).items()}
        if self.info.get("operation") == "MERGE" and all(metrics.get(name) == "0" for name in _NO_ROWS):
            return False
        return bool(self.data("add") or self.data("remove"))

    def data(self, kind: str) -> list[dict[str, Any]]:
        """Return the actions of files of one kind that change data."""
        return [file for file in self.of(kind) if kind == "cdc" or file.get("dataChange")]


@dataclass
class Ledger:
    """Notes down every version of a table as it comes."""

    path: Path
    told: dict[int, Told] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return max(self.told, default=-1)

    def file(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020d}.json"

    def catch_up(self) -> None:
        """Note the versions down that came since."""
        while (file := self.file(self.newest + 1)).is_file():
            version = self.newest + 1
            self.told[version] = _tell(version, file, self.told.get(version - 1))

    def touch(self, version: int, by: int) -> None:
        """Move the time of a commit file, by milliseconds."""
        file = self.file(version)
        modified = self.told[version].modified + by
        os.utime(file, ns=(modified * 1_000_000, modified * 1_000_000))
        self.told[version] = replace(self.told[version], modified=modified)

    def forget(self) -> None:
        """Start anew: the table was dropped."""
        self.told.clear()

    def present(self) -> list[int]:
        """Return the versions whose commit files are still there."""
        return [version for version in sorted(self.told) if self.file(version).is_file()]

    def checkpoints(self) -> list[int]:
        """Return the versions that have a checkpoint of any kind."""
        names = (file.name for file in (self.path / "_delta_log").glob("[0-9]*.checkpoint*"))
        return sorted({int(name.split(".", 1)[0]) for name in names})

    def rebuildable(self, version: int) -> bool:
        """Return whether a checkpoint, or the beginning, and every commit since then are there."""
        present = set(self.present())
        base = max((c for c in self.checkpoints() if c <= version), default=-1)
        return all(v in present for v in range(base + 1, version + 1))

    def times(self) -> dict[int, int]:
        """Return each version's time in milliseconds as Delta tells it.

        In-commit timestamps count from the version on that turned them on, if they are on now; before that
        the times of the files do, and none is before or at the one before it.
        """
        now = self.told[self.newest].metadata["configuration"]
        stamped = now.get("delta.enableInCommitTimestamps") == "true"
        since = int(now.get("delta.inCommitTimestampEnablementVersion", "0")) if stamped else self.newest + 1
        found: dict[int, int] = {}
        last: int | None = None
        for version in self.present():
            told = self.told[version]
            if version >= since:
                found[version] = told.info["inCommitTimestamp"]
                continue
            last = told.modified if last is None else max(told.modified, last + 1)
            found[version] = last
        return found


def _tell(version: int, file: Path, before: Told | None) -> Told:
    content = file.read_bytes()
    actions = tuple(json.loads(line) for line in content.splitlines() if line.strip())
    metadata = before.metadata if before else {}
    protocol = before.protocol if before else {}
    txns = dict(before.txns) if before else {}
    files = {(f.path, f.vector): f for f in before.files} if before else {}
    # Within a commit no order is promised: what leaves goes first.
    for action in actions:
        if "remove" in action:
            gone = _file(action["remove"])
            files.pop((gone.path, gone.vector), None)
    for action in actions:
        if "add" in action:
            came = _file(action["add"])
            files[came.path, came.vector] = came
        metadata = action.get("metaData", metadata)
        protocol = action.get("protocol", protocol)
        if "txn" in action:
            txns[action["txn"]["appId"]] = action["txn"]["version"]
    return Told(
        version=version,
        actions=actions,
        sha256=hashlib.sha256(content).hexdigest(),
        modified=file.stat().st_mtime_ns // 1_000_000,
        metadata=metadata,
        protocol=protocol,
        txns=txns,
        files=frozenset(files.values()),
    )


def _file(action: dict[str, Any]) -> Masked:
    vector = action.get("deletionVector")
    if not vector:
        return Masked(action["path"])
    named = f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset', '')}"
    return Masked(action["path"], named, vector["cardinality"])


# -- histories written without a JVM ------------------------------------------------------------
#: Values of the partition column that end up in paths.
PARTS = ("a", "b c", "100%", "%41", "ü", "x=y/z", None)


class DeltalakeHistory:
    """A table that delta-rs writes, a random step at a time."""

    #: Steps and their weights.
    STEPS: ClassVar[dict[str, float]] = {
        "append": 8,
        "append_with_txn": 5,
        "overwrite": 2,
        "delete": 4,
        "delete_all": 1,
        "update": 4,
        "merge": 4,
        "merge_nothing": 1,
        "compact": 2,
        "z_order": 1,
        "vacuum": 1,
        "restore": 2,
        "set_properties": 3,
        "add_column": 1,
        "checkpoint": 3,
        "log_compaction": 2,
        "clean": 1,
        "recreate": 0.4,
    }

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.ledger = Ledger(path)
        self.done: list[str] = []
        self._create()

    def step(self) -> str:
        """Take one step; a step that the table refuses is part of its history too."""
        name = self.random.choices(list(self.STEPS), list(self.STEPS.values()))[0]
        getattr(self, f"_{name}")()
        self.done.append(name)
        self.ledger.catch_up()
        return name

    # -- steps ------------------------------------------------------------------------------------
    def _create(self) -> None:
        from deltalake import DeltaTable

        self.partitioned = self.random.random() < 0.5
        self.next_id = 0
        configuration = {"delta.checkpointInterval": str(self.random.choice((2, 3, 7, 100)))}
        if self.random.random() < 0.5:
            configuration["delta.enableChangeDataFeed"] = "true"
        DeltaTable.create(
            str(self.path),
            self._rows(0).schema,
            partition_by=["part"] if self.partitioned else None,
            configuration=configuration,
        )
        self.ledger.catch_up()

    def _append(self, **properties: Any) -> None:
        from deltalake import CommitProperties, write_deltalake

        note = {"userMetadata": f"note {self.random.random()}"} if self.random.random() < 0.3 else None
        write_deltalake(
            str(self.path),
            self._rows(),
            mode="append",
            schema_mode="merge",
            commit_properties=CommitProperties(custom_metadata=note, **properties),
        )

    def _append_with_txn(self) -> None:
        from deltalake import Transaction

        application = self.random.choice(("delta-cdc/p", "delta-cdc/q", "other"))
        told = self.ledger.told[self.ledger.newest].txns
        self._append(app_transactions=[Transaction(application, told.get(application, 0) + 1)])

    def _overwrite(self) -> None:
        from deltalake import write_deltalake

        write_deltalake(str(self.path), self._rows(), mode="overwrite", schema_mode="overwrite")

    def _delete(self) -> None:
        self._table().delete(f"id % 5 = {self.random.randrange(5)}")

    def _delete_all(self) -> None:
        self._table().delete()

    def _update(self) -> None:
        self._table().update({"name": "'changed'"}, predicate=f"id % 4 = {self.random.randrange(4)}")

    def _merge(self) -> None:
        merger = self._table().merge(
            self._rows(start=max(0, self.next_id - 6)), "t.id = s.id", source_alias="s", target_alias="t"
        )
        kept = {name: f"s.{name}" for name in ("id", "name", "part")}
        merger.when_matched_update(kept).when_not_matched_insert(kept).execute()

    def _merge_nothing(self) -> None:
        merger = self._table().merge(
            self._rows(start=1_000_000), "t.id = s.id", source_alias="s", target_alias="t"
        )
        merger.when_matched_delete().execute()

    def _compact(self) -> None:
        self._table().optimize.compact()

    def _z_order(self) -> None:
        self._table().optimize.z_order(["id"])

    def _vacuum(self) -> None:
        self._table().vacuum(0, dry_run=False, enforce_retention_duration=False)

    def _restore(self) -> None:
        from deltalake.exceptions import DeltaError

        able = [v for v in self.ledger.told if v < self.ledger.newest and self.ledger.rebuildable(v)]
        if able:
            try:
                self._table().restore(self.random.choice(able))
            except DeltaError:
                # Files of that version were vacuumed: it is refused.
                self.done.append("refused")

    def _set_properties(self) -> None:
        name, values = self.random.choice(
            (
                ("delta.checkpointInterval", ("2", "5", "50")),
                ("delta.dataSkippingNumIndexedCols", ("1", "3")),
                ("delta.deletedFileRetentionDuration", ("interval 1 week", "interval 30 days")),
                ("team.owner", ("sales", "päivä = 1", "")),
            )
        )
        self._table().alter.set_table_properties(
            {name: self.random.choice(values)}, raise_if_not_exists=False
        )

    def _add_column(self) -> None:
        from deltalake import Field
        from deltalake.schema import PrimitiveType

        self._table().alter.add_columns(
            [Field(f"more_{self.random.randrange(10**9)}", PrimitiveType("long"))]
        )

    def _checkpoint(self) -> None:
        self._table().create_checkpoint()

    def _log_compaction(self) -> None:
        newest = self.ledger.newest
        starting = self.random.randint(max(0, newest - 6), newest)
        if starting < newest and all(v in self.ledger.present() for v in range(starting, newest + 1)):
            self._table().compact_logs(starting, newest)

    def _clean(self) -> None:
        """What log cleaning does: everything goes that a later checkpoint stands for."""
        clean_log(self.ledger, self.random)

    def _recreate(self) -> None:
        shutil.rmtree(self.path)
        self.ledger.forget()
        self._create()

    # -- inside -----------------------------------------------------------------------------------
    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(str(self.path))

    def _rows(self, count: int | None = None, *, start: int | None = None) -> pa.Table:
        count = self.random.randint(1, 8) if count is None else count
        first = self.next_id if start is None else start
        if start is None:
            self.next_id += count
        ids = list(range(first, first + count))
        names = [f"name {i}" for i in ids]
        parts = [self.random.choice(PARTS) for _ in ids]
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "name": pa.array(names, pa.string()),
                "part": pa.array(parts, pa.string()),
            }
        )


# -- histories written by Spark -----------------------------------------------------------------
#: What tables are made of, one layout per history.
LAYOUTS: tuple[dict[str, Any], ...] = (
    {
        "delta.enableChangeDataFeed": "true",
        "delta.enableDeletionVectors": "true",
        "by": "PARTITIONED BY (part)",
    },
    {
        "delta.enableChangeDataFeed": "true",
        "delta.enableDeletionVectors": "true",
        "delta.enableInCommitTimestamps": "true",
        "delta.enableRowTracking": "true",
        "delta.checkpointPolicy": "v2",
        "by": "CLUSTER BY (id)",
    },
    {
        "delta.columnMapping.mode": "name",
        "delta.enableDeletionVectors": "false",
        "by": "PARTITIONED BY (part)",
    },
    {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name", "by": ""},
)


class SparkHistory:
    """A table that Spark writes, a random step at a time."""

    STEPS: ClassVar[dict[str, float]] = {
        "append": 4,
        "append_with_txn": 3,
        "overwrite": 1,
        "delete": 3,
        "delete_all": 0.5,
        "update": 3,
        "update_nothing": 0.5,
        "merge": 4,
        "merge_nothing": 1,
        "optimize": 2,
        "restore": 2,
        "replace": 1,
        "set_properties": 1.5,
        "unset_property": 1,
        "add_column": 1,
        "rename_column": 1,
        "late_timestamps": 1,
        "in_commit_timestamps": 0.5,
        "log_compaction": 1,
        "clean": 1,
    }

    def __init__(self, spark: SparkSession, path: Path, seed: int) -> None:
        self.spark = spark
        self.path = path
        self.random = random.Random(seed)
        self.layout = LAYOUTS[seed % len(LAYOUTS)]
        self.ledger = Ledger(path)
        self.done: list[str] = []
        self.next_id = 0
        self.name = f"delta.`{path}`"
        self._create("CREATE TABLE")

    @property
    def by_name(self) -> bool:
        """Return whether columns may be renamed, and nobody reads the feed across it."""
        return "delta.columnMapping.mode" in self.layout and "delta.enableChangeDataFeed" not in self.layout

    @classmethod
    def dealt(cls, seed: int) -> list[str]:
        """Return one of four short histories that have every step between them."""
        names = list(cls.STEPS)
        # This shuffle gives each layout the steps that mean something to it.
        random.Random(521).shuffle(names)
        # What needs a history comes last, and a few appends make a checkpoint before it.
        late = ("restore", "log_compaction", "late_timestamps", "clean")
        hand = sorted(names[seed % 4 :: 4], key=lambda name: (name in late, names.index(name)))
        return ["append", "append", "append", *hand]

    def step(self, name: str | None = None) -> str:
        """Take one step, by default a random one."""
        from pyspark.errors import PySparkException

        name = name or self.random.choices(list(self.STEPS), list(self.STEPS.values()))[0]
        self.done.append(name)
        try:
            getattr(self, f"_{name}")()
        except PySparkException as error:
            # Delta's own limits: no change of columns under a change feed with column mapping.
            if "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION" not in str(error):
                raise
            self.done.append("refused")
        self.ledger.catch_up()
        return name

    def sql(self, statement: str) -> None:
        self.spark.sql(statement).collect()

    # -- steps ------------------------------------------------------------------------------------
    def _create(self, how: str, query: str = "", columns: str = "(id LONG, v STRING, part STRING)") -> None:
        properties = {k: v for k, v in self.layout.items() if k != "by"}
        properties["delta.checkpointInterval"] = str(self.random.choice((3, 4, 5)))
        listed = ", ".join(f"'{k}' = '{v}'" for k, v in properties.items())
        self.sql(
            f"{how} {self.name} {columns} USING delta {self.layout['by']} TBLPROPERTIES ({listed}) {query}"
        )
        self.ledger.catch_up()

    def _append(self, **options: str) -> None:
        if self.random.random() < 0.5:
            options["userMetadata"] = f"note {self.random.random()}"
        rows = self.spark.sql(self._rows())
        rows.write.format("delta").mode("append").options(**options).save(str(self.path))

    def _append_with_txn(self) -> None:
        application = self.random.choice(("delta-cdc/p", "delta-cdc/q", "other"))
        told = self.ledger.told[self.ledger.newest].txns
        self._append(txnAppId=application, txnVersion=str(told.get(application, 0) + 1))

    def _overwrite(self) -> None:
        rows = self.spark.sql(self._rows())
        writer = rows.write.format("delta").mode("overwrite")
        writer.option("overwriteSchema", str(self.random.random() < 0.5).lower()).save(str(self.path))

    def _delete(self) -> None:
        self.sql(f"DELETE FROM {self.name} WHERE id % 5 = {self.random.randrange(5)}")

    def _delete_all(self) -> None:
        self.sql(f"DELETE FROM {self.name}")

    def _update(self) -> None:
        self.sql(f"UPDATE {self.name} SET v = 'changed' WHERE id % 4 = {self.random.randrange(4)}")

    def _update_nothing(self) -> None:
        self.sql(f"UPDATE {self.name} SET v = 'changed' WHERE id < 0")

    def _merge(self) -> None:
        self.sql(
            f"MERGE INTO {self.name} t USING ({self._rows(start=max(0, self.next_id - 6))}) s ON t.id = s.id "
            "WHEN MATCHED AND s.id % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
            "WHEN NOT MATCHED THEN INSERT (id, v, part) VALUES (s.id, s.v, s.part)"
        )

    def _merge_nothing(self) -> None:
        self.sql(
            f"MERGE INTO {self.name} t USING (SELECT explode(sequence(0, 20)) AS id) s ON t.id = s.id "
            "WHEN MATCHED AND t.id < 0 THEN UPDATE SET v = 'never'"
        )

    def _optimize(self) -> None:
        self.sql(f"OPTIMIZE {self.name}")

    def _restore(self) -> None:
        able = [v for v in self.ledger.told if v < self.ledger.newest and self.ledger.rebuildable(v)]
        if able:
            self.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {self.random.choice(able)}")

    def _replace(self) -> None:
        self._create("CREATE OR REPLACE TABLE", f"AS {self._rows()}", columns="")

    def _set_properties(self) -> None:
        name, value = self.random.choice(
            (
                ("delta.checkpointInterval", "2"),
                ("delta.appendOnly", "false"),
                ("team.owner", "päivä = 1"),
                ("delta.deletedFileRetentionDuration", "interval 30 days"),
            )
        )
        self.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{name}' = '{value}')")

    def _unset_property(self) -> None:
        self.sql(f"ALTER TABLE {self.name} UNSET TBLPROPERTIES IF EXISTS ('team.owner')")

    def _add_column(self) -> None:
        self.sql(f"ALTER TABLE {self.name} ADD COLUMN (more_{self.random.randrange(10**9)} INT)")

    def _rename_column(self) -> None:
        if self.by_name:
            self.sql(f"ALTER TABLE {self.name} ADD COLUMN (before_{self.ledger.newest} INT)")
            old = f"before_{self.ledger.newest}"
            self.sql(f"ALTER TABLE {self.name} RENAME COLUMN {old} TO {old}_renamed")

    def _in_commit_timestamps(self) -> None:
        self.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")

    def _late_timestamps(self) -> None:
        """A clock that goes backwards: files copied, or written by a machine that is behind."""
        version = self.random.choice(self.ledger.present())
        if "inCommitTimestamp" not in self.ledger.told[version].info:
            self.ledger.touch(version, -self.random.randrange(60_000))

    def _log_compaction(self) -> None:
        from deltalake import DeltaTable

        newest = self.ledger.newest
        starting = self.random.randint(max(0, newest - 6), newest)
        if starting < newest and all(v in self.ledger.present() for v in range(starting, newest + 1)):
            DeltaTable(str(self.path)).compact_logs(starting, newest)

    def _clean(self) -> None:
        clean_log(self.ledger, self.random)

    def _rows(self, *, start: int | None = None) -> str:
        count = self.random.randint(1, 8)
        first = self.next_id if start is None else start
        if start is None:
            self.next_id += count
        parts = ", ".join("NULL" if part is None else f"'{part}'" for part in PARTS)
        part = f"element_at(array({parts}), CAST(id % {len(PARTS)} + 1 AS INT))"
        return f"SELECT id, concat('v', id) AS v, {part} AS part FROM range({first}, {first + count}, 1, 1)"


def clean_log(ledger: Ledger, source: random.Random) -> None:
    """Delete what Delta's log cleaning would: commits and checkpoints before one of the checkpoints."""
    if not ledger.checkpoints():
        return
    upto = source.choice(ledger.checkpoints())
    for file in (ledger.path / "_delta_log").glob("[0-9]*"):
        if int(file.name.split(".", 1)[0]) < upto:
            file.unlink()


# -- does a reader say the same? ----------------------------------------------------------------
async def check_log(
    ledger: Ledger, table: str | None = None, storage_options: dict[str, str] | None = None
) -> None:
    """Demand of the reader, opened anew, what the ledger says of every version that can still be told.

    :param table: where the reader finds the table; None is where the ledger has it
    """
    from delta_cdc.delta_log.table import DeltaLog

    log = DeltaLog(table or str(ledger.path), storage_options)
    assert await log.newest_version() == ledger.newest
    assert await log.oldest_version() == ledger.present()[0]
    for version in ledger.present():
        assert await log.newest_version(after=version) == ledger.newest
    await _check_commits(log, ledger)
    for version in ledger.told:
        assert await log.has_commit(version) == ledger.file(version).is_file()
        await _check_state(log, ledger, version)
    if "://" not in log.uri:
        await _check_times(log, ledger)


async def _check_commits(log: DeltaLog, ledger: Ledger) -> None:
    from delta_cdc.core.errors import LogGap, VersionsExpired

    present = ledger.present()
    for commit in await log.commits(range(present[0], present[-1] + 1)):
        # HTTP tells times by the second.
        check_commit(commit, ledger.told[commit.version], 1_000 if "://" in log.uri else 1)
    assert await log.find(ledger.newest + 1) is None
    with pytest.raises(LogGap):
        await log.commit(ledger.newest + 1)
    if present[0] > 0:
        with pytest.raises(VersionsExpired):
            await log.commit(present[0] - 1)


def check_commit(commit: Commit, told: Told, precision: int = 1) -> None:
    """Compare what the reader says of a commit with the commit's own lines.

    :param precision: of the store's times, in milliseconds
    """
    assert commit.version == told.version
    assert commit.sha256 == told.sha256
    assert commit.modified // precision == told.modified // precision
    info = told.info
    assert commit.info.operation == info.get("operation", "")
    assert commit.info.user_metadata == info.get("userMetadata")
    assert commit.info.operation_parameters == (info.get("operationParameters") or {})
    assert commit.timestamp == (info.get("inCommitTimestamp") or commit.modified)
    own = told.of("metaData")
    assert (commit.metadata is None) == (not own)
    if commit.metadata is not None:
        assert commit.metadata.id == own[0]["id"]
        assert commit.metadata.configuration == own[0]["configuration"]
        assert commit.metadata.schema_string == own[0]["schemaString"]
    assert [(t.app_id, t.version) for t in commit.txns] == [
        (t["appId"], t["version"]) for t in told.of("txn")
    ]
    counted = tuple(len(told.of(kind)) for kind in ("add", "remove", "cdc"))
    assert (commit.n_adds, commit.n_removes, commit.n_cdc) == counted
    assert commit.changes_data == told.changes_data
    sizes = tuple(sum(file.get("size") or 0 for file in told.data(kind)) for kind in ("add", "remove", "cdc"))
    assert (commit.bytes_added, commit.bytes_removed, commit.bytes_cdc) == sizes
    partitions = {
        tuple(sorted((name, value or None) for name, value in file["partitionValues"].items()))
        for kind in ("add", "remove", "cdc")
        for file in told.data(kind)
    }
    assert commit.partitions == partitions


async def _check_times(log: DeltaLog, ledger: Ledger) -> None:
    """A start is rounded up to a commit, an end down to one."""
    times = ledger.times()
    for moment in {time + by for time in times.values() for by in (-1, 0, 1)}:
        starts = [version for version, time in times.items() if time >= moment]
        ends = [version for version, time in times.items() if time <= moment]
        assert await log.version_at(moment, bound="start") == min(starts, default=None)
        assert await log.version_at(moment, bound="end") == max(ends, default=None)


async def _check_state(log: DeltaLog, ledger: Ledger, version: int) -> None:
    from delta_cdc.core.errors import VersionsExpired

    if not ledger.rebuildable(version):
        with pytest.raises(VersionsExpired):
            await log.snapshot(version)
        return
    told = ledger.told[version]
    state = await log.snapshot(version)
    assert (state.version, state.table_id) == (version, told.metadata["id"])
    assert state.configuration == told.metadata["configuration"]
    assert json.loads(state.schema_string)["fields"] == json.loads(told.metadata["schemaString"])["fields"]
    assert state.partition_columns == tuple(told.metadata["partitionColumns"])
    assert state.features == told.features
    assert state.num_files == len(told.files)
    found = {(name, masked) for name, _, masked in await log.files(version)}
    assert found == {(unquote(file.path), file.rows) for file in told.files}
    if version == ledger.newest:
        await log.snapshot()
        for application in {*told.txns, "never heard of"}:
            assert await log.transaction(application) == told.txns.get(application)
