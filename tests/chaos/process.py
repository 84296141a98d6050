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
    """Whether a process of Spark's runs the module, or makes those that do. Raises psutil.Error where it has ended."""
    command = process.cmdline()
    # those that only wait for a forked one name its module too
    waits = any(word.endswith("forked.py") for word in command)
    return not waits and (module in command or process.name() == shown(module))


class Tailrace:
    """One run after another of the same pipeline. What they print is in `folder`/run-N.log."""

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
        """What the latest run has printed."""
        path = self.folder / f"run-{self.runs}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def start(self, *more: str) -> None:
        """Start it, with `more` arguments. What an earlier run has left behind goes on until it ends by itself."""
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
        """The exit code, None while it runs; negative after a signal."""
        return None if self._process is None else self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None when it does not end in time."""
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
        """The running processes of a kind: driver, jvm, planner, plan, worker."""
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
        # the server that forks workers is a part as well as they are
        return found

    def kill(self) -> None:
        """End everything of the latest run."""
        for process in (*self.part("driver"), *self._left):
            with suppress(psutil.Error):
                process.kill()
        if self._process is not None:
            self._process.wait()

    def remember(self) -> None:
        """Note the children that there are, so that `kill` finds them when their parent is gone."""
        self.part("jvm")
