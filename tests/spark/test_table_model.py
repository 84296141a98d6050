"""Tables of all modes beside a plain model: random changes, cut at random, through the very SQL of the sink."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.columns.blocks import BLOCK, EVERY, KEPT, LAST, Head
from tailrace.sinks.tables.rebuild import Wanted, rebuild
from tailrace.sinks.tables.sink import TablesSink, Writer
from tests.event_settings import event_settings
from tests.property.test_blocks import Source, blocks, wanted_versions
from tests.spark.test_table_rebuild import _FRAME, PIPELINE, START, rows_of

KEYS = 120
MODES = {"latest": LAST, "kept": KEPT, "history": EVERY, "log": EVERY}


def change(source: Source, dice: random.Random, number: int, drifts: bool, whole: bool) -> None:
    """One change: few keys stay alone, most are met several times in a batch. Where rows are not `whole` most changes
    leave a value out."""
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
    """Blocks as the sink gets them."""
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


@pytest.mark.parametrize(("seed", "whole"), [(1, False), (2, True)])
def test_tables_are_as_the_model_says(spark: SparkSession, place: Path, seed: int, whole: bool) -> None:
    dice, source = random.Random(seed), Source()
    writers = {name: writer(place, name) for name in MODES}
    low = 0
    for batch in range(3):
        for number in range(400):
            if batch == 2 and number in (150, 160):
                source.truncate()
            change(source, dice, 1000 * batch + number, batch < 2, whole)
        cuts = sorted({*dice.sample(range(low + 1, len(source.changes)), 3), len(source.changes)})
        places = list(zip([low, *cuts], cuts, strict=False))
        for name, held in MODES.items():
            chosen = event_settings("server", "golden", blocks=held, skipped_operations=frozenset())
            found = [block for first, last in places for block in blocks(source, first, last, chosen)]
            writers[name].write(spark.createDataFrame(frame(found), _FRAME), batch)
        low = cuts[-1]
    for name, wanted in (
        ("relatest", Wanted("latest")), ("rekept", Wanted("latest", keeps_deletes=True)),
        ("rehistory", Wanted("history")),
    ):  # fmt: skip
        rebuild(spark, str(place / "log"), str(place / name), wanted)
    rows = sorted(((key, *told) for key, told in source.rows.items()), key=repr)
    kept = sorted(((key, *told) for key, told in source.kept.items()), key=repr)
    versions = sorted(wanted_versions(source), key=repr)
    for prefix in ("", "re"):
        latest, deleted, history = (
            spark.read.format("delta").load(f"{place}/{prefix}{name}/public.t")
            for name in ("latest", "kept", "history")
        )
        assert rows_of(latest.selectExpr("id", "v", "big")) == rows, prefix
        gone = "if(__deleted = 'true', __op, '')"
        assert rows_of(deleted.selectExpr("id", "v", "big", gone)) == kept, prefix
        assert rows_of(history.selectExpr("id", "v", "big", "__valid_from", "__valid_to")) == versions, prefix
