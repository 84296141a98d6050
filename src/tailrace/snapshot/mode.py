"""SnapshotMode: the meaning of `snapshot.mode` and its switches, in three answers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

_SWITCH = "snapshot.mode.configuration.based."


@dataclass(frozen=True, slots=True)
class SnapshotMode:
    """A snapshot mode: when a snapshot is taken, and whether the log is read.

    `reads`: a snapshot is taken never, `once` for a query without position, or at `each start` that does not resume an
    unfinished one. `mends`: one is also taken when the log no longer reaches the position. `streams`: the log is read
    after it.
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
    # definitions of tables are read anew, and no rows
    "recovery": SnapshotMode("never"),
}


def snapshot_mode(config: Mapping[str, Any]) -> SnapshotMode:
    """Return the mode of a configuration, in which `parse` has replaced older words."""
    name = config["snapshot.mode"]
    found = _MODES[name] if name != "configuration_based" else _chosen(config)
    # one connector has the option
    response = config.get("on.data.loss")
    if response == "stop":
        return replace(found, mends=False)
    return replace(found, mends=True) if found.streams and response == "resnapshot" else found


def _chosen(config: Mapping[str, Any]) -> SnapshotMode:
    return SnapshotMode(
        "each start" if config[f"{_SWITCH}snapshot.data"] else "never",
        config[f"{_SWITCH}snapshot.on.data.error"],
        config[f"{_SWITCH}start.stream"],
    )
