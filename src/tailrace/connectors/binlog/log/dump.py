"""Dump: the log as a server sends it to a replica, packet by packet, over a session's socket. Planner, reader's thread.

PyMySQL opens the session, with TLS and authentication, and runs the statements before the dump. From then on this
module reads the socket. A packet holds one event; an event of 16 MiB or more spans several packets.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.connectors.binlog.log.gtids import MysqlGtids
from tailrace.errors import ConnectionFailed
from tailrace.process.runtime import THREADS, Bell, Runtime

if TYPE_CHECKING:
    from pymysql.connections import Connection

BUFFER_BYTES = 1 << 20
LARGEST_PACKET = 0xFFFFFF
_COM_BINLOG_DUMP, _COM_BINLOG_DUMP_GTID = 0x12, 0x1E
_ANNOTATE, _BY_GTID = 2, 4
_OK, _EOF, _ERROR = 0x00, 0xFE, 0xFF


class ServerRefused(Exception):
    """An error packet in the dump: the server's code and message."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


def _closed() -> ConnectionFailed:
    return ConnectionFailed(
        "The server has closed the session that reads its log.",
        "Start again with the same checkpoint when it is back: nothing is lost.",
    )


class Dump:
    """A running dump. `heartbeat` is the number of seconds after which an idle server sends a heartbeat."""

    def __init__(self, connection: Connection[Any], bell: Bell, heartbeat: float, runtime: Runtime = THREADS) -> None:
        self._connection = connection
        self._bell = bell
        self._runtime = runtime
        self._heartbeat = heartbeat
        self._socket: Any = None
        self._buffer = bytearray(BUFFER_BYTES)
        # the number of used bytes in the buffer, and the place of the next packet
        self._filled = self._at = 0
        self._heard = runtime.monotonic()
        self._is_closed = False
        self.received = 0

    # --- the beginning -------------------------------------------------------------------------------------------

    def prepare(self, is_mariadb: bool) -> None:
        """Set the session variables that tell the server which features this replica supports."""
        nanoseconds = int(self._heartbeat * 1e9)
        with self._connection.cursor() as cursor:
            for prefix in ("master", "source"):
                cursor.execute(f"SET @{prefix}_binlog_checksum = @@global.binlog_checksum")
                cursor.execute(f"SET @{prefix}_heartbeat_period = {nanoseconds}")
            if is_mariadb:
                cursor.execute("SET @mariadb_slave_capability = 4")

    def begin(self, server_id: int, file: str, position: int) -> None:
        """Request the log from a position of a file on."""
        body = struct.pack("<IHI", max(position, 4), _ANNOTATE, server_id) + file.encode()
        self._ask(_COM_BINLOG_DUMP, body)

    def begin_behind(self, server_id: int, executed: MysqlGtids) -> None:
        """Request from MySQL the transactions that are not in `executed`."""
        encoded = executed.encoded()
        head = struct.pack("<HII", _BY_GTID, server_id, 0) + struct.pack("<QI", 4, len(encoded))
        self._ask(_COM_BINLOG_DUMP_GTID, head + encoded)

    def begin_after(self, server_id: int, executed: str) -> None:
        """Request from MariaDB the log after `executed`, the last transaction of each domain."""
        with self._connection.cursor() as cursor:
            cursor.execute("SET @slave_connect_state = %s", (executed,))
            cursor.execute("SET @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0")
        self._ask(_COM_BINLOG_DUMP, struct.pack("<IHI", 4, _ANNOTATE, server_id))

    def _ask(self, command: int, body: bytes) -> None:
        # a command is the first packet of its exchange
        packet = struct.pack("<I", len(body) + 1)[:3] + b"\0" + bytes([command]) + body
        self._socket = self._connection._sock
        self._socket.sendall(packet)
        self._socket.setblocking(False)
        self._heard = self._runtime.monotonic()

    # --- events --------------------------------------------------------------------------------------------------

    def wait(self, seconds: float, is_hurried: Callable[[], bool]) -> bool:
        """Wait for bytes and receive them. Return False if none came in time, or if `is_hurried` returns True.

        Raises ConnectionFailed if the server has missed its heartbeats.
        """
        if self._is_closed and self.available:
            return False
        if self._receive():
            return True
        deadline = self._runtime.monotonic() + seconds
        while not self._is_closed:
            left = deadline - self._runtime.monotonic()
            if left <= 0:
                break
            ready = self._runtime.ready((self._socket.fileno(), self._bell.fileno()), left)
            if self._bell.fileno() in ready:
                self._bell.silence()
            if self._socket.fileno() in ready and self._receive():
                return True
            if self._bell.fileno() in ready and is_hurried():
                return self._receive()
        if not self._is_closed and self._runtime.monotonic() - self._heard > 3 * self._heartbeat + 10:
            raise ConnectionFailed("The server has sent nothing for a while, not even a heartbeat.")
        return False

    def _receive(self) -> bool:
        """Read once from the socket. Return False if it has no bytes."""
        if len(self._buffer) - self._filled < BUFFER_BYTES // 4:
            self._buffer.extend(bytes(max(BUFFER_BYTES, len(self._buffer))))
        view = memoryview(self._buffer)
        try:
            count = self._socket.recv_into(view[self._filled :])
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        finally:
            view.release()
        if not count:
            if self.available and not self._is_closed:
                # an error packet that has arrived may give the reason
                self._is_closed = True
                return False
            raise _closed()
        self._filled += count
        self.received += count
        self._heard = self._runtime.monotonic()
        return True

    @property
    def available(self) -> int:
        """The number of bytes that have arrived and are not taken."""
        return self._filled - self._at

    def take(self) -> tuple[bytearray, list[tuple[int, int]]]:
        """Return the bytes that have arrived, and the bounds of the complete events in them. The rest is kept for the
        next call.

        Raises ServerRefused for an error packet, EOFError if the server has ended the dump, and ConnectionFailed if the
        session was closed within a packet.
        """
        buffer, at, filled = self._buffer, self._at, self._filled
        found: list[tuple[int, int]] = []
        while filled - at >= 5:
            length = buffer[at] | buffer[at + 1] << 8 | buffer[at + 2] << 16
            if filled - at - 4 < length:
                break
            if length == LARGEST_PACKET:
                whole = self._joined(at)
                if not whole:
                    break
                filled = self._filled
                length = whole
            begin = at + 4
            status = buffer[begin]
            if status != _OK:
                if found:
                    # the events before this packet are delivered first, and the packet is kept
                    break
                if status == _ERROR:
                    code = int.from_bytes(buffer[begin + 1 : begin + 3], "little")
                    text = bytes(buffer[begin + 3 : begin + length])
                    raise ServerRefused(code, text[6 if text[:1] == b"#" else 0 :].decode("utf-8", "replace"))
                raise EOFError("the server has ended the dump")
            found.append((begin + 1, begin + length))
            at = begin + length
        if not found:
            if self._is_closed:
                raise _closed()
            return bytearray(), []
        rest = buffer[at:filled]
        self._buffer = bytearray(max(BUFFER_BYTES, 2 * len(rest)))
        self._buffer[: len(rest)] = rest
        self._filled, self._at = len(rest), 0
        return buffer, found

    def _joined(self, at: int) -> int:
        """Remove the headers between the packets of one event. Return the event's length, 0 if it is incomplete."""
        buffer, place, headers = self._buffer, at, []
        while True:
            if self._filled - place < 4:
                return 0
            length = buffer[place] | buffer[place + 1] << 8 | buffer[place + 2] << 16
            if self._filled - place - 4 < length:
                return 0
            headers.append(place)
            place += 4 + length
            if length < LARGEST_PACKET:
                break
        for header in reversed(headers[1:]):
            del buffer[header : header + 4]
        self._filled -= 4 * (len(headers) - 1)
        return place - at - 4 * len(headers)

    def close(self) -> None:
        """End the session at once: the server notices when it next writes."""
        connection, self._socket = self._connection, None
        connection._force_close()
