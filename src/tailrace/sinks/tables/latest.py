"""The mode `latest`: a table has the rows that the source's has, at the position of the last batch. Driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.errors import SinkError
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.batch import CHANGES, TableBatch, in_session
from tailrace.sinks.tables.once import Once
from tailrace.sinks.tables.statements import KEPT, Merge
from tailrace.sinks.tables.target import Owner, Target, metadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS, _FILLED = "tailrace_rows", "tailrace_filled"


@dataclass(frozen=True, slots=True)
class Keeping:
    """What the options say of rows: whether deleted ones stay, and what a value becomes that nobody has."""

    keeps_deletes: bool = False
    unknown: str = "stop"


class Latest:
    """One table, kept by appends of the initial snapshot and a MERGE for each batch after it."""

    def __init__(self, path: str, source: str, owner: Owner, keeping: Keeping) -> None:
        self.path, self._source, self._owner, self._keeping = path, source, owner, keeping
        self._target: Target | None = None

    def write(self, session: SparkSession, batch: TableBatch) -> int:
        """Bring the table to the end of the batch; its version then. Raises SinkError."""
        if not batch.form.key:
            raise SinkError(
                f"The table {self._source} has no key, and the mode latest knows rows by their keys.",
                "Give it a primary key, name columns in message.key.columns, leave it out, or use the mode log.",
            )
        own = KEPT if self._keeping.keeps_deletes else ()
        target = Target(session, self.path, self._source, self._owner, own)
        if self._target is not None:
            target.take(self._target)
        self._target = target
        for form in batch.forms:
            target.prepare(form)
        once = Once(self._owner.pipeline, batch.number, metadata(batch.number, batch.snapshot))
        written = target.written(batch.number)
        # Rows of one snapshot have different keys. Those of the next one may be there already.
        if batch.snapshot != CHANGES and written in ("", batch.snapshot):
            self._append(session, batch, once)
        else:
            self._merge(session, batch, once)
        target.note(batch.snapshot)
        return target.version()

    def _append(self, session: SparkSession, batch: TableBatch, once: Once) -> None:
        form = batch.form
        named = [f"c{place} as {statements.quoted(name)}" for place, name in enumerate(form.names)]
        if self._keeping.keeps_deletes:
            marks = ("'false'", "op", "unix_micros(at) * 1000")
            named += [f"{value} as {name}" for (name, _), value in zip(KEPT, marks, strict=True)]
        once.append(in_session(session, batch.opened().selectExpr(*named)), self.path)

    def _merge(self, session: SparkSession, batch: TableBatch, once: Once) -> None:
        form, view = batch.form, _ROWS
        in_session(session, batch.reduced()).createOrReplaceTempView(_ROWS)
        if batch.moved:
            session.sql(statements.moved(self.path, form, _ROWS)).createOrReplaceTempView(_FILLED)
            view = _FILLED
        emptied = batch.truncate is not None
        keeping = self._keeping
        merge = Merge(self.path, form, view, batch.missing, keeping.keeps_deletes, emptied, keeping.unknown)
        once.run(session, merge.text())
