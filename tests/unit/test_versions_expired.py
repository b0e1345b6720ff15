"""Versions that a pipeline has not applied are gone: whoever finds it out gives the same advice."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import delta_cdc
from delta_cdc.core.checks import WATERMARK
from delta_cdc.core.errors import LogGap, VersionsExpired
from delta_cdc.core.retention import LOG_GAP_REMEDY
from delta_cdc.core.retention import VERSIONS_EXPIRED_REMEDY as REMEDY
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.consumers import Consumer, held
from delta_cdc.planning.status import status_async
from delta_cdc.planning.verify import plan_verify_async
from delta_cdc.planning.verify_request import VerifyRequest
from delta_cdc.planning.waiting import Watch
from delta_cdc.spark import named_errors
from tests.support.logs import EPOCH, SECOND
from tests.support.tables import NOW, Tables

if TYPE_CHECKING:
    from collections.abc import Callable

WEEK = 7 * 86_400 * SECOND


def cleaned(tables: Tables) -> None:
    DeltaTable(tables.source.uri).create_checkpoint()
    for version in range(5):
        tables.source.file(version).unlink()


def vacuumed(tables: Tables) -> None:
    tables.source.path.joinpath("part-00003-0.parquet").unlink()


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    made = Tables.made_in(tmp_path)
    made.sealed(2)
    return made


@pytest.mark.parametrize("happens", [cleaned, vacuumed])
def test_a_plan_says_so(tables: Tables, happens: Callable[[Tables], None]) -> None:
    happens(tables)
    for asked in (tables.apply, tables.read):
        with pytest.raises(VersionsExpired) as failed:
            asked()
        assert failed.value.remedy == REMEDY
    assert tables.apply(on_versions_expired="reload").spec is not None
    assert tables.apply(mode="reload").spec is not None, "the advice works"


def test_a_status_a_verification_and_a_list_of_consumers_say_so(tables: Tables) -> None:
    cleaned(tables)
    assert REMEDY in run_sync(status_async("p", tables.target.uri, now_ms=NOW)).findings[0]
    request = VerifyRequest(pipeline="p", target=tables.target.uri)
    plan = run_sync(plan_verify_async(request, now_ms=NOW))
    (check,) = (one for one in plan.checks if one.check == WATERMARK)
    assert (check.status, check.remedy) == ("finding", REMEDY)
    (found,) = held(tables.source.uri, [Consumer("p", tables.source.uri, tables.target.uri)])
    assert REMEDY in found.note


def test_a_sensor_wakes_the_run_that_says_so(tables: Tables) -> None:
    cleaned(tables)
    news = run_sync(Watch(tables.source.uri, position=2).look())
    assert news is not None
    assert news.reason == "new_versions"


def test_past_the_retention_no_run_is_advised(tables: Tables) -> None:
    late = EPOCH + 4 * SECOND + WEEK
    with pytest.raises(VersionsExpired) as failed:
        tables.apply(now=late)
    assert failed.value.remedy.endswith(REMEDY)
    findings = run_sync(status_async("p", tables.target.uri, now_ms=late)).findings
    (told,) = (one for one in findings if "Version 3" in one)
    assert REMEDY in told
    assert "run the pipeline." not in told


def test_spark_says_so() -> None:
    found = named_errors.named(Exception("[DELTA_FILE_NOT_FOUND] a file"), "a table")
    assert (type(found), found.remedy) == (VersionsExpired, REMEDY)


def test_nobody_else_makes_the_error() -> None:
    """Of two situations the remedy is another one: they are not of a source that goes on."""
    makers = {"retention.py": 1, "feed.py": 1, "modes.py": 1}
    assert delta_cdc.__file__ is not None
    found: dict[str, int] = {}
    for path in Path(delta_cdc.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == VersionsExpired.__name__:
                found[path.name] = found.get(path.name, 0) + 1
    assert found == makers


def test_a_hole_in_the_log_has_one_remedy_too(tables: Tables) -> None:
    DeltaTable(tables.source.uri).create_checkpoint()
    tables.source.file(3).unlink()
    with pytest.raises(LogGap) as failed:
        tables.apply()
    assert failed.value.remedy == LOG_GAP_REMEDY
    assert tables.apply(mode="reload").spec is not None, "the advice works"
