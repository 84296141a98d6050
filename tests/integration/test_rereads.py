"""The pipeline reads tables again by itself, on servers of each database that supports it, and dies in between."""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession

from tdsserver.process import TestDatabase
from tests.extent import by_day, turn
from tests.fix_db2 import Db2Database
from tests.fix_mysql import MySqlDatabase
from tests.fix_postgres import Database
from tests.integration.changetables.test_tables import Shop, of_db2, of_sql_server
from tests.servers.mysql import MARIADB_10, MARIADB_11, MYSQL_8, MYSQL_57, Version

POLICIES = ("added.default", "schema.narrow", "unknown.values")
SIGNALS = "(id varchar(42) not null primary key, type varchar(32) not null, data varchar(2048))"


class Source(ABC):
    """A database with an empty table of signals, the table `t`, with an id and texts in `v` and `w`, and `beat`.

    `w` is of a kind that an update which leaves it as it is may leave out of the log.
    """

    name: str
    options: dict[str, str]

    @abstractmethod
    def write(self, *statements: str) -> None:
        """Run each statement as a transaction, and see that they can be read from the log."""

    @abstractmethod
    def alter(self) -> None:
        """Give `t` a column `n` with values in existing rows, and `v` the type of integers."""

    def capturing(self) -> AbstractContextManager[None]:
        """Let the database put changes into its log by itself."""
        return nullcontext()

    @abstractmethod
    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        """Return the rows of `t`."""

    left_out: ClassVar[Mapping[str, str]] = {}
    """Options that a database needs when `t` is dropped."""

    @abstractmethod
    def drop(self) -> None:
        """Drop `t`."""


CLASSES = {
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
}


class MySqlSource(Source):
    def __init__(self, database: MySqlDatabase) -> None:
        self._database, self.name = database, f"{database.name}.t"
        dialect = database.server.dialect
        self.options = database.options() | {
            "connector.class": CLASSES[dialect],
            "signal.data.collection": f"{database.name}.signals",
            "database.ssl.mode": "disabled" if dialect == "mysql" else "disable",
            "include.schema.changes": "false",
        }
        self.write(
            f"create table signals {SIGNALS}",
            "create table t (id int primary key, v varchar(9), w text)",
            "create table beat (id int primary key)",
        )

    def write(self, *statements: str) -> None:
        with closing(self._database.connect(autocommit=True)) as session, session.cursor() as cursor:
            for statement in statements:
                # An insert would lack the columns that it does not name.
                image = "MINIMAL" if statement.startswith("update") else "FULL"
                cursor.execute(f"set session binlog_row_image = '{image}'")
                cursor.execute(statement)

    def alter(self) -> None:
        self.write("alter table t modify v int, add n timestamp not null default current_timestamp")

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        return self._database.execute(f"select {columns} from t order by id")

    def drop(self) -> None:
        self.write("drop table t")


class SqlServerSource(Source):
    name = "dbo.t"
    left_out: ClassVar[Mapping[str, str]] = {"source_table_exclude_list": r"dbo\.t"}

    def __init__(self, database: TestDatabase) -> None:
        self._database = database
        self.options = of_sql_server(database) | {"signal.data.collection": f"{database.name}.dbo.signals"}
        database.execute(
            f"create table signals {SIGNALS}", "create table t (id int not null primary key, v varchar(9), w ntext)"
        )
        database.execute("create table beat (id int not null primary key)")
        database.enable("signals", "t", "beat")
        database.capture()

    def write(self, *statements: str) -> None:
        self._database.execute(*statements)
        self._database.capture()
        if any(statement.startswith("update") for statement in statements):
            # SQL Server's own capture leaves a large value out that an update has not set.
            self._database.execute("update cdc.dbo_t_CT set w = null where [__$update_mask] = 0x02")

    def alter(self) -> None:
        self.write(
            "alter table t add n int not null default 7",
            "alter table t alter column v int",
            "exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = null, "
            "@capture_instance = N't_v2'",
        )

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        return self._database.query(f"select {columns} from t order by id")

    def drop(self) -> None:
        self.write("drop table t")


class Db2Source(Source):
    name = "INVENTORY.T"
    left_out: ClassVar[Mapping[str, str]] = {"source_table_include_list": r"INVENTORY\.(SIGNALS|BEAT)"}

    def __init__(self, database: Db2Database) -> None:
        self._database = database
        self.options = of_db2(database) | {"signal.data.collection": "INVENTORY.SIGNALS"}
        database.execute(
            f"create table inventory.signals {SIGNALS}",
            "create table inventory.t (id int not null primary key, v varchar(9), w varchar(9))",
            "create table inventory.beat (id int not null primary key)",
        )
        for name in ("SIGNALS", "T", "BEAT"):
            database.capture.register("INVENTORY", name)
        database.capture.capture()

    def write(self, *statements: str) -> None:
        for statement in statements:
            self._database.capture.run(re.sub(r" (t|beat) ", r" inventory.\1 ", statement))

    def alter(self) -> None:
        capture = self._database.capture
        capture.unregister("INVENTORY", "T")
        self._database.execute(
            "alter table inventory.t add column n int not null default 7",
            "alter table inventory.t drop column v",
            "alter table inventory.t add column v int",
            "update inventory.t set v = id",
        )
        capture.register("INVENTORY", "T")

    def capturing(self) -> AbstractContextManager[None]:
        return self._database.capture.working()

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        return self._database.capture.session.rows(f"select {columns} from inventory.t order by id")

    def drop(self) -> None:
        self._database.capture.unregister("INVENTORY", "T")
        self._database.execute("drop table inventory.t")


