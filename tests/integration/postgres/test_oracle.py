"""PostgreSQL as the judge of its own types: random values, shown in events, are read back and compared by the server.

Each round takes a seed that a failure names. TAILRACE_ORACLE_SECONDS is how long the rounds of all types may take
together (one round of each is always run); TAILRACE_ORACLE_SEED repeats one round.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.values.conversions import plan_columns
from tailrace.values.conversion import ColumnPlan
from tailrace.values.fragments import column_fragment, json_array, plain_json
from tests.event_settings import event_settings
from tests.fix_postgres import Database, Postgres, create, drop
from tests.integration.postgres.semantic import sql_text

ROWS = 400
NAME = "test_oracle"
SECONDS = float(os.environ.get("TAILRACE_ORACLE_SECONDS", "0"))
OUTPUT = "-c DateStyle=ISO -c IntervalStyle=postgres -c TimeZone=UTC -c bytea_output=hex -c extra_float_digits=3"

FUNCTIONS = """
create function bits() returns int8 language plpgsql volatile as
  $$ begin return ('x' || md5(random()::text || random()))::bit(64)::int8 >> floor(random() * 63)::int; end $$;
create function below(n int8) returns int8 language plpgsql volatile as
  $$ begin return floor(random() * n); end $$;
create function digits(most int) returns text language plpgsql volatile as
  $$ declare found text := ''; begin
    for i in 1 .. 1 + below(most) loop found := found || below(10); end loop; return found; end $$;
create function words(most int) returns text language plpgsql volatile as
  $$ declare found text := ''; point int; begin
    for i in 1 .. below(most + 1) loop
      point := case below(6) when 0 then 1 + below(31) when 1 then 34 when 2 then 92 when 3 then 32 + below(95)
                             when 4 then 160 + below(55000) else 65536 + below(1000000) end;
      found := found || chr(point); end loop; return found; end $$;
create function number(whole int, fraction int) returns numeric language plpgsql volatile as
  $$ begin return (case below(2) when 0 then '-' else '' end || digits(whole)
                   || case when fraction > 0 then '.' || digits(fraction) else '' end)::numeric; end $$;
create function fraction(mantissa int, low int, high int) returns text language plpgsql volatile as
  $$ begin return case below(40) when 0 then 'NaN' when 1 then 'Infinity' when 2 then '-Infinity' when 3 then '0'
    else case below(2) when 0 then '-' else '' end || 1 + below(9) || '.' || digits(mantissa)
         || 'e' || low + below(high - low) end; end $$;
create function moment(us int8) returns timestamp language plpgsql volatile as
  $$ begin return case below(40) when 0 then timestamp 'infinity' when 1 then timestamp '-infinity'
    else (date '2000-01-01' + (us / 86400000000)::int) + (us % 86400000000 || ' microseconds')::interval end; end $$;
create function span() returns interval language plpgsql volatile as
  $$ begin return make_interval(months => (bits() % 30000)::int, days => (bits() % 900000)::int)
    + (bits() % 100000000000000 || ' microseconds')::interval; end $$;
create type mood as enum ('sad', 'o''k', 'very "happy", \\');
create domain small as numeric(9, 3);
create domain smaller as small;
"""


@dataclass(frozen=True, slots=True)
class Form:
    """A mode of events, and the part of a value `v` that it keeps, as SQL.

    `read` is the SQL that reads the value back from the text `{t}`; if empty, a cast to `{type}`, the column's type.
    """

    modes: dict[str, Any] = field(default_factory=dict)
    kept: str = "v"
    read: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A type, an SQL expression of random values of it, and the forms in which events may show it."""

    type: str
    value: str
    forms: tuple[Form, ...] = (Form(),)
    extension: str | None = None


def times(*names: str, kept: str = "v") -> tuple[Form, ...]:
    return tuple(Form({"time_precision_mode": name}, kept) for name in names)


EXACT = ("adaptive", "adaptive_time_microseconds", "microseconds", "isostring", "structured")
# µs since 1970 between the years 1680 and 2260, for ns; and within the server's own range.
NEAR = "moment(bits() % 8000000000000000)"
FAR = "moment(greatest(bits(), -211800000000000000))"
TEXT = Form(kept="v::text", read="({t})::{type}::text")
DURATION = (
    "((extract(year from v) * 12 + extract(month from v)) * 2629800000000 + extract(day from v) * 86400000000"
    " + extract(hour from v) * 3600000000 + extract(minute from v) * 60000000 + extract(microseconds from v))::int8"
)


def array_of(value: str) -> str:
    return f"case below(6) when 0 then '{{}}' else array[{value}, case below(2) when 0 then null else {value} end] end"


