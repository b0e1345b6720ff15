"""The search for Delta tables in a folder: on a disk, and in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.errors import SourceNotFound, StoreUnavailable
from delta_cdc.delta_log import folders
from delta_cdc.delta_log.folders import find_tables
from delta_cdc.delta_log.table import run_sync
from tests.support.http_store import Fault, HttpStore
from tests.support.logs import LogTable

if TYPE_CHECKING:
    from pathlib import Path

#: Folders with a table, in the order of their names.
_TABLES = ("a", "b c/d'e", "deep/er/t", "ünï/100%")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Tables at several depths, and much that is no table."""
    root = tmp_path / "lake"
    for name in (*_TABLES, "_hidden/t", ".trash/t", "a/inside"):
        (root / name).mkdir(parents=True)
        LogTable(root / name).create()
    for file in ("csv/x.csv", "csv/y.csv", "plain/day=1/part.parquet", "plain/day=2/part.parquet", "README"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("x")
    return root


def test_tables_at_any_depth_are_found(lake: Path) -> None:
    (lake / "nothing").mkdir()
    (lake / "link").symlink_to(lake / "a")
    found = run_sync(find_tables(str(lake)))
    assert found.tables == tuple((name, f"{lake}/{name}") for name in _TABLES)
    assert found.remarks == (
        (f"{lake}/csv", "no Delta table: it has 2 files, such as x.csv"),
        (f"{lake}/link", "a link, which is not followed"),
        (f"{lake}/nothing", "an empty folder"),
        (f"{lake}/plain", "no Delta table: it has partitions, such as day=1"),
    )
    (only,) = run_sync(find_tables(f"{lake}/a/")).tables
    assert only == ("a", f"{lake}/a")


def test_the_depth_and_the_number_of_folders_are_limited(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_sync(find_tables(str(lake), depth=2))
    assert [name for name, _ in found.tables] == ["a", "b c/d'e", "ünï/100%"]
    assert [place for place, text in found.remarks if "--depth" in text] == [f"{lake}/deep/er"]
    assert [name for name, _ in run_sync(find_tables(str(lake), depth=3)).tables] == list(_TABLES)
    monkeypatch.setattr(folders, "MOST_FOLDERS", 2)
    assert (str(lake), "the search ended after 2 folders") in run_sync(find_tables(str(lake))).remarks


def test_a_folder_that_cannot_be_read_stops_no_other(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = folders.os.scandir

    def refused(path: Path) -> object:
        if path.name == "deep":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(folders.os, "scandir", refused)
    found = run_sync(find_tables(str(lake)))
    assert [name for name, _ in found.tables] == ["a", "b c/d'e", "ünï/100%"]
    assert (f"{lake}/deep", f"The folder {lake}/deep cannot be read: Permission denied.") in found.remarks
    with pytest.raises(SourceNotFound, match="There is no folder"):
        run_sync(find_tables(f"{lake}/none"))


def test_an_object_store_has_the_same_tables(lake: Path, tmp_path: Path) -> None:
    with HttpStore(tmp_path) as store:
        found = run_sync(find_tables(store.uri("lake"), store.options()))
        assert found.tables == tuple((name, store.uri(f"lake/{name}")) for name in _TABLES)
        assert [place for place, _ in found.remarks] == [store.uri("lake/csv"), store.uri("lake/plain")]
        # A table is not listed: it may have many files.
        assert not any(request.key.startswith("lake/a/_delta_log") for request in store.requests)
        with pytest.raises(SourceNotFound):
            run_sync(find_tables(store.uri("other"), store.options()))
        store.faults = lambda request: Fault("denied") if "deep" in request.key else None
        found = run_sync(find_tables(store.uri("lake"), store.options()))
        assert len(found.tables) == 3
        assert any(
            place == store.uri("lake/deep") and "refused access" in text for place, text in found.remarks
        )
        store.faults = lambda _: Fault("denied")
        with pytest.raises(StoreUnavailable):
            run_sync(find_tables(store.uri("lake"), store.options()))
