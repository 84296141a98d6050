"""Quarantine: changes that cannot become events are put aside on a topic of their own, or stop the query. Worker.

`event.processing.failure.handling.mode` decides: `fail` raises, `warn` and `skip` put the change aside, `warn` with
a line in the log. The record holds the raw message, so nothing is lost; all other changes are delivered in order.
"""

from __future__ import annotations

import base64
import logging
import struct as binary
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from tailrace.columns import ROW_SCHEMA, ChangeBatch, Image, Marker
from tailrace.columns.logical import BYTES, INT64, STRING, Field, struct
from tailrace.connectors.postgres.decoder import decode
from tailrace.connectors.postgres.pgoutput import parse_change
from tailrace.connectors.postgres.position import lsn_text
from tailrace.connectors.postgres.segment import Segment
from tailrace.errors import ConversionError, DecodeError
from tailrace.events import names
from tailrace.events.settings import EventSettings
from tailrace.serde.conversion import ColumnPlan
from tailrace.serde.fragments import plain_json
from tailrace.serde.json_text import dumps, quoted, schema_text

log = logging.getLogger("tailrace")

OP = "quarantine"
"""What the op column says of a record of the quarantine topic."""

SCHEMA = struct(
    Field("table", STRING),
    Field("op", STRING.with_optional(True)),
    Field("position", STRING),
    Field("ordinal", INT64),
    Field("lsn", STRING),
    Field("column", STRING.with_optional(True)),
    Field("reason", STRING),
    Field("key", STRING.with_optional(True)),
    Field("message", BYTES),
    name="tailrace.Quarantine",
    version=1,
)
"""The value of a quarantine record; docs/reference/postgres.md says what the fields mean."""

_NOT_CONVERTIBLE = "a value does not fit its type in events"
_told: set[tuple[str, str]] = set()


class Unconvertible(Exception):
    """A block of changes holds values of `column` that its type in events cannot hold."""

    def __init__(self, column: ColumnPlan) -> None:
        super().__init__(column.source_name)
        self.column = column


def failing(
    batch: ChangeBatch, plans: Iterable[ColumnPlan], low: int, high: int, seen: ColumnPlan
) -> dict[int, ColumnPlan]:
    """The changes of `[low, high)` that hold a value which cannot be converted, in order, each with its column.

    A single change that the plain conversions find nothing in fails by the column that was `seen` to fail.
    """
    found: dict[int, ColumnPlan] = {}
    for plan in plans:
        for image in filter(None, (batch.before, batch.after)):
            flags = image.unavailable[plan.index]
            for change, text in enumerate(image.columns[plan.index].slice(low, high - low).to_pylist(), low):
                if text is not None and not (flags is not None and flags[change]) and plain_json(plan, text) is None:
                    found.setdefault(change, plan)
    if not found and high - low == 1:
        return {low: seen}
    return dict(sorted(found.items()))


def conversion_error(batch: ChangeBatch, change: int, column: ColumnPlan) -> ConversionError:
    """The error of `fail`: where the change stands, and which column."""
    return ConversionError(
        f"A value of column {column.source_name} of {batch.table.id} does not fit its type in events, "
        f"{_place(batch, change)}.",
        "Set event.converting.failure.handling.mode to warn to have it as null, or "
        "event.processing.failure.handling.mode to warn to have the change put aside.",
    )


def converted_row(
    batch: ChangeBatch, change: int, column: ColumnPlan, key: tuple[ColumnPlan, ...], settings: EventSettings
) -> pa.RecordBatch:
    """The record that stands for a change with a value that cannot be converted, as a batch of ROW_SCHEMA."""
    _tell(batch, change, f"column {column.source_name} has a value that does not fit its type in events", settings)
    op = chr(batch.op[change])
    payload = {
        "op": op,
        "column": column.source_name,
        "reason": _NOT_CONVERTIBLE,
        "key": _key(key, batch.before if op == "d" else batch.after, change),
        "message": _message(batch, change),
    }
    return _row(batch, change, payload, settings)


def decoded(segment: Segment, settings: EventSettings) -> Iterator[ChangeBatch | pa.RecordBatch]:
    """The segment's changes, with the record of a message that cannot be decoded in its place between them.

    Raises DecodeError, naming table and position, where the mode is `fail`; in any mode when the segment as a whole
    is at fault.
    """
    try:
        yield _batch(segment, 0, len(segment))
        return
    except DecodeError as error:
        broken = _broken(segment)
        if not broken:
            raise
        if settings.processing_failure_mode == "fail":
            row, reason = next(iter(broken.items()))
            raise DecodeError(
                f"A message of {segment.table.id} cannot be decoded, {_place(segment, row)}: {reason} "
                "Set event.processing.failure.handling.mode to warn to have it put aside."
            ) from error
    low = 0
    for row, reason in broken.items():
        if low < row:
            yield _batch(segment, low, row)
        _tell(segment, row, f"a message cannot be decoded: {reason}", settings)
        raw = segment.data[segment.offsets[row] : segment.offsets[row + 1]].tobytes()
        payload = {"op": None, "column": None, "reason": reason, "key": None, "message": raw}
        yield _row(segment, row, payload, settings)
        low = row + 1
    if low < len(segment):
        yield _batch(segment, low, len(segment))


