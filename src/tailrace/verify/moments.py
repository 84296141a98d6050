"""Up to where the tables have come: the newest moment of `tailrace_positions`, each table's version then. Driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tailrace.errors import SinkError
from tailrace.sinks.storage import HadoopStorage
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.positions import NAME
from tailrace.sinks.tables.target import told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    place = f"{path.rstrip('/')}/{NAME}"
    if HadoopStorage(spark).newest(f"{place}/_delta_log", "*") is None:
        raise SinkError(
            f"{place} is no table of Delta Lake: no pipeline has written there, or it writes tables of another format.",
            "Let the pipeline run first. Tables of other formats are not compared yet.",
        )
    found = (
        spark.read.format("delta")
        .load(place)
        .selectExpr(
            "max_by(struct(*), batch) as newest",
            "max_by(struct(*), batch) filter (where whole) as whole",
            "max(position) as highest",
        )
    )
    (ends,) = found.collect()
    row, highest = ends["whole"], ends["highest"]
    if highest is not None and highest <= committed:
        row = ends["newest"]
    if row is None:
        raise SinkError(
            f"{place} has no moment at which the tables are whole: the initial snapshot is not done, or the log behind "
            "it is not read yet.",
            "Let the pipeline run on for a minute.",
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
    found, latest = since, latest_version(spark, path)
    if latest > since:
        commits = spark.sql(f"describe history {statements.at_path(path)} limit {latest - since}")
        for row in sorted(commits.select("version", "userMetadata").collect()):
            if batch_of(row["userMetadata"]) > moment.batch:
                break
            found = row["version"]
    return int(found)


def latest_version(spark: SparkSession, path: str) -> int:
    """The newest version of the table at `path`."""
    found = spark.sql(f"describe history {statements.at_path(path)} limit 1").select("version").first()
    return -1 if found is None else int(found["version"])


def batch_of(metadata: str | None) -> int:
    """The batch that a commit says it is of; -1 where it says none."""
    return int((told(metadata) or {}).get("batch", -1))
