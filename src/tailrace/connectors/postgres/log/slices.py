"""A backlog in slices of WAL; the server decodes two halves of a large slice at once. Planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from itertools import chain

from tailrace.connectors.postgres.log.endings import DUPLICATE_OBJECT, FORBIDDEN, NO_SLOT_LEFT
from tailrace.connectors.postgres.log.gears import CatchUp, Messages
from tailrace.connectors.postgres.log.identity import ServerId, refuse_another
from tailrace.connectors.postgres.log.reading import Connections, ReaderSettings
from tailrace.connectors.postgres.protocol.position import ReadLsn
from tailrace.process.runtime import Helper, Runtime

log = logging.getLogger("tailrace")

HALVES_ABOVE = 64 << 20
"""A slice of more bytes of WAL than this is decoded in two halves."""

_Half = tuple[ReadLsn, Iterator[Messages]]
"""The position at which the second copy began, as the server reports it, and the copy's runs."""


class Slices:
    """Slices of WAL from a copy of the slot. A slice of more than HALVES_ABOVE bytes is decoded in two halves.

    A session of the server decodes with one core, and sends a slice only once it has decoded all of it. A second copy,
    which `another` makes, is therefore advanced to a little after the middle of the slice. It decodes the second half
    while the first half is decoded and read. The second half is used only if, by the positions that the server reports,
    it begins no later than the first half has ended. If the second copy fails, the first goes on alone.

    Everything runs on the reader's thread, except `another` and the start of the second half.
    """

    def __init__(self, first: CatchUp, another: Callable[[], CatchUp], runtime: Runtime) -> None:
        self._first = first
        self._second: CatchUp | None = None
        self._another: Callable[[], CatchUp] | None = another
        self._runtime = runtime
        self._helper: Helper | None = None

    @property
    def before(self) -> int:
        """The number of bytes that the server reads again before the last slice's end to decode the next slice."""
        return self._first.before

    def begin(self, lsn: ReadLsn) -> ReadLsn:
        """Skip transactions that commit before `lsn`, and return the position at which the first slice begins."""
        self._first.advance(lsn)
        return self._first.position()

    def read(self, begin: ReadLsn, upto_lsn: int) -> Iterator[Messages | ReadLsn]:
        """Yield the messages of transactions that commit from `begin` on and before `upto_lsn`, run by run.

        After each half, or after an undivided slice, yield the position reached. The messages that follow come from
        another decoding session. The last position may be before `upto_lsn`.
        """
        # the second half is the smaller one: it starts later, once its copy is made and has skipped the first half
        middle = begin + (upto_lsn - begin) * 9 // 16
        half = self._beside(middle, upto_lsn) if upto_lsn - begin > HALVES_ABOVE else None
        yield from self._first.slice(upto_lsn if half is None else middle)
        read = self._first.position()
        yield read
        runs = None if half is None else self._begun(half, read)
        if runs is None:
            return
        assert self._second is not None
        yield from runs
        read = self._second.position()
        self._first, self._second = self._second, self._first
        yield read

    def _beside(self, middle: int, upto_lsn: int) -> Future[_Half] | None:
        """Start the second half on the helper's thread; None if there is no second copy any more."""
        another = self._another
        if another is None:
            return None

        def begin() -> _Half:
            copy = self._second = self._second or another()
            copy.advance(middle)
            begins = copy.position()
            runs = copy.slice(upto_lsn)
            # when the first run arrives, the server has decoded all of them
            first = next(runs, None)
            return begins, runs if first is None else chain([first], runs)

        if self._helper is None:
            self._helper = self._runtime.helper("tailrace-second-half")
        return self._helper.submit(begin)

    def _begun(self, half: Future[_Half], read: ReadLsn) -> Iterator[Messages] | None:
        """Return the runs of the second half if it begins no later than `read`, the end of the first half.

        Otherwise return None: the next slice then reads the messages of the second half.
        """
        assert self._helper is not None
        self._helper.wait(half)
        try:
            begins, runs = half.result()
        except Exception as error:
            state = getattr(error, "sqlstate", None) or type(error).__name__
            log.info("the backlog is read from one copy of the slot: there is no second one (%s)", state)
            self._another = None
        else:
            if begins <= read:
                return runs
        second, self._second = self._second, None
        if second is not None:
            second.close()
        return None

    def close(self) -> None:
        """End the sessions, and with them the copies, once the server has answered the running queries."""
        with ExitStack() as ending:
            ending.callback(self._first.close)
            # runs after the helper's close: from then on nothing makes a second copy
            ending.callback(lambda: self._second.close() if self._second is not None else None)
            if self._helper is not None:
                ending.callback(self._helper.close)


def slices(
    settings: ReaderSettings, connections: Connections, server: ServerId, further: Mapping[str, str], runtime: Runtime
) -> Slices | None:
    """Return slices from a copy of the slot; None if the server refuses the copy. `further` is as in `CatchUp`."""
    copy = partial(_copy, settings, connections, server, further)
    try:
        return Slices(copy(), partial(copy, is_second=True), runtime)
    except Exception as error:
        state = getattr(error, "sqlstate", None)
        if state not in (NO_SLOT_LEFT, DUPLICATE_OBJECT, FORBIDDEN):
            raise
        # a role that database.initial.statements set may lack the rights of the login role
        reason = "the user may not copy the slot" if state == FORBIDDEN else "no replication slot to spare"
        log.warning("%s for the catch-up gear; streaming the backlog instead", reason)
        return None


def _copy(
    settings: ReaderSettings,
    connections: Connections,
    server: ServerId,
    further: Mapping[str, str],
    is_second: bool = False,
) -> CatchUp:
    """Return a copy of the slot, in a session of its own."""
    with ExitStack() as failing:
        connection = connections.arrow()
        failing.callback(connection.close)
        refuse_another(connection, server)
        name = f"{settings.slot[:40]}_catchup{'_2' if is_second else ''}"
        copy = CatchUp(connection, settings.slot, settings.publication, name, further, leaves_one=is_second)
        failing.pop_all()
    return copy
