"""The sink `tables` loses and repeats nothing if it dies between any two commits, and refuses foreign tables."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from tailrace import sinks
from tailrace.columns.blocks import BLOCK, BlockForm, Head, written
from tailrace.errors import SinkError
from tailrace.sinks.tables.formats import delta
from tailrace.sinks.tables.formats.delta import DeltaTable
from tailrace.sinks.tables.formats.detection import found_at
from tailrace.sinks.tables.positions import REREADS, read_at
from tailrace.sinks.tables.sink import TablesSink, Writer
from tests.extent import is_full, sized, turn
from tests.fix_lake import writes

AT = datetime.datetime(2024, 2, 3, tzinfo=datetime.UTC)
OLD = BlockForm(("id", "v", "code"), (pa.int32(), pa.int32(), pa.string()), (0,), numbers=(1, 2, 3), relation=7)
NEW = BlockForm(("code", "id", "w"), (pa.string(), pa.int64(), pa.int32()), (0,), numbers=(3, 1, 2), relation=7)
"""The column v is now called w, id is wider, and the key has another column."""


def block(
    table: str,
    form: BlockForm,
    place: int,
    *rows: Sequence[Any],
    snapshot: str = "",
    missing: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Return a block of changes, each an operation and the row's values, at consecutive places of the log. All rows
    lack the values of the columns `missing`."""
    told = [
        {"op": op, "position": f"{at:016X}", "ordinal": 0, "part": 0, "at": AT, "missing": missing, "origin": None}
        | {f"c{index}": value for index, value in enumerate(values)}
        for at, (op, *values) in enumerate(rows, place)
    ]
    first, last = ((f"{place + at:016X}", 0) for at in (0, len(rows) - 1))
    head = Head("d", "s", table, form, len(rows), first, last, snapshot, missing=missing is not None)
    value = written(pa.RecordBatch.from_pylist(told, form.schema))
    named = {"op": BLOCK, "database": "d", "schema": "s", "table": table}
    return {"key": head.text(), "value": value, "position": last[0], "ordinal": last[1], "source_ts": AT} | named


class Lake:
    """Tables under `path` to which batches of blocks are written, each by a new writer, as after a restart."""

    def __init__(self, spark: SparkSession, path: Path, **options: str) -> None:
        self.spark, self.path = spark, path
        self.set(**options)

    def set(self, **options: str) -> None:
        told = {name.replace("__", "-").replace("_", "."): text for name, text in options.items()}
        found = sinks.open("tables", {"path": str(self.path), "tables.at.once": "1", **told})
        assert isinstance(found, TablesSink)
        self.sink = found

    def frame(self, blocks: Sequence[dict[str, Any]]) -> DataFrame:
        schema = (
            "key binary, value binary, op string, database string, schema string, table string, position string, "
            "ordinal bigint, source_ts timestamp"
        )
        names = [part.split()[0] for part in schema.split(", ")]
        rows = [tuple(found[name] for name in names) for found in blocks]
        return self.spark.createDataFrame(rows, schema)

    def write(self, number: int, *blocks: dict[str, Any], pipeline: str = "one") -> None:
        Writer(self.sink, pipeline, "q", lambda _: True).write(self.frame(blocks), number)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        found = self.spark.read.format("delta").load(str(self.path / table))
        return sorted((tuple(row) for row in found.collect()), key=repr)

    def commits(self, table: str, mode: str) -> int:
        """Return the number of commits that have appended or replaced (Overwrite) rows."""
        return len(writes(self.path / table, mode))


