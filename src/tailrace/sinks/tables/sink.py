"""The sink `tables`: a lakehouse table for every captured table, which has each change exactly once. Driver.

The tables themselves make it so: with its rows, each commit writes the number of its batch (`formats.base.WriteId`),
and a table skips a batch that it has. `Target.written` and `Target.version` refuse batches that a copy of the
checkpoint, or an earlier one, would write in their place.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from tailrace.columns.blocks import BLOCK, COUNTED, EVERY, KEPT, LAST, Head
from tailrace.columns.table import TableId
from tailrace.config.config import Config
from tailrace.config.jar import Jar
from tailrace.connectors.registry import find, parse
from tailrace.connectors.row_lookup import PresentTables
from tailrace.connectors.signalling import send, usable
from tailrace.connectors.source_status import Describe, Offsets
from tailrace.errors import SinkError, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.process.temporary import can_share_files
from tailrace.sinks.base import Settings, Sink, warn_of_partial_snapshots
from tailrace.sinks.claim import identity
from tailrace.sinks.interruption import briefly
from tailrace.sinks.storage import HadoopStorage, reaching
from tailrace.sinks.tables.batch import TableBatch
from tailrace.sinks.tables.evolution import CHOICES, NULL, REREAD, SENSELESS, STOP, Policies
from tailrace.sinks.tables.formats.delta import Delta
from tailrace.sinks.tables.formats.detection import FORMATS
from tailrace.sinks.tables.frames import computed, is_here
from tailrace.sinks.tables.modes import History, Latest, Log, TableInMode
from tailrace.sinks.tables.names import OPTIONS, Known, TableNames, absolute
from tailrace.sinks.tables.positions import NAME, BatchEnd, Positions
from tailrace.sinks.tables.rebuild import demand_sound
from tailrace.sinks.tables.rereads import Rereads
from tailrace.sinks.tables.row_lookup import RowLookup
from tailrace.sinks.tables.statements import unknown_column
from tailrace.sinks.tables.target import Owner
from tailrace.snapshot.mode import snapshot_mode
from tailrace.snapshot.signals import Signal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("tailrace")

_CODE = {"spark.sql.codegen.cache.maxEntries": "1000"}
"""Size of Spark's cache of generated classes, by default 100. The batches of one table need some 65 classes. With the
default, the classes of several tables would be generated and compiled anew for each batch."""

_MODES = ("latest", "history", "log")
_WHOLE = {"event.processing.failure.handling.mode": "fail", "errors.tolerance": "none"}
"""Options with values that would leave changes out, and the allowed values."""
_BATCH_BYTES, _BATCH_IN_FILES = 128 << 20, 512 << 20
"""Most bytes of the log in a batch. The first limit is for `latest` with blocks in Spark's plan, and for `history`. The
second limit is for `latest` and `log` with blocks in files of the planner. A MERGE of many changes takes hardly longer
than a MERGE of few, and only one change per key leaves the tasks. Batches of `history` are smaller because all their
changes are shuffled and joined."""
_QUERY_SECONDS = 0.2
"""Time that Spark's JVM needs to start a query."""
_LOADED_TABLES = 4
"""Most tables whose state Spark reads before the first batch; with more tables, none is read ahead. In the mode `log`
none is read either, since appends need nothing about existing rows."""
_MEMORY = {
    "spark.sql.autoBroadcastJoinThreshold": "1MB",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB",
    "spark.sql.parquet.columnarReaderBatchSize": "1024",
    "parquet.block.size": str(16 << 20),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
}
"""Limits of memory. Spark estimates the size of rows by the size of their files, but rows that compress well are far
larger: a broadcast of the keys of 3,000,000 rows ended a JVM of 2 GB. The adaptive threshold can be higher, because it
applies to measured sizes. Of Parquet, each task holds one row group and one batch of the given number of rows; of
Arrow, one batch to Python and one back."""


