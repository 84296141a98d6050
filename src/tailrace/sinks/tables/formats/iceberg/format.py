"""Iceberg as a format of the sink `tables`. Driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tailrace.config.jar import Jar
from tailrace.errors import SinkError
from tailrace.sinks.tables.formats.base import Stored, TableFormat
from tailrace.sinks.tables.formats.iceberg.library import CONFLICT, is_there
from tailrace.sinks.tables.formats.iceberg.table import IcebergTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSION = "1.12.0"
_SUMS = {
    "iceberg-api": "d476a6989edfe3882a47ce0eaa3e53df4d589ef5e7bd0a16ff113ae570bca8b6",
    "iceberg-bundled-guava": "8d27e319e3bc28f7f86e7fbd59f6758bfaa1f78d72d9f76aa93ad1f7cbd3ba34",
    "iceberg-common": "18a43330e3c5eb712a9bf88e8f70441971851400efb4646f0b6512ac40c5f357",
    "iceberg-core": "d3bbb331b7a907e134958d21ecccd91a736049e00768e07579ff60855bf28352",
    "iceberg-parquet": "fba0355f0d54bd68e21170e0e5f05632845d42ba346945017d2156e66297b85f",
}
_CAFFEINE = "7dd15f9df1be238ffaa367ce6f556737a88031de4294dad18eef57c474ddf1d3"


class Iceberg(TableFormat):
    """Iceberg by its own Java library, which has no part in Spark: there is none for this version of Spark."""

    name = "iceberg"
    title = IcebergTable.title
    marker = IcebergTable.marker
    jars = (
        *(Jar("org.apache.iceberg", module, _VERSION, told) for module, told in _SUMS.items()),
        Jar("com.github.ben-manes.caffeine", "caffeine", "3.1.8", _CAFFEINE),
    )
    settings: ClassVar[Mapping[str, str]] = {}
    conflict = CONFLICT

    def demand(self, spark: SparkSession) -> None:
        if not is_there(spark):
            raise SinkError(
                "The Spark session is without Iceberg's library.",
                "Make it with tailrace.sinks.tables.formats.iceberg.format.Iceberg.jars.",
            )

    def table(self, session: SparkSession, path: str) -> Stored:
        return IcebergTable(session, path)
