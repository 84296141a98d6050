"""SecantusDB and the proxies before it are what the tests of the MongoDB connector take them for."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Int64, Timestamp
from pymongo import CursorType
from pymongo.errors import OperationFailure

from tests.fix_mongodb import GenuineOplog, Mongo, MongoDatabase, running
from tests.servers.mongo_proxy import Change, Failing, Mongos, Proxy, error
from tests.servers.secantus import Secantus

Through = Callable[[Change], tuple[Mongo, Proxy]]


def names(server: Secantus) -> list[Any]:
    with running(server).client() as client:
        return [document["_id"] for document in client["kept"]["c"].find().sort("_id", 1)]


def test_the_oplog_can_be_read_by_range(mongo_database: MongoDatabase) -> None:
    mongo_database["c"].insert_many([{"_id": number} for number in range(3)])
    with mongo_database.server.client() as client:
        entries = list(client["local"]["oplog.rs"].find({"ns": f"{mongo_database.name}.c", "op": "i"}))
    assert [entry["o"]["_id"] for entry in entries] == [0, 1, 2]
    assert entries == sorted(entries, key=lambda entry: entry["ts"])


def test_a_restarted_server_has_its_data(make_secantus: Callable[..., Secantus]) -> None:
    server = make_secantus()
    with running(server).client() as client:
        client["kept"]["c"].insert_one({"_id": 1})
    server.stop()
    server.start()
    assert names(server) == [1]


def test_a_killed_server_has_what_it_promised_to_have(make_secantus: Callable[..., Secantus]) -> None:
    server = make_secantus("--sync-on-commit")
    with running(server).client() as client:
        client["kept"]["c"].insert_one({"_id": 1})
    server.kill()
    server.start()
    assert names(server) == [1]


def test_a_position_falls_off_a_small_oplog(make_secantus: Callable[..., Secantus]) -> None:
    server = make_secantus("--oplog-max-entries", "20")
    with running(server).client() as client:
        collection = client["kept"]["c"]
        with collection.watch() as stream:
            token = stream.resume_token
        # It prunes once in about a thousand entries.
        collection.insert_many([{"_id": number} for number in range(1500)])
        collection.insert_many([{"_id": number} for number in range(1500, 3000)])
        with pytest.raises(OperationFailure) as lost, collection.watch(resume_after=token) as stream:
            stream.try_next()
    assert lost.value.code == 286


def test_a_login_is_demanded(make_secantus: Callable[..., Secantus]) -> None:
    server = make_secantus()
    with running(server).client() as client:
        client["admin"].command("createUser", "reader", pwd="word", roles=[{"role": "read", "db": "kept"}])
    server.stop()
    server.options = ["--auth"]
    server.start()
    with pytest.raises(OperationFailure), running(server).client() as client:
        client["kept"]["c"].find_one()
    with running(server).client(username="reader", password="word") as client:
        assert client["kept"]["c"].find_one() is None


def test_entries_of_other_servers_are_read_as_the_oplog(genuine_oplog: GenuineOplog) -> None:
    raw = bson.encode({"_id": 1})
    first = {"ts": Timestamp(1558965506, 1), "h": Int64(7), "v": 2, "op": "i", "ns": "a.b", "o": {"rawBson": raw}}
    genuine_oplog.append(first)
    with genuine_oplog.server.client() as client:
        assert client.admin.command("hello")["setName"] == "rs0"
        oplog = client["local"]["oplog.rs"]
        tail = oplog.find({"ts": {"$gte": first["ts"]}}, cursor_type=CursorType.TAILABLE_AWAIT)
        assert next(tail)["o"] == {"_id": 1}
        genuine_oplog.append({**first, "ts": Timestamp(1558965506, 2), "op": "n"})
        assert next(tail)["op"] == "n"
        assert [entry["op"] for entry in oplog.find().sort("$natural", -1).limit(1)] == ["n"]


def test_a_mongos_has_no_replica_set(mongo_database: MongoDatabase, mongo_proxy_to: Through) -> None:
    server, _ = mongo_proxy_to(Mongos())
    mongo_database["c"].insert_one({"_id": 1})
    with server.client() as client:
        assert client[mongo_database.name]["c"].find_one() == {"_id": 1}
        assert client.topology_description.topology_type_name == "Sharded"
        with pytest.raises(OperationFailure) as unknown:
            client.admin.command("replSetGetStatus")
        with client[mongo_database.name].watch() as stream:
            mongo_database["c"].insert_one({"_id": 2})
            assert next(stream)["documentKey"] == {"_id": 2}
    assert unknown.value.code == 59


def test_a_command_fails_as_often_as_wanted(mongo_proxy_to: Through) -> None:
    refusal = error(13, "Unauthorized", "not authorized on local to execute command")
    server, _ = mongo_proxy_to(Failing(lambda command: command.get("find") == "oplog.rs", refusal, 1))
    with server.client() as client:
        with pytest.raises(OperationFailure) as refused:
            client["local"]["oplog.rs"].find_one()
        assert client["local"]["oplog.rs"].find_one() is not None
    assert refused.value.code == 13


def test_connections_can_be_cut(mongo_proxy_to: Through) -> None:
    server, proxy = mongo_proxy_to(Change())
    host, port = proxy.address.split(":")
    with server.client() as client, socket.create_connection((host, int(port)), timeout=10) as idle:
        client.admin.command("ping")
        proxy.cut()
        assert idle.recv(1) == b""
        assert client["local"]["oplog.rs"].find_one() is not None  # the driver tries reads twice
