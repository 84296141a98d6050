"""Slot: where the replication slot stands, and how it follows what Spark has committed. Planner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.connectors.postgres.log.gears import Streaming, literal
from tailrace.connectors.postgres.protocol.position import ForgettableLsn, confirmed, lsn_text
from tailrace.process.runtime import Runtime

if TYPE_CHECKING:
    import psycopg

# The slot is advanced a second time where the server would read more bytes of WAL before its position.
READ_AGAIN_BYTES = 16 << 20
ASK_SECONDS = 1.0


class Slot:
    """The slot `name`: `stands` is where it is as far as is known, `forgettable` where it may be moved to.

    It is moved by the reader's thread, by the stream's status messages or by a call beside the slices. The call decodes
    the WAL on the way, so it does not follow every slice: only what is more than `step` bytes, unless it has to.
    """

    def __init__(self, name: str, step: int, runtime: Runtime) -> None:
        self._name, self._step = name, step
        self.stands = confirmed(0)
        self.forgettable = confirmed(0)
        # What the server has been asked for last, or is about to be.
        self._asked_lsn = confirmed(0)
        self._asked = runtime.condition()

    def found_at(self, lsn: ForgettableLsn) -> None:
        """Set `stands` to the position that the server has shown, and wake `wait`."""
        with self._asked:
            self.stands = lsn
            self._asked.notify_all()

    def acknowledge(self, gear: Streaming) -> None:
        """Move it by a status message, where there is more to forget: at most one for each poll of the stream, whose
        periodic messages say it again."""
        forgettable = self.forgettable
        if forgettable > gear.flushed:
            gear.acknowledge(forgettable)
            self.stands = forgettable
            self._ask(forgettable)

    def advance(self, control: psycopg.Connection[Any], force: bool) -> None:
        """Move it by a call to the server, by less than a step only with `force`.

        That moves restart_lsn to the first place behind the slot's old position from which the server may decode. All
        WAL from there on is kept, and the next session reads it again. A second advance, to where the slot stands then,
        moves restart_lsn to the last such place. Both are one call: the server finishes it though the planner ends.
        """
        forgettable, done = self.forgettable, self.stands
        if forgettable <= done or not (force or forgettable - done > self._step):
            return
        name = literal(self._name)
        self._ask(forgettable)
        control.execute(
            f"select pg_replication_slot_advance({name}, '{lsn_text(forgettable)}'); "
            "select pg_replication_slot_advance(slot_name, confirmed_flush_lsn) from pg_replication_slots "
            f"where slot_name = {name} and confirmed_flush_lsn - restart_lsn > {READ_AGAIN_BYTES}"
        )
        self.stands = forgettable

    def _ask(self, lsn: ForgettableLsn) -> None:
        with self._asked:
            self._asked_lsn = lsn
            self._asked.notify_all()

    # --- by the planner's thread ---------------------------------------------------------------------------------

    def may_move(self, forgettable: ForgettableLsn) -> None:
        """Spark has committed what is before `forgettable`."""
        self.forgettable = max(self.forgettable, forgettable)

    def wait(self) -> None:
        """Wait until the reader's thread has asked the server for what may be, or asks for nothing in ASK_SECONDS."""
        with self._asked:
            while max(self._asked_lsn, self.stands) < self.forgettable:
                if not self._asked.wait(ASK_SECONDS):
                    break
