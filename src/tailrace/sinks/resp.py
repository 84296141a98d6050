"""RESP: the protocol of Redis (version 2), as far as the sink of streams needs it. Driver."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Sequence
from typing import Any

_SHOWN = re.compile(r"(?s),? (?:with args|near|while calling|in call).*")


class RedisFault(Exception):
    """An error that Redis answers; `code` is its first word. The text holds nothing of what was sent."""

    def __init__(self, text: str) -> None:
        # Some servers quote the arguments of a command that they do not know.
        super().__init__(_SHOWN.sub("", text.strip()))
        self.code = text.partition(" ")[0]


class RedisConnection:
    """A connection with a server. All calls raise OSError when it is lost or too slow; it is of no use then."""

    def __init__(
        self, host: str, port: int, *, connecting: float, answering: float, tls: ssl.SSLContext | None = None
    ) -> None:
        """Connect within `connecting` seconds; each answer may take `answering`."""
        self._answering = answering
        plain = socket.create_connection((host, port), connecting)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise
        self._socket.settimeout(answering)
        self._answers = self._socket.makefile("rb")

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def call(self, *words: bytes | str | int, longer: float = 0) -> Any:
        """The answer to one command, which may take `longer` seconds more; raises RedisFault where it is an error."""
        self._socket.settimeout(self._answering + longer)
        answer = self.calls([words])[0]
        if isinstance(answer, RedisFault):
            raise answer
        return answer

    def calls(self, commands: Sequence[Sequence[bytes | str | int]]) -> list[Any]:
        """The answers to commands that are sent at once; errors are among them as RedisFault."""
        data = memoryview(b"".join(_encoded(command) for command in commands))
        while data:
            # each part in time: `sendall` would give all of them together the time of one
            data = data[self._socket.send(data) :]
        return [self._answer() for _ in commands]

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("Redis has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode("utf-8", "replace")
        if kind == b"-":
            return RedisFault(rest.decode("utf-8", "replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self._exactly(size + 2)[:-2]
        if kind == b"*":
            count = int(rest)
            return None if count < 0 else [self._answer() for _ in range(count)]
        raise ConnectionResetError("what answers is no Redis")

    def _exactly(self, size: int) -> bytes:
        data = self._answers.read(size)
        if len(data) < size:
            raise ConnectionResetError("Redis has closed the connection")
        return data


def _encoded(words: Sequence[bytes | str | int]) -> bytes:
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
