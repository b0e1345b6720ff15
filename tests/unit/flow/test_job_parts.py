"""The parts of a batch: what each reads is known; files are read alone when nothing else is read."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from delta_cdc import job
from delta_cdc.core.errors import JobFailed
from delta_cdc.core.spec import BatchSpec, EnableSpec, IngestSpec, JobResult
from tests.support.ingest_model import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Spark:
    """A session that is never asked for anything but its id."""

    class conf:  # noqa: N801 - as Spark names it
        @staticmethod
        def get(name: str, default: str) -> str:
            return "app-1"


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, IngestSpec]:
    found = {}
    for name in ("one", "two", "three", "four"):
        world = World(tmp_path / name, pipeline=name)
        world.deliver("a.json", ["1"])
        spec = world.plan().spec
        assert spec is not None
        found[name] = spec
    return found


def run(
    parts: list[IngestSpec],
    ingest: Callable[..., JobResult],
    monkeypatch: pytest.MonkeyPatch,
    note: Callable[[JobResult], object],
    parallel: int = 1,
) -> JobResult:
    monkeypatch.setattr("delta_cdc.spark.ingest.engine.run", ingest)
    batch = BatchSpec(run_id="r", parts=tuple(parts), parallel=parallel)
    return job.run(cast("Any", Spark()), batch, part_reads=note)


def test_what_each_part_reads(parts: dict[str, IngestSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[tuple[str, str | None]]] = []

    def ingest(
        spark: Any, spec: IngestSpec, kafka: Any, after: Any, reads: Callable[[str], None]
    ) -> JobResult:
        reads("/x/a.json")
        reads("")
        if spec.pipeline == "two":
            raise JobFailed("memory", remedy="more.")
        return JobResult("committed")

    result = run(
        [parts["one"], parts["two"], parts["three"]],
        ingest,
        monkeypatch,
        lambda so_far: seen.append([(part.status, part.reading) for part in so_far.parts]),
    )
    new = ("unreached", None)
    assert seen == [
        [("unreached", "/x/a.json"), new, new],
        [("unreached", ""), new, new],
        [("committed", None), ("unreached", "/x/a.json"), new],
        [("committed", None), ("unreached", ""), new],
        [("committed", None), ("failed", ""), ("unreached", "/x/a.json")],
        [("committed", None), ("failed", ""), ("unreached", "")],
    ]
    # A part that failed says what it read; the others need not.
    assert [(part.status, part.reading) for part in result.parts] == [
        ("committed", None),
        ("failed", ""),
        ("committed", None),
    ]


def test_the_log_counts_the_tables(
    parts: dict[str, IngestSpec], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    with caplog.at_level("INFO", logger="delta_cdc"):
        run([parts["one"], parts["two"]], lambda *_: JobResult("committed"), monkeypatch, lambda so_far: None)
    assert [line for line in caplog.messages if " of 2" in line] == ["one: table 1 of 2", "two: table 2 of 2"]


def test_files_are_read_alone_after_all_else(
    parts: dict[str, IngestSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def ingest(spark: Any, spec: IngestSpec, *_: Any) -> JobResult:
        done.append(spec.pipeline)
        return JobResult("committed")

    batch = [replace(parts["one"], reads_alone=True), parts["two"], parts["three"]]
    run(batch, ingest, monkeypatch, lambda so_far: None)
    assert done == ["two", "three", "one"]


def test_files_are_read_alone_when_nothing_else_is(
    parts: dict[str, IngestSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most = 0, {True: 0, False: 0}
    done: list[str] = []
    lock, both = threading.Lock(), threading.Barrier(2)

    def ingest(
        spark: Any, spec: IngestSpec, kafka: Any, after: Any, reads: Callable[[str], None]
    ) -> JobResult:
        nonlocal running
        with lock:
            running += 1
        if not spec.reads_alone:
            # The two other parts run at once.
            both.wait(timeout=30)
        with lock:
            most[spec.reads_alone] = max(most[spec.reads_alone], running)
        if not spec.reads_alone:
            both.wait(timeout=30)
        with lock:
            running -= 1
            done.append(spec.pipeline)
        return JobResult("committed")

    alone = [replace(parts[name], reads_alone=True) for name in ("one", "three")]
    batch = [alone[0], parts["two"], alone[1], parts["four"]]
    result = run(batch, ingest, monkeypatch, lambda so_far: None, parallel=4)
    assert len(result.parts) == 4
    assert {part.status for part in result.parts} == {"committed"}
    assert most == {True: 1, False: 2}
    assert set(done[:2]) == {"two", "four"}
    assert done[2:] == ["one", "three"]


def test_a_timeout_of_the_task_waits_for_no_part() -> None:
    """Over Spark Connect, the parts run in threads of the worker."""
    began, release, ended = threading.Barrier(3, timeout=30), threading.Event(), list[int]()

    class TimesOut(BaseException):
        pass

    def timed_out(*_: Any) -> None:
        # In the main thread, once two parts run.
        began.wait()
        raise TimesOut

    def run_one(*_: Any) -> JobResult:
        began.wait()
        release.wait(5)
        ended.append(1)
        return JobResult("committed")

    part = EnableSpec(run_id="r", tables=("/t",), properties={})
    batch = BatchSpec(run_id="r", parts=(part,) * 4, parallel=2)
    previous = signal.signal(signal.SIGALRM, timed_out)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(TimesOut):
            job._run_parts(batch, run_one, None, None)
        assert ended == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        release.set()
