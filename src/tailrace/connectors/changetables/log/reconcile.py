"""Reconciliation of a window's rows with the log: rows whose key has a change in the same batch are left out.
Worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.table import TableSchema
from tailrace.connectors.changetables.capture_history import PeriodPart
from tailrace.connectors.changetables.dialect import Dialect
from tailrace.connectors.changetables.log.sessions import Retries, changes


def changed_keys(
    dialect: Dialect,
    retries: Retries,
    database: str,
    table: TableSchema,
    identity: tuple[str, ...],
    spans: Sequence[PeriodPart],
) -> pa.Array:
    """Return the keys, in the form of `one_text`, of all change rows of `spans`, both old and new rows of updates."""
    found: list[pa.Array] = []
    only = replace(table, columns=tuple(table.columns[table.index(name)] for name in identity))
    for span in spans:
        for rows in changes(dialect, database, span, only, retries):
            found.append(pc.unique(one_text(rows.columns)))
    return pc.unique(pa.chunked_array(found, pa.binary())) if found else pa.array([], pa.binary())


def without(
    table: TableSchema, columns: list[pa.Array], identity: tuple[str, ...], changed: pa.Array
) -> list[pa.Array]:
    """Return the rows of `columns`, the columns of `table`, whose key is not in `changed`."""
    if not len(changed):
        return columns
    keys = one_text([columns[table.index(name)] for name in identity])
    kept = pc.invert(pc.is_in(keys, value_set=changed))
    return [column.filter(kept) for column in columns]


def one_text(columns: list[pa.Array]) -> pa.Array:
    """Return one binary value for each row, equal only for equal keys: several parts are joined with their lengths."""
    if len(columns) == 1:
        return columns[0]
    parts = []
    for column in columns:
        length = pc.cast(pc.cast(pc.binary_length(column), pa.string()), pa.binary())
        parts += [pc.fill_null(length, b"-"), pc.fill_null(column, b"")]
    return pc.binary_join_element_wise(*parts, pa.scalar(b":", pa.binary()))
