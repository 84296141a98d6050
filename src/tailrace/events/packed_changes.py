"""Packed changes: a ChangeBatch as typed Arrow columns, many changes of a table in one row. Worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import ChangeBatch, Marker
from tailrace.columns.batch import Image, Int32s, Int64s
from tailrace.columns.blocks import BLOCK, EVERY, KEPT, LAST, ROWS, BlockForm, Head, Place, written
from tailrace.columns.reduction import NONE, Flags, before, groups, lasts, listed, roots, sources
from tailrace.columns.row import rows_of
from tailrace.columns.table import TableId
from tailrace.errors import ConversionError
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import BlockRecords, SourceForm
from tailrace.events.quarantine import conversion_error
from tailrace.events.table_plan import TablePlan
from tailrace.events.warnings import warn_of_infinite, warn_of_unfit
from tailrace.kernels.programs import KINDS
from tailrace.records.layout import CHANGE, MARKER, RECORD, SOURCE, TRANSACTION
from tailrace.values.arrow import arrow_type_of, typed
from tailrace.values.conversion import ColumnPlan
from tailrace.values.decimals import spark_decimal, spark_decimals
from tailrace.values.infinite import finite

# --- key reuse --------------------------------------------------------------------------------------------------------

Same = Callable[[Int64s, Int64s], Flags]
"""Returns a mask: True if the row that the first entry puts equals the row that the second entry takes."""


def standing(scope: Int64s, puts: Flags, takes: Flags, moved: Flags, same: Same) -> Flags:
    """Return a mask of the entries to apply, in log order.

    Entries of one key and one transaction have the same number in `scope`. `puts` are entries after which the key has a
    row, `takes` entries that remove a row; `moved` are puts whose row came from another key. Left out are pairs of
    entries that cancel out, and deletes of a row that leaves a key after the next row has arrived.
    """
    order = np.argsort(scope, kind="stable")
    left = np.ones(len(scope), np.bool_)
    overtaking = np.zeros(len(scope), np.bool_)
    while True:
        first, second = order[:-1], order[1:]
        pairs = np.flatnonzero((scope[first] == scope[second]) & puts[first] & takes[second])
        equal = same(first[pairs], second[pairs])
        # a row that came from another key and leaves this key again has no effect: both entries are left out
        nothing = pairs[equal & moved[first[pairs]]]
        other = pairs[~equal]
        if not len(nothing) and not len(other):
            break
        overtaking[second[other]] = True
        order[other], order[other + 1] = second[other], first[other]
        gone = np.concatenate([nothing, nothing + 1])
        left[order[gone]] = False
        order = np.delete(order, gone)
    left[order[overtaking[order] & (_behind(scope, puts, order) < order)]] = False
    return left


def _behind(scope: Int64s, puts: Flags, order: Int64s) -> Int64s:
    """Return, for each place in `order`, the earliest entry from there on that puts a row within the same scope.

    Without such an entry, the number is greater than all entries.
    """
    count = len(scope) + 1
    begins = np.append(True, scope[order[1:]] != scope[order[:-1]])[: len(order)]
    base = np.cumsum(begins) * count
    # reversed, each scope has smaller numbers than the one before, so the minimum starts anew
    found: Int64s = np.minimum.accumulate((base + np.where(puts[order], order, count - 1))[::-1])[::-1] - base
    return found


# --- blocks -----------------------------------------------------------------------------------------------------------


Codes = npt.NDArray[np.uint8]

_MOST_BYTES = 8 << 20
_INSERT, _DELETE, _TRUNCATE = (ord(letter) for letter in "cdt")
_LETTERS = pa.array([chr(code) for code in range(128)], pa.string())


def block_rows(
    batch: ChangeBatch, plan: TablePlan, key_changed: Flags, settings: EventSettings, form: SourceForm
) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    """Yield the changes of `batch` as blocks, rows of `settings.row_schema`, each with the index of its last change.

    Raises ConversionError if a change lacks its key or a value does not fit its column's type. Unless
    `event.converting.failure.handling.mode` is `fail`, a value outside the key becomes null instead.
    """
    work = _Work(batch, plan, settings, form)
    if settings.blocks == ROWS:
        yield work.values(), np.full(1, len(batch) - 1, np.int32)
        return
    entries = _Entries.of(batch, key_changed, settings)
    truncate = entries.last_truncate()
    if truncate is not None and settings.blocks == LAST:
        entries = entries.chosen(np.flatnonzero(entries.change > truncate))
    if settings.blocks == KEPT:
        entries = entries.chosen(np.flatnonzero(entries.op != _TRUNCATE))
    if not len(entries) and truncate is None:
        return
    rows = work.rows(entries, NONE if truncate is None else truncate)
    shape = work.shape()
    place = None if truncate is None else work.place(truncate)
    table = _target(batch, settings, truncate is not None)
    if table is not None and settings.routing is not None:
        rows, shape = settings.routing.merged(rows, shape, batch.table.id)
    count = max(-(-rows.nbytes // _MOST_BYTES), 1)
    size = max(-(-rows.num_rows // count), 1)
    last = np.full(1, len(batch) - 1, np.int32)
    for low in range(0, max(rows.num_rows, 1), size):
        changes = 0 if low else len(batch) + batch.superseded
        yield _block(batch, table, rows.slice(low, size), shape, place, settings, changes), last


def _target(batch: ChangeBatch, settings: EventSettings, truncated: bool) -> TableId | None:
    """Return the table that these rows share with rows of other tables; None if they have their own table."""
    found = None if settings.routing is None else settings.routing.target(batch.table.id)
    if found is not None and truncated:
        raise ConversionError(
            f"{batch.table.id} was truncated, and its rows are in one table with the rows of other tables.",
            "Delete the rows instead of truncating, or skip truncates with skipped.operations = t.",
        )
    return found


def storable(kind: pa.DataType) -> pa.DataType:
    """Return the type in which copies store an Arrow type: times of day and durations become µs."""
    if pa.types.is_decimal(kind):
        return spark_decimal(kind)
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, storable(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(storable(kind.key_type), pa.field("value", storable(kind.item_type)))
    return pa.list_(pa.field("element", storable(kind.value_type))) if pa.types.is_list(kind) else kind


def _is_plain(kind: pa.DataType) -> bool:
    """Return True for types whose values have exactly one text."""
    of = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_string, pa.types.is_boolean, pa.types.is_date32,
          pa.types.is_timestamp)  # fmt: skip
    return any(is_kind(kind) for is_kind in of)


def stored(values: pa.Array) -> pa.Array:
    """Return values in the type in which copies store them; infinite values as `values.infinite` replaces them."""
    return _stored(finite(values)[0])


def _stored(values: pa.Array) -> pa.Array:
    kind, target = values.type, storable(values.type)
    if kind.equals(target):
        return values
    if pa.types.is_decimal(kind):
        return spark_decimals(values)
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        micro = pa.time64("us") if pa.types.is_time(kind) else pa.duration("us")
        return values.cast(micro, safe=False).cast(pa.int64())
    if pa.types.is_struct(kind):
        parts = [_stored(values.field(place)) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=values.is_null())
    if pa.types.is_list(kind):
        flat, lengths = _stored(values.flatten()), pc.fill_null(pc.list_value_length(values), 0)
        ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
        known = pa.concat_arrays([values.is_valid(), pa.array([True])])
        return pa.ListArray.from_arrays(pc.if_else(known, ends, pa.scalar(None, pa.int32())), flat, target)
    return values.cast(target, safe=False)


@dataclass(slots=True)
class _Entries:
    """Effects on keys, in order: a key change is a delete of the old key, then a row with the new key.

    `change` is the index of the change; `part` is 1 for the row with the new key; `op` is the ASCII code.
    """

    change: Int64s
    part: Codes
    op: Codes

    def __len__(self) -> int:
        return len(self.change)

    @classmethod
    def of(cls, batch: ChangeBatch, key_changed: Flags, settings: EventSettings) -> _Entries:
        kept = np.ones(len(batch), np.bool_)
        if settings.drops_truncates:
            kept = batch.op != _TRUNCATE
        counts = np.where(kept, 1 + key_changed.astype(np.int64), 0)
        change = np.repeat(np.arange(len(batch)), counts)
        first = np.cumsum(counts) - counts
        part = (np.arange(len(change)) - first[change]).astype(np.uint8)
        op = np.where(key_changed[change], np.where(part == 1, _INSERT, _DELETE), batch.op[change]).astype(np.uint8)
        return cls(change, part, op)

    def last_truncate(self) -> int | None:
        found = self.change[self.op == _TRUNCATE]
        return int(found[-1]) if len(found) else None

    def chosen(self, places: Int64s) -> _Entries:
        return _Entries(self.change[places], self.part[places], self.op[places])


class _Work:
    """A batch during its conversion into blocks."""

    def __init__(self, batch: ChangeBatch, plan: TablePlan, settings: EventSettings, form: SourceForm) -> None:
        self.batch, self.plan, self.settings, self.form = batch, plan, settings, form
        self.types = [storable(arrow_type_of(column.schema)) for column in plan.columns]
        places = {column.index: place for place, column in enumerate(plan.columns)}
        self.key_places = tuple(places[column.index] for column in plan.key if column.index in places)
        if len(self.key_places) < len(batch.table.key):
            # the others alone identify no row
            self.key_places = ()
        named = {column.name: column for column in batch.table.columns}
        self.columns = [named[column.source_name] for column in plan.columns]
        self._demand_old_rows()
        self.parts = form.parts(batch, settings)

    def shape(self) -> BlockForm:
        """Return the form of the rows."""
        late = self.form.late(self.batch.table)
        added = tuple(place for place, own in enumerate(self.columns) if own.name in late)
        return BlockForm(
            tuple(column.name for column in self.plan.columns),
            tuple(self.types),
            self.key_places,
            added,
            tuple(own.number for own in self.columns),
            self.batch.table.oid,
            tuple((place, text) for place in added if (text := self._value(place)) is not None),
        )

    def _value(self, place: int) -> str | None:
        """Return the value that all older rows have in a column, for `BlockForm.values`; None if there is none."""
        missing, kind = self.columns[place].missing, self.types[place]
        if missing is None or not _is_plain(kind):
            return None
        found, lost = typed(self.plan.columns[place], pa.array([missing.encode()], pa.binary()))
        value = stored(found)
        if lost.any() or value.null_count:
            return None
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            value = value.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        return str(value.cast(pa.string())[0].as_py())

    def rows(self, entries: _Entries, truncate: int) -> pa.RecordBatch:
        """Return the rows of a block for the remaining entries. `truncate` is the last truncate's index, or NONE."""
        group, previous = self._chains(entries)
        left = np.arange(len(entries)) if group is None else self._standing(entries, group)
        if group is not None and self.settings.blocks != EVERY:
            left = left[lasts(group[left])]
        kept = entries.chosen(left)
        keeps = self.settings.blocks == KEPT
        missing: list[Flags] = []
        columns = []
        for column in self.plan.columns:
            found = self._sources(column, entries, previous)[left]
            missing.append((found == NONE) & (keeps | ((kept.op != _DELETE) & (kept.op != _TRUNCATE))))
            columns.append(self._values(column, entries, found))
        origin = self._origins(entries, group, previous, left, np.any(missing, axis=0) if missing else None)
        own = {f"c{place}": values for place, values in enumerate(columns)}
        op = np.where(kept.change < truncate, _TRUNCATE, kept.op).astype(np.uint8) if keeps else kept.op
        return pa.RecordBatch.from_pydict(
            {
                "op": _LETTERS.take(pa.array(op)),
                "position": self._positions(kept.change),
                "ordinal": pa.array(self.batch.ordinal[kept.change], pa.int64()),
                "part": pa.array(kept.part.astype(np.int8)),
                "at": self._times(kept.change),
                "missing": _listed(missing, len(kept)),
                "origin": origin,
                **own,
            },
            schema=BlockForm(tuple(own), tuple(self.types), self.key_places).schema,
        )

    def place(self, change: int) -> Place:
        """Return the place of a change."""
        found = self._positions(np.array([change]))[0].as_py()
        return str(found), int(self.batch.ordinal[change])

    def _chains(self, entries: _Entries) -> tuple[Int64s | None, Int64s]:
        """Return the number of each entry's key, and the earlier entry of the same row; None without a key."""
        if not self.key_places or not len(entries):
            return None, np.full(len(entries), NONE, np.int64)
        of_key = []
        for column in self.plan.key:
            values = self._values(column, entries, np.arange(len(entries)))
            self._demand_keys(values, entries)
            of_key.append(values)
        group = groups(of_key)
        previous = before(group)
        moved = np.flatnonzero(entries.part == 1)
        previous[moved] = moved - 1
        return group, previous

    def _standing(self, entries: _Entries, group: Int64s) -> Int64s:
        """Return the entries that count: pairs cancel out when a key passes from row to row."""
        batch, moved = self.batch, entries.part == 1
        if not moved.any() or batch.before is None or batch.after is None or not self.form.has_old_rows(batch.table):
            return np.arange(len(entries))
        old, new = batch.before, batch.after

        def same(puts: Int64s, takes: Int64s) -> Flags:
            found = np.ones(len(puts), np.bool_)
            come, gone = pa.array(entries.change[puts]), pa.array(entries.change[takes])
            for column in self.plan.columns:
                values, own = old.columns[column.index], new.columns[column.index].take(come)
                kept, unknown = new.unavailable[column.index], old.unavailable[column.index]
                if kept is not None:
                    own = pc.if_else(pa.array(kept[come]), values.take(come), own)
                other = values.take(gone)
                differs = pc.coalesce(pc.not_equal(own, other), pc.xor(own.is_null(), other.is_null()))
                found &= ~np.asarray(differs) | (False if unknown is None else unknown[come] | unknown[gone])
            return found

        takes = entries.op == _DELETE
        scope = group * (int(batch.transaction.max()) + 1) + batch.transaction[entries.change]
        # a truncate belongs to no key
        scope[entries.op == _TRUNCATE] = NONE - 1 - np.flatnonzero(entries.op == _TRUNCATE)
        puts = ~takes & (entries.op != _TRUNCATE)
        return np.flatnonzero(standing(scope, puts, takes, moved, same))

    def _demand_keys(self, values: pa.Array, entries: _Entries) -> None:
        """Raise ConversionError if a change lacks the key of its row, or if the row has null there."""
        without = np.asarray(values.is_null()) & (entries.op != _TRUNCATE)
        table = self.batch.table.id
        if (without & (entries.op != _DELETE)).any():
            raise ConversionError(
                f"A row of {table} has null in a column of its key.",
                "Give the table a primary key, name columns that are never null in message.key.columns, or leave the "
                "table out.",
            )
        if without.any():
            raise ConversionError(
                f"The log does not carry the key of a row of {table} that was changed or deleted.",
                "Name columns that are never null, and that old rows have, in message.key.columns; let the old rows be "
                "captured whole, as tailrace check says; or leave the table out.",
            )

    def _sources(self, column: ColumnPlan, entries: _Entries, previous: Int64s) -> Int64s:
        """Return, for each entry, the entry that has its value of the column; NONE if there is none."""
        has = np.ones(len(entries), np.bool_)
        deleted = entries.op == _DELETE
        after, old = self.batch.after, self.batch.before
        flags = None if after is None else after.unavailable[column.index]
        whole = self._whole(old, column)[entries.change]
        key = any(own.index == column.index for own in self.plan.key)
        if not key:
            has &= ~deleted | whole
        if flags is not None and not key:
            has &= deleted | ~flags[entries.change] | whole
        has &= entries.op != _TRUNCATE
        return np.arange(len(entries)) if has.all() else sources(previous, has)

    def _demand_old_rows(self) -> None:
        """Raise ConversionError if an update lacks the old row that the log should have."""
        old, updates = self.batch.before, self.batch.op == ord("u")
        if not self.key_places or not self.form.has_old_rows(self.batch.table) or not updates.any():
            return
        if old is None or (old.present is not None and not old.present[updates].all()):
            table = self.batch.table.id
            raise ConversionError(
                f"The log does not carry the old row of an update of {table}, so a change of its key is not seen.",
                f"Let the old rows of {table} be captured too, as tailrace check says, or leave it out.",
            )

    def _whole(self, old: Image | None, column: ColumnPlan) -> Flags:
        """Return a mask of the changes whose old row has the column's value."""
        if old is None or not self.form.has_old_rows(self.batch.table):
            return np.zeros(len(self.batch), np.bool_)
        found = np.ones(len(self.batch), np.bool_) if old.present is None else old.present
        flags = old.unavailable[column.index]
        return found if flags is None else found & ~flags

    def _values(self, column: ColumnPlan, entries: _Entries, places: Int64s) -> pa.Array:
        """Return the column's values of the entries at `places`; null at NONE."""
        count = len(self.batch)
        empty = pa.nulls(count, pa.binary())
        after = empty if self.batch.after is None else self.batch.after.columns[column.index]
        old = empty if self.batch.before is None else self.batch.before.columns[column.index]
        change = entries.change[places]
        from_old = entries.op[places] == _DELETE
        if self.batch.after is not None and self.batch.before is not None:
            flags = self.batch.after.unavailable[column.index]
            if flags is not None:
                from_old = from_old | flags[change]
        rows = pa.array(change + count * from_old, pa.int64(), mask=places == NONE)
        return self._typed(
            column, pa.concat_arrays([after.cast(pa.binary()), old.cast(pa.binary())]).take(rows), change
        )

    def values(self) -> pa.RecordBatch:
        """Return the rows of a snapshot's batch as columns of a block, without the other columns."""
        assert self.batch.after is not None
        every = np.arange(len(self.batch))
        found = [
            self._typed(column, self.batch.after.columns[column.index].cast(pa.binary()), every)
            for column in self.plan.columns
        ]
        return pa.RecordBatch.from_arrays(found, names=[f"c{place}" for place in range(len(found))])

    def _typed(self, column: ColumnPlan, texts: pa.Array, change: Int64s) -> pa.Array:
        """Return the typed values of a column's texts; `change` is the change of each."""
        values, lost = typed(column, texts, None)
        unfit = (lost | np.asarray(values.is_null())) & np.asarray(texts.is_valid())
        is_key = bool(self.key_places) and any(own.index == column.index for own in self.plan.key)
        if unfit.any():
            mode = self.settings.converting_failure_mode
            if is_key or mode == "fail":
                first = int(change[np.flatnonzero(unfit)[0]])
                raise conversion_error(self.batch, first, column, self.form, in_tables=True, of_key=is_key)
            if mode == "warn":
                warn_of_unfit(self.batch, column, int(unfit.sum()))
        known = np.asarray(texts.is_valid()) & ~unfit
        values, infinite = finite(values)
        if infinite:
            warn_of_infinite(self.batch, column)
        return _stored(values if known.all() else pc.if_else(pa.array(known), values, pa.scalar(None, values.type)))

    def _origins(
        self, entries: _Entries, group: Int64s | None, previous: Int64s, left: Int64s, wanted: Flags | None
    ) -> pa.Array:
        """Return the previous keys of rows with missing values, if the key changed within the block."""
        fields = [pa.field(f"k{place}", self.types[index]) for place, index in enumerate(self.key_places)]
        if group is None or wanted is None or not wanted.any():
            return pa.nulls(len(left), pa.struct(fields))
        root = roots(previous)[left]
        moved = wanted & (group[root] != group[left])
        parts = [self._values(self.plan.columns[index], entries, root) for index in self.key_places]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=pa.array(~moved))

    def _positions(self, change: Int64s) -> pa.Array:
        index = np.zeros((KINDS, len(change)), np.int32)
        index[CHANGE] = change
        index[RECORD] = np.arange(len(change))
        transaction = self.batch.transaction[change].astype(np.int32)
        index[TRANSACTION] = index[SOURCE] = transaction
        marker = None
        if self.batch.marker is not None:
            marker = self.batch.marker[change]
            index[MARKER] = marker
        shown = BlockRecords(0, len(self.batch), change.astype(np.int32), transaction, marker, index)
        return self.parts.block(shown).positions()

    def _times(self, change: Int64s) -> pa.Array:
        commit = self.batch.transactions.commit_us[self.batch.transaction[change]]
        return pa.array(commit, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _listed(flags: list[Flags], count: int) -> pa.Array:
    """Return the indexes of the flagged columns of each row; null if there is none."""
    found: Flags = np.array(flags) if flags else np.zeros((0, count), np.bool_)
    return listed(found)


def _block(
    batch: ChangeBatch,
    routed: TableId | None,
    rows: pa.RecordBatch,
    form: BlockForm,
    truncate: Place | None,
    settings: EventSettings,
    changes: int,
) -> pa.RecordBatch:
    """Return rows as one row of the row schema."""
    count = rows.num_rows
    places = [(str(rows["position"][row].as_py()), int(rows["ordinal"][row].as_py())) for row in _ends(rows)]
    first, last = (places[0], places[-1]) if places else (truncate, truncate)
    assert first is not None
    assert last is not None
    snapshot = ""
    if batch.marker is not None and len(batch) and batch.marker[0] not in (Marker.FALSE, Marker.INCREMENTAL):
        snapshot = f"{first[0]}@{int(batch.transactions.commit_us[0])}"
    missing, moved = rows["missing"].null_count < count, rows["origin"].null_count < count
    table = batch.table.id if routed is None else routed
    head = Head(
        table.database,
        table.schema,
        table.table,
        form,
        count,
        first,
        last,
        snapshot,
        truncate,
        missing,
        moved,
        routed is not None,
        settings.apart,
        changes,
    )
    return block_row(head, rows, int(batch.transactions.commit_us[batch.transaction[-1]]), settings)


def block_row(head: Head, rows: pa.RecordBatch, at_us: int, settings: EventSettings) -> pa.RecordBatch:
    """Return the rows of a block as one row of `settings.row_schema`; `at_us` is the time of its last change, in µs."""
    at = pa.array([at_us], pa.int64())
    return rows_of(
        settings.columns,
        {
            "topic": lambda: pa.array([f"{head.schema}.{head.table}"], pa.string()),
            "key": lambda: pa.array([head.text()], pa.binary()),
            "value": lambda: pa.array([written(rows)], pa.binary()),
            "headers": lambda: pa.nulls(1, settings.row_schema.field("headers").type),
            "op": lambda: pa.array([BLOCK], pa.string()),
            "database": lambda: pa.array([head.database], pa.string()),
            "schema": lambda: pa.array([head.schema], pa.string()),
            "table": lambda: pa.array([head.table], pa.string()),
            "position": lambda: pa.array([head.last[0]], pa.string()),
            "ordinal": lambda: pa.array([head.last[1]], pa.int64()),
            "transaction": lambda: pa.nulls(1, pa.string()),
            "source_ts": lambda: at.cast(pa.timestamp("us", tz="UTC")),
            "snapshot": lambda: pa.array(["true" if head.snapshot else "false"], pa.string()),
        },
    )


def _ends(rows: pa.RecordBatch) -> list[int]:
    return [0, rows.num_rows - 1] if rows.num_rows else []
