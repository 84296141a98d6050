"""The CPU time of transforms and encodings in a task, beside plain JSON. Driver.

The changes are decoded inserts into the table bench, in memory, and one process makes records of them, so that other
load of the machine hardly counts. This work is a sixth of a drain.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from bench import chains
from bench.report import PLAIN, PLAIN_SCHEMAS
from tailrace.columns import ChangeBatch, Column, Image, TableId, TableSchema, Transactions
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.registry import parse
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.pipeline import read_columns
from tailrace.sinks.console import NoopSink
from tailrace.spark.session import LOCAL_SETTINGS
from tests.servers.registry import Registry

CHANGES = 16_000
ROUNDS = 30
_TOGETHER = 1000
_COMMIT_US = 1_795_222_827_639_575

_TABLE = TableSchema(
    TableId("bench", "public", "bench"),
    (
        Column("id", "int8", 20, nullable=False),
        Column("n", "int4", 23, nullable=False),
        Column("amount", "numeric", 1700, (12 << 16 | 2) + 4, nullable=False),
        Column("note", "text", 25, nullable=False),
        Column("at", "timestamptz", 1184, nullable=False),
        Column("flag", "bool", 16, nullable=False),
        Column("code", "varchar", 1043, 24),
        Column("doc", "jsonb", 3802),
    ),
    ("id",),
)


def _row(i: int) -> tuple[str, ...]:
    """Return the texts of row i as the server writes them; see bench.tables.plain."""
    return (
        str(i),
        str(i % 100_000),
        f"{i % 9_999_999 / 100:.2f}",
        f"note of row {i} ".ljust(60, "x"),
        f"2024-01-01 {i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}.{i % 1_000_000:06d}+00",
        "t" if i % 2 == 0 else "f",
        f"code-{i % 1000}",
        f'{{"a": {i}, "b": "text", "c": {"true" if i % 2 == 0 else "false"}}}',
    )


def changes() -> ChangeBatch:
    """Return CHANGES inserts in transactions of _TOGETHER."""
    rows = [_row(number) for number in range(CHANGES)]
    columns = [pa.array([text.encode() for text in column], pa.binary()) for column in zip(*rows, strict=True)]
    number = np.arange(CHANGES)
    commits = np.arange(CHANGES // _TOGETHER)
    ends = 5000 + (commits + 1) * 100 * _TOGETHER
    transactions = Transactions(700 + commits, ends, _COMMIT_US + commits, ends - 100 * _TOGETHER)
    after = Image(None, columns, [None] * len(columns))
    return ChangeBatch(
        _TABLE,
        np.full(CHANGES, ord("c"), np.uint8),
        5000 + number * 100,
        (number // _TOGETHER).astype(np.int32),
        number % _TOGETHER,
        transactions,
        None,
        after,
        None,
    )


def settings(options: Mapping[str, str]) -> EventSettings:
    """Return the settings of events with a chain's options, for the sink noop."""
    plain = {f"{part}.converter.schemas.enable": "false" for part in ("key", "value")}
    given = {
        "topic.prefix": "bench",
        "database.hostname": "localhost",
        "database.user": "bench",
        "database.dbname": "bench",
        "event.format": "1.7",
        "row.columns": ",".join(read_columns(NoopSink({}))),
    }
    return EventSettings.from_options(parse("postgres", {**given, **plain, **options}))


def measure(say: Callable[[str], None]) -> dict[str, float]:
    """Return the figures, measured in a process with the memory settings of Spark's workers."""
    command = [sys.executable, "-m", "bench.records"]
    prefix = "spark.executorEnv."
    memory = {name.removeprefix(prefix): text for name, text in LOCAL_SETTINGS.items() if name.startswith(prefix)}
    done = subprocess.run(command, env=os.environ | memory, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    say(", ".join(f"{name} {value:.2f}" for name, value in found.items() if name.endswith("_ratio")))
    return found


def figures() -> dict[str, float]:
    """Return for each case the ns of CPU time for a change, and the ratio of plain JSON's time to it.

    The shortest round counts, since other load of the machine only adds time.
    """
    batch = changes()
    found: dict[str, float] = {}
    with Registry() as registry:
        cases = {**chains.CHAINS, chains.AVRO: chains.avro(registry.address)}
        parts = {PLAIN: (chains.Chain({}), cases), PLAIN_SCHEMAS: (chains.Chain(chains.SCHEMAS), chains.WITH_SCHEMAS)}
        for beside, (plain, of) in parts.items():
            for name, chain in of.items():
                pair = settings(plain.options), settings(chain.options)
                taken = [tuple(_seconds(batch, one) for one in pair) for _ in range(ROUNDS)]
                least, own = (min(seconds) for seconds in zip(*taken, strict=True))
                found[f"records_{beside}_ns"] = least * 1e9 / CHANGES
                found[f"records_{name}_ns"] = own * 1e9 / CHANGES
                found[f"records_{name}_ratio"] = least / own
    return found


def _seconds(batch: ChangeBatch, of: EventSettings) -> float:
    """Return the CPU time of making the records of a batch."""
    began = time.process_time()
    for _ in to_rows(batch, of, FORM):
        pass
    return time.process_time() - began


if __name__ == "__main__":
    print(json.dumps(figures()))
