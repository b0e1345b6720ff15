"""The workload for a class-data archive, where it goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc import warmup
from delta_cdc.core.errors import JobFailed
from delta_cdc.launch.session import CLASS_PATH
from tests.support.processes import ends

if TYPE_CHECKING:
    from pathlib import Path

#: What becomes of a workload -> what it does, and what is logged.
ENDINGS = {
    "fails": ("exit 3", "ended with exit code 3: a JVM dies"),
    "hangs": ("sleep 600 &\necho $! > {told}\nwait", "did not end within 2 s: a JVM dies"),
}


@pytest.mark.parametrize("how", list(ENDINGS))
def test_a_workload_that_fails_or_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    told, (does, said) = tmp_path / "told", ENDINGS[how]
    submit = tmp_path / "spark-submit"
    submit.write_text(f"#!/bin/sh\necho a JVM dies >&2\n{does.format(told=told)}\n")
    submit.chmod(0o700)
    monkeypatch.setattr(warmup, "submit_binary", lambda: submit)
    monkeypatch.setattr(warmup, "_LIMIT_SECONDS", 2.0 if how == "hangs" else 60.0)
    with pytest.raises(JobFailed, match=said):
        warmup._run({CLASS_PATH: "/delta.jar"}, [])
    if how == "hangs":
        assert ends(int(told.read_text()))
