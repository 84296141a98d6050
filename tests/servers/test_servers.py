"""The servers that the tests stand on are what the tests take them for."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.fix_kafka import Kafka
from tests.fix_postgres import Database, Postgres, create, drop


def settings(server: Postgres) -> dict[str, str]:
    names = ["wal_level", "timezone", "server_encoding", "max_replication_slots", "max_wal_senders"]
    with server.connect() as connection:
        return {name: connection.execute(f"show {name}".encode()).fetchone()[0] for name in names}  # type: ignore[index]


EXPECTED = {
    "wal_level": "logical",
    "timezone": "UTC",
    "server_encoding": "UTF8",
    "max_replication_slots": "50",
    "max_wal_senders": "50",
}


def test_the_embedded_postgres_decodes_its_log(postgres: Postgres, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--postgres"):
        pytest.skip("a server of the user's own is in use")
    assert settings(postgres) == EXPECTED


def test_the_systems_postgres_decodes_its_log(system_postgres: Postgres) -> None:
    assert settings(system_postgres) == EXPECTED


def test_a_database_goes_with_its_slots(postgres: Postgres) -> None:
    created = create(postgres, "short_lived")
    created.execute("select pg_create_logical_replication_slot('short_lived_slot', 'pgoutput')")
    drop(postgres, "short_lived")
    with postgres.connect() as connection:
        assert connection.execute("select 1 from pg_database where datname = 'short_lived'").fetchall() == []
        slots = "select 1 from pg_replication_slots where slot_name = 'short_lived_slot'"
        assert connection.execute(slots).fetchall() == []


def test_each_test_has_a_database_of_its_own(database: Database) -> None:
    with database.connect() as connection:
        query = "select current_database(), count(*) from pg_stat_user_tables"
        assert connection.execute(query).fetchall() == [(database.name, 0)]


@pytest.mark.full
def test_the_broker_keeps_what_spark_writes(kafka: Kafka, spark: SparkSession) -> None:
    topic = {"kafka.bootstrap.servers": kafka.servers}
    rows = spark.sql("select cast('k' as binary) key, cast('v' as binary) value")
    rows.write.format("kafka").options(**topic, topic="kept").save()
    read = spark.read.format("kafka").options(**topic, subscribe="kept").load()
    assert [(bytes(row.key), bytes(row.value)) for row in read.collect()] == [(b"k", b"v")]
