"""Values that neither the log nor a table has, read again from the source. Driver and workers.

What is read is a row as it is now, which may be newer than the batch. So the position behind all that was read is kept,
in the property AGAIN of `tailrace_positions`, from before the rows are written. Up to there

- no moment is whole,
- a row that changes its key takes no value over from the table, where that may be another row's: it is read anew.

A row that is not found has been deleted or has another key by now, which the log shows later: it is left out until
then. So whatever comes between, the tables equal the source once the log has passed that position.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.columns.blocks import FIXED, Form
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.batch import TableBatch, in_session
from tailrace.sinks.tables.once import Once
from tailrace.sinks.tables.rows import row_schema
from tailrace.sinks.tables.statements import Merge, at_path, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.connectors.present import Present, PresentTable

log = logging.getLogger("tailrace")

AGAIN = "tailrace.read-again"
"""The property of `tailrace_positions`: up to where rows that were read again may be newer than the log."""

_TOLD, _KEPT, _FILLED, _ALL = "tailrace_told", "tailrace_known", "tailrace_read_again", "tailrace_completed"
_LEFT = "s.op, s.position, s.ordinal, s.part, s.at, s.missing"


class Again:
    """Reads values again for all tables of a sink. `open_present` opens a session with the source, and `path` is that
    of `tailrace_positions`, which is there when a batch is written.
    """

    def __init__(self, open_present: Callable[[], Present], path: str) -> None:
        self._open, self._path = open_present, path
        self._until: str | None = None
        self._lock = Lock()

    def until(self, session: SparkSession) -> str:
        """The position up to which rows may be newer than the log; "" where none was ever read."""
        with self._lock:
            if self._until is None:
                name = statements.literal(AGAIN)
                rows = session.sql(f"show tblproperties {at_path(self._path)}").where(f"key = {name}").collect()
                self._until = rows[0]["value"] if rows else ""
            return self._until

    def is_doubtful(self, session: SparkSession, batch: TableBatch) -> bool:
        """Whether rows of the table may be newer than a change of the batch, and so be other rows of the same key."""
        return min(head.first for head in batch.heads)[0] <= self.until(session)

    def merge(self, session: SparkSession, batch: TableBatch, once: Once, merge: Merge, rows: str) -> None:
        """Bring a batch in some of whose rows miss values that nobody has. `rows` is the view of its reduced rows."""
        form = batch.form
        marked = session.sql(told(merge, rows, self.is_doubtful(session, batch))).persist()
        try:
            marked.createOrReplaceTempView(_TOLD)
            session.table(_TOLD).where("not lost").drop("lost").createOrReplaceTempView(_KEPT)
            known = session.sql(statements.moved(merge.path, form, _KEPT, "null"))
            present = self._open()
            try:
                reading = Filling(form, present.table(batch.table))
                lost = session.table(_TOLD).where("lost").drop("lost")
                wanted = lost.count()
                filled = in_session(session, lost.mapInArrow(reading, _declared(form))).persist()
                found = filled.count()
                self._note(session, present.position())
            finally:
                present.close()
            filled.createOrReplaceTempView(_FILLED)
            columns = ", ".join(f"s.c{place}" for place in range(len(form.names)))
            completed = session.sql(f"select {_LEFT}, {columns} from {_FILLED} s")
            known.unionByName(completed).createOrReplaceTempView(_ALL)
            told_more = json.loads(once.metadata)
            told_more["tailrace"]["read_again"] = found
            replace(once, metadata=json.dumps(told_more)).run(session, replace(merge, view=_ALL).text())
            filled.unpersist()
        finally:
            marked.unpersist()
        log.warning(
            "%d rows of %s were read again from the source, of %d that miss values: tables are at one moment again "
            "behind %s",
            found, ".".join(filter(None, batch.table)), wanted, self._until,
        )  # fmt: skip

    def _note(self, session: SparkSession, position: str) -> None:
        """Keep the position, before anything is written that was read."""
        with self._lock:
            if position > (self._until or ""):
                session.sql(statements.set_properties(self._path, {AGAIN: position}))
                self._until = position


def told(merge: Merge, rows: str, doubtful: bool) -> str:
    """The query for the rows of a batch and, as `lost`, whether nobody has what one misses."""
    form = merge.form
    first = quoted(form.names[form.key[0]])
    joined = " and ".join(
        f"o.{quoted(form.names[index])} = coalesce(s.origin.k{place}, s.c{index})"
        for place, index in enumerate(form.key)
    )
    nobody = "true" if merge.emptied else f"(o.{first} is null{' or s.origin is not null' if doubtful else ''})"
    return (
        f"select s.*, s.missing is not null and s.op <> 'd' and {nobody} as lost "
        f"from {rows} s left join {at_path(merge.path)} o on {joined}"
    )


@dataclass(frozen=True, slots=True)
class Filling:
    """Gives rows the values that they miss, of the source's table as it is now, and leaves out those that are not
    there. Worker."""

    form: Form
    table: PresentTable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for misses, places in _by_missing(batch).items():
                yield from self._filled(batch.take(pa.array(places)), list(misses))

    def _filled(self, rows: pa.RecordBatch, misses: list[int]) -> Iterator[pa.RecordBatch]:
        form = self.form
        keys = [rows[f"c{index}"] for index in form.key]
        names = [form.names[place] for place in misses]
        schema = row_schema(form)
        for places, values in self.table.values([form.names[index] for index in form.key], keys, names):
            part = rows.take(pa.array(places, pa.int64()))
            columns = {field.name: part[field.name] for field in schema}
            columns |= {f"c{place}": column for place, column in zip(misses, values, strict=True)}
            columns["missing"] = pa.nulls(len(part), FIXED[-1].type)
            columns["origin"] = pa.nulls(len(part), schema.field("origin").type)
            yield pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _by_missing(batch: pa.RecordBatch) -> dict[tuple[int, ...], list[int]]:
    """The rows by the columns that they miss."""
    found: dict[tuple[int, ...], list[int]] = {}
    for row, missed in enumerate(batch["missing"].to_pylist()):
        found.setdefault(tuple(missed or ()), []).append(row)
    return found


def _declared(form: Form) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(row_schema(form), prefer_timestamp_ntz=True)


def lacks(error: BaseException) -> bool:
    """Whether a statement has failed because nobody has a value."""
    return statements.UNKNOWN in str(error)
