"""Texts that no server should send cannot be converted, and never break JSON; long texts do not take long."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import Column, TableId, TableSchema
from tailrace.connectors.postgres.values.conversions import plan_columns
from tailrace.values import decimals
from tailrace.values.conversion import ColumnPlan
from tailrace.values.fragments import column_fragment, json_array, plain_json
from tests.event_settings import event_settings


def plan(kind: str, modifier: int = -1, **settings: Any) -> ColumnPlan:
    table = TableSchema(TableId("d", "s", "t"), (Column("v", kind, 0, modifier),), ())
    (found,), _ = plan_columns(table, event_settings("server", "d", **settings))
    return found


def shown(chosen: ColumnPlan, *texts: str) -> tuple[list[str], int]:
    fragment, lost = column_fragment(chosen, pa.array([text.encode() for text in texts], pa.binary()), None)
    return json_array(fragment).to_pylist(), lost


IMPOSSIBLE = [
    *(("int4", text, {}) for text in ("+", "-", "", "+1", "007", "-0", "1_0", "9223372036854775808", "1e3", "٣")),
    *(("timestamptz", text, {}) for text in ('6nfin"ty', "infinity+00", "2024-01-01 00:00:60+00", "y")),
    *(("timestamp", text, {}) for text in ("xinfinity", "2024-13-01 00:00:00", "2024-01-01 00:00:00 AD")),
    *(("date", text, {}) for text in ('"y', "2024-01-01x", "2024-00-01")),
    *(("time", text, {}) for text in ("25:00:00", "00:00:00.", "00:00:00.1234567", "24:00:00.000001")),
    *(("timestamp", "2024-02-29 24:59:59.999999", {"time_precision_mode": mode}) for mode in ("adaptive", "isostring")),
    *(("numeric", text, {"decimal_handling_mode": "string"}) for text in ('1"', "", ".", "1.2.3", "xInfinity", "NaNs")),
    *(("numeric", text, {}) for text in ("Nothing", "Inside", "1e5", "-NaN")),
    *(("float8", text, {}) for text in ("nothing", "1.2.3", ".", "1e", "1e-", "1e99999", "9" * 500)),
    *(("bool", text, {}) for text in ("tt", "trues", "")),
    *(("interval", text, {}) for text in ("1 month", "1 day ", "1 day 1 year", "00:60:00", "1 day1 mon")),
    *(("geometry", text, {}) for text in ("00", "0101")),
    *(("varbit", text, {}) for text in ("0b1", "-1", "1_1")),
    *(("sparsevec", text, {}) for text in ("{1:x\x00}/3", "{1:1/3")),
]


@pytest.mark.parametrize(("kind", "text", "settings"), IMPOSSIBLE)
def test_an_impossible_text_is_lost_and_its_neighbours_are_not(kind: str, text: str, settings: dict[str, Any]) -> None:
    chosen = plan(kind, **settings)
    good = {"int4": "5", "bool": "t", "interval": "1 day", "geometry": "0101000000" + "00" * 16, "varbit": "1"}.get(
        kind
    )
    given = [text] if good is None else [good, text, good]
    found, lost = shown(chosen, *given)
    assert lost == 1
    assert found[len(given) // 2] == chosen.null.decode()
    assert plain_json(chosen, text.encode()) is None


def test_a_day_that_is_over_is_the_next_one() -> None:
    chosen = plan("timestamp", time_precision_mode="isostring")
    found, lost = shown(chosen, "2024-02-29 24:00:00", "2024-12-31 23:59:59.5")
    assert (found, lost) == (['"2024-03-01T00:00:00Z"', '"2024-12-31T23:59:59.5Z"'], 0)
    assert plain_json(chosen, b"2024-02-29 24:00:00") == found[0].encode()


@pytest.mark.parametrize("digits", [1_999, 2_001, 4_301, 131_072 + 16_383])
@pytest.mark.parametrize("sign", ["", "-"])
def test_long_numbers_are_the_same_by_both_ways(digits: int, sign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = sign + ("1234567890" * (digits // 10 + 1))[:digits]
    chosen = plan("numeric")
    found, lost = shown(chosen, text, "1.50")
    assert lost == 0
    assert [given.encode() for given in found] == [plain_json(chosen, text.encode()), plain_json(chosen, b"1.50")]
    # the kernel by itself
    monkeypatch.setattr(decimals, "_LONG", 1 << 30)
    if digits < 10_000:
        assert shown(chosen, text, "1.50") == (found, 0)


def test_a_long_number_is_not_converted_in_quadratic_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the kernel nor Python's own conversion, which are quadratic, sees many digits at once."""
    seen: list[int] = []

    def watched(text: str) -> int:
        seen.append(len(text))
        return int(text)

    # conversions during the making of a plan do not count
    chosen = plan("numeric")
    monkeypatch.setattr(decimals, "int", watched, raising=False)
    monkeypatch.setattr(decimals, "decimals", None)
    _, lost = shown(chosen, "7" * decimals.MOST_DIGITS)
    assert lost == 0
    assert max(seen) <= 1_000
    assert sum(seen) == decimals.MOST_DIGITS


