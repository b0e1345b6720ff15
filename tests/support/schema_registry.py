"""A schema registry on this machine, for Confluent's own client and for ours."""

from __future__ import annotations

import json
import threading
import time as clock
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator


class Served:
    """A registry that speaks the documented calls of Confluent's and Apicurio's."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    def register(self, subject: str, schema: str, **more: Any) -> int:
        entry = {"schema": schema, **more}
        if entry not in self.schemas:
            self.schemas.append(entry)
        number = self.schemas.index(entry) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, str]:
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        unknown = 404, json.dumps({"error_code": 40403, "message": "Schema not found"})
        if method == "POST" and parts[0] == "subjects":
            given = json.loads(body)
            number = self.register(parts[1], given.pop("schema"), **given)
            return 200, json.dumps({"id": number, "version": 1, "schema": self.schemas[number - 1]["schema"]})
        if parts[:2] == ["schemas", "ids"]:
            at = int(parts[2]) - 1
            return (200, json.dumps(self.schemas[at])) if 0 <= at < len(self.schemas) else unknown
        if parts[0] == "subjects" and len(parts) == 4:
            versions = self.subjects.get(parts[1], [])
            at = int(parts[3]) - 1
            return (200, json.dumps(self.schemas[versions[at] - 1])) if at < len(versions) else unknown
        if parts[:2] == ["apis", "registry"]:
            wanted = "dereference=true" if parts[2] == "v2" else "references=DEREFERENCE"
            if parts[3:5] in (["ids", "globalIds"], ["ids", "contentIds"]) and wanted in path:
                at = int(parts[5]) - (1 if parts[4] == "globalIds" else 101)
                if 0 <= at < len(self.schemas):
                    return 200, self.schemas[at]["schema"]
                return 404, json.dumps({"error_code": 404, "name": "ArtifactNotFoundException"})
        if parts[0] == "status":
            return int(parts[1]), "no"
        if parts[0] == "text":
            return 200, {
                "html": "<html>",
                "list": "[]",
                "none": "{}",
                "long": "x" * (17 << 20),
                "wrong": '{"schema":5}',
            }[parts[1]]
        if parts[0] == "bytes":
            return 200, "\udcff"
        return 404, json.dumps({"error_code": 404, "message": "HTTP 404 Not Found"})


class Quiet(ThreadingHTTPServer):
    """A server that keeps to itself which clients went away."""

    def handle_error(self, *_: Any) -> None:
        pass


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Served]:
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply("GET")

        def do_POST(self) -> None:
            self.reply("POST")

        def reply(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            served.requests.append(f"{method} {self.path}")
            served.headers.append(dict(self.headers))
            if self.path.startswith("/hang"):
                clock.sleep(1)
            if self.path.startswith("/drop"):
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nx")
                self.close_connection = True
                return
            code, text = served.answer(method, self.path, body)
            data = text.encode(errors="surrogateescape")
            self.send_response(code)
            if code in (301, 307):
                self.send_header("Location", f"{served.url}/schemas/ids/1")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = Quiet(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        served.url = f"https://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
