"""`tailrace verify` over MongoDB finds, names and repairs documents that differ from those of a collection."""

from __future__ import annotations

import json
from pathlib import Path

import bson
import pytest
from pyspark.sql import SparkSession

from tailrace.errors import ConfigError
from tests.fix_mongodb import MongoDatabase
from tests.integration.changetables.test_verify import repaired, verification
from tests.integration.mongodb.test_tables import documents, shop
from tests.integration.test_verify import found


@pytest.mark.full
def test_documents(spark: SparkSession, mongo_database: MongoDatabase, tmp_path: Path) -> None:
    number, kept, name = bson.ObjectId(), mongo_database["c"], mongo_database.name
    mongo_database.database.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    kept.insert_many([{"_id": number, "v": 1.0}, {"_id": "it's"}, *({"_id": i, "v": {"a": [i]}} for i in range(20))])
    made = shop(spark, tmp_path, mongo_database)
    made.set(source_signal_data_collection=f"{name}.signals")
    # Looked-up documents are from a later time than the batch, which is then not whole.
    made.entries["debezium.source.capture.mode"] = "change_streams_update_full"
    made.set(source_capture_mode_full_update_type="post_image")
    made.run()
    # The first whole moment is after everything that the snapshot may have shown.
    for value in (1, 2):
        kept.update_one({"_id": 1}, {"$set": {"v": value}})
        made.run()
    assert found(verification(made)[0].run((), 0)) == {}
    c = f"delta.`{made.path}/{name}.c`"
    key = json.dumps({"$oid": str(number)})
    for statement in (
        f"delete from {c} where _id in ('2', '3')",
        f"update {c} set document = parse_json('{{\"_id\": 4}}') where _id = '4'",
        f'update {c} set document = parse_json(\'{{"_id": "{number}", "v": "1.0"}}\') where _id = \'{key}\'',
        f"insert into {c} select '\"new\"', document from {c} where _id = '5'",
    ):
        spark.sql(statement)
    kept.update_one({"_id": 6}, {"$set": {"v": "late"}})
    kept.delete_one({"_id": "it's"})
    seen = verification(made)[0].run((), 30)
    assert not seen.is_running
    assert found(seen) == {
        f"{name}.c": {
            ("2",): "missing", ("3",): "missing", ("4",): "different", (key,): "different", ('"new"',): "extra",
            ("6",): "(different)", ('"it\'s"',): "(extra)",
        }
    }  # fmt: skip
    assert repaired(made) == {}
    assert [text for text, _ in documents(made, mongo_database)] == sorted([key, *map(str, range(20))], key=repr)


def test_conditions_on_documents_are_refused(
    spark: SparkSession, mongo_database: MongoDatabase, tmp_path: Path
) -> None:
    made = shop(spark, tmp_path, mongo_database)
    made.entries["debezium.source.snapshot.collection.filter.overrides"] = f"{mongo_database.name}.c"
    made.entries[f"debezium.source.snapshot.collection.filter.overrides.{mongo_database.name}.c"] = '{"v": 1}'
    with pytest.raises(ConfigError, match=r"snapshot\.collection\.filter\.overrides excludes rows"):
        verification(made)
