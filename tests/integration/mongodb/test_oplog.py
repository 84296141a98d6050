"""The oplog in the form of every MongoDB version: positions, transactions, and losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bson import Binary, Int64, Timestamp

from tailrace.connectors.mongodb.log import oplog
from tailrace.errors import DecodeError, PositionLost
from tailrace.log import engine
from tailrace.log.spool import Spool
from tests.fix_mongodb import GenuineOplog, MongoDatabase
from tests.integration.mongodb.capture import Capture, keys

Make = Callable[..., Capture]
SESSION = {"id": Binary(b"0123456789abcdef", 4), "uid": Binary(b"u" * 32, 0)}


def entry(at: int, op: str, ns: str = "inventory.customers", increment: int = 1, **more: Any) -> dict[str, Any]:
    """Return an entry in the form of MongoDB 4.2 and later, at `at` seconds."""
    return {"ts": Timestamp(at, increment), "t": Int64(1), "v": 2, "op": op, "ns": ns, **more}


def insert(at: int, id_: int, **more: Any) -> dict[str, Any]:
    return entry(at, "i", o={"_id": id_}, **more)


def applied(at: int, *ids: int, ns: str = "inventory.customers", **more: Any) -> dict[str, Any]:
    """Return a part of a transaction that inserts documents."""
    operations = [{"op": "i", "ns": ns, "o": {"_id": id_}} for id_ in ids]
    inside = {name: more.pop(name) for name in ("partialTxn", "prepare", "count") if name in more}
    return entry(at, "c", "admin.$cmd", lsid=SESSION, txnNumber=Int64(7), o={"applyOps": operations, **inside}, **more)


def at(seconds: int) -> dict[str, Any]:
    return {"ts": Timestamp(seconds, 1), "t": Int64(1)}


NOWHERE = {"ts": Timestamp(0, 0), "t": Int64(-1)}


@pytest.fixture
def started(genuine_oplog: GenuineOplog, make_capture: Make) -> Capture:
    """Return a query whose position is after the first entry."""
    genuine_oplog.append(entry(100, "n", "", o={"msg": "initiating set"}))
    capture = make_capture(genuine_oplog.server, old=True, snapshot_mode="never")
    capture.idle(1)
    return capture


def test_what_is_no_change_is_passed_over_and_moves_the_position(
    genuine_oplog: GenuineOplog, started: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "IDLE_SECONDS", 0.0)
    genuine_oplog.append(
        entry(101, "n", "", o={"msg": "periodic noop"}),
        entry(102, "c", "inventory.$cmd", o={"create": "customers"}),
        insert(103, 1, fromMigrate=True),
        insert(104, 2) | {"ns": "admin.things"},
        insert(105, 3) | {"ns": "local.things"},
        entry(106, "n", "", o={"msg": "periodic noop"}),
    )
    assert started.idle() == []
    assert started.offset["log"]["time"] == [106, 1]


def test_what_is_done_to_whole_collections_is_told(
    genuine_oplog: GenuineOplog, started: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    genuine_oplog.append(
        entry(101, "c", "inventory.$cmd", o={"drop": "customers"}, o2={"numRecords": 5}),
        entry(102, "c", "inventory.$cmd", o={"renameCollection": "inventory.new", "to": "inventory.customers"}),
        insert(103, 2),
    )
    assert keys(started.until(1)) == [("c", "2")]
    assert "inventory.customers was dropped" in caplog.text
    assert "inventory.new was renamed to inventory.customers: the log does not bring its documents" in caplog.text


def test_a_transaction_of_several_entries_comes_with_its_last(genuine_oplog: GenuineOplog, started: Capture) -> None:
    genuine_oplog.append(
        applied(101, 1, 2, partialTxn=True, prevOpTime=NOWHERE),
        insert(102, 50),
        applied(103, 3, partialTxn=True, prevOpTime=at(101)),
        applied(104, 4, prevOpTime=at(103), count=Int64(4)),
        insert(105, 60),
    )
    found = started.until(6)
    assert keys(found) == [("c", "50"), ("c", "1"), ("c", "2"), ("c", "3"), ("c", "4"), ("c", "60")]
    assert [event["value"]["source"]["tord"] for event in found] == [None, 1, 2, 3, 4, None]
    assert [event["value"]["source"]["ts_ms"] for event in found[1:5]] == [104_000] * 4


def test_a_restart_inside_a_transaction_of_several_entries_loses_nothing(
    genuine_oplog: GenuineOplog, started: Capture, make_capture: Make
) -> None:
    genuine_oplog.append(applied(101, 1, 2, partialTxn=True, prevOpTime=NOWHERE), insert(102, 50))
    assert keys(started.until(1)) == [("c", "50")]
    started.close()
    genuine_oplog.append(applied(103, 3, prevOpTime=at(101), count=Int64(3)))
    again = make_capture(genuine_oplog.server, old=True, snapshot_mode="never", offset=started.offset)
    assert keys(again.until(3)) == [("c", "1"), ("c", "2"), ("c", "3")]


def test_prepared_transactions_come_with_their_commit_and_aborted_ones_never(
    genuine_oplog: GenuineOplog, started: Capture
) -> None:
    genuine_oplog.append(
        applied(101, 1, prepare=True, prevOpTime=NOWHERE),
        applied(102, 9, prepare=True, prevOpTime=NOWHERE),
        insert(103, 50),
        entry(104, "c", "admin.$cmd", o={"commitTransaction": 1, "commitTimestamp": Timestamp(104, 1)},
              prevOpTime=at(101)),
        entry(105, "c", "admin.$cmd", o={"abortTransaction": 1}, prevOpTime=at(102)),
        insert(106, 60),
    )  # fmt: skip
    assert keys(started.until(3)) == [("c", "50"), ("c", "1"), ("c", "60")]


def test_operations_that_are_not_captured_count_in_the_order_of_a_transaction(
    genuine_oplog: GenuineOplog, make_capture: Make
) -> None:
    genuine_oplog.append(entry(100, "n", "", o={}))
    capture = make_capture(
        genuine_oplog.server, old=True, snapshot_mode="never", collection_include_list="inventory[.]customers"
    )
    capture.idle(1)
    other = {"op": "i", "ns": "inventory.other", "o": {"_id": 1}}
    noop = {"op": "n", "ns": "", "o": {}}
    mine = {"op": "d", "ns": "inventory.customers", "o": {"_id": 2}}
    nested = {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": [other, mine]}}
    genuine_oplog.append(entry(101, "c", "admin.$cmd", o={"applyOps": [other, noop, mine, nested]}))
    found = capture.until(4)
    assert [event["op"] for event in found] == ["d", "tombstone", "d", "tombstone"]
    assert [event["value"]["source"]["tord"] for event in found[::2]] == [3, 5]


def test_a_batch_is_cut_inside_of_a_transaction_and_goes_on_there(
    genuine_oplog: GenuineOplog, started: Capture, make_capture: Make
) -> None:
    genuine_oplog.append(applied(101, *range(10), prevOpTime=NOWHERE), insert(102, 50))
    first = started.until(3, rows=3)
    assert len(first) == 3
    started.close()
    again = make_capture(genuine_oplog.server, old=True, snapshot_mode="never", offset=started.offset)
    rest = again.until(8)
    assert keys(first + rest) == [("c", str(id_)) for id_ in range(10)] + [("c", "50")]
    assert len({event["position"] for event in first + rest}) == 11


def test_a_batch_that_is_planned_again_holds_the_same(
    genuine_oplog: GenuineOplog, started: Capture, make_capture: Make
) -> None:
    genuine_oplog.append(*(insert(101 + number, number) for number in range(20)))
    handed_out = []
    while sum(len(found) for *_, found in handed_out) < 20:
        # One batch with entries, as many as have been read.
        found = started.until(1, rows=5)
        handed_out.append((*started.batches[-1], found))
    started.close()
    for begun, ended, wanted in handed_out:
        assert len(wanted) <= 5
        again = make_capture(genuine_oplog.server, old=True, snapshot_mode="never", offset=begun)
        found = again.read(begun, ended)
        assert [e["position"] for e in found] == [e["position"] for e in wanted]
        again.close()


@pytest.mark.parametrize("hashed", [True, False])
def test_a_position_that_was_rolled_back_is_lost(
    genuine_oplog: GenuineOplog, started: Capture, make_capture: Make, hashed: bool
) -> None:
    """After an election another entry is at the position, or none at all."""
    genuine_oplog.append(insert(101, 1) | ({"h": Int64(11)} if hashed else {}))
    started.until(1)
    started.close()
    genuine_oplog.collection.update_one({"_id": 2}, {"$set": {"h": Int64(12)} if hashed else {"ts": Timestamp(101, 9)}})
    again = make_capture(genuine_oplog.server, old=True, snapshot_mode="never", offset=started.offset)
    with pytest.raises(PositionLost, match="rolled back"):
        again.idle()


def test_a_position_that_the_oplog_has_left_behind_is_lost(
    genuine_oplog: GenuineOplog, started: Capture, make_capture: Make
) -> None:
    genuine_oplog.append(insert(101, 1))
    started.until(1)
    started.close()
    genuine_oplog.collection.database.drop_collection(genuine_oplog.collection.name)
    genuine_oplog.collection.database.create_collection(genuine_oplog.collection.name, capped=True, size=1 << 20)
    genuine_oplog.append(insert(201, 2))
    again = make_capture(genuine_oplog.server, old=True, snapshot_mode="never", offset=started.offset)
    with pytest.raises(PositionLost, match="no longer reaches back"):
        again.idle()


def test_when_needed_takes_a_new_snapshot_instead(
    mongo_database: MongoDatabase, make_capture: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    options = {"snapshot_mode": "when_needed", "database_include_list": mongo_database.name}
    first = make_capture(mongo_database.server, old=True, **options)
    assert keys(first.idle()) == [("r", "1")]
    first.close()
    gone = {**first.offset, "log": {"number": 1, "time": [5, 1]}}
    again = make_capture(mongo_database.server, old=True, offset=gone, **options)
    assert keys(again.idle()) == [("r", "1")]


def test_a_server_without_majority_reads_is_read_with_a_warning(
    mongo_database: MongoDatabase, make_capture: Make, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from tailrace.connectors.mongodb.log import majority

    monkeypatch.setattr(majority.Majority, "asked", lambda self, _: False)
    capture = make_capture(
        mongo_database.server, old=True, snapshot_mode="never", database_include_list=mongo_database.name
    )
    capture.idle(1)
    mongo_database["c"].insert_one({"_id": 1})
    assert keys(capture.until(1)) == [("c", "1")]


def test_an_empty_oplog_is_read_from_its_start(genuine_oplog: GenuineOplog, make_capture: Make) -> None:
    capture = make_capture(genuine_oplog.server, old=True, snapshot_mode="never")
    capture.idle(1)
    genuine_oplog.append(insert(101, 1))
    assert keys(capture.until(1)) == [("c", "1")]
    assert oplog.oldest_time(capture.planner._source.connect()) == 101 << 32 | 1


def test_what_is_written_while_the_tail_begins_is_read(
    genuine_oplog: GenuineOplog, make_capture: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some servers fix the point where a tailable cursor continues after they have searched for its first answer."""
    monkeypatch.setattr(
        oplog.OplogFeed.__init__, "__kwdefaults__", {**(oplog.OplogFeed.__init__.__kwdefaults__ or {}), "batch_size": 2}
    )
    plain = oplog.RawCursor.next
    late = list(range(1, 6))

    def next_answer(self: oplog.RawCursor) -> oplog.CursorBatch:
        begins = "tailable" in self._command and self._session is None
        answer = plain(self)
        if begins and late:
            genuine_oplog.append(*(insert(200 + number, number) for number in late))
            late.clear()
            lost = plain(self)
            assert len(lost.starts)
        return answer

    monkeypatch.setattr(oplog.RawCursor, "next", next_answer)
    genuine_oplog.append(entry(100, "n", "", o={"msg": "initiating set"}))
    capture = make_capture(genuine_oplog.server, old=True, snapshot_mode="never")
    found = capture.until(5)
    genuine_oplog.append(insert(300, 6))
    assert keys(found + capture.until(1)) == [("c", str(number)) for number in range(1, 7)]


