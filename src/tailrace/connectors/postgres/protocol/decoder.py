"""The fast decoder: a segment's messages into Arrow columns, without a Python object per change. Worker.

Three kernels, each one walk over the segment's bytes:

1. `_classify` reads each message's kind, so that only images that exist are allocated; 2. `_measure` checks every byte
and writes offsets, validity and unavailable flags of every column; 3. `_fill` copies the values.

Tests compare the decoder with a plain one. A kernel stops at a message that it does not accept, and
`pgoutput.parse_change` then raises the error for that message.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.batch import Bytes, ChangeBatch, Flags, Image, Int32s, Int64s
from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.postgres.protocol.pgoutput import check_column_bytes, parse_change
from tailrace.connectors.postgres.protocol.position import MixedSegment, Segment
from tailrace.connectors.postgres.protocol.scan import uint16, uint32
from tailrace.errors import DecodeError
from tailrace.kernels.buffers import move
from tailrace.kernels.compiled import kernel
from tailrace.log.rows.frames import check_offsets, frozen, pooled

_INSERT, _UPDATE, _DELETE, _TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")
_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")
_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
_OP_C, _OP_U, _OP_D, _OP_T = ord("c"), ord("u"), ord("d"), ord("t")

_BEFORE, _AFTER, _KEY_ONLY = 1, 2, 4

_ALIGNMENT = 64  # bytes: Arrow's recommendation for the start of a buffer


class _Target(NamedTuple):
    """The buffers of one image. A row of a two-dimensional array is one table column."""

    offsets: npt.NDArray[np.int32]
    validity: npt.NDArray[np.uint8]
    unavailable: npt.NDArray[np.bool_]
    sizes: Int64s
    nulls: Int64s
    missing: Int64s
    bases: Int64s


def decode(segment: Segment) -> ChangeBatch:
    """Return the segment's changes as columns.

    `before` and `after` are None when no row has them. A value that the new tuple of an update leaves out as unchanged
    is taken from the old tuple. With REPLICA IDENTITY FULL the old tuple has every value, else only those of the key.
    The batch's table has the replica identity that its tuples show: changes of partitions arrive under the partitioned
    table's name, but with the identity of their partition.

    Every message must be an Insert, Update, Delete or Truncate of the segment's table with the table's number of
    columns. Otherwise raises DecodeError with the message's offset into segment.data. Also raises DecodeError, without
    an offset, if a column of the batch exceeds 2³¹ - 1 bytes.
    """
    data = frozen(segment.data, np.uint8)
    offsets = frozen(segment.offsets, np.int64)
    rows = len(segment)
    check_offsets(data, offsets, rows)
    op = np.empty(rows, dtype=np.uint8)
    parts = np.empty(rows, dtype=np.uint8)
    classified = _classify(data, offsets, op, parts)
    seen = int(np.bitwise_or.reduce(parts[:classified], initial=0))
    width = len(segment.table.columns)
    before = _allocate(rows if seen & _BEFORE else 0, width)
    after = _allocate(rows if seen & _AFTER else 0, width)
    accepted = _measure(data, offsets, parts[:classified], segment.table.oid, before, after)
    if accepted < rows:
        parse_change(segment, accepted)
        raise DecodeError("The message is not understood.", int(offsets[accepted]))
    check_column_bytes(segment.table, before.sizes.tolist())
    check_column_bytes(segment.table, after.sizes.tolist())
    before_values, after_values = _place(before), _place(after)
    _fill(data, offsets, parts, before, before_values, after, after_values)
    return ChangeBatch(
        table=_with_identity(segment.table, op, parts),
        op=op,
        lsn=segment.by_row.lsn,
        transaction=segment.by_row.transaction,
        ordinal=segment.by_row.ordinal,
        transactions=segment.transactions,
        before=_image(before, before_values, parts & _BEFORE != 0) if seen & _BEFORE else None,
        after=_image(after, after_values, parts & _AFTER != 0) if seen & _AFTER else None,
        superseded=segment.superseded,
    )


def _with_identity(table: TableSchema, op: Bytes, parts: Bytes) -> TableSchema:
    """Return the table; its replica identity stays FULL only if every old row is present and complete."""
    if table.replica_identity != "f":
        return table
    lacking = ((op == _OP_U) & (parts & _BEFORE == 0)) | (parts & _KEY_ONLY != 0)
    return replace(table, replica_identity="d") if lacking.any() else table


def _padded(size: int, to: int) -> int:
    return -(-size // to) * to


def _allocate(rows: int, width: int) -> _Target:
    """Return buffers for `rows` rows: all valid, none unavailable; `_measure` writes the offsets."""
    offset_bytes, validity_bytes = _padded(4 * (rows + 1), _ALIGNMENT), _padded(rows // 8 + 1, _ALIGNMENT)
    offsets = pooled(width * offset_bytes).view(np.int32).reshape(width, offset_bytes // 4)
    offsets[:, 0] = 0
    validity = pooled(width * validity_bytes).reshape(width, validity_bytes)
    validity[:] = 255
    return _Target(
        offsets=offsets,
        validity=validity,
        unavailable=np.zeros((width, rows), dtype=np.bool_),
        sizes=np.zeros(width, dtype=np.int64),
        nulls=np.zeros(width, dtype=np.int64),
        missing=np.zeros(width, dtype=np.int64),
        bases=np.zeros(width, dtype=np.int64),
    )


def _place(target: _Target) -> Bytes:
    """Return a buffer for the values of all columns in turn, and write the start of each column to `bases`."""
    total = 0
    for column, size in enumerate(target.sizes.tolist()):
        target.bases[column] = total
        total += _padded(size, _ALIGNMENT)
    return pooled(total)


def _image(target: _Target, values: Bytes, present: Flags) -> Image:
    rows = len(present)
    columns: list[pa.Array] = []
    unavailable: list[Flags | None] = []
    for column, (size, nulls, missing, base) in enumerate(
        zip(target.sizes.tolist(), target.nulls.tolist(), target.missing.tolist(), target.bases.tolist(), strict=True)
    ):
        buffers = [
            pa.py_buffer(target.validity[column]) if nulls else None,
            pa.py_buffer(target.offsets[column, : rows + 1]),
            pa.py_buffer(values[base : base + size]),
        ]
        columns.append(pa.Array.from_buffers(pa.binary(), rows, buffers, nulls))
        unavailable.append(target.unavailable[column] if missing else None)
    return Image(None if present.all() else present, columns, unavailable)


@kernel
def _classify(data: Bytes, offsets: Int64s, op: Bytes, parts: Bytes) -> int:
    """Write each row's op and its images; return the number of rows before the first of unknown kind."""
    for row in range(len(op)):
        start, end = offsets[row], offsets[row + 1]
        if end - start < 6:
            return row
        kind, tag = data[start], data[start + 5]
        if kind == _INSERT:
            op[row], parts[row] = _OP_C, _AFTER
        elif kind == _UPDATE:
            op[row], parts[row] = _OP_U, _AFTER
            if tag != _NEW:
                parts[row] = _AFTER | _BEFORE
        elif kind == _DELETE:
            op[row], parts[row] = _OP_D, _BEFORE
        elif kind == _TRUNCATE:
            op[row], parts[row] = _OP_T, 0
        else:
            return row
        if parts[row] & _BEFORE:
            if tag == _KEY:
                parts[row] |= _KEY_ONLY
            elif tag != _OLD:
                return row
        elif kind == _INSERT and tag != _NEW:
            return row
    return len(op)


