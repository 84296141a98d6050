"""The Arrow value that belongs to a value in JSON, by both schemas, without code of the product."""

from __future__ import annotations

import base64
import math
import re
from datetime import date
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import LogicalType

EXACT = Context(prec=1000)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
INSTANT = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d*))?(?:Z|([+-]\d\d):(\d\d))")
DAYS = {
    "io.debezium.time.Time": 86_400_000,
    "io.debezium.time.MicroTime": 86_400_000_000,
    "io.debezium.time.NanoTime": 86_400_000_000_000,
    "org.apache.kafka.connect.data.Time": 86_400_000,
}
INFINITE = {"infinity": 9_223_372_036_825_200_000, "-infinity": -9_223_372_036_832_400_000}


def instant_us(text: str) -> int:
    """Return µs since 1970 of an ISO text, rounded down."""
    if text in INFINITE:
        return INFINITE[text]
    found = INSTANT.fullmatch(text)
    assert found is not None, text
    # The calendar repeats itself after 400 years, which have 146,097 days.
    cycles, year = divmod(int(found[1]) - 1, 400)
    # A day beyond the end of its month is a day of the next month.
    days = cycles * 146_097 + date(year + 1, int(found[2]), 1).toordinal() + int(found[3]) - 1
    days -= date(1970, 1, 1).toordinal()
    hours, minutes = int(found[8] or 0), int(found[9] or 0)
    offset = hours * 60 + (-minutes if (found[8] or "+")[0] == "-" else minutes)
    seconds = (int(found[4]) * 60 + int(found[5]) - offset) * 60 + int(found[6])
    return (days * 86_400 + seconds) * 1_000_000 + int((found[7] or "")[:6].ljust(6, "0"))


def wanted(value: Any, logical: LogicalType) -> Any:
    """Return the number, text or parts in Arrow for a value in JSON."""
    name, connect = logical.name or "", logical.connect
    if value is None:
        return None
    if name.endswith(".ZonedTimestamp"):
        return instant_us(value)
    if name.endswith((".data.Decimal", ".VariableScaleDecimal")):
        scale = value["scale"] if connect == "struct" else int(dict(logical.parameters)["scale"])
        digits = value["value"] if connect == "struct" else value
        whole = int.from_bytes(base64.b64decode(digits), "big", signed=True)
        return Decimal(whole).scaleb(-scale, EXACT)
    if connect in ("float", "double"):
        with np.errstate(over="ignore"):
            return float(np.float32(value)) if connect == "float" else float(value)
    if connect == "bytes":
        return base64.b64decode(value)
    if connect == "struct":
        return {part.name: wanted(value[part.name], part.type) for part in logical.fields}
    if connect == "array":
        assert logical.items is not None
        return [wanted(item, logical.items) for item in value]
    if connect == "map":
        pairs = value.items() if isinstance(value, dict) else value
        return {str(key): float(item) if logical.keys else item for key, item in pairs}
    return value


def found_in(scalar: pa.Scalar, logical: LogicalType) -> Any:
    """Return an Arrow value in the terms of `wanted`."""
    name, connect = logical.name or "", logical.connect
    if not scalar.is_valid:
        return None
    if name.endswith((".data.Decimal", ".VariableScaleDecimal")):
        return Decimal(scalar.as_py())
    if connect == "struct":
        return {part.name: found_in(scalar[part.name], part.type) for part in logical.fields}
    if connect == "array":
        assert logical.items is not None
        return [found_in(item, logical.items) for item in scalar.values]
    if connect == "map":
        return {str(key): item for key, item in scalar.as_py()}
    return scalar.value if hasattr(scalar, "value") else scalar.as_py()


def fits(value: Any, logical: LogicalType) -> bool:
    """Return True if Arrow's type can hold a value; servers send no other."""
    if value is None:
        return True
    name, connect = logical.name or "", logical.connect
    if name.endswith(".ZonedTimestamp"):
        return -(2**63) <= instant_us(value) < 2**63
    if name in DAYS:
        return bool(value < DAYS[name])
    if name.endswith(".data.Decimal"):
        whole = int.from_bytes(base64.b64decode(value), "big", signed=True)
        precision = int(dict(logical.parameters).get("connect.decimal.precision", 38))
        return precision > 76 or abs(whole) < 10**precision
    if connect in BITS:
        return -(1 << BITS[connect] - 1) <= value < 1 << BITS[connect] - 1
    if connect == "array":
        assert logical.items is not None
        return all(fits(item, logical.items) for item in value)
    if connect == "struct":
        return "VariableScaleDecimal" in name or all(fits(value[part.name], part.type) for part in logical.fields)
    return True


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or (left == right and math.copysign(1, left) == math.copysign(1, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)
