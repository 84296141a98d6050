"""The end of a dump's session: what has arrived whole is delivered, and then the end is told."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.connectors.binlog.log.dump import Dump, ServerRefused
from tailrace.errors import ConnectionFailed
from tailrace.process.runtime import THREADS


def packet(body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + b"\1" + body


EVENT = packet(b"\0" + bytes(40))
REFUSAL = packet(b"\xff" + struct.pack("<H", 1236) + b"#HY000the log is gone")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Dump]]:
    """The server's end of a connection, and the dump that has been asked for at the other end."""
    server, near = socket.socketpair()
    bell = THREADS.bell()
    session: Any = SimpleNamespace(_sock=near, _force_close=near.close)
    dump = Dump(session, bell, 10.0)
    dump.begin(1, "binlog.000001", 4)
    yield server, dump
    dump.close()
    server.close()
    bell.close()


def taken(dump: Dump, patience: float = 5.0) -> int:
    """Return the number of the events that arrive within one step of the reader."""
    if not dump.wait(patience, lambda: False) and not dump.available:
        return 0
    return len(dump.take()[1])


@pytest.mark.parametrize("kept", [1, 4, 5, len(EVENT) - 1])
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("patience", [0.0, 5.0])
def test_a_session_that_is_closed_within_a_packet_has_failed(
    ends: tuple[socket.socket, Dump], patience: float, before: int, kept: int
) -> None:
    server, dump = ends
    server.sendall(before * EVENT + EVENT[:kept])
    assert taken(dump) == before
    server.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionFailed, match="closed the session"):
        [taken(dump, patience) for _ in range(3)]


def test_a_session_that_is_closed_between_packets_has_failed(ends: tuple[socket.socket, Dump]) -> None:
    server, dump = ends
    server.sendall(2 * EVENT)
    server.shutdown(socket.SHUT_WR)
    assert taken(dump) == 2
    with pytest.raises(ConnectionFailed, match="closed the session"):
        taken(dump)


@pytest.mark.parametrize("patience", [0.0, 5.0])
def test_a_refusal_is_told_though_the_session_is_closed_behind_it(
    ends: tuple[socket.socket, Dump], patience: float
) -> None:
    server, dump = ends
    server.sendall(EVENT + REFUSAL)
    server.shutdown(socket.SHUT_WR)
    assert taken(dump) == 1
    with pytest.raises(ServerRefused, match="the log is gone"):
        taken(dump, patience)
