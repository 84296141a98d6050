"""Every SQL statement for SQL Server. Only text: parameters are `?`, in the order given in the docstrings.

Reviewed against Microsoft's documentation of Transact-SQL, whose pages are named. Names are in brackets. Statements are
composed only of names, whole numbers, expressions of `texts.py`, and SQL that the user gives.

Rights. `cdc.change_tables`, `cdc.captured_columns`, `cdc.index_columns` and `cdc.lsn_time_mapping` are read as tables,
as Debezium's connector does; this needs SELECT on the schema cdc. A gating role (`@role_name` of
"sys.sp_cdc_enable_table") guards the functions of a capture instance: without membership `sys.fn_cdc_get_min_lsn`
returns zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from tailrace.columns import Column, TableId
from tailrace.connectors.sqlserver.values.texts import parameter, quoted, selected

Part = TypeVar("Part")

# --- the session ----------------------------------------------------------------------------------------------------

DATABASE = "select db_name()"
"""The database's name as it was created. "DB_NAME (Transact-SQL)"."""

ENABLED = "select is_cdc_enabled from sys.databases where database_id = db_id()"
"""1 if capture is enabled in the database. "sys.databases": is_cdc_enabled."""

READ_COMMITTED = "set transaction isolation level read committed; set lock_timeout -1"
"""The settings of an idle session. "SET TRANSACTION ISOLATION LEVEL", "SET LOCK_TIMEOUT": -1 waits for ever."""

_ISOLATION = {
    "repeatable_read": "repeatable read",
    "snapshot": "snapshot",
    "read_committed": "read committed",
    "read_uncommitted": "read uncommitted",
    "exclusive": "repeatable read",
}


def isolation(mode: str, lock_timeout_ms: int) -> str:
    """Return the settings of a session that reads rows. In autocommit mode each select is a transaction."""
    return f"set transaction isolation level {_ISOLATION[mode]}; set lock_timeout {lock_timeout_ms}"


def hint(mode: str) -> str:
    """Return the table hint of a mode. "Table hints": TABLOCKX, kept until the end of the transaction."""
    return " with (tablockx)" if mode == "exclusive" else ""


# --- the log --------------------------------------------------------------------------------------------------------

NEWEST = "select sys.fn_cdc_get_max_lsn()"
"""The end of the captured log; NULL if the capture job has never run. "sys.fn_cdc_get_max_lsn"."""

OLDEST = "select sys.fn_cdc_get_min_lsn(?)"
"""The low end of a capture instance (its name); zero if it does not exist or may not be read. "sys.fn_cdc_get_min_lsn":
the start_lsn of cdc.change_tables, which the clean-up raises before it deletes ("sys.sp_cdc_cleanup_change_table")."""

NTH = (
    "select max(n.start_lsn), count_big(*) from (select top (?) start_lsn from cdc.lsn_time_mapping "
    "where start_lsn > ? and tran_id <> 0x00 order by start_lsn) as n"
)
"""The commit position of a transaction by its number (count, after). Rows whose tran_id is 0x00 are written by an idle
server. "cdc.lsn_time_mapping"."""

TIMES = (
    "select start_lsn, convert(varchar(23), tran_end_time, 121) from cdc.lsn_time_mapping "
    "where start_lsn > ? and start_lsn <= ? and tran_id <> 0x00 order by start_lsn"
)
"""Commit times (after, upto), in the server's local time. "cdc.lsn_time_mapping": tran_end_time, a datetime."""

FORK = "select convert(nvarchar(36), recovery_fork_guid) from sys.database_recovery_status where database_id = db_id()"
"""An id that differs once the database has been restored to an earlier state. "sys.database_recovery_status"."""

NOW = "select convert(varchar(23), getdate(), 121)"
"""The server's local time, in the precision of commit times. "GETDATE (Transact-SQL)"."""

OFFSET = "select datepart(tz, sysdatetimeoffset())"
"""Minutes between the server's present local time and UTC. "DATEPART (Transact-SQL)", "SYSDATETIMEOFFSET"."""

