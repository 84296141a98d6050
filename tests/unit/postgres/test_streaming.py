"""The division of the server's messages into runs by the streaming gear."""

from __future__ import annotations

import os
import resource
import socket
import struct
import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.connectors.postgres.log.gears import Streaming
from tailrace.process.runtime import THREADS


class Server:
    """libpq's side of a replication connection: one message arrives with each `consume_input`."""

    def __init__(self, messages: int) -> None:
        self._far, near = socket.socketpair()
        self._near = near
        self._far.send(b"x")
        self.socket = near.fileno()
        self._waiting = messages
        self._arrived: deque[bytes] = deque()

    def get_copy_data(self, _: int) -> tuple[int, bytes]:
        return (1, self._arrived.popleft()) if self._arrived else (0, b"")

    def consume_input(self) -> None:
        if self._waiting:
            self._waiting -= 1
            self._arrived.append(struct.pack(">cqqq", b"w", 7, 7, 0) + b"M")

    def put_copy_data(self, data: bytes) -> None:
        pass

    def flush(self) -> int:
        return 0


def gear(messages: int) -> Any:
    connection: Any = SimpleNamespace(pgconn=Server(messages))
    return Streaming(connection, 60.0, THREADS.bell())


def test_what_comes_to_an_idle_stream_is_a_run_at_once() -> None:
    one = gear(3)
    assert len(one.poll(1.0).lsn) == 1


def test_a_busy_stream_gathers_what_comes_soon_after() -> None:
    one = gear(200)
    one.LINGER = 1e-9
    first = one.poll(1.0)
    one.LINGER = 60.0
    one.RUN_BYTES = 100
    assert (len(first.lsn), len(one.poll(1.0).lsn)) == (1, 100)


def test_someone_who_waits_gets_what_is_there() -> None:
    one = gear(200)
    one.poll(1.0)
    one.LINGER = 60.0
    assert len(one.poll(1.0, lambda: True).lsn) == 1


def test_a_bell_ends_the_wait_for_the_server() -> None:
    bell = THREADS.bell()
    connection: Any = SimpleNamespace(pgconn=Server(0))
    connection.pgconn._near.recv(1)
    one = Streaming(connection, 60.0, bell)
    bell.ring()
    began = time.monotonic()
    assert one.poll(60.0) is None
    assert time.monotonic() - began < 30
    bell.close()


def test_a_bell_ends_the_gathering_for_someone_who_is_hurried() -> None:
    bell = THREADS.bell()
    connection: Any = SimpleNamespace(pgconn=Server(2))
    one = Streaming(connection, 60.0, bell)
    one.poll(1.0)
    one.LINGER = 60.0
    hurried = iter([False, False, True, True, True])
    connection.pgconn._near.recv(1)
    connection.pgconn._far.send(b"x")
    threading.Timer(0.1, bell.ring).start()
    assert len(one.poll(60.0, lambda: next(hurried)).lsn) == 1
    bell.close()


def test_a_stream_is_read_in_a_process_with_many_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """`select` cannot watch a descriptor above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < 2048:
        pytest.skip("this process may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        one = gear(3)
        assert min(one._pg.socket, one._bell.fileno()) > 1023
        assert len(one.poll(1.0).lsn) == 1
        unsent = iter([1, 0])
        monkeypatch.setattr(Server, "flush", lambda _: next(unsent))
        one.send_status()
        assert next(unsent, None) is None
    finally:
        for descriptor in others:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
