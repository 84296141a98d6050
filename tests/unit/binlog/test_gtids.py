"""Sets of transactions as MySQL and MariaDB write them, and the places of Debezium's offsets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.connectors.binlog.debezium_offset import DebeziumOffset, offset_fault
from tailrace.connectors.binlog.log.gtids import MariadbGtids, MysqlGtids

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        (f"{A.upper()}:1-5", f"{A}:1-5"),
        (f"{A}:5:1-2:3", f"{A}:1-3:5"),
        (f"{A}:1-2:6-9:2-6", f"{A}:1-9"),
        (f"{B}:1, {A}:7", f"{A}:7,{B}:1"),
        (f"{A}:1:Blues:2-3", f"{A}:1:blues:2-3"),
    ],
)
def test_a_set_of_mysql_is_ordered_and_joined(text: str, shown: str) -> None:
    found = MysqlGtids(text)
    assert str(found) == shown
    assert bool(found) == bool(shown)
    assert found == MysqlGtids(shown)
    assert found == found.copy()


def test_a_copy_of_a_set_is_its_own() -> None:
    mysql, mariadb = MysqlGtids(f"{A}:1-5"), MariadbGtids("0-1-5")
    later_mysql, later_mariadb = mysql.copy(), mariadb.copy()
    later_mysql.add(A, 6)
    later_mariadb.add("0-1", 6)
    assert (str(mysql), str(later_mysql)) == (f"{A}:1-5", f"{A}:1-6")
    assert (str(mariadb), str(later_mariadb)) == ("0-1-5", "0-1-6")
    assert mysql != later_mysql
    assert mariadb != later_mariadb


@pytest.mark.parametrize("text", [f"{A}:0", f"{A}:5-3", "server:1"])
def test_what_is_no_set_of_mysql_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        MysqlGtids(text)


def test_a_set_is_restricted_to_servers() -> None:
    found = MysqlGtids(f"{A}:1-5:blues:1,{B}:7")
    assert str(found.of([A])) == f"{A}:1-5:blues:1"
    assert found.sources == [A, f"{A}:blues", B]
    assert str(found.without(MysqlGtids(f"{A}:1-9,{B}:1-6"))) == f"{A}:blues:1,{B}:7"


def test_a_set_of_mariadb_has_all_numbers_up_to_the_last() -> None:
    found = MariadbGtids("0-1-5, 0-2-4,3-1-9")
    assert found.domains == {0: (1, 5), 3: (1, 9)}
    assert found.has("0-7", 5)
    assert not found.has("0-1", 6)
    assert not found.has("1-1", 1)
    assert bool(found)
    assert not MariadbGtids("")


GIVEN: dict[str, Any] = {"file": "binlog.000001", "pos": 4}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (GIVEN, ""),
        (GIVEN | {"gtids": f"{A}:1-5,\n{B}:1", "event": 2, "row": 1}, ""),
        ([], "must be the JSON of an offset"),
        # without the offset, no_data would read the log from its end, and no rows
        (
            GIVEN | {"snapshot": True},
            "was stored within a snapshot, which has to be taken anew: leave it and snapshot.mode=no_data out",
        ),
        (GIVEN | {"incremental_snapshot_maximum_key": "x"}, "was stored within an incremental snapshot"),
        ({"pos": 4}, "has no log file"),
        (GIVEN | {"file": "binlog"}, "has no log file"),
        (GIVEN | {"pos": "4"}, "has no place"),
        (GIVEN | {"row": -1}, "has no place"),
        (GIVEN | {"gtids": 5}, "has no set of transactions in `gtids`"),
    ],
)
def test_an_offset_of_debezium_that_cannot_be_gone_on_from_says_why(given: Any, fault: str) -> None:
    found = offset_fault(json.dumps(given))
    assert found.startswith(fault)
    assert bool(found) == bool(fault)


def test_an_offset_of_debezium_has_its_place() -> None:
    text = json.dumps(GIVEN | {"gtids": f"{A}:1-5,\n{B}:1", "event": 2, "row": 1})
    assert DebeziumOffset.from_text(text) == DebeziumOffset("binlog.000001", 4, f"{A}:1-5,{B}:1", 2, 1)
    assert offset_fault("{").startswith("must be the JSON of an offset")
