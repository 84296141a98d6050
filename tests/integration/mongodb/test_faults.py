"""Lost connections, elections, rollbacks, lost positions and a sharded cluster lose and repeat nothing.

SecantusDB has one member and knows no elections. A client's view of them comes from proxies, and from entries that are
written like another server's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from bson import Int64, Timestamp

from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError
from tests.fix_mongodb import GenuineOplog, Mongo, MongoDatabase, running
from tests.integration.mongodb.capture import COMMENT, Query
from tests.servers.mongo_proxy import Change, Document, Failing, Mongos, Proxy, error
from tests.servers.secantus import Secantus

Through = Callable[[Change], tuple[Mongo, Proxy]]
Queries = Callable[..., Query]
FORMS = pytest.mark.parametrize("form", [{"mongodb_name": "p"}, {}], ids=["oplog", "change_streams"])


def ids(query: Query) -> list[str]:
    """Return the ids of the inserted, read or updated documents, in the order of their events."""
    return [event.id["id"] for event in query.events if event.value is not None]


def is_read(command: Document) -> bool:
    """Return True if a command of the query itself reads the log: it opens a cursor over it, or continues one."""
    if command.get("comment") == COMMENT:
        return False
    return command.get("find") == "oplog.rs" or "getMore" in command or "$changeStream" in str(command.get("pipeline"))


@FORMS
def test_reading_goes_on_after_connections_are_cut(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, mongo_query: Queries, form: dict[str, str]
) -> None:
    server, proxy = mongo_proxy_to(Change())
    query = mongo_query(server, database_include_list=mongo_database.name, snapshot_mode="no_data", **form)
    query.begin()
    for number in range(6):
        mongo_database["c"].insert_one({"_id": number})
        if number % 2:
            proxy.cut()
        query.until(number + 1)
    assert ids(query) == ["0", "1", "2", "3", "4", "5"]


@FORMS
@pytest.mark.parametrize(
    ("code", "name", "labels"),
    [
        (189, "PrimarySteppedDown", ["ResumableChangeStreamError"]),
        (10107, "NotWritablePrimary", ["ResumableChangeStreamError"]),
        (11602, "InterruptedDueToReplStateChange", ["ResumableChangeStreamError"]),
        (43, "CursorNotFound", []),
        (136, "CappedPositionLost", []),
    ],
)
def test_reading_goes_on_after_a_primary_steps_down_or_a_cursor_is_lost(
    mongo_database: MongoDatabase,
    mongo_proxy_to: Through,
    mongo_query: Queries,
    form: dict[str, str],
    code: int,
    name: str,
    labels: list[str],
) -> None:
    failing = Failing(is_read, error(code, name, "not primary", *labels), 0)
    server, _ = mongo_proxy_to(failing)
    query = mongo_query(server, database_include_list=mongo_database.name, snapshot_mode="no_data", **form)
    query.begin()
    mongo_database["c"].insert_many([{"_id": number} for number in range(3)])
    query.until(3)
    failing.times = 2
    deadline = time.monotonic() + 20
    while failing.times and time.monotonic() < deadline:
        query.step()
    assert failing.times == 0
    mongo_database["c"].insert_many([{"_id": number} for number in range(3, 6)])
    query.until(6)
    assert ids(query) == ["0", "1", "2", "3", "4", "5"]


@FORMS
def test_errors_that_stay_end_the_query_after_as_many_tries_as_wanted(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, mongo_query: Queries, form: dict[str, str]
) -> None:
    failing = Failing(is_read, error(189, "PrimarySteppedDown", "stepped down", "ResumableChangeStreamError"), 0)
    server, _ = mongo_proxy_to(failing)
    options = {"connect.max.attempts": "3", "connect.backoff.initial.delay.ms": "10"}
    query = mongo_query(server, snapshot_mode="no_data", database_include_list=mongo_database.name, **form, **options)
    query.begin()
    failing.times = 1000
    with pytest.raises(ConnectionFailed, match="NotPrimaryError"):
        query.until(1, 10)
    assert 1000 - failing.times == 3


@FORMS
def test_a_batch_that_was_planned_is_the_same_after_a_crash(
    mongo_database: MongoDatabase, mongo_query: Queries, form: dict[str, str]
) -> None:
    query = mongo_query(
        mongo_database.server, database_include_list=mongo_database.name, snapshot_mode="no_data", **form
    )
    query.begin()
    mongo_database["c"].insert_many([{"_id": number} for number in range(5)])
    first: list[Any] = []
    while not first:
        first = query.step(commit=False)
    mongo_database["c"].insert_one({"_id": 5})
    query.restart()
    again = query.step()
    assert [event.id for event in again] == [event.id for event in first]
    assert [event.source for event in again] == [event.source for event in first]
    query.until(6)
    assert ids(query) == ["0", "1", "2", "3", "4", "5"]


@FORMS
def test_a_killed_server_is_read_on_where_it_stopped(
    make_secantus: Callable[..., Secantus], mongo_query: Queries, form: dict[str, str]
) -> None:
    server = make_secantus("--sync-on-commit")
    query = mongo_query(running(server), **form)
    with running(server).client() as client:
        client["shop"]["c"].insert_one({"_id": 0})
        query.until(1)
        client["shop"]["c"].insert_one({"_id": 1})
        server.kill()
        server.start()
        client["shop"]["c"].insert_one({"_id": 2})
    query.until(3)
    assert ids(query) == ["0", "1", "2"]


@FORMS
def test_a_position_that_fell_off_the_oplog_is_an_error_or_a_new_snapshot(
    make_secantus: Callable[..., Secantus], mongo_query: Queries, form: dict[str, str]
) -> None:
    server = make_secantus("--oplog-max-entries", "20")
    query = mongo_query(running(server), **form)
    with running(server).client() as client:
        collection = client["shop"]["c"]
        collection.insert_one({"_id": 0})
        query.until(1)
        query.close()
        # It prunes once in about a thousand entries.
        for start in (1, 1500, 3000):
            collection.insert_many([{"_id": number} for number in range(start, start + 1400)])
        collection.delete_many({"_id": {"$gt": 2}})
    query.restart()
    with pytest.raises(PositionLost, match=r"snapshot"):
        query.until(2, 10)
    query.options["snapshot.mode"] = "when_needed"
    query.restart()
    query.until(4)
    assert ids(query) == ["0", "0", "1", "2"]
    assert [event.op for event in query.events] == ["r"] * 4


def test_a_sharded_cluster_is_read_through_mongos(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, mongo_query: Queries
) -> None:
    server, _ = mongo_proxy_to(Mongos())
    mongo_database["c"].insert_one({"_id": 0})
    query = mongo_query(server, database_include_list=mongo_database.name)
    query.until(1)
    mongo_database["c"].update_one({"_id": 0}, {"$set": {"a": 1}})
    query.until(2)
    query.restart()
    mongo_database["c"].delete_one({"_id": 0})
    query.until(4)
    assert [event.row["op"] for event in query.events] == ["r", "u", "d", "tombstone"]


def test_a_mongos_has_no_oplog_to_read(mongo_proxy_to: Through, mongo_query: Queries) -> None:
    server, _ = mongo_proxy_to(Mongos())
    query = mongo_query(server, mongodb_name="p", mongodb_hosts=server.address)
    with pytest.raises(PrerequisiteError, match="a sharded cluster is read through change streams"):
        query.begin()


# --- positions in a genuine oplog: its entries have terms, and before 4.2 hashes


def entry(at: int, number: int, *, term: int = 1, op: str = "i", h: int | None = None) -> Document:
    document: Document = {"ts": Timestamp(1558965506 + at, 1), "t": Int64(term), "v": 2, "op": op, "ns": "shop.c"}
    if h is not None:
        document["h"] = Int64(h)
    document["o"] = {"_id": number} if op == "i" else {"msg": "new primary"}
    if op == "n":
        document["ns"] = ""
    return document


def genuine(oplog: GenuineOplog, mongo_query: Queries) -> Query:
    """Return a query that has read one entry after its start."""
    oplog.append(entry(0, 0))
    query = mongo_query(oplog.server, mongodb_name="p", snapshot_mode="never")
    query.begin()
    oplog.append(entry(1, 1, h=11))
    query.until(1)
    return query


def test_a_new_term_goes_on_from_the_same_position(genuine_oplog: GenuineOplog, mongo_query: Queries) -> None:
    query = genuine(genuine_oplog, mongo_query)
    genuine_oplog.append(entry(2, 0, term=2, op="n"), entry(3, 2, term=2))
    query.restart()
    query.until(2)
    assert ids(query) == ["1", "2"]


@pytest.mark.parametrize("change", [{"t": Int64(2)}, {"h": Int64(12)}], ids=["term", "hash"])
def test_a_position_that_an_election_rolled_back_is_an_error(
    genuine_oplog: GenuineOplog, mongo_query: Queries, change: Document
) -> None:
    query = genuine(genuine_oplog, mongo_query)
    query.close()
    # Another primary has written another entry at the same timestamp.
    genuine_oplog.collection.update_one({"ts": Timestamp(1558965507, 1)}, {"$set": change})
    genuine_oplog.append(entry(2, 2, term=2))
    query.restart()
    with pytest.raises(PositionLost):
        query.until(2, 10)


def test_a_position_that_is_missing_in_the_oplog_is_an_error(genuine_oplog: GenuineOplog, mongo_query: Queries) -> None:
    query = genuine(genuine_oplog, mongo_query)
    query.close()
    genuine_oplog.collection.update_one({"ts": Timestamp(1558965507, 1)}, {"$set": {"ts": Timestamp(1558965507, 2)}})
    query.restart()
    with pytest.raises(PositionLost):
        query.until(2, 10)
