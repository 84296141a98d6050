"""document_state: the whole document after every change, from events that hold only the changes. Driver, worker.

Spark's state holds the text of each document by key, in RocksDB on disk. Each change parses, updates and writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tailrace.connectors import registry
from tailrace.errors import ConfigError, PrerequisiteError

COLUMNS = (
    "topic string, key binary, op string, database string, `schema` string, `table` string, position string, "
    "ordinal bigint, transaction string, source_ts timestamp, snapshot string, document string"
)
"""The columns of the result: those of the source without headers, and `document` instead of `value`."""

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
FILES = "spark.hadoop.fs.file.impl"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_TAKEN = ("op", "database", "schema", "table", "position", "ordinal", "transaction", "source_ts", "snapshot")


class _Documents(StatefulProcessor):
    """The state of one key: the text of its document. Worker."""

    def __init__(self, schemas: bool) -> None:
        self._schemas = schemas

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("document", "text string")
        self._documents = registry.documents()

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        read, write, state_after = self._documents.read, self._documents.write, self._documents.state_after
        before: Any = None
        kept = self._state.get() if self._state.exists() else None
        if kept is not None:
            before = read(kept[0])
        for row in sorted(rows, key=lambda row: (row["position"] or "", row["ordinal"] or 0)):
            event = json.loads(row["value"])
            before = state_after(before, event["payload"] if self._schemas else event)
            text = None if before is None else write(before)
            yield Row(topic=key[0], key=key[1], **{name: row[name] for name in _TAKEN}, document=text)
        if before is None:
            self._state.clear()
        else:
            self._state.update((write(before),))

    def close(self) -> None:
        pass


def document_state(frame: DataFrame, schemas: bool = True) -> DataFrame:
    """Return the document after each change of a source of documents, in the text form of `after`; see COLUMNS.

    `frame` is a stream with the columns of `tailrace.columns.ROW_SCHEMA`, with or without `headers`. Its events are of
    either format, with schemas in the values if `schemas`. `document` is null after a delete, and for updates of a
    document that the stream has never shown in full, which cannot happen after a snapshot. Tombstones and rows that
    are no changes are left out. Within a batch, the changes of a key are in log order.

    The session needs RocksDB as its state store (PROVIDER) and Hadoop's own class for local files (FILES, for which
    `tailrace.spark.session` sets a class without checksum files); PySpark needs pandas and protobuf for state in
    Python. Raises ConfigError or PrerequisiteError if one is missing. The query fails with ConversionError if an update
    does not fit its document.
    """
    if not str(frame.sparkSession.conf.get(PROVIDER, "")).endswith("RocksDBStateStoreProvider"):
        raise ConfigError("The state of documents needs RocksDB as state store.", f"Set {PROVIDER} to {_ROCKS}.")
    if str(frame.sparkSession.conf.get(FILES, "")).endswith("RawLocalFileSystem"):
        raise ConfigError(
            "RocksDB's files need Hadoop's own class for local files, and the session has another one.",
            f"Start the session with {FILES} set to org.apache.hadoop.fs.LocalFileSystem.",
        )
    missing = [name for name in ("pandas", "google") if find_spec(name) is None]
    if missing:
        raise PrerequisiteError(
            "PySpark keeps state for Python by way of pandas and protobuf, which are not installed.",
            "Install tailrace with the extra state.",
        )
    changes = frame.where("op in ('c', 'r', 'u', 'd') and key is not null and value is not null").drop("headers")
    grouped = changes.groupBy("topic", "key")
    return grouped.transformWithState(_Documents(schemas), COLUMNS, "Append", "None")
