"""What a reader of a log holds, parses at once and sends for is limited, whatever another writer wrote."""

from __future__ import annotations

import asyncio
import io
import json
import random
import re
import sys
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_cdc.core import codec, concurrency
from delta_cdc.core.concurrency import Budget, gathered
from delta_cdc.core.errors import CorruptLog, LogLineTooLong, LogTooLarge
from delta_cdc.delta_log import checkpoint as checkpoints
from delta_cdc.delta_log import replay
from delta_cdc.delta_log.actions import LARGE_LINE, Add, DeletionVector, Lines
from delta_cdc.delta_log.deletion_vectors import LARGEST, UnreadableVectorError, UnsupportedVectorError
from delta_cdc.delta_log.requests import Storage
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.waiting import Condition, Watch
from tests.support.checkpoints import KINDS, checkpoint
from tests.support.logs import LogTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

MIB = 1024 * 1024
STATS = json.dumps({"numRecords": 10, "padding": "x" * 900})


@pytest.fixture
def table(tmp_path: Path) -> LogTable:
    made = LogTable(tmp_path / "t", configuration={"delta.enableChangeDataFeed": "true"})
    made._touch = lambda path: None  # type: ignore[method-assign]
    return made.create()


def _with_line(table: LogTable, size: int) -> int:
    """Append a commit whose second line has at least this many bytes."""
    add = table.add()
    add["add"]["stats"] = json.dumps({"numRecords": 10, "padding": "x" * size})
    return table.commit("WRITE", add, table.add(part=1))


def _large(table: LogTable, files: int, **given: Any) -> int:
    adds = [table.add(part=part) for part in range(files)]
    for add in adds:
        add["add"]["stats"] = STATS
    return table.commit("WRITE", *adds, **given)


# -- one line -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("size", "limit"), [(8 * MIB, MIB), pytest.param(100 * MIB, None, marks=pytest.mark.slow)]
)
def test_a_line_above_the_limit_is_named_before_it_is_read(
    table: LogTable, monkeypatch: pytest.MonkeyPatch, size: int, limit: int | None
) -> None:
    if limit is not None:
        monkeypatch.setenv("DELTA_CDC_MAX_LINE_BYTES", str(limit))
    version = _with_line(table, size)
    log = DeltaLog(table.uri)
    run_sync(log.find(0))
    tracemalloc.start()
    with pytest.raises(LogLineTooLong, match=rf"version {version} of .*/t cannot.*line 2 has") as caught:
        run_sync(log.commit(version))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "DELTA_CDC_MAX_LINE_BYTES" in caught.value.remedy
    assert peak < (limit or codec.MOST_BYTES) + 4 * MIB


