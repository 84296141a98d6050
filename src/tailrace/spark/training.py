"""`python -m tailrace.spark.training DIRECTORY OPTIONS`: a session that loads the classes that a pipeline needs.

`tailrace.spark.startup.archive` runs it to list these classes, and to try an archive. OPTIONS are further options of
Java. The session runs a stream of this module's own source, without a database, to its end: into files, as the sink
`file` writes them, and into Spark's noop sink. The process ends after its JVM, with the JVM's exit code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.functions import expr
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.types import StructType

from tailrace.monitoring.processes import release
from tailrace.spark.session import session
from tailrace.spark.startup.archive import COMMAND
from tailrace.spark.startup.warm_workers import load_modules

_PATIENCE_S = 120.0
_TASKS = 4
_OWN = ("-XX:DumpLoadedClassList=", "-XX:SharedArchiveFile=", "-Xshare:")
_NOWHERE = "org.apache.spark.sql.execution.datasources.noop.NoopDataSource"
_LINE = "concat(regexp_replace(to_json(named_struct('topic', topic)), '[}]$', ''), ',', cast(value as string), '}')"


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"at": 1}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return {"at": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(_TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"topic": ["t"], "value": [b"v"], "op": ["r"], "source_ts": [partition.value]})


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "training"

    def schema(self) -> str:
        return "topic string, value binary, op string, source_ts bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _Reader()


class _Listener(StreamingQueryListener):
    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


def main(folder: Path, options: str) -> int:
    """Run the session; return the exit code of its JVM."""
    spark = session({"spark.driver.extraJavaOptions": options}, log_level="off")
    (folder / COMMAND).write_text(json.dumps(_command(spark)))
    load_modules(())
    spark.streams.addListener(_Listener())
    spark.dataSource.register(_Source)
    frame = spark.readStream.format("training").load()
    frame = frame.observe("training", expr("max(source_ts) as newest"), expr("count_if(op = 'quarantine') as aside"))
    _run(frame, folder)
    gateway: Any = SparkContext._gateway
    process = gateway.proc
    spark.stop()
    release(gateway)
    # the JVM ends with its standard input
    process.stdin.close()
    return int(process.wait(_PATIENCE_S))


def _run(frame: DataFrame, folder: Path) -> None:
    out = str(folder / "out")

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").option("compression", "none").text(out)

    lines = frame.selectExpr(f"{_LINE} as value").writeStream.foreachBatch(write)
    for number, writer in enumerate((lines, frame.select("topic", "value").writeStream.format(_NOWHERE))):
        place = str(folder / f"checkpoint-{number}")
        query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
        query.awaitTermination()


def _command(spark: SparkSession) -> dict[str, Any]:
    """Return program, options and class path of the session's JVM, without the options about class archives."""
    jvm: Any = spark._jvm
    given = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    system = jvm.java.lang.System
    return {
        "java": str(Path(system.getProperty("java.home")) / "bin" / "java"),
        "options": [str(option) for option in given if not str(option).startswith(_OWN)],
        "path": system.getProperty("java.class.path"),
    }


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
