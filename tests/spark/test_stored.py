"""Tables that an earlier version has written are read, and its pipeline goes on with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace import read_at
from tailrace.errors import SinkError
from tailrace.sinks.tables.formats.delta import Delta
from tailrace.sinks.tables.positions import NAME, Positions
from tailrace.sinks.tables.rebuild import FORM, demand_sound
from tests.stored import versions


@pytest.mark.parametrize("version", versions(), ids=lambda path: path.name)
def test_tables_of_an_earlier_version_are_read_and_continued(spark: SparkSession, place: Path, version: Path) -> None:
    shutil.copytree(version / "tables", place)
    path, pipeline = str(place), json.loads((version / "checkpoint" / "metadata").read_text("utf-8"))["id"]
    found = read_at(spark, path)
    (name,) = found.tables
    rows = found.tables[name].selectExpr("id", "cast(amount as string)", "name").orderBy("id").collect()
    assert [list(row) for row in rows] == json.loads((version / "rows.json").read_text("utf-8"))
    demand_sound(spark, path, pipeline)
    batches = sum(1 for one in (version / "checkpoint" / "commits").iterdir() if one.name.isdigit())
    positions = Positions(f"{path}/{NAME}", "stored", pipeline, Delta())
    positions.open(spark, batches)
    assert positions.knows(name)
    with pytest.raises(SinkError, match="of another pipeline"):
        Positions(f"{path}/{NAME}", "stored", "another", Delta()).find(spark)
    # as a newer version would mark them
    Delta().table(spark, f"{path}/{NAME}").announce((), {FORM: "2"})
    with pytest.raises(SinkError, match="newer tailrace has written the tables"):
        demand_sound(spark, path, pipeline)
