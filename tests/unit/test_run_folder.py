"""Folders of runs: only their user reads them, and nothing of a killed run stays."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from delta_cdc.core import private_files
from delta_cdc.core.errors import EnvironmentNotReady, StoreUnavailable
from delta_cdc.launch.environment import driver_variables
from delta_cdc.launch.run_folder import LOG_AGE, PREFIX, run_folder, sweep

#: A worker that writes a secret and a log, starts a process that may outlive it, and waits.
_WORKER = """
import subprocess, sys
from delta_cdc.launch.run_folder import run_folder
with run_folder() as folder:
    (folder.path / "secrets").write_text("s3cr3t")
    (folder.temporary / "block").write_text("rows")
    folder.log.write_text(sys.argv[1])
    fds = (folder.lock,) if sys.argv[2] == "driver" else ()
    closed = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
    child = subprocess.Popen(["sleep", "600"], pass_fds=fds, start_new_session=True, **closed)
    print(folder.path, child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def killed(tmp_path: Path, log: str = "", child: str = "") -> tuple[Path, int]:
    """Kill a worker; return its folder, and the process that it had started."""
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, log, child],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    path, pid = worker.stdout.readline().split()
    sweep()
    assert (Path(path) / "secrets").exists(), "the worker lives"
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    return Path(path), int(pid)


def names(folder: Path) -> set[str]:
    return {child.name for child in folder.iterdir()} if folder.exists() else set()


def test_a_folder_is_private_and_goes_with_its_run(tmp_path: Path) -> None:
    with run_folder() as folder:
        assert folder.path.stat().st_mode & 0o777 == 0o700
        assert folder.path.name.startswith(PREFIX)
        folder.log.write_text("a line")
        folder.temporary.joinpath("block").write_text("rows")
        folder.keep_log = False
    assert names(tmp_path) == set()
    with run_folder() as folder:
        folder.log.write_text("a line")
        folder.temporary.joinpath("block").write_text("rows")
    assert names(folder.path) == {"spark.log"}


def test_what_a_killed_run_left_goes_with_the_next_start(tmp_path: Path) -> None:
    silent, first = killed(tmp_path)
    failed, second = killed(tmp_path, log="why it ended")
    with run_folder():
        assert not silent.exists()
        assert names(failed) == {"spark.log"}
    old = time.time() - LOG_AGE - 60
    os.utime(failed / "spark.log", (old, old))
    sweep()
    assert names(tmp_path) == set()
    for pid in (first, second):
        os.kill(pid, signal.SIGKILL)


def test_a_driver_that_outlives_its_worker_keeps_the_folder(tmp_path: Path) -> None:
    folder, driver = killed(tmp_path, child="driver")
    sweep()
    assert names(folder) == {".lock", "secrets", "spark.log", "tmp"}
    lock = os.open(folder / ".lock", os.O_RDWR)
    os.kill(driver, signal.SIGKILL)
    # This waits for the end of the driver, which is no child of this process.
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.close(lock)
    sweep()
    assert not folder.exists()


def test_only_own_folders_are_deleted(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("mine")
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    (tmp_path / f"{PREFIX}file").write_text("no folder")
    (tmp_path / "delta-cdc-warehouse").mkdir()
    locked = tmp_path / f"{PREFIX}linked-lock"
    locked.mkdir()
    (locked / ".lock").symlink_to(elsewhere / "file")
    sweep()
    assert (elsewhere / "file").read_text() == "mine"
    assert names(tmp_path) == {
        *("elsewhere", "delta-cdc-warehouse"),
        *(f"{PREFIX}{name}" for name in ("link", "file", "linked-lock")),
    }


def test_a_machine_without_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(StoreUnavailable, match="set TMPDIR"), run_folder():
        pass


@pytest.mark.parametrize(
    ("theirs", "locale"),
    [
        ({}, "C.UTF-8"),
        ({"LANG": "C"}, "C.UTF-8"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "POSIX"}, "C.UTF-8"),
        ({"LANG": "de_DE.UTF-8"}, None),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, None),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Java does not read the locale for this")
def test_java_reads_names_of_files_in_utf_8(theirs: dict[str, str], locale: str | None) -> None:
    assert driver_variables(theirs).get("LC_ALL") == locale


def test_a_machine_whose_name_has_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in some containers: Spark would not start."""
    assert "SPARK_LOCAL_IP" not in driver_variables({})
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    assert driver_variables({})["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in driver_variables({"SPARK_LOCAL_IP": "10.0.0.1"})


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 123456)
    with pytest.raises(EnvironmentNotReady, match="user id 123456 has no name"):
        driver_variables({})


def test_a_temporary_folder_without_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's error would be that of a library for compression."""
    with run_folder() as folder:
        assert folder.environment({})["TMPDIR"]
        mounted = os.statvfs(folder.path)

        class NoExec:
            f_flag = mounted.f_flag | os.ST_NOEXEC

        monkeypatch.setattr(os, "statvfs", lambda path: NoExec())
        with pytest.raises(EnvironmentNotReady, match="noexec"):
            folder.environment({})


def test_the_jvm_keeps_its_temporary_files_there(tmp_path: Path) -> None:
    with run_folder() as folder:
        given = folder.environment(
            {"SPARK_SUBMIT_OPTS": "-Djava.io.tmpdir=/mine", "TMPDIR": "/other", "LANG": "C.UTF-8"}
        )
    ours = str(folder.path / "tmp")
    assert given == {"TMPDIR": ours, "SPARK_SUBMIT_OPTS": f'"-Djava.io.tmpdir={ours}" -Djava.io.tmpdir=/mine'}


def test_secrets_are_read_once_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, gone = (tmp_path / name for name in ("first", "second", "gone"))
    first.write_text("a")
    second.write_bytes(b"\xff")
    monkeypatch.setenv(private_files.VARIABLE, os.pathsep.join(map(str, (first, second, gone))))
    private_files.take()
    assert (first.exists(), second.exists()) == (False, False)
    assert private_files.text_of(str(first)) == "a"
    for path in (second, gone):
        with pytest.raises(OSError, match="No such file"):
            private_files.text_of(str(path))
    assert private_files.VARIABLE not in os.environ
    theirs = tmp_path / "theirs"
    theirs.write_text("stays")
    assert private_files.text_of(str(theirs)) == "stays"
    assert theirs.exists()
