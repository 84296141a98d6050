"""Random statements for the tables of MySQL and MariaDB, made from the server's current catalog."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

from tests.fix_mysql import MySqlDatabase

_TABLES = """
select table_schema, table_name, create_options like '%%partitioned%%' from information_schema.tables
where table_schema in (%s, %s) and table_type in ('BASE TABLE', 'SYSTEM VERSIONED') and table_name <> 'signals'
order by 1, 2
"""
_COLUMNS = """
select column_name, column_type, data_type, extra, is_nullable = 'NO', column_key = 'PRI'
from information_schema.columns where table_schema = %s and table_name = %s order by ordinal_position
"""


@dataclass(frozen=True)
class Table:
    """A table in the catalog."""

    schema: str
    name: str
    is_partitioned: bool

    def __str__(self) -> str:
        return f"`{self.schema}`.`{self.name}`"


@dataclass(frozen=True)
class Column:
    """A column in the catalog: `type` is the server's text, `base` its first word."""

    name: str
    type: str
    base: str
    extra: str
    is_required: bool
    in_key: bool

    @property
    def is_generated(self) -> bool:
        return "GENERATED" in self.extra.upper().replace("DEFAULT_GENERATED", "") or "PERSISTENT" in self.extra.upper()


MADE: dict[str, str] = {
    "plain": "create table {0} (id int primary key, a int, b int, v varchar(20), n decimal(8,2), d date)",
    "unique": "create table {0} (code varchar(10) not null, a int, b int, v text, unique key code (code))",
    "paired": "create table {0} (k int, c varchar(8) character set latin1, a int, v varchar(30), primary key (c, k))",
    "ranged": "create table {0} (id int, a int, b int, v varchar(20), primary key (id)) partition by range (id) "
              "(partition p0 values less than (20), partition p1 values less than (50), "
              "partition p2 values less than maxvalue)",
    "generated": "create table {0} (id int primary key, a int, g int as (a * 2) stored, h int as (a + 1) virtual, "
                 "v varchar(20))",
    "typed": "create table {0} (id bigint unsigned primary key auto_increment, e enum('sad','fine','glad'), "
             "s set('x','y','z'), t timestamp(3) null, dt datetime(6), f float, dd double, y year, ti time(2), "
             "bi binary(4), vb varbinary(9), u mediumint unsigned, j json, b bit(5))",
}  # fmt: skip
"""The kinds of a history's first tables."""
VERSIONED = (
    "create table {0} (id int primary key, a int, v varchar(20), u uuid, i inet6) with system versioning",
    "create table {0} (id int primary key, a int invisible, v varchar(20), w text compressed)",
)

TYPES = (
    "int", "bigint", "smallint unsigned", "varchar(12)", "text", "decimal(8,2)", "date", "datetime(3)", "double",
    "tinyint(1)", "enum('sad','fine','glad')", "char(6)", "varchar(9) character set latin1", "varbinary(8)",
)  # fmt: skip
RETYPED = {
    "int": ("bigint", "smallint", "mediumint"),
    "smallint": ("int", "mediumint", "tinyint"),
    "bigint": ("bigint", "int"),
    "decimal": ("decimal(12,4)", "decimal(6,1)"),
    "varchar": ("varchar(40)", "varchar(4)", "text", "char(20)", "varchar(30) character set latin1"),
    "text": ("mediumtext", "varchar(50)", "longtext character set latin1"),
    "char": ("char(9)", "varchar(9)"),
    "date": ("date",),
    "datetime": ("datetime(6)", "datetime"),
    "timestamp": ("timestamp(6)", "timestamp null"),
    "enum": ("enum('sad','fine','glad','bored')", "enum('glad','sad','fine')", "enum('sad','fine')", "varchar(10)"),
    "set": ("set('x','y','z','w')", "set('z','y','x')"),
    "float": ("float", "double"),
    "binary": ("binary(6)", "varbinary(9)"),
    "time": ("time", "time(6)"),
    "bit": ("bit(9)",),
}
"""Types that a copy may follow."""


