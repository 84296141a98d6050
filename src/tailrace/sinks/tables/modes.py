"""The modes of the sink `tables`: `latest`, `history` and `log`. Driver.

`latest` holds the rows of the source, `history` every version of them, and `log` every change. All modes write the
batches of a table in the same steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from tailrace.errors import SinkError
from tailrace.sinks.tables import statements, versions
from tailrace.sinks.tables.batch import CHANGES, TableBatch, with_values
from tailrace.sinks.tables.formats.base import Columns, StoredTable, WriteId
from tailrace.sinks.tables.frames import in_session
from tailrace.sinks.tables.row_lookup import RowLookup
from tailrace.sinks.tables.statements import KEPT, ReducedBatch, quoted, unknown_column
from tailrace.sinks.tables.target import Owner, Target, metadata
from tailrace.sinks.tables.versions import VALIDITY, VersionEnds, version_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# --- the steps of every batch -----------------------------------------------------------------------------------------


class TableInMode(ABC):
    """A table in one mode, for the source's table `source`. `write` is called for each batch.

    `own` are the columns besides the source's. `is_known` is True if earlier batches are in the table. A subclass
    defines the values of `own` for appended rows (`marks`), and the merge of a batch that cannot be appended.
    """

    mode: ClassVar[str]

    def __init__(self, path: str, source: str, owner: Owner, own: Columns) -> None:
        self.path, self.source, self.own = path, source, own
        self._owner = owner
        self.is_known = False
        self._target: Target | None = None

    def write(self, session: SparkSession, batch: TableBatch) -> int:
        """Write the batch to the table. Return the table's new version. Only this table uses `session`.

        Raises SinkError if the table cannot follow the source or belongs to another pipeline.
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
        """Return the parts of a batch that are written one after another."""
        return batch.parts()

    def _bring(self, stored: StoredTable, part: TableBatch, number: int | None = None) -> None:
        """Write a part of a batch. `number` is the part's number, None for the last part."""
        assert self._target is not None
        self.demand(part)
        into = self._target.prepare(part.forms)
        # A log keeps each change unaltered.
        batch = replace(part, into=into if self.mode == "log" else with_values(into, part.forms))
        written = self._target.written(batch.number)
        told = metadata(batch.number, batch.snapshot, self._target.run)
        once = WriteId(self._owner.pipeline, batch.number, told, number)
        if self.appends(batch, written):
            self._append(stored, batch, once)
        else:
            self.merge(stored, batch, once)
        self._target.note(batch.snapshot)

    def _append(self, stored: StoredTable, batch: TableBatch, once: WriteId) -> None:
        columns = [f"c{place} as {quoted(name)}" for place, name in enumerate(batch.form.names)]
        columns += [f"{value} as {name}" for (name, _), value in zip(self.own, self.marks(batch), strict=True)]
        stored.append(in_session(stored.session, batch.opened().selectExpr(*columns)), once)

    def demand(self, batch: TableBatch) -> None:
        """Raise SinkError if the mode does not support the table."""
        if not batch.form.key:
            raise SinkError(
                f"The table {self.source} has no key, and the mode {self.mode} identifies rows by their keys.",
                "Give it a primary key, name columns in message.key.columns, leave it out, or use the mode log.",
            )

    def appends(self, batch: TableBatch, written: str) -> bool:
        """Return True if all rows are new. `written` is the result of `Target.written`."""
        # Rows of one snapshot have different keys. Rows of another snapshot may already be in the table.
        return batch.snapshot != CHANGES and written in ("", batch.snapshot)

    @abstractmethod
    def marks(self, batch: TableBatch) -> Sequence[str]:
        """Return the values of `own` for an appended row, as SQL over the columns of an opened row."""

    @abstractmethod
    def merge(self, stored: StoredTable, batch: TableBatch, once: WriteId) -> None:
        """Write rows that the table may already have."""


# --- latest -----------------------------------------------------------------------------------------------------------


_ROWS, _FILLED = "tailrace_rows", "tailrace_filled"


