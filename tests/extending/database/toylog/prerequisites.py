"""What is asked before a run: whether the log is there and can be read."""

from __future__ import annotations

from tailrace.config import Config
from tailrace.connectors.findings import Finding
from tailrace.errors import ConnectionFailed
from toylog import log


def demand(config: Config) -> list[Finding]:
    """What was found; raises ConnectionFailed where there is no log."""
    return [Finding("ok", "log", f"{log.head(config['log.file'])} changes.")]


def check(config: Config) -> list[Finding]:
    """The same, with what is missing as a finding."""
    try:
        return demand(config)
    except ConnectionFailed as error:
        return [Finding("error", "log", error.message, error.remedy)]
