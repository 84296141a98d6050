"""Durations of tests: every process of pytest writes them, and the runner reads and shows them at the end.

A plugin of pytest. If the environment variable `FILE` names a file, a line of JSON is appended to it for each phase of
each test: the test, the phase, its seconds and its outcome.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

FILE = "TAILRACE_TESTS_DURATIONS"
SLOWEST = 30
"""Number of tests that are shown."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the seconds of one phase of one test."""
    path = os.environ.get(FILE)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            print(json.dumps([report.nodeid, report.when, round(report.duration, 3), report.outcome]), file=file)


@dataclass(slots=True)
class Duration:
    """The seconds of one test, by phase."""

    part: str
    test: str
    setup: float = 0.0
    call: float = 0.0
    teardown: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds of all phases."""
        return self.setup + self.call + self.teardown


def read(folder: Path) -> list[Duration]:
    """Return the durations of all tests, from the files of the parts in the folder, the slowest first."""
    found: dict[tuple[str, str], Duration] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            test, phase, seconds, _ = json.loads(line)
            one = found.setdefault((path.stem, test), Duration(path.stem, test))
            setattr(one, phase, getattr(one, phase) + seconds)
    return sorted(found.values(), key=lambda one: -one.seconds)


def told(folder: Path, table: Path) -> None:
    """Print the slowest tests, from the files of the parts in the folder, and write all tests as a table."""
    tests = read(folder)
    if not tests:
        return
    rows = [
        f"{one.seconds:.3f}\t{one.setup:.3f}\t{one.call:.3f}\t{one.teardown:.3f}\t{one.part}\t{one.test}"
        for one in tests
    ]
    table.write_text("\n".join(["seconds\tsetup\tcall\tteardown\tpart\ttest", *rows, ""]), "utf-8")
    print(f"== the slowest tests, set-up and teardown included; all are in {table}")
    for one in tests[:SLOWEST]:
        print(f"{one.seconds:8.1f} s  {one.test}")
