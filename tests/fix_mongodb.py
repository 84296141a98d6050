"""MongoDB for tests: SecantusDB, started once, or a real replica set named by --mongodb; and proxies in front of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.database import Database

from tests.servers import mongo_proxy
from tests.servers.mongo_proxy import Change, Proxy
from tests.servers.secantus import Secantus, Unavailable, fetch

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mongo:
    """A replica set for tests. `address` is host:port of its first member."""

    uri: str
    address: str
    set_name: str

    @property
    def hosts(self) -> str:
        """The value for `mongodb.hosts` of the 1.x generation."""
        return f"{self.set_name}/{self.address}"

    def client(self, **options: Any) -> pymongo.MongoClient[Document]:
        """Return a new client, which the caller closes."""
        given = {"uuidRepresentation": "standard", "serverSelectionTimeoutMS": 15_000, **options}
        return pymongo.MongoClient(self.uri, **given)


@dataclass(frozen=True, slots=True)
class MongoDatabase:
    """A fresh database of one test, and a client of the test's own."""

    server: Mongo
    database: Database[Document]

    @property
    def name(self) -> str:
        return self.database.name

    def __getitem__(self, collection: str) -> Collection[Document]:
        return self.database[collection]

    def options(self, **more: str) -> dict[str, str]:
        """Return the connector's options for this database in 1.x names, and `more`, with dots for its underscores."""
        named = {
            "mongodb.hosts": self.server.hosts,
            "mongodb.name": "dbserver1",
            "database.include.list": self.name,
        }
        return named | {name.replace("_", "."): value for name, value in more.items()}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--mongodb",
        metavar="URI",
        default=os.environ.get("TAILRACE_TEST_MONGODB"),
        help="a real replica set (no login needed, its data may be overwritten) instead of SecantusDB",
    )


def describe(uri: str) -> Mongo:
    """Return the running replica set behind `uri`."""
    client: pymongo.MongoClient[Document] = pymongo.MongoClient(uri, serverSelectionTimeoutMS=15_000)
    try:
        hello = client.admin.command("hello")
        return Mongo(uri, str(hello["me"]), str(hello["setName"]))
    finally:
        client.close()


def running(server: Secantus) -> Mongo:
    """Run a server of the tests' own."""
    return Mongo(server.uri, server.address, "secantus")


@pytest.fixture(scope="session")
def mongodb(request: pytest.FixtureRequest) -> Iterator[Mongo]:
    """Yield the replica set of this run: --mongodb, else SecantusDB, started once. Skips if that cannot be fetched."""
    uri = request.config.getoption("--mongodb")
    if uri:
        yield describe(str(uri))
        return
    try:
        python = fetch()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with Secantus(python, ["--enable-test-commands"]) as server:
        yield running(server)


@pytest.fixture
def make_secantus() -> Iterator[Callable[..., Secantus]]:
    """Yield a factory of servers with given command-line options, which end after the test."""
    try:
        python = fetch()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(Secantus(python, options))


@pytest.fixture
def make_mongo_database(mongodb: Mongo) -> Iterator[Callable[[], MongoDatabase]]:
    """Yield a factory of fresh databases, which are dropped after the test."""
    client = mongodb.client()
    made: list[str] = []

    def make() -> MongoDatabase:
        made.append(f"test_{secrets.token_hex(4)}")
        return MongoDatabase(mongodb, client[made[-1]])

    yield make
    for name in made:
        client.drop_database(name)
    client.close()


@pytest.fixture
def mongo_database(make_mongo_database: Callable[[], MongoDatabase]) -> MongoDatabase:
    """Return a fresh database, dropped after the test."""
    return make_mongo_database()


@pytest.fixture
def mongo_proxy_to(mongodb: Mongo) -> Iterator[Callable[[Change], tuple[Mongo, Proxy]]]:
    """Yield a factory of proxies to the replica set that alter what passes. They end after the test."""
    with ExitStack() as stack:

        def make(change: Change) -> tuple[Mongo, Proxy]:
            proxy = stack.enter_context(Proxy(mongodb.address, change))
            return through(mongodb, proxy), proxy

        yield make


def through(server: Mongo, proxy: Proxy) -> Mongo:
    """Return the server as seen by clients behind `proxy`."""
    if isinstance(proxy.change, mongo_proxy.Mongos):
        return Mongo(f"mongodb://{proxy.address}/", proxy.address, "")
    name = mongo_proxy.SET_NAME if isinstance(proxy.change, mongo_proxy.Oplog) else server.set_name
    return Mongo(f"mongodb://{proxy.address}/?replicaSet={name}", proxy.address, name)


@dataclass
class GenuineOplog:
    """A collection in place of the oplog. `server` is the replica set as its clients see it."""

    server: Mongo
    collection: Collection[Document]
    count: int = 0

    def append(self, *entries: Document) -> None:
        """Append entries in the form of a mongod."""
        for entry in entries:
            self.count += 1
            self.collection.insert_one({"_id": self.count, **entry})


def stand_in(client: pymongo.MongoClient[Document]) -> Collection[Document]:
    """Create the stand-in for the oplog anew, empty."""
    database, name = mongo_proxy.STAND_IN
    client[database].drop_collection(name)
    return client[database].create_collection(name, capped=True, size=1 << 26)


@pytest.fixture
def genuine_oplog(mongodb: Mongo, mongo_proxy_to: Callable[[Change], tuple[Mongo, Proxy]]) -> Iterator[GenuineOplog]:
    """Return an empty oplog that accepts entries of any MongoDB version, read through its `server`."""
    client = mongodb.client()
    server, _ = mongo_proxy_to(mongo_proxy.Oplog())
    yield GenuineOplog(server, stand_in(client))
    client[mongo_proxy.STAND_IN[0]].drop_collection(mongo_proxy.STAND_IN[1])
    client.close()
