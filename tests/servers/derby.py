"""Apache Derby's network server, which IBM's own Db2 driver can talk to: it speaks DRDA, Db2's protocol.

10.7 is the last series that accepts the driver. What Derby lacks of Db2: the capture program (played by
`tests.servers.asn`), SYSCAT, LEAD and LAG, labelled durations, CURRENT SERVER and CURRENT TIMEZONE. What the driver
needs for Derby is in `DRIVER`.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from tests.servers import jars
from tests.servers.certificates import WORD
from tests.servers.jars import java

VERSION = "10.7.1.1"
MODULES = ("derby", "derbynet", "derbytools")

DRIVER = {
    "AUTHENTICATION": "SERVER",  # Derby offers no encrypted user and password
    "DescribeOutputLevel": "2",  # else the driver asks for a query's description in a way that Derby refuses
    "LOBCacheSize": "65536",  # LOB values within the rows: Derby has no locators for this driver
}
"""Keywords of the driver's connection string without which Derby refuses it."""


def fetch(seconds: float = 300) -> list[Path]:
    """The server's jars, from the cache or, the first time, from Maven Central; raises Unavailable."""
    modules = [f"org.apache.derby:{name}:{VERSION}" for name in MODULES]
    return jars.fetch(f"derby-{VERSION}", modules, transitive=False, seconds=seconds)


class Derby:
    """A server on a free port of 127.0.0.1; a context manager. Databases are below a directory of its own.

    With `durable`, what was committed outlives `halt`. With `keys`, a PKCS12 file whose password is that of
    `tests.servers.certificates`, it speaks TLS alone. With `guarded`, whoever is not `user` may do what was granted to
    him alone; passwords are not looked at.
    """

    user = "app"
    password = "app"

    def __init__(
        self,
        found: list[Path],
        port: int = 0,
        *,
        durable: bool = False,
        keys: Path | None = None,
        guarded: bool = False,
    ) -> None:
        self.port = port or _free_port()
        self._durable = durable
        self._guarded = guarded
        self._keys = keys
        self._jars = found
        self._home = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, seconds: float = 60) -> None:
        """Start the server; returns when it takes connections, about 3 s later. Raises RuntimeError with its words.

        After a `halt` it is the same server again, with the databases that it had.
        """
        if self._process is not None:
            raise RuntimeError("the server runs")
        if not self._home.name:
            self._home = Path(tempfile.mkdtemp(prefix="tailrace-derby-"))
        options = [
            *("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC", f"-Dderby.system.home={self._home}"),
            *("-Dderby.drda.host=127.0.0.1", f"-Dderby.drda.portNumber={self.port}"),
            # Most databases are made for one test each: nothing of them must survive the machine.
            *(() if self._durable else ("-Dderby.system.durability=test",)),
            # A reader that meets a writer's lock fails soon, and not after the default of 60 s.
            *("-Dderby.locks.waitTimeout=20", "-Dderby.locks.deadlockTimeout=5"),
        ]
        if self._keys is not None:
            store = f"-Djavax.net.ssl.keyStore={self._keys}", "-Djavax.net.ssl.keyStoreType=PKCS12"
            options += [*store, f"-Djavax.net.ssl.keyStorePassword={WORD}", "-Dderby.drda.sslMode=basic"]
        server = ["org.apache.derby.drda.NetworkServerControl", "start", "-noSecurityManager"]
        with (self._home / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [str(java()), *options, "-cp", self._path, *server],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home,
            )
        deadline = time.monotonic() + seconds
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self._home / "output").read_text("utf-8", errors="replace")[-3000:]
                self.stop()
                raise RuntimeError(f"Derby did not start:\n{said}")
            time.sleep(0.05)

    def make(self, name: str) -> None:
        """Make an empty database: a copy of one that was made once. The driver writes names in capitals, so must we."""
        template = self._home / "template"
        if not template.is_dir():
            self._make_template()
        shutil.copytree(template, self._home / name)

    def drop(self, name: str) -> None:
        """Remove a database's files; whoever is still connected gets errors."""
        shutil.rmtree(self._home / name, ignore_errors=True)

    def _make_template(self) -> None:
        # A machine of its own, which ends: a database that the server has opened could not be copied.
        guard = ["-Dderby.database.sqlAuthorization=true"] if self._guarded else []
        done = subprocess.run(
            [str(java()), "-Xmx64m", "-XX:TieredStopAtLevel=1", *guard, "-cp", self._path, "org.apache.derby.tools.ij"],
            input="connect 'jdbc:derby:template;create=true';\nexit;\n",
            text=True,
            capture_output=True,
            check=False,
            cwd=self._home,
        )
        if "ERROR" in done.stdout or done.returncode:
            raise RuntimeError(f"Derby could not make a database: {done.stdout}{done.stderr}")

    def halt(self) -> None:
        """End the process at once, as a crash does; the databases stay."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def keep(self, folder: Path) -> None:
        """Copy the server's log into `folder`."""
        for name in ("output", "derby.log"):
            if (self._home / name).exists():
                shutil.copy(self._home / name, folder / f"derby-{name}")

    def stop(self) -> None:
        """End the process and remove its directory."""
        self.halt()
        if self._home.name:
            shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Derby:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _path(self) -> str:
        return ":".join(map(str, self._jars))

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    with Derby(fetch()) as derby:
        derby.make("TESTDB")
        print(derby.port, flush=True)
        sys.stdin.read()
