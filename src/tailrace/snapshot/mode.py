"""SnapshotMode: the effects of `snapshot.mode` and its switches. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

_SWITCH = "snapshot.mode.configuration.based."


@dataclass(frozen=True, slots=True)
class SnapshotMode:
    """A snapshot mode: when a snapshot is taken, and whether the log is read.

    `reads`: a snapshot is taken `never`, `once` for a query without a position, or at `each start` that does not resume
    an unfinished snapshot. `mends`: a snapshot is also taken when the log no longer reaches the position. `streams`:
    the log is read after the snapshot.
    """

    reads: Literal["never", "once", "each start"]
    mends: bool = False
    streams: bool = True


_MODES = {
    "initial": SnapshotMode("once"),
    "initial_only": SnapshotMode("once", streams=False),
    "always": SnapshotMode("each start"),
    "no_data": SnapshotMode("never"),
    "when_needed": SnapshotMode("once", mends=True),
    # the definitions of tables are read again, but no rows
    "recovery": SnapshotMode("never"),
}


def snapshot_mode(config: Mapping[str, Any]) -> SnapshotMode:
    """Return the mode of a parsed configuration, in which older names of modes have been replaced."""
    name = config["snapshot.mode"]
    mode = _MODES[name] if name != "configuration_based" else _chosen(config)
    # not every connector has the option
    response = config.get("on.data.loss")
    if response == "stop":
        return replace(mode, mends=False)
    return replace(mode, mends=True) if mode.streams and response == "resnapshot" else mode


def _chosen(config: Mapping[str, Any]) -> SnapshotMode:
    return SnapshotMode(
        "each start" if config[f"{_SWITCH}snapshot.data"] else "never",
        config[f"{_SWITCH}snapshot.on.data.error"],
        config[f"{_SWITCH}start.stream"],
    )
