"""SQL Server's types: names, how a value is stored in DuckDB, and how the catalog describes it.

Storage, chosen so that DuckDB orders and compares the values as SQL Server does and loses none of their digits:

- date, datetime, datetime2, smalldatetime, time: BIGINT, units of 100 ns (of date: days) since 0001-01-01;
- datetimeoffset: HUGEINT, the units of UTC times 4096, plus the minutes of the offset plus 2048;
- uniqueidentifier: BLOB of the 16 bytes in the order in which SQL Server compares them;
- bit, tinyint: UTINYINT; the other numbers as their namesakes, money as DECIMAL(19, 4);
- text: VARCHAR; bytes, and the types that live on the server as bytes: BLOB.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tdsserver.errors import SqlError

MAX = -1
"""The length of varchar(max) and the like, as the catalog has it."""

INTEGERS = {"bit": 0, "tinyint": 1, "smallint": 2, "int": 3, "bigint": 4}
TEXTS = frozenset({"char", "varchar", "text", "nchar", "nvarchar", "ntext", "sysname", "xml", "json"})
NATIONAL = frozenset({"nchar", "nvarchar", "ntext", "sysname", "xml", "json"})
BINARIES = frozenset({"binary", "varbinary", "image", "timestamp", "hierarchyid", "geometry", "geography"})
UDTS = frozenset({"hierarchyid", "geometry", "geography"})
MOMENTS = frozenset({"datetime", "smalldatetime", "datetime2"})
TEMPORAL = MOMENTS | {"date", "time", "datetimeoffset"}
EXACT = frozenset({"decimal", "numeric", "money", "smallmoney"})
SYNONYMS = {
    "integer": "int",
    "dec": "decimal",
    "rowversion": "timestamp",
    "character": "char",
    "double precision": "float",
    "national character": "nchar",
    "national char": "nchar",
    "national character varying": "nvarchar",
    "national char varying": "nvarchar",
    "national text": "ntext",
    "character varying": "varchar",
    "char varying": "varchar",
    "binary varying": "varbinary",
}
FIXED_LENGTH = {
    "bit": 1,
    "tinyint": 1,
    "smallint": 2,
    "int": 4,
    "bigint": 8,
    "real": 4,
    "float": 8,
    "money": 8,
    "smallmoney": 4,
    "date": 3,
    "datetime": 8,
    "smalldatetime": 4,
    "uniqueidentifier": 16,
    "timestamp": 8,
    "text": 16,
    "ntext": 16,
    "image": 16,
    "sysname": 256,
    "xml": MAX,
    "hierarchyid": 892,
    "geometry": MAX,
    "geography": MAX,
    "sql_variant": 8016,
}
SYSTEM_TYPE_ID = {
    "image": 34,
    "text": 35,
    "uniqueidentifier": 36,
    "date": 40,
    "time": 41,
    "datetime2": 42,
    "datetimeoffset": 43,
    "tinyint": 48,
    "smallint": 52,
    "int": 56,
    "smalldatetime": 58,
    "real": 59,
    "money": 60,
    "datetime": 61,
    "float": 62,
    "sql_variant": 98,
    "ntext": 99,
    "bit": 104,
    "decimal": 106,
    "numeric": 108,
    "smallmoney": 122,
    "bigint": 127,
    "hierarchyid": 240,
    "geometry": 240,
    "geography": 240,
    "varbinary": 165,
    "varchar": 167,
    "binary": 173,
    "char": 175,
    "timestamp": 189,
    "nvarchar": 231,
    "nchar": 239,
    "xml": 241,
    "sysname": 231,
}
"""sys.types.system_type_id."""
USER_TYPE_ID = SYSTEM_TYPE_ID | {"sysname": 256, "hierarchyid": 128, "geometry": 129, "geography": 130}
SERVER_COLLATION = "SQL_Latin1_General_CP1_CI_AS"


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type with its parameters. `length` is in characters or bytes, MAX for (max); `name` is in lower case."""

    name: str
    length: int = 0
    precision: int = 0
    scale: int = 0
    collation: str | None = None

    def __str__(self) -> str:
        if self.name in ("char", "varchar", "nchar", "nvarchar", "binary", "varbinary"):
            return f"{self.name}({'max' if self.length == MAX else self.length})"
        if self.name in ("decimal", "numeric"):
            return f"{self.name}({self.precision},{self.scale})"
        if self.name in ("datetime2", "time", "datetimeoffset"):
            return f"{self.name}({self.scale})"
        return self.name

    @property
    def is_text(self) -> bool:
        return self.name in TEXTS

    @property
    def is_binary(self) -> bool:
        return self.name in BINARIES

    @property
    def is_temporal(self) -> bool:
        return self.name in TEMPORAL

    @property
    def is_number(self) -> bool:
        return self.name in INTEGERS or self.name in EXACT or self.name in ("float", "real")

    @property
    def storage(self) -> str:
        """The DuckDB type that holds the values."""
        if self.name in TEXTS:
            return "VARCHAR"
        if self.name in BINARIES or self.name in ("uniqueidentifier", "sql_variant"):
            return "BLOB"
        if self.name in ("decimal", "numeric"):
            return f"DECIMAL({self.precision},{self.scale})"
        return {
            "bit": "UTINYINT",
            "tinyint": "UTINYINT",
            "smallint": "SMALLINT",
            "int": "INTEGER",
            "bigint": "BIGINT",
            "money": "DECIMAL(19,4)",
            "smallmoney": "DECIMAL(10,4)",
            "float": "DOUBLE",
            "real": "FLOAT",
            "datetimeoffset": "HUGEINT",
        }.get(self.name, "BIGINT")

    @property
    def max_length(self) -> int:
        """sys.columns.max_length: bytes."""
        if self.name in ("nchar", "nvarchar"):
            return self.length if self.length == MAX else self.length * 2
        if self.name in ("char", "varchar", "binary", "varbinary"):
            return self.length
        if self.name in ("decimal", "numeric"):
            return decimal_length(self.precision)
        if self.name in ("time", "datetime2", "datetimeoffset"):
            return scaled_length(self.scale) + {"time": 0, "datetime2": 3, "datetimeoffset": 5}[self.name]
        return FIXED_LENGTH[self.name]

    @property
    def catalog_precision(self) -> int:
        """sys.columns.precision."""
        if self.name in ("decimal", "numeric"):
            return self.precision
        if self.name == "time":
            return 8 + (self.scale + 1 if self.scale else 0)
        if self.name == "datetime2":
            return 19 + (self.scale + 1 if self.scale else 0)
        if self.name == "datetimeoffset":
            return 26 + (self.scale + 1 if self.scale else 0)
        fixed = {"bit": 1, "tinyint": 3, "smallint": 5, "int": 10, "bigint": 19, "money": 19, "smallmoney": 10}
        fixed |= {"float": 53, "real": 24, "date": 10, "datetime": 23, "smalldatetime": 16}
        return fixed.get(self.name, 0)

    @property
    def catalog_scale(self) -> int:
        """sys.columns.scale."""
        if self.name in ("decimal", "numeric", "time", "datetime2", "datetimeoffset"):
            return self.scale
        return {"money": 4, "smallmoney": 4, "datetime": 3}.get(self.name, 0)


