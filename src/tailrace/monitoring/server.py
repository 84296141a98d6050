"""The HTTP server of a pipeline: page, status, metrics, health, and signals. Driver.

A thread answers each request. All paths demand the token, except for health and the page, which shows nothing without
the status.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from tailrace.errors import ConfigError, TailraceError
from tailrace.monitoring.exposition import exposed
from tailrace.monitoring.health import ALL, LIVE, READY, STARTED, Health
from tailrace.monitoring.observation import Observation

Send = Callable[[str, str, str | None], str]
"""Sends a signal: its id, its type, and its data as JSON; returns a sentence. Raises TailraceError."""

_log = logging.getLogger("tailrace")

_MOST_BYTES = 64 << 10
"""The largest body of a request."""

_PATIENCE_S = 10.0
"""Seconds for which a client may be silent."""

_MOST_CLIENTS = 64
"""The most connections at a time, each with a thread. One more ends the oldest: slow clients hold up no probe."""

_HEALTH = {
    f"{prefix}{path}": group
    for prefix in ("", "/q/health")
    for path, group in (("/live", LIVE), ("/ready", READY), ("/started", STARTED))
} | {"/health": ALL, "/q/health": ALL}


class HttpServer:
    """The server at `host` and `port`; with port 0 the system chooses one.

    `token` is the token that requests need, None if they need none. `send` sends a signal; None if the pipeline has no
    channel for signals. With `has_tables` signals can add and remove tables. The constructor opens the port, and raises
    ConfigError if that fails; `start` answers requests.
    """

    def __init__(
        self,
        observation: Observation,
        health: Health,
        *,
        host: str,
        port: int,
        token: str | None,
        send: Send | None = None,
        has_tables: bool = False,
    ) -> None:
        self.observation, self.health, self.token, self.send = observation, health, token, send
        self.page = files("tailrace.monitoring").joinpath("page.html").read_text("utf-8")
        self.is_local, self.has_tables = is_loopback(host), has_tables
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._server = type("_Server", (_Server,), {"address_family": family})((host, port), self)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"The HTTP server cannot listen at {host}:{port}: {getattr(error, 'strerror', None) or error}.",
                "Name another http.port, an http.host of this machine, or set http.port to 0.",
            ) from None
        self.port = int(self._server.server_address[1])
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def start(self) -> None:
        """Answer requests, in threads of their own, until `close`."""
        threading.Thread(target=self._server.serve_forever, args=(0.2,), name="tailrace-http", daemon=True).start()
        self._is_started = True

    _is_started = False

    def close(self) -> None:
        """Close the port. May be called twice."""
        if self._is_started:
            self._is_started = False
            self._server.shutdown()
        self._server.server_close()


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 2 * _MOST_CLIENTS

    def __init__(self, address: tuple[str, int], owner: HttpServer) -> None:
        self.owner = owner
        self._lock = threading.Lock()
        # in the order in which they came
        self._clients: dict[socket.socket, None] = {}
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            oldest = next(iter(self._clients)) if len(self._clients) >= _MOST_CLIENTS else None
            if oldest is not None:
                del self._clients[oldest]
                with suppress(OSError):
                    # its thread notices, and closes it
                    oldest.shutdown(socket.SHUT_RDWR)
            self._clients[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a request of the HTTP server has failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "tailrace"
    sys_version = ""
    timeout = _PATIENCE_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: a scrape every few seconds is no news."""

    @property
    def _owner(self) -> HttpServer:
        return self.server.owner

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        path = path.rstrip("/") or "/"
        if path in _HEALTH:
            is_up, body = self._owner.health.answer(_HEALTH[path])
            self._json(200 if is_up else 503, body)
        elif path == "/":
            self._send_page()
        elif path == "/api/signals":
            self._json(405, {"error": "A signal is sent by POST."}, {"Allow": "POST"})
        elif path not in ("/status", "/metrics"):
            self._json(404, {"error": "There are /, /status, /metrics, /health, /live, /ready and /started."})
        elif self._is_admitted():
            if path == "/metrics":
                self._answer(200, *exposed(self._owner.observation, self.headers.get("Accept", "")))
            else:
                owner = self._owner
                has_signals = owner.send is not None
                given = {"has_signals": has_signals, "has_tables": has_signals and owner.has_tables}
                self._json(200, owner.observation.state() | given)

    def do_POST(self) -> None:
        if urlsplit(self.path).path.rstrip("/") != "/api/signals":
            self._json(404, {"error": "There is /api/signals."})
            return
        if not self._is_admitted():
            return
        # a page of another site can send a form, but no JSON
        if self.headers.get_content_type() != "application/json":
            self._json(415, {"error": "A signal is sent as application/json."})
            return
        if self._owner.send is None:
            self._json(503, {"error": "The pipeline has no channel for signals: see signal.enabled.channels."})
            return
        try:
            size = int(self.headers.get("Content-Length", ""))
        except ValueError:
            self._json(411, {"error": "The request names no Content-Length."})
            return
        if not 0 <= size <= _MOST_BYTES:
            self._json(413, {"error": f"A signal has at most {_MOST_BYTES} bytes."})
            return
        self._signal(self._owner.send, self.rfile.read(size))

    def _signal(self, send: Send, body: bytes) -> None:
        try:
            given = json.loads(body)
            named = [given.get(name) for name in ("id", "type", "data")]
        except (ValueError, AttributeError, RecursionError):
            self._json(400, {"error": "The body is no JSON object."})
            return
        if not all(value is None or isinstance(value, str) for value in named) or not named[1]:
            self._json(400, {"error": "id, type and data are texts, and type is needed."})
            return
        identity, kind, data = named
        try:
            self._json(202, {"sent": send(identity or secrets.token_hex(8), kind, data)})
        except TailraceError as error:
            self._json(400 if isinstance(error, ConfigError) else 503, {"error": str(error)})

    def _is_admitted(self) -> bool:
        """Return True if the request has the token, or needs none; else answer it."""
        token = self._owner.token
        if token is None:
            # without a token, a host name of another site that resolves to this host must not give it access
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            if not self._owner.is_local or is_loopback(host):
                return True
            self._json(403, {"error": "This server answers requests for its own address alone."})
            return False
        scheme, _, bearer = self.headers.get("Authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else ""
        if hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
            return True
        words = {"error": "The header Authorization: Bearer TOKEN is needed; http.token has the token."}
        self._json(401, words, {"WWW-Authenticate": "Bearer"})
        return False

    def _send_page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        body = self._owner.page.replace("NONCE", nonce)
        self._answer(200, body.encode(), "text/html; charset=utf-8", {"Content-Security-Policy": policy})

    def _json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self._answer(status, json.dumps(body).encode(), "application/json", headers)

    def _answer(self, status: int, body: bytes, content_type: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        named = {
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        for name, value in (named | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
