"""Majority: what of a server's data no election can roll back. Planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.connectors.mongodb.log.oplog import newest
from tailrace.connectors.mongodb.log.position import Position
from tailrace.connectors.mongodb.log.stretch import Namespace
from tailrace.connectors.mongodb.server.faults import NotYetCommitted, lacks_majority_reads

if TYPE_CHECKING:
    from pymongo import MongoClient

log = logging.getLogger("tailrace")


class Majority:
    """What a majority of the replica set has, as far as the server can show it. Raises PyMongo's errors."""

    def __init__(self, connect: Callable[[], MongoClient[Any]]) -> None:
        self._connect = connect
        self._is_seen: bool | None = None

    def is_seen(self, namespace: Namespace = ("local", "oplog.rs")) -> bool:
        """Whether the server can leave out what is not yet known to a majority; asked once, of what may be read."""
        if self._is_seen is None:
            self._is_seen = self.asked(namespace)
        return self._is_seen

    def asked(self, namespace: Namespace) -> bool:
        """The server's answer to that; warns where it cannot."""
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

    def newest(self) -> Position:
        """The newest position of the oplog that a majority has; the newest of all where the server cannot say."""
        return newest(self._connect(), majority=self.is_seen())

    def present(self) -> Position:
        """The newest position that a majority has, of a primary that knows it; else raises NotYetCommitted.

        A new primary does not, until a majority has an entry of its own: before, it shows less than it did as a member.
        """
        latest = newest(self._connect())
        found = self.newest()
        if found.term != latest.term:
            raise NotYetCommitted
        return found

    def after(self, names: Sequence[Namespace], *positions: Position) -> int:
        """The timestamp that documents of a snapshot of `names` are to have seen: the latest of `positions`.

        0 where the server cannot read what a majority has.
        """
        return max(one.time for one in positions) if names and self.is_seen(names[0]) else 0
