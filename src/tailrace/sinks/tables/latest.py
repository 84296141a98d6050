"""The mode `latest`: a table has the rows that the source's has, at the position of the last batch. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailrace.sinks.tables import statements
from tailrace.sinks.tables.batch import TableBatch
from tailrace.sinks.tables.formats.base import Once, Stored
from tailrace.sinks.tables.frames import in_session
from tailrace.sinks.tables.kept import Kept
from tailrace.sinks.tables.row_lookup import Again
from tailrace.sinks.tables.statements import KEPT, Reduced, unknown_column
from tailrace.sinks.tables.target import Owner

_ROWS, _FILLED = "tailrace_rows", "tailrace_filled"


class Latest(Kept):
    """A table, kept by appends of the initial snapshot and a MERGE for each batch after it.

    `unknown` says what a value becomes that nobody has; `again` reads such values from the source. Deleted rows stay
    where the owner keeps deletes.
    """

    mode = "latest"

    def __init__(self, path: str, source: str, owner: Owner, unknown: str = "stop", again: Again | None = None) -> None:
        super().__init__(path, source, owner, KEPT if owner.keeps_deletes else ())
        self._unknown, self._again = unknown, again

    def marks(self, batch: TableBatch) -> Sequence[str]:
        return ("'false'", "op", "unix_micros(at) * 1000") if self.own else ()

    def merge(self, stored: Stored, batch: TableBatch, once: Once) -> None:
        session = stored.session
        form = batch.form
        reduced = Reduced(form, _ROWS, batch.missing, bool(self.own), batch.truncate is not None, self._unknown)
        in_session(session, batch.reduced(bool(self.own), reduced.columns)).createOrReplaceTempView(_ROWS)
        if batch.moved:
            doubtful = self._again is not None and self._again.is_doubtful(batch)
            moved = statements.moved(stored.name(), form, _ROWS, self._unknown, doubtful)
            session.sql(moved).createOrReplaceTempView(_FILLED)
            reduced = replace(reduced, view=_FILLED)
        try:
            stored.merge(replace(reduced.merge(), small=batch.small, few=batch.few), once)
        except Exception as error:
            if self._again is None or not self._again.reads(batch) or unknown_column(str(error)) is None:
                raise
            self._again.merge(stored, batch, once, reduced, _ROWS)
