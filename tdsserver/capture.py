"""Change data capture: what its procedures set up, and the agent that fills the change tables.

The rules are Microsoft's documentation's: "About change data capture (SQL Server)", "sys.sp_cdc_enable_table",
"cdc.<capture_instance>_CT", "cdc.lsn_time_mapping", "Administer and monitor change data capture".
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tdsserver import values
from tdsserver.errors import SqlError
from tdsserver.log import (
    NOTHING,
    CaptureColumn,
    CaptureInstance,
    Cdc,
    Change,
    DdlEntry,
    Transaction,
)
from tdsserver.model import ColumnInfo, Database, Index, Instance, Table
from tdsserver.parser import Parser
from tdsserver.session import Session
from tdsserver.sqltype import DATETIME, DATETIME2, INT, LSN, SqlType, make, varbinary

PAUSE = 0.02
"""Seconds between two looks of the agent at the log; a real one waits five seconds by default."""


def moment(instance: Instance) -> int:
    """Return the present time as a datetime in storage form."""
    return values.convert_temporal(instance.now(), DATETIME2, DATETIME)


def cdc_of(database: Database) -> Cdc:
    """Return the database's capture; raises SqlError 22901 where it is not enabled."""
    if database.log.cdc is None:
        raise SqlError(
            22901,
            f"The database '{database.name}' is not enabled for Change Data Capture. Ensure that the correct database"
            " context is set and retry the operation. To report on the databases enabled for Change Data Capture, query"
            " the is_cdc_enabled column in the sys.databases catalog view.",
        )
    return database.log.cdc


def owner(session: Session, database: Database) -> None:
    """Raise SqlError 22904 unless the login owns the database."""
    if not session.is_owner(database):
        raise SqlError(22904, "Caller is not authorized to initiate the requested action. DBO privileges are required.")


def enable_database(session: Session) -> None:
    """sys.sp_cdc_enable_db: the schema and user cdc, and its tables."""
    database = session.database
    if not session.is_admin:
        raise SqlError(
            22902,
            "Caller is not authorized to initiate the requested action. System administrator privileges are required.",
        )
    if database.name in ("master", "tempdb", "model", "msdb"):
        raise SqlError(
            22913,
            f"Could not update the metadata that indicates database {database.name} is enabled for Change"
            " Data Capture.",
        )
    if database.log.cdc is not None:
        return
    if database.schema("cdc") is not None:
        raise SqlError(
            22906,
            f"The database '{database.name}' cannot be enabled for Change Data Capture because a database"
            " user named 'cdc'"
            " or a schema named 'cdc' already exists in the current database.",
        )
    with session.instance.lock:
        database.schemas["cdc"] = max(database.schemas.values()) + 1
        cdc = Cdc()
        kinds = [("start_lsn", LSN), ("tran_begin_time", DATETIME), ("tran_end_time", DATETIME)]
        kinds += [("tran_id", varbinary(10)), ("tran_begin_lsn", LSN)]
        table = create_table(session.instance, database, "lsn_time_mapping", kinds)
        table.columns[0].nullable = False
        table.indexes.append(Index(1, 0, "lsn_time_mapping_clustered_idx", [(1, False)], False, True, True, False))
        cdc.mapping_id = table.object_id
        database.log.cdc = cdc


def disable_database(session: Session) -> None:
    """sys.sp_cdc_disable_db: drop everything in the schema cdc."""
    database = session.database
    cdc_of(database)
    with session.instance.lock:
        for table in [t for t in database.tables.values() if t.schema == "cdc"]:
            drop_table(session.instance, database, table)
        database.log.cdc = None
        database.log.pending.clear()
        del database.schemas["cdc"]


def create_table(instance: Instance, database: Database, name: str, kinds: Sequence[tuple[str, SqlType]]) -> Table:
    """Create and return a table of the schema cdc."""
    columns = [ColumnInfo(number, column, kind) for number, (column, kind) in enumerate(kinds, 1)]
    table = Table(database.object_id(), "cdc", name, columns, moment(instance), shipped=True)
    database.object_id()
    table.changed, table.next_column = table.created, len(columns) + 1
    cells = ", ".join(f"{c.storage} {c.type.storage}" for c in columns)
    cursor = instance.duck.cursor()
    cursor.execute(f"CREATE TABLE {database.storage}.{table.storage} ({cells})")
    cursor.close()
    database.tables[table.object_id] = table
    return table


