"""The rows that a table has at a moment are compared in every mode and format, and rows that only it has leave it.

The source's rows are given here; for those that a server gives see tests/integration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.consistent_read import TouchedKeys
from tailrace.connectors.postgres.log.form import FORM
from tailrace.errors import SinkError
from tailrace.sinks.tables.formats.detection import found_at
from tailrace.sinks.tables.formats.iceberg.library import is_there
from tailrace.verify import check, repair
from tailrace.verify.check import Verification
from tailrace.verify.comparison import DIFFERENT, DUPLICATE, EXTRA, MISSING
from tests.extent import by_day, is_full
from tests.integration.test_table_crashes import OLD, Lake, block
from tests.spark.test_verify_rows import side

TABLE = TableSchema(
    TableId("d", "s", "b"), (Column("id", "int4", 0), Column("v", "int4", 0), Column("code", "text", 0)), ("id",)
)
SOURCE = [(1, 10, "x"), (3, 30, "z"), (4, 4, "new"), (7, 0, "read")]
"""The source's rows. The row 7 has been changed since the moment of the tables."""
COMMITTED = f"{12:016X}"


@dataclass
class Given:
    """The source's part of a comparison, with given rows."""

    form = FORM
    committed = position = COMMITTED
    tables: Sequence[TableSchema] = (TABLE,)

    def take(self) -> None:
        """Nothing has to be planned."""

    def of_table(self, table: TableSchema) -> Sequence[Any]:
        return ()

    def is_running(self) -> bool:
        return False

    def is_told(self) -> bool:
        return True

    def touched(self, table: TableSchema, after: str, upto: str) -> TouchedKeys:
        return TouchedKeys(((b"7",),))

    def condition(self, names: Sequence[str], keys: Sequence[Sequence[Any]]) -> str:
        return ""

    def close(self) -> None:
        """Nothing is open."""


LATEST = ("id in (2, 5)", ("id", "v"))
DELETED = ("__deleted = 'true'", ("id", "v", "__deleted", "__op"))
ENDED = ("__valid_to is not null", ("id", "v"))


TABLES = [
    pytest.param({}, LATEST, [], id="latest"),
    pytest.param({"mode": "history"}, ENDED, [(1, 1), (2, 2), (5, 5)], id="history"),
    pytest.param(
        {"upsert__keep__deletes": "true"}, DELETED, [(2, None, "true", "d"), (5, 5, "true", "d")], id="deletes stay"
    ),
    pytest.param({"format": "iceberg"}, LATEST, [], id="iceberg"),
]


@pytest.mark.parametrize(("options", "left", "shown"), by_day(TABLES, 4))
def test_rows_that_only_a_table_has_leave_it(
    spark: SparkSession,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    left: tuple[str, tuple[str, ...]],
    shown: list[tuple[Any, ...]],
) -> None:
    """Deleted rows and old versions are not compared. The table shows them in the end, by condition and columns."""
    gone, columns = left
    if options.get("format") == "iceberg" and not is_there(spark):
        pytest.skip("the jars of Iceberg cannot be had")
    lake, form = Lake(spark, place, **options), replace(OLD, relation=8)
    rows = [("r", number, number, "x") for number in (1, 2, 3, 5, 7)]
    lake.write(0, block("b", form, 1, *rows, snapshot="S"))
    lake.write(1, block("b", form, 10, ("u", 1, 10, "x"), ("d", 2, None, None)))
    path = f"{place}/s.b"
    own = found_at(spark, path).table(spark, path)
    wrong = {(3,): DIFFERENT, (4,): MISSING, (5,): EXTRA}
    if lake.sink.keeps_deletes:
        # Somebody has added it, behind the moment's version.
        spark.sql(f"insert into {own.name()} select * from {own.name()} where id = 3")
        wrong[3,] = DUPLICATE
    monkeypatch.setattr(
        check, "source_side", lambda *told: side(spark.createDataFrame(SOURCE, "c0 int, c1 int, c2 string"), ["c0"])
    )
    needed = dict.fromkeys(("database.hostname", "database.user", "database.dbname", "topic.prefix"), "x")
    verification = Verification(spark, lake.sink, "postgres", needed)
    monkeypatch.setattr(verification, "_snapshot", lambda names: Given())
    verified = verification.run((), 0)
    (found,) = verified.tables
    assert (found.differing, found.undecided, found.rows) == (wrong, {(7,): DIFFERENT}, len(SOURCE))
    repair.remove(spark, lake.sink, found, verified)
    with pytest.raises(SinkError, match="was written to after the comparison"):
        repair.remove(spark, lake.sink, found, verified)
    if is_full() or not options:
        (after,) = verification.run((), 0).tables
        assert after.differing == {(4,): MISSING} | {(3,): MISSING if lake.sink.keeps_deletes else DIFFERENT}
    assert sorted(tuple(row) for row in own.rows().where(gone).selectExpr(*columns).collect()) == shown
