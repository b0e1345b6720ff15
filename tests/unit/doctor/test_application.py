"""The application that the doctor starts: what it needs, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.doctor import Questions
from delta_cdc.doctor.application import FEED_OF_NEW_TABLES, READING, Spark, _reason
from delta_cdc.doctor.probe import _delta
from delta_cdc.doctor.report import examined
from tests.support.processes import ends

if TYPE_CHECKING:
    from pathlib import Path

_STALE, _SKIPPING = READING


def test_nothing_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path / "home"))
    asked = Questions(storage="s3://lake/tmp")
    found = {check.name: check.look() for check in asked.checks_of_spark("local[1]")}
    assert found["master-job"].status == "skipped"
    assert "the Delta JARs and the JARs of Hadoop's file system for S3" in found["master-job"].found
    assert not (tmp_path / "home").exists()


def test_whoever_loses_patience_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Neither the application, which waits for a cluster, nor its folder with the secrets of the storage."""
    # A shell starts what it runs in the background with SIGINT ignored.
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    told, temporary = tmp_path / "told", tmp_path / "tmp"
    temporary.mkdir()
    submit = tmp_path / "spark-submit"
    # Who reads it waits until something is written.
    os.mkfifo(told)
    submit.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {told}\nwait\n")
    submit.chmod(0o700)
    monkeypatch.setattr("delta_cdc.doctor.application.submit_binary", lambda: submit)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    asked = Questions(confs={"spark.jars": "/mine.jar"})
    address, job, *_ = asked.checks_of_spark("local[1]")
    assert address.look().status == "skipped"

    started: list[int] = []

    def interrupt() -> None:
        started.append(int(told.read_text()))
        # As the terminal does it.
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        list(examined([job], timeout=60, secrets=asked.secrets))
    assert ends(*started)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "status"), [("true", "ok"), ("false", "warning"), ("", "warning"), (None, "skipped")]
)
def test_whether_new_tables_record_their_changes(value: str | None, status: str) -> None:
    spark = Spark("local[1]", folder=None, storage_options=None, confs={}, timeout=60)
    spark._feed = value
    (check,) = (one for one in spark.checks() if one.name == "master-defaults")
    result = check.look()
    assert result.status == status
    if value is not None:
        assert f"{FEED_OF_NEW_TABLES} is {value or 'not set'}" in result.found
    assert ("DeltaEnableChangeDataFeedOperator" in result.remedy) == (status == "warning")


@pytest.mark.parametrize(
    ("confs", "status", "problems"),
    [
        (None, "skipped", ()),
        ({}, "ok", ()),
        ({_STALE: "0", _SKIPPING: "true"}, "ok", ()),
        ({_STALE: "0ms", _SKIPPING: ""}, "ok", ()),
        ({_STALE: "1h"}, "warning", (f"{_STALE} is 1h: a session may read",)),
        (
            {_STALE: "10s", _SKIPPING: "False"},
            "warning",
            (f"{_STALE} is 10s: ", f"{_SKIPPING} is False: each MERGE reads every file"),
        ),
    ],
)
def test_how_tables_are_read(confs: dict[str, str] | None, status: str, problems: tuple[str, ...]) -> None:
    spark = Spark("local[1]", folder=None, storage_options=None, confs={}, timeout=60)
    spark._confs_of_reading = confs
    (check,) = (one for one in spark.checks() if one.name == "master-confs")
    result = check.look()
    assert result.status == status
    assert [one for one in problems if one not in result.found] == []
    assert bool(result.remedy) == bool(problems)


def test_python_on_the_executors() -> None:
    spark = Spark("local[1]", folder=None, storage_options=None, confs={}, timeout=60)
    assert spark._python().status == "skipped"
    spark._versions = {"python": "3.12.1", "pyarrow": "20.0.0"}
    assert spark._python().found == "executors have Python 3.12.1 with pyarrow 20.0.0"
    text = (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call "
        "last):\n  File \"/x.py\", line 1, in f\nModuleNotFoundError: No module named 'pyarrow'\n"
    )
    spark._versions = {"name": "PythonException", "error": text}
    result = spark._python()
    assert result.status == "warning"
    assert result.found.endswith("the Python worker: ModuleNotFoundError: No module named 'pyarrow'")
    assert "spark.pyspark.python" in result.remedy


@pytest.mark.parametrize("java", [True, False])
def test_the_probe_of_a_spark_that_refuses_java(java: bool) -> None:
    """It does not tell the version of its Delta, which is no failure; a class that is missing is one."""

    class Refusing:
        def sql(self, query: str) -> Refusing:
            if query == "delta" or not java:
                raise ValueError(query)
            return self

        def collect(self) -> None:
            """Every JVM answers."""

    spark: Any = Refusing()
    if not java:
        assert _delta(spark, {"delta": "delta", "java": "java"}) is None
        return
    with pytest.raises(ValueError, match="delta"):
        _delta(spark, {"delta": "delta", "java": "java"})


def test_what_an_application_raised_is_told_in_full() -> None:
    """Without the trace of Java, of which the answer holds all."""
    text = "An error occurred while calling o1.\n: a.B: no\nway\n\tat a.B.c(B:1)\nCaused by: c.D: none\n"
    assert _reason({"error": ["Py4JJavaError", text]}) == "B: no way Caused by: D: none"
