"""The planner of a configuration, with its connector's dialect and form. Planner."""

from __future__ import annotations

from tailrace.config import Config
from tailrace.connectors.changetables import loading
from tailrace.connectors.changetables.planner import ChangeTablesPlanner
from tailrace.errors import ConfigError
from tailrace.events.event_settings import EventSettings


def planner(config: Config, settings: EventSettings) -> ChangeTablesPlanner:
    """Return the planner for Spark's source. Raises ConfigError for options that contradict each other."""
    if settings.blocks and config["snapshot.isolation.mode"] == "read_uncommitted":
        raise ConfigError(
            "snapshot.isolation.mode = read_uncommitted shows rows that are not committed: tables would keep them.",
            "Set another mode for a sink of tables.",
        )
    return ChangeTablesPlanner(config, settings, loading.dialect(config), loading.form(config.connector))
