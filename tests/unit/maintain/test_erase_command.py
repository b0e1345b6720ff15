"""What the command ``erase`` erases, and which consumers it leaves old files for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli import erase as erase_command
from delta_cdc.cli import main
from delta_cdc.core.errors import VacuumWouldLose
from delta_cdc.core.spec import VacuumSpec
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.erasure import places
from delta_cdc.planning.vacuum import plan_vacuum
from delta_cdc.run.erase import Report
from tests.support.logs import EPOCH, SECOND
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.run.erase import Erasure

DAY = 86_400 * SECOND

CONFIGURATION = """
pipelines:
  first: {source: /elsewhere, target: "${LAKE}/source", keys: [id]}
  p: {source: "${LAKE}/source", target: "${LAKE}/target", keys: [id]}
"""


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables.made_in(tmp_path)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Erasure]:
    """Return what the command line would erase."""
    monkeypatch.setenv("LAKE", str(tmp_path))
    found: list[Erasure] = []

    def run(one: Erasure, **_: Any) -> Report:
        found.append(one)
        return Report([], [], {})

    monkeypatch.setattr(erase_command, "run", run)
    return found


def command(tmp_path: Path, text: str, *more: str) -> None:
    file = tmp_path / "pipelines.yaml"
    file.write_text(text)
    assert main(["erase", str(file), "first", "--key", "id=17", *more]) == 0


def test_the_command_erases_from_tables_downstream_with_variables(
    work: list[Erasure], tmp_path: Path
) -> None:
    command(tmp_path, CONFIGURATION)
    (one,) = work
    assert str(tmp_path / "target") in {place.table for place in places(one.flows)}


def test_the_command_purges_nothing_that_a_consumer_with_variables_needs(
    work: list[Erasure], tables: Tables, tmp_path: Path
) -> None:
    tables.sealed(2)
    command(tmp_path, CONFIGURATION, "--purge")
    (one,) = work
    spec = VacuumSpec(run_id="r", table_uri=tables.source.uri)
    with pytest.raises(VacuumWouldLose):
        run_sync(plan_vacuum(spec, one.consumers, now=EPOCH + 30 * DAY))


def test_the_command_names_pipelines_that_may_be_downstream(
    work: list[Erasure], tmp_path: Path, capsys: Any
) -> None:
    more = '  late: {source: "{{ var.value.lake }}/source", target: "${LAKE}/late", keys: [id]}\n'
    command(tmp_path, CONFIGURATION + more)
    shown = capsys.readouterr().out
    assert "which only Airflow renders: late." in shown
    assert "DeltaEraseOperator" in shown
