"""The plain parser of pgoutput: every message of protocol version 1, with exact errors. Planner and worker.

`parse` follows "Logical Replication Message Formats" of the PostgreSQL manual. LSNs, transaction ids, OIDs, counts and
lengths are unsigned, as in the server; timestamps are signed µs since 2000-01-01 UTC. The planner parses rare messages
(Begin, Commit, Relation, …) with it. Tasks decode row messages with `decoder.decode`, which calls this module only for
the error of a wrong message. `log.in_progress` unpacks the stream blocks of protocol version 2; their messages arrive
here in the form of version 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias

from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.protocol.position import Segment
from tailrace.errors import DecodeError

MAX_COLUMN_BYTES = 2**31 - 1
"""The most bytes of one column in one batch: Arrow's `binary` counts them in 32 bits."""


class Unavailable(Enum):
    """The type of UNAVAILABLE."""

    UNAVAILABLE = "unavailable"


UNAVAILABLE: Final = Unavailable.UNAVAILABLE
"""An unchanged TOAST value that the log does not carry. It is not null: the value exists."""

Value: TypeAlias = bytes | Unavailable | None
Row: TypeAlias = tuple[Value, ...]
OldKind: TypeAlias = Literal["K", "O"]


@dataclass(frozen=True, slots=True)
class Begin:
    """Start of a transaction. `final_lsn` is the LSN of its commit record."""

    final_lsn: int
    commit_timestamp: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """End of a transaction. `end_lsn` is the LSN after the commit record."""

    flags: int
    commit_lsn: int
    end_lsn: int
    commit_timestamp: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The replication origin of the transaction; `commit_lsn` is the commit's LSN on the origin server."""

    commit_lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a Relation. Bit 1 of `flags` is set if it belongs to the replica identity."""

    flags: int
    name: str
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as the following row messages deliver it. `namespace` is empty for pg_catalog."""

    relation_id: int
    namespace: str
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Type:
    """The name of a type that is not built in."""

    type_oid: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    relation_id: int
    new: Row


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row. `old_kind` is K (identity columns only), O (the whole old row) or None (no old tuple)."""

    relation_id: int
    old_kind: OldKind | None
    old: Row | None
    new: Row


@dataclass(frozen=True, slots=True)
class Delete:
    """A removed row. `old_kind` is K (identity columns only) or O (the whole old row)."""

    relation_id: int
    old_kind: OldKind
    old: Row


@dataclass(frozen=True, slots=True)
class Truncate:
    """Emptied tables. Of `options`, bit 1 is CASCADE and bit 2 is RESTART IDENTITY."""

    options: int
    relation_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A message of pg_logical_emit_message. Bit 1 of `flags` is set if it is transactional."""

    flags: int
    lsn: int
    prefix: str
    content: bytes


AnyMessage: TypeAlias = Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | Message

_UINT16 = struct.Struct(">H")
_UINT32 = struct.Struct(">I")
_INT32 = struct.Struct(">i")
_UINT64 = struct.Struct(">Q")
_INT64 = struct.Struct(">q")


