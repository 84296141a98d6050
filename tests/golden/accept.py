"""Accepted differences in which ours is right: rules about a type or a condition, never about a case, with reasons.

Where Debezium is mistaken, the right value wins; unit tests of the converters show that ours is the right one. So a
rule is as narrow as its condition can be recognised from the records and the server's catalog.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

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
"""The semantic types of days and instants, with 1582-10-15 in the unit of each."""
INFINITE_DATES = (2_147_483_647, -2_147_483_648)
INFINITE_ISO_DATES = ("+5881580-07-11Z", "-5877641-06-23Z")
GREGORIAN_TEXTS = {
    "io.debezium.time.ZonedTimestamp",
    "io.debezium.time.IsoDate",
    "io.debezium.time.IsoTimestamp",
}
"""The semantic types of days and instants that are written as ISO text."""
FAR = 9_220_000_000_000_000_000
"""Close to the limits of a signed 64-bit integer: in µs, the years beyond 294,100."""
UNREAD = {"name", "ltree"}
"""Types whose values are null in Debezium's stream, in some versions."""
COMMENT = "__debezium.source.column.comment"
LENGTH, SCALE = "__debezium.source.column.length", "__debezium.source.column.scale"
ANY_NUMBER = {LENGTH: Text('"131089"'), SCALE: Text('"0"')}
NO_DIGITS = ('"0"', '"131089"')
"""The length of a numeric without one in Debezium's snapshots, in 3 and in 1.7."""
ZEROS = frozenset(("0", '""', "0.0", "false", "null"))
"""Debezium's values for a column that was not read."""
TYPE = "__debezium.source.column.type"
SERIALS = {("SMALLSERIAL", "INT2"), ("SERIAL", "INT4"), ("BIGSERIAL", "INT8")}
PLACEHOLDER = "__debezium_unavailable_value"
_TEXTS = (PLACEHOLDER, base64.b64encode(PLACEHOLDER.encode()).decode(), PLACEHOLDER.encode().hex())
UNAVAILABLE = [shape for text in _TEXTS for shape in (Text(f'"{text}"'), [Text(f'"{text}"')])]
"""The default placeholder as text, as bytes and as the only element of an array."""
ENUM = Text('"io.debezium.data.Enum"')
MILLISECOND = {"io.debezium.time.MicroTime": 1000, "io.debezium.time.NanoTime": 1_000_000}

HALF = re.compile(r'\\u[dD][89abAB][0-9a-fA-F]{2}"$')
"""Half of a character beyond 16 bits at the end of a JSON string."""

_SECONDS = re.compile(r"(P.*?)(-?[0-9.]+)S")
_MARKER = re.compile(r'("snapshot":)"[a-z_]*"')


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a value: its schemas on both sides, its column, the record's op, the column's type.

    A schema is None in JSON without schemas. `column` is None outside of row images and keys. `type_name` is the
    server's name of the column's type, None if it is unknown.
    """

    wanted_schema: object = None
    got_schema: object = None
    column: str | None = None
    op: str | None = None
    type_name: str | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """The server's names of column types, by schema, table and column, as at any time of a case."""

    types: Mapping[tuple[str, str, str], str] = field(default_factory=dict)


