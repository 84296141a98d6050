"""Every change of public.orders, appended."""

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

pipelines.create_streaming_table("orders_changes", format="delta")


@pipelines.append_flow(target="orders_changes")
def appended() -> DataFrame:
    return SparkSession.active().readStream.table("changes")
