"""Records made one at a time from known values: heartbeats, BEGIN and END, notifications, schema changes, logical
messages, quarantined changes. Worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace import formats
from tailrace.config.formats import Format
from tailrace.errors import ConversionError, TransformError
from tailrace.events.headers import header_pairs
from tailrace.events.kinds import reason_of, tell_left_out
from tailrace.events.settings import EventSettings
from tailrace.formats.arrow import array_of, folded
from tailrace.records.layout import Header, Node, RecordLayout
from tailrace.records.transform import LeftOut, Refused, resolved, rewritten

log = logging.getLogger("tailrace")

Written = Callable[[Node | None, Format | str, bool, RecordLayout], object]
"""Encodes a key or a value in a format, with its schema or without."""
Single = tuple[RecordLayout, Mapping[str, object]]
"""A record, and its row's columns other than `topic`, `key`, `value`, `headers` and `op`; null if absent."""


def single_rows(records: Iterable[Single], settings: EventSettings) -> pa.RecordBatch:
    """Return one row for each record that the transforms keep, in order, as a batch of `settings.row_schema`."""
    return _rows(((_changed(record, settings), columns) for record, columns in records), settings, _bytes)


def own_rows(records: Iterable[Single], settings: EventSettings) -> pa.RecordBatch:
    """Return one row for each of tailrace's own records, which no transform changes.

    If a format cannot encode them, they are JSON: nothing may be lost.
    """
    return _rows(records, replace(settings, tolerant=False), _own_bytes)


def _rows(
    records: Iterable[tuple[RecordLayout | None, Mapping[str, object]]], settings: EventSettings, written: Written
) -> pa.RecordBatch:
    rows = []
    for record, columns in records:
        if record is not None:
            try:
                rows.append(_row(record, columns, settings, written))
            except (Refused, ConversionError) as fault:
                _refused(fault, record, settings)
    return pa.RecordBatch.from_pylist(rows, schema=settings.row_schema)


def _changed(record: RecordLayout, settings: EventSettings) -> RecordLayout | None:
    """Return the record after the transforms; None if one leaves it out."""
    if not settings.transforms:
        return record
    try:
        found = resolved(rewritten(record, settings.transforms), _value)
    except Refused as fault:
        _refused(fault, record, settings)
        return None
    if isinstance(found, LeftOut):
        tell_left_out([(found, 1)], [])
        return None
    return found


def _refused(fault: Refused | ConversionError, record: RecordLayout, settings: EventSettings) -> None:
    """Raise for a record that a transform or a converter cannot process; with errors.tolerance=all, log it instead."""
    if settings.tolerant:
        log.error(
            "A record %s for %s is dropped, as errors.tolerance=all says: %s.",
            record.op,
            record.topic,
            reason_of(fault),
        )
        return
    if isinstance(fault, ConversionError):
        raise fault
    raise TransformError(
        f"{fault.reason}, in the record {record.op} for {record.topic}.",
        "Give the transform a predicate that leaves such records out, or correct its options.",
    ) from None


def _value(leaf: Node) -> object:
    return array_of(leaf, None, np.zeros(1, np.int32))[0].as_py()


def _row(
    record: RecordLayout, columns: Mapping[str, object], settings: EventSettings, written: Written
) -> dict[str, object]:
    record = replace(record, topic=record.topic if isinstance(record.topic, str) else str(_value(record.topic)))
    return {
        **columns,
        "topic": record.topic,
        # typed rows have no place for a key that belongs to no table
        "key": None
        if settings.typed is not None
        else written(record.key, settings.key_format, settings.key_schemas_enable, record),
        "value": written(record.value, settings.value_format, settings.value_schemas_enable, record),
        "headers": header_pairs(replace(record, headers=_folded(record.headers)), settings),
        "op": record.op,
        "partition": None if record.partition is None else _value(record.partition),
        "timestamp": None if record.timestamp is None else _value(record.timestamp),
    }


def _own_bytes(layout: Node | None, form: Format | str, schemas: bool, record: RecordLayout) -> object:
    try:
        found = _bytes(layout, form, schemas, record)
    except ConversionError:
        found = None
    return _bytes(layout, "json", schemas, record) if found is None else found


def _folded(headers: Iterable[Header]) -> tuple[Header, ...]:
    return tuple(replace(one, node=folded(one.node)) for one in headers)


def _bytes(layout: Node | None, form: Format | str, schemas: bool, record: RecordLayout) -> object:
    return None if layout is None else formats.find(form).one(folded(layout), schemas, record)