class TablesSink(Sink):
    """A sink that keeps a table of Delta Lake or Iceberg under `path` for each captured table.

    `mode` is `latest` (the rows of the source), `history` (every version of them) or `log` (every change, appended).
    The source gives blocks of typed rows instead of events, so that options of events have no effect.
    """

    name = "tables"
    columns = ("key", "value", "op", "database", "schema", "table", "position", "ordinal", "source_ts")
    changes = COUNTED
    order = "key"
    delivery = "exactly once"
    jars: tuple[Jar, ...] = Delta.jars
    settings: Mapping[str, str] = _CODE | dict(Delta.settings)

    def __init__(self, options: Mapping[str, str]) -> None:
        given = Settings(self.name, options)
        given.only(
            ("path", "mode", "upsert-keep-deletes", *OPTIONS, "tables.at.once", "unknown.values", "added.default",
             "format", *(f"schema.{kind}" for kind in CHOICES))
        )  # fmt: skip
        self.path = absolute(given.required("path"))
        self.format = FORMATS[given.word("format", Delta.name, tuple(FORMATS))]
        self.jars, self.settings = self.format.jars, _CODE | dict(self.format.settings)
        self.mode = given.word("mode", "latest", _MODES)
        self.keeps_deletes = given.boolean("upsert-keep-deletes")
        if self.keeps_deletes and self.mode != "latest":
            raise given.wrong("upsert-keep-deletes", "is only for the mode latest")
        self.at_once = given.number("tables.at.once", 4, least=1, most=64)
        self.unknown = given.word("unknown.values", "stop", (STOP, NULL, "reselect", REREAD))
        self._source: Config | None = None
        added = given.word("added.default", STOP, (STOP, NULL, REREAD))
        self.policies = Policies(**{kind: _policy(given, kind) for kind in CHOICES}, added_default=added)
        answers = {
            "added.default": added,
            "schema.narrow": self.policies.narrow,
            "schema.recreated": self.policies.recreated,
            "unknown.values": self.unknown,
        }
        self._rereading = [name for name, answer in answers.items() if answer == REREAD]
        self._describe: Describe | None = None
        self.can_read_again = False
        self._gathers, self._lie_in_plan = False, False
        self.names = TableNames.of(given)
        if self.names.catalog and self.format.name != Delta.name:
            raise given.wrong("catalog.name.format", f"is only for the format {Delta.name}")
        if self.unknown == "reselect" and self.mode != "latest":
            raise given.wrong("unknown.values", "can be reselect only in the mode latest")
        if self.unknown == "reselect" and self.names.routing is not None:
            raise given.wrong("unknown.values", "cannot be reselect if tables are routed into one")
        for name in self._rereading:
            if self.names.routing is not None:
                raise given.wrong(name, "cannot be reread if tables are routed into one")
            if self.mode == "log" and name != "added.default":
                raise given.wrong(name, "can be reread only in the modes latest and history")

    @property
    def folder(self) -> str:
        return self.path

    def dataset(self, topic: str, table: TableId) -> tuple[str, str, str] | None:
        if self.names.routing is not None:
            return None
        scheme, there, rest = self.names.path(self.path, (table.database, table.schema, table.table)).rpartition("://")
        if not there or scheme == "file":
            return "file", rest, "TABLE"
        bucket, _, name = rest.partition("/")
        return f"{'s3' if scheme == 's3a' else scheme}://{bucket}", name, "TABLE"

    def adopt(self, source: Config) -> None:
        super().adopt(source)
        if not source.traits.gives_blocks:
            raise SinkError(f"The connector {source.connector} gives no rows for tables.", "Use another sink.")
        self._describe, self._source = find(source.connector).load_describe(), source
        present = bool(find(source.connector).row_lookup)
        self.can_read_again = present and self.mode == "latest" and self.names.routing is None
        if self.unknown == "reselect" and not present:
            raise SinkError(
                f"unknown.values = reselect is not supported for the connector {source.connector}.", "Set it to stop."
            )
        self._demand_rereads(source)
        self._gathers = source.get("max.batch.size.in.bytes") is not None
        self._lie_in_plan = source.is_set("tasks.in.files") and not source["tasks.in.files"]
        for name in ("transforms", "post.processors"):
            if source.get(name):
                raise SinkError(f"The sink tables supports no {name}: they apply to events.", f"Leave {name} out.")
        for name, kept in _WHOLE.items():
            if source.get(name) not in (None, kept):
                raise SinkError(f"{name} would leave changes out of the tables.", f"Set it to {kept}.")
        warn_of_partial_snapshots(source)
        snapshot = snapshot_mode(source)
        if source.get("on.data.loss") == "resnapshot":
            raise SinkError(
                "on.data.loss=resnapshot reads tables again, and would leave rows in them that were deleted while the "
                "log lacked changes.",
                "Set it to stop. tailrace verify --repair corrects tables that lack changes.",
            )
        if snapshot.reads == "each start" or snapshot.mends:
            raise SinkError(
                f"snapshot.mode={source['snapshot.mode']} may take a second snapshot, which does not show rows that "
                "were deleted before it: they would stay in the tables.",
                "Set it to initial. If the log no longer reaches back to the checkpoint, begin anew with another path "
                "and another checkpoint.",
            )
        skipped = set(source.get("skipped.operations") or ()) if source.is_set("skipped.operations") else set()
        if skipped & set("cud"):
            raise SinkError("skipped.operations skips changes that the sink tables needs.", "Set it to t or none.")

    def _demand_rereads(self, source: Config) -> None:
        """Raise SinkError if a policy is `reread`, and the pipeline cannot ask for a snapshot."""
        has_columns = find(source.connector).load_captured_tables() is not None
        for name in self._rereading:
            setting = f"debezium.sink.tables.{name} = reread"
            if not (source.traits.numbers_tables if name == "schema.recreated" else has_columns):
                raise SinkError(f"{setting} is not supported for the connector {source.connector}.", "Set it to stop.")
            if len(source.get("database.names") or ()) > 1:
                raise SinkError(f"{setting} is not supported for several databases in one query.", "Set it to stop.")
            if not usable(source):
                raise SinkError(
                    f"{setting} needs a channel for signals: the pipeline asks for snapshots by it.",
                    "Name a table in signal.data.collection, or kafka or file in signal.enabled.channels.",
                )

    def reread(self, signal: Signal) -> None:
        """Send a signal to the source."""
        assert self._source is not None
        send(self._source, signal)

    def captured(self) -> set[tuple[str, str]]:
        """Return the schemas and names of the tables that the source captures now. Raises TailraceError."""
        assert self._source is not None
        capturing = find(self._source.connector).load_captured_tables()
        assert capturing is not None
        found = capturing(self._source, EventSettings.from_options(self._source))
        return {(table.id.schema, table.id.table) for table in found.tables}

    def source_options(self) -> dict[str, str]:
        held = EVERY if self.mode != "latest" else KEPT if self.keeps_deletes else LAST
        blocks = {"row.blocks": held}
        return blocks if self.names.routing is None else {**blocks, "row.route": self.names.routing.text()}

    def source_defaults(self) -> dict[str, str]:
        sizes = {}
        in_files = not self._lie_in_plan and is_here() and can_share_files()
        if self._gathers and (in_files or self.mode == "latest"):
            most = _BATCH_IN_FILES if in_files and self.mode != "history" else _BATCH_BYTES
            sizes["max.batch.size.in.bytes"] = str(most)
        return sizes | {
            "skipped.operations": "none",
            "event.converting.failure.handling.mode": "fail",
            "event.format": "3",
        }

    def present(self) -> PresentTables:
        """Open a session with the source that reads rows in their current state."""
        assert self._source is not None
        source = self._source
        texts = {name: text for name, text in self.source_defaults().items() if not source.is_set(name)}
        config = parse(source.connector, {**source.texts, **texts, **self.source_options()})
        opening = find(source.connector).load_row_lookup()
        assert opening is not None
        return opening(config, EventSettings.from_options(config))

    def failure(self, text: str) -> TailraceError | None:
        unknown = unknown_column(text)
        if unknown is not None:
            return SinkError(
                f"Neither the log nor the table has the value of the column {unknown} of a row.",
                "Read the row's table by an incremental snapshot first, let the log carry whole rows (replica identity "
                "FULL; binlog_row_image=FULL), or set debezium.sink.tables.unknown.values to "
                f"{'reselect or ' * self.can_read_again}null.",
            )
        if self.format.conflict.search(text):
            return SinkError(
                f"Another process has written to a table under {self.path} at the same time.",
                "Let only this pipeline write there, then start again: the batch is repeated.",
            )
        return None

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        spark = frame.sparkSession
        self.format.demand(spark)
        storage = HadoopStorage(spark)
        with reaching(self.path, "debezium.sink.tables.path"):
            pipeline = identity(storage, str(checkpoint))
            demand_sound(spark, self.path, pipeline)

        def offset(number: int) -> Offsets:
            return _offset(storage, str(checkpoint), number)

        writer = Writer(self, pipeline, query, lambda number: self._is_whole(offset(number)), offset)
        writer.prepare(spark)
        stream = frame.where(f"op = '{BLOCK}'").writeStream.queryName(query).trigger(**trigger)
        return stream.option("checkpointLocation", str(checkpoint)).foreachBatch(briefly(writer.write)).start()

    def _is_whole(self, offset: Offsets) -> bool:
        """Return True if a batch up to an offset ends between two transactions and not within a snapshot."""
        return self._describe is not None and bool(offset) and self._describe(offset, {}).whole


