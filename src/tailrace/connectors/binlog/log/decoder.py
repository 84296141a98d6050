"""The fast decoder: rows of the log into Arrow columns of text, without a Python object per row. Worker.

A first kernel locates each value, and then the kernel of its kind writes each column. Python writes few kinds, a value
at a time: texts in multi-byte character sets, differences of JSON, compressed columns, addresses. Tests compare this
decoder with `plain_rows`, which also raises the error for a row that a kernel refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import batch as columns
from tailrace.columns.batch import Bytes, Flags, Int32s, Int64s
from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.binlog.log import document_kernels, row_kernels, value_kernels
from tailrace.connectors.binlog.log.forms import BinlogTable, ColumnForm, RowForm, ValueKind
from tailrace.connectors.binlog.log.json_documents import updated_text
from tailrace.connectors.binlog.log.plain_rows import parse_row
from tailrace.connectors.binlog.log.plain_values import value_text
from tailrace.connectors.binlog.log.position import BinlogBatch, MixedSegment, RowsEventForm, Segment
from tailrace.connectors.binlog.log.row_kernels import LACKING, NO_IMAGE, NULL, SegmentImages, TableGroup, ValuePlaces
from tailrace.connectors.binlog.schema.texts import PLAIN, table_of
from tailrace.errors import DecodeError
from tailrace.kernels.buffers import readonly
from tailrace.log.rows.frames import check_offsets, frozen, pooled
from tailrace.values.texts import Int

LARGEST = (1 << 31) - 1


@lru_cache(maxsize=256)
def shapes(form: RowForm, images: tuple[RowsEventForm, ...]) -> SegmentImages:
    width = len(form)

    def flags(sides: list[bytes]) -> Bytes:
        # a run has images of other tables too
        same = b"".join(side if len(side) == width else bytes(width) for side in sides)
        return frozen(np.frombuffer(same, np.uint8), np.uint8)

    has = [bool(one.before) + 2 * bool(one.after) + 4 * one.is_partial for one in images]
    return SegmentImages(
        flags([one.before for one in images]),
        flags([one.after for one in images]),
        frozen(np.array(has, np.uint8), np.uint8),
        frozen(np.array([one.width for one in form], np.int32), np.int32),
        frozen(np.array([one.kind is ValueKind.JSON for one in form], np.uint8), np.uint8),
    )


def located(
    data: Bytes, offsets: columns.Int64s, form: RowForm, image: Int32s, images: tuple[RowsEventForm, ...]
) -> ValuePlaces:
    """Return the places of the values of rows; row i is `data[offsets[i]:offsets[i + 1]]`. Raises DecodeError."""
    data, offsets, image = frozen(data, np.uint8), frozen(offsets, np.int64), frozen(image, np.int32)
    if len(data) > LARGEST:
        raise DecodeError("A row of the log has more than 2 GiB.")
    rows, width = len(image), len(form)
    check_offsets(data, offsets, rows)
    of = shapes(form, images)
    used = int(np.bitwise_or.reduce(of.has[np.unique(image)], initial=0)) if rows else 0
    old = np.empty((2, width * rows if used & 1 else 0), np.int32)
    new = np.empty((2, width * rows if used & 2 else 0), np.int32)
    differences = np.zeros(width * rows if used & 4 else 0, np.uint8)
    places = ValuePlaces(old[0], old[1], new[0], new[1], differences)
    good = row_kernels.locate(data, offsets, image, of, places)
    if good < rows:
        message = data[offsets[good] : offsets[good + 1]].tobytes()
        parse_row(message, form, images[image[good]])
        raise DecodeError("A row of the log is not understood.", int(offsets[good]))
    return places


def decode(segment: Segment) -> BinlogBatch:
    """Return the segment's changes as columns. Raises DecodeError at the first row that is not understood."""
    table, by_row, rows = segment.table, segment.by_row, len(segment)
    assert isinstance(table, BinlogTable)
    data = frozen(segment.data, np.uint8)
    batch = _without_images(segment, table)
    batch.superseded = segment.superseded
    places = located(data, segment.offsets, table.form, by_row.image, by_row.images)
    if len(places.old_lengths):
        batch.before = _image(table, data, places.old_starts, places.old_lengths, rows, None)
    if len(places.lengths):
        starts, lengths = places.starts, places.lengths
        ends = np.array([one.ends for one in by_row.images], np.bool_)[by_row.image]
        if ends.any():
            lengths = np.where(np.tile(ends, len(table.form)), NO_IMAGE, lengths).astype(np.int32)
        if len(places.old_lengths) and (lengths == LACKING).any():
            # a value that the after image lacks has not changed
            kept = (lengths == LACKING) & (places.old_lengths != NO_IMAGE)
            starts, lengths = np.where(kept, places.old_starts, starts), np.where(kept, places.old_lengths, lengths)
        batch.after = _image(table, data, starts, lengths, rows, places if len(places.differences) else None)
    return batch


