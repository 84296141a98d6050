"""Values that the server sends in binary form: their texts are those of its output functions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.fix_postgres import Database

EDGES = (
    "infinity",
    "-infinity",
    "1999-12-31 23:59:59.999999",
    "2000-01-01 00:00:00.1",
    "1969-12-31 00:00:00.12",
    "0001-01-01 00:00:00",
    "0001-12-31 23:59:59.000001 BC",
    "0001-01-01 00:00:00 BC",
    "0005-02-29 12:00:00 BC",
    "0400-02-29 12:00:00",
    "4713-01-01 00:00:00 BC",
    "4714-11-24 00:00:00 BC",
    "9999-12-31 23:59:59.999999",
    "10000-01-01 00:00:00",
    "294276-12-31 23:59:59.999999",
)
DATES = ("5874897-12-31", "99999-02-28", "100000-03-01", "1582-10-10")
COLUMNS = ("id", "small", "whole", "yes", "day", "moment", "instant", "brief")
# the last and the first day, counted from 2000, that a timestamp can have
LAST, FIRST = 106_751_000, -2_451_545


def filled(database: Database) -> list[tuple[bytes | None, ...]]:
    """Fill a table with edge cases, random days and times, and nulls; return the server's own texts of it."""
    numbers = random.Random(20)
    days = [numbers.randint(FIRST, LAST) for _ in range(400)] + [numbers.randint(-800_000, 400_000) for _ in range(400)]
    with database.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute(
            "create table t (id bigserial primary key, small int2, whole int4, yes bool, day date, moment timestamp,"
            " instant timestamptz, brief timestamp(2))"
        )
        for edge in EDGES:
            connection.execute(
                "insert into t (small, whole, yes, day, moment, instant, brief)"
                " values (-32768, -2147483648, true, %s::text::date, %s::text::timestamp, %s::text::timestamptz, null)",
                (edge, edge, edge),
            )
        for date in DATES:
            connection.execute("insert into t (day) values (%s::text::date)", (date,))
        for day in days:
            us = numbers.choice([0, 1, 86_399_999_999, numbers.randrange(86_400_000_000)])
            connection.execute(
                "insert into t (small, whole, yes, day, moment, instant, brief)"
                " select 32767, d, d %% 2 = 0, at, at + us, at + us, at + us"
                " from (select %s::int as d, date '2000-01-01' + %s::int as at, interval '1 us' * %s::float8 as us) v",
                (day, day, us),
            )
        texts = ", ".join(f"{name}::text" for name in COLUMNS)
        rows = connection.execute(f"select {texts} from t order by t.id".encode()).fetchall()
    return [
        tuple(None if text is None else {"true": b"t", "false": b"f"}.get(text, text.encode()) for text in row)
        for row in rows
    ]


@pytest.mark.seed("002-09")
def test_snapshots_of_both_kinds_give_the_texts_of_the_server(database: Database, query: Any) -> None:
    expected = filled(database)
    database.execute("create table signals (id text primary key, type text, data text)")
    one = query(**{"signal.data.collection": "public.signals", "table.include.list": "public.t"})
    found = one.until(len(expected), 30)
    assert sorted((values for _, _, values in found), key=lambda values: int(values[0])) == expected
    database.execute("""insert into signals values ('one', 'execute-snapshot', '{"data-collections": ["public.t"]}')""")
    again = [values for op, table, values in one.until(2 * len(expected), 30)[len(expected) :] if table == "t"]
    assert sorted(again, key=lambda values: int(values[0])) == expected
