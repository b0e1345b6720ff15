"""A write that fails leaves nothing behind, wherever files are written under another name first."""

from __future__ import annotations

import resource
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc import names
from delta_cdc import __main__ as application
from delta_cdc.core.errors import StoreUnavailable
from delta_cdc.core.spec import JobResult
from delta_cdc.delta_log.requests import put_stream
from delta_cdc.delta_log.table import run_sync
from delta_cdc.doctor import machine
from delta_cdc.launch import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONG = "x" * 100_000


def put(path: Path) -> None:
    try:
        run_sync(put_stream(str(path.parent), path.name, iter([LONG.encode()])))
    except StoreUnavailable as error:
        raise OSError(str(error)) from error


WRITERS: dict[str, Callable[[Path], Any]] = {
    "slice": put,
    "result": lambda path: application._write(path, JobResult(status="failed", message=LONG)),
    "engine": lambda path: session._write_zip(path, [("a.py", LONG.encode())]),
    "name": lambda path: names._write_file(path, {"name": LONG}),
}


@contextmanager
def full() -> Iterator[None]:
    """Let no file of this process grow beyond a few blocks, as on a disk that is full.

    No fixture: pytest writes what became of a test before its fixtures end.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("writer", WRITERS)
def test_where_the_place_is_taken_nothing_is_left(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "wanted"
    (path / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match=r"[Dd]irectory"):
        WRITERS[writer](path)
    assert [found.name for found in tmp_path.iterdir()] == ["wanted"]


@pytest.mark.parametrize("writer", WRITERS)
def test_where_the_disk_is_full_nothing_is_left(writer: str, tmp_path: Path) -> None:
    (tmp_path / "wanted").write_text("older")
    with full(), pytest.raises(OSError, match="too large"):
        WRITERS[writer](tmp_path / "wanted")
    assert [found.name for found in tmp_path.iterdir()] == ["wanted"]
    assert (tmp_path / "wanted").read_text() == "older"


def test_the_doctor_leaves_nothing_on_a_full_disk(tmp_path: Path) -> None:
    with full():
        status = machine._writable(tmp_path, "make room.").status
    assert status == "failed"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("writer", "mode"), [("slice", 0o644), ("result", 0o644), ("engine", 0o644), ("name", 0o600)]
)
def test_who_may_read_it(writer: str, mode: int, tmp_path: Path) -> None:
    WRITERS[writer](tmp_path / "made here" / "wanted")
    (found,) = (tmp_path / "made here").iterdir()
    assert stat.S_IMODE(found.stat().st_mode) == mode
