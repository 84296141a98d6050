"""Quarantine: changes that cannot become events are sent to a quarantine topic, or stop the query. Worker.

`event.processing.failure.handling.mode` decides: `fail` raises; `warn` and `skip` quarantine the change, `warn` with a
line in the log. The record holds the raw message, so nothing is lost; all other changes are delivered in order.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tailrace.columns import ChangeBatch, Image, Marker, TableId
from tailrace.columns.logical import BYTES, INT64, STRING, Field, struct
from tailrace.errors import ConversionError, TransformError
from tailrace.events import names
from tailrace.events.control_records import own_rows
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import ChangePlace, SourceForm
from tailrace.metrics.tally import TALLY
from tailrace.records.layout import RecordLayout, constants
from tailrace.values.conversion import ColumnPlan
from tailrace.values.fragments import plain_json
from tailrace.values.json_text import quoted

log = logging.getLogger("tailrace")

OP = "quarantine"
"""The column `op` of a quarantine record."""

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
"""The value of a quarantine record; docs/reference/events.md explains its fields."""

_NOT_CONVERTIBLE = "a value does not fit its type in events"
_EXCEEDS_ARROW = "the event would have 2 GiB or more"
_TOO_LARGE = "the change is larger than event.max.change.bytes"
_KINDS = {_NOT_CONVERTIBLE: "value", _EXCEEDS_ARROW: "size", _TOO_LARGE: "size"}
"""The kind of a quarantined change in metrics, by reason. Any other reason is `malformed`."""
_BINARY_DECIMALS = ("org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal")
# A larger key is left out of the record of a change that is too large.
_MOST_KEY = 4096
_reported: set[tuple[str, str]] = set()


class Unconvertible(Exception):
    """A block of changes holds values of `column` that do not fit its type in events."""

    def __init__(self, column: ColumnPlan) -> None:
        super().__init__(column.source_name)
        self.column = column


@dataclass(frozen=True, slots=True)
class QuarantinedChange:
    """A quarantined change: its table, place, ordinal and marker, and its commit's time in µs since 1970."""

    table: TableId
    place: ChangePlace
    ordinal: int
    commit_us: int
    marker: Marker = Marker.FALSE

    def __str__(self) -> str:
        return f"at {self.place.lsn}, change {self.ordinal} of the transaction that commits at {self.place.commit}"


def _change(batch: ChangeBatch, change: int, form: SourceForm) -> QuarantinedChange:
    marker = Marker.FALSE if batch.marker is None else Marker(batch.marker[change])
    commit_us = int(batch.transactions.commit_us[batch.transaction[change]])
    return QuarantinedChange(batch.table.id, form.place(batch, change), int(batch.ordinal[change]), commit_us, marker)


def failing(
    batch: ChangeBatch, plans: Iterable[ColumnPlan], low: int, high: int, seen: ColumnPlan
) -> dict[int, ColumnPlan]:
    """Return the changes of `[low, high)` with a value that cannot be converted, in order, each with its column.

    If the plain conversions find no such value in a single change, it is returned with the column `seen`.
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


def conversion_error(
    batch: ChangeBatch,
    change: int,
    column: ColumnPlan,
    form: SourceForm,
    in_tables: bool = False,
    of_key: bool = False,
) -> ConversionError:
    """Return the error of mode `fail`, with the change's place and column.

    `in_tables`: the change is for the sink tables, which quarantines nothing and keeps the types of its columns.
    `of_key`: the column is part of the key, which is never null in tables.
    """
    remedy = "Set event.converting.failure.handling.mode to warn to have null instead"
    remedy += "." if in_tables else ", or event.processing.failure.handling.mode to warn to quarantine the change."
    if column.schema.name in _BINARY_DECIMALS:
        remedy += " Or set decimal.handling.mode to string, which has words for NaN and the infinities"
        remedy += ", and begin anew with another path and another checkpoint." if in_tables else "."
    if of_key:
        remedy = "Correct the row and read the table anew, or name other columns in message.key.columns."
    return ConversionError(
        f"A value of column {column.source_name} of {batch.table.id} does not fit its type in events, "
        f"{_change(batch, change, form)}.",
        remedy,
    )


_PREDICATE = "Give the transform a predicate that leaves such records out, or correct its options."


def refused_error(
    batch: ChangeBatch, change: int, reason: str, form: SourceForm, remedy: str = _PREDICATE
) -> TransformError:
    """Return the error for a record that a transform cannot process, with the change's place."""
    return TransformError(f"{reason}, in a record of {batch.table.id}, {_change(batch, change, form)}.", remedy)


def converted_row(
    batch: ChangeBatch,
    change: int,
    column: ColumnPlan,
    key: tuple[ColumnPlan, ...],
    settings: EventSettings,
    form: SourceForm,
) -> pa.RecordBatch:
    """Return the quarantine record of a change with a value that cannot be converted, as `settings.row_schema`."""
    found = _change(batch, change, form)
    reason = f"column {column.source_name} has a value that does not fit its type in events"
    batch.warnings.append(report(found, reason, settings))
    op = chr(batch.op[change])
    payload = {
        "op": op,
        "column": column.source_name,
        "reason": _NOT_CONVERTIBLE,
        "key": _key(key, batch.before if op == "d" else batch.after, change),
        "message": form.message(batch, change),
    }
    return put_aside(found, payload, settings)


