"""Kafka under TLS and with logins, for the sink's producer and the signal channel's client, over one broker."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tailrace import sinks
from tailrace.columns import ROW_SCHEMA
from tailrace.config import Config
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConnectionFailed, SinkError, TailraceError
from tailrace.monitoring.failures import cause
from tailrace.sinks.kafka import KafkaSink
from tailrace.snapshot.kafka import KafkaChannel, send
from tailrace.snapshot.signals import Polled, Signal
from tests.extent import by_day, turn
from tests.integration.tls.conftest import Files
from tests.servers.jars import Unavailable
from tests.servers.kafka import SCRAM, Broker, Security, fetch

USER, WRONG = "app", "hunter2"
MECHANISMS = ("PLAIN", *SCRAM)
SIGNAL = Signal("1", "log", '{"message": "one"}')
TOPIC = "p.s.t"
ATTEMPTS = 15

Options = dict[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """A client's options without their prefix, the expected error, if any, and the option in its remedy."""

    options: Options
    message: str = ""
    remedy: str = ""


@pytest.fixture(scope="module")
def broker(files: Files) -> Iterator[Broker]:
    try:
        jars = fetch()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with Broker(jars, security=Security(files.server, USER, secrets.token_hex(8))) as running:
        admin = AdminClient({"bootstrap.servers": running.servers})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
        yield running


def password(broker: Broker) -> str:
    assert broker.security is not None
    return broker.security.password


# --- the signal channel's client, librdkafka


