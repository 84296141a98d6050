"""Tables of Delta Lake: commits, merges, and transaction keys, by which each batch is written once. Driver."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tailrace.config.jar import Jar
from tailrace.errors import SinkError
from tailrace.sinks.storage import HadoopStorage
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.evolution import ColumnStep
from tailrace.sinks.tables.formats.base import Columns, StoredTable, TableCommit, TableFormat, WriteId, own_metadata
from tailrace.sinks.tables.frames import computed
from tailrace.sinks.tables.statements import Merge, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


# --- commits ----------------------------------------------------------------------------------------------------------

VERSION = "4.4.0"
"""The version of Delta Lake in the jars. In a session with another version, rows are merged by MERGE."""

_DELTA = "org.apache.spark.sql.delta"
_MADE, _PARAMETERS = "org.apache.spark.sql.execution.LogicalRDD", 9
_VIEW = "tailrace_replacing"
_NEEDED, _UNWANTED = "delta.enableDeletionVectors", ("delta.enableChangeDataFeed", "delta.enableRowTracking")
"""Properties that a table must have to replace rows, and properties that it must not have. With the latter, an update
is recorded differently from a delete and an insert."""

_SUBQUERY = {"spark.databricks.delta.delete.allowExistsSubquery": "true"}
# An adaptive plan runs a job for each exchange.
_BROADCAST = {"spark.sql.adaptive.enabled": "false"}


def replace_rows(session: SparkSession, path: str, name: str, merge: Merge, once: WriteId) -> bool:
    """Do a `whole` merge into the table at `path`, called `name` in SQL. Return False, and do nothing, if it needs
    MERGE.

    The commit has the session's `spark.databricks.delta.commitInfo.userMetadata`. Raises Delta Lake's errors, including
    conflicts.
    """
    jvm: Any = session._jvm
    own: Any = session._jsparkSession
    if not merge.whole or not _is_known(session):
        return False
    log = getattr(jvm, f"{_DELTA}.DeltaLog").forTable(own, path)
    with _active(jvm, own):
        transaction = log.startTransaction()
        values = merge.inserted.values if merge.inserted is not None else None
        if not _takes(transaction.metadata(), values or ()):
            return False
        if _newest(transaction, once.application) >= once.batch:
            return True
        settings = {**_SUBQUERY, **(_BROADCAST if merge.few else {})}
        with computed(session.table(merge.view), eager=False) as rows, _set(session, settings):
            rows.createOrReplaceTempView(_VIEW)
            gone = _delete(session, name, merge).performDelete(own, log, transaction)._1()
            added = transaction.writeFiles(_new(session, transaction.metadata(), merge)._jdf)
            transaction.updateSetTransaction(once.application, once.batch, jvm.scala.Option.empty())
            transaction.commit(gone.appendedAll(added), _operation(jvm, "Overwrite", merge.on))
    return True


def append_rows(session: SparkSession, path: str, rows: DataFrame, once: WriteId) -> bool:
    """Append rows of `session` to the table at `path`. Return False, and do nothing, if it needs Delta's writer.

    Metadata and errors are as in `replace_rows`.
    """
    jvm: Any = session._jvm
    own: Any = session._jsparkSession
    if not _is_known(session):
        return False
    with _active(jvm, own):
        transaction = getattr(jvm, f"{_DELTA}.DeltaLog").forTable(own, path).startTransaction()
        if not _has_columns(transaction.metadata(), rows.columns):
            return False
        if _newest(transaction, once.application) < once.batch:
            added = transaction.writeFiles(_declared(rows, transaction.metadata())._jdf)
            transaction.updateSetTransaction(once.application, once.batch, jvm.scala.Option.empty())
            transaction.commit(added, _operation(jvm, "Append"))
    return True


def _is_known(session: SparkSession) -> bool:
    """Return True if the session's Delta Lake has the version whose internals this module uses."""
    jvm: Any = session._jvm
    return bool(getattr(jvm, "io.delta.package").VERSION() == VERSION)


