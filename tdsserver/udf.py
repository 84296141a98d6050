"""Functions of T-SQL that DuckDB lacks, in Python; their names in the database begin with tds_."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import duckdb
from duckdb.func import FunctionNullHandling

from tdsserver import values
from tdsserver.bound import convert_value
from tdsserver.errors import SqlError
from tdsserver.functions import new_guid
from tdsserver.log import increment
from tdsserver.sqltype import MAX, SqlType, make

MARK = "SQLERROR"
"""Begins the text of an exception that carries a numbered error through DuckDB."""
_NUMBERED = re.compile(rf"{MARK} (\d+) (\d+) (\d+) (.*)", re.S)


def install(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the functions in the database behind `connection`."""

    def create(
        name: str,
        function: Callable[..., Any],
        parameters: list[Any],
        result: str,
        nulls: bool = False,
        volatile: bool = False,
    ) -> None:
        connection.create_function(
            name,
            function,
            parameters,
            result,
            null_handling=FunctionNullHandling.SPECIAL if nulls else FunctionNullHandling.DEFAULT,
            side_effects=volatile,
        )

    create("tds_temporal", _temporal, ["VARCHAR", "VARCHAR", "VARCHAR"], "VARCHAR")
    create("tds_convert", _convert, ["VARCHAR", "VARCHAR", "VARCHAR", "INTEGER", "BOOLEAN"], "VARCHAR", nulls=True)
    create("tds_binary", _binary, ["BLOB", "INTEGER", "BOOLEAN"], "BLOB")
    create("tds_like", _like, ["VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN"], "BOOLEAN", nulls=True)
    create("tds_divide", _divide, ["BIGINT", "BIGINT"], "BIGINT")
    create("tds_decimal", _decimal, ["VARCHAR", "VARCHAR", "VARCHAR", "INTEGER"], "VARCHAR")
    create("tds_addmonths", _add_months, ["VARCHAR", "BIGINT", "VARCHAR"], "VARCHAR")
    create("tds_months", _months, ["VARCHAR", "BIGINT", "BIGINT"], "BIGINT")
    create("tds_part", _part, ["VARCHAR", "HUGEINT"], "BIGINT")
    create("tds_zone", _zone, ["VARCHAR"], "INTEGER")
    create(
        "tds_hash",
        lambda name, digits: hashlib.new(name, bytes.fromhex(digits)).hexdigest(),
        ["VARCHAR"] * 2,
        "VARCHAR",
    )
    create("tds_lsn", lambda lsn, by: increment(bytes(lsn), by), ["BLOB", "INTEGER"], "BLOB")
    create("tds_newid", new_guid, [], "VARCHAR", volatile=True)


def carried(error: SqlError) -> Exception:
    """Return the error as an exception whose text survives DuckDB."""
    return ValueError(f"{MARK} {error.number} {error.severity} {error.state} {error.text}")


def recovered(text: str) -> SqlError | None:
    """Return the error that a text of DuckDB carries; None if it carries none."""
    match = _NUMBERED.search(text)
    return SqlError(int(match[1]), match[4].strip(), int(match[2]), int(match[3])) if match else None


@lru_cache(maxsize=512)
def named(text: str) -> SqlType:
    """Return the type that a text names."""
    name, _, rest = text.partition("(")
    return make(name, [MAX if p == "max" else int(p) for p in rest.rstrip(")").split(",")] if rest else [])


def _temporal(value: str, source: str, target: str) -> str:
    return str(values.convert_temporal(int(value), named(source), named(target)))


def _convert(value: str | None, source: str, target: str, style: int, lenient: bool) -> str | None:
    if value is None:
        return None
    kind, wanted = named(source), named(target)
    try:
        found = convert_value(_stored(value, kind), kind, wanted, True, style)
    except SqlError as error:
        if lenient:
            return None
        raise carried(error) from None
    if isinstance(found, bytes):
        return found.hex()
    return format(found, "f") if isinstance(found, decimal.Decimal) else str(found)


