"""Events of the binary log: their headers and the parts that the planner reads. Plain functions; no I/O. Planner.

Rows are not decoded here. Functions take the body of an event, without its header and checksum, and raise DecodeError
if it does not follow the protocol.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import wraps
from typing import ParamSpec, TypeVar
from uuid import UUID

from tailrace.connectors.binlog.schema.table_map import packed
from tailrace.errors import DecodeError

HEADER = struct.Struct("<IBIIIH")
"""Seconds, type, server id, length, end position, flags."""
HEADER_BYTES = HEADER.size
ARTIFICIAL, IN_USE = 0x20, 0x01
_FLAGS_AT = 17
MAGIC_BYTES = 4
DAMAGED = "An event of the log has a wrong checksum: it was damaged on the way, or in the file."


class EventType(IntEnum):
    """Types of events that the reader knows."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    TABLE_MAP = 19
    WRITE_ROWS_V0 = 20
    UPDATE_ROWS_V0 = 21
    DELETE_ROWS_V0 = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171


_CREATES = (
    EventType.WRITE_ROWS_V0, EventType.WRITE_ROWS_V1, EventType.WRITE_ROWS, EventType.WRITE_ROWS_COMPRESSED_V1,
    EventType.WRITE_ROWS_COMPRESSED,
)  # fmt: skip
_UPDATES = (
    EventType.UPDATE_ROWS_V0, EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS, EventType.UPDATE_ROWS_COMPRESSED_V1,
    EventType.UPDATE_ROWS_COMPRESSED, EventType.PARTIAL_UPDATE_ROWS,
)  # fmt: skip
_DELETES = (
    EventType.DELETE_ROWS_V0, EventType.DELETE_ROWS_V1, EventType.DELETE_ROWS, EventType.DELETE_ROWS_COMPRESSED_V1,
    EventType.DELETE_ROWS_COMPRESSED,
)  # fmt: skip
ROWS: dict[int, int] = {
    **dict.fromkeys(map(int, _CREATES), ord("c")), **dict.fromkeys(map(int, _UPDATES), ord("u")),
    **dict.fromkeys(map(int, _DELETES), ord("d")),
}  # fmt: skip
"""The operation of each type of rows event."""
SECOND = frozenset((30, 31, 32, 39, 169, 170, 171))
"""Types of rows events with extra data before their rows."""
COMPRESSED = frozenset(range(165, 172))
STATEMENTS = frozenset(
    (EventType.INTVAR, EventType.LOAD, EventType.RAND, EventType.USER_VAR, 7, 8, 9, 10, 11, 12, 17, 18)
)
"""Types of events in STATEMENT format: the statement itself, or an event before it."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _understood(read: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate `read` to raise DecodeError, with the event's name, for a body that is too short or wrong."""

    @wraps(read)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return read(*args, **kwargs)
        except (IndexError, struct.error, ValueError, zlib.error, UnicodeDecodeError) as error:
            name = read.__name__.replace("_", " ")
            raise DecodeError(f"An event of the log ({name}) does not follow the protocol.") from error

    return checked


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """Format of the events in a file: the length of post-headers by type, and a flag for a checksum after each
    event."""

    lengths: bytes = b""
    has_checksums: bool = False
    version: str = ""
    is_file_start: bool = False

    @property
    def table_id_bytes(self) -> int:
        """The number of bytes of a table's id in table maps and rows events."""
        return 4 if len(self.lengths) >= EventType.TABLE_MAP and self.lengths[EventType.TABLE_MAP - 1] == 6 else 6


@_understood
def format_description(event: bytes) -> FormatDescription:
    """Return the format of the following events, from a whole event with header and checksum."""
    body = event[HEADER_BYTES:]
    number, version, created, header = struct.unpack_from("<H50sIB", body)
    if number != 4 or header != HEADER_BYTES:
        raise DecodeError(f"The log has the format {number}, which is older than MySQL 5.1.")
    name = version.split(b"\0")[0].decode("ascii", "replace")
    if not _has_algorithm(name):
        raise DecodeError(f"The log was written by the version {name}, which is older than MySQL 5.6 and MariaDB 5.3.")
    # the algorithm and a checksum, which is not updated by a server without checksums that changes the event
    if len(body) < 62:
        raise ValueError(len(body))
    algorithm, lengths = body[-5], body[57:-5]
    if algorithm not in (0, 1, 255):
        raise DecodeError(f"The events of the log have checksums of an unknown kind ({algorithm}).")
    if algorithm == 1:
        # set while the file is written, and not part of the checksum
        flags = bytes([event[_FLAGS_AT] & ~IN_USE])
        if zlib.crc32(event[:_FLAGS_AT] + flags + event[_FLAGS_AT + 1 : -4]) != int.from_bytes(event[-4:], "little"):
            raise DecodeError(DAMAGED)
    return FormatDescription(lengths, algorithm == 1, name, created > 0)


