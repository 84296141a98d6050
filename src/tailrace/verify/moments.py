"""Up to where the tables have come: the newest moment of `tailrace_positions`, each table's version then. Driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING

from tailrace.errors import SinkError
from tailrace.sinks.tables.formats.base import told
from tailrace.sinks.tables.formats.known import found_at
from tailrace.sinks.tables.positions import positions_under

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FEW = 4
_MORE = 8
"""So many commits are looked at first, since most tables have no more behind a moment; then so many times as many."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest moment at which no transaction is half written; `versions` are those that batch `batch` has left."""

    batch: int
    position: str
    ordinal: int
    at: datetime
    versions: Mapping[str, int]


def newest(spark: SparkSession, path: str, committed: str = "") -> Newest:
    """That of the tables under `path`; the log is known to be in them up to the position `committed`.

    Where that is behind everything that the tables have, no snapshot is half read and no transaction half written,
    whatever the last batch knew. Raises SinkError where there is no such moment.
    """
    positions = positions_under(spark, path)
    found = positions.rows().selectExpr(
        "max_by(struct(*), batch) as newest",
        "max_by(struct(*), batch) filter (where whole) as whole",
        "max(position) as highest",
    )
    (ends,) = found.collect()
    row, highest = ends["whole"], ends["highest"]
    if highest is not None and highest <= committed:
        row = ends["newest"]
    if row is None:
        raise SinkError(
            f"{positions.path} has no moment at which the tables are whole: the initial snapshot is not done, or the "
            "log behind it is not read yet.",
            "Let the pipeline run on until it has read changes that were made after the snapshot.",
        )
    position = row["position"] if row["whole"] else highest
    return Newest(row["batch"], position, row["ordinal"], row["committed_at"], dict(row["versions"]))


def version_at(spark: SparkSession, path: str, moment: Newest, name: str) -> int | None:
    """The version of the table at `path`, called `name` below the sink's, before any batch behind the moment.

    What others have committed since then is in it. None where the table is not there at the moment.
    """
    since = moment.versions.get(name)
    if since is None:
        return None
    table = found_at(spark, path).table(spark, path)
    wanted, commits = _FEW, table.commits(_FEW)
    # versions of Iceberg have no order but that of the commits
    while len(commits) == wanted and all(commit.version != since for commit in commits):
        wanted *= _MORE
        commits = table.commits(wanted)
    found = since
    for commit in reversed(list(takewhile(lambda one: one.version != since, commits))):
        if batch_of(commit.metadata) > moment.batch:
            break
        found = commit.version
    return found


def latest_version(spark: SparkSession, path: str) -> int:
    """The newest version of the table at `path`."""
    return found_at(spark, path).table(spark, path).commits(1)[0].version


def batch_of(metadata: str | None) -> int:
    """The batch that a commit says it is of; -1 where it says none."""
    return int((told(metadata) or {}).get("batch", -1))
