"""Statements of MySQL and MariaDB as values, and what they make of definitions."""

from __future__ import annotations

import re

import pytest

from tailrace.connectors.binlog.schema.ddl.parser import parse
from tailrace.connectors.binlog.schema.ddl.statements import (
    Action,
    AlterTable,
    CreateTable,
    DatabaseChange,
    DropTables,
    IndexChange,
    OtherStatement,
    RenameTables,
    TruncateTable,
)
from tailrace.connectors.binlog.schema.ddl.tokens import SqlSettings, Unparsable
from tailrace.connectors.binlog.schema.definition import ColumnDefinition, Default, Index

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


def column(declared: str) -> ColumnDefinition:
    found = created(f"create table t ({declared}, `last` int)").table
    assert found is not None
    assert found.columns[-1].name == "last"
    return found.columns[0]


def altered(actions: str) -> AlterTable:
    ((found, _),) = parse(f"alter table t {actions}", "d", READING)
    assert isinstance(found, AlterTable)
    return found


@pytest.mark.parametrize(
    ("sql", "recorded"),
    [
        ("create user a@localhost identified by 'x'", False),
        ("create role r", False),
        ("create or replace definer = current_user sql security invoker view v as select 1", False),
        ("create definer=a@b event e on schedule every 1 day do delete from x", True),
        ("alter event e disable", True),
        ("drop event if exists e", True),
        ("alter user a@localhost account lock", False),
        ("drop procedure p", False),
        ("drop view v", False),
        ("rename user a to b", True),
        ("flush privileges", True),
        ("flush relay logs", False),
        ("grant select on d.* to a", False),
        ("analyze table t", False),
    ],
)
def test_statements_that_change_no_table_are_recorded_as_debezium_does(sql: str, recorded: bool) -> None:
    assert parse(sql, "d", READING) == [(OtherStatement(recorded), sql)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("create schema if not exists x default character set = latin1 collate latin1_bin",
         DatabaseChange("create", "x", "latin1", True)),
        ("create database x comment 'c' collate utf8mb4_bin", DatabaseChange("create", "x", "utf8mb4")),
        ("create database x charset default", DatabaseChange("create", "x")),
        ("alter database x read only = 1", DatabaseChange("alter", "x")),
        ("alter schema character set utf8mb4", DatabaseChange("alter", "d", "utf8mb4")),
        ("drop schema if exists `x`", DatabaseChange("drop", "x", None, True)),
        ("create unique index if not exists i using btree on e.t (a(3) desc, b)",
         IndexChange(("e", "t"), Index("i", ("a", "b")))),
        ("create unique index i on t ((lower(a)), b) comment 'c'",
         IndexChange(("d", "t"), Index("i", ("b",), False, 1))),
        ("create index i on t ((a + b), c, (lower(d)) desc)", IndexChange(("d", "t"), Index("i", ("c",), False, 2))),
        ("create index i on t (a, b)", IndexChange(("d", "t"))),
        ("create fulltext index i on t (a)", IndexChange(("d", "t"))),
        ("drop index if exists i on t algorithm = inplace", IndexChange(("d", "t"), dropped="i")),
        ("create table if not exists a like e.b", CreateTable(("d", "a"), None, ("e", "b"), unless_there=True)),
        ("create temporary table a (like b)", CreateTable(("d", "a"), None, ("d", "b"), temporary=True)),
        ("truncate e.t", TruncateTable(("e", "t"))),
        ("truncate table t", TruncateTable(("d", "t"))),
        ("drop temporary table if exists a, e.b", DropTables((("d", "a"), ("e", "b")), True, True)),
        ("rename table if exists a wait 5 to b, b nowait to e.c",
         RenameTables(((("d", "a"), ("d", "b")), (("d", "b"), ("e", "c"))))),
    ],
)  # fmt: skip
def test_a_statement_says_what_it_concerns(sql: str, expected: object) -> None:
    assert [found for found, _ in parse(sql, "d", READING)] == [expected]


