"""The mode `latest`: a table has the rows that the source's has, at the position of the last batch. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.sinks.tables import statements
from tailrace.sinks.tables.again import Again, lacks
from tailrace.sinks.tables.batch import TableBatch, in_session
from tailrace.sinks.tables.kept import Kept
from tailrace.sinks.tables.once import Once
from tailrace.sinks.tables.statements import KEPT, Merge
from tailrace.sinks.tables.target import Owner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS, _FILLED = "tailrace_rows", "tailrace_filled"


class Latest(Kept):
    """One table, kept by appends of the initial snapshot and a MERGE for each batch after it.

    `unknown` says what a value becomes that nobody has; `again` reads such values from the source. Deleted rows stay
    where the owner keeps deletes.
    """

    mode = "latest"

    def __init__(self, path: str, source: str, owner: Owner, unknown: str = "stop", again: Again | None = None) -> None:
        super().__init__(path, source, owner, KEPT if owner.keeps_deletes else ())
        self._unknown, self._again = unknown, again

    def marks(self, batch: TableBatch) -> Sequence[str]:
        return ("'false'", "op", "unix_micros(at) * 1000") if self.own else ()

    def merge(self, session: SparkSession, batch: TableBatch, once: Once) -> None:
        form, view = batch.form, _ROWS
        in_session(session, batch.reduced()).createOrReplaceTempView(_ROWS)
        if batch.moved:
            doubtful = self._again is not None and self._again.is_doubtful(session, batch)
            moved = statements.moved(self.path, form, _ROWS, self._unknown, doubtful)
            session.sql(moved).createOrReplaceTempView(_FILLED)
            view = _FILLED
        emptied = batch.truncate is not None
        merge = Merge(self.path, form, view, batch.missing, bool(self.own), emptied, self._unknown)
        try:
            once.run(session, merge.text())
        except Exception as error:
            if self._again is None or not lacks(error):
                raise
            self._again.merge(session, batch, once, merge, _ROWS)