@pytest.mark.parametrize("leads_to", [104, 105, 103])
def test_an_entry_that_follows_itself_or_a_later_one_is_an_error(
    genuine_oplog: GenuineOplog, started: Capture, leads_to: int
) -> None:
    genuine_oplog.append(
        applied(103, 1, partialTxn=True, prevOpTime=at(103)),
        applied(104, 2, prevOpTime=at(leads_to), count=Int64(2)),
        insert(105, 60),
    )
    with pytest.raises(DecodeError, match="says that it follows a later one"):
        started.until(1)


def test_a_transaction_of_many_entries_stays_within_the_spool(
    genuine_oplog: GenuineOplog, started: Capture, make_capture: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one of its entries is held at a time, beside the spool's content; a restart continues in
    the middle of it."""
    entries = [applied(200, *range(10), partialTxn=True, prevOpTime=NOWHERE)]
    for number in range(1, 20):
        before, ids = at(199 + number), range(10 * number, 10 * number + 10)
        entries.append(applied(200 + number, *ids, partialTxn=True, prevOpTime=before))
    genuine_oplog.append(insert(101, -1), *entries, applied(300, 200, prevOpTime=at(219)), insert(301, 300))
    held: list[int] = []
    put = Spool.put

    def noted(self: Spool[Any, Any, Any], *given: Any) -> None:
        put(self, *given)
        held.append(self.size)

    monkeypatch.setattr(Spool, "put", noted)
    options = {"max_queue_size_in_bytes": "3000"}
    started.close()
    first = make_capture(genuine_oplog.server, old=True, snapshot_mode="never", offset=started.offset, **options)
    found = first.until(25)
    first.close()
    again = make_capture(genuine_oplog.server, old=True, snapshot_mode="never", offset=first.offset, **options)
    found += again.until(203 - len(found))
    assert keys(found) == [("c", str(id_)) for id_ in (-1, *range(201), 300)]
    assert [event["value"]["source"]["tord"] for event in found[1:-1]] == list(range(1, 202))
    assert max(held) < 6000
