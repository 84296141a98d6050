"""Fuzz target: events of the binary log of MySQL and MariaDB, and the rows in them.

An input is pieces: the bits of the first piece's first byte choose the dialect and whether events are numbered; the
others are events without checksums.
"""

from __future__ import annotations

import struct
from uuid import UUID

import numpy as np

from tailrace.columns.batch import Image
from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.binlog.log.decoder import decode
from tailrace.connectors.binlog.log.indexed_run import IndexedRun
from tailrace.connectors.binlog.log.indexing import Indexer
from tailrace.connectors.binlog.log.plain_rows import LACKING, parse_row
from tailrace.connectors.binlog.log.position import BinlogPosition, Segment
from tailrace.connectors.binlog.schema.statement import NO_OUTCOME, Place, Statement, StatementEffects
from tailrace.connectors.binlog.schema.table_map import TableMap
from tailrace.errors import DecodeError, TailraceError
from tailrace.log.rows import segment
from tailrace.log.rows.segment import gathered
from tests.fuzz.guarded import Guarded
from tests.fuzz.machine import Difference, Target
from tests.fuzz.mutation import framed, frames

_GUARDED = Guarded()
_START = BinlogPosition("binlog.000001", 3, 4)


class Definitions:
    """Definitions that say of each map what the map itself says."""

    def __init__(self) -> None:
        self.versions: list[TableSchema] = []

    def begin(self) -> None:
        return

    def keep(self) -> None:
        return

    def captures(self, database: str, table: str) -> bool:
        return True

    def fits(self, given: TableMap) -> bool:
        return True

    def version(self, given: TableMap, at: Place) -> int:
        columns = []
        for place, kind in enumerate(given.types):
            labels = tuple(label.decode("utf-8", "replace") for label in given.labels[place] or (b"a", b"b"))
            charset = "" if given.collations[place] is None else " character set utf8mb4"
            columns.append(Column(f"c{place}", kind.name.lower() + charset, 0, enum_labels=labels))
        table = TableSchema(TableId("d", given.database, given.table), tuple(columns), ("c0",) if columns else ())
        if table not in self.versions:
            self.versions.append(table)
        return self.versions.index(table)

    def statement(self, given: Statement, at: Place) -> StatementEffects:
        return NO_OUTCOME


def _run(data: bytes) -> object:
    head, *events = frames(data) or [b""]
    chosen = head[0] if head else 0
    is_mariadb = bool(chosen & 1)
    buffer, spans = bytearray(), []
    for event in [_event(15, _FORMAT), *events]:
        spans.append((len(buffer), len(buffer) + len(event)))
        buffer += event
    indexer = Indexer(_START, Definitions(), is_mariadb, frozenset("t") if chosen & 2 else None, bool(chosen & 4))
    try:
        indexer.add(buffer, spans)
        step = indexer.step()
    except TailraceError as error:
        return type(error).__name__
    if step is None:
        return "nothing"
    indexer.keep(step)
    step.run.leads_to(_START)
    _rows(step.run, indexer)
    return f"{len(step.run) > 0} {len(step.run.ends)}"


def _rows(run: IndexedRun, indexer: Indexer) -> None:
    """Compare the rows of a run as both decoders read them."""
    for number in np.unique(run.version[run.version >= 0]).tolist():
        rows = np.flatnonzero(run.version == number)
        data, offsets, by_row, transactions = gathered([(run, rows)])
        found: Segment = segment.Segment(
            indexer.versions[number], _GUARDED.copy(data.tobytes()), offsets, by_row, transactions
        )
        compared(found)


def compared(found: Segment) -> list[object]:
    """Return the rows of a segment as both decoders read them; [] if neither can.

    Raises Difference.
    """
    compiled, plainly = _compiled(found), _plainly(found)
    if compiled != plainly:
        raise Difference(f"rows\n{compiled!r}\nplainly {plainly!r}")
    return compiled if isinstance(compiled, list) else []


def _compiled(found: Segment) -> object:
    try:
        batch = decode(found)
    except DecodeError:
        return DecodeError
    return [(_texts(batch.before, row, found), _texts(batch.after, row, found)) for row in range(len(batch))]


def _texts(side: Image | None, row: int, found: Segment) -> object:
    if side is None or (side.present is not None and not side.present[row]):
        return None
    texts = [
        LACKING if flags is not None and flags[row] else column[row].as_py()
        for column, flags in zip(side.columns, side.unavailable, strict=True)
    ]
    for column in side.columns:
        column.validate(full=True)
    return _numbers(texts, found)


def _numbers(texts: list[object], found: Segment) -> list[object]:
    """Return the texts, with numbers in the place of those of floating-point numbers."""
    kinds = [column.type_name.split()[0].upper() for column in found.table.columns]
    return [
        repr(float(text)) if isinstance(text, bytes) and kind in ("FLOAT", "DOUBLE") else text
        for text, kind in zip(texts, kinds, strict=True)
    ]


