"""The table `tailrace_positions`: the versions of all tables at positions of the source, and reads at them. Driver."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import uuid4

from tailrace.errors import SinkError
from tailrace.sinks.storage import HadoopStorage
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.formats.base import StoredTable, TableFormat, WriteId, has_files, own_metadata
from tailrace.sinks.tables.formats.delta import DeltaTable
from tailrace.sinks.tables.formats.detection import found_at
from tailrace.sinks.tables.target import PIPELINE, metadata
from tailrace.snapshot.signals import REREAD, Signal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "tailrace_positions"
"""The name of the table, under the sink's path."""

# The most tables whose versions a commit's metadata holds: Iceberg keeps the metadata of all commits in one file.
_MOST_TABLES = 100
# Maintenance may make a few commits after the commit of the last row.
_COMMITS = 10

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

AGAIN, REREADS = "tailrace.read-again", "tailrace.rereads"
"""The properties that hold `Positions.until` and `Positions.rereads`."""

COLUMNS = (
    ("query", "string"),
    ("batch", "bigint"),
    ("position", "string"),
    ("ordinal", "bigint"),
    ("committed_at", "timestamp"),
    ("whole", "boolean"),
    ("versions", "map<string,bigint>"),
)
"""The columns of the table."""


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The end of a batch: the place of its last change, and the newest commit time."""

    batch: int
    position: str
    ordinal: int
    at: datetime

    @classmethod
    def of(cls, number: int, rows: Sequence[Any]) -> BatchEnd | None:
        """Return the end of a batch with these blocks; None without blocks."""
        if not rows:
            return None
        last = max(rows, key=lambda row: (row["position"], row["ordinal"]))
        at = max(row["source_ts"] for row in rows)
        return cls(number, last["position"], last["ordinal"], at)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to read a table of the source, and the id of its signal; "" while the source has no such table."""

    signal: str
    schema: str
    table: str

    @classmethod
    def new(cls, schema: str, table: str) -> Request:
        """Return a request with a new id of at most 42 characters, the width of the id in signal tables."""
        return cls(f"{REREAD}{uuid4().hex}", schema, table)

    def message(self) -> Signal:
        """Return the signal."""
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.table))
        return Signal(
            self.signal, "execute-snapshot", json.dumps({"data-collections": [quoted], "type": "incremental"})
        )


