"""The seeds of the day, and the commands that run a history again."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.simulation import course
from tests.simulation.course import Totals
from tests.simulation.kinds import KINDS

A_DAY = 10_000
"""The number of seeds of a day."""


@functools.cache
def of_the_day() -> int:
    """Return the first seed of the day: its date and four zeros. The day stays the same while the process runs."""
    return int(f"{datetime.now(UTC):%Y%m%d}") * A_DAY


def command(connector: str, histories: int, seed: int | str) -> str:
    """Return the command that runs histories of a kind, from a seed on."""
    return f"python -m tests.simulation --connector {connector} --histories {histories} --seed {seed}"


def run(connector: str, seeds: Sequence[int]) -> Totals:
    """Run histories of a kind. An error gets a note with the command that runs its history again."""
    return course.run(KINDS[connector], seeds, command(connector, 1, "{seed}"))
