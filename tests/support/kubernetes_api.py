"""As much of Kubernetes' API as ``spark-submit`` asks for in deploy mode cluster: what it posts is kept."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class KubernetesApi:
    """A server on a free port that takes every object it is given, and runs none of it."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def master(self) -> str:
        """Return the master URL that names it."""
        return f"k8s://http://127.0.0.1:{self._server.server_address[1]}"

    def kept(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind, in the order in which they came."""
        return [one for one in self.objects if one.get("kind") == kind]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def kubernetes_api() -> Iterator[KubernetesApi]:
    """Run the API for the length of a block."""
    api = KubernetesApi()
    api.start()
    try:
        yield api
    finally:
        api.stop()


def _handler(api: KubernetesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(404, {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"})

        def do_POST(self) -> None:
            self._keep(201)

        def do_PATCH(self) -> None:
            self._keep(200)

        def do_PUT(self) -> None:
            self._keep(200)

        def do_DELETE(self) -> None:
            self._answer(200, {"kind": "Status", "status": "Success"})

        def _keep(self, code: int) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = json.loads(sent)
            metadata = found.setdefault("metadata", {})
            metadata.setdefault("uid", f"uid-{len(api.objects)}")
            metadata.setdefault("resourceVersion", "1")
            api.objects.append(found)
            self._answer(code, found)

        def _answer(self, code: int, body: dict[str, Any]) -> None:
            api.asked.append(f"{self.command} {self.path}")
            text = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Tests ask for what was asked; the terminal needs none of it."""

    return Handler
