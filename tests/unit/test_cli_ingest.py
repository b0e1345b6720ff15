"""``delta-cdc plan --ingest`` and ``delta-cdc replay`` as far as they go without Spark."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli import main
from delta_cdc.core.errors import ConfigurationDrift
from delta_cdc.run.detect_changes import DetectedChanges
from tests.support.ingest_model import World
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("delta_cdc.cli.common.get_session", refused)
    # Another test of the same run may have left a session.
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two files have landed."""
    made = World(tmp_path)
    made.deliver("2026-01-01/a.json", ["1", "2"])
    made.deliver("2026-01-02/b.json", ["3"])
    return made


def look(world: World, *given: str) -> int:
    return main(["plan", "--ingest", str(world.source), str(world.root / "log"), "--pipeline", "p", *given])


def code_of(call: Any, *given: str) -> Any:
    try:
        return call(*given)
    except SystemExit as left:
        return left.code


# -- plan --ingest --------------------------------------------------------------------------------
def test_what_an_ingest_would_take(world: World, capsys: Said) -> None:
    """Before the log is there, and with what its seal says of it."""
    assert look(world) == 0
    said = capsys.readouterr().out
    assert "log does not exist yet" in said
    assert "to do      2 files (" in said
    assert "2026-01-02/b.json" in said
    assert look(world, "--max-files", "1") == 0
    assert "left       1 file\n" in capsys.readouterr().out
    assert look(world, "--glob", "b*") == 0
    assert "to do      1 file (" in capsys.readouterr().out
    assert not (world.root / "log").exists()

    world.ingest()
    assert look(world) == 0
    assert "nothing: no process is started" in capsys.readouterr().out
    world.deliver("2026-01-02/c.json", ["4"])
    assert look(world) == 0
    assert "to do      1 file (" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--mode", "reload"], "--mode given with --ingest"),
        (["--repair-keys", "id > 1"], "--repair-keys given with --ingest"),
        (["--key", "id"], "--keys given with --ingest"),
        (["--max-offsets", "5"], "max_offsets"),
        (["--kafka-options", "{folder}/none.json"], "cannot be read"),
        (["--kafka-options", "{folder}/list.json"], "is no JSON object"),
    ],
)
def test_a_look_that_cannot_be_meant(world: World, capsys: Said, given: list[str], told: str) -> None:
    (world.root / "list.json").write_text("[1]")
    assert code_of(lambda: look(world, *(text.format(folder=world.root) for text in given))) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.out == ""


def test_the_clients_options_are_read_from_a_file(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password has no place on a command line."""
    asked: list[Any] = []

    def planned(pipeline_jobs: Any) -> Any:
        asked.extend(pipeline_job.ingest for pipeline_job in pipeline_jobs)
        return [DetectedChanges(pipeline="p")]

    monkeypatch.setattr("delta_cdc.cli.plan.detect_changes", planned)
    file = tmp_path / "client.json"
    file.write_text(json.dumps({"bootstrap.servers": "one:9092", "session.timeout.ms": 6000}))
    topic = ["plan", "--ingest", "kafka:///orders", str(tmp_path / "log"), "--pipeline", "p"]
    assert main([*topic, "--kafka-options", str(file), "--max-offsets", "7"]) == 0
    (request,) = asked
    assert request.kafka_options == {"bootstrap.servers": "one:9092", "session.timeout.ms": "6000"}
    assert (request.options.source_kind, request.max_offsets) == ("kafka", 7)


def test_a_plan_shows_the_ingest_and_why_its_apply_will_fail(
    world: World, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drift = ConfigurationDrift("other options.", remedy="go back.")
    plan = "to do      1 file\nthen       fails"
    found = DetectedChanges(pipeline="p", has_work=True, plan=plan, error=drift)
    monkeypatch.setattr("delta_cdc.cli.plan.detect_changes", lambda _: [found])
    world.ingest()
    assert main(["plan", f"p={world.root / 'log'}"]) == 1
    assert capsys.readouterr().out == f"{plan}\n"


# -- replay ---------------------------------------------------------------------------------------
def test_nothing_in_quarantine_starts_no_spark(world: World, capsys: Said) -> None:
    world.ingest()
    assert main(["replay", f"p={world.root / 'log'}"]) == 0
    assert capsys.readouterr().out.endswith(" has no records of pipeline p.\n")
    tables = Tables.made_in(world.root / "tables")
    tables.sealed(2)
    assert main(["replay", f"p={tables.target.uri}", "--last-by", "arrived"]) == 0
    assert capsys.readouterr().out.endswith(" has no records of pipeline p.\n")
    assert main(["replay", f"p={world.root / 'none'}"]) == 1
    assert "TableNotFound: There is no table of pipeline p" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["p"], "names no pipeline and target"),
        (["p={log}", "--adapter-options", "{{"], "is no JSON"),
        (["p={log}", "--adapter-options", "[1]"], "is no JSON object"),
        (["p={log}", "--last-by", "n"], "--last-by given for"),
        (["p={target}", "--adapter", "dms", "--key", "id"], "--keys, --adapter given for"),
    ],
)
def test_a_replay_that_cannot_be_meant(world: World, capsys: Said, given: list[str], told: str) -> None:
    world.ingest()
    tables = Tables.made_in(world.root / "tables")
    tables.sealed(2)
    places = {"log": world.root / "log", "target": tables.target.uri}
    assert code_of(lambda: main(["replay", *(text.format(**places) for text in given)])) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.out == ""


def test_a_seal_that_does_not_tell_is_of_a_log_all_the_same(
    world: World, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ingest()
    monkeypatch.setattr("delta_cdc.cli.replay.ingest_options_of", lambda _: None)
    assert main(["replay", f"p={world.root / 'log'}", "--key", "id"]) == 0
    assert main(["replay", f"p={world.root / 'log'}", "--last-by", "n"]) == 2
    assert "which is a change log" in capsys.readouterr().err


def test_the_reasons_of_what_stays_in_quarantine(
    world: World, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ingest()

    async def held(*_: Any) -> int:
        return 2

    monkeypatch.setattr("delta_cdc.cli.replay.rows_held", held)
    monkeypatch.setattr("delta_cdc.cli.replay.session", lambda **_: nullcontext())
    monkeypatch.setattr("delta_cdc.cli.replay._ingest_again", lambda *_: {"events": 0})
    assert main(["replay", f"p={world.root / 'log'}"]) == 1
    assert capsys.readouterr().err == (
        "2 rows still in quarantine. For the reasons: SELECT reason, count(*) "
        f"FROM delta.`{world.root}/log__quarantine` WHERE pipeline = 'p' GROUP BY reason\n"
    )
