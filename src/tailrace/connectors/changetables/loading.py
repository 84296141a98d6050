"""Loading of the two parts of a connector over change tables: its dialect and its part of events. No I/O."""

from __future__ import annotations

from tailrace.config import Config
from tailrace.connectors import registry
from tailrace.connectors.changetables.dialect import Dialect
from tailrace.connectors.descriptor import load
from tailrace.events.mapping import SourceForm


def dialect(config: Config) -> Dialect:
    """Return the connector's dialect for the configuration."""
    found: Dialect = load(registry.find(config.connector).dialect)(config)
    return found


def form(connector: str) -> SourceForm:
    """Return the connector's own part of events."""
    found: SourceForm = load(registry.find(connector).form)
    return found
