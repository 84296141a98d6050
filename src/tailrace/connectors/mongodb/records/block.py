"""A block of MongoDB's records: the columns of their layouts, and the rows that Spark gets. Worker.

A block makes the columns of its layouts when an encoding asks for them. Compiled kernels write BSON as JSON; other
columns are numbers and texts. If a layout has the fields of documents of one shape, their values become columns too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace import formats
from tailrace.columns.batch import Marker, position_texts
from tailrace.columns.row import rows_of
from tailrace.columns.typed import VARIANT
from tailrace.connectors.mongodb.documents.shaped_columns import ImageRules, ShapedColumn, ValueSource
from tailrace.connectors.mongodb.documents.tree import DocumentStyle, LeafColumn, ShapeColumn
from tailrace.connectors.mongodb.log.indexed_run import Flags
from tailrace.connectors.mongodb.records import texts, typed
from tailrace.connectors.mongodb.records.envelope import source_layout
from tailrace.connectors.mongodb.records.images import Images, Values
from tailrace.connectors.mongodb.records.plan import TOMBSTONE, CollectionPlan
from tailrace.connectors.mongodb.records.segment import OPLOG, READ, Segment
from tailrace.connectors.mongodb.records.texts import Edit
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.values.field_filters import FieldFilter, field_filter
from tailrace.connectors.mongodb.values.fields import Int64s
from tailrace.connectors.mongodb.values.json_forms import RELAXED, STRICT, JsonForm
from tailrace.events.envelope import marker_text
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_variants import (
    KindColumns,
    KnownRecords,
    RefusedChange,
    by_op,
    repeated,
    tell_left_out,
    told_apart,
)
from tailrace.events.table_plan import KindPlan
from tailrace.events.typed_rows import shown_rows
from tailrace.formats.arrow import array_of
from tailrace.kernels.programs import KINDS
from tailrace.records.columns import ImageTexts, SharedValue, WrittenJson
from tailrace.records.layout import CHANGE, MARKER, RECORD, BlockColumn, ImageColumn
from tailrace.records.transform import RefusedRecord
from tailrace.values.conversion import ColumnPlan
from tailrace.values.fragments import text_fragment
from tailrace.values.json_text import quoted

_DELETE = ord("d")


class DocumentChunk:
    """The records of a segment's changes `[low, high)` that `kept` marks (None: all). Implements
    records.columns.Columns.

    Methods raise RefusedChange, ConversionError and DecodeError.
    """

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
        change = np.repeat(np.arange(high - low, dtype=np.int32), counts)
        starts = np.cumsum(counts) - counts
        second = np.arange(len(change)) != starts[change]
        code = np.where(second, TOMBSTONE, op[change]).astype(np.uint8)
        # the upper half of a timestamp: seconds
        self.seconds = segment.time[low:high] >> 32
        self.now = time.time_ns()
        self._ns = self._moments()
        self.kept = plan.kept
        self.made: dict[Hashable, Any] = {}
        self._made: dict[str, pa.Array | SharedValue | WrittenJson] = {}
        self._shaped: dict[tuple[str, DocumentStyle], ShapedColumn] = {}
        self._take(by_op(change, code, plan.kind))
        if not all(isinstance(kind, KindPlan) for kind in self._records.kinds):
            known = told_apart(self._records, lambda leaf, places: array_of(leaf, self, places))
            self._take(replace(known, left_out=(*self._records.left_out, *known.left_out)))

    def _take(self, records: KnownRecords) -> None:
        self._records, self.change = records, records.change
        self.index = np.zeros((KINDS, len(self.change)), np.int32)
        self.index[CHANGE] = self.change
        self.index[RECORD] = np.arange(len(self.change))
        if self.segment.markers is not None:
            self.index[MARKER] = self.segment.markers[self.low : self.high][self.change]

    def tell_left_out(self) -> None:
        """Log the records that transforms have left out, if a transform asks for it."""
        tell_left_out(self._records.left_out, self.segment.warnings)

    def _moments(self) -> Int64s:
        """Return the time of each change as the source block shows it, in ns since 1970."""
        segment = self.segment
        if segment.read_ns:
            return np.full(self.high - self.low, segment.read_ns, np.int64)
        wall = self.images.has_wall[self.low : self.high]
        ms: Int64s = np.where(wall, self.images.wall_ms[self.low : self.high], self.seconds * 1000)
        return ms * 1_000_000

    # --- rows ----------------------------------------------------------------------------------------------------

    def rows(self) -> pa.RecordBatch:
        """Return the block as rows of `settings.events.row_schema`. Raises RefusedChange."""
        try:
            return self._rows()
        except RefusedRecord as fault:
            raise RefusedChange(fault.reason, int(self.change[fault.row])) from None

    def _rows(self) -> pa.RecordBatch:
        count = len(self.change)
        events = self.settings.events
        database, collection = self.segment.namespace
        own = self.change + self.low
        kinds = [kind for kind in self._records.kinds if isinstance(kind, KindPlan)]
        by_kind = KindColumns(kinds, self._records.of, self, events)
        makers: dict[str, Callable[[], pa.Array]] = {
            **by_kind.makers(formats.Blocks(self)),
            "database": lambda: repeated(database, count),
            "schema": lambda: pa.nulls(count, pa.string()),
            "table": lambda: repeated(collection, count),
            "position": lambda: position_texts(self.segment.time[own]),
            "ordinal": lambda: pa.array(self.segment.number[own]),
            "transaction": self._transactions,
            "source_ts": lambda: pa.array(self._ns[self.change] // 1000).cast(pa.timestamp("us", tz="UTC")),
            "snapshot": lambda: self._markers(count),
        }
        if events.typed is not None:
            # in typed rows only records that are not changes have bytes as their value
            del makers["value"]
            return shown_rows(events, self._typed(), makers, count)
        return rows_of(events.columns, makers)

    def _typed(self) -> dict[str, Callable[[], pa.Array]]:
        """Return functions that make the columns of typed rows, one value for each change: there are no tombstones."""
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
        if isinstance(shown, SharedValue):
            return pa.nulls(self.high - self.low, VARIANT)
        changes = None if self.edits is None else self.edits.changes
        return typed.updates(self.segment.data, self._part(self.images.updated), shown.json, changes)

    def _sources(self) -> pa.Array:
        """Return the source blocks."""
        layout = source_layout(self.segment.namespace, self.settings)
        return array_of(layout, self, np.arange(len(self.change), dtype=np.int32))

    def _part(self, values: Values) -> Values:
        return values.part(self.low, self.high)

    # --- columns -------------------------------------------------------------------------------------------------

    def texts(self, leaf: ImageColumn) -> ImageTexts:
        """Raise TypeError: images are documents, and their layouts have no columns of tables."""
        raise TypeError(f"{leaf} is a column of a table, and these images are documents")

    def lost(self, column: ColumnPlan, count: int) -> None:
        """Raise TypeError, as `texts` does."""
        raise TypeError(f"{column} is a column of a table, and these images are documents")

    def values(self, leaf: BlockColumn) -> pa.Array | SharedValue | WrittenJson:
        """Implements records.columns.Columns."""
        if leaf.name not in self._made:
            self._made[leaf.name] = self._values(leaf)
        return self._made[leaf.name]

    def _values(self, leaf: BlockColumn) -> pa.Array | SharedValue | WrittenJson:
        if isinstance(leaf, ShapeColumn):
            return self._shaped_image(leaf.image, leaf.manner).shapes
        if isinstance(leaf, LeafColumn):
            return self._shaped_image(leaf.image, leaf.manner).column(leaf)
        return self._MAKERS[leaf.name](self)

    def _shaped_image(self, image: str, manner: DocumentStyle) -> ShapedColumn:
        """Return the values of an image by the shapes of its documents."""
        known = self._shaped.get((image, manner))
        if known is None:
            part = self._part(getattr(self.images, {"update": "updated", "id": "key"}.get(image, image)))
            data, places, kinds = self.segment.data, part.places, part.kinds
            edit = None if self.edits is None or image == "id" else _edit_of(image, self.edits)
            if edit is not None:
                data, places = edit(data, places, kinds)
                kinds = np.where(places >= 0, kinds, 0).astype(np.uint8)
            source = ValueSource(data, places, kinds)
            known = self._shaped[image, manner] = ShapedColumn(source, _rules(image, self.settings), manner)
        return known

    def _written(self, values: Values, form: JsonForm, edit: Edit | None = None) -> SharedValue | WrittenJson:
        """Return BSON values as JSON; a single shared null if the block has no value."""
        part = self._part(values)
        if not (part.places >= 0).any():
            return SharedValue(None)
        return WrittenJson(texts.values(self.segment.data, part, form, edit))

    def _document(self, values: Values) -> SharedValue | WrittenJson:
        form = texts.document_form(self.settings)
        return self._written(values, form, None if self.edits is None else self.edits.documents)

    def _patch(self) -> SharedValue | WrittenJson:
        form = texts.document_form(self.settings)
        return self._written(self.images.patch, form, None if self.edits is None else self.edits.entries)

    def _update(self) -> SharedValue | WrittenJson:
        found = self.images
        updated, removed, truncated = (self._part(part) for part in (found.updated, found.removed, found.truncated))
        if not (updated.places >= 0).any():
            return SharedValue(None)
        return WrittenJson(texts.update_descriptions(self.segment.data, updated, removed, truncated, self.edits))

    def _increments(self) -> pa.Array | SharedValue:
        """Return the increments of the timestamps; except in the 1.1 format, -1 for documents that a snapshot has
        read."""
        if self.segment.read_ns and not self.settings.legacy:
            return SharedValue(-1)
        return pa.array(self.segment.time[self.low : self.high] & 0xFFFFFFFF)

    def _snapshots(self, nulls: str = "") -> pa.Array | SharedValue:
        if self.segment.markers is None:
            return SharedValue(marker_text(Marker.FALSE, self.settings.events, nulls))
        return _marker_texts(self.settings.events, nulls)

    def _hashes(self) -> pa.Array | SharedValue:
        segment = self.segment
        if segment.hash is None or segment.hashed is None:
            return SharedValue(None)
        return _numbers(segment.hash[self.low : self.high], segment.hashed[self.low : self.high])

    def _orders(self) -> pa.Array | SharedValue:
        if self.segment.order is None:
            return SharedValue(None)
        orders = self.segment.order[self.low : self.high]
        return _numbers(orders, orders > 0)

    def _of_images(self, values: Int64s, known: npt.NDArray[np.bool_]) -> pa.Array | SharedValue:
        return _numbers(values[self.low : self.high], known[self.low : self.high])

    def _update_part(self, name: str) -> SharedValue | WrittenJson:
        """Return a part of `updateDescription`; null if there is none."""
        found = self.images
        parts = {"updatedFields": found.updated, "removedFields": found.removed, "truncatedArrays": found.truncated}
        part = self._part(parts[name])
        return WrittenJson(texts.update_part(self.segment.data, part, name, self.edits))

    def _orders_in(self, orders: Int64s | None) -> pa.Array | SharedValue:
        """Return numbers of changes in their transactions; null outside of transactions."""
        if orders is None:
            return SharedValue(None)
        return _numbers(orders[self.low : self.high], orders[self.low : self.high] > 0)

    def _transaction_ids(self) -> pa.Array | SharedValue:
        """Return the names of the transactions of numbered changes; null outside of transactions."""
        total = self.segment.total_order
        if total is None or not total[self.low : self.high].any():
            return SharedValue(None)
        ids = texts.transaction_names(self.segment, self.images, self.low, self.high)
        return pc.if_else(pa.array(total[self.low : self.high] > 0), pa.array(ids, pa.string()), None)

    def _transaction(self) -> SharedValue | WrittenJson:
        """Return the `transaction` block of each change; null if it has none."""
        segment = self.segment
        if segment.total_order is None or segment.table_order is None:
            return SharedValue(None)
        total, table = segment.total_order[self.low : self.high], segment.table_order[self.low : self.high]
        if not total.any():
            return SharedValue(None)
        ids = texts.transaction_names(segment, self.images, self.low, self.high)
        names_of = pa.array([None if name is None else quoted(name) for name in ids], pa.string())
        parts = pc.binary_join_element_wise(
            '{"id":', names_of, ',"total_order":', pa.array(total).cast(pa.string()),
            ',"data_collection_order":', pa.array(table).cast(pa.string()), "}", "",
        )  # fmt: skip
        return WrittenJson(text_fragment(pc.if_else(pa.array(total > 0), parts, "null")))

    _MAKERS: ClassVar[dict[str, Callable[[DocumentChunk], pa.Array | SharedValue | WrittenJson]]] = {
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
        "initial": lambda self: SharedValue(self.segment.kind == READ),
        "marker": _snapshots,
        "filled_marker": lambda self: self._snapshots("filled"),
        "bare_marker": lambda self: self._snapshots("bare"),
        "wall_ms": lambda self: pa.array(self._ns // 1_000_000),
        "wall_us": lambda self: pa.array(self._ns // 1000),
        "wall_ns": lambda self: pa.array(self._ns),
        "session": lambda self: self._written(self.images.session, STRICT),
        "transaction_number": lambda self: self._of_images(self.images.transaction, self.images.has_transaction),
        "wall_time": lambda self: self._of_images(self.images.wall_ms, self.images.has_wall),
        "made_ms": lambda self: SharedValue(self.now // 1_000_000),
        "transaction": _transaction,
        "transaction.id": _transaction_ids,
        "transaction.total_order": lambda self: self._orders_in(self.segment.total_order),
        "transaction.data_collection_order": lambda self: self._orders_in(self.segment.table_order),
        "update.updatedFields": lambda self: self._update_part("updatedFields"),
        "update.removedFields": lambda self: self._update_part("removedFields"),
        "update.truncatedArrays": lambda self: self._update_part("truncatedArrays"),
    }

    # --- plain columns -------------------------------------------------------------------------------------------

    def _transactions(self) -> pa.Array:
        """Return the names of transactions: session and number in a stream, `h` in an oplog; null outside of
        transactions."""
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
            return repeated("false", count)
        return pa.array([marker.name.lower() for marker in Marker]).take(pa.array(self.index[MARKER]))


def _edit_of(image: str, edits: FieldFilter) -> Edit:
    """Return the function that leaves out and renames fields of an image."""
    return edits.entries if image == "patch" else edits.changes if image == "update" else edits.documents


def _rules(image: str, settings: MongoSettings) -> ImageRules:
    """Return the rules to read the values of an image."""
    if image == "id":
        return ImageRules(texts.key_form(settings), narrow=True, is_key=True)
    if image == "update":
        return ImageRules(RELAXED, narrow=True)
    return ImageRules(texts.document_form(settings), is_patch=image == "patch", turned=settings.legacy)


def _numbers(values: Int64s, known: npt.NDArray[np.bool_]) -> pa.Array | SharedValue:
    """Return numbers, null unless known."""
    if not known.any():
        return SharedValue(None)
    return pa.array(values) if known.all() else pa.array(values, mask=~known)


@lru_cache(maxsize=8)
def _marker_texts(events: EventSettings, nulls: str) -> pa.Array:
    return pa.array([marker_text(marker, events, nulls) for marker in Marker], pa.string())