class Crashes:
    """A crash after each commit to tables under `path` whose number, from 0, is in `chosen`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.chosen: Collection[int] = ()
        self._before, self._path = 0, path
        sql, save = SparkSession.sql, DataFrameWriter.save

        def said(session: SparkSession, text: str, *args: Any, **more: Any) -> Any:
            before = self._commits()
            found = sql(session, text, *args, **more)
            self._dies(before)
            return found

        def saved(writer: DataFrameWriter, *args: Any, **more: Any) -> None:
            before = self._commits()
            save(writer, *args, **more)
            self._dies(before)

        def dying(write: Callable[..., bool]) -> Callable[..., bool]:
            def written(*args: Any) -> bool:
                before = self._commits()
                found = write(*args)
                self._dies(before)
                return found

            return written

        monkeypatch.setattr(SparkSession, "sql", said)
        monkeypatch.setattr(DataFrameWriter, "save", saved)
        for name in ("append_rows", "replace_rows"):
            monkeypatch.setattr(delta, name, dying(getattr(delta, name)))

    def _commits(self) -> int:
        return sum(1 for _ in self._path.glob("*/_delta_log/*.json"))

    def _dies(self, before: int) -> None:
        now = self._commits()
        if now > before and now - self._before - 1 in self.chosen:
            raise OSError("died")

    def deaths(self, run: Callable[[], None], commits: int, few: int) -> int:
        """Yield the chosen numbers of commits: a crash after every one of them, or in a run that is not full after a
        few of them, by the day."""
        day = datetime.date.today().toordinal()
        self._before, self.chosen = (
            self._commits(),
            sized(random.Random(day).sample(range(commits), few), range(commits)),
        )
        print(f"dies behind the commits {sorted(self.chosen)} of {commits}")
        died = deaths(run)
        assert self._commits() - self._before == commits
        self.chosen = ()
        return died


def deaths(run: Callable[[], None]) -> int:
    """Run to the end. Return the number of crashes."""
    for died in range(30):
        try:
            run()
        except OSError:
            continue
        return died
    raise AssertionError("it never ends")


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> Path:
    if "delta" not in (spark.conf.get("spark.sql.extensions", "") or "").lower():
        pytest.skip("the jars of Delta Lake cannot be had")
    return tmp_path / "lake"


FIRST = [
    block("a", OLD, 1, ("r", 1, 1, "x"), ("r", 2, 2, "y"), ("r", 3, 3, "z"), snapshot="S"),
    block("b", replace(OLD, relation=8), 4, ("r", 1, 1, "x"), snapshot="S"),
]
SECOND = [
    block("a", OLD, 10, ("u", 1, 10, "x"), ("d", 2, None, None), ("c", 4, 4, "q")),
    block("a", NEW, 20, ("u", "x", 5_000_000_000, 11), ("d", "z", None, None), ("c", "n", 1, 1)),
    block("b", replace(OLD, relation=8), 30, ("u", 1, 2, "x")),
]


@turn(0, 2)
def test_it_may_die_behind_any_commit(spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is altered, with another key in the middle of a batch, beside another table: each is written once."""
    lake, crashes = Lake(spark, path), Crashes(monkeypatch, path)
    # One of the batches, by the day, in a run that is not full.
    few = datetime.date.today().toordinal() % 2
    # The positions and both tables created, both written, the moment; one commit for each table in a run.
    assert crashes.deaths(lambda: lake.write(0, *FIRST), 6, few) == sized(few, 4)
    # Two parts of one table, with five commits of its alteration in between, the other table, and the moment.
    assert crashes.deaths(lambda: lake.write(1, *SECOND), 9, 1 - few) == sized(1 - few, 8)
    # Spark's own commit is missing, so the batch is replayed.
    lake.write(1, *SECOND)
    assert lake.rows("s.a") == [(1, 1, "n"), (4, 4, "q"), (5_000_000_000, 11, "x")]
    assert lake.rows("s.b") == [(1, 2, "x")]
    assert [lake.commits(table, "Overwrite") for table in ("s.a", "s.b")] == [2, 1]
    assert [lake.commits(table, "Append") for table in ("s.a", "s.b", "tailrace_positions")] == [1, 1, 2]
    # Later changes by others do not belong to the batch's moment.
    spark.sql(f"update delta.`{path / 's.b'}` set v = 0")
    moment = read_at(spark, str(path))
    assert [tuple(row) for row in moment.tables["s.b"].collect()] == [(1, 2, "x")]
    assert len(moment.tables["s.a"].collect()) == 3


def test_what_is_not_its_own_is_left_alone(spark: SparkSession, path: Path) -> None:
    lake = Lake(spark, path)
    lake.write(0, *FIRST)
    with pytest.raises(SinkError, match="tailrace_positions already exists, of another pipeline"):
        lake.write(0, *SECOND, pipeline="two")
    lake.set(mode="history")
    with pytest.raises(SinkError, match="of another mode: latest"):
        lake.write(1, *SECOND)
    lake.set(upsert__keep__deletes="true")
    with pytest.raises(SinkError, match="upsert-keep-deletes = false"):
        lake.write(1, *SECOND)
    lake.set(table_name_format="all")
    with pytest.raises(SinkError, match="have one target"):
        lake.write(1, *SECOND)
    lake.set()
    (path / "s.b").rename(path / "away")
    with pytest.raises(SinkError, match=r"s\.b is gone, with all that earlier batches have written"):
        lake.write(1, SECOND[-1])
    (path / "s.b").mkdir()
    (path / "s.b" / "file").write_text("")
    with pytest.raises(SinkError, match="is not a table of Delta Lake"):
        lake.write(1, SECOND[-1])
    other = Lake(spark, path.parent / "other")
    with pytest.raises(SinkError, match=r"has written 1 batches, and .* does not exist"):
        other.write(1, *SECOND)
    assert not (path.parent / "other").exists()
    assert lake.rows("s.a") == [(1, 1, "x"), (2, 2, "y"), (3, 3, "z")]


@turn(1, 2)
def test_a_value_that_nobody_has_stops(spark: SparkSession, path: Path) -> None:
    """The batch is written once such values may be null; a value that the table has stays."""
    lake = Lake(spark, path)
    lake.write(0, *FIRST)
    batch = block("b", replace(OLD, relation=8), 10, ("u", 1, None, "new"), ("u", 5, None, "y"), missing=[1])
    with pytest.raises(Exception, match="TASK_WRITE_FAILED") as caught:
        lake.write(1, batch)
    assert "the value of the column v of a row" in str(lake.sink.failure(str(caught.value)))
    assert lake.rows("s.b") == [(1, 1, "x")]
    lake.set(unknown_values="null")
    lake.write(1, batch)
    assert lake.rows("s.b") == [(1, 1, "new"), (5, None, "y")]