def client_cases(broker: Broker, files: Files) -> dict[str, Case]:
    tls, login = f"localhost:{broker.tls_port}", f"localhost:{broker.sasl_port}"
    known = {"security.protocol": "SSL", "ssl.ca.location": str(files.authority)}
    cases = {
        "good": Case({"bootstrap": tls, **known}),
        "name": Case({"bootstrap": f"127.0.0.1:{broker.tls_port}", **known}, "certificate verify failed", "servers"),
        "authority": Case(
            {"bootstrap": tls, **known, "ssl.ca.location": str(files.stranger)},
            "certificate verify failed",
            "signal.consumer.ssl.ca.location",
        ),
        "broker in the clear": Case({"bootstrap": broker.servers, **known}, "SSL", "signal.consumer.security.protocol"),
        "client in the clear": Case({"bootstrap": tls}, "transport failure", "signal.consumer.security.protocol"),
    }
    for mechanism in MECHANISMS:
        named = known | {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.username": USER}
        for word, message in ((password(broker), ""), (WRONG, "Authentication failed")):
            options = {"bootstrap": login, **named, "sasl.password": word}
            remedy = "signal.consumer.sasl." if message else ""
            cases[f"{mechanism}, {message or 'good'}"] = Case(options, message, remedy)
    return cases


def config(options: Options) -> Config:
    named = {
        "database.hostname": "h",
        "database.user": "u",
        "database.dbname": "d",
        "topic.prefix": f"p{secrets.token_hex(4)}",
        "signal.enabled.channels": "kafka",
        "signal.kafka.bootstrap.servers": options["bootstrap"],
    }
    consumer = {f"signal.consumer.{name}": text for name, text in options.items() if name != "bootstrap"}
    return parse("postgres", named | consumer)


def met(case: Case) -> ConnectionFailed | None:
    """Return the error of sending a signal. The client gives a broker two seconds, which may be too short under load,
    so a late answer is tried again."""
    error: ConnectionFailed | None = None
    for _ in range(ATTEMPTS):
        try:
            send(config(case.options), SIGNAL)
        except ConnectionFailed as caught:
            error = caught
            if case.message and case.message in error.message:
                return error
        else:
            return None
    return error


def test_signals_are_sent_to_brokers_that_are_known_and_know_the_user(broker: Broker, files: Files) -> None:
    cases = client_cases(broker, files)
    # Each failing client waits for two seconds.
    with ThreadPoolExecutor(len(cases)) as threads:
        found = dict(zip(cases, threads.map(met, cases.values()), strict=True))
    judge(cases, found)


def test_the_channel_reads_under_tls(broker: Broker, files: Files) -> None:
    given = config(client_cases(broker, files)["SCRAM-SHA-512, good"].options)
    polled: Polled = []
    for _ in range(ATTEMPTS):
        channel = KafkaChannel(given)
        # The topic comes with its first record.
        polled = channel.poll(0)
        channel.close()
        if polled:
            break
        send(given, SIGNAL)
    assert polled[0] == (SIGNAL, 1)


@pytest.mark.parametrize("name", ["authority", "PLAIN, Authentication failed"])
def test_the_channel_tells_why_it_cannot_read(
    name: str, broker: Broker, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    case = client_cases(broker, files)[name]
    for _ in range(ATTEMPTS):
        channel = KafkaChannel(config(case.options))
        assert channel.poll(None) == []
        channel.close()
        if case.message in caplog.text:
            break
    assert case.message in caplog.messages[-1]
    assert case.remedy in caplog.messages[-1]
    assert WRONG not in caplog.text


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.key.location"])
def test_a_file_that_the_client_cannot_read_is_named_by_its_option(name: str, tmp_path: Path) -> None:
    options = {"bootstrap": "127.0.0.1:1", "security.protocol": "SSL", name: str(tmp_path / "absent.pem")}
    with pytest.raises(ConfigError, match=rf"signal\.consumer\.{name}"):
        send(config(options), SIGNAL)


# --- the sink's producer, in the JVM


def producer_cases(broker: Broker, files: Files) -> dict[str, Case]:
    tls, login = f"localhost:{broker.tls_port}", f"localhost:{broker.sasl_port}"
    known = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(files.authority)}
    # A client with another protocol gets no answer, so it waits for its whole timeout.
    silence = {"max.block.ms": "5000"}
    cases = {
        "good": Case({"bootstrap.servers": tls, **known}),
        "name": Case(
            {"bootstrap.servers": f"127.0.0.1:{broker.tls_port}", **known},
            "No subject alternative names",
            "bootstrap.servers",
        ),
        "authority": Case(
            {"bootstrap.servers": tls, **known, "ssl.truststore.location": str(files.stranger)},
            "PKIX path",
            "producer.ssl.truststore.location",
        ),
        "no file": Case(
            {"bootstrap.servers": tls, **known, "ssl.truststore.location": f"{files.stranger}.absent"},
            "Failed to load PEM",
            "producer.ssl.truststore.",
        ),
        "broker in the clear": Case(
            {"bootstrap.servers": broker.servers, **known, **silence}, "not present", "producer.security.protocol"
        ),
        "client in the clear": Case({"bootstrap.servers": tls, **silence}, "not present", "producer.security.protocol"),
        "no login": Case(
            {"bootstrap.servers": login, **known, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
             "sasl.jaas.config": f"nobody.Module password={WRONG}"}, "in JAAS config", "producer.sasl.jaas.config",
        ),
    }  # fmt: skip
    for mechanism in MECHANISMS:
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        for word, message in ((password(broker), ""), (WRONG, "Authentication failed")):
            jaas = f'org.apache.kafka.common.security.{kind}LoginModule required username="{USER}" password="{word}";'
            named = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
            remedy = "producer.sasl.mechanism and sasl.jaas.config" if message else ""
            options = {"bootstrap.servers": login, **known, **named}
            cases[f"{mechanism}, {message or 'good'}"] = Case(options, message, remedy)
    return cases


def written(frame: DataFrame, options: Options) -> TailraceError | None:
    """Return the error of writing `frame` like the sink."""
    sink = sinks.open("kafka", {f"producer.{name}": text for name, text in options.items()})
    assert isinstance(sink, KafkaSink)
    try:
        frame.select("topic", "key", "value", "headers").write.format("kafka").options(**sink.options).save()
    except Exception as failed:
        if WRONG in str(failed):
            pytest.fail("the password is in the exception's text")
        return cause(failed, sink.failure) or pytest.fail(str(failed))
    return None


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a directory with one record in Parquet."""
    row: dict[str, Any] = dict.fromkeys(ROW_SCHEMA.names) | {"topic": TOPIC, "value": b"{}", "op": "c"}
    row |= {"database": "d", "schema": "s", "table": "t", "position": "0", "ordinal": 0, "transaction": "1"}
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(pa.Table.from_pylist([row], schema=ROW_SCHEMA), folder / "0.parquet")
    return str(folder)


@turn(1, 4)
def test_the_producer_writes_to_brokers_that_are_known_and_know_the_user(
    spark: SparkSession, broker: Broker, files: Files, rows: str
) -> None:
    cases = producer_cases(broker, files)
    frame = spark.read.parquet(rows)
    with ThreadPoolExecutor(2) as threads:
        found = dict(zip(cases, threads.map(lambda case: written(frame, case.options), cases.values()), strict=True))
    judge(cases, found)


LOGINS = ["SCRAM-SHA-256, good", "SCRAM-SHA-256, Authentication failed"]


@pytest.mark.parametrize(
    ("name", "creates"),
    [
        *(pytest.param(name, False, marks=pytest.mark.full) for name in LOGINS),
        *((name, True) for name in by_day(LOGINS, 4)),
        *(pytest.param(name, True, marks=pytest.mark.full) for name in ("good", "no file", "authority")),
    ],
)
def test_a_stream_is_written_after_a_login(
    name: str, creates: bool, spark: SparkSession, broker: Broker, files: Files, rows: str, tmp_path: Path
) -> None:
    """If topics are created first, the client that creates them has the same result."""
    case = producer_cases(broker, files)[name]
    creation = {f"topic.creation.default.{what}": "1" for what in ("partitions", "replication.factor") if creates}
    options = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    producer = {f"producer.{option}": text for option, text in case.options.items()}
    sink = sinks.open("kafka", producer, parse("postgres", options | creation))
    frame = spark.readStream.schema(spark.read.parquet(rows).schema).parquet(rows)
    query = sink.start(frame, tmp_path / "checkpoint", {"availableNow": True})
    if not case.message:
        query.awaitTermination()
        return
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    assert WRONG not in str(failed.value)
    error = cause(failed.value, sink.failure)
    assert isinstance(error, SinkError)
    judge({name: case}, {name: error})


def judge(cases: dict[str, Case], found: dict[str, Any]) -> None:
    """Assert that each case ended as expected."""
    for name, case in cases.items():
        error = found[name]
        if not case.message:
            assert error is None, name
            continue
        assert error is not None, name
        assert case.message in error.message, (name, str(error))
        assert case.remedy in error.remedy, (name, str(error))
        assert WRONG not in str(error), name
