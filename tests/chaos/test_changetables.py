"""The machine's own reading of change tables: the order, Db2's pairs of rows, the transactions of its program."""

from __future__ import annotations

from typing import Any

from tests.chaos import db2, sqlserver
from tests.chaos.changes import Change, from_captured

ONE, TWO = b"\0" * 9 + b"\1", b"\0" * 9 + b"\2"


def test_the_rows_of_sql_server_are_changes_and_an_update_is_its_second_row() -> None:
    found = [
        (ONE, 1, b"\5", 2, 7, 0, "a"),
        (ONE, 2, b"\6", 3, 7, 0, "a"),
        (ONE, 2, b"\6", 4, 7, 1, "b"),
        (TWO, 1, b"\7", 1, 7, 1, "b"),
        (TWO, 1, b"\7", 2, 8, 1, "b"),
    ]
    assert list(sqlserver.changes_of("T_MOVE", found)) == [
        (ONE, Change("T_MOVE", "c", "7", {"ID": "7", "N": "0", "TAG": "a"}, 5, 1)),
        (ONE, Change("T_MOVE", "u", "7", {"ID": "7", "N": "1", "TAG": "b"}, 6, 1)),
        (TWO, Change("T_MOVE", "d", "7", None, 7, 2)),
        (TWO, Change("T_MOVE", "c", "8", {"ID": "8", "N": "1", "TAG": "b"}, 7, 2)),
    ]


def test_a_delete_directly_before_an_insert_of_its_commit_is_an_update_of_db2() -> None:
    found = [
        (ONE, b"\1", "D", 1, 0, "a"),
        (ONE, b"\2", "D", 2, 0, "a"),
        (ONE, b"\3", "I", 2, 1, "b"),
        (ONE, b"\4", "D", 3, 0, "a"),
        (TWO, b"\5", "I", 3, 1, "c"),
        (TWO, b"\6", "D", 4, 0, "a"),
        (TWO, b"\7", "I", 5, 0, "a"),
    ]
    assert list(db2.changes_of("T_MOVE", found)) == [
        (ONE, Change("T_MOVE", "d", "1", None, 1, 1)),
        (ONE, Change("T_MOVE", "u", "2", {"ID": "2", "N": "1", "TAG": "b"}, 3, 1)),
        (ONE, Change("T_MOVE", "d", "3", None, 4, 1)),
        (TWO, Change("T_MOVE", "c", "3", {"ID": "3", "N": "1", "TAG": "c"}, 5, 2)),
        (TWO, Change("T_MOVE", "d", "4", None, 7, 2)),
        (TWO, Change("T_MOVE", "c", "5", {"ID": "5", "N": "0", "TAG": "a"}, 7, 2)),
    ]


def test_a_change_without_a_writers_note_is_a_transaction_between_theirs() -> None:
    noted = [(10, 13, "first"), (13, 13, "nothing captured"), (14, 20, "second")]
    assert db2.units_of(noted, [11, 12, 13, 14, 16, 20, 21], "now") == [
        (13, "first"), (14, "now"), (20, "second"), (21, "now"),
    ]  # fmt: skip


def test_a_record_is_the_change_of_its_positions() -> None:
    source: dict[str, Any] = {"change_lsn": "00000025:000001a8:0003", "commit_lsn": "00000025:000001a8:0007"}
    value = {"op": "u", "before": None, "after": {"ID": 7, "N": 1, "TAG": "b"}, "source": source}
    told = from_captured("p.base.CHAOS.T_MOVE", {"ID": 7}, value, 3)
    assert told == Change(
        "T_MOVE", "u", "7", {"ID": "7", "N": "1", "TAG": "b"}, 0x25_0000_01A8_0003, 0x25_0000_01A8_0007
    )
