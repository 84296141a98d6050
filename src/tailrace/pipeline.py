"""Pipeline: the query of one configuration, from the source to the sink. Driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tailrace import sinks
from tailrace.columns.row import COLUMNS, PLACES, RESELECTED
from tailrace.config.config import Config
from tailrace.config.files import RunConfig
from tailrace.config.transforms import transforms
from tailrace.connectors.registry import find, parse
from tailrace.errors import TailraceError
from tailrace.monitoring.failures import cause
from tailrace.monitoring.status import METRIC
from tailrace.process import disk
from tailrace.sinks.base import Sink
from tailrace.snapshot.mode import snapshot_mode
from tailrace.spark.lock import CheckpointLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tailrace.spark.startup.gateway import Launch

# The columns from which the status metrics are computed.
_OBSERVED = ("op", "source_ts")

# Metrics of a post-processor that reads values again: the number of values, and of events whose row it could not read.
_RESELECTIONS = ("sum(reselected) as reselected", "count_if(reselected = 0) as not_reselected")

_PLACED = {"partition": "places_partitions", "timestamp": "places_times"}
"""Attributes of transforms, by column of PLACES. An attribute is true if the transform fills the column."""


def read_columns(sink: Sink, transforms: Iterable[Any] = ()) -> tuple[str, ...]:
    """Return the columns that a pipeline reads: the columns of its sink and of its status metrics.

    A column of PLACES is added if a transform fills it and the sink uses it.
    """
    wanted = {*sink.columns, *_OBSERVED}
    made = list(transforms)
    placed = {name for name, attribute in _PLACED.items() if any(getattr(one, attribute, False) for one in made)}
    places = (name for name in PLACES if name in placed and name in sink.places)
    return (*(name for name in COLUMNS if name in wanted), *places)


class Pipeline:
    """The pipeline of a configuration, started and stopped at most once.

    Without `spark`, the pipeline makes a session, which `stop` ends. The session is local, or on the cluster `master`.
    It has Spark's settings `conf` over tailrace's own, and `log_level` for Spark's log. The constructor raises
    SinkError for wrong options of the sink.
    """

    def __init__(
        self,
        run: RunConfig,
        spark: SparkSession | None = None,
        log_level: str = "error",
        *,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self.run = run
        self.sink = sinks.open(run.sink.name, run.sink.options, run.source)
        self.query: StreamingQuery | None = None
        self._spark = spark
        self._lock = CheckpointLock(run.checkpoint) if run.checkpoint is not None else None
        # a JVM that is starting, and a JVM whose session `connect` waits for
        self._launch: Launch | None = None
        self._awaited: Launch | None = None
        self._is_begun = self._is_connected = False
        self._log_level = log_level
        self._master = master
        self._conf = conf
        self._own_session = spark is None

    @property
    def spark(self) -> SparkSession:
        """The session. Raises TailraceError before `start` if none was given."""
        if self._spark is None:
            raise TailraceError("The pipeline has no Spark session.", "Start it first.")
        return self._spark

    def begin(self) -> None:
        """Take the lock, and start the JVM of an own session without waiting for it. May be called twice.

        `start` does this too, if not done before. `stop` releases the lock and ends the JVM. Raises as `start` does.
        """
        from tailrace.spark.capabilities import demand_classic
        from tailrace.spark.cluster import LOCAL
        from tailrace.spark.session import launch

        if self._is_begun:
            return
        if self._spark is not None:
            demand_classic(self._spark, "A pipeline")
        if self._lock is not None:
            self._lock.acquire()
        self._is_begun = True
        try:
            if self._spark is None:
                self._launch = launch(
                    self._settings,
                    jars=self.sink.jars,
                    log_level=self._log_level,
                    master=self._master or LOCAL,
                    keep=() if self._lock is None else self._lock.files,
                    loaded=find(self.run.source.connector).forked,
                )
        except BaseException:
            self._give_up()
            raise

    @property
    def _settings(self) -> dict[str, str]:
        """Spark's settings for an own session: `conf` over those that the sink needs."""
        return {**self.sink.settings, **(self._conf or {})}

    def _give_up(self) -> None:
        """Release the lock, and end a JVM that has no session yet."""
        if self._launch is not None:
            self._launch.abandon()
            self._launch = None
        self._is_begun = self._is_connected = False
        if self._lock is not None:
            self._lock.release()

    def connect(self) -> None:
        """Wait for the session: a new session in the pipeline's JVM, or the given session. May be called twice.

        `start` does this too, if not done before. Raises as `start` does.
        """
        from tailrace.spark.cluster import LOCAL, demand_shared
        from tailrace.spark.session import session
        from tailrace.spark.startup.warm_workers import warm

        self.begin()
        if self._is_connected:
            return
        try:
            if self._spark is None:
                self._awaited, self._launch = self._launch, None
                self._spark = session(
                    self._settings,
                    jars=self.sink.jars,
                    log_level=self._log_level,
                    master=self._master or LOCAL,
                    launched=self._awaited,
                )
                warm(self._spark, find(self.run.source.connector).loaded)
            if self.sink.folder is not None:
                demand_shared(self._spark, self.sink.folder)
        except BaseException:
            self._give_up()
            raise
        finally:
            self._awaited = None
        self._is_connected = True

    def abandon(self) -> None:
        """Kill a JVM that has no session yet, so that a `connect` of another thread fails. Any thread."""
        launched = self._awaited
        if launched is not None:
            launched.abandon()

    def start(self, available_now: bool = False) -> StreamingQuery:
        """Start the query; with `available_now` it ends by itself at the log's current end.

        Raises TailraceError if the pipeline was started before; CheckpointInUse if another run holds its checkpoint;
        PrerequisiteError if Spark cannot run here, or a given session is of Spark Connect; ConnectionFailed if no Spark
        master answers; SinkError if the sink's place belongs to another checkpoint, or executors do not see its
        directory. Later errors of source or sink end the query: `cause` finds them in the exception that Spark raises.
        """
        from tailrace.spark import register

        if self.query is not None:
            raise TailraceError("The pipeline was started before.", "Make a new one.")
        self.connect()
        try:
            register(self.spark)
            self.query = self._started(self.spark, available_now)
        except BaseException:
            self._give_up()
            raise
        return self.query

    def cause(self, error: BaseException) -> TailraceError | None:
        """Return the deliberate error that caused an exception of the query; None for other exceptions.

        It is a TailraceError of the source, an error that the sink recognises, or DiskFailed.
        """
        return cause(error, self._foreign)

    def _foreign(self, text: str) -> TailraceError | None:
        places = [
            disk.Directory("the checkpoint", self.run.checkpoint_location, "checkpoint.location"),
            disk.temporary(),
        ]
        if self.sink.folder:
            places.insert(1, disk.Directory("the sink's", self.sink.folder, f"debezium.sink.{self.sink.name}.path"))
        return self.sink.failure(text) or disk.failure(text, places)

    @property
    def source(self) -> Config:
        """The source's configuration, with the options that the sink sets. Raises ConfigError."""
        return parse(self.run.source.connector, self.run.source.texts | self.sink.source_options())

    def options(self) -> dict[str, str]:
        """Return the source's options: those of the configuration and those that the sink needs. Includes secrets."""
        source = self.run.source
        columns = read_columns(self.sink, transforms(source, source.traits.transforms).transforms)
        if self._reselects:
            columns = (*columns, RESELECTED)
        texts = source.texts | {"row.columns": ",".join(columns)}
        order = self.sink.order if source.traits.splits_tables else "topic"
        defaults = {"event.order": order, **self.sink.source_defaults()}
        texts |= {name: text for name, text in defaults.items() if not source.is_set(name)}
        return texts | self.sink.source_options()

    @property
    def _reselects(self) -> bool:
        return bool(self.run.source.get("post.processors"))

    def _started(self, spark: SparkSession, available_now: bool) -> StreamingQuery:
        from pyspark.sql.functions import expr

        from tailrace.spark import options

        source = self.run.source
        frame = spark.readStream.format(find(source.connector).format).options(**options(self.options())).load()
        metrics = ["max(unix_micros(source_ts)) as newest_us", "count_if(op = 'quarantine') as quarantined"]
        if self._reselects:
            metrics += _RESELECTIONS
        if self.sink.changes:
            metrics.append(f"sum({self.sink.changes}) as events")
        frame = frame.observe(METRIC, *map(expr, metrics))
        trigger = self._trigger(available_now)
        return self.sink.start(frame, self.run.checkpoint_location, trigger, self.run.name)

    def _trigger(self, available_now: bool) -> dict[str, Any]:
        # A query without streaming ends after its snapshot, as Debezium does.
        if available_now or not snapshot_mode(self.run.source).streams:
            return {"availableNow": True}
        # A batch starts as soon as there are changes: the source itself waits poll.interval.ms for them, and gathers
        # changes for poll.dispatch.interval.ms.
        return {"processingTime": "0 seconds"}

    def stop(self, *, is_last: bool = False) -> None:
        """Stop the query after the running batch, and the session if the pipeline made it. May be called twice.

        With `is_last`, this process ends next. The JVM, which needs seconds to end, is asked to end, and the method
        does not wait for it.
        """
        try:
            if self.query is not None and self.query.isActive:
                self.query.stop()
        finally:
            try:
                if self._own_session and self._spark is not None:
                    if not (is_last and _close_input(self._spark)):
                        self._spark.stop()
                    self._spark = None
            finally:
                self._give_up()


def _close_input(spark: SparkSession) -> bool:
    """Close the standard input of the session's JVM, after which the JVM ends.

    Return False if this process has not started the JVM.
    """
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None or process.stdin is None:
        return False
    from tailrace.monitoring.processes import release

    release(spark.sparkContext._gateway)
    with suppress(OSError):
        process.stdin.close()
    return True
