"""Which log store a driver commits with on S3: ours by itself, the user's where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from delta_cdc.core.commit_safety import CONDITIONAL_STORE, refuse_unsafe_confs
from delta_cdc.core.errors import UnsafeLogStore
from delta_cdc.launch import log_store

OURS = {f"spark.delta.logStore.{scheme}.impl": CONDITIONAL_STORE for scheme in ("s3a", "s3", "s3n")}
THEIRS = {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}


@pytest.fixture(autouse=True)
def small_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The JAR is there, and no file of defaults."""
    monkeypatch.setattr(log_store, "log_store_jar", lambda: Path("/log-store.jar"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


def test_a_driver_with_locations_on_s3_gets_ours() -> None:
    assert log_store.log_store_confs(["/local", "s3://lake/t"], {}) == OURS
    assert log_store.log_store_confs(["/local", "gs://lake/t"], {}) == {}


def test_a_log_store_of_the_users_own_stays(small_world: Path) -> None:
    for theirs in (THEIRS, {"spark.delta.logStore.class": "com.example.Store"}):
        assert log_store.log_store_confs(["s3://lake/t"], theirs) == {}
        file = small_world / "spark-defaults.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in theirs.items()))
        assert log_store.log_store_confs(["s3://lake/t"], {}) == {}
        file.unlink()


def test_without_the_jar_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_store, "log_store_jar", lambda: None)
    assert log_store.log_store_confs(["s3://lake/t"], {}) == {}


def test_a_store_that_refuses_makes_ours_unsafe() -> None:
    refuse_unsafe_confs(OURS, "s3a://lake/t", single_driver=False)
    with pytest.raises(
        UnsafeLogStore, match=r"S3ConditionalLogStore: .* It ignores If-None-Match\."
    ) as caught:
        refuse_unsafe_confs(OURS, "s3a://lake/t", single_driver=False, refusal="It ignores If-None-Match.")
    assert "S3DynamoDBLogStore" in caught.value.remedy
    refuse_unsafe_confs(OURS, "s3a://lake/t", single_driver=True, refusal="It ignores If-None-Match.")
