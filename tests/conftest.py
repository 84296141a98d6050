"""The options of all tests; the fixtures are in plugin modules, one for each server.

`--quick` leaves out tests that need a server; `--full` runs everything at its full size (see tests/extent.py).
"""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import pytest
from hypothesis import settings

from tests import extent

# No run of a test makes a class archive in the background.
os.environ["TAILRACE_ARCHIVE"] = "off"
# The modules and the tests themselves stay for the whole run: nothing looks through them for garbage.
gc.disable()


pytest_plugins = [
    "tests.durations",
    "tests.fix_invariant",
    "tests.fix_postgres",
    "tests.fix_capture",
    "tests.fix_query",
    "tests.fix_spark",
    "tests.fix_lake",
    "tests.fix_kafka",
    "tests.fix_nats",
    "tests.fix_redis",
    "tests.fix_mongodb",
    "tests.fix_db2",
    "tests.fix_mysql",
    "tdsserver.fixtures",
]

HERE = Path(__file__).parent
STARTERS = frozenset(
    {
        "derby_jars",
        "derby_server",
        "kafka",
        "make_secantus",
        "make_mysql",
        "mongo_server",
        "mongodb",
        "mysql_servers",
        "nats_program",
        "postgres",
        "postgres_server",
        "redis_program",
        "spark",
        "system_postgres",
    }
)
"""The fixtures that start a database, a broker or a JVM. The SQL Server of tests, small and in Python, is not one."""
SLOW = frozenset(
    {
        "contract",
        "e2e",
        "fuzz",
        "integration",
        "simulation",
        "spark",
        "test_chaos.py",
        "test_compiled.py",
        "test_golden.py",
        "test_lanes.py",
        "test_through_spark.py",
    }
)
"""Directories and files in which every test needs a server, a broker or a JVM, or starts slow processes of its own."""
LONG = frozenset(
    {
        "architecture/test_behaviours.py",
        "architecture/test_mongodb_positions.py",
        "architecture/test_positions.py",
        "architecture/test_repository.py",
        "golden/test_forms.py",
        "golden/test_positions.py",
        "servers",
        "unit/changetables/test_faults.py",
        "unit/changetables/test_windows.py",
        "unit/config/test_public_files.py",
        "unit/config/test_secrets.py",
        "unit/docs/test_messages.py",
        "unit/metrics/test_tally.py",
        "unit/mongodb/test_placing.py",
        "unit/monitoring/test_exposition.py",
        "unit/sinks/test_batches.py",
        "unit/sinks/test_redis.py",
        "unit/test_house.py",
        "unit/test_record.py",
        "unit/test_registry.py",
        "unit/test_supply.py",
        "unit/test_wheel.py",
        "unit/transforms/test_unwrap.py",
    }
)
"""Further files and directories whose tests take seconds: they read all sources, or repeat a step for each fault."""


EXAMPLES = 100
"""The examples of a property that names no number of its own, in a full run."""
UNTIL = "TAILRACE_TESTS_UNTIL"
"""The environment variable with the time, in seconds since 1970, at which the run ends as a failure."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only fast tests, without database, broker and JVM")
    parser.addoption("--full", action="store_true", help="every test, at its full size: takes hours")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--full"):
        os.environ[extent.FULL] = "1"
    if config.getoption("--quick"):
        os.environ[extent.QUICK] = "1"
    # The time of an example depends more on the machine than on the product.
    settings.register_profile("tailrace", settings(), deadline=None, max_examples=extent.examples(EXAMPLES))
    settings.load_profile("tailrace")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_slow = collection_path.name in SLOW and HERE in (collection_path.parent, collection_path.parent.parent)
    return True if (is_slow or _is_long(collection_path)) and config.getoption("--quick") else None


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def _is_long(path: Path) -> bool:
    if not path.is_relative_to(HERE):
        return False
    place = path.relative_to(HERE)
    return any(part.as_posix() in LONG for part in (place, *place.parents))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.exit("the time of the run is over, and not all tests were run", returncode=1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        (others if item.get_closest_marker("full") and not extent.is_full() else chosen).append(item)
    if config.getoption("--quick"):
        _leave_out_servers(chosen, others)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen


def _leave_out_servers(chosen: list[pytest.Item], others: list[pytest.Item]) -> None:
    """Move the tests that need a server or much time from `chosen` to `others`."""
    quick: list[pytest.Item] = []
    for item in chosen:
        # pytest collects a directory that the command line names even if it is to be ignored.
        is_slow = SLOW.intersection(item.path.relative_to(HERE.parent).parts) or _is_long(item.path)
        (others if is_slow or STARTERS & set(getattr(item, "fixturenames", ())) else quick).append(item)
    chosen[:] = quick
