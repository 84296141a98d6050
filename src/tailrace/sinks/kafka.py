"""The sink `kafka`, through Spark's connector. At least once: the replay of a batch sends it again. Driver."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableId
from tailrace.config.config import Config
from tailrace.config.jar import Jar
from tailrace.connectors import advice
from tailrace.connectors.findings import Finding
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.sinks import brokers
from tailrace.sinks.base import Settings, Sink
from tailrace.sinks.interruption import briefly
from tailrace.sinks.topics import Topics, groups, named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("tailrace")
_PRODUCER = "producer."
_REACH = (
    "Check debezium.sink.kafka.producer.bootstrap.servers, and that producer.security.protocol is the protocol of the "
    "broker's port."
)
_SERIALIZERS = ("StringSerializer", "ByteArraySerializer", "BytesSerializer")

# Listed, not resolved: PySpark contains their other dependencies in the versions that Spark was built with.
_JARS: tuple[Jar, ...] = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    # Version 4.2.0 was not published in every repository; 4.0.0 has the same interface.
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)
_MSK = Jar(
    "software.amazon.msk",
    "aws-msk-iam-auth",
    "2.3.5",
    "bcd6020ce1ca2c3f1a65e087057dc8c0757185ba1f169b38e0eda54b617e4225",
    "all",
)
"""Amazon's own login module; this variant contains the parts of Amazon's SDK that it needs."""

DEFAULTS = {
    # All records of a batch are available at once, so larger requests cost no time and save most round trips.
    "kafka.linger.ms": "20",
    "kafka.batch.size": "262144",
    # JSON shrinks to a fifth, which relieves broker and producer. Consumers need no change.
    "kafka.compression.type": "lz4",
}
"""Defaults of producer options."""

TIMESTAMP_HEADER = "__tailrace.timestamp"
"""The header for a timestamp that a transform has set, because Spark's connector sets none on records."""

_DATED = (
    "case when timestamp is null then headers else concat(coalesce(headers, array()), array(named_struct('key', "
    f"'{TIMESTAMP_HEADER}', 'value', cast(cast(timestamp as string) as binary)))) end as headers"
)

_RAISE = (
    "Raise debezium.sink.kafka.producer.max.request.size and the topic's max.message.bytes (the broker's "
    "message.max.bytes); or leave out large columns by column.exclude.list."
)
_ALL = "all"
_IDEMPOTENT_PENDING = 5
"""The most requests in flight with which an idempotent producer keeps records unique and in order."""
_UNMET = "unmet"
_BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer"
_AS_BYTES = {"kafka.key.serializer": _BYTES, "kafka.value.serializer": _BYTES}

