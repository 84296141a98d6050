"""A Redis for tests: the machine's own redis-server, or that of Debian's packages."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.sinks.redis import RedisConnection
from tests.servers.debian import Server


class RedisServer(Server):
    """See Server."""

    program = "redis-server"
    packages = (
        "redis-server", "redis-tools", "libatomic1", "libhiredis0.14", "libjemalloc2", "liblua5.1-0", "liblzf1",
        "lua-bitop", "lua-cjson",
    )  # fmt: skip

    def __init__(self, *options: str, tls: bool = False) -> None:
        """`options` are those of the command line; with `tls` the port speaks TLS alone."""
        super().__init__()
        self._options = options
        self._tls = tls

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def arguments(self) -> Sequence[str]:
        ports = ["--port", "0", "--tls-port", str(self.port)] if self._tls else ["--port", str(self.port)]
        common = ["--bind", "127.0.0.1", "--dir", str(self._folder), "--appendonly", "yes", "--save", ""]
        return [*ports, *common, "--appendfsync", "always", *self._options]

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
