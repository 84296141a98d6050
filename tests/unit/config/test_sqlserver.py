"""SQL Server's options: both generations, the driver's properties, what is refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from tailrace.config import Config, TableFilter
from tailrace.config.timezone import timezone
from tailrace.connectors.registry import from_entries, parse, table
from tailrace.connectors.sqlserver.options import signal_tables
from tailrace.connectors.sqlserver.server.driver import keywords
from tailrace.errors import ConfigError
from tailrace.events.event_settings import EventSettings

REQUIRED = {"database.hostname": "db", "database.user": "reader", "database.names": "shop"}


def config(options: dict[str, str] | None = None) -> Config:
    return parse("sqlserver", REQUIRED | (options or {}))


def fault(options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        config(options)
    return str(caught.value)


def test_every_option_of_the_reference_has_a_row() -> None:
    names = (Path(__file__).parent / "debezium-options-sqlserver.txt").read_text().split()
    assert len(names) > 120
    rows = table("sqlserver")
    known = {name.lower() for row in rows for name in (row.name, *row.aliases, *row.deprecated_names)}
    assert [n for n in names if n.lower() not in known and not any(row.matches(n) for row in rows)] == []


def test_every_unsupported_option_may_be_given_with_its_default() -> None:
    for option in table("sqlserver"):
        if option.unsupported and not option.pattern and option.default not in (None, [], ""):
            text = str(option.default)
            config({option.name: text.lower() if isinstance(option.default, bool) else text})


def test_the_defaults_that_are_typed_pass_their_own_checks() -> None:
    for option in table("sqlserver"):
        for default in (option.default, option.default_1x):
            if default is not None and option.choices:
                assert default in option.choices, option.name
            if default is not None and option.check is not None:
                assert not option.check(default), option.name


@pytest.mark.parametrize(
    ("options", "form"),
    [
        ({"database.server.name": "a"}, "1.0"),
        ({"topic.prefix": "a"}, "3"),
        ({"topic.prefix": "a", "event.format": "1.0"}, "1.0"),
        ({"database.server.name": "a", "event.format": "3"}, "3"),
        ({}, "1.0"),
    ],
)
def test_the_generation_of_the_configuration_decides_the_format(options: dict[str, str], form: str) -> None:
    read = config(options)
    assert read.event_format == form
    assert parse("sqlserver", read.texts).typed == read.typed


def test_the_names_of_1_0_work() -> None:
    read = parse(
        "sqlserver",
        {
            "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
            "database.hostname": "192.168.99.100",
            "database.port": "1433",
            "database.user": "sa",
            "database.password": "Password!",
            "database.dbname": "testDB",
            "database.server.name": "fulfillment",
            "table.whitelist": "dbo.customers",
            "column.blacklist": "dbo.customers.email",
            "database.history.kafka.bootstrap.servers": "kafka:9092",
            "database.history.kafka.topic": "dbhistory.fulfillment",
            "snapshot.delay.ms": "10",
            "snapshot.mode": "initial_schema_only",
        },
    )
    assert read["database.names"] == ["testDB"]
    assert read.logical_name == "fulfillment"
    assert read["table.include.list"] == ["dbo.customers"]
    assert read["column.exclude.list"] == ["dbo.customers.email"]
    assert read["snapshot.mode"] == "no_data"
    assert read["data.query.mode"] == "function"
    assert read["schema.name.adjustment.mode"] == "avro"
    told = " ".join(read.notices)
    assert "table.whitelist is the older name of table.include.list" in told
    assert "column.blacklist is the older name of column.exclude.list" in told
    assert "database.history.kafka.topic has no effect: the history of schemas is in Spark's checkpoint" in told
    assert "database.dbname" not in told


def test_a_file_names_the_connector_by_its_class() -> None:
    entries = {f"debezium.source.{name}": text for name, text in REQUIRED.items()}
    entries["debezium.source.connector.class"] = "io.debezium.connector.sqlserver.SqlServerConnector"
    entries["debezium.source.topic.prefix"] = "p"
    assert from_entries(entries).source.connector == "sqlserver"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"database.names": ""}, "database.names is missing"),
        ({"database.user": ""}, "database.user is missing"),
        ({"database.dbname": "other"}, "contradict each other"),
        ({"database.names": "a,b"}, "share topics"),
        ({"topic.prefix": "p", "database.names": "a,A"}, "lists a database twice"),
        ({"database.exclude.list": "sh.*"}, "leave no database"),
        ({"snapshot.mode": "recovery"}, "history of schemas is in Spark's checkpoint"),
        ({"snapshot.mode": "custom"}, "no Java plug-ins"),
        ({"snapshot.isolation.mode": "serializable"}, "must be one of"),
        ({"snapshot.locking.mode": "custom"}, "no Java plug-ins"),
        ({"event.order": "key"}, "read by one query"),
        ({"data.query.mode": "both"}, "must be one of direct, function"),
        ({"driver.trustStore": "/x.jks"}, "Java key stores are not read"),
        ({"database.ssl.truststore": "/x.jks"}, "Java key stores are not read"),
        ({"driver.bogus": "1"}, "no such property"),
        ({"driver.queryTimeout": "5"}, "database.query.timeout.ms"),
        ({"driver.encrypt": "maybe"}, "must be one of true"),
        ({"driver.authentication": "ActiveDirectoryInteractive"}, "must be one of NotSpecified"),
        ({"driver.userName": "x"}, "database.* option"),
        ({"database.server.timezone": "Middle/Earth"}, "must be a region"),
        ({"signal.data.collection": "a.b.c.d"}, "database.schema.table"),
        ({"signal.data.collection": "other.dbo.signals"}, "which database.names does not name"),
        ({"signal.data.collection": "dbo.a, shop.dbo.b"}, "names several tables"),
        ({"internal.change.column.filter.override": "true"}, "changes would lack the columns"),
        ({"event.format": "1.7"}, "must be one of 1.0, 3"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options: dict[str, str], reason: str) -> None:
    assert reason in fault(options)


def test_secrets_are_never_shown() -> None:
    read = config({"database.password": "hunter2", "driver.encrypt": "false"})
    assert "hunter2" not in repr(read)
    assert "driver.encrypt='false'" in repr(read)
    assert "hunter2" not in fault({"driver.trustStorePassword": "hunter2", "driver.unheardOf": "hunter2"})


def test_the_java_drivers_properties_become_keywords() -> None:
    given = keywords(
        config(
            {
                "database.applicationIntent": "readonly",
                "driver.encrypt": "optional",
                "database.trustServerCertificate": "true",
                "driver.hostNameInCertificate": "*.example.org",
                "driver.multiSubnetFailover": "true",
                "driver.authentication": "activedirectorymanagedidentity",
                "driver.responseBuffering": "adaptive",
            }
        )
    )
    assert given["ApplicationIntent"] == "ReadOnly"
    assert given["Encrypt"] == "no"
    assert given["TrustServerCertificate"] == "yes"
    assert given["HostnameInCertificate"] == "*.example.org"
    assert given["MultiSubnetFailover"] == "yes"
    assert given["Authentication"] == "ActiveDirectoryMSI"


def test_connections_are_encrypted_and_checked_unless_told_otherwise() -> None:
    for options in ({"topic.prefix": "a"}, {}, {"database.server.name": "a", "database.encrypt": "true"}):
        given = keywords(config(options))
        assert (given["Encrypt"], given["TrustServerCertificate"]) == ("yes", "no")


def test_a_configuration_of_1_x_connects_as_it_did() -> None:
    read = config({"database.server.name": "a"})
    assert keywords(read)["Encrypt"] == "no"
    assert any("only the login is encrypted" in notice for notice in read.notices)
    # Spark's side reads the options again, under today's names.
    assert keywords(parse("sqlserver", read.texts))["Encrypt"] == "no"


def test_a_tuning_of_the_java_driver_is_taken_with_a_notice() -> None:
    notices = config({"driver.responseBuffering": "adaptive"}).notices
    assert any("driver.responseBuffering has no effect: it tunes Microsoft's Java driver" in text for text in notices)


def test_databases_are_filtered_by_their_lists() -> None:
    named = {"topic.prefix": "p", "database.names": "Sales,stock,test"}
    assert config(named | {"database.include.list": "s.*"})["database.names"] == ["Sales", "stock"]
    assert config(named | {"database.exclude.list": "TEST"})["database.names"] == ["Sales", "stock"]


def test_a_login_by_the_process_needs_no_user() -> None:
    assert not config({"database.user": "", "driver.integratedSecurity": "true"})["database.user"]


def test_an_instance_takes_the_place_of_the_default_port() -> None:
    assert config({"database.instance": "SQLEXPRESS"})["database.port"] is None
    assert config({"database.instance": "SQLEXPRESS", "database.port": "1434"})["database.port"] == 1434


def test_the_signal_table_belongs_to_one_database() -> None:
    names = config({"topic.prefix": "p", "database.names": "a,b", "signal.data.collection": 'B."x.y".t'})
    assert signal_tables(names["signal.data.collection"], ("a", "b")) == {"b": ("x.y", "t")}


def test_a_filter_passes_over_the_servers_own_tables_and_takes_the_signals() -> None:
    passes = TableFilter(config({"table.include.list": r"dbo\.t"})).includes
    assert passes("dbo", "t")
    assert passes("DBO", "T")
    assert not passes("dbo", "other")
    everything = TableFilter(config()).includes
    assert everything("pg_catalog", "t")
    assert not everything("cdc", "dbo_t_CT")
    assert not everything("sys", "objects")
    assert not everything("dbo", "systranschemas")
    signalled = {"table.include.list": "dbo.t", "signal.data.collection": "shop.dbo.signals"}
    assert TableFilter(config(signalled | {"topic.prefix": "p"})).includes("dbo", "signals")
    assert not TableFilter(config(signalled)).includes("dbo", "signals")


def test_time_zones_have_javas_names() -> None:
    when = dt.datetime(2026, 7, 1, 12, tzinfo=timezone("Europe/Berlin"))
    assert when.utcoffset() == dt.timedelta(hours=2)
    for name, minutes in (("Z", 0), ("UTC", 0), ("+02:00", 120), ("UTC-3", -180), ("GMT+0530", 330)):
        assert timezone(name).utcoffset(None) == dt.timedelta(minutes=minutes)
    for name in ("", "+25:00", "Berlin/Europe", "../etc/passwd"):
        with pytest.raises(ValueError, match="must be a region"):
            timezone(name)


def test_the_placeholder_is_obeyed_and_checked() -> None:
    name = "unavailable.value.placeholder"
    read = config({"topic.prefix": "p", name: "hex:00ff"})
    assert not [notice for notice in read.notices if "placeholder" in notice]
    assert EventSettings.from_options(read).placeholder == b"\0\xff"
    assert "pairs of hexadecimal digits" in fault({"topic.prefix": "p", name: "hex:0"})
