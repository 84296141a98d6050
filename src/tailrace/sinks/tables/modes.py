"""The modes of the sink `tables`: `latest`, `history` and `log`. Driver.

`latest` holds the rows of the source, `history` every version of them, and `log` every change. All modes write the
batches of a table in the same steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from tailrace.columns.blocks import BlockForm
from tailrace.errors import SinkError
from tailrace.sinks.tables import statements, versions
from tailrace.sinks.tables.batch import CHANGES, TableBatch, with_values
from tailrace.sinks.tables.evolution import NULL, REREAD
from tailrace.sinks.tables.formats.base import Columns, StoredTable, WriteId
from tailrace.sinks.tables.frames import in_session
from tailrace.sinks.tables.row_lookup import RowLookup
from tailrace.sinks.tables.rows import row_schema
from tailrace.sinks.tables.statements import KEPT, ReducedBatch, quoted, unknown_column
from tailrace.sinks.tables.target import Owner, Target, metadata
from tailrace.sinks.tables.versions import VALIDITY, VersionEnds, version_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# --- the steps of every batch -----------------------------------------------------------------------------------------


class TableInMode(ABC):
    """A table in one mode, for the source's table `source`. `write` is called for each batch.

    `own` are the columns that the sink adds to the source's. `is_known` is True if earlier batches are in the table. A
    subclass defines the values of `own` for appended rows (`marks`), and the merge of a batch that cannot be appended.
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
                self._replace(stored, part, number)
                self._bring(stored, part, number)
        self._replace(stored, last[1], last[0])
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
        noted = metadata(batch.number, batch.snapshot, self._target.run)
        once = WriteId(self._owner.pipeline, batch.number, noted, number)
        if self.appends(batch, written):
            self._append(stored, batch, once)
        else:
            self.merge(stored, batch, once)
        self._target.note(batch.snapshot)

    def _replace(self, stored: StoredTable, part: TableBatch, number: int) -> None:
        """Empty the table if the part `number` of a batch is the first of another table of the source under the same
        name.

        The record names the former table until the following alteration is done, so this step is repeated after a
        crash.
        """
        assert self._target is not None
        form = self._target.replaced(part.forms)
        if form is not None:
            self._target.reread("another table came under its name")
            noted = metadata(part.number, CHANGES, self._target.run)
            self.empty(stored, part, form, WriteId(self._owner.pipeline, part.number, noted, -1 - number))
            self._target.note(CHANGES)

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

    @abstractmethod
    def empty(self, stored: StoredTable, batch: TableBatch, form: BlockForm, once: WriteId) -> None:
        """Remove all rows, whose columns have `form`, or end them before the first row of the batch."""

    def _unknown_value(self, stored: StoredTable, merge: statements.Merge, once: WriteId) -> Exception | None:
        """Write a merge. If neither the log nor the table has a value, write nothing and return the error.

        The error is returned instead of raised, so that it does not become the context of an error in the caller's
        fallback.
        """
        try:
            stored.merge(merge, once)
        except Exception as error:
            if unknown_column(str(error)) is None:
                raise
            return error
        return None

    def _reread(self, error: Exception) -> None:
        """Ask for a snapshot of the source's table, since a value is missing. `error` names the value's column."""
        assert self._target is not None
        column = unknown_column(str(error))
        self._target.reread(f"neither the log nor the table has a value of its column {column}")


# --- latest -----------------------------------------------------------------------------------------------------------


_ROWS, _FILLED = "tailrace_rows", "tailrace_filled"


class Latest(TableInMode):
    """A table of the source's rows: the initial snapshot is appended, each later batch is a MERGE.

    `unknown` is the policy for values that neither the log nor the table has; with `reselect`, `again` reads them from
    the source. Deleted rows are kept if the owner keeps deletes.
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
        merge = replace(reduced.merge(), small=batch.small, few=batch.few)
        error = self._unknown_value(stored, merge, once)
        if error is None:
            return
        if self._unknown == REREAD:
            self._reread(error)
            if batch.moved:
                moved = statements.moved(stored.name(), form, _ROWS, NULL, doubtful)
                session.sql(moved).createOrReplaceTempView(_FILLED)
            stored.merge(replace(reduced, unknown=NULL).merge(), once)
            return
        if self._again is None or not self._again.reads(batch):
            raise error
        self._again.merge(stored, batch, once, reduced, _ROWS)

    def empty(self, stored: StoredTable, batch: TableBatch, form: BlockForm, once: WriteId) -> None:
        _no_rows(stored.session, row_schema(form)).createOrReplaceTempView(_ROWS)
        stored.merge(ReducedBatch(form, _ROWS, keeps_deletes=bool(self.own), emptied=True).merge(), once)


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
        schema: Any = _declared(version_schema(form))
        lasting = batch.parted(new).mapInArrow(VersionEnds(form), schema)
        lasting.createOrReplaceTempView(_LASTING)
        session.sql(versions.changes(table, form, _LASTING, self._unknown)).createOrReplaceTempView(_CHANGES)
        truncate = None if batch.truncate is None else _first(opened.where("op = 't'"))
        merge = replace(versions.merge(form, _CHANGES, truncate), small=batch.small)
        error = self._unknown_value(stored, merge, once)
        if error is None:
            return
        if self._unknown != REREAD:
            raise error
        self._reread(error)
        session.sql(versions.changes(table, form, _LASTING, NULL)).createOrReplaceTempView(_CHANGES)
        stored.merge(merge, once)

    def empty(self, stored: StoredTable, batch: TableBatch, form: BlockForm, once: WriteId) -> None:
        _no_rows(stored.session, version_schema(form)).createOrReplaceTempView(_LASTING)
        changes = versions.changes(stored.name(), form, _LASTING, NULL)
        stored.session.sql(changes).createOrReplaceTempView(_CHANGES)
        stored.merge(versions.merge(form, _CHANGES, _first(batch.opened())), once)


def _no_rows(session: SparkSession, schema: pa.Schema) -> DataFrame:
    return session.createDataFrame([], _declared(schema))


def _declared(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _first(rows: DataFrame) -> tuple[str, int, int] | None:
    """Return the place and the time, in µs, of the first row; None if there is none."""
    found = rows.orderBy("position", "ordinal")
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

    def empty(self, stored: StoredTable, batch: TableBatch, form: BlockForm, once: WriteId) -> None:
        raise AssertionError("the sink refuses this policy")
