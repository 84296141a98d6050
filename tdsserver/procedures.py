"""Stored procedures of change data capture, of the catalog (for JDBC and ODBC) and of the server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

from tdsserver import capture, values
from tdsserver.arguments import Arguments
from tdsserver.dml import column_named, instances_of
from tdsserver.errors import SqlError
from tdsserver.jdbc import columns_rowset, keys_rowset, statistics_rowset, tables_rowset
from tdsserver.log import CaptureInstance
from tdsserver.model import Database
from tdsserver.resolve import Resolver, parts_of
from tdsserver.session import Count, Info, Result, Rows, Session
from tdsserver.sqltype import BIT, DATETIME, INT, LSN, SYSNAME, SqlType, nvarchar

Procedure = Callable[[Session, Arguments], Iterator[Result]]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _flag(value: object) -> bool | None:
    return None if value is None else bool(int(str(value)))


def _enable_db(session: Session, args: Arguments) -> Iterator[Result]:
    capture.enable_database(session)
    yield Count(None)


def _disable_db(session: Session, args: Arguments) -> Iterator[Result]:
    capture.disable_database(session)
    yield Count(None)


def _enable_table(session: Session, args: Arguments) -> Iterator[Result]:
    names: tuple[str, ...] = ("source_schema", "source_name", "role_name", "capture_instance", "supports_net_changes")
    names += ("index_name", "captured_column_list", "filegroup_name", "allow_partition_switch")
    found = args.bind(*names, required=3, procedure="sp_cdc_enable_table")
    first = session.database.log.cdc is not None and not session.database.log.cdc.instances
    capture.enable_table(
        session,
        str(found["source_schema"]),
        str(found["source_name"]),
        role=_text(found["role_name"]),
        instance_name=_text(found.get("capture_instance")),
        net_changes=_flag(found.get("supports_net_changes")),
        index_name=_text(found.get("index_name")),
        column_list=_text(found.get("captured_column_list")),
        filegroup=_text(found.get("filegroup_name")),
        partition_switch=_flag(found.get("allow_partition_switch")) is not False,
    )
    if first:
        for job in ("capture", "cleanup"):
            yield Info(0, f"Job 'cdc.{session.database.name}_{job}' started successfully.")
    yield Count(None)


def _disable_table(session: Session, args: Arguments) -> Iterator[Result]:
    found = args.bind("source_schema", "source_name", "capture_instance", required=3, procedure="sp_cdc_disable_table")
    capture.disable_table(session, *(str(found[n]) for n in ("source_schema", "source_name", "capture_instance")))
    yield Count(None)


def _job(running: bool) -> Procedure:
    def found(session: Session, args: Arguments) -> Iterator[Result]:
        cdc = capture.cdc_of(session.database)
        capture.owner(session, session.database)
        kind = _text(args.bind("job_type").get("job_type")) or "capture"
        if kind == "capture":
            cdc.capturing = running
        elif kind == "cleanup":
            cdc.cleaning = running
            if running:
                limit = capture.moment(session.instance) - cdc.retention * 600_000_000
                capture.clean_all(session.instance, session.database, limit)
        else:
            raise SqlError(22996, f"The specified @job_type, {kind}, is not supported.")
        yield Count(None)

    return found


def _change_job(session: Session, args: Arguments) -> Iterator[Result]:
    cdc = capture.cdc_of(session.database)
    names = ("job_type", "maxtrans", "maxscans", "continuous", "pollinginterval", "retention", "threshold")
    found = args.bind(*names, procedure="sp_cdc_change_job")
    if found.get("retention") is not None:
        cdc.retention = int(str(found["retention"]))
    if found.get("pollinginterval") is not None:
        cdc.pollinginterval = int(str(found["pollinginterval"]))
    yield Count(None)


def _help_jobs(session: Session, args: Arguments) -> Iterator[Result]:
    cdc = capture.cdc_of(session.database)
    name = session.database.name
    columns = [("job_id", SqlType("uniqueidentifier")), ("job_type", nvarchar(20)), ("job_name", SYSNAME)]
    columns += [("maxtrans", INT), ("maxscans", INT), ("continuous", BIT), ("pollinginterval", SqlType("bigint"))]
    columns += [("retention", SqlType("bigint")), ("threshold", SqlType("bigint"))]
    rows: list[tuple[object, ...]] = []
    if cdc.instances:
        rows.append((bytes(16), "capture", f"cdc.{name}_capture", 500, 10, 1, cdc.pollinginterval, 0, 0))
        rows.append((bytes(16), "cleanup", f"cdc.{name}_cleanup", 0, 0, 0, 0, cdc.retention, 5000))
    yield Rows(columns, iter(rows))


def _help_cdc(session: Session, args: Arguments) -> Iterator[Result]:
    found = args.bind("source_schema", "source_name")
    database = session.database
    cdc = capture.cdc_of(database)
    columns: list[tuple[str, SqlType]] = [
        ("source_schema", SYSNAME),
        ("source_table", SYSNAME),
        ("capture_instance", SYSNAME),
        ("object_id", INT),
        ("source_object_id", INT),
        ("start_lsn", LSN),
        ("end_lsn", LSN),
        ("supports_net_changes", BIT),
        ("has_drop_pending", BIT),
        ("role_name", SYSNAME),
        ("index_name", SYSNAME),
        ("filegroup_name", SYSNAME),
        ("create_date", DATETIME),
        ("index_column_list", nvarchar(-1)),
        ("captured_column_list", nvarchar(-1)),
    ]
    rows = [
        _described(database, one)
        for one in cdc.instances
        if session.reads_changes(database, one)
        and (found.get("source_name") is None or database.same(one.table, str(found["source_name"])))
        and (found.get("source_schema") is None or database.same(one.schema, str(found["source_schema"])))
    ]
    yield Rows(columns, iter(rows))


def _described(database: Database, one: CaptureInstance) -> tuple[object, ...]:
    names = {column.id: column.name for column in one.columns}
    return (
        *(one.schema, one.table, one.name, one.table_id, one.source_id, one.start_lsn, None),
        *(int(one.net_changes), None, one.role, one.index, one.filegroup, one.created),
        ", ".join(f"[{names[c]}]" for c in one.index_columns) or None,
        ", ".join(f"[{column.name}]" for column in one.columns),
    )


def _captured_columns(session: Session, args: Arguments) -> Iterator[Result]:
    found = args.bind("capture_instance", required=1, procedure="sp_cdc_get_captured_columns")
    columns = [("source_schema", SYSNAME), ("source_table", SYSNAME), ("capture_instance", SYSNAME)]
    columns += [("column_name", SYSNAME), ("column_id", INT), ("ordinal_position", INT), ("data_type", SYSNAME)]
    rows = [
        (one.schema, one.table, one.name, column.name, column.id, column.ordinal, column.type)
        for one in capture.cdc_of(session.database).instances
        if session.database.same(one.name, str(found["capture_instance"]))
        for column in one.columns
    ]
    yield Rows(columns, iter(rows))


def _ddl_history(session: Session, args: Arguments) -> Iterator[Result]:
    found = args.bind("capture_instance", required=1, procedure="sp_cdc_get_ddl_history")
    cdc = capture.cdc_of(session.database)
    columns = [("source_schema", SYSNAME), ("source_table", SYSNAME), ("capture_instance", SYSNAME)]
    columns += [
        ("required_column_update", BIT),
        ("ddl_command", nvarchar(-1)),
        ("ddl_lsn", LSN),
        ("ddl_time", DATETIME),
    ]
    rows = [
        (one.schema, one.table, one.name, int(entry.required_update), entry.command, entry.lsn, entry.time)
        for one in cdc.instances
        if session.database.same(one.name, str(found["capture_instance"]))
        for entry in cdc.ddl
        if entry.table_id == one.table_id
    ]
    yield Rows(columns, iter(rows))


def _cleanup(session: Session, args: Arguments) -> Iterator[Result]:
    names = ("capture_instance", "low_water_mark", "threshold", "fcleanupfailed")
    found = args.bind(*names, required=2, procedure="sp_cdc_cleanup_change_table")
    mark = found["low_water_mark"]
    capture.cleanup(session, str(found["capture_instance"]), bytes(mark) if isinstance(mark, bytes) else None)
    yield Count(None)


def _scan(session: Session, args: Arguments) -> Iterator[Result]:
    """sp_cdc_scan: one pass of the capture job; refused while the job itself runs (22903)."""
    cdc = capture.cdc_of(session.database)
    if cdc.capturing and session.instance.agent_running:
        raise SqlError(
            22903,
            "Another connection is already running 'sp_replcmds' for Change Data Capture in the current database.",
        )
    capture.drain(session.instance, session.database)
    yield Count(None)


def _service(session: Session, args: Arguments) -> Iterator[Result]:
    found = args.bind("action", "service", required=2, procedure="xp_servicecontrol")
    action = str(found["action"]).casefold()
    instance = session.instance
    if action == "querystate":
        state = "Running." if instance.agent_running else "Stopped."
        yield Rows([("Current Service State", nvarchar(60))], iter([(state,)]))
        return
    if not session.is_admin:
        raise SqlError(229, "The EXECUTE permission was denied on the object 'xp_servicecontrol'.", 14, 5)
    instance.agent_running = action == "start"
    yield Count(None)


def _no_rows(session: Session, args: Arguments) -> Iterator[Result]:
    yield Count(None)


def _rename(session: Session, args: Arguments) -> Iterator[Result]:
    found = args.bind("objname", "newname", "objtype", required=2, procedure="sp_rename")
    name, new = parts_of(str(found["objname"])), str(found["newname"])
    resolver = Resolver(session)
    if str(found.get("objtype") or "").casefold() == "column":
        database, table = resolver.find(name[:-1])
        if instances_of(database, table):
            raise SqlError(4928, f"Cannot alter column '{name[-1]}' because it is 'REPLICATED'.")
        column_named(database, table, name[-1]).name = new
    else:
        _, table = resolver.find(name)
        table.name = new
    yield Info(15477, "Caution: Changing any part of an object name could break scripts and stored procedures.")
    yield Count(None)


def _server_info(session: Session, args: Arguments) -> Iterator[Result]:
    entries = {1: ("DBMS_NAME", "Microsoft SQL Server"), 2: ("DBMS_VER", "Microsoft SQL Server 2019 - 15.0.4430.1")}
    entries |= {16: ("IDENTIFIER_CASE", "MIXED"), 18: ("COLLATION_SEQ", "charset=iso_1 sort_order=nocase_iso")}
    wanted = args.bind("attribute_id").get("attribute_id")
    columns = [("attribute_id", INT), ("attribute_name", nvarchar(60)), ("attribute_value", nvarchar(255))]
    rows = [(n, *entry) for n, entry in entries.items() if wanted is None or int(str(wanted)) == n]
    yield Rows(columns, iter(rows))


def _clock(session: Session, args: Arguments) -> Iterator[Result]:
    """test_clock @seconds: not of SQL Server; sets the server's clock forward or back."""
    session.instance.clock_skew = dt.timedelta(seconds=float(str(args.bind("seconds")["seconds"])))
    yield Count(None)


