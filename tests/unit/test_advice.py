"""Advice for every database: `check` warns of unencrypted connections over a network."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tailrace import sinks
from tailrace.connectors import advice
from tailrace.connectors.db2.setup import advice as db2
from tailrace.connectors.mongodb.setup import advice as mongodb
from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.setup import advice as sqlserver
from tailrace.errors import ConnectionFailed, PrerequisiteError

AWAY = "192.0.2.7"
"""An address of a network reserved for documentation."""


def test_this_machine_is_not_elsewhere() -> None:
    for host in ("", "localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "/var/run/postgresql", "/tmp/mongodb.sock"):
        assert not advice.is_elsewhere(host), host
    for host in (AWAY, "198.51.100.1", "no-such-host.invalid", "é" * 64):
        assert advice.is_elsewhere(host), host


def test_an_address_of_an_interface_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an address that a datagram to it would come from; a name is elsewhere if one of its addresses is."""

    class Probe:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> Probe:
            return self

        def __exit__(self, *_: object) -> None: ...
        def connect(self, address: tuple[str, int]) -> None:
            if address[0] == "203.0.113.9":
                raise OSError("no route")

        def getsockname(self) -> tuple[str, int]:
            return "10.0.0.5", 4711

    addresses = {"mine": ["10.0.0.5", "127.0.0.1"], "both": ["10.0.0.5", "10.0.0.6"], "off": ["203.0.113.9"]}

    def known(host: str, *_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, 0, 0, "", (address, 9)) for address in addresses[host]]

    monkeypatch.setattr(socket, "getaddrinfo", known)
    monkeypatch.setattr(socket, "socket", Probe)
    assert [advice.is_elsewhere(name) for name in ("mine", "both", "off")] == [False, True, True]


@pytest.mark.parametrize(
    ("servers", "protocol", "told"),
    [
        (f"localhost:9092,{AWAY}:9092", "", f"{AWAY}:9092"),
        (f"PLAINTEXT://{AWAY}:9092, [2001:db8::1]:9092", "sasl_plaintext", "[2001:db8::1]:9092"),
        (AWAY, "PLAINTEXT", AWAY),
        (f"{AWAY}:9092", "SSL", ""),
        (f"{AWAY}:9092", "sasl_ssl", ""),
        ("localhost:9092,[::1]:9093,127.0.0.1", "", ""),
    ],
)
def test_brokers_on_other_hosts_are_encrypted(servers: str, protocol: str, told: str) -> None:
    given = {"producer.bootstrap.servers": servers} | ({"producer.security.protocol": protocol} if protocol else {})
    found = sinks.open("kafka", given).advice()
    shared = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    signals = {"signal.enabled.channels": "source,kafka", "signal.kafka.bootstrap.servers": servers}
    signals |= {"signal.consumer.security.protocol": protocol} if protocol else {}
    both = [*found, *advice.channels(parse("postgres", shared | signals))]
    assert [one.subject for one in both] == (["encryption", "encryption"] if told else [])
    if told:
        assert told in both[0].text
        assert both[0].text.startswith("The sink with ")
        assert both[1].text.startswith("The channel for signals with ")
        assert "localhost" not in both[0].text
        assert "debezium.sink.kafka.producer.security.protocol" in both[0].remedy
        assert "signal.consumer.security.protocol" in both[1].remedy


def test_channels_that_are_not_kafka_and_other_sinks_have_no_advice() -> None:
    config = parse(
        "postgres", {"database.hostname": "h", "database.user": "u", "database.dbname": "d"} | {"topic.prefix": "p"}
    )
    assert list(advice.channels(config)) == []
    assert sinks.open("console", {}).advice() == []


@pytest.mark.parametrize(
    ("host", "encrypt", "warned"),
    [(AWAY, "false", True), (AWAY, "true", False), (AWAY, "strict", False), ("localhost", "false", False)],
)
def test_sqlserver(host: str, encrypt: str, warned: bool) -> None:
    given = {"database.hostname": host, "database.user": "u", "database.names": "d", "topic.prefix": "p"}
    found = list(sqlserver.encryption(parse("sqlserver", given | {"driver.encrypt": encrypt})))
    assert [one.subject for one in found] == ["encryption"] * warned
    assert all("driver.encrypt=true" in one.remedy and AWAY in one.text for one in found)


@pytest.mark.parametrize(
    ("host", "security", "warned"),
    [
        (AWAY, {}, True),
        (AWAY, {"driver.Security": "SSL"}, False),
        (AWAY, {"driver.sslConnection": "true"}, False),
        (AWAY, {"driver.Authentication": "SERVER_ENCRYPT"}, True),
        ("localhost", {}, False),
    ],
)
def test_db2(host: str, security: dict[str, str], warned: bool) -> None:
    given = {"database.hostname": host, "database.user": "u", "database.dbname": "D", "topic.prefix": "p"}
    found = list(db2.encryption(parse("db2", given | security)))
    assert [one.subject for one in found] == ["encryption"] * warned
    assert all("driver.Security=SSL" in one.remedy and AWAY in one.text for one in found)


class _Db2:
    """A session with a Db2 that lists authorities, or refuses to."""

    def __init__(self, *authorities: str, refusal: Exception | None = None) -> None:
        self.connection = self
        self.authorities, self.refusal = authorities, refusal

    def rows(self, statement: str) -> list[tuple[str]]:
        assert "AUTH_LIST_AUTHORITIES_FOR_AUTHID (SESSION_USER, 'U')" in statement
        if self.refusal is not None:
            raise self.refusal
        return [(authority,) for authority in self.authorities]

    def signal_table(self) -> None:
        return None


def test_authorities_of_db2() -> None:
    given = {"database.hostname": "h", "database.user": "boss", "database.dbname": "D", "topic.prefix": "p"}
    config = parse("db2", given)
    session: Any = _Db2("CONNECT", "DBADM  ", "BINDADD", "DATAACCESS")
    (found,) = db2.rights(config, session, [])
    assert (found.level, found.subject) == ("warning", "rights")
    assert found.text == "The user boss has more rights than capture needs: DBADM, DATAACCESS."
    assert 'grant select on "ASNCDC"."IBMSNAP_REGISTER" to user TAILRACE;' in found.remedy
    modest: Any = _Db2("CONNECT", "CREATETAB", "BINDADD", "IMPLICIT_SCHEMA")
    assert list(db2.rights(config, modest, [])) == []
    # A server without this function, or where nobody may call it.
    silent: Any = _Db2(refusal=PrerequisiteError("no such function"))
    assert list(db2.rights(config, silent, [])) == []
    lost: Any = _Db2(refusal=ConnectionFailed("gone"))
    with pytest.raises(ConnectionFailed):
        list(db2.rights(config, lost, []))


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        (f"mongodb://{AWAY}/", True),
        (f"mongodb://localhost,{AWAY}:27018/?replicaSet=rs0", True),
        (f"mongodb://{AWAY}/?tls=true", False),
        ("mongodb://localhost/", False),
    ],
)
def test_mongodb(given: str, warned: bool) -> None:
    import pymongo

    client: Any = pymongo.MongoClient(given, connect=False)
    try:
        seen: Any = _Known(client)
        found = list(mongodb.encryption(seen))
    finally:
        client.close()
    assert [one.subject for one in found] == ["encryption"] * warned
    assert all("mongodb.ssl.enabled=true" in one.remedy and AWAY in one.text for one in found)
    assert all("localhost" not in one.text for one in found)


class _Known:
    """A client that has reached all of its seeds."""

    def __init__(self, client: Any) -> None:
        self.options = client.options
        self.nodes = frozenset(client.topology_description.server_descriptions())
