"""The status line's view of offsets."""

from __future__ import annotations

from tailrace.connectors.source_status import Offsets, SourceStatus


def describe(end: Offsets, newest: Offsets) -> SourceStatus:
    """Return the position up to which the log was read, and the lag if it is known."""
    if "line" not in end:
        return SourceStatus()
    return SourceStatus(position=f"line {end['line']}", lag_s=0.0 if end == newest else None)
