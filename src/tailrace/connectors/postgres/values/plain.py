"""Texts and modifiers that only PostgreSQL has: money, geometric types, vectors, numeric's modifier. Worker."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.values.decimals import shortest_texts
from tailrace.values.json_text import java_number

_FLOAT = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
_NUMBER = re.compile(rf"{_FLOAT}|[+-]?(?:Infinity|NaN)")


def precision_and_scale(modifier: int) -> tuple[int, int]:
    """Return the precision and scale in a numeric's modifier; scales are signed and have eleven bits."""
    packed = modifier - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400


_AROUND = r"^[^0-9]+|[^0-9]+$"
_TWO_BEHIND = r"[^0-9][0-9]{2}$"


def money_digits(text: str) -> str:
    """Return the number in a money text of any currency.

    The text must have two digits after any decimal sign, or any number of digits after a point, or no decimal sign and
    no point between groups of digits; `money_fault` checks this for a server.
    """
    number = re.sub(_AROUND, "", text)
    if re.search(_TWO_BEHIND, number):
        digits = re.sub(r"[^0-9]", "", number)
        found = f"{digits[:-2]}.{digits[-2:]}"
    else:
        found = re.sub(r"[^0-9.]", "", number)
    return "-" + found if "-" in text or "(" in text else found


def money_numbers(column: pa.Array) -> pa.Array:
    """Return `money_digits` of a column's values."""
    text = column.cast(pa.string())
    negative = pc.match_substring_regex(text, r"[-(]")
    number = pc.replace_substring_regex(text, _AROUND, "")
    digits = pc.replace_substring_regex(number, r"[^0-9]", "")
    found = pc.if_else(
        pc.match_substring_regex(number, _TWO_BEHIND),
        pc.replace_substring_regex(digits, r"([0-9]{2})$", r".\1"),
        pc.replace_substring_regex(number, r"[^0-9.]", ""),
    )
    return pc.if_else(negative, pc.binary_join_element_wise("-", found, ""), found)


MONEY_EXAMPLE = "12345.67"


def money_fault(text: str, digits: int) -> str:
    """Return why the server's money text of MONEY_EXAMPLE is read wrongly, as the rest of a sentence; "" if it is
    right.

    `digits` is the number of digits after the decimal point that are kept.
    """
    try:
        found = Decimal(money_digits(text))
    except InvalidOperation:
        return f"writes money as {text}, which is not read as a number"
    places = max(-int(found.as_tuple().exponent), 0)
    if found != Decimal(MONEY_EXAMPLE).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):
        return f"writes money as {text}, which is read as {found}"
    return f"has {places} digits behind the point of money, of which {digits} are kept" if places > digits else ""


def money_doubles(column: pa.Array) -> pa.Array:
    """Return the shortest texts of the doubles that are nearest to a column's money values."""
    return shortest_texts(money_numbers(column))


def vector_of(element: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Return a function for the elements of an oidvector or int2vector, which are separated by blanks."""
    return lambda text: [element(part) for part in text.split()]


def geometric_bytes(text: str) -> bytes:
    """Return the bytes of a geometric value, its numbers written as doubles: `(2.0,2.0),(0.0,0.0)`."""
    return _NUMBER.sub(lambda match: java_number(match.group()).strip('"'), text).encode()