class Positions:
    """The table of positions at `path`. Each batch of the query adds a row after its tables are written."""

    def __init__(self, path: str, query: str, pipeline: str, kind: TableFormat) -> None:
        self.path, self._query, self._pipeline, self._format = path, query, pipeline, kind
        self._versions: dict[str, int] | None = None
        self._highest = ""
        self._lock = Lock()
        self.until = ""
        """Up to this position, rows that were read again may be newer than the log. Valid after `open`."""
        self.rereads: Mapping[str, Request] = {}
        """The requests to read tables of the source again in full, by table. No moment is whole while the source has
        one of these tables. Valid after `open`."""
        self._session: SparkSession | None = None
        self._is_open = False

    def find(self, spark: SparkSession) -> None:
        """Read the table if it exists. Raises SinkError if it belongs to another pipeline."""
        if self._versions is None:
            self._versions = self._known(self._own(spark))

    def open(self, spark: SparkSession, number: int) -> None:
        """Find or create the table before the first batch, `number`, is written.

        Raises SinkError if it belongs to another pipeline, or if it is missing though the checkpoint has written
        batches.
        """
        if self._is_open:
            return
        self.find(spark)
        if self._versions is None:
            self._versions = self._made(self._own(spark), number)
        else:
            # A JVM that has outlived its driver may have written since the table was found.
            properties = self._format.table(self._own(spark), self.path).properties()
            self.until = properties.get(AGAIN, "")
            known = json.loads(properties.get(REREADS, "{}"))
            self.rereads = {source: Request(*fields) for source, fields in known.items()}
        self._is_open = True

    def load(self, spark: SparkSession, most: int) -> None:
        """Load the state of all tables for the next batch, unless there are more than `most` tables.

        Call it after `find`, from any thread.
        """
        known = sorted(self._versions or ())
        for name in known if len(known) <= most else ():
            self._format.table(spark, f"{self.path.removesuffix(NAME)}{name}").load()

    def knows(self, table: str) -> bool:
        """Return True if a table, by its path relative to the sink's, has been written. Call it after `open`."""
        return self._versions is not None and table in self._versions

    def keep(self, spark: SparkSession, position: str) -> None:
        """Raise `until` to a position, and write it to the table. Call it after `open`, from any thread."""
        with self._lock:
            if position > self.until:
                self._format.table(spark.newSession(), self.path).announce((), {AGAIN: position})
                self.until = position

    def keep_rereads(self, spark: SparkSession, rereads: Mapping[str, Request]) -> None:
        """Set `rereads`, and write them to the table. Call it after `open`, from one thread at a time."""
        fields = {source: (one.signal, one.schema, one.table) for source, one in rereads.items()}
        with self._lock:
            self._format.table(spark.newSession(), self.path).announce((), {REREADS: json.dumps(fields)})
            self.rereads = rereads

    def add(self, spark: SparkSession, moment: BatchEnd, whole: bool, versions: Mapping[str, int]) -> None:
        """Add the row of a batch, once. `versions` are the versions of the tables that the batch has written."""
        assert self._versions is not None
        session = self._own(spark)
        self._versions |= versions
        # Snapshot rows, and rows that were read again, may be newer than the log that is read after them.
        is_complete = not any(request.signal for request in self.rereads.values())
        whole = whole and moment.position > self.until and is_complete
        whole, self._highest = whole and moment.position >= self._highest, max(moment.position, self._highest)
        at = (moment.at.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
        query, position, known = map(statements.literal, (self._query, moment.position, json.dumps(self._versions)))
        # Spark plans and writes a DataFrame of Python rows more slowly.
        row = session.sql(
            f"select {query} query, {moment.batch}L batch, {position} position, {moment.ordinal}L ordinal, "
            f"timestamp_micros({at}) committed_at, {whole} whole, from_json({known}, 'map<string,bigint>') versions"
        )
        last = {"position": self._highest, "versions": self._versions} if len(self._versions) <= _MOST_TABLES else None
        once = WriteId(self._pipeline, moment.batch, metadata(moment.batch, "", last=last))
        self._format.table(session, self.path).append(row, once)

    def _own(self, spark: SparkSession) -> SparkSession:
        """Return the session in which the table is read and written."""
        if self._session is None:
            self._session = spark.newSession()
            self._session.conf.set("spark.sql.shuffle.partitions", "1")
        return self._session

    def _known(self, session: SparkSession) -> dict[str, int] | None:
        """Return the versions in the last row; None if there is no table."""
        stored = self._format.table(session, self.path)
        if not stored.is_there():
            return None
        properties = stored.properties()
        if properties.get(PIPELINE) != self._pipeline:
            raise SinkError(
                f"{self.path} already exists, of another pipeline.", "Name another debezium.sink.tables.path."
            )
        last = _last(stored)
        if last is not None:
            self._highest = str(last["position"])
            return dict(last["versions"])
        wanted = stored.rows().selectExpr("max(position) as highest", "max_by(versions, batch) as versions")
        found = wanted.collect()[0]
        self._highest = found["highest"] or ""
        return dict(found["versions"] or {})

    def _made(self, session: SparkSession, number: int) -> dict[str, int]:
        """Create the table before batch `number`. Raises SinkError if that is not the checkpoint's first batch."""
        if number > 0:
            raise SinkError(
                f"The checkpoint has written {number} batches, and {self.path} does not exist: the batches are in "
                "other tables, and tables that begin here would lack them.",
                "Name the previous debezium.sink.tables.path, or begin anew with another checkpoint.",
            )
        self._format.table(session, self.path).create(COLUMNS, {PIPELINE: self._pipeline})
        return {}


def _last(positions: StoredTable) -> dict[str, Any] | None:
    """Return the last row from the metadata of its commit, since a Spark job to read the row takes a second.

    Return None if the metadata does not hold the row, or if other processes have changed rows since then.
    """
    for commit in positions.commits(_COMMITS):
        own = own_metadata(commit.metadata)
        if own is not None:
            return own.get("last")
        if commit.changes:
            break
    return None


@dataclass(frozen=True, slots=True)
class ReadAt:
    """All tables at one moment of the source: the moment, and the DataFrames by name.

    They hold everything that the source has committed up to `(position, ordinal)`, and nothing after it.
    """

    position: str
    ordinal: int
    committed_at: datetime
    tables: Mapping[str, DataFrame]


def read_at(spark: SparkSession, path: str, position: str | None = None, timestamp: datetime | None = None) -> ReadAt:
    """Return the sink's tables under `path` at the newest whole moment up to a position or a time. Driver.

    Without both, it is the newest whole moment. A moment is whole if no transaction was half written. With a time, it
    is the last moment before the first moment with a later commit, so that it has no later changes. Raises SinkError if
    there is no such moment, or if the tables no longer keep its versions.
    """
    found = whole_moments(spark, path)
    known = found
    if position is not None:
        found = found.where(f"position <= {statements.literal(position)}")
    if timestamp is not None:
        micros = round(timestamp.timestamp() * 1_000_000)
        later = found.where(f"unix_micros(committed_at) > {micros}").selectExpr("min(batch) as batch").collect()
        if later[0]["batch"] is not None:
            found = found.where(f"batch < {later[0]['batch']}")
    row = found.orderBy("batch", ascending=False).first()
    if row is None:
        first = known.orderBy("batch").first()
        kept = "none" if first is None else f"that at {first['position']}, committed at {first['committed_at']}"
        raise SinkError(
            f"{path} has no moment up to there; the oldest moment that it keeps is {kept}.",
            "Name a later moment, or wait for the pipeline.",
        )
    under = path.rstrip("/")
    kind = found_at(spark, f"{under}/{NAME}")
    tables = {
        name: _at_version(kind.table(spark, f"{under}/{name}"), version)
        for name, version in sorted(row["versions"].items())
    }
    return ReadAt(row["position"], row["ordinal"], row["committed_at"], tables)


def complete_until(spark: SparkSession, path: str, slack: timedelta = timedelta(seconds=1)) -> datetime:
    """Return the time, in UTC, up to which the tables under `path` hold all commits of the source. Driver.

    It is the newest commit time in the tables, less `slack`. A server takes the time of a commit shortly before it
    writes the commit to its log. The time of a commit may therefore be earlier than its predecessor's, at most by
    `slack`. If a clock was set back by more, only positions show what the tables hold. Without new commits the time
    does not advance. Raises SinkError if there is no whole moment yet.
    """
    row = whole_moments(spark, path).selectExpr("max(unix_micros(committed_at)) as micros").collect()[0]
    if row["micros"] is None:
        raise SinkError(f"{path} has no whole moment yet.", "Let its pipeline run until the snapshot is complete.")
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=row["micros"]) - slack


