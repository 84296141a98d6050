"""From a ChangeBatch to the rows that Spark gets: the columnar path from server text to events. Runs in workers.

A batch is worked off in blocks of changes that fit the cache. Of each block every column becomes a fragment (the
JSON of its values, one after another), and every record is put together from literals and fragments in one pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import ChangeBatch, Image, Marker
from tailrace.columns.row import rows_of
from tailrace.events.envelope import marker_text
from tailrace.events.expansion import AFTER, BEFORE, NO_IMAGE, TOMBSTONE, Records, expand
from tailrace.events.form import Form, SourceParts
from tailrace.events.form import Records as Shown
from tailrace.events.headers import header_column
from tailrace.events.quarantine import Unconvertible, conversion_error, converted_row, failing, too_large_row
from tailrace.events.settings import EventSettings
from tailrace.events.size import large_records, record_size
from tailrace.events.table_plan import TablePlan, TablePlans, table_plan
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
from tailrace.serde.conversion import ColumnPlan
from tailrace.serde.fragments import column_fragment, integers_fragment, strings_fragment, text_fragment
from tailrace.serde.json_text import dumps, quoted
from tailrace.serde.memory import Bytes, ExceedsArrow, Offsets, binary_array, text_buffers

log = logging.getLogger("tailrace")
Flags = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
_MAX_RECORDS = 8_192
# For so many records a column is made, and not cut from one that is kept for more.
_FEW = 256
_MAX_TEXT = 48 << 20
_MAX_OUTPUT = 512 << 20
_warned: set[tuple[str, str, str]] = set()
# The ops of records, and what their places are multiplied by to leave room for which images there are.
_OPS = (TOMBSTONE, *b"cudrt")
_PLACES = np.zeros(256, np.int32)
_PLACES[list(_OPS)] = np.arange(len(_OPS))
_IMAGES = 4


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
    tables = TablePlans.one(plan)
    warn_of_unknown(plan, batch)
    records = expand(batch, key_changes(batch, tables), plan.has_key, settings)
    transactions = _TransactionParts(batch, settings, form.parts(batch, settings))
    ends = np.searchsorted(records.change, np.arange(len(batch) + 1))
    size = _text_sizes(batch)
    most = settings.most_change_bytes
    large = np.flatnonzero(np.diff(size) > most).tolist() if 0 < most < int(size[-1]) else []
    low = 0
    for change in [*large, len(batch)]:
        for first, last in _blocks(tables, ends, size, low, change):
            yield from _block_rows(batch, settings, form, tables, records, transactions, ends, first, last)
        if change < len(batch) and ends[change] < ends[change + 1]:
            found = int(size[change + 1] - size[change])
            yield too_large_row(batch, change, found, plan.key, settings, form), np.full(1, change, np.int32)
        low = change + 1


def rows_of_tables(
    batch: ChangeBatch, tables: TablePlans, settings: EventSettings, form: Form
) -> list[pa.RecordBatch] | None:
    """The records of a batch of several tables, in order; None where one of them cannot become an event.

    The texts of no change may exceed `event.max.change.bytes`. `batch.table` means nothing here.
    """
    assert tables.of is not None
    for plan in tables.plans:
        warn_of_unknown(plan, batch)
    has_key = np.array([plan.has_key for plan in tables.plans])[tables.of]
    records = expand(batch, key_changes(batch, tables), has_key, settings)
    transactions = _TransactionParts(batch, settings, form.parts(batch, settings))
    ends = np.searchsorted(records.change, np.arange(len(batch) + 1))
    found: list[pa.RecordBatch] = []
    try:
        for low, high in _blocks(tables, ends, _text_sizes(batch), 0, len(batch)):
            first, last = int(ends[low]), int(ends[high])
            if first < last:
                rows = _Block(batch, settings, tables, records, transactions, low, high, first, last).rows()
                if large_records(rows, settings):
                    return None
                found.append(rows)
    except (Unconvertible, ExceedsArrow):
        return None
    return found


def _block_rows(
    batch: ChangeBatch,
    settings: EventSettings,
    form: Form,
    tables: TablePlans,
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
    (plan,) = tables.plans
    large: dict[int, int | None] = {}
    found: dict[int, ColumnPlan] = {}
    try:
        block = _Block(batch, settings, tables, records, transactions, low, high, first, last)
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
            yield from _block_rows(batch, settings, form, tables, records, transactions, ends, start, end)
        elif ends[start] < ends[end]:
            if settings.processing_failure_mode == "fail":
                raise conversion_error(batch, start, found[start], form)
            row = converted_row(batch, start, found[start], plan.key, settings, form)
            yield row, np.full(1, start, np.int32)


def key_changes(batch: ChangeBatch, tables: TablePlans) -> Flags:
    """Which updates changed the key: a key column's old text differs from its new one, or was not carried."""
    changed: Flags = np.zeros(len(batch), np.bool_)
    if batch.before is None or batch.after is None:
        return changed
    candidates = batch.op == ord("u")
    if batch.before.present is not None:
        candidates = candidates & batch.before.present
    if not candidates.any():
        return changed
    for index in sorted({column.index for plan in tables.plans for column in plan.key}):
        old, new = batch.before.columns[index], batch.after.columns[index]
        same = pc.fill_null(pc.equal(old, new), False).to_numpy(zero_copy_only=False)
        differs = ~same & ~(np.asarray(old.is_null()) & np.asarray(new.is_null()))
        unchanged = batch.after.unavailable[index]
        if unchanged is not None:
            differs &= ~unchanged
        if tables.of is not None:
            has = np.array([any(column.index == index for column in plan.key) for plan in tables.plans])
            differs &= has[tables.of]
        changed |= differs
    changed &= candidates
    return changed


