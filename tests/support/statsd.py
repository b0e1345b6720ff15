"""A StatsD server: a UDP socket that keeps what Airflow sends."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class StatsdReceiver:
    """Receives metrics of the provider; others are ignored."""

    def __init__(self, socket_: socket.socket) -> None:
        self._socket = socket_
        #: Of the loopback interface.
        self.port: int = socket_.getsockname()[1]

    def lines(self) -> list[str]:
        """Return what was sent since the last call. A datagram of this machine is there once it is sent."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(65_536).decode())
            except BlockingIOError:
                return [line for text in found for line in text.splitlines() if "delta_cdc" in line]

    def values(self) -> dict[str, float]:
        """Return the newest value by name, for names without repetition of counters."""
        return {name: float(rest.split("|")[0]) for name, rest in (one.split(":") for one in self.lines())}


@contextmanager
def receiving() -> Iterator[StatsdReceiver]:
    """Open a port, and receive until the end of the block."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        made.bind(("127.0.0.1", 0))
        made.setblocking(False)
        yield StatsdReceiver(made)
