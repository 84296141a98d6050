"""`tailrace verify` finds, names and repairs differences between a real PostgreSQL and its tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.connectors.postgres.verify_source import ComparedSnapshot
from tailrace.connectors.registry import from_entries
from tailrace.errors import ConfigError, PrerequisiteError, SinkError
from tailrace.monitoring.failures import cause
from tailrace.pipeline import Pipeline
from tailrace.sinks.tables.formats.detection import found_at
from tailrace.sinks.tables.formats.iceberg.library import is_there
from tailrace.sinks.tables.sink import TablesSink
from tailrace.sinks.tables.statements import Clause, Merge
from tailrace.verify import arguments, command, repair
from tailrace.verify.check import Verification, VerificationResult
from tailrace.verify.moments import newest
from tests.extent import is_full, sized
from tests.fix_lake import Lake, Stepped, SteppedPipeline
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
        return sized(Stepped, Lake)(spark, database, tmp_path, named | options)

    return made


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let repairs run their pipeline without a query of Spark, except in a full run."""
    monkeypatch.setattr(repair, "Pipeline", sized(SteppedPipeline, Pipeline))


def pipeline_of(made: Lake) -> Pipeline:
    return Pipeline(from_entries(made.entries, {}), made.spark)


def verification(made: Lake) -> Verification:
    pipeline = pipeline_of(made)
    assert isinstance(pipeline.sink, TablesSink)
    return Verification(made.spark, pipeline.sink, "postgres", pipeline.options())


def found(verified: VerificationResult) -> dict[str, dict[Any, str]]:
    """Return the differences of each table that is not clean, with undecided ones in brackets."""
    return {
        str(table.table): table.differing | {key: f"({kind})" for key, kind in table.undecided.items()}
        for table in verified.tables
        if not table.is_clean
    }


def verify(made: Lake, *given: str) -> int:
    """Return the result of the command."""
    pipeline = pipeline_of(made)
    assert isinstance(pipeline.sink, TablesSink)
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)
    return command.verify(made.spark, pipeline.run, pipeline.sink, parser.parse_args(given))


def repaired(made: Lake, *given: str) -> tuple[int, dict[tuple[Any, ...], str]]:
    """Return the result of a repair, and its report: for each table and key the difference."""
    report = made.path.parent / "report"
    code = verify(made, "--repair", "--report", str(report), *given)
    entries = [json.loads(line) for line in report.read_text().splitlines()]
    return code, {(entry["table"], *entry["key"].values()): entry["kind"] for entry in entries}


