"""Texts that no writer of Delta's writes: read, or named, wherever a real log may have them.

A commit is taken from a real history (written by delta-rs, or with a seal of ours). Somewhere in it, also in
a JSON text inside of its JSON, a value becomes one that parsers or later code trip over.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from delta_cdc.core import maintenance_tags
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.column_changes import compare
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.history import replaces_all_rows
from delta_cdc.core.spec import OptimizeSpec
from delta_cdc.core.watermark import Seal, format_of
from delta_cdc.delta_log.actions import (
    Add,
    BadActionError,
    CommitFold,
    DeletionVector,
    FileAction,
    parse_lines,
)
from delta_cdc.delta_log.deletion_vectors import UnreadableVectorError
from delta_cdc.delta_log.schema_changes import leaf_paths, moved_column, read_schema
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.maintenance_commits import expired_below, repeats
from delta_cdc.planning.reconcile import reconcile_async
from delta_cdc.planning.waiting import Condition, Watch, position_from_json
from delta_cdc.planning.written import sealed_counts
from tests.support.checkpoints import checkpoint
from tests.support.logs import EPOCH, LogTable, seal
from tests.support.random_logs import DeltalakeHistory, replayable, seeds
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.delta_log.actions import Commit

TEST = "tests/unit/log/test_odd_texts.py"
_CHUNKS, _EACH = 10, 2_000
#: JSON texts, put where a value was.
_ODD = (
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e400",
    "-1e400",
    "NaN",
    "9223372036854775807",
    "9223372036854775808",
    "253402300800000",
    "-62135596800001",
    "1" * 5_000,
    '""',
    '"\\u0000"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"١٢"',
    '"1e3"',
    '"NaN"',
    '"[]"',
    '"{"',
    '"9999999999999999999"',
    '"' + "1" * 5_000 + '"',
    '"' + "[" * 3_000 + '"',
    "[]",
    "{}",
    "[null]",
    '{"type":"struct"}',
    '{"type":"array"}',
    '{"type":"struct","fields":[null]}',
    "[" * 200 + "]" * 200,
    "[" * 300 + "]" * 300,
    '{"a":' * 3_000 + "1" + "}" * 3_000,
    '{"type":"array","elementType":' * 120 + '"string"' + "}" * 120,
    '"' + json.dumps('{"delta_cdc":' * 3_000)[1:-1] + '"',
    '"' + "x" * 20_000 + '"',
)
_MARK = "odd value"


class _Odd:
    """Damages JSON values."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.steps: list[str] = []

    def text(self, text: str) -> str:
        """Return a JSON text with an odd value."""
        value = json.loads(text)
        damaged, odd = self._value(value), self.chance.choice(_ODD)
        self.steps.append(f"{odd[:40]!r}")
        return json.dumps(damaged).replace(json.dumps(_MARK), odd).replace(_MARK, "odd")

    def _value(self, value: Any) -> Any:
        if isinstance(value, str) and value[:1] in ("{", "[") and self.chance.random() < 0.8:
            with suppress(ValueError):
                return self.text(value)
        if not isinstance(value, dict | list) or not value or self.chance.random() < 0.1:
            return _MARK
        if isinstance(value, list):
            at = self.chance.randrange(len(value))
            self.steps.append(str(at))
            return [*value[:at], self._value(value[at]), *value[at + 1 :]]
        name = self.chance.choice(sorted(value))
        self.steps.append(name)
        if self.chance.random() < 0.05:
            return {key: item for key, item in value.items() if key != name}
        return {**value, name: self._value(value[name])}


