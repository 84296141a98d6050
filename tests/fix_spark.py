"""Spark for tests: one local session for the whole run, the product's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.connectors import registry
from tailrace.errors import PrerequisiteError
from tailrace.jar import Jar
from tailrace.sinks.kafka import KafkaSink
from tailrace.sinks.tables.formats.base import TableFormat
from tailrace.sinks.tables.formats.known import FORMATS
from tailrace.spark.jars import files_of
from tailrace.spark.session import session

LASTING = "-XX:TieredStopAtLevel=1 -XX:MetaspaceSize=512m -Xms1200m -Xmn600m"
"""For the one JVM here that lives long: Java's quick compiler alone, and a heap that does not start small.

Most of what runs here are new plans. The better compiler would take a fifth of the CPU, and the code that it watches
until then runs slower. The heap is not collected for each step by which its classes grow.
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
