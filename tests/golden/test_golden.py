"""The events of every golden case equal those that Debezium wrote.

Each case runs in this process, through the planner, tasks and encodings that Spark calls. test_through_spark.py runs
some of them as a query of Spark.
"""

from collections.abc import Callable

import pytest

from tdsserver.process import TestServer
from tests.architecture import behaviours
from tests.fix_mongodb import Mongo
from tests.fix_postgres import Postgres
from tests.golden import case as cases
from tests.golden import judging, mysql_runner, runner
from tests.servers.derby import Derby
from tests.servers.mysql import MySqlServer, Version

ALL = runner.all_cases()
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


@pytest.mark.parametrize("case", of("postgresql"))
def test_the_events_are_those_that_debezium_wrote(case: cases.Case, postgres_server: Postgres) -> None:
    judging.judge(runner.run(case, postgres_server))


@pytest.mark.parametrize("case", of("mongodb"))
def test_the_events_are_those_that_debezium_wrote_of_mongodb(case: cases.Case, mongo_server: Mongo) -> None:
    judging.judge(runner.run_mongo(case, mongo_server))


@pytest.mark.parametrize("case", of("sqlserver"))
def test_the_events_are_those_that_debezium_wrote_of_sql_server(case: cases.Case, sqlserver: TestServer) -> None:
    judging.judge(runner.run_sqlserver(case, sqlserver))


@pytest.mark.parametrize("case", of("db2"))
def test_the_events_are_those_of_the_document_of_db2(case: cases.Case, derby_server: Derby) -> None:
    judging.judge(runner.run_db2(case, derby_server))


@pytest.mark.parametrize("case", [*chosen("mysql"), *chosen("mariadb")])
def test_the_events_are_those_that_debezium_wrote_of_mysql(
    case: cases.Case, mysql_servers: Callable[[Version], MySqlServer]
) -> None:
    judging.judge(runner.run_mysql(case, mysql_servers(mysql_runner.VERSIONS[case.database])))


def test_only_cases_that_exist_are_expected_to_fail() -> None:
    if runner.default_cases() == runner.SHIPPED:
        pytest.skip("only some of the cases are here")
    assert set(judging.KNOWN) <= {case.name for case in ALL}
