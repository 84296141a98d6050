"""Variable parts are named in records of any shape, and nothing else is."""

from __future__ import annotations

from tests.golden.compare import Terms, difference
from tests.golden.record import Record, produced
from tests.golden.shapes import Shapes
from tests.golden.wire import Reader

NOW, LATER = 1_795_345_786_641, 1_795_345_799_999


def record(value: bytes, places: tuple[int | None, int | None] = (None, None)) -> Record:
    return produced("t", b'{"id":1}', value, [], Reader(), places)


def differs(one: Record, other: Record, **fields: str) -> str | None:
    return difference([one], [other], Terms(normaliser=lambda: Shapes(fields=fields)))


def test_moments_of_runs_are_equal_wherever_they_are() -> None:
    assert differs(record(b'{"a":{"at":%d}}' % NOW), record(b'{"a":{"at":%d}}' % LATER)) is None
    assert differs(record(b"{}", (None, NOW)), record(b"{}", (None, LATER))) is None
    assert differs(record(b'{"at":"2026-11-23T12:00:00Z"}'), record(b'{"at":"2026-11-24T13:00:00.5Z"}')) is None


def test_moments_of_data_are_not() -> None:
    assert differs(record(b'{"at":1577934245678}'), record(b'{"at":1577934245679}'))
    assert differs(record(b"{}", (None, -1)), record(b"{}", (None, -2)))
    assert differs(record(b'{"at":%d}' % NOW), record(b'{"at":"%d"}' % NOW))
    assert differs(record(b'{"at":"2020-01-02"}'), record(b'{"at":"2020-01-03"}'))


def test_partitions_are_compared() -> None:
    assert differs(record(b"{}", (1, None)), record(b"{}", (2, None)))
    assert differs(record(b"{}", (1, None)), record(b"{}"))


def test_positions_have_names_under_which_equal_stays_equal() -> None:
    same = b'{"source_lsn":%d,"lsn":%d}'
    assert differs(record(same % (5, 5)), record(same % (7, 7))) is None
    assert differs(record(same % (5, 5)), record(same % (7, 8)))
    own = b'{"place":%d}'
    assert differs(record(own % 5), record(own % 7)) is not None
    assert differs(record(own % 5), record(own % 7), place="lsn") is None
