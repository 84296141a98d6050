"""SchemaChanges: counts the alterations of tables that show in the table versions of the log's changes. Planner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tailrace.columns.table import Column, TableId, TableSchema


class SchemaChanges:
    """The numbers of changes of tables since the start, by table and kind.

    The first version of a table that is seen counts as no change, because its predecessor is unknown.
    """

    def __init__(self) -> None:
        self._latest: dict[TableId, TableSchema] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._end: object = None

    def see(self, end: object, tables: Iterable[TableSchema]) -> None:
        """Count the differences between `tables`, the table versions of a batch in log order, and the versions seen
        before. `end` is the batch's end; a batch that is planned again counts once."""
        if end == self._end:
            return
        self._end = end
        for table in tables:
            before, self._latest[table.id] = self._latest.get(table.id), table
            for kind in () if before is None else kinds(before, table):
                counts = self._counts.setdefault(str(table.id), {})
                counts[kind] = counts.get(kind, 0) + 1

    def counts(self) -> dict[str, dict[str, int]]:
        """Return a copy of the numbers. Called by any thread."""
        return {table: dict(counts) for table, counts in self._counts.copy().items()}


def kinds(before: TableSchema, after: TableSchema) -> list[str]:
    """Return the kind of each difference between two descriptions of a table.

    They are `add`, `drop` and `rename` for a column; `widen` or `narrow` for a type that holds more or fewer values of
    the same kind, `type` for any other type; `key` for the key, and `other` for anything else, such as a default.
    """
    if (before.columns, before.key) == (after.columns, after.key):
        return []
    old, new = _by_identity(before.columns), _by_identity(after.columns)
    found = ["drop" for identity in old if identity not in new]
    for identity, column in new.items():
        was = old.get(identity)
        if was is None:
            found.append("add")
            continue
        if was.name != column.name:
            found.append("rename")
        if _type(was) != _type(column):
            found.append(_direction(was, column))
    if before.key != after.key:
        found.append("key")
    return found or ["other"]


def _by_identity(columns: Iterable[Column]) -> Mapping[int | str, Column]:
    """Return the columns by their numbers, which survive a rename; by name if the database does not number columns."""
    return {column.number or column.name: column for column in columns}


_FAMILIES = (
    ("tinyint", "smallint", "mediumint", "int", "bigint"),
    ("float4", "float8"),
    ("char", "varchar", "text"),
    ("nchar", "nvarchar"),
    ("binary", "varbinary"),
)
"""Families of types. A type without a length holds all values of the types before it."""

_SAME = {
    "int2": "smallint", "int4": "int", "integer": "int", "int8": "bigint", "real": "float4", "double": "float8",
    "bpchar": "char",
}  # fmt: skip
"""Other names of types, and their names in `_FAMILIES`."""

_DECIMALS = ("numeric", "decimal")


def _direction(before: Column, after: Column) -> str:
    """Return `widen` if `after` is known to hold all values of `before`, `narrow` for the reverse, else `type`."""
    for kind, narrow, wide in (("widen", before, after), ("narrow", after, before)):
        if _holds(wide, narrow):
            return kind
    return "type"


def _holds(wide: Column, narrow: Column) -> bool:
    """Return True if the type of `wide` is known to hold every value of the type of `narrow`."""
    if wide.type_name == narrow.type_name and wide.enum_labels and narrow.enum_labels:
        return wide.enum_labels[: len(narrow.enum_labels)] == narrow.enum_labels
    large, small = _Declaration.of(wide), _Declaration.of(narrow)
    if large.attributes != small.attributes:
        return False
    if large.name == small.name in _DECIMALS and large.length > 0 and small.length > 0:
        return 0 <= large.scale - small.scale <= large.length - small.length
    ranks = [family.index(large.name) - family.index(small.name)
             for family in _FAMILIES if {large.name, small.name} <= {*family}]  # fmt: skip
    is_ranked = ranks[0] >= 0 if ranks else large.name == small.name
    return is_ranked and (large.length < 0 or 0 <= small.length <= large.length)


@dataclass(frozen=True, slots=True)
class _Declaration:
    """A declared type: its length or digits, -1 without any, its scale, and attributes such as `unsigned`."""

    name: str
    length: int
    scale: int
    attributes: str

    @classmethod
    def of(cls, column: Column) -> _Declaration:
        # some databases give a type as it was declared, others give its length or scale in the modifier
        found = _DECLARED.fullmatch(column.type_name.lower())
        if found is None:
            return cls(column.type_name, column.modifier, 0, "")
        name = _SAME.get(found["name"], found["name"])
        length, scale = column.modifier, 0
        if found["length"]:
            length, scale = int(found["length"]), int(found["scale"] or 0)
        elif name in _DECIMALS and length > 0:
            # precision << 16 | scale, and with some databases a constant
            length, scale = length >> 16, length & 0xFFFF
        # the length of an integer is its display width, which does not limit its values
        return cls(name, -1 if name in _FAMILIES[0] else length, scale, found["attributes"] or "")


_DECLARED = re.compile(
    r"(?P<name>[^(]+?) *(?:\((?P<length>\d+)(?:, *(?P<scale>\d+))?\))?(?: (?P<attributes>(?:unsigned|char|collate).*))?"
)


def _type(column: Column) -> Column:
    """Return the column with nothing but its type."""
    bare = replace(column, name="", nullable=True, default=None, generated=False, comment=None, identity=False)
    return replace(bare, number=0, filled=False, missing=None)
