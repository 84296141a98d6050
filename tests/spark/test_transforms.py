"""Transforms as operations on DataFrames."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from tailrace.columns import ROW_SCHEMA
from tailrace.spark.source import ROW_TYPE
from tailrace.transforms.frames import extract_new_document_state
from tests.unit.transforms.test_unwrap import event, rows


def test_a_frame_of_events_becomes_one_of_documents(spark: SparkSession) -> None:
    made = event({"format": "3", "op": "c", "key": "1", "after": '{"_id": 1,"a": {"b": 1}}'})
    gone = event({"format": "3", "op": "d", "key": "1"})
    batch = rows(("c", *made), ("d", *gone), ("tombstone", gone[0], None))
    given = [tuple(row[field.name] for field in ROW_SCHEMA) for row in batch.to_pylist()]
    frame = spark.createDataFrame(given, ROW_TYPE)
    found = extract_new_document_state(frame, {"flatten.struct": "true", "delete.tombstone.handling.mode": "rewrite"})
    assert found.schema == frame.schema
    values = [json.loads(row.value)["payload"] for row in found.collect()]
    assert values == [{"_id": 1, "a_b": 1, "__deleted": False}, {"__deleted": True}]
