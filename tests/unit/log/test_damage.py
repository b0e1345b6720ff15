"""A log with damage gives the right answer or a named error: never another answer, never a hang.

What counts as right after a mutation: what was right before it, or what the mutated files say when they are
still a legal log, read by a small reader of this file's own. A file that was replaced by another whole one,
or a line that is gone, leaves a legal log of another history, and nothing could tell. A Parquet file whose
bytes were altered never does: its content counts only where it is somebody's original.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import random
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.delta_log.table import DeltaLog
from tests.support.checkpoints import Replayed, checkpoint, replayed
from tests.support.logs import EPOCH, FEED, SECOND, LogTable
from tests.support.random_logs import replayable, seeds
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

TEST = "tests/unit/log/test_damage.py"
_CHUNKS, _EACH = 12, 85
_PATIENCE = 20.0
_NEWEST = 7
_APPS = ("a", "b")
_VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1, "sizeInBytes": 36}
#: Histories: which checkpoints there are, and whether the commits before the first are gone.
_HISTORIES: dict[str, tuple[tuple[tuple[int, str], ...], bool]] = {
    "commits": ((), False),
    "classic": (((4, "classic"),), False),
    "two": (((2, "v2-json"), (5, "classic")), False),
    "parts": (((5, "parts"),), True),
    "sidecars": (((3, "v2-sidecars"),), True),
    "json": (((3, "v2-json-sidecars"), (6, "classic")), True),
    "stamped": (((4, "classic"),), False),
}

Answer = tuple[str, Any]


# -- histories ------------------------------------------------------------------------------------
def _history(path: Path, name: str) -> LogTable:
    stamped = name == "stamped"
    on = {"delta.enableInCommitTimestamps": "true"} if stamped else {}
    made = LogTable(path, configuration=FEED | on)

    def stamp() -> dict[str, Any]:
        return {"stamp": EPOCH + (made.version + 1) * 2 * SECOND} if stamped else {}

    made.create(**stamp())
    made.append(**stamp())
    made.commit("WRITE", made.add(), {"txn": {"appId": "a", "version": 3}}, user_metadata="{}", **stamp())
    masked = made.add()
    masked["add"]["deletionVector"] = {**_VECTOR, "cardinality": 4}
    made.commit("DELETE", masked, *made.removes()[:1], **stamp())
    made.configuration = {**made.configuration, "delta.appendOnly": "false"}
    made.commit("SET TBLPROPERTIES", made.metadata(), **stamp())
    change = {
        "cdc": {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 5, "dataChange": False}
    }
    made.commit("UPDATE", made.add(), *made.removes()[:1], change, **stamp())
    made.commit("WRITE", made.add(), {"txn": {"appId": "b", "version": 1}}, **stamp())
    made.append(**stamp())
    checkpoints, cleaned = _HISTORIES[name]
    for at, kind in checkpoints:
        checkpoint(made, version=at, kind=kind)
    for version in range(checkpoints[0][0] if cleaned else 0):
        made.file(version).unlink()
    (path / "_delta_log" / f"{_NEWEST:020d}.crc").write_text(json.dumps({"numFiles": 5}))
    return made


@dataclass(frozen=True)
class Known:
    """A history as it was made: where it lies, its files, its answers."""

    path: Path
    files: dict[str, bytes]
    before: dict[str, Answer]


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Known]:
    found = {}
    for name in _HISTORIES:
        made = _history(tmp_path_factory.mktemp("histories") / name, name)
        files = {file: (made.path / file).read_bytes() for file in _names(made.path)}
        found[name] = Known(made.path, files, asyncio.run(_ask(made.uri, range(_NEWEST + 1))))
    return found


def _names(path: Path) -> list[str]:
    return sorted(str(f.relative_to(path)) for f in (path / "_delta_log").rglob("*") if f.is_file())


def _changed(known: Known, path: Path) -> list[int]:
    """Return the versions whose commit files are not as they were."""
    names = {f"_delta_log/{version:020d}.json": version for version in range(_NEWEST + 1)}
    return [v for n, v in names.items() if _bytes(path / n) != known.files.get(n)]


def _bytes(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


# -- damage ---------------------------------------------------------------------------------------
def _truncate(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randrange(len(content))] if content else content


def _flip(chance: random.Random, content: bytes) -> bytes:
    damaged = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 8])):
        if damaged:
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def _garbage(chance: random.Random, content: bytes) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + chance.randbytes(chance.randrange(1, 40)) + content[at + chance.randrange(30) :]


def _drop_line(chance: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    gone = chance.randrange(len(lines) + 1)
    return b"".join(lines[:gone] + lines[gone + 1 :])


def _double_line(chance: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    line = chance.choice(lines) if lines else b""
    lines.insert(chance.randrange(len(lines) + 1), line)
    return b"".join(lines)


def _retype(chance: random.Random, content: bytes) -> bytes:
    """Give a value another type, or take a key away."""
    old, new = chance.choice(
        [
            (rb'"version": (\d+)', rb'"version": "\1"'),
            (rb'"path": "[^"]*"', b'"path": 5'),
            (rb'"path"', b'"paht"'),
            (rb'"dataChange": \w+', b'"dataChange": 1'),
            (rb'"size": \d+', b'"size": [1]'),
            (rb'"id": "[^"]*"', b'"id": null'),
            (rb'"configuration": \{', b'"configuration": {"x": 1, '),
            (rb'\{"add": ', b'{"remove": {}, "add": '),
            (rb'\{"txn": \{[^}]*\}\}', b'{"txn": 7}'),
            (rb"^\{", b"["),
        ]
    )
    return re.sub(old, new, content, count=1)


_CONTENT: list[Callable[[random.Random, bytes], bytes]] = [
    _truncate,
    _flip,
    _flip,
    _flip,
    _garbage,
    _drop_line,
    _double_line,
    _retype,
    lambda chance, content: b"",
    lambda chance, content: b"\n",
    lambda chance, content: chance.randbytes(64),
    lambda chance, content: b"{}\n",
]


def _mutate(chance: random.Random, path: Path) -> str:
    names = _names(path)
    name, other = chance.choice(names), chance.choice(names)
    file = path / name
    kind = chance.randrange(len(_CONTENT) + 3)
    if kind == len(_CONTENT):
        file.unlink()
        return f"delete {name}"
    if kind == len(_CONTENT) + 1:
        content = file.read_bytes()
        file.write_bytes((path / other).read_bytes())
        (path / other).write_bytes(content)
        return f"swap {name} and {other}"
    if kind == len(_CONTENT) + 2:
        lie = {"version": chance.choice([0, 1, 3, 6, 7, 8, 1 << 40]), "size": 1}
        (path / "_delta_log" / "_last_checkpoint").write_text(json.dumps(lie))
        return f"lie {lie}"
    file.write_bytes(_CONTENT[kind](chance, file.read_bytes()))
    return f"{_CONTENT[kind].__name__} {name}"


# -- what the reader says -------------------------------------------------------------------------
async def _ask(uri: str, versions: Iterable[int]) -> dict[str, Answer]:
    log = DeltaLog(uri)
    asked: dict[str, Callable[[], Awaitable[Any]]] = {
        "newest": log.newest_version,
        "newest after 2": lambda: log.newest_version(2),
        "oldest": log.oldest_version,
        "left over": log.left_over,
        "state": lambda: _state(log, None),
        "state 4": lambda: _state(log, 4),
        "txns": lambda: _txns(log),
        "files 7": lambda: _files(log, _NEWEST),
        "files 3": lambda: _files(log, 3),
        "commits": lambda: _commits(log),
        "at start": lambda: log.version_at(EPOCH + 5_500, bound="start"),
    }
    for version in versions:
        asked[f"find {version}"] = lambda version=version: _find(log, version)  # type: ignore[misc]
    return {name: await _answer(ask) for name, ask in asked.items()}


async def _answer(ask: Callable[[], Awaitable[Any]]) -> Answer:
    try:
        return "value", await asyncio.wait_for(asyncio.ensure_future(ask()), _PATIENCE)  # type: ignore[arg-type]
    except DeltaCdcError as error:
        return "error", type(error).__name__


async def _state(log: DeltaLog, version: int | None) -> tuple[Any, ...]:
    state = await log.snapshot(version)
    assert isinstance(await asyncio.to_thread(lambda: state.is_empty), bool)
    configuration = tuple(sorted(state.configuration.items()))
    return state.version, state.table_id, configuration, state.schema_string, state.partition_columns


async def _txns(log: DeltaLog) -> tuple[int | None, ...]:
    return tuple([await log.transaction(app) for app in _APPS])


async def _files(log: DeltaLog, version: int) -> frozenset[tuple[str, str, int]]:
    return await log.files(version)


async def _find(log: DeltaLog, version: int) -> tuple[Any, ...] | None:
    commit = await log.find(version)
    present, print_ = await log.has_commit(version), await log.fingerprint(version)
    assert present is (commit is not None) is (print_ is not None)
    if commit is None:
        return None
    kinds = [type(action).__name__ async for action in log.actions(version)]
    assert (kinds.count("Add"), kinds.count("Remove")) == (commit.n_adds, commit.n_removes)
    table_id = commit.metadata.id if commit.metadata else None
    txns = tuple((txn.app_id, txn.version) for txn in commit.txns)
    counts = (commit.n_adds, commit.n_removes, commit.n_cdc)
    return commit.sha256, table_id, txns, counts, commit.info.user_metadata


async def _commits(log: DeltaLog) -> tuple[str, ...]:
    return tuple(commit.sha256 for commit in await log.commits(range(4, _NEWEST + 1)))


# -- what would be right --------------------------------------------------------------------------
def _right(known: Known, path: Path, name: str, answer: Answer) -> bool:
    """Tell whether an answer is right for the mutated log."""
    if answer[0] == "error" or answer == known.before[name]:
        return True
    value = answer[1]
    if name.startswith("find"):
        with suppress(ValueError):
            return bool(value == _read(path, int(name.split()[1])))
        return False
    present = _present(path)
    if name == "commits":
        return bool(value == tuple(_hash(path, version) for version in range(4, _NEWEST + 1)))
    if name == "oldest":
        return bool(value == min(present))
    if name.startswith("newest"):
        return bool(value in (max(present), _reached(present, 2)))
    if name.startswith("at "):
        return value is None or value in present
    if name == "left over":
        return False
    return any(value == _of(state, name, version) for version, state in _candidates(known, path, name))


def _present(path: Path) -> set[int]:
    return {int(n[11:31]) for n in _names(path) if re.fullmatch(r"_delta_log/[0-9]{20}\.json", n)}


def _reached(present: set[int], after: int) -> int:
    while after + 1 in present:
        after += 1
    return after


def _commit_file(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020d}.json"


def _hash(path: Path, version: int) -> str:
    return hashlib.sha256(_commit_file(path, version).read_bytes()).hexdigest()


def _lines(path: Path, version: int) -> list[bytes]:
    """Return a commit's lines; a file without any action is no commit."""
    lines = [line for line in _commit_file(path, version).read_bytes().split(b"\n") if line.strip()]
    if not any(json.loads(line.decode()) for line in lines):
        raise ValueError(f"version {version} is empty")
    return lines


