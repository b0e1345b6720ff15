"""A store on a bad day: requests counted from its own notes, and no fault taken for news of the table."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration, StoreRefused, StoreUnavailable
from delta_cdc.delta_log import checkpoint
from delta_cdc.delta_log.actions import Add
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.waiting import Watch
from tests.support.http_store import WEATHER, Fault, HttpStore, Request, always, no_fault, sometimes
from tests.support.logs import FEED, LogTable
from tests.support.looks import LOOKS, OUTCOMES, comparable, planned, worlds
from tests.support.random_logs import DeltalakeHistory, check_log, replayable, seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TEST = "tests/unit/log/test_faults.py"
#: A client that gives up at once, so that each fault reaches the reader.
IMPATIENT = {"max_retries": "0", "retry_timeout": "1s", "timeout": "2s"}
#: Faults that come at once; ``slow`` ends with the client's patience.
QUICK = tuple(kind for kind in WEATHER if kind != "slow")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HttpStore]:
    with HttpStore(tmp_path / "root") as made:
        yield made


@pytest.fixture
def table(store: HttpStore) -> LogTable:
    made = LogTable(store.root / "orders", configuration=FEED).create()
    for _ in range(3):
        made.append()
    return made


def _log(store: HttpStore, name: str = "orders") -> DeltaLog:
    return DeltaLog(store.uri(name), store.options(**IMPATIENT))


# -- how many requests ----------------------------------------------------------------------------
def _commit(version: int) -> str:
    return f"orders/_delta_log/{version:020d}.json"


def test_a_quiet_poll_is_one_request(store: HttpStore, table: LogTable) -> None:
    assert run_sync(_log(store).newest_version(after=3)) == 3
    assert store.asked() == [f"HEAD {_commit(4)}"]


@pytest.mark.parametrize("behind", [60, 1_200])
def test_far_behind_is_one_listing_from_there_on(store: HttpStore, table: LogTable, behind: int) -> None:
    for _ in range(behind):
        table.append()
    assert run_sync(_log(store).newest_version(after=3)) == 3 + behind
    listings = [request for request in store.requests if request.lists]
    pages = 1 + behind // 1_000
    assert len(listings) == pages
    assert listings[0].query["start-after"] >= _commit(4)
    assert len(store.requests) <= 10 + pages


def test_each_commit_is_one_request(store: HttpStore, table: LogTable) -> None:
    log = _log(store)
    run_sync(log.commit(2))
    assert store.asked() == [f"GET {_commit(2)}"]
    run_sync(log.commits(range(4)))

    async def count(version: int) -> int:
        return len([action async for action in log.actions(version)])

    assert run_sync(count(1)) == len(table.file(1).read_text().splitlines())
    assert sorted(store.asked()) == [f"GET {_commit(version)}" for version in range(4)]


def test_a_new_look_reads_the_commits_of_a_table_that_was_made_anew(
    store: HttpStore, table: LogTable
) -> None:
    log = _log(store)
    run_sync(log.snapshot())
    before = run_sync(log.commits(range(4)))
    shutil.rmtree(table.path)
    again = LogTable(table.path, configuration=FEED, table_id="id-2").create()
    for _ in range(4):
        again.append()
    assert run_sync(log.snapshot()).table_id == "id-2"
    after = run_sync(log.commits(range(5)))
    assert [commit.sha256 for commit in after] == [again.sha256(version) for version in range(5)]
    assert after[0] != before[0]


# -- special names --------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["a b", "100%", "50%25", "a%20b", "%41", "ünïcode 表", "a#b?c=d&e+f"])
def test_special_names_as_keys(store: HttpStore, name: str) -> None:
    made = LogTable(store.root / "plain", configuration=FEED).create()
    for _ in range(2):
        made.append()
    made.checkpoint()
    made.path = made.path.rename(store.root / name)
    log = _log(store, name)
    assert run_sync(log.newest_version()) == run_sync(log.newest_version(after=0)) == 2
    assert [commit.sha256 for commit in run_sync(log.commits(range(3)))] == [made.sha256(v) for v in range(3)]
    state = run_sync(log.snapshot())
    assert (state.table_id, state.version, state.num_files) == ("id-1", 2, 2)
    assert run_sync(log.snapshot(1)).num_files == 1


@pytest.mark.parametrize("seed", seeds(2))
def test_random_histories_over_http(store: HttpStore, seed: int) -> None:
    history = DeltalakeHistory(store.root / "ta ble ü", seed)
    with replayable(seed, f"{TEST}::test_random_histories_over_http", history.done):
        for _ in range(15):
            history.step()
        asyncio.run(check_log(history.ledger, store.uri("ta ble ü"), store.options(**IMPATIENT)))


# -- faults ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", QUICK)
@pytest.mark.parametrize("look", LOOKS)
def test_a_fault_says_nothing_about_the_table(
    store: HttpStore, table: LogTable, kind: Any, look: str
) -> None:
    log, ask = _log(store), LOOKS[look]
    store.faults = always(kind)
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            run_sync(ask(log))
        assert caught.value.retryable
    store.faults = no_fault
    # The same object works again, and says what a fresh one on the local disk says.
    assert comparable(run_sync(ask(log))) == comparable(run_sync(ask(_log(store))))


@pytest.mark.parametrize("kind", ["reset", "truncated"])
def test_a_stream_that_breaks_off_is_not_a_damaged_commit(
    store: HttpStore, table: LogTable, kind: Any
) -> None:
    """Half of a large commit has been read when the connection ends, mostly in the middle of a line."""
    table.commit("WRITE", *[table.add(part=part) for part in range(3_000)])
    log = _log(store)

    async def added() -> int:
        return sum([isinstance(action, Add) async for action in log.actions(4)])

    store.faults = always(kind)
    for ask in (added, lambda: log.find(4), lambda: log.files(4)):
        with pytest.raises(StoreUnavailable):
            run_sync(ask())
    store.faults = no_fault
    assert run_sync(added()) == run_sync(log.commit(4)).n_adds == 3_000


@pytest.mark.parametrize("kind", QUICK)
def test_a_large_checkpoint_that_breaks_off_is_not_a_damaged_one(
    store: HttpStore, table: LogTable, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large checkpoints are read by ranges; where that fails, no older state may take their place."""
    monkeypatch.setattr(checkpoint, "_WHOLE", 0)
    table.checkpoint()
    table.append()
    store.faults = lambda request: Fault(kind) if request.key.endswith(".parquet") else None
    log = _log(store)
    for ask in (log.snapshot, lambda: log.files(4)):
        with pytest.raises(StoreUnavailable):
            run_sync(ask())
    assert {request.key[-8:] for request, _ in store.faulty} == {".parquet"}
    store.faults = no_fault
    assert run_sync(log.snapshot()).num_files == len(run_sync(log.files(4))) == 4


