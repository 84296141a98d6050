"""MongoDB for tests: SecantusDB, started once, or a real replica set named by --mongodb; proxies before it."""

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
    """A replica set for tests; `address` is host:port of its first member."""

    uri: str
    address: str
    set_name: str

    @property
    def hosts(self) -> str:
        """What `mongodb.hosts` of the 1.x generation takes."""
        return f"{self.set_name}/{self.address}"

    def client(self, **options: Any) -> pymongo.MongoClient[Document]:
        """A new client; the caller closes it."""
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
        """The connector's options that name this database in 1.x words, and `more`, its underscores written as dots."""
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
    """The running replica set behind `uri`."""
    client: pymongo.MongoClient[Document] = pymongo.MongoClient(uri, serverSelectionTimeoutMS=15_000)
    try:
        hello = client.admin.command("hello")
        return Mongo(uri, str(hello["me"]), str(hello["setName"]))
    finally:
        client.close()


def running(server: Secantus) -> Mongo:
    """A started server of ours."""
    return Mongo(server.uri, server.address, "secantus")


@pytest.fixture(scope="session")
def mongodb(request: pytest.FixtureRequest) -> Iterator[Mongo]:
    """The replica set of this run: --mongodb, else SecantusDB, started once; skips where that cannot be fetched."""
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
    """Starts servers of the test's own with the command line's options that are given; all go after the test."""
    try:
        python = fetch()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(Secantus(python, options))


@pytest.fixture
def make_mongo_database(mongodb: Mongo) -> Iterator[Callable[[], MongoDatabase]]:
    """Makes fresh databases; all of them go after the test."""
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
    """One fresh database, dropped after the test."""
    return make_mongo_database()


@pytest.fixture
def mongo_proxy_to(mongodb: Mongo) -> Iterator[Callable[[Change], tuple[Mongo, Proxy]]]:
    """Puts proxies before the replica set: what is given changes what passes. All go after the test."""
    with ExitStack() as stack:

        def make(change: Change) -> tuple[Mongo, Proxy]:
            proxy = stack.enter_context(Proxy(mongodb.address, change))
            return through(mongodb, proxy), proxy

        yield make


def through(server: Mongo, proxy: Proxy) -> Mongo:
    """The server as clients see it that come through `proxy`."""
    if isinstance(proxy.change, mongo_proxy.Mongos):
        return Mongo(f"mongodb://{proxy.address}/", proxy.address, "")
    name = mongo_proxy.SET_NAME if isinstance(proxy.change, mongo_proxy.Oplog) else server.set_name
    return Mongo(f"mongodb://{proxy.address}/?replicaSet={name}", proxy.address, name)


@dataclass
class GenuineOplog:
    """The collection that stands in for the oplog; `server` is the replica set as clients see it."""

    server: Mongo
    collection: Collection[Document]
    count: int = 0

    def append(self, *entries: Document) -> None:
        """Append entries as a mongod would have written them."""
        for entry in entries:
            self.count += 1
            self.collection.insert_one({"_id": self.count, **entry})


def stand_in(client: pymongo.MongoClient[Document]) -> Collection[Document]:
    """The stand-in for the oplog, made anew and empty."""
    database, name = mongo_proxy.STAND_IN
    client[database].drop_collection(name)
    return client[database].create_collection(name, capped=True, size=1 << 26)


@pytest.fixture
def genuine_oplog(mongodb: Mongo, mongo_proxy_to: Callable[[Change], tuple[Mongo, Proxy]]) -> Iterator[GenuineOplog]:
    """An empty oplog that takes entries of any MongoDB's shape, read by whoever comes through its `server`."""
    client = mongodb.client()
    server, _ = mongo_proxy_to(mongo_proxy.Oplog())
    yield GenuineOplog(server, stand_in(client))
    client[mongo_proxy.STAND_IN[0]].drop_collection(mongo_proxy.STAND_IN[1])
    client.close()