def _read(path: Path, version: int) -> tuple[Any, ...] | None:
    """Read a commit the plain way."""
    if not _commit_file(path, version).exists():
        return None
    counts, table_id, user, txns = {"add": 0, "remove": 0, "cdc": 0}, None, None, []
    for line in _lines(path, version):
        for kind, data in json.loads(line.decode()).items():
            if kind in counts:
                counts[kind] += 1
            elif kind == "metaData":
                table_id = data["id"]
            elif kind == "txn":
                txns.append((data["appId"], data["version"]))
            elif kind == "commitInfo":
                user = data.get("userMetadata")
    return _hash(path, version), table_id, tuple(txns), tuple(counts.values()), user


def _candidates(known: Known, path: Path, name: str) -> list[tuple[int, Replayed]]:
    """Return every state that a legal reading of the mutated files could come to."""
    present = _present(path)
    versions = {"state 4": [4], "files 3": [3]}.get(name, [max(present | {0}), _NEWEST])
    found = []
    for version in versions:
        for base, state in [(-1, Replayed()), *_bases(known, path, version)]:
            try:
                for at in range(base + 1, version + 1):
                    for line in _lines(path, at):
                        _take(state, line)
            except (ValueError, KeyError, TypeError, AttributeError, FileNotFoundError):
                continue
            found.append((version, state))
    return found


