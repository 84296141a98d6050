"""The mode `log`: every change of a table, appended, from which its rows at any position can be made. Driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.sinks.tables import statements
from tailrace.sinks.tables.batch import TableBatch, in_session
from tailrace.sinks.tables.once import Once
from tailrace.sinks.tables.target import Owner, Target, metadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGE = (
    ("__op", "string"),
    ("__position", "string"),
    ("__ordinal", "bigint"),
    ("__part", "tinyint"),
    ("__committed_at", "timestamp"),
    ("__missing", "array<string>"),
)
"""The columns of a change beside those of its row, which come after them."""


class Log:
    """One table of changes. `(__position, __ordinal, __part)` orders them, and identifies each.

    `__missing` names the columns whose values neither the log nor an earlier change of the same batch had: they are
    those of the change of the row before, and null here.
    """

    def __init__(self, path: str, source: str, owner: Owner) -> None:
        self.path, self._source, self._owner = path, source, owner
        self._target: Target | None = None

    def write(self, session: SparkSession, batch: TableBatch) -> int:
        """Append the batch's changes; the table's version then. Raises SinkError."""
        target = Target(session, self.path, self._source, self._owner, CHANGE)
        if self._target is not None:
            target.take(self._target)
        self._target = target
        for form in batch.forms:
            target.prepare(form)
        target.written(batch.number)
        form = batch.form
        names = ", ".join(map(statements.literal, form.names))
        own = (
            "op",
            "position",
            "ordinal",
            "part",
            "at",
            f"transform(missing, i -> element_at(array({names}), i + 1))",
        )
        named = [f"c{place} as {statements.quoted(name)}" for place, name in enumerate(form.names)]
        named += [f"{value} as {name}" for (name, _), value in zip(CHANGE, own, strict=True)]
        once = Once(self._owner.pipeline, batch.number, metadata(batch.number, batch.snapshot))
        once.append(in_session(session, batch.opened().selectExpr(*named)), self.path)
        target.note(batch.snapshot)
        return target.version()
