"""What the simulator assumes about stores is so on real ones: a table of the promises, and the tests of each.

The promises are those of ``tests/simulator/promises.py``, which also names tests that exist for another
reason. Those that exist for a promise alone are here.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import StoreUnavailable
from delta_cdc.delta_log.requests import Storage, put_after
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.faulty_stores.planning import Planning
from tests.simulator.promises import PROMISES, RULES
from tests.support.faulty_disk import FaultyDisk
from tests.support.faulty_proxy import KINDS, ODD, Once, Throttled, no_fault
from tests.support.logs import FEED, LogTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.faulty_proxy import Kind
    from tests.support.lake import Lake

_ROOT = Path(__file__).resolve().parents[3]
_IMPATIENT = {"max_retries": "0", "retry_timeout": "1s", "timeout": "5s"}


def test_each_promise_of_the_simulator_has_a_test_on_each_store() -> None:
    kinds = {name.split(",")[0] for name, one in PROMISES.items() if one.scheme in ("s3", "file")}
    assert kinds == {"s3", "disk"}
    for rule in RULES:
        assert {kind for kind, _ in rule.tests} == kinds - set(rule.missing), rule.text
        for _, test in rule.tests:
            path, _, name = test.partition("::")
            assert f"def {name}(" in (_ROOT / "tests" / path).read_text(), test
        # A promise that some stores break is shown to be broken there, too.
        broken = {name for name, one in PROMISES.items() if not rule.kept_by(one)}
        assert bool(broken) == bool(rule.broken), rule.text
        for test in rule.broken:
            path, _, name = test.partition("::")
            assert f"def {name}(" in (_ROOT / "tests" / path).read_text(), test


@pytest.fixture
def orders(lake: Lake, tmp_path: Path) -> LogTable:
    """Return a table on a disk; the same is in the bucket."""
    made = LogTable(tmp_path / "orders", configuration=FEED).create()
    for _ in range(6):
        made.append()
    lake.upload(made.path)
    return made


def _log(lake: Lake, **more: str) -> DeltaLog:
    return DeltaLog(lake.uri("orders"), {**lake.options, **_IMPATIENT, **more})


def _always(kind: Kind, meant: Callable[[Any], bool] = lambda _: True) -> Once:
    return Once(kind, lambda request: request.may_meet(kind) and meant(request), times=10_000)


# -- creation -------------------------------------------------------------------------------------
def test_one_of_many_creations_succeeds(lake: Lake) -> None:
    """In Python, at the same moment, and again after the answers to the first ones were lost."""
    start = threading.Barrier(8)

    def create(number: int) -> bool:
        start.wait()
        return asyncio.run(put_after(lake.uri("folder"), "one", b"%d" % number, None, lake.options))

    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(create, range(8)))
    assert sum(created) == 1
    assert (lake.folder / "folder" / "one").read_bytes() == b"%d" % created.index(True)


def test_a_request_that_arrives_again_changes_nothing_that_was_written_since(lake: Lake) -> None:
    folder, options = lake.uri("folder"), lake.options

    def replace(content: bytes) -> bool:
        async def replaced() -> bool:
            async with Storage(folder, options).open("one") as opened:
                seen = None if opened is None else opened[0]
            return await put_after(folder, "one", content, seen, options)

        return asyncio.run(replaced())

    lake.proxy.faults = _always("again")
    assert replace(b"first")
    assert replace(b"second")
    lake.proxy.settled()
    assert [kind for _, kind in lake.proxy.struck] == ["again"] * 2
    assert (lake.folder / "folder" / "one").read_bytes() == b"second"


def test_the_own_file_after_a_lost_answer_is_not_taken_for_a_written_one(lake: Lake) -> None:
    """After 500, the client repeats the request, and the store refuses it (412): the caller has to read."""

    def create(name: str) -> bool:
        return asyncio.run(put_after(lake.uri("folder"), name, b"mine", None, lake.options))

    lake.proxy.faults = Once("error", lambda request: request.method == "PUT")
    assert not create("one")
    lake.proxy.faults = Once("lost_answer", lambda request: request.method == "PUT")
    with pytest.raises(StoreUnavailable):
        create("two")
    for name in ("one", "two"):
        assert (lake.folder / "folder" / name).read_bytes() == b"mine"


# -- listings -------------------------------------------------------------------------------------
def test_a_listing_is_complete_sorted_and_up_to_date(lake: Lake, orders: LogTable) -> None:
    for place, options in ((orders.uri, None), (lake.uri("orders"), lake.options)):
        names: list[str] = []
        run_sync(Storage(place, options).list_log(lambda entry, names=names: names.append(entry.name)))
        assert sorted(names) == [f"_delta_log/{version:020d}.json" for version in range(7)]
        assert names == sorted(names) or options is None
    orders.append()
    lake.upload(orders.path)
    assert run_sync(_log(lake).newest_version()) == run_sync(DeltaLog(orders.uri).newest_version()) == 7


def test_a_listing_that_lags_shows_an_older_table(lake: Lake, orders: LogTable) -> None:
    """The newest files are missing, none in between: no hole, and the state of an older version."""
    lake.proxy.faults = _always("stale")
    old = run_sync(_log(lake).snapshot()).version
    assert old < 6
    # Requests for a single file see it.
    assert run_sync(_log(lake).newest_version(after=old)) == 6
    with FaultyDisk(orders.path, lambda operation, *_: "stale" if operation == "list" else None).installed():
        assert run_sync(DeltaLog(orders.uri).snapshot()).version == 5


def test_half_of_a_listing_is_no_listing(lake: Lake, orders: LogTable) -> None:
    lake.proxy.faults = _always("half_listing")
    with pytest.raises(StoreUnavailable):
        run_sync(_log(lake).newest_version())


def test_a_file_that_was_deleted_and_is_listed_is_no_table(lake: Lake, orders: LogTable) -> None:
    run_sync(_log(lake).newest_version())
    (lake.folder / "orders" / "_delta_log" / f"{6:020d}.json").unlink()
    lake.proxy.faults = _always("ghosts")
    assert run_sync(_log(lake).newest_version()) == 6
    with pytest.raises(Exception, match=r"version 6 .* is missing"):
        run_sync(_log(lake).snapshot())


# -- reads ----------------------------------------------------------------------------------------
def test_a_file_that_is_seen_while_it_is_written_has_another_hash(orders: LogTable) -> None:
    """The plan has the hash of what it saw, and the job compares it with that of the whole file."""
    with FaultyDisk(orders.path, lambda operation, *_: "torn" if operation == "get" else None).installed():
        torn = run_sync(DeltaLog(orders.uri).commit(6))
    assert torn.n_adds == 0
    assert torn.sha256 != orders.sha256(6)


@pytest.mark.parametrize("kind", [kind for kind in ODD if kind not in ("conflict", "again", "half_listing")])
def test_an_odd_answer_is_no_answer(lake: Lake, orders: LogTable, kind: Kind) -> None:
    lake.proxy.faults = _always(kind)
    storage = Storage(lake.uri("orders"), {**lake.options, **_IMPATIENT})
    with pytest.raises(StoreUnavailable):
        storage.reader(f"_delta_log/{2:020d}.json").read()
    lake.proxy.faults = no_fault
    assert storage.reader(f"_delta_log/{2:020d}.json").read() == orders.file(2).read_bytes()


def test_a_body_that_a_client_goes_on_with_is_whole(lake: Lake, orders: LogTable) -> None:
    """The body breaks off, the client sends a request for the rest, and the rest is short."""
    broken_off = KINDS[4]
    kinds: list[Kind] = [broken_off, "short"]
    lake.proxy.faults = lambda request: (
        kinds.pop(0) if kinds and request.key.endswith("2.json") and request.may_meet(kinds[0]) else None
    )
    with pytest.raises(StoreUnavailable, match="bytes came of the"):
        run_sync(_log(lake, max_retries="3").commit(2))
    assert not kinds
    assert run_sync(_log(lake).commit(2)).sha256 == orders.sha256(2)


# -- time -----------------------------------------------------------------------------------------
def test_a_store_that_throttles_for_a_while_is_waited_for(lake: Lake, orders: LogTable) -> None:
    patient = _log(lake, max_retries="6", retry_timeout="30s")
    lake.proxy.faults = Throttled(0.5)
    assert run_sync(patient.newest_version()) == 6
    lake.proxy.faults = Throttled(60)
    with pytest.raises(StoreUnavailable) as caught:
        run_sync(_log(lake).newest_version())
    assert caught.value.retryable


def test_a_store_with_another_clock(lake: Lake, orders: LogTable) -> None:
    """Times of commits are those of the store; order and contents are the same."""
    right = run_sync(_log(lake).commits(range(7)))
    lake.proxy.skew = 7_200
    wrong = run_sync(_log(lake).commits(range(7)))
    assert [one.sha256 for one in right] == [one.sha256 for one in wrong]
    assert {late.modified - early.modified for early, late in zip(right, wrong, strict=True)} == {7_200_000}


# -- the campaign ---------------------------------------------------------------------------------
def test_rounds_of_plans_on_stores_that_fail(lake: Lake, tmp_path: Path) -> None:
    """As many as play in some seconds; ``python -m tests.faulty_stores`` plays thousands."""
    planning = Planning(lake, tmp_path / "disk", short=True)
    rounds = [planning.play(seed) for seed in range(50)]
    assert [one.result for one in rounds if one.failed] == []
    assert len({kind for one in rounds for kind in one.kinds}) > 10
    assert {"true", "named"} <= {one.result for one in rounds}
