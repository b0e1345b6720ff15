"""What the doctor says of a machine: every failing check is brought about for real."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

from delta_cdc.cli import main
from delta_cdc.core.errors import VersionsUnsupported
from delta_cdc.doctor import machine
from delta_cdc.launch.environment import child_environment, spark_home
from delta_cdc.launch.jars import JarSet

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delta_cdc.doctor.report import Result


def script(folder: Path, text: str) -> Path:
    """Write a ``java`` of our own into ``folder/bin``."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\n{text}\n")
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    return binary


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Put packages of these versions in front of those that are installed."""
    for name, version in versions.items():
        information = folder / f"{name}-{version}.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        )
    monkeypatch.syspath_prepend(folder)


# -- interpreters ---------------------------------------------------------------------------------
def test_this_machine_is_well() -> None:
    packages = (machine.spark, machine.pyspark, machine.pandas, machine.airflow)
    for look in (machine.python, lambda: machine.java(60), *packages):
        found = look()
        assert found.status == "ok", found


def test_an_old_python() -> None:
    found = machine.python((3, 10, 4))
    assert (found.status, "3.10.4" in found.found, "3.11" in found.remedy) == ("failed", True, True)


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "Java 11.0.2"),
        ("echo 'openjdk version \"1.8.0_392\"' >&2", "Java 1.8.0_392"),
        ("exit 3", "names no version (exit code 3)"),
        ("exec sleep 60", "no answer within 1 s"),
    ],
    ids=["old", "very old", "mute", "hangs"],
)
@pytest.mark.parametrize("by", ["JAVA_HOME", "PATH"])
def test_a_java_that_does_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, found: str, by: str
) -> None:
    binary = script(tmp_path / "java", says)
    if by == "JAVA_HOME":
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    else:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", f"{binary.parent}{os.pathsep}{os.environ['PATH']}")
    said = machine.java(1)
    assert said.status == "failed"
    assert found in said.found
    assert str(binary) in said.found
    assert "JAVA_HOME" in said.remedy


# -- packages -------------------------------------------------------------------------------------
def test_pyspark_and_its_client_of_two_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, pyspark_client="4.1.0")
    found = machine.pyspark()
    assert found.status == "failed"
    assert "pyspark 4.2.0, pyspark-client 4.1.0" in found.found
    assert "one version" in found.remedy
    with pytest.raises(VersionsUnsupported, match=r"pyspark 4\.2\.0, pyspark-client 4\.1\.0"):
        child_environment()


@pytest.mark.parametrize(
    ("packages", "look", "wrong"),
    [
        ({"pandas": "3.0.1"}, machine.pandas, "pandas 3.0.1"),
        ({"apache_airflow": "2.11.0"}, machine.airflow, "apache-airflow 2.11.0"),
        ({"apache_airflow_providers_apache_spark": "5.3.0"}, machine.airflow, "apache-spark 5.3.0"),
    ],
    ids=["pandas", "airflow", "provider"],
)
def test_a_package_of_a_wrong_version(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packages: dict[str, str],
    look: Callable[[], Result],
    wrong: str,
) -> None:
    installed(tmp_path, monkeypatch, **packages)
    found = look()
    assert found.status == "failed"
    assert wrong in found.found
    assert found.remedy.startswith("install ")


def test_a_spark_for_which_delta_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    for name in ("spark-core_2.13-4.3.0", "scala-library-2.13.17"):
        (tmp_path / "jars" / f"{name}.jar").touch()
    monkeypatch.setattr("delta_cdc.launch.environment.spark_home", lambda: tmp_path)
    [check] = [one for one in machine.checks(timeout=60) if one.name == "delta-jars"]
    with pytest.raises(VersionsUnsupported, match=r"Spark 4\.3\.0") as caught:
        check.look()
    assert "Spark 4.2.0" in caught.value.remedy
    monkeypatch.setattr("delta_cdc.doctor.machine.spark_home", lambda: tmp_path)
    (tmp_path / "jars" / "spark-core_2.13-4.3.0.jar").unlink()
    assert "no spark-core" in machine.spark().found


def test_a_spark_home_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    found = machine.spark()
    assert found.status == "warning"
    assert str(tmp_path) in found.found
    monkeypatch.setenv("SPARK_HOME", str(spark_home()))
    assert machine.spark().status == "ok"


# -- folders and JARs -----------------------------------------------------------------------------
def test_a_cache_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where a folder should be: so it is for every user, also for root, whom no permission stops."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path / "file" / "home"))
    found = machine.cache_folder()
    assert found.status == "failed"
    assert str(tmp_path / "file" / "home") in found.found
    assert "DELTA_CDC_HOME" in found.remedy


def test_a_folder_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert machine.temporary_folder().status == "ok"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("delta_cdc.doctor.machine._LITTLE_SPACE", 1 << 60)
    assert machine.temporary_folder().status == "warning"


def test_jars_that_are_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same size, other bytes: the manifest, which is what a start looks at, doesn't know."""
    import hashlib

    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path))
    wanted = JarSet("Some JARs", "some-1", {"g:a:1": hashlib.sha256(b"right").hexdigest()})
    assert machine.jars(wanted, is_needed=False).status == "skipped"
    # Looking is all that a doctor does.
    assert machine.archive().status == "skipped"
    assert list(tmp_path.iterdir()) == []
    missing = machine.jars(wanted, is_needed=True)
    assert missing.status == "warning"
    assert "delta-cdc jars" in missing.remedy

    wanted.path.mkdir(parents=True)
    jar = wanted.path / "g_a-1.jar"
    jar.write_bytes(b"right")
    (wanted.path / "manifest.json").write_text(
        json.dumps({jar.name: {"sha256": hashlib.sha256(b"right").hexdigest(), "size": 5}})
    )
    assert machine.jars(wanted, is_needed=True).status == "ok"
    jar.write_bytes(b"wrong")
    assert wanted.is_resolved()
    found = machine.jars(wanted, is_needed=False)
    assert found.status == "failed"
    assert jar.name in found.found
    assert str(wanted.path) in found.remedy


# -- the command ----------------------------------------------------------------------------------
def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:-1]][:3] == ["python", "java", "spark"]
    assert lines[-1].startswith("0 failed, ")

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == "failed"
    assert report["counts"]["failed"] == 1
    (java,) = (check for check in report["checks"] if check["name"] == "java")
    assert java["status"] == "failed"
    assert str(tmp_path) in java["found"]
    assert java["remedy"]
    assert java["seconds"] >= 0


@pytest.mark.parametrize(
    "arguments",
    [
        "--timeout 0",
        "--timeout soon",
        "--remote http://server",
        "--conf spark.x",
        "--storage-options nowhere.json",
    ],
)
def test_wrong_usage(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["doctor", *arguments.split()])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert capsys.readouterr().err


def test_what_is_no_json_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "options.json"
    file.write_text('{"aws_secret_access_key": "hidden" oops')
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--storage-options", str(file)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "is no JSON" in said
    assert "hidden" not in said


def test_an_installation_without_the_jar_of_the_log_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delta_cdc.launch.log_store.FOLDER", tmp_path)
    [check] = [one for one in machine.checks(timeout=60) if one.name == "log-stores"]
    found = check.look()
    assert found.status == "warning"
    assert "lacks the JAR of the log stores" in found.found
    assert "make wheel" in found.remedy
    (tmp_path / "delta-cdc-log-store-0123.jar").touch()
    assert check.look().status == "ok"