class Author:
    """Makes random statements by `dice`; `session` is in the database `first`, `second` is another one."""

    def __init__(self, dice: random.Random, session: Connection[Any], database: MySqlDatabase, second: str) -> None:
        self._dice, self._session = dice, session
        self._first, self._second = database.name, second
        self._is_mariadb = database.server.dialect == "mariadb"
        self._renames = self._is_mariadb or database.server.version.name.startswith("mysql-8")
        self._number = 0

    def opening(self) -> list[str]:
        """Return the statements that make the first tables."""
        dice = self._dice
        kinds = dice.sample(sorted(MADE), dice.choice((1, 2, 3)))
        made = [MADE[kind].format(f"t{number}") for number, kind in enumerate(kinds)]
        if self._is_mariadb and dice.random() < 0.3:
            made.append(dice.choice(VERSIONED).format("tv"))
        return [
            "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048))",
            *made,
        ]

    def transaction(self) -> list[str]:
        """Return the statements of a transaction: writes, alterations, or both."""
        count = self._dice.choices((1, 2, 3, 5), (6, 3, 2, 1))[0]
        return [statement for _ in range(count) for statement in self._any()]

    def writes(self, count: int) -> list[str]:
        """Return `count` writes."""
        return [self._write() for _ in range(count)]

    def touches(self) -> list[str]:
        """Return inserts into each table, so that the log shows the current columns."""
        found = []
        for table in self.tables():
            every = [one for one in self.columns(table) if not one.is_generated]
            for columns in (every, [one for one in every if one.in_key] or every):
                names = ", ".join(f"`{one.name}`" for one in columns)
                values = ", ".join(self._unused(one) for one in columns)
                found.append(f"insert ignore into {table} ({names}) values ({values})")
        return found

    def _any(self) -> list[str]:
        if self._dice.random() < 0.6:
            return [self._write()]
        kinds, weights = [one for one, _ in ALTERATIONS], [weight for _, weight in ALTERATIONS]
        return self._dice.choices(kinds, weights)[0](self)

    # --- the catalog -------------------------------------------------------------------------------------------------

    def _rows(self, query: str, *given: str) -> list[tuple[Any, ...]]:
        with self._session.cursor() as cursor:
            cursor.execute(query, given)
            return list(cursor.fetchall())

    def tables(self) -> list[Table]:
        """Return all tables."""
        return [
            Table(schema, name, bool(flag)) for schema, name, flag in self._rows(_TABLES, self._first, self._second)
        ]

    def table(self, wanted: Callable[[Table], bool] = lambda table: True) -> Table:
        """Return a table of the wanted kind; any table if there is none."""
        found = self.tables() or [Table(self._first, "none", False)]
        return self._dice.choice([table for table in found if wanted(table)] or found)

    def columns(self, table: Table) -> list[Column]:
        """Return the columns of a table."""
        return [
            Column(name, str(kind), str(base), extra, bool(required), bool(key))
            for name, kind, base, extra, required, key in self._rows(_COLUMNS, table.schema, table.name)
        ]

    def column(self, table: Table, wanted: Callable[[Column], bool] = lambda column: not column.in_key) -> Column:
        """Return a column of the wanted kind; any column if there is none."""
        found = self.columns(table) or [Column("none", "int", "int", "", False, False)]
        return self._dice.choice([column for column in found if wanted(column)] or found)

    def fresh(self, prefix: str) -> str:
        """Return an unused name."""
        self._number += 1
        return f"{prefix}{self._number}"

    # --- writes ------------------------------------------------------------------------------------------------------

    def _write(self) -> str:
        table, dice = self.table(), self._dice
        columns = [one for one in self.columns(table) if not one.is_generated]
        roll = dice.random()
        if roll < 0.5 or not columns:
            shown = [one for one in columns if one.in_key or dice.random() < 0.8]
            rows = [f"({', '.join(self._value(one) for one in shown)})" for _ in range(dice.choice((1, 1, 1, 4)))]
            names = ", ".join(f"`{one.name}`" for one in shown)
            verb = dice.choice(("insert ignore", "insert ignore", "replace"))
            return f"{verb} into {table} ({names}) values {', '.join(rows)}"
        where = self._where(columns)
        if roll < 0.62:
            return f"delete from {table}{where}"
        wanted = [one for one in columns if one.in_key] if roll < 0.7 else [one for one in columns if not one.in_key]
        changed = dice.sample(wanted, dice.choice((1, 1, 2)) if len(wanted) > 1 else len(wanted)) or columns[:1]
        values = ", ".join(f"`{one.name}` = {self._value(one)}" for one in changed)
        return f"update ignore {table} set {values}{where}"

    def _where(self, columns: Sequence[Column]) -> str:
        keys = [one for one in columns if one.in_key and one.base in ("int", "bigint")]
        if not keys or self._dice.random() < 0.1:
            return ""
        return f" where `{keys[0].name}` % {self._dice.choice((2, 3, 5))} = {self._dice.randrange(2)}"

    def _unused(self, column: Column) -> str:
        """Return a value that is unlikely to be in use as a key."""
        number = self._dice.randrange(500, 30_000)
        if column.base in ("int", "bigint", "smallint", "mediumint"):
            return str(number)
        if column.base in ("varchar", "char") and column.in_key:
            return f"'{number}'"
        return self._value(column)

    def _value(self, column: Column) -> str:
        dice = self._dice
        if not column.in_key and not column.is_required and dice.random() < 0.12:
            return "null"
        number = dice.randrange(90)
        letter = chr(97 + number % 26)
        return {
            "int": str(number), "smallint": str(number), "mediumint": str(number), "tinyint": str(number % 2),
            "bigint": str(number + dice.choice((0, 5_000_000_000))),
            "decimal": f"{number}.25", "float": f"{number}.5", "double": f"{number}.125",
            "date": f"date('2024-01-01') + interval {number} day",
            "datetime": f"timestamp('2024-01-01 10:00:00.123456') + interval {number} hour",
            "timestamp": f"timestamp('2024-01-01 10:00:00.1') + interval {number} hour",
            "time": f"'{number % 24:02d}:10:11.25'", "year": str(1990 + number % 30),
            "enum": dice.choice(("'sad'", "'fine'", "'glad'")), "set": dice.choice(("'x'", "'x,z'", "''", "'y'")),
            "json": f'\'{{"a": {number}, "b": ["{letter}", 1.5]}}\'', "bit": str(number % 32),
            "binary": f"'{letter}b'", "varbinary": f"'{letter}'", "uuid": f"'{number:08d}-1111-2222-3333-444444444400'",
            "inet6": f"'::{number}'",
        }.get(column.base, dice.choice((f"'{letter}'", f"'{letter}{letter} '", f"'{letter}é'")))  # fmt: skip

    # --- alterations of columns --------------------------------------------------------------------------------------

    def _place(self, table: Table) -> str:
        return self._dice.choice(("", "", " first", f" after `{self.column(table, lambda one: True).name}`"))

    def _tail(self, kind: str) -> str:
        if kind.startswith(("int", "bigint", "smallint", "decimal", "double", "tinyint")):
            return self._dice.choice(("", "", " default 6", " not null default 8", " not null", " default '7'"))
        if kind.startswith(("varchar", "char")):
            return self._dice.choice(("", "", " default 'q'", " not null default ''", " not null"))
        if kind.startswith("enum"):
            return self._dice.choice(("", " not null", " default 'fine'"))
        return self._dice.choice(("", "", "", " not null"))

    def _added(self, table: Table) -> str:
        kind = self._dice.choice(TYPES)
        return f"add column {self.fresh('c')} {kind}{self._tail(kind)}{self._place(table)}"

    def add(self) -> list[str]:
        table = self.table()
        how = self._dice.choice(("", "", ", algorithm=instant", ", algorithm=copy", ", algorithm=inplace"))
        return [f"alter table {table} {self._added(table)}{how}"]

    def add_many(self) -> list[str]:
        table, one, other = self.table(), self.fresh("c"), self.fresh("c")
        return [
            self._dice.choice(
                (
                    f"alter table {table} add ({one} int default 3, {other} varchar(5))",
                    f"alter table {table} add {one} int first, add {other} int after {one}",
                )
            )
        ]

    def add_now(self) -> list[str]:
        what = self._dice.choice(
            ("timestamp not null default current_timestamp", "datetime default current_timestamp on update now()",
             "int auto_increment unique", "timestamp null")
        )  # fmt: skip
        return [f"alter table {self.table()} add column {self.fresh('c')} {what}"]

    def drop(self) -> list[str]:
        table = self.table()
        return [f"alter table {table} drop column `{self.column(table).name}`"]

    def _typed(self, table: Table, column: Column) -> str:
        """Return the type of a column with what it is, as SHOW CREATE TABLE has it."""
        if table.name == "none":
            return "int"
        shown = self._rows(f"show create table {table}")[0][1]
        lines = [line.strip().rstrip(",") for line in shown.split("\n")]
        found = next((line for line in lines if line.startswith(f"`{column.name}` ")), "`none` int")
        return str(found.split("` ", 1)[1]).replace("%", "%%")

    def rename(self) -> list[str]:
        table = self.table()
        column, name = self.column(table, lambda one: True), self.fresh("r")
        if self._renames and self._dice.random() < 0.5:
            return [f"alter table {table} rename column `{column.name}` to {name}"]
        return [f"alter table {table} change `{column.name}` {name} {self._typed(table, column)}"]

    def swap(self) -> list[str]:
        table = self.table()
        one, other = self.column(table), self.column(table)
        if one.name == other.name:
            return self.rename()
        if self._renames and self._dice.random() < 0.4:
            return [
                f"alter table {table} rename column `{one.name}` to `{other.name}`, "
                f"rename column `{other.name}` to `{one.name}`"
            ]
        kinds = self._typed(table, one), self._typed(table, other)
        if self._dice.random() < 0.6:
            return [
                f"alter table {table} change `{one.name}` `{other.name}` {kinds[0]}, "
                f"change `{other.name}` `{one.name}` {kinds[1]}"
            ]
        aside = self.fresh("s")
        return [
            f"alter table {table} change `{one.name}` {aside} {kinds[0]}",
            f"alter table {table} change `{other.name}` `{one.name}` {kinds[1]}",
            f"alter table {table} change {aside} `{other.name}` {kinds[0]}",
        ]

    def place(self) -> list[str]:
        table = self.table()
        column = self.column(table, lambda one: True)
        return [f"alter table {table} modify `{column.name}` {self._typed(table, column)}{self._place(table)}"]

    def again(self) -> list[str]:
        table = self.table()
        column = self.column(table)
        name, kind = column.name, self._dice.choice((column.type, column.type, *TYPES))
        if self._dice.random() < 0.5:
            return [f"alter table {table} drop column `{name}`, add column `{name}` {kind}"]
        return [f"alter table {table} drop column `{name}`", f"alter table {table} add column `{name}` {kind}"]

    def retype(self) -> list[str]:
        table = self.table()
        column = self.column(table, lambda one: not one.is_generated)
        # the copy's type cannot become any other
        found = RETYPED.get(column.base, (column.type,)) if self._dice.random() < 0.9 else ("varchar(40)", "date")
        kind = self._dice.choice(found)
        null = self._dice.choice(("", "", " not null"))
        if self._dice.random() < 0.3:
            return [f"alter table {table} change `{column.name}` {self.fresh('r')} {kind}{null}"]
        return [f"alter table {table} modify `{column.name}` {kind}{null}"]

    def default(self) -> list[str]:
        table = self.table()
        column = self.column(table, lambda one: one.base == "int" and not one.in_key)
        what = self._dice.choice(("set default 3", "drop default"))
        return [f"alter table {table} alter `{column.name}` {what}"]

    def generate(self) -> list[str]:
        table = self.table()
        column = self.column(table, lambda one: one.base == "int")
        kind = self._dice.choice(("stored", "virtual"))
        return [f"alter table {table} add column {self.fresh('g')} int as (`{column.name}` + 1) {kind}"]

    def regenerate(self) -> list[str]:
        tables = [table for table in self.tables() if any(one.is_generated for one in self.columns(table))]
        if not tables:
            return self.generate()
        table = self._dice.choice(tables)
        column, base = (
            self.column(table, lambda one: one.is_generated),
            self.column(table, lambda one: one.base == "int"),
        )
        what = self._dice.choice((f"int as (`{base.name}` * 3) stored", "int"))
        return [f"alter table {table} modify `{column.name}` {what}"]

    def convert(self) -> list[str]:
        charset = self._dice.choice(("latin1", "utf8mb4", "utf8", "utf8mb4 collate utf8mb4_bin"))
        what = self._dice.choice(("convert to character set", "default character set"))
        return [f"alter table {self.table()} {what} {charset}"]

    def hide(self) -> list[str]:
        table = self.table()
        column = self.column(table)
        return [f"alter table {table} modify `{column.name}` {self._typed(table, column)} invisible"]

    # --- alterations of tables ---------------------------------------------------------------------------------------

    def key(self) -> list[str]:
        table = self.table()
        column = self.column(table, lambda one: one.base in ("int", "bigint") and not one.in_key)
        name = self._dice.choice((column.name, "id"))
        return [
            self._dice.choice(
                (
                    f"alter table {table} drop primary key, add primary key (`{name}`)",
                    f"alter table {table} add primary key (`{name}`)",
                    f"alter table {table} add unique key {self.fresh('u')} (`{name}`)",
                    f"create unique index {self.fresh('u')} on {table} (`{name}`)",
                    f"alter table {table} drop index code",
                    f"create index {self.fresh('i')} on {table} (`{name}`)",
                )
            )
        ]

    def functional(self) -> list[str]:
        table = self.table()
        column = self.column(table, lambda one: one.base == "int")
        return [f"create index {self.fresh('f')} on {table} ((`{column.name}` + 1))"]

    def move(self) -> list[str]:
        table, name = self.table(), self.fresh("m")
        other = self._second if table.schema == self._first else self._first
        return [
            self._dice.choice(
                (
                    f"rename table {table} to `{table.schema}`.{name}",
                    f"alter table {table} rename to `{table.schema}`.{name}",
                    f"alter table {table} add column {self.fresh('c')} int, rename to `{other}`.{name}",
                    f"rename table {table} to `{other}`.`{table.name}`",
                )
            )
        ]

    def swap_tables(self) -> list[str]:
        one, other, aside = self.table(), self.table(), self.fresh("x")
        return [f"rename table {one} to `{one.schema}`.{aside}, {other} to {one}, `{one.schema}`.{aside} to {other}"]

    def online(self) -> list[str]:
        """An alteration as gh-ost does it: a copy of the table takes its place."""
        table = self.table()
        ghost, away = f"`{table.schema}`.`_{table.name}_gho`", f"`{table.schema}`.`_{table.name}_del`"
        columns = [one.name for one in self.columns(table) if not one.is_generated]
        dropped = self._dice.choice((*columns, ""))
        what = self._added(table) if not dropped or len(columns) < 3 else f"drop column `{dropped}`"
        kept = ", ".join(f"`{name}`" for name in columns if not what.endswith(f"column `{name}`"))
        return [
            f"create table {ghost} like {table}",
            f"alter table {ghost} {what}",
            f"insert ignore into {ghost} ({kept}) select {kept} from {table}",
            f"rename table {table} to {away}, {ghost} to {table}",
            f"drop table {away}",
        ]

    def anew(self) -> list[str]:
        table = self.table()
        shape = self._dice.choice(
            ("(id int primary key, a int, v varchar(20))", "(id int primary key, z bigint default 4, a int)")
        )
        if self._is_mariadb and self._dice.random() < 0.4:
            return [f"create or replace table {table} {shape}"]
        return [f"drop table {table}", f"create table {table} {shape}", f"insert into {table} (id, a) values (1, 2)"]

    def archive(self) -> list[str]:
        table, name = self.table(), self.fresh("old")
        return [
            f"rename table {table} to `{table.schema}`.{name}",
            f"create table {table} like `{table.schema}`.{name}",
        ]

    def gone(self) -> list[str]:
        return [f"drop table {self.table()}"]

    def late(self) -> list[str]:
        name = self.fresh("late")
        return [
            f"create table {name} (id int primary key, a int, v varchar(20))",
            f"insert into {name} values (1, 1, 'x'), (2, 2, 'y')",
        ]

    def like(self) -> list[str]:
        table, name = self.table(), self.fresh("l")
        made = f"`{self._dice.choice((self._first, self._second))}`.{name}"
        return [f"create table {made} like {table}", f"insert ignore into {made} select * from {table}"]

    def query(self) -> list[str]:
        table, name = self.table(), self.fresh("q")
        return [f"create table {name} (primary key (id)) select * from {table}"]

    def truncate(self) -> list[str]:
        return [self._dice.choice((f"truncate {self.table()}", f"truncate table {self.table()}"))]

    def partition(self) -> list[str]:
        table = self.table(lambda one: one.is_partitioned)
        aside = self.fresh("p")
        return self._dice.choice(
            (
                [f"alter table {table} truncate partition p0"],
                [f"alter table {table} drop partition p1"],
                [f"alter table {table} reorganize partition p0 into "
                 f"(partition p0 values less than (9), partition {self.fresh('n')} values less than (20))"],
                [f"alter table {table} remove partitioning"],
                [f"create table {aside} like {table}", f"alter table {aside} remove partitioning",
                 f"alter table {table} exchange partition p0 with table {aside}"],
                [f"alter table {table} rebuild partition p2"],
            )
        )  # fmt: skip

    def repartition(self) -> list[str]:
        return [f"alter table {self.table()} partition by key () partitions 3"]

    def database(self) -> list[str]:
        return [
            self._dice.choice(
                (f"alter database `{self._second}` character set latin1", f"drop database `{self._second}`")
            ),
            f"create database if not exists `{self._second}` character set utf8mb4",
        ]

    def mode(self) -> list[str]:
        return [
            self._dice.choice(
                (
                    "set sql_mode = 'ANSI_QUOTES'",
                    "set sql_mode = 'NO_BACKSLASH_ESCAPES'",
                    "set sql_mode = ''",
                    "set sql_mode = 'STRICT_ALL_TABLES'",
                    "set time_zone = '+03:00'",
                    "set binlog_row_image = 'minimal'",
                    "set binlog_row_image = 'noblob'",
                    "set binlog_row_image = 'full'",
                    "set names latin1",
                    "set names utf8mb4",
                )
            )
        ]

    def comment(self) -> list[str]:
        return [
            f"alter table {self.table()} comment 'it''s; \\\\ /* odd */ -- so', add column {self.fresh('c')} int "
            "comment 'a \"quoted\" `one`' /* and # this */ -- that\n default 4 # the end"
        ]

    def aside(self) -> list[str]:
        name = self.table().name
        return [
            f"create temporary table `{name}` (x int)",
            f"insert into `{name}` values (1)",
            f"drop temporary table `{name}`",
        ]

    def rotate(self) -> list[str]:
        return ["flush binary logs"]


ALTERATIONS: Sequence[tuple[Callable[[Author], list[str]], int]] = (
    (Author.add, 8), (Author.add_many, 3), (Author.add_now, 2), (Author.drop, 5), (Author.rename, 5), (Author.swap, 6),
    (Author.place, 5), (Author.again, 4), (Author.retype, 6), (Author.default, 2), (Author.generate, 2),
    (Author.regenerate, 1), (Author.convert, 2), (Author.hide, 1), (Author.key, 4), (Author.functional, 1),
    (Author.move, 3), (Author.swap_tables, 2), (Author.online, 3), (Author.anew, 3), (Author.archive, 1),
    (Author.gone, 1), (Author.late, 2), (Author.like, 2), (Author.query, 2), (Author.truncate, 3),
    (Author.partition, 3), (Author.repartition, 1), (Author.database, 1), (Author.mode, 5), (Author.comment, 1),
    (Author.aside, 1), (Author.rotate, 1),
)  # fmt: skip
"""Kinds of alterations with their weights."""
