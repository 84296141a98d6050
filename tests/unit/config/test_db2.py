"""Db2's options: Debezium's by name, IBM's driver by its keywords, and every refusal with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.config import Config
from tailrace.connectors.db2.server.driver import driver_properties
from tailrace.connectors.registry import from_entries, parse, table
from tailrace.errors import ConfigError

REQUIRED = {"database.hostname": "db", "database.user": "reader", "database.dbname": "SAMPLE"}


def config(options: dict[str, str] | None = None) -> Config:
    return parse("db2", REQUIRED | (options or {}))


def fault(options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        config(options)
    return str(caught.value)


def test_every_option_of_the_reference_has_a_row() -> None:
    names = (Path(__file__).parent / "debezium-options-db2.txt").read_text().split()
    assert len(names) > 110
    rows = table("db2")
    known = {name.lower() for row in rows for name in (row.name, *row.aliases, *row.deprecated_names)}
    assert [n for n in names if n.lower() not in known and not any(row.matches(n) for row in rows)] == []


def test_every_unsupported_option_may_be_given_with_its_default() -> None:
    for option in table("db2"):
        if option.unsupported and not option.pattern and option.default not in (None, [], ""):
            default = option.default
            text = ",".join(default) if isinstance(default, list) else str(default)
            config({option.name: text.lower() if isinstance(default, bool) else text})


def test_the_defaults_pass_their_own_checks() -> None:
    for option in table("db2"):
        if option.default is not None:
            assert not option.choices or option.default in option.choices, option.name
            assert option.check is None or not option.check(option.default), option.name


def test_a_configuration_reads_back() -> None:
    read = config({"driver.Security": "SSL", "db2.platform": "ZOS", "snapshot.mode": "schema_only"})
    assert parse("db2", read.texts).typed == read.typed


@pytest.mark.parametrize("names", [{}, {"database.server.name": "x"}, {"topic.prefix": "x"}])
def test_whatever_it_names_the_format_is_that_of_the_document(names: dict[str, str]) -> None:
    assert config(names).event_format == "2.3"
    assert config({**names, "event.format": "3"}).event_format == "3"
    assert config(names)["schema.name.adjustment.mode"] == "none"


def test_a_connectors_file_runs_unchanged() -> None:
    entries = {
        "connector.class": "io.debezium.connector.db2.Db2Connector",
        "database.hostname": "192.0.2.1",
        "database.port": "50000",
        "database.user": "db2inst1",
        "database.password": "secret",
        "database.dbname": "TESTDB",
        "topic.prefix": "fulfillment",
        "table.include.list": r"MYSCHEMA\.CUSTOMERS",
        "schema.history.internal.kafka.bootstrap.servers": "kafka:9092",
        "schema.history.internal.kafka.topic": "schemahistory.fullfillment",
    }
    source = from_entries(entries).source
    assert (source.connector, source.logical_name) == ("db2", "fulfillment")
    assert source["database.port"] == 50000


def test_the_platform_decides_how_wide_positions_are() -> None:
    assert config()["db2.position.bytes"] == 16
    assert config({"db2.platform": "z"})["db2.position.bytes"] == 10
    assert config({"db2.platform": "ZOS"})["db2.platform"] == "Z"
    assert config({"db2.platform": "Z", "db2.position.bytes": "16"})["db2.position.bytes"] == 16
    assert "must be 10 or 16" in fault({"db2.position.bytes": "12"})


def test_the_schema_of_change_tables_is_obeyed_only_when_given() -> None:
    assert config()["cdc.change.tables.schema"] is None
    assert config({"cdc.change.tables.schema": "ASNCDC"})["cdc.change.tables.schema"] == "ASNCDC"


def test_the_driver_gets_its_keywords() -> None:
    read = config(
        {
            "driver.sslConnection": "true",
            "driver.sslCertLocation": "/etc/db2.pem",
            "driver.securitymechanism": "9",
            "driver.CURRENTSCHEMA": "INVENTORY",
            "driver.tlsversion": "TLSv12",
            "driver.progressiveStreaming": "2",
        }
    )
    assert driver_properties(read) == {
        "Security": "SSL",
        "SSLServerCertificate": "/etc/db2.pem",
        "Authentication": "SERVER_ENCRYPT",
        "CurrentSchema": "INVENTORY",
        "TLSVersion": "TLSv12",
    }
    assert any("progressiveStreaming has no effect" in notice for notice in read.notices)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("driver.sslTrustStoreLocation", "/x.jks", "Java key stores are not read"),
        ("driver.LOBCacheSiz", "1", "would ignore it; the nearest is driver.LOBCacheSize"),
        ("driver.PWD", "x", "give it as database.password"),
        ("driver.CurrentSchema", "A;UID=root", "holds a semicolon or a brace"),
        ("driver.sslConnection", "yes", "must be true or false"),
        ("driver.securityMechanism", "99", "driver.Authentication"),
        ("database.password", "a;b", "holds a semicolon or a brace"),
        ("snapshot.mode", "recovery", "cannot be lost apart from the position"),
        ("event.order", "key", "a range of a change table is read by one query"),
        ("event.format", "1.7", "must be one of 2.3, 3"),
        ("slot.nmae", "x", "is not an option"),
        ("cdc.control.schema", 'A"B', "must be a schema's name"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(name: str, text: str, reason: str) -> None:
    told = fault({name: text})
    assert name in told
    assert reason in told


def test_secrets_of_the_driver_are_never_shown() -> None:
    assert "hush" not in repr(config({"driver.AccessToken": "hush", "database.password": "hush"}))
