"""Tables rebuilt from the mode `log` equal the tables that the sink keeps of the same changes."""

from __future__ import annotations

import copy
import datetime
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.columns.blocks import BLOCK, BlockForm, Head, written
from tailrace.command.cli import main
from tailrace.errors import SinkError
from tailrace.sinks.tables.evolution import ColumnStep
from tailrace.sinks.tables.formats.delta import DeltaTable
from tailrace.sinks.tables.formats.detection import found_at
from tailrace.sinks.tables.formats.iceberg.library import is_there
from tailrace.sinks.tables.positions import Positions
from tailrace.sinks.tables.rebuild import RebuildRequest, demand_sound, rebuild
from tailrace.sinks.tables.sink import TablesSink, Writer
from tailrace.sinks.tables.target import KEY
from tests.extent import by_day, sized, turn

OLD = BlockForm(("id", "v", "big"), (pa.int64(), pa.string(), pa.string()), (0,))
NEW = BlockForm((*OLD.names, "extra"), (*OLD.types, pa.int64()), (0,))
START = datetime.datetime(2024, 2, 3, tzinfo=datetime.UTC)
PIPELINE = "9a1f"
_FRAME = (
    "key binary, value binary, op string, database string, schema string, table string, position string, "
    "ordinal bigint, source_ts timestamp"
)


Blocks = tuple[dict[str, Any], dict[str, Any]]
"""Changes as a block of all changes, and as a block of the last change of each key."""


