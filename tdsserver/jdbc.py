"""The catalog procedures that JDBC and ODBC call for metadata: sp_tables, sp_columns_100, sp_pkeys, sp_statistics."""

from __future__ import annotations

from collections.abc import Iterator

from tdsserver.arguments import Arguments
from tdsserver.model import Database, Table
from tdsserver.session import Result, Rows, Session
from tdsserver.sqltype import INT, MAX, SMALLINT, SYSNAME, SqlType, case_sensitive, nvarchar, varchar
from tdsserver.udf import _like

ODBC_TYPE = {
    "bit": -7,
    "tinyint": -6,
    "smallint": 5,
    "int": 4,
    "bigint": -5,
    "decimal": 3,
    "numeric": 2,
    "money": 3,
    "smallmoney": 3,
    "float": 6,
    "real": 7,
    "date": -9,
    "time": -9,
    "datetime2": -9,
    "datetimeoffset": -9,
    "datetime": 11,
    "smalldatetime": 11,
    "char": 1,
    "varchar": 12,
    "text": -1,
    "nchar": -8,
    "nvarchar": -9,
    "sysname": -9,
    "ntext": -10,
    "xml": -10,
    "binary": -2,
    "varbinary": -3,
    "image": -4,
    "timestamp": -2,
    "uniqueidentifier": -11,
    "sql_variant": -150,
    "hierarchyid": -4,
    "geometry": -4,
    "geography": -4,
}
"""Codes of ODBC 2. @ODBCVer = 3 asks for the codes of ODBC 3 instead, which differ for the temporal types below."""
ODBC_3_TEMPORAL = {
    "date": 91,
    "time": -154,
    "datetime2": 93,
    "datetimeoffset": -155,
    "datetime": 93,
    "smalldatetime": 93,
}
SS_TYPE = {"date": 40, "time": 41, "datetime2": 42, "datetimeoffset": 43, "uniqueidentifier": 37, "xml": 241}


def _matches(pattern: object, name: str, database: Database, wildcards: bool = True) -> bool:
    if pattern is None:
        return True
    text = str(pattern)
    if not wildcards:
        return database.same(text, name)
    return bool(_like(name, text, None, case_sensitive(database.collation)))


def _found(session: Session, args: dict[str, object], prefix: str = "table", wildcards: bool = True) -> Iterator[Table]:
    for table in session.database.tables.values():
        if _matches(args.get(f"{prefix}_owner"), table.schema, session.database, wildcards) and _matches(
            args.get(f"{prefix}_name"), table.name, session.database, wildcards
        ):
            yield table


def tables_rowset(session: Session, args: Arguments) -> Iterator[Result]:
    """Yield the rowset of sp_tables."""
    found = args.bind("table_name", "table_owner", "table_qualifier", "table_type", "fusepattern")
    kinds = str(found.get("table_type") or "'TABLE'")
    columns = [("TABLE_QUALIFIER", SYSNAME), ("TABLE_OWNER", SYSNAME), ("TABLE_NAME", SYSNAME)]
    columns += [("TABLE_TYPE", varchar(32)), ("REMARKS", varchar(254))]
    rows: list[tuple[object, ...]] = []
    if found.get("table_name") == "" and found.get("table_owner") == "" and found.get("table_qualifier") == "%":
        rows = [(name, None, None, None, None) for name in session.instance.databases]
    elif "'TABLE'" in kinds:
        rows = [(session.database.name, t.schema, t.name, "TABLE", None) for t in _found(session, found)]
    rows.sort(key=lambda row: (str(row[1]), str(row[2])))
    yield Rows(columns, iter(rows))