def test_more_digits_than_a_number_has_are_lost() -> None:
    assert shown(plan("numeric"), "7" * (decimals.MOST_DIGITS + 1)) == (["null"], 1)


@pytest.mark.parametrize("text", ["0.9E99999999", "1E-99999999", "1e5"])
@pytest.mark.parametrize("mode", ["precise", "string"])
def test_a_number_with_an_exponent_is_none_by_both_ways(text: str, mode: str) -> None:
    chosen = plan("numeric", decimal_handling_mode=mode)
    assert shown(chosen, text) == (["null"], 1)
    assert plain_json(chosen, text.encode()) is None


def column(type_name: str, **more: Any) -> Column:
    return Column("v", type_name, 0, **more)


TEXTS: dict[str, tuple[Column, dict[str, Any], bytes, bytes]] = {
    "text": (column("text"), {}, "é".encode(), b"a\xffb"),
    "varchar": (column("varchar"), {}, b"good", "é".encode()[:1]),
    "surrogate": (column("text"), {}, "\U0001f600".encode(), b"\xed\xa0\x80"),
    "overlong": (column("text"), {}, b"/", b"\xc0\xaf"),
    "beyond Unicode": (column("text"), {}, "\U0010ffff".encode(), b"\xf4\x90\x80\x80"),
    "split by an escape": (
        column("_text", kind="array", element=column("text")), {}, '{"é"}'.encode(), b'{"\xc3\\\xa9"}',
    ),
    "array": (column("_text", kind="array", element=column("text")), {}, b"{a,NULL}", b"{a,\xff}"),
    "json": (column("json"), {}, '{"a": "é"}'.encode(), b'{"a": "\xe9"}'),
    "jsonb": (column("jsonb"), {}, b'{"a": 1}', b'"\xff"'),
    "hstore": (column("hstore"), {}, b'"a"=>"b"', b'"a"=>"\xff"'),
    "map": (column("hstore"), {"hstore_handling_mode": "map"}, b'"a"=>"b"', b'"\xff"=>"b"'),
    "enum": (column("mood", kind="enum", enum_labels=("ok",)), {}, b"ok", b"o\xff"),
    "unknown": (column("mystery"), {"include_unknown_datatypes": True}, b"a", b"\xff"),
    "number": (column("int4"), {}, b"1", b"\xb2"),
    "numeric": (column("numeric"), {"decimal_handling_mode": "string"}, b"1.5", b"1\xff"),
    "interval": (column("interval"), {"interval_handling_mode": "string"}, b"1 day", b"1 day\xff"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_not_utf8_is_lost_and_its_neighbours_are_not(name: str) -> None:
    """A server may announce UTF-8 and send other texts."""
    kind, settings, good, bad = TEXTS[name]
    table = TableSchema(TableId("d", "s", "t"), (kind,), ())
    (chosen,), _ = plan_columns(table, event_settings("server", "d", **settings))
    values = [good, None, bad, good]
    fragment, lost = column_fragment(chosen, pa.array([b"before", *values, b"after"], pa.binary()).slice(1, 4), None)
    first, null, found, last = json_array(fragment).to_pylist()
    assert (null, found, lost) == (chosen.null.decode(), chosen.null.decode(), 1)
    assert first == last == (plain_json(chosen, good) or b"").decode()
    assert plain_json(chosen, bad) is None
