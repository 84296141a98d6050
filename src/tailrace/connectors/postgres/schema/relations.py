"""Table versions from the Relation messages of the log. Planner, the reader's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tailrace.columns.table import Column, TableSchema
from tailrace.connectors.postgres.protocol.pgoutput import Relation
from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.schema.evolution import (
    CatalogState,
    Moment,
    evolve,
    has_doubtful_key,
    is_after,
    renumbered,
    retyped,
    rewritten,
)
from tailrace.connectors.postgres.schema.history import Attributes, SchemaHistory
from tailrace.errors import ConnectionFailed
from tailrace.process.runtime import THREADS, Runtime

log = logging.getLogger("tailrace")

UNCAPTURED = -1
# Seconds in which a transaction that has altered a table must become visible after its commit was read from the log.
# Until then the catalog is polled; after that the session ends with a retriable error.
UNSEEN_SECONDS = 5.0


@dataclass(slots=True)
class _Known:
    """The state of tables, by oid, and of enums at one point of the log."""

    current: dict[int, tuple[Relation, int]] = field(default_factory=dict)
    # The oldest transaction (32 bits) whose work on the table is not yet in the current version.
    held: dict[int, int] = field(default_factory=dict)
    # The next transaction id (32 bits) at the time when the catalog was read for the table.
    read_before: dict[int, int] = field(default_factory=dict)
    labels: dict[int, frozenset[tuple[int, str]]] = field(default_factory=dict)

    def copy(self) -> _Known:
        return _Known(dict(self.current), dict(self.held), dict(self.read_before), dict(self.labels))


class Relations:
    """Turns Relation messages into table versions, whose ids are places in `versions`.

    `captured(relation)` returns True for a captured table. `admit` returns the schema to use for a new version, or
    raises. `note` is called for each version with changes of rows. `by_name` is True if copies identify columns by name
    only. `use` is called before all other methods, and again for each new session.

    The catalog is read once for the messages of a run, and again while it does not yet show the alterations of a
    transaction that was read from the log. It is not read for messages whose result the history has.
    """

    def __init__(
        self,
        history: SchemaHistory,
        captured: Callable[[Relation], bool],
        admit: Callable[[TableSchema], TableSchema],
        runtime: Runtime = THREADS,
        *,
        by_name: bool = False,
        note: Callable[[TableSchema], None] = lambda _: None,
    ) -> None:
        self._runtime = runtime
        self._note = note
        # The versions that were noted.
        self._noted: set[int] = set()
        self._by_name = by_name
        self.history = history
        self.versions: list[TableSchema] = []
        self._captured = captured
        self._admit = admit
        self._catalog: Catalog | None = None
        self._present: dict[int, CatalogState] = {}
        self._expected: set[int] = set()
        self._known = _Known()
        self._told: set[str] = set()
        # The state at the last `keep` and the number of versions then; None if nothing has changed since.
        self._kept: tuple[_Known, int] | None = None

    def use(self, catalog: Catalog) -> None:
        """Read `catalog` from now on."""
        self._catalog = catalog

    def begin(self) -> None:
        """Begin a run, and discard the results of the previous run unless `keep` was called."""
        if self._kept is not None:
            self._known, count = self._kept
            del self.versions[count:]
            self._noted = {number for number in self._noted if number < count}
            self._kept = None
            self.history.discard()

    def keep(self) -> None:
        """Keep the results of the run."""
        self._kept = None
        self.history.keep()

    def _changing(self) -> None:
        """Save the kept state before the first change to it."""
        if self._kept is None:
            self._kept = self._known, len(self.versions)
            self._known = self._known.copy()

    def expect(self, announced: Sequence[Relation]) -> None:
        """Prepare for a run with these messages: the catalog is read anew for them."""
        self._present.clear()
        self._expected = {relation.relation_id for relation in announced if self._captured(relation)}
        self._watch_labels()

    def announce(self, relation: Relation, at: Moment, resent: bool) -> int:
        """Return the version id of the table that `relation` announces at `at`, or `UNCAPTURED`.

        The id is new if the table's schema has changed. With `resent` it is not the session's first Relation message
        for the table.
        """
        if not self._captured(relation):
            return UNCAPTURED
        self._changing()
        oid = relation.relation_id
        if self.history.is_decided(oid, at.place):
            attributes = self._decided(relation, at)
        else:
            attributes = self._decide(relation, at, resent)
        return self._version(relation, attributes)

    def changed(self, version: int) -> None:
        """Note that the run has changes of rows of the version's table."""
        if version not in self._noted:
            self._noted.add(version)
            self._note(self.versions[version])

    def is_due(self, oid: int, xid: int) -> bool:
        """Return True if the transaction `xid` is newer than work on the table that is not yet in its current version.

        No message announces such work: a new label of an enum, or late work of a transaction with an older id.
        """
        held = self._known.held.get(oid)
        return held is not None and is_after(xid, held)

    @property
    def has_held(self) -> bool:
        """True if `is_due` can be True for any table."""
        return bool(self._known.held)

    def review(self, oid: int, at: Moment) -> int:
        """Return the version id of a table for which `is_due` is True, from the change at `at` on."""
        self._changing()
        relation, _ = self._known.current[oid]
        if self.history.is_decided(oid, at.place):
            attributes = self._decided(relation, at)
        else:
            # Facts that the catalog showed at the last message, and that no message has announced since, precede this
            # change.
            before = self._known.read_before.get(oid)
            is_later = before is not None and is_after(at.xid, before - 1)
            attributes = self._decide(relation, at, resent=is_later)
        return self._version(relation, attributes)

    def _decided(self, relation: Relation, at: Moment) -> Attributes:
        """Return the attributes that were decided for a message seen before."""
        found = self.history.at(relation.relation_id, at.place)
        assert found is not None
        if [column.name for column in found.columns] == [column.name for column in relation.columns]:
            return found
        # The start position is inside a transaction that has altered the table. The transaction is read from its
        # beginning, and the history has the table at the position. Changes before the position are not delivered again.
        return evolve(relation, found, CatalogState(at.xid + 1, at.commit_lsn), at, resent=False)[0]

    def _decide(self, relation: Relation, at: Moment, resent: bool) -> Attributes:
        oid = relation.relation_id
        older = self.history.at(oid, at.place)
        present = self._read(relation, at)
        attributes, held = evolve(relation, older, present, at, resent)
        changed = retyped(older, attributes) if older is not None else []
        if changed:
            log.warning(
                "%s.%s was rewritten for the new type of its column %s: rows have the values that the statement "
                "computed (USING), which the log does not carry; remedy: read %s.%s by a snapshot "
                "(signal execute-snapshot)",
                relation.namespace, relation.name, ", ".join(changed), relation.namespace, relation.name,
            )  # fmt: skip
        elif older is not None:
            self._warn_of_values(relation, rewritten(older, attributes, present))
        other = renumbered(older, attributes) if older is not None and self._by_name else []
        if other:
            log.warning(
                "%s.%s has other columns by the names %s: swapped, or dropped and made again. Rows that are not "
                "written since keep the values of the earlier ones in copies; remedy: read %s.%s by a snapshot "
                "(signal execute-snapshot)",
                relation.namespace, relation.name, ", ".join(other), relation.namespace, relation.name,
            )  # fmt: skip
        if has_doubtful_key(attributes, relation, present):
            log.warning(
                "%s.%s: the unique index of its key (%s) was dropped, and the log does not tell when: rows that have "
                "been written with equal keys since then are one row in copies; remedy: give it a unique index again "
                "and read %s.%s by a snapshot (signal execute-snapshot), or leave it out of copies",
                relation.namespace, relation.name, ", ".join(attributes.key()), relation.namespace, relation.name,
            )  # fmt: skip
        self._known.read_before[oid] = present.next_xid & 0xFFFFFFFF
        self._known.held.pop(oid, None)
        if held:
            self._known.held[oid] = held
        self.history.add(oid, at.place, attributes)
        return attributes

    def _warn_of_values(self, relation: Relation, columns: Sequence[str]) -> None:
        text = (
            f"{relation.namespace}.{relation.name} was rewritten, perhaps with other values of its column "
            f"{', '.join(columns)} (ALTER … TYPE … USING, or another precision), which the log does not carry; remedy: "
            f"read {relation.namespace}.{relation.name} by a snapshot (signal execute-snapshot)"
        )
        if columns and text not in self._told:
            self._told.add(text)
            log.warning("%s", text)

    def _read(self, relation: Relation, at: Moment) -> CatalogState:
        """Return the catalog's present state of the table, with the alterations of the transaction at `at`.

        Raises ConnectionFailed if these stay invisible to other sessions for too long.
        """
        assert self._catalog is not None
        oid = relation.relation_id
        if oid not in self._present:
            self._present = self._catalog.present({oid, *self._expected})
        pause, waited = 0.001, 0.0
        while not self._present[oid].shows(at.xid):
            # in this order: a transaction in progress at the second query has held its locks at the first
            alters = self._catalog.alters(oid, at.xid)
            self._present = self._catalog.present({oid, *self._expected})
            if not alters or self._present[oid].shows(at.xid):
                break
            if waited > UNSEEN_SECONDS:
                raise ConnectionFailed(
                    f"The transaction {at.xid} has altered {relation.namespace}.{relation.name}: the log has its "
                    "commit, but no other session sees it yet.",
                    "It waits for a synchronous standby: see pg_stat_replication and synchronous_standby_names.",
                )
            self._runtime.sleep(pause)
            pause, waited = min(2 * pause, 0.25), waited + pause
        found = self._present[oid]
        self._catalog.add_types(found, (column.type_oid for column in relation.columns))
        return found

    def _version(self, relation: Relation, attributes: Attributes) -> int:
        assert self._catalog is not None
        known = self._known.current.get(relation.relation_id)
        version = self.versions[known[1]].version + 1 if known else 1
        schema = self._admit(self._catalog.streamed(relation, attributes, version))
        if known is not None and schema == replace(self.versions[known[1]], version=version):
            place = known[1]
        else:
            self.versions.append(schema)
            place = len(self.versions) - 1
            for kind in attributes.types:
                if kind.labels:
                    self._known.labels.setdefault(kind.oid, frozenset(kind.labels))
        self._known.current[relation.relation_id] = (relation, place)
        return place

    def _watch_labels(self) -> None:
        """Look for new labels of enums, which no message announces, and mark the tables that use them for review."""
        if not self._known.labels:
            return
        assert self._catalog is not None
        for oid, (labels, newest) in self._catalog.labels(list(self._known.labels)).items():
            if self._known.labels[oid] == labels:
                continue
            self._changing()
            self._known.labels[oid] = labels
            self._present.clear()
            for table, (_, place) in self._known.current.items():
                if any(_uses(column, oid) for column in self.versions[place].columns):
                    self._known.held.setdefault(table, newest)


def _uses(column: Column | None, oid: int) -> bool:
    while column is not None and column.type_oid != oid:
        column = column.element
    return column is not None