class _Reader:
    """A cursor over one message: every read first checks that the bytes are there."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def bytes(self, count: int, what: str) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise DecodeError(f"The message ends within its {what}.", self.at)
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def _number(self, form: struct.Struct, what: str) -> int:
        value: int = form.unpack(self.bytes(form.size, what))[0]
        return value

    def uint8(self, what: str) -> int:
        return self.bytes(1, what)[0]

    def uint16(self, what: str) -> int:
        return self._number(_UINT16, what)

    def uint32(self, what: str) -> int:
        return self._number(_UINT32, what)

    def int32(self, what: str) -> int:
        return self._number(_INT32, what)

    def uint64(self, what: str) -> int:
        return self._number(_UINT64, what)

    def int64(self, what: str) -> int:
        return self._number(_INT64, what)

    def string(self, what: str) -> str:
        start = self.at
        end = self.data.find(b"\0", start)
        if end < 0:
            raise DecodeError(f"The message ends within its {what}.", start)
        self.at = end + 1
        try:
            return self.data[start:end].decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"The {what} is not UTF-8.", start + error.start) from None

    def letter(self, allowed: str, what: str) -> str:
        start = self.at
        found = chr(self.uint8(what))
        if found not in allowed:
            raise DecodeError(f"The {what} is byte {ord(found)}; allowed is one of {allowed}.", start)
        return found

    def row(self) -> Row:
        return tuple([self.value() for _ in range(self.uint16("column count"))])

    def value(self) -> Value:
        kind = self.letter("nutb", "column kind")
        if kind == "n":
            return None
        if kind == "u":
            return UNAVAILABLE
        if kind == "b":
            raise DecodeError("The column is in binary format, which was not asked for.", self.at - 1)
        return self.bytes(self.uint32("column length"), "column value")


def _begin(reader: _Reader) -> AnyMessage:
    return Begin(reader.uint64("final LSN"), reader.int64("commit timestamp"), reader.uint32("transaction id"))


def _commit(reader: _Reader) -> AnyMessage:
    return Commit(
        reader.uint8("flags"), reader.uint64("commit LSN"), reader.uint64("end LSN"), reader.int64("commit timestamp")
    )


def _origin(reader: _Reader) -> AnyMessage:
    return Origin(reader.uint64("commit LSN"), reader.string("origin name"))


def _relation(reader: _Reader) -> AnyMessage:
    relation_id = reader.uint32("relation id")
    namespace = reader.string("namespace")
    name = reader.string("relation name")
    identity = chr(reader.uint8("replica identity"))
    columns = tuple([_relation_column(reader) for _ in range(reader.uint16("column count"))])
    return Relation(relation_id, namespace, name, identity, columns)


def _relation_column(reader: _Reader) -> RelationColumn:
    return RelationColumn(
        reader.uint8("column flags"),
        reader.string("column name"),
        reader.uint32("column type"),
        reader.int32("type modifier"),
    )


def _type(reader: _Reader) -> AnyMessage:
    return Type(reader.uint32("type id"), reader.string("namespace"), reader.string("type name"))


def _insert(reader: _Reader) -> AnyMessage:
    relation_id = reader.uint32("relation id")
    reader.letter("N", "tuple kind")
    return Insert(relation_id, reader.row())


def _old_kind(reader: _Reader) -> OldKind:
    return "K" if reader.letter("KO", "tuple kind") == "K" else "O"


def _update(reader: _Reader) -> AnyMessage:
    relation_id = reader.uint32("relation id")
    old_kind: OldKind | None = None
    old = None
    if reader.letter("KON", "tuple kind") != "N":
        reader.at -= 1
        old_kind = _old_kind(reader)
        old = reader.row()
        reader.letter("N", "tuple kind")
    return Update(relation_id, old_kind, old, reader.row())


def _delete(reader: _Reader) -> AnyMessage:
    return Delete(reader.uint32("relation id"), _old_kind(reader), reader.row())


def _truncate(reader: _Reader) -> AnyMessage:
    count = reader.uint32("relation count")
    options = reader.uint8("truncate options")
    return Truncate(options, tuple([reader.uint32("relation id") for _ in range(count)]))


def _message(reader: _Reader) -> AnyMessage:
    flags, lsn = reader.uint8("flags"), reader.uint64("message LSN")
    if lsn >> 63:
        # no log is that long, and positions are signed
        raise DecodeError("The LSN of a logical message is beyond the end of any log.", reader.at - 8)
    prefix = reader.string("message prefix")
    return Message(flags, lsn, prefix, reader.bytes(reader.uint32("content length"), "content"))


_PARSERS: dict[int, Callable[[_Reader], AnyMessage]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _message,
}


def parse(data: bytes) -> AnyMessage:
    """Parse `data` as one message.

    Raises only DecodeError, with the offset of the field that is wrong or cut off, or of surplus bytes.
    """
    reader = _Reader(data)
    kind = reader.uint8("kind")
    parser = _PARSERS.get(kind)
    if parser is None:
        raise DecodeError(f"No message of pgoutput has kind byte {kind}.", 0)
    message = parser(reader)
    if reader.at != len(data):
        raise DecodeError(f"The message has {len(data) - reader.at} bytes too many.", reader.at)
    return message


def parse_change(segment: Segment, row: int) -> Insert | Update | Delete | Truncate:
    """Parse message `row` of the segment and check it against the segment's table.

    Raises DecodeError with the offset into segment.data.
    """
    start, end = int(segment.offsets[row]), int(segment.offsets[row + 1])
    table = segment.table
    try:
        message = parse(segment.data[start:end].tobytes())
        if isinstance(message, Truncate):
            if table.oid != 0 and table.oid not in message.relation_ids:
                raise DecodeError(f"The truncate does not name {table.id} (relation {table.oid}).", 1)
            return message
        if not isinstance(message, Insert | Update | Delete):
            raise DecodeError(f"A {type(message).__name__} message stands among the changes of {table.id}.", 0)
        if table.oid not in (0, message.relation_id):
            raise DecodeError(f"Relation {message.relation_id} is not {table.id} (relation {table.oid}).", 1)
        check_widths(message, len(table.columns), str(table.id))
    except DecodeError as error:
        raise DecodeError(error.message, start + error.offset) from None
    return message


def check_widths(change: Insert | Update | Delete, columns: int, table: str) -> None:
    """Raise DecodeError, with the offset in the message, unless the change's tuples have that many columns."""
    at = 6
    old = None if isinstance(change, Insert) else change.old
    new = None if isinstance(change, Delete) else change.new
    for row in (old, new):
        if row is not None:
            if len(row) != columns:
                raise DecodeError(f"The tuple has {len(row)} columns; {table} has {columns}.", at)
            at += _encoded_bytes(row) + 1


def _encoded_bytes(row: Row) -> int:
    return 2 + sum(5 + len(value) if isinstance(value, bytes) else 1 for value in row)


def check_column_bytes(table: TableSchema, sizes: Sequence[int]) -> None:
    """Raise DecodeError if a column's values, of `sizes` bytes, exceed MAX_COLUMN_BYTES."""
    for column, size in zip(table.columns, sizes, strict=True):
        if size > MAX_COLUMN_BYTES:
            raise DecodeError(
                f"Column {column.name} of {table.id} has {size} bytes in one batch and may have {MAX_COLUMN_BYTES}; "
                "the batch must be smaller."
            )
