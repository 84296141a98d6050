"""pgoutput, read plainly: every message of protocol versions 1 and 2, and the slow decoder, the fast one's oracle.

`parse` follows "Logical Replication Message Formats" of the PostgreSQL manual. LSNs, transaction ids, OIDs, counts and
lengths are unsigned, as they are in the server; timestamps are signed µs since 2000-01-01 UTC. The planner parses the
rare messages (Begin, Commit, Relation, …) with it; for row messages tasks use `decoder.decode`, which comes back here
only to say what is wrong with a message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from tailrace.columns.batch import ChangeBatch, Flags, Image, Int64s
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.protocol.segment import Segment
from tailrace.errors import DecodeError

MAX_COLUMN_BYTES = 2**31 - 1
"""The most bytes that one column of one batch can hold: Arrow's `binary` counts them in 32 bits."""


class Unavailable(Enum):
    """The type of UNAVAILABLE."""

    UNAVAILABLE = "unavailable"


UNAVAILABLE: Final = Unavailable.UNAVAILABLE
"""Stands for an unchanged TOAST value that the log does not carry. Not null: the value exists."""

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
    """End of a transaction. `end_lsn` is the LSN behind the commit record."""

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
    """One column of a Relation. Bit 1 of `flags` says that it belongs to the replica identity."""

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
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Type:
    """The name of a type that is not built in."""

    type_oid: int
    namespace: str
    name: str
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    relation_id: int
    new: Row
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row. `old_kind` is K (identity columns only), O (the whole old row) or None (no old tuple)."""

    relation_id: int
    old_kind: OldKind | None
    old: Row | None
    new: Row
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """A removed row. `old_kind` is K (identity columns only) or O (the whole old row)."""

    relation_id: int
    old_kind: OldKind
    old: Row
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Emptied tables. Of `options`, bit 1 is CASCADE and bit 2 is RESTART IDENTITY."""

    options: int
    relation_ids: tuple[int, ...]
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message of pg_logical_emit_message. Bit 1 of `flags` says that it is transactional."""

    flags: int
    lsn: int
    prefix: str
    content: bytes
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Start of a block of a transaction in progress."""

    xid: int
    first_segment: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """End of a block of a transaction in progress."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """Commit of a transaction that was streamed while in progress."""

    xid: int
    flags: int
    commit_lsn: int
    end_lsn: int
    commit_timestamp: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """Roll-back of a streamed transaction, or of its subtransaction `subxid` alone when the two ids differ."""

    xid: int
    subxid: int


AnyMessage: TypeAlias = (
    Begin
    | Commit
    | Origin
    | Relation
    | Type
    | Insert
    | Update
    | Delete
    | Truncate
    | Message
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
)

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


def _begin(reader: _Reader, xid: int | None) -> AnyMessage:
    return Begin(reader.uint64("final LSN"), reader.int64("commit timestamp"), reader.uint32("transaction id"))


def _commit(reader: _Reader, xid: int | None) -> AnyMessage:
    return Commit(
        reader.uint8("flags"), reader.uint64("commit LSN"), reader.uint64("end LSN"), reader.int64("commit timestamp")
    )


def _origin(reader: _Reader, xid: int | None) -> AnyMessage:
    return Origin(reader.uint64("commit LSN"), reader.string("origin name"))


def _relation(reader: _Reader, xid: int | None) -> AnyMessage:
    relation_id = reader.uint32("relation id")
    namespace = reader.string("namespace")
    name = reader.string("relation name")
    identity = chr(reader.uint8("replica identity"))
    columns = tuple([_relation_column(reader) for _ in range(reader.uint16("column count"))])
    return Relation(relation_id, namespace, name, identity, columns, xid)


def _relation_column(reader: _Reader) -> RelationColumn:
    return RelationColumn(
        reader.uint8("column flags"),
        reader.string("column name"),
        reader.uint32("column type"),
        reader.int32("type modifier"),
    )


def _type(reader: _Reader, xid: int | None) -> AnyMessage:
    return Type(reader.uint32("type id"), reader.string("namespace"), reader.string("type name"), xid)


def _insert(reader: _Reader, xid: int | None) -> AnyMessage:
    relation_id = reader.uint32("relation id")
    reader.letter("N", "tuple kind")
    return Insert(relation_id, reader.row(), xid)


def _old_kind(reader: _Reader) -> OldKind:
    return "K" if reader.letter("KO", "tuple kind") == "K" else "O"


def _update(reader: _Reader, xid: int | None) -> AnyMessage:
    relation_id = reader.uint32("relation id")
    old_kind: OldKind | None = None
    old = None
    if reader.letter("KON", "tuple kind") != "N":
        reader.at -= 1
        old_kind = _old_kind(reader)
        old = reader.row()
        reader.letter("N", "tuple kind")
    return Update(relation_id, old_kind, old, reader.row(), xid)


def _delete(reader: _Reader, xid: int | None) -> AnyMessage:
    return Delete(reader.uint32("relation id"), _old_kind(reader), reader.row(), xid)


def _truncate(reader: _Reader, xid: int | None) -> AnyMessage:
    count = reader.uint32("relation count")
    options = reader.uint8("truncate options")
    return Truncate(options, tuple([reader.uint32("relation id") for _ in range(count)]), xid)


def _message(reader: _Reader, xid: int | None) -> AnyMessage:
    flags, lsn = reader.uint8("flags"), reader.uint64("message LSN")
    if lsn >> 63:
        # no log is so long, and positions are signed
        raise DecodeError("The LSN of a logical message is beyond the end of any log.", reader.at - 8)
    prefix = reader.string("message prefix")
    return Message(flags, lsn, prefix, reader.bytes(reader.uint32("content length"), "content"), xid)


def _stream_start(reader: _Reader, xid: int | None) -> AnyMessage:
    return StreamStart(reader.uint32("transaction id"), reader.uint8("first segment flag") == 1)


def _stream_stop(reader: _Reader, xid: int | None) -> AnyMessage:
    return StreamStop()


def _stream_commit(reader: _Reader, xid: int | None) -> AnyMessage:
    return StreamCommit(
        reader.uint32("transaction id"),
        reader.uint8("flags"),
        reader.uint64("commit LSN"),
        reader.uint64("end LSN"),
        reader.int64("commit timestamp"),
    )


def _stream_abort(reader: _Reader, xid: int | None) -> AnyMessage:
    return StreamAbort(reader.uint32("transaction id"), reader.uint32("subtransaction id"))


_PARSERS: dict[int, Callable[[_Reader, int | None], AnyMessage]] = {
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
    ord("S"): _stream_start,
    ord("E"): _stream_stop,
    ord("c"): _stream_commit,
    ord("A"): _stream_abort,
}

# Origin is not among them: the server writes it without an id, inside a stream block too.
_WITH_XID_IN_STREAM = frozenset(b"RYIUDTM")


def parse(data: bytes, *, streamed: bool = False) -> AnyMessage:
    """The one message that `data` is.

    `streamed` says that it stands between StreamStart and StreamStop, where row, relation, type, truncate and logical
    messages carry the id of their (sub)transaction behind the kind byte. Raises DecodeError, and nothing else, with
    the offset of the field that is wrong or cut off; bytes left over are an error.
    """
    reader = _Reader(data)
    kind = reader.uint8("kind")
    parser = _PARSERS.get(kind)
    if parser is None:
        raise DecodeError(f"No message of pgoutput has kind byte {kind}.", 0)
    xid = reader.uint32("transaction id") if streamed and kind in _WITH_XID_IN_STREAM else None
    message = parser(reader, xid)
    if reader.at != len(data):
        raise DecodeError(f"The message has {len(data) - reader.at} bytes too many.", reader.at)
    return message


def check_offsets(data: np.ndarray, offsets: Int64s, messages: int) -> None:
    """Raises DecodeError unless `offsets` cut `data` into that many messages, none of negative length."""
    if messages < 0 or len(offsets) != messages + 1:
        raise DecodeError(f"{messages} messages need {messages + 1} offsets; there are {len(offsets)}.")
    if offsets[0] < 0 or offsets[-1] > len(data) or bool((offsets[1:] < offsets[:-1]).any()):
        raise DecodeError("The offsets of the messages do not rise within the buffer.")


def parse_change(segment: Segment, row: int) -> Insert | Update | Delete | Truncate:
    """Message `row` of the segment, checked against the segment's table; DecodeError offsets count in segment.data."""
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
    """Raises DecodeError, with the offset in the message, unless the change's tuples have that many columns."""
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
    """Raises DecodeError when a column's values (`sizes`, in bytes) are more than one batch can hold."""
    for column, size in zip(table.columns, sizes, strict=True):
        if size > MAX_COLUMN_BYTES:
            raise DecodeError(
                f"Column {column.name} of {table.id} has {size} bytes in one batch and may have {MAX_COLUMN_BYTES}; "
                "the batch must be smaller."
            )


