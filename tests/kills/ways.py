"""Ways in which a run ends before its end."""

from __future__ import annotations

import signal
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tests.kills.tries import Killed, Try
from tests.kills.worker import PATIENCE, Worker
from tests.support.connect_server import ConnectServer, free_port
from tests.support.holding import Running
from tests.support.s3_gateway import ACCESS_KEY, REGION, SECRET_KEY

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kills.kinds import Kind
    from tests.support.faulty_proxy import Kind as Fault
    from tests.support.faulty_proxy import Request
    from tests.support.lake import Lake

#: Confs of a session for tiny tables.
SMALL = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "1g",
}
#: Confs with which its disk ends at a drawn operation, if the classes are there.
STOPPING = {"spark.hadoop.fs.file.impl": "StoppingDisk", "spark.delta.logStore.file.impl": "StoppingLogStore"}
NEVER = 1 << 60
_LOOK_MS = 200


def on_lake(lake: Lake) -> dict[str, str]:
    """Return confs that reach a bucket by way of its proxy, without patience."""
    confs = {
        "endpoint": lake.proxy.endpoint,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": ACCESS_KEY,
        "secret.key": SECRET_KEY,
        "attempts.maximum": "1",
        "retry.limit": "1",
        "retry.interval": "10ms",
        "retry.throttle.limit": "1",
    }
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in confs.items()}


class Stop(Protocol):
    """What ends at a drawn operation: ``java/Stop.java`` for the disk, :class:`StoreBreaks` for S3."""

    def arm(self, operations: int, ending: str) -> None: ...
    def count(self) -> int: ...
    def stopped(self) -> bool: ...
    def held(self, milliseconds: int) -> bool: ...
    def release(self) -> None: ...


