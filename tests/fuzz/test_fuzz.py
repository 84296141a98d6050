"""A short run of each fuzzer: kept inputs of earlier findings, the seeds, and inputs of the day's seed.

A full run is longer, and also feeds the inputs of a fixed seed. `make fuzz` runs for any time.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tests.extent import by_day, sized
from tests.fuzz import machine
from tests.fuzz.targets import TARGETS

SECONDS = sized(5, 30)
"""Seconds for each target after its corpus and its seeds."""
LASTING = 2026
TODAY = int(datetime.date.today().strftime("%Y%m%d"))
MOST = 100_000
"""Limit of inputs, so that a fast machine finds nothing that a slow one cannot reach."""
TOGETHER = [
    ("texts", "changetables"),
    ("pgoutput", "envelope"),
    ("mongodb",),
    ("binlog", "recorded"),
    ("offsets", "signals", "config"),
]
"""Targets that share a process, and so its imports and loaded kernels."""


def test_every_target_is_fed() -> None:
    assert sorted(name for names in TOGETHER for name in names) == sorted(TARGETS)


@pytest.mark.parametrize("names", by_day(TOGETHER, 2), ids=" ".join)
@pytest.mark.parametrize(
    "seed", [pytest.param(TODAY, id="today"), pytest.param(LASTING, id="lasting", marks=pytest.mark.full)]
)
def test_damaged_input_is_an_error_and_no_more(names: tuple[str, ...], seed: int, tmp_path: Path) -> None:
    found = []
    for name, report in machine.run_several(names, SECONDS, seed, tmp_path, MOST).items():
        again = f"--only {name} --seed {seed} --most {report.inputs}"
        print(f"{name}: {report.inputs} inputs; once more: make fuzz ARGS='{again}'")
        found += [f"--- make fuzz ARGS='{again}'\n{path.read_bytes()!r}\n{text}" for text, path in report.findings]
        assert report.inputs or found, name
    assert not found, "\n".join(found)
