"""A proxy before an S3 server, on which bad days can be had: by chance from a seed, or on one request.

It speaks plain HTTP/1.1 and passes requests on byte for byte, so that their signatures stay right. What S3
and the network between do to clients: ``503 SlowDown``, connections that break before a request arrived, or
after it was carried out, answers that come late or break off. What stores that are only compatible with S3 do
as well: listings that lag, answers that contradict themselves, a clock of their own.
"""

from __future__ import annotations

import email.utils
import random
import re
import socket
import socketserver
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from io import BufferedReader

#: ``slow_down``: 503, nothing passed on. ``lost_request``: the connection breaks, nothing passed on.
#: ``lost_answer``: carried out, then the connection breaks. ``slow``: passed on after a while. ``cut``: half
#: of the answer's body, then the connection breaks. ``error``: carried out, then 500. ``silent``: carried
#: out, then nothing until the client gives up; not in :data:`KINDS`, as clients wait for minutes by default.
Kind = Literal[
    *("slow_down", "lost_request", "lost_answer", "slow", "cut", "error", "silent"),
    *("denied", "conflict", "again", "half_listing", "short", "shifted", "other_tag", "stale", "ghosts"),
]
KINDS: tuple[Kind, ...] = ("slow_down", "lost_request", "lost_answer", "slow", "cut", "error")
#: ``denied``: 403, nothing passed on. ``conflict``: 409, nothing passed on. ``again``: carried out, and once
#: more a little later. ``half_listing``: half of a listing, with a regular end. ``short``: half of a range,
#: with a regular end. ``shifted``: another range than the one that was meant. ``other_tag``: a range of
#: another object, as its ETag says.
ODD: tuple[Kind, ...] = ("denied", "conflict", "again", "half_listing", "short", "shifted", "other_tag")
#: What S3 promises not to do. ``stale``: a listing without the newest objects. ``ghosts``: a listing with
#: objects that were deleted.
LAGGING: tuple[Kind, ...] = ("stale", "ghosts")

_SLOW_SECONDS = 0.2
_AGAIN_SECONDS = 0.3
_HOLD_SECONDS = 120
_LIMIT = 64 * 1024
_BODY = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
_ANSWERS = {
    "slow_down": ("503 Slow Down", "SlowDown"),
    "error": ("500 Internal Error", "InternalError"),
    "denied": ("403 Forbidden", "AccessDenied"),
    "conflict": ("409 Conflict", "ConditionalRequestConflict"),
}
_OBJECT = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_KEY = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)
_MODIFIED = re.compile(rb"<LastModified>(.*?)</LastModified>")
_RANGE = re.compile(rb"(?i)(content-range: bytes )(\d+)-(\d+)")
_HEADER_TIME = re.compile(rb"(?mi)^((?:Date|Last-Modified): )([^\r\n]*)")


@dataclass(frozen=True)
class Request:
    """A request as it came in.

    :param key: bucket and name
    :param conditional: whether it asks that nothing be there yet
    :param ranged: whether it asks for a part of an object
    """

    method: str
    key: str
    query: dict[str, list[str]] = field(default_factory=dict)
    conditional: bool = False
    ranged: bool = False

    @property
    def lists(self) -> bool:
        """Return whether it asks for the names of objects."""
        return self.method == "GET" and "list-type" in self.query

    def may_meet(self, kind: Kind) -> bool:
        """Return whether a fault can happen to such a request."""
        if kind in ("half_listing", *LAGGING):
            return self.lists
        if kind in ("short", "shifted", "other_tag"):
            return self.method == "GET" and self.ranged
        if kind == "conflict":
            return self.method == "PUT" and self.conditional
        return kind != "again" or (self.method == "PUT" and "partNumber" not in self.query)

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

    def __call__(self, request: Request) -> Kind | None:
        with self._lock:
            if self._rng.random() >= self._rate:
                return None
            # Dealt like cards: after as many faults as there are kinds, each has been seen, if it can happen.
            self._next = self._next or self._rng.sample(self._kinds, len(self._kinds))
            fitting = [kind for kind in self._next if request.may_meet(kind)]
            if not fitting:
                return None
            self._next.remove(fitting[-1])
            return fitting[-1]