def whole_moments(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows of whole moments from the table of positions under `path`. Raises SinkError without the table."""
    return positions_under(spark, path).rows().where("whole")


def positions_under(spark: SparkSession, path: str) -> StoredTable:
    """Return the table of positions under `path`. Raises SinkError if no batch has been written there."""
    place = f"{path.rstrip('/')}/{NAME}"
    stored = found_at(spark, place).table(spark, place) if has_files(spark, place) else None
    if stored is None or not stored.is_there():
        raise SinkError(
            f"There is no {place}: no pipeline has written there.", "Name the path of the sink, or let it run first."
        )
    return stored


_GONE = re.compile(r"DELTA_(?:VERSION_NOT_FOUND|\w*LOG_FILE_NOT_FOUND\w*|STATE_RECOVER_ERROR)|Cannot time travel")


def _at_version(table: StoredTable, version: int) -> DataFrame:
    """Return the table's rows at a version. Raises SinkError if the table no longer keeps it."""
    gone = SinkError(
        f"The table {table.path} no longer keeps its version {version}.",
        "Name a newer moment; tailrace maintain --vacuum keeps the versions of all moments that it keeps.",
    )
    try:
        frame = table.rows(version)
    except Exception as error:
        if _GONE.search(str(error)):
            raise gone from None
        raise
    is_old = isinstance(table, DeltaTable) and table.commits(1)[0].version != version
    if is_old and not _has_files(table.session, frame):
        raise gone
    return frame


def _has_files(spark: SparkSession, frame: DataFrame) -> bool:
    """Return True if all files that a DataFrame reads exist."""
    wanted: dict[str, set[str]] = {}
    for file in frame.inputFiles():
        folder, _, name = file.rpartition("/")
        wanted.setdefault(unquote(folder), set()).add(unquote(name))
    storage = HadoopStorage(spark)
    return all(names <= storage.sizes(folder).keys() for folder, names in wanted.items())
