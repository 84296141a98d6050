"""Spark for tests: one local session for the whole run, made by the product."""

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
from tailrace.sinks.tables.formats.detection import FORMATS
from tailrace.spark.session import session
from tailrace.spark.startup.jars import files_of
from tests.extent import sized
from tests.lanes import BRIEF

HEAP = "-XX:MetaspaceSize=512m -Xms1200m -Xmn600m -XX:+UseSerialGC"
"""Options for the long-lived JVM of the tests, whose heap does not start small and is not collected as classes grow.

Three parts share two cores, so the threads of a parallel collector would wait for each other.
"""
LASTING = (
    "-XX:TieredStopAtLevel=4 -XX:Tier4InvocationThreshold=60000 -XX:Tier4MinInvocationThreshold=20000 "
    "-XX:Tier4CompileThreshold=100000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Options for the JVM of a full run, which takes hours: Java's better compiler, for what is really hot.

Most of the work is new plans. In a short run that compiler would take a quarter of the CPU and give less back.
"""
INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
"""Settings of a short run: Spark interprets its expressions.

Otherwise each task makes the source of its projections anew, a third of the JVM's work for tables of a few rows. A full
run compiles them, as do the sessions of the commands.
"""


def start(warehouse: Path) -> SparkSession:
    """Start a session of two cores, with the sink kafka and the table formats if their jars are available."""
    config = {
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": f"{sized(BRIEF, LASTING)} {HEAP}",
        **sized(INTERPRETED, {}),
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
    """Yield the session of the run. Queries that a test leaves running are stopped at the end."""
    running = start(tmp_path_factory.mktemp("warehouse"))
    yield running
    for query in running.streams.active:
        query.stop()
    running.stop()
