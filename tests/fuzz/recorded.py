"""Fuzz target: files of the binary log as servers of four versions have written them.

`python -m tests.fuzz.recorded` records them anew (`corpus/recorded`), from the servers of the tests. An input is a byte
of bits, a byte with the number of a recording, and the events of a file. Its bits say if events are numbered, and if
the checksums of damaged events are mended.

If checksums are not mended, the rows before the first damaged event must be those of the recording, and the damaged
event must be an error. If they are mended, both decoders must read the same rows, or both none.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tailrace.connectors.binlog.log.events import HEADER, HEADER_BYTES, MAGIC_BYTES
from tailrace.connectors.binlog.log.indexing import Indexer
from tailrace.connectors.binlog.log.position import BinlogPosition, Segment
from tailrace.errors import TailraceError
from tailrace.log.rows import segment
from tailrace.log.rows.segment import gathered
from tests.fuzz.binlog import Definitions, compared
from tests.fuzz.machine import CORPUS, Difference, Target

NAMES = ("mysql-8.0.15", "mysql-5.7.22", "mariadb-11.4.5", "mariadb-10.11")
NUMBERED, MENDED = 1, 2
_START = BinlogPosition("binlog.000001", 3, 4)
_FORMAT_DESCRIPTION = 15
_IN_USE_AT = 17

Told = tuple[tuple[object, ...], ...]


@functools.cache
def _recording(number: int) -> tuple[bytes, ...]:
    """Return the events of a recording."""
    return tuple(_events((CORPUS / "recorded" / NAMES[number]).read_bytes()[2:]))


def _events(data: bytes) -> list[bytes]:
    """Cut a file's content into events by their lengths; the rest of a damaged file is the last one."""
    found, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at + 9 : at + 13], "little") if at + HEADER_BYTES <= len(data) else 0
        end = at + length if HEADER_BYTES <= length <= len(data) - at else len(data)
        found.append(data[at:end])
        at = end
    return found


def _run(data: bytes) -> object:
    if len(data) < 2:
        return None
    bits, number = data[0], data[1] % len(NAMES)
    events, recording = _events(data[2:]), _recording(number)
    is_numbered = bool(bits & NUMBERED)
    if bits & MENDED:
        events = [event if event in recording else _mended(event) for event in events]
        return _read(events, number, is_numbered)[1]
    first = next((place for place, one in enumerate(recording) if events[place : place + 1] != [one]), len(recording))
    rows, fault = _read(events, number, is_numbered)
    if first == len(events) or _has_its_checksum(events[first]):
        # cut off between two events, or an event of another place
        return fault
    if rows != _undamaged(number, first, is_numbered):
        raise Difference(f"rows {len(rows)} before the damaged event {first} are others than those of the recording")
    if not fault:
        raise Difference("a damaged event is no error")
    return fault


def _mended(event: bytes) -> bytes:
    """Return an event with its own length and checksum."""
    if len(event) < HEADER_BYTES + 4:
        return event
    sized = event[:9] + len(event).to_bytes(4, "little") + event[13:-4]
    return sized + zlib.crc32(sized).to_bytes(4, "little")


def _has_its_checksum(event: bytes) -> bool:
    sized = bytearray(event[:-4])
    if len(event) >= HEADER_BYTES + 4 and event[4] == _FORMAT_DESCRIPTION:
        # set while the file is written, and not part of the checksum
        sized[_IN_USE_AT] &= 0xFE
    is_whole = len(event) >= HEADER_BYTES + 4 and HEADER.unpack_from(event)[3] == len(event)
    return is_whole and zlib.crc32(sized) == int.from_bytes(event[-4:], "little")


@functools.cache
def _undamaged(number: int, count: int, is_numbered: bool) -> Told:
    """Return the rows of a recording's first events."""
    return _read(_recording(number)[:count], number, is_numbered)[0]


def _read(events: Sequence[bytes], number: int, is_numbered: bool) -> tuple[Told, str]:
    """Return the rows of events, each with its place, and the error that has ended them ("": none)."""
    indexer = Indexer(
        _START, Definitions(), NAMES[number].startswith("mariadb"), frozenset("t") if is_numbered else None, True
    )
    found: list[tuple[object, ...]] = []
    for event in events:
        try:
            indexer.add(bytearray(event), [(0, len(event))])
            while (step := indexer.step()) is not None:
                indexer.keep(step)
                found += _rows(step.run, indexer)
        except TailraceError as error:
            return tuple(found), type(error).__name__
    return tuple(found), ""