def drop_table(instance: Instance, database: Database, table: Table) -> None:
    """Drop a table of the schema cdc."""
    cursor = instance.duck.cursor()
    cursor.execute(f"DROP TABLE {database.storage}.{table.storage}")
    cursor.close()
    del database.tables[table.object_id]


def enable_table(
    session: Session,
    schema: str,
    name: str,
    *,
    role: str | None,
    instance_name: str | None = None,
    net_changes: bool | None = None,
    index_name: str | None = None,
    column_list: str | None = None,
    filegroup: str | None = None,
    partition_switch: bool = True,
) -> CaptureInstance:
    """sys.sp_cdc_enable_table; raises SqlError 22926, 22931, 22939, 22943, 22962 or 22990."""
    database = session.database
    cdc = cdc_of(database)
    owner(session, database)
    table = database.find(schema, name)
    if table is None or table.shipped:
        raise SqlError(
            22931,
            f"Source table '{schema}.{name}' does not exist in the current database. Ensure that the correct database"
            " context is set. Specify a valid schema and table name for the database.",
        )
    wanted = instance_name or f"{table.schema}_{table.name}"
    if len(wanted) > 100:
        raise SqlError(
            22924,
            f"Could not create a capture instance named '{wanted}'. A capture instance name cannot exceed 100"
            " characters.",
        )
    if any(database.same(one.name, wanted) for one in cdc.instances):
        raise SqlError(
            22926,
            f"Could not create a capture instance because the capture instance name '{wanted}' already exists in the"
            " current database. Specify an explicit unique name for the parameter @capture_instance.",
        )
    if sum(one.source_id == table.object_id for one in cdc.instances) >= 2:
        raise SqlError(
            22962,
            f"Two capture instances already exist for source table '{table.schema}.{table.name}'. A table can"
            " have at most"
            " two capture instances. If the current tracking options are not appropriate, disable change"
            " tracking for the"
            " obsolete instance by using sys.sp_cdc_disable_table and retry the operation.",
        )
    index = _index(database, table, index_name)
    if net_changes and index is None:
        raise SqlError(
            22939,
            "The parameter @supports_net_changes is set to 1, but the source table does not have a primary"
            " key defined and"
            " no alternate unique index has been specified.",
        )
    columns = _columns(database, table, column_list)
    key = [column for column, _ in index.columns] if index else []
    if net_changes is None:
        net_changes = index is not None
    if net_changes and not set(key) <= {column.id for column in columns}:
        raise SqlError(
            22943,
            "Columns used to uniquely identify a row for net change tracking must be included in the list of"
            " captured columns.",
        )
    if role is not None and not any(database.same(role, known) for known in database.roles):
        database.roles[role] = set()
    with session.instance.lock:
        kinds: list[tuple[str, SqlType]] = [
            ("__$start_lsn", LSN),
            ("__$end_lsn", LSN),
            ("__$seqval", LSN),
            ("__$operation", INT),
            ("__$update_mask", varbinary(128)),
        ]
        kinds += [(column.name, _capture_type(column.type)) for column in columns]
        change_table = create_table(session.instance, database, f"{wanted}_CT", [*kinds, ("__$command_id", INT)])
        for position in (0, 2, 3):
            change_table.columns[position].nullable = False
        order = [(1, False), (len(kinds) + 1, False), (3, False), (4, False)]
        change_table.indexes.append(Index(1, 0, f"{wanted}_CT_clustered_idx", order, False, True, True, False))
        captured = [
            CaptureColumn(column.id, column.name, column.type.name, number, column.computed is not None)
            for number, column in enumerate(columns, 1)
        ]
        # All transactions that are committed by now have smaller numbers: the instance begins behind them.
        found = CaptureInstance(
            wanted,
            change_table.object_id,
            table.object_id,
            database.log.lsn(),
            net_changes,
            role,
            index.name if index else None,
            [c for c in key if c in {x.id for x in columns}],
            captured,
            moment(session.instance),
            filegroup,
            partition_switch,
            table.schema,
            table.name,
        )
        database.log.flush()
        cdc.instances.append(found)
    return found


def _index(database: Database, table: Table, name: str | None) -> Index | None:
    if name is None:
        return table.primary_key
    for index in table.indexes:
        if database.same(index.name, name) and index.unique:
            return index
    raise SqlError(
        22942,
        f"Columns specified in the unique index '{name}' could not be found: the index does not exist or is"
        " not unique.",
    )


