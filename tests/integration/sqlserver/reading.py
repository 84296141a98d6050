"""Sessions of the dialect with a test database, and their use in tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tailrace.columns import TableSchema
from tailrace.config import Config
from tailrace.connectors.changetables.dialect import CaptureTable, KeyRange
from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.dialect import SqlServerDialect, SqlServerSession
from tdsserver.process import TestDatabase

START = bytes(10)


def config(database: TestDatabase, options: dict[str, str] | None = None) -> Config:
    given = database.options() | {"topic.prefix": "p", "driver.encrypt": "false"} | (options or {})
    return parse("sqlserver", given)


@contextmanager
def connected(database: TestDatabase, options: dict[str, str] | None = None) -> Iterator[SqlServerSession]:
    """Yield a session, which is closed at the end."""
    session = SqlServerDialect(config(database, options)).connect(database.name)
    try:
        yield session
    finally:
        session.close()


def only(session: SqlServerSession) -> tuple[CaptureTable, TableSchema]:
    """Return the only capture instance of the database, and its table."""
    (capture,) = session.captures()
    (described,) = session.describe([capture])
    return capture, described.table


def values(columns: list[Any]) -> list[tuple[str | None, ...]]:
    """Return columns of text as rows."""
    lists = [[None if v is None else v.decode() for v in column.to_pylist()] for column in columns]
    return list(zip(*lists, strict=True))


def changed(session: SqlServerSession, after: bytes = START) -> list[tuple[Any, ...]]:
    """Return the changes of the only capture instance: operation and values."""
    capture, table = only(session)
    newest = session.newest()
    assert newest is not None
    return [
        (int(operation), *row)
        for rows in session.changes(capture, table, after, newest)
        for operation, row in zip(rows.operation, values(rows.columns), strict=True)
    ]


def read(session: SqlServerSession, table: TableSchema, rows: KeyRange, statement: str | None = None) -> list[Any]:
    """Return rows of a source table."""
    return [row for batch in session.rows(table, rows, statement) for row in values(batch)]
