"""A server that has one answer."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

BROKER = struct.pack(">ii", 6, 1) + bytes(2)
"""The answer of a broker of Kafka to the question whether it is there."""


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """A server that answers whatever it is sent with these bytes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        client.recv(1024)
                        client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
