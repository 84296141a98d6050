"""Signals come from a Kafka topic of a real broker."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.config import Config
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError
from tailrace.snapshot.channels import first_positions
from tailrace.snapshot.kafka import KafkaChannel, send
from tailrace.snapshot.signals import Polled, Signal
from tests.fix_kafka import Kafka
from tests.waiting import until

ONE = Signal("1", "log", '{"message": "one"}')
TWO = Signal("2", "pause-snapshot", None)


def config(servers: str, **options: str) -> Config:
    named = {
        "database.hostname": "h",
        "database.user": "u",
        "database.dbname": "d",
        "topic.prefix": f"p{secrets.token_hex(4)}",
        "signal.enabled.channels": "kafka",
        "signal.kafka.bootstrap.servers": servers,
    }
    return parse("postgres", named | {name.replace("__", "."): text for name, text in options.items()})


def create(kafka_servers: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def polled(poll: Callable[[], Polled], count: int) -> Polled:
    """Poll until there are `count` entries, and return them."""
    found: Polled = []

    def is_there() -> bool:
        found[:] = poll()
        return len(found) >= count

    until(is_there, f"{count} entries")
    return found


def test_signals_come_in_order_from_the_position_that_is_given(kafka: Kafka) -> None:
    named = config(kafka.servers)
    create(kafka.servers, named["signal.kafka.topic"])
    channel = KafkaChannel(named)
    assert polled(lambda: channel.poll(None), 1) == [(None, 0)]
    send(named, ONE)
    send(named, TWO)
    assert polled(lambda: channel.poll(0), 2) == [(ONE, 1), (TWO, 2)]
    assert channel.poll(2) == []
    # The first answer was lost: the same request gives the same answer, also to another process.
    assert polled(lambda: channel.poll(0), 2) == [(ONE, 1), (TWO, 2)]
    other = KafkaChannel(named)
    assert polled(lambda: other.poll(1), 1) == [(TWO, 2)]
    channel.close()
    other.close()


def test_a_first_look_begins_at_the_end_or_where_the_option_says(kafka: Kafka) -> None:
    named = config(kafka.servers)
    create(kafka.servers, named["signal.kafka.topic"])
    send(named, ONE)
    channel = KafkaChannel(named)
    assert polled(lambda: channel.poll(None), 1) == [(None, 1)]
    channel.close()
    channel = KafkaChannel({**named, "signal.consumer.auto.offset.reset": "earliest"})
    assert polled(lambda: channel.poll(None), 1) == [(None, 0)]
    assert polled(lambda: channel.poll(0), 1) == [(ONE, 1)]
    channel.close()


def test_a_signal_that_is_sent_before_the_first_look_is_not_lost(kafka: Kafka) -> None:
    """A snapshot may run for hours before signals are read."""
    named = config(kafka.servers)
    create(kafka.servers, named["signal.kafka.topic"])
    send(named, ONE)
    channel = KafkaChannel(named)
    send(named, TWO)
    assert polled(lambda: channel.poll(None), 1) == [(None, 1)]
    assert polled(lambda: channel.poll(1), 1) == [(TWO, 2)]
    channel.close()


def test_a_first_look_of_another_process_begins_when_the_query_began(kafka: Kafka) -> None:
    named = config(kafka.servers)
    create(kafka.servers, named["signal.kafka.topic"])
    send(named, ONE)
    time.sleep(0.01)
    ((name, began),) = first_positions(named, time.time_ns() // 1_000_000)
    assert name == "kafka"
    time.sleep(0.01)
    send(named, TWO)
    channel = KafkaChannel(named)
    assert polled(lambda: channel.poll(began), 1) == [(None, 1)]
    assert polled(lambda: channel.poll(1), 1) == [(TWO, 2)]
    channel.close()


def test_nothing_is_committed_to_the_brokers(kafka: Kafka) -> None:
    named = config(kafka.servers)
    create(kafka.servers, named["signal.kafka.topic"])
    channel = KafkaChannel(named)
    send(named, ONE)
    assert polled(lambda: channel.poll(0), 1) == [(ONE, 1)]
    channel.close()
    partition = TopicPartition(named["signal.kafka.topic"], 0)
    asking = Consumer({"bootstrap.servers": kafka.servers, "group.id": named["signal.kafka.groupId"]})
    assert [found.offset for found in asking.committed([partition], 10)] == [OFFSET_INVALID]
    asking.close()


def test_records_for_others_and_broken_ones_are_passed_over(kafka: Kafka) -> None:
    named = config(kafka.servers)
    topic, key = named["signal.kafka.topic"], named["topic.prefix"]
    create(kafka.servers, topic)
    producer = Producer({"bootstrap.servers": kafka.servers})
    for of, value in (("other", '{"type":"log"}'), (None, '{"type":"log"}'), (key, "{"), (key, None)):
        producer.produce(topic, value, of, partition=0)
    producer.produce(topic, '{"type":"execute-snapshot","data":{"data-collections":[]}}', key, partition=0)
    producer.flush(10)
    channel = KafkaChannel(named)
    found = polled(lambda: channel.poll(0), 5)
    assert found[:4] == [(None, 1), (None, 2), (None, 3), (None, 4)]
    assert found[4] == (Signal(f"{topic}-4", "execute-snapshot", '{"data-collections": []}'), 5)
    channel.close()


def test_a_topic_that_is_made_later_loses_no_signal(kafka: Kafka) -> None:
    named = config(kafka.servers)
    channel = KafkaChannel(named)
    assert polled(lambda: channel.poll(None), 1) == [(None, 0)]
    assert channel.poll(0) == []
    create(kafka.servers, named["signal.kafka.topic"])
    send(named, ONE)
    assert polled(lambda: channel.poll(0), 1) == [(ONE, 1)]
    channel.close()


def test_a_position_behind_the_end_means_a_new_topic(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    named = config(kafka.servers)
    create(kafka.servers, named["signal.kafka.topic"])
    send(named, ONE)
    channel = KafkaChannel(named)
    assert polled(lambda: channel.poll(40), 1) == [(ONE, 1)]
    assert "was created again or has lost records" in caplog.text
    channel.close()


def test_several_partitions_are_an_error(kafka: Kafka) -> None:
    named = config(kafka.servers)
    create(kafka.servers, named["signal.kafka.topic"], 2)
    with pytest.raises(ConfigError, match="has 2 partitions"):
        KafkaChannel(named).poll(None)
    with pytest.raises(ConfigError, match="has 2 partitions"):
        send(named, ONE)
