"""Has the fork server make a process: `python -I -S forked.py ADDRESS MODULE_FILE -m MODULE ...`, all in one file.

Spark starts this in place of a Python process of its own, by the script of `tailrace.spark.python`. It hands its input,
output, environment and directory to the server (`tailrace.spark.fork_server`), whose new process runs the module with
them, and ends as that one does. Whoever ends this one ends the other one too: the server sees to it.

It imports next to nothing: a Python without its site-packages is there in a hundredth of a second. Where no server
answers, it becomes an ordinary Python that runs the module.
"""

from __future__ import annotations

import os
import socket
import sys
import time

NUMBER = 8
"""Bytes of each number that is sent: big-endian, signed."""
_SIGNALLED = 128


def main() -> None:
    address, runner, *arguments = sys.argv[1:]
    code = _run(address, arguments)
    if code is not None:
        os._exit(code)
    os.execv(sys.executable, [sys.executable, runner, *arguments])


def _run(address: str, arguments: list[str]) -> int | None:
    """The exit code of the process that the server has made; None where it has made none."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
            directory = os.fsencode(os.getcwd())
            environment = [name + b"=" + value for name, value in os.environb.items()]
            parts = [directory, b"%d" % len(arguments), *map(os.fsencode, arguments), *environment]
            message = b"\0".join(parts)
            socket.send_fds(server, [len(message).to_bytes(NUMBER, "big")], [0, 1, 2])
            server.sendall(message)
            process = server.recv(NUMBER, socket.MSG_WAITALL)
        except OSError:
            return None
        if len(process) < NUMBER:
            return None
        return _await(server, int.from_bytes(process, "big"))


def _await(server: socket.socket, process: int) -> int:
    try:
        told = server.recv(NUMBER, socket.MSG_WAITALL)
    except OSError:
        told = b""
    if len(told) == NUMBER:
        code = int.from_bytes(told, "big", signed=True)
        return code if code >= 0 else _SIGNALLED - code
    # The server has ended before its process, which goes on: Spark would take the end of this one for its end.
    while _is_there(process):
        time.sleep(0.1)
    return 1


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