@pytest.mark.usefixtures("stepped")
def test_a_repair_ends_in_the_rows_of_the_source(
    make: Callable[..., Lake], database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are removed and added in the table by hand, beside a change that is not read. For every kind of damage see
    tests/spark/test_verify_rows.py, for every kind of table test_verify_tables.py there."""
    database.execute(
        SIGNALS, "create table t (id int primary key, v int)", "insert into t select i, i from generate_series(1, 50) i"
    )
    made = make()
    made.run()
    database.execute("update t set v = 0 where id = 1")
    made.run()
    stored = f"delta.`{made.path}/public.t`"
    made.spark.sql(f"insert overwrite table {stored} by name select if(id = 7, 99, id) id, v from {stored}")
    database.execute("update t set v = 6 where id = 8")
    wrong = {("public.t", 7): "missing", ("public.t", 99): "extra", ("public.t", 8): "undecided"}
    # The report says that they are equal in the end.
    assert repaired(made, "--wait", "300") == (0, wrong)
    assert "public.t: 50 rows at 0000" in capsys.readouterr().out
    made.equals("t")
    with pytest.raises(ConfigError, match=r"public\.x is not a captured table"):
        verification(made).run(["public.x"], 0)


@pytest.mark.full
@pytest.mark.usefixtures("stepped")
@pytest.mark.parametrize("kept", [True, False], ids=["deletes stay", "plain"])
def test_what_differs_is_named_and_mended(
    make: Callable[..., Lake], database: Database, capsys: pytest.CaptureFixture[str], kept: bool
) -> None:
    """Rows are removed, changed, added and duplicated in the tables by hand, beside changes that are not read.

    One of these changes ends the pipeline: it leaves unchanged the large value of a lost row, which nobody has, so that
    the pipeline cannot reach the signal. Rows that only the tables have are marked as deleted if deleted rows are kept;
    tables of Iceberg never keep them.
    """
    name = '"Odd name; x"'
    database.execute(
        SIGNALS,
        f'create table {name} ("a b" int, k text, n numeric(30,3), d float8, f float4, big text, raw bytea, doc jsonb, '
        'at timestamptz, day date, list int[], flag boolean, primary key (k, "a b"))',
        f"alter table {name} alter column big set storage external",
        f"insert into {name} select i, 'it''s \\ ' || i, i / 7.0, (array['NaN', '-0', '0', 'Infinity', '1e300'])"
        f"[1 + i % 5]::float8, i / 3.0, {BIG}, decode(md5(i::text), 'hex'), jsonb_build_object('a', i), "
        "'2024-02-03 04:05:06.789+02'::timestamptz + i * interval '1 second', '2024-02-03', "
        "array[i, null, 3], i % 2 = 0 from generate_series(1, 300) i",
        *sized((), ("create table empty (id int primary key)",)),
    )
    made = make(sink_tables_upsert__keep__deletes=str(kept).lower())
    made.run()
    database.execute(f'update {name} set big = {BIG} where "a b" = 1')
    made.run()
    if is_full():
        assert verify(made) == 0
    stored = f"delta.`{made.path}/public.Odd name; x`"
    made.spark.sql(
        f"insert overwrite table {stored} by name select `a b` + more `a b`, if(`a b` = 21, 0d, d) d, "
        "if(`a b` = 22, array(22, 3), list) list, if(`a b` = 23, concat(big, 'x'), big) big, "
        "if(`a b` = 24, null, flag) flag, * except (`a b`, d, list, big, flag, more) from (select *, explode("
        "case `a b` when 2 then array(0, 1000) when 3 then array(0, 1000) when 5 then array(0, 0) else array(0) end) "
        f"more from {stored} where `a b` not in (10, 11) and not (`a b` > 40 and `a b` % 3 = 1))"
    )
    # Changes that the pipeline has not read yet count neither as damage nor as equal.
    database.execute(
        f'update {name} set n = 0 where "a b" in (11, 24, 30)', f'delete from {name} where "a b" = 31'
    )  # fmt: skip
    if is_full():
        assert verify(made) == 1
        capsys.readouterr()
    assert "the value of the column big of a row" in made.fails()
    # The report says that they are equal in the end.
    code, told = repaired(made, "--limit", "1", "--wait", "300")
    assert code == 0

    def key(number: int) -> tuple[str, str, int]:
        return "public.Odd name; x", f"it's \\ {number % 1000}", number

    assert told == {
        **dict.fromkeys(map(key, (10, *range(43, 301, 3))), "missing"),
        **dict.fromkeys(map(key, (21, 22, 23)), "different"),
        **dict.fromkeys(map(key, (1002, 1003)), "extra"),
        key(5): "duplicate",
        **dict.fromkeys(map(key, (11, 24, 30, 31)), "undecided"),
    }
    shown = capsys.readouterr().out
    assert "public.Odd name; x: 299 rows at 0000" in shown
    assert (
        '3 different, 1 duplicate, 2 extra, 87 missing, 4 undecided\n  missing {"k": "it\'s \\\\ 10", "a b": 10}\n'
        "  and 96 more"
    ) in shown
    if is_full():
        assert found(verification(made).run((), 0)) == {}
    columns = "`a b`, k, n, flag, big"
    rows = made.rows("public.Odd name; x", f"{columns}, __deleted, __op" if kept else columns)
    current = [row for row in rows if row[5:6] != ("true",)]
    assert [row[:5] for row in current] == made.source(name, columns.replace("`", '"'))
    # 31 is removed by its own delete.
    gone = [(row[0], *row[5:]) for row in rows if row not in current]
    assert gone == ([(1002, "true", "d"), (1003, "true", "d"), (31, "true", "d")] if kept else [])
    with database.connect() as connection:
        signals = connection.execute("select id from signals where type = 'execute-snapshot'").fetchall()
    assert 2 <= len(signals) <= 4
    with pytest.raises(ConfigError, match=r"public\.x is not a captured table"):
        verification(made).run(["public.x"], 0)


def damaged(make: Callable[..., Lake], database: Database) -> Lake:
    """Return tables that keep deleted rows, one of which lacks two rows and has a row that is not the source's."""
    database.execute(
        SIGNALS, "create table t (id int primary key, v int)", "insert into t select i, i from generate_series(1, 50) i"
    )
    made = make(sink_tables_upsert__keep__deletes="true")
    made.run()
    database.execute("delete from t where id = 50")
    made.run()
    made.spark.sql(f"delete from delta.`{made.path}/public.t` where id in (7, 50)")
    made.spark.sql(f"insert into delta.`{made.path}/public.t` values (99, 1, 'false', 'c', 0)")
    return made


@pytest.mark.full
def test_rows_that_a_table_alone_has_stay_while_the_pipeline_runs(
    make: Callable[..., Lake], database: Database
) -> None:
    """The other rows are requested, and come with its next batch. For the requests see tests/unit/test_verify.py."""
    made = damaged(make, database)
    checked, said = verification(made), list[str]()
    verified = replace(checked.run((), 0), is_running=True)
    assert found(verified) == {"public.t": {(7,): "missing", (99,): "extra"}}
    repair.Repair(made.spark, pipeline_of(made).run, checked, said.append).run(verified, 0)
    assert said[0].startswith("1 keys are left that only a table has, or has twice")
    made.run()
    assert repaired(made, "--wait", "0", "--table", "public.t") == (0, {("public.t", 99): "extra"})
    assert made.rows("public.t", "id, __op", "__deleted = 'true'") == [(99, "d")]


@pytest.mark.full
def test_rows_are_mended_while_the_pipeline_runs(make: Callable[..., Lake], database: Database) -> None:
    made = damaged(make, database)
    running = pipeline_of(made)
    running.start()
    try:
        database.execute("update t set v = 0 where id = 1")
        assert verify(made, "--repair", "--wait", "300") == 1
    finally:
        running.stop()
    assert repaired(made, "--wait", "0", "--table", "public.t") == (0, {("public.t", 99): "extra"})
    assert made.rows("public.t", "id, __op", "__deleted = 'true'") == [(99, "d")]


@pytest.mark.full
@pytest.mark.usefixtures("stepped")
def test_a_lost_row_is_mended_though_its_next_update_ends_the_pipeline(
    make: Callable[..., Lake], database: Database
) -> None:
    """Nobody has the large value that the update has left unchanged, so that the pipeline cannot reach the signal."""
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
    # The pipeline continues by itself, also if a row moves that was read again; see test_tables.
    database.execute("update t set id = 70 where id = 7", "update t set v = 1 where id = 8")
    made.run()
    made.equals("t")
    assert made.moments()[-1]


@pytest.mark.full
@pytest.mark.usefixtures("stepped")
def test_the_current_versions_of_a_history_are_compared(make: Callable[..., Lake], database: Database) -> None:
    database.execute(
        SIGNALS, "create table t (id int primary key, v int)", "insert into t select i, i from generate_series(1, 9) i"
    )
    made = make(sink_tables_mode="history")
    made.run()
    database.execute("update t set v = 10 where id = 1", "delete from t where id = 2")
    made.run()
    if is_full():
        assert found(verification(made).run((), 0)) == {}
    t = f"delta.`{made.path}/public.t`"
    made.spark.sql(f"update {t} set v = if(id = 3, 0, v), __valid_to = null where id in (2, 3)")
    wrong = {("public.t", 2): "extra", ("public.t", 3): "different"}
    assert repaired(made, "--wait", "300") == (0, wrong)
    versions = made.rows("public.t", "id, v, __valid_to")
    assert [row[:2] for row in versions if row[2] is None] == made.source("t")
    assert (3, 0) in [row[:2] for row in versions if row[2] is not None]


@pytest.mark.full
@pytest.mark.usefixtures("stepped")
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
    if is_full():
        assert found(verification(made).run((), 0)) == {}
    path, session = str(made.path / "public.t"), made.spark.newSession()
    stored = found_at(session, path).table(session, path)
    session.sql("select explode(array(3, 5, 99)) k").createOrReplaceTempView("keys")
    row = Clause("s.k = 99", {"id": "s.k", "v": "1"})
    damaged = (Clause("s.k = 3"), Clause("", {"v": "0"}))
    stored.mend(Merge("keys", "t.id = s.k", damaged, row))
    database.execute("update t set v = 6 where id = 7")
    wrong = {3: "missing", 5: "different", 99: "extra", 7: "undecided"}
    if is_full():
        shown = {(key,): "(different)" if kind == "undecided" else kind for key, kind in wrong.items()}
        assert found(verification(made).run((), 0)) == {"public.t": shown}
    assert repaired(made, "--wait", "300") == (0, {("public.t", key): kind for key, kind in wrong.items()})
    made.equals("t")


@pytest.mark.full
@pytest.mark.usefixtures("stepped")
def test_rows_that_the_role_may_not_see_are_not_deleted(
    make: Callable[..., Lake], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a policy hides rows of a table, from the start or later, the comparison sees fewer rows than exist."""
    role = f"blind_{database.name}"
    database.execute(
        SIGNALS,
        "create table t (id int primary key, v int)",
        "insert into t select i, i from generate_series(1, 9) i",
        f"create role {role} login replication password 'blind'",
        f"grant select on t, signals to {role}",
        f"grant insert on signals to {role}",
    )
    try:
        made = make()
        made.run()
        database.execute("update t set v = 0 where id = 1")
        made.run()
        made.set(
            source_database_user=role, source_database_password="blind", source_publication_autocreate_mode="disabled"
        )
        hide = ("create policy p on t using (id > 5)", "alter table t enable row level security")
        take = ComparedSnapshot.take

        def taken(self: ComparedSnapshot) -> None:
            take(self)
            database.execute(*hide)

        with monkeypatch.context() as patched:
            patched.setattr(ComparedSnapshot, "take", taken)
            with pytest.raises(Exception, match="row-level security") as caught:
                verify(made, "--repair", "--wait", "300")
        known = cause(caught.value)
        assert isinstance(known, PrerequisiteError)
        assert "row-level security hides rows of it" in known.message
        made.equals("t")
        with pytest.raises(PrerequisiteError, match=r"public\.t: row-level security hides rows of it"):
            verify(made, "--repair", "--wait", "300")
        made.equals("t")
    finally:
        database.execute(f"drop owned by {role}", f"drop role {role}")


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
    with pytest.raises(ConfigError, match=r"snapshot\.select\.statement\.overrides excludes rows"):
        verification(made)
