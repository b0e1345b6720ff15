"""A proxy before an S3 server, on which bad days can be had: by chance from a seed, or on one request.

It speaks plain HTTP/1.1 and passes requests on byte for byte, so that their signatures stay right. What S3
and the network between do to clients: ``503 SlowDown``, connections that break before a request arrived, or
after it was carried out, answers that come late or break off.
"""

from __future__ import annotations

import random
import socket
import socketserver
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from io import BufferedReader

#: ``slow_down``: 503, nothing passed on. ``lost_request``: the connection breaks, nothing passed on.
#: ``lost_answer``: carried out, then the connection breaks. ``slow``: passed on after a while. ``cut``: half
#: of the answer's body, then the connection breaks. ``error``: carried out, then 500. ``silent``: carried
#: out, then nothing until the client gives up; not in :data:`KINDS`, as clients wait for minutes by default.
Kind = Literal["slow_down", "lost_request", "lost_answer", "slow", "cut", "error", "silent"]
KINDS: tuple[Kind, ...] = ("slow_down", "lost_request", "lost_answer", "slow", "cut", "error")

_SLOW_SECONDS = 0.2
_HOLD_SECONDS = 120
_LIMIT = 64 * 1024
_BODY = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
_ANSWERS = {"slow_down": ("503 Slow Down", "SlowDown"), "error": ("500 Internal Error", "InternalError")}


@dataclass(frozen=True)
class Request:
    """A request as it came in.

    :param key: bucket and name
    :param conditional: whether it asks that nothing be there yet
    """

    method: str
    key: str
    query: dict[str, list[str]] = field(default_factory=dict)
    conditional: bool = False

    @property
    def commits(self) -> bool:
        """Return whether it writes a version of a Delta table."""
        folder, _, name = self.key.rpartition("/")
        return self.method == "PUT" and folder.endswith("/_delta_log") and name.endswith(".json")


def no_fault(_request: Request) -> Kind | None:
    """Leave every request in peace."""
    return None


class Weather:
    """Lets requests fail by chance, as often in each way.

    :param seed: the same requests in the same order get the same
    :param rate: how many of them, from 0 to 1
    :param kinds: what they get
    """

    def __init__(self, seed: int, rate: float, kinds: Sequence[Kind] = KINDS) -> None:
        self._rng = random.Random(seed)
        self._rate = rate
        self._kinds = kinds
        self._next: list[Kind] = []
        self._lock = threading.Lock()

    def __call__(self, _request: Request) -> Kind | None:
        with self._lock:
            if self._rng.random() >= self._rate:
                return None
            # Dealt like cards: after as many faults as there are kinds, each has been seen.
            self._next = self._next or self._rng.sample(self._kinds, len(self._kinds))
            return self._next.pop()


class Once:
    """Gives one request its fault, the first that is meant, or each of the first few.

    :param times: so many
    """

    def __init__(self, kind: Kind, meant: Callable[[Request], bool], *, times: int = 1) -> None:
        self._kind: Kind = kind
        self._meant = meant
        self._left = times
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Kind | None:
        with self._lock:
            if self._left and self._meant(request):
                self._left -= 1
                return self._kind
            return None


class Hold:
    """Keeps the first request that is meant from going on, until it is released."""

    def __init__(self, meant: Callable[[Request], bool]) -> None:
        self._meant = meant
        self._lock = threading.Lock()
        #: Set when the request is there, and when it may go on.
        self.reached, self.released = threading.Event(), threading.Event()
        #: The request that was held.
        self.held: Request | None = None

    def __call__(self, request: Request) -> Kind | None:
        with self._lock:
            is_the_one = self.held is None and self._meant(request)
            self.held = request if is_the_one else self.held
        if is_the_one:
            self.reached.set()
            self.released.wait(_HOLD_SECONDS)
        return None