CAPTURES = (
    "select ct.object_id, ct.source_object_id, ct.capture_instance, ct.start_lsn, "
    "convert(varchar(23), ct.create_date, 121), s.name, t.name, cs.name, c.name, ct.role_name "
    "from cdc.change_tables as ct "
    "join sys.tables as t on t.object_id = ct.source_object_id join sys.schemas as s on s.schema_id = t.schema_id "
    "join sys.tables as c on c.object_id = ct.object_id join sys.schemas as cs on cs.schema_id = c.schema_id "
    "order by ct.source_object_id, ct.start_lsn, ct.create_date, ct.object_id"
)
"""The capture instances. "cdc.change_tables": start_lsn is NULL while the low end has not been established, role_name
is the gating role."""

STARTS = "select capture_instance, object_id, start_lsn from cdc.change_tables where start_lsn is not null"
"""The low ends of all capture instances. "cdc.change_tables"."""

MEMBER = "select case when is_member(N'db_owner') = 1 then 1 else is_member(?) end"
"""1 if the login belongs to a role or owns the database; NULL for a role that does not exist. "IS_MEMBER
(Transact-SQL)"."""

CAPTURED_COLUMNS = (
    "select object_id, column_name, column_id from cdc.captured_columns order by object_id, column_ordinal"
)
"""Columns of the change tables; column_ordinal is their place in the change table. "cdc.captured_columns"."""

INDEX_COLUMNS = "select object_id, column_name from cdc.index_columns order by object_id, index_ordinal"
"""Columns of the index that identifies rows. "cdc.index_columns"."""

_START, _SEQUENCE, _OPERATION = "[__$start_lsn]", "[__$seqval]", "[__$operation]"
_COMMAND, _MASK = "[__$command_id]", "[__$update_mask]"

HAS_COMMAND = "select count(*) from sys.columns where object_id = ? and name = N'__$command_id'"
"""1 if a change table (its object id) numbers the operations of a transaction. "cdc.<capture_instance>_CT":
__$command_id came with updates of the versions 2012 to 2016, so older change tables lack it."""


def changes(
    change_schema: str, change_table: str, columns: Sequence[Column], by_command: bool, masked: bool = False
) -> str:
    """Return a query for the change rows of a change table in a range (after, upto).

    "cdc.<capture_instance>_CT": the leading columns; __$operation 1 is delete, 2 insert, 3 update (before), 4 update
    (after); __$seqval "should not be used for ordering", __$command_id should. With `by_command` it is a column, 0 for
    NULL, and the order is that of the change table's clustered index. With `masked` __$update_mask follows it.
    """
    where = f" where {_START} > ? and {_START} <= ?"
    return _changes(quoted(change_schema, change_table), columns, where, by_command, masked)


def changes_by_function(instance: str, columns: Sequence[Column], masked: bool = False) -> str:
    """Return a query for the change rows by the function of a capture instance (from, to: both are included).

    "cdc.fn_cdc_get_all_changes_<capture_instance>": row filter option all update old; both ends must lie within the
    instance's changes, else error 313. The function does not return __$command_id.
    """
    function = quoted("cdc", f"fn_cdc_get_all_changes_{instance}")
    return _changes(f"{function}(?, ?, N'all update old')", columns, "", False, masked)


def _changes(source: str, columns: Sequence[Column], where: str, by_command: bool, masked: bool) -> str:
    command = f"isnull({_COMMAND}, 0)" if by_command else "0"
    first = [_START, _SEQUENCE, _OPERATION, command, *([_MASK] if masked else [])]
    listed = ", ".join([*first, *(selected(column) for column in columns)])
    order = [_START, *([_COMMAND] if by_command else []), _SEQUENCE, _OPERATION]
    return f"select {listed} from {source}{where} order by {', '.join(order)}"


def total(change_schema: str, change_table: str) -> str:
    """Return a query for the number of change rows in a range (after, upto). "COUNT_BIG (Transact-SQL)"."""
    table = quoted(change_schema, change_table)
    return f"select count_big(*) from {table} where {_START} > ? and {_START} <= ?"


