"""Iceberg's own Java library in Spark's JVM: tables, snapshots and their files, and commits. Driver."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.sinks.tables.evolution import ColumnStep
from tailrace.sinks.tables.formats.iceberg.schemas import mapping_of, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFLICT = re.compile(r"\borg\.apache\.iceberg\.exceptions\.(?:ValidationException|Commit\w*Exception)")
"""What Iceberg says where another commit was in the way of one."""

WRITER, MAINTAINED = "tailrace.writer", "tailrace.maintained"
"""What the summary of a snapshot has of a pipeline's write, and of maintenance."""

_BELOW = re.compile(r".*/((?:data|metadata)/.+)")
_LOST = re.compile(r"\.avro$|/[0-9a-f-]{36}\.metadata\.json$")
"""What of the metadata a commit may leave that was not done."""

T = TypeVar("T")

_MAPPING = "schema.name-mapping.default"
_PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
}


def is_there(spark: SparkSession) -> bool:
    """Whether the JVM has the library."""
    found: Any = spark._jvm.org.apache.iceberg.hadoop  # type: ignore[union-attr]
    # of a class that is not there Py4J makes a package
    return type(found.HadoopTables).__name__ == "JavaClass"


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a snapshot: those of rows and those of deletes. `snapshot` is its id; None before the first."""

    snapshot: int | None
    data: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot: its id, its time in ms, its operation and what its writer said of it."""

    id: int
    at: int
    operation: str
    summary: Mapping[str, str]


