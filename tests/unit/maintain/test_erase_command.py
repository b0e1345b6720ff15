"""What the command ``erase`` erases, and which consumers it leaves old files for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli import erase as erase_command
from delta_cdc.cli import main
from delta_cdc.core.errors import VacuumWouldLose
from delta_cdc.core.spec import VacuumSpec
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.erasure import outside_reach, places
from delta_cdc.planning.vacuum import plan_vacuum
from delta_cdc.run.erase import Report
from tests.support.logs import EPOCH, SECOND
from tests.support.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delta_cdc.run.erase import Erasure

DAY = 86_400 * SECOND

CONFIGURATION = """
pipelines:
  first: {source: /elsewhere, target: "${LAKE}/source", keys: [id]}
  p: {source: "${LAKE}/source", target: "${LAKE}/target", keys: [id]}
"""


LATE = '  late: {source: "{{ var.value.lake }}/source", target: "${LAKE}/late", keys: [id]}\n'


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
        return Report([], outside_reach(one.flows, one.unknown), dict(one.refused))

    monkeypatch.setattr(erase_command, "run", run)
    return found


def command(tmp_path: Path, text: str, *more: str, pipelines: Sequence[str] = ("first",)) -> int:
    file = tmp_path / "pipelines.yaml"
    file.write_text(text)
    return main(["erase", str(file), *pipelines, "--key", "id=17", *more])


def test_the_command_erases_from_tables_downstream_with_variables(
    work: list[Erasure], tmp_path: Path
) -> None:
    assert command(tmp_path, CONFIGURATION) == 0
    (one,) = work
    assert str(tmp_path / "target") in {place.table for place in places(one.flows)}


def test_the_command_purges_nothing_that_a_consumer_with_variables_needs(
    work: list[Erasure], tables: Tables, tmp_path: Path
) -> None:
    tables.sealed(2)
    assert command(tmp_path, CONFIGURATION, "--purge") == 0
    (one,) = work
    spec = VacuumSpec(run_id="r", table_uri=tables.source.uri)
    with pytest.raises(VacuumWouldLose):
        run_sync(plan_vacuum(spec, one.consumers, now=EPOCH + 30 * DAY))


def test_the_command_erases_from_several_tables_of_a_name(work: list[Erasure], tmp_path: Path) -> None:
    tables = [str(tmp_path / name) for name in ("a", "b")]
    assert main(["erase", *(f"p={table}" for table in tables), "--key", "id=17"]) == 0
    assert [one.target for one in work[0].flows] == tables


def test_the_command_names_pipelines_that_may_be_downstream(
    work: list[Erasure], tmp_path: Path, capsys: Any
) -> None:
    assert command(tmp_path, CONFIGURATION + LATE) == 0
    assert [one.pipeline for one in work[0].flows] == ["first", "p"]
    shown = capsys.readouterr().out
    assert "The pipeline late in " in shown
    assert (
        "source contains a template, which only Airflow renders. If that pipeline reads these tables" in shown
    )


def test_the_command_refuses_only_the_pipeline_whose_tables_are_not_known(
    work: list[Erasure], tmp_path: Path, capsys: Any
) -> None:
    more = '  limited: {source: /s, target: "${LAKE}/limited", keys: [id], where: "day > \'{{ ds }}\'"}\n'
    assert command(tmp_path, CONFIGURATION + LATE + more, pipelines=()) == 1
    # A template outside of its tables does not matter.
    assert [one.pipeline for one in work[0].flows] == ["first", "limited", "p"]
    shown = capsys.readouterr()
    assert "late: InvalidConfiguration: The pipeline late in" in shown.err
    assert "If that pipeline reads these tables" not in shown.out
    work.clear()
    assert command(tmp_path, CONFIGURATION + LATE, pipelines=["late"]) == 2
    assert not work