def _table(path: Path) -> LogTable:
    """Return a table of ours: with seals, tags, a nested schema, partitions, vectors and mapped columns."""
    made = LogTable(
        path, configuration={"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}
    )
    made.configuration["delta.columnMapping.maxColumnId"] = "3"
    inner = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
    for number, (name, of) in enumerate(
        [("id", "long"), ("s", inner), ("a", {"type": "array", "elementType": inner, "containsNull": True})]
    ):
        metadata = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": f"col-{number}"}
        made.fields.append({"name": name, "type": of, "nullable": True, "metadata": metadata})
    made.create()
    made.write_seal(seal(1, 0))
    made.commit("WRITE", made.add(), {"txn": {"appId": "delta-cdc/p", "version": 1}}, user_metadata="{}")
    masked = made.add()
    masked["add"]["deletionVector"] = {
        "storageType": "i",
        "pathOrInlineDv": "x",
        "sizeInBytes": 3,
        "cardinality": 1,
    }
    made.commit(
        "MERGE",
        masked,
        *made.removes(),
        parameters={
            "matchedPredicates": '[{"actionType":"delete"}]',
            "notMatchedPredicates": "[]",
            "notMatchedBySourcePredicates": "[]",
        },
        metrics={"numTargetRowsDeleted": "3"},
        user_metadata=maintenance_tags.written("expire", below="5"),
    )
    made.commit(
        "OPTIMIZE",
        made.add(data_change=False),
        parameters={"predicate": "[]", "zOrderBy": '["id"]', "isFull": False},
        tags={"delta.rowTracking.preserved": "true"},
        stamp=EPOCH,
    )
    made.commit("RESTORE", made.add(), parameters={"version": 2, "timestamp": None})
    made.write_seal(seal(2, 5))
    return made


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Return the lines of real commits."""
    folder = tmp_path_factory.mktemp("logs")
    ours, history = _table(folder / "ours"), DeltalakeHistory(folder / "delta-rs", 7)
    for _ in range(12):
        history.step()
    files = sorted(
        [*(ours.path / "_delta_log").glob("0*.json"), *(history.path / "_delta_log").glob("0*.json")]
    )
    return [lines for file in files if (lines := file.read_text().splitlines())]


def _use(commit: Commit, files: list[FileAction], other: str) -> None:
    """Call everything that takes a value of a commit to be something."""
    info = commit.info
    datetime.fromtimestamp(commit.timestamp / 1000, UTC).isoformat()
    Seal.from_json(info.user_metadata), format_of(info.user_metadata)
    expired_below(info), repeats(info, OptimizeSpec(run_id="/t", table_uri="id"))
    replaces_all_rows(info.operation, info.operation_parameters)
    info.whole_parameter("version"), sealed_counts(seal(1, 1), commit)
    Condition(operations=frozenset({"write"}), partitions={"part": frozenset({"1"})}).counts(commit)
    for file in files:
        hash((file.key, file.rows, file.is_described))
    json.dumps([info.operation_parameters, info.tags], ensure_ascii=False).encode()
    if commit.metadata is None:
        return
    with suppress(UnreadableJson):
        read_schema(commit.metadata.schema_string)
        leaf_paths(commit.metadata.schema_string)
        moved_column(commit.metadata, commit.metadata)
        compare(other, commit.metadata.schema_string, by_id=True)
        compare(commit.metadata.schema_string, other, by_id=False)


@pytest.mark.parametrize("seed", slow_but(seeds(_CHUNKS), *seeds(_CHUNKS)[:3]))
def test_every_value_of_a_commit_may_be_odd(commits: list[list[str]], seed: int) -> None:
    chance = random.Random(seed)
    schema = next(json.loads(line)["metaData"]["schemaString"] for line in commits[0] if "metaData" in line)
    for number in range(_EACH):
        odd = _Odd(chance)
        lines = list(chance.choice(commits))
        at = chance.randrange(len(lines))
        lines[at] = odd.text(lines[at])
        with replayable(seed, f"{TEST}::test_every_value_of_a_commit_may_be_odd", [str(number), *odd.steps]):
            try:
                actions = parse_lines([line.encode() for line in lines])
            except BadActionError:
                continue
            fold = CommitFold()
            for action in actions:
                if action is not None:
                    fold.add(action)
            files = [action for action in actions if isinstance(action, FileAction)]
            with suppress(DeltaCdcError):
                _use(fold.commit(1, sha256="", modified=EPOCH), files, schema)


# -- whole logs -----------------------------------------------------------------------------------
_LOGS = ("ours", "delta-rs", "json checkpoint", "sidecars")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("whole")
    for name in _LOGS:
        if name == "delta-rs":
            history = DeltalakeHistory(folder / name, 11)
            for _ in range(8):
                history.step()
            continue
        made = _table(folder / name)
        if name != "ours":
            checkpoint(made, version=4, kind="v2-json" if name == "json checkpoint" else "v2-json-sidecars")
        log = made.path / "_delta_log"
        (log / f"{made.version:020d}.crc").write_text(json.dumps({"tableSizeBytes": 5, "numFiles": 5}))
        (log / "_last_checkpoint").write_text(json.dumps({"version": 4, "size": 5}))
    return {name: folder / name for name in _LOGS}


async def _ask(uri: str, newest: int) -> Any:
    """Ask everything; return version, id and files of the table, or None after a named error."""
    log, answer = DeltaLog(uri), None
    with suppress(DeltaCdcError):
        state = await log.snapshot()
        answer = (
            state.version,
            state.table_id,
            {path for path, _, _ in await log.files(state.version)},
        )
    for request in (
        lambda: log.version_at(EPOCH, bound="start"),
        lambda: log.commits(range(newest + 1)),
        lambda: log.timestamps(range(newest + 1)),
        log.transactions,
        lambda: log.checksum_size(newest),
        lambda: reconcile_async(DeltaLog(uri), "p"),
        lambda: _look(Watch(uri, position=-1, condition=Condition(min_versions=3))),
        lambda: _look(Watch(uri, position=0, condition=Condition.of(partitions={"id": "1"}))),
        lambda: _masked(log, newest),
    ):
        with suppress(DeltaCdcError):
            await request()
    return answer


async def _look(watch: Watch) -> None:
    for _ in range(2):
        news = await watch.look()
        if news is not None:
            position_from_json(json.loads(json.dumps(news.to_dict())))
            watch.go_on_after(news)


async def _masked(log: DeltaLog, newest: int) -> None:
    for version in range(newest + 1):
        async for action in log.actions(version):
            if isinstance(action, FileAction):
                with suppress(UnreadableVectorError, FileNotFoundError):
                    await log.masked(action)
                await log.has_file(action.path)


def _as_delta_rs(path: Path) -> Any:
    """Return what delta-rs reads; None if it reads nothing."""
    from deltalake import DeltaTable

    try:
        table = DeltaTable(str(path))
        paths = table.get_add_actions().column("path").to_pylist()
        return table.version(), str(table.metadata().id), set(map(unquote, paths))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - a panic of Rust is no Exception
        return None


@pytest.mark.parametrize("seed", slow_but(seeds(20), *seeds(1)))
def test_every_text_of_a_log_may_be_odd(logs: dict[str, Path], tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    both = 0
    for number in range(40):
        name = chance.choice(_LOGS)
        path = tmp_path / str(number)
        shutil.copytree(logs[name], path)
        log = path / "_delta_log"
        file = chance.choice(sorted(f for f in log.iterdir() if f.suffix != ".parquet" and f.is_file()))
        odd = _Odd(chance)
        lines = file.read_text().splitlines()
        at = chance.randrange(len(lines))
        lines[at] = odd.text(lines[at])
        file.write_text("\n".join(lines))
        steps = [name, file.name, str(number), *odd.steps]
        with replayable(seed, f"{TEST}::test_every_text_of_a_log_may_be_odd", steps):
            newest = max(int(f.name[:20]) for f in log.glob("0*.json") if "." not in f.stem)
            answer = asyncio.run(asyncio.wait_for(_ask(str(path), newest), 60))
            other = _as_delta_rs(path)
            # Of a checkpoint that is not Delta's, delta-rs believes more; commits replace it here.
            if answer is not None and other is not None and "checkpoint" not in file.name:
                both += 1
                assert answer == other
    assert both >= 5


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "..", ".", "a/../../b", "%2e%2e/x", "a\0b", "%00", "/a%00", "x" * 20_000, "?", "a//b"),
        *("file:", "file:///%00", "http://[", "http://[::1", "s3:"),
    ],
)
def test_a_path_that_no_file_has(tmp_path: Path, path: str) -> None:
    log = DeltaLog(LogTable(tmp_path).create().uri)
    vector = DeletionVector("p", path, offset=0, size_in_bytes=1)
    with suppress(DeltaCdcError):
        run_sync(log.has_file(path))
    with pytest.raises((DeltaCdcError, FileNotFoundError, UnreadableVectorError)):
        run_sync(log.masked(Add("f", deletion_vector=vector)))