def _heartbeat(session: Session, args: Arguments) -> Iterator[Result]:
    """test_idle: not of SQL Server; writes the row of lsn_time_mapping that an idle capture job writes."""
    database = session.database
    cdc = capture.cdc_of(database)
    with session.instance.lock:
        capture.drain(session.instance, database)
        lsn = database.log.lsn()
        database.log.flush()
        now = capture.moment(session.instance)
        table = database.tables[cdc.mapping_id]
        row = ", ".join(
            values.literal_as(v, c.type) for v, c in zip((lsn, now, now, b"\0", bytes(10)), table.columns, strict=True)
        )
        cursor = session.instance.duck.cursor()
        cursor.execute(f"INSERT INTO {database.storage}.{table.storage} VALUES ({row})")
        cursor.close()
    yield Count(None)


PROCEDURES: dict[str, Procedure] = {
    "sp_cdc_enable_db": _enable_db,
    "sp_cdc_disable_db": _disable_db,
    "sp_cdc_enable_table": _enable_table,
    "sp_cdc_disable_table": _disable_table,
    "sp_cdc_start_job": _job(True),
    "sp_cdc_stop_job": _job(False),
    "sp_cdc_add_job": _no_rows,
    "sp_cdc_change_job": _change_job,
    "sp_cdc_help_jobs": _help_jobs,
    "sp_cdc_help_change_data_capture": _help_cdc,
    "sp_cdc_get_captured_columns": _captured_columns,
    "sp_cdc_get_ddl_history": _ddl_history,
    "sp_cdc_cleanup_change_table": _cleanup,
    "sp_cdc_scan": _scan,
    "xp_servicecontrol": _service,
    "sp_rename": _rename,
    "sp_server_info": _server_info,
    "sp_columns": columns_rowset,
    "sp_columns_100": columns_rowset,
    "sp_pkeys": keys_rowset,
    "sp_statistics": statistics_rowset,
    "sp_statistics_100": statistics_rowset,
    "sp_tables": tables_rowset,
    "test_clock": _clock,
    "test_idle": _heartbeat,
}
