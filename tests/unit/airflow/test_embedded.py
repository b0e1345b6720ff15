"""How a driver in the worker is started: by the size of its job, with what the user says, from an archive."""

from __future__ import annotations

import logging
import math
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc.runtime.embedded import EmbeddedStart
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.spec import ApplySpec, EnableSpec
from delta_cdc.core.watermark import TableVersion
from delta_cdc.launch.class_data_archive import ArchiveStatus, ClassDataArchive
from delta_cdc.launch.session import CLASS_PATH, EXTENSIONS, INTERPRETED, JAVA_OPTIONS
from delta_cdc.planning import size
from tests.support.steps import step as made_step

if TYPE_CHECKING:
    from pathlib import Path

_STEP = made_step("apply", 1, TableVersion("id", 1), 1)
_APPLY = ApplySpec(
    pipeline="p", run_id="r", source_uri="/s", target_uri="/t", options=ApplyOptions(), steps=(_STEP,)
)


def _operator(**given: Any) -> Any:
    made = {"jars": None, "packages": None, "driver_class_path": None, "log": logging.getLogger("t")}
    return SimpleNamespace(**{**made, **given})


def _hook(**conf: str) -> Any:
    return SimpleNamespace(confs=conf, driver_class_path=None, properties_file=None, exit_code=None)


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An archive that is said to be there or not; what is asked of it."""
    told: dict[str, Any] = {"state": "ready", "forgotten": 0}

    def forget(self: ClassDataArchive) -> None:
        told["forgotten"] += 1

    monkeypatch.setattr(ClassDataArchive, "status", lambda self: ArchiveStatus(told["state"], ""))
    monkeypatch.setattr(ClassDataArchive, "forget", forget)
    monkeypatch.setattr("delta_cdc.launch.class_data_archive._note_use", lambda path: None)
    return told


@pytest.mark.parametrize(
    ("bytes_of_job", "small", "tiny"),
    [
        (size.TINY, True, True),
        (size.TINY + 1, True, False),
        (size.SMALL, True, False),
        (math.inf, False, False),
    ],
)
def test_the_jvm_is_one_for_the_size_of_the_job(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    archive: dict[str, Any],
    bytes_of_job: float,
    small: bool,
    tiny: bool,
) -> None:
    asked = []
    monkeypatch.setattr(size, "job_size", lambda *told: asked.append(told) or bytes_of_job)
    hook = _hook(**{"spark.driver.memory": "3g", JAVA_OPTIONS: "-Dmine=1", EXTENSIONS: "of.Mine"})
    EmbeddedStart(_operator(), _APPLY, storage_options={"a": "b"}).configure(hook, tmp_path)
    assert asked == [(_APPLY, {"a": "b"})]
    options = hook.confs[JAVA_OPTIONS]
    assert ("TieredStopAtLevel=1" in options, "SharedArchiveFile" in options) == (small, True)
    assert options.endswith(" -Dmine=1")
    assert (INTERPRETED.items() <= hook.confs.items()) is tiny
    assert hook.confs["spark.driver.memory"] == "3g"
    assert hook.confs[EXTENSIONS].endswith("DeltaSparkSessionExtension,of.Mine")
    assert hook.confs["spark.sql.warehouse.dir"] == str(tmp_path / "warehouse")
    assert "spark.master" not in hook.confs
    assert "delta-spark" in hook.driver_class_path


def test_a_class_path_of_the_users_own_comes_behind_ours(tmp_path: Path, archive: dict[str, Any]) -> None:
    """However it is said: what the hook says hides the conf of the same meaning."""
    (tmp_path / "own.conf").write_text("spark.driver.extraClassPath /third.jar")
    for argument, conf, file, behind in (
        ("/mine.jar", {}, None, ["/mine.jar"]),
        (None, {CLASS_PATH: "/other.jar"}, None, ["/other.jar"]),
        ("/mine.jar", {CLASS_PATH: "/other.jar"}, None, ["/mine.jar", "/other.jar"]),
        ("/mine.jar", {}, str(tmp_path / "own.conf"), ["/mine.jar", "/third.jar"]),
    ):
        hook = _hook(**conf)
        hook.properties_file = file
        EmbeddedStart(_operator(driver_class_path=argument), EnableSpec(run_id="r")).configure(hook, tmp_path)
        assert hook.driver_class_path.split(os.pathsep)[-len(behind) :] == behind
        assert "delta-spark" in hook.driver_class_path


@pytest.mark.parametrize("given", [{"jars": "/delta.jar"}, {"packages": "io.delta:delta"}])
def test_with_jars_of_the_users_own_none_of_ours_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: dict[str, Any], given: dict[str, str]
) -> None:
    """They may be there because Maven Central is not reached."""

    def out_of_reach(*_: Any, **__: Any) -> str:
        raise AssertionError("resolved")

    monkeypatch.setattr("delta_cdc.launch.session.class_path", out_of_reach)
    for driver_class_path in (None, "/mine.jar"):
        hook = _hook()
        operator = _operator(**given, driver_class_path=driver_class_path)
        EmbeddedStart(operator, EnableSpec(run_id="r")).configure(hook, tmp_path)
        assert hook.driver_class_path == driver_class_path
        assert "SharedArchiveFile" not in hook.confs[JAVA_OPTIONS]


def test_options_for_the_jvm_in_the_users_file_are_kept(tmp_path: Path, archive: dict[str, Any]) -> None:
    (tmp_path / "own.conf").write_text(
        "spark.driver.extraJavaOptions -Dproxy=1\nspark.driver.defaultJavaOptions -XX:+UseG1GC"
    )
    hook = _hook()
    hook.properties_file = str(tmp_path / "own.conf")
    EmbeddedStart(_operator(), EnableSpec(run_id="r")).configure(hook, tmp_path)
    assert hook.confs[JAVA_OPTIONS].endswith(" -Dproxy=1")
    # Spark puts the default ones on the same command line, and two collectors are one too many.
    assert "GC" not in hook.confs[JAVA_OPTIONS]


@pytest.mark.parametrize(("code", "forgotten"), [(1, 0), (0, 0), (-9, 0), (-6, 1), (139, 1)])
def test_after_a_crash_of_the_jvm_the_next_one_starts_without(
    tmp_path: Path, archive: dict[str, Any], code: int, forgotten: int
) -> None:
    hook = _hook()
    start = EmbeddedStart(_operator(), _APPLY)
    start.configure(hook, tmp_path)
    start.note_crash(hook)
    hook.exit_code = code
    start.note_crash(hook)
    assert archive["forgotten"] == forgotten
