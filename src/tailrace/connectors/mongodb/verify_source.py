"""The documents of a MongoDB for comparison with tables, and the keys that changed during the comparison. Driver.

Documents are read as in the initial snapshot: majority data, each collection in chunks, not all at one moment. The log
then shows which documents changed after the reading began.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailrace.columns.batch import position_text
from tailrace.columns.table import TableSchema
from tailrace.config import Config
from tailrace.connectors.consistent_read import TouchedKeys
from tailrace.connectors.mongodb.log.change_stream import ChangeStreamFeed, StreamSettings
from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.log.majority import Majority
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, Namespaces
from tailrace.connectors.mongodb.log.oplog import operation_time
from tailrace.connectors.mongodb.log.position import ChangePosition
from tailrace.connectors.mongodb.records import texts
from tailrace.connectors.mongodb.records.envelope import table_id
from tailrace.connectors.mongodb.records.images import images
from tailrace.connectors.mongodb.records.segment import STREAM, segments
from tailrace.connectors.mongodb.server.connection import Address, connect
from tailrace.connectors.mongodb.server.faults import explained
from tailrace.connectors.mongodb.server.routers import is_sharded
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.snapshot import chunks
from tailrace.errors import PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.log.contracts import Task
from tailrace.values.fragments import json_array

if TYPE_CHECKING:
    from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays

_AWAIT_MS = 50
"""The longest time for which the server may wait for changes, in ms."""


class ComparedDocuments:
    """Implements tailrace.connectors.consistent_read.ComparedSource."""

    form: SourceForm | None = None
    committed = ""

    def __init__(self, config: Config, settings: EventSettings) -> None:
        """Connect to the server. Raises PyMongo's errors and TailraceError."""
        self._config = config
        self._captured = CollectionFilter(config)
        self._namespaces = Namespaces(self._captured)
        self._read_upto = 0
        self._client = connect(Address.of(config))
        try:
            name = str(self._client.admin.command("hello").get("setName") or "")
            if is_sharded(self._client):
                raise PrerequisiteError(
                    "The collections of a sharded cluster cannot be compared: reading the documents takes a while, and "
                    "no router knows up to which time all shards have been read.",
                    "Compare the collections of a replica set.",
                )
        except BaseException:
            self.close()
            raise
        self._settings = MongoSettings.of(config, settings, name)
        self._majority = Majority(lambda: self._client)

    def take(self) -> None:
        explained(self._plan)()

    def _plan(self) -> None:
        config, client = self._config, self._client
        at = ChangePosition(operation_time(client))
        existing = chunks.collections(client, self._captured, self._settings.legacy)
        names = chunks.chosen(config, existing, self._captured)
        after = self._majority.after(names, at)
        planned = chunks.plan(client, names, after=after).chunks
        address, size = Address.of(config), config["snapshot.fetch.size"]
        self._tasks = [
            # with last=True the task of an empty chunk would repeat a document of another chunk
            chunks.SnapshotTask(address, replace(chunk, last=False), "", at, number, size, self._settings, after)
            for number, chunk in enumerate(planned)
        ]
        self.position = position_text(at.time)
        self.tables = tuple(TableSchema(table_id(name), (), ()) for name in names)

    def of_table(self, table: TableSchema) -> Sequence[Task]:
        return [task for task in self._tasks if table_id(task.chunk.namespace) == table.id]

    def is_running(self) -> bool | None:
        return None

    def is_told(self) -> bool:
        # no document that was read is newer than this timestamp; `touched` reads the log up to it
        self._read_upto = explained(lambda: operation_time(self._client))()
        return True

    def touched(self, table: TableSchema, after: str, upto: str) -> TouchedKeys:
        rows = explained(lambda: self._rows((table.id.schema, table.id.table), int(after, 16), int(upto, 16)))()
        found: set[bytes] = set()
        for parts in segments(rows, self._namespaces.names, STREAM).values():
            for part in parts:
                keys = texts.values(part.data, images(part).key, texts.key_form(self._settings))
                found.update(texts.unquoted(json_array(keys)).cast(pa.binary()).to_pylist())
        return TouchedKeys((tuple(sorted(found)),) if found else ())

    def _rows(self, name: Namespace, after: int, upto: int) -> list[ChangeArrays]:
        """Return the changes of a collection after the timestamp `after`, at least up to `upto` and the end of the
        reading."""
        most = max(upto, self._read_upto)
        stream = StreamSettings.of(self._config, self._captured)
        feed = ChangeStreamFeed(lambda: self._client, self._namespaces, stream, await_ms=_AWAIT_MS)
        # without a token a stream begins with the changes at the timestamp itself
        feed.open(ChangePosition(after))
        found: list[ChangeArrays] = []
        try:
            reached = 0
            while max(reached - 1, feed.caught_up_at) < most:
                run = feed.read()
                if run is None:
                    continue
                reached = run.reached.time
                numbers = [number for number, known in enumerate(self._namespaces.names) if known == name]
                own = np.isin(run.rows.namespace, numbers) & (run.rows.time > after)
                if own.any():
                    found.append(run.rows.part(np.flatnonzero(own)))
        finally:
            feed.close()
        return found

    def condition(self, names: Sequence[str], keys: Sequence[Sequence[Any]]) -> str:
        return json.dumps({"_id": {"$in": [json.loads(text) for (text,) in keys]}})

    def close(self) -> None:
        self._client.close()


def compared(config: Config, settings: EventSettings) -> ComparedDocuments:
    """Implements tailrace.connectors.consistent_read.Comparing."""
    return explained(lambda: ComparedDocuments(config, settings))()
