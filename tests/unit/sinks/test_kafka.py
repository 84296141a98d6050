"""The sink `kafka` without Spark reports a broker that does not answer, and the topic of a record that is too large."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace import sinks
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.sinks import brokers
from tailrace.sinks.kafka import KafkaSink
from tests.servers.listening import BROKER, listening


def made(servers: str, **options: str) -> KafkaSink:
    named = {f"producer.{name.replace('_', '.')}": text for name, text in options.items()}
    sink = sinks.open("kafka", {"producer.bootstrap.servers": servers, **named})
    assert isinstance(sink, KafkaSink)
    return sink


@pytest.mark.parametrize(
    ("answer", "protocol", "words"),
    [
        (BROKER, "", ""),
        (BROKER, "SASL_PLAINTEXT", ""),
        (b"", "", "it closes the connection, as a listener of another security.protocol does"),
        (b"HTTP/1.1 400 Bad Request", "", "the server there is not a Kafka broker"),
        (BROKER, "SSL", "does not speak TLS"),
    ],
)
def test_what_answers_at_a_brokers_address(answer: bytes, protocol: str, words: str) -> None:
    with listening(answer) as server:
        found = brokers.fault([server], protocol)
    assert words in found
    assert bool(words) is bool(found)


def test_a_broker_that_is_not_there_is_told_by_check_and_at_the_start() -> None:
    sink = made("127.0.0.1:1,PLAINTEXT://[::1]:1")
    (finding,) = sink.asked()
    assert finding.level == "error"
    assert "127.0.0.1:1: Connection refused; [::1]:1: " in finding.text
    frame = SimpleNamespace(
        sparkSession=SimpleNamespace(
            sparkContext=SimpleNamespace(master="local[2]", getConf=lambda: SimpleNamespace(get=lambda *_: "false"))
        )
    )
    with pytest.raises(ConnectionFailed, match=r"No Kafka broker answers: 127\.0\.0\.1:1: Connection refused"):
        sink.start(cast(Any, frame), "/nowhere", {"availableNow": True})
    with listening(BROKER) as server:
        assert [one.level for one in made(f"127.0.0.1:1,{server}").asked()] == ["ok"]


def test_a_record_that_is_too_large_is_told_by_its_topic() -> None:
    sink = made("h:1", max_request_size="2000000")
    text = (
        "[USER_RAISED_EXCEPTION] tailrace: more than max.request.size: 2000123 bytes, of the topic p.public.t\n\tat x"
    )
    found = sink.failure(text)
    assert found is not None
    assert found.message == (
        "A record of the topic p.public.t has 2,000,123 bytes, more than the producer sends: max.request.size is "
        "2,000,000."
    )
    refused = sink.failure(
        "org.apache.kafka.common.errors.RecordTooLargeException: The request included a message larger than the max "
        "message size the server will accept.\n"
    )
    assert refused is not None
    assert "the topic's max.message.bytes" in str(refused)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, []),
        ({"acks": "-1", "enable_idempotence": "true", "retries": "3"}, []),
        ({"acks": "1"}, ["acks = 1 a broker that fails may lose", "not idempotent"]),
        ({"acks": "0", "retries": "0"}, ["acks = 0 a broker that fails may lose"]),
        ({"enable_idempotence": "false"}, ["not idempotent"]),
        ({"enable_idempotence": "false", "max_in_flight_requests_per_connection": "1"}, []),
        ({"max_in_flight_requests_per_connection": "6"}, ["not idempotent"]),
    ],
)
def test_options_by_which_records_may_be_lost_or_change_their_order(options: dict[str, str], words: list[str]) -> None:
    found = made("localhost:1", **options).advice()
    assert [one.level for one in found] == ["warning"] * len(words)
    for one, word in zip(found, words, strict=True):
        assert word in one.text
        assert one.remedy


def test_transactions_are_refused_by_name() -> None:
    with pytest.raises(SinkError, match=r"producer\.transactional\.id is not supported"):
        made("localhost:1", transactional_id="t")


def test_a_compacted_topic_without_keys_is_told() -> None:
    found = made("h:1").failure(
        "org.apache.kafka.common.InvalidRecordException: Compacted topic cannot accept message without key in topic "
        "partition p.public.t-0.\n"
    )
    assert isinstance(found, SinkError)
    assert "p.public.t-0" in found.message
    assert "message.key.columns" in found.remedy
