"""The events of every golden case equal those that Debezium wrote."""

import pytest
from pyspark.sql import SparkSession

from tdsserver.process import TestServer
from tests.architecture import behaviours
from tests.fix_mongodb import Mongo
from tests.fix_postgres import Postgres
from tests.golden import case as cases
from tests.golden import runner
from tests.servers.derby import Derby

# The recordings of SQL Server are all in the repository.
ALL = cases.find(runner.default_cases())
ALL += [
    case
    for case in cases.find(runner.SHIPPED)
    if case.database == "sqlserver" and case.name not in {known.name for known in ALL}
]
KNOWN = runner.expected_failures()
SHOWN = behaviours.golden()


def marked(case: cases.Case) -> object:
    """The case with the ids of what it shows."""
    marks = [getattr(pytest.mark, behaviours.MARK)(*SHOWN[case.name])] if case.name in SHOWN else []
    return pytest.param(case, id=case.name, marks=marks)


def of(database: str) -> list[object]:
    """The cases of one kind."""
    return [marked(case) for case in ALL if case.database == database]


def judge(outcome: runner.Outcome) -> None:
    """Pass when the case is equal, or skip or fail as the list of expected failures wants it."""
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
def test_the_events_are_those_that_debezium_wrote(
    case: cases.Case, postgres_server: Postgres, spark: SparkSession
) -> None:
    judge(runner.run(case, postgres_server, spark))


@pytest.mark.parametrize("case", of("mongodb"))
def test_the_events_are_those_that_debezium_wrote_of_mongodb(
    case: cases.Case, mongo_server: Mongo, spark: SparkSession
) -> None:
    judge(runner.run_mongo(case, mongo_server, spark))


@pytest.mark.parametrize("case", of("sqlserver"))
def test_the_events_are_those_that_debezium_wrote_of_sql_server(
    case: cases.Case, sqlserver: TestServer, spark: SparkSession
) -> None:
    judge(runner.run_sqlserver(case, sqlserver, spark))


@pytest.mark.parametrize("case", of("db2"))
def test_the_events_are_those_of_the_document_of_db2(case: cases.Case, derby_server: Derby) -> None:
    judge(runner.run_db2(case, derby_server))


def test_only_cases_that_exist_are_expected_to_fail() -> None:
    if runner.default_cases() == runner.SHIPPED:
        pytest.skip("only some of the cases are here")
    assert set(KNOWN) <= {case.name for case in ALL}
