"""Class-data archives: the classes that an embedded driver's JVM loads at each start, in one mapped file.

Half of such a start goes into reading, checking and linking some fifteen thousand classes from Spark's and
Delta's JARs. A JVM can write the result to a file when it ends, and later JVMs map that file (class-data
sharing of HotSpot; the option is ``-XX:SharedArchiveFile``). An archive fits one Java and one class path,
including the order, size and time of every JAR. So each combination has its own archive, named by a hash of
these inputs. After a change, a new archive gets a new name. Only ``delta-cdc archive`` makes archives, and
deletes old ones.

An archive must never cause a failure. A JVM that cannot use an archive starts without it. If the folder is
not writable, the disk is full or Java does not support archives, no archive is written. Java does not check
the file that it maps: it crashes on a truncated file and hangs on damaged pages. So an option makes Java
compare checksums, and a file whose size, time or sample has changed is not used.

Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from delta_cdc.core import codec
from delta_cdc.core.drafts import replacing
from delta_cdc.launch.environment import (
    child_environment,
    java_identity,
    size_and_time,
    spark_home,
    submit_binary,
)
from delta_cdc.launch.jars import cache_home

if TYPE_CHECKING:
    from collections.abc import Callable

#: ``off``: no archive is used or written.
VARIABLE = "DELTA_CDC_CLASS_DATA_ARCHIVE"

#: Seconds without use after which an archive is deleted, and the maximum number of archives.
UNUSED_FOR = 30 * 86_400
MOST_ARCHIVES = 6

#: Free bytes required to write an archive, which takes some 200 MB.
ROOM = 1 << 30

#: Variables whose folders Spark's launcher appends to the class path, after its own JARs.
_MORE_CLASS_PATH = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")

#: Number and size of the samples of a file that are compared, besides its size, to detect changes.
_PIECES, _PIECE = 64, 4096
_DRAFT_SECONDS = 3600
_CHECK_TIMEOUT = 120.0
_QUIET = "-Xlog:cds*=off"
_VERIFY = "-XX:+VerifySharedSpaces"


@dataclass(frozen=True)
class ArchiveStatus:
    """The status of a class path's archive.

    :param state: ``ready``: it is used; ``missing``: it does not exist yet; ``damaged``: it has changed since
        it was written; ``off``: the environment disables it; ``impossible``: Java could not write it
    :param reason: a sentence
    """

    state: Literal["ready", "missing", "damaged", "off", "impossible"]
    reason: str


class ClassDataArchive:
    """The archive for drivers with one class path.

    :param class_path: ``spark.driver.extraClassPath`` of the drivers
    :raises EnvironmentNotReady: if Java or Spark is missing
    """

    def __init__(self, class_path: str) -> None:
        self._class_path = class_path
        self._inputs: dict[str, Any] = {
            "java": java_identity(),
            "spark": str(spark_home()),
            "class_path": class_path,
            "folders": _conf_folders(),
        }
        self._name = _key(self._inputs)

    @property
    def path(self) -> Path:
        """Return the path of the archive."""
        return _folder() / f"{self._name}.jsa"

    def status(self) -> ArchiveStatus:
        """Return the archive's status; this takes a few hundred file look-ups."""
        if os.environ.get(VARIABLE, "").strip().lower() in ("off", "0", "false", "no"):
            return ArchiveStatus("off", f"{VARIABLE} turns it off.")
        hindrance = _hindrance(self._inputs["folders"])
        if hindrance:
            return ArchiveStatus("impossible", hindrance)
        written = _manifest(self.path)
        if written is None and not self.path.exists():
            return ArchiveStatus("missing", "It does not exist yet; `delta-cdc archive` makes it.")
        if written is None or _signature(self.path) != written.get("file"):
            text = f"{self.path} differs from what was written there; `delta-cdc archive` makes it again."
            return ArchiveStatus("damaged", text)
        return ArchiveStatus("ready", f"{self.path} is used.")

    def options(self) -> list[str]:
        """Return the JVM options to use the archive; an empty list if it cannot be used."""
        if self.status().state != "ready":
            return []
        _note_use(self.path)
        # The JVM has to verify the content: a damaged page would make it hang or crash.
        return [f"-XX:SharedArchiveFile={self.path}", _VERIFY, "-Xshare:auto", _QUIET]

    def make(self, run: Callable[[str], None]) -> ArchiveStatus:
        """Write the archive, unless it exists.

        :param run: gets options for ``spark.driver.extraJavaOptions``; starts a JVM with them, and returns
            when the JVM has ended. The JVM writes the classes that it has loaded by then
        :return: the status afterwards; its reason says why no archive was written
        """
        status = self.status()
        if status.state not in ("missing", "damaged"):
            return status
        draft = _folder() / f".{self._name}-{os.getpid()}-{os.urandom(4).hex()}.draft"
        try:
            _folder().mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(_folder()).free < ROOM:
                text = f"The disk of {_folder()} has less than {ROOM >> 20} MiB left."
                return ArchiveStatus("missing", text)
            draft.touch()
            draft.unlink()
        except OSError as error:
            return ArchiveStatus("missing", f"{_folder()} cannot be used: {error}.")
        try:
            run(f"{quoted(f'-XX:ArchiveClassesAtExit={draft}')} {_QUIET}")
            refusal = self._publish(draft)
        finally:
            _delete(draft)
        return ArchiveStatus("missing", refusal) if refusal else self.status()

    def forget(self) -> None:
        """Delete the archive, because a JVM that used it has crashed."""
        for path in (self.path.with_suffix(".json"), self.path):
            _delete(path)

    # -- writing --------------------------------------------------------------------------------
    def _publish(self, draft: Path) -> str:
        """Give a written file its name; return why it is not used, or an empty text."""
        if not draft.is_file() or not self._fits(draft):
            return "Java wrote no archive that fits these JARs."
        try:
            content = {"file": _signature(draft), "inputs": self._inputs, "host": platform.node()}
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            draft.replace(self.path)
            with replacing(self.path.with_suffix(".json"), mode=0o644) as manifest:
                manifest.write(json.dumps(content).encode())
        except OSError as error:
            # The disk may be full now. Without its manifest the file is never used.
            return f"{self.path} cannot be written: {error}."
        prune(keep=self.path)
        return ""

    def _fits(self, draft: Path) -> bool:
        """Return whether a driver with this class path can use a file: start a driver that requires it."""
        options = f"-Xshare:on {_VERIFY} {quoted(f'-XX:SharedArchiveFile={draft}')}"
        command = [
            str(submit_binary()),
            *("--master", "local", "--version"),
            *("--conf", f"spark.driver.extraClassPath={self._class_path}"),
            *("--conf", f"spark.driver.extraJavaOptions={options}"),
        ]
        try:
            process = subprocess.run(
                command,
                env={**os.environ, **child_environment()},
                cwd=draft.parent,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CHECK_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return process.returncode == 0


def quoted(option: str) -> str:
    """Return an option quoted for ``spark.driver.extraJavaOptions``."""
    if not any(mark in option for mark in " \t\"'\\"):
        return option
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def prune(*, keep: Path | None = None) -> None:
    """Delete archives that no longer fit or were not used for long, the oldest archives beyond a maximum
    number, and the remains of killed processes.

    :param keep: never delete this one
    """
    now, kept = time.time(), 0
    # Skip unfinished archives: their names begin with a dot, which Python's glob treats as a letter.
    for manifest in sorted(_folder().glob("[!.]*.json"), key=_changed, reverse=True):
        archive = manifest.with_suffix(".jsa")
        kept += 1
        if archive == keep:
            continue
        if kept > MOST_ARCHIVES or now - _changed(manifest) > UNUSED_FOR or not _is_current(archive):
            kept -= 1
            for path in (manifest, archive):
                _delete(path)
    for draft in _folder().glob(".*"):
        # A JVM writes its draft when it ends; shortly afterwards the draft gets its final name.
        if now - _changed(draft) > _DRAFT_SECONDS:
            _delete(draft)


# -- inputs of an archive ---------------------------------------------------------------------------
def _folder() -> Path:
    return cache_home() / "archives"


def _conf_folders() -> list[str]:
    """Return the configuration folders that Spark's launcher adds to the class path besides JARs."""
    conf_folder = os.environ.get("SPARK_CONF_DIR") or str(spark_home() / "conf")
    return [conf_folder, *(os.environ.get(name, "") for name in _MORE_CLASS_PATH)]


def _hindrance(folders: list[str]) -> str | None:
    """Return why Java would write no archive: a folder on the class path contains files. Else None."""
    parts = [part for folder in folders for part in folder.split(os.pathsep) if part]
    for part in parts:
        path = Path(part)
        if path.is_dir() and next(path.iterdir(), None) is not None:
            return (
                f"{part} is a folder with files on the class path, so Java writes no archive. The folder "
                f"comes from SPARK_CONF_DIR, {', '.join(_MORE_CLASS_PATH)}, or Spark's own folder conf."
            )
    return None


def _key(inputs: dict[str, Any]) -> str:
    """Return the name of an archive: a hash of the current state of all its inputs."""
    jars = sorted(Path(inputs["spark"], "jars").glob("*.jar"))
    jars += [Path(part) for part in inputs["class_path"].split(os.pathsep) if part]
    facts = [inputs, [[str(jar), *size_and_time(jar)] for jar in jars]]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _is_current(archive: Path) -> bool:
    """Return whether an archive still fits its Java and JARs; True if another machine wrote it."""
    written = _manifest(archive)
    try:
        if written is not None and written["host"] != platform.node():
            # Machines and images may share the folder, but have a different Java and JARs at the same path.
            return True
        inputs = written["inputs"] if written is not None else {}
        java = inputs["java"]
        return bool(java == java_identity(Path(java[0])) and _key(inputs) == archive.stem)
    except (KeyError, TypeError, AttributeError, IndexError):
        return False


# -- files in the folder ----------------------------------------------------------------------------
def _manifest(archive: Path) -> dict[str, Any] | None:
    try:
        manifest = codec.parsed(archive.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _signature(path: Path) -> list[Any] | None:
    """Return a signature that changes with the file, without reading the whole file; None if unreadable."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            for index in range(_PIECES):
                file.seek(max(0, size - _PIECE) * index // (_PIECES - 1))
                digest.update(file.read(_PIECE))
            changed = int(os.fstat(file.fileno()).st_mtime)
    except OSError:
        return None
    return [size, changed, digest.hexdigest()]


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _note_use(archive: Path) -> None:
    manifest = archive.with_suffix(".json")
    if time.time() - _changed(manifest) > UNUSED_FOR / 30:
        # If it is read-only or belongs to another user, only the owner's use counts.
        with contextlib.suppress(OSError):
            os.utime(manifest)


def _delete(path: Path) -> None:
    # A file of another user stays, but is not used.
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
