"""DateFormat: formats and parses columns of timestamps by patterns of Java's SimpleDateFormat, in UTC. Worker.

As in Java, days before 15 October 1582 are those of the Julian calendar. Parsing is lenient: fields beyond their range
carry over (month 13 is the next January), and text after the pattern is ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
_DAY_MS = 86_400_000
_CUTOVER = -141_427
"""First day of the Gregorian calendar, in days since 1970."""

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKEN = re.compile(r"(?P<field>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<text>[^A-Za-z']+)")
_NUMBERS = "yMLdHkKhmsSDu"
_WRITTEN = _NUMBERS + "GEazZX"
_READ = "yMLdHkKhmsSazZXE"


@dataclass(frozen=True, slots=True)
class DateFormat:
    """A parsed pattern. A part is a letter with its count, or an empty letter with a literal text."""

    parts: tuple[tuple[str, int, str], ...]

    @classmethod
    def of(cls, pattern: str) -> DateFormat:
        """Parse a pattern. Raises ValueError with a message to put after the option's name."""
        parts: list[tuple[str, int, str]] = []
        at = 0
        while at < len(pattern):
            found = _TOKEN.match(pattern, at)
            if found is None:
                raise ValueError("has a quote without an end")
            at = found.end()
            if found["field"] is None:
                quoted = found["quoted"]
                parts.append(("", 0, found["text"] or (quoted.replace("''", "'") or "'")))
            elif found["field"][0] not in _WRITTEN:
                raise ValueError(f"has the letter {found['field'][0]}, which is not supported")
            else:
                parts.append((found["field"][0], len(found["field"]), ""))
        return cls(tuple(parts))

    # --- writing -------------------------------------------------------------------------------------------------

    def written(self, ms: pa.Array) -> pa.Array:
        """Format timestamps, an int64 array in ms since 1970; nulls stay null."""
        numbers: Int64s = pc.fill_null(ms, 0).to_numpy()
        fields = _Fields(numbers)
        parts = [pa.scalar(text) if not letter else fields.text(letter, count) for letter, count, text in self.parts]
        made = pc.binary_join_element_wise(*parts, pa.scalar("")) if parts else pa.repeat("", len(numbers))
        if isinstance(made, pa.Scalar):
            made = pa.repeat(made, len(numbers))
        return pc.if_else(ms.is_valid(), made, pa.scalar(None, pa.string()))

    # --- reading -------------------------------------------------------------------------------------------------

    def unread(self) -> str:
        """Return the pattern's first letter that is not supported for parsing; "" if there is none."""
        return next((letter for letter, _, _ in self.parts if letter and letter not in _READ), "")

    def read(self, texts: pa.Array) -> pa.Array:
        """Parse texts to ms since 1970; null for a text that does not match the pattern."""
        found = pc.extract_regex(texts, self._expression())
        groups: dict[str, Any] = {}
        for number, (letter, count, _) in enumerate(self.parts):
            if letter and letter != "E":
                groups[letter] = _number(letter, count, pc.struct_field(found, f"f{number}"))
        ms = _moments(groups, len(texts))
        return pa.array(ms, pa.int64(), mask=found.is_null().to_numpy(zero_copy_only=False))

    def _expression(self) -> str:
        parts = ["^"]
        for number, (letter, count, text) in enumerate(self.parts):
            if not letter:
                parts.append(re.escape(text))
                continue
            behind = self.parts[number + 1] if number + 1 < len(self.parts) else ("", 0, "")
            abuts = _is_number(behind[0], behind[1])
            parts.append(f"(?P<f{number}>{_pattern(letter, count, abuts)})")
        return "".join(parts)


def _is_number(letter: str, count: int) -> bool:
    return bool(letter) and letter in _NUMBERS and not (letter in "ML" and count > 2)


def _pattern(letter: str, count: int, abuts: bool) -> str:
    """Return the regular expression of a field; a number directly before another one has exactly `count` digits."""
    if letter in "ML" and count > 2:
        return "(?i:" + "|".join([*_MONTHS, *(name[:3] for name in _MONTHS)]) + ")"
    if letter == "E":
        return "(?i:" + "|".join([*_DAYS, *(name[:3] for name in _DAYS)]) + ")"
    if letter == "a":
        return "(?i:AM|PM)"
    if letter in "zZX":
        return r"Z|UTC|GMT|(?:GMT)?[+-][0-9]{1,2}:?(?:[0-9]{2})?"
    return rf"\s*-?[0-9]{{{count}}}" if abuts else r"\s*-?[0-9]+"


def _number(letter: str, count: int, texts: pa.Array) -> Int64s:
    """Return the numbers of a field's texts; of zones, their offsets in minutes."""
    if letter in "ML" and count > 2:
        short = [name[:3].lower() for name in _MONTHS]
        places = pc.index_in(pc.ascii_lower(pc.utf8_slice_codeunits(texts, 0, 3)), pa.array(short))
        return pc.fill_null(pc.add(places, 1), 1).cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]
    if letter == "a":
        return pc.fill_null(pc.equal(pc.ascii_lower(texts), "pm"), False).cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]
    if letter in "zZX":
        return _offsets(texts)
    numbers: Int64s = pc.fill_null(pc.utf8_ltrim_whitespace(texts), "0").cast(pa.int64()).to_numpy()
    if letter == "y" and count <= 2:
        return _with_century(numbers, pc.fill_null(pc.utf8_length(pc.utf8_ltrim_whitespace(texts)), 0).to_numpy())
    return numbers


