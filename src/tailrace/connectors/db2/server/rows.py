"""Conversion of rows of IBM's driver to columns of text, in the forms of `connectors/changetables/dialect.py`.

`selected` returns the SQL expression of a column, `texts` converts the driver's values of this expression. Both Db2 and
Derby support all expressions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.table import Column
from tailrace.connectors.changetables.dialect import AFTER, BEFORE, DELETE, INSERT, ChangeRows
from tailrace.connectors.db2.server.connection import Row
from tailrace.connectors.db2.values.declaration import BYTES, DECIMALS, INTEGERS, TIMESTAMPS, precision_and_scale
from tailrace.errors import ConversionError, PrerequisiteError

_DAY_S = 86_400
_CODES = np.zeros(256, np.uint8)
_CODES[[ord("I"), ord("D"), ord("U")]] = [INSERT, DELETE, AFTER]


def selected(column: Column, name: str) -> str:
    """Return the expression that selects `column`; `name` is its quoted name.

    A TIMESTAMP's text is the same on all servers except for separators (Db2: SQL reference, "String representations of
    datetime values"), while the driver would cut it to microseconds. A TIME is selected in seconds: its text depends on
    how the driver's packages are bound, and it may be 24:00:00, which Python's time cannot represent.
    """
    if column.type_name in TIMESTAMPS:
        return f"CAST({name} AS VARCHAR(48))"
    if column.type_name == "TIME":
        return f"HOUR({name}) * 3600 + MINUTE({name}) * 60 + SECOND({name})"
    return name


def texts(column: Column, values: Sequence[Any]) -> pa.Array:
    """Return the text of each of the driver's values of `selected(column, …)`, as a `binary` array.

    Raises ConversionError for a value that the type cannot have, which an unexpected version or setting of the driver
    may cause.
    """
    try:
        return _converted(column, values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, AttributeError, TypeError, ValueError):
        raise ConversionError(
            f"The column {column.name} of the type {column.type_name} has a value that cannot be read as this type.",
            "Check the version of IBM's driver, and driver.* for settings that change the form of values.",
        ) from None


def _converted(column: Column, values: Sequence[Any]) -> pa.Array:
    name = column.type_name
    if name in INTEGERS:
        return pa.array(values, pa.int64()).cast(pa.string()).cast(pa.binary())
    if name in DECIMALS:
        precision, scale = precision_and_scale(column.modifier)
        exact = pa.array(values, pa.string()).cast(pa.decimal128(max(precision, 1), scale))
        return _decimal_texts(exact, precision, scale)
    if name in TIMESTAMPS:
        return _timestamps(pa.array(values, pa.string()), column.modifier)
    if name == "TIME":
        return _times(pa.array(values, pa.int64()))
    if name == "DATE":
        return pa.array(values, pa.date32()).cast(pa.string()).cast(pa.binary())
    if name == "REAL":
        return _floats(pa.array(values, pa.float64()).cast(pa.float32()))
    if name in ("DOUBLE", "FLOAT"):
        return _floats(pa.array(values, pa.float64()))
    if name == "BOOLEAN":
        flags = [None if value is None else _truth(value) for value in values]
        return pa.array(flags, pa.binary())
    if name in BYTES:
        return pa.array([None if v is None else b"\\x" + v.hex().encode() for v in values], pa.binary())
    return pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.binary())


def _decimal_texts(exact: pa.Array, precision: int, scale: int) -> pa.Array:
    """Return plain digits. Arrow writes small values with an exponent, so these are formatted here."""
    text = exact.cast(pa.string())
    if scale < 6 or not pc.any(pc.match_substring(text, "E"), min_count=0).as_py():
        return text.cast(pa.binary())
    return pa.array([None if v is None else format(v, f".{scale}f").encode() for v in exact.to_pylist()], pa.binary())


def _floats(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.string()).cast(pa.binary())


def _truth(value: Any) -> bytes:
    if isinstance(value, str):
        value = {"1": True, "0": False, "true": True, "false": False}[value.lower()]
    return b"t" if value else b"f"


def _times(seconds: pa.Array) -> pa.Array:
    """Return `13:58:28`, and `24:00:00` for the end of the day, which Db2 distinguishes from midnight."""
    end = pc.equal(seconds, _DAY_S)
    within = pc.if_else(end, 0, seconds).cast(pa.int32()).cast(pa.time32("s")).cast(pa.string())
    return pc.if_else(end, "24:00:00", within).cast(pa.binary())


def _timestamps(given: pa.Array, digits: int) -> pa.Array:
    """Return `2019-05-27 13:58:28.123456`, with the declared number of digits, for any separators of the server.

    A time zone follows as ` +02:00`; Db2 for z/OS writes it directly after the digits.
    """
    length = pc.utf8_length(given)
    zoned = pc.fill_null(pc.match_substring_regex(given, r"[+-]\d\d:\d\d$"), False)
    zone = pc.if_else(zoned, pc.binary_join_element_wise(" ", pc.utf8_slice_codeunits(given, -6), ""), "")
    body = given
    if pc.any(zoned, min_count=0).as_py():
        body = pc.if_else(zoned, pc.utf8_slice_codeunits(given, 0, -6), given)
        length = pc.utf8_length(body)
    day = pc.utf8_slice_codeunits(body, 0, 10)
    hours = pc.utf8_slice_codeunits(body, 11, 13)
    minutes = pc.utf8_slice_codeunits(body, 14, 16)
    seconds = pc.utf8_slice_codeunits(body, 17, 19)
    if pc.any(pc.less(length, 19), min_count=0).as_py():
        raise ValueError("a timestamp is too short")
    clock = pc.binary_join_element_wise(hours, minutes, seconds, ":")
    if digits:
        fraction = pc.utf8_rpad(pc.utf8_slice_codeunits(body, 20, 20 + digits), digits, "0")
        clock = pc.binary_join_element_wise(clock, fraction, ".")
    text = pc.binary_join_element_wise(pc.binary_join_element_wise(day, clock, " "), zone, "")
    return text.cast(pa.binary())


def parameter(column: Column, text: str) -> Any:
    """Return the driver's parameter for a value of `column` from its text: bytes for types of bytes, else the text."""
    if column.type_name in BYTES:
        return bytes.fromhex(text.removeprefix("\\x"))
    return text


