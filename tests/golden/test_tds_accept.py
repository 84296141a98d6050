"""Each rule of acceptance for SQL Server covers its condition, and nothing beyond it."""

from __future__ import annotations

import pytest

from tests.golden import wire
from tests.golden.accept import Place
from tests.golden.record import Record
from tests.golden.tds_accept import Reasons, without_last_end

OLD, NEW = Reasons("1.0.0.Final"), Reasons("3.6.1.Final")
TIME, MICROS, NANOS = (f"io.debezium.time.{name}" for name in ("Time", "MicroTime", "NanoTime"))


def read(text: str) -> object:
    return wire.Reader().read(text)


@pytest.mark.parametrize(
    ("name", "wanted", "got", "accepted"),
    [
        (MICROS, "14706123000", "14706123400", True),
        (MICROS, "14706124000", "14706123500", True),
        (MICROS, "14706123000", "14706123500", False),
        (MICROS, "0", "86399999999", True),
        (NANOS, "37425123000000", "37425123456700", True),
        (NANOS, "0", "86399999999900", True),
        (NANOS, "0", "86399998999900", False),
        (NANOS, "null", "37425123456700", False),
        (TIME, "0", "86399999", True),
        (TIME, "0", "86399998", False),
        (TIME, "37425123", "37425124", False),
        ("io.debezium.time.MicroTimestamp", "14706123000", "14706123400", False),
    ],
)
def test_times_of_day_are_rounded_in_one_version(name: str, wanted: str, got: str, accepted: bool) -> None:
    place = Place(got_schema=read(f'{{"name":"{name}"}}'))
    assert (OLD.of_value(place, read(wanted), read(got)) is not None) == accepted
    assert NEW.of_value(place, read(wanted), read(got)) is None


@pytest.mark.parametrize(
    ("wanted", "got", "accepted"),
    [
        ('{"default":"it\'\'s","field":"a"}', '{"default":"it\'s","field":"a"}', True),
        ('{"default":"it\'\'s","field":"a"}', '{"default":"it\'s","field":"b"}', False),
        ('{"default":"its","field":"a"}', '{"default":"it\'s","field":"a"}', False),
        ('{"name":"io.debezium.time.Date"}', '{"name":"io.debezium.time.Date","default":1}', True),
        ('{"name":"io.debezium.time.Date","default":1}', '{"name":"io.debezium.time.Date"}', False),
        ('{"name":"io.debezium.time.Date","default":2}', '{"name":"io.debezium.time.Date","default":1}', False),
        ('{"type":"int32"}', '{"type":"int32","default":1}', False),
    ],
)
def test_defaults(wanted: str, got: str, accepted: bool) -> None:
    assert (NEW.of_schema(read(wanted), read(got)) is not None) == accepted


def told(status: str) -> Record:
    return Record("t.transaction", wire.NULL, read(f'{{"status":"{status}","data_collections":null}}'), [])


def test_only_the_end_that_was_not_waited_for_may_be_more() -> None:
    begin, end = told("BEGIN"), told("END")
    assert without_last_end([begin], [begin, end]) == [begin]
    assert without_last_end([begin, end, begin], [begin, end, begin, told("END")]) == [begin, end, begin]
    assert without_last_end([begin, end], [begin, end]) == [begin, end]
    assert without_last_end([], [begin, end]) == [begin, end]
