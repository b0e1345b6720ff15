"""A process that does work on request until it is killed, and the other end of it.

Usage: ``python -m tests.kills.worker CONFS``, as JSON: confs of its session, or ``{"remote": URL}``. Each
line of its input is a request, each line of its output an answer; the first says that it is ready.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc import get_session
from tests.kills.tries import Try

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from tests.kills.kinds import Kind

#: Seconds after which a process is given up, at the lowest priority on a machine with other work.
PATIENCE = 1800.0


class Worker:
    """The other end: the process, JVM included, is a group of its own.

    :param folder: for what it prints
    """

    def __init__(self, folder: Path, confs: Mapping[str, str]) -> None:
        with (folder / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.kills.worker", json.dumps(confs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.answer(PATIENCE) == {"ready": True}, f"see {folder / 'worker.log'}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put("{}")

    def begin(self, kind: Kind, attempt: Try, **more: Any) -> None:
        """Let it do work.

        :param more: ``oom``: the operation that ends the JVM
        """
        assert self.process.stdin is not None
        request = {
            "kind": kind.name,
            "folder": str(kind.folder),
            "root": kind.root,
            "storage": kind.storage,
            "run_id": attempt.run_id,
            "is_mute": attempt.is_mute,
            **more,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """Return its answer, empty if it has ended; None if it takes longer."""
        try:
            found: dict[str, Any] = json.loads(self._answers.get(timeout=seconds))
        except queue.Empty:
            return None
        return found

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and its JVM."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kill it, its JVM and all."""
        with suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        self.process.wait()


def _session(confs: dict[str, str]) -> SparkSession:
    if "remote" not in confs:
        return get_session("worker", cores=2, quick_start=True, **confs)
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(confs["remote"]).getOrCreate()


def main() -> None:
    from tests.kills.campaign import KINDS

    answers = os.fdopen(os.dup(1), "w")
    # Whatever else prints belongs to the log.
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    spark = _session(json.loads(sys.argv[1]))
    spark.range(1).collect()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        given = json.loads(line)
        kind = KINDS[given["kind"]](Path(given["folder"]), given["root"], given["storage"])
        attempt = Try(spark, kind.folder, given["run_id"], kind.storage, is_mute=given["is_mute"])
        if "oom" in given:
            spark._jvm.Stop.arm(given["oom"], "OOM")
        try:
            answer = {"done": kind.work(attempt)}
        except Exception as error:  # noqa: BLE001 - the other end judges
            answer = {"error": repr(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
