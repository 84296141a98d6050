"""Reports of tasks: a small file for each task of the running batch, which its worker writes and the planner reads.

A task that runs again writes the same file again, so its numbers count once. A killed worker leaves no report; the task
that replaces it writes one. Workers of another host or user do not see the directory: their tasks have no numbers.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.metrics.tally import Tally
from tailrace.process import temporary

Offset = dict[str, Any]
PARENT = "TAILRACE_METRICS"
"""Environment variable: the directory in which a planner makes its own; its owner removes it."""
FILE = "query.json"
"""The name of the planner's file with all numbers, in its directory."""
_PREFIX = "tailrace-metrics-"


def _folder() -> str:
    parent = os.environ.get(PARENT, "")
    return tempfile.mkdtemp(prefix=_PREFIX, dir=parent) if os.path.isdir(parent) else temporary.folder(_PREFIX)


@dataclass(frozen=True, slots=True)
class ReportPlace:
    """The file of one task's report. Picklable."""

    folder: str
    name: str

    def write(self, tally: Tally, began_s: float) -> None:
        """Write the report of a finished task that began at `began_s`, in s since 1970. Worker; never fails."""
        content = {"began_s": began_s, "ended_s": time.time(), **tally.to_json()}
        # a name of its own: two workers may run the task at the same time
        part = os.path.join(self.folder, f"{self.name}.{os.getpid()}.part")
        with suppress(OSError):
            with open(part, "w", encoding="utf-8") as file:
                file.write(json.dumps(content))
            os.replace(part, os.path.join(self.folder, f"{self.name}.json"))


@dataclass(slots=True)
class Reports:
    """The reports of the batch that Spark runs. Planner.

    `folder` is a directory that only this user can read. It is removed with the process, or with the directory that
    PARENT names.
    """

    folder: str = field(default_factory=_folder)
    _batch: tuple[Offset, Offset] | None = None
    _number: int = 0
    _count: int = 0

    def places(self, start: Offset, end: Offset, count: int) -> list[ReportPlace]:
        """Return the places for the tasks of the batch `(start, end]`: the same ones each time it is planned."""
        if (start, end) != self._batch:
            self._clear()
            self._batch = (start, end)
            self._number += 1
        self._count = count
        return [ReportPlace(self.folder, f"{self._number}-{task}") for task in range(count)]

    def delivered(self, start: Offset) -> list[dict[str, Any]] | None:
        """Return the reports of the batch that ends at `start`, once; None if there is no such batch.

        Spark has committed `start`. A task without a report is left out.
        """
        if self._batch is None or self._batch[1] != start:
            return None
        found = []
        for task in range(self._count):
            with suppress(OSError, ValueError):
                found.append(json.loads(Path(self.folder, f"{self._number}-{task}.json").read_text("utf-8")))
        self._clear()
        self._batch = None
        return found

    def _clear(self) -> None:
        """Remove all reports, also those of tasks that ended after their batch."""
        with suppress(OSError):
            for entry in os.scandir(self.folder):
                if entry.name[0].isdigit():
                    os.unlink(entry.path)
