"""MongoSettings: the settings of MongoDB's events, in addition to the settings of all connectors. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.events.event_settings import EventSettings


@dataclass(frozen=True, slots=True)
class MongoSettings:
    """The settings that turn documents and changes into events. Picklable; made by the planner, used by workers.

    `events` are the settings of every connector; `replica_set` is the field `rs` in source blocks of the 1.1 format.
    `excluded` and `renames` are the entries of field.exclude.list and field.renames. `old_source` asks for the source
    block of source.struct.version=v1. `looks_up` is True if documents are looked up some time after their update.
    """

    events: EventSettings
    replica_set: str = ""
    excluded: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()
    old_source: bool = False
    looks_up: bool = True

    @property
    def legacy(self) -> bool:
        """True if events have the format of Debezium 1.1: after, patch and filter."""
        return self.events.event_format == "1.1"

    @classmethod
    def of(cls, config: Mapping[str, Any], events: EventSettings, replica_set: str) -> MongoSettings:
        # Debezium's default strategy names collections with their database
        return cls(
            replace(events, naming=replace(events.naming, by_schema=True)),
            replica_set,
            tuple(config.get("field.exclude.list") or ()),
            tuple(config.get("field.renames") or ()),
            config.get("source.struct.version") == "v1",
            config.get("capture.mode.full.update.type") != "post_image",
        )
