"""Class-data archives: what an embedded driver's JVM loads at every start, kept in one file that it maps.

Half of such a start is reading, checking and linking some fifteen thousand classes out of Spark's and Delta's
JARs. A JVM can write what became of them to a file when it ends, and later ones map that file (class-data
sharing of HotSpot; the option is ``-XX:SharedArchiveFile``). An archive fits one Java and one class path, to
the order, size and time of every JAR, so each combination has its own, named by a hash of all that. What no
longer fits has another name, is made anew, and the old one is deleted.

An archive must never be in the way. Whoever cannot use one starts as ever; a folder that cannot be written, a
disk that is full or a Java that knows no archives mean that none is made. Java maps a file without a look at
its content, and dies of one that is cut off or hangs in one with damaged pages: so it is told to compare
checksums, and a file of another size, time or sample than the one that was written is left alone.

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

from delta_cdc.environment import child_environment, java_identity, spark_home, submit_binary
from delta_cdc.jars import cache_home

if TYPE_CHECKING:
    from collections.abc import Iterator

#: ``off``: archives are neither used nor made.
VARIABLE = "DELTA_CDC_CLASS_DATA_ARCHIVE"

#: How often a JVM that should have written an archive may have ended without one, until it is left alone.
MOST_TRIES = 3
#: Seconds after which it is tried again.
TRY_AGAIN_AFTER = 86_400
#: Seconds without use after which an archive is deleted, and how many are kept at most.
UNUSED_FOR = 30 * 86_400
MOST_ARCHIVES = 6

#: Bytes that must be free where an archive is to be written; it has some 200 MB.
ROOM = 1 << 30

#: What the launcher of Spark puts on the class path behind its own JARs.
_MORE_CLASS_PATH = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")

#: Of a file this many pieces are read to see whether it is still the one that was written, beside its size.
_PIECES, _PIECE = 64, 4096
_DRAFT_SECONDS = 3600
_CHECK_TIMEOUT = 120.0
_QUIET = "-Xlog:cds*=off"
_VERIFY = "-XX:+VerifySharedSpaces"


@dataclass(frozen=True)
class Standing:
    """How it stands with the archive of a class path.

    :param state: ``ready``: it is used; ``missing``: there is none yet; ``damaged``: there is one that is not
        what was written; ``off``: the environment says so; ``impossible``: Java could not make it
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
            "folders": _folders(),
        }
        self._name = _key(self._inputs)
        #: Why :meth:`training` gave nothing.
        self.refusal = ""

    @property
    def path(self) -> Path:
        """Return the path of the archive."""
        return _folder() / f"{self._name}.jsa"

    def standing(self) -> Standing:
        """Return how it stands with it; costs a few hundred look-ups of files."""
        if os.environ.get(VARIABLE, "").strip().lower() in ("off", "0", "false", "no"):
            return Standing("off", f"{VARIABLE} turns it off.")
        hindered = _hindrance(self._inputs["folders"])
        if hindered:
            return Standing("impossible", hindered)
        written = _manifest(self.path)
        if written is None and not self.path.exists():
            return Standing(
                "missing",
                "There is none yet; the next task that applies changes or reads topics makes it at its end.",
            )
        if written is None or _signature(self.path) != written.get("file"):
            return Standing("damaged", f"{self.path} is not what was written there; it is made anew.")
        return Standing("ready", f"{self.path} is used.")

    def options(self) -> list[str]:
        """Return the options for a JVM that shall use it; none where it cannot be used."""
        if self.standing().state != "ready":
            return []
        _note_use(self.path)
        # Whatever is wrong with its content, the JVM has to see it: it would hang, or die, of a damaged page.
        return [f"-XX:SharedArchiveFile={self.path}", _VERIFY, "-Xshare:auto", _QUIET]

    @contextlib.contextmanager
    def training(self, *, insist: bool = False) -> Iterator[Training | None]:
        """Have a JVM write the archive that is missing when it ends; within this block it starts and ends.

        :param insist: whatever came of earlier tries
        :return: what the JVM must be told; None where there is nothing to do or another process is at it.
            Without :meth:`Training.succeeded` what it wrote is thrown away
        """
        with contextlib.ExitStack() as stack:
            training = self._begin(stack, insist=insist)
            yield training
            if training is not None:
                self._end(training)

    def forget(self) -> None:
        """Delete the archive: a JVM that used it has crashed."""
        for path in (_beside(self.path, ".json"), self.path):
            _delete(path)

    # -- making it ------------------------------------------------------------------------------
    def _begin(self, stack: contextlib.ExitStack, *, insist: bool) -> Training | None:
        standing = self.standing()
        if standing.state not in ("missing", "damaged"):
            self.refusal = standing.reason
            return None
        try:
            self.refusal = self._obstacle(stack, insist=insist)
        except OSError as error:
            # Read-only, for instance. Not worth failing a job for.
            self.refusal = f"{_folder()} cannot be used: {error}."
        if self.refusal:
            return None
        draft = _folder() / f".{self._name}-{os.getpid()}-{os.urandom(4).hex()}.draft"
        stack.callback(_delete, draft)
        return Training(draft)

    def _obstacle(self, stack: contextlib.ExitStack, *, insist: bool) -> str:
        """Take the lock; return why that is of no use, or nothing."""
        _folder().mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(_folder()).free < ROOM:
            return f"The disk of {_folder()} has less than {ROOM >> 20} MiB left."
        lock = stack.enter_context(_beside(self.path, ".lock").open("a+", encoding="utf-8"))
        if not _locked(lock):
            return "Another process makes it."
        standing = self.standing()
        if standing.state == "ready":
            return standing.reason
        if not _one_more_try(lock) and not insist:
            return f"{MOST_TRIES} applications were to make it, and ended without."
        return ""

    def _end(self, training: Training) -> None:
        draft = training.draft
        if not training.is_good or not draft.is_file() or not self._fits(draft):
            return
        try:
            found = {"file": _signature(draft), "inputs": self._inputs, "host": platform.node()}
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            draft.replace(self.path)
            part = draft.with_suffix(".json")
            part.write_text(json.dumps(found), encoding="utf-8")
            part.replace(_beside(self.path, ".json"))
            os.truncate(_beside(self.path, ".lock"), 0)
        except OSError:
            # Full by now. Without its manifest nobody uses the file.
            return
        prune(keep=self.path)

    def _fits(self, draft: Path) -> bool:
        """Return whether a driver with this class path can use a file: one is started that must."""
        options = f"-Xshare:on {_VERIFY} {quoted(f'-XX:SharedArchiveFile={draft}')}"
        command = [
            str(submit_binary()),
            *("--master", "local", "--version"),
            *("--conf", f"spark.driver.extraClassPath={self._class_path}"),
            *("--conf", f"spark.driver.extraJavaOptions={options}"),
        ]
        try:
            done = subprocess.run(
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
        return done.returncode == 0


class Training:
    """What the JVM is told that is to write an archive.

    :param draft: where it writes
    """

    def __init__(self, draft: Path) -> None:
        self.draft = draft
        self.is_good = False

    @property
    def java_options(self) -> str:
        """Return the options of the JVM, as ``spark.driver.extraJavaOptions`` holds them."""
        return f"{quoted(f'-XX:ArchiveClassesAtExit={self.draft}')} {_QUIET}"

    def succeeded(self) -> None:
        """Say that the JVM has ended, and that it did the work that the archive is for."""
        self.is_good = True


def quoted(option: str) -> str:
    """Return an option as it stands in ``spark.driver.extraJavaOptions``."""
    if not any(mark in option for mark in " \t\"'\\"):
        return option
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def prune(*, keep: Path | None = None) -> None:
    """Delete archives that fit nothing any more or that nobody has used for long, the oldest beyond a number,
    and what killed processes have left.

    :param keep: never this one
    """
    now, kept = time.time(), 0
    # Not those that are being written: their names begin with a dot, which Python's glob takes for a letter.
    for manifest in sorted(_folder().glob("[!.]*.json"), key=_changed, reverse=True):
        archive = _beside(manifest, ".jsa")
        kept += 1
        if archive == keep:
            continue
        if kept > MOST_ARCHIVES or now - _changed(manifest) > UNUSED_FOR or not _is_current(archive):
            kept -= 1
            for path in (manifest, archive, _beside(archive, ".lock")):
                _delete(path)
    for draft in _folder().glob(".*"):
        # A JVM writes when it ends, and a moment later the draft has its name.
        if now - _changed(draft) > _DRAFT_SECONDS:
            _delete(draft)


# -- what an archive depends on ---------------------------------------------------------------------
def _folder() -> Path:
    return cache_home() / "archives"


def _folders() -> list[str]:
    """Return what Spark's launcher adds to the class path beside JARs: folders of configuration."""
    own = os.environ.get("SPARK_CONF_DIR") or str(spark_home() / "conf")
    return [own, *(os.environ.get(name, "") for name in _MORE_CLASS_PATH)]


def _hindrance(folders: list[str]) -> str | None:
    """Return why Java would refuse; it archives nothing when a folder on the class path has files in it."""
    parts = [part for folder in folders for part in folder.split(os.pathsep) if part]
    for part in parts:
        path = Path(part)
        if path.is_dir() and next(path.iterdir(), None) is not None:
            return (
                f"{part} is on the class path and has files in it, and Java archives no classes then: it "
                f"comes from SPARK_CONF_DIR, {', '.join(_MORE_CLASS_PATH)}, or Spark's own folder conf."
            )
    return None


def _key(inputs: dict[str, Any]) -> str:
    """Return the name of an archive: a hash of all that it depends on, as it is now."""
    jars = sorted(Path(inputs["spark"], "jars").glob("*.jar"))
    jars += [Path(part) for part in inputs["class_path"].split(os.pathsep) if part]
    facts = [inputs, [[str(jar), *_size_and_time(jar)] for jar in jars]]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (-1, -1)
    # In whole seconds: that is what Java compares, and what is left in the layer of an image.
    return (found.st_size, int(found.st_mtime))


def _is_current(archive: Path) -> bool:
    """Return whether an archive fits what it was made of, as far as this machine can tell."""
    written = _manifest(archive)
    try:
        if written is not None and written["host"] != platform.node():
            # Machines and images may share the folder; each has a Java and JARs of its own at the same path.
            return True
        inputs = written["inputs"] if written is not None else {}
        java = inputs["java"]
        return bool(java == java_identity(Path(java[0])) and _key(inputs) == archive.stem)
    except (KeyError, TypeError, AttributeError, IndexError):
        return False


# -- what lies there --------------------------------------------------------------------------------
def _beside(path: Path, suffix: str) -> Path:
    return path.with_suffix(suffix)


def _manifest(archive: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(_beside(archive, ".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _signature(path: Path) -> list[Any] | None:
    """Return what tells a file from another one or a damaged one, without reading all of it."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            for at in range(_PIECES):
                file.seek(max(0, size - _PIECE) * at // (_PIECES - 1))
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
    manifest = _beside(archive, ".json")
    if time.time() - _changed(manifest) > UNUSED_FOR / 30:
        # Another user's, or read-only: then its owner's use counts.
        with contextlib.suppress(OSError):
            os.utime(manifest)


def _delete(path: Path) -> None:
    # Somebody else's file stays; it is not used for all that.
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _locked(lock: Any) -> bool:
    """Return whether this process has the file for itself, until it closes it or ends."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _one_more_try(lock: Any) -> bool:
    """Count a try, in the lock's own file; return False where there were too many."""
    lock.seek(0)
    text = lock.read()
    tries = len(text) if time.time() - os.fstat(lock.fileno()).st_mtime < TRY_AGAIN_AFTER else 0
    if tries >= MOST_TRIES:
        return False
    lock.truncate(0)
    lock.write("." * (tries + 1))
    lock.flush()
    return True
