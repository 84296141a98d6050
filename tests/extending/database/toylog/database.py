"""Access to the file of lines, and what asks it before a run. A position is the number of lines before it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tailrace.config import Config
from tailrace.config.filters import table_name
from tailrace.connectors.findings import Finding
from tailrace.connectors.source_status import Offsets, SourceStatus
from tailrace.errors import ConnectionFailed, DecodeError
from tailrace.snapshot.signals import Signal

Row = dict[str, Any]
Change = tuple[int, Row]
"""A change, and the position after it."""


def lines(path: str, start: int = 0) -> list[bytes]:
    """Return the complete lines after a position. Raises ConnectionFailed."""
    try:
        return Path(path).read_bytes().split(b"\n")[start:-1]
    except OSError as error:
        raise ConnectionFailed(f"The log {path} cannot be read: {error.strerror}.", "Check log.file.") from None


def parsed(number: int, line: bytes) -> Change:
    """Return the change in a line. Raises DecodeError."""
    try:
        return number, json.loads(line)
    except ValueError:
        raise DecodeError(f"Line {number} of the log is no JSON.") from None


def tables(path: str, position: int) -> dict[str, dict[int, Row]]:
    """Return the rows of all tables at a position, by table and key, each as the change that has made it.

    That is what SELECT says in other databases.
    """
    found: dict[str, dict[int, Row]] = {}
    for _, change in (parsed(number, line) for number, line in enumerate(lines(path)[:position], 1)):
        rows = found.setdefault(change["table"], {})
        if change["before"] is not None:
            rows.pop(change["before"]["id"], None)
        if change["after"] is not None:
            rows[change["after"]["id"]] = change
    return found


def demand(config: Config) -> list[Finding]:
    """Return the findings; raises ConnectionFailed if the log cannot be read."""
    return [Finding("ok", "log", f"{len(lines(config['log.file']))} changes.")]


def check(config: Config) -> list[Finding]:
    """Return the findings, including an error as a finding."""
    try:
        return demand(config)
    except ConnectionFailed as error:
        return [Finding("error", "log", error.message, error.remedy)]


def send(config: Config, signal: Signal) -> str:
    """Write a signal as a row of the table `signal.data.collection`; return the table's name."""
    name = str(config["signal.data.collection"])
    row = {"id": signal.id, "type": signal.type, "data": signal.data}
    line = {"op": "c", "table": table_name(name)[1], "before": None, "after": row, "at_us": time.time_ns() // 1000}
    with Path(config["log.file"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return name


def describe(end: Offsets, newest: Offsets) -> SourceStatus:
    """Return the position up to which the log was read, and the lag if it is known."""
    if end.get("line", -1) < 0:
        return SourceStatus()
    return SourceStatus(position=f"line {end['line']}", lag_s=0.0 if end["line"] == newest.get("line") else None)