@dataclass
class Source:
    """A table with random changes, which come in blocks as from a pipeline's tasks."""

    dice: random.Random
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    kept: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """All rows that ever existed, with their last values, and the op of the last change."""
    form: BlockForm = OLD
    position: int = 100
    ordinal: int = 0
    numbered: int = 0
    """The position of the last ordinal."""
    origins: dict[int, int] = field(default_factory=dict)
    """The previous key of each row in a block that had another key before the block."""
    carried: set[int] = field(default_factory=set)
    """The rows whose large value is in the block."""

    def snapshot(self, count: int) -> list[Blocks]:
        self.rows = {key: {"v": "r", "big": f"big{key}"} for key in range(count)}
        taken = [self._entry("r", key) for key in self.rows]
        return [self._blocks(taken[: count // 2], "S@1"), self._blocks(taken[count // 2 :], "S@1")]

    def batch(self, count: int, truncates: bool = False) -> list[Blocks]:
        """Return some transactions of changes, in blocks."""
        entries: list[dict[str, Any]] = []
        middle = count // 2
        blocks = []
        for number in range(count):
            if self.dice.random() < 0.6:
                self.position += 1
            if truncates and number == middle:
                entries += self._truncate()
            entries += self._change()
            if number in (middle - 3, count - 1):
                blocks.append(self._blocks(entries))
                entries, self.origins, self.carried = [], {}, set()
        self.position += 1
        return blocks

    def _truncate(self) -> list[dict[str, Any]]:
        self.position += 1
        found = [self._entry("t", None)]
        self.position += 1
        self.kept |= {key: (*told[:-2], "true", "t") for key, told in self.kept.items()}
        self.rows.clear()
        return found

    def _change(self) -> list[dict[str, Any]]:
        kind = self.dice.choice("cuuuuudmmm")
        free = next(key for key in range(1000) if key not in self.rows)
        if kind == "c" or not self.rows:
            self.rows[free] = {"v": f"v{self.position}", "big": f"big{self.position}"} | self._extra()
            self.origins.pop(free, None)
            self.carried.add(free)
            return [self._entry("c", free)]
        key = self.dice.choice(sorted(self.rows))
        if kind == "d":
            found = [self._entry("d", key)]
            del self.rows[key]
            self.carried.discard(key)
            return found
        more: dict[str, Any] = {"v": f"v{self.position}"} | self._extra()
        misses = self.dice.random() < 0.8
        if not misses:
            more["big"] = f"big{self.position}"
            self.carried.add(key)
        misses = key not in self.carried
        if kind == "u":
            self.rows[key] |= more
            return [self._entry("u", key, misses, self.origins.get(key))]
        found = [self._entry("d", key)]
        self.rows[free] = self.rows.pop(key) | more
        self.origins[free] = self.origins.pop(key, key)
        if not misses:
            self.carried.remove(key)
            self.carried.add(free)
        return [*found, self._entry("c", free, misses, self.origins[free], part=1)]

    def _extra(self) -> dict[str, Any]:
        return {"extra": self.position} if self.form is NEW else {}

    def _entry(
        self, op: str, key: int | None, misses: bool = False, origin: int | None = None, part: int = 0
    ) -> dict[str, Any]:
        row = {} if key is None else self.rows[key]
        if part == 0:
            self.ordinal = self.ordinal + 1 if self.numbered == self.position else 1
            self.numbered = self.position
        if key is not None:
            values = (key, row["v"], row["big"], row.get("extra"))
            self.kept[key] = (*values, "true" if op == "d" else "false", op)
        gone = op in "dt"
        own = {"op": op, "position": f"{self.position:016X}", "ordinal": self.ordinal, "part": part, "at": self.at}
        told = {
            "missing": [2] if misses else None,
            "origin": None if not misses or origin is None or origin == key else {"k0": origin},
        }
        shown = {"c0": key, "c1": None if gone else row["v"], "c2": None if gone or misses else row["big"]}
        return own | told | shown | {"c3": row.get("extra")}

    @property
    def at(self) -> datetime.datetime:
        return START + datetime.timedelta(seconds=self.position)

    def _blocks(self, entries: list[dict[str, Any]], snapshot: str = "") -> Blocks:
        emptied = max((place for place, row in enumerate(entries) if row["op"] == "t"), default=-1)
        last = {row["c0"]: row for row in entries[emptied + 1 :]}
        truncate = None if emptied < 0 else (entries[emptied]["position"], entries[emptied]["ordinal"])
        left = [row for row in entries if any(row is found for found in last.values())]
        return self._block(entries, snapshot, truncate), self._block(left, snapshot, truncate)

    def _block(self, entries: list[dict[str, Any]], snapshot: str, truncate: tuple[str, int] | None) -> dict[str, Any]:
        rows = pa.RecordBatch.from_pylist(entries, self.form.schema)
        places = [(row["position"], row["ordinal"]) for row in entries]
        missing, moved = (any(row[name] is not None for row in entries) for name in ("missing", "origin"))
        head = Head(
            "d", "s", "t", self.form, len(entries), places[0], places[-1], snapshot, truncate, missing, moved
        )  # fmt: skip
        own = {"op": BLOCK, "database": "d", "schema": "s", "table": "t", "source_ts": entries[-1]["at"]}
        place = {"position": places[-1][0], "ordinal": places[-1][1]}
        return {"key": head.text(), "value": written(rows)} | own | place

    def table(self, columns: int) -> list[tuple[Any, ...]]:
        """Return the source's rows."""
        found = [(key, row["v"], row["big"], row.get("extra"))[:columns] for key, row in self.rows.items()]
        return sorted(found, key=repr)


class Lake:
    """A pipeline into tables of a mode."""

    def __init__(self, spark: SparkSession, path: Path, mode: str, kind: str = "delta") -> None:
        self.spark, self.path = spark, str(path)
        sink = TablesSink({"path": self.path, "mode": mode, "format": kind})
        self.writer = Writer(sink, PIPELINE, "q", lambda number: True)

    def write(self, number: int, blocks: Sequence[dict[str, Any]]) -> None:
        rows = [tuple(block[name.split()[0]] for name in _FRAME.split(", ")) for block in blocks]
        self.writer.write(self.spark.createDataFrame(rows, _FRAME), number)

    def read(self) -> DataFrame:
        return frame(self.spark, f"{self.path}/s.t")


def frame(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows of a table in any format."""
    return found_at(spark, path).table(spark, path).rows()


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@dataclass
class Kept:
    """The same changes in all three modes, and their source. `half` holds the source's rows at `middle`, and
    `half_kept` all rows that existed until then."""

    spark: SparkSession
    path: Path
    source: Source
    half: list[tuple[Any, ...]]
    half_kept: dict[int, tuple[Any, ...]]
    middle: str
    batches: list[list[Blocks]]
    lakes: dict[str, Lake] = field(default_factory=dict)

    def lake(self, mode: str, kind: str = "delta") -> Lake:
        """Return the tables of a mode as the sink keeps them."""
        name = mode if kind == "delta" else kind
        if name not in self.lakes:
            lake = self.lakes[name] = Lake(self.spark, self.path / name, mode, kind)
            for number, blocks in enumerate(self.batches):
                lake.write(number, [last if mode == "latest" else every for every, last in blocks])
        return self.lakes[name]

    def rebuilt(self, name: str, wanted: RebuildRequest) -> DataFrame:
        assert rebuild(self.spark, self.lake("log").path, str(self.path / name), wanted) == ["s.t"]
        return self.at(name)

    def at(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(f"{self.path}/{name}/s.t")


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Return changes with missing values, rows that move repeatedly, a truncate and a later column."""
    if "delta" not in (spark.conf.get("spark.sql.extensions", "") or "").lower():
        pytest.skip("the jars of Delta Lake cannot be had")
    path = tmp_path_factory.mktemp("rebuild")
    source = Source(random.Random(7))
    batches = [source.snapshot(8), source.batch(60, truncates=True)]
    source.form = NEW
    half, half_kept, middle = source.table(3), dict(source.kept), f"{source.position - 1:016X}"
    batches.append(source.batch(60))
    return Kept(spark, path, source, half, half_kept, middle, batches)


@pytest.fixture(scope="module")
def latest(kept: Kept) -> DataFrame:
    """Return a rebuilt table, which tests leave unchanged."""
    return kept.rebuilt("as_latest", RebuildRequest("latest"))


@turn(3, 7)
@pytest.mark.parametrize("mode", by_day(("latest", "history"), 2))
def test_a_rebuilt_table_is_what_the_sink_would_have_kept(
    kept: Kept, mode: str, request: pytest.FixtureRequest
) -> None:
    own = kept.lake(mode).read()
    if mode == "latest":
        made: DataFrame = request.getfixturevalue("latest")
    else:
        made = kept.rebuilt("as_history", RebuildRequest(mode))
    assert made.schema == own.schema
    assert rows_of(made) == rows_of(own)
    if mode == "latest":
        assert rows_of(made) == kept.source.table(4)
    read = kept.spark.read.format("delta")
    (moment,) = read.load(f"{kept.path}/as_{mode}/tailrace_positions").collect()
    newest = read.load(f"{kept.lakes['log'].path}/tailrace_positions").orderBy("batch").collect()[-1]
    assert moment[:6] == newest[:6]


@pytest.mark.parametrize("mode", by_day(("latest", "history"), 2))
def test_a_short_log_becomes_a_table(
    spark: SparkSession, place: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    """The command makes it. Longer logs take turns."""
    source, log = Source(random.Random(11)), Lake(spark, place / "log", "log")
    batches = [source.snapshot(3), source.batch(10, truncates=True)]
    for number, blocks in enumerate(batches):
        log.write(number, [every for every, _ in blocks])
    made = f"{place}/made"
    assert main(["rebuild", log.path, made, "--mode", mode]) == 0
    assert f"s.t: {mode}, {made}/s.t" in capsys.readouterr().out
    found = frame(spark, f"{made}/s.t")
    if mode == "history":
        found = found.where("__valid_to is null").select("id", "v", "big")
    assert rows_of(found) == source.table(3)


def deletes_of(rebuilt: DataFrame) -> list[tuple[Any, ...]]:
    """Return all rows that ever existed, in the form of `Source.kept`."""
    return rows_of(rebuilt.select("id", "v", "big", "extra", "__deleted", "__op"))


@pytest.mark.full
def test_deleted_rows_stay_with_their_last_values(kept: Kept) -> None:
    made = kept.rebuilt("soft", RebuildRequest("latest", keeps_deletes=True))
    assert deletes_of(made) == sorted(kept.source.kept.values(), key=repr)


@turn(4, 7)
def test_tables_are_rebuilt_up_to_a_position_or_a_time(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables replace those of an earlier rebuild, complete or not, and no pipeline can continue with them. Deleted
    rows are kept here."""
    wanted = RebuildRequest("latest", keeps_deletes=True)
    # The log is written before anything is broken.
    kept.lake("log")

    def killed(*told: Any) -> None:
        raise RuntimeError("killed")

    # The places where it was killed, in turn.
    places = ("append", "add")
    for place in sized((places[datetime.date.today().toordinal() % 2],), places):
        with monkeypatch.context() as broken:
            broken.setattr(DeltaTable if place == "append" else Positions, place, killed)
            with pytest.raises(RuntimeError, match="killed"):
                kept.rebuilt("earlier", wanted)
        if place == "add":
            # All its tables exist, but not its moment, which names them.
            with pytest.raises(SinkError, match="was interrupted"):
                demand_sound(kept.spark, f"{kept.path}/earlier", PIPELINE)
    time = START + datetime.timedelta(seconds=int(kept.middle, 16))
    for at in sized((time,), (kept.middle, time)):
        made = kept.rebuilt("earlier", RebuildRequest("latest", at, ["s.t"], keeps_deletes=True))
        assert rows_of(made.where("__deleted = 'false'").select("id", "v", "big")) == kept.half
        names = ("id", "v", "big", "extra", "__deleted", "__op")
        assert rows_of(made.select(*names)) == sorted(kept.half_kept.values(), key=repr)
    with pytest.raises(SinkError, match="no pipeline can continue with"):
        demand_sound(kept.spark, f"{kept.path}/earlier", PIPELINE)
    with pytest.raises(SinkError, match="The log is not complete at 0"):
        kept.rebuilt("earlier", RebuildRequest("latest", "0" * 16))


def test_nothing_is_overwritten_that_no_rebuild_has_made(spark: SparkSession, place: Path) -> None:
    log, latest = Lake(spark, place / "log", "log"), Lake(spark, place / "latest", "latest")
    blocks = Source(random.Random(7)).snapshot(8)
    log.write(0, [every for every, _ in blocks])
    latest.write(0, [last for _, last in blocks])
    (place / "mine" / "s.t").mkdir(parents=True)
    (place / "mine" / "s.t" / "note.txt").write_text("mine")
    for name, said in (("mine", "s.t already exists, and no rebuild"), ("latest", "already exists, and no rebuild")):
        with pytest.raises(SinkError, match=said):
            rebuild(spark, log.path, str(place / name), RebuildRequest("latest"))
    assert (place / "mine" / "s.t" / "note.txt").read_text() == "mine"
    with pytest.raises(SinkError, match="only the mode log has every change"):
        rebuild(spark, latest.path, str(place / "other"), RebuildRequest("history"))


@turn(5, 7)
def test_a_pipeline_goes_on_with_rebuilt_tables(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline continues only with tables that hold all of its log, and then no longer with the log. The command
    makes them here."""
    log, target = kept.lake("log").path, f"{kept.path}/next"
    assert main(["rebuild", log, target, "--mode", "latest"]) == 0
    assert f"s.t: latest, {target}/s.t" in capsys.readouterr().out
    other = str(shutil.copytree(target, f"{kept.path}/other"))
    demand_sound(kept.spark, f"{kept.path}/next", PIPELINE)
    # The tests run in any order, and the others must not see these changes.
    source = copy.deepcopy(kept.source)
    Lake(kept.spark, kept.path / "next", "latest").write(3, [last for _, last in source.batch(20)])
    assert rows_of(kept.at("next")) == source.table(4)
    demand_sound(kept.spark, f"{kept.path}/next", PIPELINE)
    with pytest.raises(SinkError, match="has ended"):
        demand_sound(kept.spark, log, PIPELINE)
    with pytest.raises(SinkError, match="has already continued with"):
        demand_sound(kept.spark, other, PIPELINE)
    with pytest.raises(SinkError, match="has been written to since"):
        kept.rebuilt("next", RebuildRequest("latest"))


@pytest.mark.full
def test_tables_of_iceberg_are_rebuilt(kept: Kept) -> None:
    """The rows are the same, also if they are rebuilt in place, and a pipeline continues with them."""
    if not is_there(kept.spark):
        pytest.skip("the jars of Iceberg cannot be had")
    log = kept.lake("log", "iceberg")
    for mode in ("history", "latest", "latest"):
        assert rebuild(kept.spark, log.path, f"{kept.path}/ice_{mode}", RebuildRequest(mode)) == ["s.t"]
        made = frame(kept.spark, f"{kept.path}/ice_{mode}/s.t")
        assert rows_of(made) == (kept.source.table(4) if mode == "latest" else rows_of(kept.lake(mode).read()))
    demand_sound(kept.spark, f"{kept.path}/ice_latest", PIPELINE)
    source = copy.deepcopy(kept.source)
    Lake(kept.spark, kept.path / "ice_latest", "latest", "iceberg").write(3, [last for _, last in source.batch(9)])
    assert rows_of(frame(kept.spark, f"{kept.path}/ice_latest/s.t")) == source.table(4)
    with pytest.raises(SinkError, match="has been written to since"):
        rebuild(kept.spark, log.path, f"{kept.path}/ice_latest", RebuildRequest("latest"))
    with pytest.raises(SinkError, match="has ended"):
        demand_sound(kept.spark, log.path, PIPELINE)
    alter(kept.spark, f"{log.path}/s.t")
    with pytest.raises(SinkError, match="has had other columns"):
        rebuild(kept.spark, log.path, f"{kept.path}/ice_other", RebuildRequest("latest"))


def test_a_log_of_iceberg_knows_its_earlier_columns(spark: SparkSession, place: Path) -> None:
    if not is_there(spark):
        pytest.skip("the jars of Iceberg cannot be had")
    log, source = Lake(spark, place, "log", "iceberg"), Source(random.Random(7))
    log.write(0, [every for every, _ in source.snapshot(8)])
    assert rows_of(log.read().select("id", "v", "big")) == source.table(3)
    alter(spark, f"{log.path}/s.t")
    with pytest.raises(SinkError, match="has had other columns"):
        rebuild(spark, log.path, f"{place}/other", RebuildRequest("latest"))


def alter(spark: SparkSession, path: str) -> None:
    """Give an Iceberg table another key and another column, and demand that both earlier ones are known."""
    stored = found_at(spark, path).table(spark, path)
    assert stored.past(KEY) == (frozenset({'["id"]'}), False)
    for key in ('["v"]', '["id"]'):
        stored.alter([], {KEY: key})
    stored.alter([ColumnStep("rename", "v", "w")], {})
    assert stored.past(KEY) == (frozenset({'["id"]', '["v"]'}), True)
