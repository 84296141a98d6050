"""The server as a process: `python -m tdsserver.server [--port N] …`; its standard input takes commands.

Prints `listening PORT` when it is ready. A line on its standard input is a command, answered by a line `done`:
`restart SECONDS` closes the port and every connection for that long, as a restart of the server would look to clients
(what is stored stays); `down` closes them until `up`; `disconnect` ends the connections alone. The process ends when
its standard input does.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import sys
import threading
import time
from pathlib import Path

from tdsserver.capture import Agent
from tdsserver.connection import Settings, start
from tdsserver.model import Instance
from tdsserver.wire import Transport


class Server:
    """Listens on 127.0.0.1 and serves each connection in a thread."""

    def __init__(self, instance: Instance, settings: Settings, port: int = 0) -> None:
        self.instance = instance
        self.settings = settings
        self._clients: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = self._listen(port)
        self.port = int(self._listener.getsockname()[1])

    def _listen(self, port: int) -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._clients = [known for known in self._clients if known.fileno() >= 0]
                self._clients.append(client)
            start(Transport(client), self.instance, self.settings)

    def disconnect(self) -> None:
        """End every connection."""
        with self._lock:
            for client in self._clients:
                try:
                    client.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
            self._clients = []

    def restart(self, seconds: float) -> None:
        """Be away for some seconds."""
        self.down()
        time.sleep(seconds)
        self.up()

    def down(self) -> None:
        """Refuse connections and end the present ones; stored data stays."""
        # A thread that waits in accept() keeps the port: shutdown wakes it, close alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.disconnect()

    def up(self) -> None:
        """Take connections again."""
        self._listener = self._listen(self.port)


def main() -> None:
    """Serve until the standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--encryption", choices=("off", "optional", "required"), default="off")
    parser.add_argument("--certificate", type=Path, help="a PEM file with key and certificate")
    parser.add_argument("--zone", type=int, default=0, help="minutes east of UTC of the server's clock")
    parser.add_argument("--trace", type=Path, help="a file that every request and every error is written to")
    given = parser.parse_args()
    instance = Instance(zone_minutes=given.zone)
    # The caller passes the password in the environment: other users can see a process's arguments.
    instance.logins["sa"] = os.environ["TDS_SA_PASSWORD"]
    context = None
    if given.certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(given.certificate)
        # TLS 1.3 sends tickets behind the handshake, for which TDS 7.4 has no place. SQL Server ends at 1.2, too.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    Agent(instance).start()
    trace = given.trace.open("a", encoding="utf-8") if given.trace else None
    settings = Settings(given.encryption, context, trace)
    server = Server(instance, settings, given.port)
    print(f"listening {server.port}", flush=True)
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "restart":
            server.restart(float(argument or 0))
        elif command == "disconnect":
            server.disconnect()
        elif command == "down":
            server.down()
        elif command == "up":
            server.up()
        print("done", flush=True)
    # DuckDB's destructors take long in a process with many threads, and nothing needs them.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
