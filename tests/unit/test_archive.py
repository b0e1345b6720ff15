"""When a class-data archive is used, made, made anew and deleted. No JVM: a file of ours is the archive."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.launch import class_data_archive as archive
from delta_cdc.launch import environment
from delta_cdc.launch.class_data_archive import MOST_ARCHIVES, UNUSED_FOR, VARIABLE, ClassDataArchive

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Place:
    """A Java, a Spark, a Delta and a cache folder that are only files."""

    root: Path

    @property
    def java(self) -> Path:
        return self.root / "java"

    @property
    def jar(self) -> Path:
        return self.root / "spark" / "jars" / "spark.jar"

    @property
    def delta(self) -> Path:
        return self.root / "delta.jar"

    @property
    def folder(self) -> Path:
        return self.root / "home" / "archives"

    def archive(self, *more: str) -> ClassDataArchive:
        return ClassDataArchive(os.pathsep.join([str(self.delta), *more]))

    def make(self, *more: str, content: bytes = b"classes" * 20_000) -> ClassDataArchive:
        made = self.archive(*more)
        status = made.make(writes(content))
        assert status.state == "ready", status.reason
        return made

    def files(self) -> set[str]:
        return {path.suffix for path in self.folder.iterdir()} if self.folder.is_dir() else set()


def writes(content: bytes) -> Callable[[str], None]:
    """Return what a JVM does: it writes the file of its option."""

    def run(options: str) -> None:
        option = next(part for part in options.split() if part.startswith("-XX:ArchiveClassesAtExit="))
        Path(option.partition("=")[2]).write_bytes(content)

    return run


def never(options: str) -> None:
    raise AssertionError(options)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path)
    for path in (found.java / "lib" / "server" / "libjvm.so", found.java / "release", found.jar, found.delta):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path / "home"))
    for name in (VARIABLE, "SPARK_CONF_DIR", *archive._MORE_CLASS_PATH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(environment, "java_binary", lambda: found.java / "bin" / "java")
    monkeypatch.setattr(archive, "spark_home", lambda: tmp_path / "spark")
    monkeypatch.setattr(ClassDataArchive, "_fits", lambda self, draft: draft.read_bytes() != b"bad")
    return found


def test_an_archive_is_made_once_and_used_then(place: Place) -> None:
    first = place.archive()
    assert (first.status().state, first.options()) == ("missing", [])
    assert first.make(writes(b"classes")).state == "ready"
    again = place.archive()
    assert again.status().state == "ready"
    assert f"-XX:SharedArchiveFile={again.path}" in again.options()
    # Of its content samples are looked at here, and all of it by the JVM.
    assert "-XX:+VerifySharedSpaces" in again.options()
    assert again.make(never).state == "ready"
    assert place.files() == {".jsa", ".json"}
    assert again.path.read_bytes() == b"classes"


def _older(path: Path) -> None:
    os.utime(path, (1, 1))


#: What becomes another one, and how.
STALE: dict[str, Callable[[Place], object]] = {
    "a JAR of Spark's is touched": lambda place: _older(place.jar),
    "one is longer": lambda place: place.jar.write_text("longer"),
    "one more": lambda place: place.jar.with_name("more.jar").touch(),
    "a JAR of Delta's is touched": lambda place: _older(place.delta),
    "Java's library is touched": lambda place: _older(place.java / "lib" / "server" / "libjvm.so"),
    "Java calls itself something else": lambda place: (place.java / "release").write_text("17.0.99"),
}


@pytest.mark.parametrize("change", STALE.values(), ids=STALE.keys())
def test_what_does_not_fit_any_more_is_made_anew_and_the_old_one_goes(
    place: Place, change: Callable[[Place], object]
) -> None:
    old = place.make()
    change(place)
    new = place.archive()
    assert (new.status().state, new.options()) == ("missing", [])
    place.make()
    assert new.status().state == "ready"
    assert [path.name for path in place.folder.glob("*.jsa")] == [new.path.name] != [old.path.name]


def _flip(path: Path) -> None:
    found = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, (found.st_atime, found.st_mtime))


#: Java maps such files without looking, and dies of them.
DAMAGED: dict[str, Callable[[Path], object]] = {
    "cut off": lambda path: os.truncate(path, 100),
    "one bit, at the same time": _flip,
    "gone": lambda path: path.unlink(),
    "no manifest": lambda path: path.with_suffix(".json").unlink(),
    "no JSON": lambda path: path.with_suffix(".json").write_text("{"),
    "other JSON": lambda path: path.with_suffix(".json").write_text("[]"),
    "empty JSON": lambda path: path.with_suffix(".json").write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_archive_is_not_used_and_made_anew(place: Place, damage: Callable[[Path], object]) -> None:
    made = place.make()
    damage(made.path)
    assert (made.status().state, made.options()) == ("damaged", [])
    place.make()
    assert made.status().state == "ready"
    assert made.path.read_bytes() == b"classes" * 20_000


def test_after_a_crash_it_is_forgotten_and_the_environment_turns_it_off(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = place.make()
    with monkeypatch.context() as patch:
        patch.setenv(VARIABLE, "off")
        assert (made.status().state, made.options()) == ("off", [])
    made.forget()
    assert made.status().state == "missing"
    assert place.files() == set()
    monkeypatch.setenv(VARIABLE, "off")
    assert VARIABLE in made.make(never).reason


def test_a_manifest_that_cannot_be_written_leaves_nothing(place: Place) -> None:
    path = place.archive().path
    path.with_suffix(".json").mkdir(parents=True)
    status = place.archive().make(writes(b"classes"))
    assert (status.state, str(path) in status.reason) == ("missing", True)
    assert {left.name for left in place.folder.iterdir()} == {path.name, path.with_suffix(".json").name}


def _fails(options: str) -> None:
    writes(b"classes")(options)
    raise RuntimeError("the job failed")


@pytest.mark.parametrize(
    "run", [lambda options: None, writes(b"bad"), _fails], ids=["none", "unfit", "fails"]
)
def test_an_end_that_is_not_good_leaves_nothing(place: Place, run: Callable[[str], None]) -> None:
    try:
        status = place.archive().make(run)
    except RuntimeError:
        assert run is _fails
    else:
        assert (status.state, "fits" in status.reason) == ("missing", True)
    assert place.archive().status().state == "missing"
    assert place.files() == set()


def test_a_folder_with_files_on_the_class_path_is_told_and_not_tried(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "site.xml").touch()
    for variable in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_DIST_CLASSPATH"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(tmp_path / "empty"))
            assert place.archive().status().state == "missing"
            patch.setenv(variable, str(conf))
            found = place.archive()
            assert found.status().state == "impossible"
            assert str(conf) in found.status().reason
            assert found.make(never) == found.status()


def test_a_folder_that_cannot_be_used_and_a_full_disk_are_no_errors(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.folder.parent.mkdir()
    place.folder.touch()
    found = place.archive()
    assert "cannot be used" in found.make(never).reason
    place.folder.unlink()
    monkeypatch.setattr(archive, "ROOM", 1 << 62)
    assert "left" in found.make(never).reason


def test_what_nobody_uses_is_deleted_and_what_is_used_is_not(place: Place) -> None:
    long_ago = time.time() - UNUSED_FOR - 10
    unused, used = place.make("unused.jar"), place.make("used.jar")
    for made in (unused, used):
        os.utime(made.path.with_suffix(".json"), (long_ago, long_ago))
    assert used.options()
    (place.folder / ".left-1-00.draft").touch()
    os.utime(place.folder / ".left-1-00.draft", (long_ago, long_ago))
    # Another process is writing this one.
    (place.folder / ".of-another-process.json").write_text("{}")
    newest = place.make()
    assert {path.name for path in place.folder.glob("*.jsa")} == {used.path.name, newest.path.name}
    assert place.files() == {".jsa", ".json"}
    assert (place.folder / ".of-another-process.json").exists()


def test_what_another_machine_made_in_a_shared_folder_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = place.make()
    _older(place.jar)
    monkeypatch.setattr("platform.node", lambda: "another machine, with another Spark at the same path")
    ours = place.make()
    assert set(place.folder.glob("*.jsa")) == {theirs.path, ours.path}


def test_the_oldest_go_when_there_are_too_many(place: Place) -> None:
    made: list[Any] = []
    for at in range(MOST_ARCHIVES + 2):
        made.append(place.make(f"{at}.jar").path)
        changed = time.time() - 1_000 + at
        os.utime(made[-1].with_suffix(".json"), (changed, changed))
    assert set(place.folder.glob("*.jsa")) == set(made[-MOST_ARCHIVES:])


def test_an_option_with_a_space_reaches_the_jvm_in_one_piece() -> None:
    assert archive.quoted("-XX:SharedArchiveFile=/a/b.jsa") == "-XX:SharedArchiveFile=/a/b.jsa"
    assert archive.quoted('-Da=/a b/"c"\\d') == '"-Da=/a b/\\"c\\"\\\\d"'
