"""The rows of public.orders: of each key the last change, deleted ones left out."""

from pyspark import pipelines

pipelines.create_streaming_table("orders")

pipelines.create_auto_cdc_flow(
    target="orders",
    source="changes",
    keys=["id"],
    sequence_by="place",
    apply_as_deletes="op = 'd'",
    except_column_list=["op", "place"],
)
