"""Half a minute of each fuzzer, the same inputs each time; `make fuzz` runs others, for as long as is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import machine
from tests.fuzz.targets import TARGETS

SECONDS = 30
SEED = 2026
MOST = 100_000
"""So that a fast machine feeds no inputs that no other has fed."""


@pytest.mark.parametrize("name", list(TARGETS))
def test_damaged_input_is_an_error_and_no_more(name: str, tmp_path: Path) -> None:
    report = machine.run(name, SECONDS, SEED, tmp_path, MOST)
    told = "\n".join(f"--- {path}\n{path.read_bytes()!r}\n{text}" for text, path in report.findings)
    assert not report.findings, f"seed {SEED}, {report.inputs} inputs\n{told}"
    assert report.inputs > 0