class DroppedRecords:
    """The records of a batch that errors.tolerance=all drops: counted by reason, reported at its end."""

    def __init__(self, batch: ChangeBatch, form: SourceForm) -> None:
        self._batch, self._form = batch, form
        self._found: dict[str, tuple[int, int]] = {}

    def take(self, reason: str, change: int, count: int) -> None:
        """Note that `count` records are dropped for this reason; the first is a record of the change `change`."""
        before, first = self._found.get(reason, (0, change))
        self._found[reason] = before + count, min(first, change)

    def tell(self) -> None:
        """Log as errors which records were dropped and how many, and add the messages to the batch's warnings."""
        for reason, (count, first) in self._found.items():
            message = (
                f"{count} records of {self._batch.table.id} are dropped because of errors.tolerance=all: {reason}; the "
                f"first is {_change(self._batch, first, self._form)}."
            )
            log.error(message)
            self._batch.warnings.append(message)
        self._found.clear()


def put_aside(change: QuarantinedChange, payload: Mapping[str, object], settings: EventSettings) -> pa.RecordBatch:
    """Return the quarantine record of `change` as a row of `settings.row_schema`.

    `payload` has `op`, `column`, `reason`, `key` and `message`, the last as bytes.
    """
    table, place = change.table, change.place
    TALLY.quarantine(str(table), _KINDS.get(str(payload["reason"]), "malformed"))
    message = payload["message"]
    assert isinstance(message, bytes)
    known: dict[str, object] = {
        "table": str(table),
        "position": place.commit,
        "ordinal": change.ordinal,
        "lsn": place.lsn,
        **payload,
        "message": base64.b64encode(message).decode(),
    }
    record = RecordLayout(OP, names.quarantine_topic(settings), None, constants(known, SCHEMA))
    columns: dict[str, object] = {
        "database": table.database,
        "schema": table.schema,
        "table": table.table,
        "position": place.position,
        "ordinal": change.ordinal,
        "transaction": place.transaction if change.marker is Marker.FALSE else None,
        "source_ts": change.commit_us,
        "snapshot": change.marker.name.lower(),
    }
    return own_rows([(record, columns)], settings)


def too_large(
    change: QuarantinedChange, size: int | None, settings: EventSettings, op: str | None = None, key: str | None = None
) -> pa.RecordBatch:
    """Return the quarantine record of a change of `size` bytes, more than `settings.most_change_bytes`.

    `size` None: the event would have 2 GiB or more. The record has the values of `key`, if it is known and short, and
    no others. Raises ConversionError in mode `fail`.
    """
    if settings.processing_failure_mode == "fail":
        instead = "event.processing.failure.handling.mode to warn to quarantine the change (not with the sink tables)."
        if size is None:
            raise ConversionError(
                f"A change of {change.table} cannot become an event: it would have 2 GiB or more, {change}.",
                f"Leave columns out (column.exclude.list), or set {instead}",
            )
        raise ConversionError(
            f"A change of {change.table} has {size} bytes, more than the {settings.most_change_bytes} that "
            f"event.max.change.bytes allows, {change}.",
            "Unless it is set, the limit is a share of the memory of Spark's JVM: give that more (--conf "
            f"spark.driver.memory=8g, on a cluster spark.executor.memory too), or set {instead}",
        )
    reason = _EXCEEDS_ARROW if size is None else _TOO_LARGE
    report(change, reason, settings)
    if key is not None and len(key) > _MOST_KEY:
        key = None
    payload = {"op": op, "column": None, "reason": reason, "key": key, "message": b""}
    return put_aside(change, payload, settings)


def too_large_row(
    batch: ChangeBatch,
    change: int,
    size: int | None,
    key: tuple[ColumnPlan, ...],
    settings: EventSettings,
    form: SourceForm,
) -> pa.RecordBatch:
    """Call `too_large` for a change whose columns have been read."""
    op = chr(batch.op[change])
    short = _key(key, batch.before if op == "d" else batch.after, change)
    return too_large(_change(batch, change, form), size, settings, op, short)


def _key(key: tuple[ColumnPlan, ...], image: Image | None, change: int) -> str | None:
    """Return the event's key as JSON; None without a key, or if the key cannot be converted."""
    if not key or image is None or (image.present is not None and not image.present[change]):
        return None
    parts = []
    for plan in key:
        text = image.columns[plan.index][change].as_py()
        value = plan.null if text is None else plain_json(plan, text)
        if value is None:
            return None
        parts.append(f"{quoted(plan.name)}:{value.decode()}")
    return "{" + ",".join(parts) + "}"


def report(change: QuarantinedChange, reason: str, settings: EventSettings) -> str:
    """Return the warning; in mode `warn`, log it once per process, table and reason."""
    table = str(change.table)
    message = f"A change of {table} is quarantined on {names.quarantine_topic(settings)}: {reason}, {change}."
    if settings.processing_failure_mode == "warn" and (table, reason) not in _reported:
        _reported.add((table, reason))
        log.warning(message)
    return message
