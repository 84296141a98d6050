"""The test server as a process of its own, and clients of it."""

from __future__ import annotations

import datetime as dt
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytds

ROOT = Path(__file__).resolve().parents[1]


class TestServer:
    """A server process; a context manager.

    `encryption`: off, optional or required, with a `certificate`; `zone`: minutes east of UTC of the server's clock;
    `trace`: a file that every request and every error is written to.
    """

    __test__ = False

    def __init__(
        self, encryption: str = "off", certificate: Path | None = None, zone: int = 0, trace: Path | None = None
    ) -> None:
        self.host = "127.0.0.1"
        self.user = "sa"
        self.password = secrets.token_hex(8)
        self._lock = threading.Lock()
        command = [sys.executable, "-m", "tdsserver.server", "--encryption", encryption, "--zone", str(zone)]
        if certificate is not None:
            command += ["--certificate", str(certificate)]
        if trace is not None:
            command += ["--trace", str(trace)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TDS_SA_PASSWORD": self.password},
        )
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if not words:
            raise RuntimeError("the test server did not start")
        self.port = int(words[1])

    def __enter__(self) -> TestServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process."""
        process = self._process
        if process.poll() is None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _command(self, text: str) -> None:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
            self._process.stdout.readline()

    def restart(self, seconds: float = 0.5) -> None:
        """Be away for `seconds` like a server that restarts: connections end, stored data stays."""
        self._command(f"restart {seconds}")

    def down(self) -> None:
        """Be away until `up`: connections end, new ones are refused, stored data stays."""
        self._command("down")

    def up(self) -> None:
        """Accept connections again."""
        self._command("up")

    def disconnect(self) -> None:
        """End every connection."""
        self._command("disconnect")

    def connect(
        self, database: str = "master", *, user: str | None = None, password: str | None = None, autocommit: bool = True
    ) -> Any:
        """Return a connection of python-tds, which the caller closes."""
        return pytds.connect(
            dsn=self.host,
            port=self.port,
            database=database,
            user=user or self.user,
            password=self.password if password is None else password,
            autocommit=autocommit,
            timeout=30,
            login_timeout=10,
        )

    def execute(self, *statements: str, database: str = "master") -> None:
        """Run each statement as a batch of its own."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def query(self, statement: str, database: str = "master") -> list[tuple[Any, ...]]:
        """Return the rows of one statement."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()]


class TestDatabase:
    """A fresh database of a server, with methods for tests of capture."""

    __test__ = False

    def __init__(self, server: TestServer, name: str, collation: str | None = None, exists: bool = False) -> None:
        self.server = server
        self.name = name
        if exists:
            return
        server.execute(f"CREATE DATABASE [{name}]" + (f" COLLATE {collation}" if collation else ""))

    def drop(self) -> None:
        """Drop the database."""
        self.server.execute(f"DROP DATABASE IF EXISTS [{self.name}]")

    def execute(self, *statements: str) -> None:
        """Run each statement as a batch of its own, in this database."""
        self.server.execute(*statements, database=self.name)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, in this database."""
        return self.server.query(statement, database=self.name)

    def connect(self, autocommit: bool = True) -> Any:
        """Return a connection of python-tds, which the caller closes."""
        return self.server.connect(self.name, autocommit=autocommit)

    def options(self, **more: str) -> dict[str, str]:
        """Return the connector's options for this database, and `more`, with dots in place of underscores."""
        login = {
            "database.hostname": self.server.host,
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.names": self.name,
        }
        return login | {name.replace("_", "."): value for name, value in more.items()}

    def enable(self, *tables: str, net_changes: bool = False) -> None:
        """Enable capture for the database, if necessary, and for tables: `schema.table`, or `table` in dbo."""
        self.execute("EXEC sys.sp_cdc_enable_db")
        for table in tables:
            schema, _, name = table.rpartition(".")
            self.execute(
                f"EXEC sys.sp_cdc_enable_table @source_schema = N'{schema or 'dbo'}', @source_name = N'{name}',"
                f" @role_name = NULL, @supports_net_changes = {int(net_changes)}"
            )

    def stop_agent(self) -> None:
        """Stop the capture job: changes stay in the log."""
        self.execute("EXEC sys.sp_cdc_stop_job @job_type = N'capture'")

    def start_agent(self) -> None:
        """Start the capture job again."""
        self.execute("EXEC sys.sp_cdc_start_job @job_type = N'capture'")

    def capture(self, seconds: float = 60) -> bytes:
        """Wait until all transactions committed so far are captured; return the newest LSN."""
        deadline = time.monotonic() + seconds
        while self.query("SELECT pending FROM sys.dm_test_log")[0][0]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the log of {self.name} is not captured within {seconds:g} s")
            time.sleep(0.01)
        return bytes(self.query("SELECT sys.fn_cdc_get_max_lsn()")[0][0] or b"")

    def clean_up(self, instance: str, mark: bytes) -> None:
        """Raise an instance's low endpoint to `mark`, as the cleanup job does."""
        self.execute(
            f"EXEC sys.sp_cdc_cleanup_change_table @capture_instance = N'{instance}', @low_water_mark = 0x{mark.hex()},"
            " @threshold = 5000"
        )


class TestSession:
    """A session in which statements are run one after the other; a context manager."""

    __test__ = False

    def __init__(self, server: TestServer, database: str) -> None:
        self._connection = server.connect(database)
        self._cursor = self._connection.cursor()

    def __enter__(self) -> TestSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def run(self, statement: str) -> None:
        """Run one batch."""
        self._cursor.execute(statement)
        # The driver raises an error behind a result only after the result is read.
        while self._cursor.nextset():
            continue


def certificate(folder: Path, host: str = "localhost", days: int = 2) -> Path:
    """Return a fresh self-signed certificate with its key, as a PEM file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{host}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def rows_of(cursor: Any, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a statement by any DB-API cursor."""
    cursor.execute(statement, tuple(parameters)) if parameters else cursor.execute(statement)
    return [tuple(row) for row in cursor.fetchall()]
