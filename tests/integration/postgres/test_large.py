"""Values that are larger than event.max.change.bytes: of the log, of snapshots and of windows alike."""

from __future__ import annotations

import json
import pickle
import time
from typing import Any

import pytest

from tailrace.errors import ConversionError
from tests.fix_capture import Captures, Event, has_read
from tests.fix_postgres import Database
from tests.integration.postgres.signalled import SIGNALS
from tests.waiting import until

LIMIT = 100_000
TABLE = "create table t (id int primary key, v text); alter table t replica identity full"
OPTIONS = {"event_max_change_bytes": str(LIMIT), "topic_prefix": "server", "skipped_operations": "none"}
ASIDE = {**OPTIONS, "event_processing_failure_handling_mode": "skip"}


def told(events: list[Event]) -> list[tuple[str, Any]]:
    """Return op and key of each event; for a quarantined change, op and key from its value."""
    found = []
    for event in events:
        if event.op == "quarantine":
            value = event.payload
            assert value["message"] == ""
            assert (value["table"], value["reason"].split(" than ")[0]) == ("public.t", "the change is larger")
            found.append((f"aside {value['op']}", None if value["key"] is None else json.loads(value["key"])["id"]))
        else:
            found.append((event.op, None if event.id is None else event.id["id"]))
    return found


def test_a_large_change_of_the_log_does_not_reach_spark(database: Database, capture: Captures) -> None:
    one = capture(TABLE, **ASIDE)
    database.execute(
        "insert into t values (1, 'a'), (2, repeat('x', 5000000)), (3, 'b')",
        "update t set v = 'c' where id = 2",
        "delete from t where id = 2",
    )
    committed, target = one._committed, database.flushed()
    deadline = time.monotonic() + 20
    end = committed
    while not (end != committed and has_read(one.planner, target)) and time.monotonic() < deadline:
        end = one.planner.latest_offset(committed, None, 64 << 20)
    end = one.planner.latest_offset(committed, None, 64 << 20)
    sizes = [len(pickle.dumps(task)) for task in one.planner.partitions(committed, end)]
    assert 0 < sum(sizes) < LIMIT
    # the update carries the old value, the delete does not
    assert told(one.take(6)) == [
        ("c", 1),
        ("aside None", None),
        ("c", 3),
        ("aside None", None),
        ("d", 2),
        ("tombstone", 2),
    ]


def test_a_large_row_of_a_snapshot_is_put_aside(database: Database, capture: Captures) -> None:
    one = capture(
        TABLE, "insert into t values (1, 'a'), (2, repeat('x', 200000)), (3, 'b')", snapshot_mode="initial", **ASIDE
    )
    assert told(one.take(3)) == [("r", 1), ("aside r", 2), ("r", 3)]


def test_a_large_row_of_an_incremental_snapshot_is_put_aside(database: Database, capture: Captures) -> None:
    database.execute(SIGNALS, TABLE, "insert into t values (1, 'a'), (2, repeat('x', 200000)), (3, 'b')")
    one = capture(**ASIDE, signal_data_collection="public.debezium_signal")
    database.execute(
        "insert into debezium_signal values ('1', 'execute-snapshot', '{\"data-collections\": [\"public.t\"]}')"
    )

    def found() -> list[Event]:
        one.step()
        return [event for event in one.events if event.row["table"] == "t"]

    until(lambda: len(found()) >= 3, "three rows")
    assert told(found()) == [("r", 1), ("aside r", 2), ("r", 3)]


@pytest.mark.parametrize("mode", ["initial", "never"])
def test_the_error_names_table_and_remedy(database: Database, capture: Captures, mode: str) -> None:
    large = "insert into t values (2, repeat('x', 200000))"

    def deliver() -> None:
        one = capture(TABLE, *([large] if mode == "initial" else []), snapshot_mode=mode, **OPTIONS)
        database.execute(large)
        one.take(1)

    with pytest.raises(
        ConversionError, match=r"A change of public\.t has 2\d{5} bytes, more than the 100000"
    ) as caught:
        deliver()
    assert "spark.driver.memory" in caught.value.remedy
