"""The interface of a table format: what the sink `tables` asks of it, and nothing else. Driver."""

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
"""Names, and the types that they have in Spark's SQL."""


@dataclass(frozen=True, slots=True)
class Once:
    """One write of a batch to one table. `pipeline` is the id of the checkpoint; `metadata` goes with the commit.

    The table keeps the number of the newest batch of each pipeline; a write of a batch that is not newer does nothing.
    So a table has one write for each batch. Of a batch that is cut into parts each but the last is known by its number,
    `part`.
    """

    pipeline: str
    batch: int
    metadata: str
    part: int | None = None

    @property
    def application(self) -> str:
        """By what name the table knows the pipeline."""
        return f"tailrace-{self.pipeline}" + ("" if self.part is None else f"-{self.part}")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to a table: its version, what its writer said of it, and whether rows are others since then."""

    version: int
    metadata: str | None
    changes: bool


class Stored(ABC):
    """A table of a format at `path`, which may not be there yet. `session` is used for nothing else."""

    title: ClassVar[str]
    """The format's name in texts."""

    marker: ClassVar[str]
    """The directory below `path` by which a table of the format is known."""

    can_fill: ClassVar[bool] = False
    """True for a format whose tables have `fill`: a new column can get a value in the rows that are there."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.session, self.path = session, path

    def is_there(self) -> bool:
        """Whether there is a table. Raises SinkError where there is something else."""
        if not has_files(self.session, self.path):
            return False
        if not has_files(self.session, f"{self.path}/{self.marker}"):
            raise self._foreign()
        return True

    def _foreign(self) -> SinkError:
        return SinkError(
            f"{self.path} is there already and is no table of {self.title}.",
            "Name another debezium.sink.tables.path, or move it away.",
        )

    def held(self, kind: pa.DataType) -> pa.DataType:
        """The type that a column of a type of the source's has in the table."""
        return kind

    def load(self) -> None:  # noqa: B027  (a format may have nothing to read ahead)
        """Read what the next commit has to know of the table, unless the session's JVM knows it."""

    @abstractmethod
    def name(self) -> str:
        """What SQL calls the table as it is now, in `session`."""

    @abstractmethod
    def rows(self, version: int | None = None) -> DataFrame:
        """The rows, at a version or as they are now."""

    @abstractmethod
    def columns(self) -> dict[str, DataType]:
        """The columns and their types."""

    @abstractmethod
    def properties(self) -> dict[str, str]:
        """The table's properties."""

    @abstractmethod
    def commits(self, most: int) -> list[Commit]:
        """The newest commits, the newest first."""

    @abstractmethod
    def past(self, name: str) -> tuple[frozenset[str], bool | None]:
        """The values that a property has had; and whether columns were renamed, None where nobody knows any more."""

    @abstractmethod
    def create(self, columns: Columns, properties: Mapping[str, str]) -> None:
        """Make the table. Raises SinkError where it cannot have these columns."""

    @abstractmethod
    def announce(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        """Set properties before an alteration, unless they are so. Raises SinkError where a step is not to be had."""

    @abstractmethod
    def alter(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        """Alter the columns, then set properties. What is announced and done in part may be done again."""

    def fill(self, values: Mapping[str, str], where: str) -> None:
        """Put values, in SQL, into columns of the rows that fulfil a condition, by no batch. It may be done again.

        Called only where `can_fill`. Raises SinkError for a format without it.
        """
        raise SinkError(
            f"Tables of {self.title} get no values in a new column.", "Set debezium.sink.tables.added.default = null."
        )

    @abstractmethod
    def append(self, rows: DataFrame, once: Once) -> None:
        """Append rows, whose columns are called as the table's."""

    @abstractmethod
    def merge(self, merge: Merge, once: Once) -> None:
        """Bring rows in that the table may have already."""

    @abstractmethod
    def mend(self, merge: Merge) -> None:
        """Do a merge by no batch."""

    @abstractmethod
    def remove(self, where: str) -> int:
        """Delete rows, by no batch; how many they were."""

    @abstractmethod
    def compact(self) -> str:
        """Put small files together; what was done. Raises the format's conflict where somebody else was faster."""

    @abstractmethod
    def clean(self, version: int | None, hours: int) -> str:
        """Remove files that no version needs from `version` on (None: from the newest one), nor one of the last hours;
        what was done. What tells that a pipeline's batch is in the table stays."""


class TableFormat(ABC):
    """A format: what Spark needs for it, and its tables. `name` is the word of `debezium.sink.tables.format`."""

    name: ClassVar[str]
    title: ClassVar[str]
    marker: ClassVar[str]
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


def told(text: str | None) -> dict[str, Any] | None:
    """What a commit says of itself by `target.metadata`; None where it says nothing."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    own = found.get("tailrace") if isinstance(found, dict) else None
    return own if isinstance(own, dict) else None


def has_files(spark: SparkSession, path: str) -> bool:
    """Whether a directory is there and has something in it."""
    place = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    system = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    return bool(system.exists(place)) and len(system.listStatus(place)) > 0