def warn_of_unknown(plan: TablePlan, batch: ChangeBatch) -> None:
    """Tell which columns are left out of the events of the plan's table, whose changes are in `batch`."""
    for column, kind in plan.unknown:
        message = f"Column {column} of {plan.table} has the unknown type {kind} and is left out of the events."
        _warn(batch, str(plan.table), column, "unknown", message)


def _warn(batch: ChangeBatch, table: str, column: str, reason: str, message: str) -> None:
    """Log a warning once per process, table, column and reason, and leave it in the batch."""
    batch.warnings.append(message)
    if (table, column, reason) not in _warned:
        _warned.add((table, column, reason))
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
    tables: TablePlans, ends: npt.NDArray[np.int64], size: npt.NDArray[np.int64], low: int, end: int
) -> Iterator[tuple[int, int]]:
    """Ranges of the changes `[low, end)` that keep to the limits of records, text and output; one change alone may
    exceed them."""
    fixed = max(len(plan.value_open) + len(plan.key_open) for plan in tables.plans) + 1024
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
    if count <= _FEW:
        return pa.array([text] * count, pa.string())
    return _repeated(text).slice(0, count) if count <= _MAX_RECORDS else pa.array([text] * count, pa.string())


class _Block:
    """The records `first` to `last` of a batch: those of the changes `low` to `high`."""

    def __init__(
        self,
        batch: ChangeBatch,
        settings: EventSettings,
        tables: TablePlans,
        records: Records,
        transactions: _TransactionParts,
        low: int,
        high: int,
        first: int,
        last: int,
    ) -> None:
        self.batch, self.settings, self.plans, self.transactions = batch, settings, tables.plans, transactions
        self.low, self.high = low, high
        self.change = records.change[first:last]
        self.op, self.key, self.header = records.op[first:last], records.key[first:last], records.header[first:last]
        self.before, self.after = records.before[first:last], records.after[first:last]
        # which of the plans each record has; None where there is one
        self.table = None if tables.of is None else tables.of[self.change]
        self.before_fragments = self._image(batch.before, tables.columns)
        self.after_fragments = self._image(batch.after, tables.columns)
        apart = tables.plans[0].key_apart if tables.of is None else ()
        self.before_key = self.before_fragments | self._image(batch.before, apart)
        self.after_key = self.after_fragments | self._image(batch.after, apart)
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

    def _image(self, image: Image | None, plans: Sequence[ColumnPlan]) -> dict[int, Fragment]:
        """The fragments of an image's columns by the columns' indexes."""
        fragments: dict[int, Fragment] = {}
        if image is None:
            return fragments
        for plan in plans:
            column = image.columns[plan.index].slice(self.low, self.high - self.low)
            unavailable = image.unavailable[plan.index]
            flags = None if unavailable is None else unavailable[self.low : self.high]
            if plan.shape is not None and not plan.conversion.by_value:
                column = plan.shape.column(column)
            fragments[plan.index], lost = column_fragment(plan, column, flags)
            if lost:
                self._lost(plan, lost)
        return fragments

    def _lost(self, plan: ColumnPlan, lost: int) -> None:
        mode = self.settings.converting_failure_mode
        if mode == "fail" or self.table is not None:
            raise Unconvertible(plan)
        if mode == "warn":
            message = (
                f"{lost} values of column {plan.source_name} of {self.batch.table.id} do not fit its type in events"
            )
            _warn(self.batch, str(self.batch.table.id), plan.source_name, "lost", message + " and are null there.")

    def rows(self) -> pa.RecordBatch:
        """The block as rows of `settings.row_schema`."""
        count = len(self.change)
        commit_us = self.batch.transactions.commit_us
        return rows_of(
            self.settings.columns,
            {
                "topic": lambda: self._by_table(lambda plan: plan.topic),
                "key": lambda: self._keys(self.key, lambda plan: (plan.key_open, plan.key_close)),
                "value": self._values,
                "headers": self._headers,
                "op": self._ops,
                "database": lambda: self._by_table(lambda plan: plan.table.database),
                "schema": lambda: self._by_table(lambda plan: plan.table.schema),
                "table": lambda: self._by_table(lambda plan: plan.table.table),
                "position": self.source.positions,
                "ordinal": lambda: pa.array(self.batch.ordinal[self.change]),
                "transaction": self._transaction_names,
                "source_ts": lambda: pa.array(commit_us[self.transaction]).cast(pa.timestamp("us", tz="UTC")),
                "snapshot": lambda: self._markers(count),
            },
        )

    def _by_table(self, text: Callable[[TablePlan], str]) -> pa.Array:
        """What `text` says of each record's table."""
        if self.table is None:
            return _constant(text(self.plans[0]), len(self.change))
        return pa.array([text(plan) for plan in self.plans], pa.string()).take(pa.array(self.table))

    def _programs(
        self, code: npt.NDArray[np.int32], most: int, build: Callable[[Programs, TablePlan, int], None]
    ) -> tuple[Bytes, Offsets]:
        """A document for each record: `build` writes the program for each table and code that there are together.

        Codes are less than `most`; a record of code 0 has no document.
        """
        programs = Programs()
        of = np.full(most * len(self.plans), NO_PROGRAM, np.uint16)
        every = code if self.table is None else np.where(code, self.table * np.int32(most) + code, 0)
        for found in np.flatnonzero(np.bincount(every)).tolist():
            table, of_table = divmod(found, most)
            if of_table:
                of[found] = programs.begin()
                build(programs, self.plans[table], of_table)
                programs.end()
        return programs.run(of[every], self.index)

    def _keys(self, source: npt.NDArray[np.uint8], enclosure: Callable[[TablePlan], tuple[bytes, bytes]]) -> pa.Array:
        """The serialised keys, each from the image that `source` names; null where it names none."""
        if not source.any():
            return pa.nulls(len(self.change), pa.binary())

        def build(programs: Programs, plan: TablePlan, code: int) -> None:
            before, behind = enclosure(plan)
            programs.literal(before)
            self._struct(programs, plan.key, self.after_key if code == AFTER else self.before_key, plan.key_more)
            programs.literal(behind)

        data, offsets = self._programs(source.astype(np.int32), BEFORE + 1, build)
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
        block = self._transaction_fragment()

        def build(programs: Programs, plan: TablePlan, code: int) -> None:
            op = chr(_OPS[code // _IMAGES])
            self._value_program(programs, plan, op, bool(code & 2), bool(code & 1), block)

        # a tombstone has no image, so that its code is 0
        code = _PLACES[self.op] * np.int32(_IMAGES) + self.before * np.int32(2) + self.after
        data, offsets = self._programs(code, _IMAGES * len(_OPS), build)
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

    def _value_program(
        self, programs: Programs, plan: TablePlan, op: str, before: bool, after: bool, block: Fragment | None
    ) -> None:
        settings, table = self.settings, plan.table
        programs.literal(plan.value_open + b'{"before":')
        if before:
            self._struct(programs, plan.columns, self.before_fragments)
        else:
            programs.literal(b"null")
        programs.literal(b',"after":')
        if after:
            self._struct(programs, plan.columns, self.after_fragments)
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
        programs.literal(plan.value_close)

    @staticmethod
    def _block_or_null(programs: Programs, block: Fragment | None) -> None:
        if block is None:
            programs.literal(b"null")
        else:
            programs.fragment(block, RECORD)

    def _headers(self) -> pa.Array:
        other = self._keys(self.header, lambda plan: (plan.header_open, plan.header_close))
        return header_column(self.settings, self.header, other)

    def _ops(self) -> pa.Array:
        """What the op column says; constant in most blocks."""
        codes = np.flatnonzero(np.bincount(self.op))
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
