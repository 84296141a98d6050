"""tailrace in Spark: the data sources, and a session with the settings that suit them."""

from tailrace.spark.options import options
from tailrace.spark.source import data_source, register

__all__ = ["data_source", "options", "register"]
