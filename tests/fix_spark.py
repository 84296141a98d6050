"""Spark for tests: one local session for the whole run, the product's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.config.jar import Jar
from tailrace.connectors import registry
from tailrace.errors import PrerequisiteError
from tailrace.sinks.kafka import KafkaSink
from tailrace.sinks.tables.formats.base import TableFormat
from tailrace.sinks.tables.formats.known import FORMATS
from tailrace.spark.session import session
from tailrace.spark.startup.jars import files_of

LASTING = (
    "-XX:TieredStopAtLevel=4 -XX:Tier4InvocationThreshold=60000 -XX:Tier4MinInvocationThreshold=20000 "
    "-XX:Tier4CompileThreshold=100000 -XX:Tier4BackEdgeThreshold=400000 -XX:MetaspaceSize=512m -Xms1200m -Xmn600m"
)
"""For the one JVM here that lives long: Java's better compiler, which the others do without (see tests/lanes.py).

It waits for what is hot indeed: most of what runs here are new plans, and it would take a third of the CPU. The heap
does not start small, and is not collected for each step by which its classes grow.
"""


def start(warehouse: Path) -> SparkSession:
    """A session of two cores, with the sink kafka and the formats of tables where their jars can be had."""
    config = {
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": LASTING,
    }
    jars: tuple[Jar, ...] = ()
    needing: tuple[type[KafkaSink] | TableFormat, ...] = (KafkaSink, *FORMATS.values())
    for wanted in needing:
        try:
            files_of(wanted.jars)
        except PrerequisiteError:
            continue
        jars += wanted.jars
        config |= wanted.settings
    loaded = [module for name in registry.OWN for module in registry.find(name).forked]
    return session(config, jars=jars, app_name="tailrace tests", master="local[2]", loaded=loaded)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of the run; queries that a test leaves running are stopped at the end."""
    running = start(tmp_path_factory.mktemp("warehouse"))
    yield running
    for query in running.streams.active:
        query.stop()
    running.stop()
