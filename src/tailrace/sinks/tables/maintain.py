"""Maintenance of tables during the run of their pipeline: compaction, and removal of old files and moments. Driver.

It never makes a pipeline fail. If both commit at once, one commit fails. Maintenance retries a failed commit, and
finally leaves the table for its next run. A merge that fails because of maintenance is run again (`StoredTable.merge`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tailrace.sinks.tables.formats.base import StoredTable, TableFormat
from tailrace.sinks.tables.formats.delta import LONGEST
from tailrace.sinks.tables.formats.detection import found_at
from tailrace.sinks.tables.positions import NAME, positions_under
from tailrace.sinks.tables.target import MODE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_TRIES, _PAUSE_S = 5, 0.5


@dataclass(frozen=True, slots=True)
class MaintenanceWork:
    """The tasks of maintenance. `hours` is the time for which moments and their table versions are kept."""

    optimize: bool
    vacuum: bool
    hours: int = LONGEST


def maintain(
    spark: SparkSession, path: str, work: MaintenanceWork, pause: Callable[[float], None] = time.sleep
) -> list[str]:
    """Maintain all tables under `path`. Return a report as lines. `pause` sleeps for a number of seconds.

    Raises SinkError if the sink has not written there.
    """
    session = spark.newSession()
    positions = positions_under(session, path)
    kind = found_at(session, positions.path)
    newest = positions.rows().orderBy("batch", ascending=False).first()
    tables = {} if newest is None else {name: kind.table(session, f"{path}/{name}") for name in newest["versions"]}
    done = []
    if work.vacuum:
        is_log = any(table.properties().get(MODE) == "log" for table in tables.values())
        gone = _patiently(lambda: _forget(positions, work.hours, is_log), kind, pause)
        done.append(f"{NAME}: {_BUSY if gone is None else f'{gone} moments removed'}")
    needed = _needed(positions)
    for name, table in [*sorted(tables.items()), (NAME, positions)]:
        if work.optimize:
            done.append(f"{name}: {_patiently(table.compact, kind, pause) or _BUSY}")
        if work.vacuum:
            done.append(f"{name}: {_cleaned(table, needed.get(name), work.hours, kind, pause)}")
    return done


def _cleaned(
    table: StoredTable, version: int | None, hours: int, kind: TableFormat, pause: Callable[[float], None]
) -> str:
    return _patiently(lambda: table.clean(version, hours), kind, pause) or _BUSY


_BUSY = "left as it is: its pipeline was writing each time"


def _patiently(work: Callable[[], T], kind: TableFormat, pause: Callable[[float], None]) -> T | None:
    """Return the result of `work`; None if a commit of the pipeline has conflicted with every try."""
    for number in range(_TRIES):
        try:
            return work()
        except Exception as error:
            if not kind.conflict.search(str(error)):
                raise
            pause(_PAUSE_S * 2**number)
    return None


def _forget(positions: StoredTable, hours: int, is_log: bool) -> int:
    """Remove moments older than `hours`, and return their number.

    Keep the newest whole moment and all moments after it. If the tables are a log, also keep its first whole moment,
    from which tables can be rebuilt.
    """
    whole = positions.rows().where("whole").selectExpr("min(batch) as a", "max(batch) as b")
    first, last = whole.collect()[0]
    if last is None:
        return 0
    oldest = round((time.time() - hours * 3600) * 1_000_000)
    kept = f" and batch <> {first}" if is_log else ""
    return positions.remove(f"batch < {last} and unix_micros(committed_at) < {oldest}{kept}")


def _needed(positions: StoredTable) -> Mapping[str, int]:
    """Return the oldest version of each table that a moment refers to."""
    from pyspark.sql.functions import expr

    oldest = "min_by(version, batch) as version"
    rows = positions.rows().selectExpr("batch", "explode(versions) as (name, version)").groupBy("name")
    return {row["name"]: row["version"] for row in rows.agg(expr(oldest)).collect()}