def _plainly(found: Segment) -> object:
    rows: list[object] = []
    form = found.table.form  # type: ignore[attr-defined]
    for row in range(len(found)):
        message = found.data[found.offsets[row] : found.offsets[row + 1]].tobytes()
        image = found.by_row.images[found.by_row.image[row]]
        try:
            before, after = parse_row(message, form, image).texts(form)
        except DecodeError:
            return DecodeError
        shown = [None if side is None else _numbers([*side], found) for side in (before, after)]
        rows.append((shown[0], shown[1]))
    return rows


# --- seeds ------------------------------------------------------------------------------------------------------------

_FORMAT = struct.pack("<H50sIB", 4, b"8.0.36", 0, 19) + bytes(34) + bytes([0, 0, 0, 0, 8, 0, 8]) + bytes(5)
_UUID = UUID("00112233-4455-6677-8899-aabbccddeeff").bytes
_TYPES = (
    bytes([3, 8, 15, 252, 246, 18, 245, 254, 16, 4]),
    struct.pack("<H", 200) + b"\x02" + bytes([12, 2]) + b"\x06" + b"\x04" + bytes([247, 1]) + bytes([1, 1]) + b"\x04",
)
_MAP = (
    (9).to_bytes(6, "little") + b"\x01\x00\x01d\x00\x01t\x00" + bytes([len(_TYPES[0])]) + _TYPES[0]
    + bytes([len(_TYPES[1])]) + _TYPES[1] + b"\xff\x03"
)  # fmt: skip
_ROW = (
    b"\x00\x00" + (7).to_bytes(4, "little") + (8).to_bytes(8, "little") + b"\x03abc" + b"\x02\x00hi"
    + bytes.fromhex("800000000c22") + bytes.fromhex("99b23b0000010203") + b"\x03\x00\x00\x00\x05\x07\x00" + b"\x01"
    + b"\x01\x05" + struct.pack("<f", 1.5)
)  # fmt: skip
_NULLS = b"\xff\x03"


def _event(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("<IBIIIH", 1_700_000_000, kind, 7, 19 + len(body), 0, flags) + body


def _query(sql: bytes) -> bytes:
    return _event(2, struct.pack("<IIBHH", 5, 0, 1, 0, 0) + b"d\x00" + sql)


def _changes(kind: int, rows: bytes) -> bytes:
    present = b"\x0a" + b"\xff\x03" * (2 if kind in (24, 31, 39) else 1)
    extra = b"\x02\x00" if kind >= 30 else b""
    return _event(kind, (9).to_bytes(6, "little") + b"\x01\x00" + extra + present + rows)


def _seeds() -> list[bytes]:
    gtid = _event(33, bytes([0]) + _UUID + struct.pack("<q", 5) + bytes([2]) + bytes(16))
    maria = _event(162, struct.pack("<QIB", 5, 0, 0) + bytes(6))
    xid, table = _event(16, bytes(8)), _event(19, _MAP)
    creates, updates = _changes(30, _ROW + _NULLS), _changes(31, _ROW + _ROW + _ROW + _NULLS)
    deletes, partial = _changes(32, _ROW), _changes(39, _ROW + b"\x01\x00" + _ROW)
    xa = _event(38, struct.pack("<?III", False, 1, 1, 0) + b"x")
    held = [gtid, _query(b"XA START X'78',X'',1"), table, creates, _query(b"XA END X'78',X'',1"), xa]
    return [
        framed([b"\x00", gtid, _query(b"BEGIN"), table, creates, updates, deletes, xid]),
        framed([b"\x06", gtid, _query(b"BEGIN"), table, partial, xid, gtid, _query(b"TRUNCATE TABLE t")]),
        framed([b"\x03", maria, _event(160, b"insert"), table, _changes(23, _ROW), _changes(24, _ROW + _ROW), xid]),
        framed([b"\x02", *held, gtid, _query(b"XA COMMIT X'78',X'',1"),
                *held, gtid, _query(b"XA ROLLBACK X'78',X'',1")]),
        framed([b"\x00", gtid, _query(b"BEGIN"), table, creates, _query(b"SAVEPOINT s"), updates,
                _query(b"ROLLBACK TO s"), _query(b"COMMIT")]),
        framed([b"\x01", _event(4, struct.pack("<Q", 4) + b"binlog.000002", 0x20), _event(27, b"binlog.000002"),
                _event(40, b"\x01\x01\x00\x02\x01\xff\x00")]),
    ]  # fmt: skip


EVENTS = Target("binlog", _run, _seeds, (b"\x00", b"\xff", b"\xfb", b"\xfc", b"BEGIN", _NULLS, _ROW, b"\x13", b"\x1e"))
