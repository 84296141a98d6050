"""`tailrace run` as a child process, as a user runs it, and the processes that are its parts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from tailrace.spark.startup.fork_server import PLANNER, shown
from tailrace.spark.startup.worker_main import TASKS

PARTS = {"planner": PLANNER, "worker": TASKS, "plan": "pyspark.sql.worker.plan_data_source_read"}
"""The modules that a query's Python processes run."""


def runs(process: psutil.Process, module: str) -> bool:
    """Return True if a process of Spark runs the module or forks processes that do. Raises psutil.Error if it has
    ended."""
    command = process.cmdline()
    # Processes that only wait for a forked one name its module, too.
    waits = any(word.endswith("fork_client.py") for word in command)
    return not waits and (module in command or process.name() == shown(module))


class Tailrace:
    """Successive runs of one pipeline, with their output in `folder`/run-N.log."""

    def __init__(self, folder: Path, arguments: list[str], environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._arguments = arguments
        self._environment = {**os.environ, **(environment or {})}
        self.runs = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.began = 0.0
        self._left: list[psutil.Process] = []

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def said(self) -> str:
        """Return the output of the latest run."""
        path = self.folder / f"run-{self.runs}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def start(self, *more: str) -> None:
        """Start a run with the further arguments `more`. Processes of an earlier run continue until they end by
        themselves."""
        self.runs += 1
        self.began = time.monotonic()
        with (self.folder / f"run-{self.runs}.log").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tailrace.command.cli", "run", *self._arguments, *more],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self) -> int | None:
        """Return the exit code, None while it runs; negative after a signal."""
        return None if self._process is None else self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, or None if the run does not end in time."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Ask for a regular stop."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def part(self, name: str) -> list[psutil.Process]:
        """Return the running processes of a kind: driver, jvm, planner, plan, worker."""
        if self._process is None or self._process.poll() is not None:
            return []
        try:
            driver = psutil.Process(self._process.pid)
            if name == "driver":
                return [driver]
            children = driver.children(recursive=True)
        except psutil.Error:
            return []
        self._left = children
        found = []
        for child in children:
            with suppress(psutil.Error):
                if "java" in child.name() if name == "jvm" else runs(child, PARTS[name]):
                    found.append(child)
        # The server that forks workers is such a part, too.
        return found

    def kill(self) -> None:
        """Kill all processes of the latest run."""
        for process in (*self.part("driver"), *self._left):
            with suppress(psutil.Error):
                process.kill()
        if self._process is not None:
            self._process.wait()

    def remember(self) -> None:
        """Note the present children, so that `kill` finds them when their parent is gone."""
        self.part("jvm")
