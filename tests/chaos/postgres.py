"""A PostgreSQL of the machine's own that can crash and restart, and its tables."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg

from tailrace.demo.embedded import THROWAWAY, Server
from tests.chaos import progress
from tests.chaos.changes import Change, Row, from_record, key_of, row_of
from tests.chaos.oracle import Oracle
from tests.chaos.postgres_writers import ROWS, SCHEMA, WRITERS, Writers
from tests.chaos.source import Offset

SLOT = "chaos"
TABLES = ("t_row", "t_move", "t_cut", "t_bulk", "t_new", "ledger")
KEYS = {"ledger": ("txn", "w")}


class Crashable(Server):
    """The embedded server with a crash that keeps its data: flushed changes survive it."""

    def crash(self) -> None:
        """End all of the server's processes at once. Changes that were not flushed are lost."""
        assert self._bin is not None
        self._run(self._bin / "pg_ctl", "stop", "--wait", "--mode", "immediate", "--pgdata", self._data)

    def again(self) -> None:
        """Restart the server on the data of a crash. Return when it accepts connections."""
        assert self._bin is not None
        log = str(self._home / "log") if self._home else ""
        self._run(
            self._bin / "pg_ctl", "start", "--wait", "--timeout", "60", "--pgdata", self._data, "--log", log
        )  # fmt: skip

    def __enter__(self) -> Crashable:
        self.start()
        return self

    def keep(self, folder: Path) -> None:
        """Copy the server's log into `folder`."""
        if self._home is not None:
            with suppress(OSError):
                shutil.copy(self._home / "log", folder / "postgres.log")

    @property
    def _data(self) -> str:
        return f"{self._home}/data"


def server() -> Crashable:
    """Start a server that writes asynchronous commits to its log long before it flushes them.

    Its buffers are small, and its own writer flushes rarely. Large transactions are streamed early.
    """
    return Crashable(settings={
        **THROWAWAY, "logical_decoding_work_mem": "256kB", "wal_writer_delay": "3s", "wal_writer_flush_after": "256MB",
        "wal_buffers": "256kB", "max_wal_size": "1GB",
        "log_min_messages": "warning",
    })  # fmt: skip


def make_tables(dsn: str, oracle: Oracle) -> None:
    """Create the tables, then the oracle's slot, then the first rows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in (
            f"create schema {SCHEMA}",
            "create schema other",
            f"create table {SCHEMA}.t_row (id bigint primary key, w int, n bigint, tag text, big text)",
            f"alter table {SCHEMA}.t_row alter big set storage external",
            f"create table {SCHEMA}.t_move (id bigint primary key, n bigint, tag text)",
            f"create table {SCHEMA}.t_cut (id bigint primary key, tag text)",
            f"create table {SCHEMA}.t_bulk (id bigint primary key, w int, txn bigint, pad text)",
            f"create table {SCHEMA}.t_new (id bigint primary key, tag text)",
            f"create table {SCHEMA}.ledger (w int, txn bigint, primary key (w, txn))",
            "create table other.signals (id varchar(64) primary key, type varchar(32), data text)",
            "create table other.noise (id bigint, pad text)",
        ):
            connection.execute(statement.encode())
        oracle.create()
        connection.execute(
            f"insert into {SCHEMA}.t_row select i, i % {WRITERS}, 0, 'first', "
            f"case when i % 3 = 0 then repeat(md5(i::text), 90) end from generate_series(0, {ROWS - 1}) i".encode()
        )
        connection.execute(f"insert into {SCHEMA}.t_move select i, 0, 'first' from generate_series(0, 999) i".encode())


def rows(dsn: str) -> dict[str, dict[str, Row]]:
    """Return the present rows of all tables."""
    found: dict[str, dict[str, Row]] = {}
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
        for table in TABLES:
            keys = KEYS.get(table, ("id",))
            cursor = connection.execute(f"select * from {SCHEMA}.{table}".encode())
            found[table] = {key_of({name: row[name] for name in keys}): row_of(row) for row in cursor}
    return found


class Postgres:
    """PostgreSQL as a source of the machine."""

    connector = "postgres"

    def __init__(self) -> None:
        self._server = server()

    def open(self, stack: ExitStack) -> None:
        stack.enter_context(self._server)
        self._dsn = self._server.dsn()
        self._oracle = Oracle(self._dsn, SCHEMA)
        make_tables(self._dsn, self._oracle)

    @property
    def port(self) -> int:
        return self._server.port

    def options(self, port: int) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": self._server.host, "database.port": str(port), "database.user": self._server.user,
            "database.password": self._server.password, "database.dbname": "postgres", "slot.name": SLOT,
            "schema.include.list": SCHEMA, "signal.data.collection": "other.signals",
            "status.update.interval.ms": "1000", "slot.retry.delay.ms": "2000", "slot.max.retries": "60",
        }  # fmt: skip

    def writers(self, seed: int, signals: bool, reads_first: Callable[[], bool]) -> Writers:
        return Writers(self._dsn, SLOT, seed, signals, reads_first)

    def watch(self, checkpoint: Path) -> progress.SlotWatch:
        return progress.SlotWatch(self._dsn, SLOT, checkpoint)

    def record(self, topic: str, key: Any, value: Any) -> Change | None:
        # Heartbeats and notifications are not changes of tables.
        return from_record(topic, key, value) if topic.split(".")[1] == SCHEMA else None

    def committed(self, first: Offset) -> Iterator[tuple[Change, bool]]:
        begin = progress.safe(first)
        shown = _visible(first)
        for commit, change in self._oracle.changes():
            yield change, commit >= begin and not shown(change.transaction, commit)

    def rows(self) -> dict[str, dict[str, Row]]:
        return rows(self._dsn)

    def crash(self) -> None:
        self._server.crash()

    def again(self) -> None:
        self._server.again()

    def end_sessions(self, choice: random.Random, all_of_them: bool) -> str | None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            if all_of_them:
                found = connection.execute(
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity "
                    "where pid <> pg_backend_pid() and backend_type in ('client backend', 'walsender')"
                ).fetchone()
                return f"{found[0] if found else 0} backends"
            found = connection.execute(
                "select active_pid, pg_terminate_backend(active_pid) from pg_replication_slots "
                "where slot_name = %s and active",
                (SLOT,),
            ).fetchone()
        return None if found is None else f"backend {found[0]}"

    def described(self) -> list[str]:
        with psycopg.connect(self._dsn) as connection:
            slots = connection.execute("select slot_name, active, restart_lsn, confirmed_flush_lsn, "
                                       "pg_current_wal_lsn() from pg_replication_slots").fetchall()  # fmt: skip
            busy = connection.execute("select pid, backend_type, state, wait_event, left(query, 100) from "
                                      "pg_stat_activity where backend_type in ('client backend', 'walsender')"
                                      ).fetchall()  # fmt: skip
        return [*map(str, slots), *map(str, busy)]

    def keep(self, folder: Path) -> None:
        self._server.keep(folder)


def _visible(first: Offset) -> Callable[[int, int], bool]:
    """Return True if the snapshot has shown a transaction that is also in the log, because the slot is older."""
    visible: Any = first.get("visible")
    if not visible:
        return lambda transaction, commit: False
    shown, _, before = (visible if isinstance(visible, str) else visible["transactions"]).partition("@")
    xmin, xmax, listed = shown.split(":")
    running = {int(one) for one in listed.split(",") if one}

    def is_shown(transaction: int, commit: int) -> bool:
        old = transaction < int(xmin) or (transaction < int(xmax) and transaction not in running)
        return old and commit < int(before)

    return is_shown
