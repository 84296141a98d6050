"""Kernels over the rows of the log: places of rows and values, and hashes of keys. Planner and worker.

They raise no errors: they return the row or event at which they stopped, for which `plain_rows` raises the error.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import Bytes, Flags, Int32s, Int64s
from tailrace.kernels.compiled import kernel
from tailrace.values.texts import Int

UInt64s: TypeAlias = npt.NDArray[np.uint64]
NULL, LACKING, NO_IMAGE = -1, -2, -3
"""Lengths for a null, for a value that the image lacks, and for a row without the image."""

_FNV_BASIS, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX_1, _MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_MIX_SHIFT = np.uint64(33)


class ValuePlaces(NamedTuple):
    """The places of values in rows, column by column.

    `old_starts` and `old_lengths` belong to the old images, `starts` and `lengths` to the new images. `differences` is
    1 for a value that is a difference of JSON.
    """

    old_starts: Int32s
    old_lengths: Int32s
    starts: Int32s
    lengths: Int32s
    differences: Bytes


class SegmentImages(NamedTuple):
    """The images of a segment, as arrays for kernels."""

    before: Bytes
    after: Bytes
    has: Bytes
    widths: Int32s
    is_document: Bytes


@kernel(leaf=True, inlined=True)
def little(data: Bytes, at: Int, size: Int) -> Int:
    """Return the little-endian number in `size` bytes, at most seven."""
    found = np.int64(0)
    for place in range(size):
        found |= np.int64(data[at + place]) << (8 * place)
    return int(found)


@kernel(leaf=True, inlined=True)
def passed(data: Bytes, at: Int, end: Int, widths: Int32s, first: Int, last: Int) -> Int:
    """Return the place after an image's null bits and values; -1 if they go beyond `end`."""
    nulls = at
    at += (last - first + 7) >> 3
    if at > end:
        return -1
    for place in range(last - first):
        if data[nulls + (place >> 3)] >> (place & 7) & 1:
            continue
        width = int(widths[first + place])
        if width < 0:
            if at - width > end:
                return -1
            length = little(data, at, -width)
            at += length - width
        else:
            at += width
        if at > end:
            return -1
    return at


@kernel(leaf=True, inlined=True)
def options_end(data: Bytes, at: Int, end: Int, documents: Int) -> Int:
    """Return the place after the options of a partial update's after image; -1 if they are wrong."""
    if at >= end or data[at] > 250:
        return -1
    size = (documents + 7) >> 3 if data[at] & 1 else 0
    return at + 1 + size if at + 1 + size <= end else -1


@kernel
def cut_rows(
    data: Bytes,
    starts: Int64s,
    ends: Int64s,
    shape: Int32s,
    bounds: Int32s,
    widths: Int32s,
    documents: Int32s,
    offsets: Int64s,
    counts: Int64s,
) -> Int:
    """Split events into messages: the bytes before an event, from the end of the previous one, and then each of its
    rows.

    Event i extends from `starts[i]` to `ends[i]` and has rows of the shape `shape[i]`; if this is negative, it is a
    single message. `widths` has the widths of the columns of shape s: of its first image from `bounds[2 * s]`, of its
    second image from `bounds[2 * s + 1]` on. `documents[s]` is the number of JSON columns in partial updates, -1 in
    other events. Writes the messages' offsets and the number of rows of each event. Returns the number of events before
    the first wrong one.
    """
    message = 0
    for event in range(len(starts)):
        at, end = starts[event], ends[event]
        message += 1
        offsets[message] = at
        number = shape[event]
        if number < 0:
            message += 1
            offsets[message] = end
            counts[event] = 1
            continue
        first, middle, last = bounds[2 * number], bounds[2 * number + 1], bounds[2 * number + 2]
        rows = 0
        while at < end:
            behind = at
            if middle > first:
                behind = passed(data, behind, end, widths, first, middle)
            if behind >= 0 and documents[number] >= 0:
                behind = options_end(data, behind, end, documents[number])
            if behind >= 0 and last > middle:
                behind = passed(data, behind, end, widths, middle, last)
            if behind <= at:
                return event
            at = behind
            rows += 1
            message += 1
            offsets[message] = at
        counts[event] = rows
    return len(starts)


