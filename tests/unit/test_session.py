"""What the engine's zip and the embedded profile are made of."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import delta_cdc
from delta_cdc.core.commit_safety import CONDITIONAL_STORE
from delta_cdc.core.errors import EnvironmentNotReady
from delta_cdc.launch import environment, session


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine's zip, which no test changes."""
    return session.engine_zip(tmp_path_factory.mktemp("engine"))


def test_the_engine_zip_has_the_same_name_and_sources_each_time(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path))
    first, second = archive, session.engine_zip()
    assert second.parent == tmp_path / "engine"
    assert first.name == second.name
    one, other = zipfile.ZipFile(first), zipfile.ZipFile(second)
    assert one.namelist() == other.namelist()
    sources = [name for name in one.namelist() if name.endswith(".py")]
    assert [one.read(name) for name in sources] == [other.read(name) for name in sources]


def test_the_engine_zip_is_written_once_and_holds_sources_and_their_bytecode_only(archive: Path) -> None:
    before = archive.stat()
    assert session.engine_zip(archive.parent).stat().st_ino == before.st_ino
    assert list(archive.parent.iterdir()) == [archive]
    names = zipfile.ZipFile(archive).namelist()
    assert "delta_cdc/launch/session.py" in names
    sources = [name for name in names if name.endswith(".py") and name.startswith("delta_cdc/")]
    assert sorted(names) == sorted([*sources, *(f"{name}c" for name in sources)])


def test_a_cache_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentNotReady, match="cannot be kept"):
        session.engine_zip(tmp_path / "file")


_WHERE_COMPILED = "import delta_cdc.__main__ as m; print(m.main.__code__.co_filename)"


def _compiled_as(archive: Path) -> str:
    program = f"import sys; sys.path.insert(0, {str(archive)!r}); {_WHERE_COMPILED}"
    return subprocess.check_output([sys.executable, "-c", program], text=True).strip()


def test_a_driver_of_another_python_takes_the_sources(archive: Path, tmp_path: Path) -> None:
    assert _compiled_as(archive) == "delta_cdc/__main__.py"
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(archive) as ours, zipfile.ZipFile(other, "w") as theirs:
        for name in ours.namelist():
            content = ours.read(name)
            theirs.writestr(name, b"\0\0\r\n" + content[4:] if name.endswith(".pyc") else content)
    assert _compiled_as(other) == f"{other}/delta_cdc/__main__.py"


def test_spark_is_found_beside_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "somewhere else")
    assert environment.submit_binary().is_absolute()
    assert environment.submit_binary().is_file()
    assert environment.child_environment()["SPARK_HOME"] == str(environment.spark_home())
    assert environment.child_environment()["PYSPARK_PYTHON"] == sys.executable


def test_a_client_without_spark_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with pytest.raises(EnvironmentNotReady, match="no Spark in it"):
        environment.spark_home()


def test_importing_the_session_module_imports_no_pyspark() -> None:
    program = (
        "import sys, delta_cdc.launch.session; print([name for name in sys.modules if 'pyspark' in name])"
    )
    folder = session._PACKAGE.parent
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("quick_start", "theirs", "variable", "collector"),
    [
        (False, "", None, ["ParallelGC"]),
        (True, "", None, ["SerialGC"]),
        (True, "-Xss4m -XX:+UseZGC", None, ["ZGC"]),
        (False, "", "JAVA_TOOL_OPTIONS", []),
        (True, "", "SPARK_SUBMIT_OPTS", []),
    ],
)
def test_what_the_user_tells_the_jvm_wins(
    monkeypatch: pytest.MonkeyPatch,
    quick_start: bool,
    theirs: str,
    variable: str | None,
    collector: list[str],
) -> None:
    if variable is not None:
        monkeypatch.setenv(variable, "-XX:+UseG1GC")
    confs = session.embedded_confs(quick_start=quick_start, java_options=theirs)
    told = confs["spark.driver.extraJavaOptions"]
    # A JVM that is told two collectors does not start.
    assert re.findall(r"-XX:\+Use(\w+GC)", told) == collector
    assert told.endswith(theirs)
    assert ("TieredStopAtLevel=1" in told) == quick_start


