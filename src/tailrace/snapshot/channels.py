"""Channels: sources of signals other than the log, namely a file or a Kafka topic, and the positions up to which they
were read.

A channel stores no position. The planner stores the position after each signal in its offset and passes it back, so
that a signal takes effect exactly once, whatever process is killed and when. Planner.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tailrace.errors import ConfigError
from tailrace.snapshot.signals import MalformedSignal, Polled, Signal, from_json

log = logging.getLogger("tailrace")


class Channel(Protocol):
    """A source of signals. `name` is its word in `signal.enabled.channels`."""

    name: str

    def poll(self, position: int | None) -> Polled:
        """Return the signals after `position`, in order, each with the position after it; empty if there are none.

        The same position gives the same signals again. `position` None, or the result of `first_positions`: the channel
        has never been read, and the result says where it begins. Raises ConfigError for a channel that can never work.
        """
        ...

    def close(self) -> None: ...


def first_positions(config: Mapping[str, Any], now_ms: int) -> tuple[tuple[str, int], ...]:
    """Return the positions of channels in the first offset of a query, which begins at `now_ms`, in ms since 1970.

    A topic is first read behind a snapshot, perhaps by another process: a negative number is the time from which on its
    records count. Other channels are read from their beginning.
    """
    return (("kafka", -now_ms),) if "kafka" in config["signal.enabled.channels"] else ()


class FileChannel:
    """`signal.file`: one JSON object per line, `{"id": …, "type": …, "data": …}`. A position counts bytes.

    If the file is shorter than the position, it was written anew and is read from its start. A last line without its
    end is accepted once it is a whole object, since no prefix of a longer object is one. A missing file is empty.
    """

    name = "file"

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def poll(self, position: int | None) -> Polled:
        start = position or 0
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < start:
                    start = 0
                file.seek(start)
                rest = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(
                f"The file {self._path} of signal.file cannot be read: {error.strerror}.",
                "Name a file that the user of this process may read, or leave file out of signal.enabled.channels.",
            ) from None
        found: Polled = []
        for line in rest.splitlines(keepends=True):
            place, start = start, start + len(line)
            ended = line.endswith((b"\n", b"\r"))
            if line.strip():
                try:
                    found.append((from_json(line.removeprefix(b"\xef\xbb\xbf"), f"{self._path.name}-{place}"), start))
                    continue
                except MalformedSignal as fault:
                    if not ended:
                        break
                    log.warning("a line of %s at byte %d is not a signal and is skipped: %s", self._path, place, fault)
            if ended:
                found.append((None, start))
        return found

    def close(self) -> None:
        """Do nothing: the file is opened for each poll."""


class Channels:
    """The channels of one query, each polled at most every `interval` seconds."""

    def __init__(
        self, channels: Mapping[str, Channel], interval: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._channels = channels
        self._interval = interval
        self._clock = clock
        self._looked: float | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Channels:
        """Return the channels of `signal.enabled.channels`. Nothing is opened before the first poll."""
        enabled = config["signal.enabled.channels"]
        found: dict[str, Channel] = {}
        if "file" in enabled:
            found["file"] = FileChannel(config["signal.file"])
        if "kafka" in enabled:
            from tailrace.snapshot.kafka import KafkaChannel

            found["kafka"] = KafkaChannel(config)
        return cls(found, config["signal.poll.interval.ms"] / 1000)

    def __bool__(self) -> bool:
        """Return True if there are channels."""
        return bool(self._channels)

    def poll(self, positions: Mapping[str, int]) -> tuple[list[Signal], dict[str, int]]:
        """Return the signals since `positions` (by the channels' names), and the positions after them.

        Returns no signals before the interval has passed. A signal is returned again until its position is in an
        offset.
        """
        reached = dict(positions)
        now = self._clock()
        if self._looked is not None and now - self._looked < self._interval:
            return [], reached
        self._looked = now
        signals: list[Signal] = []
        for name, channel in self._channels.items():
            for signal, position in channel.poll(positions.get(name)):
                reached[name] = position
                if signal is not None:
                    signals.append(signal)
        return signals, reached

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