def _offsets(texts: pa.Array) -> Int64s:
    found = pc.extract_regex(texts, r"(?P<sign>[+-])(?P<hours>[0-9]{1,2}):?(?P<minutes>[0-9]{2})?$")
    hours, minutes = (
        pc.fill_null(pc.if_else(pc.equal(part, ""), "0", part), "0").cast(pa.int64()).to_numpy()
        for part in (pc.struct_field(found, "hours"), pc.struct_field(found, "minutes"))
    )
    sign = np.where(pc.fill_null(pc.equal(pc.struct_field(found, "sign"), "-"), False), -1, 1)
    return sign * (hours * 60 + minutes)  # type: ignore[no-any-return]


def _with_century(numbers: Int64s, digits: Int64s) -> Int64s:
    """Resolve years of two digits: from 80 years before to 20 years after the current year."""
    first = datetime.now(UTC).year - 80
    return np.where(digits == 2, first + (numbers - first) % 100, numbers)


def _moments(fields: dict[str, Int64s], count: int) -> Int64s:
    def of(letters: str, default: int) -> Int64s:
        return next((fields[letter] for letter in letters if letter in fields), np.full(count, default, np.int64))

    days = _days(of("y", 1970), of("ML", 1), of("d", 1))
    if "H" in fields or "k" in fields:
        hours = of("Hk", 0) % 24 if "H" not in fields else of("H", 0)
    else:
        hours = of("Kh", 0) % 12 + 12 * of("a", 0)
    minutes = hours * 60 + of("m", 0) - of("zZX", 0)
    return days * _DAY_MS + (minutes * 60 + of("s", 0)) * 1000 + of("S", 0)


def _days(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Return the days since 1970; before the Gregorian calendar, of dates of the Julian calendar."""
    months = (year - 1970) * 12 + month - 1
    gregorian: Int64s = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day - 1
    early = gregorian < _CUTOVER
    if not early.any():
        return gregorian
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    shift = (14 - month) // 12
    years, since = year + 4800 - shift, month + 12 * shift - 3
    julian = day + (153 * since + 2) // 5 + 365 * years + years // 4 - 32083 - 2_440_588
    return np.where(early, julian, gregorian)


class _Fields:
    """The calendar fields of timestamps in ms since 1970."""

    def __init__(self, ms: Int64s) -> None:
        self._days = ms // _DAY_MS
        self._clock = ms % _DAY_MS
        self._date: tuple[Int64s, Int64s, Int64s] | None = None

    def text(self, letter: str, count: int) -> pa.Array:
        """Format a field."""
        if letter in "ML" and count > 2:
            return _named(_MONTHS, self._number("M") - 1, count)
        if letter == "E":
            return _named(_DAYS, (self._days + 3) % 7, count)
        if letter == "a":
            return pa.array(["AM", "PM"]).take(pa.array(self._clock // (_DAY_MS // 2)))
        if letter == "G":
            return pa.array(["BC", "AD"]).take(pa.array((self._civil()[0] > 0).astype(np.int64)))
        if letter in "zZX":
            zone = {"z": "UTC" if count < 4 else "Coordinated Universal Time", "Z": "+0000", "X": "Z"}[letter]
            return pa.repeat(zone, len(self._days))
        numbers = self._number(letter)
        if letter == "y" and count == 2:
            numbers = numbers % 100
        return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), count, "0")

    def _number(self, letter: str) -> Int64s:
        clock, hours = self._clock, self._clock // 3_600_000
        match letter:
            case "y":
                year = self._civil()[0]
                return np.where(year > 0, year, 1 - year)
            case "M" | "L":
                return self._civil()[1]
            case "d":
                return self._civil()[2]
            case "D":
                year = self._civil()[0]
                ones = np.ones(len(year), np.int64)
                return self._days - _days(year, ones, ones) + 1
            case "u":
                return (self._days + 3) % 7 + 1
            case "H":
                return hours
            case "k":
                return np.where(hours == 0, 24, hours)
            case "K":
                return hours % 12
            case "h":
                return (hours + 11) % 12 + 1
            case "m":
                return clock // 60_000 % 60
            case "s":
                return clock // 1000 % 60
        return clock % 1000

    def _civil(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return year, month and day; the year before 1 is 0."""
        if self._date is None:
            dates = self._days.astype("datetime64[D]")
            months = dates.astype("datetime64[M]")
            year = months.astype("datetime64[Y]").astype(np.int64) + 1970
            month = months.astype(np.int64) % 12 + 1
            day = (dates - months.astype("datetime64[D]")).astype(np.int64) + 1
            early = self._days < _CUTOVER
            if early.any():
                year, month, day = (
                    np.where(early, old, new) for old, new in zip(_julian(self._days), (year, month, day), strict=True)
                )
            self._date = year, month, day
        return self._date


def _julian(days: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    since = days + 2_440_588 + 32_082
    years = (4 * since + 3) // 1461
    rest = since - 1461 * years // 4
    months = (5 * rest + 2) // 153
    day = rest - (153 * months + 2) // 5 + 1
    return years - 4800 + months // 10, months + 3 - 12 * (months // 10), day


def _named(names: tuple[str, ...], places: Int64s, count: int) -> pa.Array:
    shown = names if count >= 4 else tuple(name[:3] for name in names)
    return pa.array(shown).take(pa.array(places))
