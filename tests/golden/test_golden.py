"""The events of every golden case equal those that Debezium wrote.

Each case runs in this process, through the planner, tasks and encodings that Spark calls. The cases of `THROUGH_SPARK`
also run as a query of Spark; in a full run, all do.
"""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from tdsserver.process import TestServer
from tests.architecture import behaviours
from tests.fix_mongodb import Mongo
from tests.fix_postgres import Postgres
from tests.golden import case as cases
from tests.golden import mysql_runner, runner
from tests.servers.derby import Derby
from tests.servers.mysql import MySqlServer, Version

ALL = runner.all_cases()
KNOWN = runner.expected_failures()
SHOWN = behaviours.golden()


CHOSEN = frozenset(
    {
        "mysql-3/ddl_alter",
        "mysql-3/restart",
        "mysql-3/tutorial",
        "mysql-3/types_numbers",
        "mariadb-3/compressed_events",
        "mariadb-3/transactions",
        "mariadb-3/types_uuid",
    }
)
"""The cases of MySQL and MariaDB in a short run."""

THROUGH_SPARK = frozenset(
    {
        # Each connector.
        "postgres/tutorial",
        "mongodb-3/tutorial",
        "db2-2.3/tutorial",
        "mysql-3/tutorial",
        "mariadb-3/transactions",
        # A worker that queries a registry, one that writes headers of its own, and values that are not text.
        "postgres/names_avro",
        "postgres-encodings/cloudevents_header_source",
        "postgres-encodings/outbox_binary",
        # A restarted query, also of SQL Server and of the older MongoDB, and chunks beside the log.
        "postgres/restart",
        "postgres/incremental_snapshot",
        "mongodb-1.1/oplog_restart",
        "sqlserver-3/restart",
        # Further columns of the rows: partition and timestamp.
        "postgres-transforms/outbox_timestamp_router",
        "postgres-transforms/partition_murmur",
    }
)
"""Cases for what only Spark shows: transfer of offsets and partitions, replayed batches, columns of the rows.

A worker of Spark writes events in a format or an encoding in the same way as this process.
"""


def of(database: str) -> list[object]:
    """Return the cases of one kind, with the ids of the behaviours that they show."""
    return [pytest.param(case, id=case.name, marks=seeds(case)) for case in ALL if case.database == database]


def chosen(database: str) -> list[object]:
    """Return the cases of one kind; those outside of `CHOSEN` run only in a full run."""
    found = [case for case in ALL if case.database == database]
    return [pytest.param(case, id=case.name, marks=[] if case.name in CHOSEN else [pytest.mark.full]) for case in found]


def seeds(case: cases.Case) -> list[pytest.MarkDecorator]:
    """Return the mark with the ids of the behaviours that the case shows, if any."""
    return [getattr(pytest.mark, behaviours.MARK)(*SHOWN[case.name])] if case.name in SHOWN else []


def through_spark(database: str) -> list[object]:
    """Return the cases of one kind; those outside of `THROUGH_SPARK` run only in a full run."""
    found = [case for case in ALL if case.database == database]
    return [
        pytest.param(case, id=case.name, marks=[] if case.name in THROUGH_SPARK else [pytest.mark.full])
        for case in found
    ]


def judge(outcome: runner.Outcome) -> None:
    """Pass if the case is equal, or skip or fail by the list of expected failures."""
    name = outcome.case.name
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    if name in KNOWN:
        if outcome.difference is None:
            pytest.fail(f"{name} is equal: remove it from expected_failures.toml", pytrace=False)
        pytest.xfail(KNOWN[name])
    if outcome.difference is not None:
        pytest.fail(outcome.difference, pytrace=False)


@pytest.mark.parametrize("case", of("postgresql"))
def test_the_events_are_those_that_debezium_wrote(case: cases.Case, postgres_server: Postgres) -> None:
    judge(runner.run(case, postgres_server))


@pytest.mark.parametrize("case", of("mongodb"))
def test_the_events_are_those_that_debezium_wrote_of_mongodb(case: cases.Case, mongo_server: Mongo) -> None:
    judge(runner.run_mongo(case, mongo_server))


@pytest.mark.parametrize("case", of("sqlserver"))
def test_the_events_are_those_that_debezium_wrote_of_sql_server(case: cases.Case, sqlserver: TestServer) -> None:
    judge(runner.run_sqlserver(case, sqlserver))


@pytest.mark.parametrize("case", of("db2"))
def test_the_events_are_those_of_the_document_of_db2(case: cases.Case, derby_server: Derby) -> None:
    judge(runner.run_db2(case, derby_server))


@pytest.mark.parametrize("case", [*chosen("mysql"), *chosen("mariadb")])
def test_the_events_are_those_that_debezium_wrote_of_mysql(
    case: cases.Case, mysql_servers: Callable[[Version], MySqlServer]
) -> None:
    judge(runner.run_mysql(case, mysql_servers(mysql_runner.VERSIONS[case.database])))


@pytest.mark.parametrize("case", through_spark("postgresql"))
def test_spark_delivers_the_events(case: cases.Case, postgres_server: Postgres, spark: SparkSession) -> None:
    judge(runner.run(case, postgres_server, spark))


@pytest.mark.parametrize("case", through_spark("mongodb"))
def test_spark_delivers_the_events_of_mongodb(case: cases.Case, mongo_server: Mongo, spark: SparkSession) -> None:
    judge(runner.run_mongo(case, mongo_server, spark))


@pytest.mark.parametrize("case", through_spark("sqlserver"))
def test_spark_delivers_the_events_of_sql_server(case: cases.Case, sqlserver: TestServer, spark: SparkSession) -> None:
    judge(runner.run_sqlserver(case, sqlserver, spark))


@pytest.mark.parametrize("case", [*through_spark("mysql"), *through_spark("mariadb")])
def test_spark_delivers_the_events_of_mysql(
    case: cases.Case, mysql_servers: Callable[[Version], MySqlServer], spark: SparkSession
) -> None:
    judge(runner.run_mysql(case, mysql_servers(mysql_runner.VERSIONS[case.database]), spark))


@pytest.mark.parametrize("case", through_spark("db2"))
def test_spark_delivers_the_events_of_db2(case: cases.Case, derby_server: Derby, spark: SparkSession) -> None:
    judge(runner.run_db2(case, derby_server, spark))


def test_only_cases_that_exist_run_through_spark() -> None:
    if runner.default_cases() == runner.SHIPPED:
        pytest.skip("only some of the cases are here")
    assert {case.name for case in ALL} >= THROUGH_SPARK


def test_only_cases_that_exist_are_expected_to_fail() -> None:
    if runner.default_cases() == runner.SHIPPED:
        pytest.skip("only some of the cases are here")
    assert set(KNOWN) <= {case.name for case in ALL}