CASES = (
    Case("bool", "below(2) = 0"),
    Case("int2", "(bits() % 32768)::int2"),
    Case("int4", "(bits() % 2147483648)::int4"),
    Case("int8", "bits()"),
    Case("oid", "(bits() & 4294967295)::oid"),
    Case("float4", "fraction(8, -44, 38)::float4"),
    Case("float8", "fraction(17, -322, 307)::float8"),
    Case(
        "numeric",
        "number(60, 40)",
        (Form(), Form({"decimal_handling_mode": "string"}),
         Form({"decimal_handling_mode": "double"}, "v::float8", "({t})::float8")),
    ),
    Case("numeric(18,4)", "number(14, 4)", (Form(), Form({"event_format": "1.7", "decimal_handling_mode": "string"}))),
    Case("numeric(60,20)", "number(40, 20)"),
    Case("numeric(5,5)", "('0.' || digits(5))::numeric"),
    Case("money", "(bits()::numeric / 100)::money",
         (Form(kept="v::numeric", read="({t})::numeric"), Form({"decimal_handling_mode": "string"}))),
    Case("smaller", "number(6, 3)"),
    Case("text", "words(12)"),
    Case("varchar(20)", "words(20)"),
    Case("char(8)", "words(8)", (TEXT,)),
    Case("\"char\"", "chr(1 + below(126)::int)::\"char\""),
    Case("name", "words(12)::name"),
    Case("mood", "(array['sad', 'o''k', 'very \"happy\", \\'])[1 + below(3)]::mood"),
    Case("uuid", "md5(random()::text)::uuid"),
    Case("json", "json_build_object(words(4), words(4), 'n', bits())", (TEXT,)),
    Case("jsonb", "jsonb_build_array(words(4), number(20, 9), null, jsonb_build_object(words(3), true))"),
    Case("inet", "('0.0.0.0'::inet + (bits() & 4294967295))"),
    Case("cidr", "network(set_masklen('0.0.0.0'::inet + (bits() & 4294967295), below(33)::int))"),
    Case("macaddr", "substr(md5(random()::text), 1, 12)::macaddr"),
    Case("macaddr8", "substr(md5(random()::text), 1, 16)::macaddr8"),
    Case("int8range", "int8range(least(bits(), 0), greatest(bits(), 0), '[)')"),
    Case("tstzrange", f"tstzrange({NEAR}, null)"),
    Case(
        "bytea",
        "decode(repeat(md5(random()::text), below(3)::int) || left(md5(random()::text), 2 * below(16)::int), 'hex')",
        (Form(), Form({"binary_handling_mode": "base64"}, read="decode({t}, 'base64')"),
         Form({"binary_handling_mode": "base64-url-safe"}, read="decode(translate({t}, '-_', '+/'), 'base64')"),
         Form({"binary_handling_mode": "hex"}, read="decode({t}, 'hex')")),
    ),
    Case("bit(1)", "below(2)::int::bit(1)", (Form(read="({t})::bool::int::bit(1)"),)),
    Case("bit(13)", "bits()::bit(64)::bit(13)"),
    Case("varbit", "bits()::bit(64)", (Form(kept="ltrim(v::text, '0')", read="ltrim({t}, '0')"),)),
    Case(
        "date",
        "case below(40) when 0 then date 'infinity' when 1 then date '-infinity'"
        " else date '4713-01-01 BC' + below(2147000000)::int end",
        times("adaptive", "connect", "isostring", "structured"),
    ),
    Case("time", "time '00:00' + (below(86400000000) || ' us')::interval",
         (*times(*EXACT, "nanoseconds"), *times("connect", kept="date_trunc('milliseconds', v::interval)::time"))),
    Case("time(2)", "(time '00:00' + (below(86400000) || ' ms')::interval)::time(2)", times(*EXACT)),
    Case(
        "timetz",
        "(time '00:00' + (below(86400000000) || ' us')::interval)::timetz"
        " at time zone make_interval(secs => (below(57598 * 2) - 57598)::int)",
        (Form(kept="(v at time zone 'UTC')::time", read="({t})::timetz::time"), *times("structured")),
    ),
    Case("timestamp", NEAR,
         (*times(*EXACT, "nanoseconds"), *times("connect", kept="date_trunc('milliseconds', v)"))),
    Case("timestamp(0)", FAR, times("structured", "connect")),
    Case("timestamp(3)", FAR, times("adaptive", "structured", "connect")),
    Case("timestamptz", FAR, (*times("adaptive", "structured"), Form({"event_format": "1.7"}))),
    Case("timestamptz(2)", FAR),
    Case("interval", "span()",
         (Form(kept=DURATION, read="({t})::int8"), Form({"interval_handling_mode": "string"}), *times("structured"))),
    Case("point", "point(fraction(17, -300, 300)::float8, fraction(5, -9, 9)::float8)", (TEXT,)),
    Case("bool[]", array_of("below(2) = 0")),
    Case("int4[]", array_of("(bits() % 2147483648)::int4")),
    Case("int8[]", "array_fill(bits(), array[1 + below(3)::int], array[below(5)::int - 2])",
         (Form(kept="array(select unnest(v))"),)),
    Case("text[]", array_of("words(5)")),
    Case("varchar(9)[]", array_of("(array['NULL', 'null', '', ' ', '{a,\"', '\\\\', ',', words(3)])[1 + below(8)]")),
    Case("mood[]", "array[(array['sad', 'o''k', 'very \"happy\", \\'])[1 + below(3)], 'sad']::mood[]"),
    Case("float4[]", array_of("fraction(8, -44, 38)::float4")),
    Case("time(2)[]", array_of("(time '00:00' + (below(86400000) || ' ms')::interval)::time(2)"), times(*EXACT)),
    Case(
        "numeric[]",
        array_of("number(20, 9)"),
        (Form(), Form({"decimal_handling_mode": "string"}), Form({"event_format": "1.7"}),
         Form({"decimal_handling_mode": "double"}, "v::float8[]", "({t})::float8[]")),
    ),
    Case("numeric(9,2)[]", array_of("number(6, 2)")),
    Case("float8[]", array_of("fraction(17, -322, 307)::float8")),
    Case("bytea[]", array_of("decode(md5(random()::text), 'hex')")),
    Case("timestamp[]", array_of(NEAR), times(*EXACT)),
    Case("timestamptz[]", array_of(FAR + "::timestamptz")),
    Case("date[]", array_of("date '2000-01-01' + (bits() % 700000)::int"), times("adaptive", "structured")),
    Case("uuid[]", array_of("md5(random()::text)::uuid")),
    Case("jsonb[]", array_of("to_jsonb(words(4))")),
    Case("vector(3)", "array[bits() % 1000, bits() % 9 / 8.0, 1e-20]::float4[]::vector(3)", extension="vector"),
    Case("halfvec(2)", "array[bits() % 1000, bits() % 9 / 8.0]::float4[]::halfvec(2)", extension="vector"),
    Case("sparsevec(9)", "array[bits() % 3, 0, 0, 1.5, bits() % 2, 0, 0, 0, 7]::float4[]::vector(9)::sparsevec",
         extension="vector"),
)  # fmt: skip


