"""PostgreSQL's own programs over TCP, without output: the upper limit of the server's rate."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence

from bench.workload import Workload


def receive(workload: Workload, slot: str, publication: str, end: str) -> float:
    """Return the seconds of pg_recvlogical from the start of `slot` to the LSN `end`.

    Raises RuntimeError if it ends before.
    """
    seconds = _run(
        workload,
        "pg_recvlogical",
        *("--slot", slot, "--start", "--no-loop", "--endpos", end, "--file", os.devnull),
        *("--option", "proto_version=1", "--option", f"publication_names={publication}"),
    )
    found = workload.execute(
        "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = %s", end, slot
    )
    if not found[0][0]:
        raise RuntimeError("pg_recvlogical ended too early")
    return seconds


def peek(workload: Workload, slot: str, publication: str) -> float:
    """Return the seconds of psql to copy the same messages out of the SQL function."""
    return copy_out(
        workload,
        f"(select data from pg_logical_slot_peek_binary_changes('{slot}', null, null,"
        f" 'proto_version', '1', 'publication_names', '{publication}'))",
    )


def copy_out(workload: Workload, source: str) -> float:
    """Return the seconds of psql to copy `source`, a table or a query in parentheses."""
    return _run(workload, "psql", "--no-psqlrc", "--command", f"copy {source} to stdout")


def _run(workload: Workload, program: str, *arguments: str) -> float:
    server = workload.server
    login: Sequence[str] = ("--host", server.host, "--port", str(server.port), "--username", server.user)
    command = [str(server.programs / program), *login, "--dbname", workload.database, *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    environment["PGPASSWORD"] = server.password
    started = time.monotonic()
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise RuntimeError(f"{program} failed: {done.stderr.strip()}")
    return seconds
