"""A TCP proxy between the pipeline and its server that can be cut and stalled."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from types import TracebackType

MOST_HEADER = 64
"""Answers of so few bytes are not torn."""


class Proxy:
    """A proxy in one thread, as a context manager. It forwards connections from a port of its own to `port` of
    127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._tears = threading.Event()
        self._torn = threading.Event()
        self._closed = False
        self._acceptor = threading.Thread(target=self._accept, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._acceptor.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed = True
        self._flows.set()
        # Otherwise the thread accepts one more connection.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> int:
        """End all connections at once with a reset. Return their number."""
        with self._lock:
            pairs, self._pairs = self._pairs, {}
        for one in pairs:
            with suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                one.shutdown(socket.SHUT_RDWR)
        return len(pairs) // 2

    def tear(self, seconds: float) -> bool:
        """Let half of the next answer pass, then end all connections. Return False if none came within `seconds`."""
        self._torn.clear()
        self._tears.set()
        is_torn = self._torn.wait(seconds)
        self._tears.clear()
        return is_torn

    def stall(self) -> None:
        """Let nothing pass until `flow`; connections stay open."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=10)
            except OSError:
                near.close()
                continue
            for one in (near, far):
                one.settimeout(None)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs |= {near: far, far: near}
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        with selectors.DefaultSelector() as selector, suppress(OSError):
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            ended = False
            while not ended:
                for key, _ in selector.select():
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    self._flows.wait()
                    if not data:
                        ended = True
                        break
                    if key.fileobj is far and len(data) > MOST_HEADER and self._tears.is_set():
                        key.data.sendall(data[: len(data) // 2])
                        self._tears.clear()
                        self.cut()
                        self._torn.set()
                        ended = True
                        break
                    key.data.sendall(data)
        with self._lock:
            self._pairs.pop(near, None)
            self._pairs.pop(far, None)
        near.close()
        far.close()
