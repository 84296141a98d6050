"""Kernels that write doubles as Java's `Double.toString` did before Java 19, from their bits. Worker.

The digits are the fewest that lie strictly between the two midpoints to the neighbouring doubles, and among those the
nearest (Steele and White). They are found with one multiplication each for the value and its two midpoints, by the
bounds of Raffaello Giulietti's "The Schubfach way to render doubles". Java differs from that in four ways, all kept
here:

- a midpoint itself is never taken, so 1e23 is 9.999999999999999E22;
- beside a power of two the narrower of the two midpoints counts on either side;
- a whole number below 2^63 shows the digits of the integer, up to the place where they mean nothing;
- numbers with an exponent have two digits at least, so the smallest double is 4.9E-324.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tailrace.kernels.buffers import Bytes
from tailrace.kernels.compiled import kernel
from tailrace.values.integers import put_integer, put_unsigned
from tailrace.values.texts import Int

LONGEST_DOUBLE = 26
"""No double's text has more bytes."""

_LOWEST_POWER, _HIGHEST_POWER = -324, 293


def _powers() -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return for each k the 126 bits of 10^-k, rounded up, in two words of 63: floor(10^-k / 2^r) + 1."""
    table = np.zeros((_HIGHEST_POWER - _LOWEST_POWER + 1, 2), np.uint64)
    for k in range(_LOWEST_POWER, _HIGHEST_POWER + 1):
        # 2^r is chosen so that the quotient has 126 bits.
        shift = 125 - floor_log2_of_ten(-k)
        if k <= 0:
            power = 10**-k
            value = (power << shift if shift >= 0 else power >> -shift) + 1
        else:
            value = (1 << shift) // 10**k + 1
        table[k - _LOWEST_POWER] = (value >> 63, value & ((1 << 63) - 1))
    return table


def floor_log2_of_ten(power: int) -> int:
    """Return floor(log2(10^power)) for powers of a magnitude below 500."""
    return power * 913_124_641_741 >> 38


_POWERS = _powers()
_MANTISSA = np.uint64((1 << 52) - 1)
_LOW_63 = np.uint64((1 << 63) - 1)
_ZERO, _POINT, _MINUS, _E = 48, 46, 45, 69


@intrinsic
def _high_product(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the upper 64 bits of the product of two uint64."""
    signature = types.uint64(types.uint64, types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return signature, generate


@intrinsic
def _bits_of(typing_context: Any, value: Any) -> Any:
    """Return the bits of a double as uint64."""
    signature = types.uint64(types.float64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return signature, generate


@intrinsic
def _double_of(typing_context: Any, bits: Any) -> Any:
    """Return the double of a uint64's bits."""
    signature = types.float64(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return signature, generate


@intrinsic
def _trailing_zeros(typing_context: Any, value: Any) -> Any:
    """Return the number of low zero bits of a uint64 other than 0."""
    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        count: Any = builder.cttz
        return count(arguments[0], cgutils.true_bit)

    return signature, generate


# An intrinsic's own signature begins with the typing context, which its callers do not pass.
bits_of: Callable[[float], np.uint64] = cast(Any, _bits_of)
double_of: Callable[[np.uint64], float] = cast(Any, _double_of)
high_product: Callable[[np.uint64, np.uint64], np.uint64] = cast(Any, _high_product)
trailing_zeros: Callable[[np.uint64], np.int64] = cast(Any, _trailing_zeros)


@kernel(leaf=True)
def scaled(high: np.uint64, low: np.uint64, factor: np.uint64) -> np.uint64:
    """Return a power's 126 bits times `factor`, over 2^127; its last bit is set if any bit was cut off."""
    below = high_product(low, factor)
    middle = high * factor
    above = high_product(high, factor)
    whole = (middle >> np.uint64(1)) + below
    above += whole >> np.uint64(63)
    return above | (((whole & _LOW_63) + _LOW_63) >> np.uint64(63))


@kernel(leaf=True)
def decimal_of(mantissa: np.uint64, exponent: Int) -> tuple[np.uint64, Int]:
    """Return the shortest decimal of mantissa * 2^exponent: its digits as a uint64, and the power of ten of the last
    one."""
    if mantissa & (mantissa - np.uint64(1)) == np.uint64(0):
        # A power of two: half the distance to its lower neighbour, on both sides.
        mantissa <<= np.uint64(1)
        exponent -= 1
    k = (exponent * np.int64(661_971_961_083)) >> np.int64(41)
    shift = np.uint64(exponent + ((-k * np.int64(913_124_641_741)) >> np.int64(38)) + 2)
    high = _POWERS[np.uintp(k - _LOWEST_POWER), 0]
    low = _POWERS[np.uintp(k - _LOWEST_POWER), 1]
    fourfold = mantissa << np.uint64(2)
    value = scaled(high, low, fourfold << shift)
    lower = scaled(high, low, (fourfold - np.uint64(2)) << shift) + np.uint64(1)
    upper = scaled(high, low, (fourfold + np.uint64(2)) << shift)
    digits = value >> np.uint64(2)
    if digits >= np.uint64(10):
        shorter = digits // np.uint64(10)
        below = lower <= shorter * np.uint64(40)
        above = shorter * np.uint64(40) + np.uint64(41) <= upper
        if below != above:
            return shorter + np.uint64(above), k + 1
    below = lower <= digits * np.uint64(4)
    above = digits * np.uint64(4) + np.uint64(5) <= upper
    if below != above:
        return digits + np.uint64(above), k
    middle = digits * np.uint64(4) + np.uint64(2)
    return digits + np.uint64(value > middle or (value == middle and (digits & np.uint64(1)) != np.uint64(0))), k


@kernel(leaf=True)
def whole_of(mantissa: np.uint64, exponent: Int) -> tuple[np.uint64, Int]:
    """Return a whole number below 2^63, without digits below one unit of its last bit, in the form of decimal_of."""
    value = mantissa << np.uint64(exponent) if exponent > 0 else mantissa >> np.uint64(-exponent)
    # For a unit of 2^p, the last floor(p * log10(2)) digits mean nothing; Java counts from half of that unit.
    cut = ((exponent - 2) * 1233) >> 12 if exponent > 3 else 0
    if cut > 0:
        power = np.uint64(10)
        for _ in range(cut - 1):
            power *= np.uint64(10)
        value = (value + power // np.uint64(2)) // power
    else:
        cut = 0
    return value, cut


@kernel(leaf=True, inlined=True)
def shortest_digits(mantissa: np.uint64, exponent: Int) -> tuple[np.uint64, Int]:
    """Return the digits that Java shows of mantissa * 2^exponent, without trailing zeros, in the form of decimal_of."""
    whole = exponent >= 0 or (exponent > -53 and trailing_zeros(mantissa) >= -exponent)
    if whole and exponent <= 10:
        digits, last = whole_of(mantissa, exponent)
    else:
        digits, last = decimal_of(mantissa, exponent)
    while digits % np.uint64(10) == np.uint64(0):
        digits //= np.uint64(10)
        last += 1
    return digits, last


@kernel(leaf=True, inlined=True)
def put_tiny(mantissa: np.uint64, out: Bytes, at: Int) -> Int:
    """Write two digits of one of the smallest doubles, of which Java shows two where one is enough.

    Returns the power of ten of the first digit, or 0 for any other number.
    """
    one, ten, eighteen = np.uint64(1), np.uint64(10), np.uint64(18)
    if not (mantissa == one or ten <= mantissa <= eighteen):
        return np.int64(0)
    # These are so small that one digit distinguishes them: 4.94e-324 times 1, 10, 12, 14, 16 or 18.
    pair = np.int64(49) if mantissa == one else (np.int64(mantissa) * 494 + 50) // 100
    out[at] = _ZERO + pair // 10
    out[at + 1] = _ZERO + pair % 10
    return np.int64(-324) if mantissa == one else np.int64(-323)


@kernel(leaf=True, inlined=True)
def put_point(out: Bytes, begin: Int, count: Int, first: Int) -> Int:
    """Insert the point and the exponent into the `count` digits at `begin`; return the end.

    The first digit stands for 10 to the `first`.
    """
    if -3 <= first < 0:
        skipped = -first + 1
        for position in range(begin + count - 1, begin - 1, -1):
            out[position + skipped] = out[position]
        for position in range(begin, begin + skipped):
            out[position] = _ZERO
        out[begin + 1] = _POINT
        return begin + skipped + count
    plain = 0 <= first < 7
    point = first + 1 if plain else 1
    if count > point:
        for position in range(begin + count - 1, begin + point - 1, -1):
            out[position + 1] = out[position]
        at = begin + count + 1
    else:
        for position in range(begin + count, begin + point):
            out[position] = _ZERO
        out[begin + point + 1] = _ZERO
        at = begin + point + 2
    out[begin + point] = _POINT
    if not plain:
        out[at] = _E
        at = put_integer(np.int64(first), out, at + 1)
    return at


@kernel(leaf=True)
def put_double(value: float, out: Bytes, at: Int) -> Int:
    """Write a finite double, up to LONGEST_DOUBLE bytes; return the end."""
    bits = bits_of(value)
    if bits >> np.uint64(63) != np.uint64(0):
        out[at] = _MINUS
        at += 1
    mantissa, biased = bits & _MANTISSA, np.int64((bits >> np.uint64(52)) & np.uint64(0x7FF))
    if biased != 0:
        mantissa |= _MANTISSA + np.uint64(1)
    if mantissa == np.uint64(0):
        out[at], out[at + 1], out[at + 2] = _ZERO, _POINT, _ZERO
        return at + 3
    digits, last = shortest_digits(mantissa, (biased if biased > 0 else np.int64(1)) - 1075)
    # The digits need at most two more places than the final text; then the point is inserted.
    begin = at
    count = put_unsigned(digits, out, at) - begin
    first = last + count - 1
    if count == 1 and biased == 0:
        tiny = put_tiny(mantissa, out, begin)
        if tiny != 0:
            first, count = tiny, 2
    return put_point(out, begin, count, first)


def double_text(value: float) -> str:
    """Return a finite double as `put_double` writes it."""
    out = np.empty(LONGEST_DOUBLE, np.uint8)
    return out[: put_double(value, out, 0)].tobytes().decode("ascii")
