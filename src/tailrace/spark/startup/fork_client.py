"""The client of the fork server: `python -I -S fork_client.py ADDRESS MODULE_FILE -m MODULE ...`, a script.

Spark starts this script, by way of `spark.startup.python`, in place of a Python process of its own. The script hands
its standard files, environment and directory to the server (`spark.startup.fork_server`). The server forks a process
that runs the module with them, and the script ends with that process's exit code. If the script is killed, the server
terminates the process.

The script imports next to nothing: Python without site-packages starts in 10 ms. If no server answers, the script
becomes an ordinary Python that runs the module.
"""

from __future__ import annotations

import os
import socket
import sys
import time

NUMBER = 8
"""Bytes of a number on the socket, big-endian."""
_SIGNALLED = 128


def main() -> None:
    address, runner, *arguments = sys.argv[1:]
    code = _run(address, arguments)
    if code is not None:
        os._exit(code)
    os.execv(sys.executable, [sys.executable, runner, *arguments])


def _run(address: str, arguments: list[str]) -> int | None:
    """Return the exit code of the process that the server made; None if it made none."""
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
        status = server.recv(NUMBER, socket.MSG_WAITALL)
    except OSError:
        status = b""
    if len(status) == NUMBER:
        code = int.from_bytes(status, "big", signed=True)
        return code if code >= 0 else _SIGNALLED - code
    # The server has ended, but its process goes on. Spark would take the end of this script for the end of the process.
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
