"""An object store on this machine: as much of S3's REST interface as readers use, and faults on demand."""

from __future__ import annotations

import email.utils
import hashlib
import html
import io
import os
import random
import re
import socket
import struct
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUCKET = "lake"
_PAGE = 1_000

Kind = Literal["unavailable", "reset", "truncated", "slow", "denied", "absent", "answer"]
#: What a store does on a bad day. ``absent`` is none of these: S3 never denies what is there.
WEATHER: tuple[Kind, ...] = ("unavailable", "reset", "truncated", "slow", "denied")


@dataclass(frozen=True)
class Fault:
    """What a request gets instead of its answer.

    :param kind: ``unavailable`` (503), ``reset`` (of the connection, after half of the body),
        ``truncated`` (half of the body, then a regular end), ``slow`` (no answer for ``seconds``), ``denied``
        (403), ``absent`` (404 for something that is there) or ``answer``
    :param answer: only for that kind: status and code
    :param retry_after: seconds for a header of that name
    """

    kind: Kind
    retry_after: int | None = None
    seconds: float = 30.0
    answer: tuple[int, str] = (500, "InternalError")


@dataclass(frozen=True)
class Request:
    """One request as it came in: a listing has the prefix it asked for as key."""

    method: str
    key: str
    query: dict[str, str] = field(default_factory=dict)

    @property
    def lists(self) -> bool:
        """Return whether it asks for names."""
        return "list-type" in self.query

    def __str__(self) -> str:
        return f"{'LIST' if self.lists else self.method} {self.key}"


class HttpStore:
    """Serves a folder as the bucket ``lake``, until it is left.

    :param root: its files are the objects
    :param latency: seconds before every answer
    """

    def __init__(self, root: Path, *, latency: float = 0.0) -> None:
        self.root = root
        self.latency = latency
        self.faults: Callable[[Request], Fault | None] = no_fault
        self.requests: list[Request] = []
        self.faulty: list[tuple[Request, Fault]] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> HttpStore:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        """Return the address that clients take for S3's."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def uri(self, table: str) -> str:
        """Return the location of a table in a folder of the root."""
        return f"s3://{BUCKET}/{table}"

    def options(self, **more: str) -> dict[str, str]:
        """Return storage options that reach this store, without patience."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "eu-west-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            **more,
        }

    def forget(self) -> None:
        """Start the list of requests anew."""
        with self._lock:
            self.requests.clear()
            self.faulty.clear()

    def asked(self) -> list[str]:
        """Return the requests so far, such as ``HEAD orders/_delta_log/….json`` or ``LIST orders/``."""
        with self._lock:
            return [str(request) for request in self.requests]

    def decide(self, request: Request) -> Fault | None:
        """Note a request down and say what is to go wrong with it."""
        with self._lock:
            self.requests.append(request)
            fault = self.faults(request)
            if fault is not None:
                self.faulty.append((request, fault))
        return fault

    def wait(self, seconds: float) -> None:
        """Hold an answer back, no longer than the store is there."""
        if seconds:
            self._stopping.wait(seconds)


def no_fault(_: Request) -> Fault | None:
    """Let every request have its answer."""
    return None


def always(kind: Kind, **given: Any) -> Callable[[Request], Fault | None]:
    """Let every request fail."""
    return lambda _: Fault(kind, **given)


def sometimes(
    seed: int, share: float, kinds: tuple[Kind, ...] = WEATHER, **given: Any
) -> Callable[[Request], Fault | None]:
    """Let a share of all requests fail, each in one of several ways.

    A request's fate hangs on itself and on how often it was made, not on the order of those made at once.
    """
    made: dict[str, int] = {}

    def decide(request: Request) -> Fault | None:
        made[str(request)] = made.get(str(request), 0) + 1
        source = random.Random(f"{seed} {request} {made[str(request)]}")
        return Fault(source.choice(kinds), **given) if source.random() < share else None

    return decide


