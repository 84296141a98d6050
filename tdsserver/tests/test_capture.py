"""The test server's model of change data capture, rule by rule; each test names its page of documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytds
import pytest

from tdsserver.capture import drain
from tdsserver.log import Cdc, Transaction
from tdsserver.model import Instance
from tdsserver.process import TestDatabase, TestServer

CT = "SELECT [__$start_lsn], [__$seqval], [__$operation], [__$update_mask], * FROM cdc.dbo_t_CT"
ORDER = " ORDER BY [__$start_lsn], [__$seqval], [__$operation]"
Make = Callable[..., TestDatabase]


@pytest.fixture
def database(sqlserver_database: TestDatabase) -> TestDatabase:
    """A database with a captured table t (id, a, b)."""
    sqlserver_database.execute("CREATE TABLE t (id int NOT NULL PRIMARY KEY, a int, b varchar(10))")
    sqlserver_database.enable("t")
    return sqlserver_database


def error(run: Callable[[], Any]) -> int:
    """Return the number of the error that `run` ends with."""
    with pytest.raises(pytds.Error) as caught:
        run()
    return int(caught.value.number)


def changes(database: TestDatabase, columns: str = "id, a, b") -> list[tuple[Any, ...]]:
    database.capture()
    return database.query(f"SELECT [__$operation], {columns} FROM cdc.dbo_t_CT{ORDER}")


def bounds(database: TestDatabase) -> tuple[bytes, bytes]:
    low, high = database.query("SELECT sys.fn_cdc_get_min_lsn('dbo_t'), sys.fn_cdc_get_max_lsn()")[0]
    return bytes(low), bytes(high)


def changes_by(database: TestDatabase, low: bytes, high: bytes, option: str) -> list[tuple[Any, ...]]:
    return database.query(
        f"SELECT [__$operation], id FROM cdc.fn_cdc_get_all_changes_dbo_t(0x{low.hex()}, 0x{high.hex()}, N'{option}')"
    )


def test_a_database_is_enabled_once(sqlserver_database: TestDatabase) -> None:
    # "sys.sp_cdc_enable_db": creates the schema cdc and its tables; is_cdc_enabled of sys.databases is set to 1.
    query = f"SELECT is_cdc_enabled FROM sys.databases WHERE name = '{sqlserver_database.name}'"
    assert sqlserver_database.query(query) == [(False,)]
    sqlserver_database.execute("EXEC sys.sp_cdc_enable_db")
    assert sqlserver_database.query(query) == [(True,)]
    assert sqlserver_database.query("SELECT count(*) FROM cdc.change_tables") == [(0,)]
    assert sqlserver_database.query("SELECT name FROM sys.schemas WHERE name = 'cdc'") == [("cdc",)]


def test_a_system_database_is_refused(sqlserver: TestServer) -> None:
    # "sys.sp_cdc_enable_db": change data capture cannot be enabled on system databases.
    assert error(lambda: sqlserver.execute("EXEC sys.sp_cdc_enable_db", database="master")) == 22913


def test_a_table_needs_an_enabled_database(sqlserver_database: TestDatabase) -> None:
    # "sys.sp_cdc_enable_table": the database must have change data capture enabled.
    sqlserver_database.execute("CREATE TABLE t (id int)")
    call = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL"
    assert error(lambda: sqlserver_database.execute(call)) == 22901


def test_an_unknown_table_is_refused(database: TestDatabase) -> None:
    # "sys.sp_cdc_enable_table": source_name must exist in the current database.
    assert error(lambda: database.enable("unknown")) == 22931


def test_a_table_has_two_instances_at_most(database: TestDatabase) -> None:
    # "About change data capture": a maximum of two capture instances per source table.
    call = (
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL,"
        " @capture_instance = N'{}'"
    )
    database.execute(call.format("second"))
    assert error(lambda: database.execute(call.format("third"))) == 22962
    assert error(lambda: database.execute(call.format("dbo_t"))) == 22926


def test_net_changes_need_a_key(sqlserver_database: TestDatabase) -> None:
    # "sys.sp_cdc_enable_table", @supports_net_changes: 1 needs a primary key or a unique index.
    sqlserver_database.execute("CREATE TABLE t (id int)")
    assert error(lambda: sqlserver_database.enable("t", net_changes=True)) == 22939


def test_captured_columns_keep_the_order_of_the_table(sqlserver_database: TestDatabase) -> None:
    # "cdc.captured_columns": one row for each column; column_ordinal is 1-based.
    sqlserver_database.execute("CREATE TABLE t (id int NOT NULL PRIMARY KEY, a int, b int)")
    sqlserver_database.execute(
        "EXEC sys.sp_cdc_enable_db",
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL,"
        " @captured_column_list = N'b, id'",
    )
    query = "SELECT column_name, column_id, column_ordinal FROM cdc.captured_columns ORDER BY column_ordinal"
    assert sqlserver_database.query(query) == [("id", 1, 1), ("b", 3, 2)]
    assert sqlserver_database.query("SELECT column_name, index_ordinal FROM cdc.index_columns") == [("id", 1)]


def test_each_change_has_its_operation(database: TestDatabase) -> None:
    # "cdc.<capture_instance>_CT", __$operation: 1 delete, 2 insert, 3 update (old values), 4 update (new values).
    database.execute("INSERT INTO t VALUES (1, 1, 'x')", "UPDATE t SET a = 2", "DELETE FROM t")
    assert changes(database) == [(2, 1, 1, "x"), (3, 1, 1, "x"), (4, 1, 2, "x"), (1, 1, 2, "x")]


def test_all_changes_of_a_transaction_share_the_commit(database: TestDatabase) -> None:
    # "cdc.<capture_instance>_CT", __$start_lsn: the commit LSN; every change of a transaction has the same.
    database.execute("BEGIN TRAN INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y') DELETE FROM t WHERE id = 1 COMMIT")
    database.capture()
    rows = database.query(CT + ORDER)
    assert len({bytes(row[0]) for row in rows}) == 1
    sequence = [bytes(row[1]) for row in rows]
    assert sequence == sorted(set(sequence))
    assert all(bytes(row[0]) > lsn for row in rows for lsn in sequence)


def test_an_update_s_two_rows_share_their_sequence(database: TestDatabase) -> None:
    # "cdc.<capture_instance>_CT": the before and the after row of an update have the same __$seqval.
    database.execute("INSERT INTO t VALUES (1, 1, 'x')", "UPDATE t SET a = 2")
    database.capture()
    before, after = database.query(CT + " WHERE [__$operation] IN (3, 4)" + ORDER)
    assert before[:2] == after[:2]


def test_a_change_of_the_key_is_a_delete_and_an_insert(database: TestDatabase) -> None:
    # "cdc.fn_cdc_get_all_changes_<capture_instance>": an update of a unique key is shown as delete and insert.
    database.execute("INSERT INTO t VALUES (1, 1, 'x')", "UPDATE t SET id = 2")
    assert changes(database)[1:] == [(1, 1, 1, "x"), (2, 2, 1, "x")]
    delete, insert = database.query(CT + " WHERE id = 2 OR [__$operation] = 1" + ORDER)
    assert delete[:2] == insert[:2]


def test_the_mask_tells_what_changed(database: TestDatabase) -> None:
    # "cdc.<capture_instance>_CT", __$update_mask: a bit for each captured column; all set for insert and delete.
    database.execute("INSERT INTO t VALUES (1, 1, 'x')", "UPDATE t SET b = 'y'", "DELETE FROM t")
    database.capture()
    assert [bytes(row[3]) for row in database.query(CT + ORDER)] == [b"\x07", b"\x04", b"\x04", b"\x07"]


def test_an_update_that_changes_nothing_leaves_nothing(database: TestDatabase) -> None:
    # "Track data changes": capture reads the log, which has no record of a row that stays as it is.
    database.execute("INSERT INTO t VALUES (1, 1, 'x')", "UPDATE t SET a = a")
    assert changes(database) == [(2, 1, 1, "x")]


def test_what_is_rolled_back_is_not_captured(database: TestDatabase) -> None:
    # "About change data capture": only committed changes are captured.
    database.execute("BEGIN TRAN INSERT INTO t VALUES (1, 1, 'x') ROLLBACK", "INSERT INTO t VALUES (2, 2, 'y')")
    assert changes(database) == [(2, 2, 2, "y")]


def test_transactions_come_in_the_order_of_their_commits(database: TestDatabase) -> None:
    # "cdc.lsn_time_mapping": one row for each transaction with changes, by commit; a change of a transaction that
    # commits later may have the smaller sequence number.
    with database.connect(autocommit=False) as first, first.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1, 1, 'first')")
        database.execute("INSERT INTO t VALUES (2, 2, 'second')")
        first.commit()
    assert changes(database) == [(2, 2, 2, "second"), (2, 1, 1, "first")]
    (second, first_row) = database.query(CT + ORDER)
    assert bytes(second[1]) > bytes(first_row[1])
    mapped = database.query("SELECT start_lsn, tran_begin_lsn FROM cdc.lsn_time_mapping ORDER BY start_lsn")
    assert [bytes(row[0]) for row in mapped] == [bytes(second[0]), bytes(first_row[0])]
    assert bytes(mapped[1][1]) < bytes(mapped[0][0])


def test_nothing_is_captured_while_the_job_is_stopped(database: TestDatabase) -> None:
    # "Administer and monitor change data capture": the log is not read while the capture job does not run.
    database.stop_agent()
    database.execute("INSERT INTO t VALUES (1, 1, 'x')")
    assert database.query("SELECT sys.fn_cdc_get_max_lsn()") == [(None,)]
    database.start_agent()
    assert changes(database) == [(2, 1, 1, "x")]


def test_the_agent_goes_on_when_a_database_is_dropped_that_it_is_about_to_read() -> None:
    instance = Instance()
    gone = instance.create_database("gone", "SQL_Latin1_General_CP1_CI_AS")
    gone.log.cdc = Cdc()
    waiting = Transaction(bytes(10), bytes(10), 0, 0, 1, [])
    gone.log.pending.append(waiting)
    instance.drop_database("gone")
    drain(instance, gone)
    assert gone.log.pending == [waiting]


def test_the_agent_s_service_tells_its_state(sqlserver: TestServer, database: TestDatabase) -> None:
    # "sys.dm_server_services": status 4 is running, 1 is stopped.
    query = "SELECT status FROM sys.dm_server_services WHERE servicename LIKE N'SQL Server Agent (%'"
    assert sqlserver.query(query) == [(4,)]
    sqlserver.execute("EXEC master.dbo.xp_servicecontrol N'STOP', N'SQLSERVERAGENT'")
    try:
        assert sqlserver.query(query) == [(1,)]
    finally:
        sqlserver.execute("EXEC master.dbo.xp_servicecontrol N'START', N'SQLSERVERAGENT'")


def test_the_newest_lsn_is_null_before_the_first_change(database: TestDatabase) -> None:
    # "sys.fn_cdc_get_max_lsn": the maximum start_lsn of cdc.lsn_time_mapping.
    assert database.query("SELECT sys.fn_cdc_get_max_lsn()") == [(None,)]


def test_the_oldest_lsn_is_that_of_the_instance(database: TestDatabase) -> None:
    # "sys.fn_cdc_get_min_lsn": start_lsn of cdc.change_tables; 0x00… for an instance that does not exist.
    start = database.query("SELECT start_lsn FROM cdc.change_tables")
    assert database.query("SELECT sys.fn_cdc_get_min_lsn('dbo_t')") == start
    assert database.query("SELECT sys.fn_cdc_get_min_lsn('unknown')") == [(bytes(10),)]


def test_lsns_are_stepped(database: TestDatabase) -> None:
    # "sys.fn_cdc_increment_lsn" and "sys.fn_cdc_decrement_lsn": the next and the previous LSN.
    query = "SELECT sys.fn_cdc_increment_lsn(0x00000025000001B0FFFF), sys.fn_cdc_decrement_lsn(0x00000025000001B00000)"
    assert [bytes(lsn).hex() for lsn in database.query(query)[0]] == ["00000025000001b10000", "00000025000001afffff"]


def test_an_lsn_has_its_commit_s_time(database: TestDatabase) -> None:
    # "sys.fn_cdc_map_lsn_to_time": tran_end_time of cdc.lsn_time_mapping; "sys.fn_cdc_map_time_to_lsn" is its reverse.
    database.execute("INSERT INTO t VALUES (1, 1, 'x')")
    newest = database.capture()
    time, end = database.query("SELECT sys.fn_cdc_map_lsn_to_time(start_lsn), tran_end_time FROM cdc.lsn_time_mapping")[
        0
    ]
    assert time == end
    query = "SELECT sys.fn_cdc_map_time_to_lsn('largest less than or equal', getdate())"
    assert [bytes(row[0]) for row in database.query(query)] == [newest]
    assert database.query("SELECT sys.fn_cdc_map_time_to_lsn('smallest greater than', dateadd(day, 1, getdate()))") == [
        (None,)
    ]


def test_all_changes_come_with_or_without_old_values(database: TestDatabase) -> None:
    # "cdc.fn_cdc_get_all_changes_<capture_instance>", row_filter_option: all, or all update old.
    database.execute("INSERT INTO t VALUES (1, 1, 'x')", "UPDATE t SET a = 2")
    database.capture()
    low, high = bounds(database)
    assert changes_by(database, low, high, "all") == [(2, 1), (4, 1)]
    assert changes_by(database, low, high, "all update old") == [(2, 1), (3, 1), (4, 1)]
    assert error(lambda: changes_by(database, low, high, "some")) == 313


def test_a_range_outside_of_the_instance_is_an_error(database: TestDatabase) -> None:
    # "cdc.fn_cdc_get_all_changes_<capture_instance>": error 313 when from_lsn or to_lsn are not within the instance's.
    database.execute("INSERT INTO t VALUES (1, 1, 'x')")
    database.capture()
    low, high = bounds(database)
    beyond = (int.from_bytes(high, "big") + 1).to_bytes(10, "big")
    below = (int.from_bytes(low, "big") - 1).to_bytes(10, "big")
    assert error(lambda: changes_by(database, below, high, "all")) == 313
    assert error(lambda: changes_by(database, low, beyond, "all")) == 313
    assert error(lambda: changes_by(database, high, low, "all")) == 313
    assert error(lambda: database.query("SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_t(NULL, NULL, N'all')")) == 313
    assert error(lambda: database.query("SELECT * FROM cdc.fn_cdc_get_all_changes_unknown(0x00, 0x00, N'all')")) == 208


def test_text_does_not_become_an_lsn(database: TestDatabase) -> None:
    # "Data type conversion": nvarchar to binary only by CONVERT.
    assert error(lambda: database.query("SELECT sys.fn_cdc_map_lsn_to_time(N'0x00')")) == 257


def test_cleanup_raises_the_low_end(database: TestDatabase) -> None:
    # "sys.sp_cdc_cleanup_change_table": low_water_mark becomes the low endpoint; older rows are removed.
    database.execute("INSERT INTO t VALUES (1, 1, 'x')", "INSERT INTO t VALUES (2, 2, 'y')")
    newest = database.capture()
    low, _ = bounds(database)
    database.clean_up("dbo_t", newest)
    assert bounds(database) == (newest, newest)
    assert changes(database) == [(2, 2, 2, "y")]
    assert error(lambda: changes_by(database, low, newest, "all")) == 313
    assert len(database.query("SELECT * FROM cdc.lsn_time_mapping")) == 1


def test_the_cleanup_job_keeps_to_its_retention(database: TestDatabase) -> None:
    # "sys.sp_cdc_change_job", @retention: minutes that change rows are kept.
    database.execute("INSERT INTO t VALUES (1, 1, 'x')")
    database.capture()
    database.execute("EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = 60")
    database.execute("EXEC sys.sp_cdc_start_job @job_type = N'cleanup'")
    assert len(changes(database)) == 1
    query = "SELECT job_type, retention FROM msdb.dbo.cdc_jobs WHERE database_id = DB_ID() ORDER BY job_type"
    assert database.query(query) == [("capture", 0), ("cleanup", 60)]


def test_a_new_column_waits_for_a_new_instance(database: TestDatabase) -> None:
    # "About change data capture", "Handling changes to source table": new columns are ignored by existing instances.
    database.execute("ALTER TABLE t ADD c int", "INSERT INTO t VALUES (1, 1, 'x', 5)")
    assert changes(database) == [(2, 1, 1, "x")]
    database.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL,"
        " @capture_instance = N'second'",
        "INSERT INTO t VALUES (2, 2, 'y', 6)",
    )
    assert changes(database) == [(2, 1, 1, "x"), (2, 2, 2, "y")]
    assert database.query("SELECT [__$operation], id, c FROM cdc.second_CT") == [(2, 2, 6)]
    first, second = database.query("SELECT start_lsn FROM cdc.change_tables ORDER BY start_lsn")
    assert bytes(first[0]) < bytes(second[0])


def test_a_dropped_column_stays_without_values(database: TestDatabase) -> None:
    # The same page: "null values are supplied for dropped columns".
    database.execute("INSERT INTO t VALUES (1, 1, 'x')", "ALTER TABLE t DROP COLUMN b", "INSERT INTO t VALUES (2, 2)")
    assert changes(database) == [(2, 1, 1, "x"), (2, 2, 2, None)]


def test_a_new_type_reaches_the_change_table(database: TestDatabase) -> None:
    # The same page: a change of a captured column's type is made in the change table, too; "cdc.ddl_history".
    database.execute("ALTER TABLE t ALTER COLUMN b varchar(100)", f"INSERT INTO t VALUES (1, 1, '{'x' * 50}')")
    assert changes(database) == [(2, 1, 1, "x" * 50)]
    rows = database.query("SELECT required_column_update, ddl_command FROM cdc.ddl_history")
    assert rows == [(True, "ALTER TABLE t ALTER COLUMN b varchar(100)")]


def test_a_computed_column_has_no_value(sqlserver_database: TestDatabase) -> None:
    # "Known issues with change data capture": computed columns in a capture instance have the value NULL.
    sqlserver_database.execute("CREATE TABLE t (id int NOT NULL PRIMARY KEY, a int, b AS (a * 2))")
    sqlserver_database.enable("t")
    sqlserver_database.execute("INSERT INTO t (id, a) VALUES (1, 4)")
    assert changes(sqlserver_database) == [(2, 1, 4, None)]
    assert sqlserver_database.query("SELECT b FROM t") == [(8,)]


def test_a_captured_table_is_not_truncated(database: TestDatabase) -> None:
    # "TRUNCATE TABLE", restrictions: not on tables that are enabled for change data capture (error 4711).
    assert error(lambda: database.execute("TRUNCATE TABLE t")) == 4711


def test_disabling_removes_the_instance(database: TestDatabase) -> None:
    # "sys.sp_cdc_disable_table": drops the change table and the functions; "sys.sp_cdc_disable_db": everything.
    database.execute(
        "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N't', @capture_instance = N'dbo_t'"
    )
    assert database.query("SELECT * FROM cdc.change_tables") == []
    assert error(lambda: database.query("SELECT * FROM cdc.dbo_t_CT")) == 208
    database.execute("EXEC sys.sp_cdc_disable_db")
    assert error(lambda: database.query("SELECT * FROM cdc.change_tables")) == 208


def test_the_gating_role_keeps_strangers_out(sqlserver: TestServer, sqlserver_database: TestDatabase) -> None:
    # "sys.sp_cdc_enable_table", @role_name: the role that gates access to change data, besides SELECT on the source.
    database = sqlserver_database
    login = f"reader_{database.name}"
    database.execute(
        "CREATE TABLE t (id int NOT NULL PRIMARY KEY)",
        "EXEC sys.sp_cdc_enable_db",
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = N'gate'",
        f"CREATE LOGIN {login} WITH PASSWORD = 'secret'",
        f"CREATE USER {login} FOR LOGIN {login}",
        f"GRANT SELECT ON dbo.t TO {login}",
        "INSERT INTO t VALUES (1)",
    )
    low, high = database.capture(), database.capture()

    def read() -> list[tuple[Any, ...]]:
        connection = sqlserver.connect(database.name, user=login, password="secret")
        with connection, connection.cursor() as cursor:
            cursor.execute(
                f"SELECT id FROM cdc.fn_cdc_get_all_changes_dbo_t(0x{low.hex()}, 0x{high.hex()}, N'all') AS c,"
                " (SELECT sys.fn_cdc_get_min_lsn('dbo_t') AS m) AS l"
            )
            return [tuple(row) for row in cursor.fetchall()]

    assert error(read) == 229
    database.execute(f"ALTER ROLE gate ADD MEMBER {login}")
    assert read() == [(1,)]


def test_names_differ_by_case_where_the_collation_says_so(make_sqlserver_database: Make) -> None:
    # "Database identifiers": names are compared by the database's collation.
    database = make_sqlserver_database("Latin1_General_CS_AS")
    database.execute("CREATE TABLE t (id int NOT NULL PRIMARY KEY)", "CREATE TABLE T (ID int NOT NULL PRIMARY KEY)")
    database.enable("t", "T")
    database.execute("INSERT INTO T VALUES (7)")
    database.capture()
    assert database.query("SELECT ID FROM cdc.dbo_T_CT") == [(7,)]
    assert database.query("SELECT id FROM cdc.dbo_t_CT") == []
    assert error(lambda: database.query("SELECT Id FROM t")) == 207


def test_databases_have_logs_of_their_own(make_sqlserver_database: Make) -> None:
    # "About change data capture": capture belongs to a database.
    one, other = make_sqlserver_database(), make_sqlserver_database()
    for database in (one, other):
        database.execute("CREATE TABLE t (id int NOT NULL PRIMARY KEY, a int, b varchar(10))")
    one.enable("t")
    other.execute("INSERT INTO t VALUES (1, 1, 'x')")
    one.execute("INSERT INTO t VALUES (2, 2, 'y')")
    assert changes(one) == [(2, 2, 2, "y")]
    assert other.query(f"SELECT id FROM [{one.name}].cdc.dbo_t_CT") == [(2,)]
    assert error(lambda: other.query("SELECT * FROM cdc.dbo_t_CT")) == 208


def test_an_idle_log_gets_a_row_without_transaction(database: TestDatabase) -> None:
    # "cdc.lsn_time_mapping", tran_id: 0x00 marks the rows that the capture job writes while nothing happens.
    database.execute("EXEC test_idle")
    assert [bytes(row[0]) for row in database.query("SELECT tran_id FROM cdc.lsn_time_mapping")] == [b"\0"]
    assert database.query("SELECT sys.fn_cdc_get_max_lsn()") != [(None,)]
