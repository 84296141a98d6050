"""Values that neither the log nor a table has, read again from the source. Driver and workers.

A row is read in its current state, which may be newer than the batch. A position after all read rows is therefore
written to the table of positions (`Positions.until`) before the rows are written. Up to this position

- no moment is whole,
- a row that changes its key is read anew: it takes no value from the table, where the old key may be another row's.

A row that is not found has since been deleted or got another key, which the log shows later; it is left out until then.
Once the log has passed the position, the tables equal the source.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.columns.blocks import FIXED, BlockForm
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.batch import TableBatch
from tailrace.sinks.tables.formats.base import StoredTable, WriteId
from tailrace.sinks.tables.frames import in_session
from tailrace.sinks.tables.positions import Positions
from tailrace.sinks.tables.rows import row_schema
from tailrace.sinks.tables.statements import GONE, ReducedBatch, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.connectors.row_lookup import PresentTable, PresentTables

log = logging.getLogger("tailrace")

_MARKED, _KEPT, _FILLED, _ALL = "tailrace_marked", "tailrace_known", "tailrace_read_again", "tailrace_completed"
_LEFT = "s.op, s.position, s.ordinal, s.part, s.at, s.missing"


class RowLookup:
    """A reader of unknown values for all tables of a sink. `open_present` opens a session with the source.

    Without `wanted`, it reads only while rows that an earlier run has read may be newer than the log, because values of
    such rows may be lost.
    """

    def __init__(self, open_present: Callable[[], PresentTables], positions: Positions, wanted: bool) -> None:
        self._open, self._positions, self._wanted = open_present, positions, wanted

    def reads(self, batch: TableBatch) -> bool:
        """Return True if unknown values in the batch are read again."""
        return self._wanted or self.is_doubtful(batch)

    def is_doubtful(self, batch: TableBatch) -> bool:
        """Return True if rows of the table may be newer than the batch, and may therefore be other rows with the same
        key."""
        return min(head.first for head in batch.heads)[0] <= self._positions.until

    def merge(self, stored: StoredTable, batch: TableBatch, once: WriteId, reduced: ReducedBatch, rows: str) -> None:
        """Merge a batch with unknown values, which are read again. `rows` is the view of its reduced rows."""
        form, session, table = batch.form, stored.session, stored.name()
        marked = session.sql(marked_rows(table, reduced, rows, self.is_doubtful(batch))).persist()
        try:
            marked.createOrReplaceTempView(_MARKED)
            lost = session.table(_MARKED).where("lost").drop("lost")
            wanted = lost.count()
            filled = self._filled(session, batch, lost)
            try:
                found = filled.count()
                filled.createOrReplaceTempView(_FILLED)
                session.table(_MARKED).where("not lost").drop("lost").createOrReplaceTempView(_KEPT)
                columns = ", ".join(f"s.c{place}" for place in range(len(form.names)))
                completed = session.sql(f"select {_LEFT}, {columns} from {_FILLED} s")
                known = session.sql(statements.moved(table, form, _KEPT))
                known.unionByName(completed).createOrReplaceTempView(_ALL)
                note = json.loads(once.metadata)
                note["tailrace"]["read_again"] = found
                stored.merge(replace(reduced, view=_ALL).merge(), replace(once, metadata=json.dumps(note)))
            finally:
                filled.unpersist()
        finally:
            marked.unpersist()
        log.warning(
            "%d rows of %s were read again from the source, of %d that miss values: the tables are at one moment again "
            "after position %s",
            found, ".".join(filter(None, batch.table)), wanted, self._positions.until,
        )  # fmt: skip

    def _filled(self, session: SparkSession, batch: TableBatch, lost: DataFrame) -> DataFrame:
        """Return rows with values read from the source, and keep the position after the read in the table of positions.

        The rows are persisted; the caller must unpersist them.
        """
        present = self._open()
        try:
            table = present.table(batch.table)
            for form, _ in batch.forms:
                table.demand(form.names)
            reading = ValueFilling(batch.form, table)
            filled = in_session(session, lost.mapInArrow(reading, _declared(batch.form))).persist()
            filled.count()
            self._positions.keep(session, present.position())
            return filled
        finally:
            present.close()


def marked_rows(table: str, reduced: ReducedBatch, rows: str, doubtful: bool) -> str:
    """Return the query for the rows of a batch with the column `lost`: true if neither the log nor the table has a
    value."""
    form = reduced.form
    first = quoted(form.names[form.key[0]])
    joined = " and ".join(
        f"o.{quoted(form.names[index])} = coalesce(s.origin.k{place}, s.c{index})"
        for place, index in enumerate(form.key)
    )
    nobody = "true" if reduced.emptied else f"(o.{first} is null{' or s.origin is not null' if doubtful else ''})"
    return (
        f"select s.*, s.missing is not null and not {GONE} and {nobody} as lost "
        f"from {rows} s left join {table} o on {joined}"
    )


@dataclass(frozen=True, slots=True)
class ValueFilling:
    """A function that fills missing values from the current rows of the source's table. Worker.

    It leaves out rows that the source's table no longer has.
    """

    form: BlockForm
    table: PresentTable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for misses, places in _by_missing(batch).items():
                yield from self._filled(batch.take(pa.array(places)), list(misses))

    def _filled(self, rows: pa.RecordBatch, misses: list[int]) -> Iterator[pa.RecordBatch]:
        form = self.form
        keys = [rows[f"c{index}"] for index in form.key]
        names = self._called(misses)
        schema = row_schema(form)
        for places, values in self.table.values(self._called(form.key), keys, names):
            part = rows.take(pa.array(places, pa.int64()))
            columns = {field.name: part[field.name] for field in schema}
            columns |= {f"c{place}": column for place, column in zip(misses, values, strict=True)}
            columns["missing"] = pa.nulls(len(part), FIXED[-1].type)
            columns["origin"] = pa.nulls(len(part), schema.field("origin").type)
            yield pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)

    def _called(self, places: Sequence[int]) -> list[str]:
        """Return the present names of columns: since the batch, another column may have got the name of one."""
        return self.table.called([(self.form.names[place], self.form.number(place)) for place in places])


def _by_missing(batch: pa.RecordBatch) -> dict[tuple[int, ...], list[int]]:
    """Return the indexes of rows by the columns that they miss."""
    found: dict[tuple[int, ...], list[int]] = {}
    for row, missed in enumerate(batch["missing"].to_pylist()):
        found.setdefault(tuple(missed or ()), []).append(row)
    return found


def _declared(form: BlockForm) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(row_schema(form), prefer_timestamp_ntz=True)
