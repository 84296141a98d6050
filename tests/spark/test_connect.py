"""Over Spark Connect, a client in a process of its own gets typed rows as a stream and as a read.

The server is in the JVM of the run's session, and in a full run also one of the client's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fix_postgres import Database

pytest.importorskip("grpc", reason="Spark Connect's client needs grpcio")

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
options, folder, remote = json.loads(sys.argv[1]), *sys.argv[2:]
spark = SparkSession.builder.remote(remote).getOrCreate()
read = spark.read.format("postgres-cdc").options(**options).load()
found = {"client": type(spark).__module__, "after": read.schema["after"].dataType.simpleString()}
found["read"] = [list(row) for row in read.selectExpr("count(*)", "sum(after.v)", "count(distinct position)").collect()]
stream = spark.readStream.format("postgres-cdc").options(**options).load().selectExpr("op", "after.id as id")
writer = stream.writeStream.format("parquet").option("path", folder + "/out").trigger(availableNow=True)
query = writer.option("checkpointLocation", folder + "/checkpoint").start()
found["ended"] = query.awaitTermination(200)
found["stream"] = spark.read.parquet(folder + "/out").count()
try:
    spark.readStream.format("postgres-cdc").options(**options | {"slot.nmae": "x"}).load().schema
except Exception as error:
    found["refused"] = str(error)
spark.stop()
print("FOUND " + json.dumps(found, default=str))
"""


@pytest.mark.full
def test_typed_rows_come_over_spark_connect(database: Database, tmp_path: Path, connect_server: str) -> None:
    typed_rows_come(database, tmp_path, connect_server)


@pytest.mark.full
def test_typed_rows_come_over_a_server_that_finds_the_formats_itself(database: Database, tmp_path: Path) -> None:
    """The server finds the formats although tailrace has not started its JVM."""
    typed_rows_come(database, tmp_path, "local[2]")


def typed_rows_come(database: Database, folder: Path, remote: str) -> None:
    """Assert that a client of `remote` reads the rows of a table and streams them."""
    database.execute(
        "create table t (id int primary key, v numeric(5, 1))",
        "insert into t select i, 1.5 from generate_series(1, 1000) i",
    )
    options = database.options(topic_prefix="s", slot_name=database.name, rows="typed")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, json.dumps(options), str(folder), remote]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    said = [line.partition("FOUND ")[2] for line in done.stdout.splitlines() if "FOUND " in line]
    assert said, done.stderr[-3000:]
    found = json.loads(said[0])
    assert found["client"].startswith("pyspark.sql.connect")
    assert found["after"] == "struct<id:int,v:decimal(5,1)>"
    assert found["read"] == [[1000, "1500.0", 1]]
    assert (found["ended"], found["stream"]) == (True, 1000)
    assert "slot.nmae is not an option; the nearest is slot.name" in found["refused"]
