"""TableBatch: the blocks of a table in a batch, which Spark's tasks open and reduce. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.columns.blocks import BLOCK, BlockForm, Head, Place
from tailrace.sinks.tables.frames import is_here
from tailrace.sinks.tables.rows import BlockOpening, RowReduction, SeparateOpening, places_of, row_schema
from tailrace.sinks.tables.statements import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_OF_A_TASK = 50_000
_SMALL_BYTES = 16 << 20
_KEYS_OF_A_TASK = 400_000
CHANGES = "-"
"""The value of `TableBatch.snapshot` for changes of the log."""


@dataclass(frozen=True, slots=True)
class TableBatch:
    """The blocks of batch `number` for `table` (database, schema, table).

    `heads` are the heads of these blocks, which have `size` bytes in all. `frame` has the rows of the whole batch.
    `into` is the form of the target table's columns, None before it is known.
    """

    number: int
    table: tuple[str, str, str]
    heads: Sequence[Head]
    frame: DataFrame
    size: int
    into: BlockForm | None = None

    @property
    def form(self) -> BlockForm:
        """The form of the target table's columns; before it is known, the source's newest form."""
        return self.forms[-1][0] if self.into is None else self.into

    @property
    def forms(self) -> list[tuple[BlockForm, Place]]:
        """The forms of the source's table in log order, each with the place of its first change."""
        ordered = sorted(self.heads, key=lambda head: (head.first, head.last))
        runs = groupby(ordered, key=lambda head: head.form)
        return [(form, next(run).first) for form, run in runs]

    def parts(self) -> list[TableBatch]:
        """Return the parts of the batch in log order.

        The batch is split where the columns of the key or the type of a column change, or where another table of the
        source gets the same name.
        """
        runs: list[list[Head]] = []
        key, relation, types = None, 0, dict[int | str, pa.DataType]()
        for head in sorted(self.heads, key=lambda head: (head.first, head.last)):
            form = head.form
            found = {form.number(place) or form.names[place]: kind for place, kind in enumerate(form.types)}
            is_same = key == _key(form) and all(types.get(column, kind) == kind for column, kind in found.items())
            if not runs or not is_same or (relation and form.relation and relation != form.relation):
                runs.append([])
                types = {}
            runs[-1].append(head)
            key, relation, types = _key(form), form.relation or relation, types | found
        if len(runs) == 1:
            return [self]
        parts = []
        for run in runs:
            texts = [head.text().hex() for head in run]
            of_run = " or ".join(f"key = X'{text}'" for text in texts)
            parts.append(replace(self, heads=tuple(run), frame=self.frame.where(of_run)))
        return parts

    @property
    def snapshot(self) -> str:
        """The snapshot that has read all rows; CHANGES if some rows are from the log or from different snapshots."""
        found = {head.snapshot for head in self.heads}
        return found.pop() or CHANGES if len(found) == 1 else CHANGES

    @property
    def truncate(self) -> Place | None:
        """The place of the last truncate; None if there is none."""
        return max((head.truncate for head in self.heads if head.truncate is not None), default=None)

    @property
    def missing(self) -> bool:
        """True if some row may lack values."""
        return any(head.missing for head in self.heads)

    @property
    def moved(self) -> bool:
        """True if some row that lacks values had another key before."""
        return any(head.moved for head in self.heads)

    @property
    def small(self) -> bool:
        """True if each task can hold all rows in memory."""
        return sum(head.rows for head in self.heads) <= _ROWS_OF_A_TASK and self.size <= _SMALL_BYTES

    @property
    def few(self) -> bool:
        """True if each task can hold the keys of all rows in memory."""
        return sum(head.rows for head in self.heads) <= _KEYS_OF_A_TASK

    def partitions(self, most: int) -> int:
        """Return a number of partitions that suits the rows. `most` is the number of tasks that run at once."""
        rows = sum(head.rows for head in self.heads)
        return max(min(most, -(-rows // _ROWS_OF_A_TASK)), -(-rows // (4 * _ROWS_OF_A_TASK)), 1)

    def opened(self) -> DataFrame:
        """Return the rows of the blocks."""
        return self._blocks().mapInArrow(BlockOpening(self.form), _declared(self.form))

    def _blocks(self) -> DataFrame:
        database, schema, table = map(literal, self.table)
        named = f"database = {database} and schema = {schema} and table = {table}"
        return self.frame.where(f"op = {literal(BLOCK)} and {named}").select("key", "value")

    def reduced(self, keeps_deletes: bool, columns: tuple[str, ...] = ()) -> DataFrame:
        """Return the last row of each key, with only `columns` unless that is empty.

        Rows that the last truncate has removed are left out, or with `keeps_deletes` have the op `t`.
        """
        form = self.form
        if all(head.apart for head in self.heads) and self.truncate is None:
            opening = SeparateOpening(form, keeps_deletes, columns)
            rows = self._blocks().mapInArrow(opening, _declared(form, columns))
            return self._at_most(rows, self._tasks(rows))
        rows = self._shuffled(keeps_deletes)
        return rows.select(*columns) if columns else rows

    def _shuffled(self, keeps_deletes: bool) -> DataFrame:
        """Return the rows of `reduced` if the rows of a key may be in several blocks."""
        form, rows = self.form, self.opened()
        if len(self.heads) == 1:
            return rows
        after = None
        if self.truncate is not None:
            position, ordinal = literal(self.truncate[0]), self.truncate[1]
            after = f"(position > {position} or (position = {position} and ordinal > {ordinal}))"
            # The truncate also removes rows that an incremental snapshot has read in the same batch.
            rows = rows.where("op <> 'r'" if keeps_deletes else f"op <> 'r' and {after}")
        rows = self.parted(rows).mapInArrow(RowReduction(form, keeps_deletes), _declared(form))
        if after is None or not keeps_deletes:
            return rows
        op, *others = rows.columns
        return rows.selectExpr(f"if({after}, {op}, 't') {op}", *others)

    def parted(self, rows: DataFrame) -> DataFrame:
        """Return the rows partitioned so that all rows of a key, and of a row whose key has changed, are together."""
        keys = [f"c{index}" for index in self.form.key]
        together = self.moved or self.truncate is not None
        tasks = 1 if together else self._tasks(rows)
        return rows.repartition(tasks, *keys) if tasks > 1 else self._at_most(rows, tasks)

    def _tasks(self, rows: DataFrame) -> int:
        return self.partitions(rows.sparkSession.sparkContext.defaultParallelism)

    def _at_most(self, rows: DataFrame, tasks: int) -> DataFrame:
        """Return the rows in at most `tasks` tasks."""
        # On a cluster, a coalesced task with the log's bytes of several tasks may exceed the size of a message to an
        # executor.
        return rows.coalesce(tasks) if is_here() else rows.repartition(tasks)


def with_values(into: BlockForm, forms: Sequence[tuple[BlockForm, Place]]) -> BlockForm:
    """Return `into` with the values of columns in rows that are older than the column, from the newest of `forms`.

    These values also apply to rows before the alteration in the same batch.
    """
    found: dict[int, str] = {}
    for form, _ in forms:
        places = places_of(form, into)
        found |= {places.index(place): text for place, text in form.values if place in places}
    return replace(into, values=tuple(sorted(found.items()))) if found else into


def _key(form: BlockForm) -> frozenset[int | str]:
    return frozenset(form.number(place) or form.names[place] for place in form.key)


def _declared(form: BlockForm, columns: tuple[str, ...] = ()) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = row_schema(form)
    if columns:
        schema = pa.schema([schema.field(name) for name in columns])
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
