"""Warnings about sessions and users of MongoDB: unencrypted, or with excessive rights. Driver; only reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.connectors import advice
from tailrace.connectors.findings import SHOWN, Finding, listed
from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.log.namespaces import split
from tailrace.connectors.mongodb.snapshot.signalling import SIGNALS, signal_role

if TYPE_CHECKING:
    from pymongo import MongoClient

_BROAD = frozenset(
    (
        *("__system", "root", "atlasAdmin", "dbOwner", "dbAdmin", "userAdmin", "readWrite", "readWriteAnyDatabase"),
        *("dbAdminAnyDatabase", "userAdminAnyDatabase", "clusterAdmin", "clusterManager", "hostManager"),
        *("enableSharding", "backup", "restore"),
    )
)
"""Built-in roles that write or administer (MongoDB Manual, "Built-In Roles")."""

_WRITES = frozenset(
    (
        *("anyAction", "insert", "update", "remove", "createCollection", "dropCollection", "dropDatabase", "collMod"),
        *("createUser", "dropUser", "grantRole", "revokeRole", "createRole", "dropRole", "changePassword", "shutdown"),
    )
)
"""Writing and administrative actions, for user-defined roles (MongoDB Manual, "Privilege Actions")."""


def encryption(client: MongoClient[Any]) -> Iterator[Finding]:
    """Yield a warning if the connected client uses no TLS and reaches members on other hosts."""
    # the connection string or DNS may also have enabled TLS
    if client.options.pool_options._ssl_context is not None:
        return
    away = sorted(f"{host}:{port}" for host, port in client.nodes if advice.is_elsewhere(host))
    if away:
        yield advice.in_the_clear(
            listed(away),
            "Set mongodb.ssl.enabled=true and mongodb.ssl.truststore, and switch TLS on in the server: net.tls.mode.",
        )


def rights(config: Config, client: MongoClient[Any], data: Sequence[Namespace]) -> Iterator[Finding]:
    """Yield a warning if the user may write or administer, or reads more databases than are captured.

    `data` are the captured collections.
    """
    known = client.admin.command({"connectionStatus": 1, "showPrivileges": True})["authInfo"]
    if not known.get("authenticatedUsers"):
        yield Finding(
            "warning",
            "login",
            "The connection has no login: everyone who reaches the server has the connector's rights.",
            f"Start the server with authorization, then: {' '.join(least(config, data))}",
        )
        return
    more = list(_roles(config, known.get("authenticatedUserRoles") or ()))
    more = more or list(_actions(config, known.get("authenticatedUserPrivileges") or ()))
    if more:
        yield advice.excessive(known["authenticatedUsers"][0]["user"], more, least(config, data))


def _roles(config: Config, roles: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    one_database = config["capture.mode"] != "oplog" and config["capture.scope"] != "deployment"
    for role in roles:
        if role["role"] in _BROAD:
            yield f"{role['role']} on {role['db']}"
        elif role["role"] == "readAnyDatabase" and one_database:
            yield f"readAnyDatabase, with capture.scope={config['capture.scope']}"


def _actions(config: Config, privileges: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the excessive actions of user-defined roles. Watermarks need to write the signal collection."""
    signals = split(str(config["signal.data.collection"] or "."))
    for privilege in privileges:
        resource = privilege["resource"]
        place = resource.get("db"), resource.get("collection")
        needed = {"insert", "remove"} if place == signals else set()
        found = sorted(_WRITES.intersection(privilege["actions"]) - needed)
        if found:
            where = "the cluster" if "cluster" in resource else "everything"
            if "db" in resource:
                where = f"{place[0] or 'every database'}.{place[1] or '*'}"
            yield f"{', '.join(found)} on {where}"


def least(config: Config, data: Sequence[Namespace]) -> list[str]:
    """Return the shell's statements that create a user with only the rights that the configuration needs."""
    admin = 'db.getSiblingDB("admin")'
    signals = split(str(config["signal.data.collection"] or "."))
    written = bool(signals[1]) and not config["read.only"] and config["capture.mode"] != "oplog"
    databases = sorted({database for database, _ in data})
    if config["capture.mode"] == "oplog":
        roles = [_read("local"), *map(_read, databases[:SHOWN]), *(["…"] if len(databases) > SHOWN else [])]
    elif config["capture.scope"] == "deployment":
        roles = ['"readAnyDatabase"']
    else:
        roles = [_read(split(config["capture.target"])[0])]
    found = [f"{admin}.{signal_role(config)};"] if written else []
    roles += [f'"{SIGNALS}"'] if written else []
    return [*found, f'{admin}.createUser({{ user: "{advice.ROLE}", pwd: "…", roles: [{", ".join(roles)}] }});']


def _read(database: str) -> str:
    return f'{{ role: "read", db: "{database}" }}'
