"""The division of a table into ranges of its key. Planner.

Integer keys are divided by the server's estimates, without reading rows. Bounds of other keys are found by a walk over
the index. Bounds need not be exact: a small or large range only costs time.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.connectors.binlog.snapshot.keys import (
    Key,
    KeyColumn,
    KeyRange,
    compared,
    key_columns,
    literal,
    qualified,
    quoted,
    sorting,
    where,
    within,
)
from tailrace.connectors.binlog.snapshot.result import named_rows, rows

if TYPE_CHECKING:
    from pymysql.connections import Connection

CHUNK_BYTES, LEAST_CHUNK_BYTES = 16 << 20, 1 << 20
"""Approximate maximum and minimum size of a chunk in bytes, by the server's statistics."""
MOST_CHUNKS = 256
"""The most chunks of a table: their bounds are in each offset."""
_LEAST_ROWS = 1000


def index_of(session: Connection[Any], table: TableSchema) -> str:
    """Return the name of the unique index over exactly the columns of the table's key, in order; "" if there is
    none."""
    found = rows(
        session,
        "select index_name, column_name, sub_part is not null from information_schema.statistics "
        f"where table_schema = {literal(table.id.schema)} and table_name = {literal(table.id.table)} "
        "and non_unique = 0 order by index_name, seq_in_index",
    )
    indexes: dict[str, list[tuple[str, bool]]] = {}
    for name, column, is_prefix in found:
        indexes.setdefault(str(name), []).append((str(column), is_prefix != "0"))
    wanted = [(name, False) for name in table.key]
    return next((name for name, parts in indexes.items() if parts == wanted), "")


def bounds(session: Connection[Any], table: TableSchema, chunks: int) -> list[Key]:
    """Return at most `chunks - 1` keys, in the table's order, that divide it; none if it cannot be divided."""
    columns = key_columns(table, table.key) if table.key else ()
    if chunks < 2 or not columns or not (index := index_of(session, table)):
        return []
    if columns[0].is_whole:
        return _by_estimates(session, table, columns[0], chunks)
    return _by_walk(session, table, columns, index, chunks)


def estimate(session: Connection[Any], table: TableSchema) -> tuple[int, int]:
    """Return the server's estimates of a table's rows and bytes."""
    found = rows(
        session,
        "select coalesce(table_rows, 0), coalesce(data_length, 0) from information_schema.tables "
        f"where table_schema = {literal(table.id.schema)} and table_name = {literal(table.id.table)}",
    )
    return (int(found[0][0] or 0), int(found[0][1] or 0)) if found else (0, 0)


def _by_estimates(session: Connection[Any], table: TableSchema, column: KeyColumn, chunks: int) -> list[Key]:
    """Return bounds from values of an integer column, by repeatedly halving the range with most rows."""
    name, source = quoted(column.name), qualified(table)
    ((low, high),) = rows(session, f"select min({name}), max({name}) from {source}")
    if low is None or high is None:
        return []
    first = (int(low) - 1, int(high))
    total = _rows_between(session, source, column, *first)
    least = max(total // (2 * chunks), _LEAST_ROWS)
    ranges = [(-total, *first)]
    while len(ranges) < chunks:
        count, after, upto = ranges[0]
        if -count <= least or upto - after < 2:
            break
        middle = (after + upto) // 2
        heapq.heapreplace(ranges, (-_rows_between(session, source, column, after, middle), after, middle))
        heapq.heappush(ranges, (-_rows_between(session, source, column, middle, upto), middle, upto))
    return [(str(upto),) for upto in sorted(upto for _, _, upto in ranges)[:-1]]


def _rows_between(session: Connection[Any], source: str, column: KeyColumn, after: int, upto: int) -> int:
    """Return the server's estimate of the number of rows in `(after, upto]`."""
    condition = " and ".join(within([column], KeyRange((str(after),), (str(upto),))))
    found = named_rows(session, f"explain select 1 from {source} where {condition}")
    return int(found[0]["rows"] or 0) if found else 0


def _by_walk(
    session: Connection[Any], table: TableSchema, columns: tuple[KeyColumn, ...], index: str, chunks: int
) -> list[Key]:
    """Return the keys at equal numbers of rows, in the order of the index."""
    count = max(estimate(session, table)[0] // chunks, _LEAST_ROWS)
    found: list[Key] = []
    while len(found) < chunks - 1:
        end = boundary(session, table, columns, index, found[-1] if found else None, count)
        if end is None:
            break
        found.append(end)
    if found and boundary(session, table, columns, index, found[-1], 1) is None:
        # the last range would have no rows
        found.pop()
    return found


def boundary(
    session: Connection[Any],
    table: TableSchema,
    columns: tuple[KeyColumn, ...],
    index: str,
    after: Key | None,
    count: int,
    conditions: tuple[str, ...] = (),
) -> Key | None:
    """Return the key of the `count`-th row after `after`; None if there are fewer rows.

    `index` is forced unless it is "". `conditions` restrict the rows.
    """
    forced = f" force index ({quoted(index)})" if index else ""
    met = [*([] if after is None else [compared(columns, ">", after)]), *conditions]
    found = rows(
        session,
        f"select {', '.join(column.read() for column in columns)} from {qualified(table)}{forced}{where(met)} "
        f"order by {sorting(columns)} limit 1 offset {count - 1}",
    )
    return tuple(str(text) for text in found[0]) if found else None
