"""What a driver writes while it works."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import __main__ as driver
from delta_cdc.core import spec as specs
from delta_cdc.core.spec import BatchSpec, JobResult, ResolveSpec

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("is_local", [True, False])
def test_what_is_read_is_only_written_to_a_local_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_local: bool
) -> None:
    """To write a folder on a store takes Spark seconds, for each file."""
    text = specs.to_json(BatchSpec(run_id="r", parts=()))
    (tmp_path / "spec.json").write_text(text)
    reading = JobResult("committed", parts=(JobResult("unreached", reading="/data/a.json"),))

    def run(session: Any, work: Any, *, part_done: Any, part_reads: Any) -> JobResult:
        part_done(reading)
        if part_reads is not None:
            part_reads(reading)
        return JobResult("committed")

    written: list[JobResult] = []
    monkeypatch.setattr(driver.job, "run", run)
    given: Any = SimpleNamespace(session=None)
    found = driver._run(
        given, str(tmp_path / "spec.json"), specs.sha256(text), written.append, is_local=is_local
    )
    assert found == JobResult("committed")
    assert len(written) == 1 + is_local
    for one in written:
        assert (one.status, one.parts) == ("failed", reading.parts)


def test_a_local_path_is_no_folder_on_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = specs.to_json(ResolveSpec(run_id="r", tables=()))
    (tmp_path / "spec.json").write_text(text)
    seen: list[bool] = []

    def run(*given: Any, is_local: bool) -> JobResult:
        seen.append(is_local)
        return JobResult("committed")

    monkeypatch.setattr(driver, "_run", run)
    monkeypatch.setattr(driver, "write_result", lambda *given: None)
    monkeypatch.setattr(driver._Driver, "session", None)
    for result in (str(tmp_path / "result.json"), "s3a://bucket/result"):
        arguments = [
            "--spec",
            str(tmp_path / "spec.json"),
            "--sha256",
            specs.sha256(text),
            "--result",
            result,
        ]
        assert driver.main(arguments) == 0
    assert seen == [True, False]