class PostgresSource(Source):
    name = "public.t"

    def __init__(self, database: Database) -> None:
        self._database = database
        self.options = database.options(slot_name=f"slot_{database.name}", signal_data_collection="public.signals") | {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector"
        }
        self.write(
            f"create table signals {SIGNALS}",
            "create table t (id int primary key, v varchar(9), w text)",
            "create table beat (id int primary key)",
        )

    def write(self, *statements: str) -> None:
        self._database.execute(*statements)

    def alter(self) -> None:
        self.write(
            "create sequence numbers",
            "alter table t add n bigint not null default nextval('numbers'), alter v type int using v::int",
        )

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        with self._database.connect() as session:
            return session.execute(f"select {columns} from t order by id".encode()).fetchall()

    def drop(self) -> None:
        self.write("drop table t")


SOURCES: list[Version | str] = [MYSQL_8, MARIADB_11, "sqlserver", "db2", MYSQL_57, MARIADB_10]
WHERE: Mapping[str, list[Version | str]] = {
    "altered": SOURCES,
    "unknown": [one for one in SOURCES if one != "db2"],
    "dropped": [*SOURCES, "postgres"],
}
"""The sources of each test."""
TODAY = by_day([(test, which) for test, sources in WHERE.items() for which in sources], 18)
"""The tests of this run with their sources: one of them, and all in a full run."""


def sources(test: str) -> list[Any]:
    """Return the sources of a test, those marked that are not today's."""
    return [which if (test, which) in TODAY else pytest.param(which, marks=pytest.mark.full) for which in WHERE[test]]


def source_of(which: Version | str, request: pytest.FixtureRequest) -> Source:
    if which == "sqlserver":
        return SqlServerSource(request.getfixturevalue("sqlserver_database"))
    if which == "postgres":
        return PostgresSource(request.getfixturevalue("database"))
    if which == "db2":
        return Db2Source(request.getfixturevalue("db2"))
    make: Callable[[Any], MySqlDatabase] = request.getfixturevalue("make_mysql")
    return MySqlSource(make(which))


def named(which: Version | str) -> str:
    return which if isinstance(which, str) else which.name


Make = Callable[..., tuple[Source, Shop]]


@pytest.fixture
def make(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Make:
    def made(which: Version | str, **options: str) -> tuple[Source, Shop]:
        source = source_of(which, request)
        told = {f"sink_tables_{name.replace('.', '_')}": "reread" for name in POLICIES}
        return source, Shop(spark, tmp_path, source.options, **told, **options)

    return made


def until_whole(source: Source, shop: Shop, key: int = 100) -> None:
    """Run with a change in between, until the last moment is whole."""
    for number in range(key, key + 6):
        with source.capturing():
            shop.run()
        if shop.moments()[-1]:
            return
        source.write(f"insert into beat values ({number})")
    raise AssertionError("no moment is whole again")


def dies_asking(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a process that dies after it has noted that it must ask, and before it has asked."""

    def killed(*told: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as broken:
        broken.setattr("tailrace.sinks.tables.sink.send", killed)
        with pytest.raises(Exception, match="killed"):
            shop.run()


def equals(source: Source, shop: Shop, columns: str) -> None:
    found = sorted(source.rows(columns), key=repr)
    assert shop.rows(source.name, columns) == [tuple(row) for row in found]


@turn(6, 7)
@pytest.mark.parametrize("which", sources("altered"), ids=named)
def test_altered_columns_are_read_again(make: Make, monkeypatch: pytest.MonkeyPatch, which: Version | str) -> None:
    """A new column has values that the log lacks, and another column gets a type that does not widen."""
    source, shop = make(which)
    source.write("insert into t values (1, '1', 'w'), (2, '2', null), (3, null, 'w')")
    until_whole(source, shop)
    # Db2 is altered when all has been read.
    shop.run()
    source.alter()
    source.write("insert into t (id, v) values (4, 4)", "delete from t where id = 3")
    dies_asking(shop, monkeypatch)
    shop.run()
    assert not shop.moments()[-1]
    until_whole(source, shop, 200)
    equals(source, shop, "id, v, w, n")


@turn(6, 7)
@pytest.mark.parametrize("which", sources("unknown"), ids=named)
def test_unknown_values_are_read_again(make: Make, monkeypatch: pytest.MonkeyPatch, which: Version | str) -> None:
    """The table has rows that the query has not read, and an update leaves a value of such a row out of the log."""
    source, shop = make(which, source_snapshot_mode="no_data")
    source.write("insert into t values (1, '1', 'old'), (2, '2', 'w')")
    shop.run()
    source.write("insert into t values (3, '3', 'w')", "update t set v = '5' where id = 1")
    dies_asking(shop, monkeypatch)
    shop.run()
    until_whole(source, shop)
    equals(source, shop, "id, v, w")


@turn(6, 7)
@pytest.mark.parametrize("which", sources("dropped"), ids=named)
def test_a_table_that_is_dropped_before_it_is_read_again(
    make: Make, caplog: pytest.LogCaptureFixture, which: Version | str
) -> None:
    """It is told once, and moments are whole without it."""
    source, shop = make(which)
    source.write("insert into t values (1, '1', 'w')")
    shop.run()
    source.alter()
    source.write("insert into t (id, v) values (4, 4)")
    shop.run()
    source.drop()
    shop.set(**source.left_out)
    with caplog.at_level(logging.WARNING, "tailrace"):
        until_whole(source, shop)
    told = [text for text in caplog.messages if "it is not among the captured tables any more" in text]
    assert len(told) == 1
    assert source.name in told[0]
