"""Merge: what a batch does to the rows of a table, as a value that each format carries out. Pure, driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.sinks.tables.statements import quoted


@dataclass(frozen=True, slots=True)
class Clause:
    """What becomes of rows for which `condition` holds ("": of all): they get `values`, SQL by the names of columns.

    None in place of values deletes them.
    """

    condition: str = ""
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """The rows of the view `view`, `s`, against those of the table, `t`; no two rows of `s` may be `on` one of `t`.

    The first of the clauses `matched` that holds says what becomes of a row of the table that has a row of the view,
    `inserted` which other rows of the view become rows of the table, `beyond` what becomes of the other rows of the
    table (None: they stay).
    """

    view: str
    on: str
    matched: tuple[Clause, ...]
    inserted: Clause
    beyond: Clause | None = None

    def statement(self, table: str) -> str:
        """The MERGE of SQL; `table` is the table's name there."""
        parts = [f"merge into {table} t using {self.view} s on {self.on}"]
        for clause in self.matched:
            parts.append(f"when matched{_and(clause)} then {_done(clause)}")
        values = self.inserted.values or {}
        listed = f"({', '.join(map(quoted, values))}) values ({', '.join(values.values())})"
        parts.append(f"when not matched{_and(self.inserted)} then insert {listed}")
        if self.beyond is not None:
            parts.append(f"when not matched by source{_and(self.beyond)} then {_done(self.beyond)}")
        return " ".join(parts)


def _and(clause: Clause) -> str:
    return f" and {clause.condition}" if clause.condition else ""


def _done(clause: Clause) -> str:
    if clause.values is None:
        return "delete"
    return "update set " + ", ".join(f"t.{quoted(name)} = {value}" for name, value in clause.values.items())