def _has_algorithm(version: str) -> bool:
    digits = []
    for part in version.split("-", maxsplit=1)[0].split(".")[:3]:
        number = "".join(one for one in part if one.isdigit())
        digits.append(int(number or 0))
    is_mariadb = "mariadb" in version.lower()
    return tuple(digits) >= ((5, 3, 0) if is_mariadb else (5, 6, 1))


@_understood
def rotation(body: bytes) -> tuple[str, int]:
    """Return the file and the position at which the log continues."""
    return body[8:].decode(), struct.unpack_from("<Q", body)[0]


@dataclass(frozen=True, slots=True)
class Gtid:
    """The beginning of a transaction: the source and the number of its id, and the time of its commit in µs (0:
    unknown).

    `is_alone` is True if a single statement follows, without commit. `is_xa` is True if MariaDB prepares an XA
    transaction. `alters` is the phase of an ALTER: `start`, `commit` or `rollback`.
    """

    source: str = ""
    number: int = 0
    commit_us: int = 0
    is_alone: bool = False
    alters: str = ""
    is_xa: bool = False


@_understood
def gtid(body: bytes) -> Gtid:
    """Return a transaction's id in MySQL."""
    uuid, number = str(UUID(bytes=body[1:17])), struct.unpack_from("<q", body, 17)[0]
    if number <= 0:
        raise ValueError(number)
    at = 25
    commit_us = 0
    if len(body) > at and body[at] == 2:
        at += 17
        if len(body) >= at + 7:
            immediate = int.from_bytes(body[at : at + 7], "little")
            at += 7
            commit_us = immediate & ~(1 << 55)
            if immediate >> 55 & 1:
                commit_us = int.from_bytes(body[at : at + 7], "little")
    return Gtid(uuid, number, commit_us)


@_understood
def tagged_gtid(body: bytes) -> Gtid:
    """Return a transaction's id in MySQL 8.3 and newer, which may have a tag. The event has numbered fields."""
    at = 0
    _, at = _varied(body, at)
    size, at = _varied(body, at)
    _, at = _varied(body, at)
    end = min(size, len(body))
    fields: dict[int, int] = {}
    uuid, tag = b"", b""
    while at < end:
        field, at = _varied(body, at)
        if field == 1:
            digits = []
            for _ in range(16):
                byte, at = _varied(body, at)
                digits.append(byte)
            uuid = bytes(digits)
        elif field == 3:
            length, at = _varied(body, at)
            tag = body[at : at + length]
            at += length
        elif field in (2, 4, 5, 6):
            value, at = _varied(body, at)
            fields[field] = _signed(value)
        elif field in (0, 7, 8, 9, 10, 11):
            value, at = _varied(body, at)
            fields[field] = value
        else:
            raise ValueError(field)
    source = str(UUID(bytes=uuid))
    name = f"{source}:{tag.decode('ascii')}" if tag else source
    if fields.get(2, 0) <= 0:
        raise ValueError(fields)
    return Gtid(name, fields[2], fields.get(7, fields.get(6, 0)))


def _signed(value: int) -> int:
    return -(value >> 1) - 1 if value & 1 else value >> 1


def _varied(body: bytes, at: int) -> tuple[int, int]:
    """Return a number of one to nine bytes, and the place after it. The number of low set bits of the first byte is the
    number of further bytes."""
    first, more = body[at], 0
    while more < 8 and first >> more & 1:
        more += 1
    rest = int.from_bytes(body[at + 1 : at + 1 + more], "little")
    if len(body) < at + 1 + more:
        raise IndexError(at)
    return (rest if more == 8 else rest << (7 - more) | first >> (more + 1)), at + 1 + more


_STANDALONE, _GROUPED, _XA_PREPARED, _XA_COMPLETED = 1, 2, 64, 128
_MORE_ENGINES, _START_ALTER, _COMMIT_ALTER, _ROLLBACK_ALTER = 1, 2, 4, 8


@_understood
def mariadb_gtid(body: bytes, server_id: int) -> Gtid:
    """Return a transaction's id in MariaDB."""
    number, domain, flags = struct.unpack_from("<QIB", body)
    if number >> 63:
        raise ValueError(number)
    at = 21 if flags & _GROUPED else 13
    if flags & (_XA_PREPARED | _XA_COMPLETED):
        at += 6 + body[at + 4] + body[at + 5]
    alters = ""
    if len(body) > at:
        further = body[at]
        if further & _START_ALTER:
            alters = "start"
        elif further & _COMMIT_ALTER:
            alters = "commit"
        elif further & _ROLLBACK_ALTER:
            alters = "rollback"
    return Gtid(f"{domain}-{server_id}", number, 0, bool(flags & _STANDALONE), alters, bool(flags & _XA_PREPARED))


@_understood
def gtid_list(body: bytes) -> str:
    """Return MariaDB's last transaction of each domain before the file."""
    count = struct.unpack_from("<I", body)[0] & 0x0FFFFFFF
    found = [struct.unpack_from("<IIQ", body, 4 + 16 * place) for place in range(count)]
    return ",".join(f"{domain}-{server}-{number}" for domain, server, number in found)


