"""Targets of a configuration, the command line, and what people read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli import main
from delta_cdc.config import load
from delta_cdc.config.verification import paired, request_of
from delta_cdc.core.checks import Verification, finding, ok, skipped
from delta_cdc.core.errors import CorruptLog, InvalidConfiguration
from delta_cdc.run.verify import text_of
from tests.support.tables import Tables

if TYPE_CHECKING:
    Said = pytest.CaptureFixture[str]


def table(name: str, scd: int, **more: Any) -> dict[str, Any]:
    return {
        "pipeline": name,
        "source": "/lake/source",
        "target": f"/lake/{name}",
        "keys": ["id"],
        "stored_as_scd_type": scd,
        **more,
    }


def currents(*tables: dict[str, Any]) -> list[str | None]:
    return [one.current for one in paired([request_of(one, wanted=("seal",)) for one in tables])]


def test_a_history_finds_the_current_rows_of_the_same_source() -> None:
    assert currents(table("a", 1), table("b", 2)) == [None, "/lake/a"]
    (_, history) = paired([request_of(table(*one), wanted=("seal",)) for one in (("a", 1), ("b", 2))])
    assert history.current_pipeline == "a"
    assert currents(table("b", 2), table("a", 1), table("c", 1, source="/lake/other")) == [
        "/lake/a",
        None,
        None,
    ]
    for other in (
        {"where": "id > 1"},
        {"source": "/lake/other"},
        {"keys": ["id", "day"]},
        {"stored_as_scd_type": 2},
    ):
        assert currents(table("a", 1, **other), table("b", 2)) == [None, None]
    # Of two it cannot be told which one is meant.
    assert currents(table("a", 1), table("b", 2), table("c", 1)) == [None, None, None]


def test_a_table_by_way_of_a_log_is_compared_with_the_log() -> None:
    ingested = {
        "pipeline": "a",
        "source": "/in",
        "log": "main.sales.log",
        "keys": ["id"],
        "on_conflict": "quarantine",
    }
    with_target = request_of({**ingested, "target": "/lake/a"}, wanted=("seal",))
    alone = request_of({**ingested, "pipeline": "b"}, wanted=("seal",))
    assert (with_target.source, with_target.target) == ("main.sales.log", "/lake/a"), "looked up later"
    assert (with_target.options.source_kind, with_target.options.on_conflict) == ("change_log", "quarantine")
    assert (alone.target, alone.options) == ("main.sales.log", None)


def test_bad_arguments_name_their_pipeline() -> None:
    with pytest.raises(InvalidConfiguration, match="Pipeline a: "):
        request_of(table("a", 3), wanted=("seal",))


CONFIGURATION = """
groups:
  sales: {{max_parallel_tables: 2}}
pipelines:
  p:
    group: sales
    source: {source}
    target: {target}
    keys: [id]
  other:
    source: {source}
    target: {target}_other
    keys: [id]
"""


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """A sound target, and a configuration; starting Spark is an error."""

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("delta_cdc.cli.common.get_session", refused)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    made = Tables.made_in(tmp_path)
    made.sealed(5)
    text = CONFIGURATION.format(source=made.source.uri, target=made.target.uri)
    (tmp_path / "flows.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return made


LOGS = ["--checks", "seal,watermark,backup,configuration"]


def test_of_the_logs_no_spark_is_needed(tables: Tables, capsys: Said) -> None:
    pair = f"p={tables.target.uri}"
    assert main(["verify", pair, *LOGS]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["pipeline", "version", "seal", "watermark", "backup", "configuration"]
    assert said[2].split() == ["p", "0", "ok", "ok", "-", "-"]
    assert main(["verify", "flows.yaml", "--pipeline", "p", *LOGS]) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["p", "0", "ok", "ok", "-", "ok"]
    # A pipeline that has no target yet.
    assert main(["verify", "flows.yaml", *LOGS]) == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in said[2:4]] == [["other", "1", "WRONG"], ["p", "0", "ok"]]
    assert said[4].startswith("other, seal: There is no table")
    assert main(["verify", pair, "--checks", "seal", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["check"], row["status"], row["table"]) == ("seal", "ok", tables.target.uri)


def test_a_pipeline_that_is_not_known_here_is_refused_alone(tables: Tables, capsys: Any) -> None:
    given = f"{{source: {tables.source.uri}, target: '{{{{ var.value.lake }}}}/late', keys: [id]}}"
    text = Path("flows.yaml").read_text()
    Path("flows.yaml").write_text(text.replace("pipelines:\n", f"pipelines:\n  late: {given}\n"))
    assert main(["verify", "flows.yaml", "--pipeline", "late", "--pipeline", "p", *LOGS]) == 1
    late, p, error = capsys.readouterr().out.splitlines()[2:]
    assert (late.split(), p.split()) == (["late"], ["p", "0", "ok", "ok", "-", "ok"])
    assert "target contains a template, which only Airflow renders." in error
    assert main(["verify", "flows.yaml", "--pipeline", "late", *LOGS]) == 2
    assert "The pipeline late in flows.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["p=/t", "--checks", "seals"], "did you mean 'seal'"),
        (["p=/t", "flows.yaml"], "names no pipeline and target"),
        (["p=/t", "--group", "sales"], "--group given without a configuration"),
        (["p=/t", "q=/u", "--current", "/c"], "--current given with several targets"),
        (["flows.yaml", "--source", "/s"], "--source given with a configuration"),
        (["flows.yaml", "--group", "sale"], "sales"),
        (["nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_wrong_usage(tables: Tables, capsys: Said, asked: list[str], told: str) -> None:
    assert main(["verify", *asked]) == 2
    assert told in capsys.readouterr().err


def test_what_is_chosen_of_a_configuration(tables: Tables) -> None:
    def names(**asked: Any) -> list[str]:
        given = {"group": None, "pipelines": None, **asked}
        return [table.pipeline for _, table in load("flows.yaml").chosen(**given)]

    assert names() == ["other", "p"]
    assert names(group="sales") == ["p"]
    assert names(pipelines=["other"]) == ["other"]
    with pytest.raises(InvalidConfiguration, match=r"no group 'sale'.*sales"):
        names(group="sale")
    with pytest.raises(InvalidConfiguration, match="no pipeline 'other'"):
        names(group="sales", pipelines=["other"])


def test_a_table_of_checks_and_a_line_for_what_matters() -> None:
    found = [
        Verification("orders", "/t", 4, (
            ok("seal", "fine"),
            finding("overlaps", "2 key(s) overlap.", "RESTORE it.", count=2, samples=("k = 1", "k = 2")),
            skipped("equals_source", "too old."),
            skipped("current_equals_history", "no other target was named (current)."),
        )),
        Verification("lost", "/u", error=CorruptLog("broken.", remedy="mend it.")),
    ]  # fmt: skip
    assert text_of(found).splitlines() == [
        "pipeline  version  seal  overlaps  equals_source  current_equals_history",
        "--------  -------  ----  --------  -------------  ----------------------",
        "orders          4  ok    2 WRONG   -              -",
        "lost",
        "orders, overlaps: 2 key(s) overlap. (k = 1; k = 2) Remedy: RESTORE it.",
        "orders, equals_source: skipped: too old.",
        "lost: CorruptLog: broken. Remedy: mend it.",
    ]
