"""Options of signals, incremental snapshots and notifications: Debezium's, and one of tailrace's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.config.option import Check, Kind, Option, at_least, matching

_NO_JMX = "it needs the management beans of a Java process, and there is none"
_NO_RETRIES = "a watermark that cannot be written stops the pipeline, as any lost connection of the planner does; \
it is written again after the restart"

CHANNELS = ("source", "kafka", "file")
"""The sources of signals."""

SINKS = ("sink", "log", "http")
"""The destinations of notifications."""

_JMX = "jmx"

_NAME = r'(?:"(?:[^"]|"")+"|[^".]+)'


def _among(known: Sequence[str]) -> Check:
    """Return a check that a list has only known words, without regard to case; `settle` handles Java's own channel."""

    def check(values: list[str]) -> str:
        for value in values:
            if value.lower() not in (*known, _JMX):
                return f"knows {', '.join(known)}, not {value!r}"
        return ""

    return check


SIGNALS = (
    Option(
        "signal.data.collection", Kind.TEXT,
        "Signal table, as schema.table; a part with dots in double quotes. Signals are read from it, watermarks "
        "are written to it. Its first three columns are id, type and data.",
        check=matching(rf"{_NAME}(?:\.{_NAME}){{1,2}}", "schema.table, a part with dots in double quotes"),
    ),
    Option("signal.enabled.channels", Kind.LIST, "Channels of signals: source (the signal table), kafka, file.",
           ["source"], check=_among(CHANNELS)),
    Option("signal.filters.enabled", Kind.BOOLEAN,
           "Allow conditions in signals, which run with the connector's rights; false: a signal with one is logged and "
           "ignored.", True),
    Option("signal.poll.interval.ms", Kind.INTEGER,
           "Interval at which the channels kafka and file are read, in ms; the signal table is read with the log.",
           5000, check=at_least(1)),
    Option("signal.emit.failure.max.retries", Kind.INTEGER, "Retries of a failed watermark.", 0,
           notice=_NO_RETRIES),
    Option("signal.emit.failure.backoff.ms", Kind.INTEGER, "Time between two tries, in ms.", 10_000,
           notice=_NO_RETRIES),
    Option("signal.file", Kind.TEXT,
           "File of the channel file, on the driver: one JSON object a line, with id, type and data.",
           "file-signals.txt"),
    Option("signal.kafka.topic", Kind.TEXT,
           "Topic of the channel kafka, with one partition; unset: <topic.prefix>-signal. A record is for this "
           "connector when its key is topic.prefix."),
    Option("signal.kafka.bootstrap.servers", Kind.LIST, "Brokers of the channel kafka, as host:port.", []),
    Option("signal.kafka.groupId", Kind.TEXT,
           "Consumer group that the brokers see; the position is kept in the checkpoint, not in the group.",
           "kafka-signal"),
    Option("signal.kafka.poll.timeout.ms", Kind.INTEGER, "Longest wait for a signal from Kafka, in ms.", 100,
           check=at_least(1)),
    Option("signal.consumer.<option>", Kind.SECRET,
           "Options of the Kafka client, by librdkafka's names. sasl.jaas.config may name PLAIN and SCRAM. "
           "auto.offset.reset=earliest: the first start reads the topic from its beginning.",
           pattern=r"signal\.consumer\..+"),
    Option("incremental.snapshot.chunk.size", Kind.INTEGER, "Rows of a chunk of an incremental snapshot.", 1024,
           check=at_least(1)),
    Option("incremental.snapshot.window.chunks", Kind.INTEGER,
           "Maximum number of chunks that one window reads at the same time; 0: chosen by the time that batches take. "
           "1 gives Debezium's sequence of watermarks.", 0, check=at_least(0)),
    Option("incremental.snapshot.watermarking.strategy", Kind.TEXT,
           "Way to close a window: insert_insert (by a second row), insert_delete (by deleting the first).",
           "insert_insert", choices=("insert_insert", "insert_delete")),
    Option("incremental.snapshot.allow.schema.changes", Kind.BOOLEAN,
           "Whether tables may change while they are read.", False,
           notice="tables may always change: a chunk whose table has changed is read again"),
    Option("read.only", Kind.BOOLEAN,
           "Write no watermarks: incremental snapshots leave the database as it is, and lose nothing by "
           "it.", False),
    Option("notification.enabled.channels", Kind.LIST,
           "Destinations of notifications: sink (records on notification.sink.topic.name), log, http (a POST to "
           "notification.http.url; also when an error has ended `tailrace run`).", [],
           check=_among(SINKS)),
    Option("notification.sink.topic.name", Kind.TEXT, "Topic of the notifications."),
    Option("notification.http.url", Kind.SECRET, "URL to which the channel http sends each notification, as JSON.",
           check=matching(r"https?://[!-~]+", "a URL that begins with http:// or https://")),
    Option("notification.http.secret", Kind.SECRET,
           "Key of the signature in the header `X-Tailrace-Signature`: `sha256=` and the HMAC of the body."),
    Option("notification.http.retries", Kind.INTEGER,
           "Further tries if the receiver is not reached or answers with 429 or 5xx.", 5, check=at_least(0)),
)  # fmt: skip


def settle(values: dict[str, Any], notices: list[str]) -> list[str]:
    """Put the defaults that depend on other options into `values`; append to `notices`; return the faults."""
    for name, others in (("signal.enabled.channels", CHANNELS), ("notification.enabled.channels", SINKS)):
        words = [word.lower() for word in values[name]]
        values[name] = [word for word in words if word != _JMX]
        if _JMX in words:
            notices.append(f"{name} goes without {_JMX}: {_NO_JMX}; there are {', '.join(others)}.")
    values["signal.kafka.topic"] = values["signal.kafka.topic"] or f"{values['topic.prefix']}-signal"
    faults = []
    if "kafka" in values["signal.enabled.channels"] and not values["signal.kafka.bootstrap.servers"]:
        faults.append("signal.kafka.bootstrap.servers is missing, and signal.enabled.channels names kafka")
    if "sink" in values["notification.enabled.channels"] and not values["notification.sink.topic.name"]:
        faults.append("notification.sink.topic.name is missing, and notification.enabled.channels names sink")
    if "http" in values["notification.enabled.channels"] and not values["notification.http.url"]:
        faults.append("notification.http.url is missing, and notification.enabled.channels names http")
    return faults
