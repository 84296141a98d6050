"""Typed rows of MongoDB hold documents as variants."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import bson
from pyspark.sql import DataFrame, SparkSession

from tailrace.spark import options
from tests.fix_mongodb import MongoDatabase


def run(source: DataFrame, checkpoint: Path) -> list[Any]:
    """Return the present rows in order."""
    found: list[Any] = []

    def take(batch: DataFrame, number: int) -> None:
        found.extend(batch.collect())

    writer = source.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    return found


def frame(spark: SparkSession, database: MongoDatabase, **more: str) -> DataFrame:
    texts = {
        "mongodb.connection.string": database.server.uri, "topic.prefix": "shop", "rows": "typed",
        "collection.include.list": rf"{database.name}\.c", **more,
    }  # fmt: skip
    return spark.readStream.format("mongodb-cdc").options(**options(texts)).load()


def test_documents_are_variants(spark: SparkSession, mongo_database: MongoDatabase, tmp_path: Path) -> None:
    number, one = bson.ObjectId(), uuid.UUID(int=7)
    document = {
        "_id": number, "i": 5, "l": bson.Int64(1 << 40), "d": 1.5, "s": "é", "at": datetime(2020, 1, 2, 3, 4, 5, 6000),
        "list": [1, {"x": None}], "amount": bson.Decimal128("1.50"), "raw": b"\x01", "tag": one, "no": False,
        "stamp": bson.Timestamp(5, 6), "re": bson.Regex("a", "i"), "huge": bson.Decimal128("NaN"), "secret": "x",
    }  # fmt: skip
    mongo_database["c"].insert_one(document)
    without = {"field.exclude.list": f"{mongo_database.name}.c.secret"}
    source = frame(spark, mongo_database, **without)
    kinds = [source.schema[name].dataType.simpleString() for name in ("key", "before", "after", "update")]
    assert kinds == ["variant"] * 4
    (row,) = run(source, tmp_path)
    assert row.key.toPython() == {"id": str(number)}
    assert row.source.toPython()["collection"] == "c"
    assert row.after.toPython() == {
        "_id": str(number), "i": 5, "l": 1 << 40, "d": 1.5, "s": "é",
        "at": datetime(2020, 1, 2, 3, 4, 5, 6000, UTC), "list": [1, {"x": None}], "amount": Decimal("1.50"),
        "raw": b"\x01", "tag": str(one), "no": False, "stamp": {"t": 5, "i": 6}, "re": {"pattern": "a", "options": "i"},
        "huge": "NaN",
    }  # fmt: skip
    mongo_database["c"].update_one({"_id": number}, {"$set": {"i": 6, "secret": "y"}, "$unset": {"d": ""}})
    mongo_database["c"].delete_one({"_id": number})
    update, delete = run(
        frame(spark, mongo_database, **{"field.exclude.list": f"{mongo_database.name}.c.secret"}), tmp_path
    )
    assert (update.op, delete.op, delete.after) == ("u", "d", None)
    assert update.update.toPython() == {"removedFields": ["d"], "updatedFields": {"i": 6}, "truncatedArrays": None}
    assert [row.key.toPython() for row in (update, delete)] == [{"id": str(number)}] * 2
