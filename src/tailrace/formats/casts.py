"""Casts between Connect's primitive types, a column at a time, with Java's rules for numbers and texts. Worker."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import BOOLEAN, DOUBLE, FLOAT, INT8, INT16, INT32, INT64, STRING, LogicalType
from tailrace.formats.arrow import untyped
from tailrace.records.transform import RefusedRecord, by_distinct
from tailrace.values.binaries import base64_text
from tailrace.values.conversion import ColumnPlan
from tailrace.values.floats import floating
from tailrace.values.fragments import column_fragment, json_array

TYPES: dict[str, LogicalType] = {
    "int8": INT8,
    "int16": INT16,
    "int32": INT32,
    "int64": INT64,
    "float32": FLOAT,
    "float64": DOUBLE,
    "boolean": BOOLEAN,
    "string": STRING,
}
"""The target types, by their words in the options."""

PRIMITIVE = frozenset({"int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes"})
"""Connect's types that can be cast."""

_ARROW = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}
_NUMPY: dict[str, type[np.signedinteger[Any]]] = {
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
}
_WHOLE = r"^[+-]?[0-9]+$"
_FLOATING = r"^[\x00-\x20]*[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)[\x00-\x20]*$"
_DAY_MS = 86_400_000
_DOUBLES = ColumnPlan(0, "", "", DOUBLE, floating(single=False), b"null", b"null")
_SINGLES = ColumnPlan(0, "", "", FLOAT, floating(single=True), b"null", b"null")


def plain(values: pa.Array) -> pa.Array:
    """Return the values in Connect's form: dates, times and durations as numbers, instants with a zone as texts."""
    return untyped(values) if pa.types.is_temporal(values.type) else values


def cast(source: LogicalType, target: LogicalType, field: str, values: pa.Array) -> pa.Array:
    """Cast values of the type `source` to the primitive type `target`. Raises RefusedRecord, naming the field."""
    if target.connect == "string":
        return texts(source, values)
    values = plain(values)
    kind = values.type
    if pa.types.is_string(kind) and source.name == "org.apache.kafka.connect.data.Decimal":
        # a decimal with too many digits for Arrow's decimals is a text
        return by_distinct(partial(_of_decimal, target), _arrow(target), values)
    if pa.types.is_string(kind):
        return _read(target, field, values)
    if pa.types.is_decimal(kind):
        return _of_decimals(target, values)
    if pa.types.is_boolean(kind):
        return values if target.connect == "boolean" else values.cast(pa.int8()).cast(_arrow(target))
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise RefusedRecord(f"Cast cannot make {_word(target)} of the bytes of {field}", _first(values.is_valid()))
    return _of_numbers(target, values)


def _arrow(target: LogicalType) -> pa.DataType:
    return pa.bool_() if target.connect == "boolean" else _ARROW[target.connect]


def _word(target: LogicalType) -> str:
    return next(word for word, kind in TYPES.items() if kind == target)


def _first(flags: pa.Array) -> int:
    return max(int(pc.index(flags, True).as_py()), 0)


def _of_numbers(target: LogicalType, values: pa.Array) -> pa.Array:
    """Cast numbers as Java does: integers lose upper bits; floats lose the fraction and are clipped to int or long."""
    mask = values.is_null().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(values, 0).to_numpy()
    if target.connect == "boolean":
        return pa.array(_whole(numbers, np.int64) != 0, pa.bool_(), mask=mask)
    if target.connect in ("float", "double"):
        with np.errstate(over="ignore"):
            made = numbers.astype(np.float32 if target.connect == "float" else np.float64)
        return pa.array(made, _arrow(target), mask=mask)
    wide = np.int64 if target.connect == "int64" or numbers.dtype.kind != "f" else np.int32
    return pa.array(_whole(numbers, wide).astype(_NUMPY[target.connect]), _arrow(target), mask=mask)


