"""Table versions of a run are taken back when the run fails, and come again with the next run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.postgres.protocol.pgoutput import Relation, RelationColumn
from tailrace.connectors.postgres.protocol.position import LogPosition
from tailrace.connectors.postgres.schema.evolution import CatalogState, Moment, PresentColumn
from tailrace.connectors.postgres.schema.history import ColumnFacts as Facts
from tailrace.connectors.postgres.schema.history import SchemaHistory, StoredHistory
from tailrace.connectors.postgres.schema.relations import Relations
from tailrace.errors import ConnectionFailed
from tailrace.process.runtime import Threads

END = LogPosition(1 << 40, 1 << 40)


class Catalog:
    """A catalog of one table, which fails at its `failing`th query."""

    def __init__(self) -> None:
        self.asked = 0
        self.failing = -1
        # the work of a transaction that is newer than the messages
        self.default_xmin = 0
        # the number of queries that do not show the transaction 1000 yet, and what they do not show
        self.unseen = 0
        self.does_alter = True

    def ask(self) -> None:
        self.asked += 1
        if self.asked == self.failing:
            raise OSError("the connection is gone")

    def present(self, oids: Any) -> dict[int, CatalogState]:
        self.ask()
        default = PresentColumn(Facts(1, "a", default="1"), 23, -1, 3, self.default_xmin or None)
        added = PresentColumn(Facts(2, "b"), 23, -1, 3, None)
        if self.unseen:
            self.unseen -= 1
            return {oid: CatalogState(2000, 1 << 50, (default,), in_progress=frozenset({1000})) for oid in oids}
        return {oid: CatalogState(2000, 1 << 50, (default, added)) for oid in oids}

    def alters(self, oid: int, xid: int) -> bool:
        return self.does_alter

    def add_types(self, present: CatalogState, oids: Any) -> None:
        self.ask()

    def streamed(self, relation: Relation, attributes: Any, version: int) -> TableSchema:
        self.ask()
        columns = tuple(
            Column(sent.name, "int4", 23, -1, facts.nullable, facts.default)
            for sent, facts in zip(relation.columns, attributes.columns, strict=True)
        )
        return TableSchema(TableId("d", "s", "t"), columns, (), "d", relation.relation_id, version)


def relation(*names: str) -> Relation:
    return Relation(9, "s", "t", "d", tuple(RelationColumn(0, name, 23, -1) for name in names))


def run(one: Relations, commit_lsn: int, *sent: Relation) -> list[int]:
    """Return the versions that the messages announce, in one run of one transaction."""
    one.begin()
    one.expect(sent)
    return [one.announce(found, Moment(1000, commit_lsn, 0, place), place > 0) for place, found in enumerate(sent)]


def made() -> tuple[Relations, Catalog]:
    catalog: Any = Catalog()
    one = Relations(SchemaHistory(StoredHistory(), LogPosition()), lambda _: True, lambda schema: schema)
    one.use(catalog)
    assert run(one, 500, relation("a")) == [0]
    one.keep()
    return one, catalog


def state(one: Relations) -> Any:
    return list(one.versions), one.history.upto(LogPosition(), END), one._known, one.history._decided


@pytest.mark.parametrize("failing", range(1, 5))
def test_a_catalog_that_fails_leaves_everything_as_it_was(failing: int) -> None:
    sound, _ = made()
    expected = run(sound, 600, relation("a", "b"), relation("a"), relation("b", "a"))
    sound.keep()
    one, catalog = made()
    before = state(one)
    before = (*before[:2], before[2].copy(), dict(before[3]))
    catalog.failing = catalog.asked + failing
    with pytest.raises(OSError, match="gone"):
        run(one, 600, relation("a", "b"), relation("a"), relation("b", "a"))
    one.begin()
    assert state(one) == before
    assert run(one, 600, relation("a", "b"), relation("a"), relation("b", "a")) == expected
    one.keep()
    assert state(one) == state(sound)


def test_a_run_that_was_not_kept_is_forgotten_by_the_next() -> None:
    one, _ = made()
    before = (list(one.versions), one.history.upto(LogPosition(), END))
    run(one, 600, relation("a", "b"))
    assert len(one.versions) == 2
    one.begin()
    assert (one.versions, one.history.upto(LogPosition(), END)) == before
    assert run(one, 600, relation("b")) == [1]
    assert one.versions[1] == replace(one.versions[1], columns=(Column("b", "int4", 23),), version=2)


def test_work_that_was_held_back_is_still_due_after_the_message_came_again() -> None:
    one, catalog = made()
    # the default is newer than the message: it takes effect with a later transaction
    catalog.default_xmin = 1500
    run(one, 600, relation("a", "b"))
    one.keep()
    assert one.is_due(9, 1600)
    # another session sends the same message again
    run(one, 600, relation("a", "b"))
    one.keep()
    assert one.is_due(9, 1600)


@pytest.mark.parametrize(("before", "after"), [(("a",), ("b",)), (("a",), ("a", "b")), (("b", "a"), ("a",))])
@pytest.mark.parametrize("restarts", [True, False])
def test_a_transaction_that_alters_a_table_is_read_again_from_its_beginning(
    before: tuple[str, ...], after: tuple[str, ...], restarts: bool
) -> None:
    """A query may start at the end of a batch inside the transaction: its first messages are older than the history."""
    one, _ = made()
    assert run(one, 600, relation(*before), relation(*after))
    one.keep()
    position = LogPosition(600, 500, consumed=2)
    history = one.history.upto(LogPosition(), position)
    one.history.forget(position)
    if restarts:
        catalog: Any = Catalog()
        one = Relations(SchemaHistory(history, position), lambda _: True, lambda schema: schema)
        one.use(catalog)
    versions = run(one, 600, relation(*before), relation(*after))
    assert [tuple(column.name for column in one.versions[version].columns) for version in versions] == [before, after]
    one.keep()
    assert one.history.upto(position, END).tables == history.tables


class Clock(Threads):
    """A clock whose `sleep` returns at once."""

    def __init__(self) -> None:
        self.slept = 0.0

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def test_a_transaction_that_is_not_over_for_others_is_waited_for() -> None:
    # the transaction has added the column b, which the catalog does not have before it shows the transaction
    catalog, clock = Catalog(), Clock()
    catalog.unseen = 3
    one = Relations(SchemaHistory(StoredHistory(), LogPosition()), lambda _: True, lambda schema: schema, clock)
    one.use(catalog)  # type: ignore[arg-type]
    assert run(one, 500, relation("a", "b")) == [0]
    assert [column.number for column in one.history.at(9, (500, 0)).columns] == [1, 2]  # type: ignore[union-attr]
    assert catalog.unseen == 0
    assert clock.slept > 0


def test_a_transaction_that_others_never_see_ends_the_session() -> None:
    catalog, clock = Catalog(), Clock()
    catalog.unseen = 1 << 30
    one = Relations(SchemaHistory(StoredHistory(), LogPosition()), lambda _: True, lambda schema: schema, clock)
    one.use(catalog)  # type: ignore[arg-type]
    with pytest.raises(ConnectionFailed, match="transaction 1000"):
        run(one, 500, relation("a", "b"))
    assert 5 < clock.slept < 6


def test_a_transaction_that_has_altered_nothing_is_not_waited_for() -> None:
    catalog, clock = Catalog(), Clock()
    catalog.unseen, catalog.does_alter = 1 << 30, False
    one = Relations(SchemaHistory(StoredHistory(), LogPosition()), lambda _: True, lambda schema: schema, clock)
    one.use(catalog)  # type: ignore[arg-type]
    assert run(one, 500, relation("a")) == [0]
    assert clock.slept == 0
