"""Conversions of values between Python, text and the storage form that sqltype.py describes."""

from __future__ import annotations

import datetime as dt
import decimal
import re
import uuid

from tdsserver.errors import SqlError
from tdsserver.sqltype import MAX, SqlType, codec

DAY = 864_000_000_000
"""Units of 100 ns in a day."""
ZERO = dt.date(1, 1, 1)
EPOCH_1900 = (dt.date(1900, 1, 1) - ZERO).days
OFFSET_BASE = 4096
OFFSET_ZERO = 2048

_DATE = r"(?P<y>\d{4})-?(?P<m>\d{2})-?(?P<d>\d{2})"
_TIME = r"(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.:](?P<f>\d{1,9}))?)?"
_ZONE = r"(?P<z>Z|[+-]\d{2}:\d{2})?"
_MOMENT = re.compile(rf"\s*(?:{_DATE})?(?:(?:^|\s*T|\s+|(?<=\d)\s)\s*)?(?:{_TIME})?\s*{_ZONE}\s*", re.I)


def days(date: dt.date) -> int:
    """Return the storage form of a date."""
    return (date - ZERO).days


def units(moment: dt.datetime) -> int:
    """Return the storage form of a point in time without zone."""
    clock = (moment.hour * 3600 + moment.minute * 60 + moment.second) * 10_000_000 + moment.microsecond * 10
    return days(moment.date()) * DAY + clock


def offset_units(utc: int, minutes: int) -> int:
    """Return the storage form of a datetimeoffset: units of UTC and the minutes of its offset."""
    return utc * OFFSET_BASE + minutes + OFFSET_ZERO


def split_offset(stored: int) -> tuple[int, int]:
    """Return the units of UTC and the offset in minutes of a stored datetimeoffset."""
    return stored // OFFSET_BASE, stored % OFFSET_BASE - OFFSET_ZERO