@dataclass(frozen=True, slots=True)
class Query:
    """A statement: its session, the current database, its status variables and its text. `error` is the code of the
    error that stopped it."""

    thread: int
    database: str
    status: bytes
    sql: bytes
    error: int = 0


@_understood
def query(body: bytes, is_compressed: bool = False) -> Query:
    thread, _, size, error, status = struct.unpack_from("<IIBHH", body)
    at = 13 + status
    database = body[at : at + size].decode()
    rest = body[at + size + 1 :]
    return Query(thread, database, body[13:at], inflated(rest) if is_compressed else rest, error)


@_understood
def inflated(data: bytes) -> bytes:
    """Return the decompressed data of a compressed event of MariaDB."""
    method, header = data[0] >> 4 & 7, data[0] & 7
    if not data[0] & 0x80 or method or not 1 <= header <= 4:
        raise ValueError(data[0])
    length = int.from_bytes(data[1 : 1 + header], "big")
    found = zlib.decompress(data[1 + header :], bufsize=max(length, 1))
    if len(found) != length:
        raise ValueError(length)
    return found


@_understood
def payload(body: bytes) -> bytes:
    """Return the events in a compressed transaction of MySQL, with headers and without checksums."""
    import pyarrow as pa

    at, algorithm, size, plain = 0, 0, None, None
    while True:
        field, at = packed(body, at)
        if field == 0:
            break
        length, at = packed(body, at)
        value, after = packed(body, at)
        if after != at + length:
            raise ValueError(field)
        at = after
        if field == 1:
            size = value
        elif field == 2:
            algorithm = value
        elif field == 3:
            plain = value
    data = body[at:]
    if size is not None and len(data) != size:
        raise ValueError(size)
    if algorithm == 255:
        return data
    if algorithm != 0:
        raise DecodeError(f"A transaction of the log is compressed in a way that is not known ({algorithm}).")
    if plain is None:
        raise ValueError(algorithm)
    try:
        found = pa.Codec("zstd").decompress(data, plain, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise DecodeError("A compressed transaction of the log cannot be decompressed.") from error
    if len(found) != plain:
        raise ValueError(plain)
    return bytes(found)


@dataclass(frozen=True, slots=True)
class RowsHead:
    """The head of a rows event: the table's id, the columns of both images (a byte for each), and the place of the
    rows."""

    table_id: int
    flags: int
    before: bytes
    after: bytes
    at: int


@_understood
def rows_head(kind: int, body: bytes, form: FormatDescription) -> RowsHead:
    size = form.table_id_bytes
    table_id, flags = int.from_bytes(body[:size], "little"), struct.unpack_from("<H", body, size)[0]
    at = size + 2
    if kind in SECOND:
        extra = struct.unpack_from("<H", body, at)[0]
        at += max(extra, 2)
    count, at = packed(body, at)
    first, at = _present(body, at, count)
    op = ROWS[kind]
    if op == ord("u"):
        second, at = _present(body, at, count)
        return RowsHead(table_id, flags, first, second, at)
    return RowsHead(table_id, flags, b"" if op == ord("c") else first, first if op == ord("c") else b"", at)


def _present(body: bytes, at: int, count: int) -> tuple[bytes, int]:
    size = (count + 7) // 8
    bits = int.from_bytes(body[at : at + size], "little")
    if len(body) < at + size:
        raise IndexError(at)
    found = _ALL.get(count) if bits == (1 << count) - 1 else None
    if found is None:
        found = bytes(bits >> place & 1 for place in range(count))
        if bits == (1 << count) - 1:
            _ALL[count] = found
    return found, at + size


_ALL: dict[int, bytes] = {}


@_understood
def heartbeat(kind: int, body: bytes, end: int) -> tuple[str, int]:
    """Return the file and the position up to which the server has sent its log; `end` is the header's position."""
    if kind == EventType.HEARTBEAT:
        return body.decode(), end
    at, file, position = 0, "", end
    while at < len(body):
        field, at = packed(body, at)
        if field == 0:
            break
        length, at = packed(body, at)
        value = body[at : at + length]
        at += length
        if field == 1:
            file = value.decode()
        elif field == 2:
            position = packed(value, 0)[0]
    return file, position


@_understood
def xa_prepare(body: bytes) -> tuple[bool, bytes]:
    """Return True if the XA transaction is committed at once, and its id in the notation of statements."""
    one_phase, form, first, second = struct.unpack_from("<?III", body)
    data = body[13:]
    if len(data) < first + second:
        raise ValueError(first)
    return one_phase, xa_id(data[:first], data[first : first + second], form)


def xa_id(first: bytes, second: bytes, form: int) -> bytes:
    """Return an XA id in the server's notation in statements."""
    return b"X'%s',X'%s',%d" % (first.hex().encode(), second.hex().encode(), form)