def columns_rowset(session: Session, args: Arguments) -> Iterator[Result]:
    """Yield the rowset of sp_columns_100. Its columns have the documentation's order and types."""
    names = ("table_name", "table_owner", "table_qualifier", "column_name", "namescope", "odbcver", "fusepattern")
    found = args.bind(*names, required=1, procedure="sp_columns_100")
    version = int(str(found.get("odbcver") or 2))
    pattern = str(found.get("fusepattern", 1)) != "0"
    columns: list[tuple[str, SqlType]] = [
        ("TABLE_QUALIFIER", SYSNAME),
        ("TABLE_OWNER", SYSNAME),
        ("TABLE_NAME", SYSNAME),
        ("COLUMN_NAME", SYSNAME),
        ("DATA_TYPE", SMALLINT),
        ("TYPE_NAME", SYSNAME),
        ("PRECISION", INT),
        ("LENGTH", INT),
        ("SCALE", SMALLINT),
        ("RADIX", SMALLINT),
        ("NULLABLE", SMALLINT),
        ("REMARKS", varchar(254)),
        ("COLUMN_DEF", nvarchar(4000)),
        ("SQL_DATA_TYPE", SMALLINT),
        ("SQL_DATETIME_SUB", SMALLINT),
        ("CHAR_OCTET_LENGTH", INT),
        ("ORDINAL_POSITION", INT),
        ("IS_NULLABLE", varchar(254)),
        ("SS_IS_SPARSE", SMALLINT),
        ("SS_IS_COLUMN_SET", SMALLINT),
        ("SS_IS_COMPUTED", SMALLINT),
        ("SS_IS_IDENTITY", SMALLINT),
        ("SS_UDT_CATALOG_NAME", SYSNAME),
        ("SS_UDT_SCHEMA_NAME", SYSNAME),
        ("SS_UDT_ASSEMBLY_TYPE_NAME", nvarchar(4000)),
        ("SS_XML_SCHEMACOLLECTION_CATALOG_NAME", SYSNAME),
        ("SS_XML_SCHEMACOLLECTION_SCHEMA_NAME", SYSNAME),
        ("SS_XML_SCHEMACOLLECTION_NAME", SYSNAME),
        ("SS_DATA_TYPE", SqlType("tinyint")),
    ]
    rows: list[tuple[object, ...]] = []
    for table in sorted(_found(session, found, wildcards=pattern), key=lambda t: (t.schema, t.name)):
        for number, column in enumerate(table.columns, 1):
            if not _matches(found.get("column_name"), column.name, session.database, pattern):
                continue
            kind = column.type
            precision, length, scale, radix = sizes(kind)
            data_type = ODBC_TYPE[kind.name]
            if version >= 3:
                data_type = ODBC_3_TEMPORAL.get(kind.name, data_type)
            name = kind.name + (" identity" if column.identity else "")
            rows.append(
                (
                    *(session.database.name, table.schema, table.name, column.name, data_type, name),
                    *(precision, length, scale, radix, int(column.nullable), None),
                    *(column.default[1] if column.default else None, 9 if kind.is_temporal else data_type),
                    *({"date": 1, "time": 2}.get(kind.name, 3) if kind.is_temporal else None,),
                    *(length if kind.is_text or kind.is_binary else None, number),
                    *("YES" if column.nullable else "NO", int(column.sparse), 0, int(column.computed is not None)),
                    *(int(column.identity is not None), None, None, None, None, None, None),
                    SS_TYPE.get(kind.name, {"int": 56, "bigint": 108, "nvarchar": 39, "varchar": 39}.get(kind.name, 0)),
                )
            )
    yield Rows(columns, iter(rows))


