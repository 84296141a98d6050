"""InsertHeader, HeaderFrom and DropHeaders: the headers of records, and constants as Kafka Connect reads them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

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
    array,
    mapping,
    semantic,
)
from tailrace.errors import ConfigError
from tailrace.records.layout import Constant, Header, RecordLayout
from tailrace.records.nodes import with_defaults, with_headers
from tailrace.records.transform import Rewritten
from tailrace.transforms.key_or_value import (
    KEY,
    VALUE,
    copied,
    defaulted,
    defaults,
    required_field,
    required_struct,
    with_part,
)
from tailrace.transforms.option_reader import OptionReader
from tailrace.values.binaries import base64_text
from tailrace.values.decimals import unscaled, unscaled_bytes
from tailrace.values.json_text import Verbatim, java_number

# --- constants --------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_MARK = re.compile(r"[\[\]{},:]")
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
    """Parse a text as a boolean, number, date, time, timestamp, list or map; any other text is a string.

    Raises ValueError, with a message to put after the text's name, for null, and for lists and maps without one type.
    """
    token = text.strip()
    if token == "null":
        raise ValueError("is null, which is not supported")
    if token[:1] in ("[", "{"):
        # a text with brackets that is no valid list or map is a string
        try:
            return _Nested(token).value()
        except _NotNested:
            return Constant(text, STRING)
    return _scalar(token) or _temporal(token) or _before_mark(token) or Constant(text, STRING)


def _before_mark(token: str) -> Constant | None:
    """Parse a number or a date before one of the marks of lists and maps; None for other texts. As in Kafka Connect,
    the rest is ignored: 12:30 is 12."""
    for pattern, kind, value in _TEMPORAL:
        found = pattern.match(token)
        if found is not None and _MARK.match(token[found.end() :].lstrip()):
            return Constant(value(found[0]), kind)
    first = _MARK.split(token, maxsplit=1)[0].rstrip()
    return None if first == token else _number_of(first)


def _scalar(token: str) -> Constant | None:
    """Parse a boolean or a number; None for other words."""
    if token in ("true", "false"):
        return Constant(token == "true", BOOLEAN)
    return _number_of(token)


def _number_of(token: str) -> Constant | None:
    """Parse a number; None for other words."""
    return _number(token) if _NUMBER.fullmatch(token) and token[0] != "." else None


def _temporal(token: str) -> Constant | None:
    """Parse a date, a time or a timestamp; None for other words."""
    return next((Constant(value(token), kind) for pattern, kind, value in _TEMPORAL if pattern.fullmatch(token)), None)


class _NotNested(Exception):
    """Raised for a text that is no list and no map."""


class _Nested:
    """Parses lists and maps of numbers, booleans, quoted texts, lists and maps. As in Kafka Connect, escapes in quoted
    texts are kept as written, and text after the last bracket is ignored."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self) -> Constant:
        """Parse the next value. Raises _NotNested, and ValueError as `literal` does."""
        if self._skip("["):
            values = list(self._parts("]", lambda: (None, self.value())))
            kind, shown = _alike([value for _, value in values])
            return Constant(shown, array(kind))
        if self._skip("{"):
            pairs = list(self._parts("}", self._pair))
            kind, shown = _alike([value for _, value in pairs])
            names = [str(key.value) for key, _ in pairs if key is not None]
            return Constant(dict(zip(names, shown, strict=True)), mapping(kind))
        found = _PART.match(self._text, self._at)
        if found is None:
            raise _NotNested
        self._at = found.end()
        if found["text"] is not None:
            return _temporal(found["text"]) or Constant(found["text"], STRING)
        if found["word"] == "null":
            raise ValueError("has a null in a list or a map, which is not supported")
        scalar = _scalar(found["word"])
        if scalar is None:
            raise _NotNested
        return scalar

    def _parts(self, end: str, part: Callable[[], tuple[Constant | None, Constant]]) -> Iterator[_Pair]:
        while not self._skip(end):
            yield part()
            if not self._skip(","):
                if not self._skip(end):
                    raise _NotNested
                return

    def _pair(self) -> _Pair:
        key = self.value()
        if not self._skip(":"):
            raise _NotNested
        if key.type != STRING:
            raise ValueError("is a map whose keys are not texts, which is not supported")
        return key, self.value()

    def _skip(self, mark: str) -> bool:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1
        found = self._text.startswith(mark, self._at)
        self._at += found
        return found


