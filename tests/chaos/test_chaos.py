"""The machine runs for a limited time in the mix of the day. Seeds are random and printed; repeat one by hand:

python -m tests.chaos --seed N --sink … --order …
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.chaos.__main__ import HEAD, line, tell
from tests.chaos.machine import Machine, Options
from tests.chaos.rotation import mix
from tests.extent import sized
from tests.servers.jars import Unavailable
from tests.servers.kafka import fetch

SECONDS = sized(0.0, 45.0)
"""Seconds of a mix with kills; 0: until the mix's number of kills is reached."""
INSIDE = ("driver", "jvm", "planner", "worker", "term")
OUTSIDE = ("walsender", "backends", "crash", "cut", "tear", "stall", "broker")


@pytest.mark.parametrize(
    ("connector", "sink", "order", "only", "kills"),
    [
        mix("files-server", "postgres", "file", "topic", OUTSIDE, 4),
        mix("kafka-server", "postgres", "kafka", "key", OUTSIDE, 4),
        mix("files-run", "postgres", "file", "key", (*INSIDE, "walsender", "crash"), 2),
        mix("mysql", "mysql", "file", "topic", (*OUTSIDE, "planner"), 3),
        mix("mariadb", "mariadb", "file", "topic", (*OUTSIDE, "planner"), 3),
    ],
)
def test_nothing_is_lost_whatever_is_killed(
    tmp_path: Path, connector: str, sink: str, order: str, only: tuple[str, ...], kills: int
) -> None:
    if sink == "kafka":
        try:
            fetch()
        except Unavailable as reason:
            pytest.skip(str(reason))
    count = sized(kills, 1000)
    options = Options(
        seed=secrets.randbelow(1 << 30), connector=connector, kills=count, each=count, sink=sink, order=order,
        only=only, seconds=SECONDS, folder=tmp_path,
    )  # fmt: skip
    try:
        opened = Machine(options)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with opened as machine:
        print(f"\nseed {options.seed}\n{HEAD}", flush=True)
        for one in machine.rounds():
            print(line(options, one), flush=True)
            if one.findings:
                tell(options, one, machine.folder)
            assert not one.findings, (
                f"see above; once more: --seed {options.seed} --connector {connector} --sink {sink} --order {order}"
            )
            assert one.events
            assert one.kills
