"""Events of the binary log from made bytes, among them those that no server of the tests writes."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from uuid import UUID

import pyarrow as pa
import pytest

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.binlog.log import events, faults, indexing
from tailrace.connectors.binlog.log.gtids import MariadbGtids, MysqlGtids
from tailrace.connectors.binlog.log.identity import ServerIdentity, counts_alone, demand_rows
from tailrace.connectors.binlog.log.indexed_run import IndexedRun
from tailrace.connectors.binlog.log.indexing import Indexer, LogReplaced
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.schema.statement import NO_OUTCOME, Place, Statement, StatementEffects
from tailrace.connectors.binlog.schema.table_map import TableMap
from tailrace.errors import DecodeError, PositionLost, PrerequisiteError

SOURCE = "00112233-4455-6677-8899-aabbccddeeff"
START = BinlogPosition("binlog.000001", 153, 154)


class Tables:
    """A table of an integer, `d.t`, whose definition never changes."""

    def __init__(self) -> None:
        column = Column("id", "int", 0, nullable=False)
        self.versions = [TableSchema(TableId("d", "d", "t"), (column,), ("id",))]
        self.statements: list[bytes] = []

    def begin(self) -> None:
        return

    def keep(self) -> None:
        return

    def captures(self, database: str, table: str) -> bool:
        return True

    def fits(self, given: TableMap) -> bool:
        return True

    def version(self, given: TableMap, at: Place) -> int:
        return 0

    def statement(self, given: Statement, at: Place) -> StatementEffects:
        self.statements.append(given.sql)
        return NO_OUTCOME


class Log:
    """Writes the events of one file, one behind another."""

    def __init__(self) -> None:
        self.at = START.end
        self.buffer = bytearray()
        self.spans: list[tuple[int, int]] = []
        self.add(
            15,
            struct.pack("<H50sIB", 4, b"8.0.36", 0, 19) + bytes(34) + bytes([0, 0, 0, 0, 8, 0, 8, 1]),
            end=0,
            summed=True,
        )

    def add(self, kind: int, body: bytes, *, end: int | None = None, flags: int = 0, summed: bool = False) -> None:
        length = 19 + len(body) + 4
        if end is None:
            self.at += length
        head = struct.pack("<IBIIIH", 1_700_000_000, kind, 7, length, self.at if end is None else end, flags)
        self.raw(head + body + zlib.crc32(head + body).to_bytes(4, "little"))

    def raw(self, event: bytes) -> None:
        self.spans.append((len(self.buffer), len(self.buffer) + len(event)))
        self.buffer += event

    def gtid(self, number: int) -> None:
        self.add(33, bytes([0]) + UUID(SOURCE).bytes + struct.pack("<q", number) + bytes([2]) + bytes(16))

    def query(self, sql: bytes) -> None:
        self.add(2, query(sql))

    def transaction(self, number: int, *rows: int) -> None:
        self.gtid(number)
        self.query(b"BEGIN")
        self.add(19, TABLE_MAP)
        self.add(30, rows_event(*rows))
        self.add(16, bytes(8))


TABLE_MAP = (9).to_bytes(6, "little") + b"\x01\x00" + b"\x01d\x00" + b"\x01t\x00" + b"\x01\x03\x00\x00"


def query(sql: bytes) -> bytes:
    return struct.pack("<IIBHH", 5, 0, 1, 0, 0) + b"d\x00" + sql


def rows_event(*rows: int) -> bytes:
    head = (9).to_bytes(6, "little") + b"\x01\x00" + b"\x02\x00" + b"\x01\x01"
    return head + b"".join(b"\x00" + row.to_bytes(4, "little") for row in rows)


def bare(kind: int, body: bytes) -> bytes:
    """Return an event within a compressed transaction: without checksum, its place says nothing."""
    return struct.pack("<IBIIIH", 1_700_000_000, kind, 7, 19 + len(body), 0, 0) + body


def field(number: int, value: int) -> bytes:
    encoded = bytes([value]) if value < 251 else b"\xfc" + value.to_bytes(2, "little")
    return bytes([number, len(encoded)]) + encoded


def payload(inner: bytes, *, compressed: bool) -> bytes:
    data = pa.Codec("zstd").compress(inner, asbytes=True) if compressed else inner
    return field(1, len(data)) + field(2, 0 if compressed else 255) + field(3, len(inner)) + b"\x00" + data


def read(log: Log, tables: Tables | None = None, position: BinlogPosition = START) -> IndexedRun | None:
    indexer = Indexer(position, tables or Tables(), is_mariadb=False)
    indexer.add(log.buffer, log.spans)
    step = indexer.step()
    return None if step is None else step.run


def values(run: IndexedRun | None) -> list[int]:
    assert run is not None
    messages = [run.data[run.offsets[row] : run.offsets[row + 1]].tobytes() for row in run.rows]
    return [int.from_bytes(message[1:], "little") for message in messages]


def test_a_transaction_is_read_with_its_places() -> None:
    log = Log()
    log.transaction(1, 10, 11)
    log.transaction(2, 12)
    run = read(log)
    assert values(run) == [10, 11, 12]
    assert run is not None
    assert run.by_row.ordinal.tolist() == [0, 1, 0]
    assert run.transactions.gtids().to_pylist() == [f"{SOURCE}:1", f"{SOURCE}:2"]
    reached = run.leads_to(START)
    assert (reached.end, reached.gtids) == (log.at, f"{SOURCE}:1-2")


@pytest.mark.parametrize("compressed", [True, False])
def test_a_compressed_transaction_is_read_whole(compressed: bool) -> None:
    log = Log()
    log.gtid(1)
    inner = bare(2, query(b"BEGIN")) + bare(19, TABLE_MAP) + bare(30, rows_event(1, 2)) + bare(16, bytes(8))
    log.add(40, payload(inner, compressed=compressed))
    log.transaction(2, 3)
    run = read(log)
    assert values(run) == [1, 2, 3]
    assert run is not None
    assert run.by_row.pos[0] == run.by_row.pos[1] < run.by_row.pos[2]


def test_a_compressed_transaction_that_is_damaged_is_refused() -> None:
    whole = payload(bare(16, bytes(8)), compressed=True)
    for broken in (whole[:-1], whole[:-4] + bytes(4), field(2, 0) + b"\x00" + b"xx", field(2, 9) + b"\x00"):
        log = Log()
        log.gtid(1)
        log.add(40, broken)
        with pytest.raises(DecodeError):
            read(log)


def test_an_id_with_a_tag_is_read() -> None:
    def varied(value: int) -> bytes:
        if value < 128:
            return bytes([value << 1])
        return (value << 2 | 1).to_bytes(2, "little")

    fields = varied(0) + varied(1) + varied(1)
    fields += b"".join(varied(byte) for byte in UUID(SOURCE).bytes)
    fields += varied(2) + varied(7 << 1) + varied(3) + varied(5) + b"blues"
    body = varied(1) + varied(len(fields) + 3) + varied(12) + fields
    found = events.tagged_gtid(body)
    assert (found.source, found.number) == (f"{SOURCE}:blues", 7)


def test_a_wrong_checksum_is_refused() -> None:
    log = Log()
    log.transaction(1, 1)
    log.buffer[log.spans[3][0] + 30] ^= 1
    with pytest.raises(DecodeError, match="wrong checksum"):
        read(log)


def test_places_beyond_4_gib_wrap_in_headers_and_not_here() -> None:
    start = (1 << 32) - 60
    log = Log()
    log.at = start
    log.spans.clear()
    log.buffer.clear()
    log.add(15, struct.pack("<H50sIB", 4, b"8.0.36", 0, 19) + bytes(34) + bytes([0, 0, 0, 0, 8, 0, 8, 1]), end=0)

    def added(kind: int, body: bytes) -> None:
        length = 19 + len(body) + 4
        log.at += length
        head = struct.pack("<IBIIIH", 1_700_000_000, kind, 7, length, log.at & 0xFFFFFFFF, 0)
        log.raw(head + body + zlib.crc32(head + body).to_bytes(4, "little"))

    added(33, bytes([0]) + UUID(SOURCE).bytes + struct.pack("<q", 1) + bytes([2]) + bytes(16))
    added(2, query(b"BEGIN"))
    added(19, TABLE_MAP)
    added(30, rows_event(1))
    added(16, bytes(8))
    run = read(log, position=BinlogPosition("binlog.000001", start - 1, start))
    assert run is not None
    assert run.leads_to(START).end == log.at > 1 << 32


def test_a_place_that_does_not_add_up_is_refused() -> None:
    log = Log()
    log.gtid(1)
    log.add(2, query(b"BEGIN"), end=200)
    with pytest.raises(DecodeError, match="by the lengths of all events it ends at"):
        read(log)


def test_missing_events_and_statements_instead_of_rows_end_the_reading() -> None:
    log = Log()
    log.add(26, b"\x01\x00\x04lost")
    with pytest.raises(PositionLost, match="INCIDENT"):
        read(log)
    log = Log()
    log.gtid(1)
    log.query(b"BEGIN")
    log.add(5, bytes(9))
    with pytest.raises(PrerequisiteError, match="binlog_format"):
        read(log)


def test_a_statement_without_a_commit_is_a_transaction_of_its_own() -> None:
    log, tables = Log(), Tables()
    log.gtid(1)
    log.query(b"ALTER TABLE t ADD n INT")
    log.transaction(2, 5)
    run = read(log, tables)
    assert tables.statements == [b"ALTER TABLE t ADD n INT"]
    assert run is not None
    assert len(run.ends) == 2


def test_the_transaction_of_the_checkpoint_is_recognized() -> None:
    log = Log()
    log.transaction(1, 5)
    run = read(log)
    assert run is not None
    reached = run.leads_to(START)
    again = Log()
    again.transaction(1, 5)
    again.transaction(2, 6)
    assert values(read(again, position=reached)) == [6]
    other = Log()
    other.transaction(4, 5)
    with pytest.raises(LogReplaced):
        read(other, position=reached)


def test_a_transaction_that_has_no_end_is_refused() -> None:
    log = Log()
    log.gtid(1)
    log.query(b"BEGIN")
    log.add(19, TABLE_MAP)
    log.add(30, rows_event(1))
    log.transaction(2, 2)
    with pytest.raises(DecodeError, match="has no end"):
        read(log)


# --- sets of ids ------------------------------------------------------------------------------------------------------


XID = b"X'78',X'',1"


def prepared(log: Log, number: int, *rows: int) -> None:
    """Write an XA transaction up to its end, with an event for each row."""
    log.gtid(number)
    log.query(b"XA START " + XID)
    log.add(19, TABLE_MAP)
    for row in rows:
        log.add(30, rows_event(row))
    log.query(b"XA END " + XID)


def steps(indexer: Indexer, log: Log, together: int) -> list[IndexedRun]:
    """Return the runs of a log of which some events are read at a time."""
    found, left = [], list(log.spans)
    while left or indexer.waiting:
        if not indexer.waiting:
            indexer.add(log.buffer, left[:together])
            del left[:together]
        step = indexer.step()
        if step is not None:
            indexer.keep(step)
            found.append(step.run)
    return found


@pytest.mark.parametrize("in_memory", [0, 20, 1 << 20])
@pytest.mark.parametrize("together", [1, 3, 100])
@pytest.mark.parametrize("is_numbered", [False, True])
def test_rows_of_a_large_xa_transaction_come_with_its_commit_and_a_part_at_a_time(
    monkeypatch: pytest.MonkeyPatch, in_memory: int, together: int, is_numbered: bool
) -> None:
    monkeypatch.setattr(indexing, "PREPARED_BYTES", in_memory)
    monkeypatch.setattr(indexing, "HELD_BYTES", 12)
    log = Log()
    prepared(log, 1, *range(10))
    log.add(38, struct.pack("<?III", False, 1, 1, 0) + b"x")
    log.transaction(2, 100)
    log.gtid(3)
    log.query(b"XA COMMIT " + XID)
    log.transaction(4, 101)
    indexer = Indexer(START, Tables(), False, frozenset() if is_numbered else None)

    runs = steps(indexer, log, together)

    assert [value for run in runs for value in values_of_rows(run)] == [100, *range(10), 101]
    parts = [run for run in runs if set(values_of_rows(run)) & {*range(10)}]
    assert len(parts) > 2
    assert [ordinal for run in parts for ordinal, value in zip(ordinals(run), values_of_rows(run), strict=True)
            if value < 10] == [*range(10)]  # fmt: skip
    reached = indexer.position
    assert (reached.end, reached.gtids, reached.held) == (log.at, f"{SOURCE}:1-4", None)
    assert indexer._spill.files == 0


def values_of_rows(run: IndexedRun) -> list[int]:
    return [int.from_bytes(run.data[run.offsets[row] : run.offsets[row + 1]].tobytes()[1:], "little")
            for row, version in zip(run.rows.tolist(), run.version.tolist(), strict=True) if version >= 0]  # fmt: skip


def ordinals(run: IndexedRun) -> list[int]:
    return run.by_row.ordinal[run.version >= 0].tolist()


def test_files_of_prepared_rows_go_with_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "PREPARED_BYTES", 0)
    log = Log()
    prepared(log, 1, 1, 2, 3)
    log.add(38, struct.pack("<?III", False, 1, 1, 0) + b"x")
    indexer = Indexer(START, Tables(), False)
    indexer.add(log.buffer, log.spans)
    assert indexer._spill.files == 1
    indexer.reset(START, False)
    assert indexer._spill.files == 0


def test_a_large_xa_transaction_of_one_phase_and_one_that_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "HELD_BYTES", 12)
    log = Log()
    prepared(log, 1, *range(10))
    log.add(38, struct.pack("<?III", True, 1, 1, 0) + b"x")
    prepared(log, 2, *range(20, 30))
    log.add(38, struct.pack("<?III", False, 1, 1, 0) + b"x")
    log.gtid(3)
    log.query(b"XA ROLLBACK " + XID)
    runs = steps(Indexer(START, Tables(), False), log, 2)
    assert [value for run in runs for value in values_of_rows(run)] == [*range(10)]


def test_a_statement_stays_with_the_rows_of_a_transaction_that_a_later_run_has() -> None:
    log = Log()
    log.gtid(1)
    log.query(b"BEGIN")
    log.add(29, b"\x05first")
    log.add(19, TABLE_MAP)
    log.add(30, rows_event(1))
    log.add(16, bytes(8))
    log.gtid(2)
    log.query(b"BEGIN")
    log.add(29, b"\x06second")
    log.add(19, TABLE_MAP)
    log.add(30, rows_event(2))
    open_until = len(log.spans)
    log.add(30, rows_event(3))
    log.add(16, bytes(8))
    indexer = Indexer(START, Tables(), False, with_statements=True)
    found = []
    for spans in (log.spans[:open_until], log.spans[open_until:]):
        indexer.add(log.buffer, spans)
        step = indexer.step()
        assert step is not None
        of = step.run.by_row
        found += [of.statements[place] for place in of.statement.tolist()]
    assert found == [b"first", b"second", b"second"]


def test_a_set_of_mysql_is_written_as_the_server_writes_it() -> None:
    found = MysqlGtids(f"{SOURCE}:1-3:5,{SOURCE}:blues:1")
    found.add(SOURCE, 4)
    found.add(f"{SOURCE}:blues", 2)
    assert str(found) == f"{SOURCE}:1-5:blues:1-2"
    assert str(MysqlGtids(str(found))) == str(found)
    assert found.has(SOURCE, 5)
    assert not found.has(SOURCE, 6)
    assert found.contains(MysqlGtids(f"{SOURCE}:2-4"))
    assert not found.contains(MysqlGtids(f"{SOURCE}:2-7"))
    assert str(MysqlGtids(f"{SOURCE}:1-9").without(MysqlGtids(f"{SOURCE}:3-4:8"))) == f"{SOURCE}:1-2:5-7:9"


def test_a_set_is_encoded_for_the_dump() -> None:
    plain = MysqlGtids(f"{SOURCE}:1-3:5").encoded()
    assert plain == struct.pack("<Q", 1) + UUID(SOURCE).bytes + struct.pack("<Qqqqq", 2, 1, 4, 5, 6)
    tagged = MysqlGtids(f"{SOURCE}:blues:1").encoded()
    assert tagged[:8] == bytes([1, 1, 0, 0, 0, 0, 0, 1])
    assert tagged[24:30] == bytes([10]) + b"blues"


def test_a_set_of_mariadb_has_the_last_of_each_domain() -> None:
    found = MariadbGtids("0-1-5,2-7-3")
    found.add("0-9", 6)
    assert str(found) == "0-9-6,2-7-3"
    assert found.contains(MariadbGtids("0-1-5"))
    assert not found.contains(MariadbGtids("1-1-1"))


def test_a_server_that_takes_over_in_the_middle_of_a_transaction_repeats_nothing() -> None:
    """Its files are others: a transaction that was read whole may lie behind the first one that was not."""
    before = BinlogPosition("binlog.000009", 900, 0, 1, gtids=f"{SOURCE}:1:3", gtid=f"{SOURCE}:2", server="a", mark=7)
    log = Log()
    log.transaction(1, 10)
    log.add(4, struct.pack("<Q", 4) + b"binlog.000002")
    log.at = 4
    log.transaction(2, 20, 21)
    log.transaction(3, 30)
    log.transaction(4, 40)
    indexer = Indexer(before, Tables(), False)
    indexer.reset(before, True, "b")
    rotate = struct.pack("<IBIIIH", 0, 4, 1, 19 + 8 + 13 + 4, 0, 0x20) + struct.pack("<Q", 4) + b"binlog.000001"
    log.buffer[:0], shift = rotate + zlib.crc32(rotate).to_bytes(4, "little"), len(rotate) + 4
    log.spans = [(0, shift), *((low + shift, high + shift) for low, high in log.spans)]
    first = 9
    indexer.add(log.buffer, log.spans[:first])
    assert indexer.step() is None

    indexer.add(log.buffer, log.spans[first:13])
    step = indexer.step()
    assert step is not None
    indexer.keep(step)
    assert values(step.run) == [21]

    # the same server again: the third was read on the one before
    indexer.reset(indexer.position, False, "b")
    indexer.add(log.buffer, [log.spans[1], *log.spans[first - 1 :]])
    step = indexer.step()
    assert step is not None
    assert values(step.run) == [40]


@pytest.mark.parametrize(("kind", "key", "is_told"), [(32, (), True), (32, ("id",), False), (30, (), False)])
def test_rows_without_a_key_may_be_in_another_order_at_a_server_that_takes_over(
    kind: int, key: tuple[str, ...], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A replica applies deletes of a table without a key as its scan finds the rows."""
    before = BinlogPosition("binlog.000009", 900, 0, 1, gtids=f"{SOURCE}:1", gtid=f"{SOURCE}:2", server="a", mark=7)
    log = Log()
    log.at = 4
    log.gtid(2)
    log.query(b"BEGIN")
    log.add(19, TABLE_MAP)
    log.add(kind, rows_event(20, 21))
    log.add(16, bytes(8))
    tables = Tables()
    tables.versions = [replace(tables.versions[0], key=key)]
    indexer = Indexer(before, tables, False)
    indexer.reset(before, True, "b")
    rotate = struct.pack("<IBIIIH", 0, 4, 1, 19 + 8 + 13 + 4, 0, 0x20) + struct.pack("<Q", 4) + b"binlog.000001"
    rotate += zlib.crc32(rotate).to_bytes(4, "little")
    indexer.add(bytearray(rotate), [(0, len(rotate))])
    indexer.add(log.buffer, log.spans)
    step = indexer.step()
    assert step is not None
    assert values(step.run) == [21]
    assert ("tailrace verify --repair" in caplog.text) is is_told


