"""The operators over a real Spark Connect server: what they leave is what an embedded Spark leaves."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from delta_cdc.api import apply_changes
from tests.integration.cluster.test_standalone import PIPELINES, append, context, grow, operator, rows, state
from tests.support.engine import actions, newest_seal, versions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.connect_server import ConnectServer

    Connect = Callable[..., str]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SEAL_CONFS = ("txnAppId", "txnVersion")


def made(folder: Path, name: str = "source") -> Path:
    append(folder / name, [(1, "a"), (2, "b"), (3, "c")], feed=True)
    return folder / name


def remote(connection: str, source: Path, target: Path, pipeline: str = "current", **more: Any) -> Any:
    return operator(connection, "current", source, target, conf={}, **{"pipeline": pipeline, **more})


def held(table: Path) -> list[tuple[int, str]]:
    """Return the rows of a type 1 target, without Spark."""
    from deltalake import DeltaTable

    found = DeltaTable(str(table)).to_pyarrow_table() if not _has_vectors(table) else None
    assert found is not None, "the tables of these tests have no deletion vectors"
    return sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


def _has_vectors(table: Path) -> bool:
    return any(
        "deletionVector" in action["add"] and action["add"]["deletionVector"]
        for version in versions(str(table))
        for action in actions(str(table), version)
        if "add" in action
    )


def sessions_of(server: ConnectServer) -> int:
    """Return how many sessions the server has, by its own word."""
    port = server.confs["spark.ui.port"]
    page = urlopen(f"http://127.0.0.1:{port}/connect/").read().decode()
    found = re.search(r"([\d,]+)\s+session\(s\)\s+are online", page)
    assert found, page
    return int(found[1])


# -- the same as embedded ---------------------------------------------------------------------------
@pytest.mark.parametrize("pipeline", list(PIPELINES))
def test_a_target_is_the_same_as_embedded(
    spark: SparkSession, server: ConnectServer, connected: Connect, tmp_path: Path, pipeline: str
) -> None:
    kind = PIPELINES[pipeline].get("source_kind", "change_feed")
    source, embedded, served = (tmp_path / name for name in ("source", "embedded", "served"))
    append(source, [(1, "a"), (2, "b"), (3, "c")], feed=kind == "change_feed")
    apply_changes(spark, str(source), str(embedded), pipeline=pipeline, **PIPELINES[pipeline])
    shutil.copytree(embedded, served)
    grow(source, kind)
    apply_changes(spark, str(source), str(embedded), pipeline=pipeline, **PIPELINES[pipeline])
    published = operator(connected(), pipeline, source, served, conf={}).execute(context())
    assert published["applied"] is True
    assert rows(spark, served) == rows(spark, embedded)
    assert state(newest_seal(str(served))) == state(newest_seal(str(embedded)))
    assert versions(str(served)) == versions(str(embedded))
    assert not list((tmp_path / "results").rglob("*.json")), "the lists of files are deleted afterwards"
    assert sessions_of(server) == 0
