"""Tables that an earlier version has written are read, and its pipeline goes on with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import read_at
from tailrace.errors import SinkError
from tailrace.sinks.tables.formats.base import WriteId
from tailrace.sinks.tables.formats.detection import FORMATS, found_at
from tailrace.sinks.tables.positions import NAME, Positions
from tailrace.sinks.tables.rebuild import FORM, demand_sound
from tailrace.sinks.tables.target import metadata
from tests import stored
from tests.extent import by_day
from tests.stored import MOUNTED, mount, versions


@pytest.mark.parametrize("version", versions(), ids=lambda path: path.name)
@pytest.mark.parametrize("form", by_day(tuple(stored.FORMATS), 2))
def test_tables_of_an_earlier_version_are_read_and_continued(
    spark: SparkSession, place: Path, version: Path, form: str
) -> None:
    written = version / stored.FORMATS[form]
    shutil.copytree(written / "tables", place)
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    for setting, text in mount(place).items():
        hadoop.set(setting, text)
    path = MOUNTED if form == "iceberg" else str(place)
    kind, pipeline = FORMATS[form], json.loads((written / "checkpoint" / "metadata").read_text("utf-8"))["id"]
    assert found_at(spark, f"{path}/{NAME}") == kind
    found = read_at(spark, path)
    (name,) = found.tables
    rows = found.tables[name].selectExpr("id", "cast(amount as string)", "name").orderBy("id").collect()
    assert [list(row) for row in rows] == json.loads((version / "rows.json").read_text("utf-8"))
    demand_sound(spark, path, pipeline)
    batches = sum(1 for one in (written / "checkpoint" / "commits").iterdir() if one.name.isdigit())
    positions = Positions(f"{path}/{NAME}", "stored", pipeline, kind)
    positions.open(spark, batches)
    assert positions.knows(name)
    table = kind.table(spark, f"{path}/{name}")
    count = table.rows().count()
    # a batch that the earlier version has written is not written again, and the next one is, once
    for batch in (batches - 1, batches, batches):
        table.append(table.rows().limit(1), WriteId(pipeline, batch, metadata(batch, "-")))
    assert kind.table(spark, f"{path}/{name}").rows().count() == count + 1
    with pytest.raises(SinkError, match="of another pipeline"):
        Positions(f"{path}/{NAME}", "stored", "another", kind).find(spark)
    # as a newer version would mark them
    kind.table(spark, f"{path}/{NAME}").announce((), {FORM: "2"})
    with pytest.raises(SinkError, match="newer tailrace has written the tables") as refused:
        demand_sound(spark, path, pipeline)
    assert "Install the newer version again" in refused.value.remedy
