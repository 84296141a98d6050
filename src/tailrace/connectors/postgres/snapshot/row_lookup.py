"""Look-up of current rows by their keys, for values that the log does not carry. Worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.server.arrow import KeptConnection
from tailrace.connectors.postgres.server.causes import hidden_rows
from tailrace.connectors.postgres.server.connection import Address
from tailrace.connectors.postgres.snapshot.key_chunks import OPERATORS, literal
from tailrace.connectors.postgres.snapshot.session import locking, only, qualified, quoted
from tailrace.errors import ConnectionFailed
from tailrace.events.reselection import Found, Key, UnreadableRows

if TYPE_CHECKING:
    from adbc_driver_manager import Error

# Columns as the table has them now, and the table's kind.
_COLUMNS = f"""
select a.attname::text, a.atttypid::int8, a.atttypmod::int8, pg_catalog.format_type(a.atttypid, a.atttypmod),
       {OPERATORS}, c.relkind::text
from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid
where c.oid = pg_catalog.to_regclass(%s) and a.attnum > 0 and not a.attisdropped and a.attname::text in (%s)
"""
_VARCHAR = 1043
_ALTERED = "cannot read {0} again: its columns have changed meanwhile, or it is gone"


class _Now(NamedTuple):
    """A column as the table has it now."""

    oid: int
    modifier: int
    type: str
    operators: str
    relkind: str


@dataclass(frozen=True, slots=True)
class PresentRows:
    """Implements `tailrace.events.reselection.RereadRows` by one query of the present table for many rows.

    `address` holds the password; its repr is only the class name.
    """

    address: Address

    def of_keys(
        self, table: TableSchema, key: Sequence[str], keys: Sequence[Key], columns: Sequence[str]
    ) -> Iterator[Found]:
        import adbc_driver_manager

        connection = None
        try:
            connection = KeptConnection.take(self.address)
            connection.begin("begin isolation level read committed read only")
            # the table cannot be altered until the rows are read
            connection.execute(locking(f"only {qualified(table.id)}"))
            found = _columns(connection, table, {*key, *columns})
            unique = key == (table.key if table.own is None else table.own)
            for rows in connection.query(_query(table, found, key, keys, columns, unique=unique)):
                places = [place - 1 for place in rows.column(0).to_pylist()]
                yield places, [_texts(column) for column in rows.columns[1:]]
        except adbc_driver_manager.Error as error:
            raise _failure(table, error) from None
        finally:
            if connection is not None:
                connection.close()


def _columns(connection: KeptConnection, table: TableSchema, wanted: set[str]) -> dict[str, _Now]:
    """Return the present columns. Raises UnreadableRows if they differ from those of the table's version."""
    listed = ", ".join(literal(name) for name in sorted(wanted))
    query = _COLUMNS % (literal(qualified(table.id)), listed)
    found = {row[0]: _Now(*row[1:]) for rows in connection.query(query) for row in zip(*_lists(rows), strict=True)}
    for name in wanted:
        then, now = table.columns[table.index(name)], found.get(name)
        if now is None or then.type_oid != now.oid or (then.modifier != now.modifier and now.oid != _VARCHAR):
            raise UnreadableRows(_ALTERED.format(table.id))
    return found


def _lists(rows: pa.RecordBatch) -> list[list[object]]:
    return [column.to_pylist() for column in rows.columns]


def _query(
    table: TableSchema,
    found: dict[str, _Now],
    key: Sequence[str],
    keys: Sequence[Key],
    columns: Sequence[str],
    *,
    unique: bool,
) -> str:
    """Return the query of the rows of `keys`: for each row the number of its key, from 1, and its columns as text."""
    arrays = ", ".join(f"{_array([one[place] for one in keys])}::text[]" for place in range(len(key)))
    named = ", ".join(f"k{place}" for place in range(len(key)))
    joined = " and ".join(
        f"t.{quoted(name)} operator({found[name].operators}.=) w.k{place}::{found[name].type}"
        for place, name in enumerate(key)
    )
    texts = ", ".join(
        f"case when t.{quoted(name)} is null then null else pg_catalog.format('%s', t.{quoted(name)}) end as c{place}"
        for place, name in enumerate(columns)
    )
    relkind = next(iter(found.values())).relkind
    source = f"{only(relkind)}{qualified(table.id)} t"
    # several rows may have the same key if the user declared the key: any of these rows is returned
    once = "" if unique else "distinct on (w.place) "
    wanted = f"unnest({arrays}) with ordinality as w({named}, place)"
    return f"select {once}w.place, {texts} from {wanted} join {source} on {joined}"


def _array(texts: Sequence[str]) -> str:
    """Return an array of texts as an SQL literal."""
    parts = ('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts)
    return literal("{" + ",".join(parts) + "}")


def _texts(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary())


def _failure(table: TableSchema, error: Error) -> Exception:
    """Return the error for the driver's `error`: UnreadableRows for a refused query, else ConnectionFailed."""
    if (hidden := hidden_rows(error)) is not None:
        return hidden
    state = getattr(error, "sqlstate", None)
    if state and not state.startswith(("08", "57P")):
        return UnreadableRows(f"cannot read {table.id} again: its query fails with SQLSTATE {state}")
    text = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
    return ConnectionFailed(
        f"Rows of {table.id} cannot be read again: {text}.", "Start again with the same checkpoint: nothing is lost."
    )
