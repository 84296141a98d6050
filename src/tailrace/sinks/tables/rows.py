"""Blocks opened into rows, and rows of several blocks reduced to the last of each key. Workers.

Rows have the columns of `tailrace.columns.blocks`, those of the table as `target` numbers them, and `since`: the place
of their block's first change, by which what stands before a block is told from what stands in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns.blocks import FIXED, Form, Head, Place, read
from tailrace.columns.reduction import NONE, Flags, Int64s, before, groups, lasts, roots, sources

_SINCE = pa.field("since", pa.string())


def row_schema(target: Form) -> pa.Schema:
    """The schema of opened rows of a table."""
    schema = target.schema
    return pa.schema([*FIXED, _SINCE, *list(schema)[len(FIXED) :]])


def place_text(place: Place) -> str:
    """A place as a text that sorts as it does."""
    return f"{place[0]}:{place[1]:020d}"


@dataclass(frozen=True, slots=True)
class Opening:
    """Opens blocks, rows with their columns `key` and `value`, for a table whose columns are those of `target`."""

    target: Form

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
                yield from self._opened(Head.of(key), read(value)).to_batches()

    def _opened(self, head: Head, rows: pa.Table) -> pa.Table:
        schema, form = row_schema(self.target), head.form
        places = places_of(form, self.target)
        columns = {}
        for field in schema:
            if field.name == _SINCE.name:
                columns[field.name] = pa.repeat(place_text(head.first), rows.num_rows)
            elif field.name in rows.schema.names and not _is_own(field.name):
                columns[field.name] = rows[field.name]
        if places != tuple(range(len(form.names))) or form.key != self.target.key or form.types != self.target.types:
            columns["missing"] = _renumbered(rows["missing"], places) if head.missing else rows["missing"]
            columns["origin"] = self._origin(form, rows["origin"].combine_chunks(), places)
        for index, (kind, source) in enumerate(zip(self.target.types, places, strict=True)):
            columns[f"c{index}"] = pa.nulls(rows.num_rows, kind) if source < 0 else _as(rows[f"c{source}"], kind)
        return pa.table([columns[name] for name in schema.names], schema=schema)

    def _origin(self, form: Form, origin: pa.StructArray, places: Sequence[int]) -> pa.Array:
        """The keys that rows had before, as the table's key is made."""
        kind = row_schema(self.target).field("origin").type
        if origin.null_count == len(origin):
            return pa.nulls(len(origin), kind)
        own = [form.key.index(places[index]) for index in self.target.key]
        parts = [_as(origin.field(place), field.type) for place, field in zip(own, kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=origin.is_null())


def places_of(form: Form, target: Form) -> tuple[int, ...]:
    """Where each column of `target` is in `form`, -1 where it is not: by its number, or by its name where one of them
    does not tell numbers."""
    numbers = {form.number(place): place for place in range(len(form.names)) if form.number(place)}
    names = {name: place for place, name in enumerate(form.names)}
    found = []
    for index, name in enumerate(target.names):
        number, place = target.number(index), names.get(name, -1)
        other = form.number(place) if place >= 0 else 0
        found.append(numbers.get(number, -1) if number and (other or place < 0) else place)
    return tuple(found)


def _renumbered(missing: pa.ChunkedArray, places: Sequence[int]) -> pa.Array:
    """The columns that rows miss, by the numbers that they have in the table."""
    known = {place: index for index, place in enumerate(places) if place >= 0}
    lists = [[known[old] for old in row or () if old in known] or None for row in missing.to_pylist()]
    return pa.array(lists, FIXED[-1].type)


def _as(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Values in the type of the table's column, which has room for all of them."""
    return values if values.type.equals(kind) else values.cast(kind)


def _is_own(name: str) -> bool:
    return name[0] == "c" and name[1:].isdigit()


@dataclass(frozen=True, slots=True)
class Reducing:
    """Leaves the last row of each key of all rows of a partition, with values that it misses from those before it."""

    target: Form

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = gathered(batches, self.target)
        if rows.num_rows:
            order = [(name, "ascending") for name in ("position", "ordinal", "part")]
            yield from reduced(rows.sort_by(order).combine_chunks(), self.target).to_batches()


def gathered(batches: Iterator[pa.RecordBatch], target: Form) -> pa.Table:
    """All rows of a partition. Behind a filter Spark calls columns not null that the schema lets be null."""
    schema = row_schema(target)
    return pa.Table.from_batches((batch.cast(schema) for batch in batches), schema).combine_chunks()


def reduced(rows: pa.Table, target: Form) -> pa.Table:
    """The last row of each key, of rows in order."""
    keys = [rows[f"c{index}"].combine_chunks() for index in target.key]
    group = groups([comparable(key) for key in keys])
    previous = before(group)
    lists = rows["missing"].to_pylist() if rows["missing"].null_count < rows.num_rows else None
    left = lasts(group)
    if lists is None:
        return rows.take(pa.array(left))
    origins = rows["origin"].to_pylist() if rows["origin"].null_count < rows.num_rows else None
    if origins is not None:
        link(rows, keys, origins, previous)
    deleted = np.array([op == "d" for op in rows["op"].to_pylist()])
    misses: Flags = np.zeros((len(target.names), rows.num_rows), np.bool_)
    for row, missed in enumerate(lists):
        misses[missed or [], row] = True
    columns: dict[str, pa.Array] = {name: rows[name].take(pa.array(left)) for name in rows.schema.names}
    unknown = np.zeros((len(target.names), len(left)), np.bool_)
    for index in np.flatnonzero(misses.any(axis=1)).tolist():
        found = sources(previous, ~misses[index] & ~deleted)[left]
        unknown[index] = (found == NONE) & ~deleted[left]
        values = rows[f"c{index}"].combine_chunks()
        columns[f"c{index}"] = values.take(pa.array(found, pa.int64(), mask=found == NONE))
    wanted: Flags = np.asarray(unknown.any(axis=0))
    columns["missing"] = pa.array([np.flatnonzero(row).tolist() or None for row in unknown.T], FIXED[-1].type)
    first = roots(previous)[left]
    columns["origin"] = _origins(rows, keys, origins, (left, first, wanted & (group[first] != group[left])), wanted)
    return pa.table([columns[name] for name in rows.schema.names], schema=rows.schema)


def comparable(values: pa.Array) -> pa.Array:
    """A column of the key as one whose values can be told apart in one pass."""
    return pa.array([repr(value) for value in values.to_pylist()]) if pa.types.is_nested(values.type) else values


def link(rows: pa.Table, keys: Sequence[pa.Array], origins: Sequence[Any], previous: Int64s) -> None:
    """Lead each row that had another key before its block to the last row of that key before the block."""
    known: dict[tuple[str, ...], list[int]] = {}
    shown = list(zip(*(key.to_pylist() for key in keys), strict=True))
    for row, key in enumerate(shown):
        known.setdefault(tuple(map(repr, key)), []).append(row)
    since = rows["since"].to_pylist()
    at = list(zip(rows["position"].to_pylist(), rows["ordinal"].to_pylist(), strict=True))
    for row, origin in enumerate(origins):
        if origin is not None:
            earlier = known.get(tuple(map(repr, origin.values())), [])
            found = [other for other in earlier if place_text(at[other]) < since[row]]
            previous[row] = found[-1] if found else NONE


def _origins(
    rows: pa.Table,
    keys: Sequence[pa.Array],
    origins: Sequence[Any] | None,
    places: tuple[Int64s, Int64s, Flags],
    wanted: Flags,
) -> pa.Array:
    """The keys that rows with missing values had before all blocks, where they were others."""
    left, first, moved = places
    found: list[dict[str, Any] | None] = []
    for row, root, other, misses in zip(left.tolist(), first.tolist(), moved.tolist(), wanted.tolist(), strict=True):
        earlier = None if origins is None else origins[root]
        if not misses:
            found.append(None)
        elif earlier is not None:
            found.append(earlier)
        else:
            old = {f"k{place}": key[root].as_py() for place, key in enumerate(keys)}
            found.append(old if other and root != row else None)
    return pa.array(found, rows.schema.field("origin").type)
