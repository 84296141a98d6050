"""Texts and modifiers that only PostgreSQL has: money, geometric types, vectors, numeric's modifier. Worker."""

from __future__ import annotations

import re
from collections.abc import Callable
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


def money_digits(text: str) -> str:
    """Return the number in a money text of any currency whose decimal sign is a point."""
    digits = re.sub(r"[^0-9.]", "", text)
    return "-" + digits if "-" in text or "(" in text else digits


def money_numbers(column: pa.Array) -> pa.Array:
    """Return `money_digits` of a column's values."""
    text = column.cast(pa.string())
    negative = pc.match_substring_regex(text, r"[-(]")
    number = pc.replace_substring_regex(text, r"[^0-9.]", "")
    return pc.if_else(negative, pc.binary_join_element_wise("-", number, ""), number)


def money_doubles(column: pa.Array) -> pa.Array:
    """Return the shortest texts of the doubles that are nearest to a column's money values."""
    return shortest_texts(money_numbers(column))


def vector_of(element: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Return a function for the elements of an oidvector or int2vector, which are separated by blanks."""
    return lambda text: [element(part) for part in text.split()]


def geometric_bytes(text: str) -> bytes:
    """Return the bytes of a geometric value, its numbers written as doubles: `(2.0,2.0),(0.0,0.0)`."""
    return _NUMBER.sub(lambda match: java_number(match.group()).strip('"'), text).encode()
