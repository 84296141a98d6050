"""Facts about tables that the log does not carry: read from the catalog, kept by position, written into offsets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tailrace.connectors.postgres.protocol.pgoutput import Relation, RelationColumn
from tailrace.connectors.postgres.protocol.position import LogPosition
from tailrace.connectors.postgres.schema.evolution import (
    CatalogState,
    Moment,
    PresentColumn,
    PresentIndex,
    PresentType,
    evolve,
    has_doubtful_key,
    is_after,
    retyped,
)
from tailrace.connectors.postgres.schema.history import (
    Attributes,
    Change,
    ColumnFacts,
    IndexFacts,
    SchemaHistory,
    StoredHistory,
    TypeFacts,
)

INT = 23


def table(*columns: ColumnFacts, indexes: tuple[IndexFacts, ...] = ()) -> Attributes:
    return Attributes(columns, indexes)


def relation(*names: str, key: tuple[str, ...] = (), identity: str = "d") -> Relation:
    columns = tuple(RelationColumn(int(name in key), name, INT, -1) for name in names)
    return Relation(9, "s", "t", identity, columns)


def shown(number: int, name: str, xmin: int, default_xmin: int | None = None, **facts: Any) -> PresentColumn:
    return PresentColumn(ColumnFacts(number, name, **facts), INT, -1, xmin, default_xmin)


def at(xid: int, end_lsn: int = 0) -> Moment:
    return Moment(xid, 1000, end_lsn, 0)


def evolved(
    sent: Relation, older: Attributes | None, present: CatalogState, moment: Moment, resent: bool = True
) -> Any:
    return evolve(sent, older, present, moment, resent)[0]


OLD = table(ColumnFacts(1, "a", nullable=True, default="1"))


@pytest.mark.parametrize(
    ("next_xid", "xmin", "xid", "newer"),
    [
        (200, 100, 110, False),
        (200, 120, 110, True),
        (200, 110, 110, False),
        # the counter of ids has wrapped between the two
        ((1 << 32) + 50, 20, (1 << 32) - 10, True),
        ((1 << 32) + 50, (1 << 32) - 20, 10, False),
        # reserved ids, or raw ids of frozen rows
        (200, 2, 1, False),
        (200, 1, 1, False),
        ((1 << 32) + 200, (1 << 31) + 5, 110, False),
        # the id of the transaction itself does not count as assigned yet
        (200, 199, 200, False),
        (200, 199, 201, False),
        ((1 << 32), (1 << 32) - 1, 0, False),
    ],
)
def test_a_row_of_the_catalog_counts_when_its_transaction_is_not_newer(
    next_xid: int, xmin: int, xid: int, newer: bool
) -> None:
    present = CatalogState(next_xid, 5000, (shown(1, "a", xmin, xmin, nullable=False, default="2"),))
    found = evolved(relation("a"), OLD, present, at(xid & 0xFFFFFFFF))
    assert (found.columns[0].nullable, found.columns[0].default) == ((True, "1") if newer else (False, "2"))


@pytest.mark.parametrize(
    ("next_xid", "in_progress", "xid", "is_shown"),
    [
        (200, (), 199, True),
        (200, (), 200, False),
        (200, (150, 199), 199, False),
        (200, (150,), 199, True),
        ((1 << 32) + 5, (), 5, False),
        ((1 << 32) + 5, (), 4, True),
        ((1 << 32) + 5, ((1 << 32) - 1,), (1 << 32) - 1, False),
        ((1 << 32) + 5, (), (1 << 32) - 1, True),
    ],
)
def test_the_catalog_shows_a_transaction_that_is_over(
    next_xid: int, in_progress: tuple[int, ...], xid: int, is_shown: bool
) -> None:
    assert CatalogState(next_xid, 5000, in_progress=frozenset(in_progress)).shows(xid) is is_shown


def test_nothing_is_newer_when_nothing_was_committed_since() -> None:
    present = CatalogState(200, 5000, (shown(1, "a", 120, 120, nullable=False, default="2"),))
    assert not evolved(relation("a"), OLD, present, at(110, end_lsn=5000)).columns[0].nullable
    assert evolved(relation("a"), OLD, present, at(110, end_lsn=4900)).columns[0].nullable


def test_the_oldest_work_that_was_held_back_is_told() -> None:
    present = CatalogState(200, 5000, (shown(1, "a", 130, 120, nullable=False, default="2"),))
    assert evolve(relation("a"), OLD, present, at(110), resent=True)[1] == 120
    assert evolve(relation("a"), OLD, present, at(140), resent=True)[1] == 0


def test_a_column_that_was_renamed_since_keeps_what_was_known_of_it() -> None:
    present = CatalogState(
        200, 5000, (shown(1, "a", 10), shown(2, "c", 150, nullable=False, default="9", default_xmin=150))
    )
    older = table(ColumnFacts(1, "a"), ColumnFacts(2, "b", default="5"))
    found = evolved(relation("a", "b"), older, present, at(110))
    assert found.columns == (ColumnFacts(1, "a"), ColumnFacts(2, "b", default="5"))
    # and a column that was renamed twice, the first time before
    found = evolved(relation("a", "bee"), older, present, at(110))
    assert found.columns[1] == ColumnFacts(2, "bee", default="5")


def test_a_column_that_was_dropped_since_keeps_what_was_known_of_it() -> None:
    present = CatalogState(200, 5000, (shown(1, "a", 10),))
    older = table(ColumnFacts(1, "a"), ColumnFacts(2, "b", nullable=False, default="5"))
    assert evolved(relation("a", "b"), older, present, at(110)).columns == older.columns


def test_a_column_that_came_again_under_its_name_is_another_one() -> None:
    columns = (shown(1, "a", 10), shown(3, "b", 105, nullable=False))
    present = CatalogState(200, 5000, columns, dropped=((2, 105),))
    older = table(ColumnFacts(1, "a"), ColumnFacts(2, "b", default="5"))
    assert evolved(relation("a", "b"), older, present, at(110)).columns[1] == ColumnFacts(3, "b", nullable=False)
    assert evolved(relation("a", "b"), older, present, at(104)).columns[1] == ColumnFacts(2, "b", default="5")


def test_a_column_that_was_new_and_dropped_since_is_not_the_next_one_of_its_name() -> None:
    columns = (shown(1, "a", 150), shown(3, "b", 150))
    present = CatalogState(200, 5000, columns, dropped=((2, 140),))
    found = evolved(relation("a", "b"), table(ColumnFacts(1, "a")), present, at(110))
    assert [column.number for column in found.columns] == [1, 2]
    found = evolved(relation("a", "b"), found, present, at(160))
    assert [column.number for column in found.columns] == [1, 3]
    # swapped names: the column b of that time is c now
    present = CatalogState(200, 5000, (shown(1, "b", 150), shown(2, "c", 150)))
    found = evolved(relation("a", "b"), None, present, at(110))
    assert [column.number for column in found.columns] == [1, 2]


def test_a_column_that_is_not_published_is_not_counted() -> None:
    present = CatalogState(200, 5000, (shown(1, "a", 10), shown(2, "hidden", 10), shown(3, "b", 10)))
    found = evolved(relation("a", "b"), None, present, at(110))
    assert [column.number for column in found.columns] == [1, 3]


def test_what_nobody_knows_is_nullable_and_flagged_keys_are_not() -> None:
    gone = CatalogState(200, 5000)
    found = evolved(relation("k", "v", "w", key=("v",)), None, gone, at(110))
    assert [(column.nullable, column.default) for column in found.columns] == [
        (True, None),
        (False, None),
        (True, None),
    ]
    assert found.key() == ("v",)


def test_the_primary_key_is_the_one_that_the_message_flags() -> None:
    columns = (shown(1, "a", 10, nullable=False), shown(2, "b", 10, nullable=False))
    newer = PresentIndex(IndexFacts(50, True, (2, 1)), 150)
    older = table(ColumnFacts(1, "a", False), ColumnFacts(2, "b", False), indexes=(IndexFacts(40, True, (1,)),))
    present = CatalogState(200, 5000, columns, (newer,))
    assert evolved(relation("a", "b", key=("a",)), older, present, at(110)).key() == ("a",)
    assert evolved(relation("a", "b"), older, present, at(110)).key() == ()
    assert evolved(relation("a", "b", key=("a", "b")), older, present, at(160)).key() == ("b", "a")
    # other identities flag other columns: the index itself decides
    full = relation("a", "b", key=("a", "b"), identity="f")
    assert evolved(full, older, present, at(110), resent=False).key() == ("a",)
    assert evolved(full, older, present, at(110), resent=True).key() == ()
    assert evolved(full, older, present, at(160)).key() == ("b", "a")
    # a table has one primary key: the present one was made after the known one was dropped
    assert evolved(full, older, present, at(160), resent=False).key() == ("b", "a")


def test_a_key_is_in_doubt_if_its_index_was_dropped_at_an_unknown_moment() -> None:
    full = relation("a", "b", key=("a", "b"), identity="f")
    columns = (shown(1, "a", 10), shown(2, "b", 10))
    older = table(ColumnFacts(1, "a"), ColumnFacts(2, "b"), indexes=(IndexFacts(40, True, (1,)),))

    def is_in_doubt(sent: Relation, *indexes: PresentIndex, resent: bool = False) -> bool:
        present = CatalogState(200, 5000, columns, indexes)
        return has_doubtful_key(evolved(sent, older, present, at(110), resent), sent, present)

    assert is_in_doubt(full)
    assert is_in_doubt(full, PresentIndex(IndexFacts(50, False, (2,)), 150))
    # dropped before the message
    assert not is_in_doubt(full, resent=True)
    # replaced by an equal one, as REINDEX CONCURRENTLY does
    assert not is_in_doubt(full, PresentIndex(IndexFacts(50, True, (1,)), 150))
    # the message itself tells the primary key
    assert not is_in_doubt(relation("a", "b", key=("a",)))


def test_labels_that_are_newer_are_left_out_and_renamed_ones_keep_their_names() -> None:
    oid = 20000
    sent = Relation(9, "s", "t", "d", (RelationColumn(0, "m", oid, -1),))

    def facts(*labels: tuple[int, str]) -> TypeFacts:
        return TypeFacts(oid, "mood", "e", "E", 0, 0, -1, False, labels)

    present = CatalogState(
        200,
        5000,
        (PresentColumn(ColumnFacts(1, "m"), oid, -1, 10, None),),
        types={oid: PresentType(facts((1, "low"), (3, "mid"), (2, "fine"), (4, "new")), 10, (150, 105, 10, 160))},
    )
    older = Attributes((ColumnFacts(1, "m"),), (), (facts((1, "sad"), (2, "fine")),))
    (found,) = evolved(sent, older, present, at(110)).types
    assert [label for _, label in found.labels] == ["sad", "mid", "fine"]


def test_is_after_goes_round_the_end_of_the_counter() -> None:
    assert is_after(5, 0xFFFFFFF0)
    assert not is_after(0xFFFFFFF0, 5)
    assert not is_after(7, 7)


A, B, C = (table(ColumnFacts(1, name)) for name in "abc")


def test_the_history_of_an_offset_is_that_of_its_position() -> None:
    history = SchemaHistory(StoredHistory(((1, A),)), LogPosition(100, 110))
    history.add(1, (200, 0), A)
    history.add(1, (200, 5), B)
    history.add(2, (300, 0), C)
    start = LogPosition(100, 110)
    cut = LogPosition(200, 110, consumed=5)
    assert history.upto(start, cut) == StoredHistory(((1, A),))
    after = LogPosition(200, 110, consumed=6)
    assert history.upto(start, after) == StoredHistory(((1, B),), (Change((200, 5), 1, B),))
    assert history.upto(after, LogPosition(300, 310)) == StoredHistory(((1, B), (2, C)), (Change((300, 0), 2, C),))
    assert [history.at(1, place) for place in ((150, 0), (200, 4), (200, 5), (900, 0))] == [A, A, B, B]
    history.forget(after)
    assert history.upto(after, LogPosition(300, 310)) == StoredHistory(((1, B), (2, C)), (Change((300, 0), 2, C),))


def test_what_was_decided_once_is_not_decided_again() -> None:
    start, end = LogPosition(100, 110), LogPosition(300, 310)
    history = SchemaHistory(StoredHistory(((1, A),)), start, (StoredHistory(((1, B),), (Change((200, 5), 1, B),)), end))
    assert history.is_decided(1, (200, 4))
    assert history.at(1, (200, 4)) == A
    assert history.is_decided(1, (300, 7))
    assert history.at(1, (300, 7)) == B
    assert not history.is_decided(1, (301, 0))
    # nothing is decided for a table that is in no offset
    assert not history.is_decided(2, (200, 0))
    history.add(1, (301, 0), C)
    assert history.is_decided(1, (301, 0))
    assert not history.is_decided(1, (301, 1))


def wide(tables: int, columns: int) -> StoredHistory:
    return StoredHistory(
        tuple(
            (
                16384 + place,
                table(
                    *(
                        ColumnFacts(number, f"{'abcdefgh'[number % 8]}_value_{place * number % 97}", number > 3,
                                    f"nextval('t{place}_seq'::regclass)" if number == 1 else None)
                        for number in range(1, columns + 1)
                    ),
                    indexes=(IndexFacts(90000 + place, True, (1,)),),
                ),
            )
            for place in range(tables)
        )
    )  # fmt: skip


def test_the_text_of_a_history_is_read_back_and_small() -> None:
    small = StoredHistory(((1, A),), (Change((200, 5), 1, B),))
    assert small.to_text().startswith("{")
    assert StoredHistory.from_text(small.to_text()) == small
    large = wide(200, 30)
    assert StoredHistory.from_text(large.to_text()) == large
    assert len(large.to_text()) < 40_000
    enum = Attributes(
        (ColumnFacts(1, "é", False, "'x'::text", True, "a comment"), ColumnFacts(-2, "b", comment="c")),
        (IndexFacts(7, False, (2, 1)),),
        (TypeFacts(20000, "mood", "e", "E", 0, 0, -1, True, ((1, "sad"), (2, "fine"))),),
    )
    assert StoredHistory.from_text(StoredHistory(((5, enum),)).to_text()) == StoredHistory(((5, enum),))


def test_a_column_that_is_gone_does_not_take_the_number_of_one_that_came_later() -> None:
    """`b` (2) is gone and `c` (3) was added when the catalog is asked about a message between the two."""
    of_a = shown(1, "a", 90, 90, default="1")
    later = CatalogState(200, 5000, (of_a, shown(3, "c", 150, 150, default="3")))
    found = evolved(relation("a", "b"), OLD, later, at(120))
    assert [(column.number > 0, column.default) for column in found.columns] == [(True, "1"), (False, None)]
    both = evolved(relation("a", "b", "c"), found, later, at(150))
    assert [(column.name, column.default) for column in both.columns] == [("a", "1"), ("b", None), ("c", "3")]


def test_what_the_catalog_shows_of_the_moment_goes_before_a_guess() -> None:
    """Without a default `c` may have been `b` before: the message that has both shows that it was not."""
    present = CatalogState(200, 5000, (shown(1, "a", 90, 90, default="1"), shown(3, "c", 150, nullable=False)))
    guessed = evolved(relation("a", "b"), OLD, present, at(120))
    assert guessed.columns[1].number == 3
    both = evolved(relation("a", "b", "c"), guessed, present, at(150))
    assert [(column.name, column.number, column.nullable) for column in both.columns][1:] == [
        ("b", both.columns[1].number, True),
        ("c", 3, False),
    ]
    assert both.columns[1].number < 0


def test_a_column_with_a_default_that_was_renamed_later_keeps_its_number() -> None:
    present = CatalogState(200, 5000, (shown(1, "a", 90, 90, default="1"), shown(3, "c", 150, 100, default="3")))
    found = evolved(relation("a", "b"), OLD, present, at(120))
    assert [(column.name, column.number, column.default) for column in found.columns][1] == ("b", 3, "3")


# One state of the catalog: a column `v` that the transaction 110 has dropped, and another one added much later.
V_DROPPED = CatalogState(
    200,
    5000,
    (
        shown(1, "a", 10),
        shown(3, "renamed", 150),
        shown(4, "d", 160),
        shown(5, "later", 170, 170, nullable=False, default="230"),
    ),
    dropped=((2, 110),),
)


@pytest.mark.parametrize(
    ("known", "sent", "numbers"),
    [
        (("a", "v", "w"), ("a", "v", "w", "d"), [1, 2, 3, 4]),
        # this message and the one before follow the statement that drops the column
        (("a", "v", "w"), ("a", "w", "d"), [1, 3, 4]),
        (("a", "", "w"), ("a", "w", "d"), [1, 3, 4]),
    ],
)
def test_a_column_that_the_transaction_itself_drops_is_there_until_then(
    known: tuple[str, ...], sent: tuple[str, ...], numbers: list[int]
) -> None:
    older = table(*(ColumnFacts(place, name) for place, name in enumerate(known, 1) if name))
    found = evolved(relation(*sent), older, V_DROPPED, at(110))
    assert found.columns == tuple(ColumnFacts(number, name) for number, name in zip(numbers, sent, strict=True))


def test_a_column_that_one_transaction_makes_and_drops_is_not_one_that_came_later() -> None:
    columns = (shown(1, "a", 10), shown(3, "c", 150, 150, nullable=False, default="9"))
    present = CatalogState(200, 5000, columns, dropped=((2, 110),))
    found = evolved(relation("a", "b"), table(ColumnFacts(1, "a")), present, at(110))
    assert [(column.name, column.nullable, column.default) for column in found.columns][1] == ("b", True, None)


def test_a_transaction_with_an_older_id_that_writes_late_does_not_see_a_dropped_column_again() -> None:
    """The transaction 120 has dropped `b`; later changes of the transaction 110 are without `b`."""
    present = CatalogState(200, 5000, (shown(1, "a", 10), shown(3, "c", 120, 120, default="9")), dropped=((2, 120),))
    older = table(ColumnFacts(1, "a"), ColumnFacts(3, "c", default="9"))
    assert evolved(relation("a", "c"), older, present, at(110)).columns == older.columns


def test_columns_that_have_changed_names_with_each_other_are_told_apart_by_their_places() -> None:
    """`v` became `w` and `w` became `v`; later `w` got another type, and `v` was dropped."""
    columns = (shown(1, "a", 10), shown(2, "w", 150), shown(4, "d", 10), shown(5, "v", 170, 170, default="5"))
    present = CatalogState(200, 5000, columns, dropped=((3, 160),))
    older = table(*(ColumnFacts(place, name) for place, name in enumerate(("a", "v", "w", "d"), 1)))
    found = evolved(relation("a", "w", "v", "d"), older, present, at(120))
    assert [(column.name, column.number) for column in found.columns] == [("a", 1), ("w", 2), ("v", 3), ("d", 4)]


def numbers(found: Attributes) -> list[int]:
    return [column.number for column in found.columns]


@pytest.mark.parametrize("hidden", [False, True], ids=["all sent", "one not sent"])
def test_names_that_a_transaction_swaps_are_told_apart_by_their_places(hidden: bool) -> None:
    """Writes before and after the swap of `a` and `b`, in the transaction 110 that swaps them."""
    generated = (shown(4, "g", 10, generated=True),) if hidden else ()
    unsent = (shown(5, "u", 10),) if hidden else ()
    present = CatalogState(200, 5000, (shown(1, "id", 10), shown(2, "b", 110), shown(3, "a", 110), *generated, *unsent))
    older = table(*(ColumnFacts(place, name) for place, name in enumerate(("id", "a", "b"), 1)))
    first = evolved(relation("id", "a", "b"), older, present, at(110))
    assert numbers(first) == [1, 2, 3]
    second = evolved(relation("id", "b", "a"), first, present, at(110))
    assert numbers(second) == [1, 2, 3]
    # a later transaction has the catalog's columns
    assert numbers(evolved(relation("id", "b", "a"), second, present, at(120))) == [1, 2, 3]


def test_a_column_that_a_transaction_drops_and_makes_again_is_another_one() -> None:
    """Writes before and after `drop a, add a`, in the transaction 110 that does it."""
    present = CatalogState(200, 5000, (shown(1, "id", 10), shown(3, "b", 10), shown(4, "a", 110)), dropped=((2, 110),))
    older = table(*(ColumnFacts(place, name) for place, name in enumerate(("id", "a", "b"), 1)))
    first = evolved(relation("id", "a", "b"), older, present, at(110))
    assert numbers(first) == [1, 2, 3]
    second = evolved(relation("id", "b", "a"), first, present, at(110))
    assert numbers(second) == [1, 3, 4]


def test_a_column_that_a_transaction_renames_keeps_its_number() -> None:
    """Writes before and after the renaming of `a` to `x`, with a new column `a` beside it."""
    present = CatalogState(200, 5000, (shown(1, "id", 10), shown(2, "x", 110), shown(3, "a", 110, 110, default="1")))
    older = table(ColumnFacts(1, "id"), ColumnFacts(2, "a"))
    first = evolved(relation("id", "a"), older, present, at(110))
    assert numbers(first) == [1, 2]
    second = evolved(relation("id", "x"), first, present, at(110))
    assert numbers(second) == [1, 2]
    assert numbers(evolved(relation("id", "x", "a"), second, present, at(110))) == [1, 2, 3]


def filled(found: Attributes) -> list[str]:
    return [column.name for column in found.columns if column.filled]


def test_a_column_that_came_with_a_value_is_known_though_its_default_is_gone() -> None:
    """The value is known by NOT NULL, or from the catalog; or the table was rewritten for it."""
    columns = (shown(1, "a", 10), shown(2, "b", 105, filled=True), shown(3, "c", 105))
    older = Attributes((ColumnFacts(1, "a"),), file=7, highest=1)
    assert filled(evolved(relation("a", "b", "c"), older, CatalogState(200, 5000, columns, file=7), at(110))) == ["b"]
    anew = CatalogState(200, 5000, columns, file=8, xmin=105)
    assert filled(evolved(relation("a", "b", "c"), older, anew, at(110))) == ["b", "c"]
    # a later statement has made the file, as a truncate does
    later = CatalogState(200, 5000, columns, file=8, xmin=107)
    assert filled(evolved(relation("a", "b", "c"), older, later, at(110))) == ["b"]
    # unless that statement has added another column
    more = CatalogState(200, 5000, (*columns, shown(4, "d", 107)), file=8, xmin=107)
    assert filled(evolved(relation("a", "b", "c", "d"), older, more, at(110))) == ["b", "c", "d"]


def test_a_table_that_was_written_anew_for_another_type_has_no_values_in_a_new_column() -> None:
    """A new type explains the new file; a warning names its column."""
    older = Attributes((ColumnFacts(1, "a"),), file=7, highest=1, kinds=(20,))
    found = evolved(
        relation("a", "c"), older, CatalogState(200, 5000, (shown(1, "a", 105), shown(2, "c", 105)), file=8), at(110)
    )
    assert filled(found) == []
    assert retyped(older, found) == ["a"]
    assert retyped(replace(older, kinds=(INT,)), found) == []
    assert retyped(replace(older, file=8), found) == []
    assert retyped(replace(older, past_file=6), replace(found, file=7)) == ["a"]


def test_a_past_file_is_kept_once_the_catalog_cannot_show_that_of_a_later_statement() -> None:
    """A change before the statement that rewrites a table arrives when the catalog already shows the new file."""
    older = Attributes((ColumnFacts(1, "a"),), file=7, highest=1, kinds=(INT,), past_file=7)
    present = CatalogState(200, 5000, (shown(1, "a", 105),), file=8, xmin=105)
    found = [evolve(relation("a"), older, present, at(xid), resent=xid == 110)[0] for xid in (104, 105, 110)]
    assert [(one.file, one.past_file) for one in found] == [(8, 7), (8, 7), (8, 8)]
    assert Attributes.from_json(json.loads(json.dumps(found[0].to_json()))) == found[0]
    retold = evolve(relation("a"), replace(found[0], kinds=(20,)), present, at(106), resent=True)[0]
    assert retold.past_file == 8


def test_a_column_that_came_with_a_new_file_is_known_though_an_earlier_message_has_shown_the_file() -> None:
    """A generated column is added, and its expression dropped, before the catalog is read for the first time."""
    older = Attributes((ColumnFacts(1, "a"),), file=7, highest=1)
    present = CatalogState(200, 5000, (shown(1, "a", 10), shown(2, "g", 108)), file=8, xmin=108)
    first = evolve(relation("a"), older, present, at(105), resent=True)[0]
    assert (first.file, first.past_file) == (8, 7)
    assert filled(evolve(relation("a", "g"), first, present, at(110), resent=True)[0]) == ["g"]
    # unless the file comes from another type that the log has yet to bring
    retyped_later = replace(present, columns=(replace(present.columns[0], type_oid=20), present.columns[1]))
    assert filled(evolve(relation("a", "g"), first, retyped_later, at(110), resent=True)[0]) == []


@pytest.mark.parametrize(("file", "found"), [(8, ["g"]), (9, [])])
def test_a_column_that_came_before_the_first_look_is_known_by_a_file_that_is_not_the_tables_first(
    file: int, found: list[str]
) -> None:
    """A table is made, gets a generated column, and loses its expression, before the catalog is read."""
    present = CatalogState(200, 5000, (shown(1, "a", 101), shown(2, "g", 108)), file=file, xmin=108)
    first = evolve(relation("a"), None, present, at(105), resent=True)[0]
    assert filled(first) == []
    assert filled(evolve(relation("a", "g"), first, present, at(110), resent=True)[0]) == found


def test_a_column_was_there_if_nobody_has_written_the_tables_row_since() -> None:
    """The expression of a generated column is dropped after the message, which writes the row of the column alone."""
    present = CatalogState(200, 5000, (shown(1, "a", 101), shown(2, "g", 108)), file=8, xmin=103)
    before = evolve(relation("a"), None, present, at(105), resent=True)[0]
    assert before.highest == 2
    assert filled(evolve(relation("a", "g"), before, present, at(110), resent=True)[0]) == ["g"]
    assert evolve(relation("a"), None, replace(present, xmin=107), at(105), resent=True)[0].highest == 1


def test_a_new_file_that_another_type_explains_explains_no_new_column_after_it() -> None:
    """The catalog shows both alterations when the log brings the first one."""
    older = Attributes((ColumnFacts(1, "a"),), file=7, highest=1, kinds=(20,), past_file=7)
    present = CatalogState(200, 5000, (shown(1, "a", 105), shown(2, "c", 107)), file=8, xmin=107)
    first = evolve(relation("a"), older, present, at(106), resent=True)[0]
    assert (first.past_file, retyped(older, first)) == (8, ["a"])
    assert filled(evolve(relation("a", "c"), first, present, at(108), resent=True)[0]) == []


def test_a_column_that_was_there_before_it_was_published_has_values() -> None:
    columns = (shown(1, "a", 10), shown(2, "hidden", 10), shown(3, "new", 105))
    older = Attributes((ColumnFacts(1, "a"),), file=7, highest=2)
    found = evolved(relation("a", "hidden", "new"), older, CatalogState(200, 5000, columns, file=7), at(110))
    assert filled(found) == ["hidden"]
    # and a column that was generated
    older = Attributes((ColumnFacts(1, "a"), ColumnFacts(2, "g", generated=True)), file=7, highest=2)
    present = CatalogState(200, 5000, (shown(1, "a", 10), shown(2, "g", 105)), file=7)
    assert filled(evolved(relation("a", "g"), older, present, at(110))) == ["g"]
