"""Spark for tests: one local session for the whole run, the product's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import PrerequisiteError
from tailrace.spark.jars import kafka_jars
from tailrace.spark.session import session


def start(warehouse: Path) -> SparkSession:
    """A session of two cores, with the Kafka sink where its jars can be had."""
    try:
        kafka = bool(kafka_jars())
    except PrerequisiteError:
        kafka = False
    config = {"spark.sql.warehouse.dir": str(warehouse), "spark.sql.shuffle.partitions": "2"}
    return session(config, kafka=kafka, app_name="tailrace tests", master="local[2]")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of the run; queries that a test leaves running are stopped at the end."""
    running = start(tmp_path_factory.mktemp("warehouse"))
    yield running
    for query in running.streams.active:
        query.stop()
    running.stop()
