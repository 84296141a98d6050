"""After kills of a pipeline into tables, in one of the modes, every table is its source's. Repeat a run by hand:

python -m tests.chaos --sink tables --mode … --seed N --kills 2 --tables 4 --changes 600
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.chaos.lake import CHECKS, LakeMachine, Options, line


@pytest.mark.full
@pytest.mark.parametrize("kills", [2], ids=["tables"])
def test_tables_equal_their_source_whenever_the_driver_is_killed(
    kills: int, spark: SparkSession, tmp_path: Path
) -> None:
    if "delta" not in (spark.conf.get("spark.sql.extensions", "") or "").lower():
        pytest.skip("the jars of Delta Lake cannot be had")
    seed, mode, changes = secrets.randbelow(1 << 30), secrets.choice(list(CHECKS)), 750 * kills
    options = Options(seed, mode, kills, tables=4, changes=changes, folder=tmp_path)
    print(f"\nseed {options.seed}, mode {options.mode}", flush=True)
    with LakeMachine(options) as machine:
        told = machine.run()
        if not told.findings:
            machine.compare(spark)
        print(line(options, told), flush=True)
        assert not told.findings, "\n".join(told.findings)
        assert told.rows
        assert told.changes >= options.changes