@kernel
def _measure(data: Bytes, offsets: Int64s, parts: Bytes, oid: int, before: _Target, after: _Target) -> int:
    """Check the messages and write everything but the values; return the number of rows before the first wrong one."""
    old_lengths = np.empty(len(before.sizes), dtype=np.int64)
    for row in range(len(parts)):
        at, end = offsets[row], offsets[row + 1]
        part = parts[row]
        if part == 0:
            if not _truncates(data, at, end, oid):
                return row
            _measure_absent(row, before)
            _measure_absent(row, after)
            continue
        if oid != 0 and uint32(data, at + 1) != oid:
            return row
        at += 5
        if part & _BEFORE:
            at = _measure_tuple(data, at + 1, end, row, before, old_lengths, False)
            if at < 0:
                return row
        else:
            _measure_absent(row, before)
        if part & _AFTER:
            if at >= end or data[at] != _NEW:
                return row
            at = _measure_tuple(data, at + 1, end, row, after, old_lengths, part & _BEFORE != 0)
            if at < 0:
                return row
        else:
            _measure_absent(row, after)
        if at != end:
            return row
    return len(parts)


@kernel
def _truncates(data: Bytes, at: int, end: int, oid: int) -> bool:
    count = uint32(data, at + 1)
    if end - at - 6 != 4 * count:
        return False
    found = oid == 0
    for index in range(count):
        found |= uint32(data, at + 6 + 4 * index) == oid
    return found


