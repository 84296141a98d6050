"""A reader of Debezium's semantic types for tests: from the JSON of an event's field back to SQL text.

Days become Julian dates, which PostgreSQL reads, so nothing here shares calendar arithmetic with the product.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tailrace.columns.logical import LogicalType

EPOCH_JULIAN = 2_440_588
DAY_US = 86_400_000_000
_PER_US = {"Timestamp": 1000, "MicroTimestamp": 1, "Time": 1000, "MicroTime": 1}
_INFINITE_DAYS = {"2147483647": "infinity", "-2147483648": "-infinity"}
_INFINITE = {
    "Timestamp": {9_223_372_036_825_200: "infinity", -9_223_372_036_832_400: "-infinity"},
    "MicroTimestamp": {9_223_372_036_825_200_000: "infinity", -9_223_372_036_832_400_000: "-infinity"},
    "NanoTimestamp": {2**63 - 1: "infinity", -(2**63): "-infinity"},
}
# ISO text has no infinities: these moments stand for them in numbers.
_INFINITE_ISO = {
    "+5881580-07-11Z": "infinity",
    "-5877641-06-23Z": "-infinity",
    "+294247-01-10T04:00:25.2Z": "infinity",
    "-290308-12-21T19:59:27.6Z": "-infinity",
}
_SPECIAL = {"POSITIVE_INFINITY": "infinity", "NEGATIVE_INFINITY": "-infinity"}
_ISO = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)(?:T(.*))?Z$")


def sql_text(schema: LogicalType, value: Any) -> str | None:
    """Return the text of an SQL value; numbers of `value` are given as their JSON text."""
    if value is None:
        return None
    name = (schema.name or "").rpartition(".")[2]
    if name in _READERS:
        return _READERS[name](value, dict(schema.parameters))
    if schema.connect == "array":
        items = schema.items
        assert items is not None
        return _array([sql_text(items, item) for item in value])
    if schema.connect == "bytes":
        return "\\x" + base64.b64decode(value).hex()
    if schema.connect == "boolean":
        return "t" if value else "f"
    return str(value)


def _array(items: list[str | None]) -> str:
    def shown(item: str | None) -> str:
        return "NULL" if item is None else '"' + re.sub(r'(["\\])', r"\\\1", item) + '"'

    return "{" + ",".join(map(shown, items)) + "}"


def _clock(us: int) -> str:
    seconds, rest = divmod(us, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:06d}"


def _day(value: str, _: dict[str, str]) -> str:
    return _INFINITE_DAYS.get(value) or f"J{int(value) + EPOCH_JULIAN}"


def _moment(name: str) -> Callable[[str, dict[str, str]], str]:
    def read(value: str, _: dict[str, str]) -> str:
        number = int(value)
        if number in _INFINITE[name]:
            return _INFINITE[name][number]
        us = number // 1000 if name == "NanoTimestamp" else number * _PER_US[name]
        return f"J{us // DAY_US + EPOCH_JULIAN} {_clock(us % DAY_US)}"

    return read


def _time(name: str) -> Callable[[str, dict[str, str]], str]:
    def read(value: str, _: dict[str, str]) -> str:
        return _clock(int(value) // 1000 if name == "NanoTime" else int(value) * _PER_US[name])

    return read


def _iso(value: str, _: dict[str, str]) -> str:
    if value in _INFINITE_ISO:
        return _INFINITE_ISO[value]
    found = _ISO.match(value)
    if found is None:
        return value
    year = int(found[1])
    era = " BC" if year < 1 else ""
    clock = f" {found[4]}" if found[4] else ""
    zone = "+00" if found[4] else ""
    return f"{1 - year if year < 1 else year:04d}-{found[2]}-{found[3]}{clock}{zone}{era}"


def _decimal(value: str, parameters: dict[str, str]) -> str:
    unscaled = int.from_bytes(base64.b64decode(value), "big", signed=True)
    return f"{Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -int(parameters['scale']))):f}"


def _bits(value: str, parameters: dict[str, str]) -> str:
    number = int.from_bytes(base64.b64decode(value), "little")
    length = int(parameters["length"])
    return f"{number:b}" if length > 2**30 else f"{number:0{length}b}"


def _structured(value: dict[str, Any], _: dict[str, str]) -> str:
    if value.get("specialValue"):
        return _SPECIAL[value["specialValue"]]
    number = {part: int(content) for part, content in value.items() if content not in (None, "Z")}
    text, era = [], ""
    if "year" in number:
        year = number["year"]
        text.append(f"{1 - year if year < 1 else year:04d}-{number['month']:02d}-{number['day']:02d}")
        era = " BC" if year < 1 else ""
    if "hour" in number:
        us = ((number["hour"] * 60 + number["minute"]) * 60 + number["second"]) * 1_000_000 + number["nanos"] // 1000
        text.append(_clock(us))
    if "offsetSeconds" in number:
        offset = abs(number["offsetSeconds"])
        sign = "-" if number["offsetSeconds"] < 0 else "+"
        text[-1] += f"{sign}{offset // 3600:02d}:{offset // 60 % 60:02d}:{offset % 60:02d}"
    return " ".join(text) + era


def _duration(value: dict[str, str], _: dict[str, str]) -> str:
    us = int(value["seconds"]) * 1_000_000 + int(value["nanos"]) // 1000
    seconds = f"{'-' if us < 0 else ''}{abs(us) // 1_000_000}.{abs(us) % 1_000_000:06d}"
    parts = ", ".join(f"{value[unit]} {unit}" for unit in ("years", "months", "days", "hours", "minutes"))
    return f"{parts}, {seconds} seconds"


_READERS: dict[str, Callable[[Any, dict[str, str]], str]] = {
    "Date": _day,
    "Timestamp": _moment("Timestamp"),
    "MicroTimestamp": _moment("MicroTimestamp"),
    "NanoTimestamp": _moment("NanoTimestamp"),
    "Time": _time("Time"),
    "MicroTime": _time("MicroTime"),
    "NanoTime": _time("NanoTime"),
    "IsoDate": _iso,
    "IsoTimestamp": _iso,
    "ZonedTimestamp": _iso,
    "Decimal": _decimal,
    "VariableScaleDecimal": lambda value, _: _decimal(value["value"], {"scale": value["scale"]}),
    "Bits": _bits,
    "Point": lambda value, _: f"({value['x']},{value['y']})",
    "DoubleVector": lambda value, _: "[" + ",".join(value) + "]",
    "FloatVector": lambda value, _: "[" + ",".join(value) + "]",
    "SparseDoubleVector": lambda value, _: (
        "{" + ",".join(f"{index}:{number}" for index, number in value["vector"]) + "}/" + value["dimensions"]
    ),
    "StructuredDate": _structured,
    "StructuredTime": _structured,
    "StructuredTimestamp": _structured,
    "StructuredZonedTime": _structured,
    "StructuredZonedTimestamp": _structured,
    "StructuredDuration": _duration,
}
