"""The status line reads the offsets of every connector: position, lag and snapshot, and counts all records."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from tailrace.columns.table import TableId
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.changetables.capture_history import CaptureHistory
from tailrace.connectors.changetables.offset import DatabaseProgress, TablesOffset, TablesSnapshot
from tailrace.connectors.mongodb.log.position import WHOLE, ChangePosition
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.mongodb.snapshot.plan import SnapshotProgress as MongoProgress
from tailrace.connectors.mongodb.snapshot.plan import planned
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.protocol.position import LogPosition
from tailrace.connectors.postgres.snapshot.session import SnapshotOrigin
from tailrace.connectors.postgres.snapshot.session import SnapshotProgress as PostgresProgress
from tailrace.connectors.registry import OWN, find
from tailrace.connectors.source_status import SnapshotStatus, SourceStatus, TableProgress
from tailrace.log.contracts import Offset
from tailrace.monitoring.status import Status, StatusLine
from tailrace.snapshot.incremental import Collection, Cursor, IncrementalSnapshot
from tailrace.snapshot.plan import PlannedTable, SnapshotPlan
from tailrace.snapshot.progress import Progress

SECOND = 1 << 32
AT = 1558965515 * SECOND
LSN = bytes.fromhex("00000025000000d98000")
TABLES = tuple(TableId("d", "dbo", name) for name in "abc")


def postgres(**changes: Any) -> Offset:
    return PostgresOffset(log=LogPosition(0x10, 0x1_0000_0020), **changes).to_json()


def mongodb(time: int = AT + 6, number: int = WHOLE, **changes: Any) -> Offset:
    return MongoOffset(ChangePosition(time, number, term=4), **changes).to_json()


def tables(*names: str, position: bytes = LSN, **changes: Any) -> Offset:
    return TablesOffset(
        {name: DatabaseProgress(position, CaptureHistory(())) for name in names or ("d",)}, **changes
    ).to_json()


PLANNED = SnapshotPlan((PlannedTable("public", "t", 25), PlannedTable("public", "u", 1)), 10)
COLLECTIONS = planned([(("shop", "orders"), ["AA==", "AB=="]), (("shop", "notes"), [])])
STATE = IncrementalSnapshot("1", (Collection("s", "t"), Collection("s", "u")), Cursor(("7",), ("9",), 700))
INCREMENTAL = (TableProgress("s.t", 700, None, "rows", ("s.u",)),)
ROWS = {"snapshot": {"table": "dbo.b", "rows": 12, "of": 50, "waiting": ["dbo.c"]}}


@pytest.mark.parametrize(
    ("connector", "end", "newest", "told"),
    [
        ("postgres", postgres(), {}, SourceStatus("1/20", whole=True)),
        ("postgres", PostgresOffset(LogPosition(0x10, 0x20, consumed=3)).to_json(), {}, SourceStatus("0/20")),
        (
            "postgres", postgres(), PostgresOffset(LogPosition(idle_lsn=0x1_0000_05DC)).to_json(),
            SourceStatus("1/20", lag_bytes=0x5DC - 0x20, whole=True),
        ),
        (
            "postgres",
            PostgresOffset(LogPosition(1, 2, idle_lsn=0x30)).to_json(),
            PostgresOffset(LogPosition(idle_lsn=0x30)).to_json(),
            SourceStatus("0/30", lag_bytes=0, whole=True),
        ),
        (
            "postgres", postgres(snapshot=PostgresProgress(PLANNED, SnapshotOrigin(1, 2, 3), 2)), {},
            SourceStatus(
                "1/20", snapshot=SnapshotStatus(2, 4),
                tables=(TableProgress("public.t", 2, 3, "chunks", ("public.u",)),),
            ),
        ),
        ("postgres", postgres(progress=Progress(STATE)), {}, SourceStatus("1/20", tables=INCREMENTAL, whole=True)),
        ("mongodb", mongodb(), {}, SourceStatus("1558965515:6")),
        ("mongodb", mongodb(whole=True), {}, SourceStatus("1558965515:6", whole=True)),
        ("mongodb", mongodb(whole=True, shown=AT + 1), {}, SourceStatus("1558965515:6")),
        ("mongodb", mongodb(number=3), {}, SourceStatus("1558965515:6:3")),
        ("mongodb", mongodb(), mongodb(AT + 90 * SECOND), SourceStatus("1558965515:6", lag_s=90.0)),
        ("mongodb", mongodb(), mongodb(), SourceStatus("1558965515:6", lag_s=0.0)),
        (
            "mongodb", mongodb(snapshot=MongoProgress(COLLECTIONS, ChangePosition(AT), 1)), {},
            SourceStatus(
                "1558965515:6", snapshot=SnapshotStatus(1, 4),
                tables=(TableProgress("shop.orders", 1, 3, "chunks", ("shop.notes",)),),
            ),
        ),
        (
            "mongodb", mongodb(snapshot=MongoProgress(COLLECTIONS, ChangePosition(AT), 3)), {},
            SourceStatus(
                "1558965515:6", snapshot=SnapshotStatus(3, 4), tables=(TableProgress("shop.notes", 0, 1, "chunks"),)
            ),
        ),
        (
            "mongodb",
            mongodb(snapshot=MongoProgress(COLLECTIONS, ChangePosition(AT), 4)),
            {},
            SourceStatus("1558965515:6"),
        ),
        ("mongodb", mongodb(progress=Progress(STATE)), {}, SourceStatus("1558965515:6", tables=INCREMENTAL)),
        ("mongodb", MongoOffset().to_json(), {}, SourceStatus()),
        ("sqlserver", tables(), {}, SourceStatus("00000025000000D98000", whole=True)),
        ("sqlserver", tables(shown_us={"d": 7}), {}, SourceStatus("00000025000000D98000")),
        (
            "sqlserver", tables(), {"newest": {"d": LSN.hex()}},
            SourceStatus("00000025000000D98000", lag_s=0.0, whole=True),
        ),
        ("sqlserver", tables(), {"newest": {"d": "ff" * 10}}, SourceStatus("00000025000000D98000", whole=True)),
        (
            "sqlserver", tables("d", "e"), {"newest": {"d": LSN.hex(), "e": "ff" * 10}},
            SourceStatus("d 00000025000000D98000, e 00000025000000D98000"),
        ),
        (
            "sqlserver", tables(snapshot=TablesSnapshot(TABLES, 5, place=1)), ROWS,
            SourceStatus(
                "00000025000000D98000",
                snapshot=SnapshotStatus(1, 3, "tables"), tables=(TableProgress("dbo.b", 12, 50, "rows", ("dbo.c",)),),
            ),
        ),
        ("sqlserver", tables(snapshot=TablesSnapshot(TABLES, 5, place=3)), {}, SourceStatus("00000025000000D98000")),
        (
            "db2", tables(position=b"\1" * 16), {"newest": {"d": "01" * 16}},
            SourceStatus("01" * 16, lag_s=0.0, whole=True),
        ),
        (
            "db2", tables(progress=Progress(STATE)), {},
            SourceStatus("00000025000000D98000", tables=INCREMENTAL, whole=True),
        ),
    ],
)  # fmt: skip
def test_each_connector_reads_its_own_offsets(connector: str, end: Offset, newest: Offset, told: SourceStatus) -> None:
    assert find(connector).load_describe()(end, newest) == told


@pytest.mark.parametrize("connector", OWN)
def test_a_query_that_has_read_nothing_has_no_position(connector: str) -> None:
    assert find(connector).load_describe()({}, {}) == SourceStatus()


def record(batch: int, events: int, end: Offset, newest: Offset) -> dict[str, Any]:
    return {"batchId": batch, "numInputRows": events, "sources": [{"endOffset": end, "latestOffset": newest}]}


def test_all_records_of_a_snapshot_are_counted() -> None:
    out = io.StringIO()
    line = StatusLine(find("mongodb").load_describe(), out, lambda: 0.0)
    for done in range(1, 5):
        end = mongodb(snapshot=MongoProgress(COLLECTIONS, ChangePosition(AT), done))
        line.update(record(done, 51_000, json.loads(json.dumps(end)), {}))
    line.update(record(5, 3_000, mongodb(), mongodb()))
    line.close()
    first, *_, last = out.getvalue().splitlines()
    assert first == "0 events/s · 51,000 in all · snapshot 1/4 chunks · batch 1 · at 1558965515:6"
    assert out.getvalue().splitlines()[1] == "  snapshot of shop.orders 1 of 3 chunks · 1 more table"
    assert last == "0 events/s · 207,000 in all · lag 0.0 s · batch 5 · at 1558965515:6"


def test_records_are_counted_whatever_an_offset_looks_like() -> None:
    out = io.StringIO()
    line = StatusLine(find("mongodb").load_describe(), out, lambda: 0.0)
    line.update(record(1, 7, {"log": {"time": "?"}, "snapshot": {"plan": {}}}, {"log": 7}))
    assert out.getvalue() == "0 events/s · 7 in all · batch 1\n"


@pytest.mark.parametrize(
    ("end", "files", "lag"),
    [
        (("b.000007", 900, 1000), {}, 500),
        # over files whose sizes the server has told
        (
            ("b.000005", 100, 200),
            {"b.000004": 9, "b.000005": 5000, "b.000006": 300, "b.000007": 1500},
            4800 + 300 + 1500,
        ),
        (("b.000005", 100, 200), {"b.000006": 300, "b.000007": 1500}, None),
        (("b.000005", 100, 200), {}, None),
        # the server's answer is older than the batch
        (("b.000008", 100, 200), {}, 0),
    ],
)
def test_bytes_of_lag_in_the_binary_log(end: tuple[str, int, int], files: dict[str, int], lag: int | None) -> None:
    newest = BinlogOffset(BinlogPosition("b.000007", 1499, 1500)).to_json() | ({"files": files} if files else {})
    describe = find("mysql").load_describe()
    assert describe(BinlogOffset(BinlogPosition(*end)).to_json(), newest).lag_bytes == lag


def test_the_age_of_the_newest_commit_is_the_better_lag() -> None:
    known = record(1, 7, mongodb(), mongodb(AT + 90 * SECOND)) | {
        "timestamp": "2026-01-01T00:00:02.500Z",
        "observedMetrics": {"tailrace": {"newest_us": 1767225600_000_000}},
    }
    assert Status.of(known, find("mongodb").load_describe()).lag_s == pytest.approx(2.5)


def test_values_that_were_read_again_are_counted() -> None:
    metrics = {"newest_us": None, "quarantined": 0, "reselected": 1200, "not_reselected": 3}
    known = record(1, 7, mongodb(), {}) | {"observedMetrics": {"tailrace": metrics}}
    status = Status.of(known, find("mongodb").load_describe())
    assert (status.reselected, status.not_reselected) == (1200, 3)
    assert "· 1,200 values read again · 3 events not read again · batch 1" in status.line(7)


def test_changes_are_counted_where_a_row_has_many() -> None:
    known = record(1, 4, mongodb(), {}) | {"observedMetrics": {"tailrace": {"newest_us": None, "events": 1_000_000}}}
    status = Status.of(known | {"processedRowsPerSecond": 2.0}, find("mongodb").load_describe())
    assert (status.events, status.rate) == (1_000_000, 500_000.0)
    out = io.StringIO()
    line = StatusLine(find("mongodb").load_describe(), out, lambda: 0.0)
    line.update(known)
    assert "1,000,000 in all" in out.getvalue()
