"""A table that a pipeline keeps: the steps of every batch, whatever the mode. Driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from tailrace.errors import SinkError
from tailrace.sinks.tables.batch import CHANGES, TableBatch, with_values
from tailrace.sinks.tables.formats.base import Columns, Once, Stored
from tailrace.sinks.tables.frames import in_session
from tailrace.sinks.tables.statements import quoted
from tailrace.sinks.tables.target import Owner, Target, metadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Kept(ABC):
    """A table in one mode: `mode` is its word, `source` the source's table. `write` is called for each batch;
    `is_known` says that earlier batches are in the table.

    A mode says which columns rows have beside those of the source (`own`), what these are of an appended row, and how
    a batch comes in that cannot be appended.
    """

    mode: ClassVar[str]

    def __init__(self, path: str, source: str, owner: Owner, own: Columns) -> None:
        self.path, self.source, self.own = path, source, own
        self._owner = owner
        self.is_known = False
        self._target: Target | None = None

    def write(self, session: SparkSession, batch: TableBatch) -> int:
        """Bring the table to the end of the batch; its version then. `session` is used for nothing else.

        Raises SinkError where the table cannot follow the source, or is not this pipeline's.
        """
        stored = self._owner.format.table(session, self.path)
        if self._target is None:
            self._target = Target(stored, self.source, self._owner, self.own)
            self._target.demand(self.is_known)
        target = self._target
        target.stored = stored
        *earlier, last = enumerate(self.parts(batch))
        for number, part in earlier:
            if not target.is_beyond(part.forms, batch.number):
                self._bring(stored, part, number)
        self._bring(stored, last[1])
        return target.version(batch.number)

    def parts(self, batch: TableBatch) -> Sequence[TableBatch]:
        """The parts of a batch that are brought in one after another."""
        return batch.parts()

    def _bring(self, stored: Stored, part: TableBatch, number: int | None = None) -> None:
        """Bring a part of a batch in; `number` is that of one which is not the last."""
        assert self._target is not None
        self.demand(part)
        into = self._target.prepare(part.forms)
        # a log has each change as it was
        batch = replace(part, into=into if self.mode == "log" else with_values(into, part.forms))
        written = self._target.written(batch.number)
        told = metadata(batch.number, batch.snapshot, self._target.run)
        once = Once(self._owner.pipeline, batch.number, told, number)
        if self.appends(batch, written):
            self._append(stored, batch, once)
        else:
            self.merge(stored, batch, once)
        self._target.note(batch.snapshot)

    def _append(self, stored: Stored, batch: TableBatch, once: Once) -> None:
        columns = [f"c{place} as {quoted(name)}" for place, name in enumerate(batch.form.names)]
        columns += [f"{value} as {name}" for (name, _), value in zip(self.own, self.marks(batch), strict=True)]
        stored.append(in_session(stored.session, batch.opened().selectExpr(*columns)), once)

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
    def merge(self, stored: Stored, batch: TableBatch, once: Once) -> None:
        """Bring rows in that the table may have already."""