def _demand_fitting(session: SparkSession) -> None:
    """Raise SinkError if Delta Lake's jars cannot work in this Spark: they would fail only at the first merge.

    They call a constructor of Spark with nine parameters, which each version of Spark may change.
    """
    loader: Any = session._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    made = loader.loadClass(_MADE).getConstructors()
    found = sorted({int(one.getParameterCount()) for one in made})
    if _PARAMETERS not in found:
        raise SinkError(
            f"Delta Lake {VERSION} does not fit Spark {session.version}: {_MADE} takes {found[0] if found else 0} "
            f"parameters there, and Delta Lake gives {_PARAMETERS}.",
            "Use a Spark for which this Delta Lake was made, such as 4.2, or debezium.sink.tables.format=iceberg.",
        )


def _newest(transaction: Any, application: str) -> int:
    """Return the application's newest batch in the table, -1 for none.

    From here on, another commit of the application conflicts with this transaction.
    """
    checksum = transaction.snapshot().checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if not known.isDefined():
        return int(transaction.txnVersion(application))
    # `txnVersion` records the read in the same way.
    transaction.readTxn().addOne(application)
    keys = known.get()
    found = (keys.apply(place) for place in range(keys.size()))
    return max((int(key.version()) for key in found if key.appId() == application), default=-1)


def newest(session: SparkSession, path: str) -> tuple[Any, Any]:
    """Return Delta's log of the table and its snapshot of the newest version."""
    jvm: Any = session._jvm
    log = getattr(jvm, f"{_DELTA}.DeltaLog").forTable(session._jsparkSession, path)
    nothing = jvm.scala.Option.empty()
    return log, log.update(False, nothing, nothing)


def load(session: SparkSession, path: str) -> None:
    """Let Delta compute and cache the state of the table's newest version, in three Spark jobs.

    Deletes of rows use it to find the files that may hold them.
    """
    with _active(session._jvm, session._jsparkSession):
        newest(session, path)[1].transactions()


def _takes(metadata: Any, columns: Collection[str]) -> bool:
    """Return True if the table has exactly the rows' columns, and if a delete and an insert can replace an update."""
    properties = metadata.configuration()

    def is_on(name: str) -> bool:
        return bool(properties.contains(name)) and str(properties.apply(name)).lower() == "true"

    return _has_columns(metadata, columns) and is_on(_NEEDED) and not any(map(is_on, _UNWANTED))


def _has_columns(metadata: Any, columns: Collection[str]) -> bool:
    """Return True if these are all columns of the table and it is not partitioned."""
    return set(metadata.schema().fieldNames()) == set(columns) and bool(metadata.partitionColumns().isEmpty())


def _delete(session: SparkSession, name: str, merge: Merge) -> Any:
    """Return Delta's analyzed command that deletes the table's rows with a match in the batch."""
    state = session._jsparkSession.sessionState()
    hint = "/*+ broadcast(s) */ " if merge.few else ""
    where = f"exists (select {hint}1 from {_VIEW} s where {merge.on})"
    plan = state.sqlParser().parsePlan(f"delete from {name} t where {where}")
    skip = session._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()  # type: ignore[union-attr]
    return state.executePlan(plan, skip).analyzed()


def _new(session: SparkSession, metadata: Any, merge: Merge) -> DataFrame:
    """Return the new rows, with the table's columns in their order."""
    assert merge.inserted is not None
    assert merge.inserted.values is not None
    columns = ", ".join(f"{value} as {quoted(name)}" for name, value in merge.inserted.values.items())
    where = f" where {merge.inserted.condition}" if merge.inserted.condition else ""
    return _declared(session.sql(f"select {columns} from {_VIEW} s{where}"), metadata)


def _declared(rows: DataFrame, metadata: Any) -> DataFrame:
    """Return rows with the table's columns in their order."""
    from pyspark.sql.types import StructType

    return rows.to(StructType.fromJson(json.loads(metadata.schema().json())))