_LARGE = "tailrace: more than max.request.size"
_TOO_LARGE = re.compile(rf"{re.escape(_LARGE)}: (\d+) bytes, of the topic (\S+)")
_LARGER = re.compile(r"\borg\.apache\.kafka\.[\w.]*?RecordTooLargeException: ([^\n]+)")
_MOST_BYTES = 1 << 20
_OVERHEAD = 82
"""Bytes that the producer adds to the key and the value before it compares them with max.request.size."""
_INVALID_TOPIC = re.compile(r"\bInvalidTopicException: Invalid topics?:? \[?([^\n\]]+)")
_REFUSED = re.compile(r"\borg\.apache\.kafka\.[\w.]*?(\w+Exception): ([^\n]+)")
_HANDSHAKE = r"\b(?:[a-z]\w*\.)+(SSLHandshakeException): "
# Causes of the producer's exceptions, and what to do. The message about a login that cannot be parsed is not
# quoted, because it may hold a part of the password.
_CAUSES = (
    (
        re.compile(r"\b(InvalidRecordException): ([^\n]*without key[^\n]*)"),
        "A topic with cleanup.policy = compact takes no record without a key: give the table one with "
        "message.key.columns, or change the topic's policy.",
    ),
    (
        re.compile(_HANDSHAKE + r"(No (?:subject alternative|name)[^\n]+)"),
        "Name the broker in debezium.sink.kafka.producer.bootstrap.servers, and in its own advertised.listeners, as "
        "its certificate does.",
    ),
    (
        re.compile(_HANDSHAKE + r"([^\n]+)"),
        "Name the file with the broker's certificate authority in debezium.sink.kafka.producer.ssl.truststore.location "
        "and its kind in ssl.truststore.type: PEM, PKCS12 or JKS.",
    ),
    (
        re.compile(r"\b(SaslAuthenticationException): ([^\n]+)"),
        "Check debezium.sink.kafka.producer.sasl.mechanism and sasl.jaas.config: the broker refuses the login.",
    ),
    (
        re.compile(r"\b(\w+Exception): (Failed to load [^\n]+)"),
        "Check debezium.sink.kafka.producer.ssl.truststore.*, ssl.keystore.* and their passwords; the files must exist "
        "where the tasks run.",
    ),
    (
        re.compile(r"(IllegalArgumentException): [^\n]*(in JAAS config|JAAS config entry|JAAS configuration)"),
        "Check debezium.sink.kafka.producer.sasl.jaas.config: MODULE required username=… password=…;",
    ),
    (
        re.compile(r"org\.apache\.kafka\.\S*?(TimeoutException): (Topic [^\n]+ not present in metadata[^\n]*)"),
        "Create the topic, let the broker do it (auto.create.topics.enable), or set topic.creation.default.*. If no "
        "topic is found, check debezium.sink.kafka.producer.bootstrap.servers, and that producer.security.protocol is "
        "the protocol of the broker's port.",
    ),
)


