"""Spark itself finds the formats, without `register`, and `register` may follow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tailrace.connectors import registry
from tailrace.errors import ConfigError
from tailrace.monitoring.failures import cause
from tailrace.spark import register
from tailrace.spark.batch import demand


@pytest.mark.parametrize("connector", registry.OWN)
def test_the_format_is_found(spark: SparkSession, connector: str) -> None:
    module = __import__(f"pyspark_{connector}_cdc")
    assert module.DefaultSource.name() == registry.find(connector).format
    for reading in (spark.readStream, spark.newSession().readStream):
        with pytest.raises(Exception, match=r"slot\.nmae") as refused:
            reading.format(f"{connector}-cdc").option("slot.nmae", "x").load()
        assert isinstance(cause(refused.value), ConfigError)


def test_what_was_found_may_be_registered_as_well(spark: SparkSession) -> None:
    register(spark)
    register(spark)


def test_a_read_of_what_has_no_position_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = registry.parse("mongodb", {"mongodb.hosts": "h:1", "topic.prefix": "p"})
    demand(config)
    without = replace(registry.find("mongodb"), consistent_read="")
    monkeypatch.setattr(registry, "find", lambda name: without)
    with pytest.raises(ConfigError, match=r"spark\.read\.format\('mongodb-cdc'\) is not supported"):
        demand(config)
