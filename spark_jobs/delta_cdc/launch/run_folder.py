"""Private folders of runs. A run that was killed leaves its folder behind; the next run deletes it.

Each process of a run holds the lock of the run's folder: the worker, and the JVM, which inherits the lock and
may live longer than the worker. So a folder whose lock is free belongs to no run. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.core.errors import StoreUnavailable
from delta_cdc.launch.environment import driver_variables, refuse_noexec
from delta_cdc.launch.processes import locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

PREFIX = "delta-cdc-run-"
_LOCK, _LOG = ".lock", "spark.log"
#: Seconds after which the log of a failed or killed run is deleted: a week.
LOG_AGE = 7 * 86_400
#: Options of the JVM that spark-submit starts, also of the one of a session in this process.
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"


@dataclass
class RunFolder:
    """A folder of one run that only this user can read.

    :param lock: descriptor of the open lock file, which child processes may inherit; None where the file
        system has no locks
    :param keep_log: whether Spark's log stays after the run; only a run that reaches its end turns it off
    """

    path: Path
    lock: int | None = None
    keep_log: bool = True

    @property
    def log(self) -> Path:
        """Return the path of Spark's log."""
        return self.path / _LOG

    @property
    def temporary(self) -> Path:
        """Return the folder for the temporary files of Spark and of its Python, created if missing."""
        folder = self.path / "tmp"
        folder.mkdir(exist_ok=True)
        return folder

    def environment(self, theirs: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables with which a driver on this machine keeps its temporary files in the folder.

        Spark's folders for shuffles and caches are among them, unless the user names others.

        :param theirs: the driver's environment otherwise
        :raises EnvironmentNotReady: no driver can start here
        """
        refuse_noexec(self.temporary)
        option = f'"-Djava.io.tmpdir={self.temporary}"'
        # If an option has two values, the JVM uses the last one.
        return {
            **driver_variables(theirs),
            "TMPDIR": str(self.temporary),
            _JVM_OPTIONS: " ".join(filter(None, (option, theirs.get(_JVM_OPTIONS)))),
        }


@contextmanager
def run_folder() -> Iterator[RunFolder]:
    """Create the folder of a run; delete it afterwards, except Spark's log if that is kept.

    First, delete what killed runs of this user left on this machine.

    :raises StoreUnavailable: the folder cannot be made
    """
    try:
        sweep()
        folder = _created()
    except OSError as error:
        raise StoreUnavailable(
            f"A run needs a temporary folder, which cannot be made: {error}.",
            remedy="free space on its disk, or set TMPDIR to a folder that this user can write.",
        ) from error
    try:
        yield folder
    finally:
        _clean(folder.path, keep_log=folder.keep_log)
        if folder.lock is not None:
            os.close(folder.lock)


def sweep() -> None:
    """Delete the folders of this user's runs of which no process is left.

    The log of Spark, if there is one, stays for a week, because it may show why the run ended.
    """
    parent = Path(tempfile.gettempdir())
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIX):
                continue
            # What cannot be read or deleted now is left to the next run.
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False) and status.st_uid == os.geteuid():
                    _sweep(Path(entry.path))


def _sweep(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        # Only a log that a finished run keeps: each folder gets its name together with its lock.
        _clean(folder, keep_log=True)
        return
    try:
        if locked(lock):
            _clean(folder, keep_log=True)
    finally:
        os.close(lock)


def _created() -> RunFolder:
    # The name that a sweep looks for comes last: until then, the lock could still be free.
    draft = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
    lock: int | None = os.open(draft / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    assert lock is not None
    if not locked(lock):
        os.close(lock)
        lock = None
        # Without locks, no run may be taken for a dead one.
        return RunFolder(draft)
    return RunFolder(draft.rename(draft.with_name(draft.name.removeprefix("."))), lock)


def _clean(folder: Path, *, keep_log: bool) -> None:
    """Delete a folder; of its content, keep only a log that is not empty, and not old."""
    try:
        status = (folder / _LOG).stat()
    except FileNotFoundError:
        kept = False
    else:
        kept = keep_log and status.st_size > 0 and time.time() - status.st_mtime < LOG_AGE
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for child in folder.iterdir():
        if child.name == _LOG:
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child, ignore_errors=True)
        else:
            child.unlink(missing_ok=True)
