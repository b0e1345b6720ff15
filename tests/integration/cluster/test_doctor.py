"""The doctor at a real Spark Connect server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.doctor import Questions, examined
from tests.support.connect_server import connect_server

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from delta_cdc.doctor import Entry

_TIMEOUT = 180.0


def looked(asked: Questions, url: str) -> dict[str, Entry]:
    found = examined(asked.checks_of_spark(url), timeout=asked.timeout, hide=asked.hide)
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
        assert list((tmp_path / "lake").iterdir()) == [], "nothing is left behind"

        monkeypatch.setattr("delta_cdc.doctor.application.spark_version", lambda _: "4.1.0")
        other = looked(Questions(timeout=_TIMEOUT), url)["connect-job"]
    assert other.status == "failed"
    assert "this machine has 4.1.0" in other.found
    assert "one version" in other.remedy


def test_a_server_without_delta(tmp_path: Path) -> None:
    with connect_server(made(tmp_path / "server"), delta=False) as server:
        bare = looked(Questions(timeout=_TIMEOUT), server.url)["connect-job"]
    assert bare.status == "failed"
    assert "without Delta's extension" in bare.found
    assert "JARs" in bare.remedy
