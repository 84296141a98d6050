"""KafkaChannel: signals as records of a Kafka topic. Planner; the only module that imports a Kafka client."""

from __future__ import annotations

import importlib.util
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.errors import ConfigError, ConnectionFailed
from tailrace.process.installation import pip_install
from tailrace.snapshot.signals import MalformedSignal, Polled, Signal, from_json, to_json

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

log = logging.getLogger("tailrace")
_client_log = logging.getLogger("tailrace.kafka")

_PREFIX = "signal.consumer."
_RECORDS = 500
_METADATA_S, _SEND_S = 2.0, 15.0
# Asking brokers that do not answer blocks the planner, so it is not done at every poll.
_RETRY_S = 30.0

# Options that the channel decides, and options for Java only.
_OURS = ("bootstrap.servers", "group.id", "enable.auto.commit", "enable.auto.offset.store")
_IGNORED = ("key.deserializer", "value.deserializer", "auto.commit.interval.ms")
_JKS = ("ssl.truststore.", "ssl.keystore.")
_SHARED = ("security.", "sasl.", "ssl.", "socket.", "client.", "broker.", "metadata.", "reconnect.", "debug")


class KafkaChannel:
    """The records of `signal.kafka.topic` whose key is `topic.prefix`. A position is the next offset of partition 0.

    The first read begins with the first record written since the query started, by the record's time: the first poll
    may come hours later, after a snapshot or once the brokers can be reached. With `signal.consumer.auto.offset.reset`
    `earliest` it begins at the topic's beginning. A topic that does not exist yet begins with its first record. While
    the brokers cannot be reached, there are no signals, one warning says so, and capture goes on. Nothing is committed
    to the brokers: the position is in the query's offset, together with the effects of the signals.
    """

    name = "kafka"

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect to nothing. Raises ConfigError without a Kafka client, or for options that it lacks."""
        _require_client()
        self._topic: str = config["signal.kafka.topic"]
        self._key = str(config["topic.prefix"]).encode()
        self._timeout = config["signal.kafka.poll.timeout.ms"] / 1000
        self._options = client_options(config)
        self._earliest = self._options.pop("auto.offset.reset", "latest").lower() in ("earliest", "beginning")
        self._group: str = config["signal.kafka.groupId"]
        self._consumer: Consumer | None = None
        self._reasons = _Reasons()
        self._next: int | None = None
        self._trouble = ""
        self._again = 0.0
        self._since_ms = time.time_ns() // 1_000_000

    def poll(self, position: int | None) -> Polled:
        from confluent_kafka import KafkaException

        if time.monotonic() < self._again:
            return []
        if position is not None and position < 0:
            self._since_ms, position = -position, None
        try:
            if position is None or self._next != position:
                begin = self._begin(position)
                if position is None:
                    return [] if begin is None else [(None, begin)]
                if begin is None:
                    return []
            assert self._consumer is not None
            found: Polled = []
            for message in self._consumer.consume(_RECORDS, self._timeout):
                fault = message.error()
                if fault is not None:
                    self._warn(fault)
                    # Records fetched after it are requested again.
                    self._next = None
                    return found
                self._trouble = ""
                offset = message.offset() or 0
                found.append((self._signal(message.key(), message.value(), offset), offset + 1))
                self._next = offset + 1
        except KafkaException as error:
            self._next = None
            self._warn(error.args[0])
            return []
        return found

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer, self._next = None, None

    def _begin(self, position: int | None) -> int | None:
        """Assign the partition from `position`, or from the first position to read; return it, None without a
        partition."""
        from confluent_kafka import Consumer, TopicPartition

        if self._consumer is None:
            self._consumer = _client(
                Consumer,
                self._options | {"group.id": self._group, "enable.auto.commit": False, "auto.offset.reset": "earliest"},
                self._reasons.note,
            )
        if not _partitions(self._consumer, self._topic):
            return 0 if position is None else None
        partition = TopicPartition(self._topic, 0)
        low, high = self._consumer.get_watermark_offsets(partition, timeout=_METADATA_S)
        begin = position
        if begin is None:
            begin = low if self._earliest else min(high, self._first_since(high))
        elif not low <= begin <= high:
            log.warning(
                "signals: the topic %s was created again or has lost records; it is read from its start", self._topic
            )
            begin = low
        partition.offset = begin
        self._consumer.assign([partition])
        self._trouble = ""
        if position is not None:
            self._next = position
        return begin

    def _first_since(self, high: int) -> int:
        """Return the offset of the first record since the query started; `high`, the topic's end, if there is none."""
        from confluent_kafka import TopicPartition

        assert self._consumer is not None
        asked = [TopicPartition(self._topic, 0, self._since_ms)]
        (found,) = self._consumer.offsets_for_times(asked, timeout=_METADATA_S)
        return int(found.offset) if found.offset >= 0 else high

    def _signal(self, key: object, value: object, offset: int) -> Signal | None:
        given = key.encode() if isinstance(key, str) else key
        if given != self._key or value is None:
            return None
        text = value.encode() if isinstance(value, str) else value
        try:
            return from_json(bytes(text), f"{self._topic}-{offset}")  # type: ignore[call-overload]
        except MalformedSignal as fault:
            log.warning("a record of %s at offset %d is not a signal and is skipped: %s", self._topic, offset, fault)
            return None

    def _warn(self, error: KafkaError) -> None:
        """Warn once about the reason why no signals come, and send no requests for _RETRY_S."""
        self._again = time.monotonic() + _RETRY_S
        if self._consumer is not None:
            # An error on the client's own threads shows in the next call; any record that it returns is requested
            # again.
            self._consumer.poll(0)
        trouble, remedy = self._reasons.of(error)
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("no signals from the topic %s: %s. %s", self._topic, trouble, remedy)


