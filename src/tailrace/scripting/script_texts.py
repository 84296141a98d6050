"""Texts of Java and JavaScript: in UTF-16, with their own letter case, white space and forms of numbers. Worker.

Arrow counts characters and knows simple case alone. For ASCII that is the same, so Arrow's functions are used if all
texts are ASCII. Other texts are computed one by one, equal texts once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.records.transform import by_distinct

_JAVA_SPACE = "".join(map(chr, range(33)))
_JS_SPACE = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
_NUMBER = re.compile(r"[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)", re.ASCII)
_WHOLE = re.compile(r"0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+", re.ASCII)
_DOLLAR = re.compile(r"\$([$&`'])")


def is_ascii(values: pa.Array) -> bool:
    """Return True if all texts are ASCII."""
    return bool(pc.all(pc.string_is_ascii(values), skip_nulls=True).as_py() is not False)


def _each(
    simple: Callable[[pa.Array], pa.Array], own: Callable[[str], Any], of: pa.DataType
) -> Callable[[pa.Array], pa.Array]:
    """Return a function that applies `simple` to all texts if they are ASCII, else `own` to each text."""

    def called(values: pa.Array) -> pa.Array:
        return simple(values) if is_ascii(values) else by_distinct(own, of, values)

    return called


def units(text: str) -> int:
    """Return the length of a text in units of UTF-16."""
    return len(text) + sum(char > "\uffff" for char in text)


def _cut(text: str, start: int, end: int) -> str:
    """Return the units of UTF-16 of a text from `start` to `end`."""
    return text.encode("utf-16-le", "surrogatepass")[2 * start : 2 * end].decode("utf-16-le", "replace")


lower = _each(pc.ascii_lower, str.lower, pa.string())
upper = _each(pc.ascii_upper, str.upper, pa.string())
length = _each(lambda values: pc.utf8_length(values).cast(pa.int32()), units, pa.int32())


def trim(values: pa.Array, is_javascript: bool) -> pa.Array:
    """Return the texts without white space around them."""
    return pc.utf8_trim(values, _JS_SPACE if is_javascript else _JAVA_SPACE)


def ignoring_case(values: pa.Array, text: str) -> pa.Array:
    """Return which texts are equal for Java's equalsIgnoreCase, which compares characters one by one."""
    wanted = _folded(text)
    return by_distinct(lambda value: _folded(value) == wanted, pa.bool_(), values)


def _folded(text: str) -> str:
    found = []
    for char in text:
        large = char.upper() if len(char.upper()) == 1 else char
        found.append(large.lower() if len(large.lower()) == 1 else large)
    return "".join(found)


def ordered(values: pa.Array) -> pa.Array:
    """Return texts as bytes that sort like their UTF-16."""
    return by_distinct(lambda text: text.encode("utf-16-be", "surrogatepass"), pa.binary(), values)


def part(values: pa.Array, start: int, end: int | None, is_javascript: bool) -> tuple[pa.Array, pa.Array]:
    """Return parts of texts, and which texts lack the part: Java refuses places outside of a text."""
    if is_javascript:
        low, high = max(start, 0), None if end is None else max(end, 0)
        if high is not None and high < low:
            low, high = high, low
        return _sliced(values, low, high), pa.nulls(0)
    if start < 0 or (end is not None and end < start):
        return values, pa.repeat(True, len(values))
    return _sliced(values, start, end), pc.less(length(values), max(start, end or 0))


def _sliced(values: pa.Array, start: int, end: int | None) -> pa.Array:
    if is_ascii(values):
        return (
            pc.utf8_slice_codeunits(values, start, end) if end is not None else pc.utf8_slice_codeunits(values, start)
        )
    return by_distinct(lambda text: _cut(text, start, units(text) if end is None else end), pa.string(), values)


def replaced(values: pa.Array, old: str, new: str, is_javascript: bool) -> pa.Array:
    """Return texts with a part replaced: its first occurrence in JavaScript, all occurrences in Java."""
    if not is_javascript:
        if old:
            return pc.replace_substring(values, old, new)
        return by_distinct(lambda text: new + "".join(char + new for char in text), pa.string(), values)

    def once(text: str) -> str:
        at = text.find(old)
        if at < 0:
            return text
        before, after = text[:at], text[at + len(old) :]
        meant = {"$": "$", "&": old, "`": before, "'": after}
        return before + _DOLLAR.sub(lambda found: meant[found[1]], new) + after

    return by_distinct(once, pa.string(), values)


def number_text(value: float) -> str:
    """Return a number as JavaScript writes it."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, places = "".join(map(str, digits)), int(exponent)
    point = len(text) + places
    if 0 < point <= 21:
        shown = text + "0" * places if places >= 0 else f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        shown = f"0.{'0' * -point}{text}"
    else:
        power = point - 1
        shown = f"{text[0]}{'.' if text[1:] else ''}{text[1:]}e{'+' if power > 0 else '-'}{abs(power)}"
    return ("-" if sign else "") + shown


def read_number(text: str) -> float:
    """Return the number that JavaScript reads from a text: 0 for white space, NaN if the text is no number."""
    bare = text.strip(_JS_SPACE)
    if not bare:
        return 0.0
    found = _NUMBER.fullmatch(bare)
    if found is None:
        whole = _WHOLE.fullmatch(bare)
        return math.nan if whole is None else float(int(bare, 0))
    return float(bare.replace("Infinity", "inf"))


def number_texts(values: pa.Array) -> pa.Array:
    """Return doubles as JavaScript writes them."""
    return by_distinct(number_text, pa.string(), values)
