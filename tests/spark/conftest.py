"""What tests of the sink `tables` share."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Path:
    """A directory for tables of Delta Lake."""
    if "delta" not in (spark.conf.get("spark.sql.extensions", "") or "").lower():
        pytest.skip("the jars of Delta Lake cannot be had")
    return tmp_path / "lake"
