"""The measured server, table and rows, which are the same in every run. Driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench.tables import Table
from tailrace.demo import embedded
from tests.fix_postgres import system_binaries

SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "8GB"}
"""All settings besides `wal_level=logical` and the slots that differ from a new server's. Durability is the default."""

TRANSACTION = 1000
"""Rows of one transaction."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running PostgreSQL of the benchmark: its address, its process, its client programs."""

    host: str
    port: int
    user: str
    password: str
    programs: Path
    pid: int
    version: str

    def dsn(self, database: str) -> str:
        """Return a libpq connection string for `database`."""
        return f"host={self.host} port={self.port} user={self.user} password={self.password} dbname={database}"


@contextmanager
def server(kind: str) -> Iterator[Server]:
    """Start the `system`'s PostgreSQL, if one is installed, or else the `embedded` one; stop it at exit."""
    programs = system_binaries() if kind == "system" else None
    if programs is None:
        programs = embedded.bundled()
    with embedded.Server(programs, SETTINGS) as running:
        with psycopg.connect(running.dsn()) as connection:
            row = connection.execute(
                "select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int, current_setting('server_version')"
            ).fetchone()
            assert row is not None
        yield Server(running.host, running.port, running.user, running.password, programs, row[0], row[1])


class Workload:
    """A database with the table `bench` and its slots. `execute` commits each statement at once."""

    database = "bench"

    def __init__(self, server: Server) -> None:
        self.server = server
        with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
            connection.execute("create database bench template template0 encoding 'UTF8' lc_collate 'C.UTF-8'")
        self._connection: psycopg.Connection[Any] = psycopg.connect(server.dsn(self.database), autocommit=True)

    def close(self) -> None:
        """Close the connection; the database ends with its server."""
        self._connection.close()

    def execute(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own and return its rows."""
        # Without parameters a percent sign is an operator of SQL.
        cursor = self._connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def create(self, table: Table) -> None:
        """Create an empty table, with a publication of the same name."""
        name = sql.Identifier(table.name)
        declaration = sql.SQL(" ({})").format(sql.SQL(table.declaration))
        self._connection.execute(sql.SQL("create table {}").format(name) + declaration)
        self._connection.execute(sql.SQL("create publication {} for table {}").format(name, name))

    def insert(self, table: Table, rows: int) -> None:
        """Insert the rows 1 to `rows` in transactions of TRANSACTION rows; the last may be smaller."""
        self._in_transactions(rows, f"insert into {table.name} {table.select} from generate_series(low, high) i")

    def update(self, table: str, rows: int) -> None:
        """Change one column of the rows 1 to `rows`, with the whole old row in the log."""
        self.execute(f"alter table {table} replica identity full")
        self._in_transactions(rows, f"update {table} set n = n + 1 where id between low and high")

    def _in_transactions(self, rows: int, statement: str) -> None:
        self.execute(
            f"do $$ declare high int := 0; low int; begin while high < {rows} loop"
            f" low := high + 1; high := least(high + {TRANSACTION}, {rows}); {statement}; commit;"
            " end loop; end $$"
        )

    def settle(self, table: str) -> None:
        """Do the server's background work now, so that it does not fall into a measurement."""
        self.execute(f"vacuum (analyze) {table}")
        self.execute("checkpoint")

    def log_end(self) -> str:
        """Return the end of the log, as an LSN in PostgreSQL's own writing."""
        return str(self.execute("select pg_current_wal_insert_lsn()::text")[0][0])

    def await_slot(self, slot: str, end: str) -> None:
        """Wait until the slot stands at `end` at least; its reader has confirmed everything before."""
        deadline = time.monotonic() + 60
        behind = (
            "select confirmed_flush_lsn < %s::pg_lsn or active, confirmed_flush_lsn::text, active"
            " from pg_replication_slots where slot_name = %s"
        )
        while (found := self.execute(behind, end, slot)[0])[0]:
            if time.monotonic() > deadline:
                _, stands, active = found
                raise RuntimeError(f"The slot {slot} does not follow to {end}: it is at {stands}, active: {active}.")
            time.sleep(0.05)

    def log_bytes(self, slot: str, publication: str) -> int:
        """Return the size of the messages that `slot` holds for `publication`."""
        found = self.execute(
            "select sum(length(data)) from pg_logical_slot_peek_binary_changes(%s, null, null,"
            " 'proto_version', '1', 'publication_names', %s)",
            slot,
            publication,
        )
        return int(found[0][0] or 0)

    def extensions(self) -> set[str]:
        """Return the names of the extensions that the server can create."""
        return {name for (name,) in self.execute("select name from pg_available_extensions")}

    def create_slot(self, slot: str) -> None:
        self.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", slot)

    @contextmanager
    def copy_of(self, slot: str) -> Iterator[str]:
        """Yield a copy of `slot` to read to the end; it is dropped at exit."""
        copy = f"{slot}_copy"
        self.execute("select pg_copy_logical_replication_slot(%s, %s)", slot, copy)
        try:
            yield copy
        finally:
            self.drop_slot(copy)

    def drop_slot(self, slot: str) -> None:
        """Drop a slot as soon as its reader has released it; raises TimeoutError after 30 s."""

        def is_dropped() -> bool:
            # the server may still advance the slot for a planner that has ended
            with suppress(psycopg.errors.ObjectInUse):
                self.execute("select pg_drop_replication_slot(%s)", slot)
                return True
            return False

        wait(is_dropped, f"the slot {slot} stays in use")

    def options(self) -> dict[str, str]:
        """Return the connector's options that name the database."""
        return {
            "database.hostname": self.server.host,
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.dbname": self.database,
        }


def wait(reached: Callable[[], bool], otherwise: str, seconds: float = 30) -> None:
    """Return once `reached()` holds; raises TimeoutError with `otherwise` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} for {seconds:.0f} s")
        time.sleep(0.02)
