"""The log of a simulated PostgreSQL: records in the order of their LSNs, and pgoutput's messages for them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

CAPTURED = {16401: "a", 16402: "b"}
"""The names of captured tables, by oid."""
TABLES = {**CAPTURED, 16403: "left"}
"""The names of all tables, by oid: with one that is published but not captured."""
BEGIN_LSN = 0x1000000


@dataclass(frozen=True, slots=True)
class Change:
    """A row's insert, update or delete (I, U, D), a truncate (T) or a logical message (L), with a unique number.

    `tables` are the oids of its tables.
    """

    kind: str
    tables: tuple[int, ...]
    number: int

    def shape(self, oid: int) -> int:
        """Return a number that is different whenever the table's Relation message is."""
        return 0

    def relation(self, oid: int, xid: bytes = b"") -> bytes:
        """Return the Relation message of one of its tables; inside a stream block, with its (sub)transaction's id."""
        return relation(oid, "public", TABLES[oid], ((1, "id", 25), (0, "v", 25)), xid)

    def message(self, lsn: int, xid: bytes = b"", flags: int = 1) -> bytes:
        """Return the change as pgoutput's message."""
        if self.kind == "L":
            content = str(self.number).encode()
            return b"M" + xid + struct.pack(">BQ", flags, lsn) + b"p\0" + struct.pack(">I", len(content)) + content
        if self.kind == "T":
            return b"T" + xid + struct.pack(f">iB{len(self.tables)}I", len(self.tables), 0, *self.tables)
        oid = struct.pack(">I", self.tables[0])
        if self.kind == "D":
            return b"D" + xid + oid + b"K" + row((str(self.number), None))
        return self.kind.encode() + xid + oid + b"N" + row((str(self.number), "v"))


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the log from `lsn` to `end`: a change (c), the commit (C) or rollback (R) of the transaction `xid`,
    the rollback of its subtransaction `of` (A), a message outside of transactions (M), or another record (X), for which
    nothing is sent."""

    kind: str
    lsn: int
    end: int
    xid: int = 0
    change: Change | None = None
    of: int = 0
    origin: bool = False


@dataclass(slots=True)
class Transaction:
    """A committed transaction and its changes, without rolled back ones: LSN, change, subtransaction. A message outside
    of transactions has the id 0."""

    xid: int
    commit_lsn: int
    end_lsn: int
    changes: list[tuple[int, Change, int]]


@dataclass(slots=True)
class Open:
    """A decoder's state of a running transaction."""

    changes: list[tuple[int, Change, int]] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    origin: bool = False
    # number of changes that were sent in blocks
    sent: int = 0
    is_streamed: bool = False


class Reading:
    """Finds the committed transactions of a growing log; keeps running transactions from one call to the next."""

    def __init__(self) -> None:
        self._held: dict[int, Open] = {}

    def transactions(self, records: list[Record]) -> Iterator[Transaction]:
        """Yield the transactions that the records commit, in commit order; a message outside of transactions counts as
        one."""
        held = self._held
        for record in records:
            if record.kind == "M":
                assert record.change is not None
                yield Transaction(0, record.end - 1, record.end, [(record.lsn, record.change, 0)])
            elif record.kind == "A":
                held.setdefault(record.xid, Open()).aborted.add(record.of)
            elif record.kind == "R":
                held.pop(record.xid, None)
            elif record.kind == "C":
                one = held.pop(record.xid, Open())
                kept = [entry for entry in one.changes if entry[2] not in one.aborted]
                yield Transaction(record.xid, record.lsn, record.end, kept)
            elif record.change is not None and record.kind == "c":
                held.setdefault(record.xid, Open()).changes.append((record.lsn, record.change, record.of))


# --- pgoutput, protocols 1 and 2 ----------------------------------------------------------------------------------


UNCHANGED = object()
"""A value stored out of line (TOAST) that an update has not changed."""


def row(values: Sequence[object]) -> bytes:
    """Encode a row of texts, None for null."""
    found = struct.pack(">h", len(values))
    for value in values:
        if value is None or value is UNCHANGED:
            found += b"n" if value is None else b"u"
        else:
            text = str(value).encode()
            found += b"t" + struct.pack(">i", len(text)) + text
    return found


