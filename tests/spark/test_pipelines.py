"""The example of Spark's declarative pipelines runs as a user runs it, against a real PostgreSQL."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import PrerequisiteError
from tailrace.sinks.tables.formats.delta import Delta
from tailrace.spark.startup.jars import files_of
from tests.fix_postgres import Database
from tests.servers.jars import Unavailable, fetch

pytest.importorskip("grpc", reason="Spark Connect's client needs grpcio")
pytest.importorskip("yaml", reason="spark-pipelines needs pyyaml")

EXAMPLE = Path(__file__).parents[2] / "examples/pipelines"
BIG = "lpad('', 9000, md5(random()::text) || md5(random()::text))"
"""A text that PostgreSQL stores apart from its row."""

ROWS = """
import json, os, sys
from pathlib import Path
import psycopg
from pyspark.pipelines import cli
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as Connected

# the command ends the session, and with it the catalog in memory
Connected.stop = lambda self: None
if any(step.startswith("auto") for step in json.loads(sys.argv[1])):
    SparkSession.builder.getOrCreate().sql("create namespace memory.default")
login = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
told = []
for step in json.loads(sys.argv[1]):
    if not step.endswith(".yml"):
        with psycopg.connect(**{name: os.environ[word] for name, word in login.items()}) as connection:
            connection.execute(step)
        continue
    try:
        cli.run(Path(step), [], False, [], False)
        spark = SparkSession.active()
        name = "spark_catalog.default.orders_changes" if step.startswith("spark") else "memory.default.orders"
        rows = spark.table(name).orderBy("id").selectExpr("id", "cast(amount as string)", "length(note)")
        told.append([list(row) for row in rows.collect()])
    except Exception as error:
        told.append(str(error))
print("TOLD " + json.dumps(told))
"""
"""A program that runs specifications and SQL statements in turn, and prints the rows after each run, or its error."""

CATALOG = "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"
"""Spark's own test catalog: in memory, with row-level operations."""


class Project:
    """A copy of the example in a directory of its own, for a database."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder / "project"
        shutil.copytree(EXAMPLE, self.folder)
        for spec in self.folder.glob("*.yml"):
            text = spec.read_text("utf-8").replace("file:///var/lib/orders-pipeline", (folder / spec.stem).as_uri())
            if spec.name == "auto-cdc.yml":
                text = text.replace("catalog: spark_catalog", "catalog: memory")
            spec.write_text(text, "utf-8")
        options = database.options(topic_prefix="p")
        self.environment = {
            **os.environ,
            "PGHOST": options["database.hostname"],
            "PGPORT": options["database.port"],
            "PGUSER": options["database.user"],
            "PGPASSWORD": options["database.password"],
            "PGDATABASE": options["database.dbname"],
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }

    def run(self, *steps: str) -> list[Any]:
        """Run the steps in a process of their own, with a Spark Connect server that has Delta Lake and CATALOG."""
        jars = [*files_of(Delta.jars), *spark_tests()]
        settings = {
            **Delta.settings,
            "spark.sql.catalog.memory": CATALOG,
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.pipelines.maxFlowRetryAttempts": "0",
            "spark.ui.enabled": "false",
            "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        }
        conf = " ".join(f'--conf "{name}={text}"' for name, text in settings.items())
        return self.client(steps, SPARK_REMOTE="local[2]", PYSPARK_SUBMIT_ARGS=f"{conf} pyspark-shell")

    def client(self, steps: Sequence[str], **environment: str) -> list[Any]:
        """Run the steps in a process of their own, over the server in its environment."""
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", ROWS, json.dumps(steps)],
            env=self.environment | environment,
            cwd=self.folder, capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
        found = [line.partition("TOLD ")[2] for line in done.stdout.splitlines() if "TOLD " in line]
        assert found, done.stderr[-3000:]
        told: list[Any] = json.loads(found[0])
        return told


def spark_tests() -> list[Path]:
    """Return the jars of Spark's own tests of catalogs."""
    scalatest = ("scalatest-core_2.13", "scalatest-compatible")
    return fetch(
        "spark-tests-4.2.0",
        [
            "org.apache.spark:spark-catalyst_2.13:4.2.0:tests",
            *(f"org.scalatest:{module}:3.2.19" for module in scalatest),
            "org.scalactic:scalactic_2.13:3.2.19",
        ],
        transitive=False,
    )


@pytest.fixture
def project(database: Database, tmp_path: Path) -> Project:
    try:
        files_of(Delta.jars)
    except PrerequisiteError as error:
        pytest.skip(str(error))
    database.execute(
        "create table orders (id int primary key, amount numeric(8, 2), note text)",
        "alter table orders alter column note set storage external",
        "alter table orders replica identity full",
        f"insert into orders select i, i / 4.0, {BIG} from generate_series(1, 5) i",
    )
    return Project(tmp_path, database)


ROWS_OF_TABLE = [[number, f"{number / 4:.2f}", 9000] for number in range(1, 6)]


def test_rows_are_appended(project: Project, spark: SparkSession, connect_server: str) -> None:
    """The first specification appends rows, over a server in the JVM of the run's session."""
    try:
        (appended,) = project.client(["spark-pipeline.yml"], SPARK_REMOTE=connect_server)
    finally:
        for table in ("orders_changes", "orders"):
            spark.sql(f"drop table if exists spark_catalog.default.{table}")
    assert appended == ROWS_OF_TABLE


@pytest.mark.full
def test_rows_follow_until_the_log_lacks_a_value(project: Project) -> None:
    """The first specification appends rows; the second keeps rows, and reports values that the log lacks."""
    try:
        spark_tests()
    except Unavailable as error:
        pytest.skip(str(error))
    appended, first, second, third = project.run(
        "spark-pipeline.yml",
        # The next specification has checkpoints of its own, so its stream begins with a snapshot.
        "select pg_drop_replication_slot('orders_pipeline')",
        "auto-cdc.yml",
        "update orders set amount = 77 where id = 1; delete from orders where id = 2; "
        "update orders set id = 100 where id = 3; update orders set amount = 78 where id = 1",
        "auto-cdc.yml",
        "alter table orders replica identity default; update orders set amount = 1 where id = 5",
        "auto-cdc.yml",
    )
    assert appended == ROWS_OF_TABLE
    assert first == ROWS_OF_TABLE
    assert second == [[1, "78.00", 9000], [4, "1.00", 9000], [5, "1.25", 9000], [100, "0.75", 9000]]
    assert "an update left a large value out of the log" in third
