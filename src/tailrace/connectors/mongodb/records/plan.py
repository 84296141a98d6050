"""CollectionPlan: the compiled layouts of a collection's records. Worker."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.records.envelope import key_layout, table_id, value_layout
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.events import names
from tailrace.events.headers import context
from tailrace.events.table_plan import AnyPlan, compiled_record
from tailrace.records.layout import RecordLayout
from tailrace.records.transform import LeftOutRecords, behind_delete, rewritten

TOMBSTONE = 0


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """The parts of a collection's records that are the same for all changes.

    `kept` caches the encodings of parts that depend only on the snapshot markers.
    """

    namespace: Namespace
    settings: MongoSettings
    kept: dict[Hashable, Any] = field(default_factory=dict, compare=False)
    _kinds: dict[int, AnyPlan | LeftOutRecords | None] = field(default_factory=dict, compare=False)

    def kind(self, code: int) -> AnyPlan | LeftOutRecords | None:
        """Return the plan for the records of an operation, or of tombstones for TOMBSTONE; None if a transform leaves
        them out.

        Raises RefusedRecord and ConversionError.
        """
        if code not in self._kinds:
            events = self.settings.events
            self._kinds[code] = compiled_record(rewritten(self._record(code), events.transforms), events)
        return self._kinds[code]

    def _record(self, code: int) -> RecordLayout:
        events = self.settings.events
        op = "tombstone" if code == TOMBSTONE else chr(code)
        value = None if code == TOMBSTONE else value_layout(self.namespace, self.settings, op)
        topic, key = names.own_topic(events, table_id(self.namespace)), key_layout(self.namespace, self.settings)
        made = RecordLayout(op, topic, key, value, context(events))
        return behind_delete(made, self._record(ord("d")), events.transforms) if code == TOMBSTONE else made


@lru_cache(maxsize=1024)
def collection_plan(namespace: Namespace, settings: MongoSettings) -> CollectionPlan:
    """Return the plan of a collection's records."""
    return CollectionPlan(namespace, settings)
