"""Moments of the tables: the newest one in `tailrace_positions`, and each table's version at it. Driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING

from tailrace.errors import SinkError
from tailrace.sinks.tables.formats.base import own_metadata
from tailrace.sinks.tables.formats.detection import found_at
from tailrace.sinks.tables.positions import positions_under

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FEW = 4
_MORE = 8
"""Number of commits to read first, as most tables have no more after a moment, and the factor for each retry."""


@dataclass(frozen=True, slots=True)
class WholeMoment:
    """A moment at which no transaction is half written. `versions` are the tables' versions after the batch `batch`.

    `has_gap` is True if the log up to the position that the pipeline has committed may have changes after the moment.
    """

    batch: int
    position: str
    ordinal: int
    at: datetime
    versions: Mapping[str, int]
    has_gap: bool = False


def newest(spark: SparkSession, path: str, committed: str = "") -> WholeMoment:
    """Return the newest whole moment of the tables under `path`, which have the log up to the position `committed`.

    If the tables have nothing after `committed`, the last batch is a whole moment even if it was not marked as whole:
    no snapshot is half read and no transaction half written. Raises SinkError if there is no moment.
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
    # batches that are not whole may follow the moment, and the pipeline may have committed some of them
    has_gap = position < committed < highest
    return WholeMoment(row["batch"], position, row["ordinal"], row["committed_at"], dict(row["versions"]), has_gap)


def version_at(spark: SparkSession, path: str, moment: WholeMoment, name: str) -> int | None:
    """Return the last version of the table at `path` before any batch after the moment; None if it did not exist then.

    `name` is the table's name in `moment.versions`. Later commits of other writers, before such a batch, are included.
    """
    since = moment.versions.get(name)
    if since is None:
        return None
    table = found_at(spark, path).table(spark, path)
    wanted, commits = _FEW, table.commits(_FEW)
    # Iceberg's versions cannot be compared, so the order of the commits counts
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
    """Return the newest version of the table at `path`."""
    return found_at(spark, path).table(spark, path).commits(1)[0].version


def batch_of(metadata: str | None) -> int:
    """Return the batch named in a commit's metadata; -1 without one."""
    return int((own_metadata(metadata) or {}).get("batch", -1))
