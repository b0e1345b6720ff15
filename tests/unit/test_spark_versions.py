"""Which pairs of Spark and Delta are known, and what names those that are not."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from delta_cdc.core.errors import VersionsUnsupported
from delta_cdc.core.spark_versions import (
    KAFKA,
    PAIRS,
    S3,
    Pair,
    pair_of,
    pair_of_a_server,
    release,
    version_with_jars,
)
from delta_cdc.launch.environment import pyspark_versions

_PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_pair_is_found_by_its_own_versions(pair: Pair) -> None:
    assert pair_of(pair.spark, pair.delta) is pair


@pytest.mark.parametrize(
    ("spark", "delta", "tested"),
    [("4.2.9", "4.4.0", "4.2.0"), ("4.1.1-amzn-0", "4.2.0-amzn-0", "4.1.1"), ("4.0.1", "4.0.1", "4.0.4")],
)
def test_other_patches_and_vendors_of_a_line(spark: str, delta: str, tested: str) -> None:
    assert pair_of(spark, delta).spark == tested


@pytest.mark.parametrize(
    ("spark", "delta"),
    [
        ("4.3.0", "4.4.0"),
        ("4.2.0", "4.2.0"),
        ("4.2.0", "4.4.1"),
        ("4.0.2-amzn-0", "4.0.0-amzn-1-spark"),
        ("4.1.3", "4.2.0"),
        ("4.0.0", "4.4.0"),
        ("3.5.8", "4.0.1"),
    ],
)
def test_other_pairs_are_refused_with_those_that_work(spark: str, delta: str) -> None:
    with pytest.raises(VersionsUnsupported, match=f"Spark {spark} with Delta {delta}") as caught:
        pair_of(spark, delta)
    for pair in PAIRS:
        assert str(pair) in caught.value.remedy


@pytest.mark.parametrize(
    ("spark", "delta", "tested"),
    [("4.2.1", "4.4.1", "4.4.0"), ("4.0.4", "4.0.2", "4.0.1"), ("4.1.1", "4.2.3", "4.2.0")],
)
def test_a_newer_patch_of_delta_on_a_server_runs_with_a_warning(spark: str, delta: str, tested: str) -> None:
    pair, untested = pair_of_a_server(spark, delta)
    assert pair.delta == tested
    assert untested == f"Delta {delta} is newer than this release, which was tested with {tested}"
    with pytest.raises(VersionsUnsupported, match="which does not know its JARs"):
        pair_of(spark, delta)


@pytest.mark.parametrize(("spark", "delta"), [("4.3.0", "4.4.1"), ("4.2.0", "4.5.0"), ("4.2.0", "4.3.9")])
def test_other_releases_on_a_server_are_refused(spark: str, delta: str) -> None:
    assert pair_of_a_server("4.2.0", "4.4.0") == (PAIRS[0], "")
    with pytest.raises(VersionsUnsupported, match=f"Spark {spark} with Delta {delta}"):
        pair_of_a_server(spark, delta)


def test_a_newer_patch_gets_the_jars_of_the_one_before(caplog: pytest.LogCaptureFixture) -> None:
    assert version_with_jars("4.1.2", KAFKA, "connector", "pyspark") == "4.1.1"
    assert "pyspark 4.1.2 is newer than this release: it gets the connector of 4.1.1" in caplog.text
    caplog.clear()
    assert version_with_jars("4.1.9", KAFKA, "connector", "pyspark") == "4.1.3"
    assert version_with_jars("3.4.3", S3, "file system", "Hadoop") == "3.4.2"
    caplog.clear()
    assert version_with_jars("4.1.3", KAFKA, "connector", "pyspark") == "4.1.3"
    assert not caplog.text
    for version in ("4.0.1", "4.3.0", "3.5.8"):
        with pytest.raises(VersionsUnsupported, match=rf"connector for pyspark {version} are not known"):
            version_with_jars(version, KAFKA, "connector", "pyspark")


def test_extras_install_the_newest_pair_of_each_line() -> None:
    lines = {release(pair.spark): pair for pair in reversed(PAIRS)}
    for line, pair in lines.items():
        extra = _PROJECT["optional-dependencies"][f"spark{line.replace('.', '')}"]
        assert extra[:2] == [f"pyspark=={pair.spark}", f"pyspark-client=={pair.spark}"]
    needed = [one for one in _PROJECT["dependencies"] if one.startswith(("pyspark", "delta-spark"))]
    newest = PAIRS[0]
    assert [one.partition("<=")[2] for one in needed[:2]] == [newest.spark, newest.spark]
    assert needed[2].partition("<=")[2].startswith(f"{newest.delta},")


def test_what_shares_the_folder_of_pyspark(tmp_path: Path) -> None:
    (tmp_path / "version.py").write_text("__version__: str = '4.2.0'\n")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.1.3.jar").touch()
    found = pyspark_versions(tmp_path)
    assert found["code"] == "4.2.0"
    assert found["JARs"] == "4.1.3"
    assert list(found) == ["pyspark", "pyspark-client", "code", "JARs"]
    assert "JARs" not in pyspark_versions(tmp_path / "of-the-client-alone")
