"""Tables are right at moments of a real PostgreSQL: transfers of a bank, shards in one table, a rebuild from a log."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import Any

import pytest

import tailrace
from tailrace.command.cli import main
from tailrace.errors import ConversionError
from tailrace.sinks.tables.formats.delta import DeltaTable
from tailrace.sinks.tables.maintain import MaintenanceWork, maintain
from tailrace.sinks.tables.positions import Positions
from tests.extent import is_full, sized, turn
from tests.fix_lake import Lake
from tests.fix_postgres import Database
from tests.integration.test_tables import BIG

ACCOUNTS, OPENING = 12, 100


def transfers(dice: random.Random, count: int) -> list[str]:
    """Run transactions between accounts of two tables: transfers, accounts that get another number, and closed ones."""
    found = []
    for number in range(count):
        here, there = dice.sample(("a", "b"), 2)
        payer, payee = (dice.randrange(ACCOUNTS // 2) for _ in range(2))
        paid = dice.randrange(1, 50)
        steps = [
            f"update {here} set amount = amount - {paid} where id = {payer}",
            f"update {there} set amount = amount + {paid} where id = {payee}",
        ]
        if number % 4 == 3:
            closed = ACCOUNTS // 2 + number // 4 % (ACCOUNTS // 2)
            steps.append(f"with c as (delete from {here} where id = {closed} returning amount) "
                         f"update {there} set amount = amount + coalesce((select sum(amount) from c), 0) "
                         f"where id = {payee}")  # fmt: skip
        if number % 4 == 1:
            steps.append(f"update {there} set id = id + 1000 where id = {payer + ACCOUNTS // 2}")
        found.append("begin; " + "; ".join(steps) + "; commit")
    return found


@pytest.mark.full
def test_the_sum_of_a_bank_is_the_same_at_every_moment(
    lake: Callable[..., Lake], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are small, and the pipeline is killed between two tables and before the row of a moment."""
    for name in ("a", "b"):
        database.execute(
            f"create table {name} (id int primary key, amount int)",
            f"insert into {name} select i, {OPENING} from generate_series(0, {ACCOUNTS - 1}) i",
        )
    made = lake(sink_tables_tables_at_once="1", **sized({}, {"source_max_batch_size": "10"}))
    made.run()
    made.set(source_max_batch_size="10")
    database.execute(*transfers(random.Random(4), sized(5, 8)))
    with database.connect() as connection:
        (before,) = connection.execute(b"select clock_timestamp()").fetchone() or (None,)
    database.execute("begin; update a set amount = amount - 1 where id = 1; update b set amount = amount + 1 "
                     "where id = 2; commit")  # fmt: skip
    run, add = DeltaTable.merge, Positions.add
    left = {"MERGE": 3, "moment": 2}

    def killed(what: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def done(*told: Any) -> Any:
            left[what] -= 1
            if left[what] == 0:
                raise RuntimeError("killed")
            return does(*told)

        return done

    monkeypatch.setattr(DeltaTable, "merge", killed("MERGE", run))
    monkeypatch.setattr(Positions, "add", killed("moment", add))
    for _ in left:
        with pytest.raises(Exception, match="killed"):
            made.run()
    made.run()
    made.equals("a", "b")
    path = str(made.path)
    moments = made.rows("tailrace_positions", "position", "whole")
    assert len(moments) >= 2
    for (position,) in moments:
        moment = tailrace.read_at(made.spark, path, position=position)
        both = moment.tables["public.a"].union(moment.tables["public.b"])
        assert both.selectExpr("sum(amount)").collect()[0][0] == 2 * ACCOUNTS * OPENING, position
    until = tailrace.complete_until(made.spark, path, slack=datetime.timedelta(0))
    assert before is not None
    assert before <= until <= datetime.datetime.now(datetime.UTC)
    if is_full():
        assert tailrace.complete_until(made.spark, path) == until - datetime.timedelta(seconds=1)
        assert [
            line for line in maintain(made.spark, path, MaintenanceWork(True, True)) if "moments removed" in line
        ] == ["tailrace_positions: 0 moments removed"]
        made.equals("a", "b")


@turn(4, 7)
def test_shards_are_one_table_and_the_catalog_knows_it(lake: Callable[..., Lake], database: Database) -> None:
    """Rows with the same key in two tables are two rows; values stored apart belong to their own table."""
    for shard in (1, 2):
        database.execute(
            f"create table orders_{shard} (id int primary key, v text, big text)",
            f"alter table orders_{shard} alter column big set storage external",
            f"insert into orders_{shard} select i, 'v' || i, {BIG} from generate_series(1, 4) i",
        )
    made = lake(
        sink_tables_route_regex=r"(.*)\.orders_\d+", sink_tables_route_replacement="$1.orders",
        sink_tables_catalog_name_format="shop_$${schema}.$${table}",
    )  # fmt: skip
    made.run()
    database.execute(
        "update orders_1 set v = 'one' where id = 1",
        "update orders_2 set v = 'two', id = 9 where id = 1",
        "delete from orders_1 where id = 2",
        "insert into orders_2 values (10, 'new', null)",
    )
    made.run()
    told = made.spark.sql("select id, v, big, __dbz__physicalTableIdentifier from shop_public.orders").collect()
    name = database.name
    wanted = [(*row, f"{name}.public.orders_{shard}") for shard in (1, 2) for row in made.source(f"orders_{shard}")]
    assert sorted(map(tuple, told), key=repr) == sorted(wanted, key=repr)
    made.spark.sql("drop table shop_public.orders")
    if not is_full():
        return
    database.execute("truncate orders_1")
    with pytest.raises(ConversionError, match=r"public\.orders_1 was truncated"):
        made.run()


@pytest.mark.full
def test_a_pipeline_goes_on_with_what_was_rebuilt_from_its_log(
    lake: Callable[..., Lake], database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.execute(
        "create table t (id int primary key, v int, big text)",
        "alter table t alter column big set storage external",
        f"insert into t select i, i, {BIG} from generate_series(1, 6) i",
    )
    made = lake(sink_tables_mode="log")
    made.run()
    database.execute(
        "update t set v = 10 where id < 4", "update t set id = 11 where id = 1", "update t set v = 12 where id = 11",
        "delete from t where id = 2", f"insert into t values (2, 0, {BIG})",
    )  # fmt: skip
    made.run()
    target = made.path.parent / "rebuilt"
    assert main(["rebuild", str(made.path), str(target), "--mode", "latest"]) == 0
    assert f"public.t: latest, {target}/public.t" in capsys.readouterr().out
    made.path = target
    made.equals("t")
    database.execute("update t set v = 13 where id in (2, 11)", "delete from t where id = 3")
    made.set(sink_tables_mode="latest", sink_tables_path=str(target))
    made.run()
    made.equals("t")
