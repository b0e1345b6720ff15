"""A proxy before a server of any kind, whose machine can be made to vanish: its connections fall silent."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIMIT = 64 * 1024


@dataclass
class SilentProxy:
    """Passes bytes on, until it falls silent."""

    server_port: int
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    silent: threading.Event = field(default_factory=threading.Event)
    open: list[socket.socket] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def fall_silent(self) -> None:
        """Pass nothing on any more. Who connects anew is refused: a test should be short."""
        self.silent.set()
        # Closed alone, it would go on in accept().
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self) -> None:
        with suppress(OSError):
            # Closed: the end.
            while True:
                client = self.listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.server_port))
                self.open += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, whence: socket.socket, whither: socket.socket) -> None:
        with suppress(OSError):
            # One side is gone, and the other one hears of it.
            while data := whence.recv(_LIMIT):
                if not self.silent.is_set():
                    whither.sendall(data)
            if not self.silent.is_set():
                whither.shutdown(socket.SHUT_WR)


@contextmanager
def silent_proxy(server_port: int) -> Iterator[SilentProxy]:
    proxy = SilentProxy(server_port)
    threading.Thread(target=proxy.accept, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.silent.set()
        for one in (proxy.listener, *proxy.open):
            one.close()
