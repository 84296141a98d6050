"""Dates and times of MySQL and MariaDB: zero and partial dates, years of two digits, times beyond a day. No I/O."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import INT32, LogicalType, semantic
from tailrace.kernels.programs import Fragment
from tailrace.values import dates, times, timestamps
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.instants import ZONED_TIMESTAMP, Instants
from tailrace.values.preparation import PreparedFamily
from tailrace.values.strings import STRINGS
from tailrace.values.texts import ShownValues, Texts

YEAR = semantic(INT32, "io.debezium.time.Year")
_ZONED_ZERO = "1970-01-01T00:00:00Z"
# Dates with month or day zero, for which events show null or the epoch; and days that a month may lack, which are
# possible with ALLOW_INVALID_DATES. Columns with such dates, or with February 29, are converted value by value.
_DOUBTFUL = r"^[0-9]{4}-(?:00|[0-9]{2}-00|02-29|02-3|0[469]-31|11-31)"
_EARLY = re.compile(r"00([0-9]{2})(?=-)")
_DAY_NS = 86_400_000_000_000
DATED = ("date", "datetime", "timestamp")
"""Types whose values may lack a month or a day."""


def is_partial(text: str) -> bool:
    """Return True for a date without a month or a day."""
    return text[5:7] == "00" or text[8:10] == "00"


def adjusted(text: str) -> str:
    """Return a date or timestamp with a year below 100 as one of 1970 to 2069."""
    found = _EARLY.match(text)
    if found is None:
        return text
    return ("20" if int(found[1]) < 70 else "19") + text[2:]


def _prepared(adjusts: bool) -> Callable[[pa.Array], pa.Array]:
    """Return a function that adjusts a column's years. It raises ArrowInvalid if a date may be invalid, so that values
    are converted one by one."""

    def prepare(column: pa.Array) -> pa.Array:
        texts = column.cast(pa.string())
        if pc.any(pc.match_substring_regex(texts, _DOUBTFUL)).as_py():
            raise pa.ArrowInvalid("a date may not be in the calendar")
        if adjusts and pc.any(pc.starts_with(texts, "00")).as_py():
            texts = pc.replace_substring_regex(texts, r"^00([0-6][0-9]-)", r"20\1")
            texts = pc.replace_substring_regex(texts, r"^00([7-9][0-9]-)", r"19\1")
        return texts

    return prepare


@dataclass(frozen=True, slots=True)
class _Dated:
    """The plain conversion of dates: null for partial dates, ValueError for days that the calendar does not have."""

    plain: Callable[[str], Any]
    adjusts: bool

    def __call__(self, text: str) -> Any:
        if is_partial(text):
            return None
        text = adjusted(text) if self.adjusts else text
        if int(text[8:10]) > monthrange(int(text[:4]) or 4, int(text[5:7]))[1]:
            raise ValueError("a day that no calendar has")
        return self.plain(text)


def _of_dates(known: Conversion, adjusts: bool) -> Conversion:
    """Return the conversion with null for partial dates, and adjusted years."""

    return replace(known, plain=_Dated(known.plain, adjusts), family=PreparedFamily(_prepared(adjusts), known.family))


def without_adjustment(known: Conversion) -> Conversion:
    """Return the conversion of dates without the adjustment of years below 100."""
    family, plain = known.family, known.plain
    if isinstance(plain, _Zeros):
        return with_zeros(without_adjustment(replace(known, plain=plain.known)), "error" if plain.is_error else "epoch")
    if not isinstance(family, PreparedFamily) or not isinstance(plain, _Dated):
        return known
    return replace(known, plain=replace(plain, adjusts=False), family=PreparedFamily(_prepared(False), family.family))


def date(mode: str, adjusts: bool) -> Conversion:
    return _of_dates(dates.date(mode, strict=True), adjusts)


def datetime(digits: int, mode: str, adjusts: bool) -> Conversion:
    return _of_dates(timestamps.timestamp(digits, mode, fine=True), adjusts)


@dataclass(frozen=True, slots=True)
class _Zeros:
    """A plain conversion with the epoch, or an error, for partial dates."""

    known: Callable[[str], Any]
    zero: Any
    is_error: bool

    def __call__(self, text: str) -> Any:
        if not is_partial(text):
            return self.known(text)
        if self.is_error:
            raise ValueError("a date without a month or a day")
        return self.zero


def with_zeros(known: Conversion, what: str) -> Conversion:
    """Return the conversion with `what` for partial dates: `epoch` or `error`; else null."""
    if what not in ("epoch", "error"):
        return known
    return replace(known, plain=_Zeros(known.plain, known.zero, what == "error"))


# --- TIMESTAMP --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instant(Family):
    """Timestamps in UTC from the server's text, whose digits events keep."""

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int] | None:
        column = texts.column.cast(pa.string())
        if not _are_timestamps(column):
            return None
        written = pc.binary_join_element_wise(pc.replace_substring(column, " ", "T", max_replacements=1), "Z", "")
        return STRINGS.json(texts.replaced(written), shown)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        column = texts.column.cast(pa.string())
        if not _are_timestamps(column):
            return None
        return Instants(-1).arrow(texts.replaced(pc.binary_join_element_wise(column, "+00", "")), logical, of)