def _columns(database: Database, table: Table, text: str | None) -> list[ColumnInfo]:
    if text is None:
        return list(table.columns)
    parser = Parser(text)
    names = [parser.identifier()]
    while parser.take(","):
        names.append(parser.identifier())
    for name in names:
        if not any(database.same(name, column.name) for column in table.columns):
            raise SqlError(
                22990,
                "The value specified for the parameter @captured_column_list is not valid: there is no"
                f" column '{name}'.",
            )
    # In the order of the table, whatever the order of the list.
    return [column for column in table.columns if any(database.same(name, column.name) for name in names)]


def _capture_type(kind: SqlType) -> SqlType:
    """Return the type of a change table's column: binary(8) for rowversion, else the type of the source column."""
    return make("binary", [8]) if kind.name == "timestamp" else kind


def disable_table(session: Session, schema: str, name: str, instance_name: str) -> None:
    """sys.sp_cdc_disable_table; raises SqlError 22931 or 22960."""
    database = session.database
    cdc = cdc_of(database)
    owner(session, database)
    table = database.find(schema, name)
    if table is None:
        raise SqlError(22931, f"Source table '{schema}.{name}' does not exist in the current database.")
    everything = instance_name.casefold() == "all"
    found = [
        one
        for one in cdc.instances
        if one.source_id == table.object_id and (everything or database.same(one.name, instance_name))
    ]
    if not found and not everything:
        raise SqlError(
            22960,
            f"Change data capture instance '{instance_name}' has not been enabled for the source table"
            f" '{schema}.{name}'. Use"
            " sys.sp_cdc_help_change_data_capture to verify the capture instance name and retry the operation.",
        )
    for one in found:
        drop_instance(session, database, one)


def drop_instance(session: Session, database: Database, instance: CaptureInstance) -> None:
    """Drop a capture instance with its change table."""
    with session.instance.lock:
        cdc = cdc_of(database)
        cdc.instances.remove(instance)
        drop_table(session.instance, database, database.tables[instance.table_id])


def record_ddl(
    session: Session, database: Database, table: Table, text: str, altered: bool, names: set[str]
) -> list[tuple[Table, ColumnInfo, SqlType]]:
    """Write the rows of cdc.ddl_history for the table's capture instances, and drain the log.

    Return the columns of change tables that take a new type, with their tables and types.
    """
    retyped: list[tuple[Table, ColumnInfo, SqlType]] = []
    cdc = database.log.cdc
    for one in cdc.instances if cdc else ():
        if one.source_id != table.object_id:
            continue
        assert cdc is not None
        captured = {column.name: column for column in one.columns}
        required = altered and any(name in captured for name in names)
        lsn = database.log.lsn()
        cdc.ddl.append(DdlEntry(table.object_id, one.table_id, required, text, lsn, moment(session.instance)))
        if required:
            change_table = database.tables[one.table_id]
            for name in names & set(captured):
                source = next(c for c in table.columns if c.name == name)
                target = next(c for c in change_table.columns if c.name == name)
                drain(session.instance, database)
                retyped.append((change_table, target, _capture_type(source.type)))
                captured[name].type = source.type.name
    return retyped


class Agent(threading.Thread):
    """SQL Server's agent with the capture job of every database. It reads the log in the order of commits."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(name="agent", daemon=True)
        self.instance = instance
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(PAUSE):
            if self.instance.agent_running:
                for database in self.instance.captured_databases():
                    cdc = database.log.cdc
                    if cdc is not None and cdc.capturing:
                        drain(self.instance, database)


def drain(instance: Instance, database: Database) -> None:
    """Move all committed transactions from the log into the change tables."""
    with instance.lock:
        cdc = database.log.cdc
        pending = database.log.pending
        # the agent may have waited for the lock while the database was dropped
        if cdc is None or not pending or instance.database(database.name) is not database:
            return
        cursor = instance.duck.cursor()
        cursor.execute("BEGIN")
        tables: dict[int, list[str]] = {}
        mapping: list[str] = []
        for transaction in pending:
            if _capture(database, cdc, transaction, tables):
                mapping.append(_mapping_row(transaction))
        for table_id, rows in tables.items():
            _append(cursor, database, database.tables[table_id], rows)
        _append(cursor, database, database.tables[cdc.mapping_id], mapping)
        cursor.execute("COMMIT")
        cursor.close()
        pending.clear()


def _append(cursor: object, database: Database, table: Table, rows: list[str]) -> None:
    names = ", ".join(f"v{n}" for n in range(len(table.columns)))
    cells = ", ".join(f"CAST(v{n} AS {c.type.storage})" for n, c in enumerate(table.columns))
    for start in range(0, len(rows), 500):
        cursor.execute(  # type: ignore[attr-defined]
            f"INSERT INTO {database.storage}.{table.storage} SELECT {cells}"
            f" FROM (VALUES {', '.join(rows[start : start + 500])}) AS v({names})"
        )


def _mapping_row(transaction: Transaction) -> str:
    begin, end = (values.convert_temporal(t, DATETIME2, DATETIME) for t in (transaction.begin, transaction.end))
    number = b"\0\0" + transaction.id.to_bytes(8, "big")
    cells = (transaction.commit_lsn, begin, end, number, transaction.begin_lsn)
    return "(" + ", ".join(map(values.literal, cells)) + ")"


def _capture(database: Database, cdc: Cdc, transaction: Transaction, tables: dict[int, list[str]]) -> bool:
    """Add the transaction's rows to `tables`; return True if an instance captures any of them."""
    wanted = False
    for one in cdc.instances:
        if transaction.commit_lsn <= one.start_lsn:
            continue
        for change in transaction.changes:
            if change.object_id == one.source_id:
                row = _change_row(one, transaction, change)
                if row is not None:
                    tables.setdefault(one.table_id, []).append(row)
                    wanted = True
    return wanted


