"""The rules of advice: what the logs must prove before a rule speaks.

``tests/integration/test_advice.py`` compares the figures with what runs then show.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from croniter import croniter_range

from delta_cdc.cli import main
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.properties import DELETION_VECTORS, WHOLE_FILES_TARGET
from delta_cdc.core.steps import ReadRange
from delta_cdc.delta_log.actions import Commit, CommitInfo
from delta_cdc.delta_log.table import TableState, run_sync
from delta_cdc.planning import advice
from delta_cdc.planning.advice import (
    LEAST_BYTES,
    LEAST_FILES,
    AboutTable,
    advice_on,
    advise_all,
    depth,
    idle_runs,
)
from delta_cdc.planning.evidence import MOST_COMMITS, Bounds, Evidence, Garbage, Layout, Run, gather
from delta_cdc.planning.schedule import runs_between
from tests.support.logs import EPOCH, FEED, SECOND, LogTable, seal
from tests.support.tables import NOW, Tables

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3_600 * SECOND
MIB = 1024**2


def state(name: str, partitions: tuple[str, ...] = (), **configuration: str) -> TableState:
    return TableState(
        uri=f"/lake/{name}",
        table_id=name,
        version=9,
        configuration={key.replace("__", "."): value for key, value in configuration.items()},
        schema_columns=("id", "n"),
        schema_string="",
        partition_columns=partitions,
        created_time=None,
        features=(),
    )


def commit(version: int, at: int = 0, **given: Any) -> Commit:
    metrics = given.pop("metrics", {})
    operation = given.pop("operation", "UPDATE")
    return Commit(
        version=version,
        sha256="",
        modified=EPOCH + at,
        info=CommitInfo(operation=operation, operation_metrics=metrics),
        **given,
    )


#: An UPDATE of 10 of 1,000 rows, of 1 KiB each.
UPDATED: dict[str, Any] = {
    "changes_data": True,
    "bytes_added": MIB,
    "bytes_removed": MIB,
    "n_data_adds": 1,
    "n_data_removes": 1,
    "rows_added": 1024,
    "metrics": {"numUpdatedRows": "10"},
}


def applied(
    number: int,
    *reads: Commit,
    at: int = 0,
    method: Any = "snapshot_diff",
    size: int = 0,
    kind: str = "apply",
    **given: Any,
) -> Run:
    ranges = (ReadRange(reads[0].version, reads[-1].version, method, "", size),) if reads else ()
    given = {"operation": "MERGE", "rows_added": 1024, **given}
    sealed = seal(number, reads[-1].version if reads else 1, kind=kind)
    sealed = replace(sealed, step=replace(sealed.step, run_id=f"run-{number}"))
    return Run(sealed, commit(number, at, **given), reads, ranges)


def about(*runs: Run, layout: Layout | None = None, **given: Any) -> Evidence:
    return Evidence(
        **{
            "pipeline": "p",
            "now": EPOCH + 24 * HOUR,
            "options": ApplyOptions(keys=("id",)),
            "source": state("source"),
            "target": state("target"),
            "commits": tuple(run.commit for run in runs) or (commit(0),),
            "runs": runs,
            "layout": layout,
            "bounded_keys": ("id",),
            **given,
        }
    )


def rules(evidence: Evidence, *others: Evidence) -> list[str]:
    return [one.rule for one in advice_on(evidence, others)]


# -- change feed -----------------------------------------------------------------------------------
def test_a_feed_saves_enough() -> None:
    reads = [commit(version, **UPDATED) for version in (3, 4)]
    read = LEAST_BYTES + 40 * 1024
    runs = [applied(10, reads[0], size=read - MIB), applied(11, reads[1], size=MIB)]
    (one,) = advice_on(about(*runs))
    assert one.figures == {
        "runs": 2,
        "starting_version": 3,
        "ending_version": 4,
        "bytes_read": read,
        # Twice 20 rows, the old and the new ones, of 1 KiB.
        "expected_bytes_read": 40 * 1024,
        "expected_rows_read": 40,
    }
    assert "read 16.0 MiB of whole files for versions 3-4" in one.found
    assert rules(about(applied(10, reads[0], size=read - MIB), applied(11, reads[1], size=MIB - 1))) == []


@pytest.mark.parametrize(
    "given",
    [
        {"source": state("source", delta__enableChangeDataFeed="true")},
        {"source": state("source", **{"delta.enableChangeDataCapture": "TRUE"})},
        {"source": None},
        {"options": ApplyOptions(keys=("id",), source_kind="snapshot")},
    ],
)
def test_no_feed_is_to_be_had(given: dict[str, Any]) -> None:
    runs = applied(10, commit(3, **UPDATED), size=10 * LEAST_BYTES)
    assert rules(about(runs)) == ["change_feed"]
    assert rules(about(runs, **given)) == []


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ({}, (20, 20 * 1024)),
        ({"metrics": {"num_updated_rows": "10"}}, (20, 20 * 1024)),
        ({"metrics": {"numTargetRowsInserted": "1", "numTargetRowsDeleted": "2"}}, (3, 3 * 1024)),
        ({"n_data_removes": 0, "rows_added": 7}, (7, MIB)),
        ({"changes_data": False}, (0, 0)),
        ({"operation": "DELETE", "paired": True, "metrics": {"numDeletedRows": "5"}}, (5, 2 * MIB)),
        # An overwrite: its log does not show how many rows changed.
        ({"metrics": {"numOutputRows": "5"}}, None),
        ({"rows_added": None}, None),
    ],
)
def test_what_a_feed_would_have(read: dict[str, Any], expected: tuple[int, int] | None) -> None:
    assert advice._feed_of(commit(3, **{**UPDATED, **read})) == expected


def test_a_run_whose_feed_is_unknown_proves_nothing() -> None:
    unknown = commit(3, **{**UPDATED, "metrics": {}})
    assert rules(about(applied(10, unknown, size=10 * LEAST_BYTES))) == []
    by_feed = applied(10, commit(3, **UPDATED), size=10 * LEAST_BYTES, method="change_files")
    assert rules(about(by_feed)) == []


# -- merges ----------------------------------------------------------------------------------------
def merged(copied: int, bytes_added: int = 2 * LEAST_BYTES, changed: int = 10) -> Run:
    metrics = {"numTargetRowsUpdated": str(changed), "numTargetRowsCopied": str(copied)}
    return applied(10, metrics=metrics, bytes_added=bytes_added, kind="apply")


def files(*sizes: int, bounds: Any = (), rows: int | None = 100, masked: int = 0) -> Layout:
    return Layout({(): sizes}, rows, masked, tuple(Bounds(one) for one in bounds))


@pytest.mark.parametrize(
    ("run", "size", "on", "expected"),
    [
        (merged(100), WHOLE_FILES_TARGET + 1, "false", ["deletion_vectors"]),
        (merged(99), WHOLE_FILES_TARGET + 1, "false", []),
        # The engine writes the files of a small target again in any case.
        (merged(100), WHOLE_FILES_TARGET, "false", []),
        (merged(100), WHOLE_FILES_TARGET + 1, "TRUE", []),
        (merged(100, LEAST_BYTES), WHOLE_FILES_TARGET + 1, "false", []),
    ],
)
def test_merges_that_copy(run: Run, size: int, on: str, expected: list[str]) -> None:
    target = state("target", **{DELETION_VECTORS: on})
    assert rules(about(run, layout=files(size), target=target)) == expected


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ([{}] * LEAST_FILES, ["key_statistics"]),
        ([{}] * (LEAST_FILES - 1), []),
        ([{}] * LEAST_FILES + [{"id": (1, 2)}], []),
    ],
)
def test_keys_without_bounds(bounds: Any, expected: list[str]) -> None:
    sizes = [20 * MIB] * len(bounds)
    assert rules(about(layout=files(*sizes, bounds=bounds))) == expected
    # Its type has no bounds.
    assert rules(about(layout=files(*sizes, bounds=bounds), bounded_keys=())) == []


def touching(rows: int, times: int = 3) -> list[Run]:
    metrics = {"numTargetRowsInserted": str(rows)}
    return [applied(number, metrics=metrics) for number in range(times)]


@pytest.mark.parametrize(
    ("runs", "width", "expected"),
    [
        (touching(8), 16, ["clustering"]),
        (touching(9), 16, []),
        (touching(8, 2), 16, []),
        (touching(8), 8, ["clustering"]),
        (touching(8), 7, []),
    ],
)
def test_bounds_that_prune_nothing(runs: list[Run], width: int, expected: list[str]) -> None:
    # Groups of files with the same bounds.
    bounds = [{"id": (place // width * 10, place // width * 10 + 9)} for place in range(16)]
    assert rules(about(*runs, layout=files(*[20 * MIB] * 16, bounds=bounds))) == expected


@pytest.mark.parametrize(
    ("parameters", "cluster_by", "columns"),
    [
        ({"clusterBy": '["ID"]'}, None, ("id",)),
        ({"newClusteringColumns": "region,`n`", "oldClusteringColumns": "id"}, None, ("region", "n")),
        ({"clusterBy": "[]"}, ("id",), ("id",)),
        ({}, ("Id", "n"), ("id", "n")),
        ({}, None, ()),
    ],
)
def test_a_clustered_table_has_no_other_order(
    parameters: dict[str, str], cluster_by: tuple[str, ...] | None, columns: tuple[str, ...]
) -> None:
    runs = touching(8)
    info = replace(runs[0].commit.info, operation_parameters=parameters)
    runs[0] = replace(runs[0], commit=replace(runs[0].commit, info=info))
    target = replace(state("target"), features=("clustering",))
    options = ApplyOptions(keys=("id",), cluster_by=cluster_by)
    layout = files(*[20 * MIB] * 16, bounds=[{"id": (0, 9)}] * 16)
    evidence = about(*runs, layout=layout, target=target, options=options)
    assert advice.clustering_columns(evidence) == columns
    found = [one for one in advice_on(evidence) if one.rule == "clustering"]
    assert [one.setting for one in found] == ["DeltaOptimizeOperator(full)"] * ("id" in columns)


def test_a_history_that_a_reset_drops() -> None:
    layout = Layout({(("n", str(number)),): (MIB,) for number in range(16)}, 100, 0)
    for scd_type, loses in ((1, False), (2, True)):
        options = ApplyOptions(keys=("id",), stored_as_scd_type=scd_type)
        (one,) = advice_on(about(layout=layout, target=state("target", ("n",)), options=options))
        assert ("discard_history" in one.cost) is loses


def test_depth() -> None:
    assert depth([Bounds({"id": pair}) for pair in ((1, 4), (3, 6), (9, 9))], "id") == 5 / 3
    assert depth([Bounds({"id": (1, 1)}), Bounds({"id": ("a", "b")})], "id") is None
    assert depth([Bounds({})], "id") is None


# -- files -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(16, MIB, ["small_files"]), (15, MIB, []), (16, 16 * MIB, ["small_files"]), (16, 16 * MIB + 1, [])],
)
def test_small_files(count: int, size: int, expected: list[str]) -> None:
    assert rules(about(layout=files(*[size] * count))) == expected


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(16, MIB, ["partitions"]), (15, MIB, []), (16, 16 * MIB + 1, [])],
)
def test_partitions(count: int, size: int, expected: list[str]) -> None:
    layout = Layout({(("n", str(number)),): (size,) for number in range(count)}, 100, 0)
    assert rules(about(layout=layout, target=state("target", ("n",)))) == expected


@pytest.mark.parametrize(
    ("masked", "size", "rows", "expected"),
    [
        (20, LEAST_BYTES, 100, ["masked_rows"]),
        (19, LEAST_BYTES, 100, []),
        (20, LEAST_BYTES - 1, 100, []),
        (20, LEAST_BYTES, None, []),
    ],
)
def test_masked_rows(masked: int, size: int, rows: int | None, expected: list[str]) -> None:
    assert rules(about(layout=files(size, rows=rows, masked=masked))) == expected


@pytest.mark.parametrize(
    ("removed", "size", "expected"),
    [
        (LEAST_BYTES, 2 * LEAST_BYTES, ["vacuum"]),
        (LEAST_BYTES - 1, 0, []),
        (LEAST_BYTES, 2 * LEAST_BYTES + 1, []),
    ],
)
def test_garbage(removed: int, size: int, expected: list[str]) -> None:
    # Also of a target whose files are too many for a layout.
    for layout in (files(size), None):
        given = about(layout=layout, garbage=Garbage(3, removed, 2), target_bytes=size)
        assert rules(given) == expected
    assert rules(about(layout=files(size))) == []


# -- schedule and retention ------------------------------------------------------------------------
def late(*hours: float) -> list[Run]:
    return [
        applied(number, commit(number, **UPDATED), at=round(hour * HOUR)) for number, hour in enumerate(hours)
    ]


@pytest.mark.parametrize(
    ("hours", "freshness", "expected"),
    [
        ((0.5, 2, 2), 3600.0, ["late_runs"]),
        ((0.5, 0.5, 0.5, 2, 2), 3600.0, []),
        ((2, 2), 3600.0, []),
        ((1, 1, 1), 3600.0, []),
        ((2, 2, 2), None, []),
    ],
)
def test_late_runs(hours: tuple[float, ...], freshness: float | None, expected: list[str]) -> None:
    assert rules(about(*late(*hours), freshness=freshness)) == expected


@pytest.mark.parametrize(
    ("schedule", "is_watchable", "value"),
    [
        ("@daily", True, "on_change, or one run each 30 minutes"),
        ("@daily", False, "one run each 30 minutes"),
        (None, True, "on_change, or one run each 30 minutes"),
        ({"assets": ["t"]}, True, "on_change, or one run each 30 minutes"),
        ("31 * * * *", True, "on_change, or one run each 30 minutes"),
        # Its runs start soon enough.
        ("*/30 * * * *", True, None),
        ("on_change", True, None),
    ],
)
def test_a_schedule_that_helps(schedule: Any, is_watchable: bool, value: str | None) -> None:
    given = about(*late(2, 2, 2), freshness=3600.0, schedule=schedule, is_watchable=is_watchable)
    assert [one.value for one in advice_on(given)] == ([] if value is None else [value])


def test_the_slowest_reader() -> None:
    source = state("source", **{"delta.deletedFileRetentionDuration": "interval 4 hours"})
    slow, quick = about(*late(3), source=source), about(*late(2.5), source=source)
    assert rules(slow) == rules(quick) == rules(slow, slow, quick) == ["retention"]
    assert rules(quick, slow, quick) == []
    other = replace(slow, source=replace(source, table_id="other"))
    assert rules(quick, other) == ["retention"]
    assert rules(about(*late(2), source=source)) == []
    (one,) = advice_on(slow)
    assert (one.setting, one.value) == ("delta.deletedFileRetentionDuration", "interval 2 days")


def test_files_that_no_commit_removes_do_not_expire() -> None:
    source = state("source", **{"delta.deletedFileRetentionDuration": "interval 4 hours"})
    added = commit(0, **{**UPDATED, "n_data_removes": 0})
    assert rules(about(applied(1, added, at=3 * HOUR), source=source)) == []
    source = replace(source, configuration={"delta.logRetentionDuration": "interval 4 hours"})
    (one,) = advice_on(about(applied(1, added, at=3 * HOUR), source=source))
    assert (one.setting, one.value) == ("delta.logRetentionDuration", "interval 2 days")


def worked(*numbers: int, kind: str = "apply") -> Evidence:
    runs = [applied(number, at=number * HOUR, kind=kind) for number in numbers]
    return about(*runs, commits=(commit(0), *(run.commit for run in runs)), now=EPOCH + 12 * HOUR)


@pytest.mark.parametrize(
    ("evidences", "schedule", "idle"),
    [
        ([worked(1, 2, 3, 4, 5, 6)], "0 * * * *", 6),
        ([worked(1, 2, 3, 4, 5, 6, 7)], "0 * * * *", None),
        # A run has work if one of its tables has.
        ([worked(1, 2, 3), worked(3, 4)], "@hourly", 8),
        ([worked(1, 2, 3, 4), worked(5, 6, 7)], "@hourly", None),
        # A renewal is no change.
        ([worked(1, 2, 3, 4, 5, 6, 7, kind="renew")], "@hourly", 12),
        ([worked(1)], "0 */2 * * *", None),
        ([worked(1)], "on_change", None),
        ([worked(1)], None, None),
        ([], "@hourly", None),
    ],
)
def test_idle_runs(evidences: list[Evidence], schedule: str | None, idle: int | None) -> None:
    found = [one.figures["expected_idle_runs"] for one in idle_runs("g", schedule, evidences)]
    assert found == ([] if idle is None else [idle])


def test_a_group_that_cannot_be_watched_keeps_its_schedule() -> None:
    evidence = worked(1)
    (one,) = idle_runs("g", "@hourly", [evidence])
    assert "would start 12 runs" in one.found
    assert list(idle_runs("g", "@hourly", [evidence, replace(evidence, is_watchable=False)])) == []


#: 2027-01-15, a Friday, at 8:00.
@pytest.mark.parametrize(
    ("schedule", "days", "count"),
    [
        ("*/15 * * * *", 1, 96),
        ("@daily", 7, 7),
        ("0 8 * * *", 1, 1),
        ("0 6 * * 1-5", 7, 5),
        ("0 6 * * 0,7", 7, 1),
        ("0 6 1 * *", 31, 1),
        ("0 6 20 * 1", 7, 2),
        ("5/20 8-9 * * *", 1, 6),
        ("30 8 * 2 *", 31, 14),
        ("0 8 * *", 1, None),
        ("0 24 * * *", 1, None),
        ("0 8 * * mon", 7, 1),
        ("0 8 L * *", 31, None),
        ("0 8 * * 5#1", 31, None),
        ("0 8 * * * 30", 1, None),
        ("H 8 * * *", 1, None),
        ("*/0 * * * *", 1, None),
        ("@on_change", 1, None),
        ("@hourly", 500, None),
        (None, 1, None),
    ],
)
def test_how_often_a_schedule_fires(schedule: str | None, days: int, count: int | None) -> None:
    assert runs_between(schedule, EPOCH, EPOCH + days * 24 * HOUR) == count


def test_croniter_fires_as_often() -> None:
    draw = random.Random(5)
    for _ in range(60):
        parts = [
            draw.choice(["*", "*/17", str(draw.randint(low, high)), f"{low + 1}-{high}/3", f"{low},{high}"])
            for low, high in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))
        ]
        text, days = " ".join(parts), draw.randint(1, 40)
        start, end = (EPOCH + hours * HOUR for hours in (0, days * 24))
        times = croniter_range(*(datetime.fromtimestamp(one / 1000, UTC) for one in (start, end)), text)
        # Unlike a schedule, the range has its first time, too.
        expected = sum(time.timestamp() * 1000 > start for time in times)
        assert runs_between(text, start, end) == expected, text


def test_a_change_log_has_no_keys_and_no_source() -> None:
    bounds = [{"id": (0, 9)}] * 16
    runs = [*touching(3), *late(9)]
    layout = files(*[MIB] * 16, bounds=bounds)
    assert rules(about(*runs, layout=layout, options=None, source=None)) == ["small_files"]


# -- what is gathered ------------------------------------------------------------------------------
def test_evidence_of_a_pipeline(tmp_path: Path) -> None:
    tables = Tables.made_in(tmp_path)
    tables.source.overwrite()
    tables.sealed(2)
    tables.sealed(6, 101, start=3)
    tables.target.optimize()
    found = run_sync(gather("p", tables.target.uri, now_ms=NOW))
    assert found is not None
    assert [commit.version for commit in found.commits] == [0, 1, 2]
    assert [run.seal.number for run in found.applied] == [100, 101]
    assert [commit.version for commit in found.runs[1].read] == [3, 4, 5, 6]
    assert [one.method for one in found.runs[1].ranges] == ["change_files"] * len(found.runs[1].ranges)
    # Version 3, an append, is the oldest change; the target's version 1 is of the first second.
    assert found.runs[1].waited == 0
    assert found.layout is not None
    assert (found.layout.files, found.layout.bytes, found.layout.rows) == (1, 100, 10)
    assert found.garbage is None


def test_garbage_and_vacuums(tmp_path: Path) -> None:
    tables = Tables.made_in(tmp_path)
    tables.sealed(2)
    tables.sealed(5, 101, start=3)
    tables.target.optimize()
    now = EPOCH + 8 * 24 * HOUR

    def garbage() -> Garbage | None:
        found = run_sync(gather("p", tables.target.uri, now_ms=now))
        assert found is not None
        return found.garbage

    assert garbage() == Garbage(2, 200, 2)
    gone = tables.target.path / "part-00000-0.parquet"
    gone.unlink()
    assert garbage() is None, "the oldest one is gone, so a VACUUM has run"
    gone.touch()
    tables.target.commit("VACUUM START", at=now, parameters={"defaultRetentionMillis": "0"})
    assert garbage() is None


def test_the_work_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables.made_in(tmp_path)
    tables.sealed(2)
    for _ in range(MOST_COMMITS):
        tables.target.optimize()
    tables.sealed(5, 101, start=3)
    found = run_sync(gather("p", tables.target.uri, now_ms=NOW))
    assert found is not None
    assert len(found.commits) == MOST_COMMITS
    assert [run.seal.number for run in found.runs] == [101]
    monkeypatch.setattr("delta_cdc.planning.evidence.MOST_FILES", 0)
    found = run_sync(gather("p", tables.target.uri, now_ms=NOW))
    assert found is not None
    assert found.layout is None


def test_several_tables(tmp_path: Path) -> None:
    tables = Tables.made_in(tmp_path)
    tables.sealed(5)
    for _ in range(LEAST_FILES):
        tables.target.commit("WRITE", tables.target.add())
    given = [
        AboutTable("p", tables.target.uri, group="g", schedule="@hourly", tables_of_group=2),
        AboutTable("p", str(tmp_path / "absent"), group="g", schedule="@hourly", tables_of_group=2),
    ]
    now = EPOCH + 24 * HOUR
    assert [[one.rule for one in found] for found in run_sync(advise_all(given, now_ms=now))] == [
        # The other table of the group may have had work.
        ["small_files"],
        [],
    ]
    # A table that was not chosen may have had work, too.
    (chosen,) = run_sync(advise_all(given[:1], now_ms=now))
    assert [one.rule for one in chosen] == ["small_files"]
    (alone,) = run_sync(advise_all([replace(given[0], tables_of_group=1)], now_ms=now))
    assert [one.rule for one in alone] == ["small_files", "idle_runs"]


def test_commits_with_too_many_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables.made_in(tmp_path)
    tables.sealed(2)
    tables.sealed(5, 101, start=3)
    tables.target.optimize()
    now = EPOCH + 8 * 24 * HOUR
    found = run_sync(gather("p", tables.target.uri, now_ms=now))
    assert found is not None
    assert (found.garbage, found.target_bytes) == (Garbage(2, 200, 2), 100)
    # The OPTIMIZE has three actions: one file for two.
    monkeypatch.setattr("delta_cdc.planning.evidence.MOST_FILES", 2)
    found = run_sync(gather("p", tables.target.uri, now_ms=now))
    assert found is not None
    assert found.garbage is None


def test_the_whole_group_counts(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "groups: {g: {schedule: '@hourly'}}\ndefaults: {group: g, keys: id}\npipelines:\n"
    text += "  a: {source: /s, target: /a}\n"
    text += "  b: {source: /s, target: /b, log: /l, adapter_options: {sequence_by: n}}\n"
    configuration = tmp_path / "pipelines.yaml"
    configuration.write_text(text)
    seen: list[AboutTable] = []

    async def noted(tables: list[AboutTable]) -> list[list[Any]]:
        seen.extend(tables)
        return [[] for _ in tables]

    monkeypatch.setattr("delta_cdc.cli.status.advise_all", noted)
    main(["status", str(configuration), "a", "--advise"])
    assert [(one.tables_of_group, one.is_watchable) for one in seen] == [(3, False)], capsys.readouterr()


def test_the_command(tmp_path: Path, capsys: Any) -> None:
    # Not Tables.made_in: the times of its commits are in the future.
    source = LogTable(tmp_path / "source", table_id="source-id", configuration=dict(FEED)).create()
    target = LogTable(tmp_path / "target")
    source.append()
    target.write_seal(seal(100, 1, source=source))
    pair = f"p={target.uri}"
    assert main(["status", pair, "--advise"]) == 0
    assert "advice" not in capsys.readouterr().out
    for _ in range(LEAST_FILES):
        target.commit("WRITE", target.add())
    assert main(["status", pair, "--advise"]) == 0
    out = capsys.readouterr().out
    assert f"  advice     small_files: version {LEAST_FILES} has {LEAST_FILES + 1} files of 100 B" in out
    assert f'             set DeltaOptimizeOperator(tables) = ["{target.uri}"] ({target.uri})' in out
    assert "             cost: each OPTIMIZE writes the small files again" in out
    assert main(["status", pair, "--advise", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    (one,) = row["advice"]
    assert one["figures"] == {"files": LEAST_FILES + 1, "bytes": 1700, "expected_files": 1}
    assert main(["status", pair, "--json"]) == 0
    assert "advice" not in json.loads(capsys.readouterr().out)[0]
    assert main(["status", pair, "--advise", "--metrics"]) == 2
    assert "--advise given with --metrics" in capsys.readouterr().err
