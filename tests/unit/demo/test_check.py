"""The demo's check finds what differs, and cuts histories as SCD type 2 defines them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

from demo.check import Check, Finding, history_of, rows_of

if TYPE_CHECKING:
    from pathlib import Path

_SNAPSHOTS = {
    # key, value: 1 changes and changes back, 2 leaves and returns, 3 comes with NULL, 4 never changes
    4: "(1, 'a'), (2, 'x'), (4, 'z')",
    5: "(1, 'b'), (4, 'z')",
    6: "(1, 'a'), (2, 'x'), (3, NULL), (4, 'z')",
    7: "(1, 'a'), (2, 'x'), (3, NULL), (4, 'z')",
}
_HISTORY = (
    "(1, 'a', 4, 5), (1, 'b', 5, 6), (1, 'a', 6, NULL), (2, 'x', 4, 5), (2, 'x', 6, NULL), "
    "(3, NULL, 6, NULL), (4, 'z', 4, NULL)"
)


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    duck = duckdb.connect()
    (tmp_path / "commits").mkdir()
    duck.execute(
        "COPY (SELECT v AS version, TIMESTAMPTZ '2026-01-01 00:00:00+00' + INTERVAL 1 HOUR * v AS timestamp "
        f"FROM range(0, 8) AS t(v)) TO '{tmp_path}/commits/part.parquet' (FORMAT parquet)"
    )
    for version, rows in _SNAPSHOTS.items():
        (tmp_path / f"snapshots/version={version}").mkdir(parents=True)
        duck.execute(
            f"COPY (SELECT * FROM (VALUES {rows}) AS t(k, v)) "
            f"TO '{tmp_path}/snapshots/version={version}/part.parquet' (FORMAT parquet)"
        )
    duck.close()
    return tmp_path


def _history_target(rows: str) -> str:
    moment = "TIMESTAMPTZ '2026-01-01 00:00:00+00' + INTERVAL 1 HOUR *"
    return (
        f"SELECT k, v, {moment} s AS __START_AT, {moment} e AS __END_AT FROM (VALUES {rows}) AS t(k, v, s, e)"
    )


def _compare(exports: Path, rows: str) -> Finding:
    cut = history_of(exports / "snapshots", exports / "commits", key="k", columns=["v"])
    with Check() as check:
        return check.same_rows("history", cut, _history_target(rows))


def test_the_history_is_cut_from_snapshots(exports: Path) -> None:
    found = _compare(exports, _HISTORY)
    assert found.holds, found.sample
    assert found.rows == 7


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("(1, 'b', 5, 6), ", "", id="a version is missing"),
        pytest.param("(4, 'z', 4, NULL)", "(4, 'z', 4, NULL), (4, 'z', 4, NULL)", id="a row is there twice"),
        pytest.param("(2, 'x', 4, 5)", "(2, 'x', 4, 6)", id="closed too late"),
        pytest.param("(3, NULL, 6, NULL)", "(3, NULL, 7, NULL)", id="opened too late"),
        pytest.param("(3, NULL, 6, NULL)", "(3, '', 6, NULL)", id="NULL became a value"),
        pytest.param("(2, 'x', 4, 5), (2, 'x', 6, NULL)", "(2, 'x', 4, NULL)", id="a gap was closed"),
    ],
)
def test_every_wrong_history_is_found(exports: Path, right: str, wrong: str) -> None:
    assert right in _HISTORY
    found = _compare(exports, _HISTORY.replace(right, wrong))
    assert not found.holds
    assert found.sample


def test_columns_may_come_in_another_order(exports: Path) -> None:
    with Check() as check:
        there = rows_of(exports / "snapshots/version=5")
        assert check.same_rows("rows", there, f"SELECT v, k FROM ({there})").holds
        with pytest.raises(ValueError, match="one side only"):
            check.same_rows("rows", there, f"SELECT *, 1 AS more FROM ({there})")


def test_nothing_to_compare_is_no_success(exports: Path) -> None:
    nothing = f"SELECT * FROM ({rows_of(exports / 'snapshots/version=5')}) WHERE false"
    with Check() as check:
        assert not check.same_rows("rows", nothing, nothing).holds