def relation(oid: int, schema: str, table: str, columns: Sequence[tuple[int, str, int]], xid: bytes = b"") -> bytes:
    """Encode a Relation message; `columns` are flags, names and types."""
    head = b"R" + xid + struct.pack(">I", oid) + schema.encode() + b"\0" + table.encode() + b"\0d"
    listed = (
        struct.pack(">B", flag) + name.encode() + b"\0" + struct.pack(">Ii", kind, -1) for flag, name, kind in columns
    )
    return head + struct.pack(">h", len(columns)) + b"".join(listed)


class Decoder:
    """A session of logical decoding: turns records into messages, each with the LSN with which it is sent.

    Transactions that commit before `start` are not sent. With `block`, running transactions are sent in blocks of so
    many changes (protocol 2).
    """

    def __init__(self, start: int, *, block: int = 0, messages: bool = False) -> None:
        self._start = start
        self._block = block
        self._messages = messages
        self._held: dict[int, Open] = {}
        # shapes with which tables were announced, by oid; and the same inside each transaction that is sent in blocks
        self._announced: dict[int, int] = {}
        self._announced_in: dict[int, dict[int, int]] = {}
        self.place = 0

    def next(self, record: Record) -> Iterator[tuple[bytes, int]]:
        """Yield the messages for the record."""
        self.place += 1
        if record.kind == "M":
            if self._messages and record.end > self._start:
                assert record.change is not None
                yield record.change.message(record.end, flags=0), record.end
            return
        if record.kind in "RCA" and record.xid not in self._held:
            # a transaction without changes
            return
        if record.kind == "A":
            one = self._held[record.xid]
            one.aborted.add(record.of)
            if one.is_streamed:
                # the announcements inside the transaction are void
                self._announced_in.pop(record.xid, None)
                yield b"A" + struct.pack(">II", record.xid, record.of), record.end
        elif record.kind == "R":
            if self._held.pop(record.xid).is_streamed:
                yield b"A" + struct.pack(">II", record.xid, record.xid), record.end
        elif record.kind == "C":
            yield from self._commit(record, self._held.pop(record.xid))
        elif record.change is not None and record.kind == "c":
            one = self._held.setdefault(record.xid, Open(origin=record.origin))
            one.changes.append((record.lsn, record.change, record.of))
            if self._block and len(one.changes) - one.sent >= self._block and record.lsn >= self._start:
                yield from self._blocks(record.xid, one)

    def _wanted(self, change: Change) -> bool:
        return change.kind != "L" or self._messages

    def _blocks(self, xid: int, one: Open) -> Iterator[tuple[bytes, int]]:
        """Yield a stream block with the unsent changes of a running transaction."""
        fresh = [entry for entry in one.changes[one.sent :] if entry[2] not in one.aborted and self._wanted(entry[1])]
        one.sent = len(one.changes)
        if not fresh:
            return
        yield b"S" + struct.pack(">IB", xid, 0 if one.is_streamed else 1), fresh[0][0]
        if one.origin and not one.is_streamed:
            yield b"O" + struct.pack(">q", 1) + b"elsewhere\0", fresh[0][0]
        one.is_streamed = True
        known = self._announced_in.setdefault(xid, {})
        for lsn, change, of in fresh:
            # the server sends logical messages with the id of the whole transaction
            inside = struct.pack(">I", xid if change.kind == "L" else of or xid)
            for oid in change.tables:
                if known.get(oid) != change.shape(oid):
                    known[oid] = change.shape(oid)
                    yield change.relation(oid, inside), 0
            yield change.message(lsn, inside), lsn
        yield b"E", fresh[-1][0]

    def _commit(self, record: Record, one: Open) -> Iterator[tuple[bytes, int]]:
        if one.is_streamed:
            yield from self._blocks(record.xid, one)
            yield b"c" + struct.pack(">IBqqq", record.xid, 0, record.lsn, record.end, record.lsn), record.end
            # after the commit, the announcements inside count for later transactions
            self._announced |= self._announced_in.pop(record.xid, {})
            return
        kept = [entry for entry in one.changes if entry[2] not in one.aborted and self._wanted(entry[1])]
        if record.lsn < self._start or not kept:
            return
        yield b"B" + struct.pack(">qqI", record.lsn, record.lsn, record.xid), kept[0][0]
        if one.origin:
            yield b"O" + struct.pack(">q", 1) + b"elsewhere\0", kept[0][0]
        for lsn, change, _ in kept:
            for oid in change.tables:
                if self._announced.get(oid) != change.shape(oid):
                    self._announced[oid] = change.shape(oid)
                    yield change.relation(oid), 0
            yield change.message(lsn), lsn
        yield b"C" + struct.pack(">Bqqq", 0, record.lsn, record.end, record.lsn), record.end
