"""The example of Spark's declarative pipelines, run as a user runs it, against a real PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.sinks.tables.sink import TablesSink
from tailrace.spark.jars import files_of
from tests.fix_postgres import Database

pytest.importorskip("grpc", reason="Spark Connect's client needs grpcio")
pytest.importorskip("yaml", reason="spark-pipelines needs pyyaml")

EXAMPLE = Path(__file__).parents[2] / "examples/pipelines"
BIG = "lpad('', 9000, md5(random()::text) || md5(random()::text))"
"""A text that PostgreSQL stores apart from its row."""

RUN = """
import sys
from pathlib import Path
from pyspark.pipelines import cli
from pyspark.sql import SparkSession
cli.run(Path(sys.argv[1]), [], False, [], sys.argv[2] == "dry")
"""


class Project:
    """A copy of the example in a directory of its own, run against a database."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder / "project"
        shutil.copytree(EXAMPLE, self.folder)
        for spec in self.folder.glob("*.yml"):
            spec.write_text(spec.read_text().replace("file:///var/lib/orders-pipeline", (folder / "storage").as_uri()))
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
            "SPARK_REMOTE": "local[2]",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }

    def run(self, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the project, with a Spark Connect server in its process that has Delta Lake."""
        told: Mapping[str, str] = {
            **TablesSink.settings,
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraClassPath": os.pathsep.join(map(str, files_of(TablesSink.jars))),
            **settings,
        }
        conf = " ".join(f'--conf "{name}={text}"' for name, text in told.items())
        return subprocess.run(
            [sys.executable, "-W", "ignore", *command],
            env={**self.environment, "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell"},
            cwd=self.folder, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def pipelines(self, command: str, spec: str) -> subprocess.CompletedProcess[str]:
        """`spark-pipelines`, without the script that looks for Spark."""
        return self.run("-m", "pyspark.pipelines.cli", command, "--spec", str(self.folder / spec))


@pytest.fixture
def project(database: Database, tmp_path: Path, spark: SparkSession) -> Project:
    if "delta" not in spark.conf.get("spark.sql.extensions", "").lower():
        pytest.skip("the jars of Delta Lake cannot be had")
    database.execute(
        "create table orders (id int primary key, amount numeric(8, 2), note text)",
        "alter table orders alter column note set storage external",
        f"insert into orders select i, i / 4.0, {BIG} from generate_series(1, 20) i",
    )
    return Project(tmp_path, database)


def test_changes_are_appended_until_one_lacks_a_value(
    project: Project, database: Database, spark: SparkSession
) -> None:
    done = project.pipelines("run", "spark-pipeline.yml")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    table = str(project.folder / "warehouse/orders_changes")
    told = spark.read.format("delta").load(table).selectExpr("min(op)", "count(*)", "sum(amount)").collect()
    assert [tuple(map(str, row)) for row in told] == [("r", "20", "52.50")]
    database.execute("update orders set amount = 1 where id = 1")
    done = project.pipelines("run", "spark-pipeline.yml")
    assert done.returncode != 0
    assert "an update left a large value out of the log" in done.stdout + done.stderr


AUTO = """
import sys, json
from pathlib import Path
from pyspark.pipelines import cli
from pyspark.sql.connect.session import SparkSession as Session
from pyspark.sql import SparkSession
Session.stop = lambda self: None
import subprocess
SparkSession.builder.getOrCreate().sql("create namespace if not exists mem.default")
for sql in sys.argv[2:] + [None]:
    cli.run(Path(sys.argv[1]), [], False, [], False)
    print("ROWS", SparkSession.active().table("mem.default.orders").orderBy("id").selectExpr("id","amount","length(note)").collect())
    if sql: subprocess.run(["true"]); import psycopg, os; c=psycopg.connect(host=os.environ["PGHOST"],port=os.environ["PGPORT"],user=os.environ["PGUSER"],password=os.environ["PGPASSWORD"],dbname=os.environ["PGDATABASE"],autocommit=True); c.execute(sql)
"""


def test_throw(project: Project, database: Database) -> None:
    import glob
    jars = [p for n in ("spark-catalyst_2.13-4.2.0-tests","scalatest-core_2.13-3.2.19","scalatest-compatible-3.2.19","scalactic_2.13-3.2.19") for p in glob.glob(os.path.expanduser("~/.m2/repository/**/"+n+".jar"), recursive=True)]
    database.execute("alter table orders replica identity full")
    spec = project.folder/"auto-cdc.yml"
    spec.write_text(spec.read_text().replace("catalog: spark_catalog","catalog: mem"))
    done = project.run("-c", AUTO, str(spec), "update orders set amount=77 where id=1; delete from orders where id=2; update orders set id=100 where id=3; update orders set amount=78 where id=1", "update orders set amount=5 where id=5", "truncate orders", **{"spark.sql.catalog.mem":"org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog","spark.driver.extraClassPath":":".join(jars)+":"+os.pathsep.join(map(str, files_of(TablesSink.jars)))})
    print(done.stdout[-9000:], done.stderr[-3000:])
    assert 0