def _whole(numbers: npt.NDArray[Any], kind: type[np.signedinteger[Any]]) -> npt.NDArray[Any]:
    """Return numbers without their fraction, clipped to the range of `kind`; 0 for NaN."""
    if numbers.dtype.kind != "f":
        return numbers.astype(kind)
    ends = np.iinfo(np.dtype(kind))
    doubles = np.trunc(np.nan_to_num(numbers.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    inside = (doubles > float(ends.min)) & (doubles < float(ends.max))
    found = np.where(inside, doubles, 0).astype(kind)
    return np.where(inside, found, np.where(doubles > 0, ends.max, np.where(doubles < 0, ends.min, 0))).astype(kind)


def _of_decimals(target: LogicalType, values: pa.Array) -> pa.Array:
    if target.connect in ("float", "double"):
        # by way of texts, which are read exactly
        return values.cast(pa.string()).cast(_arrow(target))
    try:
        whole = pc.cast(values, options=pc.CastOptions(pa.int64(), allow_decimal_truncate=True))
    except pa.ArrowInvalid:
        return by_distinct(partial(_of_decimal, target), _arrow(target), values)
    return _of_numbers(target, whole)


def _of_decimal(target: LogicalType, value: Any) -> Any:
    """Cast one decimal of any size; for an integer type, keep its lowest bits."""
    number = Decimal(value)
    if target.connect in ("float", "double"):
        return float(number)
    whole = int(number)
    if target.connect == "boolean":
        return whole & ((1 << 64) - 1) != 0
    bits = _ARROW[target.connect].bit_width
    return ((whole + (1 << bits - 1)) & ((1 << bits) - 1)) - (1 << bits - 1)


def _read(target: LogicalType, field: str, values: pa.Array) -> pa.Array:
    """Parse texts as Java does. Raises RefusedRecord for a number beyond the type's range."""
    if target.connect == "boolean":
        return pc.equal(pc.ascii_lower(values), "true")
    floating = target.connect in ("float", "double")
    readable = pc.match_substring_regex(values, _FLOATING if floating else _WHOLE)
    if pc.any(pc.invert(readable)).as_py():
        raise RefusedRecord(f"Cast finds no {_word(target)} in the text of {field}", _first(pc.invert(readable)))
    if floating:
        bare = pc.utf8_rtrim(pc.utf8_trim(values, characters="".join(map(chr, range(33)))), characters="fFdD")
        return pc.utf8_ltrim(bare, characters="+").cast(pa.float64()).cast(_arrow(target), safe=False)
    try:
        return pc.utf8_ltrim(values, characters="+").cast(_arrow(target))
    except pa.ArrowInvalid:
        ends = np.iinfo(_NUMPY[target.connect])
        beyond = (text is not None and not ends.min <= int(text) <= ends.max for text in values.to_pylist())
        row = next(row for row, fault in enumerate(beyond) if fault)
        raise RefusedRecord(f"Cast finds a number beyond {_word(target)} in {field}", row) from None


def texts(source: LogicalType, values: pa.Array) -> pa.Array:
    """Return values as texts: numbers as Java prints them, bytes in base64, Connect's dates and times in ISO form."""
    name = source.name or ""
    if name.startswith("org.apache.kafka.connect.data.") and pa.types.is_temporal(values.type):
        return _iso(values)
    values = plain(values)
    if pa.types.is_string(values.type):
        return values
    if pa.types.is_decimal(values.type):
        return values.cast(pa.string())
    if pa.types.is_binary(values.type):
        return by_distinct(base64_text, pa.string(), values)
    if not pa.types.is_floating(values.type):
        return values.cast(pa.string())
    plan = _SINGLES if pa.types.is_float32(values.type) else _DOUBLES
    shown = pc.utf8_trim(json_array(column_fragment(plan, values.cast(pa.string()), None)[0]), '"')
    return pc.if_else(values.is_valid(), shown, pa.scalar(None, pa.string()))


def _iso(values: pa.Array) -> pa.Array:
    """Format Connect's dates and times: on 1 January 1970 as a time, at midnight as a date, else as date and time."""
    ms = raw_ms(values)
    numbers = pc.fill_null(ms, 0).to_numpy()
    moments = pa.array(numbers, pa.timestamp("ms"))
    day, clock = pc.strftime(moments, "%Y-%m-%d"), pc.strftime(moments, "%H:%M:%S")
    both = pc.binary_join_element_wise(day, pc.binary_join_element_wise(clock, "Z", ""), "T")
    timed = pc.if_else(pa.array(numbers % _DAY_MS == 0), day, both)
    shown = pc.if_else(pa.array(numbers < _DAY_MS), pc.binary_join_element_wise(clock, "Z", ""), timed)
    return pc.if_else(ms.is_valid(), shown, pa.scalar(None, pa.string()))


def raw_ms(values: pa.Array) -> pa.Array:
    """Return dates, times and timestamps in ms since 1970."""
    if pa.types.is_date32(values.type):
        return pc.multiply(values.cast(pa.int32()).cast(pa.int64()), _DAY_MS)
    if pa.types.is_time32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    return values.cast(pa.timestamp("ms")).cast(pa.int64())