@pytest.mark.parametrize("kind", QUICK)
def test_a_file_that_cannot_be_asked_for_its_rows(store: HttpStore, table: LogTable, kind: Any) -> None:
    """Where a writer left out the number of rows, a footer tells it; a fault says neither yes nor no."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), table.path / "empty.parquet")
    add = {
        "path": "empty.parquet",
        "partitionValues": {},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
    }
    table.commit("WRITE", *table.removes(), {"add": add})
    state = run_sync(_log(store).snapshot())
    store.faults = always(kind)
    with pytest.raises(StoreUnavailable):
        state.is_empty  # noqa: B018
    store.faults = no_fault
    assert run_sync(_log(store).snapshot()).is_empty


def test_a_store_that_never_answers(store: HttpStore, table: LogTable) -> None:
    log = DeltaLog(store.uri("orders"), store.options(**{**IMPATIENT, "timeout": "300ms"}))
    store.faults = always("slow")

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*[ask(log) for ask in LOOKS.values()], return_exceptions=True)

    assert {type(answer) for answer in run_sync(all_at_once())} == {StoreUnavailable}


@pytest.mark.parametrize("fault", [Fault("unavailable"), Fault("unavailable", retry_after=0), Fault("reset")])
def test_the_client_asks_again_by_itself(store: HttpStore, table: LogTable, fault: Fault) -> None:
    left = [fault]
    store.faults = lambda _: left.pop() if left else None
    log = DeltaLog(store.uri("orders"), store.options(max_retries="3", retry_timeout="30s"))
    assert run_sync(log.newest_version(after=3)) == 3
    assert store.asked() == [f"HEAD {_commit(4)}"] * 2


def test_refused_access_is_not_a_missing_table(store: HttpStore, table: LogTable) -> None:
    store.faults = always("denied")
    for name in ("orders", "nothing there"):
        for ask in (lambda log: log.newest_version(), lambda log: log.snapshot()):
            with pytest.raises(StoreUnavailable, match="refused access"):
                run_sync(ask(_log(store, name)))


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ((400, "ExpiredToken"), StoreRefused, "refused access"),
        ((400, "InvalidToken"), StoreRefused, "refused access"),
        ((400, "KMS.DisabledException"), StoreRefused, "refused access"),
        ((404, "NoSuchBucket"), InvalidConfiguration, "has no such bucket"),
        ((400, "AuthorizationHeaderMalformed"), InvalidConfiguration, "is in another region"),
        ((301, "PermanentRedirect"), InvalidConfiguration, "is in another region"),
        ((403, "RequestTimeTooSkewed"), StoreRefused, "the clock of this machine"),
        ((400, "InvalidRequest"), StoreUnavailable, "did not answer, or answered with an error"),
    ],
)
def test_an_answer_that_says_what_is_wrong(
    store: HttpStore, table: LogTable, answer: tuple[int, str], error: type[DeltaCdcError], text: str
) -> None:
    store.faults = always("answer", answer=answer)
    with pytest.raises(DeltaCdcError, match=text) as caught:
        run_sync(_log(store).newest_version())
    assert type(caught.value) is error


def test_the_name_of_a_table_says_nothing(store: HttpStore, table: LogTable) -> None:
    store.faults = always("unavailable")
    for name in ("credentials", "NoSuchBucket"):
        with pytest.raises(StoreUnavailable) as caught:
            run_sync(_log(store, name).newest_version())
        assert type(caught.value) is StoreUnavailable


# -- planning -------------------------------------------------------------------------------------
async def _outcome(store: HttpStore, name: str) -> str:
    tables = store.uri(f"{name}/source"), store.uri(f"{name}/target")
    try:
        return await planned(*tables, store.options(**IMPATIENT))
    except StoreUnavailable:
        raise
    except DeltaCdcError as error:
        return f"{type(error).__name__}: {error}"


def test_the_worlds_under_faults_have_the_outcomes_they_are_meant_to_have(store: HttpStore) -> None:
    assert set(worlds(store.root)) == set(OUTCOMES)
    for name, expected in OUTCOMES.items():
        assert expected in asyncio.run(_outcome(store, name)), name


async def _judge(store: HttpStore, seed: int, tries: int) -> None:
    """Plan over and over under faults: each answer is the true one, or that there is none."""
    told = {True: 0, False: 0}
    for name in OUTCOMES:
        store.faults = no_fault
        true = await _outcome(store, name)
        for one in range(tries):
            # From a fault now and then to more faults than answers.
            store.faults = sometimes(seed * 1_000 + one, 0.5 ** (1 + one % 6), QUICK)
            try:
                assert await _outcome(store, name) == true, name
                told[True] += 1
            except StoreUnavailable:
                told[False] += 1
    assert min(told.values()) >= tries, "faults hit nothing, or everything"


@pytest.mark.parametrize("seed", seeds(1))
def test_no_gate_is_misjudged(store: HttpStore, seed: int) -> None:
    worlds(store.root)
    with replayable(seed, f"{TEST}::test_no_gate_is_misjudged", []):
        asyncio.run(_judge(store, seed, tries=12))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8, first=100))
def test_no_gate_is_misjudged_over_and_over(store: HttpStore, seed: int) -> None:
    worlds(store.root)
    with replayable(seed, f"{TEST}::test_no_gate_is_misjudged_over_and_over", []):
        asyncio.run(_judge(store, seed, tries=48))


# -- waiting --------------------------------------------------------------------------------------
class BadDay:
    """Faults for some requests; when the last of them is over, something happens."""

    def __init__(self, requests: int, then: Callable[[], object], seed: int) -> None:
        self.left = requests
        self.then = then
        self.decide = sometimes(seed, 1.0, QUICK)

    def __call__(self, request: Request) -> Fault | None:
        if self.left == 0:
            return None
        self.left -= 1
        if self.left == 0:
            self.then()
        return self.decide(request)


@pytest.mark.parametrize("seed", range(3))
def test_a_watch_survives_and_tells_each_commit_once(store: HttpStore, table: LogTable, seed: int) -> None:
    watch = Watch(store.uri("orders"), position=3, storage_options=store.options(**IMPATIENT))

    async def looks() -> list[tuple[int | None, int]]:
        news, failures = [], 0
        for one in range(120):
            if one % 4 == 3:
                table.append()
            store.faults = sometimes(seed * 1_000 + one, 0.4, QUICK)
            try:
                found = await watch.look()
            except StoreUnavailable:
                failures += 1
                continue
            if found is not None:
                news.append((found.previous_version, found.position.version))
                watch.go_on_after(found)
        assert failures > 20
        store.faults = no_fault
        last = await watch.look()
        return news + ([(last.previous_version, last.position.version)] if last is not None else [])

    news = run_sync(looks())
    assert [previous for previous, _ in news] == [3, *(version for _, version in news[:-1])]
    assert news[-1][1] == table.version


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pauses after failures stay short."""
    from airflow_delta_cdc.triggers import patience

    monkeypatch.setattr(patience, "LONGEST_BACKOFF", 0.001)


@pytest.mark.usefixtures("hasty", "table")
@pytest.mark.parametrize("name", ["orders", "new"])
def test_the_sensors_trigger_survives_and_fires_once(store: HttpStore, name: str) -> None:
    """A table may also appear on a bad day."""
    from airflow_delta_cdc.triggers.sensor import DeltaVersionSensorTrigger

    made = LogTable(store.root / name, configuration=FEED)
    made.version = known = 3 if name == "orders" else -1
    made.files[3] = frozenset()
    store.faults = BadDay(9, then=made.append if known >= 0 else lambda: made.create().append(), seed=1)
    trigger = DeltaVersionSensorTrigger(
        table=store.uri(name),
        baseline={"version": known},
        poll_interval=0.001,
        storage_options=store.options(**IMPATIENT),
    )

    async def events() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    fired = asyncio.run(asyncio.wait_for(events(), 60))
    expected = [(4, 3)] if known >= 0 else [(1, None)]
    assert [(event["version"], event["previous_version"]) for event in fired] == expected
    assert len(store.faulty) == 9
