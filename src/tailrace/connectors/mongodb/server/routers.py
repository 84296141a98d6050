"""Routers of a sharded cluster: all reads of a cursor must use the mongos that opened it. Planner and worker.

PyMongo selects any mongos for each command. Its cursors remember their mongos, but a RawCursor runs plain commands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.connectors.mongodb.server.connection import Address, connect

if TYPE_CHECKING:
    from pymongo import MongoClient


PATIENCE = 2.0
"""Seconds after which a router that does not answer counts as gone."""


def for_cursors(
    client: MongoClient[Any], address: Address, open_: Callable[[Address], MongoClient[Any]] = connect
) -> MongoClient[Any]:
    """Return a new client of the nearest router, made by `open_`; `client` itself if there are not several routers.

    Raises PyMongo's errors if no server answers.
    """
    client.admin.command("ping")
    known = client.topology_description
    routers = [one for one in known.server_descriptions().values() if one.server_type_name == "Mongos"]
    if known.topology_type_name != "Sharded" or len(routers) < 2:
        return client
    for one in sorted(routers, key=lambda one: one.round_trip_time or 0.0):
        found = open_(_of_one(address, *one.address))
        if answers(found):
            return found
        # this router has failed since the client last reached it
        found.close()
    return client


def is_sharded(client: MongoClient[Any]) -> bool:
    """Return True if the client is connected to a router of a sharded cluster. False before its first command."""
    return any(one.server_type_name == "Mongos" for one in client.topology_description.server_descriptions().values())


def answers(client: MongoClient[Any]) -> bool:
    """Return True if the server answers within PATIENCE."""
    import pymongo
    from pymongo.errors import PyMongoError

    try:
        with pymongo.timeout(PATIENCE):
            client.admin.command("ping")
    except PyMongoError:
        return False
    return True


def _of_one(address: Address, host: str, port: int | None) -> Address:
    """Return the address of a single server, with all other options of the connection string."""
    from pymongo.uri_parser import parse_uri

    parsed = parse_uri(address.uri)
    options = {name: value for name, value in parsed["options"].items() if name.lower() not in _OF_SEVERAL}
    for name in ("username", "password"):
        if parsed.get(name):
            options[name] = parsed[name]
    if parsed.get("database") and "authsource" not in {name.lower() for name in options}:
        options["authSource"] = parsed["database"]
    named = f"[{host}]" if ":" in host else host
    uri = f"mongodb://{named}:{port or 27017}/?directConnection=true"
    return replace(address, uri=uri, options=(*options.items(), *address.options))


_OF_SEVERAL = frozenset({"directconnection", "replicaset", "loadbalanced", "srvservicename", "srvmaxhosts"})
