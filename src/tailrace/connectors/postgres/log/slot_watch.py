"""SlotWatch: monitors the log that the query's slot keeps, also while Spark writes a batch. Planner."""

from __future__ import annotations

import functools
import logging
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tailrace.connectors.postgres.log import retention
from tailrace.connectors.postgres.log.retention import Rate, SlotLog
from tailrace.errors import PrerequisiteError
from tailrace.log.retention import LEVELS, PAUSED, STOPPED, WARNED, LogLevel, LogRetention
from tailrace.process.runtime import Event, Runtime, Thread
from tailrace.snapshot.incremental import Notification

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")


class SlotWatch(LogLevel):
    """Monitors the level of one query's slot, with a session and a thread of its own.

    `start` starts the thread, which reads the slot every `slot.watch.interval.ms`. A failure is ignored until the next
    interval: the reader of the log reports lost servers. `tell` is that of LogLevel.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        connect: Callable[[], psycopg.Connection[Any]],
        runtime: Runtime,
        tell: Callable[[Notification], None] = lambda _: None,
    ) -> None:
        super().__init__(tell)
        self._config = config
        self._connect = connect
        self._runtime = runtime
        self._interval: float = config["slot.watch.interval.ms"] / 1000
        self._rate = Rate()
        self._before: SlotLog | None = None
        self.seen: LogRetention | None = None
        """The slots of the server as last read; None before the first reading and after a failed one."""
        self._closed = runtime.event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None and self._interval:
            run = functools.partial(_run, weakref.ref(self), self._connect, self._closed, self._interval)
            self._thread = self._runtime.start(run, "tailrace-slot")
            # a planner that nobody closes must not leave its thread and its session behind
            weakref.finalize(self, self._closed.set)

    def close(self) -> None:
        self._closed.set()

    def look(self, connection: psycopg.Connection[Any]) -> None:
        """Read the state of the server's slots, and report a change of level of the query's own slot."""
        every = retention.read(connection, self._config)
        try:
            self._judge(connection, [one for one in every if one.name == self._config["slot.name"]])
        finally:
            level = self._level if self._failure is None else STOPPED
            self.seen = retention.reported(every, self._config, level)

    def _judge(self, connection: psycopg.Connection[Any], found: Sequence[SlotLog]) -> None:
        if not found or found[0].reason:
            # the reader ends the query with its own error
            return
        slot = found[0]
        self._rate.note(self._runtime.monotonic(), slot.retained)
        level = self._level_of(slot)
        was, self._level = self._level, level
        before, self._before = self._before, slot
        if level != was:
            self._note(slot, level)
        if level > was:
            self._warn(connection, slot, level)
        elif level < was:
            log.warning("%s%s", retention.told(slot, self._rate), "; snapshots go on" if was >= PAUSED > level else "")
        # a slot whose log shrinks is being read: stopping now would keep it full
        is_growing = before is not None and slot.retained >= before.retained
        stop: int = self._config["slot.stop.percent"]
        if stop and is_growing and (slot.percent or 0) >= stop:
            self._note(slot, STOPPED)
            self._failure = self._stopped(connection, slot, stop)

    def _level_of(self, slot: SlotLog) -> int:
        config = self._config
        found = self._reached(slot.percent, config["slot.warn.percent"], config["slot.pause.percent"])
        left = self._rate.seconds_left(slot)
        ahead = config["slot.warn.ahead.ms"] / 1000 * (1.2 if self._level >= WARNED else 1)
        return max(found, WARNED) if left is not None and left < ahead else found

    def _note(self, slot: SlotLog, level: int) -> None:
        left = self._rate.seconds_left(slot)
        data = {"connector_name": self._config["topic.prefix"], "slot": slot.name, "retained_bytes": slot.retained}
        data |= {} if slot.limit is None else {"limit_bytes": slot.limit}
        data |= {} if left is None else {"seconds_left": round(left)}
        named = tuple((name, str(value)) for name, value in data.items())
        self._report(Notification(str(uuid.uuid4()), "Replication Slot", LEVELS[level], named))

    def _warn(self, connection: psycopg.Connection[Any], slot: SlotLog, level: int) -> None:
        found = list(retention.causes(connection, slot))
        why = "".join(f"; {text}: {remedy}" for text, remedy in found)
        paused = "; incremental snapshots wait (slot.pause.percent)" if level >= PAUSED else ""
        log.warning("%s%s%s", retention.told(slot, self._rate), paused, why)

    def _stopped(self, connection: psycopg.Connection[Any], slot: SlotLog, percent: int) -> PrerequisiteError:
        found = list(retention.causes(connection, slot))
        why = "".join(f" {text[0].upper()}{text[1:]}." for text, _ in found)
        text = retention.told(slot, self._rate)
        steps = [remedy.rstrip(".") for _, remedy in found]
        steps += [
            "give the log more room (max_slot_wal_keep_size, the disk, slot.limit.bytes)",
            f"or give the pipeline up and free the log: select pg_drop_replication_slot('{slot.name}'), and delete the "
            "checkpoint",
        ]
        return PrerequisiteError(
            f"{text[0].upper()}{text[1:]}: slot.stop.percent is {percent}.{why}",
            f"{'; '.join(steps)}. Then start again with the same checkpoint.",
        )


def _run(
    owner: weakref.ref[SlotWatch], connect: Callable[[], psycopg.Connection[Any]], closed: Event, interval: float
) -> None:
    """Call the owner's `look` every `interval` seconds until the owner is closed or garbage-collected."""
    connection: psycopg.Connection[Any] | None = None
    try:
        while not closed.wait(interval):
            watch = owner()
            if watch is None:
                return
            try:
                if connection is None or connection.closed:
                    connection = connect()
                watch.look(connection)
            except Exception as error:
                log.debug("no look at the slot: %s", type(error).__name__)
                if connection is not None:
                    with suppress(Exception):
                        connection.close()
                connection, watch.seen = None, None
            del watch
    finally:
        if connection is not None:
            connection.close()