def _rows(run: object, indexer: Indexer) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for number in np.unique(run.version[run.version >= 0]).tolist():  # type: ignore[attr-defined]
        places = np.flatnonzero(run.version == number)  # type: ignore[attr-defined]
        data, offsets, by_row, transactions = gathered([(run, places)])  # type: ignore[list-item]
        one: Segment = segment.Segment(indexer.versions[number], data, offsets, by_row, transactions)
        told = compared(one)
        names = str(indexer.versions[number].id)
        found += [
            (names, int(by_row.pos[row]), int(by_row.row[row]), transactions.gtid(int(by_row.transaction[row])), shown)
            for row, shown in enumerate(told)
        ]
    return found


def _seeds() -> list[bytes]:
    kept = [(CORPUS / "recorded" / name).read_bytes() for name in NAMES]
    return [bytes([bits]) + one[1:] for one in kept for bits in (0, NUMBERED, MENDED, MENDED | NUMBERED)]


EVENTS = Target(
    "recorded", _run, _seeds, (b"\x00", b"\xff", b"\xfb", b"\xfc", b"BEGIN", b"\x13", b"\x1e", b"\x02", b"\x03")
)


# --- recording --------------------------------------------------------------------------------------------------------

_COLUMNS = (
    "id int unsigned not null primary key, a tinyint, b smallint unsigned, c mediumint, d bigint unsigned, e float, "
    "f double, g decimal(30,10), h bit(11), i char(20), j varchar(300), k binary(8), l varbinary(40), m text, n blob, "
    "o enum('x','y','z'), p set('u','v','w'), q year, r date, s time(3), t datetime(6), u timestamp(2) null, "
    "v json, w point"
)
_ROW = (
    "({id}, -7, 65535, -8388608, 18446744073709551615, 1.5, -2.25e300, -12345678901234567890.0123456789, "
    "b'10110011101', "
    "'é ', repeat('x', {id}), 'ab', x'00ff00', repeat('text', 9), x'0001fe', 'y', 'u,w', 2024, '2024-02-29', "
    "'-12:34:56.789', '2024-02-29 01:02:03.456789', '2024-02-29 01:02:03.45', "
    '\'{{"a": [1, -2.5, null, true, "s"], "b": {{"c": 99999999999}}}}\', point(1, 2))'
)


def _statements(dialect: str, version: str) -> list[str]:
    nulls = "({id}" + ", null" * 23 + ")"
    found = [f"create table t ({_COLUMNS})", "create table u (x varchar(9), y int) charset latin1"]
    found += [f"insert into t values {_ROW.format(id=1)}, {_ROW.format(id=2)}, {nulls.format(id=3)}"]
    found += ["update t set j = 'y', o = 'z', w = null where id < 3", "delete from t where id = 3"]
    found += ["insert into u values ('ä', 1), (null, null)", "update u set y = y + 1"]
    found += ["begin", "insert into u values ('s', 5)", "savepoint p", "insert into u values ('gone', 6)",
              "rollback to p", f"insert into t values {_ROW.format(id=4)}", "commit"]  # fmt: skip
    found += ["truncate table u", "alter table u add column z bigint", "insert into u values ('w', 1, 2)"]
    found += ["xa start 'x'", "insert into u values ('xa', 1, 1)", "xa end 'x'", "xa prepare 'x'", "xa commit 'x'"]
    if dialect == "mysql" and version.startswith("mysql-8"):
        found += ["set binlog_row_value_options = partial_json", "set binlog_row_image = minimal",
                  "update t set v = json_set(v, '$.a[0]', 2, '$.b.d', 'new') where id = 1",
                  "set binlog_row_image = full", "update t set v = json_remove(v, '$.b') where id = 1"]  # fmt: skip
    if dialect == "mariadb":
        found += ["set global log_bin_compress = on", f"insert into t values {_ROW.format(id=290)}",
                  "update t set j = repeat('c', 300) where id = 290", "delete from t where id = 290",
                  "set global log_bin_compress = off"]  # fmt: skip
    return found


def main() -> int:
    """Record the files of all servers."""
    from tests.servers.mysql import VERSIONS, MySqlServer

    folder = CORPUS / "recorded"
    folder.mkdir(parents=True, exist_ok=True)
    for number, version in enumerate(VERSIONS):
        name = "binlog_annotate_row_events" if version.dialect == "mariadb" else "binlog_rows_query_log_events"
        with MySqlServer(version, **{name: "ON"}) as server:
            server.execute("flush binary logs", "create database d character set utf8mb4", "use d",
                           *_statements(version.dialect, version.name), "flush binary logs")  # fmt: skip
            path = _written(server.data)
            data = path.read_bytes()[MAGIC_BYTES:]
        (folder / NAMES[number]).write_bytes(bytes([0, number]) + data)
        print(f"{NAMES[number]}: {len(data)} bytes")
    return 0


def _written(folder: Path) -> Path:
    """Return the last file but one, which is whole."""
    return sorted(folder.glob("binlog." + 6 * "[0-9]"))[-2]


if __name__ == "__main__":
    raise SystemExit(main())
