"""Programs of Debian's packages for tests, unpacked into the cache directory, and servers that they are.

Nothing is installed: apt fetches the packages, dpkg unpacks them, and a program finds its libraries beside it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tailrace.spark.startup.java import cache_directory
from tests.servers.jars import Unavailable


def find(program: str, packages: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """A program and the environment that it needs: the machine's own, or that of `packages`, the first of which is the
    one that has it. Raises Unavailable."""
    installed = shutil.which(program)
    if installed:
        return Path(installed), dict(os.environ)
    root = unpacked(program, packages)
    found = next(path for path in (root / "usr/bin" / program, root / "usr/sbin" / program) if path.exists())
    return found, os.environ | {"LD_LIBRARY_PATH": ":".join(libraries(root))}


def unpacked(program: str, packages: Sequence[str]) -> Path:
    """The directory of the cache in which `packages` are unpacked, for the sake of `program`. Raises Unavailable."""
    root = cache_directory() / f"{packages[0].removesuffix('-core').removesuffix('-server')}-debian"
    if not root.is_dir():
        _unpack(root, program, packages)
    return root


def libraries(root: Path) -> list[str]:
    """The directories of unpacked packages that have shared libraries."""
    return [str(path) for path in root.glob("usr/lib/*-linux-gnu")]


def _unpack(root: Path, program: str, packages: Sequence[str]) -> None:
    """Fetch the packages and unpack them into `root`, which appears whole."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable(f"there is no {program}, and no apt-get to fetch Debian's")
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{program}-", dir=root.parent) as folder:
        fetched = subprocess.run(
            ["apt-get", "download", "-q", *packages],
            cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if fetched.returncode != 0:
            lines = [line for line in fetched.stderr.splitlines() if line.startswith("E:")]
            raise Unavailable(f"Debian's {program} could not be fetched: {'; '.join(lines[:2])}")
        fresh = Path(folder) / "root"
        for package in sorted(Path(folder).glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(fresh)], check=True, stdin=subprocess.DEVNULL)
        if not root.is_dir():
            fresh.rename(root)


class Server(ABC):
    """A server on a free port of 127.0.0.1, with its data in a directory of its own; a context manager."""

    program: ClassVar[str]
    packages: ClassVar[Sequence[str]]

    def __init__(self) -> None:
        self._program, self._environment = self.find()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()

    @classmethod
    def find(cls) -> tuple[Path, dict[str, str]]:
        """The server's program and the environment that it needs; raises Unavailable."""
        return find(cls.program, cls.packages)

    @abstractmethod
    def arguments(self) -> Sequence[str]:
        """Those of the command line; `_folder` is there when it is asked for."""

    def start(self) -> None:
        """Start the server, on the data that are there; returns when it takes connections."""
        self._process = subprocess.Popen(
            [str(self._program), *self.arguments()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self._environment,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self.program} did not start")
            time.sleep(0.02)

    def kill(self) -> None:
        """End the process at once, as a crash does; what it holds on disk stays."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix=f"tailrace-{self.program}-"))
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
