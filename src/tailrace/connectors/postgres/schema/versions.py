"""Assignment of table versions to the changes of a run of messages. Planner, the reader's thread."""

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


class VersionedTables(Protocol):
    """The table versions by their ids. Called for each run of messages, in the order of the log.

    Only `keep` makes the results of a run permanent: `begin` discards the results since the last `keep`.
    """

    def begin(self) -> None:
        """Begin a run, which follows the last run that was kept."""
        ...

    def keep(self) -> None:
        """Keep the results of the run. Never fails."""
        ...

    def expect(self, announced: Sequence[pgoutput.Relation]) -> None:
        """Prepare for the Relation messages of the run that begins."""
        ...

    def announce(self, relation: pgoutput.Relation, at: Moment, resent: bool) -> int:
        """Return the version that a Relation message announces, or `UNCAPTURED`.

        With `resent` it is not the session's first Relation message for the table.
        """
        ...

    @property
    def has_held(self) -> bool:
        """True if `is_due` may be True for any table."""
        ...

    def is_due(self, oid: int, xid: int) -> bool:
        """Return True if a change of the transaction `xid` may have a table version that no message announced."""
        ...

    def review(self, oid: int, at: Moment) -> int:
        """Return the version of a change for which `is_due` is True, and of the table's later changes."""
        ...

    def changed(self, version: int) -> None:
        """Note that the run has changes of rows of the version's table."""
        ...


@dataclass(slots=True)
class MessageRun:
    """A run of messages, with their transactions.

    `relations` has the table's oid of each row message, `transaction` the place of each message's transaction in
    `transactions`, and `changes` the number of earlier changes in that transaction. `end_lsn` has the end LSNs of
    commits by commit LSN.
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
        """Return the moment of the message. Raises DecodeError if it is outside of transactions."""
        transaction = int(self.transaction[message])
        if transaction < 0:
            raise DecodeError("a Relation message outside of a transaction", int(self.offsets[message]))
        commit_lsn = int(self.transactions.commit_lsn[transaction])
        xid = int(self.transactions.xid[transaction])
        return Moment(xid, commit_lsn, self.end_lsn.get(commit_lsn, 0), int(self.changes[message]))


@dataclass(slots=True)
class Versions:
    """The table versions in effect in one run; `current` has them by oid, at first as before the run, then as at its
    end.

    A new decoding session starts with no version.
    """

    tables: VersionedTables
    current: dict[int, int] = field(default_factory=dict)
    _before: dict[int, int] = field(default_factory=dict)
    _steps: list[tuple[int, int, int]] = field(default_factory=list)

    def assign(self, run: MessageRun) -> Int32s:
        """Return the version of each message: the version that the last Relation message for its table announced."""
        kinds, relations = run.kinds, run.relations
        self._before, self._steps = dict(self.current), []
        version = np.full(len(kinds), UNCAPTURED, np.int32)
        announced = np.flatnonzero(kinds == _RELATION)
        is_row: npt.NDArray[np.bool_] = _IS_ROW[kinds]
        changed = np.unique(relations[is_row])
        for oid in changed:
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
        self._tell(set(changed.tolist()))
        return version

    def _tell(self, changed: set[int]) -> None:
        """Note the versions of the tables `changed`.

        Of a partition whose changes have the name of the partitioned table the server sends a Relation message alone.
        """
        found = {number for oid, number in self._before.items() if oid in changed}
        found.update(number for _, oid, number in self._steps if oid in changed)
        for number in found - {UNCAPTURED}:
            self.tables.changed(number)

    def at(self, oid: int, message: int) -> int:
        """Return the version of the table `oid` at a message of the run."""
        found = self._before.get(oid, UNCAPTURED)
        for place, table, version in self._steps:
            if table == oid and place <= message:
                found = version
        return found

    @staticmethod
    def _relation(run: MessageRun, message: int) -> pgoutput.Relation:
        relation = pgoutput.parse(bytes(run.data[run.offsets[message] : run.offsets[message + 1]]))
        assert isinstance(relation, pgoutput.Relation)
        return relation

    def _set(
        self, run: MessageRun, is_row: npt.NDArray[np.bool_], version: Int32s, message: int, oid: int, resolved: int
    ) -> None:
        """Assign the version `resolved` to the changes of the table `oid` from the message on."""
        later = is_row & (run.relations == oid)
        later[:message] = False
        version[later] = resolved
        self.current[oid] = resolved
        self._steps.append((message, oid, resolved))

    def _review(self, run: MessageRun, is_row: npt.NDArray[np.bool_], version: Int32s, first: int, last: int) -> None:
        """Assign new versions to tables from a change in `[first, last)` on, if due without a Relation message."""
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
