"""From a segment to the rows that Spark gets: the columnar path from raw BSON to events. Runs in workers.

A segment is worked off in blocks. A block gives the columns of its layouts when an encoding asks for them: BSON is
written as JSON by kernels of its own, the rest are numbers and texts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace import formats
from tailrace.assembly.json_text import quoted
from tailrace.assembly.programs import KINDS
from tailrace.columns.batch import Int32s, Marker
from tailrace.columns.row import rows_of
from tailrace.columns.typed import VARIANT
from tailrace.connectors.mongodb.log.stretch import Flags, Namespace
from tailrace.connectors.mongodb.records import texts, typed
from tailrace.connectors.mongodb.records.envelope import key_layout, source_layout, table_id, value_layout
from tailrace.connectors.mongodb.records.images import Images, Values, images
from tailrace.connectors.mongodb.records.quarantine import beyond, unconvertible
from tailrace.connectors.mongodb.records.segment import OPLOG, READ, Segment
from tailrace.connectors.mongodb.records.texts import Edit
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.values.field_filters import field_filter
from tailrace.connectors.mongodb.values.fields import Int64s
from tailrace.connectors.mongodb.values.json_forms import STRICT, Form
from tailrace.errors import ConversionError, DecodeError
from tailrace.events import names
from tailrace.events.envelope import marker_text
from tailrace.events.headers import Pairs, compiled, constant_headers, context
from tailrace.events.settings import EventSettings
from tailrace.events.size import large_records, record_size
from tailrace.events.typed import shown_rows
from tailrace.formats.arrow import array_of
from tailrace.records.columns import Same, Texts, Written
from tailrace.records.layout import CHANGE, MARKER, RECORD, Column, ImageColumn, RecordLayout
from tailrace.values.conversion import ColumnPlan
from tailrace.values.fragments import text_fragment

_MAX_CHANGES = 4_096
_MAX_BYTES = 16 << 20
_TOMBSTONE = 0
_DELETE = ord("d")


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """Everything about a collection's records that does not depend on the change; `key` and `values`, by the code of
    the operation, are documents of the encodings. `kept` is where these keep what they make of the markers."""

    topic: str
    key: Any
    values: Mapping[int, Any]
    headers: Pairs
    kept: dict[Hashable, Any] = field(default_factory=dict, compare=False)


@lru_cache(maxsize=1024)
def collection_plan(namespace: Namespace, settings: MongoSettings) -> CollectionPlan:
    """The plan of a collection's records."""
    events = settings.events
    keys, values = formats.find(events.key_format), formats.find(events.value_format)
    schemas = events.value_schemas_enable
    topic, key = names.topic(events, table_id(namespace)), key_layout(namespace, settings)
    layouts = {op: value_layout(namespace, settings, op) for op in "crud"}
    records = {op: RecordLayout(op, topic, key, value, context(events)) for op, value in layouts.items()}
    any_record = records["c"]
    return CollectionPlan(
        topic,
        keys.compile(key, events.key_schemas_enable, any_record),
        {ord(op): values.compile(value, schemas, records[op]) for op, value in layouts.items()},
        compiled(any_record, events),
    )


def to_rows(segment: Segment, settings: MongoSettings) -> Iterator[pa.RecordBatch]:
    """The records of `segment` as batches of `settings.events.row_schema`, in order, at most 8,192 records each.

    A change that cannot become an event raises ConversionError, which says where it stands, or is put aside, as
    `event.processing.failure.handling.mode` says.
    """
    for rows, _ in numbered_rows(segment, settings):
        yield rows


def numbered_rows(segment: Segment, settings: MongoSettings) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    """The same, and for each record the index of its change in `segment`."""
    skipped = [op for op in "cud" if op in settings.events.skipped_operations]
    kept = ~np.isin(segment.op, [ord(op) for op in skipped]) if skipped else None
    if not len(segment) or (kept is not None and not kept.any()):
        return
    found = images(segment)
    plan = collection_plan(segment.namespace, settings)
    size = np.r_[0, np.cumsum(segment.sizes())]
    low = 0
    while low < len(segment):
        high = min(low + _MAX_CHANGES, len(segment))
        high = max(min(high, int(np.searchsorted(size, size[low] + _MAX_BYTES, side="right")) - 1), low + 1)
        yield from _rows(segment, found, settings, plan, low, high, kept)
        low = high