class KafkaSink(Sink):
    """A sink that writes to Kafka. `debezium.sink.kafka.producer.*` sets the producer's options.

    Keys, values and headers are written unchanged. Kafka's own hash of the key selects the partition of a record, so
    that the order within a key is kept for any number of partitions. A partition that a transform has set takes
    precedence, and a timestamp that it has set becomes the header TIMESTAMP_HEADER.

    A task that Spark has given up is not fenced. If it still runs, as on a host without network, it may send the same
    records as its successor.
    """

    name = "kafka"
    columns = ("topic", "key", "value", "headers")
    places = ("partition", "timestamp")
    delivery = "at least once"
    jars = _JARS
    further_jars = (_MSK,)

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        for name in options:
            if name.removeprefix(_PRODUCER).lstrip("_").lower().startswith("asyncprogresstracking"):
                raise SinkError(
                    f"debezium.sink.kafka.{name} is not supported: with asynchronous progress tracking the database "
                    "could discard changes that the checkpoint has not committed.",
                    "Leave it out.",
                )
        settings.only(name for name in options if name.startswith(_PRODUCER) and name != _PRODUCER)
        settings.required(f"{_PRODUCER}bootstrap.servers")
        if f"{_PRODUCER}transactional.id" in options:
            raise SinkError(
                f"debezium.sink.kafka.{_PRODUCER}transactional.id is not supported: Spark's producers begin no "
                "transactions.",
                "Leave it out.",
            )
        self.options = DEFAULTS | self._producer_options(options)
        if any(_MSK.organisation in text or text == "AWS_MSK_IAM" for text in self.options.values()):
            self.jars = (*_JARS, _MSK)
        self._topics: Topics | None = None
        own = self.options.get("kafka.socket.connection.setup.timeout.max.ms", "")
        if own.isdigit():
            self.connect_s = int(own) / 1000
        most = self.options.get("kafka.max.request.size", "")
        self._most_bytes = int(most) if most.isdigit() else _MOST_BYTES

    def adopt(self, source: Config) -> None:
        found = groups(source)
        self._topics = Topics(found, self.options) if found else None

    def dataset(self, topic: str, table: TableId) -> tuple[str, str, str]:
        broker = self.options["kafka.bootstrap.servers"].split(",")[0].strip()
        return f"kafka://{broker.rpartition('://')[2]}", topic, "STREAM"

    def _producer_options(self, options: Mapping[str, str]) -> dict[str, str]:
        mapped: dict[str, str] = {}
        for name, text in options.items():
            short = name.removeprefix(_PRODUCER)
            if short in ("key.serializer", "value.serializer"):
                # Spark's connector sends bytes; a serialiser of strings would send the same bytes.
                if text.strip().rpartition(".")[2] not in _SERIALIZERS:
                    raise SinkError(
                        f"debezium.sink.kafka.{name} = {text} is not supported.",
                        "Records are written as the bytes of their JSON; leave it out.",
                    )
                continue
            mapped[f"kafka.{short}"] = text.strip()
        return mapped

    def failure(self, text: str) -> SinkError | None:
        name = _INVALID_TOPIC.search(text)
        if name is not None:
            return named(name[1].strip()) or SinkError(f"Kafka refuses the topic name {name[1].strip()}.")
        large = _TOO_LARGE.search(text)
        if large is not None:
            return SinkError(
                f"A record of the topic {large[2]} has {int(large[1]):,} bytes, more than the producer sends: "
                f"max.request.size is {self._most_bytes:,}.",
                _RAISE,
            )
        larger = _LARGER.search(text)
        if larger is not None:
            return SinkError(f"Kafka refuses a record for its size: {larger[1].strip()}", _RAISE)
        found = _REFUSED.search(text)
        if found is None:
            return None
        remedy = "Check debezium.sink.kafka.producer.* and the broker."
        for expression, suggested in _CAUSES:
            better = expression.search(text)
            if better:
                found, remedy = better, suggested
                break
        kind, said = found.groups()
        return SinkError(f"Kafka refuses the records or cannot be reached: {said.strip()} ({kind}).", remedy)

    @property
    def _servers(self) -> list[str]:
        return [server for server in self.options["kafka.bootstrap.servers"].split(",") if server.strip()]

    @property
    def _protocol(self) -> str:
        return self.options.get("kafka.security.protocol", "")

    def advice(self) -> list[Finding]:
        option = f"debezium.sink.kafka.{_PRODUCER}security.protocol"
        return [*advice.kafka("The sink", self._servers, self._protocol, option), *self._weakened()]

    def _weakened(self) -> Iterator[Finding]:
        """Yield warnings for options with which the producer may lose records or change their order."""
        option = f"debezium.sink.kafka.{_PRODUCER}"
        acks = self.options.get("kafka.acks", _ALL).lower()
        if acks not in (_ALL, "-1"):
            yield Finding(
                "warning",
                "sink",
                f"With {option}acks = {acks} a broker that fails may lose records that count as delivered.",
                "Leave it out, or set it to all.",
            )
        pending, retries = (
            self.options.get(f"kafka.{name}", "") for name in ("max.in.flight.requests.per.connection", "retries")
        )
        is_wide = pending.isdigit() and int(pending) > _IDEMPOTENT_PENDING
        off = self.options.get("kafka.enable.idempotence", "").lower() == "false"
        if (off or is_wide or acks not in (_ALL, "-1")) and pending != "1" and retries != "0":
            yield Finding(
                "warning",
                "sink",
                "The producer is not idempotent, and several of its requests wait at once: a repeated one may come "
                "after later records of its key.",
                f"Leave out {option}acks, enable.idempotence and max.in.flight.requests.per.connection, or set the "
                "last to 1.",
            )

    def asked(self) -> list[Finding]:
        reason = brokers.fault(self._servers, self._protocol, self.connect_s)
        if not reason:
            return [Finding("ok", "sink", f"A broker of {', '.join(self._servers)} answers.")]
        return [Finding("error", "sink", f"No Kafka broker answers: {reason}.", _REACH)]

    def _demand_broker(self, spark: SparkSession) -> None:
        """Raise ConnectionFailed if no broker answers. On a cluster only log a warning: the tasks may reach a
        broker."""
        reason = brokers.fault(self._servers, self._protocol, self.connect_s)
        if not reason:
            return
        is_local = (spark.sparkContext.master or "").partition("[")[0] == "local"
        if is_local:
            raise ConnectionFailed(f"No Kafka broker answers: {reason}.", _REACH)
        _log.warning("No Kafka broker answers the driver: %s. %s", reason, _REACH)

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        if frame.sparkSession.sparkContext.getConf().get("spark.speculation", "false").strip().lower() == "true":
            raise SinkError(
                "spark.speculation is on: a second copy of a slow task would write its records to Kafka a second time, "
                "and out of order.",
                "Set spark.speculation=false.",
            )
        for finding in self._weakened():
            _log.warning("%s %s", finding.text, finding.remedy)
        self._demand_broker(frame.sparkSession)
        writer = _placed(frame, self._most_bytes).writeStream.queryName(query).trigger(**trigger)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if self._topics is not None:
            return writer.foreachBatch(briefly(_Creating(self._topics, self.options))).start()
        return writer.format("kafka").option("includeHeaders", "true").options(**self.options).start()


