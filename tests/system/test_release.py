"""A release is made of its commit alone: two builds have one hash, and nothing else is in the wheel."""

from __future__ import annotations

import hashlib
import os
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from delta_cdc._version import __version__
from tools import release


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return release.distributions(tmp_path_factory.mktemp("first"))


@pytest.mark.slow
def test_two_builds_have_one_hash(built: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another zone, another locale, other rights of new files and another order of hashes change nothing."""
    variables = {"TZ": "Pacific/Auckland", "LC_ALL": "C", "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = os.umask(0o077)
    try:
        again = release.distributions(tmp_path)
    finally:
        os.umask(before)
    assert [file.name for file in again] == [file.name for file in built]
    for one, other in zip(built, again, strict=True):
        assert hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest(), (
            one.name
        )


@pytest.mark.slow
def test_the_wheel_has_both_packages_and_nothing_of_others(built: list[Path]) -> None:
    archived, wheel = built
    information = f"airflow_provider_delta_cdc-{__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (jar,) = [name for name in names if name.endswith(".jar")]
        metadata = HeaderParser().parsestr(archive.read(f"{information}/METADATA").decode())
        with archive.open(jar) as packed, zipfile.ZipFile(packed) as classes:
            assert {name.rpartition("/")[0] for name in classes.namelist()} == {"delta/cdc"}
    assert {name.partition("/")[0] for name in names} == {"airflow_delta_cdc", "delta_cdc", information}
    assert {"airflow_delta_cdc/py.typed", "delta_cdc/py.typed", f"{information}/licenses/LICENSE"} <= set(
        names
    )
    assert {Path(name).suffix for name in names if not name.startswith(information)} == {
        *(".jar", ".js", ".json", ".properties", ".py", ".sha256", ".svg", ".typed"),
    }
    assert (metadata["Version"], metadata["License-Expression"]) == (__version__, "Apache-2.0")
    with tarfile.open(archived) as source:
        files = {name.partition("/")[2] for name in source.getnames()}
    assert {"CHANGELOG.md", "LICENSE", "pyproject.toml", f"spark_jobs/{jar}", "tests/conftest.py"} <= files
    assert not {name for name in files if name.startswith((".github/", ".ci/", ".venv", ".cache"))}
