"""What PostgreSQL's texts and modifiers mean that no other database has: money, geometric types, numeric's modifier."""

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
    """The precision and scale in a numeric's modifier; scales are signed and have eleven bits."""
    packed = modifier - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400


def money_digits(text: str) -> str:
    """The number in a money text of any currency whose decimal sign is a point."""
    digits = re.sub(r"[^0-9.]", "", text)
    return "-" + digits if "-" in text or "(" in text else digits


def money_numbers(column: pa.Array) -> pa.Array:
    """`money_digits` of a column."""
    text = column.cast(pa.string())
    negative = pc.match_substring_regex(text, r"[-(]")
    number = pc.replace_substring_regex(text, r"[^0-9.]", "")
    return pc.if_else(negative, pc.binary_join_element_wise("-", number, ""), number)


def money_doubles(column: pa.Array) -> pa.Array:
    """The shortest texts of the doubles that are nearest to a column's money."""
    return shortest_texts(money_numbers(column))


def vector_of(element: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """The elements of an oidvector or int2vector, which blanks part."""
    return lambda text: [element(part) for part in text.split()]


def geometric_bytes(text: str) -> bytes:
    """The bytes of a geometric value, its numbers written as doubles: `(2.0,2.0),(0.0,0.0)`."""
    return _NUMBER.sub(lambda match: java_number(match.group()).strip('"'), text).encode()
