"""[MS-TDS] packets over a socket, plain or under TLS."""

from __future__ import annotations

import select
import socket
import ssl
import struct

BATCH, RPC, RESPONSE, ATTENTION, BULK, TRANSACTION, LOGIN, PRELOGIN = 1, 3, 4, 6, 7, 14, 16, 18
"""Packet types, [MS-TDS] 2.2.3.1.1."""
END_OF_MESSAGE = 1


class Closed(Exception):
    """The client is gone, or does not speak TDS."""


class Transport:
    """A connection, with its messages in both directions. `secure` wraps the socket in TLS, `plain` unwraps it."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._secure: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._buffer = bytearray()
        self.packet_size = 4096

    # Bytes.

    def _receive(self) -> bytes:
        try:
            data = self._client.recv(65536)
        except OSError as error:
            raise Closed from error
        if not data:
            raise Closed
        return data

    def _fill(self) -> None:
        """Read from the socket into the buffer, at least one byte."""
        if self._secure is None:
            self._buffer += self._receive()
            return
        while True:
            try:
                self._buffer += self._secure.read(65536)
                return
            except ssl.SSLWantReadError:
                self._incoming.write(self._receive())
            except ssl.SSLError as error:
                raise Closed from error

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._fill()
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    def _send(self, data: bytes) -> None:
        if self._secure is not None:
            self._secure.write(data)
            data = self._outgoing.read()
        try:
            self._client.sendall(data)
        except OSError as error:
            raise Closed from error

    def secure(self, context: ssl.SSLContext) -> None:
        """Shake hands for TLS inside PRELOGIN packets and go on under TLS; raises Closed if the handshake fails."""
        wrapped = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        while True:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                self._answer(PRELOGIN)
                kind, data = self.message()
                if kind != PRELOGIN:
                    raise Closed from None
                self._incoming.write(data)
                continue
            except ssl.SSLError as error:
                raise Closed from error
            break
        self._answer(PRELOGIN)
        self._secure = wrapped

    def _answer(self, kind: int) -> None:
        data = self._outgoing.read()
        if data:
            self.send(data, kind)

    def plain(self) -> None:
        """End TLS behind the login packet, if only the login is encrypted."""
        self._secure = None

    # Messages.

    def message(self) -> tuple[int, bytes]:
        """Return the type and the content of the next message."""
        content = bytearray()
        while True:
            kind, status, length = struct.unpack(">BBH", self._take(8)[:4])
            if length < 8 or kind not in (BATCH, RPC, ATTENTION, BULK, TRANSACTION, LOGIN, PRELOGIN):
                raise Closed
            content += self._take(length - 8)
            if status & END_OF_MESSAGE:
                return kind, bytes(content)

    def interrupted(self) -> bool:
        """Return True if the client has sent something, during a response only an attention, or is gone."""
        if self._buffer:
            return True
        ready, _, _ = select.select([self._client], [], [], 0)
        return bool(ready)

    def send(self, content: bytes, kind: int = RESPONSE) -> None:
        """Send one message in as many packets as it needs."""
        self.part(content, kind, last=True)

    def part(self, content: bytes, kind: int = RESPONSE, *, last: bool, number: int = 0) -> int:
        """Send a part of a message; return the number of its last packet. All parts but the last fill their packets."""
        room = self.packet_size - 8
        out = bytearray()
        at = 0
        while True:
            chunk = content[at : at + room]
            at += room
            number += 1
            final = last and at >= len(content)
            out += struct.pack(">BBHHBB", kind, int(final), len(chunk) + 8, 0, number & 0xFF, 0) + chunk
            if at >= len(content):
                break
        self._send(bytes(out))
        return number

    def close(self) -> None:
        """Close the socket."""
        self._client.close()


class Response:
    """A message that is sent while it grows: whole packets are sent at once, the rest waits."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._room = transport.packet_size - 8
        self._buffer = bytearray()
        self._number = 0

    def add(self, content: bytes) -> None:
        """Add tokens."""
        self._buffer += content
        whole = (len(self._buffer) - 1) // self._room * self._room
        if whole >= 16 * self._room:
            self._number = self._transport.part(bytes(self._buffer[:whole]), last=False, number=self._number)
            del self._buffer[:whole]

    def end(self) -> None:
        """Send the rest."""
        self._transport.part(bytes(self._buffer), last=True, number=self._number)
        self._buffer.clear()
