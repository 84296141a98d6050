"""Histories of altered tables on a real server: each copy equals its source, or a warning named a remedy that helps.

`make simulate ARGS=schema` runs others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.extent import by_day, sized
from tests.fix_postgres import Database, Postgres
from tests.servers.mysql import VERSIONS, MySqlServer, Version
from tests.simulation.mutants import OF_REREADS, Mutant
from tests.simulation.schema import runs
from tests.simulation.schema.lakes import LakeCopies
from tests.simulation.schema.other_databases import JdbcCopies, options
from tests.simulation.schema.rarer_alterations import RARER

SEEDS = [range(first, first + sized(25, 125)) for first in (0, 1000, 2000, 3000)]
SECONDS = sized(7.0, None)
"""Seconds for each test in a short run."""


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"from {seeds.start} on")
def test_a_copy_is_never_silently_different(postgres: Postgres, seeds: range) -> None:
    found = runs.run(runs.on_postgres(postgres), seeds, SECONDS)
    print(found.text())
    assert found.verdicts
    assert [outcome.text() for outcome in found.bad] == []


def test_a_copy_that_the_pipeline_reads_again_is_never_silently_different(postgres: Postgres) -> None:
    """The pipeline also dies between any two steps of its writes."""
    found = runs.run(runs.with_rereads(postgres), range(5000, 5000 + sized(25, 125)), SECONDS)
    print(found.text())
    assert found.verdicts
    assert [outcome.text() for outcome in found.bad] == []


@pytest.mark.parametrize(("mutant", "seed"), OF_REREADS, ids=lambda given: getattr(given, "__name__", ""))
def test_a_fault_of_copies_that_are_read_again_is_found(postgres: Postgres, mutant: Mutant, seed: int) -> None:
    one = runs.with_rereads(postgres)
    assert one(seed).verdict not in runs.BAD
    with mutant():
        try:
            verdict = one(seed).verdict
        except AssertionError:
            verdict = "silent"
    assert verdict in runs.BAD


def test_a_copy_in_another_database_is_never_silently_different(
    postgres: Postgres, database: Database, tmp_path: Path
) -> None:
    """In seed 90005 a column with a default has nulls."""
    seeds = range(90_005, 90_005 + sized(10, 100))
    copies = partial(JdbcCopies, database, tmp_path)
    found = runs.run(runs.on_postgres(postgres, copies, options(database)), seeds, SECONDS)
    print(found.text())
    assert found.verdicts
    assert [outcome.text() for outcome in found.bad] == []


def test_typed_rows_are_never_silently_different(postgres: Postgres) -> None:
    """In seed 406 a table is truncated."""
    found = runs.run(runs.as_typed_rows(postgres), range(406, 406 + sized(10, 100)), SECONDS)
    print(found.text())
    assert found.verdicts
    assert [outcome.text() for outcome in found.bad] == []


@pytest.mark.parametrize("kind", by_day(("tables", "read again", "typed rows"), 3))
def test_rarer_alterations_are_never_silently_different(postgres: Postgres, kind: str) -> None:
    one = {
        "tables": runs.on_postgres(postgres, alterations=RARER),
        "read again": runs.with_rereads(postgres, RARER),
        "typed rows": runs.as_typed_rows(postgres, RARER),
    }[kind]
    found = runs.run(one, range(sized(10, 100)), SECONDS)
    print(found.text())
    assert found.verdicts
    assert [outcome.text() for outcome in found.bad] == []


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(92_012, id="a dropped key"),
        pytest.param(92_075, id="a publication made again"),
        pytest.param(92_100, id="a root and its partition exchange names"),
    ],
)
def test_histories_of_typed_rows_that_have_found_something(postgres: Postgres, seed: int) -> None:
    outcome = runs.as_typed_rows(postgres)(seed)
    assert outcome.verdict not in runs.BAD, outcome.text()


@pytest.mark.full
@pytest.mark.parametrize("mode", ["latest", "history", "log"])
def test_a_table_of_delta_is_never_silently_different(
    postgres: Postgres, spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """Where a rebuild refuses, the copy of the mode `log` is not compared, which must be rare."""
    lake = {"type": "tables", "tables.path": str(tmp_path / "lake"), "tables.mode": mode}
    found = runs.run(runs.on_postgres(postgres, partial(LakeCopies, spark), lake), range(70_000, 70_050))
    print(found.text())
    assert found.compared > 5 * found.refused
    assert [outcome.text() for outcome in found.bad] == []


@pytest.mark.full
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"from {seeds.start} on")
def test_a_copy_is_never_silently_different_on_the_systems_server(system_postgres: Postgres, seeds: range) -> None:
    found = runs.run(runs.on_postgres(system_postgres), seeds)
    print(found.text())
    assert [outcome.text() for outcome in found.bad] == []


@pytest.mark.parametrize("version", by_day(VERSIONS, 2), ids=lambda version: version.name)
def test_a_copy_of_mysql_is_never_silently_different(
    version: Version, mysql_servers: Callable[[Version], MySqlServer]
) -> None:
    found = runs.run(runs.on_mysql(mysql_servers(version)), range(sized(4, 100)), SECONDS)
    print(found.text())
    assert found.verdicts
    assert [outcome.text() for outcome in found.bad] == []


@pytest.mark.parametrize("version", by_day(VERSIONS[::-1], 2), ids=lambda version: version.name)
def test_a_copy_of_mysql_that_the_pipeline_reads_again_is_never_silently_different(
    version: Version, mysql_servers: Callable[[Version], MySqlServer]
) -> None:
    """The pipeline also dies between any two steps of its writes."""
    found = runs.run(runs.on_mysql(mysql_servers(version), rereads=True), range(5000, 5000 + sized(4, 100)), SECONDS)
    print(found.text())
    assert found.verdicts
    assert [outcome.text() for outcome in found.bad] == []
