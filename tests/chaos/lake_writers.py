"""Changes of many tables, for pipelines into tables: transactions over several tables, and their statements."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.chaos.changes import UNAVAILABLE, Change, Row

SCHEMA = "lake"
FIRST = 200
"""Rows of each table before the first start."""
_MOST = 400
"""Rows of the largest statement."""
_BIG = "repeat(md5(random()::text), 90)"
"""A text that is stored apart from its row."""


def name_of(number: int) -> str:
    return f"t{number:02d}"


def keys_of(number: int) -> tuple[str, ...]:
    """Return the columns of a table's key; every fifth table has two."""
    return ("id", "part") if number % 5 == 1 else ("id",)


def make_tables(connection: psycopg.Connection[Any], tables: int) -> None:
    """Create the tables, empty."""
    connection.execute(f"create schema {SCHEMA}".encode())
    for number in range(tables):
        name, key = f"{SCHEMA}.{name_of(number)}", ", ".join(keys_of(number))
        more = "".join(f", more{place} int" for place in range(number % 7))
        connection.execute(
            f"create table {name} (id bigint, part text, n bigint, price numeric(12,2), note text, big text{more}, "
            f"primary key ({key}))".encode()
        )
        connection.execute(f"alter table {name} alter big set storage external".encode())
        if number % 5 == 0:
            connection.execute(f"alter table {name} replica identity full".encode())


def fill(connection: psycopg.Connection[Any], tables: int) -> None:
    """Insert the first rows of each table."""
    for number in range(tables):
        connection.execute(_insert(number, 1, FIRST).encode())


def _insert(number: int, low: int, high: int) -> str:
    return (
        f"insert into {SCHEMA}.{name_of(number)} (id, part, n, price, note, big) select i, 'p' || i % 3, 0, "
        f"i / 100.0, case when i % 4 > 0 then 'row ' || i end, case when i % 3 = 0 then {_BIG} end "
        f"from generate_series({low}, {high}) i on conflict do nothing"
    )


@dataclass
class Writer:
    """A session that writes batches of changes. `failures` holds the reasons of failed writes."""

    dsn: str
    tables: int
    seed: int
    failures: list[str] = field(default_factory=list)
    written: int = 0
    _thread: threading.Thread | None = None
    _slices: int = 0
    _highest: dict[int, int] = field(default_factory=dict)

    def write(self, changes: int) -> None:
        """Begin to write at least this many changes; `wait` waits for the end."""
        self.wait()
        self._slices += 1
        choice = random.Random(f"{self.seed}/{self._slices}")
        self._thread = threading.Thread(target=self._work, args=(changes, choice), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _work(self, changes: int, choice: random.Random) -> None:
        until = self.written + changes
        try:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                while self.written < until:
                    self._transaction(connection, choice)
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")

    def _transaction(self, connection: psycopg.Connection[Any], choice: random.Random) -> None:
        count = 0
        try:
            with connection.transaction():
                for _ in range(choice.choice((1, 1, 2, 4, 8))):
                    count += self._statement(connection, choice)
                if choice.random() < 0.03:
                    raise _GivenUp
        except (_GivenUp, psycopg.errors.UniqueViolation):
            return
        self.written += count

    def _statement(self, connection: psycopg.Connection[Any], choice: random.Random) -> int:
        """Run one statement over some rows. Return the number of changed rows."""
        number = choice.randrange(self.tables)
        name, size = f"{SCHEMA}.{name_of(number)}", choice.choice((1, 5, 40, _MOST))
        highest = self._highest.get(number, FIRST)
        low = choice.randrange(1, highest + 1)
        some = f"where id between {low} and {low + size}"
        kind = choice.choices(range(8), (8, 20, 3, 3, 2, 1, 3, 0.15))[0]
        if kind == 0:
            self._highest[number] = highest + size
            text = _insert(number, highest + 1, highest + size)
        elif kind == 7:
            text = f"truncate {name}"
        else:
            text = (
                "",
                f"update {name} set n = n + 1, note = 'note ' || n {some}",
                f"update {name} set big = {_BIG} where id between {low} and {low + size // 10}",
                f"delete from {name} where id between {low} and {low + size // 4}",
                # The key changes, and then the row; then a key is taken that another row has left.
                f"update {name} set id = -id, n = n + 1 where id between {low} and {low + size // 10}",
                f"update {name} set id = -id where id between {-low - size // 10} and {-low}",
                f"update {name} set price = price + 1, big = case when id % 7 = 0 then null else big end {some}",
            )[kind]
        return max(connection.execute(text.encode()).rowcount, 1)


class _GivenUp(Exception):
    """A transaction is rolled back on purpose."""


def completed(changes: Iterator[Change], rows: dict[str, dict[str, Row]]) -> Iterator[Change]:
    """Yield changes with the values that an update has left unchanged. `rows` are the tables before them, and are
    updated."""
    moved: Row = {}
    for change in changes:
        table = rows.setdefault(change.table, {})
        if change.op == "t":
            table.clear()
        elif change.op == "d":
            moved = table.pop(change.key, {})
        else:
            assert change.row is not None
            before = moved if change.op == "c" else table.get(change.key, {})
            whole = {
                name: before[name] if value == UNAVAILABLE else value
                for name, value in change.row.items()
                if value != UNAVAILABLE or name in before
            }
            table[change.key] = whole
            yield Change(change.table, change.op, change.key, whole, change.lsn, change.transaction)
            continue
        yield change
