"""Which log store a driver commits with: ours by itself, the user's where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delta_cdc.core.commit_safety import (
    CONDITIONAL_STORE,
    LINK_STORE,
    REFUSED_COMMIT,
    refuse_unsafe_confs,
    unsafe_log_store,
)
from delta_cdc.core.errors import StoreUnavailable, UnsafeLogStore
from delta_cdc.launch import log_store
from delta_cdc.spark.named_errors import named

ON_S3 = {f"spark.delta.logStore.{scheme}.impl": CONDITIONAL_STORE for scheme in ("s3a", "s3", "s3n")}
ON_DISKS = {"spark.delta.logStore.file.impl": LINK_STORE}
THEIRS = {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}


@pytest.fixture(autouse=True)
def small_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The JAR is there, no file of defaults, and no warning was logged before."""
    monkeypatch.setattr(log_store, "log_store_jar", lambda: Path("/log-store.jar"))
    monkeypatch.setattr("delta_cdc.core.commit_safety._warned", set())
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


def test_a_driver_gets_ours() -> None:
    assert log_store.log_store_confs({}) == {**ON_S3, **ON_DISKS}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (THEIRS, ON_DISKS),
        ({"spark.delta.logStore.file.impl": "io.delta.storage.HDFSLogStore"}, ON_S3),
        ({"spark.delta.logStore.class": "com.example.Store"}, {}),
    ],
)
def test_a_log_store_of_the_users_own_stays(
    small_world: Path, theirs: dict[str, str], ours: dict[str, str]
) -> None:
    assert log_store.log_store_confs(theirs) == ours
    (small_world / "spark-defaults.conf").write_text("".join(f"{k} {v}\n" for k, v in theirs.items()))
    assert log_store.log_store_confs({}) == ours


def test_without_the_jar_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_store, "log_store_jar", lambda: None)
    assert log_store.log_store_confs({}) == {}


def test_a_store_that_refuses_makes_ours_unsafe() -> None:
    refuse_unsafe_confs(ON_S3, "s3a://lake/t", single_driver=False)
    with pytest.raises(
        UnsafeLogStore, match=r"S3ConditionalLogStore: .* It ignores If-None-Match\."
    ) as caught:
        refuse_unsafe_confs(ON_S3, "s3a://lake/t", single_driver=False, refusal="It ignores If-None-Match.")
    assert "S3DynamoDBLogStore" in caught.value.remedy
    refuse_unsafe_confs(ON_S3, "s3a://lake/t", single_driver=True, refusal="It ignores If-None-Match.")


@pytest.mark.parametrize("uri", ["/lake/t", "file:/lake/t", "file:///lake/t"])
def test_on_a_disk_deltas_own_is_warned_of_once(uri: str, caplog: Any) -> None:
    """One driver on a disk is how everybody begins."""
    refuse_unsafe_confs(ON_DISKS, uri, single_driver=False)
    refuse_unsafe_confs({}, uri, single_driver=True)
    assert caplog.messages == []
    for _ in range(2):
        refuse_unsafe_confs(ON_S3, uri, single_driver=False)
    (message,) = caplog.messages
    for word in (uri, "HDFSLogStore", "spark.delta.logStore.file.impl", LINK_STORE, "delta-cdc jars"):
        assert word in message


def test_a_disk_without_hard_links_has_a_named_error() -> None:
    """The log store says it when it commits: no look at the disk before costs time."""
    raised = Exception(f"java.io.IOException: Not committed, because {REFUSED_COMMIT}: /t took no hard link.")
    error = named(raised, "/lake/t")
    assert isinstance(error, UnsafeLogStore)
    assert "took no hard link" in error.message
    assert "single_driver" in error.remedy


def test_elsewhere_the_storage_itself_refuses_a_second_version() -> None:
    for uri in ("gs://b/t", "abfss://c@a.dfs.core.windows.net/t", "hdfs://nn/t", "hdfs:/t"):
        assert unsafe_log_store({}, uri) is None


def test_a_disk_without_rights() -> None:
    error = Exception("java.io.FileNotFoundException: /lake/t/part-0.parquet (Permission denied)")
    found = named(error, "/lake/s, versions 1-2, into /lake/t")
    assert isinstance(found, StoreUnavailable)
    assert "the right to read and write" in found.remedy