class StoreBreaks:
    """Faults of a proxy: from a drawn request that changes the store on, each connection breaks.

    The drawn request is carried out or not; or it waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held, self._released = threading.Event(), threading.Event()
        self.arm(NEVER, "BEFORE")

    def arm(self, operations: int, ending: str) -> None:
        """Let so many more requests through."""
        with self._lock:
            self._left, self._ending, self._count, self._stopped = operations, ending, 0, False
        self._held.clear()
        self._released.clear()

    def count(self) -> int:
        """Return how many requests changed the store since the last call of :meth:`arm`."""
        return self._count

    def stopped(self) -> bool:
        return self._stopped

    def held(self, milliseconds: int) -> bool:
        """Wait for the request that waits."""
        return self._held.wait(milliseconds / 1000)

    def release(self) -> None:
        self._released.set()

    def __call__(self, request: Request) -> Fault | None:
        with self._lock:
            if self._stopped:
                return "lost_request"
            if request.method in ("GET", "HEAD"):
                return None
            self._count += 1
            if self._count != self._left + 1:
                return None
            self._stopped = self._ending != "FROZEN"
        if self._stopped:
            return "lost_answer" if self._ending == "AFTER" else "lost_request"
        self._held.set()
        self._released.wait(PATIENCE)
        return None


@dataclass
class Way(ABC):
    """How a try ends.

    :param stop: the end of the store, in this JVM
    :param folder: for what processes print
    """

    spark: SparkSession
    stop: Any
    folder: Path
    confs: dict[str, str]
    name: ClassVar[str]

    @abstractmethod
    def end(self, kind: Kind, attempt: Try, draw: random.Random) -> bool:
        """Let a try begin, and end it; return False if it came to its end before."""

    def begin(self) -> None:
        """Begin with new tables."""
        self.forget()

    def forget(self) -> None:
        """Let the JVM forget all tables, as a new process would."""
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        self.spark.catalog.clearCache()

    def close(self) -> None:
        """End processes that were started."""
        return


@dataclass
class _InOneJvm(Way):
    """The process is a thread of this one; only what it wrote to the store is left of it.

    :param longest: how many operations a try has, as far as is known
    """

    longest: int = 25

    def begin(self) -> None:
        # What a set of tables draws depends on its seed alone.
        self.longest = 25
        super().begin()

    def drawn(self, draw: random.Random) -> int:
        return int(draw.random() * self.longest)

    def note_end(self) -> None:
        """Note how many operations a try had that came to its end; one that found its work done has none."""
        self.longest = int(self.stop.count()) or self.longest


@dataclass
class StoreEnds(_InOneJvm):
    """From a drawn operation on nothing reaches the store; that operation is left out, done, or half done."""

    name = "store ends"

    def end(self, kind: Kind, attempt: Try, draw: random.Random) -> bool:
        self.stop.arm(self.drawn(draw), draw.choice(("BEFORE", "AFTER", "TORN")))
        attempt = replace(attempt, has_ended=self.stop.stopped)
        try:
            kind.work(attempt)
        except (Killed, Exception):
            if not self.stop.stopped():
                raise
        was_killed = bool(self.stop.stopped())
        if not was_killed:
            self.note_end()
        self.stop.arm(NEVER, "BEFORE")
        self.forget()
        return was_killed


@dataclass
class Frozen(_InOneJvm):
    """A drawn operation waits, until another try has come to its end; then this one goes on."""

    name = "frozen, then wakes"

    def end(self, kind: Kind, attempt: Try, draw: random.Random) -> bool:
        self.stop.arm(self.drawn(draw), "FROZEN")
        # Airflow takes nothing from a task that it gave to another try.
        zombie = Running(lambda: kind.work(replace(attempt, is_mute=True)), "zombie")
        while not (is_held := self.stop.held(_LOOK_MS)) and zombie.is_alive():
            pass
        if is_held:
            self.forget()
            try:
                kind.work(attempt)
            finally:
                self.stop.release()
        else:
            self.note_end()
        zombie.join(PATIENCE)
        try:
            zombie.result()
        except Exception:
            # It may fail, with any error: its work is done.
            if not is_held:
                raise
        self.stop.arm(NEVER, "BEFORE")
        self.forget()
        return is_held


# -- processes ------------------------------------------------------------------------------------
@dataclass
class _OfAProcess(Way):
    """The try is in a process of its own, which lives on if it is not killed.

    :ivar seconds: how long a try takes, as far as is known
    """

    def __post_init__(self) -> None:
        self._worker: Worker | None = None
        self.seconds = 5.0

    @property
    def session(self) -> dict[str, str]:
        """Return the confs of its session."""
        return {**SMALL, "spark.driver.memory": "512m"}

    @property
    def worker(self) -> Worker:
        self._worker = self._worker or Worker(self.folder, self.session)
        return self._worker

    def close(self) -> None:
        if self._worker is not None:
            self._worker.kill()
        self._worker = None

    def has_begun(self, kind: Kind, attempt: Try, draw: random.Random) -> bool:
        """Let a try begin; return whether it is still at work at a drawn moment."""
        self.worker.begin(kind, attempt)
        began = time.monotonic()
        answer = self.worker.answer(draw.random() * self.seconds)
        if answer is None:
            return True
        assert "done" in answer, answer
        self.seconds = min(600.0, 1.2 * (time.monotonic() - began) + 0.2)
        return False


@dataclass
class Sigkill(_OfAProcess):
    """SIGKILL of a process, its JVM and all, at a drawn moment."""

    name = "SIGKILL"

    def end(self, kind: Kind, attempt: Try, draw: random.Random) -> bool:
        if not self.has_begun(kind, attempt, draw):
            return False
        self.close()
        return True


@dataclass
class Sigstop(_OfAProcess):
    """SIGSTOP of a process and its JVM at a drawn moment; another try comes to its end; SIGCONT."""

    name = "SIGSTOP, SIGCONT"

    def end(self, kind: Kind, attempt: Try, draw: random.Random) -> bool:
        if not self.has_begun(kind, replace(attempt, is_mute=True), draw):
            return False
        self.worker.send(signal.SIGSTOP)
        try:
            kind.work(attempt)
        finally:
            self.worker.send(signal.SIGCONT)
        if self.worker.answer(PATIENCE) in (None, {}):
            self.close()
            raise AssertionError("the process that went on does not come to its end")
        return True


@dataclass
class OutOfMemory(_OfAProcess):
    """A JVM asks for more memory than there is at a drawn operation, and this is its end."""

    name = "out of memory"

    @property
    def session(self) -> dict[str, str]:
        java = {"spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError"}
        return {**super().session, **self.confs, **java}

    def end(self, kind: Kind, attempt: Try, draw: random.Random) -> bool:
        self.worker.begin(kind, attempt, oom=draw.randrange(12))
        answer = self.worker.answer(PATIENCE)
        if answer is not None and "done" in answer:
            return False
        self.close()
        return True


@dataclass
class _OnConnect(_OfAProcess):
    """The process is a client of a Connect server."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._server: ConnectServer | None = None

    @property
    def session(self) -> dict[str, str]:
        if self._server is None:
            from delta_cdc.launch.session import embedded_confs

            port = free_port()
            confs = {
                **embedded_confs(2, quick_start=True),
                **SMALL,
                "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
                "spark.connect.grpc.binding.address": "127.0.0.1",
                "spark.connect.grpc.binding.port": str(port),
            }
            self._server = ConnectServer(self.folder, port, confs, patience=PATIENCE)
            self._server.start()
        return {"remote": self._server.url}

    def close(self) -> None:
        super().close()
        if self._server is not None:
            self._server.kill()
        self._server = None


@dataclass
class ConnectKilled(_OnConnect):
    """SIGKILL of a Connect server at a drawn moment while a client works; then the client ends, too."""

    name = "Connect server killed"

    def end(self, kind: Kind, attempt: Try, draw: random.Random) -> bool:
        if not self.has_begun(kind, attempt, draw):
            return False
        assert self._server is not None
        self._server.kill()
        # What the client does by itself, for a while.
        self.worker.answer(2.0)
        self.close()
        return True


@dataclass
class ConnectStopped(_OnConnect):
    """SIGSTOP of a Connect server at a drawn moment; another try comes to its end elsewhere; SIGCONT."""

    name = "Connect server stopped"

    def end(self, kind: Kind, attempt: Try, draw: random.Random) -> bool:
        if not self.has_begun(kind, replace(attempt, is_mute=True), draw):
            return False
        assert self._server is not None
        self._server.send(signal.SIGSTOP)
        try:
            kind.work(attempt)
        finally:
            self._server.send(signal.SIGCONT)
        if self.worker.answer(PATIENCE) in (None, {}):
            self.close()
            raise AssertionError("the client of the server that went on does not come to its end")
        return True


_ALL: tuple[type[Way], ...] = (
    StoreEnds,
    Frozen,
    Sigkill,
    Sigstop,
    OutOfMemory,
    ConnectKilled,
    ConnectStopped,
)
WAYS: dict[str, type[Way]] = {way.name: way for way in _ALL}
