"""A write that Delta Lake does once for each table, checkpoint and batch. Driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Delta reads these from the session for MERGE, and from the writer for appends.
_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True, slots=True)
class Once:
    """One write of a batch to one table. `pipeline` is the id of the checkpoint; `metadata` goes with the commit.

    The table's own log keeps the number of the newest batch of each pipeline; a write of a batch that is not newer
    does nothing. So a table has one write for each batch. Of a batch that is cut into parts each but the last is known
    by its number, `part`.
    """

    pipeline: str
    batch: int
    metadata: str
    part: int | None = None

    @property
    def application(self) -> str:
        """By what name the table knows the pipeline."""
        return f"tailrace-{self.pipeline}" + ("" if self.part is None else f"-{self.part}")

    def run(self, session: SparkSession, statement: str) -> None:
        """Run a statement that changes rows, in a session that is used for nothing else."""
        session.conf.set(_APP, self.application)
        session.conf.set(_VERSION, str(self.batch))
        session.conf.set(_METADATA, self.metadata)
        try:
            session.sql(statement)
        finally:
            for name in (_APP, _VERSION, _METADATA):
                session.conf.unset(name)

    def append(self, rows: DataFrame, path: str) -> None:
        """Append rows, whose columns are called as the table's."""
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", self.application).option("txnVersion", str(self.batch))
        writer.option("userMetadata", self.metadata).save(path)
