"""Warnings of `tailrace check` for every database: unencrypted sessions, and users with excessive rights. Driver.

Nothing here connects to a server; host names are looked up.
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
    """Return True if `host`, a name, an address or the path of a socket, is another machine than this one.

    A host name that cannot be looked up counts as another machine; the local end of a tunnel counts as this one.
    """
    if not host or "/" in host:
        return False
    try:
        found = socket.getaddrinfo(host.strip("[]"), _ANY_PORT, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return True
    return not all(_is_own(family, address) for family, _, _, _, address in found)


def _is_own(family: int, address: tuple[Any, ...]) -> bool:
    """Return True for an address of this machine: a datagram to it would also be sent from it."""
    if ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        return True
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return bool(probe.getsockname()[0] == address[0])
    except OSError:
        return False


def in_the_clear(server: str, remedy: str, what: str = "The session") -> Finding:
    """Return the warning of an unencrypted session with a `server` on another machine."""
    return Finding(
        "warning",
        "encryption",
        f"{what} with {server} is not encrypted: the network in between sees every row.",
        remedy,
    )


def excessive(user: str, rights: Sequence[str], statements: Sequence[str]) -> Finding:
    """Return the warning of a user with `rights` beyond the needs of capture; `statements` create one without them."""
    return Finding(
        "warning",
        "rights",
        f"The user {user} has more rights than capture needs: {', '.join(rights)}.",
        f"Use {'a role' if statements[0].startswith('create role') else 'a user'} of its own: {' '.join(statements)}",
    )


def some(tables: Sequence[Any], statement: str) -> list[str]:
    """Return `statement` once for each of the first tables, with the table's quoted name in place of `{}`."""
    more = [statement.format("…")] if len(tables) > SHOWN or not tables else []
    return [statement.format(table) for table in tables[:SHOWN]] + more


def kafka(what: str, servers: Iterable[str], protocol: str, option: str) -> Iterator[Finding]:
    """Yield a warning if records pass unencrypted to or from brokers (`host:port`) on other machines.

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
    """Return the host of `[listener://]host[:port]`."""
    place = server.strip().rpartition("://")[2]
    return re.sub(r":[0-9]+\Z", "", place)


def channels(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a warning if signals, which start snapshots and may contain conditions, come unencrypted."""
    if "kafka" not in config["signal.enabled.channels"]:
        return
    option = f"{_CONSUMER}security.protocol"
    named = {name.lower(): str(config[name]) for name in config if name.lower().startswith(_CONSUMER)}
    yield from kafka("The channel for signals", config["signal.kafka.bootstrap.servers"], named.get(option, ""), option)
