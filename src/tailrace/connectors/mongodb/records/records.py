"""From a segment to the rows that Spark gets: the columnar path from raw BSON to events. Runs in workers.

A segment is worked off in blocks. Of each block every value that an event shows becomes a fragment (the JSON of all
its values, one after another), and every record is put together from literals and fragments in one pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.batch import Int32s, Marker
from tailrace.columns.logical import LogicalType
from tailrace.columns.row import rows_of
from tailrace.connectors.mongodb.log.chunk import Flags, Namespace
from tailrace.connectors.mongodb.records import texts
from tailrace.connectors.mongodb.records.envelope import schemas, table_id
from tailrace.connectors.mongodb.records.images import Images, Values, images
from tailrace.connectors.mongodb.records.quarantine import beyond, unconvertible
from tailrace.connectors.mongodb.records.segment import OPLOG, READ, Segment
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.values.field_filters import field_filter
from tailrace.connectors.mongodb.values.fields import Int64s
from tailrace.connectors.mongodb.values.json_forms import STRICT
from tailrace.errors import ConversionError, DecodeError
from tailrace.events import names
from tailrace.events.envelope import marker_text
from tailrace.events.headers import header_column
from tailrace.events.size import large_records, record_size
from tailrace.serde.assemble import CHANGE, KINDS, MARKER, NO_PROGRAM, RECORD, Fragment, Programs
from tailrace.serde.fragments import integers_fragment, strings_fragment
from tailrace.serde.json_text import dumps, quoted, schema_text
from tailrace.serde.memory import binary_array, readonly, text_buffers

_MAX_CHANGES = 4_096
_MAX_BYTES = 16 << 20
_TOMBSTONE = 0
_DELETE = ord("d")


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """Everything about a collection's records that does not depend on the change.

    Each `…_open` precedes a payload: its schema, or nothing; `…_close` follows it. `key_more` is the JSON of a key's
    further field, which is the same in all of the collection's.
    """

    topic: str
    key_open: bytes
    key_more: bytes
    key_close: bytes
    value_open: bytes
    value_close: bytes


@lru_cache(maxsize=1024)
def collection_plan(namespace: Namespace, settings: MongoSettings) -> CollectionPlan:
    """The plan of a collection's records."""
    events = settings.events
    found = schemas(namespace, settings)
    told = names.table_field(events, table_id(namespace))

    def enclosure(schema: LogicalType, enabled: bool) -> tuple[bytes, bytes]:
        return (f'{{"schema":{schema_text(schema)},"payload":'.encode(), b"}") if enabled else (b"", b"")

    key_open, key_close = enclosure(found.key, events.key_schemas_enable)
    return CollectionPlan(
        names.topic(events, table_id(namespace)),
        key_open,
        b"" if told is None else f",{quoted(told[0])}:{quoted(told[1])}".encode(),
        key_close,
        *enclosure(found.value, events.value_schemas_enable),
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

    def _moments(self) -> Int64s:
        """What the source block tells as the change's time, in ns since 1970."""
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
        return rows_of(
            events.columns,
            {
                "topic": lambda: _constant(self.plan.topic, count),
                "key": self._keys,
                "value": self._values,
                "headers": lambda: header_column(events, np.zeros(count, np.uint8), pa.nulls(count, pa.binary())),
                "op": self._ops,
                "database": lambda: _constant(database, count),
                "schema": lambda: pa.nulls(count, pa.string()),
                "table": lambda: _constant(collection, count),
                "position": lambda: _positions(self.segment.time[own]),
                "ordinal": lambda: pa.array(self.segment.number[own]),
                "transaction": self._transactions,
                "source_ts": lambda: pa.array(self._ns[self.change] // 1000).cast(pa.timestamp("us", tz="UTC")),
                "snapshot": lambda: self._markers(count),
            },
        )

    def _keys(self) -> pa.Array:
        form = texts.key_form(self.settings)
        ids = self._part(self.images.key)
        fragment = texts.values(self.segment.data, ids, form)
        programs = Programs()
        program = np.full(len(self.change), programs.begin(), np.uint16)
        programs.literal(self.plan.key_open + b'{"id":')
        programs.fragment(fragment, CHANGE)
        programs.literal(self.plan.key_more + b"}" + self.plan.key_close)
        programs.end()
        return binary_array(*programs.run(program, self.index))

    def _part(self, values: Values) -> Values:
        return values.part(self.low, self.high)

    def _values(self) -> pa.Array:
        programs = Programs()
        program = np.full(len(self.change), NO_PROGRAM, np.uint16)
        shown = self._shown()
        source = self._source()
        block = self._block()
        for code in np.unique(self.op).tolist():
            if code == _TOMBSTONE:
                continue
            program[self.op == code] = programs.begin()
            separator = self.plan.value_open + b"{"
            for name, fragment in shown:
                programs.literal(separator + f'"{name}":'.encode())
                separator = b","
                if fragment is None:
                    programs.literal(b"null")
                else:
                    programs.fragment(fragment, CHANGE)
            programs.literal(b',"source":')
            for literal, part, kind in source:
                programs.literal(literal)
                if part is not None:
                    programs.fragment(part, kind)
            programs.literal(f',"op":"{chr(code)}","ts_ms":{self.now // 1_000_000},"transaction":'.encode())
            if block is None:
                programs.literal(b"null")
            else:
                programs.fragment(block, CHANGE)
            programs.literal(b"}" + self.plan.value_close)
            programs.end()
        data, offsets = programs.run(program, self.index)
        present = self.op != _TOMBSTONE
        return binary_array(data, offsets, None if present.all() else present)

    def _shown(self) -> list[tuple[str, Fragment | None]]:
        """The fields of the envelope before `source`; None where all are null."""
        segment, found, settings = self.segment, self.images, self.settings
        form = texts.document_form(settings)

        edits = self.edits

        def text(values: Values, edit: texts.Edit | None = None) -> Fragment | None:
            part = self._part(values)
            return texts.values(segment.data, part, form, edit) if (part.places >= 0).any() else None

        document = None if edits is None else edits.documents
        entry = None if edits is None else edits.entries

        if settings.legacy:
            return [
                ("after", text(found.after, document)),
                ("patch", text(found.patch, entry)),
                ("filter", text(found.filter)),
            ]
        return [
            ("before", text(found.before, document)),
            ("after", text(found.after, document)),
            ("updateDescription", self._update()),
        ]

    def _update(self) -> Fragment | None:
        found = self.images
        updated, removed, truncated = (self._part(part) for part in (found.updated, found.removed, found.truncated))
        if not (updated.places >= 0).any():
            return None
        return texts.update_descriptions(self.segment.data, updated, removed, truncated, self.edits)

    # --- source and transaction ----------------------------------------------------------------------------------

    def _source(self) -> list[tuple[bytes, Fragment | None, int]]:
        """The source block: literals, each with the fragment behind it and the kind of its index."""
        settings, events = self.settings, self.settings.events
        database, collection = self.segment.namespace
        head = {"version": events.version, "connector": events.connector, "name": events.logical_name}
        opening = dumps(head)[:-1]
        increments = integers_fragment(self._orders())
        if settings.old_source:
            name = quoted(f"{database}.{collection}")
            return [
                (f'{opening},"rs":{quoted(settings.replica_set)},"ns":{name},"sec":'.encode(),
                 integers_fragment(self.seconds), CHANGE),
                (b',"ord":', increments, CHANGE),
                (b',"h":', self._hashes(), CHANGE),
                (f',"initsync":{dumps(self.segment.kind == READ)}}}'.encode(), None, CHANGE),
            ]  # fmt: skip
        parts: list[tuple[bytes, Fragment | None, int]] = [
            (f'{opening},"ts_ms":'.encode(), integers_fragment(self._ns // 1_000_000), CHANGE),
            self._marker(),
        ]
        if settings.legacy:
            order = self.segment.order
            orders = np.zeros(self.high - self.low, np.int64) if order is None else order[self.low : self.high]
            parts += [
                (f',"db":{quoted(database)},"rs":{quoted(settings.replica_set)},"collection":{quoted(collection)},"ord":'
                 .encode(), increments, CHANGE),
                (b',"h":', self._hashes(), CHANGE),
                (b',"tord":', _numbers(orders, orders > 0), CHANGE),
            ]  # fmt: skip
        else:
            parts += [
                (f',"db":{quoted(database)},"sequence":null,"ts_us":'.encode(),
                 integers_fragment(self._ns // 1000), CHANGE),
                (b',"ts_ns":', integers_fragment(self._ns), CHANGE),
                (f',"collection":{quoted(collection)},"ord":'.encode(), increments, CHANGE),
                (b',"lsid":', self._sessions(), CHANGE),
                (b',"txnNumber":', self._of_images(self.images.transaction, self.images.has_transaction), CHANGE),
                (b',"wallTime":', self._of_images(self.images.wall_ms, self.images.has_wall), CHANGE),
            ]  # fmt: skip
        return [*parts, (b"}", None, CHANGE)]

    def _orders(self) -> Int64s:
        """The increments of the timestamps; -1 for documents that a snapshot has read (today's form)."""
        if self.segment.read_ns and not self.settings.legacy:
            return np.full(self.high - self.low, -1, np.int64)
        return self.segment.time[self.low : self.high] & 0xFFFFFFFF

    def _marker(self) -> tuple[bytes, Fragment | None, int]:
        if self.segment.markers is None:
            shown = dumps(marker_text(Marker.FALSE, self.settings.events))
            return f',"snapshot":{shown}'.encode(), None, CHANGE
        return b',"snapshot":', _marker_fragment(self.settings), MARKER

    def _hashes(self) -> Fragment:
        segment = self.segment
        if segment.hash is None or segment.hashed is None:
            return _nulls(self.high - self.low)
        return _numbers(segment.hash[self.low : self.high], segment.hashed[self.low : self.high])

    def _of_images(self, values: Int64s, known: npt.NDArray[np.bool_]) -> Fragment:
        return _numbers(values[self.low : self.high], known[self.low : self.high])

    def _sessions(self) -> Fragment:
        part = self._part(self.images.session)
        if not (part.places >= 0).any():
            return _nulls(self.high - self.low)
        return texts.values(self.segment.data, part, STRICT)

    def _block(self) -> Fragment | None:
        """The `transaction` block of each change; None where none has one."""
        segment = self.segment
        if segment.total_order is None or segment.table_order is None:
            return None
        total, table = segment.total_order[self.low : self.high], segment.table_order[self.low : self.high]
        if not total.any():
            return None
        told = texts.transaction_names(segment, self.images, self.low, self.high)
        names_of = pa.array([None if name is None else quoted(name) for name in told], pa.string())
        parts = pc.binary_join_element_wise(
            '{"id":', names_of, ',"total_order":', pa.array(total).cast(pa.string()),
            ',"data_collection_order":', pa.array(table).cast(pa.string()), "}", "",
        )  # fmt: skip
        return _text_fragment(pc.if_else(pa.array(total > 0), parts, "null"))

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


def _text_fragment(column: pa.Array) -> Fragment:
    return Fragment(*text_buffers(column))


def _numbers(values: Int64s, known: npt.NDArray[np.bool_]) -> Fragment:
    """Numbers, `null` where they are not known."""
    if known.all():
        return integers_fragment(values)
    if not known.any():
        return _nulls(len(values))
    return _text_fragment(pc.fill_null(pa.array(values, mask=~known).cast(pa.string()), "null"))


@lru_cache(maxsize=64)
def _nulls(count: int) -> Fragment:
    text = np.frombuffer(b"null" * count + b"\0", np.uint8)
    return Fragment(text, readonly(np.arange(count + 1, dtype=np.int32) * 4))


@lru_cache(maxsize=8)
def _marker_fragment(settings: MongoSettings) -> Fragment:
    return strings_fragment([dumps(marker_text(marker, settings.events)).encode() for marker in Marker])


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