OTHER = BlockForm(("w", "id", "code"), (pa.date32(), pa.int64(), pa.int32()), (1,), (2,), (1, 2, 3), 9)
"""Another table under the name, whose columns have other numbers; one of them is wider, and one has another type."""
ANEW = [
    block("a", OLD, 10, ("u", 1, 10, "x"), ("c", 4, 4, "q")),
    block("a", OTHER, 20, ("c", AT.date(), 7, None), ("u", AT.date(), 1, None), missing=[2]),
    block("a", OTHER, 30, ("c", AT.date(), 8, 8)),
]


def rereading(lake: Lake, monkeypatch: pytest.MonkeyPatch, **options: str) -> list[str]:
    """Let the lake's pipeline read tables again; return the list that gets the ids of the signals which it sends."""
    lake.set(schema_recreated="reread", unknown_values="reread", **options)
    asked: list[str] = []
    monkeypatch.setattr(lake.sink, "reread", lambda signal: asked.append(signal.id))
    return asked


@pytest.mark.full
def test_it_may_die_behind_any_commit_while_another_table_takes_the_place(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request is kept first: the last one is in the table of positions, and no moment is whole."""
    lake, crashes = Lake(spark, path), Crashes(monkeypatch, path)
    lake.write(0, FIRST[0])
    asked = rereading(lake, monkeypatch)
    # The first commit of each further process keeps what it asks for again.
    crashes._before, crashes.chosen = crashes._commits(), range(0, 60, 2)
    assert deaths(lambda: lake.write(1, *ANEW)) > 5
    crashes.chosen = ()
    lake.write(1, *ANEW)
    assert lake.rows("s.a") == [(1, AT.date(), None), (7, AT.date(), None), (8, AT.date(), 8)]
    assert [row[5] for row in lake.rows("tailrace_positions")] == [True, False]
    kept = DeltaTable(spark, str(path / "tailrace_positions")).properties()[REREADS]
    assert json.loads(kept)["d.s.a"][0] == asked[-1]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("options", "own", "rows"),
    [
        ({"upsert__keep__deletes": "true"}, "__deleted, __op", [
            (1, None, "false", "u"), (2, None, "true", "t"), (3, None, "true", "t"), (4, None, "true", "t"),
            (7, None, "false", "c"), (8, 8, "false", "c"),
        ]),
        ({"mode": "history"}, "__valid_from, __valid_to", [
            (1, None, f"{1:016X}", f"{10:016X}"), (1, None, f"{10:016X}", f"{20:016X}"), (1, None, f"{21:016X}", None),
            (2, None, f"{2:016X}", f"{20:016X}"), (3, None, f"{3:016X}", f"{20:016X}"),
            (4, None, f"{11:016X}", f"{20:016X}"), (7, None, f"{20:016X}", None), (8, 8, f"{30:016X}", None),
        ]),
    ],
    ids=["kept deletes", "history"],
)  # fmt: skip
def test_rows_of_the_former_table_are_kept_as_ended(
    spark: SparkSession,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    options: dict[str, str],
    own: str,
    rows: list[tuple[Any, ...]],
) -> None:
    lake = Lake(spark, path)
    asked = rereading(lake, monkeypatch, format=kind, **options)
    lake.write(0, FIRST[0])
    lake.write(1, *ANEW)
    found = found_at(spark, str(path / "s.a")).table(spark, str(path / "s.a")).rows()
    assert sorted(map(tuple, found.selectExpr("id", "code", *own.split(", ")).collect()), key=repr) == rows
    assert len(asked) == 1


HALF = ".00000000000000000000.json.7c7f.tmp"
LEFT: Sequence[Mapping[str, Sequence[str]]] = (
    {"tailrace_positions": (), "s.a": (HALF,), "s.b": ()},
    {"tailrace_positions": (HALF,), "s.a": (), "s.b": (HALF,)},
)


@pytest.mark.parametrize("turn", range(len(LEFT)) if is_full() else [datetime.date.today().toordinal() % len(LEFT)])
def test_it_may_die_while_tables_are_made(spark: SparkSession, path: Path, turn: int) -> None:
    """Delta Lake creates the directory of the log before it writes the first commit into it: nothing is there yet, or
    half a commit."""
    for table, names in LEFT[turn].items():
        log = path / table / "_delta_log"
        log.mkdir(parents=True)
        for name in names:
            (log / name).write_text("{")
    lake = Lake(spark, path)
    lake.write(0, *FIRST)
    assert lake.rows("s.a") == [(1, 1, "x"), (2, 2, "y"), (3, 3, "z")]
    assert lake.rows("s.b") == [(1, 1, "x")]
    assert len(lake.rows("tailrace_positions")) == 1
