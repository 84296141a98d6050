"""The declaration of a column of Db2, in `Column.type_name` and the single number of `Column.modifier`. No I/O.

`type_name` is TYPE_NAME of Db2's catalog procedure for drivers (`SYSIBM.SQLCOLUMNS`), in upper case: `INTEGER`,
`VARCHAR`, `CHAR () FOR BIT DATA`, `TIMESTAMP`, `DECFLOAT`. A distinct type is resolved to its built-in type. `type_oid`
is DATA_TYPE, a code of java.sql.Types; `default` is COLUMN_DEF, the text of the default in the catalog (`0`, `'x'`,
`CURRENT TIMESTAMP`), None without one; `kind` is `base`, or `unknown` for a type that is not in `TYPES`. `modifier` is:

=====================================================  ================================================================
type                                                   modifier
=====================================================  ================================================================
DECIMAL, NUMERIC                                       precision << 16 | scale
TIMESTAMP, TIMESTAMP WITH TIME ZONE                    digits of the second's fraction, 0 to 12
DECFLOAT                                               16 or 34, its digits
types in `SIZED`                                       length: characters, double-byte characters or bytes, as declared
any other                                              -1
=====================================================  ================================================================
"""

from __future__ import annotations

from tailrace.columns.table import TableSchema

DECIMALS = frozenset(("DECIMAL", "NUMERIC"))
TIMESTAMPS = frozenset(("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"))
TEXTS = frozenset(
    ("CHAR", "VARCHAR", "LONG VARCHAR", "CLOB", "GRAPHIC", "VARGRAPHIC", "LONG VARGRAPHIC", "DBCLOB", "XML")
)
"""Types whose values are text. Double-byte characters become Unicode when they are read."""

BYTES = frozenset(
    (
        *("CHAR () FOR BIT DATA", "VARCHAR () FOR BIT DATA", "LONG VARCHAR FOR BIT DATA"),
        *("BINARY", "VARBINARY", "BLOB", "ROWID"),
    )
)
"""Types whose values are bytes."""

LOBS = frozenset(("BLOB", "CLOB", "DBCLOB", "XML"))
"""Types that the capture program never writes to a change table: at most it records that they were changed."""

FLOATS = frozenset(("REAL", "DOUBLE", "FLOAT"))
INTEGERS = frozenset(("SMALLINT", "INTEGER", "BIGINT"))
SIZED = (TEXTS | BYTES) - {"XML"}
TYPES = DECIMALS | TIMESTAMPS | TEXTS | BYTES | FLOATS | INTEGERS | {"DECFLOAT", "DATE", "TIME", "BOOLEAN"}
UNSIZED = -1

_JDBC = {
    -16: "LONG VARGRAPHIC", -15: "GRAPHIC", -9: "VARGRAPHIC", -8: "ROWID", -7: "BOOLEAN", -5: "BIGINT",
    -4: "LONG VARCHAR FOR BIT DATA", -3: "VARCHAR () FOR BIT DATA", -2: "CHAR () FOR BIT DATA", -1: "LONG VARCHAR",
    1: "CHAR", 2: "NUMERIC", 3: "DECIMAL", 4: "INTEGER", 5: "SMALLINT", 6: "FLOAT", 7: "REAL", 8: "DOUBLE",
    12: "VARCHAR", 16: "BOOLEAN", 91: "DATE", 92: "TIME", 93: "TIMESTAMP", 2004: "BLOB", 2005: "CLOB",
    2009: "XML", 2011: "DBCLOB",
}  # fmt: skip
"""Db2's name of each code of java.sql.Types, to resolve distinct types."""


def type_name(named: str, source_code: int | None) -> str:
    """Return the built-in type of a column with the TYPE_NAME `named` and the SOURCE_DATA_TYPE `source_code`, if any.

    Servers differ in blanks (`CHAR() FOR BIT DATA`) and in length marks; the result has the form of `TYPES`.
    """
    if source_code is not None and source_code in _JDBC:
        return _JDBC[source_code]
    name = " ".join(named.upper().replace("()", " () ").split())
    return {"DOUBLE PRECISION": "DOUBLE", "INT": "INTEGER", "CHARACTER": "CHAR", "TIMESTMP": "TIMESTAMP"}.get(
        name, name
    )


def modifier(name: str, size: int | None, digits: int | None) -> int:
    """Return the modifier of a column of the type `name`, from COLUMN_SIZE and DECIMAL_DIGITS of SQLCOLUMNS."""
    if name in DECIMALS:
        return (size or 0) << 16 | (digits or 0)
    if name in TIMESTAMPS:
        # older servers, without declared precisions, return none; their timestamps have six digits
        return 6 if digits is None else digits
    if name in SIZED or name == "DECFLOAT":
        return UNSIZED if size is None else size
    return UNSIZED


def precision_and_scale(declared: int) -> tuple[int, int]:
    """Return precision and scale from the modifier of a decimal or numeric column."""
    return declared >> 16, declared & 0xFFFF


def has_lobs(table: TableSchema) -> bool:
    """Return True if a column may hold megabytes."""
    return any(column.type_name in LOBS for column in table.columns)
