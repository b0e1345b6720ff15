"""How far a pipeline is behind, from two hand-written logs."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from delta_cdc.cli import main
from delta_cdc.cli.status import _lines
from delta_cdc.core.errors import SourceTableReplaced, TableNotFound
from delta_cdc.core.metrics import METRICS
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.quarantine import SETTLED_BY, SETTLING
from delta_cdc.core.retention import readable as span
from delta_cdc.core.validation import described
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.ingest_status import IngestStatus
from delta_cdc.planning.reconcile import reconcile
from delta_cdc.planning.status import Status, lag_of, status_async
from tests.support.ingest_model import Boom, World
from tests.support.logs import EPOCH, FEED, SECOND, LogTable, changed, seal
from tests.support.tables import NOW, Tables

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400 * SECOND


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A source with versions 0-5 (all but 0 change data), one per second."""
    return Tables.made_in(tmp_path)


def status(*pair: str, **given: Any) -> Status:
    return run_sync(status_async(*pair, **given))


def look(tables: Tables, now: int = NOW) -> Status:
    return status("p", tables.target.uri, now_ms=now)


def test_behind(tables: Tables) -> None:
    tables.sealed(2)
    tables.source.optimize()
    found = look(tables)
    assert (found.source_version, found.committed, found.target_version) == (6, 2, 0)
    # Version 6 is an OPTIMIZE.
    assert (found.lag.versions, found.lag.commits, found.lag.size) == (4, 3, 300)
    assert found.lag.seconds == (NOW - EPOCH) / 1000 - 3
    assert found.source == tables.source.uri
    assert found.findings == ()
    assert found.seal is not None
    assert found.seal["number"] == 100


def test_a_bound_of_the_commits_to_read(tables: Tables) -> None:
    tables.sealed(2)
    source, recorded = DeltaLog(tables.source.uri), reconcile(DeltaLog(tables.target.uri), "p")
    assert recorded is not None
    assert recorded.seal is not None
    state = run_sync(source.snapshot())
    whole, some = (
        run_sync(lag_of(DeltaLog(tables.source.uri), state, recorded, recorded.seal, NOW, most=most))
        for most in (3, 2)
    )
    assert (whole.versions, whole.commits, whole.size) == (3, 3, 300)
    assert (some.versions, some.commits, some.size) == (3, None, None)
    assert (some.seconds, some.readable_until) == (whole.seconds, whole.readable_until)


def test_up_to_date(tables: Tables) -> None:
    tables.sealed(5)
    found = look(tables)
    assert (found.lag.versions, found.lag.commits, found.lag.size, found.lag.seconds) == (0, 0, 0, 0)
    # The target's log is kept for 30 days from the sealed commit, version 0.
    assert found.readable_until == "2027-02-14T08:00:00+00:00"
    (finding,) = look(tables, now=EPOCH + 16 * DAY).findings
    assert "Version 0 of the target, which carries the watermark, is 16.0 days old" in finding


def test_a_batch_of_a_sink_counts_once_it_is_committed(tables: Tables, capsys: Any) -> None:
    def batch(number: int, end: int, kind: str, committed: int | None) -> None:
        of = {"table_id": tables.source.table_id, "version": committed}
        done = None if committed is None else {**of, "commit_hash": tables.source.sha256(committed)}
        given = {"complete": True, "committed": done, "batch": "changes", "options": {}, "ending": end}
        made = seal(number, end, source=tables.source, kind=kind)
        tables.staging.write_seal(changed(made, configuration=given), operation="WRITE", rows=kind == "read")

    batch(7, 2, "read", None)
    (finding,) = status("p", tables.staging.uri, source=tables.source.uri, now_ms=NOW).findings
    assert "the first batch of the sink is not committed yet" in finding
    batch(8, 2, "commit", None)
    assert status("p", tables.staging.uri, now_ms=NOW).lag.versions == 3
    batch(9, 5, "read", 2)
    found = status("p", tables.staging.uri, now_ms=NOW)
    assert (found.committed, found.lag.versions) == (2, 3)
    assert main(["changes", f"p={tables.staging.uri}", "--plan"]) == 0
    assert "3-5" in capsys.readouterr().out
    batch(10, 5, "commit", 2)
    assert status("p", tables.staging.uri, now_ms=NOW).lag.versions == 0