def total_by_function(instance: str) -> str:
    """Return a query for the number of change rows by the function of a capture instance (from, to)."""
    function = quoted("cdc", f"fn_cdc_get_all_changes_{instance}")
    return f"select count_big(*) from {function}(?, ?, N'all update old')"


def counts(change_schema: str, change_table: str) -> str:
    """Return a query for the number of each transaction's change rows in a range (after, upto)."""
    table = quoted(change_schema, change_table)
    return (
        f"select {_START}, count_big(*) from {table} where {_START} > ? and {_START} <= ? "
        f"group by {_START} order by {_START}"
    )


def counts_by_function(instance: str) -> str:
    """Return a query for the number of each transaction's change rows by the function of an instance (from, to)."""
    function = quoted("cdc", f"fn_cdc_get_all_changes_{instance}")
    return f"select {_START}, count_big(*) from {function}(?, ?, N'all update old') group by {_START} order by {_START}"


def last(change_schema: str, change_table: str, skipped: Sequence[int]) -> str:
    """Return a query for the commit position of the last change row in a range (upto), without `skipped` operations."""
    table = quoted(change_schema, change_table)
    return f"select max({_START}) from {table} where {_START} <= ?{_but(skipped, ' and')}"


def last_by_function(instance: str, skipped: Sequence[int]) -> str:
    """Return a query for the commit position of the last change row by the function of an instance (from, to)."""
    function = quoted("cdc", f"fn_cdc_get_all_changes_{instance}")
    return f"select max({_START}) from {function}(?, ?, N'all update old'){_but(skipped, ' where')}"


def _but(skipped: Sequence[int], word: str) -> str:
    return f"{word} {_OPERATION} not in ({_among(skipped)})" if skipped else ""


# --- tables ---------------------------------------------------------------------------------------------------------

TABLES = (
    "select s.name, t.name from sys.tables as t join sys.schemas as s on s.schema_id = t.schema_id "
    "where t.is_ms_shipped = 0 order by s.name, t.name"
)
"""User tables. "sys.tables": is_ms_shipped, which is also set for change tables."""

IDS = (
    "select t.object_id, s.name, t.name from sys.tables as t join sys.schemas as s on s.schema_id = t.schema_id "
    "where t.is_ms_shipped = 0"
)
"""User tables with their object ids."""


def _among(numbers: Sequence[int]) -> str:
    return ", ".join(str(int(number)) for number in numbers)


def columns(objects: Sequence[int]) -> str:
    """Return a query for the columns of tables by object id: name, id, type, sizes, nullability, default, and flags for
    computed and identity columns.

    An alias type is resolved by its system_type_id; CLR types share one system_type_id and differ by user_type_id.
    "sys.columns", "sys.types": for system types other than CLR types user_type_id equals system_type_id;
    "sys.default_constraints".
    """
    return (
        "select c.object_id, c.name, c.column_id, coalesce(b.name, u.name), c.system_type_id, c.max_length, "
        "c.precision, c.scale, c.is_nullable, d.definition, c.is_computed, c.is_identity "
        "from sys.columns as c "
        "join sys.types as u on u.user_type_id = c.user_type_id "
        "left join sys.types as b on b.user_type_id = c.system_type_id and b.is_user_defined = 0 "
        "left join sys.default_constraints as d on d.object_id = c.default_object_id "
        f"where c.object_id in ({_among(objects)}) order by c.object_id, c.column_id"
    )


def keys(objects: Sequence[int]) -> str:
    """Return a query for the columns of primary keys and of unique indexes of tables, by object id and index.

    The primary key comes first, then clustered indexes, then the others by name. "sys.indexes": a filtered index is
    unique only within its filter; "sys.index_columns": key_ordinal is 0 for included columns.
    """
    return (
        "select i.object_id, i.index_id, c.name "
        "from sys.indexes as i "
        "join sys.index_columns as k on k.object_id = i.object_id and k.index_id = i.index_id "
        "join sys.columns as c on c.object_id = k.object_id and c.column_id = k.column_id "
        f"where i.object_id in ({_among(objects)}) and i.is_unique = 1 and i.is_disabled = 0 "
        "and i.is_hypothetical = 0 and i.has_filter = 0 and k.key_ordinal > 0 "
        "order by i.object_id, i.is_primary_key desc, i.type, i.name, k.key_ordinal"
    )