def _without_images(segment: Segment | MixedSegment, table: TableSchema) -> BinlogBatch:
    by_row = segment.by_row
    return BinlogBatch(
        table=table,
        op=np.array([one.op for one in by_row.images], np.uint8)[by_row.image],
        lsn=by_row.pos,
        transaction=by_row.transaction,
        ordinal=by_row.ordinal,
        transactions=segment.transactions,
        before=None,
        after=None,
        serial=pa.array(by_row.row, pa.int32()),
        query=_statements(segment),
    )


def _statements(segment: Segment | MixedSegment) -> pa.Array | None:
    by_row = segment.by_row
    if not by_row.statements:
        return None
    known = pa.array([one.decode("utf-8", "replace") for one in by_row.statements], pa.string())
    return known.take(pa.array(by_row.statement, mask=by_row.statement < 0))


def _image(
    table: BinlogTable, data: Bytes, starts: Int32s, lengths: Int32s, rows: int, partial: ValuePlaces | None
) -> columns.Image:
    width = len(table.form)
    present: Flags | None = lengths[:rows] != NO_IMAGE if width else None
    found: list[pa.Array] = []
    unavailable: list[Flags | None] = []
    for place, form in enumerate(table.form):
        part = slice(place * rows, (place + 1) * rows)
        begins, sizes = starts[part], lengths[part]
        is_lacking = sizes == LACKING
        unavailable.append(is_lacking if is_lacking.any() else None)
        try:
            if partial is not None and form.kind is ValueKind.JSON and partial.differences[part].any():
                found.append(_updated(data, begins, sizes, partial, part))
            else:
                found.append(texts(form, data, begins, sizes))
        except DecodeError as error:
            name = table.columns[place].name
            raise DecodeError(f"{error.message} It is of the column {name}.", error.offset) from None
    return columns.Image(None if present is None or present.all() else present, found, unavailable)


def _updated(data: Bytes, starts: Int32s, lengths: Int32s, places: ValuePlaces, part: slice) -> pa.Array:
    """Return the new documents of a column, some of which are logged as differences from the old document of the
    row."""
    form = ColumnForm(ValueKind.JSON, -4)
    found = texts(form, data, starts, np.where(places.differences[part] == 1, NULL, lengths).astype(np.int32))
    values = found.to_pylist()
    for row in np.flatnonzero(places.differences[part]):
        if lengths[row] < 0:
            continue
        old_start, old_length = int(places.old_starts[part][row]), int(places.old_lengths[part][row])
        if old_length < 0:
            raise DecodeError("A JSON value is logged as a difference to a value that the row does not have.")
        before = data[old_start : old_start + old_length].tobytes()
        differences = data[int(starts[row]) : int(starts[row]) + int(lengths[row])].tobytes()
        values[int(row)] = updated_text(before, differences).encode()
    return pa.array(values, pa.binary())


# --- rows of several tables -------------------------------------------------------------------------------------------


