"""A server of HTTP for tests, which answers what it is told and remembers what it was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Request:
    """A request; `headers` have names in small letters, in their order."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for found, value in self.headers if found == name.lower()), None)


Answers = Callable[[Request], tuple[int, bytes]]


def always(status: int) -> Answers:
    """The same answer to all requests."""
    return lambda request: (status, b"")


class WebServer:
    """A server on a free port of 127.0.0.1; a context manager. `answers` may be changed at any time.

    An answer with the status 0 is none: the connection is closed.
    """

    def __init__(self, answers: Answers = always(200)) -> None:  # noqa: B008 - it holds nothing
        self.answers = answers
        self.requests: list[Request] = []
        self.connections = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                named = tuple((name.lower(), value) for name, value in self.headers.items())
                request = Request(self.command, self.path, named, body)
                outer.requests.append(request)
                status, text = outer.answers(request)
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_GET = answer  # noqa: N815 - the names of http.server

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name of http.server
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of all requests, in their order."""
        return [request.body for request in self.requests]

    def __enter__(self) -> WebServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
