"""A reverse proxy as one stands before Airflow: it serves one path, and names itself in headers."""

from __future__ import annotations

from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

#: Headers of one connection, which a proxy does not hand on.
_OF_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})


class PathProxy:
    """Hands on what lies below a path, with ``X-Forwarded-*``; all else does not exist.

    Use it as a context manager. ``answers`` has the method, path and status of each request.

    :param path: such as ``/airflow``
    :param port: its own
    :param server: port of the server behind it, on this machine
    """

    def __init__(self, path: str, port: int, server: int) -> None:
        self.url = f"http://127.0.0.1:{port}{path}"
        self.answers: list[tuple[str, str, int]] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else None
                if not self.path.startswith(f"{path}/"):
                    status, headers, content = 404, [], b"outside of the proxy's path"
                else:
                    status, headers, content = self._handed_on(body)
                proxy.answers.append((self.command, self.path, status))
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in _OF_CONNECTION:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def _handed_on(self, body: bytes | None) -> tuple[int, list[tuple[str, str]], bytes]:
                headers = {
                    name: value for name, value in self.headers.items() if name.lower() not in _OF_CONNECTION
                }
                headers |= {
                    "Host": f"127.0.0.1:{server}",
                    "X-Forwarded-For": "203.0.113.7",
                    "X-Forwarded-Host": f"127.0.0.1:{port}",
                    "X-Forwarded-Proto": "http",
                    "X-Forwarded-Prefix": path,
                }
                connection = HTTPConnection("127.0.0.1", server, timeout=300)
                try:
                    connection.request(self.command, self.path, body, headers)
                    answer = connection.getresponse()
                    return answer.status, answer.getheaders(), answer.read()
                except OSError:
                    return 502, [], b"the server does not answer"
                finally:
                    connection.close()

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = _answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
