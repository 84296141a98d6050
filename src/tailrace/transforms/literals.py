"""Literals: constant values as Kafka Connect reads them in texts, with the schema that it finds for each."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tailrace.assembly.json_text import Verbatim, java_number
from tailrace.columns.logical import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    LogicalType,
    semantic,
)
from tailrace.records.layout import Constant
from tailrace.values.binaries import base64_text
from tailrace.values.decimals import unscaled, unscaled_bytes

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_LARGEST_FLOAT, _LARGEST_DOUBLE = Decimal("3.4028235E38"), Decimal("1.7976931348623157E308")
_DATA = "org.apache.kafka.connect.data."
_EPOCH = datetime.datetime(1970, 1, 1)


def _days(text: str) -> int:
    return (datetime.date.fromisoformat(text) - _EPOCH.date()).days


def _instant(text: str) -> int:
    return (datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ") - _EPOCH) // datetime.timedelta(milliseconds=1)


def _time(text: str) -> int:
    return (datetime.datetime.strptime(text, "%H:%M:%S.%fZ") - datetime.datetime(1900, 1, 1)) // datetime.timedelta(
        milliseconds=1
    )


_TEMPORAL: tuple[tuple[re.Pattern[str], LogicalType, Callable[[str], int]], ...] = (
    (re.compile(r"\d{4}-\d\d-\d\d", re.ASCII), semantic(INT32, _DATA + "Date"), _days),
    (re.compile(r"\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII), semantic(INT32, _DATA + "Time"), _time),
    (
        re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII),
        semantic(INT64, _DATA + "Timestamp"),
        _instant,
    ),
)


def literal(text: str) -> Constant:
    """The value that a text stands for: a boolean, a number, a date, a time, a timestamp, or itself.

    Raises ValueError, in words that follow the text's name, for null, lists and maps.
    """
    token = text.strip()
    if token == "null":
        raise ValueError("is null, which is not supported")
    if token in ("true", "false"):
        return Constant(token == "true", BOOLEAN)
    for pattern, kind, value in _TEMPORAL:
        if pattern.fullmatch(token):
            return Constant(value(token), kind)
    if _NUMBER.fullmatch(token) and token[0] != ".":
        return _number(token)
    if token[:1] in ("[", "{") and token[-1:] in ("]", "}"):
        raise ValueError("is a list or a map, which is not supported")
    return Constant(text, STRING)


def _number(token: str) -> Constant:
    """The number as the smallest type that holds it."""
    number = Decimal(token)
    if number == number.to_integral_value() and -(1 << 63) <= number < 1 << 63:
        whole = int(number)
        bits = next(bits for bits in (8, 16, 32, 64) if -(1 << bits - 1) <= whole < 1 << bits - 1)
        return Constant(whole, {8: INT8, 16: INT16, 32: INT32, 64: INT64}[bits])
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    if exponent != 0 and abs(number) <= _LARGEST_FLOAT:
        return Constant(_single(number), FLOAT)
    if exponent != 0 and abs(number) <= _LARGEST_DOUBLE:
        return Constant(Verbatim(java_number(repr(float(number)))), DOUBLE)
    kind = LogicalType("bytes", _DATA + "Decimal", 1, (("scale", str(-exponent)),))
    return Constant(base64_text(unscaled_bytes(unscaled(number, -exponent))), kind)


def _single(number: Decimal) -> Any:
    import numpy as np

    return Verbatim(java_number(str(np.float32(str(number))), single=True))