_Pair = tuple[Constant | None, Constant]
_PART = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>[^\s\[\]{},:"]+)')
_WIDER = (INT8, INT16, INT32, INT64, FLOAT, DOUBLE)


def _alike(values: list[Constant]) -> tuple[LogicalType, list[Any]]:
    """Return the common type of several values, for numbers the widest, and the values in that type."""
    kinds = [value.type for value in values]
    if kinds and all(kind in _WIDER for kind in kinds):
        widest = max(kinds, key=_WIDER.index)
        if widest in (FLOAT, DOUBLE):
            single = widest == FLOAT
            return widest, [_floating(Decimal(str(value.value)), single) for value in values]
        return widest, [value.value for value in values]
    if not kinds or any(kind != kinds[0] for kind in kinds):
        raise ValueError("is a list or a map whose values have no common type, which is not supported")
    return kinds[0], [value.value for value in values]


def _floating(number: Decimal, single: bool) -> Any:
    return _single(number) if single else Verbatim(java_number(repr(float(number))))


def _number(token: str) -> Constant:
    """Return a number in the smallest type that holds it."""
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
        return Constant(_floating(number, False), DOUBLE)
    kind = LogicalType("bytes", _DATA + "Decimal", 1, (("scale", str(-exponent)),))
    return Constant(base64_text(unscaled_bytes(unscaled(number, -exponent))), kind)


def _single(number: Decimal) -> Any:
    import numpy as np

    return Verbatim(java_number(str(np.float32(str(number))), single=True))


# --- the transforms ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InsertHeader:
    """A tailrace.records.transform.Transform that adds a header with a constant value."""

    header: str
    text: str

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return with_headers(record, Header(self.header, literal(self.text)))


@dataclass(frozen=True, slots=True)
class HeaderFrom:
    """A tailrace.records.transform.Transform that copies or moves fields of the key or the value into headers."""

    which: str
    fields: tuple[str, ...]
    headers: tuple[str, ...]
    moves: bool
    defaults: bool

    def rewrite(self, record: RecordLayout) -> Rewritten:
        struct = required_struct(record, self.which, "HeaderFrom")
        found = []
        for field, header in zip(self.fields, self.headers, strict=True):
            node = required_field(struct, self.which, field, "HeaderFrom")
            found.append(Header(header, with_defaults(node) if self.defaults else node))
        if self.moves:
            left = tuple(member for member in struct.members if member.name not in self.fields)
            rest = copied(struct, defaulted(left, self.defaults), "HeaderFrom")
            record = with_part(record, self.which, rest)
        return with_headers(record, *found)


@dataclass(frozen=True, slots=True)
class DropHeaders:
    """A tailrace.records.transform.Transform that removes headers."""

    headers: frozenset[str]

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return replace(record, headers=tuple(header for header in record.headers if header.name not in self.headers))


def insert_header(options: Mapping[str, str]) -> InsertHeader:
    """Make InsertHeader from its options. Raises ConfigError."""
    given = OptionReader(options)
    # an empty text is a valid value
    text = given.verbatim("value.literal", "") if "value.literal" in options else given.required("value.literal")
    found = InsertHeader(given.required("header"), text)
    given.done()
    try:
        made = literal(found.text)
    except ValueError as fault:
        raise ConfigError(f"value.literal {fault}.") from None
    assert isinstance(made, Constant)
    return found


def _header_from(which: str, options: Mapping[str, str]) -> HeaderFrom:
    given = OptionReader(options)
    given.required("fields")
    given.required("headers")
    fields, headers = given.names("fields"), given.names("headers")
    moves = given.word("operation", "", ("move", "copy")) == "move"
    if len(fields) != len(headers):
        raise ConfigError("fields and headers must have the same number of names.")
    found = HeaderFrom(which, fields, headers, moves, defaults(given))
    given.done()
    return found


header_from_key, header_from_value = partial(_header_from, KEY), partial(_header_from, VALUE)
"""Make HeaderFrom from its options, for keys and for values."""


def drop_headers(options: Mapping[str, str]) -> DropHeaders:
    """Make DropHeaders from its options. Raises ConfigError."""
    given = OptionReader(options)
    given.required("headers")
    found = DropHeaders(frozenset(given.names("headers")))
    given.done()
    return found
