"""Records to Kafka, through Spark's connector. At least once: a batch that is replayed is sent again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.connectors import advice
from tailrace.connectors.findings import Finding
from tailrace.errors import SinkError
from tailrace.sinks.base import Settings, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_PRODUCER = "producer."
_SERIALIZERS = ("StringSerializer", "ByteArraySerializer", "BytesSerializer")

DEFAULTS = {
    # Records of one batch arrive at once, so larger requests cost no time and save most of the round trips.
    "kafka.linger.ms": "20",
    "kafka.batch.size": "262144",
    # JSON shrinks to a fifth, and broker and producer share what that saves; consumers notice nothing.
    "kafka.compression.type": "lz4",
}
"""Producer options that are used where the configuration names none."""

_log = logging.getLogger("tailrace")


class KafkaSink(Sink):
    """`debezium.sink.kafka.producer.*` are options of Kafka's producer; `bootstrap.servers` among them is required.

    Keys, values and headers are written as the bytes that they are. A record with a key goes to the partition that
    Kafka's own hash of the key names, so the order of a key is kept whatever the number of partitions.

    Nothing fences a task that Spark has given up and that is still alive, as on a host that the network has cut off:
    it may go on sending what its successor sends as well.
    """

    name = "kafka"
    needs_kafka = True

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

    def advice(self) -> list[Finding]:
        servers = self.options["kafka.bootstrap.servers"].split(",")
        protocol = self.options.get("kafka.security.protocol", "")
        return list(advice.kafka("The sink", servers, protocol, f"debezium.sink.kafka.{_PRODUCER}security.protocol"))

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        if frame.sparkSession.sparkContext.getConf().get("spark.speculation", "false").strip().lower() == "true":
            raise SinkError(
                "spark.speculation is on: a second copy of a slow task would write its records to Kafka a second time, "
                "and out of order.",
                "Set spark.speculation=false.",
            )
        records = frame.select("topic", "key", "value", "headers")
        writer = records.writeStream.format("kafka").queryName(query).trigger(**trigger)
        writer = writer.option("includeHeaders", "true").option("checkpointLocation", str(checkpoint))
        return writer.options(**self.options).start()