def _take(state: Replayed, line: bytes) -> None:
    for kind, data in json.loads(line.decode()).items():
        if data is not None:
            state.take(json.dumps({kind: data}))


def _bases(known: Known, path: Path, version: int) -> list[tuple[int, Replayed]]:
    found = []
    for stem in {n[11:31] for n in _names(path) if ".checkpoint." in n}:
        if int(stem) > version:
            continue
        state = Replayed()
        try:
            for name in _parts(path, stem):
                _take_file(state, name, (path / name).read_bytes(), known.files)
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            continue
        found.append((int(stem), state))
    return found


def _parts(path: Path, stem: str) -> list[str]:
    """Return the files of a version's checkpoints, with the sidecars that they name."""
    names = [n for n in _names(path) if n[11:].startswith(f"{stem}.checkpoint.")]
    told = b"".join((path / name).read_bytes() for name in names)
    return names + [n for n in _names(path) if "_sidecars" in n and n.rpartition("/")[2].encode() in told]


def _take_file(state: Replayed, name: str, content: bytes, originals: dict[str, bytes]) -> None:
    if name.endswith(".json"):
        for line in content.split(b"\n"):
            if line.strip():
                _take(state, line)
    else:
        # Damage that the reader may pass over, in what it need not read, leaves what was there before.
        _take_parquet(state, content if content in originals.values() else originals[name])