def sizes(kind: SqlType) -> tuple[int | None, int | None, int | None, int | None]:
    """Return PRECISION, LENGTH, SCALE and RADIX of a type, as in sp_columns."""
    huge = 2147483647
    if kind.name in ("decimal", "numeric"):
        return kind.precision, kind.precision + 2, kind.scale, 10
    numbers = {"bit": (1, 1, None, None), "tinyint": (3, 1, 0, 10), "smallint": (5, 2, 0, 10), "int": (10, 4, 0, 10)}
    numbers |= {"bigint": (19, 8, 0, 10), "money": (19, 21, 4, 10), "smallmoney": (10, 12, 4, 10)}
    numbers |= {"float": (53, 8, None, 2), "real": (24, 4, None, 2)}
    if kind.name in numbers:
        return numbers[kind.name]
    fixed = {"text": (huge, huge), "ntext": (huge // 2, huge - 1), "image": (huge, huge), "xml": (0, 0)}
    fixed |= {"sysname": (128, 256), "uniqueidentifier": (36, 16), "timestamp": (8, 8), "sql_variant": (8000, 8000)}
    fixed |= {"hierarchyid": (892, 892), "geometry": (huge, huge), "geography": (huge, huge)}
    if kind.name in fixed:
        return (*fixed[kind.name], None, None)
    if kind.name in ("datetime", "smalldatetime"):
        return (23, 16, 3, None) if kind.name == "datetime" else (16, 16, 0, None)
    if kind.is_temporal:
        dot = kind.scale + 1 if kind.scale else 0
        width = {"date": 10, "time": 8 + dot, "datetime2": 19 + dot, "datetimeoffset": 26 + dot}[kind.name]
        size = {"date": 6, "time": 12, "datetime2": 16, "datetimeoffset": 20}[kind.name]
        return width, size, None if kind.name == "date" else kind.scale, None
    if kind.length == MAX:
        # The length of (max) is 0: the drivers replace it by their own limit.
        return 0, 0, None, None
    return kind.length, kind.length * (2 if kind.name.startswith("n") else 1), None, None


def keys_rowset(session: Session, args: Arguments) -> Iterator[Result]:
    """Yield the rowset of sp_pkeys."""
    found = args.bind("table_name", "table_owner", "table_qualifier", required=1, procedure="sp_pkeys")
    columns = [("TABLE_QUALIFIER", SYSNAME), ("TABLE_OWNER", SYSNAME), ("TABLE_NAME", SYSNAME)]
    columns += [("COLUMN_NAME", SYSNAME), ("KEY_SEQ", SMALLINT), ("PK_NAME", SYSNAME)]
    rows: list[tuple[object, ...]] = []
    for table in _found(session, found, wildcards=False):
        key = table.primary_key
        for number, (column, _) in enumerate(key.columns if key else (), 1):
            name = table.by_id(column).name
            assert key is not None
            rows.append((session.database.name, table.schema, table.name, name, number, key.name))
    yield Rows(columns, iter(rows))


def statistics_rowset(session: Session, args: Arguments) -> Iterator[Result]:
    """Yield the rowset of sp_statistics: a row of the table, then its indexes."""
    names = ("table_name", "table_owner", "table_qualifier", "index_name", "is_unique", "accuracy")
    found = args.bind(*names, required=1, procedure="sp_statistics")
    columns = [("TABLE_QUALIFIER", SYSNAME), ("TABLE_OWNER", SYSNAME), ("TABLE_NAME", SYSNAME)]
    columns += [("NON_UNIQUE", SMALLINT), ("INDEX_QUALIFIER", SYSNAME), ("INDEX_NAME", SYSNAME), ("TYPE", SMALLINT)]
    columns += [("SEQ_IN_INDEX", SMALLINT), ("COLUMN_NAME", SYSNAME), ("COLLATION", SqlType("char", 1))]
    columns += [("CARDINALITY", INT), ("PAGES", INT), ("FILTER_CONDITION", varchar(128))]
    rows: list[tuple[object, ...]] = []
    unique_only = str(found.get("is_unique") or "N").upper() == "Y"
    for table in _found(session, found, wildcards=False):
        base = (session.database.name, table.schema, table.name)
        rows.append((*base, None, None, None, 0, None, None, None, 0, 0, None))
        for index in sorted(table.indexes, key=lambda i: (not i.unique, not i.clustered, i.name)):
            if unique_only and not index.unique:
                continue
            for number, (column, descending) in enumerate(index.columns, 1):
                kind = 1 if index.clustered else 3
                cells = (int(not index.unique), table.name, index.name, kind, number, table.by_id(column).name)
                rows.append((*base, *cells, "D" if descending else "A", 0, 0, None))
    yield Rows(columns, iter(rows))
