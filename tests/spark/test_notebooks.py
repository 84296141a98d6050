"""The cells of the example notebook run one after another against a server of Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fix_postgres import Database

pytest.importorskip("grpc", reason="Spark Connect's client needs grpcio")

NOTEBOOK = Path(__file__).parents[2] / "examples/notebooks/changes.ipynb"


def cells() -> list[str]:
    """Return the code of the notebook's cells."""
    told = json.loads(NOTEBOOK.read_text("utf-8"))
    assert all(cell.get("outputs", []) == [] for cell in told["cells"])
    return ["".join(cell["source"]) for cell in told["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_shows_rows_and_changes(database: Database, tmp_path: Path, connect_server: str) -> None:
    database.execute(
        "create table orders (id int primary key, amount numeric(8, 2))",
        "insert into orders select i, i / 4.0 from generate_series(1, 9) i",
    )
    options = database.options(topic_prefix="n")
    environment = {
        **os.environ,
        "SPARK_REMOTE": connect_server,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PGHOST": options["database.hostname"],
        "PGPORT": options["database.port"],
        "PGUSER": options["database.user"],
        "PGPASSWORD": options["database.password"],
        "PGDATABASE": options["database.dbname"],
    }
    shown = "print('COUNTED', orders.count(), seen.where(\"op = 'r'\").count(), type(spark).__module__)"
    script = tmp_path / "notebook.py"
    script.write_text("\n".join([*cells(), shown, "spark.stop()"]), "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:3000]
    assert "COUNTED 9 9 pyspark.sql.connect" in done.stdout
    assert "|  1|  0.25|" in done.stdout
