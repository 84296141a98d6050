"""Opening of blocks into rows, and reduction of the rows of several blocks to the last row of each key. Workers.

Rows have the columns of `tailrace.columns.blocks`, with the table's columns numbered as in `target`, and `since`: the
place of their block's first change, which separates rows before the block from rows in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.blocks import FIXED, BlockForm, Head, Place, read
from tailrace.columns.reduction import NONE, Flags, Int64s, before, flagged, groups, lasts, listed, roots, sources
from tailrace.sinks.tables.statements import holds, type_of, widens

_SINCE = pa.field("since", pa.string())


def row_schema(target: BlockForm) -> pa.Schema:
    """Return the schema of opened rows of a table."""
    schema = target.schema
    return pa.schema([*FIXED, _SINCE, *list(schema)[len(FIXED) :]])


def place_text(place: Place) -> str:
    """Return a place as a text with the same sort order."""
    return f"{place[0]}:{place[1]:020d}"


@dataclass(frozen=True, slots=True)
class BlockOpening:
    """A function that opens blocks, given as rows with `key` and `value`, into rows with the columns of `target`."""

    target: BlockForm

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in self.blocks(batches):
            yield from rows.to_batches()

    def blocks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the rows of each block."""
        for batch in batches:
            for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
                yield self._opened(Head.of(key), read(value))

    def _opened(self, head: Head, rows: pa.Table) -> pa.Table:
        schema, form = row_schema(self.target), head.form
        places = places_of(form, self.target)
        columns = {}
        for field in schema:
            if field.name == _SINCE.name:
                columns[field.name] = pa.repeat(place_text(head.first), rows.num_rows)
            elif field.name in rows.schema.names and not is_value(field.name):
                columns[field.name] = rows[field.name]
        if places != tuple(range(len(form.names))) or form.key != self.target.key or form.types != self.target.types:
            missing = rows["missing"].combine_chunks()
            columns["missing"] = _renumbered(missing, len(form.names), places) if head.missing else missing
            columns["origin"] = self._origin(form, rows["origin"].combine_chunks(), places)
        values = dict(self.target.values)
        for index, (kind, source) in enumerate(zip(self.target.types, places, strict=True)):
            if source < 0:
                columns[f"c{index}"] = _constant(values.get(index), kind, rows.num_rows)
            else:
                columns[f"c{index}"] = _as_later(rows[f"c{source}"], kind)
        return pa.table([columns[name] for name in schema.names], schema=schema)

    def _origin(self, form: BlockForm, origin: pa.StructArray, places: Sequence[int]) -> pa.Array:
        """Return the previous keys of rows in the form of the table's key.

        They are null if the table's key has other columns. That happens only in the mode log, which does not read them.
        """
        kind = row_schema(self.target).field("origin").type
        columns = [places[index] for index in self.target.key]
        if origin.null_count == len(origin) or set(columns) != set(form.key):
            return pa.nulls(len(origin), kind)
        own = [form.key.index(column) for column in columns]
        parts = [_as(origin.field(place), field.type) for place, field in zip(own, kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=origin.is_null())


def places_of(form: BlockForm, target: BlockForm) -> tuple[int, ...]:
    """Return the index in `form` of each column of `target`, -1 if it is not there.

    Columns are compared by number, or by name if one of the two forms has no numbers.
    """
    numbers = {form.number(place): place for place in range(len(form.names)) if form.number(place)}
    names = {name: place for place, name in enumerate(form.names)}
    found = []
    for index, name in enumerate(target.names):
        number, place = target.number(index), names.get(name, -1)
        other = form.number(place) if place >= 0 else 0
        found.append(numbers.get(number, -1) if number and (other or place < 0) else place)
    return tuple(found)


def _renumbered(missing: pa.ListArray, count: int, places: Sequence[int]) -> pa.Array:
    """Return the columns that rows miss, of `count` columns of the form, by their indexes in the table."""
    # No row misses a column that the form does not have.
    flags = np.vstack([flagged(missing, count), np.zeros((1, len(missing)), np.bool_)])
    return listed(flags[list(places)])


def _constant(text: str | None, kind: pa.DataType, count: int) -> pa.Array:
    """Return an array of `count` equal values. `text` is the value's text in `BlockForm.values`, or None for null."""
    if text is None:
        return pa.nulls(count, kind)
    value = pa.array([int(text)]) if pa.types.is_timestamp(kind) and kind.tz is not None else pa.array([text])
    return pa.repeat(value.cast(kind)[0], count)


def _as(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return values in the type of the table's column, which can hold all of them."""
    return values if values.type.equals(kind) else values.cast(kind)


def _as_later(values: pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return values in the type that the table's column has now.

    They are null if that type cannot hold them. Then the column was dropped and made again in its new type, and a
    snapshot reads the source's table (`schema.narrow` or `schema.recreated` = reread).
    """
    if values.type.equals(kind):
        return values
    old, new = type_of(values.type), type_of(kind)
    return _as(values, kind) if old == new or holds(new, old) or widens(old, new) else pa.nulls(len(values), kind)


def is_value(name: str) -> bool:
    """Return True if a column of a block's rows holds values of a source column."""
    return name[0] == "c" and name[1:].isdigit()


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A function that reduces a partition to the last row of each key, with missing values from earlier rows.

    With `keeps_deletes`, deleted rows keep their values, too.
    """

    target: BlockForm
    keeps_deletes: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = gathered(batches, self.target)
        if rows.num_rows:
            order = [(name, "ascending") for name in ("position", "ordinal", "part")]
            yield from reduced(rows.sort_by(order).combine_chunks(), self.target, self.keeps_deletes).to_batches()


@dataclass(frozen=True, slots=True)
class SeparateOpening:
    """A function that opens blocks and reduces them to the last row of each key, with only `columns` unless empty.

    No other partition may have rows of the same keys. `keeps_deletes` is as in RowReduction.
    """

    target: BlockForm
    keeps_deletes: bool = False
    columns: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(BlockOpening(self.target).blocks(batches))
        whole = (part for rows in found for part in rows.to_batches())
        rows = whole if self._is_reduced(found) else RowReduction(self.target, self.keeps_deletes)(whole)
        yield from (part.select(self.columns) for part in rows) if self.columns else rows

    def _is_reduced(self, blocks: Sequence[pa.Table]) -> bool:
        """Return True if each key has one row and no row misses values.

        That is frequent, since changes that a later change of the same key makes superfluous are not even decoded.
        """
        # A block has one row per key.
        if len(blocks) < 2:
            return True
        if any(rows["missing"].null_count < rows.num_rows for rows in blocks):
            return False
        keys = pa.concat_tables([rows.select([f"c{index}" for index in self.target.key]) for rows in blocks])
        group = groups([column.combine_chunks() for column in keys.columns])
        return len(np.unique(group)) == len(group)


def gathered(batches: Iterator[pa.RecordBatch], target: BlockForm) -> pa.Table:
    """Return all rows of a partition in the declared schema. After a filter, Spark marks nullable columns not null."""
    schema = row_schema(target)

    def as_declared(batch: pa.RecordBatch) -> pa.RecordBatch:
        # A cast fails for a null variant, even to its own type.
        columns = [_as(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.Table.from_batches(map(as_declared, batches), schema).combine_chunks()


def reduced(rows: pa.Table, target: BlockForm, keeps_deletes: bool = False) -> pa.Table:
    """Return the last row of each key. The rows must be in log order; `keeps_deletes` is as in RowReduction."""
    keys = [rows[f"c{index}"].combine_chunks() for index in target.key]
    group = groups(keys)
    left = lasts(group)
    if rows["missing"].null_count == rows.num_rows:
        return rows.take(pa.array(left))
    previous = before(group)
    origins = rows["origin"].combine_chunks()
    link(rows, keys, origins, previous)
    misses, unknown, found = missed(rows, target, previous, keeps_deletes)
    columns: dict[str, pa.Array] = {}
    for index in np.flatnonzero(misses.any(axis=1)).tolist():
        places = found[index][left]
        values = rows[f"c{index}"].combine_chunks()
        columns[f"c{index}"] = values.take(pa.array(places, pa.int64(), mask=places == NONE))
    columns["missing"] = listed(unknown[:, left])
    first = roots(previous)
    wanted = unknown.any(axis=0) & ((group[first] != group) | np.asarray(origins.is_valid())[first])
    columns["origin"] = former(keys, origins, first, wanted).take(pa.array(left))
    whole = {name: columns[name] if name in columns else rows[name].take(pa.array(left)) for name in rows.schema.names}
    return pa.table([whole[name] for name in rows.schema.names], schema=rows.schema)


def missed(
    rows: pa.Table, target: BlockForm, previous: Int64s, keeps_deletes: bool = False
) -> tuple[Flags, Flags, dict[int, Int64s]]:
    """Return masks by column and row of missing values and of unknown values, and the row indexes of the other values.

    A missing value is unknown if no earlier row has it. The last item maps each column with missing values to the index
    of the row that has each row's value. Deleted rows give no values and need none, unless deletes are kept.
    """
    misses = flagged(rows["missing"].combine_chunks(), len(target.names))
    ops = rows["op"].combine_chunks()
    gone = np.zeros(len(ops), np.bool_) if keeps_deletes else np.asarray(pc.is_in(ops, pa.array(["d", "t"])))
    unknown: Flags = np.zeros_like(misses)
    found = {}
    for index in np.flatnonzero(misses.any(axis=1)).tolist():
        found[index] = sources(previous, ~misses[index] & ~gone)
        unknown[index] = (found[index] == NONE) & ~gone
    return misses, unknown, found


def link(rows: pa.Table, keys: Sequence[pa.Array], origins: pa.StructArray, previous: Int64s) -> None:
    """Set `previous` of each row with another key before its block to the last row of the former key before the
    block."""
    moved = np.flatnonzero(origins.is_valid())
    if not len(moved):
        return
    count = rows.num_rows
    old = origins.take(pa.array(moved))
    group = groups([pa.concat_arrays([key, old.field(place)]) for place, key in enumerate(keys)])
    ordinals = pc.utf8_lpad(pc.cast(rows["ordinal"], pa.string()), 20, "0")
    at = pc.binary_join_element_wise(rows["position"], ordinals, ":").combine_chunks()
    since = rows["since"].combine_chunks().take(pa.array(moved))
    # The rows are in order, so the rows before a block are those below a limit.
    ranks = pc.rank(pa.concat_arrays([at, since]), sort_keys="ascending", tiebreaker="min").to_numpy().astype(np.int64)
    limits = np.searchsorted(ranks[:count], ranks[count:])
    # Group and index of each row in one number, sorted.
    places = np.sort(group[:count] * (count + 1) + np.arange(count))
    wanted = group[count:] * (count + 1)
    found = places[np.maximum(np.searchsorted(places, wanted + limits) - 1, 0)] - wanted
    previous[moved] = np.where((found >= 0) & (found < limits), found, NONE)


def former(keys: Sequence[pa.Array], origins: pa.StructArray, first: Int64s, wanted: Flags) -> pa.Array:
    """Return the keys that rows had before all blocks, by `first`, the first row of each; null unless `wanted`."""
    count = len(first)
    place = pa.array(np.where(np.asarray(origins.is_valid())[first], first, count + first))
    parts = [pa.concat_arrays([origins.field(number), key]).take(place) for number, key in enumerate(keys)]
    return pa.StructArray.from_arrays(parts, fields=list(origins.type), mask=pa.array(~wanted))