def _change_row(instance: CaptureInstance, transaction: Transaction, change: Change) -> str | None:
    at = {column: number for number, column in enumerate(change.columns)}
    mask = 0
    for column in instance.columns:
        if change.operation in (1, 2) or column.id in change.mask:
            mask |= 1 << (column.ordinal - 1)
    if not mask:
        # An update that touches none of the captured columns leaves no trace.
        return None
    width = (len(instance.columns) + 7) // 8
    cells: list[object] = [transaction.commit_lsn, None, change.lsn, change.operation, mask.to_bytes(width, "big")]
    # A column that was dropped from the source stays in the change table, without values from then on.
    cells += [change.row[at[column.id]] if column.id in at else None for column in instance.columns]
    cells.append(change.command)
    return "(" + ", ".join(map(values.literal, cells)) + ")"


def cleanup(session: Session, instance_name: str, low_water_mark: bytes | None) -> None:
    """sys.sp_cdc_cleanup_change_table: raise the instance's low endpoint and delete older rows."""
    database = session.database
    cdc = cdc_of(database)
    owner(session, database)
    found = [one for one in cdc.instances if database.same(one.name, instance_name)]
    if not found:
        raise SqlError(22960, f"Change data capture instance '{instance_name}' has not been enabled.")
    _raise_low(session.instance, database, found[0], low_water_mark)


def clean_all(instance: Instance, database: Database, before: int) -> None:
    """Run the cleanup job: delete rows of commits before `before`, a datetime in storage form."""
    with instance.lock:
        cdc = cdc_of(database)
        table = database.tables[cdc.mapping_id]
        start, _, end = (column.storage for column in table.columns[:3])
        cursor = instance.duck.cursor()
        found = cursor.execute(
            f"SELECT min({start}) FROM {database.storage}.{table.storage} WHERE {end} >= {before}"
        ).fetchone()
        if found is None or found[0] is None:
            found = cursor.execute(f"SELECT max({start}) FROM {database.storage}.{table.storage}").fetchone()
        cursor.close()
        if found is not None and found[0] is not None:
            for one in cdc.instances:
                _raise_low(instance, database, one, bytes(found[0]))


def _raise_low(instance: Instance, database: Database, one: CaptureInstance, mark: bytes | None) -> None:
    with instance.lock:
        cdc = cdc_of(database)
        table = database.tables[cdc.mapping_id]
        start = table.columns[0].storage
        cursor = instance.duck.cursor()
        known = (
            mark is None
            or cursor.execute(
                f"SELECT 1 FROM {database.storage}.{table.storage} WHERE {start} = {values.literal_as(mark, LSN)}"
            ).fetchone()
        )
        if not known:
            raise SqlError(22965, "The low water mark is not a start_lsn value of cdc.lsn_time_mapping.")
        if mark is not None and mark > one.start_lsn:
            one.start_lsn = mark
        change_table = database.tables[one.table_id]
        column = change_table.columns[0].storage
        limit = values.literal_as(one.start_lsn, LSN)
        cursor.execute(f"DELETE FROM {database.storage}.{change_table.storage} WHERE {column} < {limit}")
        lowest = min((i.start_lsn for i in cdc.instances), default=NOTHING)
        cursor.execute(
            f"DELETE FROM {database.storage}.{table.storage} WHERE {start} < {values.literal_as(lowest, LSN)}"
        )
        cursor.close()
