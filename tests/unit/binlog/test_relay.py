"""The relay between tasks and the sessions of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.connectors.binlog.snapshot.relay import Relay
from tailrace.connectors.binlog.snapshot.result import TextRows
from tailrace.connectors.binlog.snapshot.text_kernels import PLAIN
from tailrace.errors import ConnectionFailed

ROW = b"\x04\x00\x00\x05\x01a\x01b"


class Lost:
    """A session that has received `data`, and nothing more. As a stream it raises if `resets`, else it ends."""

    def __init__(self, data: bytes, *, resets: bool) -> None:
        self._data, self._resets = data, resets
        self._rfile = self

    def read1(self, size: int) -> bytes:
        if not self._data and self._resets:
            raise ConnectionResetError(104, "Connection reset by peer")
        found, self._data = self._data[:size], self._data[size:]
        return found

    def close(self) -> None:
        return


class Client:
    """A task that keeps what it gets."""

    def __init__(self) -> None:
        self.data = b""

    def sendall(self, data: Any) -> None:
        self.data += bytes(data)

    def receive(self, into: memoryview) -> int:
        found, self.data = self.data[: len(into)], self.data[len(into) :]
        into[: len(found)] = found
        return len(found)


@pytest.fixture
def relay() -> Iterator[Relay]:
    def none() -> Any:
        raise ConnectionFailed("There is no server.")

    found = Relay([], none, none)
    yield found
    found.close()


@pytest.mark.parametrize("resets", [False, True])
def test_a_session_that_ends_between_two_rows_is_told_as_the_servers_error(relay: Relay, resets: bool) -> None:
    client = Client()
    session: Any = Lost(ROW, resets=resets)
    assert not relay._hand_on(client, session, 1)  # type: ignore[arg-type]  # has what is used of a socket
    assert client.data.startswith(ROW)
    assert b"the session has ended" in client.data


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("size", range(5, 8))
def test_a_session_that_ends_within_a_row_leaves_no_bytes_that_look_like_its_rest(
    relay: Relay, size: int, resets: bool
) -> None:
    client = Client()
    session: Any = Lost(ROW[:size], resets=resets)
    assert not relay._hand_on(client, session, 1)  # type: ignore[arg-type]  # has what is used of a socket
    assert client.data == ROW[:size]
    with pytest.raises(ConnectionFailed, match="ended in the middle of a result"):
        list(TextRows(client.receive, [PLAIN, PLAIN], 5).batches())