class Throttled:
    """Answers every request with ``503 SlowDown`` for a while, from the first one on, and goes on after that.

    :param seconds: how long
    :param after: what happens then
    """

    def __init__(self, seconds: float, after: Callable[[Request], Kind | None] = no_fault) -> None:
        self._seconds, self._after = seconds, after
        self._end: float | None = None

    def __call__(self, request: Request) -> Kind | None:
        self._end = self._end or time.monotonic() + self._seconds
        return "slow_down" if time.monotonic() < self._end else self._after(request)


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
        #: Seconds by which the store's clock is ahead, in all its answers.
        self.skew = 0
        #: Every object that a listing has had, by its key, as the listing had it.
        self._listed: dict[bytes, bytes] = {}
        self._repeats: list[threading.Thread] = []
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
        self.settled()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def settled(self) -> None:
        """Wait until each request that arrives twice has arrived."""
        while self._repeats:
            self._repeats.pop().join()

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
        if kind in ("slow_down", "lost_request", "denied", "conflict"):
            return _refused(client, request, kind)
        if kind == "slow":
            self._stopping.wait(_SLOW_SECONDS)
        answer = self._shown(request, self._passed_on(start, headers, body), kind)
        if kind == "again":
            repeat = threading.Thread(target=self._repeated, args=(start, headers, body), daemon=True)
            self._repeats.append(repeat)
            repeat.start()
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

    def _passed_on(self, start: bytes, headers: Sequence[tuple[str, bytes]], body: bytes) -> bytes:
        """Return the server's whole answer."""
        kept = [line for name, line in headers if name not in ("connection", "expect")]
        with socket.create_connection(self._backend, timeout=60) as server:
            server.sendall(b"".join([start, *kept, b"Connection: close\r\n\r\n", body]))
            pieces = []
            while piece := server.recv(_LIMIT):
                pieces.append(piece)
        return b"".join(pieces)

    def _repeated(self, start: bytes, headers: Sequence[tuple[str, bytes]], body: bytes) -> None:
        self._stopping.wait(_AGAIN_SECONDS)
        with suppress(OSError):
            self._passed_on(start, headers, body)

    def _shown(self, request: Request, answer: bytes, kind: Kind | None) -> bytes:
        """Return an answer as the fault, and the store's clock, make it."""
        head, mark, body = answer.partition(b"\r\n\r\n")
        if request.lists:
            body = self._as_listed(request, body, kind)
        if kind == "short":
            body = body[: len(body) // 2]
        elif kind == "shifted":
            head = _RANGE.sub(
                lambda found: b"%s%d-%d" % (found[1], int(found[2]) + 1, int(found[3]) + 1), head
            )
        elif kind == "other_tag":
            head = re.sub(rb'(?i)(etag: ")', rb"\g<1>0", head)
        if request.method != "HEAD" and body:
            head = re.sub(rb"(?i)(content-length: )\d+", b"\\g<1>%d" % len(body), head)
        if self.skew:
            head = _HEADER_TIME.sub(lambda found: found[1] + _later_header(found[2], self.skew), head)
            body = _MODIFIED.sub(lambda found: _later_in_listing(found[1], self.skew), body)
        return head + mark + body

    def _as_listed(self, request: Request, body: bytes, kind: Kind | None) -> bytes:
        objects = _OBJECT.findall(body)
        with self._lock:
            self._listed.update((_KEY.findall(one)[0], one) for one in objects)
            known = dict(self._listed)
        if kind == "stale":
            newest = sorted(objects, key=lambda one: (_MODIFIED.findall(one), _KEY.findall(one)))
            return _listing_of(body, set(objects) - set(newest[-1 - len(objects) % 3 :]))
        if kind == "ghosts":
            return _listing_of(body, {*objects, *_ghosts(request, body, known)})
        return body[: len(body) // 2] if kind == "half_listing" else body


def _listing_of(body: bytes, objects: set[bytes]) -> bytes:
    """Return a listing with other objects."""
    inside = b"".join(sorted(objects, key=lambda one: _KEY.findall(one)[0]))
    rest = re.sub(
        rb"<KeyCount>\d+</KeyCount>", b"<KeyCount>%d</KeyCount>" % len(objects), _OBJECT.sub(b"", body)
    )
    return rest.replace(b"</ListBucketResult>", inside + b"</ListBucketResult>")


def _ghosts(request: Request, body: bytes, known: dict[bytes, bytes]) -> set[bytes]:
    """Return what an earlier listing had, and this one would have if it still existed."""
    given = {name: values[0].encode() for name, values in request.query.items()}
    bucket = f"<Name>{request.key.strip('/')}</Name>".encode()
    if (
        b"<IsTruncated>true" in body
        or b"delimiter" in body
        or given.get("continuation-token")
        or bucket not in body
    ):
        return set()
    prefix, after = given.get("prefix", b""), given.get("start-after", b"")
    return {one for key, one in known.items() if key.startswith(prefix) and key > after}


def _later_header(text: bytes, seconds: int) -> bytes:
    moment = email.utils.parsedate_to_datetime(text.decode()) + timedelta(seconds=seconds)
    return email.utils.format_datetime(moment, usegmt=True).encode()


def _later_in_listing(text: bytes, seconds: int) -> bytes:
    moment = datetime.fromisoformat(text.decode()) + timedelta(seconds=seconds)
    return (
        f"<LastModified>{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z</LastModified>".encode()
    )


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
    names = {name for name, _ in headers}
    key = unquote(parts.path).lstrip("/")
    return Request(method, key, query, "if-none-match" in names, "range" in names)


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
