"""An HTTP client with one persistent connection, without redirects and proxies. Driver."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

FAILURES = (OSError, http.client.HTTPException)
"""Exceptions of a request whose server is not reached or does not answer in HTTP."""

Headers = Iterable[tuple[str, str | bytes]]
"""Names and values of headers; a name may occur several times."""

_MOST = 1 << 20
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a URL. `shown` is the server only, since path and query may hold a secret."""

    scheme: str
    host: str
    port: int | None
    target: str
    shown: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse a URL. Raises ValueError with a message that continues a sentence after the option's name."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError("is not a URL") from None
        if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
            raise ValueError("must be a URL that begins with http:// or https://")
        if parts.username or parts.password:
            raise ValueError("must hold no user and no password")
        if not (url.isascii() and url.isprintable()) or " " in url:
            raise ValueError("has characters that must be percent-encoded")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        shown = f"{parts.scheme}://{host}{f':{port}' if port else ''}"
        return cls(parts.scheme.lower(), parts.hostname, port, target, shown)


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of an answer; the body is cut off after 1 MiB."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class WebClient:
    """A client that sends requests to one address, one at a time."""

    def __init__(self, address: Address, timeout: float) -> None:
        """Do not connect yet. `timeout`, in seconds, applies to the connection and to each wait for an answer."""
        self.address = address
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None

    def send(self, method: str, headers: Headers, body: bytes = b"", query: str = "") -> Answer:
        """Send a request and return the answer. Raises one of FAILURES. `query` is appended to the address's query.

        If the server has closed the idle connection, the request is sent once more on a new one.
        """
        rested, headers = self._connection is not None, list(headers)
        try:
            return self._sent(method, headers, body, query)
        except (ConnectionError, http.client.RemoteDisconnected):
            if not rested:
                raise
            return self._sent(method, headers, body, query)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _sent(self, method: str, headers: Headers, body: bytes, query: str) -> Answer:
        target = self.address.target
        if query:
            target += ("&" if "?" in target else "?") + query
        try:
            connection = self._opened()
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            if method != "GET":
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            answer = connection.getresponse()
            found = Answer(answer.status, answer.read(_MOST))
            if answer.read(1) or answer.will_close:
                self.close()
            return found
        except BaseException:
            self.close()
            raise

    def _opened(self) -> http.client.HTTPConnection:
        if self._connection is None:
            at = self.address
            if at.scheme == "https":
                self._connection = http.client.HTTPSConnection(
                    at.host, at.port, timeout=self._timeout, context=ssl.create_default_context()
                )
            else:
                self._connection = http.client.HTTPConnection(at.host, at.port, timeout=self._timeout)
        return self._connection


def is_header_name(name: str) -> bool:
    """Return True if a text may be the name of a header."""
    return _TOKEN.fullmatch(name) is not None


def is_header_value(value: bytes) -> bool:
    """Return True if bytes may be the value of a header: no line ends, no control characters except tabs."""
    return all(byte >= 0x20 or byte == 0x09 for byte in value) and 0x7F not in value


def failure(error: BaseException) -> str:
    """Return the reason of `error`, one of FAILURES, without data."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, http.client.HTTPException) and not isinstance(error, ConnectionError):
        return "its answer is not HTTP"
    return str(getattr(error, "strerror", None) or error).rstrip(".") or type(error).__name__
