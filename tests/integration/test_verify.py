"""`tailrace verify`: what differs between a real PostgreSQL and its tables is found, named and mended."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.connectors.registry import from_entries
from tailrace.errors import ConfigError, SinkError
from tailrace.pipeline import Pipeline
from tailrace.sinks.tables.formats.iceberg.library import is_there
from tailrace.sinks.tables.formats.known import found_at
from tailrace.sinks.tables.sink import TablesSink
from tailrace.sinks.tables.statements import Clause, Merge
from tailrace.verify import arguments, command
from tailrace.verify.check import Verification, Verified
from tailrace.verify.moments import newest
from tests.fix_lake import Lake
from tests.fix_postgres import Database
from tests.integration.test_tables import BIG

SIGNALS = "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048))"


@pytest.fixture
def make(spark: SparkSession, database: Database, tmp_path: Path) -> Callable[..., Lake]:
    if "delta" not in spark.conf.get("spark.sql.extensions", "").lower():
        pytest.skip("the jars of Delta Lake cannot be had")

    def made(**options: str) -> Lake:
        named = {
            "source_signal_data_collection": "public.signals",
            "source_table_include_list": r"public\.(?!signals).*",
        }
        return Lake(spark, database, tmp_path, named | options)

    return made


def pipeline_of(made: Lake) -> Pipeline:
    return Pipeline(from_entries(made.entries, {}), made.spark)


def verification(made: Lake) -> Verification:
    pipeline = pipeline_of(made)
    assert isinstance(pipeline.sink, TablesSink)
    return Verification(made.spark, pipeline.sink, "postgres", pipeline.options())


def found(verified: Verified) -> dict[str, dict[Any, str]]:
    """What differs of each table that is not clean; what is not decided in brackets."""
    return {
        str(table.table): table.differing | {key: f"({kind})" for key, kind in table.undecided.items()}
        for table in verified.tables
        if not table.is_clean
    }


def verify(made: Lake, *given: str) -> int:
    """What the command returns."""
    pipeline = pipeline_of(made)
    assert isinstance(pipeline.sink, TablesSink)
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)
    return command.verify(made.spark, pipeline.run, pipeline.sink, parser.parse_args(given))


def test_what_differs_is_named_and_mended(
    make: Callable[..., Lake], database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that are taken away, changed, added and doubled in the tables by hand, beside changes that are not read."""
    database.execute(
        SIGNALS,
        "create table t (id int, k text, n numeric(30,3), d float8, f float4, big text, raw bytea, doc jsonb, "
        "at timestamptz, day date, list int[], flag boolean, primary key (k, id))",
        "alter table t alter column big set storage external",
        f"insert into t select i, 'it''s \\ ' || i, i / 7.0, (array['NaN', '-0', '0', 'Infinity', '1e300'])[1 + i % 5]"
        f"::float8, i / 3.0, {BIG}, decode(md5(i::text), 'hex'), jsonb_build_object('a', i), "
        "'2024-02-03 04:05:06.789+02'::timestamptz + i * interval '1 second', '2024-02-03', "
        "array[i, null, 3], i % 2 = 0 from generate_series(1, 200) i",
        'create table "Odd name; x" ("a b" bigint primary key, v text)',
        "insert into \"Odd name; x\" select i, 'x' || i from generate_series(1, 300) i",
        "create table empty (id int primary key)",
    )
    made = make()
    made.run()
    database.execute(f"update t set big = {BIG} where id = 1", "insert into \"Odd name; x\" values (301, 'y')")
    made.run()
    assert verify(made) == 0
    t, odd = (f"delta.`{made.path}/public.{name}`" for name in ("t", "Odd name; x"))
    for statement in (
        f"delete from {t} where id in (10, 11)",
        f"update {t} set d = 0d where id = 11 + 10",
        f"update {t} set list = array(22, 3) where id = 22",
        f"update {t} set big = concat(big, 'x') where id = 23",
        f"update {t} set flag = null where id = 24",
        f"delete from {odd} where `a b` % 3 = 1",
        f"insert into {odd} select `a b` + 1000, v from {odd} where `a b` < 4",
        f"insert into {odd} select * from {odd} where `a b` = 5",
    ):
        made.spark.sql(statement)
    # what the pipeline has not read yet does not count as damage, and is not called equal
    database.execute("update t set n = 0 where id in (24, 30)", "delete from t where id = 31")
    report = tmp_path / "report"
    assert verify(made, "--limit", "1", "--report", str(report)) == 1
    entries = [json.loads(line) for line in report.read_text().splitlines()]
    told = {(entry["table"], *entry["key"].values()): entry["kind"] for entry in entries}

    def key(number: int) -> tuple[str, str, int]:
        return "public.t", f"it's \\ {number}", number

    assert told == {
        key(10): "missing", key(11): "missing", key(21): "different", key(22): "different", key(23): "different",
        key(24): "undecided", key(30): "undecided", key(31): "undecided",
        **{("public.Odd name; x", number): "missing" for number in range(1, 302, 3)},
        ("public.Odd name; x", 1002): "extra", ("public.Odd name; x", 1003): "extra",
        ("public.Odd name; x", 5): "duplicate",
    }  # fmt: skip
    shown = capsys.readouterr().out
    assert "public.Odd name; x: 301 rows at 0000" in shown
    assert '1 duplicate, 2 extra, 101 missing\n  missing {"a b": 1}\n  and 103 more' in shown
    assert verify(made, "--repair", "--wait", "300", "--table", "public.Odd name; x") == 0
    assert verify(made, "--repair", "--wait", "300") == 0
    assert found(verification(made).run((), 0)) == {}
    assert made.rows("public.t", "id, k, n, flag, big") == made.source("t", "id, k, n, flag, big")
    assert made.rows("public.Odd name; x") == made.source('"Odd name; x"')
    with database.connect() as connection:
        signals = connection.execute("select id from signals where type = 'execute-snapshot'").fetchall()
    assert 2 <= len(signals) <= 8


