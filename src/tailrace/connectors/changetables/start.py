"""The planner of a configuration: its connector's dialect and form, found by the connector's name. Planner."""

from __future__ import annotations

from importlib import import_module

from tailrace.config import Config
from tailrace.connectors.changetables.dialect import Dialect
from tailrace.connectors.changetables.planner import ChangeTablesPlanner
from tailrace.events.form import Form
from tailrace.events.settings import EventSettings


def planner(config: Config, settings: EventSettings) -> ChangeTablesPlanner:
    """The planner that Spark's source asks. Raises ConfigError for options that contradict each other."""
    return ChangeTablesPlanner(config, settings, dialect(config), form(config.connector))


def dialect(config: Config) -> Dialect:
    """The database's SQL, for the configuration; no I/O."""
    found: Dialect = import_module(f"tailrace.connectors.{config.connector}.dialect").dialect(config)
    return found


def form(connector: str) -> Form:
    """The connector's own part of events."""
    found: Form = import_module(f"tailrace.connectors.{connector}.form").FORM
    return found
