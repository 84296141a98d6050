"""CPU seconds and memory of all processes that take part in a measurement.

They are the descendants of two roots: this process (with the JVM, its Python processes, the broker and the clients) and
the server's postmaster.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType

import psutil

from tailrace.spark.startup.fork_server import PLANNER, shown

PARTS = ("driver", "planner", "workers", "jvm", "postgresql", "broker", "client")
PYTHON = ("driver", "planner", "workers")
INTERVAL = 0.2
"""Seconds between two looks at the processes."""


def part(command: Sequence[str], name: str) -> str:
    """Return the name in PARTS of a descendant of this process, by its command line or by a forked process's name."""
    if "kafka.Kafka" in command:
        return "broker"
    if any("org.apache.spark.deploy.SparkSubmit" in word for word in command):
        return "jvm"
    # a process that only waits for a forked one has the module in its command line, too
    if any(word.endswith("fork_client.py") for word in command):
        return "workers"
    if name == shown(PLANNER) or PLANNER in command:
        return "planner"
    if any(word.startswith("pyspark.") or "tailrace.spark.startup.fork_server" in word for word in command):
        return "workers"
    return "client"


@dataclass(slots=True)
class Usage:
    """CPU in seconds, memory in bytes, of one measurement. `python_parts` are the parts of `python_bytes`.

    `total_cpu` counts every process, ended processes too. `cpu` divides it by part, and lacks at most INTERVAL of a
    process that has ended. `other_cpu` is the time of the rest of the machine and of the hypervisor. Memory is the
    highest sum of the resident sizes at one time. Pages that forked workers share count for each worker, but only once
    in `shared_python_bytes`, the sum of the proportional sizes.
    """

    total_cpu: float = 0.0
    other_cpu: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)
    python_bytes: int = 0
    shared_python_bytes: int = 0
    python_parts: dict[str, int] = field(default_factory=dict)
    jvm_bytes: int = 0


class Meter:
    """A context manager that watches the processes on a thread; `usage` holds the result afterwards."""

    def __init__(self, postmaster: int) -> None:
        self.usage = Usage()
        self._postmaster = postmaster
        self._first: dict[tuple[int, float], float] = {}
        self._last: dict[tuple[int, float], float] = {}
        self._parts: dict[tuple[int, float], str] = {}
        self._total_before = 0.0
        self._total = 0.0
        self._machine_before = 0.0
        self._looks = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Meter:
        self._look()
        self._first = dict(self._last)
        self._total_before = self._total
        self._machine_before = _machine()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self._look()
        spent: dict[str, float] = defaultdict(float)
        for key, seconds in self._last.items():
            spent[self._parts.get(key, "client")] += seconds - self._first.get(key, 0.0)
        self.usage.cpu = {name: round(spent[name], 2) for name in PARTS}
        self.usage.total_cpu = self._total - self._total_before
        self.usage.other_cpu = max(0.0, _machine() - self._machine_before - self.usage.total_cpu)

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        me = os.getpid()
        total = 0.0
        resident: dict[str, int] = defaultdict(int)
        proportional = 0
        # The kernel walks every mapping for a proportional size: five times a second would disturb the measurement.
        self._looks += 1
        shares = self._looks % 5 == 0
        for root in (me, self._postmaster):
            parent = psutil.Process(root)
            for process in (parent, *parent.children(recursive=True)):
                try:
                    # The system reuses process numbers, but not identities.
                    key = (process.pid, process.create_time())
                    with process.oneshot():
                        times = process.cpu_times()
                        # A process adds the times of its children to its own account when it takes notice of their
                        # end; until then, as a zombie, one still has its times, but no memory and no command.
                        total += times.user + times.system + times.children_user + times.children_system
                        self._last[key] = times.user + times.system
                        # Read each time: between fork and exec a process looks like its parent.
                        # A process that ends has no command line any more, and keeps its part.
                        command = process.cmdline()
                        if command or key not in self._parts:
                            self._parts[key] = self._part(process, command, root, me)
                        found = self._parts[key]
                        size = process.memory_info().rss
                        if found in PYTHON and shares:
                            proportional += process.memory_full_info().pss
                        # There is one JVM: a second one is a copy of it that is about to start a program.
                        resident[found] = max(resident[found], size) if found == "jvm" else resident[found] + size
                except (psutil.NoSuchProcess, psutil.ZombieProcess):
                    continue
        self._total = total
        python = {name: resident[name] for name in PYTHON}
        if sum(python.values()) > self.usage.python_bytes:
            self.usage.python_bytes, self.usage.python_parts = sum(python.values()), python
        self.usage.shared_python_bytes = max(self.usage.shared_python_bytes, proportional)
        self.usage.jvm_bytes = max(self.usage.jvm_bytes, resident["jvm"])

    @staticmethod
    def _part(process: psutil.Process, command: Sequence[str], root: int, me: int) -> str:
        if root != me:
            return "postgresql"
        return "driver" if process.pid == me else part(command, process.name())


def _machine() -> float:
    """Return the busy seconds of all cores since the start of the system."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