@pytest.fixture(scope="module")
def session(postgres: Postgres) -> Iterator[psycopg.Connection[Any]]:
    """Return a connection to a database of the generators, with the output settings of the product's own sessions."""
    database: Database = create(postgres, NAME)
    with psycopg.connect(database.dsn, autocommit=True, options=OUTPUT) as connection:
        connection.execute(FUNCTIONS)
        if "vector" in postgres.extensions:
            connection.execute("create extension vector")
        yield connection
    drop(postgres, NAME)


def seeds() -> Iterator[float]:
    """Yield a seed for each round: the requested one, else as many as the time allows."""
    given = os.environ.get("TAILRACE_ORACLE_SEED")
    if given:
        yield float(given)
        return
    until = time.monotonic() + SECONDS / len(CASES)
    while True:
        yield (time.time_ns() // 1000 % 1_000_000) / 1_000_000
        if time.monotonic() > until:
            return


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.type)
def test_the_server_reads_its_values_back(case: Case, session: psycopg.Connection[Any], postgres: Postgres) -> None:
    if case.extension and case.extension not in postgres.extensions:
        pytest.skip(f"the server has no extension {case.extension}")
    for seed in seeds():
        session.execute("drop table if exists o")
        session.execute(f"create table o (n int primary key, v {case.type})".encode())
        session.execute("select setseed(%s)", [seed])
        session.execute(f"insert into o select n, {case.value} from generate_series(1, {ROWS}) n".encode())
        _compare(case, session, seed)


def _compare(case: Case, session: psycopg.Connection[Any], seed: float) -> None:
    catalog = Catalog(session, NAME)
    oid = next(oid for oid, table, _ in catalog.tables() if table.table == "o")
    table = catalog.schemas([oid])[oid]
    output = catalog.output_functions(table.columns)["v"]
    texts = [row[0] for row in session.execute(f"select textin({output}(v)) from o order by n".encode())]
    column = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    for form in case.forms:
        settings = event_settings("s", NAME, replace_null_with_default=False, **form.modes)
        plan = next(plan for plan in plan_columns(table, settings)[0] if plan.name == "v")
        shown = _json(plan, column)
        assert shown == [_plain(plan, text) for text in column.to_pylist()], f"kernel and twin differ, seed {seed}"
        values = [json.loads(text, parse_int=str, parse_float=str) for text in shown]
        read = [sql_text(plan.schema, value) for value in values]
        back = (form.read or "({t})::{type}").format(t="u.t", type=case.type)
        statement = (
            f"select o.n, textin({output}(o.v)), u.t"
            f" from o left join unnest(%s::int[], %s::text[]) u(n, t) using (n)"
            f" where ({form.kept}) is distinct from {back} limit 3"
        )
        wrong = session.execute(statement.encode(), [list(range(1, ROWS + 1)), read]).fetchall()
        assert not wrong, f"{form.modes}, seed {seed}: {[(row, shown[row[0] - 1]) for row in wrong]}"


def _json(plan: ColumnPlan, column: pa.Array) -> list[str]:
    fragment, _ = column_fragment(plan, column, None)
    texts: list[str] = json_array(fragment).to_pylist()
    return [f'"{text}"' for text in texts] if fragment.quoted else texts


def _plain(plan: ColumnPlan, text: bytes | None) -> str:
    found = None if text is None else plain_json(plan, text)
    return (plan.null if found is None else found).decode()
