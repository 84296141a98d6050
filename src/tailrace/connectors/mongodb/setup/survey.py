"""Survey of a MongoDB server: its collections, and the statements that make its log readable. Driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter
from tailrace.connectors.mongodb.server.connection import Address, connect
from tailrace.connectors.mongodb.server.faults import explained
from tailrace.connectors.mongodb.setup.prerequisites import rights
from tailrace.connectors.mongodb.snapshot.chunks import collections
from tailrace.connectors.survey import ServerSurvey, lists

if TYPE_CHECKING:
    from pymongo import MongoClient


def _look(config: Config) -> ServerSurvey:
    client = connect(Address.of(config, soon=True))
    try:
        from pymongo.errors import OperationFailure

        statements = list(_log(config, client))
        try:
            found = collections(client, CollectionFilter(config), old=False)
        except OperationFailure:
            # the findings on rights name the role that is missing
            found = []
        return ServerSurvey(lists(sorted(found), "database", "collection"), tuple(statements))
    finally:
        client.close()


def _log(config: Config, client: MongoClient[Any]) -> Iterator[str]:
    hello = client.admin.command("hello")
    if hello.get("msg") != "isdbgrid" and not hello.get("setName"):
        yield "// start each mongod with --replSet NAME, and then once: rs.initiate();"
        return
    yield from (one.remedy for one in rights(config, client) if one.level == "error")


SURVEY = explained(_look)
