"""Numbers, bits and booleans as the server prints them. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.values import binaries, booleans, floats, integers
from tailrace.values.booleans import Booleans, bits_type
from tailrace.values.conversion import Conversion
from tailrace.values.doubles import double_text
from tailrace.values.floats import DOUBLES
from tailrace.values.json_text import Verbatim
from tailrace.values.preparation import PreparedFamily

_LIMIT = 1 << 63


def whole(text: str) -> Verbatim:
    """Return an integer, without the leading zeros of ZEROFILL."""
    return integers.number(str(int(text)))


def integer(bits: int) -> Conversion:
    return replace(integers.integer(bits), plain=whole)


def wrapped(text: str) -> Verbatim:
    """Return an unsigned number as the int64 with the same bits, as in Java."""
    number = int(text)
    if not 0 <= number < 2 * _LIMIT:
        raise ValueError("not an unsigned number")
    return Verbatim(str(number if number < _LIMIT else number - 2 * _LIMIT))


def _wrapped(column: pa.Array) -> pa.Array:
    numbers = column.cast(pa.string()).cast(pa.uint64())
    return numbers.view(pa.int64()).cast(pa.string())


def wrapping() -> Conversion:
    """Return the conversion of BIGINT UNSIGNED to int64: values of 2⁶³ and more become negative."""
    known = integers.integer(64)
    return replace(known, plain=wrapped, family=PreparedFamily(_wrapped, known.family))


def truth(text: str) -> bool:
    """Return a number as a boolean: all numbers except zero are true."""
    return int(text) != 0


def _truths(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(column.cast(pa.string()).cast(pa.int64()), 0), "f", "t")


def number_as_boolean() -> Conversion:
    """Return the conversion of BOOL: all numbers except zero are true."""
    known = booleans.boolean_type()
    return replace(known, plain=truth, family=PreparedFamily(_truths, Booleans()))


def positive(text: str) -> bool:
    return int(text) > 0


def _positives(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater(column.cast(pa.string()).cast(pa.int64()), 0), "t", "f")


def positive_as_boolean() -> Conversion:
    """Return the conversion of TinyIntOneToBooleanConverter: negative numbers and zero are false."""
    known = booleans.boolean_type()
    return replace(known, plain=positive, family=PreparedFamily(_positives, Booleans()))


def one_or_zero(text: str) -> int:
    return int(int(text) > 0)


def _ones(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater(column.cast(pa.string()).cast(pa.int64()), 0), "1", "0")


def positive_as_number() -> Conversion:
    """Return the conversion of JdbcSinkDataTypesConverter's booleans, int16 of 0 and 1."""
    known = integers.integer(16)
    return replace(known, plain=one_or_zero, family=PreparedFamily(_ones, known.family))


# --- bits -------------------------------------------------------------------------------------------------------------


def _bit(text: str) -> bool:
    return binaries.hexadecimal(text) != b"\0"


def _single_bits(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(column.cast(pa.string()), r"\x00"), "f", "t")


def single_bit() -> Conversion:
    """Return the conversion of BIT(1)."""
    known = booleans.boolean_type()
    return replace(known, plain=_bit, family=PreparedFamily(_single_bits, Booleans()))


def _reversed(column: pa.Array) -> pa.Array:
    digits = pc.utf8_slice_codeunits(column.cast(pa.string()), 2)
    # the reversal also swapped the digits of each byte
    swapped = pc.replace_substring_regex(pc.ascii_reverse(digits), r"(.)(.)", r"\2\1")
    return pc.binary_join_element_wise(r"\x", swapped, "")


def bits(length: int) -> Conversion:
    """Return the conversion of BIT: the server's bytes are big-endian, and events have them little-endian."""
    known = binaries.binary("bytes", None)

    def convert(text: str) -> str:
        return binaries.base64_text(binaries.hexadecimal(text)[::-1])

    return replace(known, logical=bits_type(length), plain=convert, family=PreparedFamily(_reversed, known.family))


# --- floating point ---------------------------------------------------------------------------------------------------


def widened(text: str) -> Verbatim:
    """Return a FLOAT as the double that equals it."""
    return Verbatim(double_text(float(np.float32(text))))


def _widened(column: pa.Array) -> pa.Array:
    singles = column.cast(pa.string()).cast(pa.float32())
    return singles.cast(pa.float64()).cast(pa.string())


def float_as_double() -> Conversion:
    """Return the conversion of FLOAT(M,D), which events show as a double."""
    known = floats.floating(False)
    return replace(known, plain=widened, family=PreparedFamily(_widened, DOUBLES))


def rounded(text: str) -> Any:
    """Return a FLOAT. The text may be the text of the equal double."""
    return floats.shortest(True)(str(np.float32(text)))


def _rounded(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()).cast(pa.float32()).cast(pa.string())


def single(*, exact: bool) -> Conversion:
    """Return the conversion of FLOAT. With `exact` the texts may be those of equal doubles."""
    known = floats.floating(True)
    return replace(known, plain=rounded, family=PreparedFamily(_rounded, known.family)) if exact else known
