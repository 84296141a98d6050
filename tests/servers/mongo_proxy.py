"""A proxy that speaks MongoDB's wire protocol between a client and a server, and changes what the server cannot show.

Each change is a class: `Oplog` lets a client find a capped collection where it asks for local.oplog.rs, so that entries
of the shapes of every MongoDB can be read, which SecantusDB neither writes nor lets be inserted; `Mongos` makes the
server look like the router of a sharded cluster; `Failing` answers chosen commands with an error; `Identified` gives
the server an identity of a real one. The client is told
the proxy's own address and stays with it.
Only uncompressed OP_MSG and the old handshake are changed; the driver uses nothing else unless asked to.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any
from uuid import UUID

import bson
from bson import Binary, Int64
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

OP_REPLY, OP_MSG = 1, 2013
SET_NAME = "rs0"
"""The replica set's name behind an `Oplog`."""
STAND_IN = ("local", "oplog_golden")
"""The database and collection that `Oplog` shows as the oplog; `_id` is a running number there."""

_HEAD = struct.Struct("<iiii")
_SIZE = struct.Struct("<i")
_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)

Document = dict[str, Any]


class Change:
    """The functions by which a proxy changes documents; None leaves everything as it is. This one changes nothing."""

    replies: tuple[bytes, ...] = (b"setName",)
    """Replies are looked at only when they hold one of these texts; the others pass byte by byte."""

    def request(self, document: Document) -> Document | None:
        """A command on its way to the server."""
        return None

    def answer(self, document: Document) -> Document | None:
        """The answer that the server would give to the command, without asking it."""
        return None

    def reply(self, document: Document) -> Document | None:
        """The server's reply on its way to the client."""
        return None

    def loses(self, document: Document) -> bool:
        """True if the connection ends when the server has carried out the command, before its reply has come."""
        return False


class Oplog(Change):
    """Shows `STAND_IN` as the oplog of the replica set `SET_NAME`.

    In the replies a document {"rawBson": bytes} becomes the document that the bytes are: SecantusDB does not keep
    types that are deprecated.
    """

    replies = (b"setName", b"rawBson")

    def request(self, document: Document) -> Document | None:
        command = next(iter(document))
        if document[command] != "oplog.rs" or document.get("$db") != "local":
            return None
        document["$db"], document[command] = STAND_IN
        if document.get("sort") == {"$natural": -1}:
            # Its capped collections come in ascending order whatever is asked for.
            document["sort"] = {"_id": -1}
        return document

    def reply(self, document: Document) -> Document | None:
        if "setName" in document:
            document["setName"] = SET_NAME
        return _unpack(document)  # type: ignore[no-any-return]


class Mongos(Change):
    """Makes the server look like a mongos: no replica set, no oplog."""

    replies = (b"ismaster", b"isWritablePrimary")

    def answer(self, document: Document) -> Document | None:
        command = next(iter(document))
        if command.startswith("replSet"):
            return error(59, "CommandNotFound", f"no such command: '{command}'")
        return None

    def reply(self, document: Document) -> Document | None:
        if "ismaster" not in document and "isWritablePrimary" not in document:
            return None
        for name in ("setName", "setVersion", "hosts", "passives", "arbiters", "primary", "me", "electionId",
                     "secondary", "lastWrite"):  # fmt: skip
            document.pop(name, None)
        return document | {"msg": "isdbgrid"}


class Failing(Change):
    """Answers the next `times` commands that `matches` with an error document; -1: always."""

    def __init__(self, matches: Callable[[Document], bool], document: Document, times: int = -1) -> None:
        self.matches = matches
        self.document = document
        self.times = times

    def answer(self, document: Document) -> Document | None:
        if self.times == 0 or not self.matches(document):
            return None
        self.times -= self.times > 0
        return self.document


class Identified(Change):
    """Shows the collection admin.system.version with a UUID, as every replica set has one of its own."""

    def __init__(self, uuid: UUID) -> None:
        self.uuid = uuid

    def answer(self, document: Document) -> Document | None:
        if next(iter(document)) != "listCollections" or document.get("$db") != "admin":
            return None
        shown = {
            "name": "system.version",
            "type": "collection",
            "options": {},
            "info": {"uuid": Binary.from_uuid(self.uuid)},
        }
        return {"ok": 1.0, "cursor": {"id": Int64(0), "ns": "admin.$cmd.listCollections", "firstBatch": [shown]}}