def decimal_length(precision: int) -> int:
    """Return the number of bytes of a decimal with its sign, by precision ([MS-TDS] 2.2.5.5.1.6)."""
    return 5 if precision <= 9 else 9 if precision <= 19 else 13 if precision <= 28 else 17


def scaled_length(scale: int) -> int:
    """Return the number of bytes of a time of day, by scale ([MS-TDS] 2.2.5.5.1.8)."""
    return 3 if scale <= 2 else 4 if scale <= 4 else 5


def make(name: str, parameters: list[int] | None = None, collation: str | None = None) -> SqlType:
    """Return the type `name(parameters)`; raises SqlError 243 on an unknown name, 1001 or 1002 on bad parameters."""
    given = parameters or []
    name = name.lower()
    name = SYNONYMS.get(name, name)
    if name == "float":
        return SqlType("real" if given and given[0] <= 24 else "float")
    if name == "sysname":
        return SqlType("sysname", 128, collation=collation)
    if name in ("decimal", "numeric"):
        precision, scale = [*given, *(18, 0)[len(given) :]][:2]
        if not 1 <= precision <= 38:
            raise SqlError(2750, f"Column or parameter: Specified column precision {precision} is greater than 38.")
        if scale > precision:
            raise SqlError(183, "The scale for the column must be within the range 0 to its precision.", 15)
        return SqlType(name, precision=precision, scale=scale)
    if name in ("datetime2", "time", "datetimeoffset"):
        scale = given[0] if given else 7
        if not 0 <= scale <= 7:
            raise SqlError(1002, f"Specified scale {scale} is invalid.", 15)
        return SqlType(name, scale=scale)
    if name in ("char", "varchar", "nchar", "nvarchar", "binary", "varbinary"):
        length = given[0] if given else 1
        limit = 4000 if name.startswith("n") else 8000
        if length != MAX and not 1 <= length <= limit:
            raise SqlError(1001, f"Length or precision specification {length} is invalid.", 15)
        return SqlType(name, length, collation=collation if name in TEXTS else None)
    if name not in SYSTEM_TYPE_ID:
        raise SqlError(243, f"Type {name} is not a defined system type.")
    return SqlType(name, collation=collation if name in TEXTS else None)