_TIMESTAMP = (
    r"^[1-9][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01]) [0-2][0-9]:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?$"
)


def _are_timestamps(column: pa.Array) -> bool:
    return pc.all(pc.match_substring_regex(column, _TIMESTAMP)).as_py() is not False


def timestamp_text(text: str) -> str | None:
    """Return a TIMESTAMP in UTC as ISO text; None for zeros."""
    if is_partial(text):
        return None
    if re.fullmatch(_TIMESTAMP, text) is None:
        raise ValueError("not a timestamp")
    return text.replace(" ", "T", 1) + "Z"


def timestamp() -> Conversion:
    """Return the conversion of TIMESTAMP, which time.precision.mode does not change."""
    return Conversion(ZONED_TIMESTAMP, timestamp_text, Instant(), zero=_ZONED_ZERO)


# --- TIME -------------------------------------------------------------------------------------------------------------

_TIME = re.compile(r"(-?)([0-9]{2,3}):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,6}))?")
_OF_A_DAY = r"^(?:[01][0-9]|2[0-3]):"


def time_ns(text: str) -> int:
    """Return a TIME in ns, which may be negative and longer than a day."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("not a time")
    sign, hours, minutes, seconds, fraction = found.groups()
    ns = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000_000 + int((fraction or "").ljust(9, "0"))
    return -ns if sign else ns


def _within_a_day(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    if pc.all(pc.match_substring_regex(texts, _OF_A_DAY)).as_py() is False:
        raise pa.ArrowInvalid("a time is negative or longer than a day")
    return texts


def time(digits: int, mode: str) -> Conversion:
    """Return the conversion of TIME. In the modes `connect` and `isostring` negative times and times beyond a day
    are errors."""
    mode = "microseconds" if mode == "adaptive_time_microseconds" else mode
    known = times.time(digits, mode, fine=False)
    if mode in ("connect", "isostring"):
        plain = known.plain

        def convert(text: str) -> Any:
            ns = time_ns(text)
            if ns == _DAY_NS and mode == "connect":
                return ns // 1_000_000
            if not 0 <= ns < _DAY_NS:
                raise ValueError("a time that no clock shows")
            return plain(text)

    else:
        unit = 1000 if mode == "microseconds" else 1

        def convert(text: str) -> Any:
            # towards zero, as Java divides
            ns = time_ns(text)
            return ns // unit if ns >= 0 else -(-ns // unit)

    return replace(known, plain=convert, family=PreparedFamily(_within_a_day, known.family))


# --- YEAR -------------------------------------------------------------------------------------------------------------


def year_number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise ValueError("not a year")
    return int(text)