def decode_together(segment: MixedSegment, places: Int32s, bounds: Int64s, width: int) -> BinlogBatch | None:
    """Return the changes of several tables as a batch of one table, as `RowLog.decode_together` does.

    Returns None if a row is wrong, or is not logged as plain images. Raises DecodeError.
    """
    by_row, rows = segment.by_row, len(segment)
    tables = [table for table in segment.tables if isinstance(table, BinlogTable)]
    used = [by_row.images[place] for place in np.unique(by_row.image).tolist()]
    if any(one.is_partial or one.ends or not (one.before or one.after) for one in used):
        return None
    data, offsets = frozen(segment.data, np.uint8), frozen(segment.offsets, np.int64)
    check_offsets(data, offsets, rows)
    if int(offsets[-1]) > LARGEST:
        return None
    has = [bool(one.before) + 2 * bool(one.after) for one in by_row.images]
    sizes = [max(len(one.before), len(one.after)) for one in by_row.images]
    widths = [form.width for table in tables for form in table.form]
    of = TableGroup(
        frozen(bounds, np.int64), frozen(places, np.int32), frozen(np.array(widths, np.int32), np.int32),
        frozen(np.cumsum([0, *sizes]), np.int64),
        frozen(_flags([one.before for one in by_row.images], sizes), np.uint8),
        frozen(_flags([one.after for one in by_row.images], sizes), np.uint8),
        frozen(np.array(has, np.uint8), np.uint8), rows,
    )  # fmt: skip
    parts = of.has[by_row.image]
    kinds = int(np.bitwise_or.reduce(parts, initial=0))
    found = ValuePlaces(
        np.empty(width * rows if kinds & 1 else 0, np.int32), np.full(width * rows if kinds & 1 else 0, NULL, np.int32),
        np.empty(width * rows if kinds & 2 else 0, np.int32), np.full(width * rows if kinds & 2 else 0, NULL, np.int32),
        np.zeros(0, np.uint8),
    )  # fmt: skip
    number, image = frozen(segment.table, np.int32), frozen(by_row.image, np.int32)
    if row_kernels.locate_together(data, offsets, number, image, of, found) < rows:
        return None
    batch = _without_images(segment, _table(width))
    forms = _forms_at(tables, bounds, places, width)
    if kinds & 1:
        batch.before = _images(forms, data, found.old_starts, found.old_lengths, number, parts & 1 != 0)
    if kinds & 2:
        starts, lengths = found.starts, found.lengths
        if kinds & 1 and (lengths == LACKING).any():
            # a value that the after image lacks has not changed
            kept = (lengths == LACKING) & np.tile(parts & 1 != 0, width)
            starts, lengths = np.where(kept, found.old_starts, starts), np.where(kept, found.old_lengths, lengths)
        batch.after = _images(forms, data, starts, lengths, number, parts & 2 != 0)
    return batch


@lru_cache(maxsize=64)
def _table(width: int) -> TableSchema:
    """Return a table of `width` columns without names."""
    return TableSchema(TableId("", "", ""), (Column("", "", 0),) * width, ())


def _flags(sides: list[bytes], sizes: list[int]) -> Bytes:
    """Return the flags of the images of one side, one after another; zeros for an image without this side."""
    return np.frombuffer(b"".join(side.ljust(size, b"\0") for side, size in zip(sides, sizes, strict=True)), np.uint8)


def _forms_at(
    tables: list[BinlogTable], bounds: Int64s, places: Int32s, width: int
) -> list[dict[ColumnForm, list[int]]]:
    """Return, for each place, the forms of the columns at this place, with the numbers of their tables."""
    found: list[dict[ColumnForm, list[int]]] = [{} for _ in range(width)]
    for number, table in enumerate(tables):
        at = places[bounds[number] : bounds[number + 1]].tolist()
        for place, form in zip(at, table.form, strict=True):
            if place >= 0:
                found[place].setdefault(form, []).append(number)
    return found


def _images(
    forms: list[dict[ColumnForm, list[int]]], data: Bytes, starts: Int32s, lengths: Int32s, table: Int32s, has: Flags
) -> columns.Image:
    rows = len(table)
    found: list[pa.Array] = []
    unavailable: list[Flags | None] = []
    for place, known in enumerate(forms):
        part = slice(place * rows, (place + 1) * rows)
        begins, sizes = starts[part], lengths[part]
        is_lacking = sizes == LACKING
        unavailable.append(is_lacking if is_lacking.any() else None)
        if len(known) < 2:
            found += [texts(form, data, begins, sizes) for form in known] or [pa.nulls(rows, pa.binary())]
            continue
        of = [np.where(np.isin(table, numbers), sizes, NULL).astype(np.int32) for numbers in known.values()]
        found.append(pc.coalesce(*(texts(form, data, begins, one) for form, one in zip(known, of, strict=True))))
    return columns.Image(None if has.all() else has, found, unavailable)


