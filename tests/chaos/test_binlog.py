"""The machine's own reading of binary logs: changes of keys, transactions that are not whole, a further file."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.chaos.binlog import LogFiles
from tests.chaos.changes import Change, log_place


def _event(kind: int, body: bytes, at: int = 0) -> bytes:
    length = 19 + len(body) + 4
    return struct.pack("<IBIIIH", 0, kind, 1, length, at + length if at else 0, 0) + body + bytes(4)


def _image(key: int, number: int, tag: bytes) -> bytes:
    return b"\x00" + struct.pack("<ii", key, number) + bytes([len(tag)]) + tag


def _gtid(number: int) -> bytes:
    return _event(33, bytes(17) + struct.pack("<Q", number))


_BEGIN = _event(2, struct.pack("<IIBHH", 5, 0, 5, 0, 0) + b"CHAOS\x00BEGIN")
_MAP = _event(
    19, bytes(6) + b"\x01\x00\x05CHAOS\x00\x06T_MOVE\x00" + b"\x03\x03\x03\x0f" + b"\x02\xa0\x00" + b"\x00\x01\x01\x00"
)
_HEAD = bytes(6) + b"\x01\x00\x02\x00\x03"
_XID = _event(16, bytes(8))


def test_changes_are_those_of_whole_transactions_in_their_order(tmp_path: Path) -> None:
    log = LogFiles(tmp_path, "CHAOS")
    created = _event(30, _HEAD + b"\x07" + _image(7, 0, b"a"), at=500)
    moved = _event(31, _HEAD + b"\x07\x07" + _image(7, 0, b"a") + _image(8, 1, b"b"), at=700)
    first = b"\xfebin" + _gtid(1) + _BEGIN + _MAP + created + moved + _XID
    open_one = _gtid(2) + _BEGIN + _MAP + created
    (tmp_path / "binlog.000003").write_bytes(first + open_one)
    (tmp_path / "binlog.000003.idx").write_bytes(b"of MariaDB")
    log.read()
    changes = [
        Change("T_MOVE", "c", "7", {"ID": "7", "N": "0", "TAG": "a"}, log_place(3, 500), 1),
        Change("T_MOVE", "d", "7", None, log_place(3, 700), 1),
        Change("T_MOVE", "c", "8", {"ID": "8", "N": "1", "TAG": "b"}, log_place(3, 700), 1),
    ]
    assert log.taken() == [((3, 4), one) for one in changes]
    # a crash has left the second one unfinished, and the log goes on in another file
    deleted = _event(32, _HEAD + b"\x07" + _image(8, 1, b"b"), at=90)
    (tmp_path / "binlog.000004").write_bytes(b"\xfebin" + _gtid(2) + _BEGIN + _MAP + deleted + _XID)
    log.read()
    assert log.taken() == [((4, 4), Change("T_MOVE", "d", "8", None, log_place(4, 90), 2))]
    log.read()
    assert log.taken() == []
