"""Statements of MySQL and MariaDB as values, and what they make of definitions."""

from __future__ import annotations

import pytest

from tailrace.connectors.binlog.schema.ddl.parser import parse
from tailrace.connectors.binlog.schema.ddl.statements import (
    AlterTable,
    CreateTable,
    DropTables,
    OtherStatement,
    RenameTables,
)
from tailrace.connectors.binlog.schema.ddl.tokens import SqlSettings, Unparsable
from tailrace.connectors.binlog.schema.definition import Default

READING = SqlSettings()


def created(sql: str, reading: SqlSettings = READING) -> CreateTable:
    ((found, _),) = parse(sql, "d", reading)
    assert isinstance(found, CreateTable)
    return found


def test_a_text_of_several_statements_is_divided() -> None:
    found = parse("create table a (x int); drop table b /* c */ ;; rename table `c` to d.e", "d", READING)
    assert [type(one) for one, _ in found] == [CreateTable, DropTables, RenameTables]
    assert [text for _, text in found] == ["create table a (x int)", "drop table b", "rename table `c` to d.e"]
    assert found[2][0] == RenameTables(((("d", "c"), ("d", "e")),))


def test_the_statements_of_a_routine_are_its_own() -> None:
    sql = (
        "create definer=`r`@`%` trigger t before insert on x for each row begin drop table y; alter table z add q int; "
    )
    sql += "end"
    assert parse(sql, "d", READING) == [(OtherStatement(), sql)]


def test_quotes_are_those_of_the_session() -> None:
    sql = 'create table "a""b" ("c d" varchar(3) default \'x\\\')'
    found = created(sql, SqlSettings(ansi=True, plain=True)).table
    assert found is not None
    assert (found.name, found.columns[0].name, found.columns[0].default) == (
        'a"b',
        "c d",
        Default("text", "x\\", "x\\"),
    )
    with pytest.raises(Unparsable):
        parse(sql, "d", READING)


def test_comments_are_executed_by_those_they_are_for() -> None:
    sql = "create table t (a int /*!80000 not null */ /*M!100100 default 1 */ /*!50701 default 2 */)"
    mysql = created(sql, SqlSettings(version=80015)).table
    mariadb = created(sql, SqlSettings(mariadb=True, version=110405)).table
    assert mysql is not None
    assert mariadb is not None
    assert (mysql.columns[0].nullable, mysql.columns[0].default) == (False, Default("number", "2", "2"))
    assert (mariadb.columns[0].nullable, mariadb.columns[0].default) == (True, Default("number", "1", "1"))


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("'it''s \"q\" \\\\ \\n'", Default("text", "it''s \"q\" \\\\ \\n", 'it\'s "q" \\ \n')),
        ("_utf8mb4'x' 'y'", Default("text", "xy", "xy")),
        ("- 1.5e3", Default("number", "-1.5e3", "-1.5e3")),
        ("0x1F", Default("hex", "1F", "1F")),
        ("b'101'", Default("bits", "101", "101")),
        ("TRUE", Default("word", "TRUE", "1")),
        ("current_timestamp(3)", Default("now", "current_timestamp(3)")),
        ("(concat('a', ')'))", Default("expression", "(concat('a', ')'))")),
        ("uuid()", Default("expression", "uuid()")),
        ("NULL", Default("null", "NULL")),
    ],
)
def test_a_default_is_kept_as_it_is_written_and_as_it_is_meant(default: str, expected: Default) -> None:
    found = created(f"create table t (a int default {default} comment 'c', b int)").table
    assert found is not None
    assert (found.columns[0].default, found.columns[0].comment) == (expected, "c")


def test_columns_of_a_query_are_not_known() -> None:
    for sql in ("create table t select 1 a", "create table t (a int) as select 1 a", "create table t (select 1)"):
        assert created(sql).selects, sql


def test_what_is_not_known_is_told() -> None:
    for sql, words in (
        ("create table t (a quux)", "a type is not known before 'quux"),
        ("create table t (a int frobnicated)", "a part of a column is not known"),
        ("alter table t frobnicate x", "a part of ALTER TABLE is not known"),
        ("create table t (a int", "\\) is expected at the end"),
        ("create table `t (a int)", "a name has no closing quote"),
    ):
        with pytest.raises(Unparsable, match=words):
            parse(sql, "d", READING)


def test_options_of_a_table_are_passed_over() -> None:
    sql = (
        "alter table t engine=innodb row_format = dynamic, comment 'x', algorithm=inplace, lock=none, force, add a int"
    )
    ((found, _),) = parse(sql, "d", READING)
    assert isinstance(found, AlterTable)
    assert [action.verb for action in found.actions] == ["comment", "add"]
