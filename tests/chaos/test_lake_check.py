"""The checker of tables finds each fault in a table that was right before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos import lake_check
from tests.chaos.changes import UNAVAILABLE, Change, Row
from tests.chaos.check import Faults
from tests.chaos.lake_check import Expected
from tests.chaos.lake_writers import completed

Rows = list[dict[str, Any]]

COMMITTED = [
    Change("t", "u", "1", {"id": "1", "v": "b", "big": UNAVAILABLE}, 1),
    Change("t", "u", "1", {"id": "1", "v": "c", "big": "y"}, 2),
    Change("t", "d", "1", None, 3),
    Change("t", "c", "2", {"id": "2", "v": "c", "big": UNAVAILABLE}, 3),
    Change("t", "c", "1", {"id": "1", "v": "d"}, 4),
]
FIRST = {"t": {"1": {"id": "1", "v": "a", "big": "x"}}}


def made() -> Expected:
    state: dict[str, dict[str, Row]] = {name: dict(rows) for name, rows in FIRST.items()}
    changes = list(completed(iter(COMMITTED), state))
    expected = Expected({"t": ("id",)}, FIRST, state)
    for change in changes:
        expected.add(change)
    return expected


LATEST: Rows = [{"id": 2, "v": "c", "big": "y"}, {"id": 1, "v": "d", "big": None}]


def version(key: int, v: str, big: str | None, since: int, until: int | None) -> dict[str, Any]:
    places = {"__valid_from": f"{since}", "__valid_from_ordinal": 0, "__valid_to_ordinal": 0}
    return {"id": key, "v": v, "big": big, **places, "__valid_to": None if until is None else f"{until}"}


HISTORY: Rows = [
    version(1, "a", "x", 0, 1),
    version(1, "b", "x", 1, 2),
    version(1, "c", "y", 2, 3),
    version(2, "c", "y", 3, None),
    version(1, "d", None, 4, None),
]


def told(place: int, op: str, key: int, v: str | None, big: str | None = None, part: int = 0) -> dict[str, Any]:
    missing = ["big"] if op != "r" and v in ("b", "c") and big is None else None
    own = {"__op": op, "__position": f"{place}", "__ordinal": 0, "__part": part, "__missing": missing}
    return {"id": key, "v": v, "big": big, **own}


LOG: Rows = [
    told(0, "r", 1, "a", "x"),
    told(1, "u", 1, "b"),
    told(2, "u", 1, "c", "y"),
    told(3, "d", 1, None),
    told(3, "c", 2, "c", part=1),
    told(4, "c", 1, "d"),
]

Check = Callable[[Expected, str, Any, Faults], None]
RIGHT: dict[str, tuple[Check, Rows]] = {
    "latest": (lake_check.latest, LATEST),
    "history": (lake_check.history, HISTORY),
    "log": (lake_check.log, LOG),
}


def found(mode: str, rows: Rows) -> Faults:
    faults = Faults()
    RIGHT[mode][0](made(), "t", rows, faults)
    return faults


@pytest.mark.parametrize("mode", RIGHT)
def test_what_is_right_has_no_faults(mode: str) -> None:
    assert not found(mode, RIGHT[mode][1])


@pytest.mark.parametrize("mode", RIGHT)
def test_every_row_counts(mode: str) -> None:
    rows = RIGHT[mode][1]
    for place, row in enumerate(rows):
        assert found(mode, rows[:place] + rows[place + 1 :]), f"without {row}"
        if row.get("__op") != "r":
            assert found(mode, [*rows, row]), f"twice {row}"
        if row["v"] is not None:
            assert found(mode, [*rows[:place], {**row, "v": "wrong"}, *rows[place + 1 :]]), f"another {row}"


@pytest.mark.parametrize(("place", "until"), [(0, "0"), (0, "2"), (2, None), (1, "1")])
def test_gaps_and_overlaps_of_versions_are_found(place: int, until: str | None) -> None:
    rows = [dict(row) for row in HISTORY]
    rows[place]["__valid_to"] = until
    assert found("history", rows)


def test_a_change_of_another_operation_or_place_is_found() -> None:
    for wrong in ({"__op": "c"}, {"__position": "9"}, {"__missing": None}):
        assert found("log", [*LOG[:1], {**LOG[1], **wrong}, *LOG[2:]]), wrong