@kernel
def _measure_absent(row: int, target: _Target) -> None:
    if target.unavailable.shape[1] == 0:  # no row has this image
        return
    for column in range(len(target.sizes)):
        target.validity[column, row >> 3] &= ~np.uint8(1 << (row & 7))
        target.nulls[column] += 1
        target.offsets[column, row + 1] = target.sizes[column]


@kernel
def _measure_tuple(
    data: Bytes, at: int, end: int, row: int, target: _Target, old_lengths: Int64s, restore: bool
) -> int:
    """Check the tuple at `at`; return the position after it, or -1 if the tuple is wrong.

    The lengths of its values are written to `old_lengths` (-1: no text). With `restore` the lengths of unchanged values
    are first read from there: they are those of the same message's old tuple.
    """
    width = len(target.sizes)
    if end - at < 2 or uint16(data, at) != width:
        return -1
    at += 2
    for column in range(width):
        if at >= end:
            return -1
        kind = data[at]
        at += 1
        length = -1
        if kind == _TEXT:
            if end - at < 4:
                return -1
            length = uint32(data, at)
            at += 4
            if length > end - at:
                return -1
            at += length
        elif kind == _UNCHANGED:
            if restore:
                length = old_lengths[column]
            if length < 0:
                target.unavailable[column, row] = True
                target.missing[column] += 1
        elif kind != _NULL:
            return -1
        old_lengths[column] = length
        if length < 0:
            target.validity[column, row >> 3] &= ~np.uint8(1 << (row & 7))
            target.nulls[column] += 1
        else:
            target.sizes[column] += length
        target.offsets[column, row + 1] = target.sizes[column]
    return at


@kernel
def _fill(
    data: Bytes,
    offsets: Int64s,
    parts: Bytes,
    before: _Target,
    before_values: Bytes,
    after: _Target,
    after_values: Bytes,
) -> None:
    """Copy the values of messages that `_measure` has accepted."""
    old_starts = np.empty(len(before.sizes), dtype=np.int64)
    for row in range(len(parts)):
        at = offsets[row] + 6
        part = parts[row]
        if part & _BEFORE:
            at = _fill_tuple(data, at, row, before.offsets, before.bases, before_values, old_starts) + 1
        if part & _AFTER:
            _fill_tuple(data, at, row, after.offsets, after.bases, after_values, old_starts)


@kernel
def _fill_tuple(
    data: Bytes, at: int, row: int, offsets: Int32s, bases: Int64s, values: Bytes, old_starts: Int64s
) -> int:
    """Copy the values of the tuple at `at`; return the position after it."""
    data_at, values_at = data.ctypes.data, values.ctypes.data
    at += 2
    for column in range(len(bases)):
        kind = data[at]
        at += 1
        target = int(offsets[column, row])
        length = int(offsets[column, row + 1]) - target
        target += bases[column]
        source = at
        if kind == _TEXT:
            source += 4
            at = source + length
            old_starts[column] = source
        elif length > 0:
            source = old_starts[column]
        if length > 0:
            move(values_at + target, data_at + source, length)
    return at


# --- messages of several tables ---------------------------------------------------------------------------------------


