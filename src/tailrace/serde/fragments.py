"""From a text column to the JSON of its values: the kernel chosen, its memory laid out, its losses counted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.serde import fine_kernels, kernels, list_kernels, lsn_kernels, number_kernels, time_kernels
from tailrace.serde.assemble import Fragment
from tailrace.serde.conversion import ColumnPlan, Conversion, Elements, Kernel, Prepare
from tailrace.serde.json_text import dumps
from tailrace.serde.memory import Bytes, ExceedsArrow, Offsets, binary_array, readonly, text_buffers, valid_flags

Flags = npt.NDArray[np.bool_]
VARIABLE_SCALE = 10_000
_MAX_ROOM = 2**31 - 1
_ZONED_TIME = 4
# What a point's JSON has beside its two numbers.
_POINT_ROOM = 64
# The time of these kernels grows with the square of a text's length, so long ones are converted plainly.
_QUADRATIC = frozenset((Kernel.DECIMAL, Kernel.VARIABLE_DECIMAL))
_LONG = 2_000
_NO_STATE = readonly(np.zeros(0, np.uint8))
_KERNELS: dict[Kernel, Any] = {
    Kernel.VERBATIM: kernels.verbatim,
    Kernel.STRING: kernels.strings,
    Kernel.BOOLEAN: kernels.booleans,
    Kernel.DECIMAL: number_kernels.decimals,
    Kernel.VARIABLE_DECIMAL: number_kernels.decimals,
    Kernel.DECIMAL_TEXT: number_kernels.decimal_texts,
    Kernel.FLOATING: number_kernels.floats,
    Kernel.DATE: time_kernels.dates,
    Kernel.TIME: time_kernels.times,
    Kernel.TIMESTAMP: time_kernels.timestamps,
    Kernel.ZONED_TIME: time_kernels.times,
    Kernel.ZONED_TIMESTAMP: time_kernels.zoned_timestamps,
    Kernel.BINARY: kernels.binaries,
    Kernel.INTERVAL: time_kernels.intervals,
    Kernel.BITS: kernels.bits,
    Kernel.FINE_TIME: fine_kernels.fine_times,
    Kernel.FINE_TIMESTAMP: fine_kernels.fine_timestamps,
    Kernel.OFFSET_TIMESTAMP: fine_kernels.offset_timestamps,
}
_ARGUMENTS = {Kernel.VARIABLE_DECIMAL: VARIABLE_SCALE, Kernel.ZONED_TIME: _ZONED_TIME}


class _Shown(NamedTuple):
    """The JSON of a column's null, of an unchanged TOAST value and of a text that could not be converted."""

    column: str
    null: bytes
    unavailable: bytes
    lost: bytes


def constant(text: bytes) -> Fragment:
    """A fragment of one value."""
    return strings_fragment([text])


def strings_fragment(texts: list[bytes]) -> Fragment:
    """A fragment of JSON texts. Raises ExceedsArrow beyond 2 GiB."""
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    if len(ends) and int(ends[-1]) > _MAX_ROOM:
        raise ExceedsArrow("The values of a column in one block exceed 2 GiB as JSON.")
    offsets = np.zeros(len(texts) + 1, np.int32)
    offsets[1:] = ends
    return Fragment(readonly(np.frombuffer(b"".join(texts) + b"\0", np.uint8)), readonly(offsets))


def integers_fragment(values: npt.NDArray[np.int64]) -> Fragment:
    """A fragment of int64 values."""
    out = np.empty(len(values) * 20 + 1, np.uint8)
    offsets = np.zeros(len(values) + 1, np.int32)
    kernels.integers(readonly(np.ascontiguousarray(values, np.int64)), out, offsets)
    return Fragment(readonly(out), readonly(offsets))


def text_fragment(texts: pa.Array) -> Fragment:
    """A fragment of JSON texts, an Arrow array without nulls."""
    return Fragment(*text_buffers(texts))


def lsn_texts(column: pa.Array) -> pa.Array:
    """LSNs, a `binary` array of eight bytes or more each, as an array of texts."""
    data, bounds = text_buffers(column)
    state = _state(column, None)
    out = np.empty(2 * (int(bounds[-1]) - int(bounds[0])) + 2 * len(column) + 1, np.uint8)
    offsets = np.zeros(len(column) + 1, np.int32)
    lsn_kernels.lsns(data, bounds, state, out, offsets)
    return binary_array(out, offsets, None if not len(state) else state == 0).view(pa.string())


