"""Maintenance of tables beside the pipeline that keeps them: small files put together, old files and moments removed.

A pipeline never fails for it. Where both write at once, Delta Lake lets one of them lose: maintenance tries again, or
leaves the table for the next time; and a MERGE that loses against it is run again (`once`). Driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.sinks.tables.formats.base import has_files
from tailrace.sinks.tables.formats.delta import CONFLICT, Delta
from tailrace.sinks.tables.formats.known import found_at
from tailrace.sinks.tables.positions import NAME
from tailrace.sinks.tables.rebuild import properties
from tailrace.sinks.tables.statements import at_path
from tailrace.sinks.tables.target import MODE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST = 168
"""Hours. Delta Lake forgets after them which file was removed when (`delta.deletedFileRetentionDuration`)."""

_TRIES, _PAUSE_S = 5, 0.5
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done. `hours` is how long the versions of tables are kept that moments are made of."""

    optimize: bool
    vacuum: bool
    hours: int = LONGEST


def maintain(spark: SparkSession, path: str, work: Work, pause: Callable[[float], None] = time.sleep) -> list[str]:
    """Maintain all tables under `path`; what was done, in lines. `pause` waits so many seconds.

    Raises SinkError where the sink has not written there.
    """
    session = spark.newSession()
    session.conf.set(_CHECK, "false")
    # into so many parts VACUUM cuts the list of files: 10,000 where nobody says otherwise
    session.conf.set(_LISTING, str(4 * session.sparkContext.defaultParallelism))
    place = f"{path}/{NAME}"
    if not has_files(session, place):
        raise SinkError(f"{path} has no {NAME}: the sink tables has not written there.", "Name its path.")
    if found_at(session, place).name != Delta.name:
        raise SinkError("tailrace maintain is for the format delta alone.", "Use what the format itself has.")
    newest = session.read.format("delta").load(place).orderBy("batch", ascending=False).first()
    names = [] if newest is None else sorted(newest["versions"])
    done = []
    if work.vacuum:
        gone = _forget(session, place, work.hours, is_log=_mode(session, path, names) == "log")
        done.append(f"{NAME}: {gone} moments removed")
    needed = _needed(session, place, names)
    for name in (*names, NAME):
        if work.optimize:
            done.append(f"{name}: {_optimized(session, f'{path}/{name}', pause)}")
        if work.vacuum:
            done.append(f"{name}: {_vacuumed(session, f'{path}/{name}', needed.get(name), work.hours)}")
    return done


def _mode(session: SparkSession, path: str, names: list[str]) -> str:
    return properties(session, f"{path}/{names[0]}").get(MODE, "") if names else ""


def _forget(session: SparkSession, place: str, hours: int, is_log: bool) -> int:
    """Remove the moments that are older, but for the newest whole one and what is behind it, and the first of a log:
    from there on it can be rebuilt."""
    whole = session.read.format("delta").load(place).where("whole").selectExpr("min(batch) as a", "max(batch) as b")
    first, last = whole.collect()[0]
    if last is None:
        return 0
    oldest = round((time.time() - hours * 3600) * 1_000_000)
    kept = f" and batch <> {first}" if is_log else ""
    old = f"batch < {last} and unix_micros(committed_at) < {oldest}{kept}"
    removed = session.sql(f"delete from {at_path(place)} where {old}").collect()
    return int(removed[0][0])


def _needed(session: SparkSession, place: str, names: list[str]) -> Mapping[str, int]:
    """The oldest version of each table that a moment is made of."""
    rows = session.read.format("delta").load(place)
    found = rows.selectExpr("explode(versions) as (name, version)").groupBy("name").min("version").collect()
    return {row[0]: row[1] for row in found if row[0] in names}


def _optimized(session: SparkSession, path: str, pause: Callable[[float], None]) -> str:
    """Put small files together, unless the pipeline is in the way each time."""
    for number in range(_TRIES):
        try:
            row = session.sql(f"optimize {at_path(path)}").collect()[0]
        except Exception as error:
            if not CONFLICT.search(str(error)):
                raise
            pause(_PAUSE_S * 2**number)
        else:
            told: Any = row["metrics"]
            return f"{told['numFilesRemoved']} files made into {told['numFilesAdded']}"
    return "left as it is: its pipeline was writing each time"


def _vacuumed(session: SparkSession, path: str, version: int | None, hours: int) -> str:
    """Remove files that no version needs from `version` on, nor one of the last hours."""
    if version is not None:
        # what that version is made of is needed since the next one came
        since = _written(session, path, version + 1)
        hours = max(hours, 0 if since is None else int((time.time() - since) / 3600) + 2)
    if hours > LONGEST:
        return f"no files removed: a moment needs the version {version}, which is older than {LONGEST} hours"
    session.sql(f"vacuum {at_path(path)} retain {hours} hours").collect()
    return f"files removed that were in no version of the last {hours} hours"


def _written(session: SparkSession, path: str, version: int) -> float | None:
    """The time of a commit, in s; None where it is not there."""
    file = session._jvm.org.apache.hadoop.fs.Path(f"{path}/_delta_log/{version:020}.json")  # type: ignore[union-attr]
    system = file.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
    return float(system.getFileStatus(file).getModificationTime()) / 1000 if system.exists(file) else None
