"""A quick test that Kafka brokers answer, since a producer waits a minute for them. Driver."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Sequence

from tailrace.process import reachability

# An ApiVersions request, which every broker answers without a login: key 18, version 0, correlation 1, no client name.
_ASK = struct.pack(">hhih", 18, 0, 1, -1)
_ENCRYPTED = ("SSL", "SASL_SSL")


def fault(servers: Sequence[str], protocol: str, seconds: float = 10.0) -> str:
    """Return why none of the brokers answers, as the end of a sentence; "" if a broker answers. Takes up to `seconds`.

    `protocol` is the producer's `security.protocol`. With TLS only the handshake is tested, not the certificate.
    """
    places = []
    for server in servers:
        host, _, port = server.strip().rpartition(":")
        if not port.isdigit():
            return f"{server.strip()} has no port"
        places.append((host.rpartition("://")[2].strip("[]"), int(port)))
    ask = _shake if protocol.strip().upper() in _ENCRYPTED else _ask
    return reachability.fault(places, seconds, ask)


def _shake(connection: socket.socket, place: reachability.Place) -> None:
    """Raise ValueError unless the server speaks TLS."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_socket(connection, server_hostname=place[0]).close()
    except ssl.SSLError:
        raise ValueError("it does not speak TLS") from None


def _ask(connection: socket.socket, place: reachability.Place) -> None:
    """Raise ValueError unless a broker answers."""
    connection.sendall(struct.pack(">i", len(_ASK)) + _ASK)
    answer = b""
    while len(answer) < 8:
        part = connection.recv(8 - len(answer))
        if not part:
            raise ValueError("it closes the connection, as a listener of another security.protocol does")
        answer += part
    if answer[4:] != struct.pack(">i", 1):
        raise ValueError("the server there is not a Kafka broker")
