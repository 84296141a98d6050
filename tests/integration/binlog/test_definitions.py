"""Definitions that follow statements are those that the server's own catalog has afterwards."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from tailrace.columns import Column
from tailrace.config import TableFilter
from tailrace.connectors.binlog.dialect import DIALECTS
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.definition import Name, TableDefinition
from tailrace.connectors.binlog.schema.definitions import Definitions, State
from tailrace.connectors.binlog.schema.first_definitions import initial_state
from tailrace.connectors.binlog.schema.sql_types import sql_type
from tailrace.connectors.binlog.schema.statement import Place, Statement
from tailrace.connectors.binlog.schema.tables import column_of
from tailrace.connectors.binlog.server.connection import connect
from tailrace.connectors.binlog.values.conversions import conversion
from tailrace.connectors.binlog.values.defaults import default_value
from tailrace.events.event_settings import EventSettings
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import driven
from tests.integration.binlog.test_sessions import configured

START = (
    "create table t (id int primary key auto_increment, a varchar(10), b int, c char(3) character set latin1)",
    "create table other (id bigint unsigned not null, x set('p','q'), unique key u (id))",
)
STATEMENTS = (
    "alter table t add column d int not null default 3",
    "alter table t add e varchar(5) first, add column f date null after a, add (g int, h varchar(3))",
    "alter table t change a renamed varchar(30) not null default 'x', modify b bigint unsigned comment 'it''s'",
    "alter table t rename column d to dd",
    "alter table t drop column g, drop h",
    "alter table t modify b bigint unsigned first",
    "alter table t alter dd set default 7, alter column renamed drop default",
    "alter table t convert to character set latin1",
    "alter table t default character set utf8mb4, add column after_default varchar(4)",
    "alter table t add unique key named (dd), add unique (f)",
    "alter table t drop index named",
    "alter table t modify id int not null, drop primary key, add primary key (renamed, id)",
    "create unique index u2 on other (x, id)",
    "alter table other add primary key (id), drop key u",
    "alter table other engine=innodb comment='a, b' row_format=dynamic, algorithm=copy",
    "create table made like t",
    "alter table made add column z enum('a','b,c','it''s') character set latin1 default 'b,c', add w set('x') not null",
    "rename table made to made2, other to made",
    "alter table made2 rename to made3, add q json",
    "create table `n``1` (`i d` int /* c */ primary key, # x\n `select` decimal -- y\n)",
    "create table dec_and_more (a dec(5,2), b numeric, c double precision, d real, e float(30), f float(7,3), "
    "g integer unsigned, h int(5) zerofill, i boolean not null default true, j national varchar(5), k nchar(2), "
    "l character varying(4), m long, n tinyint(1), o bit, p bit(5) default b'101', q year, r serial)",
    "create table times (a time, b time(3) default '01:02:03.5', c datetime(6), d timestamp null, "
    "e timestamp(2) not null default current_timestamp(2) on update current_timestamp(2), f datetime default now(), "
    "g date default '2024-02-03')",
    "create table bytes (a binary(3), b varbinary(5) default 'ab', c blob, d varchar(4) character set binary, "
    "e char(2) byte, f text character set binary, g tinytext ascii, h mediumtext character set utf8mb4, "
    "i varchar(3) collate latin1_bin)",
    "create table gen (a int, b int generated always as (a + 1) stored, c int as (a * 2), d int check (d > 1), "
    "constraint pk primary key using btree (a desc), key (d), unique key by_prefix (b, c))",
    "create table refs (a int primary key, b varchar(10) not null, constraint k foreign key (a) references gen (a) "
    "on delete cascade on update no action, fulltext key ft (b))",
    "create table parts (a int primary key, b int) partition by range (a) (partition p0 values less than (10) "
    "comment 'not the table''s', partition p1 values less than maxvalue) ",
    "alter table parts add partition (partition p2 values less than (20))",
    "alter table parts truncate partition p0",
    "alter table parts remove partitioning",
    "create table geo (p point not null, g geometry, l linestring, c geometrycollection)",
    "create table if not exists t (z int)",
    "create temporary table temporary_one (id int)",
    "drop table if exists missing, made3",
    "create /*!50000 table */ commented (a int /*!50000 default 4 */ /*M! default 5 */)",
    "create table defaults (a int default -5, b decimal(5,2) default 1.5, c varchar(9) default 'a\\nb', "
    "d int default 0x10, e char(4) default 'x''y', f double default 2.5e3)",
    "alter table defaults change column c `c c` varchar(9) default null after f",
    "create view vw as select a from defaults",
    "create trigger tr before insert on defaults for each row begin set new.a = 1; set new.b = 2; end",
    "drop view vw",
    "alter database character set latin1",
    "create table of_database (a varchar(3), b enum('x'))",
    # MariaDB alone
    "create or replace table of_database (b varchar(4) character set utf8mb4 primary key)",
    "alter table of_database add column if not exists b int, drop column if exists nothing",
    "create table uuids (u uuid not null default uuid(), i inet6, j json, v varchar(10) compressed)",
    "create table versioned (a int primary key, s timestamp(6) generated always as row start, "
    "e timestamp(6) generated always as row end, period for system_time (s, e)) with system versioning",
    "create table hidden (a int) with system versioning",
    "create table booked (room int, since date, till date, v varchar(9), period for stay (since, till), "
    "primary key (room, stay without overlaps))",
    "create table reserved (room int not null, since date, till date, period for stay (since, till), "
    "unique key (room, stay without overlaps)) with system versioning",
    "alter table booked drop primary key, add unique key k (room, stay without overlaps)",
    "alter table t add column inv int invisible",
)  # fmt: skip


@pytest.fixture
def followed(any_binlog_database: MySqlDatabase) -> tuple[MySqlDatabase, Definitions]:
    """Return a database with the tables of START, and definitions that begin with its catalog."""
    any_binlog_database.execute(*START)
    session = connect(configured(any_binlog_database))
    dialect = DIALECTS[any_binlog_database.server.dialect]
    config = configured(any_binlog_database)
    state = initial_state(session, config, TableFilter(config))
    session.close()
    return any_binlog_database, Definitions(dialect, lambda *name: True, lambda name: None, start=state)


def test_every_statement_leaves_the_catalogs_definition(
    followed: tuple[MySqlDatabase, Definitions], caplog: pytest.LogCaptureFixture
) -> None:
    database, definitions = followed
    session = database.connect()
    done = 0
    with session:
        for number, sql in enumerate(STATEMENTS):
            try:
                with session.cursor() as cursor:
                    cursor.execute(sql)
            except pymysql.err.Error:
                # not in this server's language
                continue
            done += 1
            definitions.statement(statement(database, sql), Place(0, 1, number, number))
            expected = in_catalog(database)
            got = {name: shown(table) for name, table in definitions.now.tables.items() if name[0] == database.name}
            assert differences(got, expected) == [], sql
            assert State.from_text(definitions.now.to_text()).tables == definitions.now.tables
    assert done > 35
    # a routine's or a view's statement puts nothing in doubt
    assert definitions.now.doubtful == {}


def statement(database: MySqlDatabase, sql: str) -> Statement:
    return Statement(database.name, sql.encode(), b"", 1, 0)


def in_catalog(database: MySqlDatabase) -> dict[Name, Any]:
    session = connect(configured(database))
    try:
        dialect = DIALECTS[database.server.dialect]
        names = [one.id for one in catalog.names(session) if one.database == database.name and catalog.holds_rows(one)]
        return {name: shown(one.table) for name, one in catalog.created(session, names, dialect).items()}
    finally:
        session.close()


def differences(got: dict[Name, Any], expected: dict[Name, Any]) -> list[Any]:
    """Return the columns, keys and tables that are not the same in both."""
    found: list[Any] = list(got.keys() ^ expected.keys())
    for name in got.keys() & expected.keys():
        pairs = zip(got[name][0], expected[name][0], strict=False)
        found += [(name[1], *pair) for pair in pairs if pair[0] != pair[1]]
        if got[name][1:] != expected[name][1:] or len(got[name][0]) != len(expected[name][0]):
            found.append((name[1], got[name][1:], expected[name][1:]))
    return found


def shown(table: TableDefinition) -> Any:
    """Return what events show of a definition, however its types are spelled."""
    return [(column.name, *of_type(column_of(column))) for column in table.columns], table.key(), table.versioned


def of_type(column: Column) -> tuple[Any, ...]:
    settings = EventSettings(logical_name="l", database="", connector="mysql", event_format="3", version="")
    kind = sql_type(column)
    known = conversion(column, settings)
    assert known is not None, column
    # the catalog says tinyint(1)
    base = {"bool": "tinyint", "real": "double"}.get(kind.base, kind.base)
    if base == "json":
        base = "longtext" if kind.charset else base
    default = default_value(column, known, settings)
    if default in (True, False):
        default = int(default)
    if base == "float" and kind.scale is None and (kind.length or 0) > 24:
        base = "double"
    digits = (
        kind.length if base in ("varchar", "char", "varbinary", "time", "datetime", "timestamp", "decimal") else None
    )
    if base == "decimal" and digits is None:
        digits = 10
    return (
        base, digits, kind.scale or 0, kind.unsigned, kind.charset, column.enum_labels, column.nullable,
        column.generated, column.identity, str(default), column.comment,
    )  # fmt: skip


def test_values_beside_the_columns_of_expressions_are_their_own(mysql: MySqlDatabase) -> None:
    """MySQL adds a column for each expression of an index, and later columns come after it."""
    mysql.server.execute("set global binlog_row_metadata=MINIMAL")
    try:
        mysql.execute(
            "create table s (id int primary key, a bigint, key k ((a + 1)), key l ((a + 2), id, (a + 3)))",
            "alter table s add z bigint",
        )
        with driven(mysql) as planner:
            planner.until(lambda: bool(planner.offset["log"].get("file")) and not planner.batch())
            mysql.execute(
                "insert into s values (1, 10, 20)", "alter table s drop index k", "insert into s values (2, 10, 20)",
                "create table t (id int primary key, a bigint, v varchar(9), key ((lower(v))))",
                "insert into t values (1, 2, 'V')", "create index i on t ((a + 1))",
                "alter table t add x bigint, add y bigint after a", "insert into t values (2, 3, 4, 'W', 5)",
            )  # fmt: skip
            planner.until(lambda: len(planner.of("t")) == 2)
    finally:
        mysql.server.execute("set global binlog_row_metadata=FULL")
    assert [row["value"]["after"] for row in planner.of("s")] == [{"id": n, "a": 10, "z": 20} for n in (1, 2)]
    assert [row["value"]["after"] for row in planner.of("t")] == [
        {"id": 1, "a": 2, "v": "V"},
        {"id": 2, "a": 3, "y": 4, "v": "W", "x": 5},
    ]
