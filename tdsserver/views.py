"""Catalog views: sys.*, INFORMATION_SCHEMA.*, cdc.* and msdb's, computed from the model when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tdsserver.model import Database, Index, Instance, Table
from tdsserver.sqltype import (
    BIGINT,
    BIT,
    DATETIME,
    INT,
    LSN,
    SMALLINT,
    SYSNAME,
    SYSTEM_TYPE_ID,
    TINYINT,
    USER_TYPE_ID,
    SqlType,
    make,
    nvarchar,
    varchar,
)

Columns = list[tuple[str, SqlType]]
Rows = Iterator[Sequence[object]]


@dataclass(frozen=True, slots=True)
class View:
    """A view: its columns, and the function that yields its rows in storage form."""

    columns: Columns
    rows: Callable[[Instance, Database], Rows]


TYPES = {
    "int": INT,
    "bit": BIT,
    "tiny": TINYINT,
    "small": SMALLINT,
    "big": BIGINT,
    "name": SYSNAME,
    "time": DATETIME,
    "lsn": LSN,
    "text": nvarchar(4000),
    "max": nvarchar(-1),
    "char2": SqlType("char", 2),
    "variant": make("nvarchar", [4000]),
    "ident": varchar(128),
}


def _columns(text: str) -> Columns:
    """Return the columns of `name:type name:type …`."""
    return [(name, TYPES[kind]) for name, _, kind in (part.partition(":") for part in text.split())]


def _databases(instance: Instance, database: Database) -> Rows:
    for one in instance.databases.values():
        on = one.snapshot_isolation
        yield (
            *(one.name, one.id, one.created, 150, one.collation, 6 if one.offline else 0),
            *("OFFLINE" if one.offline else "ONLINE", 0, int(on), "ON" if on else "OFF"),
            *(int(one.read_committed_snapshot), 0, int(one.log.cdc is not None), "FULL", "sa"),
        )


def _recovery(instance: Instance, database: Database) -> Rows:
    for one in instance.databases.values():
        yield one.id, f"00000000-0000-0000-0000-{one.id:012d}"


def _schemas(instance: Instance, database: Database) -> Rows:
    for name, number in database.schemas.items():
        yield name, number, 1


def _kind(table: Table) -> tuple[str, str]:
    return "U ", "USER_TABLE"


def _objects(instance: Instance, database: Database) -> Rows:
    for table in database.tables.values():
        common = (database.schemas[table.schema], 0)
        yield table.name, table.object_id, *common, *_kind(table), table.created, table.changed, int(table.shipped)
        for index in table.indexes:
            if index.constraint:
                kind = ("PK", "PRIMARY_KEY_CONSTRAINT") if index.primary else ("UQ", "UNIQUE_CONSTRAINT")
                yield (
                    *(index.name, index.object_id, common[0], table.object_id, *kind),
                    *(table.created, table.created, int(table.shipped)),
                )
        for column in table.columns:
            if column.default:
                yield (
                    *(column.default[0], column.default_id, common[0], table.object_id, "D ", "DEFAULT_CONSTRAINT"),
                    *(table.created, table.created, int(table.shipped)),
                )
    cdc = database.log.cdc
    for one in cdc.instances if cdc else ():
        yield (
            *(f"fn_cdc_get_all_changes_{one.name}", one.table_id + 1, database.schemas["cdc"], 0),
            *("IF", "SQL_INLINE_TABLE_VALUED_FUNCTION", one.created, one.created, 1),
        )


def _tables(instance: Instance, database: Database) -> Rows:
    cdc = database.log.cdc
    captured = {one.source_id for one in cdc.instances} if cdc else set()
    for table in database.tables.values():
        yield (
            *(table.name, table.object_id, database.schemas[table.schema], 0, *_kind(table), table.created),
            *(table.changed, int(table.shipped), int(table.object_id in captured), 0, 0, "NON_TEMPORAL_TABLE"),
        )


def _table_columns(instance: Instance, database: Database) -> Rows:
    for table in database.tables.values():
        for column in table.columns:
            kind = column.type
            yield (
                *(table.object_id, column.name, column.id, SYSTEM_TYPE_ID[kind.name], USER_TYPE_ID[kind.name]),
                *(kind.max_length, kind.catalog_precision, kind.catalog_scale),
                *((kind.collation or database.collation) if kind.is_text and kind.name != "xml" else None,),
                *(int(column.nullable), int(kind.name in ("char", "binary", "nchar")), 0, int(bool(column.identity))),
                *(int(column.computed is not None), int(column.sparse), 0, column.default_id, 0, 0, None),
            )


def _types(instance: Instance, database: Database) -> Rows:
    for name, number in SYSTEM_TYPE_ID.items():
        kind = make(name)
        variable = {"nvarchar": 8000, "varchar": 8000, "char": 8000, "nchar": 8000, "varbinary": 8000, "binary": 8000}
        yield (
            *(name, number, USER_TYPE_ID[name], 4, variable.get(name, kind.max_length)),
            *(38 if name in ("decimal", "numeric") else kind.catalog_precision,),
            *(38 if name in ("decimal", "numeric") else kind.catalog_scale,),
            *(database.collation if kind.is_text and name != "xml" else None, 1, 0, 0),
        )


def _each_index(database: Database) -> Iterator[tuple[Table, Index]]:
    for table in database.tables.values():
        for index in table.indexes:
            yield table, index


def _indexes(instance: Instance, database: Database) -> Rows:
    for table in database.tables.values():
        if table.clustered is None:
            yield table.object_id, None, 0, 0, "HEAP", 0, 0, 0, 0, 0, 0
    for table, index in _each_index(database):
        kind = (1, "CLUSTERED") if index.clustered else (2, "NONCLUSTERED")
        unique = index.constraint and not index.primary
        yield (
            *(table.object_id, index.name, index.id, *kind, int(index.unique), int(index.primary), int(unique)),
            *(0, 0, 0),
        )


def _index_columns(instance: Instance, database: Database) -> Rows:
    for table, index in _each_index(database):
        for number, (column, descending) in enumerate(index.columns, 1):
            yield table.object_id, index.id, number, column, number, 0, int(descending), 0


def _defaults(instance: Instance, database: Database) -> Rows:
    for table in database.tables.values():
        for column in table.columns:
            if column.default:
                name, text = column.default
                yield (
                    *(name, column.default_id, database.schemas[table.schema], table.object_id, "D "),
                    *("DEFAULT_CONSTRAINT", table.created, column.id, text, 0),
                )


def _keys(instance: Instance, database: Database) -> Rows:
    for table, index in _each_index(database):
        if index.constraint:
            kind = ("PK", "PRIMARY_KEY_CONSTRAINT") if index.primary else ("UQ", "UNIQUE_CONSTRAINT")
            yield index.name, index.object_id, database.schemas[table.schema], table.object_id, *kind, index.id


def _identities(instance: Instance, database: Database) -> Rows:
    for table in database.tables.values():
        for column in table.columns:
            if column.identity:
                yield table.object_id, column.name, column.id, *map(str, column.identity), table.identity


def _computed(instance: Instance, database: Database) -> Rows:
    for table in database.tables.values():
        for column in table.columns:
            if column.computed is not None:
                yield table.object_id, column.name, column.id, column.computed, 0


def _partitions(instance: Instance, database: Database) -> Rows:
    with instance.lock:
        cursor = instance.duck.cursor()
        for table in database.tables.values():
            found = cursor.execute(f"SELECT count(*) FROM {database.storage}.{table.storage}").fetchone()
            for index in [i.id for i in table.indexes] or [0]:
                yield table.object_id, index, 1, found[0] if found else 0


def _none(instance: Instance, database: Database) -> Rows:
    """Yield no row: the server has no such objects."""
    return iter(())


def _principals(instance: Instance, database: Database) -> Rows:
    yield "dbo", 1, "S", "SQL_USER"
    for number, name in enumerate(database.users, 5):
        yield name, number, "S", "SQL_USER"
    for number, name in enumerate(database.roles, 16384):
        yield name, number, "R", "DATABASE_ROLE"


def _members(instance: Instance, database: Database) -> Rows:
    users = {name: number for number, name in enumerate(database.users, 5)}
    for number, members in enumerate(database.roles.values(), 16384):
        for member in members:
            yield number, users.get(member, 1)


def _services(instance: Instance, database: Database) -> Rows:
    running = (4, "Running") if instance.agent_running else (1, "Stopped")
    yield "SQL Server (MSSQLSERVER)", 2, "Automatic", 4, "Running", 1
    yield "SQL Server Agent (MSSQLSERVER)", 2, "Automatic", *running, 2


def _test_log(instance: Instance, database: Database) -> Rows:
    cdc = database.log.cdc
    wanted = {one.source_id for one in cdc.instances} if cdc else set()
    with instance.lock:
        yield (sum(any(c.object_id in wanted for c in t.changes) for t in database.log.pending),)


def _change_tables(instance: Instance, database: Database) -> Rows:
    cdc = database.log.cdc
    for one in cdc.instances if cdc else ():
        yield (
            *(one.table_id, 0, one.source_id, one.name, one.start_lsn, None, int(one.net_changes), None),
            *(one.role, one.index, one.filegroup, one.created, int(one.partition_switch)),
        )


def _captured_columns(instance: Instance, database: Database) -> Rows:
    cdc = database.log.cdc
    for one in cdc.instances if cdc else ():
        for column in one.columns:
            yield one.table_id, column.name, column.id, column.type, column.ordinal, int(column.computed), None


def _cdc_index_columns(instance: Instance, database: Database) -> Rows:
    cdc = database.log.cdc
    for one in cdc.instances if cdc else ():
        names = {column.id: column.name for column in one.columns}
        for number, column in enumerate(one.index_columns, 1):
            yield one.table_id, names[column], number, column


def _ddl_history(instance: Instance, database: Database) -> Rows:
    cdc = database.log.cdc
    for one in cdc.ddl if cdc else ():
        yield one.source_id, one.table_id, int(one.required_update), one.command, one.lsn, one.time


def _cdc_jobs(instance: Instance, database: Database) -> Rows:
    for one in instance.captured_databases():
        cdc = one.log.cdc
        assert cdc is not None
        yield one.id, "capture", 500, 10, 1, cdc.pollinginterval, 0, 0
        yield one.id, "cleanup", 0, 0, 0, 0, cdc.retention, 5000


def _schema_tables(instance: Instance, database: Database) -> Rows:
    for table in database.tables.values():
        yield database.name, table.schema, table.name, "BASE TABLE"


def _schema_columns(instance: Instance, database: Database) -> Rows:
    for table in database.tables.values():
        for number, column in enumerate(table.columns, 1):
            kind = column.type
            length = kind.length if kind.is_text or kind.is_binary else None
            numeric = kind.is_number and kind.name != "bit"
            yield (
                *(database.name, table.schema, table.name, column.name, number),
                *(column.default[1] if column.default else None, "YES" if column.nullable else "NO"),
                *("nvarchar" if kind.name == "sysname" else kind.name, length),
                *(kind.max_length if length is not None else None, kind.catalog_precision if numeric else None),
                *(kind.catalog_scale if numeric else None, kind.catalog_scale if kind.is_temporal else None),
                *((kind.collation or database.collation) if kind.is_text and kind.name != "xml" else None,),
            )


def _constraints(instance: Instance, database: Database) -> Rows:
    for table, index in _each_index(database):
        if index.constraint:
            kind = "PRIMARY KEY" if index.primary else "UNIQUE"
            yield database.name, table.schema, index.name, database.name, table.schema, table.name, kind


def _key_usage(instance: Instance, database: Database) -> Rows:
    for table, index in _each_index(database):
        if index.constraint:
            for number, (column, _) in enumerate(index.columns, 1):
                name = table.by_id(column).name
                yield database.name, table.schema, index.name, database.name, table.schema, table.name, name, number


def _schemata(instance: Instance, database: Database) -> Rows:
    for name in database.schemas:
        yield database.name, name, "dbo"


_COLUMN_VIEW = View(
    _columns(
        "object_id:int name:name column_id:int system_type_id:tiny user_type_id:int max_length:small precision:tiny"
        " scale:tiny collation_name:name is_nullable:bit is_ansi_padded:bit is_rowguidcol:bit is_identity:bit"
        " is_computed:bit is_sparse:bit is_hidden:bit default_object_id:int is_column_set:bit is_masked:bit"
        " encryption_type:int"
    ),
    _table_columns,
)
_OBJECT_VIEW = View(
    _columns(
        "name:name object_id:int schema_id:int parent_object_id:int type:char2 type_desc:name create_date:time"
        " modify_date:time is_ms_shipped:bit"
    ),
    _objects,
)

VIEWS: dict[tuple[str, str], View] = {
    ("sys", "databases"): View(
        _columns(
            "name:name database_id:int create_date:time compatibility_level:tiny collation_name:name state:tiny"
            " state_desc:name is_read_only:bit snapshot_isolation_state:tiny snapshot_isolation_state_desc:name"
            " is_read_committed_snapshot_on:bit is_encrypted:bit is_cdc_enabled:bit recovery_model_desc:name"
            " owner_name:name"
        ),
        _databases,
    ),
    ("sys", "database_recovery_status"): View(_columns("database_id:int recovery_fork_guid:name"), _recovery),
    ("sys", "schemas"): View(_columns("name:name schema_id:int principal_id:int"), _schemas),
    ("sys", "objects"): _OBJECT_VIEW,
    ("sys", "all_objects"): _OBJECT_VIEW,
    ("sys", "tables"): View(
        _columns(
            "name:name object_id:int schema_id:int parent_object_id:int type:char2 type_desc:name create_date:time"
            " modify_date:time is_ms_shipped:bit is_tracked_by_cdc:bit is_memory_optimized:bit temporal_type:tiny"
            " temporal_type_desc:name"
        ),
        _tables,
    ),
    ("sys", "columns"): _COLUMN_VIEW,
    ("sys", "all_columns"): _COLUMN_VIEW,
    ("sys", "types"): View(
        _columns(
            "name:name system_type_id:tiny user_type_id:int schema_id:int max_length:small precision:tiny scale:tiny"
            " collation_name:name is_nullable:bit is_user_defined:bit is_table_type:bit"
        ),
        _types,
    ),
    ("sys", "indexes"): View(
        _columns(
            "object_id:int name:name index_id:int type:tiny type_desc:name is_unique:bit is_primary_key:bit"
            " is_unique_constraint:bit is_disabled:bit is_hypothetical:bit has_filter:bit"
        ),
        _indexes,
    ),
    ("sys", "index_columns"): View(
        _columns(
            "object_id:int index_id:int index_column_id:int column_id:int key_ordinal:tiny partition_ordinal:tiny"
            " is_descending_key:bit is_included_column:bit"
        ),
        _index_columns,
    ),
    ("sys", "default_constraints"): View(
        _columns(
            "name:name object_id:int schema_id:int parent_object_id:int type:char2 type_desc:name create_date:time"
            " parent_column_id:int definition:max is_system_named:bit"
        ),
        _defaults,
    ),
    ("sys", "key_constraints"): View(
        _columns(
            "name:name object_id:int schema_id:int parent_object_id:int type:char2 type_desc:name unique_index_id:int"
        ),
        _keys,
    ),
    ("sys", "identity_columns"): View(
        _columns("object_id:int name:name column_id:int seed_value:variant increment_value:variant last_value:big"),
        _identities,
    ),
    ("sys", "computed_columns"): View(
        _columns("object_id:int name:name column_id:int definition:max is_persisted:bit"), _computed
    ),
    ("sys", "partitions"): View(_columns("object_id:int index_id:int partition_number:int rows:big"), _partitions),
    ("sys", "security_policies"): View(_columns("name:name object_id:int is_enabled:bit"), _none),
    ("sys", "security_predicates"): View(
        _columns("object_id:int security_predicate_id:int target_object_id:int predicate_type:int"), _none
    ),
    ("sys", "database_principals"): View(_columns("name:name principal_id:int type:char2 type_desc:name"), _principals),
    ("sys", "database_role_members"): View(_columns("role_principal_id:int member_principal_id:int"), _members),
    ("sys", "dm_server_services"): View(
        _columns("servicename:text startup_type:int startup_type_desc:text status:int status_desc:text process_id:int"),
        _services,
    ),
    # Not of SQL Server: the number of committed transactions that the agent has yet to capture.
    ("sys", "dm_test_log"): View(_columns("pending:int"), _test_log),
    ("information_schema", "tables"): View(
        _columns("TABLE_CATALOG:name TABLE_SCHEMA:name TABLE_NAME:name TABLE_TYPE:ident"), _schema_tables
    ),
    ("information_schema", "columns"): View(
        _columns(
            "TABLE_CATALOG:name TABLE_SCHEMA:name TABLE_NAME:name COLUMN_NAME:name ORDINAL_POSITION:int"
            " COLUMN_DEFAULT:text IS_NULLABLE:ident DATA_TYPE:name CHARACTER_MAXIMUM_LENGTH:int"
            " CHARACTER_OCTET_LENGTH:int NUMERIC_PRECISION:tiny NUMERIC_SCALE:int DATETIME_PRECISION:small"
            " COLLATION_NAME:name"
        ),
        _schema_columns,
    ),
    ("information_schema", "table_constraints"): View(
        _columns(
            "CONSTRAINT_CATALOG:name CONSTRAINT_SCHEMA:name CONSTRAINT_NAME:name TABLE_CATALOG:name TABLE_SCHEMA:name"
            " TABLE_NAME:name CONSTRAINT_TYPE:ident"
        ),
        _constraints,
    ),
    ("information_schema", "key_column_usage"): View(
        _columns(
            "CONSTRAINT_CATALOG:name CONSTRAINT_SCHEMA:name CONSTRAINT_NAME:name TABLE_CATALOG:name TABLE_SCHEMA:name"
            " TABLE_NAME:name COLUMN_NAME:name ORDINAL_POSITION:int"
        ),
        _key_usage,
    ),
    ("information_schema", "schemata"): View(
        _columns("CATALOG_NAME:name SCHEMA_NAME:name SCHEMA_OWNER:name"), _schemata
    ),
}

CDC_VIEWS: dict[str, View] = {
    "change_tables": View(
        _columns(
            "object_id:int version:int source_object_id:int capture_instance:name start_lsn:lsn end_lsn:lsn"
            " supports_net_changes:bit has_drop_pending:bit role_name:name index_name:name filegroup_name:name"
            " create_date:time partition_switch:bit"
        ),
        _change_tables,
    ),
    "captured_columns": View(
        _columns(
            "object_id:int column_name:name column_id:int column_type:name column_ordinal:int is_computed:bit"
            " masking_function:text"
        ),
        _captured_columns,
    ),
    "index_columns": View(
        _columns("object_id:int column_name:name index_ordinal:tiny column_id:int"), _cdc_index_columns
    ),
    "ddl_history": View(
        _columns(
            "source_object_id:int object_id:int required_column_update:bit ddl_command:max ddl_lsn:lsn ddl_time:time"
        ),
        _ddl_history,
    ),
}
"""The tables of the schema cdc, if capture is enabled. cdc.lsn_time_mapping is not among them: it is stored."""

CDC_JOBS = View(
    _columns(
        "database_id:int job_type:name maxtrans:int maxscans:int continuous:bit pollinginterval:big retention:big"
        " threshold:big"
    ),
    _cdc_jobs,
)
"""msdb.dbo.cdc_jobs."""