def reference_decode(segment: Segment) -> ChangeBatch:
    """What `decoder.decode` must yield, message by message. Raises DecodeError with the offset into segment.data."""
    check_offsets(segment.data, segment.offsets, len(segment))
    ops = bytearray()
    befores: list[Row | None] = []
    afters: list[Row | None] = []
    key_only: list[bool] = []
    for index in range(len(segment)):
        message = parse_change(segment, index)
        before: Row | None = None
        after: Row | None = None
        kind: OldKind | None = None
        match message:
            case Insert():
                ops += b"c"
                after = message.new
            case Update():
                ops += b"u"
                before, after, kind = message.old, message.new, message.old_kind
                if before is not None and kind == "O":
                    after = tuple(map(_restored, before, after))
            case Delete():
                ops += b"d"
                before, kind = message.old, message.old_kind
            case Truncate():
                ops += b"t"
        befores.append(before)
        afters.append(after)
        key_only.append(kind == "K")
    before_image = _image(segment.table, befores)
    return ChangeBatch(
        table=segment.table,
        op=np.frombuffer(bytes(ops), dtype=np.uint8),
        lsn=segment.lsn,
        transaction=segment.transaction,
        ordinal=segment.ordinal,
        transactions=segment.transactions,
        before=before_image,
        after=_image(segment.table, afters),
        old_key_only=None if before_image is None else np.array(key_only, dtype=np.bool_),
    )


def _restored(old: Value, new: Value) -> Value:
    """The new value; where the log left it out as unchanged, the old value, which REPLICA IDENTITY FULL carries."""
    return old if new is UNAVAILABLE and isinstance(old, bytes) else new


def _image(table: TableSchema, rows: list[Row | None]) -> Image | None:
    present = np.array([row is not None for row in rows], dtype=np.bool_)
    if not present.any():
        return None
    columns: list[pa.Array] = []
    unavailable: list[Flags | None] = []
    sizes: list[int] = []
    for index in range(len(table.columns)):
        values = [None if row is None else row[index] for row in rows]
        texts = [value if isinstance(value, bytes) else None for value in values]
        flags = np.array([value is UNAVAILABLE for value in values], dtype=np.bool_)
        sizes.append(sum(len(text) for text in texts if text is not None))
        columns.append(pa.array(texts, pa.binary()))
        unavailable.append(flags if flags.any() else None)
    check_column_bytes(table, sizes)
    return Image(None if present.all() else present, columns, unavailable)