def send(config: Mapping[str, Any], signal: Signal) -> None:
    """Write `signal` to the topic, as a record that `KafkaChannel` of the same configuration reads. Driver.

    Raises ConnectionFailed if the brokers do not accept it, ConfigError for a topic with several partitions and without
    a Kafka client.
    """
    _require_client()
    from confluent_kafka import KafkaException, Producer

    topic = config["signal.kafka.topic"]
    options = {name: text for name, text in client_options(config).items() if name.startswith(_SHARED)}
    options["bootstrap.servers"] = ",".join(config["signal.kafka.bootstrap.servers"])
    faults: list[KafkaError] = []
    reasons = _Reasons()
    producer = _client(Producer, options | {"message.timeout.ms": int(_SEND_S * 1000)}, reasons.note)
    try:
        _partitions(producer, topic)
        producer.produce(
            topic,
            to_json(signal).encode(),
            str(config["topic.prefix"]).encode(),
            partition=0,
            on_delivery=lambda error, _: faults.append(error) if error is not None else None,
        )
        waiting = producer.flush(_SEND_S + 5)
    except KafkaException as error:
        faults, waiting = [error.args[0]], 0
        producer.poll(0)
    if waiting or faults:
        reason, remedy = reasons.of(faults[0] if faults else None)
        raise ConnectionFailed(f"The signal was not written to the topic {topic}: {reason}.", remedy)


def client_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Kafka client's options. Raises ConfigError for `signal.consumer` options without meaning here."""
    named: dict[str, Any] = {"bootstrap.servers": ",".join(config["signal.kafka.bootstrap.servers"])}
    for full in config:
        if not full.lower().startswith(_PREFIX):
            continue
        name, text = full[len(_PREFIX) :].lower(), str(config[full]).strip()
        if name in _OURS:
            raise ConfigError(
                f"{full} is not supported: the channel sets {name} itself.",
                "Use the signal.kafka option with the same meaning, or leave it out.",
            )
        if name.startswith(_JKS):
            raise ConfigError(
                f"{full} is not supported: the Kafka client reads no Java key stores.",
                "Name PEM files in signal.consumer.ssl.ca.location, ssl.certificate.location and ssl.key.location.",
            )
        if name == "sasl.jaas.config":
            named |= _login(full, text)
        elif name not in _IGNORED:
            named[name] = text
    return named