def schema_reason(wanted: object, got: object) -> str | None:
    """Return why the schema of a field may be `got` instead of the recorded `wanted`; None if it may not."""
    if not isinstance(wanted, dict) or not isinstance(got, dict):
        return None
    items = got.get("items")
    if isinstance(items, dict) and "items" not in wanted:
        # Arrays of bits, and in 1.7 of unknown types.
        same = all(wanted.get(key) == got.get(key) for key in ("optional", "field"))
        like = all(wanted.get(key) == items.get(key) for key in ("type", "name"))
        return "an array is an array; there it is one value that is always null" if same and like else None
    scales = [_scale(side) for side in (wanted, got)]
    if scales[0] is not None and scales[1] is not None and scales[1] < 0 and scales[0] == scales[1] + 2048:
        return "a negative scale is negative; there its 11 bits are read as an unsigned number"
    if COMMENT in got and {key: leaf for key, leaf in got.items() if key != COMMENT} == wanted:
        return "a column's comment is told where include.schema.comments asks for it; there it never is"
    if SCALE not in wanted and wanted.get(LENGTH) in NO_DIGITS and ANY_NUMBER.items() <= got.items():
        rest = [{key: leaf for key, leaf in side.items() if key not in ANY_NUMBER} for side in (wanted, got)]
        if rest[0] == rest[1]:
            return "a numeric of any scale tells in snapshots what it tells in the stream; there no scale"
    if _cut_at_quote(wanted.get("default"), got.get("default")):
        return "a default is read to its end; there only to its first quote"
    if "default" not in wanted and "\n" in _string(got.get("default")) and but("default", wanted, got):
        return "a default of several lines is read; there it is none"
    if _serial(wanted, got):
        return "a column of a serial type tells in snapshots what it tells in the stream; there the serial's name"
    if quoted_twice(wanted.get("default"), got.get("default")):
        return "a default has its quotes undone; there those of an enum's stay doubled"
    if _routed_names(wanted, got):
        return "a message's schema is named after its own route; there after the first of its version that came by"
    there, here = _labels(wanted), _labels(got)
    if there is not None and here is not None and set(there) <= set(here):
        return "an enum has the labels of its time in its order; there those it began with, in 1.7 as they were added"
    return None


def _routed_names(wanted: dict[str, object], got: dict[str, object]) -> bool:
    """Return True if two schemas of messages from one outbox table differ only in the route in their names."""
    fields = got.get("fields")
    first = fields[0].get("field") if isinstance(fields, list) and fields and isinstance(fields[0], dict) else None
    if first != Text('"payload"') or not but("name", wanted, got):
        return False
    names = [_string(side.get("name")).split(".") for side in (wanted, got)]
    return all(len(name) > 4 for name in names) and names[0][:3] == names[1][:3] and names[0][-1] == names[1][-1]


def _cut_to_fit(wanted: str, got: str) -> bool:
    """Return True if two long texts differ only in a few further characters at the end of one."""
    shorter, longer = sorted((wanted, got), key=len)
    return len(shorter) > 1000 and longer.startswith(shorter) and len(longer) - len(shorter) <= 4


def value_reason(place: Place, wanted: object, got: object) -> str | None:
    """Return why the value `got` may stand for the recorded `wanted`; None if it may not."""
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
    if wanted == [] and place.type_name in ("oidvector", "int2vector") and isinstance(got, list):
        return "a vector of the catalog has its values; there it is empty"
    rows = isinstance(wanted, list) and wanted and all(item == NULL for item in wanted)
    if got == NULL and rows and (place.type_name or "").startswith("_"):
        return "an array of several dimensions is null, as it has no form; there it is one null for each row"
    if name == "io.debezium.data.SparseDoubleVector" and _sorted_pairs(wanted) == _sorted_pairs(got) is not None:
        return "the pairs of a sparse vector have Java's hash order there and the order of the indexes here"
    if place.type_name == "_time" and _cut_to_milliseconds(name, wanted, got):
        return "a time in an array keeps its microseconds; there it is cut to milliseconds"
    if name == "io.debezium.time.MicroDuration" and abs(_integer(got)) > 2**53 and _one_double(wanted, got):
        return "an interval is exact; there it goes through a double"
    if _same_float(place, schema, wanted, got):
        return "a float has as few digits as tell it from its neighbours; there, by Java before 19, sometimes more"
    if wanted == NULL and got in UNAVAILABLE and (place.type_name or "").startswith(("bytea", "_")):
        return "a large value that did not change is the placeholder; there, of some types, null"
    if wanted == NULL and place.type_name in UNREAD and isinstance(got, Text) and got.string is not None:
        return "a column of type name or ltree has its value; there it is null in the stream"
    if place.op == "r" and _before_gregorian(name, got) and wanted != NULL:
        return "days before 1582-10-15 are the same in snapshot and stream; there they differ"
    if name.endswith("Date") and wanted != NULL and _integer(got) in INFINITE_DATES:
        return "an infinite date is the end of the type's range; there it is some day, each time another"
    if name == "io.debezium.time.IsoDate" and wanted != NULL and _string(got) in INFINITE_ISO_DATES:
        return "an infinite date is the end of the type's range; there it is some day, each time another"
    if wanted == NULL and place.type_name == "_time" and isinstance(got, list):
        return "an array of times has its values; there it is null in some modes"
    if name == "io.debezium.time.Interval" and _same_but_for_nanos(_string(wanted), _string(got)):
        return "the seconds of an interval are exact; there they are a double, cut to ns"
    if place.type_name == "numeric" and _zeros_of_scale(_string(wanted), _string(got)):
        return "a negative scale is negative; there its 11 bits are a number of zeros after the point"
    if got == NULL and name.endswith(("MicroTimestamp", "NanoTimestamp")) and abs(_integer(wanted)) > FAR:
        return "a moment that 64 bits cannot hold is null; there it is another moment"
    if name == "org.apache.kafka.connect.data.Decimal" and _same_decimal(place, wanted, got):
        return "a negative scale is negative, and money is exact; there the scale is unsigned and money a double"
    if isinstance(wanted, Text) and isinstance(got, Text) and HALF.sub('"', wanted) == got != wanted:
        return "a text is cut before a character that does not fit; there in its middle"
    if isinstance(place.wanted_schema, dict) and isinstance(wanted, Text):
        default = place.wanted_schema.get("default")
        if wanted == default and _cut_at_quote(default, got):
            return "a default is read to its end; there only to its first quote"
    return None