class FaultyProxy:
    """Stands before a server until it is left.

    :param port: of the server, on this machine
    """

    def __init__(self, port: int) -> None:
        self.faults: Callable[[Request], Kind | None] = no_fault
        #: Every request that got a fault, with it.
        self.struck: list[tuple[Request, Kind]] = []
        self.count = 0
        self._backend = ("127.0.0.1", port)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> FaultyProxy:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        """Return the address that clients are given."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def kinds_struck(self) -> set[Kind]:
        """Return which faults have been had."""
        return {kind for _, kind in self.struck}

    # -- inside -----------------------------------------------------------------------------------
    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        proxy = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(ConnectionError, TimeoutError):
                    while not proxy._stopping.is_set() and proxy._one(self.connection, self.rfile):
                        pass

        return Handler

    def _one(self, client: socket.socket, reader: BufferedReader) -> bool:
        """Serve one request; tell whether the connection lives on."""
        head = _head(reader)
        if head is None:
            return False
        start, headers = head
        if any(name == "expect" for name, _ in headers):
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = _body(reader, headers)
        request = _request(start, headers)
        kind = self.faults(request)
        with self._lock:
            self.count += 1
            if kind is not None:
                self.struck.append((request, kind))
        if kind in ("slow_down", "lost_request"):
            return _refused(client, request, kind)
        if kind == "slow":
            self._stopping.wait(_SLOW_SECONDS)
        answer = self._asked(start, headers, body)
        if kind == "lost_answer":
            _break(client)
            return False
        if kind == "silent":
            client.settimeout(_HOLD_SECONDS)
            client.recv(1)
            return False
        if kind == "error":
            return _refused(client, request, kind)
        return _told(client, request, answer, cut=kind == "cut")

    def _asked(self, start: bytes, headers: Sequence[tuple[str, bytes]], body: bytes) -> bytes:
        """Return the server's whole answer."""
        kept = [line for name, line in headers if name not in ("connection", "expect")]
        with socket.create_connection(self._backend, timeout=60) as server:
            server.sendall(b"".join([start, *kept, b"Connection: close\r\n\r\n", body]))
            pieces = []
            while piece := server.recv(_LIMIT):
                pieces.append(piece)
        return b"".join(pieces)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that go away are part of a bad day."""


def _head(reader: BufferedReader) -> tuple[bytes, list[tuple[str, bytes]]] | None:
    start = reader.readline(_LIMIT)
    if not start.strip():
        return None
    headers = []
    while (line := reader.readline(_LIMIT)) not in (b"\r\n", b"\n", b""):
        headers.append((line.split(b":", 1)[0].strip().lower().decode(), line))
    return start, headers


def _body(reader: BufferedReader, headers: Sequence[tuple[str, bytes]]) -> bytes:
    named = dict(headers)
    if b"chunked" in named.get("transfer-encoding", b"").lower():
        return _chunks(reader)
    length = named.get("content-length")
    return reader.read(int(length.split(b":", 1)[1])) if length else b""


def _chunks(reader: BufferedReader) -> bytes:
    pieces = []
    while True:
        size = reader.readline(_LIMIT)
        pieces.append(size)
        pieces.append(reader.read(int(size.split(b";")[0], 16) + 2))
        if int(size.split(b";")[0], 16) == 0:
            return b"".join(pieces)


def _request(start: bytes, headers: Sequence[tuple[str, bytes]]) -> Request:
    method, target = start.decode().split(" ")[:2]
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    conditional = any(name == "if-none-match" for name, _ in headers)
    return Request(method, unquote(parts.path).lstrip("/"), query, conditional)


def _refused(client: socket.socket, request: Request, kind: Kind) -> bool:
    if kind == "lost_request":
        _break(client)
        return False
    status, code = _ANSWERS[kind]
    body = b"" if request.method == "HEAD" else _BODY.format(code=code).encode()
    client.sendall(
        f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return True


def _told(client: socket.socket, request: Request, answer: bytes, *, cut: bool) -> bool:
    head, mark, body = answer.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    if cut:
        client.sendall(b"\r\n".join(lines) + mark + body[: len(body) // 2])
        _break(client)
        return False
    client.sendall(b"\r\n".join(lines) + mark + body)
    # An answer without its length ends with the connection.
    lower = head.lower()
    return request.method == "HEAD" or b"content-length:" in lower or b"chunked" in lower


def _break(client: socket.socket) -> None:
    """Reset the connection."""
    with suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.shutdown(socket.SHUT_RD)
    client.close()