def _login(option: str, text: str) -> dict[str, str]:
    """Return user and password of a JAAS entry."""
    parts = dict(re.findall(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"', text))
    if not re.match(r"\S*(?:Plain|Scram)LoginModule\s", text) or not {"username", "password"} <= parts.keys():
        raise ConfigError(
            f"{option} is not supported in this form: only PlainLoginModule and ScramLoginModule with username and "
            "password are.",
            "Give the options that librdkafka has for the mechanism.",
        )
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", parts[name]) for name in ("username", "password")}


class _Reasons:
    """The reasons why connections fail. A caller learns only of the failure; the client's threads report the reason
    separately. Their texts name brokers and mechanisms, never secrets."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Note an error; the client's error callback, called within calls of the client."""
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._SSL, KafkaError._AUTHENTICATION) or "SSL" in error.str():
            self._last = error

    def of(self, error: KafkaError | None) -> tuple[str, str]:
        """Return what is wrong and what to do, for an error of a call, or for None if the brokers were silent."""
        from confluent_kafka import KafkaError

        reason, self._last = self._last, None
        if reason is None:
            text = "the brokers do not answer" if error is None else error.str()
            return text.rstrip("."), (
                "Check signal.kafka.bootstrap.servers, signal.kafka.topic and the signal.consumer options; brokers "
                "that speak TLS alone need signal.consumer.security.protocol = SSL or SASL_SSL."
            )
        text = re.sub(r" \(after [^()]*\)$", "", " ".join(reason.str().split())).rstrip(".")
        if reason.code() == KafkaError._AUTHENTICATION:
            return text, (
                "Check signal.consumer.sasl.username, sasl.password and sasl.mechanism: the brokers refuse the login."
            )
        # on a busy machine the client reports the same failure as one of the transport
        if reason.code() == KafkaError._SSL or "certificate" in text:
            return text, (
                "Name the file of the brokers' authority in signal.consumer.ssl.ca.location, and the brokers in "
                "signal.kafka.bootstrap.servers as their certificates do."
            )
        return text, "Check signal.consumer.security.protocol: the brokers may not speak TLS at this port."


def _client(kind: Any, options: dict[str, Any], note: Callable[[KafkaError], None]) -> Any:
    """Return a consumer or producer that gives its errors to `note`.

    Raises ConfigError for an option that the client does not know or accept.
    """
    from confluent_kafka import KafkaException

    try:
        # The client's own log repeats the exceptions and answers.
        return kind({"log_level": 2, "error_cb": note} | options, logger=_client_log)
    except KafkaException as error:
        # The text names the option and, if the value is wrong, the value too.
        text = error.args[0].str()
        wrong = next((name for name in options if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text)), "")
        raise ConfigError(
            f"The Kafka client refuses {f'signal.consumer.{wrong}' if wrong else 'its options'}.",
            "See librdkafka's list of options.",
        ) from None


def _require_client() -> None:
    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigError(
            "The channel kafka of signal.enabled.channels needs the package confluent-kafka.",
            pip_install("tailrace[kafka]"),
        )


def _partitions(client: Any, topic: str) -> int:
    """Return the number of the topic's partitions, 0 if it does not exist. Raises ConfigError for more than one."""
    from confluent_kafka import KafkaError, KafkaException

    metadata = client.list_topics(topic, _METADATA_S).topics.get(topic)
    if metadata is None:
        return 0
    if metadata.error is not None:
        if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return 0
        raise KafkaException(metadata.error)
    count = len(metadata.partitions)
    if count > 1:
        raise ConfigError(
            f"The topic {topic} of signal.kafka.topic has {count} partitions, between which signals have no order.",
            "Use a topic with one partition.",
        )
    return count