# -- the protocol -------------------------------------------------------------------------------
class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def _handler(store: HttpStore) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        pass

    Handler.store = store
    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: HttpStore

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep quiet: the store keeps its own list."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        key = unquote(url.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        request = Request(self.command, query.get("prefix", "") if "list-type" in query else key, query)
        # Taken in any case: what is left of a body would be read as the next request.
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.store.decide(request)
        self.store.wait(self.store.latency)
        if fault is None and self.command == "PUT":
            self._put(request.key, body)
            return
        if fault is None and self.command == "POST" and "delete" in query:
            self._delete(body)
            return
        if fault is None or fault.kind in ("reset", "truncated"):
            self._answer(request, fault)
        else:
            self._refuse(fault)

    def _put(self, key: str, body: bytes) -> None:
        file = self.store.root / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
        self._send(200, b"", {"ETag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'})

    def _delete(self, body: bytes) -> None:
        keys = [html.unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
        for key in keys:
            (self.store.root / key).unlink()
        done = "".join(f"<Deleted><Key>{html.escape(key)}</Key></Deleted>" for key in keys)
        self._send(200, f"<DeleteResult>{done}</DeleteResult>".encode(), {})

    def _refuse(self, fault: Fault) -> None:
        if fault.kind == "slow":
            self.store.wait(fault.seconds)
            self.close_connection = True
            return
        status, code = {
            "unavailable": (503, "SlowDown"),
            "denied": (403, "AccessDenied"),
            "absent": (404, "NoSuchKey"),
            "answer": fault.answer,
        }[fault.kind]
        headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        self._send(status, _error(code), headers)

    def _answer(self, request: Request, fault: Fault | None) -> None:
        if request.lists:
            self._send(200, _listing(self.store.root, request.query), {}, fault)
            return
        file = self.store.root / request.key
        if not file.is_file():
            self._send(404, _error("NoSuchKey"), {}, fault)
            return
        content, stat = file.read_bytes(), file.stat()
        headers = {
            "ETag": f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"',
            "Last-Modified": email.utils.formatdate(stat.st_mtime, usegmt=True),
            "Accept-Ranges": "bytes",
        }
        asked = self.headers.get("Range")
        if asked is None:
            self._send(200, content, headers, fault)
            return
        start, end = _range(asked, len(content))
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        self._send(206, content[start:end], headers, fault)

    def _send(self, status: int, body: bytes, headers: dict[str, str], fault: Fault | None = None) -> None:
        # Headers and body go out together, and only as far as the fault lets them.
        self.wfile = io.BytesIO()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        head = self.wfile.getvalue()
        shown = b"" if self.command == "HEAD" else body
        if fault is None:
            self.connection.sendall(head + shown)
            return
        self.close_connection = True
        if shown:
            self.connection.sendall(head + shown[: len(shown) // 2])
        if fault.kind == "reset":
            # A socket that doesn't linger tells the other side to forget all of it.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.rfile.close()
            self.connection.close()


def _range(asked: str, size: int) -> tuple[int, int]:
    first, last = asked.removeprefix("bytes=").split("-", 1)
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1 if last else size)


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


def _listing(root: Path, query: dict[str, str]) -> bytes:
    """Answer ListObjectsV2: names in the order of their bytes, folders folded where a delimiter is given."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token") or query.get("start-after", "")
    names = {_folded(name, prefix, delimiter) for name in _objects(root, prefix)}
    wanted = sorted((name for name in names if name.encode() > after.encode()), key=str.encode)
    page = wanted[: int(query.get("max-keys", _PAGE))]
    parts = [_entry(root, name, folder=bool(delimiter) and name.endswith(delimiter)) for name in page]
    more = len(page) < len(wanted)
    token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
    head = f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
        f"{head}<IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(parts)}</ListBucketResult>"
    ).encode()


def _objects(root: Path, prefix: str) -> Iterator[str]:
    folder = root / prefix.rpartition("/")[0]
    # Not rglob, which takes seconds for logs of some length.
    for place, _, files in os.walk(folder):
        inside = "" if Path(place) == root else f"{Path(place).relative_to(root).as_posix()}/"
        yield from (name for file in files if (name := inside + file).startswith(prefix))


def _folded(name: str, prefix: str, delimiter: str) -> str:
    rest = name[len(prefix) :]
    if not delimiter or delimiter not in rest:
        return name
    return prefix + rest.split(delimiter, 1)[0] + delimiter


def _entry(root: Path, name: str, *, folder: bool) -> str:
    if folder:
        return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
    stat = (root / name).stat()
    moment = datetime.fromtimestamp(stat.st_mtime, UTC)
    modified = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    return (
        f"<Contents><Key>{escape(name)}</Key><LastModified>{modified}</LastModified>"
        f"<ETag>&quot;{stat.st_mtime_ns}&quot;</ETag><Size>{stat.st_size}</Size></Contents>"
    )
