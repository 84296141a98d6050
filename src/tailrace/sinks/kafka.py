"""Records to Kafka, through Spark's connector. At least once: a batch that is replayed is sent again."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    "Check debezium.sink.kafka.producer.bootstrap.servers, and that producer.security.protocol is what the broker "
    "speaks at that port."
)
_SERIALIZERS = ("StringSerializer", "ByteArraySerializer", "BytesSerializer")

# Listed, not resolved: what else they depend on is in PySpark already, in the versions that Spark was built with.
_JARS: tuple[Jar, ...] = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    # 4.2.0 of this one was never published everywhere; the older one has the same interface.
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

DEFAULTS = {
    # Records of one batch arrive at once, so larger requests cost no time and save most of the round trips.
    "kafka.linger.ms": "20",
    "kafka.batch.size": "262144",
    # JSON shrinks to a fifth, and broker and producer share what that saves; consumers notice nothing.
    "kafka.compression.type": "lz4",
}
"""Producer options that are used where the configuration names none."""

TIMESTAMP_HEADER = "__tailrace.timestamp"
"""The header with the time of a record that a transform has placed in time: Spark's connector sets no timestamp."""

_DATED = (
    "case when timestamp is null then headers else concat(coalesce(headers, array()), array(named_struct('key', "
    f"'{TIMESTAMP_HEADER}', 'value', cast(cast(timestamp as string) as binary)))) end as headers"
)

_RAISE = (
    "Raise debezium.sink.kafka.producer.max.request.size, and with it max.message.bytes of the topic (of the broker "
    "message.max.bytes); or leave large columns out by column.exclude.list."
)
_UNMET = "unmet"
_BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer"
_AS_BYTES = {"kafka.key.serializer": _BYTES, "kafka.value.serializer": _BYTES}

_LARGE = "tailrace: more than max.request.size"
_TOO_LARGE = re.compile(rf"{re.escape(_LARGE)}: (\d+) bytes, of the topic (\S+)")
_LARGER = re.compile(r"\borg\.apache\.kafka\.[\w.]*?RecordTooLargeException: ([^\n]+)")
_MOST_BYTES = 1 << 20
_OVERHEAD = 82
"""What the producer adds to the bytes of a key and a value before it compares them with max.request.size."""
_INVALID_TOPIC = re.compile(r"\bInvalidTopicException: Invalid topics?:? \[?([^\n\]]+)")
_REFUSED = re.compile(r"\borg\.apache\.kafka\.[\w.]*?(\w+Exception): ([^\n]+)")
_HANDSHAKE = r"\b(?:[a-z]\w*\.)+(SSLHandshakeException): "
# What the producer's exceptions are caused by, and the options that it hangs on. A login that the producer cannot read
# is not quoted: its words may be a part of the password.
_SECURITY = (
    (
        re.compile(_HANDSHAKE + r"(No (?:subject alternative|name)[^\n]+)"),
        "Name the broker in debezium.sink.kafka.producer.bootstrap.servers as its certificate does; the name that it "
        "gives for itself (advertised.listeners) counts as well.",
    ),
    (
        re.compile(_HANDSHAKE + r"([^\n]+)"),
        "Name the file of the broker's authority in debezium.sink.kafka.producer.ssl.truststore.location, and its kind "
        "in ssl.truststore.type: PEM, PKCS12 or JKS.",
    ),
    (
        re.compile(r"\b(SaslAuthenticationException): ([^\n]+)"),
        "Check debezium.sink.kafka.producer.sasl.mechanism and sasl.jaas.config: the broker refuses the login.",
    ),
    (
        re.compile(r"\b(\w+Exception): (Failed to load [^\n]+)"),
        "Check debezium.sink.kafka.producer.ssl.truststore.*, ssl.keystore.* and their passwords; the files have to be "
        "where the tasks run.",
    ),
    (
        re.compile(r"(IllegalArgumentException): [^\n]*(in JAAS config|JAAS config entry|JAAS configuration)"),
        "Check debezium.sink.kafka.producer.sasl.jaas.config: MODULE required username=… password=…;",
    ),
    (
        re.compile(r"org\.apache\.kafka\.\S*?(TimeoutException): (Topic [^\n]+ not present in metadata[^\n]*)"),
        "Check debezium.sink.kafka.producer.bootstrap.servers, and that producer.security.protocol is what the broker "
        "speaks at that port.",
    ),
)


