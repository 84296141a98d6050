"""DocumentEventRouter: EventRouter for an outbox whose rows are documents, over their fields."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from tailrace.columns.logical import INT64, semantic
from tailrace.connectors import registry
from tailrace.errors import ConfigError
from tailrace.records.layout import RecordLayout, Struct
from tailrace.records.nodes import is_envelope, op_of, with_type
from tailrace.records.transform import Rewritten
from tailrace.transforms.outbox.event_router import EventRouter, event_router

_OWN = {
    "collection.field.event.id": "table.field.event.id",
    "collection.field.event.key": "table.field.event.key",
    "collection.field.event.type": "table.field.event.type",
    "collection.field.event.payload": "table.field.event.payload",
    "collection.field.event.timestamp": "table.field.event.timestamp",
    "collection.field.event.schema.version": "table.field.event.schema.version",
    "collection.fields.additional.placement": "table.fields.additional.placement",
    "collection.field.additional.missing": "table.field.additional.missing",
    "collection.fields.additional.error.on.missing": "table.fields.additional.error.on.missing",
}
"""Option names here, and their names in EventRouter."""
_EXPANDS, _INVALID = "collection.expand.json.payload", "table.op.invalid.behavior"
_SHARED = ("route.", "tracing.", _INVALID)
_IDLE = "collection.op.invalid.behavior"
_MOMENT = semantic(INT64, "io.debezium.time.Timestamp")


@dataclass(frozen=True, slots=True)
class DocumentEventRouter:
    """A records.transform.Transform. A payload that is a document becomes a JSON text, unless `expands`."""

    router: EventRouter
    expands: bool
    notices: tuple[str, ...] = ()

    @property
    def places_partitions(self) -> bool:
        """True if records may name their partition."""
        return self.router.places_partitions

    @property
    def places_times(self) -> bool:
        """True if records have a timestamp of their own."""
        return self.router.places_times

    def route(self, topic: str) -> str:
        return self.router.route(topic)

    def rewrite(self, record: RecordLayout) -> Rewritten:
        if record.value is None or not is_envelope(record) or op_of(record.value) not in ("c", "r"):
            return self.router.rewrite(record)
        text = "" if self.expands else self.router.payload
        return registry.documents().opened(record, partial(self._routed, record), text)

    def _routed(self, record: RecordLayout, row: Struct) -> Rewritten:
        envelope = record.value
        assert isinstance(envelope, Struct)
        moment = row.part(self.router.timestamp) if self.router.timestamp else None
        if moment is not None and moment.type.connect == "int64" and moment.type.name is None:
            row = row.with_part(self.router.timestamp, with_type(moment, _MOMENT))
        return self.router.rewrite(replace(record, value=envelope.without("after").with_part("after", row)))


def document_event_router(options: Mapping[str, str]) -> DocumentEventRouter:
    """Make the transform from its options. Raises ConfigError."""
    given = dict(options)
    expands = given.pop(_EXPANDS, "").strip().lower()
    if expands not in ("", "true", "false"):
        raise ConfigError(f"{_EXPANDS} must be true or false.", "Correct the options of the transform.")
    for name in given:
        if name not in _OWN and name != _IDLE and not name.startswith(_SHARED):
            close = difflib.get_close_matches(name, (*_OWN, _EXPANDS, _INVALID), n=1)
            nearest = f"; the nearest is {close[0]}" if close else ""
            raise ConfigError(f"It has no option {name}{nearest}.", "Correct the options of the transform.")
    idle = f"{_IDLE} has no effect: {_INVALID} is what Debezium reads." if given.pop(_IDLE, None) is not None else ""
    taken = {"table.field.event.id": "_id"}
    for name, text in given.items():
        own = _OWN.get(name, name)
        if text.strip() or own not in taken:
            taken[own] = text
    try:
        router = event_router(taken)
    except ConfigError as error:
        raise ConfigError(_renamed(error.message), error.remedy) from None
    notices = tuple(map(_renamed, router.notices))
    return DocumentEventRouter(replace(router, notices=()), expands == "true", (*notices, *filter(None, [idle])))


def _renamed(text: str) -> str:
    """Replace option names of EventRouter in a message with the names used here."""
    for own, shared in _OWN.items():
        text = text.replace(shared, own)
    return text