BIT, TINYINT, SMALLINT, INT, BIGINT = (SqlType(name) for name in INTEGERS)
FLOAT, REAL = SqlType("float"), SqlType("real")
DATETIME, DATE = SqlType("datetime"), SqlType("date")
DATETIME2, TIME, DATETIMEOFFSET = (SqlType(name, scale=7) for name in ("datetime2", "time", "datetimeoffset"))
SYSNAME = SqlType("sysname", 128)
LSN = SqlType("binary", 10)
UNIQUEIDENTIFIER = SqlType("uniqueidentifier")
NULL = SqlType("int")


def nvarchar(length: int = 4000) -> SqlType:
    """Return the type nvarchar(length)."""
    return SqlType("nvarchar", length)


def varchar(length: int = 8000) -> SqlType:
    """Return the type varchar(length)."""
    return SqlType("varchar", length)


def varbinary(length: int = 8000) -> SqlType:
    """Return the type varbinary(length)."""
    return SqlType("varbinary", length)


def case_sensitive(collation: str | None) -> bool:
    """Return True if a collation distinguishes upper and lower case."""
    return collation is not None and ("_CS_" in collation or "_BIN" in collation)


PAGES = {"polish": (1250, 0x0415), "cyrillic": (1251, 0x0419), "greek": (1253, 0x0408), "turkish": (1254, 0x041F)}
"""Code pages and locales of collations, by the first word of their names; others are Latin1."""
UTF8 = 65001


def code_page(collation: str | None) -> int:
    """Return the number of a collation's code page."""
    name = (collation or "").lower()
    return UTF8 if name.endswith("_utf8") else PAGES.get(name.split("_")[0], (1252, 0))[0]


def locale(collation: str | None) -> int:
    """Return the number of a collation's locale (LCID)."""
    return PAGES.get((collation or "").lower().split("_")[0], (0, 0x0409))[1]


def codec(kind: SqlType) -> str:
    """Return the name of Python's codec for texts of a type."""
    if kind.name not in ("char", "varchar", "text"):
        return "utf-16-le"
    page = code_page(kind.collation)
    return "utf-8" if page == UTF8 else f"cp{page}"


def collated(kind: SqlType, collation: str | None) -> SqlType:
    """Return `kind` with a collation if it is text."""
    return replace(kind, collation=collation) if kind.is_text and kind.collation is None else kind
