"""The command `tailrace status`: shows a pipeline's state from the status file in its checkpoint. Without Spark."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

from tailrace.config.files import RunConfig
from tailrace.errors import ConfigError
from tailrace.monitoring.status import duration, size
from tailrace.monitoring.status_file import last_state
from tailrace.spark.lock import is_held

SHOWN = 20
"""The most tables that are shown; --json has all."""

_WATCH_S = 2.0
_LOST = "The process that ran it is gone without an error: it was killed, or the machine was stopped."


def show(
    run: RunConfig,
    *,
    is_json: bool,
    is_watched: bool,
    out: TextIO = sys.stdout,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Print the status; with `is_watched` repeat this until Ctrl-C. Return the exit code 0.

    Raises ConfigError if the checkpoint is not local, TailraceError if no run has written a status.
    """
    directory = run.checkpoint
    if directory is None:
        raise ConfigError(
            f"The checkpoint {run.checkpoint_location} is not in a local file system, so its status cannot be read.",
            "Ask the pipeline itself: http.port gives it /status.",
        )
    while True:
        state = last_state(directory, is_running=is_held(directory))
        text = json.dumps(state) if is_json else "\n".join(lines(state))
        clear = "\x1b[H\x1b[2J" if is_watched and not is_json and out.isatty() else ""
        out.write(f"{clear}{text}\n")
        out.flush()
        if not is_watched:
            return 0
        sleep(_WATCH_S)


def lines(state: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a state."""
    yield f"{state['pipeline']} ({state['connector']}): {state['state']} since {_time(_since(state))}"
    if state["state"] == "lost":
        yield f"  {_LOST}"
    if state["error"]:
        yield f"  {state['error']['message']} (exit code {state['error']['exit_code']})"
        yield f"  {state['error']['remedy']}"
    lag = [size(state["lag_bytes"])] if state["lag_bytes"] is not None else []
    lag += [f"{state['lag_s']:.1f} s"] if state["lag_s"] is not None else []
    yield (
        f"  {state['rate']:,.0f} events/s · {state['events']:,} in all · lag {' / '.join(lag) or 'unknown'} · "
        f"{state['quarantined']:,} quarantined"
    )
    batch = "no batch since the start" if state["batch"] is None else f"batch {state['batch']}"
    at = f" · at {state['position']}" if state["position"] else ""
    yield f"  {batch}{at} · {size(state['spool']['bytes'])} in the spool"
    yield f"  source {'connected' if state['is_connected'] else 'not connected'}"
    snapshot = state["snapshot"]
    if snapshot["state"]:
        done = f" {snapshot['done']} of {snapshot['of']} {snapshot['unit']}" if snapshot["of"] else ""
        yield f"  snapshot {snapshot['state']}{done} · {duration(snapshot['seconds'])}"
    for word, names in state["commands"].items():
        yield f"  {word} by a command: {', '.join(names)}"
    for slot in state["slots"]:
        yield f"  slot {_slot(slot)}"
    if state["log"].get("percent") is not None:
        kept, behind = state["log"]["lasting_s"] or state["log"]["kept_s"], state["log"]["behind_s"]
        yield f"  log kept for {duration(kept)} · {duration(behind)} behind, {state['log']['percent']:.0f} % of it"
    for table in state["tables"][:SHOWN]:
        events = " ".join(f"{op} {count:,}" for op, count in table["events"].items() if count)
        aside = f" · {table['quarantined']:,} quarantined" if table["quarantined"] else ""
        yield f"  {table['table']}: {table['phase']} · {events or 'no changes'}{aside}"
    if len(state["tables"]) > SHOWN:
        yield f"  and {len(state['tables']) - SHOWN} more tables; --json has all"


def _since(state: dict[str, Any]) -> float:
    """Return the time at which the state began, in seconds since 1970."""
    if state["state"] == "lost":
        return float(state["at_s"])
    return float(state["started_s"] if state["ended_s"] is None else state["ended_s"])


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _slot(slot: dict[str, Any]) -> str:
    parts = [f"{slot['name']}{' (this pipeline)' if slot['is_own'] else ''}"]
    parts.append(f"{'read' if slot['is_active'] else 'not read'}, {slot['status']}")
    if slot["retained_bytes"] is not None:
        limit = "no limit" if slot["limit_bytes"] is None else f"of {size(slot['limit_bytes'])}"
        parts.append(f"retains {size(slot['retained_bytes'])} {limit}")
    if slot["limit_s"] is not None:
        parts.append(f"full in {duration(slot['limit_s'])} at this rate")
    return " · ".join(parts)
