"""CollectionNotifications: the notifications about snapshots of collections. Planner."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.snapshot.plan import SnapshotProgress
from tailrace.log.notifications import PendingNotifications


class CollectionNotifications(PendingNotifications[Namespace, SnapshotProgress]):
    """PendingNotifications of one query, about collections and their documents."""

    def chunks(self, before: SnapshotProgress, after: SnapshotProgress, *, asked: bool) -> None:
        if not self.are_wanted:
            return
        plan = after.plan
        names: Sequence[Namespace] = list(self._rows) or list(dict.fromkeys(c.namespace for c in plan.chunks))
        for chunk in plan.chunks[before.done : after.done]:
            if not chunk.lower:
                self._add(self._initial.begun(names, chunk.namespace))
            if not chunk.upper:
                self._add(self._initial.scanned(names, chunk.namespace, self._rows.get(chunk.namespace, 0)))
        if after.done >= len(plan.chunks):
            self._add(self._initial.of("COMPLETED"))
