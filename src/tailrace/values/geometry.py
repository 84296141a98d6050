"""Points and geometries, as structs."""

from __future__ import annotations

import re
import struct as binary
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import BYTES, DOUBLE, INT32, Field, LogicalType, struct
from tailrace.kernels.buffers import Bytes, Offsets, readonly
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.binaries import base64_text, put_base64
from tailrace.values.conversion import Conversion, Family
from tailrace.values.decimals import decimal_double
from tailrace.values.floats import floating
from tailrace.values.lists import Elements, items_fragment, listed, put_part
from tailrace.values.texts import (
    LOST,
    VALUE,
    Ends,
    Int,
    ShownValues,
    Texts,
    literals_of,
    output,
    put_bytes,
    put_literal,
    word,
)

POINT = struct(
    Field("x", DOUBLE),
    Field("y", DOUBLE),
    Field("wkb", BYTES.with_optional(True)),
    Field("srid", INT32.with_optional(True)),
    name="io.debezium.data.geometry.Point",
    version=1,
    doc="Geometry (POINT)",
)
_WKB_FIELDS = (Field("wkb", BYTES), Field("srid", INT32.with_optional(True)))
GEOMETRY = struct(*_WKB_FIELDS, name="io.debezium.data.geometry.Geometry", version=1)
GEOGRAPHY = struct(*_WKB_FIELDS, name="io.debezium.data.geometry.Geography", version=1)

_POINT = re.compile(r"\(([^,()]+),([^,()]+)\)")
_ELEMENTS = Elements(floating(False), "(", ")")
# Room for a point's JSON besides its two numbers.
_ROOM = 64
_EMPTY = "010700000000000000"
_X, _Y, _WKB, _SRID = word(b'{"x":'), word(b',"y":'), word(b',"wkb":"'), word(b'","srid":null}')


def point_type() -> Conversion:
    return Conversion(POINT, point, Points(), zero=point("(0,0)"))


def geometry_type(schema: LogicalType) -> Conversion:
    """Return the conversion of a PostGIS geometry or geography, depending on `schema`."""
    return Conversion(schema, geometry, zero=geometry(_EMPTY))


def point(text: str) -> dict[str, Any]:
    found = _POINT.fullmatch(text)
    if found is None:
        raise ValueError("not a point")
    x, y = (decimal_double(part) for part in found.groups())
    wkb = binary.pack("<BIdd", 1, 1, x, y)
    return {"x": x, "y": y, "wkb": base64_text(wkb), "srid": None}


def geometry(text: str) -> dict[str, Any]:
    """Return a PostGIS value: hexadecimal EWKB, whose type word may contain a spatial reference."""
    data = bytes.fromhex(text)
    if len(data) < 9:
        raise ValueError("no geometry is so short")
    order = "<" if data[0] == 1 else ">"
    kind = binary.unpack_from(order + "I", data, 1)[0]
    srid = binary.unpack_from(order + "i", data, 5)[0] if kind & 0x20000000 else None
    return {"wkb": base64_text(data), "srid": srid}


@dataclass(frozen=True, slots=True)
class Points(Family):
    """Points: two doubles in parentheses."""

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int] | None:
        found = listed(_ELEMENTS, texts)
        try:
            numbers = found.items.cast(pa.string()).cast(pa.float64())
        except pa.ArrowInvalid:
            # One of them is not a number; Arrow does not say which.
            return None
        inner = items_fragment(_ELEMENTS.conversion, numbers.cast(pa.string()), shown)
        literals, ends = literals_of(shown)
        size = int(inner.offsets[-1]) - int(inner.offsets[0])
        out, offsets = output(size + len(texts) * (_ROOM + len(literals)) + 1, len(texts), shown)
        doubles = readonly(np.frombuffer(numbers.buffers()[1], np.uint8))
        lost = points(inner.data, inner.offsets, doubles, found.first, found.outcome, literals, ends, out, offsets)
        return Fragment(readonly(out), readonly(offsets)), int(lost)


@kernel
def points(
    data: Bytes,
    bounds: Offsets,
    doubles: Bytes,
    first: Offsets,
    outcome: Bytes,
    literals: Bytes,
    ends: Ends,
    out: Bytes,
    offsets: Offsets,
) -> int:
    """Write points from each row's two elements: their JSON, and their eight little-endian bytes each, `doubles`."""
    known = np.zeros(21, np.uint8)
    known[0] = 1
    known[1] = 1
    at: Int = 0
    lost = 0
    for row in range(len(first) - 1):
        item = first[row]
        good = outcome[row] == VALUE and first[row + 1] - item == 2
        if good:
            good = bounds[item + 1] > bounds[item] and bounds[item + 2] > bounds[item + 1]
        if good:
            at = put_bytes(_X, out, at)
            at = put_part(data, bounds[item], bounds[item + 1], out, at)
            at = put_bytes(_Y, out, at)
            at = put_part(data, bounds[item + 1], bounds[item + 2], out, at)
            at = put_bytes(_WKB, out, at)
            for position in range(16):
                known[5 + position] = doubles[8 * item + position]
            at = put_base64(known, 21, 0, out, at)
            at = put_bytes(_SRID, out, at)
        else:
            kind = LOST if outcome[row] == VALUE else np.int64(outcome[row])
            at = put_literal(literals, ends, kind - 1, out, at)
            lost += kind == LOST
        offsets[row + 1] = at
    return lost
