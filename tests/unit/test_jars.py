"""The cache of the JARs, and what is said when it cannot be filled."""

from __future__ import annotations

import json
import os
import pwd
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli import main
from delta_cdc.core.errors import EnvironmentNotReady, VersionsUnsupported
from delta_cdc.core.spark_versions import KAFKA, PAIRS, S3
from delta_cdc.doctor import machine
from delta_cdc.launch import environment, jars

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder, on a machine without Java."""
    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(jars, "log_store_jar", lambda: LOG_STORE)
    return tmp_path / "home"


HASHES = jars.delta_jars().hashes
LOG_STORE = Path("/log-store.jar")


def fill(home: Path, wanted: jars.JarSet | None = None) -> Path:
    wanted = wanted or jars.delta_jars()
    folder = home / "jars" / wanted.folder
    folder.mkdir(parents=True)
    for name in wanted.hashes:
        (folder / name).write_bytes(b"jar")
    manifest = {name: {"sha256": sha256, "size": 3} for name, sha256 in wanted.hashes.items()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_full_cache_needs_neither_java_nor_network(home: Path) -> None:
    folder = fill(home)
    assert jars.needed() == (LOG_STORE, *(folder / name for name in sorted(HASHES)))
    assert jars.class_path().count(os.pathsep) == 7


def test_more_jars_are_resolved_only_where_they_are_needed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home)
    ours = jars.needed()
    assert jars.needed(["/local", "gs://bucket/t", "abfss://c@a.dfs.core.windows.net/t", "/s3:/t"]) == ours
    for uri in ("s3://lake/t", "s3a://lake/t", "S3N://lake/t"):
        with pytest.raises(EnvironmentNotReady, match="Java is missing"):
            jars.needed(["/local", uri])
    with pytest.raises(EnvironmentNotReady, match="Java is missing"):
        jars.class_path(kafka=True)
    for wanted, found in (
        (jars.s3_jars(), lambda: os.pathsep.join(map(str, jars.needed(["/local", "s3://lake/t"])))),
        (jars.kafka_jars(), lambda: jars.class_path(kafka=True)),
    ):
        folder = fill(home, wanted)
        added = found().split(os.pathsep)[len(ours) :]
        assert added == [str(folder / name) for name in sorted(wanted.hashes)]
    # An installation without it uses Delta's own log store.
    monkeypatch.setattr(jars, "log_store_jar", lambda: None)
    assert LOG_STORE not in jars.needed()


def test_the_coordinates_are_those_of_delta_spark() -> None:
    from delta.pip_utils import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    builder = configure_spark_with_delta_pip(SparkSession.Builder())
    assert builder._options["spark.jars.packages"] in jars.delta_jars().by_coordinates


def spark_of(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Put a Spark with these JARs in the place of the installed one."""
    (folder / "jars").mkdir(parents=True)
    for name in names:
        (folder / "jars" / f"{name}.jar").touch()
    monkeypatch.setattr(jars, "spark_home", lambda: folder)
    monkeypatch.setattr(environment, "spark_home", lambda: folder)


def test_a_spark_without_known_jars_names_the_pairs_that_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("spark-core_2.13-4.3.1", "scala-library-2.13.18", "hadoop-client-api-3.6.0")
    spark_of(tmp_path / "newer", monkeypatch, *names)
    cases = (
        (jars.delta_jars, "Spark 4.3.1 with Delta 4.4.0", "Spark 4.1.3 with Delta 4.4.0"),
        (jars.kafka_jars, "4.3.1", "4.2.0"),
        (jars.s3_jars, "3.6.0", "3.5.0"),
    )
    for one, found, works in cases:
        with pytest.raises(VersionsUnsupported, match=found) as caught:
            one()
        assert works in caught.value.remedy


def test_a_patch_release_of_spark_gets_the_jars_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = jars.delta_jars(), jars.kafka_jars()
    spark_of(tmp_path / "patch", monkeypatch, "spark-core_2.13-4.2.9")
    assert (jars.delta_jars(), jars.kafka_jars()) == before


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_of(tmp_path / "damaged", monkeypatch)
    with pytest.raises(EnvironmentNotReady, match="no JAR spark-core"):
        jars.delta_jars()

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(jars, "version", missing)
    with pytest.raises(EnvironmentNotReady, match="delta-spark is not installed") as caught:
        jars.delta_jars()
    assert "Spark 4.2.0 with Delta 4.4.0" in caught.value.remedy


