"""From a ChangeBatch to the rows that Spark gets: the columnar path from server text to events. Runs in workers.

A batch is worked off in blocks of changes that fit the cache. Of each block every column becomes a fragment (the
JSON of its values, one after another), and every record is put together from literals and fragments in one pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import ChangeBatch, Image, Marker, TableSchema
from tailrace.columns.logical import LogicalType
from tailrace.columns.row import rows_of
from tailrace.events import names
from tailrace.events.envelope import event_schemas, marker_text
from tailrace.events.expansion import AFTER, BEFORE, NO_IMAGE, TOMBSTONE, Records, expand
from tailrace.events.form import Form, SourceParts
from tailrace.events.form import Records as Shown
from tailrace.events.headers import header_column
from tailrace.events.quarantine import Unconvertible, conversion_error, converted_row, failing, too_large_row
from tailrace.events.settings import EventSettings
from tailrace.events.size import large_records, record_size
from tailrace.serde.assemble import (
    CHANGE,
    KINDS,
    MARKER,
    NO_PROGRAM,
    RECORD,
    SOURCE,
    TRANSACTION,
    Fragment,
    Programs,
)
from tailrace.serde.conversion import ColumnPlan, Kernel
from tailrace.serde.fragments import column_fragment, integers_fragment, strings_fragment, text_fragment
from tailrace.serde.json_text import dumps, quoted, schema_text
from tailrace.serde.memory import ExceedsArrow, binary_array, text_buffers

log = logging.getLogger("tailrace")
Flags = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
_MAX_RECORDS = 8_192
_MAX_TEXT = 48 << 20
_MAX_OUTPUT = 512 << 20
_warned: set[tuple[str, str, str]] = set()


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Everything about a table's records that does not depend on the change.

    Each `…_open` precedes a payload: its schema, or nothing; `…_close` follows it. A key in a header is written with
    its schema where values are. `key_apart` are the key's columns that values leave out or show shaped; `key_more` is
    the JSON of a key's further field, which is the same in all of the table's.
    """

    columns: tuple[ColumnPlan, ...]
    unknown: tuple[str, ...]
    key: tuple[ColumnPlan, ...]
    key_apart: tuple[ColumnPlan, ...]
    key_more: bytes
    topic: str
    key_open: bytes
    key_close: bytes
    value_open: bytes
    value_close: bytes
    header_open: bytes
    header_close: bytes


@lru_cache(maxsize=512)
def table_plan(table: TableSchema, settings: EventSettings, form: Form) -> TablePlan:
    """The plan of a table's records."""
    columns, unknown = form.columns(table, settings)
    key = form.key(table, settings)
    as_they_are = {plan.index for plan in columns if plan.shape is None}
    schemas = event_schemas(table, columns, key, settings, form)
    told = names.table_field(settings, table.id)

    def enclosure(schema: LogicalType | None, enabled: bool) -> tuple[bytes, bytes]:
        if not enabled or schema is None:
            return b"", b""
        return f'{{"schema":{schema_text(schema)},"payload":'.encode(), b"}"

    return TablePlan(
        columns,
        unknown,
        key,
        tuple(plan for plan in key if plan.index not in as_they_are),
        b"" if told is None else f"{quoted(told[0])}:{quoted(told[1])}".encode(),
        names.topic(settings, table.id),
        *enclosure(schemas.key, settings.key_schemas_enable),
        *enclosure(schemas.value, settings.value_schemas_enable),
        *enclosure(schemas.key, settings.header_schemas_enable),
    )


def to_rows(batch: ChangeBatch, settings: EventSettings, form: Form) -> Iterator[pa.RecordBatch]:
    """The records of `batch` as batches of `settings.row_schema`, in order, at most 8,192 records each.

    `form` is the connector's own part of them.

    A value that its type cannot hold is shown as null with a warning; under
    `event.converting.failure.handling.mode=fail` its change is put aside or raises ConversionError, as
    `event.processing.failure.handling.mode` says. So is a change whose texts, or one of whose records, have more than
    `event.max.change.bytes`.
    """
    for rows, _ in numbered_rows(batch, settings, form):
        yield rows


