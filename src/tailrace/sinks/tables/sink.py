"""The sink `tables`: every captured table as a table of Delta Lake, exactly once. Driver."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tailrace.columns.blocks import BLOCK, EVERY, LAST, Head
from tailrace.config.config import Config
from tailrace.connectors.present import Present
from tailrace.connectors.registry import find, parse
from tailrace.connectors.source_status import Describe
from tailrace.errors import SinkError, TailraceError
from tailrace.events.settings import EventSettings
from tailrace.jar import Jar
from tailrace.sinks.base import Settings, Sink
from tailrace.sinks.claim import identity
from tailrace.sinks.interruption import briefly
from tailrace.sinks.storage import HadoopStorage, reaching
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.again import Again
from tailrace.sinks.tables.batch import TableBatch
from tailrace.sinks.tables.history import History
from tailrace.sinks.tables.kept import Kept
from tailrace.sinks.tables.latest import Latest
from tailrace.sinks.tables.log import Log
from tailrace.sinks.tables.positions import NAME, Moment, Positions
from tailrace.sinks.tables.target import Owner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_JARS = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        "4.4.0",
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar("io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
)
_EXTENSION, _CATALOG = "io.delta.sql.DeltaSparkSessionExtension", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_MODES = ("latest", "history", "log")
_WHOLE = {"event.processing.failure.handling.mode": "fail", "errors.tolerance": "none"}
"""Options that would leave changes out, and the words under which they do not."""
_PLACE = re.compile(r"\$\{([^}]*)\}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PARTS = ("database", "schema", "table")
_CONFLICT = re.compile(r"\bDELTA_(?:CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED)\b")
_UNKNOWN = re.compile(re.escape(statements.UNKNOWN) + r' \\?"(?P<column>.*?)\\?"')


class TablesSink(Sink):
    """One table of Delta Lake for each captured table, under `path`.

    `mode` is `latest` (the rows that the source has), `history` (every version of them) or `log` (every change,
    appended). The source is asked for blocks of typed rows in place of events, so that what is said of events alone
    has no effect here.
    """

    name = "tables"
    columns = ("key", "value", "op", "database", "schema", "table", "position", "ordinal", "source_ts")
    order = "key"
    delivery = "exactly once"
    jars = _JARS
    settings: ClassVar[Mapping[str, str]] = {
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.catalog.spark_catalog": _CATALOG,
        # Delta reads the log of each table in so many tasks, 50 unless this is set: most of what a small batch takes.
        "spark.databricks.delta.snapshotPartitions": "2",
    }

    def __init__(self, options: Mapping[str, str]) -> None:
        given = Settings(self.name, options)
        given.only(
            ("path", "mode", "upsert-keep-deletes", "table.name.format", "tables.at.once", "unknown.values",
             "added.default")
        )  # fmt: skip
        path = given.required("path").rstrip("/") or "/"
        # Delta Lake takes no path that is relative
        self.path = path if _SCHEME.match(path) else str(Path(path).absolute())
        self.mode = given.choice("mode", "latest", _MODES)
        self.keeps_deletes = given.flag("upsert-keep-deletes")
        if self.keeps_deletes and self.mode != "latest":
            raise given.wrong("upsert-keep-deletes", "is for the mode latest alone")
        self.at_once = given.number("tables.at.once", 4, least=1, most=64)
        self.unknown = given.choice("unknown.values", "stop", ("stop", "null", "reselect"))
        if self.unknown == "reselect" and self.mode != "latest":
            raise given.wrong("unknown.values", "can be reselect with the mode latest alone")
        self._source: Config | None = None
        self.stops_at_defaults = given.choice("added.default", "stop", ("stop", "null")) == "stop"
        self._describe: Describe | None = None
        self.names = given.text("table.name.format", "${schema}.${table}")
        for part in _PLACE.findall(self.names):
            if part not in _PARTS:
                raise given.wrong(
                    "table.name.format", f"has ${{{part}}}: known are ${{database}}, ${{schema}}, ${{table}}"
                )

    @property
    def folder(self) -> str:
        return self.path

    def adopt(self, source: Config) -> None:
        super().adopt(source)
        if not source.traits.gives_blocks:
            raise SinkError(f"The connector {source.connector} gives no rows for tables.", "Use another sink.")
        self._describe, self._source = find(source.connector).load_describe(), source
        if self.unknown == "reselect" and not find(source.connector).present:
            raise SinkError(
                f"unknown.values = reselect is not there for the connector {source.connector}.", "Set it to stop."
            )
        for name in ("transforms", "post.processors"):
            if source.get(name):
                raise SinkError(f"The sink tables takes no {name}: they are of events.", f"Leave {name} out.")
        for name, kept in _WHOLE.items():
            if source.get(name) not in (None, kept):
                raise SinkError(f"{name} would leave changes out of the tables.", f"Let it be {kept}.")
        skipped = set(source.get("skipped.operations") or ()) if source.is_set("skipped.operations") else set()
        if skipped & set("cud"):
            raise SinkError(
                "skipped.operations names changes that the sink tables cannot do without.", "Let it be t or none."
            )

    def source_options(self) -> dict[str, str]:
        return {"row.blocks": LAST if self.mode == "latest" else EVERY}

    def source_defaults(self) -> dict[str, str]:
        return {"skipped.operations": "none", "event.converting.failure.handling.mode": "fail", "event.format": "3"}

    def present(self) -> Present:
        """A session with the source, which reads rows as they are now."""
        assert self._source is not None
        source = self._source
        texts = {name: text for name, text in self.source_defaults().items() if not source.is_set(name)}
        config = parse(source.connector, {**source.texts, **texts, **self.source_options()})
        opening = find(source.connector).load_present()
        assert opening is not None
        return opening(config, EventSettings.from_options(config))

    def failure(self, text: str) -> TailraceError | None:
        unknown = _UNKNOWN.search(text)
        if unknown is not None:
            return SinkError(
                f"Neither the log nor the table has the value of the column {unknown['column']} of a row.",
                "Read the row's table by an incremental snapshot first, set its replica identity to FULL, or set "
                "debezium.sink.tables.unknown.values to reselect or null.",
            )
        if _CONFLICT.search(text):
            return SinkError(
                f"Somebody else has written to a table under {self.path} at the same time.",
                "Let this pipeline alone write there, then start again: the batch is repeated.",
            )
        return None

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        spark = frame.sparkSession
        if _EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
            raise SinkError(
                "The Spark session is without Delta Lake.",
                "Make it with the settings of tailrace.sinks.tables.sink.TablesSink.settings, and with Delta's jars.",
            )
        storage = HadoopStorage(spark)
        with reaching(self.path, "debezium.sink.tables.path"):
            pipeline = identity(storage, str(checkpoint))
        writer = Writer(self, pipeline, query, lambda number: self._is_whole(storage, str(checkpoint), number))
        stream = frame.where(f"op = '{BLOCK}'").writeStream.queryName(query).trigger(**trigger)
        return stream.option("checkpointLocation", str(checkpoint)).foreachBatch(briefly(writer.write)).start()

    def _is_whole(self, storage: HadoopStorage, checkpoint: str, number: int) -> bool:
        """Whether a batch ends between two transactions, and with no snapshot half read."""
        lines = (storage.read(f"{checkpoint}/offsets/{number}") or "").splitlines()
        try:
            offset = json.loads(lines[-1]) if lines else {}
        except ValueError:
            return False
        return self._describe is not None and self._describe(offset, {}).whole

    def path_of(self, table: tuple[str, str, str]) -> str:
        """Where the table of the source's table (database, schema, table) is."""
        named = dict(zip(_PARTS, table, strict=True))
        return f"{self.path}/{statements.folder(_PLACE.sub(lambda found: named[found[1]], self.names))}"


