"""A proxy that speaks TLS to its clients and forwards what they say in the clear, for servers that are built without.

PostgreSQL's clients ask in the clear whether the server speaks TLS, before they begin ("SSL Session Encryption", in
"Message Flow" of PostgreSQL's documentation). A client that does not ask is turned away, as `hostssl` alone in
pg_hba.conf does.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from pathlib import Path
from types import TracebackType

_SSL_REQUEST = struct.pack(">ii", 8, 80877103)
_NO_TLS = b"SFATAL\0VFATAL\0C28000\0Mno pg_hba.conf entry for this host, no encryption\0\0"
_SECONDS = 30.0


class Terminator:
    """Forwards connections of PostgreSQL's clients to the server at `target`; a context manager.

    `certificate` is a PEM file with certificate and key. With `authority` clients must show a certificate of it.
    `seen` counts the clients that have said something under TLS.
    """

    def __init__(self, target: tuple[str, int], certificate: Path, authority: Path | None = None) -> None:
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        if authority is not None:
            self._context.load_verify_locations(authority)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.seen = 0

    def __enter__(self) -> Terminator:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # A thread that waits in accept() keeps the port: shutdown wakes it, close alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            client.settimeout(_SECONDS)
            if client.recv(8, socket.MSG_WAITALL) != _SSL_REQUEST:
                client.sendall(b"E" + struct.pack(">i", 4 + len(_NO_TLS)) + _NO_TLS)
                return
            client.sendall(b"S")
            with self._context.wrap_socket(client, server_side=True) as secure:
                # A client looks at the name after the handshake: its first message tells that it is content.
                first = secure.recv(1 << 16)
                if not first:
                    return
                self.seen += 1
                with socket.create_connection(self._target, timeout=_SECONDS) as server:
                    server.sendall(first)
                    _forward(secure, server)


def _forward(secure: ssl.SSLSocket, server: socket.socket) -> None:
    """Pass bytes both ways until one side ends. One thread for both: OpenSSL takes no two at once."""
    secure.setblocking(False)
    server.setblocking(False)
    ways = {secure: server, server: secure}
    while True:
        ready = [secure] if secure.pending() else select.select([secure, server], [], [])[0]
        for one in ready:
            try:
                data = one.recv(1 << 16)
            except (ssl.SSLWantReadError, BlockingIOError):
                continue
            if not data:
                return
            _send(ways[one], data)


def _send(one: socket.socket, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[one.send(rest) :]
        except (ssl.SSLWantWriteError, BlockingIOError):
            select.select([], [one], [])
        except ssl.SSLWantReadError:
            select.select([one], [], [])