@pytest.mark.parametrize(
    "sql",
    [
        "create table t (a int) ignore select 1 a",
        "create table t (a int) engine=innodb replace as select 1 a",
        "create table t (a int) (select 1 a)",
        "create table t (a int) with x as (select 1 a) select * from x",
        "create table t (a int) values row(1)",
        "create table t (a int) partition by hash (a) partitions 2 as select 1 a",
    ],
)
def test_a_query_behind_the_columns_may_add_columns(sql: str) -> None:
    assert created(sql) == CreateTable(("d", "t"), None, selects=True)


def test_partitions_and_options_change_no_column() -> None:
    found = created(
        "create table t (a int, b varchar(3) collate utf8mb4_bin, period for system_time (a, b)) default charset=latin1"
        " union=(x, y) comment='c' with system versioning partition by range (a) "
        "(partition p0 values less than (10) comment = 'select', partition p1 values less than maxvalue)"
    ).table
    assert found is not None
    assert (found.charset, found.comment, found.versioned) == ("latin1", "c", True)
    assert [(one.name, one.charset, one.period) for one in found.columns] == [
        ("a", None, "start"),
        ("b", "utf8mb4", "end"),
    ]


def test_the_character_set_by_default_is_that_of_the_database() -> None:
    for option in ("default charset default", "collate = default"):
        found = created(f"create table t (a text) {option}").table
        assert found is not None
        assert found.charset is None


@pytest.mark.parametrize(
    ("declared", "length", "words", "charset"),
    [
        ("a char(3) ascii", 3, "CHAR", "latin1"),
        ("a char(3) unicode", 3, "CHAR", "ucs2"),
        ("a char(3) byte", 3, "CHAR", "binary"),
        ("a varchar(3) binary", 3, "VARCHAR", None),
        ("a text char set utf8mb4", None, "TEXT", "utf8mb4"),
        ("a text charset = latin1", None, "TEXT", "latin1"),
        ("a national character varying(3)", 3, "NATIONAL CHARACTER VARYING", None),
        ("a long varchar", None, "LONG VARCHAR", None),
        ("a varchar2(3 char)", 3, "VARCHAR2", None),
        ("a double precision unsigned", None, "DOUBLE PRECISION UNSIGNED", None),
        ("a int(5) unsigned zerofill", 5, "INT UNSIGNED ZEROFILL", None),
        ("'a' int", None, "INT", None),
    ],
)
def test_a_type_has_all_its_words(declared: str, length: int | None, words: str, charset: str | None) -> None:
    found = column(declared)
    assert (found.name, found.length, found.words, found.charset) == ("a", length, words, charset)


@pytest.mark.parametrize(
    "part",
    [
        "column_format fixed storage disk",
        "invisible",
        "engine_attribute = '{}' secondary_engine_attribute '{}'",
        "constraint check (a > 0)",
        "constraint c check ((a > 0) and (a < 9)) not enforced",
        "check (a in (1, 2)) enforced",
        "references p (x) match full on delete cascade on update set default",
        "without system versioning",
        "with system versioning",
    ],
)
def test_a_part_of_a_column_that_changes_no_value_is_passed_over(part: str) -> None:
    assert column(f"a int not null {part}") == column("a int not null")


def test_the_reference_system_of_a_geometry_is_passed_over() -> None:
    for part in ("srid 4326", "ref_system_id = 4326"):
        assert column(f"a point not null {part}") == column("a point not null")


@pytest.mark.parametrize(
    ("declared", "nullable", "automatic", "key"),
    [
        ("a serial", False, True, ("a",)),
        ("a int serial default value", False, True, ("a",)),
        ("a int auto_increment key", False, True, ("a",)),
        ("a int not null unique key", False, False, ("a",)),
        ("a int unique", True, False, ()),
        ("a int, primary key using btree (A)", False, False, ("a",)),
        ("a int, constraint c primary key named (a desc)", False, False, ("a",)),
        ("a int not null, constraint unique index i using hash (a) comment 'x'", False, False, ("a",)),
        ("a int not null, unique u ((a + 1))", False, False, ()),
        ("a int, fulltext key (b), constraint f foreign key (a) references p (a) on delete cascade", True, False, ()),
        ("a int, vector index v (b) m=3", True, False, ()),
    ],
)
def test_keys_come_from_columns_and_from_parts_of_their_own(
    declared: str, nullable: bool, automatic: bool, key: tuple[str, ...]
) -> None:
    found = created(f"create table t ({declared}, b text)").table
    assert found is not None
    assert [one.name for one in found.columns] == ["a", "b"]
    assert (found.columns[0].nullable, found.columns[0].automatic, found.key()) == (nullable, automatic, key)


