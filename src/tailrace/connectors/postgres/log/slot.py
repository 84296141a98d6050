"""The replication slot's position, and its advance to what Spark has committed. Planner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.connectors.postgres.log.gears import Streaming, literal
from tailrace.connectors.postgres.protocol.position import AcknowledgedLsn, confirmed, lsn_text
from tailrace.process.runtime import Runtime

if TYPE_CHECKING:
    import psycopg

# The slot is advanced twice if a new session would otherwise decode more than this many bytes before its position.
READ_AGAIN_BYTES = 16 << 20
ASK_SECONDS = 1.0


class Slot:
    """The slot `name`.

    `stands` is its position as last reported or requested, `acknowledged` the position to which it may be advanced.

    The reader's thread advances it: by status messages of the stream, or, between slices, by a call to the server. The
    call decodes all WAL in between, so it advances the slot by at least `step` bytes, unless forced.
    """

    def __init__(self, name: str, step: int, runtime: Runtime) -> None:
        self._name, self._step = name, step
        self.stands = confirmed(0)
        self.acknowledged = confirmed(0)
        # The last position that the server was asked, or is about to be asked, to advance to.
        self._asked_lsn = confirmed(0)
        self._asked = runtime.condition()

    def found_at(self, lsn: AcknowledgedLsn) -> None:
        """Set `stands` to the position that the server reports, and wake `wait`."""
        with self._asked:
            self.stands = lsn
            self._asked.notify_all()

    def report(self, gear: Streaming) -> None:
        """Report `acknowledged` by a status message if it has advanced. Called once for each poll of the stream.

        The stream's periodic status messages repeat the position.
        """
        acknowledged = self.acknowledged
        if acknowledged > gear.flushed:
            gear.acknowledge(acknowledged)
            self.stands = acknowledged
            self._ask(acknowledged)

    def advance(self, control: psycopg.Connection[Any], force: bool) -> None:
        """Advance the slot by a call to the server; by less than a step only with `force`.

        The advance moves restart_lsn to the first place after the slot's old position from which the server can decode.
        The server keeps all WAL from there on, and the next session reads it again. A second advance, to the slot's new
        position, moves restart_lsn to the last such place. Both advances are one call, which the server finishes even
        if the planner ends.
        """
        acknowledged, done = self.acknowledged, self.stands
        if acknowledged <= done or not (force or acknowledged - done > self._step):
            return
        name = literal(self._name)
        self._ask(acknowledged)
        control.execute(
            f"select pg_replication_slot_advance({name}, '{lsn_text(acknowledged)}'); "
            "select pg_replication_slot_advance(slot_name, confirmed_flush_lsn) from pg_replication_slots "
            f"where slot_name = {name} and confirmed_flush_lsn - restart_lsn > {READ_AGAIN_BYTES}"
        )
        self.stands = acknowledged

    def _ask(self, lsn: AcknowledgedLsn) -> None:
        with self._asked:
            self._asked_lsn = lsn
            self._asked.notify_all()

    # --- by the planner's thread ---------------------------------------------------------------------------------

    def acknowledge(self, lsn: AcknowledgedLsn) -> None:
        """Allow the slot to advance to `lsn`: Spark has committed everything before it."""
        self.acknowledged = max(self.acknowledged, lsn)

    def wait(self) -> None:
        """Wait until the server has been asked to advance to `acknowledged`, or until nothing happens for
        ASK_SECONDS."""
        with self._asked:
            while max(self._asked_lsn, self.stands) < self.acknowledged:
                if not self._asked.wait(ASK_SECONDS):
                    break
