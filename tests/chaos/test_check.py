"""The checker finds a loss, a repeat, a change of order and a wrong value, in each kind of sink."""

from __future__ import annotations

from dataclasses import replace

from tests.chaos.changes import UNAVAILABLE, Change, Row
from tests.chaos.check import Checker, Faults


def change(op: str, key: str, lsn: int, **row: str) -> Change:
    return Change("t", op, key, None if op in "dt" else {"id": key, **row}, lsn, lsn // 10)


def tombstone(key: str) -> Change:
    return Change("t", "z", key, None)


LOG = [
    change("c", "1", 10, v="a", big="long"),
    change("c", "2", 20, v="a"),
    change("u", "1", 30, v="b", big=UNAVAILABLE),
    change("d", "2", 40),
    change("c", "3", 50, v="a"),
    change("u", "1", 60, v="c", big=UNAVAILABLE),
]
SINK = [*LOG[:4], tombstone("2"), *LOG[4:]]
ROWS: dict[str, dict[str, Row]] = {
    "t": {"1": {"id": "1", "v": "c", "big": "long"}, "3": {"id": "3", "v": "a"}},
}


def compare(records: list[Change], *, by_key: bool = False, repeats: bool = False) -> Faults:
    checker = Checker(by_key=by_key, repeats=repeats)
    for one in LOG:
        checker.committed(one, delivered=True)
    return checker.check(records, ROWS)


def kinds(records: list[Change], *, by_key: bool = False, repeats: bool = False) -> set[str]:
    return set(compare(records, by_key=by_key, repeats=repeats).counts)


def test_what_was_committed_is_exact() -> None:
    assert kinds(SINK) == set()
    assert kinds(SINK, by_key=True) == set()


def test_each_missing_record_is_found() -> None:
    for place in range(len(SINK)):
        rest = SINK[:place] + SINK[place + 1 :]
        assert kinds(rest) & {"missing", "order"}, SINK[place]
        assert kinds(rest, by_key=True) & {"missing", "order"}, SINK[place]
        assert kinds(rest, repeats=True) & {"missing", "order"}, SINK[place]


def test_each_repeat_is_found_where_none_is_allowed() -> None:
    for place in range(len(SINK)):
        assert kinds([*SINK[: place + 1], *SINK[place:]]), SINK[place]


def test_a_replay_of_a_run_is_allowed_where_repeats_are() -> None:
    for begin in range(len(SINK)):
        for end in range(begin + 1, len(SINK) + 1):
            # A replay begins with a batch, and no batch begins between a delete and its tombstone.
            if SINK[begin].op != "z":
                assert kinds([*SINK[:end], *SINK[begin:]], repeats=True) == set(), (begin, end)


def test_a_replay_that_leaves_something_out_is_found() -> None:
    assert "a repeat with a gap" in kinds([*SINK, SINK[1], SINK[3], *SINK[4:]], repeats=True)


def test_exchanged_records_are_found_by_topic_and_allowed_between_keys() -> None:
    exchanged = [SINK[1], SINK[0], *SINK[2:]]
    assert "order" in kinds(exchanged)
    assert kinds(exchanged, by_key=True) == set()
    assert "order" in kinds([SINK[2], SINK[1], SINK[0], *SINK[3:]], by_key=True)


def test_a_wrong_value_is_found() -> None:
    wrong = replace(SINK[1], row={"id": "2", "v": "x"})
    assert "never committed, or too often" in kinds([SINK[0], wrong, *SINK[2:]])


def test_a_large_value_that_never_came_is_found() -> None:
    checker = Checker(by_key=False, repeats=False)
    checker.committed(LOG[2], delivered=True)
    faults = checker.check([LOG[2]], {"t": {"1": {"id": "1", "v": "b", "big": "long"}}})
    assert set(faults.counts) == {"a value was never delivered"}


def test_rows_that_are_missing_and_left_at_the_end_are_found() -> None:
    checker = Checker(by_key=False, repeats=False)
    read = Change("t", "r", "1", {"id": "1"})
    checker.committed(change("c", "1", 10), delivered=False)
    assert set(checker.check([read], {"t": {"2": {"id": "2"}}}).counts) == {
        "a row is missing at the end",
        "a row is left at the end",
    }


def test_a_read_of_the_first_snapshot_must_have_been_a_state_of_the_row() -> None:
    checker = Checker(by_key=False, repeats=False)
    checker.committed(change("c", "1", 10, v="a"), delivered=False)
    reads = [Change("t", "r", "1", {"id": "1", "v": "a"}), Change("t", "r", "1", {"id": "1", "v": "x"})]
    assert checker.check(reads[:1], {}).counts == {}
    assert set(checker.check(reads[1:], {}).counts) == {"a row that never was"}


def test_an_incremental_read_must_be_the_state_that_the_records_have_led_to() -> None:
    checker = Checker(by_key=False, repeats=False)
    for one in LOG[:3]:
        checker.committed(one, delivered=True)
    good = Change("t", "r", "1", {"id": "1", "v": "b", "big": "long"}, incremental=True)
    stale = Change("t", "r", "1", {"id": "1", "v": "a", "big": "long"}, incremental=True)
    assert checker.check([*LOG[:3], good], {}).counts == {}
    assert set(checker.check([stale], {}).counts) == {"a read that does not fit"}


def test_what_follows_a_round_is_compared_with_what_is_new() -> None:
    checker = Checker(by_key=False, repeats=False)
    for one in LOG[:3]:
        checker.committed(one, delivered=True)
    assert not checker.check(LOG[:3], {})
    for one in LOG[3:]:
        checker.committed(one, delivered=True)
    assert not checker.check(SINK[3:], ROWS)
    assert checker.check([SINK[0]], ROWS)
