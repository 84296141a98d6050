"""SecantusDB, a server that speaks MongoDB's protocol over WiredTiger, for tests only.

It is GPL, so it lives in an environment of its own in the user's cache directory and runs as a process of its own:
nothing here or in the product imports it. pip fetches it, once.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tailrace.spark.startup.java import cache_directory

VERSION = "0.7.0b3"
REQUIREMENTS = (
    f"SecantusDB=={VERSION}",
    "dnspython==2.9.2",
    "future==1.0.0",
    "numpy==2.4.6",
    "pymongo==4.20.0",
    "python-dateutil==4.0.0",
    "s2sphere==0.2.5",
    "shapely==2.2.0",
    "tzdata==2026.6",
)
"""The server and all that it needs, as they were when everything here was last tried."""
SET_NAME = "secantus"
"""The name of its replica set of one member."""


class Unavailable(Exception):
    """The server is not in the cache and could not be fetched; the text says why."""


def fetch(seconds: float = 300) -> Path:
    """The Python of the server's environment, from the cache or, the first time, made with pip within `seconds`."""
    cache = cache_directory()
    folder = cache / f"secantus-{VERSION}-python{sys.version_info.major}.{sys.version_info.minor}"
    if not (folder / "bin" / "python").exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="secantus-", dir=cache))
        try:
            _install(fresh / "env", seconds)
            # Whole or not at all; another process may have been faster.
            if not folder.is_dir():
                (fresh / "env").rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return folder / "bin" / "python"


def _install(folder: Path, seconds: float) -> None:
    python = folder / "bin" / "python"
    steps = (
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check",
         "--only-binary", ":all:", *REQUIREMENTS],
    )  # fmt: skip
    for command in steps:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"SecantusDB could not be fetched within {seconds:.0f} s") from error
        if done.returncode != 0:
            lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            raise Unavailable("SecantusDB could not be fetched: " + "; ".join(lines[-3:]))


class Secantus:
    """A server on a free port of 127.0.0.1; a context manager.

    `options` are those of its command line, and count from the next `start` on. Without `storage` the data go with the
    object; they outlive `stop` and `kill` in any case, so that `start` finds them again. The port stays the same. By
    default the server makes no promise about writes of its last moments when it is killed; `--sync-on-commit` makes it.
    """

    def __init__(self, python: Path, options: Sequence[str] = (), storage: Path | None = None) -> None:
        self.port = _free_port()
        self._python = python
        self.options: Sequence[str] = tuple(options)
        self._home = Path(tempfile.mkdtemp(prefix="tailrace-secantus-"))
        self._storage = storage or self._home / "data"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def uri(self) -> str:
        """A connection string that names the replica set."""
        return f"mongodb://{self.address}/?replicaSet={SET_NAME}"

    @property
    def output(self) -> str:
        """The text that the server has printed since it was made."""
        log = self._home / "output"
        return log.read_text("utf-8", errors="replace") if log.exists() else ""

    def start(self, seconds: float = 60) -> None:
        """Start the process; returns when it takes connections, half a second later.

        Raises RuntimeError, with the end of the server's output, when it does not within `seconds`.
        """
        # without this directory on its path: a module here is called secantus, too
        started = Path(__file__).with_name("secantus_causal.py")
        command = [str(self._python), "-P", str(started), "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--storage-path", str(self._storage), *self.options]
        with (self._home / "output").open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=self._home
            )
        deadline = time.monotonic() + seconds
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self.output[-3000:]
                self.kill()
                raise RuntimeError(f"SecantusDB did not start:\n{said}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the process as an administrator does, its data written; nothing when it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, as a crash does; nothing when it does not run."""
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        """End the process and remove what it left."""
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Secantus:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _end(self, sign: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(sign)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    with Secantus(fetch(), sys.argv[1:]) as server:
        print(server.uri, flush=True)
        sys.stdin.read()
