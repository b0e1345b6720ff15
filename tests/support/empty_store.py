"""A server that has nothing, and keeps what it was asked for: by whom and where a store is asked."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer


class EmptyStore:
    """Keeps the path and the headers of each request; as a proxy, the whole address."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append((self.path, dict(self.headers)))
                self.send_error(404)

            def log_message(self, *_: object) -> None:
                return

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> EmptyStore:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
