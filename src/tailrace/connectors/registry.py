"""Which modules serve which connector, by the names of the tables of options. Nothing is imported before it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.connectors.base import Planner
from tailrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailrace.connectors.source_status import Offsets, SourceStatus
    from tailrace.events.settings import EventSettings
    from tailrace.snapshot.signals import Signal

_PLANNERS = {
    "postgres": "postgres.patience:PatientPlanner",
    "mongodb": "mongodb.planner:MongoPlanner",
    "sqlserver": "changetables.start:planner",
    "db2": "changetables.start:planner",
}


def planner(config: Config, settings: EventSettings) -> Planner:
    """The planner of a configuration's connector; no I/O. Planner."""
    module, _, name = _PLANNERS[_known(config)].partition(":")
    made: Planner = getattr(import_module(f"tailrace.connectors.{module}"), name)(config, settings)
    return made


def prerequisites(config: Config) -> Any:
    """The module that checks a server before a run: `demand(config)` and `check(config)` give findings. Driver."""
    return import_module(f"tailrace.connectors.{_known(config)}.prerequisites")


_SENDERS = {
    "postgres": "postgres.signal_table:send",
    "mongodb": "mongodb.signalling:send",
    "sqlserver": "changetables.signalling:send",
    "db2": "changetables.signalling:send",
}


def write_signal(config: Config, signal: Signal) -> str:
    """Write a signal where the configuration's `signal.data.collection` says; returns the name of that. Driver."""
    module, _, name = _SENDERS[_known(config)].partition(":")
    return str(getattr(import_module(f"tailrace.connectors.{module}"), name)(config, signal))


_STATUS = {
    "postgres": "postgres.status",
    "mongodb": "mongodb.status",
    "sqlserver": "changetables.status",
    "db2": "changetables.status",
}


def describe(config: Config) -> Callable[[Offsets, Offsets], SourceStatus]:
    """What reads offsets of a configuration's connector, the end of a batch and the newest, for a person. Driver."""
    module = import_module(f"tailrace.connectors.{_STATUS[_known(config)]}")
    found: Callable[[Offsets, Offsets], SourceStatus] = module.describe
    return found


def _known(config: Config) -> str:
    if config.connector not in _PLANNERS:
        raise ConfigError(f"The connector {config.connector} cannot run yet.", f"Known are: {', '.join(_PLANNERS)}.")
    return config.connector
