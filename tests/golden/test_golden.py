"""The events of every golden case equal those that Debezium wrote."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.architecture import behaviours
from tests.fix_postgres import Postgres
from tests.golden import case as cases
from tests.golden import runner

CASES = [case for case in cases.find(runner.default_cases()) if case.database == "postgresql"]
KNOWN = runner.expected_failures()
SHOWN = behaviours.golden()


def marked(case: cases.Case) -> object:
    """The case with the ids of what it shows."""
    marks = [getattr(pytest.mark, behaviours.MARK)(*SHOWN[case.name])] if case.name in SHOWN else []
    return pytest.param(case, id=case.name, marks=marks)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with runner.server() as postgres:
        yield postgres


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_the_events_are_those_that_debezium_wrote(case: cases.Case, server: Postgres, spark: SparkSession) -> None:
    outcome = runner.run(case, server, spark)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    if case.name in KNOWN:
        if outcome.difference is None:
            pytest.fail(f"{case.name} is equal: remove it from expected_failures.toml", pytrace=False)
        pytest.xfail(KNOWN[case.name])
    if outcome.difference is not None:
        pytest.fail(outcome.difference, pytrace=False)


def test_only_cases_that_exist_are_expected_to_fail() -> None:
    if runner.default_cases() == runner.SHIPPED:
        pytest.skip("only some of the cases are here")
    assert set(KNOWN) <= {case.name for case in CASES}
