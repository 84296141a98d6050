"""A merge into files by joins, which find the rows to remove and the rows to add. Driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tailrace.sinks.tables.statements import Clause, Merge, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

FILE, ROW = "_tailrace_file", "_tailrace_row"
"""The columns for the place of a stored row: its file, and its index in the file."""

_ALL, _NEW, _FOUND, _LEFT = "tailrace_files", "tailrace_new", "tailrace_found", "tailrace_left"


class IcebergMerge:
    """A merge into a table with `columns`, types by name. Call `begin` first and `end` last."""

    def __init__(self, session: SparkSession, merge: Merge, columns: Mapping[str, DataType]) -> None:
        self._session, self._merge, self._columns = session, merge, columns
        self._kept: list[DataFrame] = []

    @property
    def replaces(self) -> bool:
        """True if the merge keeps no row of the table, so that the new rows replace all rows."""
        beyond = self._merge.beyond
        return beyond is not None and beyond.values is None and not beyond.condition

    @property
    def reads(self) -> dict[str, DataType]:
        """The columns of the table that the merge reads: for comparison, and for values that a new row keeps."""
        merge = self._merge
        clauses = [clause for clause in (*merge.matched, merge.beyond) if clause is not None]
        texts = [merge.on, *(clause.condition for clause in clauses)]
        kept: set[str] = set()
        for clause in clauses:
            if clause.values is not None:
                texts += clause.values.values()
                kept |= self._columns.keys() - clause.values.keys()
        expressions = " ".join(texts)
        named = {name for name in self._columns if f"t.{quoted(name)}" in expressions or f"t.{name}" in expressions}
        return {name: kind for name, kind in self._columns.items() if name in kept | named}

    def begin(self, stored: DataFrame, deleted: DataFrame | None) -> None:
        """Find the stored rows that the merge affects.

        `stored` has the columns of `reads` and the places, and includes rows that `deleted` names as deleted.
        """
        new = self._session.table(self._merge.view).persist()
        self._kept.append(new)
        # The count computes the rows, so that Spark knows their number when it chooses its joins.
        new.count()
        new.createOrReplaceTempView(_NEW)
        stored.createOrReplaceTempView(_ALL)
        self._keep(f"select t.* from {_ALL} t left semi join {_NEW} s on {self._merge.on}", deleted, _FOUND)
        if self._merge.beyond is not None and not self.replaces:
            self._keep(f"select t.* from {_ALL} t left anti join {_NEW} s on {self._merge.on}", deleted, _LEFT)

    def end(self) -> None:
        """Release the rows that were found."""
        for frame in self._kept:
            frame.unpersist()

    def rows(self) -> DataFrame:
        """Return the rows to add, including rows that replace others."""
        merge = self._merge
        cases = [(f"t.{ROW} is not null and {_holds(clause)}", clause.values) for clause in merge.matched]
        if merge.inserted is not None:
            values = dict.fromkeys(self._columns, "null") | dict(merge.inserted.values or {})
            cases.append((f"t.{ROW} is null and {_holds(merge.inserted)}", values))
        comes = _case([(when, "false" if values is None else "true") for when, values in cases])
        rows = self._session.sql(
            f"select {self._values(cases)} from {_NEW} s left join {_FOUND} t on {merge.on} where {comes}"
        )
        beyond = merge.beyond
        if beyond is not None and beyond.values is not None:
            columns = self._values([("true", beyond.values)])
            rows = rows.unionAll(self._session.sql(f"select {columns} from {_LEFT} t where {_holds(beyond)}"))
        return rows

    def places(self) -> DataFrame:
        """Return the places of the rows to remove."""
        merge = self._merge
        gone = " or ".join(_holds(clause) for clause in merge.matched)
        text = f"select t.{FILE} file_path, t.{ROW} pos from {_NEW} s join {_FOUND} t on {merge.on} where {gone}"
        if merge.beyond is not None:
            text += f" union all select t.{FILE}, t.{ROW} from {_LEFT} t where {_holds(merge.beyond)}"
        return self._session.sql(text)

    def _values(self, cases: Sequence[tuple[str, Mapping[str, str] | None]]) -> str:
        """Return a new row's columns as SQL: the values of the first case that holds, else the stored row's."""
        parts = []
        for name, kind in self._columns.items():
            branches = [(when, values.get(name, f"t.{quoted(name)}")) for when, values in cases if values is not None]
            parts.append(f"cast({_case(branches)} as {kind.simpleString()}) {quoted(name)}")
        return ", ".join(parts)

    def _keep(self, text: str, deleted: DataFrame | None, view: str) -> None:
        found = self._session.sql(text)
        if deleted is not None:
            gone = (found[FILE] == deleted["file_path"]) & (found[ROW] == deleted["pos"])
            found = found.join(deleted, gone, "left_anti")
        self._kept.append(found.persist())
        self._kept[-1].createOrReplaceTempView(view)


def _holds(clause: Clause) -> str:
    return f"({clause.condition})" if clause.condition else "true"


def _case(cases: Sequence[tuple[str, str]]) -> str:
    return f"case {' '.join(f'when {when} then {then}' for when, then in cases)} end" if cases else "null"
