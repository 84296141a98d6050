"""What `tailrace check` warns of with every database: sessions in the clear, and users that may do too much. Driver.

Nothing here connects to a server; the names of hosts are looked up.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tailrace.connectors.findings import SHOWN, Finding, listed

ROLE = "tailrace"
"""The user's name in the statements that are shown."""

_ANY_PORT = 9
_CONSUMER = "signal.consumer."


def is_elsewhere(host: str) -> bool:
    """Whether `host`, a name, an address or the path of a socket, is another machine than this one.

    A name that nobody knows is elsewhere. A tunnel's end on this machine is here, wherever the tunnel leads.
    """
    if not host or "/" in host:
        return False
    try:
        found = socket.getaddrinfo(host.strip("[]"), _ANY_PORT, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return True
    return not all(_is_own(family, address) for family, _, _, _, address in found)


def _is_own(family: int, address: tuple[Any, ...]) -> bool:
    """Whether an address belongs to this machine: then it is also where a datagram to it would come from."""
    if ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        return True
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return bool(probe.getsockname()[0] == address[0])
    except OSError:
        return False


def in_the_clear(server: str, remedy: str, what: str = "The session") -> Finding:
    """The warning of a session that is not encrypted with a `server` on another machine."""
    return Finding(
        "warning",
        "encryption",
        f"{what} with {server} is not encrypted: the network in between sees every row.",
        remedy,
    )


def excessive(user: str, rights: Sequence[str], statements: Sequence[str]) -> Finding:
    """The warning of a user with `rights` beyond what capture needs; `statements` make one without them."""
    return Finding(
        "warning",
        "rights",
        f"The user {user} has more rights than capture needs: {', '.join(rights)}.",
        f"Use {'a role' if statements[0].startswith('create role') else 'a user'} of its own: {' '.join(statements)}",
    )


def some(tables: Sequence[Any], statement: str) -> list[str]:
    """`statement`, with its `{}` replaced, for each of the first tables, whose names are quoted already."""
    more = [statement.format("…")] if len(tables) > SHOWN or not tables else []
    return [statement.format(table) for table in tables[:SHOWN]] + more


def kafka(what: str, servers: Iterable[str], protocol: str, option: str) -> Iterator[Finding]:
    """A warning where records go to brokers (`host:port`) on other machines, or come from them, in the clear.

    `protocol` is the value of `option`, Kafka's security.protocol; "" is its default.
    """
    if protocol.strip().upper() in ("SSL", "SASL_SSL"):
        return
    away = [server.strip() for server in servers if is_elsewhere(_host(server))]
    if away:
        yield in_the_clear(
            listed(away), f"Set {option} to SSL or SASL_SSL, at a port where the brokers speak it.", what
        )


def _host(server: str) -> str:
    """The host of `[listener://]host[:port]`."""
    place = server.strip().rpartition("://")[2]
    return re.sub(r":[0-9]+\Z", "", place)


def channels(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether signals, which start snapshots and may bring conditions, come in the clear."""
    if "kafka" not in config["signal.enabled.channels"]:
        return
    option = f"{_CONSUMER}security.protocol"
    named = {name.lower(): str(config[name]) for name in config if name.lower().startswith(_CONSUMER)}
    yield from kafka("The channel for signals", config["signal.kafka.bootstrap.servers"], named.get(option, ""), option)
