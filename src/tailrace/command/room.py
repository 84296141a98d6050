"""The room that a run needs: memory of its processes, disk for waiting changes and for the checkpoint. Driver."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tailrace.config.files import RunConfig
from tailrace.connectors.findings import Finding
from tailrace.process import disk

_HEAP = "spark.driver.memory"
_DEFAULT = "2g"
_UNITS = {"": 1 << 20, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# Memory of a JVM beside its heap, and of a planner or a worker. A batch adds to it.
_BESIDE, _PYTHON = 300 << 20, 150 << 20
_WORKERS = 4
_WAITS_IN_MEMORY, _WAITS_ON_DISK = 128 << 20, 1 << 30
_CHECKPOINT = 100 << 20


def findings(run: RunConfig, conf: Mapping[str, str], *, local: bool = True) -> list[Finding]:
    """Compare the memory and disk that a run may need with what the driver's host has free.

    Returns a finding of level ok, or a warning for each that is short.
    """
    heap = size(conf.get(_HEAP, _DEFAULT))
    has_spool = "max.batch.size.in.bytes" in run.source
    waits = run.source.get("max.queue.size.in.bytes") or _WAITS_IN_MEMORY + _WAITS_ON_DISK
    on_disk = max(0, waits - _WAITS_IN_MEMORY) if has_spool else 0
    workers = min(_WORKERS, os.cpu_count() or 1) if local else 0
    memory = heap + _BESIDE + (1 + workers) * _PYTHON + (min(waits, _WAITS_IN_MEMORY) if has_spool else 0)
    found = []
    free = available()
    if free is not None and free < memory:
        found.append(
            Finding(
                "warning",
                "memory",
                f"The run may need {_shown(memory)} of memory, {_shown(heap)} of it as the JVM's heap, and "
                f"{_shown(free)} are free.",
                f"Give it more, or a smaller heap: --conf {_HEAP}=1g.",
            )
        )
    temporary = Path(disk.temporary().directory)
    for place, needed, what, remedy in (
        (temporary, on_disk, "changes that wait for Spark", "Name another directory in TMPDIR, or make room"),
        (run.checkpoint, _CHECKPOINT, "the checkpoint", "Name another directory in checkpoint.location, or make room"),
    ):
        room = None if place is None else disk.free(place)
        if room is not None and room < needed:
            text = f"{place} has {_shown(room)} free, and {what} may need {_shown(needed)}."
            found.append(Finding("warning", "disk", text, f"{remedy}."))
    if found:
        return found
    text = f"The run may need {_shown(memory)} of memory, and {_shown(on_disk + _CHECKPOINT)} of disk; both are free."
    return [Finding("ok", "room", text)]


def size(text: str) -> int:
    """Return the bytes of a size as Spark writes it, 2g or 512m; a bare number is in MB. 0 if it is not understood."""
    found = re.fullmatch(r"\s*([0-9]+)\s*([bkmgt]?)b?\s*", text.lower())
    return int(found[1]) * _UNITS[found[2]] if found else 0


def available(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes of memory that its machine and its control group leave to this process; None if unknown.

    Memory that holds copies of files counts as free.
    """
    found = []
    try:
        line = re.search(r"^MemAvailable:\s+([0-9]+) kB$", (proc / "meminfo").read_text(), re.MULTILINE)
        found += [int(line[1]) << 10] if line else []
        # version 2: "max" if there is no limit
        group_line = re.search(r"^0::/?(.*)$", (proc / "self" / "cgroup").read_text(), re.MULTILINE)
        for group in (groups / group_line[1], groups) if group_line else ():
            limit = group / "memory.max"
            text = limit.read_text().strip() if limit.exists() else "max"
            if text.isdecimal():
                kept = re.search(r"^inactive_file ([0-9]+)$", (group / "memory.stat").read_text(), re.MULTILINE)
                used = int((group / "memory.current").read_text())
                found.append(max(0, int(text) - used + (int(kept[1]) if kept else 0)))
    except OSError:
        pass
    return min(found, default=None)


def _shown(count: int) -> str:
    return f"{count / (1 << 30):.1f} GB" if count >= 1 << 30 else f"{count >> 20} MB"