def _rows(
    segment: Segment,
    found: Images,
    settings: MongoSettings,
    plan: CollectionPlan,
    low: int,
    high: int,
    kept: Flags | None,
) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    """The records of the changes `low` to `high`; those that cannot be converted in their places, put aside."""
    if kept is not None and not kept[low:high].any():
        return
    fault: ConversionError | DecodeError | int
    try:
        fault = _most_bytes(segment, settings, low, high)
        if not fault:
            block = _Block(segment, found, settings, plan, low, high, kept)
            rows = block.rows()
            large = large_records(rows, settings.events)
            if not large:
                yield rows, block.change + np.int32(low)
                return
            fault = record_size(rows, large[0])
    except (ConversionError, DecodeError) as error:
        fault = error
    if high - low > 1:
        middle = (low + high) // 2
        yield from _rows(segment, found, settings, plan, low, middle, kept)
        yield from _rows(segment, found, settings, plan, middle, high, kept)
    elif isinstance(fault, int):
        yield beyond(segment, low, fault, settings), np.full(1, low, np.int32)
    else:
        yield unconvertible(segment, low, fault, settings), np.full(1, low, np.int32)


def _most_bytes(segment: Segment, settings: MongoSettings, low: int, high: int) -> int:
    """The size of the largest document of a block if it is too large, else 0."""
    most = settings.events.most_change_bytes
    largest = int(segment.sizes()[low:high].max()) if most else 0
    return largest if largest > most else 0