@pytest.mark.parametrize("kind", ["repair", "reload", "reset"])
def test_whatever_made_the_newest_seal(tables: Tables, kind: str) -> None:
    tables.sealed(2)
    tables.sealed(3, 101, start=1, kind=kind)
    found = look(tables)
    assert (found.committed, found.lag.versions, found.findings) == (3, 2, ())
    assert found.seal is not None
    assert (found.seal["number"], found.seal["step"]["kind"]) == (101, kind)


@pytest.mark.parametrize(
    ("properties", "days", "warned"),
    [
        ({}, 3.4, False),
        ({}, 3.6, True),
        ({"delta.deletedFileRetentionDuration": "interval 20 days"}, 9.9, False),
        ({"delta.deletedFileRetentionDuration": "interval 20 days"}, 10.1, True),
        ({"delta.logRetentionDuration": "interval 2 days"}, 1.1, True),
    ],
)
def test_past_half_of_the_retention_of_the_oldest_change(
    tables: Tables, properties: dict[str, str], days: float, warned: bool
) -> None:
    tables.source.set_properties(**FEED, **properties)
    tables.sealed(2)
    found = look(tables, now=EPOCH + int(days * DAY))
    if not properties:
        assert found.readable_until == "2027-01-22T08:00:03+00:00"
    assert bool(found.findings) == warned
    if warned:
        assert any(finding.startswith("Version 3 of the source") for finding in found.findings)


def test_maintenance_after_the_watermark_leaves_the_log_too(tables: Tables) -> None:
    """Every commit after the watermark has to be there, whether it changes data or not."""
    tables.source.set_properties(**{**FEED, "delta.logRetentionDuration": "interval 2 days"})
    tables.sealed(5)
    tables.source.optimize()
    found = look(tables, now=EPOCH + int(1.1 * DAY))
    assert found.readable_until == "2027-01-17T08:00:06+00:00"
    assert found.findings[0].startswith("Version 6 of the source, the first one after the watermark,")


def test_a_vacuum_that_kept_files_for_less_time_than_the_table_says(tables: Tables) -> None:
    tables.sealed(2)
    deleted = tables.source.delete("true")
    kept = {"defaultRetentionMillis": str(7 * DAY)}
    tables.source.commit("VACUUM START", parameters=kept, at=NOW)
    tables.source.commit("VACUUM END", at=NOW)
    before = look(tables)
    assert not before.findings
    tables.source.commit("VACUUM START", parameters={**kept, "specifiedRetentionMillis": "0"}, at=NOW)
    found = look(tables)
    assert found.readable_until is not None
    assert before.readable_until is not None
    assert found.readable_until < before.readable_until
    text = f"Version {deleted} of the source, which is not applied, may have lost its files to the VACUUM"
    assert found.findings[0].startswith(text)


def test_a_vacuum_takes_nothing_from_commits_that_only_add_files(tables: Tables) -> None:
    tables.sealed(5)
    tables.source.append()
    tables.source.commit("VACUUM START", parameters={"specifiedRetentionMillis": "0"}, at=NOW)
    assert not look(tables).findings


def test_versions_that_are_gone_already(tables: Tables) -> None:
    from deltalake import DeltaTable

    tables.sealed(1)
    DeltaTable(tables.source.uri).create_checkpoint()
    tables.source.append()
    for version in range(5):
        tables.source.file(version).unlink()
    found = look(tables)
    assert "Version 2 of" in found.findings[0]
    assert "cleaned" in found.findings[0]
    assert found.lag.commits == 2


def test_no_target_yet(tables: Tables) -> None:
    found = look(tables)
    assert found.committed is None
    assert "there is no table yet" in found.findings[0]


