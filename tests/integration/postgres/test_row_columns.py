"""A query of PySpark may select some columns of the rows, and other columns after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.errors import ConfigError
from tailrace.monitoring.failures import cause
from tailrace.spark import options, register
from tests.fix_postgres import Database


def run(spark: SparkSession, database: Database, checkpoint: Path, columns: str) -> list[list[dict[str, Any]]]:
    """Read everything up to now, and return the rows of each batch that has rows."""
    register(spark)
    texts = database.options(
        topic_prefix="s", slot_name=database.name, row_columns=columns, tombstones_on_delete="false",
        key_converter_schemas_enable="false", max_batch_size="2", event_format="1.7",
    )  # fmt: skip
    frame = spark.readStream.format("postgres-cdc").options(**options(texts)).load()
    found: list[list[dict[str, Any]]] = []

    def take(batch: DataFrame, number: int) -> None:
        rows = [row.asDict() for row in batch.collect()]
        if rows:
            assert batch.columns == columns.split(",")
            found.append(rows)

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    return found


def test_a_replay_gives_the_same_changes_in_other_columns(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a')")
    assert run(spark, database, tmp_path, "op,topic") == [[{"op": "r", "topic": "s.public.t"}]]
    database.execute("insert into t values (2, 'b')", "delete from t where id = 1")
    database.keep_slot(database.name)
    assert run(spark, database, tmp_path, "key,op") == [
        [{"key": b'{"id":2}', "op": "c"}, {"key": b'{"id":1}', "op": "d"}]
    ]
    # As after a crash between the sink and the commit of the last batch.
    max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name)).unlink()
    database.set_slot_back(database.name)
    offsets = {path.name: path.read_text() for path in (tmp_path / "offsets").glob("[0-9]*")}
    ((first, second),) = run(spark, database, tmp_path, "snapshot,ordinal,headers,table,key")
    assert list(first) == ["snapshot", "ordinal", "headers", "table", "key"]
    assert (first["key"], second["key"]) == (b'{"id":2}', b'{"id":1}')
    assert (first["snapshot"], first["table"], first["headers"]) == ("false", "t", None)
    # The planned batch is the same: it does not depend on columns.
    kept = {path.name: path.read_text() for path in (tmp_path / "offsets").glob("[0-9]*")}
    assert {name: kept[name] for name in offsets} == offsets
    assert "columns" not in "".join(kept.values())


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            "topic,vaule",
            "row.columns names vaule, which is not a column of the rows; the nearest is value. They have topic",
        ),
        ("topic,topic", "row.columns names topic twice"),
        (",", "row.columns names no column"),
    ],
)
def test_a_wrong_column_is_refused_where_the_query_is_made(
    spark: SparkSession, database: Database, columns: str, said: str
) -> None:
    register(spark)
    texts = database.options(topic_prefix="s", row_columns=columns)
    with pytest.raises(Exception, match=r"row\.columns") as failed:
        spark.readStream.format("postgres-cdc").options(**options(texts)).load()
    found = cause(failed.value)
    assert isinstance(found, ConfigError)
    assert said in found.message
