"""Differences in which ours is right: rules about a type or a condition, never about a case, each with its reason.

Where Debezium is mistaken, the right value wins; unit tests of the converters show that ours is the right one. What
a rule lets pass is therefore as narrow as its condition can be told from the records and from the server's catalog.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.golden.normalise import payload
from tests.golden.record import Record
from tests.golden.wire import NULL, Text, write

GREGORIAN = {
    "io.debezium.time.Date": -141_427,
    "org.apache.kafka.connect.data.Date": -141_427,
    "io.debezium.time.Timestamp": -141_427 * 86_400_000,
    "org.apache.kafka.connect.data.Timestamp": -141_427 * 86_400_000,
    "io.debezium.time.MicroTimestamp": -141_427 * 86_400_000_000,
    "io.debezium.time.NanoTimestamp": -141_427 * 86_400_000_000_000,
}
"""The semantic types of days and moments, with 1582-10-15 in the unit of each."""
INFINITE_DATES = (2_147_483_647, -2_147_483_648)
GREGORIAN_TEXTS = {
    "io.debezium.time.ZonedTimestamp",
    "io.debezium.time.IsoDate",
    "io.debezium.time.IsoTimestamp",
}
"""The semantic types of days and moments that are written as ISO text."""
FAR = 9_220_000_000_000_000_000
"""Close to the ends of a signed 64-bit integer: in µs, the years beyond 294,100."""
UNREAD = {"name", "ltree"}
"""Types whose values are null in the stream there, in some versions."""
BITS = Text('"io.debezium.data.Bits"')

_MARKER = re.compile(r'("snapshot":)"[a-z_]*"')


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: its schemas on both sides, the column it belongs to, the record's op, the column's type.

    A schema is None in JSON without schemas; `column` is None outside of row images and keys; `type_name` is the
    server's name of the column's type, None where it is not known.
    """

    wanted_schema: object = None
    got_schema: object = None
    column: str | None = None
    op: str | None = None
    type_name: str | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """The server's names of column types, by schema, table and column, as they were at any time of a case."""

    types: Mapping[tuple[str, str, str], str] = field(default_factory=dict)


def schema_reason(wanted: object, got: object) -> str | None:
    """Why the schema of a field may be `got` where `wanted` was recorded; None where it may not."""
    if not isinstance(wanted, dict) or not isinstance(got, dict):
        return None
    items = got.get("items")
    if wanted.get("name") == BITS and isinstance(items, dict) and items.get("name") == BITS:
        same = all(wanted.get(key) == got.get(key) for key in ("optional", "field"))
        return "an array of bits is an array; there it is one bit string that is always null" if same else None
    scales = [_scale(side) for side in (wanted, got)]
    if scales[0] is not None and scales[1] is not None and scales[1] < 0 and scales[0] == scales[1] + 2048:
        return "a negative scale is negative; there its 11 bits are read as an unsigned number"
    if _cut_at_quote(wanted.get("default"), got.get("default")):
        return "a default is read to its end; there only to its first quote"
    return None


def value_reason(place: Place, wanted: object, got: object) -> str | None:
    """Why the value `got` may stand where `wanted` was recorded; None where it may not."""
    schema = place.got_schema if isinstance(place.got_schema, dict) else {}
    kind = schema.get("name")
    name = (kind.string or "") if isinstance(kind, Text) else ""
    if name == "io.debezium.data.Json" and (there := _flat_map(wanted)) is not None and there == _flat_map(got):
        return "an hstore as JSON has Java's hash order there and the server's order here"
    if wanted == NULL and isinstance(got, list):
        if schema_reason(place.wanted_schema, place.got_schema):
            return "an array of bits has its values; there it is null"
        if any(isinstance(item, list) for item in got):
            return "an array of several dimensions has its values; there it is null"
    if wanted == NULL and place.type_name in UNREAD and isinstance(got, Text) and got.string is not None:
        return "a column of type name or ltree has its value; there it is null in the stream"
    if place.op == "r" and _before_gregorian(name, got) and wanted != NULL:
        return "days before 1582-10-15 are the same in snapshot and stream; there they differ"
    if name.endswith("Date") and wanted != NULL and _integer(got) in INFINITE_DATES:
        return "an infinite date is the end of the type's range; there it is some day, each time another"
    if got == NULL and name.endswith(("MicroTimestamp", "NanoTimestamp")) and abs(_integer(wanted)) > FAR:
        return "a moment that 64 bits cannot hold is null; there it is another moment"
    if name == "org.apache.kafka.connect.data.Decimal" and _same_decimal(place, wanted, got):
        return "a negative scale is negative, and money is exact; there the scale is unsigned and money a double"
    if isinstance(place.wanted_schema, dict) and isinstance(wanted, Text):
        default = place.wanted_schema.get("default")
        if wanted == default and _cut_at_quote(default, got):
            return "a default is read to its end; there only to its first quote"
    return None


