"""What a worker makes of a driver that died: its exit code, and the result that it had written so far."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc.operators import DeltaIngestChangesOperator
from delta_cdc.core.errors import JobFailed, NullKey
from delta_cdc.core.spec import BatchSpec, JobResult
from tests.support.ingest_model import World
from tests.unit.airflow.test_base_operator import Store, small_world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.airflow.conftest import StandIn

__all__ = ["small_world"]

DONE = JobResult("committed")
READING = JobResult("unreached", reading="/data/b.json")
#: What a driver reports that lost its JVM.
LOST = JobResult("failed", error=JobFailed("Py4JError", remedy="retry.").to_dict(), reading="/data/b.json")
NAMED = JobResult("failed", error=NullKey("NULL", remedy="correct it.").to_dict(), reading="")


@pytest.fixture
def spec(tmp_path: Path) -> BatchSpec:
    world = World(tmp_path / "world")
    world.deliver("a.json", ["1"])
    part = world.plan().spec
    assert part is not None
    return BatchSpec(run_id="r", parts=(part, part))


def leaves(*parts: JobResult) -> str:
    """Return a command that writes a result, as the driver does after each part."""
    error = JobFailed("The application ended after 1 of 2 parts.", remedy="retry.")
    finished = all(part.status != "unreached" for part in parts)
    result = JobResult(
        "committed" if finished else "failed", error=None if finished else error.to_dict(), parts=parts
    )
    return f'echo {shlex.quote(result.to_json())} > "$result"'


def ingest() -> DeltaIngestChangesOperator:
    options = {"sequence_by": "id"}
    return DeltaIngestChangesOperator(
        task_id="ingest", source="/data", log="/log", keys=["id"], adapter_options=options
    )


def run(spec: BatchSpec) -> JobResult:
    context: Any = {"task_state_store": Store(), "run_id": "run"}
    return ingest().run_job(context, spec)


_KILLED = "it was killed, probably by the kernel, because the memory"


@pytest.mark.parametrize(
    ("end", "code", "cause", "remedy"),
    [
        ("kill -9 $$", -9, _KILLED, "give the driver more"),
        ("exit 137", 137, _KILLED, "give the driver more"),
        ("exit 52", 52, "Spark ended it after an OutOfMemoryError of Java", "give the driver more"),
        ("exit 134", 134, "the JVM crashed", "see the lines above"),
        ("exit 139", 139, "the JVM crashed", "see the lines above"),
        ("kill -11 $$", -11, "the JVM crashed", "see the lines above"),
        ("exit 3", 3, "", "see the lines above"),
    ],
    ids=["killed", "killed in a shell", "memory", "aborted", "segfault in a shell", "segfault", "unknown"],
)
def test_the_exit_code_names_the_cause(
    stand_in: StandIn, spec: BatchSpec, end: str, code: int, cause: str, remedy: str
) -> None:
    stand_in.does(end)
    with pytest.raises(JobFailed) as caught:
        run(spec)
    why = f" ({cause}" if cause else " and without"
    assert f"ended with exit code {code}{why}" in caught.value.message
    assert caught.value.remedy.startswith(remedy)


def test_parts_without_an_outcome_get_the_error_of_the_death(stand_in: StandIn, spec: BatchSpec) -> None:
    """The last words of a driver without its JVM are no outcome: why, the exit code shows."""
    for left, parts in (((DONE, READING), (DONE, READING)), ((NAMED, LOST), (NAMED, READING))):
        stand_in.does(f"echo java.lang.Boom; {leaves(*left)}; exit 52")
        result = run(spec)
        assert result.parts == parts
        assert result.error is not None
        assert "exit code 52" in result.error["message"]
        assert "java.lang.Boom" in result.error["message"]
    stand_in.does(f"{leaves(DONE, LOST)}; exit 1")
    assert run(spec).parts == (DONE, LOST), "an error that the driver reports stays"


def test_of_a_killed_application_nothing_is_read(stand_in: StandIn, spec: BatchSpec) -> None:
    """What it was reading is not why it ended."""
    task = ingest()
    stand_in.does(f"{leaves(DONE, READING)}; echo 'delta_cdc| ready'; exec sleep 60")

    class Killing:
        """A log that kills the task as soon as its driver says something."""

        def info(self, text: str, *given: Any) -> None:
            if given == ("ready",):
                task.on_kill()

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: None

    context: Any = {"task_state_store": Store(), "run_id": "run"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("airflow_delta_cdc.hooks.submit.DeltaCdcSubmitHook.log", Killing(), raising=False)
        with pytest.raises(JobFailed, match="The Spark application was killed") as caught:
            task.run_job(context, spec)
    assert caught.value.reading is None
