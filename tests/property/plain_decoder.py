"""A plain decoder of PostgreSQL's messages, one at a time, which the compiled decoder must equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.columns.batch import ChangeBatch, Flags, Image
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.protocol.pgoutput import (
    UNAVAILABLE,
    Delete,
    Insert,
    OldKind,
    Row,
    Truncate,
    Update,
    Value,
    check_column_bytes,
    parse_change,
)
from tailrace.connectors.postgres.protocol.position import Segment
from tailrace.log.rows.frames import check_offsets


def plain_decode(segment: Segment) -> ChangeBatch:
    """Return what `decoder.decode` must yield, message by message. Raises DecodeError with the offset into
    segment.data."""
    check_offsets(segment.data, segment.offsets, len(segment))
    ops = bytearray()
    befores: list[Row | None] = []
    afters: list[Row | None] = []
    is_partial = False
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
                if before is not None:
                    after = tuple(map(_restored, before, after))
            case Delete():
                ops += b"d"
                before, kind = message.old, message.old_kind
            case Truncate():
                ops += b"t"
        is_partial |= kind == "K" or (isinstance(message, Update) and before is None)
        befores.append(before)
        afters.append(after)
    before_image = _image(segment.table, befores)
    identity = segment.table.replica_identity
    if identity == "f" and is_partial:
        identity = "d"
    return ChangeBatch(
        table=replace(segment.table, replica_identity=identity),
        op=np.frombuffer(bytes(ops), dtype=np.uint8),
        lsn=segment.by_row.lsn,
        transaction=segment.by_row.transaction,
        ordinal=segment.by_row.ordinal,
        transactions=segment.transactions,
        before=before_image,
        after=_image(segment.table, afters),
    )


def _restored(old: Value, new: Value) -> Value:
    """Return the new value; if the log left it out as unchanged, the old value if the old tuple has it."""
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
