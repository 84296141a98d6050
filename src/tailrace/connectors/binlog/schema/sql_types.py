"""SqlType: the type of a column, parsed from `Column.type_name`. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tailrace.columns import Column

_TYPE = re.compile(
    r"(?P<words>[a-z0-9 ]*?[a-z0-9])(?:\((?P<length>\d+)(?:,(?P<scale>\d+))?\))?"
    r"(?P<signs>(?: (?:unsigned|signed|zerofill))*)(?: compressed)?(?: character set (?P<charset>\w+))?"
)
_SYNONYMS = {
    "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "middleint": "mediumint", "int4": "int",
    "integer": "int", "int8": "bigint", "serial": "bigint", "boolean": "bool", "float4": "float", "float8": "double",
    "double precision": "double", "dec": "decimal", "numeric": "decimal", "fixed": "decimal", "number": "decimal",
    "character": "char", "nchar": "char", "national char": "char", "national character": "char",
    "varcharacter": "varchar", "varchar2": "varchar", "nvarchar": "varchar", "character varying": "varchar",
    "char varying": "varchar", "nchar varying": "varchar", "nchar varchar": "varchar", "national varchar": "varchar",
    "national varcharacter": "varchar", "national char varying": "varchar", "national character varying": "varchar",
    "long": "mediumtext", "long varchar": "mediumtext", "long char varying": "mediumtext",
    "long character varying": "mediumtext", "clob": "longtext", "long varbinary": "mediumblob", "raw": "varbinary",
    "geomcollection": "geometrycollection",
}  # fmt: skip
INTEGERS = {"tinyint": 16, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}
TEXTS = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))
BYTES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
GEOMETRIES = frozenset(
    ("geometry", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection")
)


@dataclass(frozen=True, slots=True)
class SqlType:
    """A column's type. `base` is the server's name for it, `words` the name in the source text, with its sign.

    `length` and `scale` are the numbers in parentheses; None if there are none.
    """

    base: str
    words: str
    length: int | None = None
    scale: int | None = None
    unsigned: bool = False
    charset: str | None = None


@lru_cache(maxsize=4096)
def parsed(text: str) -> SqlType:
    """Return the type from a text in the form of `Column.type_name`."""
    found = _TYPE.fullmatch(text)
    if found is None:
        return SqlType(text, text)
    words, signs = found["words"], found["signs"]
    length, scale = (None if found[name] is None else int(found[name]) for name in ("length", "scale"))
    unsigned = "unsigned" in signs or "zerofill" in signs or words == "serial"
    return SqlType(_SYNONYMS.get(words, words), words + signs, length, scale, unsigned, found["charset"])


def sql_type(column: Column) -> SqlType:
    """Return the type of a column."""
    return parsed(column.type_name)
