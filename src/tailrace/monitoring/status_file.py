"""The status of a pipeline in a file of its checkpoint, for `tailrace status` in another process. Driver."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.monitoring.observation import Observation

FILE = "tailrace-status.json"

WRITE_SECONDS = 2.0
_SHARE = 200
"""A write is followed by a pause of so many times its own duration."""


class StatusFile:
    """Writes an observation's state into `directory` every few seconds, and for the last time when it is closed."""

    def __init__(self, directory: Path, observation: Observation) -> None:
        self._path = directory / FILE
        self._observation = observation
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tailrace-status", daemon=True)

    def start(self) -> None:
        """Write the file from now on, in a thread of its own."""
        self.write()
        self._thread.start()

    def close(self) -> None:
        """Write the last state."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(5)
        self.write()

    def write(self) -> None:
        """Replace the file. A failure, for example of a full disk, leaves the old file."""
        part = self._path.with_suffix(".part")
        with suppress(OSError):
            part.write_text(json.dumps(self._observation.state()), "utf-8")
            os.replace(part, self._path)

    def _run(self) -> None:
        pause = WRITE_SECONDS
        while not self._closed.wait(pause):
            began_s = time.thread_time()
            self.write()
            pause = max(WRITE_SECONDS, _SHARE * (time.thread_time() - began_s))


def last_state(directory: Path, *, is_running: bool) -> dict[str, Any]:
    """Return the state that the latest run in `directory` has written.

    `is_running` is True if a run holds the checkpoint's lock. If the file says `starting` or `running` and no run holds
    the lock, the run was killed: its state becomes `lost`. Raises TailraceError if there is no state.
    """
    try:
        found: dict[str, Any] = json.loads((directory / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        raise TailraceError(
            f"No pipeline has written its status into {directory}.",
            "Start it with tailrace run, or check checkpoint.location and the working directory.",
        ) from None
    if found["state"] in ("starting", "running") and not is_running:
        found["state"], found["rate"], found["is_connected"] = "lost", 0.0, False
    return found