ROW_COUNT = (
    "select sum(p.rows) from sys.partitions as p join sys.tables as t on t.object_id = p.object_id "
    "join sys.schemas as s on s.schema_id = t.schema_id where s.name = ? and t.name = ? and p.index_id in (0, 1)"
)
"""An estimate of a table's rows (schema, table). "sys.partitions": rows, approximate; index_id 0 is the heap, 1 the
clustered index."""


def any_row(table: TableId) -> str:
    """Return a query for one row of a table."""
    return f"select top (1) 1 from {quoted(table.schema, table.table)}"


def rows(source: str, columns: Sequence[Column], where: str, order: Sequence[str], recompile: bool) -> str:
    """Return a query for rows. `source` is a table with its hints or a statement as a table, `where` a condition.

    "Query hints": RECOMPILE.
    """
    listed = ", ".join(selected(column) for column in columns) or "1"
    return f"select {listed} from {source}{_where(where)}{_order(order)}{_recompile(recompile)}"


def boundary(source: str, key: Sequence[Column], where: str, recompile: bool) -> str:
    """Return a query for the key of the row at a place, counted from 0 (bound after the condition's parameters).

    "SELECT - ORDER BY clause": OFFSET and FETCH.
    """
    listed = ", ".join(selected(column) for column in key)
    order = _order([quoted(column.name) for column in key])
    return (
        f"select {listed} from {source}{_where(where)}{order} offset ? rows fetch next 1 rows only"
        f"{_recompile(recompile)}"
    )


def first(source: str, key: Sequence[Column], where: str, *, last: bool) -> str:
    """Return a query for the smallest or, with `last`, the greatest key without NULL."""
    listed = ", ".join(selected(column) for column in key)
    without = " and ".join(f"{quoted(column.name)} is not null" for column in key)
    where = f"({where}) and {without}" if where else without
    order = ", ".join(f"{quoted(column.name)}{' desc' if last else ''}" for column in key)
    return f"select top (1) {listed} from {source} where {where} order by {order}"


COLLATIONS = (
    "select c.name, c.collation_name from sys.columns as c where c.object_id = object_id(?) "
    "and type_name(c.system_type_id) in (N'char', N'varchar') "
    "and cast(collationproperty(c.collation_name, 'CodePage') as int) <> "
    "cast(collationproperty(cast(databasepropertyex(db_name(), 'Collation') as nvarchar(128)), 'CodePage') as int)"
)
"""The collations of a table's columns whose code page is not the database's (quoted name of the table).

"COLLATIONPROPERTY"; "Collation and Unicode support": a conversion from Unicode loses what the code page lacks.
"""


def above(key: Sequence[Column], collations: Mapping[str, str]) -> str:
    """Return the condition that a key is greater than another, whose parts are bound as `compared_parts` returns
    them. `collations` are those of columns with a code page of their own."""
    return _compared(key, ">", ">", collations)


def up_to(key: Sequence[Column], collations: Mapping[str, str]) -> str:
    """Return the condition that a key is not greater than another. NULL sorts before every value ("ORDER BY
    clause")."""
    return _compared(key, "<", "<=", collations)


def _compared(key: Sequence[Column], before: str, last: str, collations: Mapping[str, str]) -> str:
    column, *rest = key
    name, value = quoted(column.name), parameter(column, collations.get(column.name, ""))
    null = f" or {name} is null" if column.nullable and before == "<" else ""
    if not rest:
        return f"({name} {last} {value}{null})"
    return f"({name} {before} {value}{null} or {name} = {value} and {_compared(rest, before, last, collations)})"