def error(code: int, name: str, text: str, *labels: str) -> Document:
    """An error as a server answers it."""
    return {"ok": 0.0, "errmsg": text, "code": code, "codeName": name} | (
        {"errorLabels": list(labels)} if labels else {}
    )


class Proxy:
    """A proxy on a free port of 127.0.0.1 before the server at `host:port`; a context manager."""

    def __init__(self, server: str, change: Change) -> None:
        host, port = server.rsplit(":", 1)
        self._server = (host, int(port))
        self.change = change
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections at once, as a server does that loses its primary or its network."""
        with self._lock:
            ends = list(self._open)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._link, args=(client, server), daemon=True).start()

    def _link(self, client: socket.socket, server: socket.socket) -> None:
        """Both directions of one connection, until either end is closed."""
        lost: set[int] = set()
        back = threading.Thread(target=self._replies, args=(server, client, lost), daemon=True)
        back.start()
        try:
            self._requests(client, server, lost)
        finally:
            back.join()
            with self._lock:
                self._open -= {client, server}
            client.close()
            server.close()

    def _requests(self, client: socket.socket, server: socket.socket, lost: set[int]) -> None:
        with _ending(client, server):
            while message := _receive(client):
                number, _, code, body = message
                changed = body
                if code == OP_MSG:
                    document = _decode(body, 5)
                    answer = self.change.answer(document)
                    if answer is not None:
                        reply = b"\0\0\0\0\0" + bson.encode(answer)
                        client.sendall(_HEAD.pack(len(reply) + 16, 0, number, OP_MSG) + reply)
                        continue
                    if self.change.loses(document):
                        lost.add(number)
                    changed = _replace(body, 5, self.change.request(document))
                server.sendall(_HEAD.pack(len(changed) + 16, number, 0, code) + changed)

    def _replies(self, server: socket.socket, client: socket.socket, lost: set[int]) -> None:
        with _ending(client, server):
            while message := _receive(server):
                number, answered, code, body = message
                if answered in lost:
                    return
                at = {OP_MSG: 5, OP_REPLY: 20}.get(code)
                if at is not None and any(text in body for text in self.change.replies):
                    document = _decode(body, at)
                    changed = self.change.reply(document)
                    body = _replace(body, at, self._stay(document if changed is None else changed, changed))
                client.sendall(_HEAD.pack(len(body) + 16, number, answered, code) + body)

    def _stay(self, document: Document, changed: Document | None) -> Document | None:
        """A hello with the proxy's address for the server's own."""
        if "setName" not in document:
            return changed
        document["hosts"] = [self.address]
        return document | {name: self.address for name in ("me", "primary") if name in document}


@contextlib.contextmanager
def _ending(*ends: socket.socket) -> Any:
    """Closes both directions of both sockets at the end, whatever ends it."""
    try:
        yield
    except OSError:
        pass
    finally:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _receive(sock: socket.socket) -> tuple[int, int, int, bytes] | None:
    """A message: its number, the number that it answers, its code and its body. None at the end."""
    head = _exactly(sock, 16)
    if head is None:
        return None
    length, number, answered, code = _HEAD.unpack(head)
    body = _exactly(sock, length - 16)
    return None if body is None else (number, answered, code, body)


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    parts = []
    while size:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _decode(body: bytes, at: int) -> Document:
    size = _SIZE.unpack_from(body, at)[0]
    return bson.decode(body[at : at + size], _OPTIONS)


def _replace(body: bytes, at: int, document: Document | None) -> bytes:
    if document is None:
        return body
    end = at + int(_SIZE.unpack_from(body, at)[0])
    return body[:at] + bson.encode(document, codec_options=_OPTIONS) + body[end:]


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"rawBson"}:
            return RawBSONDocument(bytes(value["rawBson"]))
        return {name: _unpack(item) for name, item in value.items()}
    return [_unpack(item) for item in value] if isinstance(value, list) else value
