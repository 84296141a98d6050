"""Sending of signals: a signal is a line of the log, a change of the table `signal.data.collection`."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tailrace.config import Config
from tailrace.config.filters import table_name
from tailrace.snapshot.signals import Signal


def send(config: Config, signal: Signal) -> str:
    """Write the line; return the table's name."""
    name = str(config["signal.data.collection"])
    row = {"id": 0, "item": f"{signal.type} {signal.id}"}
    line = {"op": "c", "table": table_name(name)[1], "before": None, "after": row, "at_us": time.time_ns() // 1000}
    with Path(config["log.file"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return name