def among(key: Sequence[Column], count: int, collations: Mapping[str, str]) -> str:
    """Return the condition that a key is one of `count` others, whose parts are bound key by key."""
    values = [parameter(column, collations.get(column.name, "")) for column in key]
    if len(key) == 1:
        return f"{quoted(key[0].name)} in ({', '.join(values * count)})"
    one = " and ".join(f"{quoted(column.name)} = {value}" for column, value in zip(key, values, strict=True))
    return f"({' or '.join([f'({one})'] * count)})"


def compared_parts(key: Sequence[Part]) -> list[Part]:
    """Return the parts of a key in the order of the parameters of `above` and `up_to`: all but the last one twice."""
    return [part for place, part in enumerate(key) for _ in range(2 if place + 1 < len(key) else 1)]


def as_table(statement: str) -> str:
    """Return a select of the user as a table."""
    return f"(\n{statement.strip().rstrip(';')}\n) as [rows]"


def ordered(statement: str) -> str:
    """Return a select of the user that ends with ORDER BY in a form that can be a table.

    In a table ORDER BY is allowed only with OFFSET (error 1033).
    """
    return f"{statement.strip().rstrip(';')}\noffset 0 rows"


def _where(condition: str) -> str:
    return f" where {condition}" if condition else ""


def _order(names: Sequence[str]) -> str:
    return f" order by {', '.join(names)}" if names else ""


def _recompile(recompile: bool) -> str:
    return " option (recompile)" if recompile else ""


# --- signals --------------------------------------------------------------------------------------------------------

FIRST_COLUMN = (
    "select top (1) c.name from sys.columns as c join sys.tables as t on t.object_id = c.object_id "
    "join sys.schemas as s on s.schema_id = t.schema_id where s.name = ? and t.name = ? order by c.column_id"
)
"""The name of a table's first column (schema, table)."""


def write_signal(table: TableId) -> str:
    """Return a statement that inserts a row into the signal table (id, type, data), by the order of its columns."""
    return f"insert into {quoted(table.schema, table.table)} values (?, ?, ?)"


def delete_signal(table: TableId, column: str) -> str:
    """Return a statement that deletes rows by their first column (id)."""
    return f"delete from {quoted(table.schema, table.table)} where {quoted(column)} = ?"


# --- checks ---------------------------------------------------------------------------------------------------------

ALTERED = "select h.object_id, count_big(*) from cdc.ddl_history as h group by h.object_id"
"""The change tables whose source was altered after they were made. "cdc.ddl_history"."""


def covered(objects: Sequence[int]) -> str:
    """Return a query for the columns of tables by object id: name, number, and flags for computed columns, column sets,
    masked and encrypted columns.

    "sys.columns": encryption_type is NULL for a column that is not encrypted.
    """
    return (
        "select c.object_id, c.name, c.column_id, c.is_computed, c.is_column_set, c.is_masked, "
        "case when c.encryption_type is null then 0 else 1 end from sys.columns as c "
        f"where c.object_id in ({_among(objects)}) order by c.object_id, c.column_id"
    )


FILTERED = (
    "select p.target_object_id from sys.security_predicates as p join sys.security_policies as s "
    "on s.object_id = p.object_id where s.is_enabled = 1 and p.predicate_type = 0"
)
"""The tables whose rows a security policy filters, if the login may see the policy. "sys.security_predicates":
predicate_type 0 is a filter."""


def hidden_rows(table: TableId) -> str:
    """Return a query for the number of rows that a table has and the login does not see (schema, table)."""
    return f"select ({ROW_COUNT}) - (select count_big(*) from {quoted(table.schema, table.table)})"


SWITCHED = (
    "select distinct ct.object_id from cdc.change_tables as ct join sys.partitions as p "
    "on p.object_id = ct.source_object_id where ct.partition_switch = 1 and p.partition_number > 1"
)
"""The change tables of partitioned tables whose partitions may be switched. "sys.sp_cdc_enable_table":
@allow_partition_switch."""

UNMASKED = "select has_perms_by_name(db_name(), 'DATABASE', 'UNMASK')"
"""1 if the login sees masked values. "Dynamic data masking": UNMASK."""

