"""Rows for copies have what changes carry of a table, and warnings name what they do not."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import PositionLost, PrerequisiteError
from tdsserver.process import TestDatabase

COMPUTED = "create table dbo.t (id int not null primary key, a int, b as (a * 2))"


@pytest.mark.parametrize("copy", [False, True])
def test_computed_columns_are_no_part_of_a_copy(capture: Any, sqlserver_database: TestDatabase, copy: bool) -> None:
    """As in Debezium, events have the value in the snapshot and null in changes."""
    sqlserver_database.execute(COMPUTED)
    sqlserver_database.enable("dbo.t")
    sqlserver_database.execute("insert into dbo.t values (1, 1)")
    made = capture(snapshot_mode="initial", row_copy=str(copy).lower())
    (read,) = made.take(1)
    sqlserver_database.execute("update dbo.t set a = 5 where id = 1")
    (change,) = made.take(1)
    computed = [{}, {}] if copy else [{"b": 2}, {"b": None}]
    assert read.payload["after"] == {"id": 1, "a": 1} | computed[0]
    assert change.payload["after"] == {"id": 1, "a": 5} | computed[1]


def test_a_key_with_a_computed_column_ends_a_copy(capture: Any, sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute(COMPUTED)
    sqlserver_database.enable("dbo.t")
    sqlserver_database.execute("insert into dbo.t values (1, 1)")
    with pytest.raises(PrerequisiteError, match=r"dbo\.t: changes do not carry b, a part of its key"):
        capture(snapshot_mode="initial", row_copy="true", message_key_columns="dbo.t:b")


def test_a_table_that_is_captured_late_is_told(
    capture: Any, sqlserver_database: TestDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty table lacks nothing; a second capture instance is not a late table."""
    sqlserver_database.execute(
        "create table dbo.t (id int not null primary key)",
        "create table dbo.filled (id int not null primary key)",
        "create table dbo.bare (id int not null primary key)",
        "insert into dbo.filled values (1)",
    )
    sqlserver_database.enable("dbo.t")
    made = capture(snapshot_mode="initial")
    sqlserver_database.enable("dbo.filled", "dbo.bare")
    sqlserver_database.execute(
        "exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = null, "
        "@capture_instance = N'second'",
        "insert into dbo.t values (1)",
        "insert into dbo.filled values (2)",
    )
    made.take(2)
    told = [one.getMessage() for one in caplog.records if "rows that it had before" in one.getMessage()]
    assert [text.partition(" ")[0] for text in told] == ["dbo.filled"]
    assert "remedy: read it by a snapshot (signal execute-snapshot)" in told[0]


def test_a_table_that_is_renamed_goes_on_under_the_name_that_the_lists_capture(
    capture: Any, sqlserver_database: TestDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """No change comes under two names, and both names are reported."""
    sqlserver_database.execute("create table dbo.t (id int not null primary key)", "insert into dbo.t values (1)")
    sqlserver_database.enable("dbo.t")
    made = capture(snapshot_mode="initial")
    made.take(1)
    sqlserver_database.execute("exec sp_rename 'dbo.t', 'u'", "insert into dbo.u values (2)")
    (change,) = made.take(1)
    assert change.topic.endswith(".u")
    assert "dbo.t is called dbo.u now" in caplog.text
    assert "read dbo.u by a snapshot" in caplog.text
    made.restart(table_include_list="dbo.t")
    sqlserver_database.execute("insert into dbo.u values (3)")
    made.take(0)


def test_a_table_that_is_renamed_out_of_the_lists_is_told(
    capture: Any, sqlserver_database: TestDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    sqlserver_database.execute("create table dbo.t (id int not null primary key)", "insert into dbo.t values (1)")
    sqlserver_database.enable("dbo.t")
    made = capture(snapshot_mode="initial", table_include_list="dbo.t")
    made.take(1)
    sqlserver_database.execute("exec sp_rename 'dbo.t', 'u'", "insert into dbo.u values (2)")
    made.take(0)
    assert "remedy: rename it back, or let the lists capture dbo.u" in caplog.text


def test_a_column_of_another_type_is_told(
    capture: Any, sqlserver_database: TestDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    sqlserver_database.execute("create table dbo.t (id int not null primary key, n smallint)")
    sqlserver_database.enable("dbo.t")
    made = capture(snapshot_mode="initial")
    sqlserver_database.execute("alter table dbo.t alter column n bigint", "insert into dbo.t values (1, 5000000000)")
    made.restart()
    print(made.take(1))
    assert "the column n of dbo.t has another type" in caplog.text


def test_capture_that_was_set_up_anew_is_an_error(capture: Any, sqlserver_database: TestDatabase) -> None:
    """This includes a change table with the name of the old one, because the rows in between are in neither."""
    sqlserver_database.execute("create table dbo.t (id int not null primary key)", "insert into dbo.t values (1)")
    sqlserver_database.enable("dbo.t")
    made = capture(snapshot_mode="initial")
    made.take(1)
    sqlserver_database.execute("exec sys.sp_cdc_disable_db", "insert into dbo.t values (2)")
    sqlserver_database.enable("dbo.t")
    sqlserver_database.execute("insert into dbo.t values (3)")
    sqlserver_database.capture()
    made.restart()
    with pytest.raises(PositionLost, match=r"dbo_t of dbo\.t is gone"):
        made.step()
