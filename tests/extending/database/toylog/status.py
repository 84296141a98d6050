"""What offsets say, for the status line."""

from __future__ import annotations

from tailrace.connectors.source_status import Offsets, SourceStatus


def describe(end: Offsets, newest: Offsets) -> SourceStatus:
    """How far the log was read."""
    if "line" not in end:
        return SourceStatus()
    return SourceStatus(position=f"line {end['line']}", lag_s=0.0 if end == newest else None)
