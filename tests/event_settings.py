"""Settings of events for tests: those of a connector in one of its forms, without a configuration around them."""

from __future__ import annotations

from typing import Any

from tailrace.connectors.registry import find
from tailrace.events.event_settings import TODAY, EventSettings


def event_settings(
    logical_name: str, database: str, connector: str = "postgres", event_format: str = TODAY, **more: Any
) -> EventSettings:
    """The settings of the connector called `connector`, with the fields that `more` names."""
    traits = find(connector).traits
    of_connector: dict[str, Any] = {
        "connector": traits.event_name,
        "version": traits.versions[event_format],
        "several_databases": traits.several_databases,
        "schema_changes_name_database": traits.schema_changes_name_database,
    }
    return EventSettings(logical_name, database, event_format=event_format, **(of_connector | more))