def test_another_node_that_numbers_transactions_by_itself_is_no_takeover() -> None:
    position = BinlogPosition("binlog.000009", 900, 950, gtids="0-1-7", server="1@a:3306")
    alone, common = (
        ServerIdentity(True, "1@b:3306", "0-1-9", "", True, "binlog.000001", 4, counts_alone(given))
        for given in ({"wsrep_on": "ON", "wsrep_gtid_mode": "OFF"}, {"wsrep_on": "ON", "wsrep_gtid_mode": "ON"})
    )
    with pytest.raises(PositionLost, match="number their transactions each by itself"):
        faults.demand_executed(alone, position, False)
    faults.demand_executed(alone, position, True)
    faults.demand_executed(common, position, False)


@pytest.mark.parametrize("place", [19, 21, 76, 80, -5, -1], ids=str)
def test_a_damaged_format_is_refused_as_it_says_if_others_have_checksums(place: int) -> None:
    log = Log()
    begin, end = log.spans[0]
    log.buffer[(end if place < 0 else begin) + place] ^= 1
    log.transaction(1, 1)
    with pytest.raises(DecodeError, match=r"wrong checksum|has the format|checksums of an unknown kind"):
        read(log)


def test_a_format_that_denies_the_checksums_of_its_events_is_refused() -> None:
    log = Log()
    log.buffer[log.spans[0][1] - 5] = 0
    log.transaction(1, 1)
    with pytest.raises(DecodeError, match="wrong checksum"):
        read(log)


