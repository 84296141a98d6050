"""The events of every golden case equal those that Debezium wrote.

Each case runs in this process, through the planner, tasks and encodings that Spark calls. test_through_spark.py runs
some of them as a query of Spark. Of a case that two versions of Debezium have recorded, a short run has one recording
each day.
"""

from collections.abc import Callable

import pytest

from tdsserver.process import TestServer
from tests.architecture import behaviours
from tests.extent import by_day, sized
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
        "mysql-3/labels_masked",
        "mysql-3/restart",
        "mysql-3/tutorial",
        "mysql-3/types_numbers",
        "mariadb-3/compressed_events",
        "mariadb-3/transactions",
        "mariadb-3/types_uuid",
    }
)
"""The cases of MySQL and MariaDB that are in each short run; a third of the others is, too, by the day."""
OLDER = {"postgres-1.7": "postgres", "sqlserver-1.0": "sqlserver-3", "mongodb-1.1": "mongodb-3"}
"""The folders of recordings by older versions, with the folders in which most of their cases stand again."""


def turns() -> frozenset[str]:
    """Return the cases with two recordings whose turn it is not: half of the older and half of the newer ones.

    The tutorials, and cases that show a documented behaviour, have no turns.
    """
    names = {case.name for case in ALL}
    pairs = []
    for name in sorted(names):
        folder, _, title = name.partition("/")
        newer = f"{OLDER.get(folder)}/{title}"
        if newer in names and title != "tutorial":
            pairs.append((name, newer))
    older = {name for name, _ in by_day(pairs, 2)}
    rests = {newer if name in older else name for name, newer in pairs}
    return frozenset(sized(rests, set()) - SHOWN.keys())


RESTING = turns()


def of(database: str) -> list[object]:
    """Return the cases of one kind, with the ids of the behaviours that they show; `RESTING` only in a full run."""
    return [
        pytest.param(case, id=case.name, marks=[pytest.mark.full] if case.name in RESTING else seeds(case))
        for case in ALL
        if case.database == database
    ]


def chosen(database: str) -> list[object]:
    """Return the cases of one kind, of which only those of `CHOSEN` and of the day are in a short run."""
    found = [case for case in ALL if case.database == database]
    names = CHOSEN.union(by_day([case.name for case in found], 3))
    return [pytest.param(case, id=case.name, marks=[] if case.name in names else [pytest.mark.full]) for case in found]


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