@kernel(leaf=True, inlined=True)
def locate_image(
    data: Bytes,
    at: Int,
    end: Int,
    present: Bytes,
    image: Int,
    widths: Int32s,
    starts: Int32s,
    lengths: Int32s,
    row: Int,
) -> Int:
    """Write the start and the length of each value of an image. Return the place after the image, -1 if it is wrong."""
    columns = len(widths)
    count = 0
    for column in range(columns):
        count += present[image * columns + column]
    nulls = at
    at += (count + 7) >> 3
    if at > end:
        return -1
    rows = len(starts) // columns
    number = 0
    for column in range(columns):
        place = column * rows + row
        if not present[image * columns + column]:
            lengths[place] = LACKING
            continue
        is_null = data[nulls + (number >> 3)] >> (number & 7) & 1
        number += 1
        if is_null:
            lengths[place] = NULL
            continue
        width = widths[column]
        if width < 0:
            if at - width > end:
                return -1
            length = little(data, at, -width)
            at -= width
        else:
            length = np.int64(width)
        if length > end - at:
            return -1
        starts[place] = at
        lengths[place] = length
        at += length
    return at


@kernel
def locate(data: Bytes, offsets: Int64s, image: Int32s, shapes: SegmentImages, places: ValuePlaces) -> int:
    """Locate the values of all rows. Return the number of rows before the first wrong row.

    The arrays of `places` have an element for each column and row, column by column. They are empty for an image that
    no row has, and `differences` is empty if there is no partial update.
    """
    widths, has = shapes.widths, shapes.has
    old_lengths, lengths = places.old_lengths, places.lengths
    columns, rows = len(widths), len(image)
    documents = 0
    for column in range(columns):
        documents += shapes.is_document[column]
    for row in range(rows):
        at, end = offsets[row], offsets[row + 1]
        of = image[row]
        if has[of] == 0:
            # a truncate, which has no row
            at = end
        if has[of] & 1:
            at = locate_image(data, at, end, shapes.before, of, widths, places.old_starts, old_lengths, row)
            if at < 0:
                return row
        elif len(old_lengths):
            for column in range(columns):
                old_lengths[column * rows + row] = NO_IMAGE
        if has[of] & 4:
            behind = options_end(data, at, end, documents)
            if behind < 0:
                return row
            if data[at] & 1:
                number = 0
                for column in range(columns):
                    if shapes.is_document[column]:
                        place = column * rows + row
                        places.differences[place] = data[at + 1 + (number >> 3)] >> (number & 7) & 1
                        number += 1
            at = behind
        if has[of] & 2:
            at = locate_image(data, at, end, shapes.after, of, widths, places.starts, lengths, row)
            if at < 0:
                return row
        elif len(lengths):
            for column in range(columns):
                lengths[column * rows + row] = NO_IMAGE
        if at != end:
            return row
    return rows


class TableGroup(NamedTuple):
    """The images and columns of several tables, for `locate_together`.

    The columns of table n begin at `bounds[n]`. `places` has the place of each column in the result, -1 for a column
    that is not read. `before` and `after` have the flags of all images; image i has `firsts[i]` to `firsts[i + 1]`.
    `rows` is the number of rows.
    """

    bounds: Int64s
    places: Int32s
    widths: Int32s
    firsts: Int64s
    before: Bytes
    after: Bytes
    has: Bytes
    rows: int


@kernel(leaf=True, inlined=True)
def spread_image(
    data: Bytes,
    at: Int,
    end: Int,
    present: Bytes,
    of: TableGroup,
    table: Int,
    image: Int,
    starts: Int32s,
    lengths: Int32s,
    row: Int,
) -> Int:
    """Write the starts and lengths of an image's values. Return the place after the image, -1 if it is wrong."""
    first, flags, rows = of.bounds[table], of.firsts[image], of.rows
    columns = of.bounds[table + 1] - first
    count = 0
    for column in range(columns):
        count += present[flags + column]
    nulls = at
    at += (count + 7) >> 3
    if at > end:
        return -1
    number = 0
    for column in range(columns):
        to = np.int64(of.places[first + column])
        if not present[flags + column]:
            if to >= 0:
                lengths[to * rows + row] = LACKING
            continue
        is_null = data[nulls + (number >> 3)] >> (number & 7) & 1
        number += 1
        if is_null:
            continue
        width = of.widths[first + column]
        if width < 0:
            if at - width > end:
                return -1
            length = little(data, at, -width)
            at -= width
        else:
            length = np.int64(width)
        if length > end - at:
            return -1
        if to >= 0:
            starts[to * rows + row] = at
            lengths[to * rows + row] = length
        at += length
    return at


