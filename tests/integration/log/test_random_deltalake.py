"""Random histories written by delta-rs: reader, commits and delta-rs itself agree on every version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from delta_cdc.delta_log.table import DeltaLog
from tests.support.random_logs import DeltalakeHistory, Ledger, check_log, replayable, seeds
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 24
TEST = "tests/integration/log/test_random_deltalake.py"


async def _walk(path: Path, seed: int, test: str) -> None:
    history = DeltalakeHistory(path / "ta ble 100% ü", seed)
    follower = DeltaLog(str(history.path))
    seen = await follower.newest_version()
    with replayable(seed, f"{TEST}::{test}", history.done):
        for step in range(1, STEPS + 1):
            if history.step() == "recreate":
                follower, seen = DeltaLog(str(history.path)), 0
            seen = await follower.newest_version(after=seen)
            assert seen == history.ledger.newest
            if step % 8 == 0:
                await check_log(history.ledger)
                _check_against_delta_rs(history.ledger)


def _check_against_delta_rs(ledger: Ledger) -> None:
    """The ledger itself, held against delta-rs: two readers that agree by chance are no proof."""
    from deltalake import DeltaTable

    for version in (v for v in ledger.told if ledger.rebuildable(v)):
        table, told = DeltaTable(str(ledger.path), version=version), ledger.told[version]
        assert table.version() == version
        assert (table.metadata().id, table.metadata().configuration) == (
            told.metadata["id"],
            told.metadata["configuration"],
        )
        assert {uri.rsplit("/", 1)[-1] for uri in table.file_uris()} == {file.name for file in told.files}
        assert {app: table.transaction_version(app) for app in told.txns} == told.txns


@pytest.mark.parametrize("seed", slow_but(seeds(4), *seeds(2)))
def test_the_reader_agrees(tmp_path: Path, seed: int) -> None:
    asyncio.run(_walk(tmp_path, seed, "test_the_reader_agrees"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(300, first=1_000))
def test_the_reader_agrees_on_many(tmp_path: Path, seed: int) -> None:
    asyncio.run(_walk(tmp_path, seed, "test_the_reader_agrees_on_many"))
