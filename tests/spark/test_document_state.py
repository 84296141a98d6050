"""document_state keeps documents in Spark's state from batch to batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

from tailrace.errors import ConfigError
from tailrace.spark.source import ROW_TYPE
from tailrace.transforms.document_state import PROVIDER, _Documents, document_state
from tests.spark.rebuild import ROCKS
from tests.unit.transforms.test_unwrap import event, rows


def row(operation: str, **given: Any) -> tuple[str, bytes, bytes | None]:
    key, value = event({"format": "1.1", "op": operation, "key": given.pop("key", "1"), **given})
    return operation, key, value


BATCHES = [
    (
        row("r", after='{"_id": 1,"n": {"$numberLong": "1"}}'),
        row("u", patch='{"$v": 1,"$set": {"a.b": "x"}}'),
        row("u", key="2", patch='{"$set": {"a": 1}}'),
        row("tombstone"),
    ),
    (
        row("u", patch='{"$v": 2,"diff": {"sa": {"u": {"b": "y"}},"i": {"l": [1]}}}'),
        row("d"),
        row("c", after='{"_id": 1}'),
    ),
]


def demand_documents(found: Sequence[Mapping[str, Any]]) -> None:
    """Assert the documents after each change of both batches."""
    known = [(one["op"], one["document"]) for one in found if '"id":"1"' in one["key"]]
    assert sorted(known, key=str) == sorted(
        [
            ("r", '{"_id": 1,"n": {"$numberLong": "1"}}'),
            ("u", '{"_id": 1,"n": {"$numberLong": "1"},"a": {"b": "x"}}'),
            ("u", '{"_id": 1,"n": {"$numberLong": "1"},"a": {"b": "y"},"l": [1]}'),
            ("d", None),
            ("c", '{"_id": 1}'),
        ],
        key=str,
    )
    assert [one["document"] for one in found if '"id":"2"' in one["key"]] == [None]


class Kept:
    """A stand-in for Spark's state: one value for each key."""

    def __init__(self) -> None:
        self.values: dict[Any, tuple[Any, ...]] = {}
        self.key: Any = None

    def getValueState(self, name: str, schema: str) -> Kept:
        return self

    def exists(self) -> bool:
        return self.key in self.values

    def get(self) -> tuple[Any, ...] | None:
        return self.values.get(self.key)

    def update(self, value: tuple[Any, ...]) -> None:
        self.values[self.key] = value

    def clear(self) -> None:
        self.values.pop(self.key, None)


def test_documents_are_kept_from_batch_to_batch() -> None:
    """The function that Spark calls for each key of a batch keeps documents, in any order of the key's changes."""
    kept, processor = Kept(), _Documents(schemas=True)
    processor.init(kept)  # type: ignore[arg-type]
    found = []
    for batch in BATCHES:
        changes = [one for one in rows(*batch).to_pylist() if one["op"] in "crud" and one["value"] is not None]
        for key in {one["key"] for one in changes}:
            kept.key = ("topic", key)
            of_key = (Row(**one) for one in reversed(changes) if one["key"] == key)
            found += [made.asDict() for made in processor.handleInputRows(kept.key, of_key, None)]
    for one in found:
        one["key"] = one["key"].decode()
    demand_documents(found)
    assert [value for (_, key), value in kept.values.items() if b'"id":"1"' in key] == [('{"_id": 1}',)]
    assert len(kept.values) == 1


@pytest.mark.full
def test_documents_are_rebuilt_across_batches(tmp_path: Path) -> None:
    """A session of its own, with RocksDB for its state, rebuilds documents."""
    pytest.importorskip("pandas", reason="PySpark's state for Python needs pandas")
    pytest.importorskip("google.protobuf", reason="PySpark's state for Python needs protobuf")
    source = tmp_path / "in"
    source.mkdir()
    for number, batch in enumerate(BATCHES):
        pq.write_table(pa.Table.from_batches([rows(*batch)]), source / f"{number}.parquet")
        os.utime(source / f"{number}.parquet", (1_700_000_000 + number, 1_700_000_000 + number))
    places = [str(source), str(tmp_path / "out"), str(tmp_path / "checkpoint")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.rebuild", *places], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["batches"] >= 2
    demand_documents(found["rows"])


def test_a_session_that_cannot_keep_documents_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], ROW_TYPE)
    with pytest.raises(ConfigError, match="RocksDB"):
        document_state(frame)
    before = str(spark.conf.get(PROVIDER))
    spark.conf.set(PROVIDER, ROCKS)
    try:
        with pytest.raises(ConfigError, match="local files"):
            document_state(frame)
    finally:
        spark.conf.set(PROVIDER, before)