def json_array(fragment: Fragment) -> pa.Array:
    """The fragment as an Arrow array of text."""
    return pa.Array.from_buffers(
        pa.string(), len(fragment.offsets) - 1, [None, pa.py_buffer(fragment.offsets), pa.py_buffer(fragment.data)]
    )


def column_fragment(plan: ColumnPlan, column: pa.Array, unavailable: Flags | None) -> tuple[Fragment, int]:
    """The JSON of a column's values, and how many of them could not be converted and are shown as null."""
    column, unreadable = _valid_texts(column)
    shown = _Shown(plan.source_name, plan.null, plan.unavailable, plan.null)
    fragment, lost = _fragment(plan.conversion, column, unavailable, shown)
    return fragment, unreadable + lost


def _fragment(
    conversion: Conversion, column: pa.Array, unavailable: Flags | None, shown: _Shown
) -> tuple[Fragment, int]:
    """The JSON of texts by the conversion's kernel, and how many could not be converted."""
    kernel = conversion.kernel
    if kernel is Kernel.PLAIN:
        return _plain_fragment(conversion, column, unavailable, shown)
    state, given = _state(column, unavailable), column
    try:
        if conversion.prepare is not Prepare.NOTHING:
            column = _prepared(conversion.prepare, column)
        data, bounds = text_buffers(column)
        if conversion.elements is not None:
            return _list_fragment(kernel, conversion.elements, data, bounds, state, shown)
    except pa.ArrowInvalid:
        # Among the texts is one that Arrow reads no number from; which one, it does not say.
        return _plain_fragment(conversion, given, unavailable, shown)
    if kernel is Kernel.VERBATIM and not kernels.are_integers(data, bounds, state):
        return _plain_fragment(conversion, given, unavailable, shown)
    if kernel in _QUADRATIC and int(np.diff(bounds).max(initial=0)) > _LONG:
        return _plain_fragment(conversion, given, unavailable, shown)
    begin, end = int(bounds[0]), int(bounds[-1])
    escapes = kernels.count_escapes(data, begin, end) if kernel is Kernel.STRING else 0
    if len(state) == 0 and escapes == 0 and kernel in (Kernel.STRING, Kernel.VERBATIM):
        return Fragment(data, bounds, quoted=kernel is Kernel.STRING), 0
    literals, ends = _literals(shown)
    argument = escapes if kernel is Kernel.STRING else _ARGUMENTS.get(kernel, conversion.argument)
    # Any row may turn out to be unconvertible and then takes a literal.
    room = _room(kernel, argument, len(column), end - begin, escapes) + len(column) * len(literals)
    out, offsets = _output(room, len(column), shown)
    lost = int(_KERNELS[kernel](data, bounds, state, literals, ends, argument, out, offsets))
    return Fragment(readonly(out), readonly(offsets)), lost


def _list_fragment(
    kernel: Kernel, elements: Elements, data: Bytes, bounds: Offsets, state: Bytes, shown: _Shown
) -> tuple[Fragment, int]:
    """The JSON of texts that list elements: these are converted as a column of their own, by their own kernel."""
    rows, begin, end = len(bounds) - 1, int(bounds[0]), int(bounds[-1])
    most = int(list_kernels.most_elements(data, begin, end, ord(elements.delimiter))) + rows
    form = np.array([ord(elements.opening), ord(elements.closing), ord(elements.delimiter), elements.nulls], np.int64)
    items, offsets, present = (
        np.empty(end - begin + 1, np.uint8),
        np.zeros(most + 1, np.int32),
        np.empty(most, np.bool_),
    )
    first, outcome = np.zeros(rows + 1, np.int32), np.zeros(rows, np.uint8)
    list_kernels.split(data, bounds, state, readonly(form), items, offsets, present, first, outcome)
    count = int(first[-1])
    kept = present[:count]
    texts = binary_array(items, offsets[: count + 1], None if kept.all() else kept)
    first, outcome = readonly(first), readonly(outcome)
    literals, ends = _literals(shown)
    if kernel is Kernel.POINT:
        numbers = texts.cast(pa.string()).cast(pa.float64())
        texts = numbers.cast(pa.string())
    inner = constant(b"")
    if count:
        inner, _ = _fragment(elements.conversion, texts, None, _Shown(shown.column, b"null", b"null", b""))
    size = int(inner.offsets[-1]) - int(inner.offsets[0])
    out, ends_of_rows = _output(size + 3 * count + rows * (_POINT_ROOM + len(literals)) + 1, rows, shown)
    if kernel is Kernel.POINT:
        doubles = readonly(np.frombuffer(numbers.buffers()[1], np.uint8))
        lost = list_kernels.points(
            inner.data, inner.offsets, doubles, first, outcome, literals, ends, out, ends_of_rows
        )
    else:
        lost = list_kernels.join(
            inner.data, inner.offsets, inner.quoted, first, outcome, literals, ends, out, ends_of_rows
        )
    return Fragment(readonly(out), readonly(ends_of_rows)), int(lost)