def test_rows_are_mended_while_the_pipeline_runs(make: Callable[..., Lake], database: Database) -> None:
    database.execute(
        SIGNALS, "create table t (id int primary key, v int)", "insert into t select i, i from generate_series(1, 50) i"
    )
    made = make(sink_tables_upsert__keep__deletes="true")
    made.run()
    database.execute("delete from t where id = 50")
    made.run()
    made.spark.sql(f"delete from delta.`{made.path}/public.t` where id in (7, 50)")
    made.spark.sql(f"insert into delta.`{made.path}/public.t` values (99, 1, 'false', 'c', 0)")
    running = pipeline_of(made)
    running.start()
    try:
        database.execute("update t set v = 0 where id = 1")
        assert verify(made, "--repair", "--wait", "300") == 1
    finally:
        running.stop()
    assert found(verification(made).run(["public.t"], 0)) == {"public.t": {(99,): "extra"}}
    assert verify(made, "--repair", "--wait", "0") == 0
    assert made.rows("public.t", "id, __op", "__deleted = 'true'") == [(99, "d")]
    with pytest.raises(ConfigError, match=r"public\.x is none of the captured tables"):
        verification(made).run(["public.x"], 0)


def test_a_lost_row_is_mended_though_its_next_update_ends_the_pipeline(
    make: Callable[..., Lake], database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody has the large value that the update has left alone, so that the pipeline cannot come to the signal."""
    database.execute(
        SIGNALS,
        "create table t (id int primary key, v int, big text)",
        "alter table t alter column big set storage external",
        f"insert into t select i, i, {BIG} from generate_series(1, 9) i",
    )
    made = make()
    made.run()
    database.execute("update t set v = 0 where id = 2")
    made.run()
    made.spark.sql(f"delete from delta.`{made.path}/public.t` where id in (7, 8)")
    database.execute("update t set v = 0 where id in (1, 7)")
    assert "the value of the column big of a row" in made.fails()
    assert verify(made, "--repair", "--wait", "300") == 0
    made.equals("t")
    # the pipeline goes on by itself, also where a row moves that was read again
    database.execute("update t set id = 70 where id = 7", "update t set v = 1 where id = 8")
    made.run()
    made.equals("t")
    assert made.moments()[-1]


def test_the_current_versions_of_a_history_are_compared(make: Callable[..., Lake], database: Database) -> None:
    database.execute(
        SIGNALS, "create table t (id int primary key, v int)", "insert into t select i, i from generate_series(1, 9) i"
    )
    made = make(sink_tables_mode="history")
    made.run()
    database.execute("update t set v = 10 where id = 1", "delete from t where id = 2")
    made.run()
    assert found(verification(made).run((), 0)) == {}
    t = f"delta.`{made.path}/public.t`"
    made.spark.sql(f"update {t} set v = 0 where id = 3")
    made.spark.sql(f"update {t} set __valid_to = null where id = 2")
    assert found(verification(made).run((), 0)) == {"public.t": {(2,): "extra", (3,): "different"}}
    assert verify(made, "--repair", "--wait", "300") == 0
    assert made.rows("public.t", "id, v", "__valid_to is null") == made.source("t")
    assert (3, 0) in made.rows("public.t", "id, v", "__valid_to is not null")


def test_tables_of_iceberg_are_compared_and_mended(make: Callable[..., Lake], database: Database) -> None:
    if not is_there(make().spark):
        pytest.skip("the jars of Iceberg cannot be had")
    database.execute(
        SIGNALS,
        "create table t (id int primary key, v int, s smallint, list smallint[])",
        "insert into t select i, i, i, array[i] from generate_series(1, 20) i",
    )
    made = make(sink_tables_format="iceberg")
    made.run()
    database.execute("update t set v = 100 where id = 1", "delete from t where id = 2")
    made.run()
    assert found(verification(made).run((), 0)) == {}
    path, session = str(made.path / "public.t"), made.spark.newSession()
    stored = found_at(session, path).table(session, path)
    session.sql("select explode(array(3, 5, 99)) k").createOrReplaceTempView("keys")
    row = Clause("s.k = 99", {"id": "s.k", "v": "1"})
    damaged = (Clause("s.k = 3"), Clause("", {"v": "0"}))
    stored.mend(Merge("keys", "t.id = s.k", damaged, row))
    database.execute("update t set v = 6 where id = 7")
    assert found(verification(made).run((), 0)) == {
        "public.t": {(3,): "missing", (5,): "different", (99,): "extra", (7,): "(different)"}
    }
    assert verify(made, "--repair", "--wait", "300") == 0
    made.equals("t")


def test_what_cannot_be_compared_is_refused_by_name(make: Callable[..., Lake], database: Database) -> None:
    database.execute(SIGNALS, "create table keyless (v int)")
    made = make(sink_tables_mode="log")
    with pytest.raises(SinkError, match="compares tables of the modes latest and history, not of log"):
        verification(made)
    with pytest.raises(SinkError, match="tailrace_positions: no pipeline has written there"):
        newest(made.spark, str(made.path))
    made.set(sink_tables_mode="latest", sink_tables_route_regex="a(.*)", sink_tables_route_replacement="b$1")
    with pytest.raises(SinkError, match=r"route\.regex puts the rows of several tables into one"):
        verification(made)
    for name in ("regex", "replacement"):
        del made.entries[f"debezium.sink.tables.route.{name}"]
    made.set(source_snapshot_select_statement_overrides="public.keyless")
    made.set(**{"source_snapshot_select_statement_overrides_public_keyless": "select 1"})
    with pytest.raises(ConfigError, match=r"snapshot\.select\.statement\.overrides leaves rows"):
        verification(made)
