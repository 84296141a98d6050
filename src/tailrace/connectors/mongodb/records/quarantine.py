"""Changes that cannot become events: the error, or the record for the quarantine topic. Worker."""

from __future__ import annotations

import pyarrow as pa

from tailrace.columns.batch import Marker
from tailrace.columns.table import TableId
from tailrace.connectors.mongodb.records.segment import Segment
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.values import fields
from tailrace.errors import ConversionError, DecodeError, TailraceError, TransformError
from tailrace.events.mapping import ChangePlace
from tailrace.events.quarantine import QuarantinedChange, put_aside, report, too_large

_REMEDY = (
    "Leave the collection or the field out, or set event.processing.failure.handling.mode to warn to quarantine the "
    "change (not with the sink tables)."
)


def unconvertible(segment: Segment, row: int, error: TailraceError, settings: MongoSettings) -> pa.RecordBatch:
    """Return the quarantine record of a change that cannot become an event, as a batch of `settings.row_schema`.

    Its message is the document as the server sent it. Raises ConversionError in the mode `fail`.
    """
    name = ".".join(segment.namespace)
    time, number = int(segment.time[row]), int(segment.number[row])
    position = f"{time >> 32}:{time & 0xFFFFFFFF}"
    if settings.events.processing_failure_mode == "fail":
        raise ConversionError(
            f"A change of {name} at {position}, number {number}, cannot become an event. {error.message}",
            error.remedy or _REMEDY,
        ) from None
    change = _change(segment, row)
    reason = "its BSON is malformed" if isinstance(error, DecodeError) else "a value has no form in events"
    report(change, reason, settings.events)
    start = int(segment.starts[row])
    payload: dict[str, object] = {
        "op": chr(segment.op[row]),
        "column": None,
        "reason": reason,
        "key": None,
        "message": segment.data[start : start + int(fields.load(segment.data, start))].tobytes(),
    }
    return put_aside(change, payload, settings.events)


def refused(segment: Segment, row: int, reason: str) -> TransformError:
    """Return the error for a record that a transform cannot take, with the `reason` and the position of the change."""
    time, number = int(segment.time[row]), int(segment.number[row])
    return TransformError(
        f"{reason}, in a record of {'.'.join(segment.namespace)} at {time >> 32}:{time & 0xFFFFFFFF}, number {number}.",
        "Give the transform a predicate that leaves such records out, or correct its options.",
    )


def beyond(segment: Segment, row: int, size: int, settings: MongoSettings) -> pa.RecordBatch:
    """Return the quarantine record of a change of `size` bytes, which is too large. Raises ConversionError in the mode
    `fail`."""
    return too_large(_change(segment, row), size, settings.events, chr(segment.op[row]))


def _change(segment: Segment, row: int) -> QuarantinedChange:
    time, number = int(segment.time[row]), int(segment.number[row])
    position = f"{time >> 32}:{time & 0xFFFFFFFF}"
    marker = Marker.FALSE if segment.markers is None else Marker(segment.markers[row])
    database, collection = segment.namespace
    place = ChangePlace(commit=position, lsn=position, position=f"{time:016X}", transaction="")
    return QuarantinedChange(TableId(database, database, collection), place, number, (time >> 32) * 1_000_000, marker)