@kernel
def locate_together(
    data: Bytes, offsets: Int64s, table: Int32s, image: Int32s, of: TableGroup, places: ValuePlaces
) -> int:
    """Locate the values of rows of several tables. Return the number of rows before the first wrong row.

    The arrays of `places` have an element for each place of the columns and each row, place by place. Their lengths
    must be NULL at the call, and no row may be a partial update.
    """
    rows = of.rows
    for row in range(rows):
        at, end = offsets[row], offsets[row + 1]
        number, kind = table[row], image[row]
        if of.firsts[kind + 1] - of.firsts[kind] != of.bounds[number + 1] - of.bounds[number]:
            return row
        if of.has[kind] & 1:
            old_starts, old_lengths = places.old_starts, places.old_lengths
            at = spread_image(data, at, end, of.before, of, number, kind, old_starts, old_lengths, row)
        if at >= 0 and of.has[kind] & 2:
            at = spread_image(data, at, end, of.after, of, number, kind, places.starts, places.lengths, row)
        if at != end:
            return row
    return rows


@kernel
def hash_keys(data: Bytes, keys: Int32s, rows: int, places: ValuePlaces, hashes: UInt64s, moved: Flags) -> None:
    """Write a hash of each row's key. Set `moved` for rows that move to another key, or lack a part of it."""
    old_starts, old_lengths = places.old_starts, places.old_lengths
    starts, lengths = places.starts, places.lengths
    has_old, has_new = len(old_lengths) > 0, len(lengths) > 0
    for row in range(rows):
        is_new = has_new and lengths[keys[0] * rows + row] != NO_IMAGE
        is_old = has_old and old_lengths[keys[0] * rows + row] != NO_IMAGE
        hashed = _FNV_BASIS
        for key in keys:
            place: Int = key * rows + row
            start: Int = np.int64(0)
            length: Int = np.int64(LACKING)
            if is_new:
                start, length = np.int64(starts[place]), np.int64(lengths[place])
            if length == LACKING and is_old:
                start, length = np.int64(old_starts[place]), np.int64(old_lengths[place])
            if length == LACKING:
                moved[row] = True
            if is_new and is_old:
                old_start, old_length = np.int64(old_starts[place]), np.int64(old_lengths[place])
                if old_length == LACKING or old_length != length:
                    moved[row] = True
                else:
                    for byte in range(max(length, 0)):
                        if data[start + byte] != data[old_start + byte]:
                            moved[row] = True
                            break
            hashed = (hashed ^ np.uint64(length)) * _FNV_PRIME
            for byte in range(start, start + max(length, 0)):
                hashed = (hashed ^ np.uint64(data[byte])) * _FNV_PRIME
        hashed = (hashed ^ (hashed >> _MIX_SHIFT)) * _MIX_1
        hashed = (hashed ^ (hashed >> _MIX_SHIFT)) * _MIX_2
        hashes[row] = hashed ^ (hashed >> _MIX_SHIFT)


@kernel
def compare_images(data: Bytes, compared: Int32s, rows: int, places: ValuePlaces, same: Flags) -> None:
    """Set `same` for the rows in which no compared column changes. A value that the new image lacks has not changed."""
    old_starts, old_lengths = places.old_starts, places.old_lengths
    starts, lengths, differences = places.starts, places.lengths, places.differences
    for row in range(rows):
        unchanged = True
        for column in compared:
            place = column * rows + row
            length, old_length = lengths[place], old_lengths[place]
            if length == LACKING:
                continue
            if length != old_length or (len(differences) > 0 and differences[place]):
                unchanged = False
                break
            start, old_start = np.int64(starts[place]), np.int64(old_starts[place])
            for byte in range(max(length, 0)):
                if data[start + byte] != data[old_start + byte]:
                    unchanged = False
                    break
            if not unchanged:
                break
        same[row] = unchanged
