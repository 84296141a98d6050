"""The contents of a sink in order. Each call of `records` continues where the last one ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

PREFIX = "chaos"
Record = tuple[str, Any, Any]
"""Topic, key and value."""


class Sink(Protocol):
    """The destination of a run's pipeline."""

    repeats: bool
    """True if a replayed batch may be there twice."""

    def settings(self) -> dict[str, str]:
        """Return the configuration's entries for the sink."""

    def records(self) -> Iterator[Record]:
        """Return the new records in the sink's order."""

    def forget(self) -> None:
        """Discard records that were read."""


class Files:
    """The sink `file`, ordered by the names of batches and parts."""

    repeats = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checked: set[str] = set()
        self._newest = -1
        self._done: list[Path] = []

    def settings(self) -> dict[str, str]:
        return {"type": "file", "file.path": str(self._folder)}

    def records(self) -> Iterator[Record]:
        for path in sorted(self._folder.glob("batch-*.jsonl")):
            if path.name in self._checked:
                continue
            found = re.fullmatch(r"batch-(\d+)-(\d+)\.jsonl", path.name)
            assert found is not None, path.name
            self._checked.add(path.name)
            self._done.append(path)
            with path.open("rb") as lines:
                for line in lines:
                    record = json.loads(line)
                    yield record["topic"], record["key"], record["value"]

    def forget(self) -> None:
        for path in self._done:
            with suppress(OSError):
                path.unlink()
        self._done.clear()


class Topics:
    """The sink `kafka`, with topics of one partition each."""

    repeats = True

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._offsets: dict[str, int] = {}

    def settings(self) -> dict[str, str]:
        return {"type": "kafka", "kafka.producer.bootstrap.servers": self._servers}

    def records(self) -> Iterator[Record]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({
            "bootstrap.servers": self._servers, "group.id": "chaos", "enable.auto.commit": "false",
            "fetch.max.bytes": str(32 << 20), "queued.max.messages.kbytes": "65536",
        })  # fmt: skip
        try:
            topics = consumer.list_topics(timeout=30).topics
            for topic in sorted(name for name in topics if name.startswith(f"{PREFIX}.")):
                part = TopicPartition(topic, 0, self._offsets.get(topic, 0))
                _, end = consumer.get_watermark_offsets(part, timeout=30)
                consumer.assign([part])
                at = part.offset
                while at < end:
                    # It waits for as many records as it is asked for.
                    for message in consumer.consume(min(1000, end - at), timeout=30):
                        error = message.error()
                        if error is not None:
                            raise RuntimeError(f"{topic}: {error}")
                        at = (message.offset() or 0) + 1
                        yield topic, _json(message.key()), _json(message.value())
                self._offsets[topic] = at
        finally:
            consumer.close()

    def forget(self) -> None:
        """Do nothing: the broker keeps its records."""


def _json(text: Any) -> Any:
    return None if text is None else json.loads(text)