def rounded(value: int, scale: int) -> int:
    """Return units of 100 ns, rounded half up to `scale` digits of a second as SQL Server does."""
    step = int(10 ** (7 - scale))
    return (value + step // 2) // step * step


def to_datetime(value: int) -> int:
    """Return units rounded to 1/300 of a second, as datetime holds them; raises SqlError 242 outside 1753 to 9999."""
    day, clock = divmod(value, DAY)
    ticks = (clock * 300 + 5_000_000) // 10_000_000
    if ticks == 86_400 * 300:
        day, ticks = day + 1, 0
    if day < days(dt.date(1753, 1, 1)):
        raise SqlError(
            242, "The conversion of a datetime2 data type to a datetime data type resulted in an out-of-range value."
        )
    return day * DAY + datetime_clock(ticks)


def datetime_clock(ticks: int) -> int:
    """Return the time of day that clients show for ticks of 1/300 s: milliseconds ending in 0, 3 or 7."""
    return (ticks * 10 + 1) // 3 * 10_000


def parse_moment(text: str) -> tuple[int | None, int, int | None]:
    """Return the days, the units of the day and the offset in minutes; raises SqlError 241.

    The days are None in a text without a date, the minutes in a text without an offset.
    """
    match = _MOMENT.fullmatch(text)
    if match is None or not text.strip():
        raise SqlError(241, "Conversion failed when converting date and/or time from character string.")
    try:
        day = days(dt.date(int(match["y"]), int(match["m"]), int(match["d"]))) if match["y"] else None
        clock = dt.time(int(match["H"] or 0), int(match["M"] or 0), int(match["S"] or 0))
    except ValueError as error:
        raise SqlError(
            242, "The conversion of a varchar data type to a date type resulted in an out-of-range value."
        ) from error
    fraction = (match["f"] or "").ljust(8, "0")
    unit = (clock.hour * 3600 + clock.minute * 60 + clock.second) * 10_000_000 + int(fraction[:7])
    unit += int(fraction[7]) >= 5
    zone = match["z"]
    minutes = None
    if zone:
        sign = -1 if zone[0] == "-" else 1
        minutes = 0 if zone.upper() == "Z" else sign * (int(zone[1:3]) * 60 + int(zone[4:6]))
    return day, unit, minutes


def temporal(text: str, kind: SqlType) -> int:
    """Return the storage form of a text as a temporal type; raises SqlError 241 or 242."""
    day, unit, minutes = parse_moment(text)
    day = EPOCH_1900 if day is None else day
    whole = day * DAY + unit
    if kind.name == "datetimeoffset":
        return convert_temporal(offset_units(whole - (minutes or 0) * 600_000_000, minutes or 0), kind, kind)
    if kind.name == "date":
        return day
    return convert_temporal(whole, SqlType("datetime2", scale=7), kind)


def convert_temporal(value: int, source: SqlType, target: SqlType) -> int:
    """Return a stored temporal value as another temporal type, rounded to its scale."""
    minutes = 0
    if source.name == "datetimeoffset":
        utc, minutes = split_offset(value)
        local = utc + minutes * 600_000_000
    elif source.name == "date":
        local = value * DAY
    elif source.name == "time":
        local = value + EPOCH_1900 * DAY
    else:
        local = value
    if target.name == "date":
        return local // DAY
    if target.name == "time":
        return rounded(local % DAY, target.scale) % DAY
    if target.name == "datetime":
        return to_datetime(local)
    if target.name == "smalldatetime":
        return (local + 300_000_000) // 600_000_000 * 600_000_000
    local = rounded(local, target.scale)
    return offset_units(local - minutes * 600_000_000, minutes) if target.name == "datetimeoffset" else local


def temporal_text(value: int, kind: SqlType) -> str:
    """Return the text that CONVERT(varchar, …, 121) gives for a temporal value."""
    if kind.name == "date":
        return (ZERO + dt.timedelta(days=value)).isoformat()
    if kind.name == "datetimeoffset":
        utc, minutes = split_offset(value)
        sign = "-" if minutes < 0 else "+"
        zone = f" {sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
        return _clock_text(utc + minutes * 600_000_000, kind.scale, True) + zone
    scale = {"datetime": 3, "smalldatetime": 0}.get(kind.name, kind.scale)
    return _clock_text(value, scale, kind.name != "time")


def _clock_text(value: int, scale: int, dated: bool) -> str:
    day, clock = divmod(value, DAY)
    seconds, fraction = divmod(clock, 10_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if scale:
        text += "." + f"{fraction:07}"[:scale]
    return f"{(ZERO + dt.timedelta(days=day)).isoformat()} {text}" if dated else text


def guid_bytes(value: uuid.UUID) -> bytes:
    """Return a uniqueidentifier's storage form: the last six bytes first, in the order in which SQL Server compares."""
    b = value.bytes
    return b[10:] + b[8:10] + b[6:8] + b[4:6] + b[:4]


def guid(stored: bytes) -> uuid.UUID:
    """Return the value of a stored uniqueidentifier."""
    return uuid.UUID(bytes=stored[12:16] + stored[10:12] + stored[8:10] + stored[6:8] + stored[:6])


def literal(value: object) -> str:
    """Return a storage value as DuckDB's own SQL text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        return f"'{value!r}'::DOUBLE"
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return str(value)


def fit_text(value: str, kind: SqlType) -> str:
    """Return the text in storage form: in varchar's code page, padded for char. The caller has checked the length."""
    if kind.name in ("char", "varchar", "text"):
        value = value.encode(codec(kind), "replace").decode(codec(kind))
    if kind.name in ("char", "nchar") and kind.length != MAX:
        value = value.ljust(kind.length)
    return value


def literal_as(value: object, kind: SqlType) -> str:
    """Return a storage value as DuckDB's own SQL text, of the right storage type."""
    return f"CAST({literal(value)} AS {kind.storage})"
