"""An update that changes a key becomes a delete of the old key, its tombstone, and a create of the new key."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import Column
from tests.unit.events.changes import Change, batch, plain_settings, read, table
from tests.unit.events.recorded import recorded

TABLE = table(
    "t",
    [Column("a", "int4", 23, nullable=False), Column("b", "text", 25, nullable=False), Column("v", "text", 25)],
    "b",
    "a",
)


def told(changes: list[Change], **more: Any) -> list[tuple[str, Any]]:
    unavailable = more.pop("unavailable", None)
    found = read(batch(TABLE, changes, unavailable=unavailable), plain_settings(**more))
    return [(row["op"], row["key"]) for row in found]


@pytest.mark.seed("000-35", "000-36", "000-37", "001-08", "001-16")
@pytest.mark.parametrize(
    "case",
    [
        "postgres/pk_update",
        "postgres/tombstones_off_key_change",
        "postgres-1.7/pk_update",
        "postgres-1.7/tombstones_off_key_change",
        "sqlserver-1.0/key_change",
        "sqlserver-3/key_change",
    ],
)
def test_key_changes_are_as_recorded(case: str) -> None:
    found = recorded(case)
    assert any(line.count("__debezium.oldkey") for line in found.lines) or case.startswith("sqlserver")
    assert found.made() == found.lines


@pytest.mark.seed("000-32")
@pytest.mark.parametrize(
    "case",
    [
        "postgres/skipped_create",
        "postgres/skipped_operations",
        "postgres/skipped_update_delete",
        "postgres/skipped_ready_publication",
        "postgres/skipped_delete_ready_publication",
        "postgres/skip_unchanged",
        "postgres/skip_without_change",
        "postgres-1.7/skipped_create",
        "postgres-1.7/skipped_update_delete",
        "postgres-1.7/skipped_ready_publication",
        "postgres-1.7/skipped_delete_ready_publication",
        "sqlserver-3/skipped_operations",
        "sqlserver-3/skip_unchanged",
    ],
)
def test_what_is_left_of_skipped_operations_is_as_recorded(case: str) -> None:
    found = recorded(case)
    assert found.made() == found.lines


OLD, NEW = {"b": "x", "a": 1}, {"b": "xx", "a": 1}


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        (("1", "x", None), ("1", "xx", "v"), True),
        (("1", "x", "v"), ("1", "x", "w"), False),
        (None, ("1", "xx", "v"), False),
    ],
)
def test_a_key_changes_where_an_old_row_tells_so(before: Any, after: Any, changes: bool) -> None:
    found = told([("u", before, after)])
    assert found == ([("d", OLD), ("tombstone", OLD), ("c", NEW)] if changes else [("u", found[0][1])])


def test_a_key_whose_value_the_log_did_not_carry_has_not_changed() -> None:
    # With a key that is stored out of line, the old row is complete, and the new row is not.
    found = told([("u", ("1", "x", None), ("1", None, "v"))], unavailable={"b": [True]})
    assert [op for op, _ in found] == ["u"]


def test_key_changes_among_other_changes_stand_in_their_places() -> None:
    changes: list[Change] = [
        ("c", None, ("1", "x", None)),
        ("u", ("1", "x", None), ("1", "xx", None)),
        ("u", None, ("1", "xx", "v")),
        ("u", ("1", "xx", None), ("2", "y", "v")),
        ("d", ("2", "y", None), None),
    ]
    last = {"b": "y", "a": 2}
    assert told(changes) == [
        ("c", OLD),
        *(("d", OLD), ("tombstone", OLD), ("c", NEW)),
        ("u", NEW),
        *(("d", NEW), ("tombstone", NEW), ("c", last)),
        *(("d", last), ("tombstone", last)),
    ]


def test_the_records_of_a_key_change_share_place_and_source() -> None:
    found = read(batch(TABLE, [("u", ("1", "x", None), ("1", "xx", "v"))]), plain_settings())
    assert len({(row["position"], row["ordinal"], row["transaction"], row["source_ts"]) for row in found}) == 1
    assert found[0]["value"]["source"] == found[2]["value"]["source"]
    assert found[0]["value"]["before"] == {"a": 1, "b": "x", "v": None}
    assert (found[0]["value"]["after"], found[1]["value"], found[2]["value"]["before"]) == (None, None, None)
    assert found[2]["value"]["after"] == {"a": 1, "b": "xx", "v": "v"}


@pytest.mark.parametrize(
    ("skipped", "tombstones", "ops"),
    [
        ("", True, ["d", "tombstone", "c"]),
        ("", False, ["d", "c"]),
        ("d", True, ["c"]),
        ("c", False, ["d"]),
        ("cd", True, []),
        ("u", True, ["d", "tombstone", "c"]),
    ],
)
def test_a_key_change_loses_what_is_skipped(skipped: str, tombstones: bool, ops: list[str]) -> None:
    more = {"skipped_operations": frozenset(skipped), "tombstones_on_delete": tombstones}
    assert [op for op, _ in told([("u", ("1", "x", None), ("1", "xx", None))], **more)] == ops
