"""Class-data archives and real JVMs: what is written is used, and what is wrong with it hurts nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from delta_cdc.launch.class_data_archive import ClassDataArchive
from delta_cdc.launch.environment import child_environment, submit_binary
from delta_cdc.launch.jars import cache_home, class_path
from delta_cdc.launch.session import CLASS_PATH, embedded_confs
from delta_cdc.warmup import make_archive
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CHECK = """
from delta_cdc.launch.session import get_session

spark = get_session("archive", cores=1, quick_start=True)
print("rows", spark.range(7).count())
"""


def _submitted(confs: Mapping[str, str], jars: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Have a JVM of Spark's say its version."""
    options = " ".join([confs["spark.driver.extraJavaOptions"], *more])
    return subprocess.run(
        [
            str(submit_binary()),
            *("--master", "local", "--version", "--driver-class-path", jars),
            *("--conf", f"spark.driver.extraJavaOptions={options}"),
        ],
        env={**os.environ, **child_environment()},
        capture_output=True,
        text=True,
        check=False,
    )


def _shared(log: Path) -> bool:
    """Tell whether Spark's own classes came out of an archive."""
    lines = [line for line in log.read_text().splitlines() if "org.apache.spark.deploy.SparkSubmit " in line]
    return bool(lines) and all("shared objects file (top)" in line for line in lines)


@pytest.mark.parametrize("quick_start", slow_but([True, False], True))
def test_an_embedded_driver_maps_it_and_one_with_other_jars_says_nothing(
    tmp_path: Path, quick_start: bool
) -> None:
    archive = ClassDataArchive(class_path())
    if archive.status().state != "ready":
        assert make_archive().state == "ready"
    confs = embedded_confs(quick_start=quick_start)
    done = _submitted(confs, confs[CLASS_PATH], f"-Xlog:class+load:file={tmp_path / 'log'}")
    assert (done.returncode, _shared(tmp_path / "log")) == (0, True), done.stderr
    fewer = confs[CLASS_PATH].partition(os.pathsep)[2]
    done = _submitted(confs, fewer, f"-Xlog:class+load:file={tmp_path / 'other'}")
    assert (done.returncode, _shared(tmp_path / "other")) == (0, False)
    assert "cds" not in done.stdout + done.stderr


@pytest.mark.slow
def test_it_is_made_once_and_made_anew_when_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a home"
    home.mkdir()
    (home / "jars").symlink_to(cache_home() / "jars")
    monkeypatch.setenv("DELTA_CDC_HOME", str(home))
    assert make_archive().state == "ready"
    archive = ClassDataArchive(class_path())
    before = archive.path.stat()
    assert make_archive().state == "ready"
    assert archive.path.stat().st_ino == before.st_ino
    assert _rows() == (0, "rows 7")
    # Between two samples, and at the same time: only the JVM sees it, and would hang.
    archive.path.chmod(0o644)
    pieces = archive.path.stat().st_size // 64
    with archive.path.open("r+b") as file:
        file.seek(30 * pieces + 100_000)
        file.write(bytes(1 << 20))
    os.utime(archive.path, (before.st_atime, before.st_mtime))
    assert archive.status().state == "ready"
    assert _rows() == (0, "rows 7")
    # A JVM that maps such a file dies of it.
    os.truncate(archive.path, 1_000)
    assert _rows() == (0, "rows 7")
    assert archive.status().state == "damaged"
    assert make_archive().state == "ready"
    # Two dumps of one JVM differ by a few pages.
    assert archive.path.stat().st_size == pytest.approx(before.st_size, rel=0.001)
    assert (archive.status().state, _rows()) == ("ready", (0, "rows 7"))
    assert {path.suffix for path in archive.path.parent.iterdir()} == {".jsa", ".json"}


def _rows() -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", _CHECK], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()
