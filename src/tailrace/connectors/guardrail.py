"""`guardrail.collections.max`: the number of tables or collections that a query may capture. Planner."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tailrace.errors import ConfigError

log = logging.getLogger("tailrace")


def guard_number(config: Mapping[str, Any], count: int, what: str = "tables") -> None:
    """Warn or raise ConfigError if `count` exceeds the limit, as `guardrail.collections.limit.action` says."""
    most = config["guardrail.collections.max"]
    if not most or count <= most:
        return
    text = f"{count} {what} are captured, more than guardrail.collections.max = {most}"
    if config["guardrail.collections.limit.action"] == "fail":
        raise ConfigError(f"{text}.", f"Capture fewer {what} by the include lists, or raise the limit.")
    log.warning("%s", text)
