"""The known table formats, and detection of a table's format. Driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.errors import SinkError
from tailrace.sinks.tables.formats.base import TableFormat, has_files
from tailrace.sinks.tables.formats.delta import Delta
from tailrace.sinks.tables.formats.iceberg.table import Iceberg

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS: Mapping[str, TableFormat] = {one.name: one for one in (Delta(), Iceberg())}
"""Formats by the values of `debezium.sink.tables.format`."""


def found_at(spark: SparkSession, path: str) -> TableFormat:
    """Return the format of the table at a path. Raises SinkError if there is no table."""
    for known in FORMATS.values():
        if has_files(spark, f"{path}/{known.marker}"):
            return known
    raise SinkError(
        f"{path} is not a table of {' or '.join(known.title for known in FORMATS.values())}.", "Name a table."
    )
