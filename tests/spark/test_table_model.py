"""Tables of all modes equal a plain model, after random changes in random batches, by the sink's own SQL."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.columns.blocks import BLOCK, EVERY, KEPT, LAST, Head
from tailrace.sinks.tables.rebuild import RebuildRequest, rebuild
from tailrace.sinks.tables.sink import TablesSink, Writer
from tests.event_settings import event_settings
from tests.property.test_blocks import Source, blocks, wanted_versions
from tests.spark.test_table_rebuild import _FRAME, PIPELINE, START, rows_of

KEYS = 120
MODES = {"latest": LAST, "kept": KEPT, "history": EVERY, "log": EVERY}


def change(source: Source, dice: random.Random, number: int, drifts: bool, whole: bool) -> None:
    """Draw one change. Few keys have a single change, most have several in a batch.

    Unless rows are `whole`, most changes leave a value out.
    """
    key, other, touches = dice.randrange(KEYS), dice.randrange(KEYS), dice.random() < 0.4 or whole
    if (drifts or key in source.rows) and dice.random() < 0.2:
        source.read(key, number if drifts and (key not in source.rows or touches) else None)
    elif key not in source.rows:
        source.insert(key, number)
    elif other not in source.rows and dice.random() < 0.5:
        source.move(key, other, number, touches)
    elif dice.random() < 0.25:
        source.delete(key)
    else:
        source.update(key, number, touches)


def frame(found: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return blocks in the form that the sink gets."""
    rows = []
    for block in found:
        head = Head.of(block["key"])
        place = (head.database, head.schema, head.table, *head.last, START)
        rows.append((block["key"], block["value"], BLOCK, *place))
    return rows


def writer(path: Path, name: str) -> Writer:
    options = {"path": str(path / name), "mode": "latest" if name == "kept" else name}
    if name == "kept":
        options["upsert-keep-deletes"] = "true"
    return Writer(TablesSink(options), PIPELINE, "q", lambda number: True)


@dataclass(frozen=True, slots=True)
class Case:
    """Batches of changes to tables of some modes. The source's table is truncated in the batch `emptied`.

    Rows are `whole`, or most changes leave a value out.
    """

    seed: int
    modes: tuple[str, ...] = tuple(MODES)
    batches: int = 3
    emptied: int | None = 2
    whole: bool = False


TURNS = {
    "values left out of kept": Case(1, ("kept",), 2, None),
    "values left out of history": Case(1, ("history",), 2, None),
    "values left out of latest": Case(1, ("latest",), 2, None),
    "emptied": Case(2, ("kept",), 2, 1),
}
"""The cases of a run that is not full, one a day.

For rebuilt tables, and truncated rows of the modes latest and history, see test_table_rebuild; for whole rows see
test_transactions.
"""
ALL = TURNS | {"all": Case(1), "all and whole": Case(2, whole=True)}
TODAY = list(TURNS)[date.today().toordinal() % len(TURNS)]


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=() if name == TODAY else pytest.mark.full) for name, case in ALL.items()]
)
def test_tables_are_as_the_model_says(spark: SparkSession, place: Path, case: Case) -> None:
    dice, source = random.Random(case.seed), Source()
    writers = {name: writer(place, name) for name in case.modes}
    low = 0
    for batch in range(case.batches):
        for number in range(400):
            if batch == case.emptied and number in (150, 160):
                source.truncate()
            change(source, dice, 1000 * batch + number, batch < case.batches - 1, case.whole)
        cuts = sorted({*dice.sample(range(low + 1, len(source.changes)), 3), len(source.changes)})
        places = list(zip([low, *cuts], cuts, strict=False))
        for name in case.modes:
            chosen = event_settings("server", "golden", blocks=MODES[name], skipped_operations=frozenset())
            found = [block for first, last in places for block in blocks(source, first, last, chosen)]
            writers[name].write(spark.createDataFrame(frame(found), _FRAME), batch)
        low = cuts[-1]
    wanted: dict[str, list[tuple[Any, ...]]] = {
        "latest": [(key, *told) for key, told in source.rows.items()],
        "kept": [(key, *told) for key, told in source.kept.items()],
        "history": list(wanted_versions(source)),
    }
    for name in (name for name in case.modes if name in COLUMNS):
        demand_rows(spark, place / name, name, wanted[name])
        if "log" in case.modes:
            again = place / f"re{name}"
            rebuild(spark, str(place / "log"), str(again), REBUILT[name])
            demand_rows(spark, again, name, wanted[name])


COLUMNS = {
    "latest": ("id", "v", "big"),
    "kept": ("id", "v", "big", "if(__deleted = 'true', __op, '')"),
    "history": ("id", "v", "big", "__valid_from", "__valid_to"),
}
REBUILT = {
    "latest": RebuildRequest("latest"),
    "kept": RebuildRequest("latest", keeps_deletes=True),
    "history": RebuildRequest("history"),
}


def demand_rows(spark: SparkSession, path: Path, name: str, wanted: list[tuple[Any, ...]]) -> None:
    """Assert that the table, of a mode, has exactly these rows."""
    found = spark.read.format("delta").load(f"{path}/public.t").selectExpr(*COLUMNS[name])
    assert rows_of(found) == sorted(wanted, key=repr), path
