"""Versions of rows for the mode `history`: their ends, and the SQL that adds a batch's versions to the table.

A row is a version from its change until the next change of its key. Tasks add to each row of a batch the place where
its version ends within the batch. The table's open version of a key ends at the key's first change in the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.blocks import BlockForm
from tailrace.columns.reduction import NONE, Flags, Int64s, before, flagged, groups, listed, roots
from tailrace.sinks.tables.rows import former, gathered, link, missed, row_schema
from tailrace.sinks.tables.statements import UNKNOWN, Clause, Merge, literal, quoted, told_apart, type_of
from tailrace.values.arrow import with_numbers

_UNTIL = (
    pa.field("to_position", pa.string()),
    pa.field("to_ordinal", pa.int64()),
    pa.field("to_at", pa.timestamp("us", tz="UTC")),
    pa.field("opens", pa.bool_()),
)

_ALIKE = pa.list_(pa.field("element", pa.int32()))
_HASHES = pa.list_(pa.field("element", pa.int64()))

VALIDITY = (
    ("__valid_from", "string"),
    ("__valid_from_ordinal", "bigint"),
    ("__valid_from_at", "timestamp"),
    ("__valid_to", "string"),
    ("__valid_to_ordinal", "bigint"),
    ("__valid_to_at", "timestamp"),
)
"""The columns of a version besides the columns of its row. The last three are null for the current version."""


def version_schema(target: BlockForm) -> pa.Schema:
    """Return the schema of rows with their ends."""
    return pa.schema([*row_schema(target), *_UNTIL])


@dataclass(frozen=True, slots=True)
class VersionEnds:
    """A function that adds its end to each row of a partition. Worker.

    The partition has every change of its keys and every truncate. The rows are those of `news`, with `alike` and
    `hashes` as the last columns.
    """

    target: BlockForm

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        alike: list[pa.Array] = []
        hashes: list[pa.Array] = []

        def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
            *_, own, other = batch.columns
            alike.append(own.cast(_ALIKE))
            hashes.append(other.cast(_HASHES))
            return batch.select(range(batch.num_columns - 2))

        rows = gathered(map(plain, batches), self.target)
        if rows.num_rows:
            order = [(name, "ascending") for name in ("position", "ordinal", "part")]
            places = pc.sort_indices(rows, sort_keys=order)
            known = VersionColumns(pa.concat_arrays(alike).take(places), pa.concat_arrays(hashes).take(places))
            yield from lasting(rows.take(places).combine_chunks(), self.target, known).to_batches()


@dataclass(frozen=True, slots=True)
class VersionColumns:
    """The columns that `news` adds to compare rows with the table's open versions."""

    alike: pa.Array
    hashes: pa.Array


def lasting(rows: pa.Table, target: BlockForm, known: VersionColumns) -> pa.Table:
    """Return rows with their ends and with missing values from earlier rows. The rows must be in log order.

    Snapshot rows that equal the version before are left out. `opens` is true for the first row of a key, where the
    table's open version ends. A value that is still missing is in the table's version of the key in `origin`.
    """
    keys, previous = _chained(rows, target)
    columns, linked = _filled(rows, keys, previous, target)
    filled = pa.table(columns, schema=rows.schema)
    repeated = _repeated(filled, (previous, linked), target, known)
    if repeated.any():
        filled = filled.filter(pa.array(~repeated)).combine_chunks()
        _, previous = _chained(filled, target)
    return _ended(filled, previous, target)


def _chained(rows: pa.Table, target: BlockForm) -> tuple[list[pa.Array], Int64s]:
    """Return the key's columns, and for each row the index of the previous row of its key."""
    keys = [rows[f"c{index}"].combine_chunks() for index in target.key]
    group = groups(keys)
    # A truncate belongs to no key.
    truncates = np.flatnonzero(_emptying(rows))
    group[truncates] = NONE - 1 - np.arange(len(truncates))
    return keys, before(group)


def _emptying(rows: pa.Table) -> Flags:
    return np.asarray(pc.equal(rows["op"].combine_chunks(), "t"))