# --- a column's values as text ----------------------------------------------------------------------------------------


def texts(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s) -> pa.Array:
    """Return a column's values as texts: a `binary` array, null where there is no value. Raises DecodeError."""
    rows = len(lengths)
    values, size = value_kernels.sizes_of(lengths)
    if not values:
        return pa.nulls(rows, pa.binary())
    starts, lengths = frozen(starts, np.int32), frozen(lengths, np.int32)
    if form.kind in (ValueKind.FLOAT, ValueKind.FLOAT_AS_DOUBLE, ValueKind.DOUBLE):
        return _floats(form, data, starts, lengths)
    writing = _WRITING.get(form.kind)
    found = None if writing is None else writing(form, data, starts, lengths, size, values)
    return _plainly(form, data, starts, lengths) if found is None else found


def _plainly(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s) -> pa.Array:
    """Return a column's values, decoded in Python."""
    raw = data.data
    found = [
        None if length < 0 else value_text(form, bytes(raw[start : start + length]))
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    return pa.array(found, pa.binary())


def _validity(lengths: Int32s) -> pa.Buffer | None:
    known = lengths >= 0
    return None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))


def _written(
    form: ColumnForm,
    data: Bytes,
    starts: Int32s,
    lengths: Int32s,
    room: int,
    write: Callable[[Bytes, Int32s], Int],
) -> pa.Array:
    """Return the texts that `write` puts into `room` bytes. Raises DecodeError for a value that it refuses."""
    if room > LARGEST:
        raise DecodeError("The values of a column have more than 2 GiB in a batch. Set max.batch.size.in.bytes lower.")
    rows = len(lengths)
    out = pooled(room)
    offsets = np.zeros(rows + 1, np.int32)
    good = int(write(out, offsets))
    if good < rows:
        start, length = int(starts[good]), int(lengths[good])
        value_text(form, data[start : start + length].tobytes())
        raise DecodeError(f"A value of the log is no {form.kind.name}.", start)
    buffers = [_validity(lengths), pa.py_buffer(readonly(offsets)), pa.py_buffer(out[: int(offsets[-1])])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


_Writing = Callable[[ColumnForm, Bytes, Int32s, Int32s, int, int], "pa.Array | None"]


def _integers(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int) -> pa.Array:
    longest = {1: 4, 2: 6, 3: 8, 4: 11, 8: 20}[form.width]
    return _written(
        form, data, starts, lengths, values * longest,
        lambda out, offsets: value_kernels.integers(data, starts, lengths, form.meta, out, offsets),
    )  # fmt: skip


def _decimals(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int) -> pa.Array:
    precision, scale = form.meta >> 8, form.meta & 255
    if values and scale > precision:
        raise DecodeError("A table map of the log has a decimal with more digits behind its point than in all.")
    return _written(
        form, data, starts, lengths, values * (precision + 12),
        lambda out, offsets: value_kernels.decimals(data, starts, lengths, precision, scale, out, offsets),
    )  # fmt: skip


def _years(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int) -> pa.Array:
    return _written(
        form, data, starts, lengths, values * 4,
        lambda out, offsets: value_kernels.years(data, starts, lengths, out, offsets),
    )  # fmt: skip


def _dates(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int) -> pa.Array:
    return _written(
        form, data, starts, lengths, values * 10,
        lambda out, offsets: value_kernels.dates(data, starts, lengths, out, offsets),
    )  # fmt: skip


def _times(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int) -> pa.Array:
    return _written(
        form, data, starts, lengths, values * 20,
        lambda out, offsets: value_kernels.times(data, starts, lengths, form.meta, out, offsets),
    )  # fmt: skip


def _datetimes(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int) -> pa.Array:
    return _written(
        form, data, starts, lengths, values * 30,
        lambda out, offsets: value_kernels.datetimes(data, starts, lengths, form.meta, out, offsets),
    )  # fmt: skip


def _timestamps(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int) -> pa.Array:
    old = int(form.kind is ValueKind.OLD_TIMESTAMP)
    return _written(
        form, data, starts, lengths, values * 30,
        lambda out, offsets: value_kernels.timestamps(data, starts, lengths, form.meta, old, out, offsets),
    )  # fmt: skip


def _texts(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int) -> pa.Array | None:
    if form.charset in PLAIN:
        found = _written(
            form, data, starts, lengths, size,
            lambda out, offsets: value_kernels.texts(data, starts, lengths, out, offsets),
        )  # fmt: skip
        try:
            found.cast(pa.string())
        except pa.ArrowInvalid:
            # raises an error that names the text and the reason
            return _plainly(form, data, starts, lengths)
        return found
    known = table_of(form.charset)
    if known is None:
        return None
    codes, sizes = known
    return _written(
        form, data, starts, lengths, size * int(sizes.max()),
        lambda out, offsets: value_kernels.mapped_texts(data, starts, lengths, codes, sizes, out, offsets),
    )  # fmt: skip


def _bytes(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int) -> pa.Array:
    room = values * (2 + 2 * form.meta) + 2 * size
    return _written(
        form, data, starts, lengths, room,
        lambda out, offsets: value_kernels.hexadecimals(data, starts, lengths, form.meta, out, offsets),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _known_labels(labels: tuple[str, ...]) -> tuple[Bytes, Int32s]:
    encoded = [one.encode() for one in labels]
    known = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
    return frozen(known, np.uint8), frozen(np.cumsum([0, *map(len, encoded)]), np.int32)


def _labels(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int) -> pa.Array:
    known, bounds = _known_labels(form.labels)
    is_set = form.kind is ValueKind.LABELS
    longest = int(bounds[-1]) + len(bounds) if is_set else int(np.diff(bounds).max(initial=0))
    write = value_kernels.label_sets if is_set else value_kernels.labels
    return _written(
        form, data, starts, lengths, values * longest,
        lambda out, offsets: write(data, starts, lengths, known, bounds, out, offsets),
    )  # fmt: skip


def _uuids(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int) -> pa.Array:
    return _written(
        form, data, starts, lengths, values * 36,
        lambda out, offsets: value_kernels.uuids(data, starts, lengths, out, offsets),
    )  # fmt: skip


def _documents(
    form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s, size: int, values: int
) -> pa.Array | None:
    room = document_kernels.LONGEST * size + 8 * values
    if room > LARGEST:
        return None
    rows = len(lengths)
    out, offsets, left = pooled(room), np.zeros(rows + 1, np.int32), np.zeros(rows, np.bool_)
    document_kernels.documents(data, starts, lengths, out, offsets, left)
    buffers = [_validity(lengths), pa.py_buffer(readonly(offsets)), pa.py_buffer(out[: int(offsets[-1])])]
    found = pa.Array.from_buffers(pa.binary(), rows, buffers)
    try:
        found.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    if not left.any():
        return found
    rest = np.where(left, lengths, NULL).astype(np.int32)
    return pc.if_else(pa.array(left), _plainly(form, data, starts, rest), found)


def _floats(form: ColumnForm, data: Bytes, starts: Int32s, lengths: Int32s) -> pa.Array:
    """Return the shortest texts of floating-point numbers."""
    kind: npt.DTypeLike = "<f8" if form.kind is ValueKind.DOUBLE else "<f4"
    out = np.empty(len(lengths) * form.width, np.uint8)
    value_kernels.gathered(data, starts, lengths, form.width, out)
    numbers = out.view(kind)
    if form.kind is ValueKind.FLOAT_AS_DOUBLE:
        numbers = numbers.astype("<f8")
    found = pa.array(numbers, mask=lengths < 0)
    return found.cast(pa.string()).cast(pa.binary())


_WRITING: dict[ValueKind, _Writing] = {
    ValueKind.INTEGER: _integers, ValueKind.DECIMAL: _decimals, ValueKind.YEAR: _years, ValueKind.DATE: _dates,
    ValueKind.TIME: _times,
    ValueKind.DATETIME: _datetimes, ValueKind.TIMESTAMP: _timestamps, ValueKind.OLD_TIMESTAMP: _timestamps,
    ValueKind.TEXT: _texts,
    ValueKind.BITS: _bytes, ValueKind.BYTES: _bytes, ValueKind.LABEL: _labels, ValueKind.LABELS: _labels,
    ValueKind.UUID: _uuids,
    ValueKind.JSON: _documents,
}  # fmt: skip
