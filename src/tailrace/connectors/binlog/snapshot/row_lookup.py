"""Look-up of current rows by their keys, for values that are not in the log. Worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.columns.table import Column, TableSchema
from tailrace.config import Config
from tailrace.connectors.binlog.server.connection import connect, is_gone
from tailrace.connectors.binlog.server.errors import number_of
from tailrace.connectors.binlog.snapshot.keys import KeyColumn, base, key_columns, literal, qualified
from tailrace.connectors.binlog.snapshot.reconcile import key_texts
from tailrace.connectors.binlog.snapshot.result import ServerError, rows, run, select
from tailrace.connectors.binlog.snapshot.rows import forms, select_list
from tailrace.errors import ConnectionFailed
from tailrace.events.reselection import Found, Key, UnreadableRows

if TYPE_CHECKING:
    from pymysql.connections import Connection

# The most keys of one query: servers use the index for this many.
_AT_ONCE = 200
_AGAIN = "Start again with the same checkpoint: nothing is lost."


@dataclass(frozen=True, slots=True)
class PresentRows:
    """Implements tailrace.events.reselection.RereadRows by queries of the current table. `config` holds the
    password."""

    config: Config = field(repr=False)

    def of_keys(
        self, table: TableSchema, key: Sequence[str], keys: Sequence[Key], columns: Sequence[str]
    ) -> Iterator[Found]:
        import pymysql

        session = connect(self.config)
        try:
            # the table cannot be altered until the rows are read
            run(session, "start transaction read only")
            named = key_columns(table, key)
            if not named:
                raise UnreadableRows(f"cannot read {table.id} again by a key of these types")
            run(session, f"select 1 from {qualified(table)} limit 1")
            _demand(session, table, {*key, *columns})
            for low in range(0, len(keys), _AT_ONCE):
                yield from _found(session, table, named, keys[low : low + _AT_ONCE], columns, low)
        except (pymysql.err.MySQLError, ServerError) as error:
            code = error.code if isinstance(error, ServerError) else number_of(error)
            if isinstance(error, pymysql.err.MySQLError) and is_gone(error):
                raise ConnectionFailed(f"Rows of {table.id} cannot be read again: error {code}.", _AGAIN) from None
            raise UnreadableRows(f"cannot read {table.id} again: its query fails with error {code}") from None
        finally:
            session.close()


def _demand(session: Connection[object], table: TableSchema, wanted: set[str]) -> None:
    """Raise UnreadableRows if the types of columns differ from the types in the table's version."""
    found = rows(
        session,
        "select column_name, data_type from information_schema.columns where table_schema = "
        f"{literal(table.id.schema)} and table_name = {literal(table.id.table)}",
    )
    kinds = {str(name): base(Column("", str(kind), 0)) for name, kind in found}
    for name in wanted:
        then, now = base(table.columns[table.index(name)]), kinds.get(name, "")
        # MariaDB's JSON is a text
        if then != now and (then, now) != ("json", "longtext"):
            raise UnreadableRows(f"cannot read {table.id} again: its columns have changed meanwhile, or it is gone")


def _found(
    session: Connection[object],
    table: TableSchema,
    named: Sequence[KeyColumn],
    keys: Sequence[Key],
    columns: Sequence[str],
    low: int,
) -> Iterator[Found]:
    """Yield the rows of some keys, with texts in the form of the log."""
    identity = [table.columns[table.index(column.name)] for column in named]
    shown = [table.columns[table.index(name)] for name in columns]
    texts = key_texts(
        identity, [pa.array([_bytes(key[place]) for key in keys], pa.binary()) for place in range(len(named))]
    )
    places = {text: low + place for place, text in reversed(list(enumerate(texts.to_pylist())))}
    conditions = (
        "(" + " and ".join(f"{column.equal()} = {column.logged(_bytes(text))}"
                           for column, text in zip(named, key, strict=True)) + ")"
        for key in keys
    )  # fmt: skip
    listed = f"{select_list(identity, exact=True)}, {select_list(shown, exact=True)}"
    statement = f"select {listed} from {qualified(table)} where {' or '.join(conditions)}"
    for batch in select(session, statement, forms(identity, exact=True) + forms(shown, exact=True)):
        of = [places.get(text) for text in key_texts(identity, batch[: len(named)]).to_pylist()]
        # by its collation the server may return keys with different texts
        kept = pa.array([place is not None for place in of])
        numbers = [place for place in of if place is not None]
        if numbers:
            yield numbers, [column.filter(kept) for column in batch[len(named) : len(named) + len(shown)]]


def _bytes(text: object) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()
