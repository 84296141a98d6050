"""A quick test that Kafka brokers answer, since a producer waits a minute for them. Driver."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Sequence

_WAIT_S = 3.0
_MOST = 5
"""Most brokers that are tried."""
# An ApiVersions request, which every broker answers without a login: key 18, version 0, correlation 1, no client name.
_ASK = struct.pack(">hhih", 18, 0, 1, -1)
_ENCRYPTED = ("SSL", "SASL_SSL")


def fault(servers: Sequence[str], protocol: str) -> str:
    """Return why none of the brokers answers, to end a sentence with; "" as soon as one answers.

    `protocol` is the producer's `security.protocol`. With TLS only the handshake is tested, not the certificate.
    """
    faults = []
    for server in servers[:_MOST]:
        host, _, port = server.strip().rpartition(":")
        try:
            _ask(host.strip("[]").rpartition("://")[2], int(port), protocol.strip().upper() in _ENCRYPTED)
        except ssl.SSLError:
            faults.append(f"{server.strip()} does not speak TLS")
        except TimeoutError:
            faults.append(f"{server.strip()} does not answer within {_WAIT_S:.0f} s")
        except (OSError, ValueError, UnicodeError) as error:
            faults.append(f"{server.strip()}: {getattr(error, 'strerror', None) or error}".rstrip("."))
        else:
            return ""
    return "; ".join(faults)


def _ask(host: str, port: int, is_encrypted: bool) -> None:
    """Raise OSError or ValueError unless a broker answers at the address."""
    with socket.create_connection((host, port), _WAIT_S) as plain:
        if is_encrypted:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.wrap_socket(plain, server_hostname=host).close()
            return
        plain.sendall(struct.pack(">i", len(_ASK)) + _ASK)
        answer = b""
        while len(answer) < 8:
            part = plain.recv(8 - len(answer))
            if not part:
                raise ValueError("it closes the connection, as a listener of another security.protocol does")
            answer += part
        if answer[4:] != struct.pack(">i", 1):
            raise ValueError("the server there is not a Kafka broker")
