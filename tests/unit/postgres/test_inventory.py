"""Events of captured tables since a query's last look that the log does not tell."""

from __future__ import annotations

import json

import pytest

from tailrace.connectors.postgres.schema.inventory import Inventory, differences

BEFORE = Inventory(7, 100, ((10, "public.a", ()), (11, "public.p", (("public.p_1", 21), ("public.p_2", 22)))))


def told(now: Inventory, names: dict[int, str], filled: bool = True, for_all: bool = False) -> list[str]:
    return list(differences(BEFORE, now, names, lambda oid: filled, for_all))


def test_nothing_is_told_where_nothing_has_changed() -> None:
    assert told(BEFORE, {10: "public.a", 11: "public.p"}) == []
    assert list(differences(Inventory(), BEFORE, {}, lambda oid: True, False)) == []


def test_a_table_that_is_gone_or_called_otherwise_is_told() -> None:
    (gone,) = told(Inventory(7, 100, BEFORE.tables[1:]), {11: "public.p"})
    assert gone.startswith("public.a was dropped")
    renamed = Inventory(7, 100, ((10, "public.b", ()), BEFORE.tables[1]))
    (text,) = told(renamed, {10: "public.b", 11: "public.p"})
    assert text.startswith("public.a is called public.b now")
    assert "read public.b by a snapshot" in text
    (text,) = told(Inventory(7, 100, BEFORE.tables[1:]), {10: "other.a", 11: "public.p"})
    assert "let the lists capture other.a" in text
    (text,) = told(Inventory(7, 100, BEFORE.tables[1:]), {10: "public.a", 11: "public.p"})
    assert text.startswith("no change of public.a arrives any more")


def test_a_table_that_had_another_name_for_a_while_is_told_of_under_each() -> None:
    seen = BEFORE.with_seen({(10, "public.a"), (10, "public.b"), (12, "public.c")})
    assert Inventory.from_json(json.loads(json.dumps(seen.to_json()))) == seen
    now = Inventory(7, 100, ((10, "other.b", ()), BEFORE.tables[1]))
    found = list(differences(seen, now, {10: "other.b", 11: "public.p"}, lambda oid: True, False))
    assert [text.split(":")[0] for text in found] == [
        "public.a is called other.b now",
        "public.b is called other.b now",
        "public.c was dropped",
    ]


@pytest.mark.parametrize(
    ("oid", "filled", "for_all", "is_told"),
    [(90, True, False, True), (90, True, True, True), (101, True, True, False), (90, False, False, False)],
)
def test_a_table_that_is_captured_late_is_told_where_it_has_rows(
    oid: int, filled: bool, for_all: bool, is_told: bool
) -> None:
    """A table created since the last start is whole if the publication had it from its creation on."""
    now = Inventory(7, 200, (*BEFORE.tables, (oid, "public.late", ())))
    texts = told(now, {10: "public.a", 11: "public.p", oid: "public.late"}, filled, for_all)
    assert bool(texts) == is_told
    assert all("public.late is captured from now on" in text for text in texts)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ((("public.p_1", 21),), "has lost the partitions public.p_2"),
        ((("public.p_1", 21), ("public.p_2", 22), ("public.p_3", 23)), "has the new partitions public.p_3"),
        ((("public.p_1", 21), ("public.p_2", 99)), "the partitions public.p_2 of public.p were emptied"),
    ],
)
def test_partitions_that_came_went_or_were_emptied_are_told(files: tuple[tuple[str, int], ...], text: str) -> None:
    now = Inventory(7, 100, (BEFORE.tables[0], (11, "public.p", files)))
    (found,) = told(now, {10: "public.a", 11: "public.p"})
    assert text in found
    assert "remedy: read public.p by a snapshot" in found


def test_an_offset_keeps_it() -> None:
    assert Inventory.from_json(json.loads(json.dumps(BEFORE.to_json()))) == BEFORE
