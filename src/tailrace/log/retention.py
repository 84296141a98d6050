"""LogRetention: what a server keeps of its log, for whom, and for how long; and the levels of what a pipeline does
about it. Planner.

A connector's descriptor names the function that asks for it, in `retention`.
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
"""The statuses of the notifications of a level."""

BACK = 5.0
"""A level ends only this many percent below its threshold, so that it does not come and go."""

log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class SlotState:
    """A replication slot of the server; None is unknown, or unbounded.

    `is_own` is True for the slot of this pipeline. `retained_bytes` are the bytes of log that the server keeps for the
    slot, `unconfirmed_bytes` those that its reader has not confirmed, `limit_bytes` the most that the server keeps for
    it, `safe_bytes` those that may still be written before it loses log. `status` is the server's word: reserved,
    extended, unreserved or lost, `invalidated` the reason why the slot is lost, "" if it is not. `inactive_s` are
    seconds since its reader left. `spilled_bytes` and `spilled_transactions` count what decoding has written to the
    server's disk.
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

    `oldest_s` is the time of the oldest change that the log still has, in s since 1970, `kept_s` the seconds for which
    the server keeps changes; None if the server does not tell. `lasting_s` are the seconds after which a change that is
    written now is removed at the present rate, if they are others than `kept_s`; `setting` names what makes them more.
    `newest` is the end of the log in the form of `Planner.status`, if it has a distance in bytes; None otherwise.
    `behind_s` are the seconds that the pipeline is behind. `level` says what the pipeline does about the log: 0
    nothing, 1 it has warned, 2 incremental snapshots wait, 3 it ends; None if it does not watch it.
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
        """The seconds after which the server removes a change that is written now; None if it never does, or does not
        tell."""
        return self.kept_s if self.lasting_s is None else self.lasting_s

    @property
    def percent(self) -> float | None:
        """The part of that time that the pipeline is behind; None if unknown."""
        lasts_s = self.lasts_s
        return None if not lasts_s or self.behind_s is None else 100 * self.behind_s / lasts_s


Retaining = Callable[[Config], LogRetention]
"""Asks a server, over a connection of its own. Raises TailraceError or the driver's errors."""


class LogLevel:
    """The level of what a pipeline does about a log that its server does not keep for ever.

    A thread looks at the server now and then, and sets the level. The planner's thread asks `holds_back` before a
    window of an incremental snapshot, and calls `demand` in each call of the query.
    """

    def __init__(self) -> None:
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

    def _reached(self, percent: float | None, warns: float, pauses: float) -> int:
        """Return the level at a percentage, by the thresholds of a warning and of a pause; 0: there is none. Without a
        percentage it is FINE."""
        found = FINE
        for level, threshold in ((WARNED, warns), (PAUSED, pauses)):
            if threshold and percent is not None and percent >= threshold - (BACK if self._level >= level else 0):
                found = level
        return found


class LogMargin(LogLevel):
    """The level of a log that its server keeps for a time, whether or not a pipeline has read it.

    The thread that asks the server calls `heed`.
    """

    def __init__(self, config: Config, runtime: Runtime) -> None:
        super().__init__()
        self._config, self._runtime = config, runtime
        # the seconds behind at the latest look, and the time of it
        self._before: tuple[float, float] | None = None

    def heed(self, found: LogRetention) -> LogRetention:
        """Return what a server keeps with the pipeline's level; report a level that has changed."""
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
        """Return True if the lag has grown since the last look. It cannot grow faster than time passes: what is more
        comes of the first batch after a start, and says nothing about the pipeline's rate."""
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
        self._news.append(Notification(str(uuid.uuid4()), "Source Log", LEVELS[level], named))


def told(found: LogRetention) -> str:
    """Return a sentence, without a stop, about how far a pipeline is behind a log that is kept for a time."""
    lasts_s, behind_s = found.lasts_s or 0.0, found.behind_s or 0.0
    left_s = lasts_s - behind_s
    left = f"it loses changes in {duration(left_s)} unless it catches up" if left_s > 0 else "changes may be lost"
    return (
        f"the pipeline is {duration(behind_s)} behind, {found.percent or 0:.0f} % of the {duration(lasts_s)} for which "
        f"the server keeps its log: {left}"
    )


def duration(seconds: float) -> str:
    """Return a duration in its largest unit that has at least two of it: 90 minutes, 3 days."""
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