class Library:
    """The table at `path`."""

    def __init__(self, session: SparkSession, path: str) -> None:
        jvm: Any = session._jvm
        self._iceberg, self._java, self._hadoop = jvm.org.apache.iceberg, jvm.java, jvm.org.apache.hadoop
        self._conf = session._jsparkSession.sessionState().newHadoopConf()
        self.path = path
        self._known: Any = None

    @property
    def _tables(self) -> Any:
        return self._iceberg.hadoop.HadoopTables(self._conf)

    @property
    def _table(self) -> Any:
        if self._known is None:
            self._known = self._tables.load(self.path)
        return self._known

    def refresh(self) -> None:
        """See what others have committed."""
        self._table.refresh()

    def create(self, columns: Sequence[tuple[str, str]], properties: Mapping[str, str]) -> None:
        """Make the table."""
        schema = self._iceberg.SchemaParser.fromJson(schema_of(columns))
        unparted = self._iceberg.PartitionSpec.unpartitioned()
        self._known = self._tables.create(schema, unparted, self._map({**_PROPERTIES, **properties}), self.path)
        self.alter((), {})

    def is_unfinished(self) -> bool:
        """Whether the directory has nothing but what `create` leaves where its process ends in it."""
        if self._tables.exists(self.path):
            return False
        left = self._all("data") + self._all("metadata")
        return all(_LOST.search(_below(str(status.getPath()))) for status in left)

    def alter(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        """Alter columns and set properties, in one commit."""
        mapping, change = self.mapping(), self._table.newTransaction()
        for step in steps:
            # one by one: a name that a step leaves may be the next one's
            update = change.updateSchema()
            self._altered(update, step)
            update.commit()
        told = change.updateProperties()
        # Iceberg has altered it by the names of the columns, which files do not follow
        new = mapping_of(str(self._iceberg.SchemaParser.toJson(change.table().schema())), mapping)
        for name, text in {**properties, _MAPPING: new}.items():
            told.set(name, text)
        told.commit()
        with self._alone():
            change.commitTransaction()

    def _altered(self, update: Any, step: ColumnStep) -> None:
        if step.what == "drop":
            update.deleteColumn(step.name)
        elif step.what == "rename":
            update.renameColumn(step.name, step.to)
        else:
            kind = self._iceberg.SchemaParser.fromJson(schema_of([(step.name, step.to)])).columns()[0].type()
            if step.what == "widen":
                update.updateColumn(step.name, kind)
            else:
                # with the parent that it has not, a name may have dots
                update.addColumn(None, step.name, kind)

    def mapping(self) -> str:
        """The name mapping, of all columns that there have been."""
        return self.properties().get(_MAPPING) or mapping_of(self.schema())

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self._table.properties())

    def schema(self, snapshot: int | None = None) -> str:
        """The JSON of the schema, as it is now or was at a snapshot."""
        table = self._table
        found = table.schema()
        if snapshot is not None:
            found = table.schemas().get(table.snapshot(snapshot).schemaId())
        return str(self._iceberg.SchemaParser.toJson(found))

    def schemas(self) -> list[str]:
        """The JSON of all schemas that there have been."""
        return [str(self._iceberg.SchemaParser.toJson(one)) for one in self._table.schemas().values()]

    def snapshot(self) -> int | None:
        """The id of the newest snapshot; None where nothing was written yet."""
        found = self._table.currentSnapshot()
        return None if found is None else int(found.snapshotId())

    def snapshots(self) -> Iterator[Snapshot]:
        """The snapshots, the newest first."""
        table = self._table
        found = table.currentSnapshot()
        while found is not None:
            parent = found.parentId()
            yield Snapshot(
                int(found.snapshotId()), int(found.timestampMillis()), str(found.operation()), dict(found.summary())
            )
            found = None if parent is None else table.snapshot(parent)

    def has(self, snapshot: int) -> bool:
        """Whether a snapshot is kept."""
        return self._table.snapshot(snapshot) is not None

    def files(self, snapshot: int | None) -> Files:
        """The files of a snapshot."""
        if snapshot is None:
            return Files(None)
        data, deletes = self._listed(snapshot, _location)
        return Files(snapshot, tuple(data), tuple(deletes))

    def entries(self, snapshot: int) -> tuple[list[Any], list[Any]]:
        """The files of a snapshot as Iceberg's own objects: those of rows and those of deletes."""
        # a reader gives one object again and again
        return self._listed(snapshot, lambda file: file.copy())

    def _listed(self, snapshot: int, take: Callable[[Any], T]) -> tuple[list[T], list[T]]:
        io, found = self._table.io(), self._table.snapshot(snapshot)
        data = [file for one in found.dataManifests(io) for file in self._read(one, take)]
        return data, [file for one in found.deleteManifests(io) for file in self._read(one, take)]

    def _read(self, manifest: Any, take: Callable[[Any], T]) -> list[T]:
        """What `take` makes of the files that a manifest has."""
        table, reading = self._table, self._iceberg.ManifestFiles
        is_data = str(manifest.content()) == "DATA"
        read = reading.read if is_data else reading.readDeleteManifest
        reader = read(manifest, table.io(), table.specs())
        try:
            files, found = reader.iterator(), []
            while files.hasNext():
                found.append(take(files.next()))
            return found
        finally:
            reader.close()

    def expire(self, snapshots: Sequence[int]) -> None:
        """Forget snapshots, and remove the files that no other one names."""
        # those that are named alone, and none for its age
        change = self._table.expireSnapshots().expireOlderThan(1)
        for snapshot in snapshots:
            change.expireSnapshotId(snapshot)
        with self._alone():
            change.commit()

    def sweep(self, until: float) -> int:
        """Remove the files that no kept snapshot names and that nobody has written to since `until`, in s; how many
        they were."""
        named = {_below(path) for path in self._named()}
        system = self._system
        removed = 0
        for status in self._all("data") + self._all("metadata"):
            path = str(status.getPath())
            own = _below(path)
            is_other = own in named or (own.startswith("metadata/") and not _LOST.search(own))
            if not is_other and status.getModificationTime() < until * 1000:
                system.delete(status.getPath(), False)
                removed += 1
        return removed

    @property
    def _system(self) -> Any:
        return self._hadoop.fs.Path(self.path).getFileSystem(self._conf)

    def _all(self, folder: str) -> list[Any]:
        """The files in a directory of the table and below it, as `FileStatus` of Hadoop."""
        place, all_files = self._hadoop.fs.Path(f"{self.path}/{folder}"), []
        if self._system.exists(place):
            found = self._system.listFiles(place, True)
            while found.hasNext():
                all_files.append(found.next())
        return all_files

    def _named(self) -> set[str]:
        """The paths of all files that the kept snapshots name, and of the lists of files that they are in."""
        io, found = self._table.io(), set[str]()
        manifests: dict[str, Any] = {}
        for snapshot in self._table.snapshots():
            found.add(str(snapshot.manifestListLocation()))
            manifests |= {str(one.path()): one for one in snapshot.allManifests(io)}
        for manifest in manifests.values():
            found.update(self._read(manifest, _location))
        return found | manifests.keys()

    def written(self, folder: str) -> list[Any]:
        """The Parquet files in a directory, as `FileStatus` of Hadoop."""
        place = self._hadoop.fs.Path(folder)
        found = place.getFileSystem(self._conf).listStatus(place)
        return [status for status in found if str(status.getPath().getName()).endswith(".parquet")]

    def data_file(self, path: str, size: int) -> Any:
        """A file of rows for a commit; None where it has none."""
        metrics = self._metrics(path, self._iceberg.MetricsConfig.forTable(self._table))
        if metrics.recordCount() == 0:
            return None
        made = self._iceberg.DataFiles.builder(self._table.spec()).withPath(path).withFileSizeInBytes(size)
        return made.withFormat("parquet").withMetrics(metrics).build()

    def delete_file(self, path: str, size: int) -> Any:
        """A file of positional deletes for a commit; None where it has none."""
        metrics = self._metrics(path, self._iceberg.MetricsConfig.forPositionDelete())
        if metrics.recordCount() == 0:
            return None
        made = self._iceberg.FileMetadata.deleteFileBuilder(self._table.spec()).ofPositionDeletes().withPath(path)
        return made.withFileSizeInBytes(size).withFormat("parquet").withMetrics(metrics).build()

    def commit(
        self, base: Files, data: Sequence[Any], deletes: Sequence[Any], summary: Mapping[str, str], whole: bool = False
    ) -> int:
        """Add files to the snapshot `base` in one commit, or, where they are `whole`, in place of all of its files; the
        id of the new snapshot.

        Nothing else may have been committed since `base`: Iceberg's ValidationException says so.
        """
        change, everything = self._change(whole), self._iceberg.expressions.Expressions.alwaysTrue()
        for file in data:
            change.addFile(file) if whole else change.addRows(file)
        for file in deletes:
            change.addDeletes(file)
        if base.snapshot is not None:
            change.validateFromSnapshot(base.snapshot)
        if whole:
            change.overwriteByRowFilter(everything).validateNoConflictingData().validateNoConflictingDeletes()
        else:
            paths = self._java.util.ArrayList()
            for path in base.data if deletes else ():
                paths.add(path)
            change.validateDataFilesExist(paths).validateDeletedFiles()
            change.validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
        change.conflictDetectionFilter(everything)
        return self._committed(change, summary)

    def rewrite(
        self, base: int, old: Sequence[Any], data: Sequence[Any], deletes: Sequence[Any], summary: Mapping[str, str]
    ) -> int:
        """Put files in the place of `old` ones of the snapshot `base`; the id of the new snapshot.

        Files and deletes that were added since stay. Iceberg's ValidationException says that an old file is gone, or
        has new deletes.
        """
        change = self._table.newRewrite().validateFromSnapshot(base)
        for file in old:
            change.deleteFile(file)
        for file in (*data, *deletes):
            change.addFile(file)
        return self._committed(change, summary)

    def _committed(self, change: Any, summary: Mapping[str, str]) -> int:
        for name, text in summary.items():
            change.set(name, text)
        with self._alone():
            change.commit()
        found = self.snapshot()
        assert found is not None
        return found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process of the machine commit at a time, where the table is on its disk: a rename replaces a file
        there, and Iceberg looks before it renames."""
        if str(self._system.getUri().getScheme()) != "file":
            yield
            return
        with open(f"{self._hadoop.fs.Path(self.path).toUri().getPath()}/metadata/.tailrace-lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _change(self, whole: bool) -> Any:
        return self._table.newOverwrite() if whole else self._table.newRowDelta()

    def _metrics(self, path: str, config: Any) -> Any:
        mapping = self._iceberg.mapping.NameMappingParser.fromJson(self.mapping())
        return self._iceberg.parquet.ParquetUtil.fileMetrics(self._table.io().newInputFile(path), config, mapping)

    def _map(self, told: Mapping[str, str]) -> Any:
        made = self._java.util.HashMap()
        for name, text in told.items():
            made.put(name, text)
        return made


def _location(file: Any) -> str:
    return str(file.location())


def _below(path: str) -> str:
    """A path below the directory of its table."""
    found = _BELOW.fullmatch(path)
    return path if found is None else found[1]
