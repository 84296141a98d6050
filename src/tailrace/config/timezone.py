"""Time zones by Java's names: regions of the time zone database, and offsets. No I/O but the database's own files."""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?")


def timezone(name: str) -> dt.tzinfo:
    """Return the zone. Raises ValueError for an unknown name; the message follows an option's name."""
    text = name.strip()
    if text.upper() in ("Z", "UTC", "GMT", "UT"):
        return dt.UTC
    found = _OFFSET.fullmatch(text)
    if found:
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        if hours <= 18 and minutes < 60 and seconds < 60:
            size = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
            return dt.timezone(-size if found[1] == "-" else size)
    else:
        try:
            return zoneinfo.ZoneInfo(text)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise ValueError(f"must be a region, such as Europe/Berlin, or an offset, such as +02:00, not {text!r}")