def _state(column: pa.Array, unavailable: Flags | None) -> Bytes:
    """What the kernels take as `state`."""
    valid = valid_flags(column)
    if valid is None and unavailable is None:
        return _NO_STATE
    state = np.zeros(len(column), np.uint8)
    if valid is not None:
        state[~valid] = 1
    if unavailable is not None:
        state[unavailable] = 2
    return readonly(state)


def _output(room: int, rows: int, shown: _Shown) -> tuple[Bytes, Offsets]:
    if room > _MAX_ROOM:
        raise ExceedsArrow(f"The values of column {shown.column} in one block exceed 2 GiB as JSON.")
    return np.empty(room, np.uint8), np.zeros(rows + 1, np.int32)


def _literals(shown: _Shown) -> tuple[Bytes, npt.NDArray[np.int64]]:
    texts = (shown.null, shown.unavailable, shown.lost)
    ends = np.cumsum([0, *map(len, texts)])
    return readonly(np.frombuffer(b"".join(texts) + b"\0", np.uint8)), readonly(ends)


def _room(kernel: Kernel, argument: int, rows: int, size: int, escapes: int) -> int:
    """An upper bound of what a kernel writes for `rows` texts of `size` bytes in all."""
    if kernel is Kernel.STRING:
        return size + 8 * escapes + 2 * rows + 1
    if kernel in (Kernel.DECIMAL, Kernel.VARIABLE_DECIMAL):
        scale = 0 if argument == VARIABLE_SCALE else max(argument, 0)
        return size + rows * (48 + scale) + 1
    return size + 48 * rows + 1


def _valid_texts(column: pa.Array) -> tuple[pa.Array, int]:
    """The column with null for every text that is not UTF-8, and how many of them there were.

    Databases without an encoding send such texts, and servers that do not keep their word.
    """
    data, bounds = text_buffers(column)
    if kernels.is_ascii(data, int(bounds[0]), int(bounds[-1])):
        return column, 0
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        values = column.to_pylist()
        good = [value is None or _is_text(value) for value in values]
        shown = [value if kept else None for value, kept in zip(values, good, strict=True)]
        return pa.array(shown, pa.binary()), len(good) - sum(good)
    return column, 0


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _prepared(prepare: Prepare, column: pa.Array) -> pa.Array:
    """The column as its kernel takes it: the number in a money text, the shortest text of a double."""
    if prepare in (Prepare.MONEY, Prepare.MONEY_DOUBLE):
        text = column.cast(pa.string())
        negative = pc.match_substring_regex(text, r"[-(]")
        number = pc.replace_substring_regex(text, r"[^0-9.]", "")
        text = pc.if_else(negative, pc.binary_join_element_wise("-", number, ""), number)
        if prepare is Prepare.MONEY:
            return text
    else:
        text = column.cast(pa.string())
    return text.cast(pa.float64()).cast(pa.string())


def _plain_fragment(
    conversion: Conversion, column: pa.Array, unavailable: Flags | None, shown: _Shown
) -> tuple[Fragment, int]:
    """The conversion of rare types, value by value; equal texts are converted once."""
    known: dict[bytes, bytes | None] = {}
    parts: list[bytes] = []
    lost = 0
    for row, value in enumerate(column.to_pylist()):
        if unavailable is not None and unavailable[row]:
            parts.append(shown.unavailable)
        elif value is None:
            parts.append(shown.null)
        else:
            if value in known:
                converted = known[value]
            else:
                converted = _converted(conversion, value, shown.null)
                if len(known) < 100_000:
                    known[value] = converted
            lost += converted is None
            parts.append(shown.lost if converted is None else converted)
    return strings_fragment(parts), lost


def plain_json(plan: ColumnPlan, text: bytes) -> bytes | None:
    """The JSON of one value by the plain conversion; None when it cannot be converted."""
    return _converted(plan.conversion, text, plan.null)


def _converted(conversion: Conversion, text: bytes, null: bytes) -> bytes | None:
    try:
        value = conversion.plain(text.decode())
    except (ValueError, KeyError, IndexError, ArithmeticError):
        return None
    return null if value is None else dumps(value).encode()
