"""The private PostgreSQL lets nobody in without its password, and does not outlive who started it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tailrace.demo.embedded import THROWAWAY, Server

CHILD = """
import sys, time
from tailrace.demo.embedded import THROWAWAY, Server
server = Server(settings=THROWAWAY).start()
print(server._home, (server._home / "data" / "postmaster.pid").read_text().split()[0], flush=True)
time.sleep(600)
"""


def test_every_login_needs_the_password() -> None:
    with Server(settings=THROWAWAY) as server:
        home = server._home
        assert home is not None
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        with psycopg.connect(server.dsn("postgres")) as connection:
            rules = connection.execute("select distinct auth_method from pg_hba_file_rules").fetchall()
        assert rules == [("scram-sha-256",)]
        for host in (server.host, str(home)):
            for password in ("", "password=postgres", "password=x"):
                with pytest.raises(psycopg.OperationalError, match="password"):
                    psycopg.connect(f"host={host} port={server.port} user={server.user} dbname=postgres {password}")
    assert not home.exists()


def test_the_server_ends_when_who_started_it_is_killed() -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        home, pid = child.stdout.readline().split()
        os.kill(int(pid), 0)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    deadline = time.monotonic() + 60
    while (Path(home).exists() or is_alive(int(pid))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(int(pid))
    assert not Path(home).exists()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