def microseconds(value: dt.datetime, offset_us: int) -> int:
    """Return a time of the server, `offset_us` ahead of UTC, in µs since 1970 UTC."""
    since = value - dt.datetime(1970, 1, 1)
    return since // dt.timedelta(microseconds=1) - offset_us


def columns_of(fetch: list[Row]) -> list[tuple[Any, ...]]:
    """Return rows as columns."""
    return list(zip(*fetch, strict=True))


def change_rows(fetch: list[Row], columns: Sequence[Column], doubled: bool) -> ChangeRows:
    """Return one fetch of a change table. With `doubled` an update becomes a BEFORE and an AFTER row."""
    commit, change, operation, *values = columns_of(fetch)
    codes = _CODES[np.frombuffer("".join(operation).encode("latin-1"), np.uint8)]
    positions, places = pa.array(commit, pa.binary()), pa.array(change, pa.binary())
    if not codes.all():
        raise PrerequisiteError(
            "A change table has a row whose operation is neither I nor U nor D.",
            "Make sure that only the capture program writes into it.",
        )
    afters = [texts(column, one) for column, one in zip(columns, values[-len(columns) :], strict=True)]
    if not doubled:
        return ChangeRows(positions, places, codes, afters)
    befores = [texts(column, one) for column, one in zip(columns, values[: len(columns)], strict=True)]
    update = codes == AFTER
    index = np.repeat(np.arange(len(codes)), 1 + update)
    first = np.zeros(len(index), bool)
    starts = np.cumsum(1 + update) - (1 + update)
    first[starts[update]] = True
    # the first copy of an update's row takes the before images, which follow the after images below
    take = pa.array(index + len(codes) * first)
    made = codes[index]
    made[first] = BEFORE
    plain = pa.array(index)
    return ChangeRows(
        positions.take(plain),
        places.take(plain),
        made,
        [pa.concat_arrays([after, before]).take(take) for after, before in zip(afters, befores, strict=True)],
    )
