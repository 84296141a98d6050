"""A table that a pipeline keeps: the steps of every batch, whatever the mode. Driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from tailrace.errors import SinkError
from tailrace.sinks.tables.batch import CHANGES, TableBatch, in_session
from tailrace.sinks.tables.once import Once
from tailrace.sinks.tables.statements import quoted
from tailrace.sinks.tables.target import Columns, Owner, Target, metadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Kept(ABC):
    """One table in one mode: `mode` is its word, `source` the source's table. `write` is called for each batch.

    A mode says which columns rows have beside those of the source (`own`), what these are of an appended row, and how
    a batch comes in that cannot be appended.
    """

    mode: ClassVar[str]

    def __init__(self, path: str, source: str, owner: Owner, own: Columns) -> None:
        self.path, self.source, self.own = path, source, own
        self._owner = owner
        self._target: Target | None = None

    def write(self, session: SparkSession, batch: TableBatch) -> int:
        """Bring the table to the end of the batch; its version then. `session` is used for nothing else.

        Raises SinkError where the table cannot follow the source, or is not this pipeline's.
        """
        self.demand(batch)
        if self._target is None:
            self._target = Target(session, self.path, self.source, self._owner, self.own)
        target = self._target
        target.spark = session
        for form in batch.forms:
            target.prepare(form)
        once = Once(self._owner.pipeline, batch.number, metadata(batch.number, batch.snapshot))
        if self.appends(batch, target.written(batch.number)):
            columns = [f"c{place} as {quoted(name)}" for place, name in enumerate(batch.form.names)]
            columns += [f"{value} as {name}" for (name, _), value in zip(self.own, self.marks(batch), strict=True)]
            once.append(in_session(session, batch.opened().selectExpr(*columns)), self.path)
        else:
            self.merge(session, batch, once)
        target.note(batch.snapshot)
        return target.version()

    def demand(self, batch: TableBatch) -> None:
        """Raise SinkError where the mode cannot keep such a table."""
        if not batch.form.key:
            raise SinkError(
                f"The table {self.source} has no key, and the mode {self.mode} knows rows by their keys.",
                "Give it a primary key, name columns in message.key.columns, leave it out, or use the mode log.",
            )

    def appends(self, batch: TableBatch, written: str) -> bool:
        """Whether the rows are new, all of them; `written` is what `Target.written` says."""
        # Rows of one snapshot have different keys. Those of the next one may be there already.
        return batch.snapshot != CHANGES and written in ("", batch.snapshot)

    @abstractmethod
    def marks(self, batch: TableBatch) -> Sequence[str]:
        """The values of `own` in an appended row, in SQL over the columns of an opened row."""

    @abstractmethod
    def merge(self, session: SparkSession, batch: TableBatch, once: Once) -> None:
        """Bring rows in that the table may have already."""
