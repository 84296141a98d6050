"""Settings of events for tests, without a configuration around them."""

from __future__ import annotations

from typing import Any

from tailrace.connectors.registry import find
from tailrace.events.event_settings import TODAY, EventSettings


def event_settings(
    logical_name: str, database: str, connector: str = "postgres", event_format: str = TODAY, **more: Any
) -> EventSettings:
    """Return the settings of the connector `connector`, with the fields in `more`."""
    traits = find(connector).traits
    of_connector: dict[str, Any] = {
        "connector": traits.event_name,
        "version": traits.versions[event_format],
        "several_databases": traits.several_databases,
        "schema_changes_name_database": traits.schema_changes_name_database,
        "has_schemas": traits.has_schemas,
        "skips_changes": traits.skips_changes,
    }
    return EventSettings(logical_name, database, event_format=event_format, **(of_connector | more))
