"""A Redis for tests: the machine's own redis-server, or that of Debian's packages."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tailrace.sinks.resp import RedisConnection
from tests.servers import debian

PACKAGES = (
    "redis-server", "redis-tools", "libatomic1", "libhiredis0.14", "libjemalloc2", "liblua5.1-0", "liblzf1",
    "lua-bitop", "lua-cjson",
)  # fmt: skip


def find() -> tuple[Path, dict[str, str]]:
    """The server's program and the environment that it needs; raises Unavailable."""
    return debian.find("redis-server", PACKAGES)


class RedisServer:
    """A server on a free port of 127.0.0.1, with its data in a directory of its own; a context manager."""

    def __init__(self, *options: str, tls: bool = False) -> None:
        """`options` are those of the command line; with `tls` the port speaks TLS alone."""
        self._program, self._environment = find()
        self._options = options
        self._tls = tls
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, on the data that are there; returns when it takes connections."""
        ports = ["--port", "0", "--tls-port", str(self.port)] if self._tls else ["--port", str(self.port)]
        common = ["--bind", "127.0.0.1", "--dir", str(self._folder), "--appendonly", "yes", "--save", ""]
        self._process = subprocess.Popen(
            [str(self._program), *ports, *common, "--appendfsync", "always", *self._options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=self._environment,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError("redis-server did not start")
            time.sleep(0.02)

    def kill(self) -> None:
        """End the process at once, as a crash does; what it holds on disk stays."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def connect(self) -> RedisConnection:
        """A connection in the clear; the caller closes it."""
        return RedisConnection("127.0.0.1", self.port, connecting=10, answering=10)

    def call(self, *words: bytes | str | int, login: Sequence[str] = ()) -> object:
        """The answer to one command, on a connection of its own."""
        connection = self.connect()
        try:
            if login:
                connection.call("AUTH", *login)
            return connection.call(*words)
        finally:
            connection.close()

    def entries(self, stream: str) -> list[list[bytes]]:
        """Names and values of each entry of a stream, in its order."""
        found = self.call("XRANGE", stream, "-", "+")
        assert isinstance(found, list)
        return [pairs for _, pairs in found]

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> RedisServer:
        self._folder = Path(tempfile.mkdtemp(prefix="tailrace-redis-"))
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