def _stored(text: str, kind: SqlType) -> object:
    if kind.storage == "BLOB":
        return bytes.fromhex(text)
    if kind.is_text:
        return text
    if kind.name in ("float", "real"):
        return float(text)
    return decimal.Decimal(text) if "DECIMAL" in kind.storage else int(text)


def _binary(value: bytes, length: int, fixed: bool) -> bytes:
    raw = bytes(value)
    if length == MAX:
        return raw
    return raw[:length].ljust(length, b"\0") if fixed else raw[:length]


@lru_cache(maxsize=512)
def _pattern(pattern: str, escape: str | None, sensitive: bool) -> re.Pattern[str]:
    found, at = [], 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == escape and at < len(pattern):
            found.append(re.escape(pattern[at]))
            at += 1
        elif character == "%":
            found.append(".*")
        elif character == "_":
            found.append(".")
        elif character == "[" and "]" in pattern[at:]:
            end = pattern.index("]", at + 1)
            inside = pattern[at:end].replace("\\", "\\\\")
            found.append(f"[{inside}]")
            at = end + 1
        else:
            found.append(re.escape(character))
    return re.compile("".join(found), re.S | (0 if sensitive else re.I))


def _like(value: str | None, pattern: str | None, escape: str | None, sensitive: bool) -> bool | None:
    if value is None or pattern is None:
        return None
    return _pattern(pattern, escape, sensitive).fullmatch(value) is not None


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise carried(SqlError(8134, "Divide by zero error encountered."))
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


def _decimal(operator: str, left: str, right: str, scale: int) -> str:
    a, b = decimal.Decimal(left), decimal.Decimal(right)
    with decimal.localcontext(prec=80, rounding=decimal.ROUND_HALF_UP):
        if operator in "/%" and b == 0:
            raise carried(SqlError(8134, "Divide by zero error encountered."))
        found = {"+": a + b, "-": a - b, "*": a * b}.get(operator)
        if found is None:
            found = a / b if operator == "/" else a % b
        return format(found.quantize(decimal.Decimal(1).scaleb(-scale)), "f")


def _add_months(value: str, months: int, kind: str) -> str:
    whole = values.convert_temporal(int(value), named(kind), SqlType("datetime2", scale=7))
    day, clock = divmod(whole, values.DAY)
    date = values.ZERO + dt.timedelta(days=day)
    index = date.year * 12 + date.month - 1 + months
    year, month = index // 12, index % 12 + 1
    last = (dt.date(year + month // 12, month % 12 + 1, 1) - dt.timedelta(days=1)).day
    moved = values.days(dt.date(year, month, min(date.day, last))) * values.DAY + clock
    return str(values.convert_temporal(moved, SqlType("datetime2", scale=7), named(kind)))


def _months(part: str, start: int, end: int) -> int:
    def index(value: int) -> int:
        date = values.ZERO + dt.timedelta(days=value // values.DAY)
        months = date.year * 12 + date.month - 1
        return {"year": date.year, "quarter": months // 3, "month": months}[part]

    return index(end) - index(start)


def _part(part: str, value: int) -> int:
    utc, minutes = values.split_offset(value)
    if part == "tzoffset":
        return minutes
    day, clock = divmod(utc + minutes * 600_000_000, values.DAY)
    date = values.ZERO + dt.timedelta(days=day)
    fraction = clock % 10_000_000
    found = {
        "year": date.year,
        "quarter": (date.month + 2) // 3,
        "month": date.month,
        "day": date.day,
        "dayofyear": date.timetuple().tm_yday,
        "weekday": (date.isoweekday() % 7) + 1,
        "hour": clock // 36_000_000_000,
        "minute": clock // 600_000_000 % 60,
        "second": clock // 10_000_000 % 60,
        "millisecond": fraction // 10_000,
        "microsecond": fraction // 10,
        "nanosecond": fraction * 100,
    }
    if part not in found:
        raise carried(SqlError(155, f"'{part}' is not a recognized datepart option.", 15))
    return found[part]


def _zone(text: str) -> int:
    sign = -1 if text.strip().startswith("-") else 1
    hours, _, minutes = text.strip().lstrip("+-").partition(":")
    return sign * (int(hours) * 60 + int(minutes or 0))
