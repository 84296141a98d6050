"""Spark's plans, on its pages and in its logs, show no value of an option that can hold a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tailrace.spark import options, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKER = "hunter2marker"
SECRETS = {
    "postgres": {
        "database.hostname": "db", "database.user": "u", "database.dbname": "d", "database.password": MARKER,
        "database.sslpassword": MARKER, "signal.consumer.sasl.jaas.config": MARKER,
        f"column.mask.hash.SHA-256.with.salt.{MARKER}": "a.b.c",
    },
    "mongodb": {"mongodb.connection.string": f"mongodb://u:{MARKER}@h/", "topic.prefix": "p"},
    "sqlserver": {
        "database.hostname": "db", "database.user": "u", "database.names": "d", "topic.prefix": "p",
        "database.password": MARKER,
    },
    "db2": {
        "database.hostname": "db", "database.user": "u", "database.dbname": "d", "topic.prefix": "p",
        "driver.APIKey": MARKER,
    },
}  # fmt: skip


@pytest.mark.parametrize("connector", SECRETS)
def test_no_plan_shows_a_secret(spark: SparkSession, connector: str) -> None:
    register(spark)
    frame = spark.readStream.format(f"{connector}-cdc").options(**options(SECRETS[connector])).load()
    execution = frame._jdf.queryExecution()
    shown = [str(execution), execution.logical().treeString(), execution.analyzed().toJSON(), frame.schema.json()]
    assert "cdc" in shown[0].lower()
    assert not [text for text in shown if MARKER in text]
