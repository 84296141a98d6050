"""A block of records: the columns that fill their layouts, and the rows that Spark gets. Worker."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace import formats
from tailrace.columns import ChangeBatch, Marker
from tailrace.columns.row import rows_of
from tailrace.events.envelope import marker_text
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import BlockRecords, SourceForm
from tailrace.events.record_variants import Drop, KindColumns, KnownRecords, repeated, told_apart
from tailrace.events.table_plan import KindPlan, TablePlan, TablePlans
from tailrace.events.typed_rows import RecordKinds, TypedBlock, typed_rows_of
from tailrace.formats.arrow import array_of
from tailrace.kernels.programs import KINDS
from tailrace.records.columns import ImageTexts, SharedValue
from tailrace.records.layout import BEFORE, CHANGE, MARKER, RECORD, SOURCE, TRANSACTION, BlockColumn, ImageColumn
from tailrace.values.conversion import ColumnPlan


class BatchColumns:
    """Columns that belong to a batch, not to its blocks: by transaction and by marker, made at the first request.

    `kept` caches the encodings' results.
    """

    def __init__(self, batch: ChangeBatch, settings: EventSettings, form: SourceForm) -> None:
        self.batch, self.settings = batch, settings
        self.source = form.parts(batch, settings)
        self.kept: dict[Hashable, Any] = {}
        self._made: dict[str, pa.Array | SharedValue] = {}

    def values(self, name: str) -> pa.Array | SharedValue | None:
        """Return a column by its name; None if the batch has no such column."""
        if name not in self._made:
            make = self._MAKERS.get(name)
            if make is None:
                return None
            self._made[name] = make(self)
        return self._made[name]

    def _markers(self, nulls: str = "") -> pa.Array | SharedValue:
        if self.batch.marker is None:
            return SharedValue(marker_text(Marker.FALSE, self.settings, nulls))
        return pa.array([marker_text(marker, self.settings, nulls) for marker in Marker], pa.string())

    _MAKERS: ClassVar[dict[str, Callable[[BatchColumns], pa.Array | SharedValue]]] = {
        "marker": _markers,
        "filled_marker": lambda self: self._markers("filled"),
        "bare_marker": lambda self: self._markers("bare"),
        "commit_ms": lambda self: pa.array(self.batch.transactions.commit_us // 1000),
        "commit_us": lambda self: pa.array(self.batch.transactions.commit_us),
        "commit_ns": lambda self: pa.array(self.batch.transactions.commit_us * 1000),
    }


class RecordChunk:
    """The records of the changes `low` to `high` of a batch. See records.columns.Columns.

    `lost` is called with the number of values that do not fit their column's type; `now` is the time of the envelopes
    in ns since 1970.
    """

    def __init__(
        self,
        of_batch: BatchColumns,
        tables: TablePlans,
        records: KnownRecords,
        changes: tuple[int, int],
        now: int,
        lost: Callable[[ColumnPlan, int], None],
    ) -> None:
        batch = of_batch.batch
        self.batch, self.settings, self.plans = batch, of_batch.settings, tables.plans
        self.kept, self.lost = of_batch.kept, lost
        self.made: dict[Hashable, Any] = {}
        self._of_batch, self._now, self._tables = of_batch, now, tables
        self.low, self.high = changes
        self._records = records
        self.change, self.op, self.of = records.change, records.op, records.of
        self.left_out = records.left_out
        # the index of each record's plan; None if there is only one plan
        self.table = None if tables.of is None else tables.of[self.change]
        self.transaction = batch.transaction[self.change]
        self.index = np.zeros((KINDS, len(self.change)), np.int32)
        self.index[CHANGE] = self.change - self.low
        self.index[RECORD] = np.arange(len(self.change))
        self.index[TRANSACTION] = self.index[SOURCE] = self.transaction
        marker: npt.NDArray[np.uint8] | None = None
        if batch.marker is not None:
            marker = batch.marker[self.change]
            self.index[MARKER] = marker
        shown = BlockRecords(self.low, self.high, self.change, self.transaction, marker, self.index)
        self.source = of_batch.source.block(shown)
        self._values: dict[str, pa.Array | SharedValue] = {}

    def told_apart(self, drop: Drop | None) -> RecordChunk:
        """Return the block with layouts that no longer depend on values, without records that are left out.

        `drop` as in `record_variants.by_kind`. Raises RefusedChange, ConversionError.
        """
        if all(isinstance(kind, KindPlan) for kind in self._records.kinds):
            return self
        records = told_apart(self._records, lambda leaf, places: array_of(leaf, self, places), drop)
        found = RecordChunk(self._of_batch, self._tables, records, (self.low, self.high), self._now, self.lost)
        found.made = self.made
        return found

    @property
    def _kinds(self) -> list[KindPlan]:
        return [kind for kind in self._records.kinds if isinstance(kind, KindPlan)]

    # --- columns -------------------------------------------------------------------------------------------------

    def texts(self, leaf: ImageColumn) -> ImageTexts:
        image = self.batch.before if leaf.image == BEFORE else self.batch.after
        assert image is not None
        index = leaf.column.index
        flags = image.unavailable[index]
        texts, count = image.columns[index], self.high - self.low
        if count == len(texts):
            return ImageTexts(texts, flags)
        return ImageTexts(texts.slice(self.low, count), None if flags is None else flags[self.low : self.high])

    def values(self, leaf: BlockColumn) -> pa.Array | SharedValue:
        name = leaf.name
        found = self._of_batch.values(name)
        if found is not None:
            return found
        if name not in self._values:
            make = self._MAKERS.get(name)
            if make is None:
                return self.source.values(name)
            self._values[name] = make(self)
        return self._values[name]

    def _order(self, order: npt.NDArray[np.int64] | None) -> pa.Array:
        """Return the numbers of the records. The create of a key change is the second event of its change, unless
        deletes are skipped."""
        assert order is not None
        deletes = self.settings.skips_changes or "d" not in self.settings.skipped_operations
        second = (self.op == ord("c")) & (self.batch.op[self.change] == ord("u")) & deletes
        return pa.array(order[self.change] + second)

    _MAKERS: ClassVar[dict[str, Callable[[RecordChunk], pa.Array | SharedValue]]] = {
        "made_ms": lambda self: SharedValue(self._now // 1_000_000),
        "made_us": lambda self: SharedValue(self._now // 1000),
        "made_ns": lambda self: SharedValue(self._now),
        "transaction_name": lambda self: self.source.transaction_names(),
        "total_order": lambda self: self._order(self.batch.total_order),
        "table_order": lambda self: self._order(self.batch.table_order),
    }

    # --- rows ----------------------------------------------------------------------------------------------------

    def rows(self) -> pa.RecordBatch:
        """Return the block as rows of `settings.row_schema`. Raises RefusedRecord, and SchemaChanged for typed rows."""
        settings, commit_us = self.settings, self.batch.transactions.commit_us
        blocks = formats.Blocks(self)
        makers: dict[str, Callable[[], pa.Array]] = {
            **self._by_kind().makers(blocks),
            "database": lambda: self._by_table(lambda plan: plan.table.database),
            "schema": lambda: self._by_table(lambda plan: plan.table.schema),
            "table": lambda: self._by_table(lambda plan: plan.table.table),
            "position": self.source.positions,
            "ordinal": lambda: pa.array(self.batch.ordinal[self.change]),
            "transaction": self._transaction_names,
            "source_ts": lambda: pa.array(commit_us[self.transaction]).cast(pa.timestamp("us", tz="UTC")),
            "snapshot": self._markers,
        }
        if settings.typed is not None:
            # only records that are not changes have bytes as their value
            del makers["value"]
            encoded = blocks.of(formats.find(settings.value_encoding))
            return typed_rows_of(settings, TypedBlock(self, self._typed_kinds(), encoded, settings.typed), makers)
        return rows_of(
            settings.columns,
            makers | {"reselected": self._reselected},
        )

    def _typed_kinds(self) -> RecordKinds:
        (plan,), kinds = self.plans, self._kinds
        keys, values = [kind.key for kind in kinds], [kind.value for kind in kinds]
        return RecordKinds(plan.table, plan.columns, keys, values, [kind.shows_after for kind in kinds])

    def _by_kind(self) -> KindColumns:
        return KindColumns(self._kinds, self.of, self, self.settings)

    def encoded(self) -> tuple[pa.Array, pa.Array]:
        """Return the encoded keys and values of the records. Raises RefusedRecord."""
        blocks = formats.Blocks(self)
        columns = self._by_kind()
        return columns.keys(blocks), columns.values(blocks)

    def _by_table(self, text: Callable[[TablePlan], str]) -> pa.Array:
        """Return `text(plan)` of each record's table."""
        if self.table is None:
            return repeated(text(self.plans[0]), len(self.change))
        return pa.array([text(plan) for plan in self.plans], pa.string()).take(pa.array(self.table))

    def _reselected(self) -> pa.Array:
        """Return how many values of each record were reselected; null for a delete, and if none was requested."""
        counts = self.batch.reselected
        if counts is None:
            return pa.nulls(len(self.change), pa.int32())
        of_record = counts[self.change]
        return pa.array(of_record, mask=(of_record < 0) | ((self.op != ord("c")) & (self.op != ord("u"))))

    def _transaction_names(self) -> pa.Array:
        """Return the transaction ids as text, null in snapshot rows."""
        name = self._of_batch.source.name
        if self.batch.marker is None:
            return name.take(pa.array(self.transaction))
        return name.take(pa.array(self.transaction, mask=self.index[MARKER] != Marker.FALSE))

    def _markers(self) -> pa.Array:
        if self.batch.marker is None:
            return repeated("false", len(self.change))
        return _marker_names().take(pa.array(self.index[MARKER]))


@lru_cache(maxsize=1)
def _marker_names() -> pa.Array:
    return pa.array([marker.name.lower() for marker in Marker], pa.string())