def test_indexes_without_a_name_get_that_of_their_first_column() -> None:
    found = created(
        "create table t (a int, b int, unique (a), unique key (A, b), unique index ((a + b)), unique (a))"
    ).table
    assert found is not None
    assert [index.name for index in found.unique] == ["a", "a_2", "functional_index", "a_3"]


def test_a_key_over_a_period_needs_the_period() -> None:
    sql = "create table t (a int, f date, u date, {} unique (a, p without overlaps))"
    found = created(sql.format("period for p (f, u),")).table
    assert found is not None
    assert found.unique[0].columns == ("a", "u", "f")
    assert [one.nullable for one in found.columns] == [True, False, False]
    with pytest.raises(Unparsable, match="over a period whose columns are not known"):
        created(sql.format(""))


@pytest.mark.parametrize(
    ("declared", "labels", "literals"),
    [
        ("enum('a ', 'it''s')", ("a", "it's"), ("'a '", "'it''s'")),
        ('set("b\'c", "")', ("b'c", ""), ("'b''c'", "''")),
        ("enum(_latin1'x', 0x79)", ("x", "y"), ("'x'", "'y'")),
    ],
)
def test_labels_are_without_blanks_at_their_ends(
    declared: str, labels: tuple[str, ...], literals: tuple[str, ...]
) -> None:
    found = column(f"a {declared} default null")
    assert (found.labels, found.literals) == (labels, literals)


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("'\udcff\udc80'", Default("hex", "ff80", "ff80")),
        ("+5", Default("number", "5", "5")),
        ("_binary 0xfF", Default("hex", "fF", "fF")),
        ("date '2020-01-02'", Default("text", "2020-01-02", "2020-01-02")),
        ("TIMESTAMP'2020-01-02 03:04:05'", Default("text", "2020-01-02 03:04:05", "2020-01-02 03:04:05")),
        ("false", Default("word", "false", "0")),
        ("localtime", Default("now", "localtime")),
        ("N'x'", Default("text", "x", "x")),
    ],
)
def test_a_default_may_be_a_literal_of_any_form(default: str, expected: Default) -> None:
    assert column(f"a text default {default} on update now()").default == expected


def test_generated_columns_and_those_of_a_period_are_known() -> None:
    found = created(
        "create table t (a int, b int generated always as (a * (2)) stored, c int as (a) virtual not null, "
        "s timestamp(6) generated always as row start, e timestamp(6) as row end, period for system_time (s, e))"
    ).table
    assert found is not None
    assert [(one.generated, one.expression, one.period) for one in found.columns] == [
        (False, "", ""), (True, "(a * (2))", ""), (True, "(a)", ""), (False, "", "start"), (False, "", "end"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ("convert to character set utf8mb4 collate utf8mb4_bin", [Action("convert", text="utf8mb4")]),
        ("convert to charset default", [Action("convert", text="")]),
        ("convert to character set default collate latin1_bin", [Action("convert", text="")]),
        ("default character set = latin1", [Action("charset", text="latin1")]),
        ("add system versioning", [Action("version", text="1")]),
        ("with system versioning", [Action("version", text="1")]),
        ("drop system versioning", [Action("version", text="")]),
        ("add column if not exists a int first",
         [Action("add", column=ColumnDefinition("a", "INT"), place="", if_there=True)]),
        ("add (a int, unique u (a), index (a), b text)",
         [Action("add", column=ColumnDefinition("a", "INT")), Action("key", keys=(Index("u", ("a",)),)),
          Action("add", column=ColumnDefinition("b", "TEXT"))]),
        ("add column (a int)", [Action("add", column=ColumnDefinition("a", "INT"))]),
        ("add fulltext index i (a) with parser ngram, add check (a > 0)", []),
        ("add index i using btree ((a + 1), b), add key ((lower(c))) comment 'x', add key (a), add index j (b desc)",
         [Action("key", keys=(Index("i", ("b",), False, 1),)), Action("key", keys=(Index("", (), False, 1),))]),
        ("change column if exists a b int after c",
         [Action("change", "a", ColumnDefinition("b", "INT"), place="c", if_there=True)]),
        ("modify if exists a bigint", [Action("change", "a", ColumnDefinition("a", "BIGINT"), if_there=True)]),
        ("drop primary key, drop key if exists k, drop constraint c",
         [Action("unindex", "PRIMARY"), Action("unindex", "k", if_there=True), Action("unindex", "c")]),
        ("drop foreign key if exists f, drop check c, drop period for system_time", []),
        ("add period for p (a, b), drop period if exists for q, add period for system_time (s, e)",
         [Action("period", "a", text="b"), Action("unperiod", if_there=True)]),
        ("drop if exists a restrict, drop column b cascade", [Action("drop", "a", if_there=True), Action("drop", "b")]),
        ("alter a set default 1, alter column if exists b drop default",
         [Action("default", "a", default=Default("number", "1", "1")), Action("default", "b", if_there=True)]),
        ("alter a set invisible, alter index i invisible, alter check c not enforced", []),
        ("rename column a to b, rename index i to j, rename key if exists k to l",
         [Action("rename", "a", text="b"), Action("reindex", "i", text="j"),
          Action("reindex", "k", text="l", if_there=True)]),
        ("order by a desc, b", []),
        ("engine=innodb comment = 'c' union=(x, y)", [Action("comment", text="c")]),
        ("comment 'c'", [Action("comment", text="c")]),
    ],
)  # fmt: skip
def test_an_alteration_has_its_parts(actions: str, expected: list[Action]) -> None:
    assert altered(actions) == AlterTable(("d", "t"), tuple(expected))


