"""The checks before a run: the log exists and can be read."""

from __future__ import annotations

from tailrace.config import Config
from tailrace.connectors.findings import Finding
from tailrace.errors import ConnectionFailed
from toylog import log


def demand(config: Config) -> list[Finding]:
    """Return the findings; raises ConnectionFailed if the log cannot be read."""
    return [Finding("ok", "log", f"{log.head(config['log.file'])} changes.")]


def check(config: Config) -> list[Finding]:
    """Return the findings, including an error as a finding."""
    try:
        return demand(config)
    except ConnectionFailed as error:
        return [Finding("error", "log", error.message, error.remedy)]
