"""Victims and the ways to kill them. Each returns a description in a few words, or None if there is nothing to kill."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.chaos.process import Tailrace
from tests.chaos.proxy import Proxy
from tests.chaos.source import Source
from tests.servers.kafka import Broker
from tests.servers.spark_cluster import SparkCluster


class Volume:
    """A small file system in memory that can be filled; needs root."""

    def __init__(self, folder: Path, megabytes: int = 1500) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tailrace-chaos", str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise OSError(done.stderr.strip() or "mount failed")

    def fill(self) -> int:
        """Write until nothing more fits. Return the number of bytes."""
        written = 0
        block = bytes(1 << 20)
        with (self.folder / "filled").open("wb", buffering=0) as file:
            with suppress(OSError):
                while True:
                    written += file.write(block)
            with suppress(OSError):
                while True:
                    written += file.write(b"\0" * 512)
        return written

    def free(self) -> None:
        (self.folder / "filled").unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class Scene:
    """Everything that can be killed."""

    source: Source
    proxy: Proxy
    tailrace: Tailrace
    choice: random.Random
    broker: Broker | None = None
    volume: Volume | None = None
    tend: Callable[[], None] = field(default=lambda: None)
    """Restarts the run if it has ended; called while a victim is away."""
    cluster: SparkCluster | None = None

    def away(self, seconds: float) -> None:
        """Wait while something is down."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.05)
            self.tend()


Kill = Callable[[Scene], str | None]


@dataclass(frozen=True)
class Victim:
    """A victim. `is_part` is True if the run may end by it; `weight` is its frequency."""

    kill: Kill
    is_part: bool
    weight: float


def _part(name: str) -> Kill:
    def kill(scene: Scene) -> str | None:
        scene.tailrace.remember()
        found = scene.tailrace.part(name)
        if not found:
            return None
        one = scene.choice.choice(found)
        with suppress(psutil.Error):
            one.kill()
        return f"process {one.pid}"

    return kill


def _terminate(scene: Scene) -> str | None:
    scene.tailrace.terminate()
    return "SIGTERM"


def _sessions(all_of_them: bool) -> Kill:
    return lambda scene: scene.source.end_sessions(scene.choice, all_of_them)


def _crash(scene: Scene) -> str | None:
    scene.source.crash()
    seconds = scene.choice.choice((0.0, 0.0, 0.5, 2.0))
    scene.away(seconds)
    scene.source.again()
    return f"the server, away for {seconds} s"


def _cut(scene: Scene) -> str | None:
    return f"{scene.proxy.cut()} connections"


def _tear(scene: Scene) -> str | None:
    return "in the midst of an answer" if scene.proxy.tear(3) else None


def _stall(scene: Scene) -> str | None:
    seconds = scene.choice.uniform(0.5, 5)
    scene.proxy.stall()
    try:
        scene.away(seconds)
        if scene.choice.random() < 0.5:
            scene.proxy.cut()
    finally:
        scene.proxy.flow()
    return f"nothing passed for {seconds:.1f} s"


def _broker(scene: Scene) -> str | None:
    if scene.broker is None:
        return None
    scene.broker.kill()
    seconds = scene.choice.choice((0.0, 1.0, 4.0))
    scene.away(seconds)
    scene.broker.again()
    return f"the broker, away for {seconds} s"


def _disk(scene: Scene) -> str | None:
    if scene.volume is None:
        return None
    seconds = scene.choice.uniform(1, 5)
    size = scene.volume.fill()
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.05)
    finally:
        scene.volume.free()
    return f"the disk, filled with {size >> 20} MB for {seconds:.1f} s"


def _executor(kind: str) -> Kill:
    def kill(scene: Scene) -> str | None:
        found = scene.cluster.processes(kind) if scene.cluster is not None else []
        if not found:
            return None
        one = scene.choice.choice(found)
        with suppress(psutil.Error):
            one.kill()
            one.wait(10)
        if kind == "worker" and scene.cluster is not None:
            scene.away(scene.choice.uniform(0, 4))
            scene.cluster.keep()
        return f"process {one.pid}"

    return kill


VICTIMS = {
    "driver": Victim(_part("driver"), True, 2),
    "jvm": Victim(_part("jvm"), True, 1.5),
    "planner": Victim(_part("planner"), True, 1.5),
    "worker": Victim(_part("worker"), True, 1),
    "term": Victim(_terminate, True, 1),
    "walsender": Victim(_sessions(False), False, 4),
    "backends": Victim(_sessions(True), False, 2),
    "crash": Victim(_crash, False, 2),
    "cut": Victim(_cut, False, 2),
    "tear": Victim(_tear, False, 2),
    "stall": Victim(_stall, False, 1),
    "broker": Victim(_broker, False, 2),
    "disk": Victim(_disk, True, 1),
}
"""The victims of every run; those of a cluster are in CLUSTER."""

CLUSTER = {
    "executor": Victim(_executor("executor"), False, 2),
    "executor python": Victim(_executor("python"), False, 2),
    "cluster worker": Victim(_executor("worker"), False, 1),
}


def environment(volume: Volume | None) -> dict[str, str]:
    """Return the environment that puts the run's spool into the small volume, if there is one."""
    return (
        {} if volume is None else {"TMPDIR": str(volume.folder), "SPARK_LOCAL_DIRS": os.environ.get("TMPDIR", "/tmp")}
    )