SILENCE = "select datediff(second, max(tran_end_time), getdate()) from cdc.lsn_time_mapping"
"""Seconds since the capture job's last row; on an idle server it writes one every five minutes."""

VERSION = (
    "select cast(serverproperty('ProductVersion') as nvarchar(128)), cast(serverproperty('Edition') as nvarchar(128)), "
    "cast(serverproperty('EngineEdition') as int)"
)
"""Version, edition, and kind of server: 4 is Express, which has no agent and no capture; 5 and 8 are Azure SQL Database
and Managed Instance. "SERVERPROPERTY (Transact-SQL)"."""

STATES = "select is_cdc_enabled, snapshot_isolation_state from sys.databases where database_id = db_id()"
"""The states of capture and snapshot isolation. "sys.databases": snapshot_isolation_state 1 is on."""

CLEANUP = (
    "select j.retention, j.threshold from msdb.dbo.cdc_jobs as j where j.database_id = db_id() "
    "and j.job_type = N'cleanup'"
)
"""The retention of changes in minutes. "dbo.cdc_jobs"."""

AGE = (
    "select datediff(minute, min(tran_end_time), getdate()) from cdc.lsn_time_mapping "
    "where start_lsn > ? and tran_id <> 0x00"
)
"""Minutes since the oldest transaction after a commit position; NULL if there is none."""

SPAN = "select datediff(second, min(tran_end_time), getdate()) from cdc.lsn_time_mapping where tran_id <> 0x00"
"""Seconds since the oldest transaction that the change tables have; NULL if there is none."""

SIGNAL_COLUMNS = (
    "select c.name, y.name, c.max_length, c.is_nullable, c.is_identity, c.is_computed from sys.columns as c "
    "join sys.tables as t on t.object_id = c.object_id join sys.schemas as s on s.schema_id = t.schema_id "
    "join sys.types as y on y.user_type_id = c.user_type_id where s.name = ? and t.name = ? order by c.column_id"
)
"""The columns of the signal table (schema, table)."""


def permitted(right: str) -> str:
    """Return a query for 1 if the login has a right on an object (its quoted name). "HAS_PERMS_BY_NAME"."""
    return f"select has_perms_by_name(?, 'OBJECT', '{right}')"


BROAD_OWNERS = ("sysadmin", "control server", "db_owner", "control")
"""The rights and roles that include all other `BROAD_WORDS`, the widest first."""

_SERVER_ROLES = ("securityadmin", "serveradmin", "setupadmin", "processadmin", "diskadmin", "dbcreator", "bulkadmin")
_DATABASE_ROLES = ("db_securityadmin", "db_accessadmin", "db_ddladmin", "db_backupoperator", "db_datawriter")
BROAD_WORDS = (*BROAD_OWNERS, *_SERVER_ROLES, *_DATABASE_ROLES)
"""Rights and roles that capture does not need, in the order of the columns of `BROAD`."""

BROAD = (
    "select is_srvrolemember(N'sysadmin'), has_perms_by_name(null, null, 'CONTROL SERVER'), is_member(N'db_owner'), "
    "has_perms_by_name(db_name(), 'DATABASE', 'CONTROL'), "
    + ", ".join(
        [
            *(f"is_srvrolemember(N'{role}')" for role in _SERVER_ROLES),
            *(f"is_member(N'{role}')" for role in _DATABASE_ROLES),
        ]
    )
)
"""The rights of the login, for each of `BROAD_WORDS`: 1, 0, or NULL for a role that does not exist. "IS_SRVROLEMEMBER",
"IS_MEMBER", "HAS_PERMS_BY_NAME": the server itself is named by NULL."""

CATALOG = ("change_tables", "captured_columns", "index_columns", "lsn_time_mapping", "ddl_history")
"""The tables of the schema cdc that are read in addition to the change tables."""


def agent(statement: str, database: str) -> str:
    """Return the query, the user's or Debezium's, for the state of the agent. "sys.dm_server_services": status 4 is
    running."""
    return statement.replace("${db}", quoted(database)).replace("[#db]", quoted(database))