def _repeated(rows: pa.Table, chains: tuple[Int64s, Int64s], target: BlockForm, known: VersionColumns) -> Flags:
    """Return a mask of snapshot rows that equal the row before them, in the batch or else in the table.

    `chains` holds two indexes for each row: of the previous row with the same key, and of the previous version of the
    same source row, which may have another key.
    """
    previous, linked = chains
    count = rows.num_rows
    ops = rows["op"].combine_chunks()
    reads = np.flatnonzero(np.asarray(pc.equal(ops, "r")))
    found: Flags = np.zeros(count, np.bool_)
    if not len(reads):
        return found
    emptied = np.searchsorted(np.flatnonzero(_emptying(rows)), np.arange(count))
    earlier = previous[reads]
    first = earlier == NONE
    # Rows with a truncate between them are different rows.
    same = np.where(first, emptied[reads] == 0, emptied[reads] == emptied[earlier])
    same &= first | ~np.asarray(pc.equal(ops, "d"))[earlier]
    places, others = pa.array(reads), pa.array(np.where(first, 0, earlier))
    table = flagged(known.alike.take(places), len(target.names))
    unknown = flagged(rows["missing"].combine_chunks().take(others), len(target.names))
    # A value that no row of the batch has is the table's value under the key that the row had before the batch.
    sides = known.hashes.take(places), known.hashes.take(pa.array(roots(linked)).take(others))
    for index in range(len(target.names)):
        values = rows[f"c{index}"].combine_chunks()
        equal = _alike(values.take(places), values.take(others))
        if unknown[index].any():
            same_hashes = pc.fill_null(pc.equal(*(pc.list_element(side, index) for side in sides)), False)
            equal = np.where(unknown[index], np.asarray(same_hashes), equal)
        same &= np.where(first, table[index], equal)
    found[reads] = same
    return found


def _alike(values: pa.Array, others: pa.Array) -> Flags:
    """Return a mask of equal values: null equals null, NaN equals NaN, and 0 differs from -0."""
    if pa.types.is_floating(values.type):
        bits = pa.int32() if values.type.bit_width == 32 else pa.int64()
        nan = pa.scalar(float("nan"), values.type)
        values, others = (pc.if_else(pc.is_nan(side), nan, side).view(bits) for side in (values, others))
    if pa.types.is_nested(values.type):
        # Dates are compared as numbers, since Python has no years before 1 or after 9999.
        values, others = (side.cast(with_numbers(side.type)) for side in (values, others))
        pairs = zip(values.to_pylist(), others.to_pylist(), strict=True)
        return np.array([value == other for value, other in pairs], np.bool_)
    equal = pc.coalesce(pc.equal(values, others), pc.and_(values.is_null(), others.is_null()))
    found: Flags = np.asarray(equal)
    return found


def _ended(rows: pa.Table, previous: Int64s, target: BlockForm) -> pa.Table:
    """Return the rows with the end of each, and `opens`."""
    count = rows.num_rows
    emptying = _emptying(rows)
    truncates = np.flatnonzero(emptying)
    following = np.full(count, count, np.int64)
    known = previous != NONE
    following[previous[known]] = np.flatnonzero(known)
    # A row ends at the first truncate after it if that precedes the next change of the key.
    after = np.searchsorted(truncates, np.arange(count), side="right")
    emptied = np.append(truncates, count)[after]
    until = np.minimum(following, emptied)
    earlier = np.searchsorted(truncates, np.arange(count)) > 0
    opens = ~known & ~earlier & ~emptying
    ends = pa.array(until, mask=until == count)
    own = {"to_position": "position", "to_ordinal": "ordinal", "to_at": "at"}
    columns = [rows[name] for name in rows.schema.names]
    columns += [rows[name].combine_chunks().take(ends) for name in own.values()]
    return pa.table([*columns, pa.array(opens)], schema=version_schema(target))


def _filled(
    rows: pa.Table, keys: list[pa.Array], previous: Int64s, target: BlockForm
) -> tuple[dict[str, pa.Array], Int64s]:
    """Return the columns with missing values filled from earlier rows, and the index of each row's previous version."""
    columns = {name: rows[name].combine_chunks() for name in rows.schema.names}
    if columns["missing"].null_count == rows.num_rows:
        return columns, previous
    origins = columns["origin"]
    linked = previous.copy()
    link(rows, keys, origins, linked)
    # If a row moved to another key and back, another row may have had its key meanwhile. The row's own previous version
    # is the delete of its old key, which stands directly before it.
    same = [np.asarray(pc.equal(columns[name][1:], columns[name][:-1])) for name in ("position", "ordinal")]
    moved = np.flatnonzero(same[0] & same[1] & (columns["part"].to_numpy()[1:] == 1)) + 1
    linked[moved] = moved - 1
    _, unknown, found = missed(rows, target, linked)
    for index, places in found.items():
        columns[f"c{index}"] = columns[f"c{index}"].take(pa.array(places, pa.int64(), mask=places == NONE))
    columns["missing"] = listed(unknown)
    columns["origin"] = former(keys, origins, roots(linked), np.asarray(unknown.any(axis=0)))
    return columns, linked