def test_every_line_of_spark_has_its_own_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are there with their hashes, each set in a folder of its own, with the JAR that is built for it."""
    folders = set()
    for number, pair in enumerate(PAIRS):
        names = (f"spark-core_2.13-{pair.spark}", "hadoop-client-api-3.5.0")
        with monkeypatch.context() as patch:
            spark_of(tmp_path / str(number), patch, *names)
            patch.setattr(jars, "version", {"delta-spark": pair.delta}.__getitem__)
            made = jars.delta_jars()
            assert made.hashes.keys() == {jars._file_name(name) for name in pair.jars}
            assert jars.kafka_jars().hashes.keys() == {jars._file_name(name) for name in KAFKA[pair.spark]}
        folders.add(made.folder)
    assert len(folders) == len(PAIRS)


def test_every_hash_is_of_a_jar_that_a_line_needs() -> None:
    listed = [line.split()[1] for line in jars._HASHES.read_text().splitlines()]
    wanted = [*(pair.jars for pair in PAIRS), *KAFKA.values(), *S3.values()]
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == {name for coordinates in wanted for name in jars._hashes(coordinates)}
    for coordinates in wanted:
        assert all(jars._hashes([one]) for one in coordinates), coordinates


@pytest.mark.parametrize(
    "damage",
    [
        lambda jar, manifest: jar.unlink(),
        lambda jar, manifest: jar.write_bytes(b""),
        lambda jar, manifest: manifest.write_text("{"),
        lambda jar, manifest: manifest.write_text(manifest.read_text().replace(HASHES[jar.name], "0" * 64)),
    ],
    ids=["missing", "short", "manifest", "foreign"],
)
def test_a_damaged_cache_is_not_trusted(home: Path, damage: Callable[[Path, Path], object]) -> None:
    folder = fill(home)
    damage(folder / min(HASHES), folder / "manifest.json")
    assert not jars.delta_jars().is_resolved()
    with pytest.raises(EnvironmentNotReady, match="Java is missing"):
        jars.needed()


def test_the_home_variable_wins_over_the_cache_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DELTA_CDC_HOME", raising=False)
    assert jars.cache_home() == tmp_path / "airflow-provider-delta-cdc"
    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path / "own"))
    assert jars.cache_home() == tmp_path / "own"


@pytest.mark.parametrize("variable", [None, "~/cache"])
def test_a_user_without_a_home_is_named(monkeypatch: pytest.MonkeyPatch, variable: str | None) -> None:
    """OpenShift runs containers with user ids that no file names."""
    for name in ("HOME", "XDG_CACHE_HOME", "DELTA_CDC_HOME"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv("DELTA_CDC_HOME", variable)

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(EnvironmentNotReady, match="has no home"):
        jars.cache_home()


def test_the_command_also_keeps_the_engine(home: Path, capfd: Any) -> None:
    """So an image needs no write access to its cache later."""
    folder = fill(home)
    assert main(["jars"]) == 0
    (engine,) = (home / "engine").iterdir()
    assert engine.stat().st_mode & 0o777 == 0o644
    assert str(folder) in capfd.readouterr().out
    engine.unlink()
    (home / "engine").rmdir()
    (home / "engine").touch()
    assert main(["jars"]) == 0, "the JARs are there all the same"


def resolver(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program of our own in the place of ``java``."""
    monkeypatch.setattr(jars, "require_java", lambda: 17)
    binary = folder / "java"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    monkeypatch.setattr(jars, "java_binary", lambda: binary)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'Exception: [unresolved dependency]' >&2; echo bye >&2; exit 1", "unresolved dependency"),
        ("exit 0", "gave no io.delta_delta-kernel-api"),
        (
            'for a in "$@"; do d=${a%/*}; done; /bin/mkdir -p $d; '
            + "; ".join(f"echo bad > $d/{name}" for name in HASHES),
            "not the published file",
        ),
    ],
    ids=["fails", "gives nothing", "gives other bytes"],
)
def test_a_failed_resolution_names_the_remedy_and_leaves_no_jar(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    resolver(tmp_path, monkeypatch, script)
    with pytest.raises(EnvironmentNotReady, match=said) as caught:
        jars.needed()
    assert "DELTA_CDC_IVY_SETTINGS" in caught.value.remedy
    assert [path for path in home.rglob("*") if path.is_file()] == []


def test_java_version() -> None:
    texts = ('openjdk version "17.0.2" 2022', 'java version "1.8.0_301"', '"25" x version "25"', "")
    assert [environment.parse_java_version(text) for text in texts] == [17, 8, 25, None]


@pytest.mark.parametrize(
    ("script", "said"), [("echo 'openjdk version \"11.0.1\"' >&2", "Java 11"), ("exit 1", "names no version")]
)
def test_an_unusable_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentNotReady, match="JAVA_HOME"):
        environment.require_java()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    with pytest.raises(EnvironmentNotReady, match=said):
        environment.require_java()


def test_an_option_that_java_does_not_know_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installing another Java would not help."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:Bogus")
    monkeypatch.setattr(environment, "_java_version", environment._java_version.__wrapped__)
    with pytest.raises(EnvironmentNotReady, match="Unrecognized VM option 'Bogus'") as caught:
        environment.require_java()
    assert caught.value.remedy == "correct the Java options in JAVA_TOOL_OPTIONS."
    found = machine.java(60)
    assert ("Unrecognized VM option 'Bogus'" in found.found, found.remedy) == (True, caught.value.remedy)
