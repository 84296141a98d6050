"""The planner of a configuration: its connector's dialect and form, which the descriptor names. Planner."""

from __future__ import annotations

from tailrace.config import Config
from tailrace.connectors import registry
from tailrace.connectors.changetables.dialect import Dialect
from tailrace.connectors.changetables.planner import ChangeTablesPlanner
from tailrace.connectors.descriptor import load
from tailrace.events.form import Form
from tailrace.events.settings import EventSettings


def planner(config: Config, settings: EventSettings) -> ChangeTablesPlanner:
    """The planner that Spark's source asks. Raises ConfigError for options that contradict each other."""
    return ChangeTablesPlanner(config, settings, dialect(config), form(config.connector))


def dialect(config: Config) -> Dialect:
    """The database's SQL, for the configuration; no I/O."""
    found: Dialect = load(registry.find(config.connector).dialect)(config)
    return found


def form(connector: str) -> Form:
    """The connector's own part of events."""
    found: Form = load(registry.find(connector).form)
    return found
