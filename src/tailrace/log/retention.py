"""LogRetention: how long a server keeps its log, and for which slots. LogLevel: what a pipeline does as it runs short.
Planner.

A connector's descriptor names the function that reads the retention, in `retention`.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.config import Config
from tailrace.errors import PrerequisiteError
from tailrace.process.runtime import Runtime
from tailrace.snapshot.incremental import Notification

FINE, WARNED, PAUSED, STOPPED = range(4)
LEVELS = ("FINE", "WARNED", "PAUSED", "STOPPED")
"""The type of the notification that reports each level."""

BACK = 5.0
"""Percentage points below its threshold at which a level ends, so that it does not come and go."""

log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class SlotState:
    """A replication slot of the server; None is unknown, or unbounded.

    `is_own` is True for the slot of this pipeline. `retained_bytes` is the size of the log that the server keeps for
    the slot, `unconfirmed_bytes` the part that the slot's reader has not confirmed. `limit_bytes` is the most that the
    server keeps for the slot; `safe_bytes` can still be written before the slot loses log. `status` is the server's
    word: reserved, extended, unreserved or lost; `invalidated` is the reason why the slot is lost, "" if it is not.
    `inactive_s` counts the seconds since the slot's reader left. `spilled_bytes` and `spilled_transactions` count what
    decoding has written to the server's disk.
    """

    name: str
    is_own: bool
    is_active: bool
    status: str
    retained_bytes: int | None = None
    unconfirmed_bytes: int | None = None
    limit_bytes: int | None = None
    safe_bytes: int | None = None
    inactive_s: float | None = None
    invalidated: str = ""
    spilled_bytes: int | None = None
    spilled_transactions: int | None = None


@dataclass(frozen=True, slots=True)
class LogRetention:
    """The slots of a server, or the ages of its log.

    `oldest_s` is the time of the oldest change that the log still has, in s since 1970; `kept_s` is the time, in s, for
    which the server keeps changes. None if the server does not tell. `lasting_s` is the time, in s, after which a
    change that is written now is removed at the present rate; None if that is `kept_s`. `setting` names the server's
    setting that prolongs it. `newest` is the end of the log in the form of `Planner.status`; None if distances in this
    log have no size in bytes. `behind_s` is the pipeline's lag in s. `level` is the pipeline's reaction: 0 none, 1 it
    has warned, 2 incremental snapshots wait, 3 it ends; None if the pipeline does not watch the log.
    """

    slots: tuple[SlotState, ...] = ()
    oldest_s: float | None = None
    kept_s: float | None = None
    lasting_s: float | None = None
    setting: str = ""
    behind_s: float | None = None
    level: int | None = None
    newest: Mapping[str, Any] | None = None

    @property
    def lasts_s(self) -> float | None:
        """The time, in s, after which the server removes a change that is written now; None for never or unknown."""
        return self.kept_s if self.lasting_s is None else self.lasting_s

    @property
    def percent(self) -> float | None:
        """The pipeline's lag as a percentage of `lasts_s`; None if unknown."""
        lasts_s = self.lasts_s
        return None if not lasts_s or self.behind_s is None else 100 * self.behind_s / lasts_s


Retaining = Callable[[Config], LogRetention]
"""Reads the retention from a server, over a connection of its own. Raises TailraceError or the driver's errors."""


class LogLevel:
    """The pipeline's reaction to a log that its server does not keep for ever: FINE, WARNED, PAUSED or STOPPED.

    A thread looks at the server now and then, and sets the level. The planner's thread reads `holds_back` before each
    window of an incremental snapshot, and calls `demand` in each call of the query. `tell` gets the notification about
    each change of level at once, in the thread that looks.
    """

    def __init__(self, tell: Callable[[Notification], None] = lambda _: None) -> None:
        self._tell = tell
        self._level = FINE
        self._failure: PrerequisiteError | None = None
        self._news: deque[Notification] = deque()

    @property
    def holds_back(self) -> bool:
        """True while an incremental snapshot must read no further."""
        return self._level >= PAUSED

    def demand(self) -> None:
        """Raise PrerequisiteError if the threshold has been reached at which the pipeline ends."""
        if self._failure is not None:
            raise self._failure

    def news(self) -> Iterator[Notification]:
        """Yield a notification for each level that was reached since the last call."""
        while self._news:
            yield self._news.popleft()

    def _report(self, notification: Notification) -> None:
        self._news.append(notification)
        self._tell(notification)

    def _reached(self, percent: float | None, warns: float, pauses: float) -> int:
        """Return the level at `percent`: FINE, WARNED from `warns` percent on, or PAUSED from `pauses` percent on.

        A threshold of 0 is never reached. FINE if `percent` is None.
        """
        reached = FINE
        for level, threshold in ((WARNED, warns), (PAUSED, pauses)):
            if threshold and percent is not None and percent >= threshold - (BACK if self._level >= level else 0):
                reached = level
        return reached


