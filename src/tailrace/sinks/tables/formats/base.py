"""The interface of a table format for the sink `tables`. Driver."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from tailrace.config.jar import Jar
from tailrace.errors import SinkError
from tailrace.sinks.tables.evolution import ColumnStep
from tailrace.sinks.tables.statements import Merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

Columns = Sequence[tuple[str, str]]
"""Names and Spark SQL types of columns."""


@dataclass(frozen=True, slots=True)
class WriteId:
    """The identity of one write of a batch to one table. `pipeline` is the id of the checkpoint.

    A table keeps the number of the newest batch of each pipeline, and skips a write of a batch that is not newer. Each
    batch is therefore written once. If a batch is written in parts, `part` is the number of each part but the last. The
    commit carries `metadata`.
    """

    pipeline: str
    batch: int
    metadata: str
    part: int | None = None

    @property
    def application(self) -> str:
        """The name under which the table keeps the newest batch."""
        return f"tailrace-{self.pipeline}" + ("" if self.part is None else f"-{self.part}")


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit to a table: its version, its writer's metadata, and True if it changed rows."""

    version: int
    metadata: str | None
    changes: bool


class StoredTable(ABC):
    """A table of a format at `path`, which may not exist yet. Only this table uses `session`."""

    title: ClassVar[str]
    """The format's name for messages."""

    marker: ClassVar[str]
    """The directory below `path` that identifies a table of the format."""

    can_fill: ClassVar[bool] = False
    """True if the format supports `fill`, which sets a value of a new column in existing rows."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.session, self.path = session, path

    def is_there(self) -> bool:
        """Return True if the table exists. Raises SinkError if `path` holds something else."""
        if not has_files(self.session, self.path):
            return False
        if not has_files(self.session, f"{self.path}/{self.marker}"):
            raise self._foreign()
        return True

    def _foreign(self) -> SinkError:
        return SinkError(
            f"{self.path} already exists and is not a table of {self.title}.",
            "Name another debezium.sink.tables.path, or move it away.",
        )

    def held(self, kind: pa.DataType) -> pa.DataType:
        """Return the type that the table uses for a source column of the type `kind`."""
        return kind

    def load(self) -> None:  # noqa: B027  (a format may have nothing to read ahead)
        """Load the state that the next commit needs into the session's JVM, unless it is there."""

    @abstractmethod
    def name(self) -> str:
        """Return a name for the table's present state in SQL of `session`."""

    @abstractmethod
    def rows(self, version: int | None = None) -> DataFrame:
        """Return the rows at a version, or the present rows."""

    @abstractmethod
    def columns(self) -> dict[str, DataType]:
        """Return the types of columns by name."""

    @abstractmethod
    def properties(self) -> dict[str, str]:
        """Return the table's properties."""

    @abstractmethod
    def commits(self, most: int) -> list[TableCommit]:
        """Return at most `most` commits, the newest first."""

    @abstractmethod
    def past(self, name: str) -> tuple[frozenset[str], bool | None]:
        """Return all past values of a property; and True if columns were ever renamed, None if that is unknown."""

    @abstractmethod
    def create(self, columns: Columns, properties: Mapping[str, str]) -> None:
        """Create the table. Raises SinkError if the format does not support the columns."""

    @abstractmethod
    def announce(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        """Set properties before an alteration, unless they are set. Raises SinkError if a step is not supported."""

    @abstractmethod
    def alter(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        """Alter the columns, then set properties. An announced alteration that was done in part may be repeated."""

    def fill(self, values: Mapping[str, str], where: str) -> None:
        """Set columns to values, given as SQL, in rows that fulfil a condition. The write belongs to no batch and can
        be repeated.

        Called only if `can_fill`. Raises SinkError for other formats.
        """
        raise SinkError(
            f"Tables of {self.title} cannot fill a new column with values.",
            "Set debezium.sink.tables.added.default = null.",
        )

    @abstractmethod
    def append(self, rows: DataFrame, once: WriteId) -> None:
        """Append rows, whose columns have the names of the table's columns."""

    @abstractmethod
    def merge(self, merge: Merge, once: WriteId) -> None:
        """Merge rows that the table may already have."""

    @abstractmethod
    def mend(self, merge: Merge) -> None:
        """Do a merge that belongs to no batch."""

    @abstractmethod
    def remove(self, where: str) -> int:
        """Delete rows, as a write that belongs to no batch. Return their number."""

    @abstractmethod
    def compact(self) -> str:
        """Compact small files. Return a report. Raises the format's conflict error if another process commits first."""

    @abstractmethod
    def clean(self, version: int | None, hours: int) -> str:
        """Remove files that only old versions need. Return a report.

        Versions from `version` on (None: the newest one), and versions of the last `hours`, stay readable. The record
        of the pipeline's newest batch is kept.
        """


class TableFormat(ABC):
    """A format: Spark's requirements for it, and its tables. `name` is the value of `debezium.sink.tables.format`."""

    name: ClassVar[str]
    title: ClassVar[str]
    marker: ClassVar[str]
    jars: ClassVar[tuple[Jar, ...]]
    settings: ClassVar[Mapping[str, str]]

    conflict: ClassVar[re.Pattern[str]]
    """Matches the text of an error about a concurrent commit to the table."""

    @abstractmethod
    def demand(self, spark: SparkSession) -> None:
        """Raise SinkError if the session lacks the format's libraries or settings."""

    @abstractmethod
    def table(self, session: SparkSession, path: str) -> StoredTable:
        """Return the table at a path, which need not exist."""


def own_metadata(text: str | None) -> dict[str, Any] | None:
    """Return the contents of a commit's metadata if `target.metadata` has made it; None for other metadata."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    own = found.get("tailrace") if isinstance(found, dict) else None
    return own if isinstance(own, dict) else None


def has_files(spark: SparkSession, path: str) -> bool:
    """Return True if a directory exists and is not empty."""
    place = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    system = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    return bool(system.exists(place)) and len(system.listStatus(place)) > 0
