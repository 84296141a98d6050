"""The fork server of a local session: a process that has imported the modules of Spark's Python processes, and forks
them.

Planners and the daemon that makes workers import PySpark, the source and the drivers: a second or two of CPU each, at
the start of each query. The server imports them once, while the JVM starts. Spark still starts its processes by the
script of `tailrace.spark.startup.python`. The script runs `fork_client.py`, which asks the server for the process.

Neither the server nor its imports may start a thread or open a connection, because a forked process would not have
them. The server ends with the JVM, which holds the other end of the server's standard input. It then terminates the
processes that it has forked. `ps` shows a forked process under the last part of its module's name. The server needs
Linux; elsewhere each process imports for itself.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tailrace.spark.startup.fork_client import NUMBER
from tailrace.spark.startup.worker_main import DAEMON, LOADED, TASKS, load, run

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = "TAILRACE_FORK_SERVER"
"""The environment variable that names the server's socket."""

_NAME = "server"
PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
_EXECUTORS = "spark.executorEnv."
_COMM = "/proc/self/comm"
_COMM_LENGTH = 15
SOCKET_PATH = 103
"""The longest path of a Unix socket that every system accepts, in bytes."""
_PATIENCE_S = 10.0
"""Seconds within which `fork_client.py` must have sent its request."""

_started: list[int] = []


def shown(module: str) -> str:
    """Return the name that the system shows for a forked process: the start of the last part of its module's name."""
    return module.rpartition(".")[2][:_COMM_LENGTH]


def is_possible(folder: str = "") -> bool:
    """Return True if this system can run a fork server whose socket is in the directory `folder`."""
    is_short = len(os.fsencode(os.path.join(folder, _NAME))) <= SOCKET_PATH
    return is_short and sys.platform == "linux" and hasattr(os, "pidfd_open") and os.path.exists(_COMM)


@contextmanager
def serving(folder: str, settings: Mapping[str, str], modules: Sequence[str]) -> Iterator[int]:
    """Start a server with its socket in the directory `folder`; inside the block the environment names it. Driver.

    The server gets the environment that Spark's `settings` give to executors, and imports `modules`. Yields a file
    descriptor: the server ends when the last process that has inherited the descriptor ends.
    """
    _forget()
    address = os.path.join(folder, _NAME)
    given = ((name, value) for name, value in settings.items() if name.startswith(_EXECUTORS))
    environment = {name.removeprefix(_EXECUTORS): value for name, value in given}
    alive, held = os.pipe()
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            # The socket listens from now on: requests that arrive before all modules are imported wait.
            listener.bind(address)
            listener.listen(64)
            listener.set_inheritable(True)
            process = os.posix_spawn(
                sys.executable,
                [sys.executable, "-u", "-c", f"from {__name__} import main; main()", str(listener.fileno())],
                {"OMP_NUM_THREADS": "1", **os.environ, **environment, LOADED: ",".join(modules)},
                file_actions=[(os.POSIX_SPAWN_DUP2, alive, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
                # signals that a terminal sends to the process group are for the driver
                setsid=True,
            )
            _started.append(process)
        os.environ[SERVER] = address
        yield held
    finally:
        os.environ.pop(SERVER, None)
        os.close(alive)
        os.close(held)


def _forget() -> None:
    """Reap servers that have ended, so that they do not stay as zombies."""
    for process in tuple(_started):
        with suppress(ChildProcessError):
            ended, _ = os.waitpid(process, os.WNOHANG)
            if not ended:
                continue
        _started.remove(process)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request of one `fork_client.py`. `files` are its standard input, output and error."""

    files: Sequence[int]
    directory: bytes
    arguments: Sequence[str]
    environment: Mapping[bytes, bytes]


def _requested(connection: socket.socket) -> _Request | None:
    """Receive a request; None if it does not arrive in full."""
    connection.settimeout(_PATIENCE_S)
    files: list[int] = []
    try:
        head, files, _, _ = socket.recv_fds(connection, NUMBER, 3)
        length = int.from_bytes(head, "big")
        with connection.makefile("rb") as reader:
            message = reader.read(length)
        connection.settimeout(None)
        if len(message) == length > 0 and len(files) == 3:
            directory, count, *parts = message.split(b"\0")
            arguments = [os.fsdecode(part) for part in parts[: int(count)]]
            pairs = (part.partition(b"=") for part in parts[int(count) :])
            return _Request(files, directory, arguments, {name: value for name, _, value in pairs})
    except OSError:
        pass
    _close(files)
    return None


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


class _Server:
    """The server's loop: forks a process for each request, waits for it and sends its exit code back."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)
        # by the process's pidfd
        self._processes: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> list[str]:
        """Serve requests for ever. Returns only in a forked process, with the arguments to run."""
        while True:
            # one event at a time: handling it may close the file of another event, and the number may be reused
            for key, _ in self._selector.select()[:1]:
                if key.fileobj is self._listener:
                    connection, _ = self._listener.accept()
                    request = _requested(connection)
                    if request is None:
                        connection.close()
                    elif self._fork(request, connection):
                        return _become(request)
                elif key.fileobj == 0:
                    self._end()
                elif key.fd in self._processes:
                    self._ended(key.fd)
                elif key.data is not None:
                    self._left_alone(key.fd, key.data)

    def _end(self) -> NoReturn:
        """Terminate all forked processes: the JVM has ended, and a planner that waits for its database would not
        notice."""
        for process, _ in self._processes.values():
            os.kill(process, signal.SIGTERM)
        os._exit(0)

    def _fork(self, request: _Request, connection: socket.socket) -> bool:
        """Fork; return True in the new process."""
        try:
            process = os.fork()
        except OSError:
            # the other side runs the module itself
            connection.close()
            _close(request.files)
            return False
        if process == 0:
            # The new process sends its number: the other side gets it even if the server has ended meanwhile.
            with suppress(OSError):
                connection.sendall(os.getpid().to_bytes(NUMBER, "big"))
            connection.close()
            for file, (_, other) in self._processes.items():
                os.close(file)
                other.close()
            self._selector.close()
            self._listener.close()
            return True
        _close(request.files)
        file = os.pidfd_open(process)
        self._processes[file] = (process, connection)
        self._selector.register(file, selectors.EVENT_READ)
        self._selector.register(connection, selectors.EVENT_READ, process)
        return False

    def _ended(self, file: int) -> None:
        process, connection = self._processes.pop(file)
        self._selector.unregister(file)
        os.close(file)
        _, status = os.waitpid(process, 0)
        with suppress(OSError):
            connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(NUMBER, "big", signed=True))
        with suppress(KeyError):
            self._selector.unregister(connection)
        connection.close()

    def _left_alone(self, connection: int, process: int) -> None:
        """Terminate a forked process, because Spark has ended the client that requested it.

        The process's number is unique until the process is reaped.
        """
        self._selector.unregister(connection)
        os.kill(process, signal.SIGTERM)


def _become(request: _Request) -> list[str]:
    """Give this process the requested files, directory and environment; return the arguments to run."""
    for number, file in enumerate(request.files):
        os.dup2(file, number)
    _close(request.files)
    os.chdir(request.directory)
    os.environb.clear()
    os.environb.update(request.environment)
    # Spark adds its users' files to PYTHONPATH
    added = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry not in sys.path]
    sys.path[1:1] = added
    with suppress(OSError):
        Path(_COMM).write_text(shown(request.arguments[-1]))
    return list(request.arguments)


def main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        load(TASKS, DAEMON, PLANNER)
        arguments = _Server(listener).serve()
    run(arguments)
