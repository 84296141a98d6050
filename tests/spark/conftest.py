"""Fixtures of the Spark tests: a directory for tables, and a server of Spark Connect."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Path:
    """Return a directory for tables of Delta Lake."""
    if "delta" not in (spark.conf.get("spark.sql.extensions", "") or "").lower():
        pytest.skip("the jars of Delta Lake cannot be had")
    return tmp_path / "lake"


@pytest.fixture(scope="session")
def connect_server(spark: SparkSession) -> Iterator[str]:
    """Yield the address for `remote` of a Spark Connect server in the JVM of the run's session."""
    jvm: Any = spark._jvm
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = jvm.org.apache.spark.SparkEnv.get().conf()
    settings.set("spark.connect.grpc.binding.address", "127.0.0.1").set("spark.connect.grpc.binding.port", str(port))
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    context: Any = spark.sparkContext._jsc.sc()
    service.start(context)
    yield f"sc://127.0.0.1:{port}"
    nothing = jvm.scala.Option.empty()
    service.stop(nothing, nothing)
