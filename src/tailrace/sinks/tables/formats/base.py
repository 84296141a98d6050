"""The interface of a table format: what the sink `tables` asks of it, and nothing else. Driver."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tailrace.errors import SinkError
from tailrace.jar import Jar
from tailrace.sinks.tables.formats.merge import Merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Columns = Sequence[tuple[str, str]]
"""Names, and the types that they have in Spark's SQL."""


@dataclass(frozen=True, slots=True)
class Once:
    """One write of a batch to one table. `pipeline` is the id of the checkpoint; `metadata` goes with the commit.

    A table keeps the number of the newest batch of each pipeline; a write of a batch that is not newer does nothing.
    So a table has one write for each batch.
    """

    pipeline: str
    batch: int
    metadata: str

    @property
    def application(self) -> str:
        """By what name the table knows the pipeline."""
        return f"tailrace-{self.pipeline}"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to a table. `metadata` is what its writer said of it, `changes` whether rows are others since then."""

    metadata: str | None
    changes: bool


class Stored(ABC):
    """One table of a format at `path`, which may not be there yet. `session` is used for nothing else."""

    title: ClassVar[str]
    """The format's name in texts."""

    marker: ClassVar[str]
    """The directory below `path` by which a table of the format is known."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.session, self.path = session, path

    def exists(self) -> bool:
        """Whether the table is there. Raises SinkError where something else is."""
        jvm = self.session._jvm
        assert jvm is not None
        place = jvm.org.apache.hadoop.fs.Path(self.path)
        system = place.getFileSystem(self.session._jsparkSession.sessionState().newHadoopConf())
        if not system.exists(place) or not len(system.listStatus(place)):
            return False
        if not system.exists(jvm.org.apache.hadoop.fs.Path(f"{self.path}/{self.marker}")):
            raise SinkError(
                f"{self.path} is there already and is no table of {self.title}.",
                "Name another debezium.sink.tables.path, or move it away.",
            )
        return True

    @abstractmethod
    def name(self) -> str:
        """What SQL calls the table as it is now, in `session`."""

    @abstractmethod
    def rows(self, version: int | None = None) -> DataFrame:
        """The rows, at a version or as they are now."""

    @abstractmethod
    def columns(self) -> dict[str, str]:
        """The columns and their types."""

    @abstractmethod
    def held(self, kind: str) -> str:
        """The type that a column of a type of Spark's has in the table. Raises SinkError where there is none."""

    @abstractmethod
    def properties(self) -> dict[str, str]:
        """The table's properties."""

    @abstractmethod
    def version(self) -> int:
        """By what number `rows` finds the table as it is now."""

    @abstractmethod
    def commits(self, most: int) -> list[Commit]:
        """The newest commits, the newest first."""

    @abstractmethod
    def create(self, columns: Columns, properties: Mapping[str, str]) -> None:
        """Make the table."""

    @abstractmethod
    def add_columns(self, columns: Columns) -> None:
        """Add columns behind the others; they are null in all rows."""

    @abstractmethod
    def append(self, rows: DataFrame, once: Once) -> None:
        """Append rows, whose columns are called as the table's."""

    @abstractmethod
    def merge(self, merge: Merge, once: Once) -> None:
        """Bring rows in that the table may have already."""


class TableFormat(ABC):
    """A format: what Spark needs for it, and its tables. `name` is the word of `debezium.sink.tables.format`."""

    name: ClassVar[str]
    title: ClassVar[str]
    jars: ClassVar[tuple[Jar, ...]]
    settings: ClassVar[Mapping[str, str]]
    conflict: ClassVar[re.Pattern[str]]
    """What the text of an error has when somebody else has written to the table at the same time."""

    @abstractmethod
    def demand(self, spark: SparkSession) -> None:
        """Raise SinkError where the session is without the format."""

    @abstractmethod
    def table(self, session: SparkSession, path: str) -> Stored:
        """The table at a path."""
