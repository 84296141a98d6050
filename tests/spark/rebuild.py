"""A rebuild of documents in a session of its own: `python -m tests.spark.rebuild IN OUT CHECKPOINT`, one batch per
file.

RocksDB needs a session with settings for it, and a process has only one session.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tailrace.spark.session import session
from tailrace.spark.source import ROW_TYPE
from tailrace.transforms.document_state import FILES, PROVIDER, document_state

ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main(source: str, target: str, checkpoint: str) -> None:
    config = {PROVIDER: ROCKS, FILES: "org.apache.hadoop.fs.LocalFileSystem", "spark.sql.shuffle.partitions": "1"}
    spark = session(config, app_name="rebuild", master="local[2]")
    stream = spark.readStream.schema(ROW_TYPE).option("maxFilesPerTrigger", 1).parquet(source)
    writer = document_state(stream).writeStream.format("parquet").option("path", target)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    batches = len([file for file in (Path(checkpoint) / "commits").iterdir() if file.name.isdigit()])
    rows = [row.asDict() for row in spark.read.parquet(target).select("op", "ordinal", "key", "document").collect()]
    for row in rows:
        row["key"] = bytes(row["key"]).decode()
    print(json.dumps({"batches": batches, "rows": rows}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
