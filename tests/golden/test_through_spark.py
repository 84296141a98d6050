"""The events that Spark delivers equal those that Debezium wrote.

Some cases of `THROUGH_SPARK` run as a query of Spark, and others take turns by the day; in a full run, all do.
"""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from tdsserver.process import TestServer
from tests.extent import by_day
from tests.fix_mongodb import Mongo
from tests.fix_postgres import Postgres
from tests.golden import case as cases
from tests.golden import judging, mysql_runner, runner
from tests.servers.derby import Derby
from tests.servers.mysql import MySqlServer, Version

ALL = runner.all_cases()

ALWAYS = frozenset(
    {
        # Each connector, restarted queries and chunks beside the log.
        "postgres/restart",
        "postgres/incremental_snapshot",
        "mongodb-3/tutorial",
        "sqlserver-3/restart",
        "db2-2.3/tutorial",
    }
)
TURNS = (
    # MySQL and MariaDB have one planner.
    ("mysql-3/tutorial", "mariadb-3/transactions"),
    (
        # A worker that queries a registry, one that writes headers of its own, and values that are not text.
        "postgres/names_avro",
        "postgres-encodings/cloudevents_header_source",
        "postgres-encodings/outbox_binary",
        # The older MongoDB.
        "mongodb-1.1/oplog_restart",
        # Further columns of the rows: partition and timestamp.
        "postgres-transforms/outbox_timestamp_router",
        "postgres-transforms/partition_murmur",
    ),
)
"""Cases of which every second one runs each day."""
THROUGH_SPARK = ALWAYS.union(*(by_day(names, 2) for names in TURNS))
"""Cases for what only Spark shows: transfer of offsets and partitions, replayed batches, columns of the rows.

A worker of Spark writes events in a format or an encoding in the same way as this process.
"""


def through_spark(database: str) -> list[object]:
    """Return the cases of one kind; those outside of `THROUGH_SPARK` run only in a full run."""
    found = [case for case in ALL if case.database == database]
    return [
        pytest.param(case, id=case.name, marks=[] if case.name in THROUGH_SPARK else [pytest.mark.full])
        for case in found
    ]


@pytest.mark.parametrize("case", through_spark("postgresql"))
def test_spark_delivers_the_events(case: cases.Case, postgres_server: Postgres, spark: SparkSession) -> None:
    judging.judge(runner.run(case, postgres_server, spark))


@pytest.mark.parametrize("case", through_spark("mongodb"))
def test_spark_delivers_the_events_of_mongodb(case: cases.Case, mongo_server: Mongo, spark: SparkSession) -> None:
    judging.judge(runner.run_mongo(case, mongo_server, spark))


@pytest.mark.parametrize("case", through_spark("sqlserver"))
def test_spark_delivers_the_events_of_sql_server(case: cases.Case, sqlserver: TestServer, spark: SparkSession) -> None:
    judging.judge(runner.run_sqlserver(case, sqlserver, spark))


@pytest.mark.parametrize("case", [*through_spark("mysql"), *through_spark("mariadb")])
def test_spark_delivers_the_events_of_mysql(
    case: cases.Case, mysql_servers: Callable[[Version], MySqlServer], spark: SparkSession
) -> None:
    judging.judge(runner.run_mysql(case, mysql_servers(mysql_runner.VERSIONS[case.database]), spark))


@pytest.mark.parametrize("case", through_spark("db2"))
def test_spark_delivers_the_events_of_db2(case: cases.Case, derby_server: Derby, spark: SparkSession) -> None:
    judging.judge(runner.run_db2(case, derby_server, spark))


def test_only_cases_that_exist_run_through_spark() -> None:
    if runner.default_cases() == runner.SHIPPED:
        pytest.skip("only some of the cases are here")
    assert {case.name for case in ALL} >= ALWAYS.union(*TURNS)