def any_order(place: Place) -> bool:
    """Whether the keys of an object may come in any order: an hstore as a map is written in Java's hash order."""
    return isinstance(place.got_schema, dict) and place.got_schema.get("type") == '"map"'


def same_but_for_chunks(wanted: list[Record], got: list[Record], chunk_rows: int) -> bool:
    """Whether two topics differ only in the order of the leading snapshot rows, more of them than one chunk holds.

    The chunks of a table are read at once. The snapshot markers belong to places in that order, not to rows, so they
    have to agree place by place.
    """
    rows = leading_reads(wanted)
    if len(wanted) != len(got) or rows <= chunk_rows or leading_reads(got) != rows:
        return False
    texts = [[_text(record) for record in side] for side in (wanted, got)]
    markers = [[_MARKER.findall(text) for text in side[:rows]] for side in texts]
    bodies = [Counter(_MARKER.sub(r"\1", text) for text in side[:rows]) for side in texts]
    return texts[0][rows:] == texts[1][rows:] and markers[0] == markers[1] and bodies[0] == bodies[1]


def leading_reads(records: list[Record]) -> int:
    """How many records of the initial snapshot come first."""
    count = 0
    for record in records:
        value = payload(record.value)
        if not isinstance(value, dict) or value.get("op") != '"r"':
            break
        count += 1
    return count


def _text(record: Record) -> str:
    return f"{write(record.key)} {write(record.value)} {[(name, write(leaf)) for name, leaf in record.headers]}"


def _scale(schema: dict[str, object]) -> int | None:
    parameters = schema.get("parameters")
    leaf = parameters.get("scale") if isinstance(parameters, dict) else None
    text = leaf.string if isinstance(leaf, Text) else None
    return int(text) if text and re.fullmatch(r"-?\d+", text) else None


def _cut_at_quote(wanted: object, got: object) -> bool:
    if not isinstance(wanted, Text) or not isinstance(got, Text) or got.string is None:
        return False
    head, quote, _ = got.string.partition("'")
    return bool(quote) and wanted.string == head


def _before_gregorian(name: str, got: object) -> bool:
    if not isinstance(got, Text):
        return False
    if name in GREGORIAN_TEXTS:
        text = got.string or "9"
        return text.startswith("-") or text < "1582-10-15"
    return name in GREGORIAN and got.integer is not None and got.integer < GREGORIAN[name]


def _integer(leaf: object) -> int:
    return (leaf.integer or 0) if isinstance(leaf, Text) else 0


def _same_decimal(place: Place, wanted: object, got: object) -> bool:
    """Whether two Decimals are one number at their own scales or, in a column of type money, one double."""
    numbers = []
    for schema, leaf in ((place.wanted_schema, wanted), (place.got_schema, got)):
        scale = _scale(schema) if isinstance(schema, dict) else None
        text = leaf.string if isinstance(leaf, Text) else None
        if scale is None or text is None:
            return False
        numbers.append((int.from_bytes(base64.b64decode(text), "big", signed=True), scale))
    (one, scale), (other, own) = numbers
    if scale == own + 2048 and own < 0:
        return one == other * int(10 ** (scale - own))
    return place.type_name == "money" and scale == own and float(one) == float(other)


def _flat_map(leaf: object) -> dict[str, str | None] | None:
    """The map that a JSON string holds as JSON text, if it is one of strings and nulls; None otherwise."""
    try:
        value = json.loads((leaf.string if isinstance(leaf, Text) else None) or "")
    except ValueError:
        return None
    if isinstance(value, dict) and all(item is None or isinstance(item, str) for item in value.values()):
        return value
    return None