def _placed(frame: DataFrame, most: int) -> DataFrame:
    """Return the columns for Spark's connector. `frame` may have the columns partition and timestamp.

    A record of more than `most` bytes fails with an error that names its topic, which the producer's own error does
    not.
    """
    size = f"coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + {_OVERHEAD}"
    error = f"raise_error(concat('{_LARGE}: ', {size}, ' bytes, of the topic ', topic))"
    value = f"if({size} > {most}, cast({error} as binary), value) as value"
    there = frame.columns
    partition = ["partition"] if "partition" in there else []
    return frame.selectExpr("topic", "key", value, _DATED if "timestamp" in there else "headers", *partition)


class _Creating:
    """The writer for foreachBatch that creates topics before it writes to them.

    The first pass over a batch writes the records of known topics and counts the others. If there are others, their
    topics are created and a second pass writes their records. This keeps the order within each topic, and only a batch
    with a new topic is read twice. In the first batch of a run all topics are new; it is persisted for its two passes.
    """

    def __init__(self, topics: Topics, options: Mapping[str, str]) -> None:
        self._topics = topics
        self._options = options
        self._met: set[str] = set()

    def __call__(self, batch: DataFrame, number: int) -> None:
        if not self._met:
            batch = batch.persist()
            try:
                self._meet(batch)
                self._write(batch)
            finally:
                batch.unpersist()
            return
        from pyspark.sql.functions import col, count_if

        known = col("topic").isin(*sorted(self._met))
        if self._write(batch.observe(_UNMET, count_if(~known).alias(_UNMET)).where(known)):
            rest = batch.where(~known)
            self._meet(rest)
            self._write(rest)

    def _meet(self, batch: DataFrame) -> None:
        found = {row["topic"] for row in batch.select("topic").distinct().collect()}
        self._topics.demand(batch.sparkSession, found)
        self._met |= found

    def _write(self, batch: DataFrame) -> int:
        """Write the records, and return the number that the observation `_UNMET` has counted; 0 without the
        observation.

        Spark's connector does the same for `batch.write.format("kafka").save()`. That call would show the producer's
        options, including passwords, in the plan of Spark's UI and event log. The older interface hides them, but does
        not support observations.
        """
        jvm: Any = batch.sparkSession._jvm
        producer = jvm.java.util.HashMap()
        for name, text in {**self._options, **_AS_BYTES}.items():
            producer.put(name.removeprefix("kafka."), text)
        execution = batch._jdf.queryExecution()
        jvm.org.apache.spark.sql.kafka010.KafkaWriter.write(execution, producer, jvm.scala.Option.empty())
        counted = execution.observedMetrics().get(_UNMET)
        return int(counted.get().getLong(0)) if counted.isDefined() else 0
