"""The sink `tables` over MongoDB makes tables of documents as variants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bson
import pytest
from pyspark.sql import SparkSession

from tailrace.errors import ConfigError
from tests.extent import turn
from tests.fix_mongodb import MongoDatabase
from tests.integration.changetables.test_tables import Shop


def shop(spark: SparkSession, path: Path, database: MongoDatabase, **options: str) -> Shop:
    source = {
        "connector.class": "io.debezium.connector.mongodb.MongoDbConnector",
        "mongodb.connection.string": database.server.uri,
        "collection.include.list": rf"{database.name}\.c",
    }
    return Shop(spark, path, source, **options)


def documents(made: Shop, database: MongoDatabase, columns: str = "") -> list[Any]:
    """Return key and document of each row of the table, and other columns."""
    frame = made.spark.read.format("delta").load(str(made.path / f"{database.name}.c"))
    found = frame.selectExpr("_id", "to_json(document) as document", *filter(None, columns.split(", "))).collect()
    return sorted(((row[0], row[1] and json.loads(row[1]), *row[2:]) for row in found), key=repr)


@turn(5, 7)
def test_latest(spark: SparkSession, mongo_database: MongoDatabase, tmp_path: Path) -> None:
    """There are the snapshot, updates that are looked up, one of a document that is gone by then, and deletes."""
    number, kept = bson.ObjectId(), mongo_database["c"]
    kept.insert_many([{"_id": number, "v": 1}, {"_id": "x", "list": [1, {"y": None}]}, {"_id": 5, "v": "five"}])
    made = shop(spark, tmp_path, mongo_database)
    made.run()
    key = json.dumps({"$oid": str(number)})
    assert documents(made, mongo_database) == sorted(
        [
            (key, {"_id": str(number), "v": 1}),
            ('"x"', {"_id": "x", "list": [1, {"y": None}]}),
            ("5", {"_id": 5, "v": "five"}),
        ],
        key=repr,
    )
    kept.update_one({"_id": number}, {"$set": {"v": 2}, "$inc": {"n": 1}})
    kept.update_one({"_id": "x"}, {"$set": {"list": []}})
    kept.delete_one({"_id": "x"})
    kept.replace_one({"_id": 5}, {"other": True})
    kept.insert_many([{"_id": 6}, {"_id": 7}])
    kept.delete_one({"_id": 6})
    made.run()
    assert documents(made, mongo_database) == sorted(
        [(key, {"_id": str(number), "n": 1, "v": 2}), ("5", {"_id": 5, "other": True}), ("7", {"_id": 7})], key=repr
    )


def test_history_needs_documents_as_they_were(
    spark: SparkSession, mongo_database: MongoDatabase, tmp_path: Path
) -> None:
    made = shop(spark, tmp_path, mongo_database, sink_tables_mode="history")
    with pytest.raises(ConfigError, match="post_image"):
        made.run()


@pytest.mark.full
def test_history_of_documents(spark: SparkSession, mongo_database: MongoDatabase, tmp_path: Path) -> None:
    mongo_database.database.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    kept = mongo_database["c"]
    kept.insert_many([{"_id": 1, "v": 1}, {"_id": 2}])
    made = shop(spark, tmp_path, mongo_database, sink_tables_mode="history")
    made.set(source_capture_mode_full_update_type="post_image")
    made.entries["debezium.source.capture.mode"] = "change_streams_update_full"
    made.run()
    kept.update_one({"_id": 1}, {"$set": {"v": 2}})
    kept.delete_one({"_id": 2})
    made.run()
    kept.insert_one({"_id": 3})
    made.run()
    assert made.moments()[-1]
    assert documents(made, mongo_database, "__valid_to is null") == [
        ("1", {"_id": 1, "v": 1}, False), ("1", {"_id": 1, "v": 2}, True), ("2", {"_id": 2}, False),
        ("3", {"_id": 3}, True),
    ]  # fmt: skip


def test_updates_without_documents_are_refused(
    spark: SparkSession, mongo_database: MongoDatabase, tmp_path: Path
) -> None:
    made = shop(spark, tmp_path, mongo_database)
    made.entries["debezium.source.capture.mode"] = "change_streams"
    with pytest.raises(ConfigError, match=r"capture\.mode = change_streams has no documents after updates"):
        made.run()
