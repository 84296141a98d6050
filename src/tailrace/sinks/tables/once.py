"""A write that Delta Lake does once for each table, checkpoint and batch. Driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.sinks.tables.statements import at_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Delta reads these from the session for MERGE, and from the writer for appends.
_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_TRIES = 20

CONFLICT = re.compile(r"\bDELTA_(?:CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED)\b")
"""What Delta Lake says where another commit was in the way of one."""

IDLE = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""Commits to a table that leave its rows as they are."""

_OWN = frozenset({"CREATE TABLE", "ADD COLUMNS", "SET TBLPROPERTIES", "RENAME COLUMN", "CHANGE COLUMN", "DROP COLUMNS"})
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

    def run(self, session: SparkSession, statement: str, path: str) -> None:
        """Run a statement that changes rows of the table at `path`, in a session that is used for nothing else.

        Where files were put together meanwhile, and nothing else has happened, it is run again.
        """
        session.conf.set(_APP, self.application)
        session.conf.set(_VERSION, str(self.batch))
        session.conf.set(_METADATA, self.metadata)
        try:
            for left in reversed(range(_TRIES)):
                try:
                    session.sql(statement)
                    return
                except Exception as error:
                    if not left or not CONFLICT.search(str(error)) or not _was_maintained(session, path):
                        raise
        finally:
            for name in (_APP, _VERSION, _METADATA):
                session.conf.unset(name)

    def append(self, rows: DataFrame, path: str) -> None:
        """Append rows, whose columns are called as the table's."""
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", self.application).option("txnVersion", str(self.batch))
        writer.option("userMetadata", self.metadata).save(path)


def _was_maintained(session: SparkSession, path: str) -> bool:
    """Whether the last that has happened to a table was maintenance, behind a commit of a pipeline."""
    rows = session.sql(f"describe history {at_path(path)} limit 50").select("operation", "userMetadata").collect()
    others = [row for row in rows if row["operation"] not in IDLE]
    is_maintained = bool(rows) and rows[0]["operation"] in IDLE
    own = bool(others) and (others[0]["operation"] in _OWN or '"tailrace"' in (others[0]["userMetadata"] or ""))
    return is_maintained and own