class Latest(TableInMode):
    """A table of the source's rows: the initial snapshot is appended, each later batch is a MERGE.

    `unknown` is the policy for values that neither the log nor the table has; `again` reads such values from the
    source. Deleted rows are kept if the owner keeps deletes.
    """

    mode = "latest"

    def __init__(
        self, path: str, source: str, owner: Owner, unknown: str = "stop", again: RowLookup | None = None
    ) -> None:
        super().__init__(path, source, owner, KEPT if owner.keeps_deletes else ())
        self._unknown, self._again = unknown, again

    def marks(self, batch: TableBatch) -> Sequence[str]:
        return ("'false'", "op", "unix_micros(at) * 1000") if self.own else ()

    def merge(self, stored: StoredTable, batch: TableBatch, once: WriteId) -> None:
        session = stored.session
        form = batch.form
        reduced = ReducedBatch(form, _ROWS, batch.missing, bool(self.own), batch.truncate is not None, self._unknown)
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


# --- history ----------------------------------------------------------------------------------------------------------


_VERSIONS, _NEWS, _LASTING, _CHANGES = "tailrace_rows", "tailrace_news", "tailrace_lasting", "tailrace_changes"


class History(TableInMode):
    """A table of versions: the initial snapshot is appended, each later batch is a MERGE.

    `unknown` is the policy for values that neither the log nor the table has.
    """

    mode = "history"

    def __init__(self, path: str, source: str, owner: Owner, unknown: str = "stop") -> None:
        super().__init__(path, source, owner, VALIDITY)
        self._unknown = unknown

    def marks(self, batch: TableBatch) -> Sequence[str]:
        return ("position", "ordinal", "at", "cast(null as string)", "cast(null as bigint)", "cast(null as timestamp)")

    def merge(self, stored: StoredTable, batch: TableBatch, once: WriteId) -> None:
        session, table = stored.session, stored.name()
        form = batch.form
        opened = batch.opened()
        in_session(session, opened).createOrReplaceTempView(_VERSIONS)
        new = session.sql(versions.news(table, form, _VERSIONS))
        schema: Any = _declared(batch)
        lasting = batch.parted(new).mapInArrow(VersionEnds(form), schema)
        lasting.createOrReplaceTempView(_LASTING)
        session.sql(versions.changes(table, form, _LASTING, self._unknown)).createOrReplaceTempView(_CHANGES)
        truncate = None if batch.truncate is None else _first_truncate(opened)
        stored.merge(replace(versions.merge(form, _CHANGES, truncate), small=batch.small), once)


def _declared(batch: TableBatch) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(version_schema(batch.form), prefer_timestamp_ntz=True)


def _first_truncate(rows: DataFrame) -> tuple[str, int, int] | None:
    found = rows.where("op = 't'").orderBy("position", "ordinal")
    first = found.selectExpr("position", "ordinal", "unix_micros(at) as micros").first()
    return None if first is None else (first["position"], first["ordinal"], first["micros"])


# --- log --------------------------------------------------------------------------------------------------------------


CHANGE = (
    ("__op", "string"),
    ("__position", "string"),
    ("__ordinal", "bigint"),
    ("__part", "tinyint"),
    ("__committed_at", "timestamp"),
    ("__missing", "array<string>"),
)
"""The columns of a change that precede the columns of its row."""


class Log(TableInMode):
    """A table of changes, ordered and identified by `(__position, __ordinal, __part)`.

    `__missing` names the columns whose values neither the log nor an earlier change of the same batch had. They are
    null here; their values are those of the row's previous change.
    """

    mode = "log"

    def __init__(self, path: str, source: str, owner: Owner) -> None:
        super().__init__(path, source, owner, CHANGE)

    def demand(self, batch: TableBatch) -> None:
        """Accept every table: changes need no key."""

    def parts(self, batch: TableBatch) -> Sequence[TableBatch]:
        return [batch]

    def appends(self, batch: TableBatch, written: str) -> bool:
        return True

    def marks(self, batch: TableBatch) -> Sequence[str]:
        names = ", ".join(map(statements.literal, batch.form.names))
        missing = f"transform(missing, i -> element_at(array({names}), i + 1))"
        return ("op", "position", "ordinal", "part", "at", missing)

    def merge(self, stored: StoredTable, batch: TableBatch, once: WriteId) -> None:
        raise AssertionError("changes are always appended")
