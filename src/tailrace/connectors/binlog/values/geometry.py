"""Geometries: a spatial reference in four bytes, and then WKB. No I/O."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from tailrace.values import binaries
from tailrace.values.conversion import Conversion
from tailrace.values.geometry import GEOMETRY, POINT

_EMPTY = b"\x01\x07\x00\x00\x00\x00\x00\x00\x00"
_POINT_SIZE = 21
_DOCUMENTED = replace(GEOMETRY, doc="Geometry")


def _parts(text: str) -> tuple[int | None, bytes]:
    data = binaries.hexadecimal(text)
    if len(data) < 9:
        raise ValueError("no geometry is so short")
    srid = struct.unpack_from("<I", data)[0]
    return srid or None, data[4:]


def geometry_value(text: str) -> dict[str, Any]:
    """Return a geometry's WKB and its spatial reference, None instead of 0."""
    srid, wkb = _parts(text)
    return {"wkb": binaries.base64_text(wkb), "srid": srid}


def point_value(text: str) -> dict[str, Any]:
    """Return a point's coordinates in the server's order, beside its WKB."""
    srid, wkb = _parts(text)
    if len(wkb) < _POINT_SIZE:
        raise ValueError("not a point")
    order = "<" if wkb[0] == 1 else ">"
    kind, x, y = struct.unpack_from(order + "Idd", wkb, 1)
    if kind != 1:
        raise ValueError("not a point")
    return {"x": x, "y": y, "wkb": binaries.base64_text(wkb), "srid": srid}


def geometry() -> Conversion:
    return Conversion(_DOCUMENTED, geometry_value, zero={"wkb": binaries.base64_text(_EMPTY), "srid": None})


def point() -> Conversion:
    zero = point_value("\\x" + (bytes(4) + b"\1\1\0\0\0" + bytes(16)).hex())
    return Conversion(POINT, point_value, zero=zero)
