"""Harmless entries in a configuration written for Debezium are reported, and not refused."""

from __future__ import annotations

import re

import pytest

from tailrace.config import Config
from tailrace.config.transforms import transforms
from tailrace.connectors.mongodb.documents.options import UnwrapSettings
from tailrace.connectors.registry import OWN, parse
from tailrace.errors import ConfigError

NEEDED = {
    "postgres": {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"},
    "sqlserver": {"database.hostname": "h", "database.user": "u", "database.names": "d", "topic.prefix": "p"},
    "db2": {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"},
    "mongodb": {"mongodb.connection.string": "mongodb://h:27017", "topic.prefix": "p"},
    "mysql": {"database.hostname": "h", "database.user": "u", "topic.prefix": "p"},
    "mariadb": {"database.hostname": "h", "database.user": "u", "topic.prefix": "p"},
}


def config(connector: str = "postgres", **options: str) -> Config:
    return parse(connector, NEEDED[connector] | {name.replace("__", "."): text for name, text in options.items()})


def told(read: Config, name: str) -> str:
    """Return the only notice about an option."""
    (notice,) = [notice for notice in read.notices if notice.startswith(f"{name} ")]
    return notice


WORKERS = {
    "tasks.max": "4",
    "tasks.max.enforce": "false",
    "errors.log.enable": "true",
    "errors.log.include.messages": "true",
    "errors.retry.timeout": "-1",
    "errors.retry.delay.max.ms": "60000",
    "errors.deadletterqueue.topic.name": "dead",
    "transaction.boundary": "interval",
    "transaction.boundary.interval.ms": "100",
    "config.action.reload": "none",
    "exactly.once.support": "required",
    "offsets.storage.topic": "offsets",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.storage.file.filename": "offsets.dat",
    "offset.flush.interval.ms": "0",
    "connector.plugin.version": "3.1",
    "key.converter.plugin.version": "1",
    "key.converter.schemas.cache.size": "10",
    "header.converter.nonsense": "10",
    "value.converter.schema.registry.url": "http://r",
    "producer.override.compression.type": "lz4",
    "consumer.override.sasl.jaas.config": "x",
    "admin.override.security.protocol": "SSL",
    "bootstrap.servers": "k:9092",
    "group.id": "g",
    "plugin.path": "/p",
    "rest.port": "8083",
    "internal.key.converter.schemas.enable": "false",
    "consumer.max.poll.records": "1",
    "max.poll.records": "500",
    "confluent.topic.bootstrap.servers": "k",
    "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
    "schema.history.internal.kafka.topic": "t",
    "schema.history.internal.producer.security.protocol": "SSL",
    "database.history.kafka.bootstrap.servers": "k",
    "database.history.store.only.captured.tables.ddl": "true",
    "log.mining.strategy": "online_catalog",
    "database.server.id": "184054",
    "database.ssl.mode": "required",
    "include.query": "true",
    "inconsistent.schema.handling.mode": "warn",
    "rows.fetch.size": "1",
    "executor.shutdown.timeout.ms": "1",
    "queue.provider.type": "chronicle",
    "topic.cache.size": "1",
    "unknown.properties.ignored": "true",
    "snapshot.max.threads.multiplier": "2",
    "signal.emit.failure.backoff.ms": "1",
    "database.connection.timeout.ms": "5000",
    "full.document.before.change": "whenAvailable",
    "_comment": "the orders",
    "// note": "the orders",
}
"""Options of other programs, generations and stores, with values that are not defaults."""
OBEYED = {
    "sqlserver": {"schema.history.internal.store.only.captured.tables.ddl"},
    "mysql": {
        "database.history.store.only.captured.tables.ddl", "database.server.id", "database.ssl.mode", "include.query",
        "inconsistent.schema.handling.mode",
    },
}  # fmt: skip
"""Those of them that a connector obeys."""
OBEYED["mariadb"] = OBEYED["mysql"]


@pytest.mark.parametrize("connector", OWN)
def test_options_of_other_programs_and_stores_are_told(connector: str) -> None:
    plain = parse(connector, NEEDED[connector])
    for name, text in WORKERS.items():
        if name in OBEYED.get(connector, ()):
            continue
        read = parse(connector, NEEDED[connector] | {name: text})
        assert read.event_format == plain.event_format
        assert text not in ("x", "k") or text not in told(read, name).split()
        assert "has no effect: " in told(read, name)
        # None of it goes to the tasks.
        assert name not in read.texts


@pytest.mark.parametrize(
    ("connector", "name", "owner"),
    [
        ("mongodb", "table.include.list", "PostgreSQL"),
        ("mongodb", "heartbeat.action.query", "PostgreSQL"),
        ("db2", "slot.name", "PostgreSQL"),
        ("sqlserver", "plugin.name", "PostgreSQL"),
        ("postgres", "mongodb.hosts", "MongoDB"),
        ("postgres", "capture.mode", "MongoDB"),
        ("postgres", "database.names", "SQL Server"),
        ("postgres", "database.instance", "SQL Server"),
        ("postgres", "cdc.control.schema", "Db2"),
    ],
)
def test_an_option_of_another_connector_is_told_with_its_name(connector: str, name: str, owner: str) -> None:
    read = parse(connector, NEEDED[connector] | {name: "x"})
    assert told(read, name).startswith(f"{name} has no effect: it is an option of the connector for {owner}")
    assert name not in read.texts


def test_what_a_driver_would_obey_is_no_other_connectors() -> None:
    # An option of PostgreSQL's Java driver, to which Debezium passes it.
    for name in ("driver.ssl", "driver.options", "driver.targetServerType", "driver.bogus"):
        with pytest.raises(ConfigError, match=f"{re.escape(name)} is not an option"):
            parse("postgres", NEEDED["postgres"] | {name: "true"})


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
def test_properties_of_the_java_driver_change_nothing_unless_they_demand_encryption(connector: str) -> None:
    for name in ("database.useSSL", "database.allowPublicKeyRetrieval", "database.serverTimezone", "driver.useSSL"):
        assert told(parse(connector, NEEDED[connector] | {name: "true"}), name) == (
            f"{name} has no effect: the driver is PyMySQL."
        )
    for name in ("requireSSL", "verifyServerCertificate", "trustCertificateKeyStoreUrl", "sessionVariables"):
        for prefix in ("database", "driver"):
            with pytest.raises(ConfigError, match=rf"{prefix}\.{name} is not an option"):
                parse(connector, NEEDED[connector] | {f"{prefix}.{name}": "true"})


@pytest.mark.parametrize("connector", OWN)
@pytest.mark.parametrize("name", ["slot.nmae", "tabel.include.list", "bogus", "transform", "topic.perfix"])
def test_a_name_that_nobody_knows_is_an_error(connector: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not an option"):
        parse(connector, NEEDED[connector] | {name: "1"})


def test_unknown_names_may_pass_for_a_migration() -> None:
    read = config(slot__nmae="hunter2", tailrace__unknown__options="warn")
    assert told(read, "slot.nmae") == (
        "slot.nmae has no effect: it is not an option; the nearest is slot.name, and tailrace.unknown.options = warn "
        "lets it pass."
    )
    assert read["slot.name"] == "debezium"
    assert "hunter2" not in repr(read)
    assert "slot.nmae" not in read.texts
    with pytest.raises(ConfigError, match=r"slot\.nmae is not an option"):
        config(slot__nmae="x", tailrace__unknown__options="error")
    with pytest.raises(ConfigError, match="must be one of error, warn"):
        config(tailrace__unknown__options="silent")


def test_a_value_stays_an_error_where_unknown_names_pass() -> None:
    for name, text in (("decimal.handling.mode", "exact"), ("converters", "isbn"), ("flush.lsn.source", "false")):
        with pytest.raises(ConfigError, match=name):
            config(**{name.replace(".", "__"): text}, tailrace__unknown__options="warn")


@pytest.mark.parametrize("plugin", ["decoderbufs", "wal2json", "wal2json_rds_streaming", "DecoderBufs"])
def test_the_log_is_read_by_pgoutput_whatever_the_plugin(plugin: str) -> None:
    read = config(plugin__name=plugin)
    assert read["plugin.name"] == "pgoutput"
    assert told(read, "plugin.name").startswith("plugin.name is taken as pgoutput: it comes with every server")
    assert read.texts["plugin.name"] == "pgoutput"
    with pytest.raises(ConfigError, match=r"plugin\.name must be one of pgoutput"):
        config(plugin__name="decoderbuf")


def test_stricter_ways_take_the_place_of_others() -> None:
    assert config(snapshot__isolation__mode="read_committed")["snapshot.isolation.mode"] == "repeatable_read"
    assert config(snapshot__mode="schema_only")["snapshot.mode"] == "no_data"
    for name, text in (
        ("offset.mismatch.strategy", "trust_offset"),
        ("slot.drop.on.stop", "true"),
        ("snapshot.locking.mode", "shared"),
        ("lsn.flush.timeout.action", "ignore"),
        ("table.ignore.builtin", "false"),
        ("database.include.list", "d"),
        ("database.whitelist", "d"),
    ):
        assert "has no effect: " in told(config(**{name.replace(".", "__"): text}), name)
    for name, text in (("lsn.flush.mode", "manual"), ("snapshot.mode", "custom"), ("offset.mismatch.strategy", "x")):
        with pytest.raises(ConfigError, match=name):
            config(**{name.replace(".", "__"): text})


def test_todays_name_goes_before_an_older_one() -> None:
    given = {"table.whitelist": "a.b", "table.include.list": "c.d"}
    read = parse("postgres", NEEDED["postgres"] | given)
    assert read["table.include.list"] == ["c.d"]
    assert "table.whitelist has no effect: table.include.list is given, and takes precedence." in read.notices
    turned = parse("postgres", NEEDED["postgres"] | dict(reversed(given.items())))
    assert turned["table.include.list"] == ["c.d"]
    older = {"database.server.name": "s"} | {
        name: text for name, text in NEEDED["postgres"].items() if name != "topic.prefix"
    }
    with pytest.raises(ConfigError, match="are one option and contradict each other"):
        parse("postgres", older | given)
    both = parse("sqlserver", NEEDED["sqlserver"] | {"database.dbname": "other"})
    assert both["database.names"] == ["d"]


def test_an_empty_text_says_nothing() -> None:
    older = {"topic.prefix": "", "database.server.name": "d", "slot.name": " ", "snapshot.mode": ""}
    read = parse("postgres", NEEDED["postgres"] | older)
    assert (read.logical_name, read.event_format, read["slot.name"]) == ("d", "1.7", "debezium")
    assert read["snapshot.mode"] == "initial"


def test_mongodbs_older_servers_stand_behind_a_connection_string() -> None:
    read = config("mongodb", mongodb__hosts="rs0/h:1", database__history__kafka__topic="t")
    assert told(read, "mongodb.hosts") == "mongodb.hosts has no effect: mongodb.connection.string names the servers."
    assert read["mongodb.hosts"] is None
    assert "mongodb.hosts" not in read.texts


def test_what_jsons_converter_does_not_know_changes_nothing_unless_it_would_change_bytes() -> None:
    given = {"key.converter.schema.registry.url": "http://u:hunter2@r", "value.converter.decimal.format": "BASE64"}
    read = parse("postgres", NEEDED["postgres"] | given)
    assert told(read, "key.converter.schema.registry.url").endswith("JSON's converter goes without it.")
    assert "hunter2" not in " ".join(read.notices)
    for name, text in (("value.converter.decimal.format", "HEX"), ("value.converter.schema.content", "{}")):
        with pytest.raises(ConfigError, match=f"{name} (= {text} )?is not supported"):
            parse("postgres", NEEDED["postgres"] | {name: text})


def test_options_of_transforms_that_are_not_named_are_passed_over() -> None:
    read = config(transforms__route__regex="a", predicates__p__pattern="b")
    assert told(read, "transforms.route.regex").endswith("transforms does not name route.")
    assert "transforms.route.regex" not in read.texts
    assert "transforms.route.regex" not in read


def test_nonvalidating_factories_are_what_libpq_does() -> None:
    read = config(database__sslfactory="org.postgresql.ssl.NonValidatingFactory", driver__sslmode="require")
    assert read["database.sslmode"] == "require"
    with pytest.raises(ConfigError, match=r"database\.sslfactory"):
        config(database__sslfactory="org.postgresql.ssl.DefaultJavaSSLFactory")


UNWRAP = "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState"


def unwrapped(kind: str = UNWRAP, **options: str) -> tuple[UnwrapSettings, list[str]]:
    """Return the settings of a transform of documents, and the notices about it."""
    given = {f"transforms.u.{name.replace('__', '.')}": text for name, text in options.items()}
    read = parse("mongodb", NEEDED["mongodb"] | {"transforms": "u", "transforms.u.type": kind} | given)
    (made,) = transforms(read, read.traits.transforms).transforms
    start = "transforms.u: "
    return made.settings, [notice.removeprefix(start) for notice in read.notices if notice.startswith(start)]


@pytest.mark.parametrize(
    ("options", "deletes", "keeps"),
    [
        ({"drop__tombstones": "false"}, "drop", True),
        ({"delete__handling__mode": "rewrite"}, "rewrite", False),
        ({"delete__handling__mode": "REWRITE", "drop__tombstones": "false"}, "rewrite", True),
        ({"delete__handling__mode": "none"}, "tombstone", False),
        ({"delete__handling__mode": "none", "delete__tombstone__handling__mode": "drop"}, "drop", False),
    ],
)
def test_documents_are_unwrapped_as_the_generation_before_said(
    options: dict[str, str], deletes: str, keeps: bool
) -> None:
    made, notices = unwrapped(**options)
    assert (made.deletes, made.keep_tombstones) == (deletes, keeps)
    older = {name for name in options if name != "delete__tombstone__handling__mode"}
    assert {notice.split(" ")[0] for notice in notices} == {name.replace("__", ".") for name in older}
    with pytest.raises(ConfigError, match="must be one of"):
        unwrapped(delete__handling__mode="none", drop__tombstones="often")


def test_fields_are_added_in_the_first_generation_too() -> None:
    older = {name: text for name, text in NEEDED["mongodb"].items() if name != "topic.prefix"} | {"mongodb.name": "m"}
    given = {"add.source.fields": "h", "add.fields": "op,source.ts_ms:at", "add.headers": "db"}
    options = {f"transforms.u.{name}": text for name, text in given.items()}
    read = parse("mongodb", older | {"transforms": "u", "transforms.u.type": UNWRAP} | options)
    (transform,) = transforms(read, read.traits.transforms).transforms
    made = transform.settings
    assert made.format == "1.1"
    assert [added.name for added in made.fields] == ["__h", "__op", "__at"]
    assert [added.name for added in made.headers] == ["__db"]


def test_a_transform_of_rows_is_taken_for_that_of_documents() -> None:
    made, notices = unwrapped("io.debezium.transforms.ExtractNewRecordState", add__headers="op", route__by__field="x")
    assert [added.name for added in made.headers] == ["__op"]
    assert notices[0].startswith(f"type is taken as {UNWRAP.rpartition('.')[2]}: ")
    assert notices[1].startswith("route.by.field has no effect: ")
