"""Majority: reads that no election can roll back. Planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.log.oplog import newest
from tailrace.connectors.mongodb.log.position import ChangePosition
from tailrace.connectors.mongodb.server.faults import NotYetCommitted, lacks_majority_reads

if TYPE_CHECKING:
    from pymongo import MongoClient

log = logging.getLogger("tailrace")


class Majority:
    """Positions and timestamps that a majority of the replica set has. Methods raise PyMongo's errors."""

    def __init__(self, connect: Callable[[], MongoClient[Any]]) -> None:
        self._connect = connect
        self._is_seen: bool | None = None

    def is_seen(self, namespace: Namespace = ("local", "oplog.rs")) -> bool:
        """Return True if the server has majority reads. The first call tests it by a read of `namespace`."""
        if self._is_seen is None:
            self._is_seen = self.asked(namespace)
        return self._is_seen

    def asked(self, namespace: Namespace) -> bool:
        """Return True if a majority read of `namespace` succeeds; log a warning if the server has no majority reads."""
        database, collection = namespace
        command = {"find": collection, "limit": 1, "singleBatch": True, "projection": {"_id": 1}}
        try:
            self._connect()[database].command({**command, "readConcern": {"level": "majority"}})
        except Exception as error:
            if not lacks_majority_reads(error):
                raise
            log.warning("the server has no majority read concern: changes that are rolled back later may be read")
            return False
        return True

    def newest(self) -> ChangePosition:
        """Return the newest position of the oplog that a majority has; the newest of all without majority reads."""
        return newest(self._connect(), majority=self.is_seen())

    def present(self) -> ChangePosition:
        """Return the newest position that a majority has. Raises NotYetCommitted if the primary does not know it yet.

        A new primary knows this position once a majority has an entry of its own term. Until then its majority reads
        may return an older state than those of the previous primary.
        """
        latest = newest(self._connect())
        found = self.newest()
        if found.term != latest.term:
            raise NotYetCommitted
        return found

    def after(self, names: Sequence[Namespace], *positions: ChangePosition) -> int:
        """Return the timestamp that a snapshot of `names` must have reached, the latest of `positions`; 0 if the server
        has no majority reads."""
        return max(one.time for one in positions) if names and self.is_seen(names[0]) else 0
