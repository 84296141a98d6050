"""Updates beside an unchanged large value, into the sink `tables`: their cost, and a check of the value. Driver."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from bench import lake
from bench.tables import Table
from bench.usage import Meter
from bench.workload import TRANSACTION, Workload

ROWS = 200
SIZE = 1 << 20
"""Characters of each value."""
_VALUE = f"lpad('', {SIZE}, (select string_agg(md5(random()::text), '') from generate_series(1, 64)) || i)"
TABLE = Table("large", (("id", "bigint primary key"), ("n", "int"), ("big", "text")), ("i", "0", _VALUE))


def measure(
    spark: SparkSession, workload: Workload, updates: int, say: Callable[[str], None], rows: int = ROWS
) -> dict[str, float]:
    """Return the figures of updates of a number beside a value of SIZE.

    Raises RuntimeError if a value is lost.
    """
    workload.create(TABLE)
    workload.execute("alter table large alter big set storage external")
    for low in range(1, rows + 1, 20):
        workload.execute(f"insert into large {TABLE.select} from generate_series({low}, {min(low + 19, rows)}) i")
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        own = lake.pipeline(workload, TABLE.name, "latest", Path(folder))
        lake.run(spark, own)
        change(workload, updates, rows)
        asked = scans(workload)
        with Meter(workload.server.pid) as meter:
            written = lake.run(spark, own)
        if scans(workload) != asked:
            raise RuntimeError("the source was asked for rows")
        held = spark.read.format("delta").load(str(own.table)).selectExpr("id", "n", "md5(big)").collect()
    there = workload.execute("select id, n, md5(big) from large")
    if sorted(map(tuple, held)) != sorted(there):
        raise RuntimeError("the table of large values is not the source's")
    found = {
        "tables_large_rows": float(len(there)),
        "tables_large_seconds": written.seconds,
        "tables_large_per_second": updates / written.seconds,
        "tables_large_python_mib": meter.usage.python_bytes / (1 << 20),
        "tables_large_jvm_mib": meter.usage.jvm_bytes / (1 << 20),
        "tables_large_written_mib": written.size / (1 << 20),
    }
    say(", ".join(f"{name} {value:.2f}" for name, value in found.items()))
    return found


def change(workload: Workload, updates: int, rows: int) -> None:
    """Update rows in transactions. Every tenth transaction changes keys, too, and every twentieth deletes a row."""
    workload.execute(
        f"do $$ declare one int; begin for one in 1..{max(updates // TRANSACTION, 1)} loop"
        f" for part in 1..{max(TRANSACTION // rows, 1)} loop update large set n = n + part; end loop;"
        f" if one % 10 = 5 then update large set id = id + 1000000 where id % 7 = one % 7; end if;"
        f" if one % 20 = 10 then delete from large where id = (select min(id) from large); end if;"
        " commit; end loop; end $$"
    )


def scans(workload: Workload) -> int:
    """Return the number of scans of the table."""
    workload.execute("select pg_stat_force_next_flush()")
    return int(workload.execute("select seq_scan + idx_scan from pg_stat_user_tables where relname = 'large'")[0][0])