def fitted_reason(place: Place, wanted: object, got: object) -> str | None:
    """Return the same as `value_reason`, for records that EnforceRecordSize has cut."""
    if place.column is not None and _cut_to_fit(_string(wanted), _string(got)):
        return "a text cut so that its record fits has room for the digits of the record's own LSN"
    return value_reason(place, wanted, got)


def key_schema_reason(apart: frozenset[str], wanted: object, got: object) -> str | None:
    """Return the same as `schema_reason`, for a field of a key. `apart` holds the key's columns
    that values leave out."""
    if not isinstance(wanted, dict) or not isinstance(got, dict):
        return None
    name = got.get("field")
    if (
        not isinstance(name, Text)
        or name.string not in apart
        or (got.get("optional"), wanted.get("optional"))
        != (
            "false",
            "true",
        )
    ):
        return None
    rest = [{key: leaf for key, leaf in side.items() if key != "optional"} for side in (wanted, got)]
    return (
        "a key's column is as required as in the database, though values leave it out" if rest[0] == rest[1] else None
    )


def key_reason(apart: frozenset[str], column: str, wanted: object) -> str | None:
    """Return why another value than `wanted` may stand in a key; `apart` is as in `key_schema_reason`."""
    if column in apart and wanted in ZEROS:
        return "a key keeps the value of a column that values leave out; there it is the type's zero in snapshots"
    return None


def any_order(place: Place) -> bool:
    """Return True if the keys of an object may be in any order: Java writes an hstore as a map in hash order."""
    return isinstance(place.got_schema, dict) and place.got_schema.get("type") == '"map"'


def same_but_for_chunks(wanted: list[Record], got: list[Record], chunk_rows: int) -> bool:
    """Return True if two topics differ only in the order of the first snapshot rows, which fill more than one chunk.

    Chunks of a table are read in parallel. The snapshot markers belong to places in that order, not to rows, so they
    must agree place by place.
    """
    rows = leading_reads(wanted)
    if len(wanted) != len(got) or rows <= chunk_rows or leading_reads(got) != rows:
        return False
    texts = [[_text(record) for record in side] for side in (wanted, got)]
    markers = [[_MARKER.findall(text) for text in side[:rows]] for side in texts]
    bodies = [Counter(_MARKER.sub(r"\1", text) for text in side[:rows]) for side in texts]
    return texts[0][rows:] == texts[1][rows:] and markers[0] == markers[1] and bodies[0] == bodies[1]


def leading_reads(records: list[Record]) -> int:
    """Return the number of records of the initial snapshot at the beginning."""
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


def but(name: str, wanted: dict[str, object], got: dict[str, object]) -> bool:
    """Return True if two pieces of a schema differ at most in `name`."""
    rest = [{key: leaf for key, leaf in side.items() if key != name} for side in (wanted, got)]
    return rest[0] == rest[1]


