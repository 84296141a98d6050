"""TimezoneConverter: converts timestamps of events to another time zone.

An instant is shown at the zone's offset. A timestamp without a zone is taken as the zone's wall time, so it moves by
minus the offset. In both cases, as in Debezium, the offset is looked up for the UTC clock reading as a wall time of the
zone: within hours of a change of clocks, an instant may get the offset from before the change.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.config.timezone import timezone
from tailrace.errors import ConfigError
from tailrace.records.layout import ComputedColumn, Constant, Member, Node, RecordLayout, Struct
from tailrace.records.nodes import is_envelope, with_defaults
from tailrace.records.transform import Rewritten, Shared, VaryingLayout, by_distinct
from tailrace.transforms.option_reader import OptionReader
from tailrace.values.timestamps import instant_texts

Int64s = npt.NDArray[np.int64]

_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_WALL = (f"{_DEBEZIUM}Timestamp", f"{_DEBEZIUM}MicroTimestamp", f"{_DEBEZIUM}NanoTimestamp", f"{_CONNECT}Timestamp")
_INSTANT, _CLOCK = f"{_DEBEZIUM}ZonedTimestamp", f"{_DEBEZIUM}ZonedTime"
_EPOCHS = {"ts_ms": 1000, "ts_us": 1_000_000, "ts_ns": 1_000_000_000}
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400
_PARTS = ("before", "after", "source")
_PREFIXES = tuple(f"{part}." for part in _PARTS)
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d(?::\d\d)?)")
# ISO texts have years of four digits between these seconds.
_YEAR_0, _YEAR_10000 = -62_167_219_200, 253_402_300_800


Fields = frozenset[str]
"""Names of fields, which may begin with `before.`, `after.` or `source.`; none for a rule without a field."""


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """The rules of a list, by what they match: topics, tables, and names that may be of either."""

    topics: Mapping[str, Fields]
    tables: Mapping[str, Fields]
    either: Mapping[str, Fields]

    def of(self, topic: str, table: str | None) -> Fields | None:
        """Return the fields that the rules for a table's events to a topic name; None if there is no such rule.

        As in Debezium, only the first of these counts: the topic's, the table's, and those of names for either.
        """
        for rules, name in ((self.topics, topic), (self.tables, table), (self.either, topic), (self.either, table)):
            if name is not None and name in rules:
                return rules[name]
        return None


def rules(texts: tuple[str, ...]) -> ZoneRules:
    """Parse the rules of a list. The place of a rule, source or topic, holds for those behind it too. Raises
    ConfigError."""
    found: dict[str, dict[str, Fields]] = {"topic": {}, "source": {}, "": {}}
    place = ""
    for number, text in enumerate(texts):
        parts = [part.strip() for part in text.split(":")]
        if parts[0] in ("source", "topic") and len(parts) > 1:
            place = parts.pop(0)
        elif len(parts) == 1 and not number:
            raise ConfigError(f"{text!r} is not a rule.", "Write source:table, topic:topic or name:field.")
        if len(parts) > 2 or not all(parts):
            raise ConfigError(f"{text!r} is not a rule.", "Write source:table:field, topic:topic:field or name:field.")
        known = found[place].get(parts[0], frozenset())
        found[place][parts[0]] = known | frozenset(parts[1:])
    return ZoneRules(found["topic"], found["source"], found[""])


def _named(fields: Fields, part: str) -> Fields:
    """Return the fields of a part of events that a rule names: without a prefix, those of both images."""
    plain = (field for field in fields if not field.startswith(_PREFIXES) and part != "source")
    own = (field.removeprefix(f"{part}.") for field in fields if field.startswith(f"{part}."))
    return frozenset((*plain, *own))


@lru_cache(maxsize=16)
def _zone(name: str) -> dt.tzinfo:
    return timezone(name)


def _offsets(zone: dt.tzinfo, seconds: Int64s) -> Int64s:
    """Return the zone's offset in seconds at each instant, given in seconds since 1970. It is constant within each
    quarter of an hour."""
    quarters = seconds // 900
    # most instants are in the order of time: of equal neighbours only one is looked up
    first = np.append(True, quarters[1:] != quarters[:-1]) if len(quarters) else np.zeros(0, np.bool_)
    found, which = np.unique(quarters[first], return_inverse=True)
    known = np.array([_offset(zone, quarter * 900) for quarter in found.tolist()], np.int64)
    offsets: Int64s = known[which.reshape(-1)][np.cumsum(first) - 1]
    return offsets


@lru_cache(maxsize=1 << 16)
def _offset(zone: dt.tzinfo, second: int) -> int:
    # beyond the years of Python's datetime, the nearest year's offset is used
    second = min(max(second, _YEAR_0 + 400 * _DAY), _YEAR_10000 - 400 * _DAY)
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second)
    found = moment.astimezone(zone).utcoffset()
    assert found is not None
    return round(found.total_seconds())


def _wall_offsets(zone: dt.tzinfo, seconds: Int64s) -> Int64s:
    """Return the offsets of wall times of the zone: the earlier offset if a time exists twice or not at all."""
    before, after = _offsets(zone, seconds - _DAY), _offsets(zone, seconds + _DAY)
    if (before == after).all():
        return before
    holds = _offsets(zone, seconds - before) == before
    later = _offsets(zone, seconds - after) == after
    return np.where(holds | ~later, before, after)


def _as_wall_time(zone: str, values: pa.Array) -> pa.Array:
    """Return timestamps without a zone, taken as the zone's wall time, in UTC."""
    unit = _PER_SECOND[values.type.unit]
    numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
    moved = numbers - _wall_offsets(_zone(zone), numbers // unit) * unit
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(moved, pa.int64(), mask=nulls).cast(values.type)


def _shifted(zone: str, unit: int, values: pa.Array) -> pa.Array:
    """Return numbers since 1970, `unit` per second, moved by the zone's offset."""
    numbers = pc.fill_null(values, 0).to_numpy()
    moved = numbers + _wall_offsets(_zone(zone), numbers // unit) * unit
    return pa.array(moved, pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))


def _at_offset(zone: str, values: pa.Array) -> pa.Array:
    """Return instants as ISO texts at the zone's offset, without trailing zeros in the second's fraction."""
    numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
    offsets = _wall_offsets(_zone(zone), numbers // 1_000_000)
    texts = instant_texts(numbers, offsets)
    return pc.if_else(values.is_valid(), texts, None) if values.null_count else texts


def _offset_text(offset: int) -> str:
    if not offset:
        return "Z"
    sign, size = ("-", -offset) if offset < 0 else ("+", offset)
    text = f"{sign}{size // 3600:02}:{size // 60 % 60:02}"
    return f"{text}:{size % 60:02}" if size % 60 else text


def _clock_at_offset(zone: str, values: pa.Array) -> pa.Array:
    """Return times of day with an offset at the zone's current offset."""
    now = round(dt.datetime.now(dt.UTC).timestamp())
    return by_distinct(partial(_clock, _offset(_zone(zone), now)), pa.string(), values)


def _clock(offset: int, text: str) -> str:
    found = _TIME.fullmatch(text)
    if found is None:
        return text
    hours, minutes, seconds = (int(part) for part in found.groups()[:3])
    was = 0
    if found[5] != "Z":
        parts = [int(part) for part in found[5][1:].split(":")] + [0]
        was = (parts[0] * 3600 + parts[1] * 60 + parts[2]) * (-1 if found[5][0] == "-" else 1)
    second = (hours * 3600 + minutes * 60 + seconds - was + offset) % _DAY
    fraction = (found[4] or "").rstrip("0").rstrip(".")
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}{fraction}{_offset_text(offset)}"


@dataclass(frozen=True, slots=True)
class TimezoneConverter:
    """A records.transform.Transform. The rules name the fields to convert if `includes`, else the fields to keep.

    `texts` are the rules as written; without any, all fields of both images are converted.
    """

    zone: str
    texts: tuple[str, ...]
    includes: bool

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        return record, True

    def rewrite(self, record: RecordLayout) -> Rewritten:
        if not is_envelope(record):
            return record
        if not isinstance(record.topic, str):
            return VaryingLayout(record.topic, lambda topic: self._converted(record, topic))
        return self._converted(record, record.topic)

    def _converted(self, record: RecordLayout, topic: str) -> RecordLayout:
        value = record.value
        assert isinstance(value, Struct)
        source = value.part("source")
        table = source.part("table") if isinstance(source, Struct) else None
        fields = rules(self.texts).of(topic, str(table.value) if isinstance(table, Constant) else None)
        if self.texts and (fields is None) == self.includes and not fields:
            # of no rule of the ones to include, or whole among those to exclude
            return record
        for part in _PARTS:
            found = value.part(part)
            if isinstance(found, Struct):
                value = value.with_part(part, self._part(part, found, fields or frozenset()))
        return replace(record, value=value)

    def _part(self, part: str, struct: Struct, fields: Fields) -> Struct:
        named = _named(fields, part)
        if part == "source" and not named:
            return struct
        members = []
        for member in struct.members:
            wanted = not fields or (member.name in named) == self.includes
            members.append(Member(member.name, self._field(part, member) if wanted else member.node))
        return replace(struct, members=tuple(members))

    def _field(self, part: str, member: Member) -> Node:
        node, name = with_defaults(member.node), member.node.type.name
        if isinstance(node, Struct):
            return node
        if part == "source":
            unit = _EPOCHS.get(member.name)
            return (
                member.node if unit is None else ComputedColumn((node,), partial(_shifted, self.zone, unit), node.type)
            )
        if name in _WALL:
            return ComputedColumn((node,), partial(_as_wall_time, self.zone), node.type)
        if name == _INSTANT:
            return ComputedColumn((node,), partial(_at_offset, self.zone), node.type, shown=True)
        if name == _CLOCK:
            return ComputedColumn((node,), partial(_clock_at_offset, self.zone), node.type)
        return member.node


def timezone_converter(options: Mapping[str, str]) -> TimezoneConverter:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    zone = given.required("converted.timezone")
    try:
        _zone(zone)
    except ValueError as error:
        raise ConfigError(f"converted.timezone {error}.", "Write a region or an offset.") from None
    included, excluded = given.names("include.list"), given.names("exclude.list")
    if included and excluded:
        raise ConfigError("include.list and exclude.list exclude each other.", "Give one of them.")
    # raises an error for what is no rule
    rules(included or excluded)
    made = TimezoneConverter(zone, included or excluded, bool(included))
    given.done()
    return made
