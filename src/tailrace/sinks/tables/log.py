"""The mode `log`: every change of a table, appended, from which its rows at any position can be made. Driver."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.sinks.tables import statements
from tailrace.sinks.tables.batch import TableBatch
from tailrace.sinks.tables.formats.base import Once, Stored
from tailrace.sinks.tables.kept import Kept
from tailrace.sinks.tables.target import Owner

CHANGE = (
    ("__op", "string"),
    ("__position", "string"),
    ("__ordinal", "bigint"),
    ("__part", "tinyint"),
    ("__committed_at", "timestamp"),
    ("__missing", "array<string>"),
)
"""The columns of a change beside those of its row, which come after them."""


class Log(Kept):
    """A table of changes. `(__position, __ordinal, __part)` orders them, and identifies each.

    `__missing` names the columns whose values neither the log nor an earlier change of the same batch had: they are
    those of the change of the row before, and null here.
    """

    mode = "log"

    def __init__(self, path: str, source: str, owner: Owner) -> None:
        super().__init__(path, source, owner, CHANGE)

    def demand(self, batch: TableBatch) -> None:
        """A table without a key has changes, too."""

    def parts(self, batch: TableBatch) -> Sequence[TableBatch]:
        return [batch]

    def appends(self, batch: TableBatch, written: str) -> bool:
        return True

    def marks(self, batch: TableBatch) -> Sequence[str]:
        names = ", ".join(map(statements.literal, batch.form.names))
        missing = f"transform(missing, i -> element_at(array({names}), i + 1))"
        return ("op", "position", "ordinal", "part", "at", missing)

    def merge(self, stored: Stored, batch: TableBatch, once: Once) -> None:
        raise AssertionError("changes are always appended")
