"""The sink `tables` makes Delta Lake tables that equal those of a real PostgreSQL, also after crashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from tailrace.errors import SinkError
from tailrace.sinks.tables.formats.delta import DeltaTable
from tailrace.sinks.tables.formats.detection import FORMATS
from tailrace.sinks.tables.positions import Positions, read_at
from tailrace.sinks.tables.sink import TablesSink, Writer
from tests.extent import is_full, turn
from tests.fix_lake import Lake, writes
from tests.fix_postgres import Database
from tests.waiting import until

BIG = "lpad('', 9000, md5(random()::text) || md5(random()::text))"
"""A text that PostgreSQL stores apart from its row."""
VERSIONS = "id, v, big, __valid_from, __valid_to"
REPEATED = 47
"""The number of changes in the batch that is replayed."""


def killed_behind(does: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Do it, and then die."""

    def done(*told: Any) -> Any:
        does(*told)
        raise RuntimeError(f"killed behind {what}")

    return done


@turn(0, 5)
def test_latest_equals_the_source(
    streamed: Callable[..., Lake], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are a snapshot, inserts, updates, deletes, key changes, truncates and values stored apart, batch by batch.

    In a full run one of the batches is replayed, because the pipeline is killed before Spark has written its commit;
    for batches that the test makes see test_table_crashes.
    """
    database.execute(
        "create table t (id int primary key, v text, n numeric(12,3), big text, at timestamptz, day date)",
        "alter table t alter column big set storage external",
        "create table \"Odd name; x\" (\"a b\" text, k bigint, primary key (k, \"a b\"), \"dot.ted\" double precision)",
        "create table emptied (id int primary key, v text)",
        f"insert into t select i, 'v' || i, i / 7.0, {BIG}, '2024-02-03 04:05:06.789+02', '2024-02-03' "
        "from generate_series(1, 50) i",
        "insert into \"Odd name; x\" select 'x' || i, i, i / 3.0 from generate_series(1, 20) i",
        "insert into emptied select i, 'old' from generate_series(1, 9) i",
    )  # fmt: skip
    made = streamed()
    made.run()
    assert made.counted == 50 + 20 + 9
    names = ("t", "emptied")
    if is_full():
        made.equals(*names)
        assert made.rows("public.Odd name; x") == made.source('"Odd name; x"')
    database.execute(
        "update t set v = 'w' where id <= 10",
        "update t set v = 'x' where id <= 5",
        "update t set id = id + 100 where id between 4 and 8",
        "update t set v = 'moved twice', id = id + 100 where id between 104 and 105",
        f"update t set big = {BIG} where id = 20",
        "update t set n = null where id in (20, 21)",
        "delete from t where id in (30, 31)",
        f"insert into t values (31, 'back', 1, {BIG}, null, null), (60, null, null, null, null, null)",
        "delete from t where id = 60",
        "update emptied set v = 'lost'",
        "truncate emptied",
        "insert into emptied values (1, 'new'), (2, 'new')",
        "update emptied set v = 'newest' where id = 2",
        "update \"Odd name; x\" set \"a b\" = 'y' where k < 5",
    )  # fmt: skip
    if is_full():
        with monkeypatch.context() as broken:
            broken.setattr(Positions, "add", killed_behind(Positions.add, "the moment"))
            with pytest.raises(Exception, match="killed behind the moment"):
                made.run()
    else:
        made.run()
        assert made.counted == REPEATED
    made.equals(*names)
    assert made.rows("public.Odd name; x") == made.source('"Odd name; x"')
    if is_full():
        database.execute("truncate emptied", "update t set v = 'last' where id > 100")
        made.run()
        assert made.counted == REPEATED + 1 + 5
        made.equals(*names)
    assert len(writes(made.path / "public.Odd name; x", "Overwrite")) == 1
    # Parquet's own timestamps, because INT96 would be read as ns.
    files = list((made.path / "public.t").glob("*.parquet"))
    assert {str(pq.read_schema(file).field("at").type) for file in files} == {"timestamp[us, tz=UTC]"}


@pytest.mark.full
def test_a_crash_between_a_merge_and_its_commit_changes_nothing(
    lake: Callable[..., Lake], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill following each of a batch's writes, every write is in the tables once, and at one moment."""
    database.execute(
        "create table a (id int primary key, v int)",
        "create table b (id int primary key, v int)",
        "insert into a select i, 10 from generate_series(1, 100) i",
        "insert into b select i, 10 from generate_series(1, 100) i",
    )
    made = lake(sink_tables_tables_at_once="1")
    made.run()
    assert made.rows("tailrace_positions", "whole") == [(False,)]
    database.execute(
        "begin; update a set v = v + 5 where id <= 50; update b set v = v - 5, id = id + 1000 where id <= 50; "
        "insert into a values (101, 20); update b set v = v - 20 where id = 60; delete from b where id = 1001; "
        "update a set v = v + 5 where id = 1; commit"
    )
    merge, add = DeltaTable.merge, Positions.add
    kills = {"MERGE": 1, "moment": 1}

    def dies(behind: str) -> None:
        kills[behind] -= 1
        if kills[behind] == 0:
            raise RuntimeError(f"killed behind a {behind}")

    def merged(self: DeltaTable, *told: Any) -> None:
        merge(self, *told)
        dies("MERGE")

    def added(self: Positions, *told: Any) -> None:
        add(self, *told)
        dies("moment")

    monkeypatch.setattr(DeltaTable, "merge", merged)
    monkeypatch.setattr(Positions, "add", added)
    for behind in kills:
        with pytest.raises(Exception, match=f"killed behind a {behind}"):
            made.run()
    made.run()
    made.equals("a", "b")
    for name in ("a", "b"):
        written = writes(made.path / f"public.{name}", "Overwrite")
        assert len(written) == len(set(written)) == 1, name
    moments = made.rows("tailrace_positions", "batch, whole")
    assert [whole for _, whole in moments] == [False, True]
    database.execute("update a set v = 0 where id = 2")
    moment = read_at(made.spark, str(made.path))
    tables = moment.tables["public.a"].union(moment.tables["public.b"])
    assert tables.selectExpr("sum(v)").collect()[0][0] == 2000
    with pytest.raises(SinkError, match="no moment"):
        read_at(made.spark, str(made.path), position="0" * 16)


ALTERATIONS = (
    "alter table t rename column v to u",
    "alter table t drop column w",
    "alter table t add column v text",
    "alter table t alter column u type bigint",
    "update t set u = 20000000000, v = 'new' where id = 1",
    "alter table t drop constraint t_pkey, add primary key (id, u)",
    "delete from t where id = 2",
)
"""A column is renamed, and another one gets its old name; one is dropped; one is widened; the key changes."""


@turn(1, 5)
def test_the_log_has_every_change(lake: Callable[..., Lake], database: Database) -> None:
    """This also holds beside alterations."""
    database.execute(
        "create table t (id int primary key, v int, big text, w int)",
        "alter table t alter column big set storage external",
        f"insert into t select i, i, {BIG} from generate_series(1, 2) i",
    )
    made = lake(sink_tables_mode="log")
    made.run()
    database.execute(
        "update t set v = 5 where id = 1",
        "update t set id = 9 where id = 1",
        "delete from t where id = 2",
        "truncate t",
        "insert into t values (1, 10, 'x', 0), (2, 20, 'y', 0)",
        *ALTERATIONS,
    )
    made.run()
    found = (
        made.spark.read.format("delta").load(str(made.path / "public.t")).orderBy("__position", "__ordinal", "__part")
    )
    rows = found.collect()
    told = [(row["__op"], row["id"], row["u"], row["__missing"]) for row in rows[:7]]
    assert sorted(told[:2], key=repr) == [("r", 1, 1, None), ("r", 2, 2, None)]
    assert [(op, number) for op, number, _, _ in told[2:]] == [("u", 1), ("d", 1), ("c", 9), ("d", 2), ("t", None)]
    altered = [(row["__op"], row["id"], row["u"], row["v"]) for row in rows[7:]]
    assert altered == [("c", 1, 10, None), ("c", 2, 20, None), ("u", 1, 20000000000, "new"), ("d", 2, 20, None)]
    assert told[2][2:] == (5, ["big"])
    assert told[4][2:] == (5, ["big"])


@turn(2, 5)
def test_history_has_every_version(lake: Callable[..., Lake], database: Database) -> None:
    """The current versions are the source's rows, and each version ends where the next of its key begins, also beside
    alterations."""
    database.execute(
        "create table t (id int primary key, v int, big text, w int)",
        "alter table t alter column big set storage external",
        f"insert into t select i, i, {BIG} from generate_series(1, 4) i",
    )
    made = lake(sink_tables_mode="history")
    made.run()
    versions = made.rows("public.t", VERSIONS)
    assert [row[:3] for row in versions if row[4] is None] == made.source("t", "id, v, big")
    database.execute(
        "update t set v = 10 where id = 1", "update t set v = 11 where id = 1", "update t set id = 5 where id = 2",
        "delete from t where id = 3", f"insert into t values (3, 33, {BIG})",
    )  # fmt: skip
    made.run()
    versions = made.rows("public.t", VERSIONS)
    assert [row[:3] for row in versions if row[4] is None] == made.source("t", "id, v, big")
    assert sorted(row[:2] for row in versions if row[4] is not None) == [(1, 1), (1, 10), (2, 2), (3, 3)]
    if not is_full():
        # For alterations see test_table_evolution, for a truncate test_table_model.
        return
    database.execute(
        "update t set v = 12 where id = 1", "truncate t", "insert into t values (1, 13, 'x'), (2, 14, 'y')",
        *ALTERATIONS,
    )  # fmt: skip
    made.run()
    found = made.rows("public.t", f"{VERSIONS}, v".replace("v,", "u,", 1))
    assert [(*row[:3], row[5]) for row in found if row[4] is None] == [(1, 20000000000, "x", "new")]
    assert [row for row in found if row[4] is not None and row[3] >= row[4]] == []
    versions = [row for row in found if row[0] == 1]
    starts, ends = {row[3] for row in versions}, {row[4] for row in versions}
    assert len(versions) == 6
    # The version that the truncate has ended has no successor.
    assert len(ends - starts - {None}) == 1


@pytest.mark.full
def test_a_value_that_nobody_has_stops(lake: Callable[..., Lake], database: Database) -> None:
    database.execute(
        "create table t (id int primary key, v int, big text)",
        "alter table t alter column big set storage external",
        f"insert into t select i, i, {BIG} from generate_series(1, 2) i",
    )
    made = lake(source_snapshot_mode="no_data")
    made.run()
    database.execute("update t set v = 10 where id = 1")
    assert "the value of the column big" in made.fails()
    made.set(sink_tables_unknown_values="null")
    made.run()
    assert made.rows("public.t") == [(1, 10, None)]


@pytest.mark.parametrize("kind", ["iceberg", pytest.param("delta", marks=pytest.mark.full)])
def test_a_value_that_nobody_has_is_read_again(
    lake: Callable[..., Lake], database: Database, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Rows that the table lacks are read when one of them already has another key, whose own row was a third one's.
    Once the log has shown that too, the table equals the source, and nothing more is read again."""
    later = [
        "update t set id = 30 where id = 5",
        "update t set id = 31 where id = 6",
        f"insert into t values (6, 60, {BIG})",
    ]
    asked: list[str] = []
    present = TablesSink.present

    def open_present(sink: TablesSink) -> Any:
        asked.append("asked")
        database.execute(*later)
        later.clear()
        return present(sink)

    monkeypatch.setattr(TablesSink, "present", open_present)
    database.execute(
        "create table t (id int primary key, v int, big text)",
        "alter table t alter column big set storage external",
        f"insert into t select i, i, {BIG} from generate_series(1, 6) i",
    )
    made = lake(source_snapshot_mode="no_data", sink_tables_unknown_values="reselect", sink_tables_format=kind)
    made.run()
    database.execute("update t set v = v + 10", "update t set id = 20 where id = 4", "delete from t where id = 3")
    made.run()
    assert len(asked) == 1
    (commit,) = FORMATS[kind].table(made.spark, f"{made.path}/public.t").commits(1)
    assert json.loads(commit.metadata or "")["tailrace"]["read_again"] == 4
    # 5 is left out, and the value of 6 is another row's, which no moment may show.
    assert made.rows("public.t", "id") == [(1,), (2,), (20,), (6,)]
    assert not made.moments()[-1]
    made.run()
    assert len(asked) == 2
    made.equals("t")
    if not is_full():
        return
    database.execute("update t set v = 0 where id in (1, 20, 31)", "update t set id = 21 where id = 20")
    made.run()
    assert len(asked) == 2
    made.equals("t")
    assert made.moments()[-1]


@turn(4, 5)
def test_a_large_value_that_updates_leave_alone_is_not_in_the_batch(
    lake: Callable[..., Lake], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte in each row stays complete through updates, key changes and deletes, without a query to the source."""
    megabyte = "lpad('', 1048576, (select string_agg(md5(random()::text), '') from generate_series(1, 64)) || i)"
    database.execute(
        "create table t (id int primary key, v int, big text)",
        "alter table t alter column big set storage external",
        f"insert into t select i, 0, {megabyte} from generate_series(1, 6) i",
    )
    made = lake()
    made.run()
    database.execute(
        "do $$ begin for one in 1..10 loop update t set v = v + one; end loop; end $$",
        "update t set id = id + 10, v = -1 where id in (1, 2)",
        "update t set id = 1 where id = 3",
        "delete from t where id = 4",
        "update t set id = id + 100 where id = 12",
        # A session's reads count from now on, not only after its end.
        "select pg_stat_force_next_flush()",
    )

    def scans() -> list[tuple[Any, ...]]:
        others = (
            "select from pg_stat_activity where datname = current_database() and backend_type = 'client backend' "
            "and pid <> pg_backend_pid()"
        )
        read = "select seq_scan, idx_scan from pg_stat_user_tables where relname = 't'"
        with database.connect() as connection:
            connection.autocommit = True
            # A session's reads count when it has ended.
            until(lambda: not connection.execute(others).fetchall(), "the ends of the other sessions")
            return connection.execute(read).fetchall()

    sizes: list[int] = []
    write = Writer.write

    def weighed(self: Writer, batch: DataFrame, number: int) -> None:
        sizes.append(batch.selectExpr("coalesce(sum(length(value)), 0)").collect()[0][0])
        write(self, batch, number)

    monkeypatch.setattr(Writer, "write", weighed)
    before = scans()
    made.run()
    assert scans() == before
    assert 0 < sum(sizes) < 1 << 16
    rows = made.rows("public.t", "id, v, md5(big)")
    assert rows == made.source("t", "id, v, md5(big)")
    assert {row[0] for row in rows} == {1, 5, 6, 11, 112}
