"""Copies in another database, written by the sink `jdbc`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from tailrace.sinks.base import Sink
from tailrace.sinks.jdbc.sink import JdbcSink
from tests.fix_postgres import Database
from tests.simulation.schema.copies import Copies, Row
from tests.unit.sinks.stream import Row as Record
from tests.unit.sinks.stream import started

_TABLES = """
select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname in ('public', 'other') and c.relkind = 'r' and c.relname <> 'tailrace_batches'
"""


def options(target: Database) -> dict[str, str]:
    """Return the options of a sink whose tables in `target` follow those of the source."""
    server = target.server
    return {
        "type": "jdbc",
        "jdbc.connection.url": f"jdbc:postgresql://{server.host}:{server.port}/{target.name}",
        "jdbc.connection.username": server.user,
        "jdbc.connection.password": server.password,
        "jdbc.insert.mode": "upsert",
        "jdbc.primary.key.mode": "record_key",
        "jdbc.delete.enabled": "true",
        "jdbc.truncate.enabled": "true",
        "jdbc.schema.evolution": "basic",
        "jdbc.quote.identifiers": "true",
        "jdbc.collection.name.format": "$${source.schema}.$${source.table}",
        "jdbc.flush.retry.delay.ms": "1",
    }


class JdbcCopies(Copies):
    """Tables of the database `target`. Each batch is written by a new sink, as after a restart."""

    def __init__(self, target: Database, checkpoint: Path, sink: Sink) -> None:
        self._target, self._checkpoint = target, checkpoint
        self.follow(sink)
        with self._connect() as connection:
            for schema in ("public", "other"):
                connection.execute(f"drop schema if exists {schema} cascade".encode())
                connection.execute(f"create schema {schema}".encode())

    def follow(self, sink: Sink) -> None:
        assert isinstance(sink, JdbcSink)
        self._sink = sink

    def write(self, number: int, rows: Sequence[Record]) -> None:
        try:
            started(self._sink, self._checkpoint).batch(rows, number)
        finally:
            self._sink.close()

    def names(self) -> set[str]:
        with self._connect() as connection:
            return {name for (name,) in connection.execute(_TABLES.encode()).fetchall()}

    def rows(self, name: str) -> list[Row] | None:
        if name not in self.names():
            return None
        with self._connect() as connection, connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            return cursor.execute(f"select * from {_quoted(name)}".encode()).fetchall()

    def columns(self, name: str) -> list[str]:
        if name not in self.names():
            return []
        with self._connect() as connection:
            found = connection.execute(f"select * from {_quoted(name)} limit 0".encode())
            return [column.name for column in found.description or ()]

    def remove(self, name: str) -> None:
        with self._connect() as connection:
            connection.execute(f"drop table if exists {_quoted(name)}".encode())

    def empty(self, name: str) -> None:
        # with its columns, which the sink makes anew
        self.remove(name)

    def _connect(self) -> psycopg.Connection[Any]:
        return self._target.connect()


def _quoted(name: str) -> str:
    schema, _, table = name.partition(".")
    return f'"{schema}"."{table}"'
