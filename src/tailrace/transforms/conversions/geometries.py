"""SwapGeometryCoordinates and GeometryFormatTransformer: swap the axes or change the format of geometries.

A geometry is well-known binary: a byte for the byte order, a word for the type, in the extended format a word for the
spatial reference, then coordinates or further geometries.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tailrace.errors import ConfigError
from tailrace.records.layout import ComputedColumn, Constant, Node, RecordLayout
from tailrace.records.transform import RefusedRecord, Shared
from tailrace.transforms.images import with_columns
from tailrace.transforms.option_reader import OptionReader

GEOMETRY = "io.debezium.data.geometry.Geometry"
"""The only type that they change: geographies stay as they are."""

_HAS_Z, _HAS_M, _HAS_SRID = 0x80000000, 0x40000000, 0x20000000
_POINTS, _RINGS, _PARTS = (2, 8), (3, 17), (4, 5, 6, 7, 9, 10, 11, 12, 15, 16)


class _Binary:
    """A geometry that is changed in place, read from `at` on."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.at = 0

    def word(self, order: str) -> int:
        """Read the next word of four bytes."""
        (found,) = struct.unpack_from(order + "I", self.data, self.at)
        self.at += 4
        return int(found)

    def swap(self) -> None:
        """Swap the first two coordinates of every point. Raises ValueError if the bytes are no geometry."""
        order = "<" if self.data[self.at] == 1 else ">"
        self.at += 1
        kind = self.word(order)
        if kind & _HAS_SRID:
            self.at += 4
        own = kind & 0x0FFFFFFF
        further = bin(kind & (_HAS_Z | _HAS_M)).count("1") + (0, 1, 1, 2)[min(own // 1000, 3)]
        own %= 1000
        if own == 1:
            self._points(1, further)
        elif own in _POINTS:
            self._points(self.word(order), further)
        elif own in _RINGS:
            for _ in range(self.word(order)):
                self._points(self.word(order), further)
        elif own in _PARTS:
            for _ in range(self.word(order)):
                self.swap()
        else:
            raise ValueError("not a known geometry")

    def _points(self, count: int, further: int) -> None:
        for _ in range(count):
            first, second = self.data[self.at : self.at + 8], self.data[self.at + 8 : self.at + 16]
            if len(second) < 8:
                raise ValueError("too short")
            self.data[self.at : self.at + 16] = second + first
            self.at += 16 + 8 * further


def swapped(srids: frozenset[int], wkb: bytes, srid: int | None) -> bytes:
    """Return the geometry with its axes swapped if its spatial reference is one of `srids`, else unchanged."""
    if srid not in srids:
        return wkb
    found = _Binary(wkb)
    found.swap()
    return bytes(found.data)


def plain(wkb: bytes, srid: int | None) -> bytes:
    """Return the geometry without its spatial reference."""
    order = "<" if wkb[0] == 1 else ">"
    (kind,) = struct.unpack_from(order + "I", wkb, 1)
    return wkb[:1] + struct.pack(order + "I", kind & ~_HAS_SRID) + wkb[9:] if kind & _HAS_SRID else wkb


def other_format(wkb: bytes, srid: int | None) -> bytes:
    """Return the geometry without its spatial reference if its bytes have one, else with it, if it has one."""
    order = "<" if wkb[0] == 1 else ">"
    (kind,) = struct.unpack_from(order + "I", wkb, 1)
    if kind & _HAS_SRID:
        return plain(wkb, srid)
    return wkb if srid is None else wkb[:1] + struct.pack(order + "Ii", kind | _HAS_SRID, srid) + wkb[5:]


Change = Callable[[bytes, int | None], bytes]
"""Returns the new bytes of a geometry with these bytes and this spatial reference."""


def _changed(transform: str, change: Change, geometries: pa.Array) -> pa.Array:
    """Return geometries, or lists of them, with other bytes."""
    found = geometries.to_pylist()
    for row, value in enumerate(found):
        for geometry in value if isinstance(value, list) else (value,):
            if geometry is not None and geometry["wkb"]:
                try:
                    geometry["wkb"] = change(geometry["wkb"], geometry["srid"])
                except (ValueError, IndexError, struct.error):
                    raise RefusedRecord(f"{transform} finds no geometry in the field wkb", row) from None
    return pa.array(found, geometries.type)


@dataclass(frozen=True, slots=True)
class GeometryTransform:
    """A records.transform.Transform. `change` makes the new bytes of geometries; in `lists`, it does so too."""

    transform: str
    lists: bool
    change: Change

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        return record, True

    def rewrite(self, record: RecordLayout) -> RecordLayout:
        return with_columns(record, self._column)

    def _column(self, node: Node) -> Node:
        kind = node.type.items if self.lists and node.type.items is not None else node.type
        if kind.name != GEOMETRY or isinstance(node, Constant):
            return node
        return ComputedColumn((node,), partial(_changed, self.transform, self.change), node.type)


def swap_geometry_coordinates(options: Mapping[str, str]) -> GeometryTransform:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    try:
        srids = tuple(sorted(int(srid) for srid in given.names("srids") or ("4326", "3857", "4269")))
    except ValueError:
        raise ConfigError("srids must be a list of whole numbers.", "Correct the list.") from None
    given.done()
    return GeometryTransform("SwapGeometryCoordinates", True, _Swapped(srids))


@dataclass(frozen=True, slots=True)
class _Swapped:
    """Swaps the axes of geometries with these spatial references."""

    srids: tuple[int, ...]

    def __call__(self, wkb: bytes, srid: int | None) -> bytes:
        return swapped(frozenset(self.srids), wkb, srid)


def geometry_format_transformer(options: Mapping[str, str]) -> GeometryTransform:
    """Make the transform from its options. Raises ConfigError.

    As in Debezium, bytes with the spatial reference lose it in either format; others get it if the format is `wkb`.
    """
    given = OptionReader(options)
    change = other_format if given.word("format", "wkb", ("wkb", "ewkb")) == "wkb" else plain
    given.done()
    return GeometryTransform("GeometryFormatTransformer", False, change)
