"""CollectionNotices: what the planner has to tell of snapshots of collections. Planner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tailrace.connectors.mongodb.log.chunk import Namespace
from tailrace.connectors.mongodb.snapshot.plan import SnapshotPlan
from tailrace.events.notices import Notices


class CollectionNotices(Notices[Namespace]):
    """Notifications of one query, about collections and their documents."""

    @contextmanager
    def unless_failed(self) -> Iterator[None]:
        """When what is done within fails, the same waits as before."""
        waiting, rows = list(self._waiting), self._rows
        try:
            yield
        except BaseException:
            self._waiting, self._rows = waiting, rows
            raise

    def chunks(self, plan: SnapshotPlan, first: int, done: int) -> None:
        """The chunks `[first, done)` of the snapshot are in the next batch."""
        if not self.are_wanted:
            return
        names: Sequence[Namespace] = list(self._rows) or list(dict.fromkeys(c.namespace for c in plan.chunks))
        for chunk in plan.chunks[first:done]:
            if not chunk.lower:
                self._add(self._initial.begun(names, chunk.namespace))
            if not chunk.upper:
                self._add(self._initial.scanned(names, chunk.namespace, self._rows.get(chunk.namespace, 0)))
        if done >= len(plan.chunks):
            self._add(self._initial.of("COMPLETED"))
