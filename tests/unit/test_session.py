"""What the engine's zip and the embedded profile are made of."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from delta_cdc import environment, session
from delta_cdc.errors import EnvironmentNotReady

if TYPE_CHECKING:
    from pathlib import Path


def test_the_engine_zip_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = session.engine_zip(tmp_path / "a"), session.engine_zip(tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_the_engine_zip_is_written_once_and_leaves_no_draft(tmp_path: Path) -> None:
    first = session.engine_zip(tmp_path)
    before = first.stat()
    assert session.engine_zip(tmp_path).stat().st_ino == before.st_ino
    assert list(tmp_path.iterdir()) == [first]


def test_the_engine_zip_is_kept_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path))
    assert session.engine_zip().parent == tmp_path / "engine"


def test_a_cache_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentNotReady, match="cannot be kept"):
        session.engine_zip(tmp_path / "file")


def test_the_engine_zip_holds_sources_only(tmp_path: Path) -> None:
    names = zipfile.ZipFile(session.engine_zip(tmp_path)).namelist()
    assert "delta_cdc/session.py" in names
    assert [name for name in names if not name.endswith(".py") or not name.startswith("delta_cdc/")] == []


def test_the_engine_runs_from_its_zip(tmp_path: Path) -> None:
    archive = session.engine_zip(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import delta_cdc.__main__ as m; print(m.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(archive))


def test_spark_is_found_beside_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "somewhere else")
    assert session.submit_binary().is_absolute()
    assert session.submit_binary().is_file()
    assert session.child_environment()["SPARK_HOME"] == str(session.spark_home())
    assert session.child_environment()["PYSPARK_PYTHON"] == sys.executable


def test_a_client_without_spark_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with pytest.raises(EnvironmentNotReady, match="no Spark in it"):
        environment.spark_home()


def test_importing_the_session_module_imports_no_pyspark() -> None:
    program = "import sys, delta_cdc.session; print([name for name in sys.modules if 'pyspark' in name])"
    folder = session._PACKAGE.parent
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("quick_start", "theirs", "variables", "collectors"),
    [
        (False, "", {}, ["-XX:+UseParallelGC"]),
        (True, "", {}, ["-XX:+UseSerialGC"]),
        (True, "-Xss4m -XX:+UseZGC", {}, ["-XX:+UseZGC"]),
        (False, "", {"JAVA_TOOL_OPTIONS": "-XX:+UseG1GC"}, []),
        (True, "", {"SPARK_SUBMIT_OPTS": "-XX:+UseShenandoahGC"}, []),
    ],
)
def test_what_the_user_tells_the_jvm_wins(
    monkeypatch: pytest.MonkeyPatch,
    quick_start: bool,
    theirs: str,
    variables: dict[str, str],
    collectors: list[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    confs = session.embedded_confs(quick_start=quick_start, java_options=theirs)
    told = confs["spark.driver.extraJavaOptions"]
    # A JVM that is told two collectors does not start.
    assert re.findall(r"-XX:\+Use\w+GC", told) == collectors
    assert told.endswith(theirs)
    assert ("TieredStopAtLevel=1" in told) == quick_start
