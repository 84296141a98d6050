"""From a text column to the JSON of its values: the kernel chosen, its memory laid out, its losses counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import ConversionError
from tailrace.serde import kernels, number_kernels, time_kernels
from tailrace.serde.assemble import Fragment
from tailrace.serde.conversion import ColumnPlan, Kernel, Prepare
from tailrace.serde.json_text import dumps
from tailrace.serde.memory import Bytes, readonly, text_buffers, valid_flags

Flags = npt.NDArray[np.bool_]
VARIABLE_SCALE = 10_000
_MAX_ROOM = 2**31 - 1
_ZONED_TIME = 4
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
}
_ARGUMENTS = {Kernel.VARIABLE_DECIMAL: VARIABLE_SCALE, Kernel.ZONED_TIME: _ZONED_TIME}


def constant(text: bytes) -> Fragment:
    """A fragment of one value."""
    return strings_fragment([text])


def strings_fragment(texts: list[bytes]) -> Fragment:
    """A fragment of JSON texts."""
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return Fragment(readonly(np.frombuffer(b"".join(texts) + b"\0", np.uint8)), readonly(offsets))


def integers_fragment(values: npt.NDArray[np.int64]) -> Fragment:
    """A fragment of int64 values."""
    out = np.empty(len(values) * 20 + 1, np.uint8)
    offsets = np.zeros(len(values) + 1, np.int32)
    kernels.integers(readonly(np.ascontiguousarray(values, np.int64)), out, offsets)
    return Fragment(readonly(out), readonly(offsets))


def json_array(fragment: Fragment) -> pa.Array:
    """The fragment as an Arrow array of text."""
    return pa.Array.from_buffers(
        pa.string(), len(fragment.offsets) - 1, [None, pa.py_buffer(fragment.offsets), pa.py_buffer(fragment.data)]
    )


def column_fragment(plan: ColumnPlan, column: pa.Array, unavailable: Flags | None) -> tuple[Fragment, int]:
    """The JSON of a column's values, and how many of them could not be converted and are shown as null."""
    lost = 0
    if plan.conversion.prepare is not Prepare.NOTHING:
        column, lost = _prepared(plan.conversion.prepare, column)
    valid = valid_flags(column)
    if plan.conversion.kernel is Kernel.PLAIN:
        fragment, failed = _plain_fragment(plan, column, unavailable)
        return fragment, failed
    data, bounds = text_buffers(column)
    begin, end = int(bounds[0]), int(bounds[-1])
    state = _NO_STATE
    if valid is not None or unavailable is not None:
        state = np.zeros(len(column), np.uint8)
        if valid is not None:
            state[~valid] = 1
        if unavailable is not None:
            state[unavailable] = 2
        state = readonly(state)
    kernel = plan.conversion.kernel
    escapes = kernels.count_escapes(data, begin, end) if kernel is Kernel.STRING else 0
    if len(state) == 0 and escapes == 0 and kernel in (Kernel.STRING, Kernel.VERBATIM):
        return Fragment(data, bounds, quoted=kernel is Kernel.STRING), lost
    literals, ends = _literals(plan)
    argument = _ARGUMENTS.get(kernel, plan.conversion.argument)
    # Any row may turn out to be unconvertible and then takes the first literal.
    room = _room(kernel, argument, len(column), end - begin, escapes) + len(column) * len(literals)
    if room > _MAX_ROOM:
        raise ConversionError(f"The values of column {plan.source_name} in one block exceed 2 GiB as JSON.")
    out = np.empty(room, np.uint8)
    offsets = np.zeros(len(column) + 1, np.int32)
    failed = int(_KERNELS[kernel](data, bounds, state, literals, ends, argument, out, offsets))
    return Fragment(readonly(out), readonly(offsets)), lost + failed


def _literals(plan: ColumnPlan) -> tuple[Bytes, npt.NDArray[np.int64]]:
    texts = (plan.null, plan.unavailable)
    ends = np.array([0, len(texts[0]), len(texts[0]) + len(texts[1])], np.int64)
    return readonly(np.frombuffer(b"".join(texts), np.uint8)), readonly(ends)


def _room(kernel: Kernel, argument: int, rows: int, size: int, escapes: int) -> int:
    """An upper bound of what a kernel writes for `rows` texts of `size` bytes in all."""
    if kernel is Kernel.STRING:
        return size + 8 * escapes + 2 * rows + 1
    if kernel in (Kernel.DECIMAL, Kernel.VARIABLE_DECIMAL):
        scale = 0 if argument == VARIABLE_SCALE else max(argument, 0)
        return size + rows * (48 + scale) + 1
    return size + 48 * rows + 1


def _prepared(prepare: Prepare, column: pa.Array) -> tuple[pa.Array, int]:
    """The column as its kernel takes it: the number in a money text, the shortest text of a double."""
    if prepare in (Prepare.MONEY, Prepare.MONEY_DOUBLE):
        text = column.cast(pa.string())
        negative = pc.match_substring_regex(text, r"[-(]")
        number = pc.replace_substring_regex(text, r"[^0-9.]", "")
        text = pc.if_else(negative, pc.binary_join_element_wise("-", number, ""), number)
        if prepare is Prepare.MONEY:
            return text, 0
    else:
        text = column.cast(pa.string())
    return text.cast(pa.float64()).cast(pa.string()), 0


def _plain_fragment(plan: ColumnPlan, column: pa.Array, unavailable: Flags | None) -> tuple[Fragment, int]:
    """The conversion of rare types, value by value; equal texts are converted once."""
    known: dict[bytes, bytes] = {}
    parts: list[bytes] = []
    lost = 0
    for row, value in enumerate(column.to_pylist()):
        if unavailable is not None and unavailable[row]:
            parts.append(plan.unavailable)
        elif value is None:
            parts.append(plan.null)
        else:
            converted = known.get(value)
            if converted is None:
                converted = plain_json(plan, value)
                if converted is None:
                    lost += 1
                    converted = plan.null
                elif len(known) < 100_000:
                    known[value] = converted
            parts.append(converted)
    return strings_fragment(parts), lost


def plain_json(plan: ColumnPlan, text: bytes) -> bytes | None:
    """The JSON of one value by the plain conversion; None when it cannot be converted."""
    try:
        value = plan.conversion.plain(text.decode("utf-8", "replace"))
    except (ValueError, KeyError, IndexError, ArithmeticError):
        return None
    return plan.null if value is None else dumps(value).encode()
