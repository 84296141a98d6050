"""An encoding of another package: found by its entry point, it writes every record that JSON would write."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import formats
from tailrace.connectors.mongodb.records.records import numbered_rows
from tailrace.connectors.mongodb.records.segment import read_documents
from tailrace.connectors.registry import from_entries, parse
from tailrace.errors import ConfigError
from tailrace.events.control_records import boundary_rows, heartbeat_row
from tailrace.spark import options, register
from tests.event_settings import event_settings
from tests.extending.reading import read
from tests.unit.mongodb.test_placing import packed, settings

PACKAGES = Path(__file__).parent
MONGODB = {"mongodb.connection.string": "mongodb://h", "topic.prefix": "p", "key.converter": "pairs"}
POSTGRES = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
CLASS = "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState"


@pytest.fixture
def _pairs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package as if it were installed."""
    formats.find.cache_clear()
    monkeypatch.syspath_prepend(PACKAGES / "encoding")
    yield
    formats.find.cache_clear()
    sys.modules.pop("toypairs", None)


def test_only_an_installed_package_brings_it() -> None:
    with pytest.raises(ConfigError, match=r"value\.converter = pairs is not supported: values are written by"):
        parse("postgres", POSTGRES | {"value.converter": "pairs"})


@pytest.mark.usefixtures("_pairs")
def test_a_configuration_names_it_for_keys_and_values() -> None:
    found = parse("postgres", POSTGRES | {"value.converter": "pairs"})
    assert (found["key.converter"].rpartition(".")[2], found["value.converter"]) == ("JsonConverter", "pairs")
    entries = {f"debezium.source.{name}": text for name, text in POSTGRES.items()} | {"debezium.format.key": "pairs"}
    assert from_entries(entries, {}).source["key.converter"] == "pairs"
    with pytest.raises(ConfigError, match=r"headers are written by"):
        parse("postgres", POSTGRES | {"header.converter": "pairs"})
    assert parse("mongodb", MONGODB)["key.converter"] == "pairs"


@pytest.mark.usefixtures("_pairs")
def test_it_writes_the_fields_of_documents() -> None:
    given = settings(value_converter="pairs", value_converter_schemas_enable="false", transforms="unwrap",
                     transforms_unwrap_type=CLASS)  # fmt: skip
    documents = [{"_id": 1, "v": 1.5, "list": [1, 2]}, {"_id": 2, "in": {"w": "x"}}]
    segment = read_documents(("d", "a"), *packed(documents), 1 << 40, 1)
    ((rows, _),) = numbered_rows(segment, given)
    found = [set(row["value"].decode().splitlines()) for row in rows.to_pylist()]
    assert {"_id=1", "v=1.5", "list=[1, 2]"} <= found[0]
    assert {"_id=2", "in.w=x"} <= found[1]


@pytest.mark.usefixtures("_pairs")
def test_it_writes_records_that_are_made_singly() -> None:
    chosen = event_settings("server", "golden", key_format="pairs", value_format="pairs", value_schemas_enable=False)
    (beat,) = heartbeat_row(5, 7, chosen).to_pylist()
    assert beat["key"] == b"#io.debezium.connector.common.ServerNameKey\nserverName=server"
    assert beat["value"] == b"ts_ms=5"
    assert boundary_rows([], chosen).num_rows == 0


@pytest.mark.usefixtures("_pairs")
def test_it_writes_documents() -> None:
    given = settings(key_converter="pairs", value_converter="pairs", value_converter_schemas_enable="false")
    segment = read_documents(("d", "a"), *packed([{"_id": 1, "v": 'a "text"'}]), 1 << 40, 1)
    ((rows, _),) = numbered_rows(segment, given)
    (row,) = rows.to_pylist()
    assert row["key"] == b"#p.d.a.Key\nid=1"
    lines = row["value"].decode().splitlines()
    assert lines[0] == 'after={"_id": 1,"v": "a \\"text\\""}'
    assert {"source.collection=a", "source.snapshot=true", "source.ord=0", "op=r"} < set(lines)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Options of a query whose connector is a separate package too, with two changes in its log."""
    monkeypatch.syspath_prepend(PACKAGES / "database")
    log = tmp_path / "changes.jsonl"
    log.write_text(
        '{"op": "c", "table": "orders", "before": null, "after": {"id": 1, "item": "rope"}, "at_us": 5000}\n'
        '{"op": "d", "table": "orders", "before": {"id": 1, "item": "rope"}, "after": null, "at_us": 5000}\n'
    )
    return {"topic.prefix": "s", "log.file": str(log), "key.converter": "pairs", "value.converter": "pairs",
            "value.converter.schemas.enable": "false"}  # fmt: skip


def is_written(rows: dict[str, Mapping[str, Any]]) -> bool:
    """Return True if the records of the two changes are lines of pairs; raises AssertionError otherwise."""
    assert {bytes(row["key"]) for row in rows.values()} == {b"#s.log.orders.Key\nid=1"}
    assert rows["tombstone"]["value"] is None
    created, deleted = (bytes(rows[op]["value"]).decode().splitlines() for op in "cd")
    assert created[:2] == ["after.id=1", "after.item=rope"]
    assert deleted[:2] == ["before.id=1", "before.item=rope"]
    assert {"source.connector=toylog", "source.ts_ms=5", "source.table=orders", "op=c"} < set(created)
    return True


@pytest.mark.usefixtures("_pairs")
def test_tasks_write_it(logged: dict[str, str]) -> None:
    assert is_written({row["op"]: row for row in read("toylog", logged)})


@pytest.mark.full
@pytest.mark.usefixtures("_pairs")
def test_a_stream_writes_it(
    spark: SparkSession, logged: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places = [str(PACKAGES / name) for name in ("encoding", "database")]
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", ":".join(places))
    register(spark)
    frame = spark.readStream.format("toylog-cdc").options(**options(logged)).load()
    query = (
        frame.writeStream.format("memory")
        .queryName("toypairs_rows")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(180)
    assert is_written({row.op: row.asDict() for row in spark.table("toypairs_rows").collect()})