class _Block:
    """The records of the changes `low` to `high` of a segment."""

    def __init__(
        self,
        segment: Segment,
        found: Images,
        settings: MongoSettings,
        plan: CollectionPlan,
        low: int,
        high: int,
        kept: Flags | None,
    ) -> None:
        self.segment, self.images, self.settings, self.plan = segment, found, settings, plan
        self.edits = field_filter(settings.excluded, settings.renames, *segment.namespace)
        self.low, self.high = low, high
        op = segment.op[low:high]
        counts = 1 + (op == _DELETE) * int(settings.events.tombstones_on_delete)
        if kept is not None:
            counts[~kept[low:high]] = 0
        self.change = np.repeat(np.arange(high - low, dtype=np.int32), counts)
        starts = np.cumsum(counts) - counts
        second = np.arange(len(self.change)) != starts[self.change]
        self.op = np.where(second, _TOMBSTONE, op[self.change]).astype(np.uint8)
        self.index = np.zeros((KINDS, len(self.change)), np.int32)
        self.index[CHANGE] = self.change
        self.index[RECORD] = np.arange(len(self.change))
        if segment.markers is not None:
            self.index[MARKER] = segment.markers[low:high][self.change]
        # the upper half of a timestamp: seconds
        self.seconds = segment.time[low:high] >> 32
        self.now = time.time_ns()
        self._ns = self._moments()
        self.kept = plan.kept
        self.made: dict[Hashable, Any] = {}
        self._made: dict[str, pa.Array | Same | Written] = {}

    def _moments(self) -> Int64s:
        """What the source block shows as the change's time, in ns since 1970."""
        segment = self.segment
        if segment.read_ns:
            return np.full(self.high - self.low, segment.read_ns, np.int64)
        wall = self.images.has_wall[self.low : self.high]
        ms: Int64s = np.where(wall, self.images.wall_ms[self.low : self.high], self.seconds * 1000)
        return ms * 1_000_000

    # --- rows ----------------------------------------------------------------------------------------------------

    def rows(self) -> pa.RecordBatch:
        """The block as rows of `settings.events.row_schema`."""
        count = len(self.change)
        events = self.settings.events
        database, collection = self.segment.namespace
        own = self.change + self.low
        blocks = formats.Blocks(self)
        makers: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: _constant(self.plan.topic, count),
            "headers": lambda: constant_headers(self.plan.headers, count),
            "op": self._ops,
            "database": lambda: _constant(database, count),
            "schema": lambda: pa.nulls(count, pa.string()),
            "table": lambda: _constant(collection, count),
            "position": lambda: _positions(self.segment.time[own]),
            "ordinal": lambda: pa.array(self.segment.number[own]),
            "transaction": self._transactions,
            "source_ts": lambda: pa.array(self._ns[self.change] // 1000).cast(pa.timestamp("us", tz="UTC")),
            "snapshot": lambda: self._markers(count),
        }
        if events.typed is not None:
            return shown_rows(events, self._typed(), makers, count)
        return rows_of(
            events.columns, makers | {"key": lambda: self._keys(blocks), "value": lambda: self._encoded(blocks)}
        )

    def _typed(self) -> dict[str, Callable[[], pa.Array]]:
        """The columns of typed rows, one value for each change; records are as many, as there are no tombstones."""
        data, found, edits = self.segment.data, self.images, self.edits
        of_documents = None if edits is None else edits.documents

        def images_of(values: Values) -> pa.Array:
            return typed.documents(data, self._part(values), of_documents).take(pa.array(self.change))

        return {
            "key": lambda: typed.keys(data, self._part(found.key)).take(pa.array(self.change)),
            "before": lambda: images_of(found.before),
            "after": lambda: images_of(found.after),
            "update": lambda: self._updates().take(pa.array(self.change)),
            "source": self._sources,
        }

    def _updates(self) -> pa.Array:
        shown = self._update()
        if isinstance(shown, Same):
            return pa.nulls(self.high - self.low, VARIANT)
        changes = None if self.edits is None else self.edits.changes
        return typed.updates(self.segment.data, self._part(self.images.updated), shown.json, changes)

    def _sources(self) -> pa.Array:
        """The source blocks."""
        layout = source_layout(self.segment.namespace, self.settings)
        return array_of(layout, self, np.arange(len(self.change), dtype=np.int32))

    def _part(self, values: Values) -> Values:
        return values.part(self.low, self.high)

    def _keys(self, blocks: formats.Blocks) -> pa.Array:
        block = blocks.of(formats.find(self.settings.events.key_format))
        return block.encode([self.plan.key], np.zeros(len(self.op), np.int32))

    def _encoded(self, blocks: formats.Blocks) -> pa.Array:
        codes = np.flatnonzero(np.bincount(self.op))
        place = np.zeros(256, np.int32)
        place[codes] = np.arange(len(codes))
        documents = [self.plan.values.get(code) for code in codes.tolist()]
        return blocks.of(formats.find(self.settings.events.value_format)).encode(documents, place[self.op])

    # --- columns -------------------------------------------------------------------------------------------------

    def texts(self, leaf: ImageColumn) -> Texts:
        """No layout here has columns of tables."""
        raise NotImplementedError(leaf)

    def lost(self, column: ColumnPlan, count: int) -> None:
        """No layout here has columns of tables."""
        raise NotImplementedError(column)

    def values(self, leaf: Column) -> pa.Array | Same | Written:
        """See records.columns.Columns."""
        if leaf.name not in self._made:
            self._made[leaf.name] = self._MAKERS[leaf.name](self)
        return self._made[leaf.name]

    def _written(self, values: Values, form: Form, edit: Edit | None = None) -> Same | Written:
        """Values of BSON as JSON; none in the whole block is the same for all."""
        part = self._part(values)
        if not (part.places >= 0).any():
            return Same(None)
        return Written(texts.values(self.segment.data, part, form, edit))

    def _document(self, values: Values) -> Same | Written:
        form = texts.document_form(self.settings)
        return self._written(values, form, None if self.edits is None else self.edits.documents)

    def _patch(self) -> Same | Written:
        form = texts.document_form(self.settings)
        return self._written(self.images.patch, form, None if self.edits is None else self.edits.entries)

    def _update(self) -> Same | Written:
        found = self.images
        updated, removed, truncated = (self._part(part) for part in (found.updated, found.removed, found.truncated))
        if not (updated.places >= 0).any():
            return Same(None)
        return Written(texts.update_descriptions(self.segment.data, updated, removed, truncated, self.edits))

    def _increments(self) -> pa.Array | Same:
        """The increments of the timestamps; -1 for documents that a snapshot has read (today's format)."""
        if self.segment.read_ns and not self.settings.legacy:
            return Same(-1)
        return pa.array(self.segment.time[self.low : self.high] & 0xFFFFFFFF)

    def _snapshots(self) -> pa.Array | Same:
        if self.segment.markers is None:
            return Same(marker_text(Marker.FALSE, self.settings.events))
        return _marker_texts(self.settings.events)

    def _hashes(self) -> pa.Array | Same:
        segment = self.segment
        if segment.hash is None or segment.hashed is None:
            return Same(None)
        return _numbers(segment.hash[self.low : self.high], segment.hashed[self.low : self.high])

    def _orders(self) -> pa.Array | Same:
        if self.segment.order is None:
            return Same(None)
        orders = self.segment.order[self.low : self.high]
        return _numbers(orders, orders > 0)

    def _of_images(self, values: Int64s, known: npt.NDArray[np.bool_]) -> pa.Array | Same:
        return _numbers(values[self.low : self.high], known[self.low : self.high])

    def _transaction(self) -> Same | Written:
        """The `transaction` block of each change, null where it has none."""
        segment = self.segment
        if segment.total_order is None or segment.table_order is None:
            return Same(None)
        total, table = segment.total_order[self.low : self.high], segment.table_order[self.low : self.high]
        if not total.any():
            return Same(None)
        ids = texts.transaction_names(segment, self.images, self.low, self.high)
        names_of = pa.array([None if name is None else quoted(name) for name in ids], pa.string())
        parts = pc.binary_join_element_wise(
            '{"id":', names_of, ',"total_order":', pa.array(total).cast(pa.string()),
            ',"data_collection_order":', pa.array(table).cast(pa.string()), "}", "",
        )  # fmt: skip
        return Written(text_fragment(pc.if_else(pa.array(total > 0), parts, "null")))

    _MAKERS: ClassVar[dict[str, Callable[[_Block], pa.Array | Same | Written]]] = {
        "id": lambda self: self._written(self.images.key, texts.key_form(self.settings)),
        "before": lambda self: self._document(self.images.before),
        "after": lambda self: self._document(self.images.after),
        "patch": _patch,
        "filter": lambda self: self._written(self.images.filter, texts.document_form(self.settings)),
        "update": _update,
        "seconds": lambda self: pa.array(self.seconds),
        "increment": _increments,
        "hash": _hashes,
        "order": _orders,
        "initial": lambda self: Same(self.segment.kind == READ),
        "marker": _snapshots,
        "wall_ms": lambda self: pa.array(self._ns // 1_000_000),
        "wall_us": lambda self: pa.array(self._ns // 1000),
        "wall_ns": lambda self: pa.array(self._ns),
        "session": lambda self: self._written(self.images.session, STRICT),
        "transaction_number": lambda self: self._of_images(self.images.transaction, self.images.has_transaction),
        "wall_time": lambda self: self._of_images(self.images.wall_ms, self.images.has_wall),
        "made_ms": lambda self: Same(self.now // 1_000_000),
        "transaction": _transaction,
    }

    # --- plain columns -------------------------------------------------------------------------------------------

    def _ops(self) -> pa.Array:
        codes = np.unique(self.op)
        if len(codes) == 1:
            return _constant(_op_name(int(codes[0])), len(self.op))
        place = np.zeros(256, np.int8)
        place[codes] = np.arange(len(codes))
        return pa.array([_op_name(int(code)) for code in codes], pa.string()).take(pa.array(place[self.op]))

    def _transactions(self) -> pa.Array:
        """The transactions by name, null outside: the session and number of a stream, `h` in an oplog."""
        count = len(self.change)
        segment = self.segment
        if segment.kind == OPLOG and segment.order is not None and segment.hash is not None:
            inside = segment.order[self.low : self.high] > 0
            if inside.any():
                known = inside & (segment.hashed[self.low : self.high] if segment.hashed is not None else inside)
                return (
                    pa.array(segment.hash[self.low : self.high], mask=~known)
                    .cast(pa.string())
                    .take(pa.array(self.change))
                )
        has = self.images.has_transaction[self.low : self.high]
        if has.any():
            listed = texts.transaction_names(segment, self.images, self.low, self.high)
            return pa.array(listed, pa.string()).take(pa.array(self.change))
        return pa.nulls(count, pa.string())

    def _markers(self, count: int) -> pa.Array:
        if self.segment.markers is None:
            return _constant("false", count)
        return pa.array([marker.name.lower() for marker in Marker]).take(pa.array(self.index[MARKER]))


def _op_name(code: int) -> str:
    return "tombstone" if code == _TOMBSTONE else chr(code)


def _numbers(values: Int64s, known: npt.NDArray[np.bool_]) -> pa.Array | Same:
    """Numbers, null where they are not known."""
    if not known.any():
        return Same(None)
    return pa.array(values) if known.all() else pa.array(values, mask=~known)


@lru_cache(maxsize=8)
def _marker_texts(events: EventSettings) -> pa.Array:
    return pa.array([marker_text(marker, events) for marker in Marker], pa.string())


def _constant(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _positions(time: Int64s) -> pa.Array:
    """Timestamps as 16 hexadecimal digits, which sort in log order."""
    digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    shifts = np.arange(60, -1, -4, dtype=np.int64)
    text = digits[(time[:, None] >> shifts) & 15]
    offsets = np.arange(len(time) + 1, dtype=np.int32) * 16
    return pa.Array.from_buffers(
        pa.string(), len(time), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text))]
    )