def _joined(form: BlockForm, own: bool, side: str) -> str:
    sides = (f"s.c{index}" if own else f"s.origin.k{place}" for place, index in enumerate(form.key))
    return " and ".join(
        f"{side}.{quoted(form.names[index])} = {other}" for index, other in zip(form.key, sides, strict=True)
    )


def news(table: str, form: BlockForm, view: str) -> str:
    """Return the query for the rows of `view` that are newer than the table's open versions.

    A second snapshot may have written newer versions. The query adds two columns. `alike`: for a snapshot row, the
    columns that equal the table's open version. `hashes`: for a snapshot row, hashes of its values; for a row that
    misses values or ends a key, hashes of the open version's values.
    """
    first = quoted(form.names[form.key[0]])
    kinds = [type_of(kind) for kind in form.types]
    given = [told_apart(f"s.c{place}", kind) for place, kind in enumerate(kinds)]
    held = [told_apart(f"p.{quoted(name)}", kind) for name, kind in zip(form.names, kinds, strict=True)]
    equal = (
        " and ".join(f"{p} <=> {s}" for p, s in zip(*parts, strict=True)) for parts in zip(held, given, strict=True)
    )
    same = ", ".join(f"if({one}, {place}, null)" for place, one in enumerate(equal))
    hashed = [f"array({', '.join('xxhash64(' + ', '.join(parts) + ')' for parts in side)})" for side in (given, held)]
    ends = f"p.{first} is not null and (s.missing is not null or s.op = 'd')"
    hashes = f"if(s.op = 'r', {hashed[0]}, if({ends}, {hashed[1]}, null))"
    alike = f"if(s.op = 'r' and p.{first} is not null, array_compact(array({same})), null)"
    older = "(s.position < p.__valid_from or (s.position = p.__valid_from and s.ordinal <= p.__valid_from_ordinal))"
    return (
        f"select s.*, {alike} alike, {hashes} hashes from {view} s "
        f"left join {table} p on p.__valid_to is null and {_joined(form, True, 'p')} "
        f"where p.{first} is null or not {older}"
    )


def changes(table: str, form: BlockForm, view: str, unknown: str) -> str:
    """Return the query that turns rows of `version_schema` into rows of the MERGE: new versions, and ends of open ones.

    A row that is both a new version and an end appears twice, with a single read of the view. An end needs only the
    key.
    """
    named = (
        f"s.c{place}" if place in form.key else f"if(k.kind = 'version', {_value(form, place, unknown)}, null) c{place}"
        for place in range(len(form.names))
    )
    kinds = "if(s.op in ('d', 't'), null, 'version'), if(s.opens, 'end', null)"
    return (
        f"select k.kind, s.position, s.ordinal, s.at, s.to_position, s.to_ordinal, s.to_at, {', '.join(named)} "
        f"from {view} s left join {table} o on o.__valid_to is null and {_joined(form, False, 'o')} "
        f"lateral view explode(array_compact(array({kinds}))) k as kind"
    )


def _value(form: BlockForm, place: int, unknown: str) -> str:
    name = quoted(form.names[place])
    message = literal(f'{UNKNOWN} "{form.names[place]}"')
    other = "null" if unknown == "null" else f"cast(raise_error({message}) as {type_of(form.types[place])})"
    known = f"o.{quoted(form.names[form.key[0]])} is not null"
    return f"if(array_contains(s.missing, {place}), if({known}, o.{name}, {other}), s.c{place})"


def merge(form: BlockForm, view: str, truncate: tuple[str, int, int] | None) -> Merge:
    """Return the merge that adds versions. `truncate` is the first truncate's position, ordinal and time in µs."""
    ended = ("__valid_to", "__valid_to_ordinal", "__valid_to_at")
    own = ("s.position", "s.ordinal", "s.at", "s.to_position", "s.to_ordinal", "s.to_at")
    values = {name: f"s.c{place}" for place, name in enumerate(form.names)}
    values |= {name: value for (name, _), value in zip(VALIDITY, own, strict=True)}
    beyond = None
    if truncate is not None:
        position, ordinal, micros = truncate
        end = (literal(position), str(ordinal), f"timestamp_micros({micros})")
        beyond = Clause("t.__valid_to is null", dict(zip(ended, end, strict=True)))
    return Merge(
        view,
        f"s.kind = 'end' and t.__valid_to is null and {_joined(form, True, 't')}",
        (Clause("", dict(zip(ended, own[:3], strict=True))),),
        Clause("s.kind = 'version'", values),
        beyond,
    )