def test_neither_target_nor_source_yet(tables: Tables, tmp_path: Path) -> None:
    """An ingest that has not run has not made the log that the pipeline applies."""
    absent, log = str(tmp_path / "absent"), str(tmp_path / "log")
    found = status("p", absent, source=log)
    assert (found.target_version, found.source_version, found.committed) == (None, None, None)
    assert found.findings == (
        f"{log}: there is no table yet. First run what writes it; if that has run, check the path.",
    )
    tables.sealed(3)
    with pytest.raises(TableNotFound, match="There is no Delta table at"):
        status("p", tables.target.uri, source=log)


def test_another_source(tables: Tables, tmp_path: Path) -> None:
    tables.sealed(3)
    other = LogTable(tmp_path / "other", table_id="another").create()
    with pytest.raises(SourceTableReplaced):
        status("p", tables.target.uri, source=other.uri)


def test_one_of_each_is_singular(tables: Tables) -> None:
    tables.sealed(4)
    assert "lag        1 version: 1 commit with changes, 100 B" in "\n".join(_lines(look(tables)))
    assert [span(seconds * 1000) for seconds in (40, 60, 120)] == ["1 minute", "1 minute", "2 minutes"]


# -- the command --------------------------------------------------------------------------------
def test_status_of_several_pairs(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    tables.sealed(2)
    absent = f"{tables.target.uri}-absent"
    assert main(["status", f"p={tables.target.uri}", f"q={absent}", f"r={tables.target.uri}"]) == 1
    output = capsys.readouterr().out
    assert "watermark  2" in output
    assert "lag        3 versions: 3 commits with changes, 300 B" in output
    assert f"{absent}: there is no table yet" in output
    assert f"  target     {absent} (no table: check the path if you expected one)" in output
    assert "TargetWithoutWatermark" in output


def test_status_as_json(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    tables.sealed(5)
    # The log's clock is ahead of ours, so nothing is old.
    assert main(["status", f"p={tables.target.uri}"]) == 0
    capsys.readouterr()
    assert main(["status", "--json", f"p={tables.target.uri}", f"r={tables.target.uri}"]) == 1
    fine, failed = json.loads(capsys.readouterr().out)
    assert (fine["committed"], fine["lag_commits"], fine["findings"]) == (5, 0, [])
    assert fine["seal"]["state"]["applied_to"]["version"] == 5
    assert (failed["pipeline"], failed["error"]["class"]) == ("r", "TargetWithoutWatermark")


@pytest.mark.parametrize("pair", ["p", "=x", "p=", ""])
def test_what_is_no_pair(pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", pair]) == 2
    assert "PIPELINE=TARGET" in capsys.readouterr().err


def test_plan_prints_what_the_next_run_does(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    tables.sealed(2)
    given = [tables.source.uri, tables.target.uri, "--pipeline", "p", "--versions-per-commit", "2"]
    assert main(["plan", *given]) == 0
    said = capsys.readouterr().out
    assert "apply      versions 3-4" in said
    assert "apply      versions 5-5" in said


def test_plan_names_what_stops_it(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    tables.sealed(2)
    tables.source.file(4).unlink()
    assert main(["plan", tables.source.uri, tables.target.uri, "--pipeline", "p"]) == 1
    assert "LogGap" in capsys.readouterr().err


def test_a_reset_does_not_fail_because_of_what_it_mends(tables: Tables, capsys: Any) -> None:
    tables.sealed(2)
    tables.target.replace_table("another")
    assert main(["plan", f"p={tables.target.uri}"]) == 1
    assert "TargetReplaced" in capsys.readouterr().err
    # With source and options of the newest seal: guessed ones could delete a history.
    assert main(["plan", f"p={tables.target.uri}", "--mode", "reset"]) == 0
    assert "reset" in capsys.readouterr().out
    pair = [tables.source.uri, tables.target.uri, "--pipeline", "p"]
    assert main(["plan", *pair, "--mode", "reset", "--key", "id"]) == 2
    assert "the watermark records how the target was built" in capsys.readouterr().err
    # Another pipeline has no seal there, so what it would reset is unknown.
    assert main(["plan", f"q={tables.target.uri}", "--mode", "reset"]) == 1
    assert "TargetWithoutWatermark" in capsys.readouterr().err


def test_a_reset_of_a_history_whose_seal_is_not_in_effect_has_to_discard_it(
    tables: Tables, capsys: Any
) -> None:
    history = described(ApplyOptions(keys=("id",), stored_as_scd_type=2))
    made = seal(100, 2, source=tables.source)
    tables.target.write_seal(changed(made, configuration={**made.state.configuration, **history}))
    tables.target.replace_table("another")
    assert main(["plan", f"p={tables.target.uri}", "--mode", "reset"]) == 2
    assert "discard_history" in capsys.readouterr().err


def test_rows_in_the_quarantine_of_a_target(tables: Tables, capsys: Any) -> None:
    tables.sealed(2)
    assert status("p", tables.target.uri).rows_in_quarantine == 0
    quarantine = LogTable(tables.target.path.with_name("target__quarantine"), table_id="q").create()
    quarantine.append()
    pq.write_table(pa.table({"pipeline": ["p"] * 10}), quarantine.path / "part-00001-0.parquet")
    main(["status", f"p={tables.target.uri}"])
    assert f"  quarantine 10 rows: {quarantine.uri}" in capsys.readouterr().out.splitlines()
    # The run of the newest seal died before it deleted what it had taken out.
    marks = pa.array([["m", "n"], ["n"], None, *[["m"]] * 7], pa.list_(pa.string()))
    columns = {"pipeline": ["p"] * 10, SETTLED_BY: marks}
    pq.write_table(pa.table(columns), quarantine.path / "part-00001-0.parquet")
    assert status("p", tables.target.uri).rows_in_quarantine == 10
    tables.sealed(3, 101, configuration={SETTLING: "m"})
    assert status("p", tables.target.uri).rows_in_quarantine == 2


# -- change logs --------------------------------------------------------------------------------
def test_what_an_ingest_has_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    world.deliver("a.json", ["1"])
    world.deliver("b.json", ["12"])
    world.ingest()
    log = str(tmp_path / "log")
    found = status("p", log, now_ms=EPOCH + DAY)
    assert found.ingest == IngestStatus(files=2, size=5)
    assert (found.source, found.source_version, found.lag) == (str(world.source), None, None)
    assert found.findings == ()
    assert found.readable_until == "2027-02-14T08:00:00+00:00"
    world.deliver("c.json", ["3"])
    with pytest.raises(Boom):
        world.ingest(lambda spec: world.engine(spec, "recorded"))
    quarantine = LogTable(tmp_path / "log__quarantine", table_id="q").create()
    quarantine.append()
    file = quarantine.path / "part-00001-0.parquet"
    pq.write_table(pa.table({"pipeline": ["p"] * 10}), file)
    assert main(["status", f"p={log}"]) in (0, 1)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"source {world.source}" in lines
    assert "taken 2 files, 5 B" in lines
    assert f"quarantine 10 rows: {quarantine.uri}" in lines
    assert (
        f"pending batch {world.record_txns['p']} is recorded, and its events are not in the log yet" in lines
    )
    assert main(["status", f"p={log}", "--json"]) in (0, 1)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["quarantine"], row["rows_in_quarantine"]) == (quarantine.uri, 10)
    # Beside the rows of others, the log does not know how many are whose.
    pq.write_table(pa.table({"pipeline": ["p", "q", "p", "q"]}), file)
    assert main(["status", f"p={log}", "--metrics"]) == 0
    assert 'delta_cdc_rows_in_quarantine{pipeline="p"} 2' in capsys.readouterr().out
    told = row["ingest"]
    assert (told["files"], told["bytes"], told["pending"]) == (2, 5, world.record_txns["p"])


def test_findings_about_an_ingest(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.deliver("a.json", ["1"])
    world.ingest()
    world.lose_record()
    lost, old = status("p", str(tmp_path / "log"), now_ms=EPOCH + 16 * DAY).findings
    assert "has 0 of 1 entries" in lost
    assert "past half of what is kept" in old


def test_a_log_that_another_pipeline_fills(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log.create()
    assert status("p", str(tmp_path / "log")).ingest == IngestStatus()


# -- metrics and freshness ------------------------------------------------------------------------
def metrics_of(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples as Prometheus' own parser reads them: name and values of the labels."""
    families = list(text_string_to_metric_families(text))
    assert {family.name.removeprefix("delta_cdc_") for family in families} <= set(METRICS)
    assert {family.type for family in families} == {"gauge"}
    samples = [sample for family in families for sample in family.samples]
    found = {
        (one.name.removeprefix("delta_cdc_"), *(one.labels[name] for name in sorted(one.labels))): one.value
        for one in samples
    }
    assert len(found) == len(samples)
    return found


def test_metrics_in_the_format_of_prometheus(tables: Tables, capsys: Any) -> None:
    tables.sealed(2)
    assert main(["status", f'p"\\={tables.target.uri}', f"p={tables.target.uri}", "--metrics"]) == 0
    found = metrics_of(capsys.readouterr().out)
    assert found["versions_behind", "p"] == 3
    # The logs are of the future.
    assert found["seconds_behind", "p"] == 0
    assert found["seconds_until_unreadable", "p"] >= 0
    assert found["last_rows", "inserted", "p"] == 3
    assert found["last_bytes_written", "p"] == 100
    assert found["last_commit_age_seconds", "p"] >= 0
    assert ("late", "p") not in found
    assert found["problems", 'p"\\'] == 1, "that pipeline has no watermark"


def test_a_pipeline_is_late(tables: Tables) -> None:
    tables.sealed(2)
    found = look(tables)
    assert found.lag.seconds == 3597
    in_time, late = found.expected(3597), found.expected(3596)
    assert (in_time.late, in_time.findings) == (False, ())
    assert late.late
    (finding,) = late.findings
    assert finding.startswith(
        "Late: the oldest change that is not applied is 60 minutes old, and freshness is"
    )
    assert late.to_dict()["late"] is True
    assert found.expected(None) == found
    tables.sealed(5, 101)
    assert look(tables).expected(0).late is False, "nothing is left to apply"


def test_late_on_the_command_line(tables: Tables, tmp_path: Path, capsys: Any) -> None:
    now = time.time_ns() // 1_000_000
    source = LogTable(tmp_path / "new").create(at=now)
    target = LogTable(tmp_path / "copy")
    target.write_seal(seal(100, 0, source=source, kind="load"), at=now)
    source.append(at=now - 120_000)
    pair = f"p={target.uri}"
    assert main(["status", pair, "--freshness", "3 minutes"]) == 0
    assert "state      in time" in capsys.readouterr().out
    assert main(["status", pair, "--freshness", "1 minute"]) == 1
    printed = capsys.readouterr().out
    assert "state      late" in printed
    assert "Late: the oldest change" in printed
    main(["status", pair, "--freshness", "1 minute", "--metrics"])
    found = metrics_of(capsys.readouterr().out)
    assert (found["late", "p"], found["problems", "p"]) == (1, 1)
    with pytest.raises(SystemExit, match="2"):
        main(["status", pair, "--freshness", "soon"])
    assert "'soon' is no duration like '30 minutes'" in capsys.readouterr().err
    configured = tmp_path / "lake.yaml"
    options = {"source": source.uri, "target": target.uri, "keys": ["id"], "freshness": "1 minute"}
    configured.write_text(json.dumps({"pipelines": {"p": options}}))
    assert main(["status", str(configured)]) == 1
    assert "state      late" in capsys.readouterr().out