def numbered_rows(batch: ChangeBatch, settings: EventSettings, form: Form) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    """The same, and for each record the index of its change in `batch`."""
    if len(batch) == 0:
        return
    plan = table_plan(batch.table, settings, form)
    _warn_unknown(batch, plan)
    records = expand(batch, key_changes(batch, plan.key), bool(plan.key or plan.key_more), settings)
    transactions = _TransactionParts(batch, settings, form.parts(batch, settings))
    ends = np.searchsorted(records.change, np.arange(len(batch) + 1))
    size = _text_sizes(batch)
    most = settings.most_change_bytes
    large = np.flatnonzero(np.diff(size) > most).tolist() if 0 < most < int(size[-1]) else []
    low = 0
    for change in [*large, len(batch)]:
        for first, last in _blocks(plan, ends, size, low, change):
            yield from _block_rows(batch, settings, form, plan, records, transactions, ends, first, last)
        if change < len(batch) and ends[change] < ends[change + 1]:
            found = int(size[change + 1] - size[change])
            yield too_large_row(batch, change, found, plan.key, settings, form), np.full(1, change, np.int32)
        low = change + 1


def _block_rows(
    batch: ChangeBatch,
    settings: EventSettings,
    form: Form,
    plan: TablePlan,
    records: Records,
    transactions: _TransactionParts,
    ends: npt.NDArray[np.int64],
    low: int,
    high: int,
) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    """The records of the changes `[low, high)`; those that cannot become events in their places, put aside."""
    first, last = int(ends[low]), int(ends[high])
    if first == last:
        return
    large: dict[int, int | None] = {}
    found: dict[int, ColumnPlan] = {}
    try:
        block = _Block(batch, settings, plan, records, transactions, low, high, first, last)
        rows = block.rows()
        for record in large_records(rows, settings):
            large[int(block.change[record])] = record_size(rows, record)
        if not large:
            yield rows, block.change
            return
    except Unconvertible as error:
        found = failing(batch, (*plan.columns, *plan.key_apart), low, high, error.column)
    except ExceedsArrow:
        if high - low == 1:
            large[low] = None
    # A change between two that fail, or, where it is not known which one does, half of them.
    faults = {*large, *found}
    cuts = sorted({low, high, *faults, *(change + 1 for change in faults)} | (set() if faults else {(low + high) // 2}))
    for start, end in pairwise(cuts):
        if start in large:
            row = too_large_row(batch, start, large[start], plan.key, settings, form)
            yield row, np.full(1, start, np.int32)
        elif start not in found:
            yield from _block_rows(batch, settings, form, plan, records, transactions, ends, start, end)
        elif ends[start] < ends[end]:
            if settings.processing_failure_mode == "fail":
                raise conversion_error(batch, start, found[start], form)
            row = converted_row(batch, start, found[start], plan.key, settings, form)
            yield row, np.full(1, start, np.int32)


def key_changes(batch: ChangeBatch, key: tuple[ColumnPlan, ...]) -> Flags:
    """Which updates changed the key: a key column's old text differs from its new one, or was not carried."""
    changed: Flags = np.zeros(len(batch), np.bool_)
    if batch.before is None or batch.after is None or not key:
        return changed
    candidates = batch.op == ord("u")
    if batch.before.present is not None:
        candidates = candidates & batch.before.present
    if not candidates.any():
        return changed
    for plan in key:
        old, new = batch.before.columns[plan.index], batch.after.columns[plan.index]
        same = pc.fill_null(pc.equal(old, new), False).to_numpy(zero_copy_only=False)
        differs = ~same & ~(np.asarray(old.is_null()) & np.asarray(new.is_null()))
        unchanged = batch.after.unavailable[plan.index]
        changed |= differs if unchanged is None else differs & ~unchanged
    changed &= candidates
    return changed


def _warn_unknown(batch: ChangeBatch, plan: TablePlan) -> None:
    for column in plan.unknown:
        kind = batch.table.columns[batch.table.index(column)].type_name
        message = f"Column {column} of {batch.table.id} has the unknown type {kind} and is left out of the events."
        _warn(batch, column, "unknown", message)


def _warn(batch: ChangeBatch, column: str, reason: str, message: str) -> None:
    """Log a warning once per process, table, column and reason, and leave it in the batch."""
    batch.warnings.append(message)
    if (str(batch.table.id), column, reason) not in _warned:
        _warned.add((str(batch.table.id), column, reason))
        log.warning(message)


def _text_sizes(batch: ChangeBatch) -> npt.NDArray[np.int64]:
    """The bytes of the texts of all changes before each, and, last, of all."""
    size = np.zeros(len(batch) + 1, np.int64)
    for image in (batch.before, batch.after):
        if image is not None:
            for column in image.columns:
                if len(column):
                    bounds = text_buffers(column)[1]
                    size += bounds.astype(np.int64) - int(bounds[0])
    return size


def _blocks(
    plan: TablePlan, ends: npt.NDArray[np.int64], size: npt.NDArray[np.int64], low: int, end: int
) -> Iterator[tuple[int, int]]:
    """Ranges of the changes `[low, end)` that keep to the limits of records, text and output; one change alone may
    exceed them."""
    fixed = len(plan.value_open) + len(plan.key_open) + 1024
    limit = min(_MAX_RECORDS, max(_MAX_OUTPUT // fixed, 1))
    while low < end:
        high = int(np.searchsorted(ends, ends[low] + limit, side="right")) - 1
        high = min(high, int(np.searchsorted(size, size[low] + _MAX_TEXT, side="right")) - 1, end)
        high = max(high, low + 1)
        yield low, high
        low = high


class _TransactionParts:
    """The fragments and arrow columns that belong to transactions: one entry per transaction of the batch."""

    def __init__(self, batch: ChangeBatch, settings: EventSettings, source: SourceParts) -> None:
        commit_us = batch.transactions.commit_us
        self.ms = integers_fragment(commit_us // 1000)
        self.us = integers_fragment(commit_us)
        self.ns = integers_fragment(commit_us * 1000)
        self.source = source
        self.markers = _marker_fragment(settings)
        self.marker_names = pa.array([marker.name.lower() for marker in Marker], pa.string())


@lru_cache(maxsize=8)
def _marker_fragment(settings: EventSettings) -> Fragment:
    return strings_fragment([dumps(marker_text(marker, settings)).encode() for marker in Marker])


@lru_cache(maxsize=256)
def _repeated(text: str) -> pa.Array:
    return pa.array([text] * _MAX_RECORDS, pa.string())


def _constant(text: str, count: int) -> pa.Array:
    return _repeated(text).slice(0, count) if count <= _MAX_RECORDS else pa.array([text] * count, pa.string())


class _Block:
    """The records `first` to `last` of a batch: those of the changes `low` to `high`."""

    def __init__(
        self,
        batch: ChangeBatch,
        settings: EventSettings,
        plan: TablePlan,
        records: Records,
        transactions: _TransactionParts,
        low: int,
        high: int,
        first: int,
        last: int,
    ) -> None:
        self.batch, self.settings, self.plan, self.transactions = batch, settings, plan, transactions
        self.low, self.high = low, high
        self.change = records.change[first:last]
        self.op, self.key, self.header = records.op[first:last], records.key[first:last], records.header[first:last]
        self.before, self.after = records.before[first:last], records.after[first:last]
        self.before_fragments = self._image(batch.before, plan.columns)
        self.after_fragments = self._image(batch.after, plan.columns)
        self.before_key = self.before_fragments | self._image(batch.before, plan.key_apart)
        self.after_key = self.after_fragments | self._image(batch.after, plan.key_apart)
        self.transaction = batch.transaction[self.change]
        self.now = time.time_ns()
        self.index = np.zeros((KINDS, len(self.change)), np.int32)
        self.index[CHANGE] = self.change - low
        self.index[RECORD] = np.arange(len(self.change))
        self.index[TRANSACTION] = self.index[SOURCE] = self.transaction
        marker: npt.NDArray[np.uint8] | None = None
        if batch.marker is not None:
            marker = batch.marker[self.change]
            self.index[MARKER] = marker
        shown = Shown(low, high, self.change, self.transaction, marker, self.index)
        self.source = transactions.source.block(shown)

    def _image(self, image: Image | None, plans: tuple[ColumnPlan, ...]) -> dict[int, Fragment]:
        """The fragments of an image's columns by the columns' indexes."""
        fragments: dict[int, Fragment] = {}
        if image is None:
            return fragments
        for plan in plans:
            column = image.columns[plan.index].slice(self.low, self.high - self.low)
            unavailable = image.unavailable[plan.index]
            flags = None if unavailable is None else unavailable[self.low : self.high]
            if plan.shape is not None and plan.conversion.kernel is not Kernel.PLAIN:
                column = plan.shape.column(column)
            fragments[plan.index], lost = column_fragment(plan, column, flags)
            if lost:
                self._lost(plan, lost)
        return fragments

    def _lost(self, plan: ColumnPlan, lost: int) -> None:
        mode = self.settings.converting_failure_mode
        if mode == "fail":
            raise Unconvertible(plan)
        if mode == "warn":
            message = (
                f"{lost} values of column {plan.source_name} of {self.batch.table.id} do not fit its type in events"
            )
            _warn(self.batch, plan.source_name, "lost", message + " and are null there.")

    def rows(self) -> pa.RecordBatch:
        """The block as rows of `settings.row_schema`."""
        count = len(self.change)
        table = self.batch.table.id
        commit_us = self.batch.transactions.commit_us
        return rows_of(
            self.settings.columns,
            {
                "topic": lambda: _constant(self.plan.topic, count),
                "key": lambda: self._keys(self.key, self.plan.key_open, self.plan.key_close),
                "value": self._values,
                "headers": self._headers,
                "op": self._ops,
                "database": lambda: _constant(table.database, count),
                "schema": lambda: _constant(table.schema, count),
                "table": lambda: _constant(table.table, count),
                "position": self.source.positions,
                "ordinal": lambda: pa.array(self.batch.ordinal[self.change]),
                "transaction": self._transaction_names,
                "source_ts": lambda: pa.array(commit_us[self.transaction]).cast(pa.timestamp("us", tz="UTC")),
                "snapshot": lambda: self._markers(count),
            },
        )

    def _keys(self, source: npt.NDArray[np.uint8], before: bytes, behind: bytes) -> pa.Array:
        """The serialised keys, each from the image that `source` names; null where it names none."""
        count = len(self.change)
        if not source.any():
            return pa.nulls(count, pa.binary())
        programs = Programs()
        program = np.full(count, NO_PROGRAM, np.uint8)
        for code, fragments in ((AFTER, self.after_key), (BEFORE, self.before_key)):
            rows = source == code
            if rows.any():
                program[rows] = programs.begin()
                programs.literal(before)
                self._struct(programs, self.plan.key, fragments, self.plan.key_more)
                programs.literal(behind)
                programs.end()
        data, offsets = programs.run(program, self.index)
        present = source != NO_IMAGE
        return binary_array(data, offsets, None if present.all() else present)

    @staticmethod
    def _struct(
        programs: Programs, plans: tuple[ColumnPlan, ...], fragments: dict[int, Fragment], more: bytes = b""
    ) -> None:
        separator = "{"
        for plan in plans:
            programs.literal(f"{separator}{quoted(plan.name)}:".encode())
            programs.fragment(fragments[plan.index], CHANGE)
            separator = ","
        if more:
            programs.literal(separator.encode() + more)
        programs.literal(b"}" if plans or more else b"{}")

    def _values(self) -> pa.Array:
        programs = Programs()
        program = np.full(len(self.change), NO_PROGRAM, np.uint8)
        shape = self.op.astype(np.int32) * 4 + self.before * 2 + self.after
        block = self._transaction_fragment()
        for code in np.unique(shape).tolist():
            op, before, after = code >> 2, bool(code & 2), bool(code & 1)
            if op == TOMBSTONE:
                continue
            program[shape == code] = programs.begin()
            self._value_program(programs, chr(op), before, after, block)
        data, offsets = programs.run(program, self.index)
        present = self.op != TOMBSTONE
        return binary_array(data, offsets, None if present.all() else present)

    def _transaction_fragment(self) -> Fragment | None:
        """The `transaction` block of each record; None where transaction metadata is off."""
        batch = self.batch
        if batch.total_order is None or batch.table_order is None:
            return None
        # the create of a key change is the second event of its change, where there is the delete before it
        deletes = "d" not in self.settings.skipped_operations
        second = (self.op == ord("c")) & (batch.op[self.change] == ord("u")) & deletes
        name = self.source.transaction_names()
        total = pa.array(batch.total_order[self.change] + second).cast(pa.string())
        table = pa.array(batch.table_order[self.change] + second).cast(pa.string())
        return text_fragment(
            pc.binary_join_element_wise(
                '{"id":"', name, '","total_order":', total, ',"data_collection_order":', table, "}", ""
            )
        )

    def _value_program(self, programs: Programs, op: str, before: bool, after: bool, block: Fragment | None) -> None:
        settings, table = self.settings, self.batch.table.id
        programs.literal(self.plan.value_open + b'{"before":')
        if before:
            self._struct(programs, self.plan.columns, self.before_fragments)
        else:
            programs.literal(b"null")
        programs.literal(b',"after":')
        if after:
            self._struct(programs, self.plan.columns, self.after_fragments)
        else:
            programs.literal(b"null")
        source = {"version": settings.version, "connector": settings.connector, "name": settings.logical_name}
        programs.literal(f',"source":{dumps(source)[:-1]},"ts_ms":'.encode())
        programs.fragment(self.transactions.ms, TRANSACTION)
        programs.literal(b',"snapshot":')
        if self.batch.marker is None:
            programs.literal(dumps(marker_text(Marker.FALSE, settings)).encode())
        else:
            programs.fragment(self.transactions.markers, MARKER)
        programs.literal(f',"db":{quoted(table.database)}'.encode())
        if settings.has_sequence:
            programs.literal(b',"sequence":')
            self.source.sequence(programs)
        if settings.has_nanos:
            programs.literal(b',"ts_us":')
            programs.fragment(self.transactions.us, TRANSACTION)
            programs.literal(b',"ts_ns":')
            programs.fragment(self.transactions.ns, TRANSACTION)
        programs.literal(f',"schema":{quoted(table.schema)},"table":{quoted(table.table)}'.encode())
        self.source.tail(programs)
        now = self.now
        moment = f'"op":"{op}","ts_ms":{now // 1_000_000}'
        if settings.has_nanos:
            programs.literal(b'},"transaction":')
            self._block_or_null(programs, block)
            programs.literal(f',{moment},"ts_us":{now // 1000},"ts_ns":{now}}}'.encode())
        elif settings.has_transaction_block:
            programs.literal(f'}},{moment},"transaction":'.encode())
            self._block_or_null(programs, block)
            programs.literal(b"}")
        else:
            programs.literal(f"}},{moment}}}".encode())
        programs.literal(self.plan.value_close)
        programs.end()

    @staticmethod
    def _block_or_null(programs: Programs, block: Fragment | None) -> None:
        if block is None:
            programs.literal(b"null")
        else:
            programs.fragment(block, RECORD)

    def _headers(self) -> pa.Array:
        other = self._keys(self.header, self.plan.header_open, self.plan.header_close)
        return header_column(self.settings, self.header, other)

    def _ops(self) -> pa.Array:
        """What the op column says; constant in most blocks."""
        codes = np.unique(self.op)
        if len(codes) == 1:
            return _constant(_op_name(int(codes[0])), len(self.op))
        place = np.zeros(256, np.int8)
        place[codes] = np.arange(len(codes))
        names_of = pa.array([_op_name(int(code)) for code in codes], pa.string())
        return names_of.take(pa.array(place[self.op]))

    def _transaction_names(self) -> pa.Array:
        """The transaction ids as text, null in snapshot rows."""
        if self.batch.marker is None:
            return self.transactions.source.name.take(pa.array(self.transaction))
        indices = pa.array(self.transaction, mask=self.index[MARKER] != Marker.FALSE)
        return self.transactions.source.name.take(indices)

    def _markers(self, count: int) -> pa.Array:
        if self.batch.marker is None:
            return _constant("false", count)
        return self.transactions.marker_names.take(pa.array(self.index[MARKER]))


def _op_name(code: int) -> str:
    return "tombstone" if code == TOMBSTONE else chr(code)