def _broken(segment: Segment) -> dict[int, str]:
    """The messages that are not understood, in order, each with the reason."""
    found: dict[int, str] = {}
    for row in range(len(segment)):
        try:
            parse_change(segment, row)
        except DecodeError as error:
            found[row] = error.message
    return found


def _batch(segment: Segment, low: int, high: int) -> ChangeBatch:
    """The messages `[low, high)` decoded, with their orders and their raw bytes."""
    total, table = segment.total_order, segment.table_order
    if high - low < len(segment):
        segment = Segment(
            table=segment.table,
            data=segment.data,
            offsets=np.ascontiguousarray(segment.offsets[low : high + 1]),
            lsn=segment.lsn[low:high],
            transaction=segment.transaction[low:high],
            ordinal=segment.ordinal[low:high],
            transactions=segment.transactions,
        )
    batch = decode(segment)
    batch.total_order = None if total is None else total[low:high]
    batch.table_order = None if table is None else table[low:high]
    batch.messages = (segment.data, segment.offsets)
    return batch


def _row(
    place: ChangeBatch | Segment, row: int, payload: Mapping[str, object], settings: EventSettings
) -> pa.RecordBatch:
    table, transactions, number = place.table.id, place.transactions, int(place.transaction[row])
    commit = int(transactions.commit_lsn[number])
    message = payload["message"]
    assert isinstance(message, bytes)
    known: dict[str, object] = {
        "table": str(table),
        "position": lsn_text(commit),
        "ordinal": int(place.ordinal[row]),
        "lsn": lsn_text(int(place.lsn[row])),
        **payload,
        "message": base64.b64encode(message).decode(),
    }
    text = dumps({part.name: known[part.name] for part in SCHEMA.fields})
    if settings.value_schemas_enable:
        text = f'{{"schema":{schema_text(SCHEMA)},"payload":{text}}}'
    marker = Marker.FALSE if isinstance(place, Segment) or place.marker is None else Marker(place.marker[row])
    one = {
        "topic": names.quarantine_topic(settings),
        "value": text.encode(),
        "op": OP,
        "database": table.database,
        "schema": table.schema,
        "table": table.table,
        "position": f"{commit:016X}",
        "ordinal": int(place.ordinal[row]),
        "transaction": str(int(transactions.xid[number])) if marker is Marker.FALSE else None,
        "source_ts": int(transactions.commit_us[number]),
        "snapshot": marker.name.lower(),
    }
    return pa.RecordBatch.from_pylist([one], schema=ROW_SCHEMA)


def _key(key: tuple[ColumnPlan, ...], image: Image | None, change: int) -> str | None:
    """The event's key as JSON; None where there is none, or where it is what cannot be converted."""
    if not key or image is None:
        return None
    parts = []
    for plan in key:
        text = image.columns[plan.index][change].as_py()
        value = plan.null if text is None else plain_json(plan, text)
        if value is None:
            return None
        parts.append(f"{quoted(plan.name)}:{value.decode()}")
    return "{" + ",".join(parts) + "}"


def _message(batch: ChangeBatch, change: int) -> bytes:
    """The raw message; for a row of a snapshot, which has none, the Insert that would carry it."""
    if batch.messages is not None:
        data, offsets = batch.messages
        return data[offsets[change] : offsets[change + 1]].tobytes()
    columns = [] if batch.after is None else batch.after.columns
    parts = [b"I", binary.pack(">I", batch.table.oid), b"N", binary.pack(">H", len(columns))]
    for column in columns:
        text = column[change].as_py()
        parts.append(b"n" if text is None else b"t" + binary.pack(">I", len(text)) + text)
    return b"".join(parts)


def _place(place: ChangeBatch | Segment, row: int) -> str:
    commit = int(place.transactions.commit_lsn[place.transaction[row]])
    return (
        f"at {lsn_text(int(place.lsn[row]))}, change {int(place.ordinal[row])} of the transaction that commits at "
        f"{lsn_text(commit)}"
    )


def _tell(place: ChangeBatch | Segment, row: int, reason: str, settings: EventSettings) -> None:
    """Warn once for each process, table and reason, where the mode is `warn`."""
    table = str(place.table.id)
    message = f"A change of {table} is put aside on {names.quarantine_topic(settings)}: {reason}, {_place(place, row)}."
    if isinstance(place, ChangeBatch):
        place.warnings.append(message)
    if settings.processing_failure_mode == "warn" and (table, reason) not in _told:
        _told.add((table, reason))
        log.warning(message)