def _operation(jvm: Any, mode: str, replaced: str | None = None) -> Any:
    """Return the operation for the table's history: a write, with the condition of the rows that it has replaced."""
    option = jvm.scala.Option
    write = getattr(jvm, f"{_DELTA}.DeltaOperations$Write")
    of = getattr(jvm.org.apache.spark.sql.SaveMode, mode)
    return write(of, *[option.empty()] * 6, option.apply(replaced), option.empty())


@contextmanager
def _active(jvm: Any, own: Any) -> Iterator[None]:
    """Make the session the active one of this thread, from which Delta reads its settings."""
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(own)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def _set(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set settings of the session, which a single thread uses, and restore them at the end."""
    before = {name: session.conf.get(name, None) for name in settings}
    try:
        for name, text in settings.items():
            session.conf.set(name, text)
        yield
    finally:
        for name, found in before.items():
            if found is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, found)


# --- tables -----------------------------------------------------------------------------------------------------------


_EXTENSION, _CATALOG = "io.delta.sql.DeltaSparkSessionExtension", "org.apache.spark.sql.delta.catalog.DeltaCatalog"

# Delta reads these from the session, and from the writer for its own appends.
_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"

_TRIES = 20

LONGEST = 168
"""Hours after which Delta Lake forgets removed files (`delta.deletedFileRetentionDuration`)."""

CONFLICT = re.compile(r"\bDELTA_(?:CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED)\b")
"""Matches Delta Lake's errors about a conflicting commit."""

IDLE = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""Operations of maintenance, which do not change rows."""

_FILL = "tailrace: values of a new column"
"""The user metadata of a commit of `fill`, which distinguishes it from updates by others."""

_OWN = frozenset({"CREATE TABLE", "ADD COLUMNS", "SET TBLPROPERTIES", "RENAME COLUMN", "CHANGE COLUMN", "DROP COLUMNS"})

_PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    # A column of this type may be added later.
    "delta.feature.timestampNtz": "supported",
    # By default, Delta writes a checkpoint of its log every 10 commits. That takes longer than several small batches
    # (docs/decisions/018-fewer-checkpoints.md).
    "delta.checkpointInterval": "100",
}
_MAPPING = {"delta.columnMapping.mode": "name"}
_WIDENING = {"delta.enableTypeWidening": "true"}
_STATEMENTS: Mapping[str, Callable[[str, ColumnStep], str]] = {
    "drop": lambda path, step: statements.drop_column(path, step.name),
    "rename": lambda path, step: statements.rename_column(path, step.name, step.to),
    "widen": lambda path, step: statements.widen_column(path, step.name, step.to),
    "add": lambda path, step: statements.add_columns(path, [(step.name, step.to)]),
}


class DeltaTable(StoredTable):
    """A Delta Lake table at a path, without a catalog."""

    title = "Delta Lake"
    marker = "_delta_log"
    can_fill = True

    def is_there(self) -> bool:
        names = set(HadoopStorage(self.session).sizes(self.path))
        if self.marker in names and int(newest(self.session, self.path)[1].version()) >= 0:
            return True
        # A process that ends during `create` leaves only a log without commits.
        if names - {self.marker}:
            raise self._foreign()
        return False

    def _clear(self) -> None:
        """Remove a log without commits, which Delta Lake would take for a table."""
        if HadoopStorage(self.session).sizes(self.path) and not self.is_there():
            HadoopStorage(self.session).delete(f"{self.path}/{self.marker}")

    def load(self) -> None:
        load(self.session, self.path)

    def name(self) -> str:
        return statements.at_path(self.path)

    def rows(self, version: int | None = None) -> DataFrame:
        reader = self.session.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path)

    def columns(self) -> dict[str, DataType]:
        from pyspark.sql.types import StructType

        fields = StructType.fromJson(json.loads(self._metadata()["schemaString"])).fields
        return {field.name: field.dataType for field in fields}

    def properties(self) -> dict[str, str]:
        return dict(self._metadata()["configuration"])

    def _metadata(self) -> dict[str, Any]:
        """Return the table's metadata from its log, without a statement that Spark would have to plan."""
        found: dict[str, Any] = json.loads(newest(self.session, self.path)[1].metadata().json())["metaData"]
        return found

    def commits(self, most: int) -> list[TableCommit]:
        commits = self._entries(most)
        # An unknown operation counts as a change of rows.
        still = IDLE | _OWN
        return [
            TableCommit(version, metadata, operation not in still and metadata != _FILL)
            for version, operation, metadata in commits
        ]

    def _entries(self, most: int) -> list[tuple[int, str, str | None]]:
        """Return version, operation and user metadata of the newest commits."""
        found = self._read(most)
        if found is None:
            history = self.session.sql(f"describe history {self.name()} limit {most}")
            rows = history.select("version", "operation", "userMetadata").collect()
            found = [(int(row["version"]), row["operation"], row["userMetadata"]) for row in rows]
        return found

    def _read(self, most: int) -> list[tuple[int, str, str | None]] | None:
        """Return the same from the files of the log, without a Spark job; None if they do not contain it."""
        jvm: Any = self.session._jvm
        log, state = newest(self.session, self.path)
        last = int(state.version())
        hadoop = log.newDeltaHadoopConf()
        found = []
        for version in range(last, max(last - most, -1), -1):
            file = jvm.org.apache.hadoop.fs.Path(log.logPath(), f"{version:020}.json")
            try:
                lines = log.store().readAsIterator(file, hadoop)
            except Py4JJavaError:
                # The file was cleaned up, or a catalog keeps the commit.
                return None
            try:
                info = json.loads(lines.next()).get("commitInfo") if lines.hasNext() else None
            finally:
                lines.close()
            if info is None:
                # Another writer may put commitInfo at the end.
                return None
            found.append((version, info.get("operation", ""), info.get("userMetadata")))
        return found

    def past(self, name: str) -> tuple[frozenset[str], bool | None]:
        history = self.session.sql(f"describe history {self.name()}").select("operation", "operationParameters")
        rows = history.where("operation in ('CREATE TABLE', 'RENAME COLUMN', 'SET TBLPROPERTIES')").collect()
        done = {row["operation"] for row in rows}
        values = {json.loads(row["operationParameters"].get("properties") or "{}").get(name) for row in rows}
        renamed = "RENAME COLUMN" in done or (False if "CREATE TABLE" in done else None)
        return frozenset(values - {None}), renamed

    def create(self, columns: Columns, properties: Mapping[str, str]) -> None:
        self._clear()
        wanted = {**_PROPERTIES, **properties}
        if statements.needs_mapping([name for name, _ in columns]):
            wanted |= _MAPPING
        self.session.sql(statements.create(self.path, columns, wanted))

    def announce(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        wanted = dict(properties)
        if any(step.what in ("drop", "rename") or statements.needs_mapping([step.name]) for step in steps):
            wanted |= _MAPPING
        if any(step.what == "widen" for step in steps):
            wanted |= _WIDENING
        if not wanted.items() <= self.properties().items():
            self.session.sql(statements.set_properties(self.path, wanted))

    def alter(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        for step in steps:
            self.session.sql(_STATEMENTS[step.what](self.path, step))
        self.session.sql(statements.set_properties(self.path, properties))

    def fill(self, values: Mapping[str, str], where: str) -> None:
        self.session.conf.set(_METADATA, _FILL)
        try:
            self.session.sql(statements.fill(self.path, values, where))
        finally:
            self.session.conf.unset(_METADATA)

    def append(self, rows: DataFrame, once: WriteId) -> None:
        with self._saying(once):
            if not append_rows(self.session, self.path, rows, once):
                writer = rows.write.format("delta").mode("append")
                writer = writer.option("txnAppId", once.application).option("txnVersion", str(once.batch))
                writer.option("userMetadata", once.metadata).save(self.path)

    def merge(self, merge: Merge, once: WriteId) -> None:
        with self._saying(once):
            for left in reversed(range(_TRIES)):
                try:
                    if not replace_rows(self.session, self.path, self.name(), merge, once):
                        self.session.sql(merge.statement(self.name()))
                    return
                except Exception as error:
                    if not left or not CONFLICT.search(str(error)) or not self._was_maintained():
                        raise

    @contextmanager
    def _saying(self, once: WriteId) -> Iterator[None]:
        """Set a batch's transaction key and metadata for the session's commits. A single thread uses the session."""
        conf = self.session.conf
        conf.set(_APP, once.application)
        conf.set(_VERSION, str(once.batch))
        conf.set(_METADATA, once.metadata)
        # Spark's default INT96 takes more time and space, and Parquet keeps no minimum and maximum of it.
        conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
        try:
            yield
        finally:
            for name in (_APP, _VERSION, _METADATA, _TIMESTAMPS):
                conf.unset(name)

    def _was_maintained(self) -> bool:
        """Return True if the newest commits are maintenance, after a commit of a pipeline.

        A MERGE that has lost against them can be run again.
        """
        commits = [(operation, metadata) for _, operation, metadata in self._entries(50)]
        others = [commit for commit in commits if commit[0] not in IDLE]
        is_maintained = bool(commits) and commits[0][0] in IDLE
        return is_maintained and bool(others) and (others[0][0] in _OWN or own_metadata(others[0][1]) is not None)

    def mend(self, merge: Merge) -> None:
        self.session.sql(merge.statement(self.name()))

    def remove(self, where: str) -> int:
        return int(self.session.sql(f"delete from {self.name()} where {where}").collect()[0][0])

    def compact(self) -> str:
        metrics = self.session.sql(f"optimize {self.name()}").collect()[0]["metrics"]
        return f"{metrics['numFilesRemoved']} files compacted into {metrics['numFilesAdded']}"

    def clean(self, version: int | None, hours: int) -> str:
        if version is not None:
            # The version's files are needed from the time at which the next version replaced them.
            since = self._written(version + 1)
            hours = max(hours, 0 if since is None else int((time.time() - since) / 3600) + 2)
        if hours > LONGEST:
            return f"no files removed: a moment needs version {version}, which is older than {LONGEST} hours"
        conf = self.session.conf
        conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        # VACUUM splits its list of files into this many parts, by default 10,000.
        parts = 4 * self.session.sparkContext.defaultParallelism
        conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", str(parts))
        self.session.sql(f"vacuum {self.name()} retain {hours} hours").collect()
        return f"files removed that were in no version of the last {hours} hours"

    def _written(self, version: int) -> float | None:
        """Return the time of a commit in s; None if its file does not exist."""
        file = self.session._jvm.org.apache.hadoop.fs.Path(f"{self.path}/_delta_log/{version:020}.json")  # type: ignore[union-attr]
        system = file.getFileSystem(self.session._jsparkSession.sessionState().newHadoopConf())
        return float(system.getFileStatus(file).getModificationTime()) / 1000 if system.exists(file) else None


class Delta(TableFormat):
    """Delta Lake, which extends Spark by an SQL extension and a catalog."""

    name = "delta"
    title = DeltaTable.title
    marker = DeltaTable.marker
    jars = (
        Jar(
            "io.delta",
            "delta-spark_4.2_2.13",
            VERSION,
            "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
        ),
        Jar("io.delta", "delta-storage", VERSION, "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    )
    settings: ClassVar[Mapping[str, str]] = {
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.catalog.spark_catalog": _CATALOG,
        # Delta reads the log of each table in this many tasks, by default 50: most of the time of a small batch.
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    conflict = CONFLICT

    def demand(self, spark: SparkSession) -> None:
        if _EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
            raise SinkError(
                "The Spark session is without Delta Lake.",
                "Create it with the settings in tailrace.sinks.tables.formats.delta.Delta.settings, and with Delta's "
                "jars.",
            )
        if _is_known(spark):
            _demand_fitting(spark)

    def table(self, session: SparkSession, path: str) -> StoredTable:
        return DeltaTable(session, path)