def _serial(wanted: dict[str, object], got: dict[str, object]) -> bool:
    names = (_string(wanted.get(TYPE)), _string(got.get(TYPE)))
    return names in SERIALS and but(TYPE, wanted, got)


def quoted_twice(wanted: object, got: object) -> bool:
    text = _string(got)
    return "'" in text and _string(wanted) == text.replace("'", "''")


def _labels(schema: dict[str, object]) -> list[str] | None:
    """Return the labels of an enum's schema; None for any other piece of a schema, including only
    an enum's parameters."""
    parameters = schema.get("parameters")
    leaf = parameters.get("allowed") if isinstance(parameters, dict) else None
    return _string(leaf).split(",") if isinstance(leaf, Text) and schema.get("name") == ENUM else None


def _before_gregorian(name: str, got: object) -> bool:
    if not isinstance(got, Text):
        return False
    if name in GREGORIAN_TEXTS:
        text = got.string or "9"
        return text.startswith("-") or text < "1582-10-15"
    return name in GREGORIAN and got.integer is not None and got.integer < GREGORIAN[name]


def _cut_to_milliseconds(name: str, wanted: object, got: object) -> bool:
    unit = MILLISECOND.get(name)
    if unit:
        return _integer(wanted) == _integer(got) // unit * unit
    ours = _string(got)
    return name == "io.debezium.time.IsoTime" and _string(wanted) == re.sub(r"(\.\d{3})\d+Z$", r"\1Z", ours)


def _one_double(wanted: object, got: object) -> bool:
    return float(_integer(wanted)) == float(_integer(got))


def _same_float(place: Place, schema: dict[str, object], wanted: object, got: object) -> bool:
    kind = schema.get("type")
    single = kind == Text('"float"') or (not schema and place.type_name in ("float4", "_float4"))
    double = kind == Text('"double"') or (not schema and place.type_name in ("float8", "_float8"))
    if not (single or double) or not isinstance(wanted, Text) or not isinstance(got, Text):
        return False
    try:
        values = [float(write(leaf)) for leaf in (wanted, got)]
    except ValueError:
        return False
    if len(write(got)) > len(write(wanted)):
        return False
    return values[0] == values[1] if double else struct.pack("<f", values[0]) == struct.pack("<f", values[1])


def _integer(leaf: object) -> int:
    return (leaf.integer or 0) if isinstance(leaf, Text) else 0


def _same_decimal(place: Place, wanted: object, got: object) -> bool:
    """Return True if two Decimals are one number at their own scales or, in a column of type money, one double."""
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


def _string(leaf: object) -> str:
    return (leaf.string or "") if isinstance(leaf, Text) else ""


def _same_but_for_nanos(wanted: str, got: str) -> bool:
    """Return True if two intervals have the same parts, and seconds that differ by less than 1 µs."""
    sides = [_SECONDS.fullmatch(text) for text in (wanted, got)]
    if sides[0] is None or sides[1] is None or sides[0][1] != sides[1][1]:
        return False
    return abs(Decimal(sides[0][2]) - Decimal(sides[1][2])) < Decimal("0.000001")


def _zeros_of_scale(wanted: str, got: str) -> bool:
    """Return True if `wanted` is the whole number `got` with the more than 1,000 zeros of a misread negative scale."""
    whole, point, zeros = wanted.partition(".")
    if wanted.startswith("0E-"):
        return got == "0" and 1024 <= int(wanted[3:]) < 2048
    return whole == got and bool(point) and 1024 <= len(zeros) < 2048 and not zeros.strip("0")


def _sorted_pairs(leaf: object) -> list[str] | None:
    """Return the pairs of a sparse vector as sorted text, after its dimensions; None if there are none."""
    pairs = leaf.get("vector") if isinstance(leaf, dict) else None
    return [str(leaf.get("dimensions")), *sorted(map(str, pairs))] if isinstance(pairs, list) else None  # type: ignore[attr-defined]


def _flat_map(leaf: object) -> dict[str, str | None] | None:
    """Return the map in a JSON string as JSON text, if its values are strings and nulls; None otherwise."""
    try:
        value = json.loads((leaf.string if isinstance(leaf, Text) else None) or "")
    except ValueError:
        return None
    if isinstance(value, dict) and all(item is None or isinstance(item, str) for item in value.values()):
        return value
    return None
