"""`tailrace_positions`: at which version of each table all of them are at one position of the source. Driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.once import Once
from tailrace.sinks.tables.target import PIPELINE, metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "tailrace_positions"
"""The name of the table, under the sink's path."""

_COLUMNS = (
    ("query", "string"),
    ("batch", "bigint"),
    ("position", "string"),
    ("ordinal", "bigint"),
    ("committed_at", "timestamp"),
    ("whole", "boolean"),
    ("versions", "map<string,bigint>"),
)


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a batch ends: the place of its last change and the time of its commit."""

    batch: int
    position: str
    ordinal: int
    at: datetime

    @classmethod
    def of(cls, number: int, rows: Sequence[Any]) -> Moment | None:
        """The end of a batch with these blocks; None where no table has one."""
        if not rows:
            return None
        last = max(rows, key=lambda row: (row["position"], row["ordinal"]))
        at = max(row["source_ts"] for row in rows)
        return cls(number, last["position"], last["ordinal"], at)


class Positions:
    """The table at `path`, to which each batch of the query adds a row after its tables are written."""

    def __init__(self, path: str, query: str, pipeline: str) -> None:
        self.path, self._query, self._pipeline = path, query, pipeline
        self._versions: dict[str, int] | None = None
        self._highest = ""

    def open(self, spark: SparkSession) -> None:
        """Make the table where it is not there. Raises SinkError where it is another pipeline's."""
        if self._versions is None:
            session = spark.newSession()
            session.conf.set("spark.sql.shuffle.partitions", "1")
            self._versions = self._known(session)

    def add(self, spark: SparkSession, moment: Moment, whole: bool, versions: Mapping[str, int]) -> None:
        """Add the row of a batch, once; `versions` are those of the tables that it has written."""
        session = spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", "1")
        self.open(spark)
        assert self._versions is not None
        self._versions |= versions
        # rows of a snapshot may be newer than the log that is read after it
        whole, self._highest = whole and moment.position >= self._highest, max(moment.position, self._highest)
        schema = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)
        row = (self._query, moment.batch, moment.position, moment.ordinal, moment.at, whole, self._versions)
        once = Once(self._pipeline, moment.batch, metadata(moment.batch, ""))
        once.append(session.createDataFrame([row], schema).coalesce(1), self.path)

    def _known(self, session: SparkSession) -> dict[str, int]:
        """The versions of the last row; makes the table where it is not there."""
        path = session._jvm.org.apache.hadoop.fs.Path(f"{self.path}/_delta_log")  # type: ignore[union-attr]
        system = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        if not system.exists(path):
            session.sql(statements.create(self.path, _COLUMNS, {PIPELINE: self._pipeline}))
            return {}
        owner = session.sql(f"show tblproperties {statements.at_path(self.path)} ({statements.literal(PIPELINE)})")
        if [row["value"] for row in owner.collect()] != [self._pipeline]:
            raise SinkError(
                f"{self.path} is there already, of another pipeline.", "Name another debezium.sink.tables.path."
            )
        rows = session.read.format("delta").load(self.path)
        found = rows.orderBy("batch", ascending=False).first()
        self._highest = rows.selectExpr("max(position) as highest").first()["highest"] or ""  # type: ignore[index]
        return {} if found is None else dict(found["versions"])


@dataclass(frozen=True, slots=True)
class ReadAt:
    """All tables at one moment of the source: their names and frames, and where the moment is.

    Everything that the source has committed up to `(position, ordinal)` is in them, and nothing behind it.
    """

    position: str
    ordinal: int
    committed_at: datetime
    tables: Mapping[str, DataFrame]


def read_at(spark: SparkSession, path: str, position: str | None = None, timestamp: datetime | None = None) -> ReadAt:
    """The tables under `path`, where the sink has written them, at the newest recorded moment up to a position or time.

    Without both it is the newest moment of all. Only moments count at which no transaction was half written. Raises
    SinkError where there is none.
    """
    place = f"{path.rstrip('/')}/{NAME}"
    found = spark.read.format("delta").load(place).where("whole")
    if position is not None:
        found = found.where(f"position <= {statements.literal(position)}")
    if timestamp is not None:
        micros = round(timestamp.timestamp() * 1_000_000)
        found = found.where(f"unix_micros(committed_at) <= {micros}")
    row = found.orderBy("batch", ascending=False).first()
    if row is None:
        raise SinkError(f"{place} has no moment up to there.", "Name a later one, or wait for the pipeline.")
    tables = {
        name: spark.read.format("delta").option("versionAsOf", version).load(f"{path.rstrip('/')}/{name}")
        for name, version in sorted(row["versions"].items())
    }
    return ReadAt(row["position"], row["ordinal"], row["committed_at"], tables)