def _take_parquet(state: Replayed, content: bytes) -> None:
    for row in pq.read_table(io.BytesIO(content)).to_pylist():
        for kind, data in row.items():
            if data is not None and kind not in ("remove", "checkpointMetadata", "sidecar"):
                for maps in ("configuration", "partitionValues"):
                    if isinstance(data.get(maps), list):
                        data[maps] = dict(data[maps])
                state.take(json.dumps({kind: data}))


def _of(state: Replayed, name: str, version: int) -> Any:
    """Say what a state answers to a question."""
    if name == "txns":
        return tuple(state.txns.get(app, {}).get("version") for app in _APPS)
    if name.startswith("files"):
        return frozenset(_file(add) for add in state.adds.values())
    meta = state.single.get("metaData")
    if meta is None or "protocol" not in state.single:
        return None
    given = meta.get("configuration") or {}
    # Delta takes a number for its text.
    configuration = tuple(
        sorted((name, value if value is None else str(value)) for name, value in given.items())
    )
    columns = tuple(meta.get("partitionColumns") or ())
    return version, meta["id"], configuration, meta.get("schemaString"), columns


def _file(add: dict[str, Any]) -> tuple[str, str, int]:
    # A path may be no text any more; then it is nobody's.
    path, vector = unquote(str(add["path"])), add.get("deletionVector")
    if vector is None:
        return path, "", 0
    mask = f"{vector.get('storageType')}{vector.get('pathOrInlineDv')}"
    offset = "" if vector.get("offset") is None else f"@{vector['offset']}"
    return path, f"{mask}{offset}", vector.get("cardinality") or 0


# -- the test -------------------------------------------------------------------------------------
@pytest.mark.parametrize("chunk", slow_but(range(_CHUNKS), 0))
def test_damage_is_named_or_harmless(chunk: int, histories: dict[str, Known], tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        for seed in seeds(_CHUNKS * _EACH)[chunk::_CHUNKS]:
            _damage(runner, seed, histories, tmp_path / str(seed))


def _damage(runner: asyncio.Runner, seed: int, histories: dict[str, Known], path: Path) -> None:
    chance, steps = random.Random(seed), []
    name = chance.choice(sorted(_HISTORIES))
    known = histories[name]
    shutil.copytree(known.path / "_delta_log", path / "_delta_log")
    with replayable(seed, TEST, steps):
        steps.append(name)
        steps.extend(_mutate(chance, path) for _ in range(chance.choice([1, 1, 1, 2, 3])))
        answers = runner.run(_ask(str(path), _changed(known, path)))
        wrong = {q: (a, known.before[q]) for q, a in answers.items() if not _right(known, path, q, a)}
        assert not wrong
    shutil.rmtree(path)


def test_without_damage_every_question_has_an_answer(histories: dict[str, Known]) -> None:
    for name, known in histories.items():
        errors = {question: said for question, (kind, said) in known.before.items() if kind == "error"}
        cleaned = _HISTORIES[name][1]
        first = _HISTORIES[name][0][0][0] if cleaned else 0
        assert errors == (
            {}
            if first <= 3
            else {"state 4": "VersionsExpired", "files 3": "VersionsExpired", "commits": "VersionsExpired"}
        )


def test_the_reader_of_this_file_agrees(histories: dict[str, Known]) -> None:
    known = histories["commits"]
    state = replayed(LogTable(known.path), _NEWEST)
    for question in ("state", "files 7", "txns"):
        assert known.before[question] == ("value", _of(state, question, _NEWEST))
    assert known.before["find 5"] == ("value", _read(known.path, 5))
