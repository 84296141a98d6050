"""The machine for a bounded time, in its most important mixes. Seeds are random and printed: run one again by hand.

python -m tests.chaos --seed N --sink … --order …
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.chaos.__main__ import HEAD, line, tell
from tests.chaos.machine import Machine, Options
from tests.servers.jars import Unavailable
from tests.servers.kafka import fetch

SECONDS = 45.0
"""The time of each mix in which kills are made; to start, finish and compare takes half as long again."""
INSIDE = ("driver", "jvm", "planner", "worker", "term")
OUTSIDE = ("walsender", "backends", "crash", "cut", "stall", "broker")


@pytest.mark.parametrize(
    ("sink", "order", "only"),
    [("file", "topic", OUTSIDE), ("kafka", "key", OUTSIDE), ("file", "key", (*INSIDE, "walsender", "crash"))],
    ids=["files-server", "kafka-server", "files-run"],
)
def test_nothing_is_lost_whatever_is_killed(tmp_path: Path, sink: str, order: str, only: tuple[str, ...]) -> None:
    if sink == "kafka":
        try:
            fetch()
        except Unavailable as reason:
            pytest.skip(str(reason))
    options = Options(
        seed=secrets.randbelow(1 << 30), kills=1000, each=1000, sink=sink, order=order, only=only, seconds=SECONDS,
        folder=tmp_path,
    )  # fmt: skip
    with Machine(options) as machine:
        print(f"\nseed {options.seed}\n{HEAD}", flush=True)
        for one in machine.rounds():
            print(line(options, one), flush=True)
            if one.findings:
                tell(options, one, machine.folder)
            assert not one.findings, f"see above; once more: --seed {options.seed} --sink {sink} --order {order}"
            assert one.events