class Writer:
    """Writes batches: the tables of one side by side, then the row that makes them one moment."""

    def __init__(self, sink: TablesSink, pipeline: str, query: str, is_whole: Callable[[int], bool]) -> None:
        self._sink, self._is_whole = sink, is_whole
        self._owner = Owner(pipeline, sink.mode, sink.stops_at_defaults, sink.keeps_deletes)
        self._tables: dict[str, Kept] = {}
        self._sources: dict[str, tuple[str, str, str]] = {}
        self._positions = Positions(f"{sink.path}/{NAME}", query, pipeline)
        self._again = Again(sink.present, self._positions.path) if sink.unknown == "reselect" else None

    def write(self, batch: DataFrame, number: int) -> None:
        """The function of foreachBatch. Raises SinkError where a table cannot be written."""
        from pyspark import StorageLevel

        kept = batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            told = kept.select("key", "position", "ordinal", "source_ts").collect()
            heads: dict[tuple[str, str, str], list[Head]] = {}
            for row in told:
                head = Head.of(bytes(row["key"]))
                heads.setdefault((head.database, head.schema, head.table), []).append(head)
            moment = Moment.of(number, told)
            if moment is not None:
                if self._again is not None:
                    self._positions.open(batch.sparkSession)
                versions = self._write([TableBatch(number, of, tuple(found), kept) for of, found in heads.items()])
                until = self._again.until(batch.sparkSession) if self._again is not None else ""
                whole = self._is_whole(number) and moment.position > until
                self._positions.add(batch.sparkSession, moment, whole, versions)
        finally:
            kept.unpersist()

    def _write(self, parts: Sequence[TableBatch]) -> dict[str, int]:
        """Write the tables of a batch; their versions, by their paths below the sink's."""
        from pyspark import inheritable_thread_target

        work = [(part, self._table(part)) for part in parts]
        if len(work) == 1:
            found = [_in_own_session(*work[0])]
        else:
            own = inheritable_thread_target(parts[0].frame.sparkSession)(_in_own_session)
            with ThreadPoolExecutor(min(self._sink.at_once, len(work))) as pool:
                found = list(pool.map(lambda one: own(*one), work))
        return {table.path.removeprefix(f"{self._sink.path}/"): at for (_, table), at in zip(work, found, strict=True)}

    def _table(self, part: TableBatch) -> Kept:
        path, source = self._sink.path_of(part.table), ".".join(filter(None, part.table))
        other = self._sources.setdefault(path, part.table)
        if other != part.table or path == self._positions.path:
            raise SinkError(
                f"{'.'.join(other)} and {source} have one target, {path}.",
                "Set debezium.sink.tables.table.name.format to tell them apart.",
            )
        if path not in self._tables:
            unknown = self._sink.unknown
            kept: dict[str, Callable[[], Kept]] = {
                "latest": lambda: Latest(path, source, self._owner, unknown, self._again),
                "history": lambda: History(path, source, self._owner, unknown),
                "log": lambda: Log(path, source, self._owner),
            }
            self._tables[path] = kept[self._sink.mode]()
        return self._tables[path]


def _in_own_session(part: TableBatch, table: Kept) -> int:
    """Write one table's part of a batch. Delta reads settings of a write from the session."""
    session = part.frame.sparkSession.newSession()
    parallel = part.frame.sparkSession.sparkContext.defaultParallelism
    session.conf.set("spark.sql.shuffle.partitions", str(part.partitions(parallel)))
    return table.write(session, part)
