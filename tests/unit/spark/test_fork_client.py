"""The script that stands for a forked process asks the server for it, and ends as that process has ended."""

from __future__ import annotations

import array
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.process import temporary
from tailrace.spark.startup import fork_client, fork_server
from tailrace.spark.startup.fork_client import NUMBER

pytestmark = pytest.mark.skipif(not fork_server.is_possible(), reason="only Linux has what a fork server needs")

Serve = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that lets another one answer the next client, and returns the address."""
    listener = socket.socket(socket.AF_UNIX)
    folder = temporary.folder("tailrace-test-")
    address = str(Path(folder) / "s")
    listener.bind(address)
    listener.listen()
    threads: list[threading.Thread] = []

    def start(answer: Callable[[socket.socket], None]) -> str:
        def run() -> None:
            with listener.accept()[0] as client:
                answer(client)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return address

    yield start
    for thread in threads:
        thread.join(10)
    listener.close()


def number(value: int) -> bytes:
    return value.to_bytes(NUMBER, "big", signed=True)


def request(client: socket.socket) -> list[bytes]:
    """Return the parts of a client's message, after the number of its files."""
    head, files, _, _ = socket.recv_fds(client, NUMBER, 3)
    for file in files:
        os.close(file)
    body = client.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    return [b"%d" % len(array.array("i", files)), *body.split(b"\0")]


def test_the_server_gets_files_arguments_directory_and_environment(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIVEN", "a=b")
    found: list[list[bytes]] = []

    def answer(client: socket.socket) -> None:
        found.append(request(client))
        client.sendall(number(os.getpid()) + number(0))

    assert fork_client._run(serve(answer), ["-m", "module", "é"]) == 0
    files, directory, count, *parts = found[0]
    assert (files, directory, count) == (b"3", os.fsencode(Path.cwd()), b"3")
    assert parts[:3] == [b"-m", b"module", "é".encode()]
    assert b"GIVEN=a=b" in parts[3:]


@pytest.mark.parametrize(("status", "code"), [(0, 0), (7, 7), (-9, 137), (-15, 143)])
def test_the_exit_code_is_that_of_the_process_as_a_shell_tells_it(serve: Serve, status: int, code: int) -> None:
    def answer(client: socket.socket) -> None:
        request(client)
        client.sendall(number(os.getpid()) + number(status))

    assert fork_client._run(serve(answer), ["-m", "module"]) == code


def test_a_server_that_ends_does_not_end_its_process(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would take the end of the script for the end of the process."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    looks: list[float] = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        process.kill()
        process.wait()

    def answer(client: socket.socket) -> None:
        request(client)
        client.sendall(number(process.pid))

    monkeypatch.setattr(fork_client.time, "sleep", pause)
    assert fork_client._run(serve(answer), ["-m", "module"]) == 1
    assert len(looks) == 1
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.parametrize("answer", [lambda client: None, lambda client: (request(client), client.sendall(b"123"))])
def test_a_server_that_makes_no_process_leaves_it_to_the_script(
    serve: Serve, answer: Callable[[socket.socket], None]
) -> None:
    assert fork_client._run(serve(answer), ["-m", "module"]) is None


def test_without_a_server_the_script_becomes_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: done.append((path, arguments)))
    monkeypatch.setattr(sys, "argv", ["fork_client.py", str(tmp_path / "none"), "/runner.py", "-m", "module", "x"])
    fork_client.main()
    assert done == [(sys.executable, [sys.executable, "/runner.py", "-m", "module", "x"])]


def test_the_script_ends_with_the_code_of_the_process(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(client: socket.socket) -> None:
        request(client)
        client.sendall(number(os.getpid()) + number(7))

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(sys, "argv", ["fork_client.py", serve(answer), "/runner.py", "-m", "module"])
    with pytest.raises(SystemExit) as ended:
        fork_client.main()
    assert ended.value.code == 7
