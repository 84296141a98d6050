"""The role's rights to read tables as a whole or by columns (`grant select (a, b) on t`). Planner and driver.

A right to columns is enough to read them. LOCK TABLE, `ctid` and other system columns need a right to the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.log.endings import FORBIDDEN
from tailrace.connectors.postgres.snapshot.session import qualified, quoted
from tailrace.errors import PrerequisiteError

if TYPE_CHECKING:
    import psycopg

IN_PART = """
select w.oid::int8 from pg_catalog.unnest(%s::oid[]) w(oid)
where not coalesce(pg_catalog.has_table_privilege(w.oid, 'select'), true)
"""
_LACKING = """
select a.attname::text from pg_catalog.pg_attribute a
where a.attrelid = %s::oid and a.attname::text = any(%s) and a.attnum > 0 and not a.attisdropped
  and not pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'select')
order by a.attnum
"""


def in_part(connection: psycopg.Connection[Any], oids: Sequence[int]) -> set[int]:
    """Return the oids of the tables that the role may not read as a whole."""
    return {oid for (oid,) in connection.execute(IN_PART, (list(oids),)).fetchall()}


def lacking(connection: psycopg.Connection[Any], table: TableSchema) -> list[str]:
    """Return the columns of `table` that the role may not read."""
    names = [column.name for column in table.columns]
    return [name for (name,) in connection.execute(_LACKING, (table.oid, names)).fetchall()]


def refusal(table: TableSchema, columns: Sequence[str]) -> PrerequisiteError:
    """Return the error for a table whose `columns` the role may not read."""
    listed = ", ".join(columns)
    return PrerequisiteError(
        f"The user may not read {table.id}: it has no right to {listed}.",
        f"grant select ({', '.join(map(quoted, columns))}) on {qualified(table.id)} to the role; or leave the columns "
        "out with column.exclude.list or column.include.list.",
    )


def is_forbidden(error: Exception) -> bool:
    """Return True if the server has refused a statement because the role lacks a right."""
    return getattr(error, "sqlstate", None) == FORBIDDEN