@pytest.mark.parametrize(
    ("actions", "moved"),
    [
        ("exchange partition p with table e.u without validation", [("d", "t"), ("e", "u")]),
        ("convert partition p to table u", [("d", "t"), ("d", "u")]),
        ("convert table u to partition p values less than (3)", [("d", "t"), ("d", "u")]),
        ("truncate partition all", [("d", "t")]),
        ("drop partition if exists p", [("d", "t")]),
        ("discard tablespace", [("d", "t")]),
        ("import partition p tablespace", [("d", "t")]),
        ("add partition (partition p values less than (3))", []),
        ("reorganize partition p into (partition q values in (1))", []),
        ("remove partitioning", []),
        ("engine innodb partition by hash (a) partitions 4", []),
    ],
)
def test_partitions_that_bring_or_take_rows_name_their_tables(actions: str, moved: list[tuple[str, str]]) -> None:
    assert altered(actions) == AlterTable(("d", "t"), (), moved=tuple(moved), drops=actions.startswith("drop"))


@pytest.mark.parametrize("words", ["rename u", "rename to u", "rename as u", "rename = u"])
def test_an_alteration_may_rename_its_table(words: str) -> None:
    added = Action("add", column=ColumnDefinition("a", "INT"))
    assert altered(f"{words}, add a int") == AlterTable(("d", "t"), (added,), ("d", "u"))


def test_words_before_and_behind_the_name_of_an_altered_table_are_passed_over() -> None:
    found = parse("alter online ignore table if exists t wait 10 add a int", "d", READING)[0][0]
    assert found == AlterTable(("d", "t"), (Action("add", column=ColumnDefinition("a", "INT")),), ignores=True)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("create table t (a int check (a > (1)", "a parenthesis is open at the end"),
        ("create table 5.5 (a int)", "a name is expected before '5.5"),
        ("create table t (a enum(1))", "a label is expected before '1"),
        ("create table t (a int generated always (1))", "AS is expected"),
        ("create table t (a int default )", "a default is expected"),
        ("alter table t convert to utf8", "a character set is expected"),
        ("alter table t alter a frobnicate", "a part of ALTER COLUMN is not known"),
        ("create table t (a text default 'x)", "a text has no closing quote"),
        ("create table t (a text default 'x\\", "a text has no closing quote"),
    ],
)
def test_a_statement_that_breaks_off_says_where(sql: str, words: str) -> None:
    with pytest.raises(Unparsable, match=re.escape(words)):
        parse(sql, "d", READING)