def decode_together(segment: MixedSegment, places: Int32s, bounds: Int64s, width: int) -> ChangeBatch | None:
    """Return the changes of several tables as changes of one table; None if a message is wrong. See
    `RowLog.decode_together`.

    The messages are rewritten so that each value stands at its place, and decoded. Raises DecodeError.
    """
    data, offsets = frozen(segment.data, np.uint8), frozen(segment.offsets, np.int64)
    rows = len(segment)
    out = pooled(int(offsets[-1] - offsets[0]) + 2 * rows * width)
    written = np.zeros(rows + 1, np.int64)
    oids = frozen(np.array([table.oid for table in segment.tables], np.int64), np.int64)
    accepted = _rewrite(data, offsets, frozen(segment.table, np.int32), oids, bounds, places, width, out, written)
    if accepted < rows:
        return None
    return decode(Segment(_table(width), out, written, segment.by_row, segment.transactions))


@lru_cache(maxsize=64)
def _table(width: int) -> TableSchema:
    """Return a table of `width` columns without names. Its oid 0 fits the messages of any table."""
    return TableSchema(TableId("", "", ""), (Column("", "", 0),) * width, ())


@kernel
def _rewrite(
    data: Bytes,
    offsets: Int64s,
    table: Int32s,
    oids: Int64s,
    starts: Int64s,
    places: Int32s,
    width: int,
    out: Bytes,
    bounds: Int64s,
) -> int:
    """Write each message with its values at their places to `out`, and the messages' offsets to `bounds`.

    Return the number of messages before the first wrong one. `out` has room for the messages and for two nulls for
    each place and message.
    """
    at_of = np.full(width, -1, np.int64)
    end_of = np.zeros(width, np.int64)
    cursor = 0
    for row in range(len(table)):
        at, end = offsets[row], offsets[row + 1]
        number = table[row]
        if end - at < 6 or uint32(data, at + 1) != oids[number]:
            return row
        kind, tag = data[at], data[at + 5]
        if kind == _INSERT:
            right = tag == _NEW
        elif kind == _UPDATE:
            right = tag in (_NEW, _KEY, _OLD)
        else:
            right = kind == _DELETE and tag in (_KEY, _OLD)
        if not right:
            return row
        for byte in range(5):
            out[cursor + byte] = data[at + byte]
        cursor += 5
        at += 5
        first, last = starts[number], starts[number + 1]
        while at < end:
            tag = data[at]
            out[cursor] = tag
            behind = _locate(data, at + 1, end, places, first, last, at_of, end_of)
            if behind < 0:
                return row
            cursor = _put_tuple(data, out, cursor + 1, at_of, end_of)
            at = behind
            if at < end and (kind != _UPDATE or tag == _NEW or data[at] != _NEW):
                return row
        if kind == _UPDATE and tag != _NEW:
            return row
        bounds[row + 1] = cursor
    return len(table)


@kernel
def _locate(
    data: Bytes, at: int, end: int, places: Int32s, first: int, last: int, at_of: Int64s, end_of: Int64s
) -> int:
    """Write the begin and end of each value of the tuple at `at` to `at_of` and `end_of`, by place.

    Return the tuple's end; -1 if the tuple is wrong.
    """
    if end - at < 2 or uint16(data, at) != last - first:
        return -1
    at += 2
    for column in range(first, last):
        if at >= end:
            return -1
        begin = at
        kind = data[at]
        at += 1
        if kind == _TEXT:
            if end - at < 4:
                return -1
            length = uint32(data, at)
            at += 4
            if length > end - at:
                return -1
            at += length
        elif kind not in (_UNCHANGED, _NULL):
            return -1
        if places[column] >= 0:
            at_of[places[column]] = begin
            end_of[places[column]] = at
    return at


@kernel
def _put_tuple(data: Bytes, out: Bytes, cursor: int, at_of: Int64s, end_of: Int64s) -> int:
    """Write a tuple of the located values, with nulls at the other places, and reset `at_of`. Return the tuple's
    end."""
    width = len(at_of)
    out[cursor], out[cursor + 1] = width >> 8, width & 255
    cursor += 2
    data_at, out_at = data.ctypes.data, out.ctypes.data
    for place in range(width):
        begin = at_of[place]
        if begin < 0:
            out[cursor] = _NULL
            cursor += 1
        else:
            move(out_at + cursor, data_at + begin, end_of[place] - begin)
            cursor += end_of[place] - begin
            at_of[place] = -1
    return cursor