def test_the_variable_raises_the_limit(table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTA_CDC_MAX_LINE_BYTES", "1000000")
    version = _with_line(table, 1_000_000)
    with pytest.raises(LogLineTooLong):
        run_sync(DeltaLog(table.uri).commit(version))
    monkeypatch.setenv("DELTA_CDC_MAX_LINE_BYTES", "1100000")
    assert run_sync(DeltaLog(table.uri).commit(version)).n_adds == 2
    monkeypatch.setenv("DELTA_CDC_MAX_LINE_BYTES", "much")
    assert Lines().most_bytes == codec.MOST_BYTES


def test_the_number_of_a_line_counts_from_the_start_of_the_file(table: LogTable) -> None:
    version = _large(table, 1_000)
    lines = table.file(version).read_bytes().split(b"\n")
    table.file(version).write_bytes(b"\n".join([*lines[:-1], b"damage", b""]))
    with pytest.raises(CorruptLog, match="line 1002 is not JSON"):
        run_sync(DeltaLog(table.uri).commit(version))


# -- the event loop -------------------------------------------------------------------------------
def test_only_a_large_line_is_parsed_in_a_thread(table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = _large(table, 600), _with_line(table, 2 * LARGE_LINE)
    parsed: list[tuple[int, bool]] = []
    parse = codec.parsed

    def noted(text: bytes, **given: Any) -> Any:
        parsed.append((len(text), threading.current_thread() is threading.main_thread()))
        return parse(text, **given)

    monkeypatch.setattr(codec, "parsed", noted)
    for version in (small, large):
        assert asyncio.run(DeltaLog(table.uri).find(version)) is not None
    assert [size for size, on_loop in parsed if on_loop and size > LARGE_LINE] == []
    assert len([size for size, on_loop in parsed if on_loop]) >= 601
    # The line, with the one after it in the same piece.
    assert [size > LARGE_LINE for size, on_loop in parsed if not on_loop] == [True, False]


def test_other_threads_run_while_a_large_text_is_parsed() -> None:
    """Python gives other threads their turn between calls in Python, and never inside its parser in C."""
    text, calls = json.dumps([[number] for number in range(1_000)]), [0, 0]
    for index, patient in enumerate((False, True)):

        def count(frame: Any, event: str, _: Any, index: int = index) -> None:
            calls[index] += event == "call" and frame.f_code.co_filename.endswith("json/scanner.py")

        sys.setprofile(count)
        try:
            value = codec.parsed(text, patient=patient)
        finally:
            sys.setprofile(None)
        assert value == json.loads(text)
    assert calls[0] == 0
    assert calls[1] >= 1_000


@pytest.mark.parametrize("escape", ["", "\\u00e9", "\\ud800"])
def test_a_large_text_is_read_as_a_small_one(escape: str) -> None:
    text = json.dumps({"a": [1, {"b": None}], "c": 1.5}).replace("b", "b" + escape)
    assert codec.parsed(text.encode(), patient=True) == codec.parsed(text.encode())


@pytest.mark.parametrize("seed", range(40))
def test_a_long_string_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Wherever its pieces end: also beside escapes, halves of characters, quotes and damage."""
    rng = random.Random(seed)
    monkeypatch.setattr(codec, "_FIRST_PIECE", rng.choice([1, 2, 5, 20]))
    monkeypatch.setattr(codec, "_LARGEST_PIECE", rng.choice([1, 3, 50]))
    parts = [
        "a",
        " ",
        ",",
        "u",
        "7",
        "é",
        "表",
        "😀",
        '\\"',
        "\\\\",
        "\\n",
        "\\u00e9",
        "\\ud83d\\ude00",
        "\\ud83d",
    ]
    damage = ["", "", "\\", "\\x", "\n", '"', "\\u12"]
    for _ in range(200):
        inside = "".join(rng.choices(parts, k=rng.randrange(60))) + rng.choice(damage)
        text = f'{{"k": ["{inside}", "{inside[:3]}"], "{rng.choice(parts[:6])}": "x"}}'
        read = []
        for patient in (False, True):
            try:
                read.append(codec.parsed(text.encode(), patient=patient))
            except codec.UnreadableJson as error:
                read.append(re.sub(r" \(char.*|starting at.*", "", str(error)))
        assert read[0] == read[1]


def test_no_call_of_the_parser_reads_a_long_string_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    scan = codec._scanned

    def noted(text: str, begin: int, strict: bool) -> tuple[str, int]:
        value, end = scan(text, begin, strict)
        sizes.append(end - begin)
        return value, end

    monkeypatch.setattr(codec, "_scanned", noted)
    stats = json.dumps({str(number): number for number in range(100_000)})
    assert codec.parsed(json.dumps({"stats": stats}), patient=True) == {"stats": stats}
    assert sum(sizes) > MIB
    assert max(sizes) < 70_000


@pytest.mark.parametrize("kind", ["stats", "schema"])
def test_what_a_large_line_holds_is_parsed_in_a_thread(
    table: LogTable, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The statistics and the schema are texts of JSON inside of the line."""
    if kind == "stats":
        add = table.add()
        counts = {str(number): number for number in range(30_000)}
        add["add"]["stats"] = json.dumps({"nullCount": counts, "numRecords": 7})
        version = table.commit("WRITE", add, table.add(part=1))
    else:
        table.columns = tuple(f"column_{number}" for number in range(4_000))
        version = table.commit("ADD COLUMNS", table.metadata())
    (table.path / "_delta_log" / "_last_checkpoint").write_text(
        json.dumps({"version": 9, "v2Checkpoint": ["x" * 100] * 3_000})
    )
    on_loop, parse = [0], codec.parsed

    def noted(text: bytes, *, patient: bool = False, **given: Any) -> Any:
        if threading.current_thread() is threading.main_thread() or not patient:
            on_loop.append(len(text))
        return parse(text, patient=patient, **given)

    monkeypatch.setattr(codec, "parsed", noted)

    async def play() -> tuple[Any, ...]:
        state = await DeltaLog(table.uri).snapshot()
        commit = await DeltaLog(table.uri).find(version)
        assert commit is not None
        active = await asyncio.to_thread(lambda: state.num_rows)
        news = await Watch(table.uri, position=0).look()
        return state, commit, active, news

    state, commit, active, news = asyncio.run(play())
    assert max(on_loop) <= LARGE_LINE
    assert len(state.schema_columns) == (2 if kind == "stats" else 4_000)
    assert (commit.rows_added, active) == ((17, 17) if kind == "stats" else (0, 0))
    assert (news is not None) is (kind == "stats")


# -- names of files -------------------------------------------------------------------------------
@pytest.mark.parametrize("what", ["added", "removed and added", "partitions"])
def test_the_names_of_a_commit_have_a_limit(
    table: LogTable, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    adds = [table.add(part=part) for part in range(500)]
    for number, add in enumerate(adds):
        add["add"]["partitionValues"] = {"part": str(number)} if what == "partitions" else {}
    version = table.commit("WRITE", *adds)
    if what == "removed and added":
        version = table.commit("WRITE", *table.removes(), *adds)
    limit = 500 * (160 + 25) + (500 * 330 if what == "partitions" else 1_000)
    monkeypatch.setenv("DELTA_CDC_MAX_LOG_MEMORY", str(limit))
    commit = run_sync(DeltaLog(table.uri).commit(version))
    # A file that is removed and added again is counted once.
    assert (commit.n_adds, commit.paired) == (500, what == "removed and added")
    monkeypatch.setenv("DELTA_CDC_MAX_LOG_MEMORY", str(limit // 2))
    with pytest.raises(
        LogTooLarge, match=rf"commit of version {version} of .*/t cannot.*files take"
    ) as caught:
        run_sync(DeltaLog(table.uri).commit(version))
    assert "DELTA_CDC_MAX_LOG_MEMORY" in caught.value.remedy


def test_the_list_of_files_has_a_limit(table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        _large(table, 300)
    checkpoint(table)
    monkeypatch.setenv("DELTA_CDC_MAX_LOG_MEMORY", "400000")
    log = DeltaLog(table.uri)
    with pytest.raises(LogTooLarge, match=r"list of files of version 3 of .*/t cannot"):
        run_sync(log.files(3))
    # Who only counts the files of a checkpoint keeps none of them.
    state = run_sync(log.snapshot())
    assert (state.num_files, state.num_bytes, state.num_rows) == (900, 90_000, 9_000)
    monkeypatch.setenv("DELTA_CDC_MAX_LOG_MEMORY", "much")
    assert len(run_sync(log.files(3))) == 900


@pytest.mark.parametrize("kind", KINDS)
def test_totals_are_those_of_the_list(table: LogTable, kind: str) -> None:
    """With long and short commits after the checkpoint, and files that they remove from it."""
    _large(table, 5)
    table.append()
    checkpoint(table, kind=kind)
    first = [{"remove": {"path": path, "dataChange": True}} for path in sorted(table.files[1])[:2]]
    table.commit("WRITE", *first, *(table.add(part=part) for part in range(replay._FEW + 5)))
    table.commit("DELETE", *table.removes()[::2])
    log = DeltaLog(table.uri)
    state, files = run_sync(log.snapshot()), run_sync(log.files(table.version))
    assert {path for path, _, _ in files} == table.files[table.version]
    assert (state.num_files, state.num_bytes) == (len(files), 100 * len(files))
    assert (state.num_rows, state.is_empty, state.num_folders) == (10 * len(files), False, 1)


def test_a_damaged_checkpoint_is_counted_nowhere(table: LogTable) -> None:
    """Its damage shows only after some of its files."""
    _large(table, 9_000)
    checkpoint(table)
    damaged = checkpoint(table, version=table.append())[0]
    rows = pq.read_table(damaged)
    options = {"write_page_checksum": True, "write_statistics": False, "use_dictionary": False}
    pq.write_table(rows, damaged, compression="none", row_group_size=3_000, **options)
    content = damaged.read_bytes()
    at = content.rindex(b"part-00001-8999.parquet")
    damaged.write_bytes(content[:at] + b"!" + content[at + 1 :])
    state = run_sync(DeltaLog(table.uri).snapshot())
    assert (state.num_files, state.num_rows) == (9_001, 90_010)


def test_looking_for_a_row_ends_at_the_first_one(table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    _large(table, 9_000)
    checkpoint(table)
    batches: list[int] = []
    read = checkpoints._files_of

    def noted(name: str, rows: Any, wanted: Any) -> Any:
        batches.append(len(rows))
        return read(name, rows, wanted)

    monkeypatch.setattr(checkpoints, "_files_of", noted)
    assert not run_sync(DeltaLog(table.uri).snapshot()).is_empty
    assert len(batches) == 1


# -- files at once --------------------------------------------------------------------------------
def test_parts_are_given_in_the_order_of_the_questions() -> None:
    given: list[str] = []

    async def hold(budget: Budget, name: str, size: int, done: asyncio.Event) -> None:
        async with budget.taken(size):
            given.append(name)
            await done.wait()

    async def play() -> None:
        budget, done = Budget(10), [asyncio.Event() for _ in range(4)]
        sizes = [("a", 6), ("large", 9), ("b", 4), ("c", 1)]
        tasks = [
            asyncio.create_task(hold(budget, name, size, one))
            for (name, size), one in zip(sizes, done, strict=True)
        ]
        await asyncio.sleep(0)
        # What would fit waits, too: else small files would keep a large one waiting for ever.
        assert given == ["a"]
        assert not budget.take_now(1)
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        await asyncio.sleep(0)
        assert given == ["a", "b"]
        for one in done:
            one.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert given == ["a", "b", "c"]
        assert budget.take_now(10)

    asyncio.run(play())


def test_a_part_that_comes_with_the_end_of_a_task_is_given_back() -> None:
    async def play() -> None:
        budget = Budget(10)
        await budget.take(10)
        task = asyncio.create_task(budget.take(10))
        await asyncio.sleep(0)
        budget.give_back(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert budget.take_now(10)

    asyncio.run(play())


def test_commits_are_read_within_the_budget(table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(10):
        _large(table, 300)
    size = table.file(1).stat().st_size
    open_bytes, most, requests = [0], [0], [0]
    chunks, get = Storage._chunks, Storage._get

    async def counted(self: Storage, result: Any, size: int) -> AsyncIterator[bytes]:
        open_bytes[0] += size
        most[0] = max(most[0], open_bytes[0])
        try:
            async for chunk in chunks(self, result, size):
                yield chunk
        finally:
            open_bytes[0] -= size

    def counted_get(self: Storage, name: str) -> Coroutine[Any, Any, Any]:
        requests[0] += 1
        return get(self, name)

    monkeypatch.setattr(Storage, "_chunks", counted)
    monkeypatch.setattr(Storage, "_get", counted_get)

    async def read(room: int) -> list[int]:
        concurrency._BUDGETS[asyncio.get_running_loop()] = Budget(room)
        commits = await gathered(map(DeltaLog(table.uri).find, range(11)), limit=64)
        assert concurrency.budget().take_now(room)
        return [commit.n_adds for commit in commits if commit is not None]

    assert asyncio.run(read(3 * size + 1_000)) == [0, *[300] * 10]
    assert size < most[0] <= 3 * size + 1_000
    # A request is sent again if its answer had to wait, and no other one.
    assert 11 < requests[0] <= 11 + 8
    requests[0] = 0
    assert asyncio.run(read(concurrency.IN_FLIGHT)) == [0, *[300] * 10]
    assert requests[0] == 11
    # A file that is larger than the whole budget is read alone.
    most[0] = 0
    assert asyncio.run(read(size // 2)) == [0, *[300] * 10]
    assert most[0] == size


def test_a_failed_read_gives_its_part_back(table: LogTable) -> None:
    version = table.append()
    table.file(version).write_bytes(b"damage")

    async def play() -> None:
        for _ in range(3):
            with pytest.raises(CorruptLog):
                await DeltaLog(table.uri).find(version)
        assert await DeltaLog(table.uri).find(version + 1) is None
        assert concurrency.budget().take_now(concurrency.IN_FLIGHT)

    asyncio.run(play())


# -- a watch --------------------------------------------------------------------------------------
@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return the number of bytes that were read of each file, and parsed of all."""
    counted: dict[str, int] = {"parsed": 0}
    get, chunks, parse = Storage._get, Storage._chunks, codec.parsed

    async def got(self: Storage, name: str) -> Any:
        answer = await get(self, name)
        return None if answer is None else (answer[0], (name, answer[1]))

    async def read(self: Storage, result: Any, size: int) -> AsyncIterator[bytes]:
        name, answer = result
        async for chunk in chunks(self, answer, size):
            counted[name] = counted.get(name, 0) + len(chunk)
            yield chunk

    def parsed(text: bytes, **given: Any) -> Any:
        counted["parsed"] += len(text)
        return parse(text, **given)

    monkeypatch.setattr(Storage, "_get", got)
    monkeypatch.setattr(Storage, "_chunks", read)
    monkeypatch.setattr(codec, "parsed", parsed)
    return counted


def test_a_watch_reads_no_more_of_a_commit_than_decides(table: LogTable, pieces: dict[str, int]) -> None:
    first = _large(table, 2_000)
    last = _large(table, 2_000)
    size = table.file(last).stat().st_size
    news = run_sync(Watch(table.uri, position=0, condition=Condition(min_versions=2)).look())
    assert news.position.version == last
    # The newest commit's hash is kept, and the state is read once; the older commit ends at its first piece.
    assert news.position.commit_hash == table.sha256(last)
    assert pieces[f"_delta_log/{first:020d}.json"] < size + 1.5 * LARGE_LINE


@pytest.mark.parametrize(
    ("condition", "counts"),
    [
        (Condition(), True),
        (Condition(operations=frozenset({"merge"})), False),
        (Condition(operations=frozenset({"write"})), True),
        (Condition(partitions={"part": frozenset({"1"})}), True),
    ],
)
def test_a_part_of_a_commit_decides_as_the_whole(
    table: LogTable, pieces: dict[str, int], condition: Condition, counts: bool
) -> None:
    adds = [table.add(part=part) for part in range(2_000)]
    for add in adds:
        add["add"] |= {"stats": STATS, "partitionValues": {"part": str(len(adds) % 7 + 1 - 5)}}
    version = table.commit("WRITE", *adds)
    whole = run_sync(DeltaLog(table.uri).find(version))
    before = pieces["parsed"]
    part = run_sync(DeltaLog(table.uri).find(version, enough=condition.enough(), hashed=False))
    assert condition.counts(whole) is condition.counts(part) is counts
    assert (part.timestamp, part.info) == (whole.timestamp, whole.info)
    assert pieces["parsed"] - before <= 1.5 * LARGE_LINE < before
    hashed = run_sync(DeltaLog(table.uri).find(version, enough=condition.enough()))
    assert hashed.sha256 == table.sha256(version)


def test_a_commit_is_read_until_it_counts(table: LogTable) -> None:
    """Its files may come before ``commitInfo``, or the one that counts may be the last."""
    for condition in (Condition(), Condition(partitions={"part": frozenset({"z"})})):
        adds = [table.add(part=part) for part in range(600)]
        for add in adds:
            add["add"] |= {"stats": STATS, "partitionValues": {"part": "a"}}
        adds[-1]["add"]["partitionValues"] = {"part": "z"}
        version = table.commit("WRITE", *adds)
        first, *rest = table.file(version).read_bytes().splitlines()
        for content in ([first, *rest], [*rest, first]):
            table.file(version).write_bytes(b"\n".join(content) + b"\n")
            part = run_sync(DeltaLog(table.uri).find(version, enough=condition.enough(), hashed=False))
            assert condition.counts(part)
            assert part.info.operation == "WRITE"


# -- other files ----------------------------------------------------------------------------------
def test_a_json_checkpoint_is_never_held_as_a_whole(table: LogTable) -> None:
    version = _large(table, 8_000)
    (file,) = checkpoint(table, kind="v2-json")
    table.file(version - 1).unlink()
    assert file.stat().st_size > 8_000_000
    log = DeltaLog(table.uri)
    run_sync(log.newest_version())
    tracemalloc.start()
    assert run_sync(log.snapshot()).version == version
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_500_000
    assert len(run_sync(log.files(version))) == 8_000


@pytest.mark.parametrize("rows", [1_000, 1_000_000])
def test_a_large_checkpoint_is_read_in_pieces(
    table: LogTable, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Whether its rows are in many row groups or in one."""
    version = _large(table, 20_000)
    (file,) = checkpoint(table)
    pq.write_table(pq.read_table(file), file, compression="none", row_group_size=rows, use_dictionary=False)
    assert file.stat().st_size > 19_000_000
    table.file(version - 1).unlink()
    sizes: list[int] = []
    held: list[int] = []
    reader = Storage.reader

    def noted(self: Storage, name: str) -> Any:
        made = reader(self, name)
        read = made.read

        def counted(size: int = -1) -> bytes | None:
            sizes.append(size)
            held.append(pa.total_allocated_bytes())
            return read(size)

        made.read = counted  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(Storage, "reader", noted)
    monkeypatch.setattr(checkpoints, "_PIECE", 64 * 1024)
    state = run_sync(DeltaLog(table.uri).snapshot())
    before = pa.total_allocated_bytes()
    assert (state.num_files, state.num_rows) == (20_000, 200_000)
    assert 0 < max(held) - before < 14_000_000
    assert 0 < min(sizes) <= max(sizes) <= 2 * MIB


def test_few_large_rows_are_read_at_once() -> None:
    file = io.BytesIO()
    large = pa.table({"add": [{"path": "a", "stats": "x" * 100_000}] * 100, "txn": ["y" * 50] * 100})
    pq.write_table(large, file, use_dictionary=False)
    group = pq.ParquetFile(file).metadata.row_group(0)
    assert 30 <= checkpoints._rows_at_once(group, ["add.path", "add.stats"]) <= 45
    assert checkpoints._rows_at_once(group, ["add"]) <= 45
    assert checkpoints._rows_at_once(group, ["add.path", "txn"]) == 4_096


def test_a_long_line_of_a_checkpoint_is_damage(table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    version = _with_line(table, 2 * LARGE_LINE)
    checkpoint(table, kind="v2-json")
    assert len(run_sync(DeltaLog(table.uri).files(version))) == 2
    table.file(0).unlink()
    monkeypatch.setenv("DELTA_CDC_MAX_LINE_BYTES", str(LARGE_LINE))
    with pytest.raises(CorruptLog, match=r"checkpoint.*line \d has more than"):
        run_sync(DeltaLog(table.uri).files(version))


def test_optional_files_above_the_limit_count_as_missing(table: LogTable, pieces: dict[str, int]) -> None:
    version, log = table.append(), table.path / "_delta_log"
    for name in ("_last_checkpoint", f"{version:020d}.crc"):
        with (log / name).open("wb") as file:
            file.truncate(codec.MOST_BYTES + 1)
        pieces.pop(f"_delta_log/{name}", None)
    assert run_sync(DeltaLog(table.uri).snapshot()).version == version
    assert run_sync(DeltaLog(table.uri).checksum_size(version)) is None
    assert not {"_delta_log/_last_checkpoint", f"_delta_log/{version:020d}.crc"} & pieces.keys()


@pytest.mark.parametrize(
    ("vector", "error"),
    [
        (DeletionVector("u", "x" * 20, 1, LARGEST + 1), UnsupportedVectorError),
        (DeletionVector("i", "0" * (LARGEST + 1), None, 5), UnsupportedVectorError),
        (DeletionVector("u", "x" * 20, -1, 5), UnreadableVectorError),
        (DeletionVector("u", "x" * 20, 1, -5), UnreadableVectorError),
    ],
    ids=["size", "text", "offset", "negative size"],
)
def test_a_vector_outside_of_the_limits(
    table: LogTable, vector: DeletionVector, error: type[UnreadableVectorError]
) -> None:
    with pytest.raises(error, match=r"too large|negative"):
        run_sync(DeltaLog(table.uri).masked(Add("f", deletion_vector=vector)))