class _Builder:
    """Stands for the builder of sessions; keeps what it is configured with."""

    def __init__(self) -> None:
        self.confs: dict[str, str] = {}

    def appName(self, name: str) -> _Builder:  # noqa: N802 - PySpark's name
        self.name = name
        return self

    def config(self, name: str, value: str) -> _Builder:
        self.confs[name] = value
        return self

    def getOrCreate(self) -> _Builder:  # noqa: N802 - PySpark's name
        return self


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> _Builder:
    """What a session would be started with."""
    import pyspark.sql

    builder = _Builder()
    monkeypatch.setattr(pyspark.sql, "SparkSession", type("SparkSession", (), {"builder": builder}))
    monkeypatch.setattr("delta_cdc.launch.session.class_path", lambda *_, **__: "/ours.jar")
    for name, value in environment.child_environment().items():
        monkeypatch.setenv(name, value)
    return builder


def test_a_session_is_public(started: _Builder) -> None:
    assert delta_cdc.get_session() is started
    assert started.name == "delta-cdc"
    assert started.confs.items() >= session.delta_confs().items()
    assert started.confs[session.CLASS_PATH] == "/ours.jar"


def test_on_s3_a_session_commits_with_our_log_store(
    started: _Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But where the JARs, or the log store, are the user's own."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr("delta_cdc.launch.log_store.log_store_jar", lambda: Path("/log-store.jar"))
    conf = "spark.delta.logStore.s3a.impl"
    cases: tuple[tuple[dict[str, Any], str | None], ...] = (
        ({}, CONDITIONAL_STORE),
        ({"jars": False}, None),
        ({conf: "mine"}, "mine"),
    )
    for given, log_store in cases:
        started.confs.clear()
        session.get_session("a", locations=["s3://lake/t"], **given)
        assert started.confs.get(conf) == log_store


def test_a_class_path_of_the_users_own_comes_behind_ours(
    started: _Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(f"{session.CLASS_PATH} /default.jar")
    mine: dict[str, Any] = {session.CLASS_PATH: "/mine.jar"}
    for given, behind in ((mine, "/mine.jar"), ({}, "/default.jar")):
        session.get_session("a", **given)
        assert started.confs[session.CLASS_PATH] == f"/ours.jar:{behind}"
    session.get_session("a", jars=False, **mine)
    assert started.confs[session.CLASS_PATH] == "/mine.jar"


def test_extensions_of_the_users_own_come_behind_deltas(
    started: _Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark loads one list: without Delta's extension, no table can be read."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    delta = session.delta_confs()[session.EXTENSIONS]
    assert session.extensions({}) == {session.EXTENSIONS: delta}
    (tmp_path / "spark-defaults.conf").write_text(f"{session.EXTENSIONS} of.Default")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, f"{delta},of.Default"),
        ({session.EXTENSIONS: "of.Mine, of.Mine2"}, f"{delta},of.Mine,of.Mine2"),
        ({session.EXTENSIONS: f"of.Mine,{delta}"}, f"of.Mine,{delta}"),
    )
    for given, loaded in cases:
        session.get_session("a", **given)
        assert started.confs[session.EXTENSIONS] == loaded


def test_options_of_the_launchers_own_file_are_kept(
    started: _Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    file = tmp_path / "spark-defaults.conf"
    file.write_text("spark.driver.defaultJavaOptions -XX:+UseG1GC\nspark.driver.extraJavaOptions -Dproxy=1")
    session.get_session("a")
    assert started.confs[session.JAVA_OPTIONS].endswith(" -Dproxy=1")
    assert "GC" not in started.confs[session.JAVA_OPTIONS]
    theirs: dict[str, Any] = {"spark.driver.defaultJavaOptions": "-Dmine=1"}
    session.get_session("a", **theirs)
    assert "-XX:+UseParallelGC" in started.confs[session.JAVA_OPTIONS]
    assert started.confs["spark.driver.defaultJavaOptions"] == "-Dmine=1"