class Writer:
    """A writer of batches: first a batch's tables, in parallel, then the row that records their versions as one moment.

    Both functions take the number of a batch. `offset` returns the offset at its end, and `is_whole` returns True if
    this offset lies between two transactions.
    """

    def __init__(
        self,
        sink: TablesSink,
        pipeline: str,
        query: str,
        is_whole: Callable[[int], bool],
        offset: Callable[[int], Offsets] = lambda _: {},
    ) -> None:
        self._sink, self._is_whole, self._offset = sink, is_whole, offset
        self._tables: dict[str, TableInMode] = {}
        self._registered: set[str] = set()
        self._sessions: dict[str, SparkSession] = {}
        self._sources: Known = {}
        self._positions = Positions(f"{sink.path}/{NAME}", query, pipeline, sink.format)
        self._rereads = Rereads(self._positions, sink.reread, sink.captured)
        self._owner = Owner(pipeline, sink.mode, sink.policies, sink.keeps_deletes, sink.format, self._rereads.ask)
        self._found: Future[None] | None = None
        self._wanted = Event()
        self._again = None
        if sink.can_read_again and sink.unknown not in (NULL, REREAD):
            self._again = RowLookup(sink.present, self._positions, sink.unknown == "reselect")

    def prepare(self, spark: SparkSession) -> None:
        """Start to read the state of the tables in the background, while the planner starts and the first batch is
        read.

        The reads begin only after the JVM has started the query.
        """
        from pyspark import inheritable_thread_target

        pool = ThreadPoolExecutor(1, "tailrace-positions")
        session = spark.newSession()

        def find() -> None:
            self._wanted.wait(_QUERY_SECONDS)
            self._positions.find(spark)

        def load() -> None:
            try:
                self._positions.load(session, _LOADED_TABLES)
            except Exception as error:
                # The batch fails with the same error and reports it.
                log.debug("%s", error)

        self._found = pool.submit(inheritable_thread_target(spark)(find))
        if self._sink.mode != "log":
            pool.submit(inheritable_thread_target(session)(load))
        pool.shutdown(wait=False)

    def write(self, batch: DataFrame, number: int) -> None:
        """Write one batch, as the function of foreachBatch. Raises SinkError if a table cannot be written."""
        # The query for the heads of the blocks computes the blocks.
        with computed(batch, eager=False) as kept:
            if self._found is not None:
                self._wanted.set()
                self._found.result()
            self._positions.open(kept.sparkSession, number)
            self._rereads.begin(kept.sparkSession, lambda: self._offset(number))
            self._write_computed(kept, number)

    def _write_computed(self, kept: DataFrame, number: int) -> None:
        blocks = kept.selectExpr("key", "position", "ordinal", "source_ts", "octet_length(value) size").collect()
        heads: dict[tuple[str, str, str], list[Head]] = {}
        sizes: Counter[tuple[str, str, str]] = Counter()
        for row in blocks:
            head = Head.of(bytes(row["key"]))
            of = head.database, head.schema, head.table
            heads.setdefault(of, []).append(head)
            sizes[of] += row["size"] or 0
        moment = BatchEnd.of(number, blocks)
        if moment is not None:
            parts = [TableBatch(number, of, tuple(found), kept, sizes[of]) for of, found in heads.items()]
            versions = self._write(parts)
            self._positions.add(kept.sparkSession, moment, self._is_whole(number), versions)

    def _write(self, parts: Sequence[TableBatch]) -> dict[str, int]:
        """Write the tables of a batch. Return their versions by their paths relative to the sink's path."""
        from pyspark import inheritable_thread_target

        work = [(part, self._table(part)) for part in parts]
        if len(work) == 1:
            found = [self._in_own_session(*work[0])]
        else:
            own = inheritable_thread_target(parts[0].frame.sparkSession)(self._in_own_session)
            with ThreadPoolExecutor(min(self._sink.at_once, len(work))) as pool:
                found = list(pool.map(lambda one: own(*one), work))
        for part, table in work:
            self._register(part, table)
        return {table.path.removeprefix(f"{self._sink.path}/"): at for (_, table), at in zip(work, found, strict=True)}

    def _register(self, part: TableBatch, table: TableInMode) -> None:
        """Register a table in Spark's catalog when it is first written."""
        if table.path not in self._registered:
            self._sink.names.register(part.frame.sparkSession, table.path, part.table)
            self._registered.add(table.path)

    def _table(self, part: TableBatch) -> TableInMode:
        path, source = self._sink.names.path(self._sink.path, part.table), ".".join(filter(None, part.table))
        self._rereads.know(source, *part.table[1:])
        for routed in {head.routed for head in part.heads}:
            self._sink.names.demand_alone(path, part.table, self._sources, routed)
        if path not in self._tables:
            unknown = self._sink.unknown
            kept: dict[str, Callable[[], TableInMode]] = {
                "latest": lambda: Latest(path, source, self._owner, unknown, self._again),
                "history": lambda: History(path, source, self._owner, unknown),
                "log": lambda: Log(path, source, self._owner),
            }
            self._tables[path] = kept[self._sink.mode]()
            self._tables[path].is_known = self._positions.knows(path.removeprefix(f"{self._sink.path}/"))
        return self._tables[path]

    def _in_own_session(self, part: TableBatch, table: TableInMode) -> int:
        """Write one table's part of a batch in the table's session, whose settings control the format's writes."""
        session = self._sessions.get(table.path)
        if session is None:
            session = self._sessions[table.path] = part.frame.sparkSession.newSession()
        parallel = part.frame.sparkSession.sparkContext.defaultParallelism
        session.conf.set("spark.sql.shuffle.partitions", str(part.partitions(parallel)))
        for name, text in _MEMORY.items():
            session.conf.set(name, text)
        return table.write(session, part)


def _offset(storage: HadoopStorage, checkpoint: str, number: int) -> Offsets:
    """Return the offset at the end of a batch; empty if the checkpoint does not have it."""
    lines = (storage.read(f"{checkpoint}/offsets/{number}") or "").splitlines()
    try:
        found: Offsets = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found


def _policy(given: Settings, kind: str) -> str:
    """Return the policy for a kind of alteration. Raises SinkError for a policy that the kind does not support."""
    name, words = f"schema.{kind}", CHOICES[kind]
    why = SENSELESS.get((kind, given.text(name).lower()))
    if why is not None:
        raise given.wrong(name, f"must be one of {', '.join(words)}: {why}")
    return given.word(name, words[0], words)