class KafkaSink(Sink):
    """`debezium.sink.kafka.producer.*` are options of Kafka's producer; `bootstrap.servers` among them is required.

    Keys, values and headers are written as the bytes that they are. A record with a key goes to the partition that
    Kafka's own hash of the key names, so the order of a key is kept whatever the number of partitions.

    A record that a transform has placed goes to the partition that it names, and has its time in TIMESTAMP_HEADER.

    Nothing fences a task that Spark has given up and that is still alive, as on a host that the network has cut off:
    it may go on sending what its successor sends as well.
    """

    name = "kafka"
    columns = ("topic", "key", "value", "headers")
    places = ("partition", "timestamp")
    delivery = "at least once"
    jars = _JARS

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        for name in options:
            if name.removeprefix(_PRODUCER).lstrip("_").lower().startswith("asyncprogresstracking"):
                raise SinkError(
                    f"debezium.sink.kafka.{name} is not supported: with asynchronous progress tracking the database "
                    "would forget changes that the checkpoint has not committed.",
                    "Leave it out.",
                )
        settings.only(name for name in options if name.startswith(_PRODUCER) and name != _PRODUCER)
        settings.required(f"{_PRODUCER}bootstrap.servers")
        self.options = DEFAULTS | self._producer_options(options)
        self._topics: Topics | None = None
        most = self.options.get("kafka.max.request.size", "")
        self._most_bytes = int(most) if most.isdigit() else _MOST_BYTES

    def adopt(self, source: Config) -> None:
        found = groups(source)
        self._topics = Topics(found, self.options) if found else None

    def _producer_options(self, options: Mapping[str, str]) -> dict[str, str]:
        mapped: dict[str, str] = {}
        for name, text in options.items():
            short = name.removeprefix(_PRODUCER)
            if short in ("key.serializer", "value.serializer"):
                # Spark's connector sends bytes; a serialiser of strings would have made the same ones.
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
        for expression, suggested in _SECURITY:
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
        return list(advice.kafka("The sink", self._servers, self._protocol, option))

    def asked(self) -> list[Finding]:
        reason = brokers.fault(self._servers, self._protocol)
        if not reason:
            return [Finding("ok", "sink", f"A broker of {', '.join(self._servers)} answers.")]
        return [Finding("error", "sink", f"No broker of Kafka answers: {reason}.", _REACH)]

    def _demand_broker(self, spark: SparkSession) -> None:
        """Raise ConnectionFailed where no broker answers; a driver of a cluster may be where none is."""
        reason = brokers.fault(self._servers, self._protocol)
        if not reason:
            return
        is_local = (spark.sparkContext.master or "").partition("[")[0] == "local"
        if is_local:
            raise ConnectionFailed(f"No broker of Kafka answers: {reason}.", _REACH)
        _log.warning("No broker of Kafka answers to the driver: %s. %s", reason, _REACH)

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        if frame.sparkSession.sparkContext.getConf().get("spark.speculation", "false").strip().lower() == "true":
            raise SinkError(
                "spark.speculation is on: a second copy of a slow task would write its records to Kafka a second time, "
                "and out of order.",
                "Set spark.speculation=false.",
            )
        self._demand_broker(frame.sparkSession)
        writer = _placed(frame, self._most_bytes).writeStream.queryName(query).trigger(**trigger)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if self._topics is not None:
            return writer.foreachBatch(briefly(_Creating(self._topics, self.options))).start()
        return writer.format("kafka").option("includeHeaders", "true").options(**self.options).start()


def _placed(frame: DataFrame, most: int) -> DataFrame:
    """Return the columns that Spark's connector takes, of a frame that may say where in a topic its records belong.

    A record whose key and value have more than `most` bytes for the producer fails by the name of its topic, which the
    producer itself does not tell.
    """
    size = f"coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + {_OVERHEAD}"
    told = f"raise_error(concat('{_LARGE}: ', {size}, ' bytes, of the topic ', topic))"
    value = f"if({size} > {most}, cast({told} as binary), value) as value"
    there = frame.columns
    partition = ["partition"] if "partition" in there else []
    return frame.selectExpr("topic", "key", value, _DATED if "timestamp" in there else "headers", *partition)


class _Creating:
    """Writes batches after their topics were made.

    A batch goes in one pass, without the records of topics that were never met, and tells whether there are such. Then
    the topics are made, and their records follow in a second pass: the order in each topic is kept, and only a batch
    with a new topic is read twice. The first batch of a run, in which all are new, is kept meanwhile.
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
        """Write what is there; how many records `_UNMET` has counted in the same pass, 0 where it does not count.

        This is what Spark's connector does for `batch.write.format("kafka").save()`. By that call, the options of the
        producer, passwords among them, would stand in the plan that Spark's pages and its log of events show; and by
        the older interface, which hides them, nothing can be counted.
        """
        jvm: Any = batch.sparkSession._jvm
        producer = jvm.java.util.HashMap()
        for name, text in {**self._options, **_AS_BYTES}.items():
            producer.put(name.removeprefix("kafka."), text)
        execution = batch._jdf.queryExecution()
        jvm.org.apache.spark.sql.kafka010.KafkaWriter.write(execution, producer, jvm.scala.Option.empty())
        counted = execution.observedMetrics().get(_UNMET)
        return int(counted.get().getLong(0)) if counted.isDefined() else 0
