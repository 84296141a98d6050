"""Helpers of the binary encodings: which leaves they write from Arrow arrays, and how. Worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.assembly.programs import Fragment
from tailrace.buffers import Bytes, readonly
from tailrace.columns.logical import LogicalType
from tailrace.values.fragments import json_array

WHOLE = ("int8", "int16", "int32", "int64")
_MOST_KNOWN = 100_000


def _six_bits() -> Bytes:
    table = np.zeros(256, np.uint8)
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    table[list(letters)] = np.arange(64)
    return readonly(table)


SIX_BITS = _six_bits()
"""The six bits of each letter of base64."""


def takes_arrow(schema: LogicalType, of: pa.DataType) -> bool:
    """Return True if arrays of type `of` hold the schema's values as events show them and kernels can write them."""
    if schema.connect in WHOLE:
        return not pa.types.is_time(of)
    if schema.connect == "string":
        return bool(pa.types.is_string(of))
    if schema.connect == "bytes":
        return bool(pa.types.is_binary(of))
    return schema.connect in ("boolean", "float", "double")


def whole_numbers(values: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of integers, dates, times, timestamps and durations; arbitrary numbers for nulls."""
    width = values.type.bit_width
    if not pa.types.is_integer(values.type):
        values = values.view(pa.int32() if width == 32 else pa.int64())
    kind: Any = np.dtype(f"int{width}")
    found = np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values)]
    return found if width == 64 else found.astype(np.int64)


WIDTHS = {"boolean": 1, "float": 4, "double": 8}
"""Bytes per value in the result of `number_bytes`."""


def number_bytes(values: pa.Array, schema: LogicalType) -> Bytes:
    """Return the bytes of floating point numbers and booleans; NaN has Java's bytes."""
    if schema.connect == "boolean":
        return np.ascontiguousarray(values.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False))
    kind: Any = "<f4" if schema.connect == "float" else "<f8"
    found = values.cast(pa.float32() if schema.connect == "float" else pa.float64())
    numbers = np.array(found.fill_null(0).to_numpy(zero_copy_only=False), kind)
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint8)


def is_plain(written: Fragment) -> bool:
    """Return True if nothing in the texts is escaped."""
    first, last = int(written.offsets[0]), int(written.offsets[-1])
    return not (written.data[first:last] == ord("\\")).any()


def one_by_one(written: Fragment, write: Callable[[Any], bytes]) -> Fragment:
    """Return the pieces of values that are JSON, encoded one at a time by `write`; equal values are written once."""
    quote = '"' if written.quoted else ""
    known: dict[str, bytes] = {}
    parts: list[bytes] = []
    for text in json_array(written).to_pylist():
        found = known.get(text)
        if found is None:
            found = write(json.loads(f"{quote}{text}{quote}"))
            if len(known) < _MOST_KNOWN:
                known[text] = found
        parts.append(found)
    return joined(parts)


def joined(parts: list[bytes]) -> Fragment:
    """Return pieces one after another as a fragment."""
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    data = np.frombuffer(b"".join(parts) or b"\0", np.uint8)
    return Fragment(data, readonly(offsets))