class LogMargin(LogLevel):
    """The level of a log that its server keeps for a time, whether or not a pipeline has read it.

    The thread that asks the server calls `heed`.
    """

    def __init__(self, config: Config, runtime: Runtime, tell: Callable[[Notification], None] = lambda _: None) -> None:
        super().__init__(tell)
        self._config, self._runtime = config, runtime
        # the lag in s at the latest look, and the time of that look
        self._before: tuple[float, float] | None = None

    def heed(self, found: LogRetention) -> LogRetention:
        """Return `found` with the pipeline's level; report a level that has changed by a warning and a notification."""
        # the log of a new server may span no time yet
        percent, behind_s = found.percent or 0.0, found.behind_s
        if found.lasts_s is None or behind_s is None:
            self._level = FINE
            return found
        level = self._reached(percent, self._config["log.warn.percent"], self._config["log.pause.percent"])
        was, self._level = self._level, level
        falls_back = self._falls_back(behind_s)
        if level != was:
            self._note(found, level)
            remedy = f"; remedy: let the pipeline catch up, or raise {found.setting}" if level > was else ""
            paused = "; incremental snapshots wait (log.pause.percent)" if level > was and level >= PAUSED else ""
            log.warning("%s%s%s", told(found), paused or ("; snapshots go on" if was >= PAUSED > level else ""), remedy)
        stop: int = self._config["log.stop.percent"]
        if stop and falls_back and percent >= stop and self._failure is None:
            self._note(found, STOPPED)
            text = told(found)
            self._failure = PrerequisiteError(
                f"{text[0].upper()}{text[1:]}: log.stop.percent is {stop}.",
                f"Raise {found.setting}, find out why the pipeline is slow, and start again with the same checkpoint.",
            )
        return replace(found, level=level if self._failure is None else STOPPED)

    def _falls_back(self, behind_s: float) -> bool:
        """Return True if the lag has grown since the last look because the pipeline is slow.

        Such a lag cannot grow faster than time passes. If it does, the cause is the first batch after a start.
        """
        before, now = self._before, self._runtime.monotonic()
        self._before = (behind_s, now)
        return before is not None and 0 <= behind_s - before[0] <= 2 * (now - before[1])

    def _note(self, found: LogRetention, level: int) -> None:
        lasts_s, behind_s = found.lasts_s or 0.0, found.behind_s or 0.0
        data = {
            "connector_name": self._config["topic.prefix"],
            "behind_seconds": round(behind_s),
            "kept_seconds": round(lasts_s),
            "seconds_left": round(max(lasts_s - behind_s, 0)),
        }
        named = tuple((name, str(value)) for name, value in data.items())
        self._report(Notification(str(uuid.uuid4()), "Source Log", LEVELS[level], named))


def told(found: LogRetention) -> str:
    """Return a sentence, without its full stop, that compares a pipeline's lag with the time that the log is kept."""
    lasts_s, behind_s = found.lasts_s or 0.0, found.behind_s or 0.0
    left_s = lasts_s - behind_s
    left = f"it loses changes in {duration(left_s)} unless it catches up" if left_s > 0 else "changes may be lost"
    return (
        f"the pipeline is {duration(behind_s)} behind, {found.percent or 0:.0f} % of the {duration(lasts_s)} for which "
        f"the server keeps its log: {left}"
    )


def duration(seconds: float) -> str:
    """Return a duration in the largest unit of which it has at least two: 90 minutes, 3 days."""
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
