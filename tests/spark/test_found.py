"""The formats are found by Spark itself, without `register`, and `register` may follow."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tailrace.connectors import registry
from tailrace.errors import ConfigError
from tailrace.failures import cause
from tailrace.spark import register


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


@pytest.mark.parametrize("connector", [name for name in registry.OWN if not registry.find(name).held])
def test_a_read_of_what_has_no_snapshot_is_refused(spark: SparkSession, connector: str) -> None:
    least = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "database.names": "d"}
    if connector == "mongodb":
        least = {"mongodb.hosts": "h:1"}
    if connector == "db2":
        del least["database.names"]
    if connector == "sqlserver":
        del least["database.dbname"]
    with pytest.raises(Exception, match=r"spark\.read\.format") as refused:
        spark.read.format(f"{connector}-cdc").options(**least).option("topic.prefix", "p").load().count()
    assert isinstance(cause(refused.value), ConfigError)