def test_the_format_of_a_file_that_is_written_has_a_flag_which_its_checksum_lacks() -> None:
    log = Log()
    log.buffer[log.spans[0][0] + 17] |= events.IN_USE
    log.transaction(1, 1)
    assert read(log) is not None


def test_a_log_without_checksums_of_a_server_before_them_is_refused_by_its_version() -> None:
    log = Log()
    log.buffer.clear()
    log.spans.clear()
    log.add(15, struct.pack("<H50sIB", 4, b"5.5.62-log", 0, 19) + bytes(34) + bytes([0, 0, 0, 0, 8, 0, 8]), end=0)
    with pytest.raises(DecodeError, match=r"version 5\.5\.62-log, which is older"):
        read(log)


def test_an_event_before_the_format_is_refused() -> None:
    log = Log()
    log.buffer[log.spans[0][0] + 4] = 123
    log.transaction(1, 1)
    with pytest.raises(DecodeError, match="begins with an event of the type 123"):
        read(log)


def test_a_log_that_tells_no_positions_is_refused() -> None:
    """MariaDB 12.3 can keep its log in InnoDB, in files that are read by ids alone."""
    given = {"log_bin": "ON", "binlog_format": "ROW", "binlog_storage_engine": ""}
    demand_rows(given)
    with pytest.raises(PrerequisiteError, match="binlog_storage_engine"):
        demand_rows(given | {"binlog_storage_engine": "innodb"})


def test_a_table_of_unknown_types_matters_only_if_it_is_captured() -> None:
    """As one of MySQL with an index over the elements of a JSON array."""
    arrays = (9).to_bytes(6, "little") + b"\x01\x00" + b"\x01d\x00" + b"\x01u\x00" + b"\x02\x03\x14\x01\x08\x00"

    class Chosen(Tables):
        def captures(self, database: str, table: str) -> bool:
            return (database, table) in self.chosen

        chosen = frozenset({("d", "t")})

    log = Log()
    log.gtid(1)
    log.query(b"BEGIN")
    log.add(19, arrays)
    log.add(30, rows_event(1))
    log.add(19, TABLE_MAP)
    log.add(30, rows_event(2))
    log.add(16, bytes(8))
    tables = Chosen()
    indexer = Indexer(START, tables, False)
    indexer.add(log.buffer, log.spans)
    step = indexer.step()
    assert step is not None
    assert len(step.run) == 1
    tables.chosen = frozenset({("d", "u")})
    with pytest.raises(DecodeError, match="array"):
        Indexer(START, tables, False).add(log.buffer, log.spans)
