"""Connections to MongoDB: PyMongo's options from a configuration. Driver (checks), planner, worker.

No error message contains the password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailrace.config.credentials import Credential
from tailrace.connectors import stores
from tailrace.connectors.mongodb.rules import replica_set
from tailrace.connectors.mongodb.server.faults import is_passing
from tailrace.errors import ConfigError, PrerequisiteError
from tailrace.process.installation import pip_install

if TYPE_CHECKING:
    from pymongo import MongoClient

_SELECTION = "mongodb.server.selection.timeout.ms"
_TIMES = {
    "mongodb.connect.timeout.ms": "connectTimeoutMS",
    "mongodb.socket.timeout.ms": "socketTimeoutMS",
    _SELECTION: "serverSelectionTimeoutMS",
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
        """Return the store of `mongodb.ssl.keystore` or `mongodb.ssl.truststore`; None if none is given."""
        option = f"mongodb.ssl.{name}"
        path = config[option]
        return cls(path, config[f"{option}.type"], config[f"{option}.password"] or "") if path else None


@dataclass(frozen=True, slots=True)
class Address:
    """The parameters of a connection: picklable, holds the password. `options` are PyMongo's, by their names.

    `credential` supplies the password at each connection; None if the password is fixed, or there is none. The process
    that connects reads the stores' files, so they must exist on workers as well as on the driver.
    """

    uri: str = field(repr=False)
    options: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    keys: Store | None = None
    authorities: Store | None = None
    credential: Credential | None = field(default=None, repr=False)

    @classmethod
    def of(cls, config: Mapping[str, Any], *, soon: bool = False) -> Address:
        """Return the address of a configuration. Its options override those of the connection string, which override
        defaults.

        With `soon` the default wait for a primary is connect.timeout.ms, so that commands fail without waiting for an
        election.
        """
        uri, credential = _uri(config), Credential.of(config, "mongodb.")
        return cls(
            uri,
            tuple(_options(config, uri, soon=soon)),
            Store.of(config, "keystore"),
            Store.of(config, "truststore"),
            None if credential.is_fixed else credential,
        )


def _uri(config: Mapping[str, Any]) -> str:
    string: str = config["mongodb.connection.string"] or ""
    if string:
        return string.strip()
    name, hosts = replica_set(config["mongodb.hosts"])
    if not config["mongodb.members.auto.discover"]:
        return f"mongodb://{hosts}/?directConnection=true"
    return f"mongodb://{hosts}/?replicaSet={name}" if name else f"mongodb://{hosts}/"


def _options(config: Mapping[str, Any], uri: str, *, soon: bool = False) -> Iterator[tuple[str, Any]]:
    is_set = getattr(config, "is_set", lambda name: name in config)
    if not _has(uri, "appName"):
        yield "appname", "tailrace"
    for name, own in _TIMES.items():
        if is_set(name) or not _has(uri, own):
            is_default = soon and name == _SELECTION and not is_set(name)
            # no limit is None in PyMongo, 0 in Debezium
            yield own, config["connect.timeout.ms" if is_default else name] or None
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
    """Return True if a connection string gives the option `name`, in any case."""
    return re.search(rf"[?&;]{re.escape(name)}=", uri, re.IGNORECASE) is not None


def retries(config: Mapping[str, Any]) -> tuple[int, float, float]:
    """Return the retries of a lost connection (-1: for ever), and the first and the longest pause, in seconds.

    `connect.max.attempts` and its pauses, if given, override errors.max.retries and
    retriable.restart.connector.wait.ms.
    """
    attempts = config["connect.max.attempts"]
    if attempts is None:
        return config["errors.max.retries"], 0.1, config["retriable.restart.connector.wait.ms"] / 1000
    names = ("connect.backoff.initial.delay.ms", "connect.backoff.max.delay.ms")
    first, longest = (config[name] / 1000 for name in names)
    return attempts - 1, first, max(first, longest)


def server_uuid(client: MongoClient[Any]) -> str:
    """Return the UUID of admin.system.version in hexadecimal digits; "" if this user may not see it.

    The UUID is the same for all members of a replica set, and differs between replica sets ("listCollections:
    info.uuid"). A sharded cluster shows the UUID of its configuration servers. A copy of the data files has the same
    UUID as the original.
    """
    from pymongo.errors import OperationFailure

    try:
        found = list(client.admin.list_collections(filter={"name": "system.version"}))
    except OperationFailure as error:
        if is_passing(error):
            raise
        return ""
    uuid = found[0].get("info", {}).get("uuid") if found else None
    return "" if uuid is None else bytes(getattr(uuid, "bytes", uuid)).hex()


def connect(address: Address) -> MongoClient[Any]:
    """Return a client, which connects at its first use. All its sessions use the password that is read now.

    Raises PrerequisiteError for faulty stores, ConfigError for options that PyMongo refuses, and the errors of
    `Credential.password`.
    """
    try:
        from pymongo import MongoClient
        from pymongo.errors import ConfigurationError, InvalidURI
    except ImportError:
        raise PrerequisiteError("PyMongo is not installed.", pip_install("tailrace[mongodb]")) from None
    options = dict(address.options)
    if address.credential is not None:
        options["password"] = address.credential.password()
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
        # PyMongo reads PEM files here.
        raise PrerequisiteError(f"TLS cannot be set up: {error}.", "Check the files of certificates.") from None


def _blank(text: str, uri: str) -> str:
    """Return an error's text after a colon; "" if the text shows a part of the connection string.

    In a malformed string any part may belong to the password.
    """
    parts = re.findall(r"[^\W_]{3,}", uri.partition("://")[2])
    words = set(re.findall(r"[^\W_]{3,}", text)) - _WORDS
    return "" if words.intersection(parts) else f": {text.rstrip('. ')}"


# Words of PyMongo's messages and options.
_WORDS = frozenset(("mongodb", "srv", "URI", "authSource", "replicaSet", "tls", "ssl", "true", "false", "localhost"))
