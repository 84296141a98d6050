"""Values as JSON: columns of them, one piece for each value, by compiled kernels. Worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import BYTES, FLOAT, STRING
from tailrace.formats.arrow import shown, untyped
from tailrace.kernels.buffers import Bytes, ExceedsArrow, Offsets, move, readonly, text_buffers, valid_flags
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import KINDS, RECORD, Fragment, Programs
from tailrace.values.binaries import put_base64
from tailrace.values.conversion import ColumnPlan
from tailrace.values.decimals import fixed
from tailrace.values.doubles import put_double
from tailrace.values.floats import floating
from tailrace.values.fragments import column_fragment, integers_fragment, strings_fragment, text_fragment
from tailrace.values.json_text import dumps, quoted
from tailrace.values.strings import text
from tailrace.values.texts import Int

# --- kernels ----------------------------------------------------------------------------------------------------------

_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _COMMA = 34, 92, 91, 93, 44
_NULL = np.frombuffer(b"null", np.uint8).copy()
_NAN = np.frombuffer(b'"NaN"', np.uint8).copy()
_MORE = np.frombuffer(b'"Infinity"', np.uint8).copy()
_LESS = np.frombuffer(b'"-Infinity"', np.uint8).copy()
Flags = npt.NDArray[np.bool_]


@kernel
def escape(data: Bytes, bounds: Offsets, out: Bytes, offsets: Offsets) -> None:
    """Write texts without control characters as within a JSON string; `out` has room for twice their bytes."""
    at = 0
    for row in range(len(bounds) - 1):
        for position in range(bounds[row], bounds[row + 1]):
            byte = data[position]
            if byte in (_QUOTE, _BACKSLASH):
                out[at] = _BACKSLASH
                at += 1
            out[at] = byte
            at += 1
        offsets[row + 1] = at


@kernel(leaf=True)
def _put_null(out: Bytes, at: Int) -> Int:
    for byte in range(4):
        out[at + byte] = _NULL[byte]
    return at + 4


@kernel
def doubles(values: npt.NDArray[np.float64], valid: Flags, out: Bytes, offsets: Offsets) -> None:
    """Write doubles as Java does, NaN and infinities as texts. Each takes at most 32 bytes."""
    at: Int = 0
    for row in range(len(values)):
        value = values[row]
        if not valid[row]:
            at = _put_null(out, at)
        elif np.isfinite(value):
            at = put_double(value, out, at)
        else:
            word = _NAN if np.isnan(value) else _LESS if value < 0 else _MORE
            for byte in range(len(word)):
                out[at + byte] = word[byte]
            at += len(word)
        offsets[row + 1] = at


@kernel
def binaries(data: Bytes, bounds: Offsets, valid: Flags, out: Bytes, offsets: Offsets) -> None:
    """Write bytes as base64 in quotes."""
    at: Int = 0
    for row in range(len(bounds) - 1):
        if valid[row]:
            begin, end = bounds[row], bounds[row + 1]
            out[at] = _QUOTE
            at = put_base64(data[begin:end], end - begin, 0, out, at + 1)
            out[at] = _QUOTE
            at += 1
        else:
            at = _put_null(out, at)
        offsets[row + 1] = at


@kernel
def lists(
    data: Bytes, items: Offsets, bounds: Offsets, quoted: bool, valid: Flags, out: Bytes, offsets: Offsets
) -> None:
    """Write lists of values that are JSON: list r has the items bounds[r] to bounds[r + 1].

    With `quoted`, each item still needs its quotes.
    """
    at: Int = 0
    target, source = out.ctypes.data, data.ctypes.data
    for row in range(len(bounds) - 1):
        if not valid[row]:
            at = _put_null(out, at)
        else:
            out[at] = _OPEN
            at += 1
            for item in range(bounds[row], bounds[row + 1]):
                if item > bounds[row]:
                    out[at] = _COMMA
                    at += 1
                if quoted:
                    out[at] = _QUOTE
                    at += 1
                begin, end = items[item], items[item + 1]
                move(target + at, source + begin, end - begin)
                at += end - begin
                if quoted:
                    out[at] = _QUOTE
                    at += 1
            out[at] = _CLOSE
            at += 1
        offsets[row + 1] = at


# --- columns ----------------------------------------------------------------------------------------------------------


_TEXTS = ColumnPlan(0, "", "", STRING, text(), b"null", b"null")
_MOST_PLACES = 6
_MOST_BYTES = 2**31 - 1
_SINGLES = ColumnPlan(0, "", "", FLOAT, floating(single=True), b"null", b"null")


def values_fragment(values: pa.Array) -> Fragment:
    """Return a column's values as JSON: dates, times and durations as numbers, instants as ISO text."""
    if pa.types.is_temporal(values.type):
        values = untyped(values)
    if pa.types.is_integer(values.type):
        if values.null_count:
            return text_fragment(pc.fill_null(values.cast(pa.string()), "null"))
        whole = values if pa.types.is_int64(values.type) else values.cast(pa.int64())
        return integers_fragment(whole.to_numpy())
    if pa.types.is_string(values.type):
        return column_fragment(_TEXTS, values, None)[0]
    if pa.types.is_boolean(values.type):
        return text_fragment(pc.fill_null(values.cast(pa.string()), "null"))
    if pa.types.is_float64(values.type):
        return _doubles(values)
    if pa.types.is_list(values.type):
        return _lists(values)
    if pa.types.is_struct(values.type):
        return _structs(values)
    if pa.types.is_binary(values.type):
        return _binaries(values)
    if pa.types.is_floating(values.type):
        return column_fragment(_SINGLES, values.cast(pa.string()), None)[0]
    # with more places, Arrow writes small numbers with an exponent
    if pa.types.is_decimal(values.type) and 0 <= values.type.scale <= _MOST_PLACES:
        numbers = ColumnPlan(0, "", "", BYTES, fixed(values.type.scale, values.type.precision), b"null", b"null")
        return column_fragment(numbers, values.cast(pa.string()), None)[0]
    # as Kafka Connect's converter has maps: of texts as objects, of other keys as pairs
    found = values.to_pylist(maps_as_pydicts="strict" if _has_texts(values.type) else None)
    return strings_fragment([dumps(shown(value)).encode() for value in found])


