"""Which version of its table each change of a run of messages belongs to. Planner, the reader's thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import Bytes, Int32s, Int64s, Transactions
from tailrace.connectors.postgres.protocol import pgoutput
from tailrace.connectors.postgres.schema.evolution import Moment
from tailrace.connectors.postgres.schema.relations import UNCAPTURED
from tailrace.errors import DecodeError

_RELATION = ord("R")
_IS_ROW = np.zeros(256, np.bool_)
_IS_ROW[[ord(kind) for kind in "IUD"]] = True


class Tables(Protocol):
    """Knows the table versions by their ids. Called for each run of messages, in the order of the log.

    What a run has brought is taken over by `keep` alone: `begin` takes back what came since the last one.
    """

    def begin(self) -> None:
        """A run begins, which follows what was kept."""
        ...

    def keep(self) -> None:
        """What the run has brought is kept. Fails never."""
        ...

    def expect(self, announced: Sequence[pgoutput.Relation]) -> None:
        """The Relation messages of the run that begins."""
        ...

    def announce(self, relation: pgoutput.Relation, at: Moment, resent: bool) -> int:
        """The version that a Relation message announces, or `UNCAPTURED`; `resent`: not the session's first."""
        ...

    @property
    def has_held(self) -> bool:
        """Whether `is_due` may be true for any table."""
        ...

    def is_due(self, oid: int, xid: int) -> bool:
        """Whether a change of the transaction `xid` may be of another version, though no message announced it."""
        ...

    def review(self, oid: int, at: Moment) -> int:
        """The version of such a change and of those after it."""
        ...


@dataclass(slots=True)
class Run:
    """Messages as the indexer sees them: `relations` the oids of row messages, `transaction` the place of each in
    `transactions`, `changes` how many changes of its transaction stand before it, `end_lsn` the commits' end LSNs by
    their commit LSNs.
    """

    data: Bytes
    offsets: Int64s
    kinds: Bytes
    relations: npt.NDArray[np.uint32]
    transaction: Int64s
    transactions: Transactions
    changes: Int64s
    end_lsn: dict[int, int]

    def moment(self, message: int) -> Moment:
        """Where the message stands. Raises DecodeError when that is outside of transactions."""
        transaction = int(self.transaction[message])
        if transaction < 0:
            raise DecodeError("a Relation message outside of a transaction", int(self.offsets[message]))
        commit_lsn = int(self.transactions.commit_lsn[transaction])
        xid = int(self.transactions.xid[transaction])
        return Moment(xid, commit_lsn, self.end_lsn.get(commit_lsn, 0), int(self.changes[message]))


@dataclass(slots=True)
class Versions:
    """The versions in effect in one run: `current` by oid, those before it and at last those at its end.

    A new decoding session starts with none.
    """

    tables: Tables
    current: dict[int, int] = field(default_factory=dict)
    _before: dict[int, int] = field(default_factory=dict)
    _steps: list[tuple[int, int, int]] = field(default_factory=list)

    def assign(self, run: Run) -> Int32s:
        """The version of each message: the one that the last Relation message for its table before it announced."""
        kinds, relations = run.kinds, run.relations
        self._before, self._steps = dict(self.current), []
        version = np.full(len(kinds), UNCAPTURED, np.int32)
        announced = np.flatnonzero(kinds == _RELATION)
        is_row: npt.NDArray[np.bool_] = _IS_ROW[kinds]
        for oid in np.unique(relations[is_row]):
            known = self.current.get(int(oid))
            if known is None:
                first = int(np.flatnonzero(is_row & (relations == oid))[0])
                if not (relations[announced[announced < first]] == oid).any():
                    raise DecodeError(
                        f"a change of relation {oid}, which no Relation message announced", int(run.offsets[first])
                    )
            else:
                version[is_row & (relations == oid)] = known
        messages = [self._relation(run, int(place)) for place in announced]
        self.tables.expect(messages)
        since = 0
        for place, relation in zip(announced.tolist(), messages, strict=True):
            self._review(run, is_row, version, since, place)
            resent = relation.relation_id in self.current
            resolved = self.tables.announce(relation, run.moment(place), resent)
            self._set(run, is_row, version, place, relation.relation_id, resolved)
            since = place
        self._review(run, is_row, version, since, len(kinds))
        return version

    def at(self, oid: int, message: int) -> int:
        """The version of the table `oid` at a message of the run."""
        found = self._before.get(oid, UNCAPTURED)
        for place, table, version in self._steps:
            if table == oid and place <= message:
                found = version
        return found

    @staticmethod
    def _relation(run: Run, message: int) -> pgoutput.Relation:
        relation = pgoutput.parse(bytes(run.data[run.offsets[message] : run.offsets[message + 1]]))
        assert isinstance(relation, pgoutput.Relation)
        return relation

    def _set(
        self, run: Run, is_row: npt.NDArray[np.bool_], version: Int32s, message: int, oid: int, resolved: int
    ) -> None:
        """The changes of the table `oid` from the message on are of the version `resolved`."""
        later = is_row & (run.relations == oid)
        later[:message] = False
        version[later] = resolved
        self.current[oid] = resolved
        self._steps.append((message, oid, resolved))

    def _review(self, run: Run, is_row: npt.NDArray[np.bool_], version: Int32s, first: int, last: int) -> None:
        """Let tables have another version from a change in `[first, last)` on, without a Relation message."""
        if not self.tables.has_held:
            return
        rows = first + np.flatnonzero(is_row[first:last] & (version[first:last] != UNCAPTURED))
        if not len(rows):
            return
        # the first change of each table in each transaction
        keys = run.transaction[rows] << 32 | run.relations[rows]
        places = np.sort(np.unique(keys, return_index=True)[1])
        for message in rows[places].tolist():
            oid = int(run.relations[message])
            if self.tables.is_due(oid, int(run.transactions.xid[run.transaction[message]])):
                self._set(run, is_row, version, message, oid, self.tables.review(oid, run.moment(message)))
