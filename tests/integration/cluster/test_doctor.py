"""The doctor at a real Spark Connect server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.spark_versions import PAIRS
from delta_cdc.doctor import Questions, examined
from delta_cdc.launch.jars import installed_delta
from delta_cdc.launch.session import CLASS_PATH
from tests.support.connect_server import connect_server

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.doctor import Result

pytestmark = pytest.mark.slow

_TIMEOUT = 180.0


def looked(asked: Questions, url: str) -> dict[str, Result]:
    found = examined(asked.checks_of_spark(url), timeout=asked.timeout, secrets=asked.secrets)
    return {entry.name: entry for entry in found}


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake").mkdir()
    asked = Questions(storage=str(tmp_path / "lake"), timeout=_TIMEOUT)
    with connect_server(made(tmp_path / "server")) as server:
        url = f"{server.url}/;user_id=of-the-doctor"
        found = looked(asked, url)
        assert found["connect-address"].status == "ok"
        assert found["connect-job"].status == "ok", found["connect-job"]
        assert "a MERGE into a Delta table ran" in found["connect-job"].found
        assert f"Delta {installed_delta()}" in found["connect-job"].found
        assert list((tmp_path / "lake").iterdir()) == [], "nothing is left behind"

        with monkeypatch.context() as other_pairs:
            other_pairs.setattr("delta_cdc.core.spark_versions.PAIRS", PAIRS[1:])
            other = looked(Questions(timeout=_TIMEOUT), url)["connect-job"]
        assert other.status == "failed"
        assert f"Delta {installed_delta()}, which is no pair" in other.found
        assert f"{PAIRS[1]}" in other.remedy

        monkeypatch.setattr("delta_cdc.doctor.application.spark_version", lambda _: "4.1.0")
        other = looked(Questions(timeout=_TIMEOUT), url)["connect-job"]
    assert other.status == "failed"
    assert "this machine has 4.1.0" in other.found
    assert "one version" in other.remedy


@pytest.mark.parametrize("delta", [False, True])
def test_a_server_without_delta(tmp_path: Path, delta: bool) -> None:
    """Or with nothing of it but the name of its extension, of whose absence Spark only warns."""
    confs = {CLASS_PATH: str(tmp_path), "spark.sql.catalog.spark_catalog": "builtin"} if delta else {}
    with connect_server(made(tmp_path / "server"), delta=delta, **confs) as server:
        bare = looked(Questions(timeout=_TIMEOUT), server.url)["connect-job"]
    assert bare.status == "failed"
    assert ("the step 'delta' failed" if delta else "without Delta's extension") in bare.found
    assert "JARs" in bare.remedy