def _has_texts(kind: pa.DataType) -> bool:
    """Return True if the keys of all maps in a type are texts."""
    if pa.types.is_map(kind):
        return pa.types.is_string(kind.key_type) and _has_texts(kind.item_type)
    return all(_has_texts(kind.field(place).type) for place in range(kind.num_fields))


def _doubles(values: pa.Array) -> Fragment:
    numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    out, offsets = np.empty(32 * len(values) + 1, np.uint8), np.zeros(len(values) + 1, np.int32)
    doubles(readonly(np.ascontiguousarray(numbers)), _valid(values), out, offsets)
    return Fragment(readonly(out), readonly(offsets))


def _binaries(values: pa.Array) -> Fragment:
    """Return bytes as base64."""
    data, bounds = text_buffers(values)
    room = 4 * (int(bounds[-1] - bounds[0]) // 3) + 8 * len(values) + 8
    out, offsets = np.empty(room, np.uint8), np.zeros(len(values) + 1, np.int32)
    binaries(data, bounds, _valid(values), out, offsets)
    return Fragment(readonly(out), readonly(offsets))


def _lists(values: pa.Array) -> Fragment:
    """Return lists, whose elements are written as one column."""
    items = values_fragment(values.flatten())
    counts = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    bounds = np.zeros(len(values) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    room = int(items.offsets[-1] - items.offsets[0]) + 3 * int(bounds[-1]) + 4 * len(values) + 1
    if room > _MOST_BYTES:
        raise ExceedsArrow("The lists of one column in one block exceed 2 GiB as JSON.")
    out, offsets = np.empty(room, np.uint8), np.zeros(len(values) + 1, np.int32)
    lists(items.data, items.offsets, bounds, items.quoted, _valid(values), out, offsets)
    return Fragment(readonly(out), readonly(offsets))


def _structs(values: pa.Array) -> Fragment:
    """Return structs, assembled from the columns of their parts."""
    programs = Programs()
    programs.begin()
    separator = "{"
    for part, column in zip(values.type, values.flatten(), strict=True):
        programs.literal(f"{separator}{quoted(part.name)}:".encode())
        programs.fragment(values_fragment(column), RECORD)
        separator = ","
    programs.literal(b"}" if values.type.num_fields else b"{}")
    programs.end()
    null = programs.begin()
    programs.literal(b"null")
    programs.end()
    index = np.zeros((KINDS, len(values)), np.int32)
    index[RECORD] = np.arange(len(values))
    program = np.where(_valid(values), 0, null).astype(np.uint16)
    return Fragment(*programs.run(program, index))


def _valid(values: pa.Array) -> npt.NDArray[np.bool_]:
    flags = valid_flags(values)
    return np.ones(len(values), np.bool_) if flags is None else np.ascontiguousarray(flags)


def inner_fragment(values: pa.Array) -> Fragment:
    """Return the values as within a JSON string. Texts have no control characters."""
    if not pa.types.is_string(values.type):
        return values_fragment(values)
    data, bounds = text_buffers(values if not values.null_count else pc.fill_null(values, "null"))
    out = np.empty(2 * int(bounds[-1] - bounds[0]) + 1, np.uint8)
    offsets = np.zeros(len(values) + 1, np.int32)
    escape(data, bounds, out, offsets)
    return Fragment(readonly(out), readonly(offsets))


def spread(values: pa.Array, rows: np.ndarray[Any, Any], count: int) -> pa.Array:
    """Return the values as a column of `count` rows: at `rows`, in their order, and null elsewhere."""
    if len(rows) == count:
        return values
    place = np.full(count, -1, np.int32)
    place[rows] = np.arange(len(rows))
    return values.take(pa.array(place, mask=place < 0))
