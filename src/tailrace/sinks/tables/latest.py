"""The mode `latest`: a table has the rows that the source's has, at the position of the last batch. Driver."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.sinks.tables import statements
from tailrace.sinks.tables.batch import TableBatch, in_session
from tailrace.sinks.tables.formats.base import Once, Stored
from tailrace.sinks.tables.kept import Kept
from tailrace.sinks.tables.statements import KEPT, Reduced
from tailrace.sinks.tables.target import Owner

_ROWS, _FILLED = "tailrace_rows", "tailrace_filled"


class Latest(Kept):
    """One table, kept by appends of the initial snapshot and a MERGE for each batch after it.

    `unknown` says what a value becomes that nobody has. Deleted rows stay where the owner keeps deletes.
    """

    mode = "latest"

    def __init__(self, path: str, source: str, owner: Owner, unknown: str = "stop") -> None:
        super().__init__(path, source, owner, KEPT if owner.keeps_deletes else ())
        self._unknown = unknown

    def marks(self, batch: TableBatch) -> Sequence[str]:
        return ("'false'", "op", "unix_micros(at) * 1000") if self.own else ()

    def merge(self, stored: Stored, batch: TableBatch, once: Once) -> None:
        session = stored.session
        form, view = batch.form, _ROWS
        in_session(session, batch.reduced()).createOrReplaceTempView(_ROWS)
        if batch.moved:
            session.sql(statements.moved(stored.name(), form, _ROWS)).createOrReplaceTempView(_FILLED)
            view = _FILLED
        emptied = batch.truncate is not None
        reduced = Reduced(form, view, batch.missing, bool(self.own), emptied, self._unknown)
        stored.merge(reduced.merge(), once)
