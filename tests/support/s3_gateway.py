"""A real S3-compatible server of the tests' own: the Versity S3 gateway over a folder, on a free port.

``tools/s3gateway.sh`` builds the program at the first use; it needs Go, and nothing is installed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.kafka_broker import free_ports, signal_group

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "lake"
REGION = "eu-west-1"
ACCESS_KEY = "AKIDofTheTests"
#: With characters that a URL, a shell and a properties file each treat in their own way.
SECRET_KEY = "s3cr3t/of+the tests=%41$x"

_ROOT = Path(__file__).resolve().parents[2]
_HOST = "127.0.0.1"
_BUILD_SECONDS = 900
_START_SECONDS = 30
_STOP_SECONDS = 10
_ATTEMPTS = 3


class NoGatewayError(RuntimeError):
    """The server cannot be built here."""


def program() -> Path:
    """Return the server's program, built if it is not there yet.

    :raises NoGatewayError: there is no Go to build it with
    """
    script = _ROOT / "tools" / "s3gateway.sh"
    folder = _ROOT / ".cache"
    folder.mkdir(exist_ok=True)
    with (folder / ".s3gateway.lock").open("w") as lock:
        # Of two test processes one builds.
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [str(script)], capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
        )
    if done.returncode:
        raise NoGatewayError(done.stderr.strip() or f"{script} failed")
    return Path(done.stdout.strip())


class Gateway:
    """A running server with the bucket ``lake``.

    :param folder: for the objects and the server's output
    :param region: that requests have to be signed for
    """

    def __init__(self, folder: Path, region: str = REGION) -> None:
        self._folder = folder
        self._region = region
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        #: The folder that is the bucket: a file in it is an object, by the same name.
        self.bucket = folder / "objects" / BUCKET

    @property
    def endpoint(self) -> str:
        """Return the server's address."""
        return f"http://{_HOST}:{self.port}"

    @property
    def output(self) -> str:
        """Return all that the server has said."""
        return (self._folder / "gateway.log").read_text(errors="replace")

    def uri(self, name: str) -> str:
        """Return the location of an object, or of a folder of them."""
        return f"s3://{BUCKET}/{name}"

    def options(self, *, endpoint: str | None = None, **more: str) -> dict[str, str]:
        """Return storage options that reach the server.

        :param endpoint: in the place of the server's own, as that of a proxy
        """
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": self._region,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            **more,
        }

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.bucket.mkdir(parents=True, exist_ok=True)
        binary = program()
        for _ in range(_ATTEMPTS):
            # Between finding a free port and listening on it somebody else may take it.
            [self.port] = free_ports(1)
            if self._started(binary):
                return
        raise RuntimeError(f"The S3 gateway did not start.\n{self.output[-4000:]}")

    def stop(self) -> None:
        """Stop the server, by force if it does not stop by itself; the objects stay."""
        process, self._process = self._process, None
        if process is None:
            return
        signal_group(process, signal.SIGTERM)
        try:
            process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            signal_group(process, signal.SIGKILL)
            process.wait()

    def _started(self, binary: Path) -> bool:
        secrets = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        with (self._folder / "gateway.log").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(
                        str(binary),
                        "--port",
                        f"{_HOST}:{self.port}",
                        "--region",
                        self._region,
                        "--health",
                        "/health",
                    ),
                    *("--keep-alive", "--quiet", "posix", *self._sidecar(), str(self.bucket.parent)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **secrets},
                # A group of its own: an interrupt of the test run must not reach it before its clients.
                start_new_session=True,
            )
        end = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            if self._answers():
                return True
        self.stop()
        return False

    def _answers(self) -> bool:
        import http.client

        connection = http.client.HTTPConnection(_HOST, self.port, timeout=1)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    def _sidecar(self) -> tuple[str, ...]:
        """Return where the gateway keeps what it knows of objects, on file systems without attributes."""
        probe = self._folder / "attributes"
        probe.touch()
        try:
            os.setxattr(probe, "user.probe", b"1")
        except OSError:
            beside = self._folder / "sidecar"
            beside.mkdir(exist_ok=True)
            return ("--sidecar", str(beside))
        return ()


@contextmanager
def gateway(folder: Path, region: str = REGION) -> Iterator[Gateway]:
    """Run a server for the length of a block.

    :param region: see :class:`Gateway`
    :raises NoGatewayError: there is no Go to build it with
    """
    folder.mkdir(parents=True, exist_ok=True)
    running = Gateway(folder, region)
    try:
        running.start()
        yield running
    finally:
        running.stop()
