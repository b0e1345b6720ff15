"""Planning blocks no event loop: hundreds of tables are planned in one, and triggers share theirs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.requests import ReadRequest
from delta_cdc.core.spec import OptimizeSpec, VacuumSpec
from delta_cdc.delta_log.requests import put_stream
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.apply import plan_apply_async
from delta_cdc.planning.consumers import Consumer
from delta_cdc.planning.ingest import plan_ingest_async
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.optimize import plan_optimize
from delta_cdc.planning.read import plan_read_async
from delta_cdc.planning.reconcile import reconcile_async
from delta_cdc.planning.status import status_of_all
from delta_cdc.planning.vacuum import plan_vacuum
from delta_cdc.planning.verify import VerifyRequest, plan_verify_async
from delta_cdc.planning.waiting import Watch
from tests.support.blocking import blocking_calls
from tests.support.ingest_model import World
from tests.support.logs import LogTable
from tests.support.tables import NOW, Tables

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path


def assert_nothing_blocks(coroutine: Coroutine[Any, Any, Any]) -> Any:
    with blocking_calls() as found:
        made = run_sync(coroutine)
    assert found == []
    return made


@pytest.fixture
def built(tables: Tables) -> Tables:
    tables.sealed(2)
    tables.target.append()
    return tables


def test_the_detector_notices(tmp_path: Path) -> None:
    async def careless() -> None:
        (tmp_path / "a").write_text("a")
        time.sleep(0)  # noqa: ASYNC251 - what is to be noticed

    with blocking_calls() as found:
        run_sync(careless())
    assert {line.partition(" at ")[0] for line in found} >= {"Path.open", "time.sleep"}


def test_a_load(tables: Tables) -> None:
    assert_nothing_blocks(plan_apply_async(tables.request(), Memory(now_ms=NOW)))
    made = ReadRequest(pipeline="p", source=tables.source.uri, staging=tables.staging.uri)
    assert_nothing_blocks(plan_read_async(made, Memory(now_ms=NOW)))


@pytest.mark.parametrize("mode", ["incremental", "repair", "reload", "reset"])
def test_an_apply(built: Tables, mode: str) -> None:
    given = {"repair_quarantined": True} if mode == "repair" else {}
    LogTable(built.target.path.with_name("target__quarantine")).create()
    assert_nothing_blocks(plan_apply_async(built.request(mode=mode, **given), Memory(now_ms=NOW)))


@pytest.mark.parametrize("given", [{}, {"lexical_order": True}])
def test_an_ingest(tmp_path: Path, given: dict[str, Any]) -> None:
    world = World(tmp_path)
    world.deliver("a.json", ["1"])
    assert_nothing_blocks(plan_ingest_async(world.request(**given), Memory(now_ms=NOW)))


def test_the_look_back_and_the_looks_around(built: Tables) -> None:
    watch = Watch(built.source.uri, position=2)
    consumers = [Consumer("p", built.source.uri, built.target.uri)]
    verify = VerifyRequest(pipeline="p", target=built.target.uri)
    assert_nothing_blocks(watch.look())
    assert_nothing_blocks(plan_verify_async(verify, now_ms=NOW))
    assert_nothing_blocks(status_of_all([("p", built.target.uri)]))
    assert_nothing_blocks(plan_vacuum(VacuumSpec(run_id="r", table_uri=built.source.uri), consumers, now=NOW))
    assert_nothing_blocks(plan_optimize(OptimizeSpec(run_id="r", table_uri=built.source.uri)))


def test_the_copy_of_the_seal(built: Tables) -> None:
    """It lies in Airflow's metadata database; here in a file, the reading of which is noticed."""
    copy = built.target.path.parent / "backup"
    copy.write_text("x")
    seen = []

    def backup() -> None:
        seen.append(copy.read_text())

    verify = VerifyRequest(pipeline="p", target=built.target.uri, backup=backup)
    assert_nothing_blocks(plan_verify_async(verify, now_ms=NOW))
    built.target.checkpoint(0)
    with blocking_calls() as found, pytest.raises(Exception, match="log retention removed"):
        run_sync(reconcile_async(DeltaLog(built.target.uri), "p", backup=backup))
    assert (found, len(seen)) == ([], 2)


def test_a_file_that_is_written(tmp_path: Path) -> None:
    assert_nothing_blocks(put_stream(str(tmp_path), "manifests", iter([b"a", b"b"])))
    assert (tmp_path / "manifests").read_bytes() == b"ab"
