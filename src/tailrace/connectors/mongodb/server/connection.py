"""Connections to MongoDB: PyMongo's options from a configuration, and its failures in words that help.

Used by the driver (checks), the planner and the workers. No message ever holds the password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailrace.connectors.mongodb.rules import replica_set
from tailrace.connectors.mongodb.server import stores
from tailrace.errors import ConfigError, PrerequisiteError

if TYPE_CHECKING:
    from pymongo import MongoClient

_TIMES = {
    "mongodb.connect.timeout.ms": "connectTimeoutMS",
    "mongodb.socket.timeout.ms": "socketTimeoutMS",
    "mongodb.server.selection.timeout.ms": "serverSelectionTimeoutMS",
    "mongodb.heartbeat.frequency.ms": "heartbeatFrequencyMS",
}
"""Options in ms, and PyMongo's names for them."""


@dataclass(frozen=True, slots=True)
class Store:
    """A file with certificates: `kind` is PEM or PKCS12."""

    path: str
    kind: str
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, config: Mapping[str, Any], name: str) -> Store | None:
        """The one of `mongodb.ssl.keystore` or `mongodb.ssl.truststore`; None where none is given."""
        option = f"mongodb.ssl.{name}"
        path = config[option]
        return cls(path, config[f"{option}.type"], config[f"{option}.password"] or "") if path else None


@dataclass(frozen=True, slots=True)
class Address:
    """How to connect: picklable, holds the password. `options` are PyMongo's, by their names.

    The stores are files where the connection is made, so on workers as well as on the driver.
    """

    uri: str = field(repr=False)
    options: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    keys: Store | None = None
    authorities: Store | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Address:
        """The address of a configuration. What it gives goes before the connection string, whose options go before
        the defaults."""
        uri = _uri(config)
        return cls(
            uri,
            tuple(_options(config, uri)),
            Store.of(config, "keystore"),
            Store.of(config, "truststore"),
        )


def _uri(config: Mapping[str, Any]) -> str:
    string: str = config["mongodb.connection.string"] or ""
    if string:
        return string.strip()
    name, hosts = replica_set(config["mongodb.hosts"])
    if not config["mongodb.members.auto.discover"]:
        return f"mongodb://{hosts}/?directConnection=true"
    return f"mongodb://{hosts}/?replicaSet={name}" if name else f"mongodb://{hosts}/"


def _options(config: Mapping[str, Any], uri: str) -> Iterator[tuple[str, Any]]:
    is_set = getattr(config, "is_set", lambda name: name in config)
    if not _has(uri, "appName"):
        yield "appname", "tailrace"
    for name, own in _TIMES.items():
        if is_set(name) or not _has(uri, own):
            # PyMongo says None where Debezium says 0: no limit.
            yield own, config[name] or None
    if config["mongodb.user"]:
        yield "username", config["mongodb.user"]
        yield "password", config["mongodb.password"] or ""
        if is_set("mongodb.authsource") or not _has(uri, "authSource"):
            yield "authSource", config["mongodb.authsource"]
    if config["mongodb.ssl.enabled"]:
        yield "tls", True
    if config["mongodb.ssl.invalid.hostname.allowed"]:
        yield "tlsAllowInvalidHostnames", True


def _has(uri: str, name: str) -> bool:
    """Whether a connection string gives the option `name`, which has no case."""
    return re.search(rf"[?&;]{re.escape(name)}=", uri, re.IGNORECASE) is not None


def retries(config: Mapping[str, Any]) -> tuple[int, float, float]:
    """How often a lost connection is tried again (-1: for ever), and the first and the longest wait, in seconds.

    `connect.max.attempts` with its waits, where it is given, goes before today's options.
    """
    attempts = config["connect.max.attempts"]
    if attempts is None:
        return config["errors.max.retries"], 0.1, config["retriable.restart.connector.wait.ms"] / 1000
    names = ("connect.backoff.initial.delay.ms", "connect.backoff.max.delay.ms")
    first, longest = (config[name] / 1000 for name in names)
    return attempts - 1, first, max(first, longest)


def connect(address: Address) -> MongoClient[Any]:
    """A client, whose first use connects. Raises PrerequisiteError for stores, ConfigError for what PyMongo refuses."""
    try:
        from pymongo import MongoClient
        from pymongo.errors import ConfigurationError, InvalidURI
    except ImportError:
        raise PrerequisiteError("PyMongo is not installed.", "pip install tailrace[mongodb]") from None
    options = dict(address.options)
    if address.keys is not None:
        store = address.keys
        if store.kind == "PEM":
            options |= {"tlsCertificateKeyFile": store.path}
            options |= {"tlsCertificateKeyFilePassword": store.password} if store.password else {}
        else:
            options["tlsCertificateKeyFile"] = stores.client_certificate(store.path, store.password)
    if address.authorities is not None:
        store = address.authorities
        options["tlsCAFile"] = store.path if store.kind == "PEM" else stores.authorities(store.path, store.password)
    try:
        return MongoClient(address.uri, **options)
    except (ConfigurationError, InvalidURI, ValueError, TypeError) as error:
        why = _blank(str(error), address.uri)
        raise ConfigError(f"PyMongo refuses the connection{why}.", "Correct the options.") from None
    except OSError as error:
        # The reading of PEM files happens here.
        raise PrerequisiteError(f"TLS cannot be set up: {error}.", "Check the files of certificates.") from None


def _blank(text: str, uri: str) -> str:
    """What an error says, behind a colon; nothing where it shows a part of the connection string.

    Where the string is broken, any part of it may be one of the password.
    """
    parts = re.findall(r"[^\W_]{3,}", uri.partition("://")[2])
    words = set(re.findall(r"[^\W_]{3,}", text)) - _WORDS
    return "" if words.intersection(parts) else f": {text.rstrip('. ')}"


# Of PyMongo's own sentences and of its options.
_WORDS = frozenset(("mongodb", "srv", "URI", "authSource", "replicaSet", "tls", "ssl", "true", "false", "localhost"))
