"""Access to Iceberg's Java library in Spark's JVM: tables, snapshots and their files, and commits. Driver."""

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
"""Matches Iceberg's errors about a conflicting commit."""

WRITER, MAINTAINED = "tailrace.writer", "tailrace.maintained"
"""Keys in the summary of a snapshot: of a pipeline's write, and of maintenance."""

_BELOW = re.compile(r".*/((?:data|metadata)/.+)")
_LOST = re.compile(r"\.avro$|/[0-9a-f-]{36}\.metadata\.json$")
"""Matches metadata files that a failed commit may leave."""

T = TypeVar("T")

_MAPPING = "schema.name-mapping.default"
_PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
}


def is_there(spark: SparkSession) -> bool:
    """Return True if the JVM has the library."""
    found: Any = spark._jvm.org.apache.iceberg.hadoop  # type: ignore[union-attr]
    # Py4J returns a package for the name of a missing class.
    return type(found.HadoopTables).__name__ == "JavaClass"


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of a snapshot's data files and delete files. `snapshot` is its id, None before the first snapshot."""

    snapshot: int | None
    data: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IcebergSnapshot:
    """A snapshot: its id, its time in ms, its operation and its summary."""

    id: int
    at: int
    operation: str
    summary: Mapping[str, str]


class Library:
    """Iceberg's view of the table at `path`, which stays the same until `refresh`."""

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
        """Load the commits that other processes have made."""
        self._table.refresh()

    def create(self, columns: Sequence[tuple[str, str]], properties: Mapping[str, str]) -> None:
        """Create the table."""
        schema = self._iceberg.SchemaParser.fromJson(schema_of(columns))
        unparted = self._iceberg.PartitionSpec.unpartitioned()
        self._known = self._tables.create(schema, unparted, self._map({**_PROPERTIES, **properties}), self.path)
        self.alter((), {})

    def is_unfinished(self) -> bool:
        """Return True if the directory holds only what an interrupted `create` leaves."""
        if self._tables.exists(self.path):
            return False
        left = self._all("data") + self._all("metadata")
        return all(_LOST.search(_below(str(status.getPath()))) for status in left)

    def alter(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        """Alter columns and set properties, in one commit."""
        mapping, change = self.mapping(), self._table.newTransaction()
        for step in steps:
            # One at a time, because a step may use a name that the previous step has freed.
            update = change.updateSchema()
            self._altered(update, step)
            update.commit()
        settings = change.updateProperties()
        # Iceberg has updated the mapping with the new names of columns, but the names in files stay the same.
        new = mapping_of(str(self._iceberg.SchemaParser.toJson(change.table().schema())), mapping)
        for name, text in {**properties, _MAPPING: new}.items():
            settings.set(name, text)
        settings.commit()
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
                # With an explicit parent, here None, a name may contain dots.
                update.addColumn(None, step.name, kind)

    def mapping(self) -> str:
        """Return the name mapping, which includes dropped columns."""
        return self.properties().get(_MAPPING) or mapping_of(self.schema())

    def properties(self) -> dict[str, str]:
        """Return the table's properties."""
        return dict(self._table.properties())

    def schema(self, snapshot: int | None = None) -> str:
        """Return the JSON of the present schema, or of a snapshot's."""
        table = self._table
        found = table.schema()
        if snapshot is not None:
            found = table.schemas().get(table.snapshot(snapshot).schemaId())
        return str(self._iceberg.SchemaParser.toJson(found))

    def schemas(self) -> list[str]:
        """Return the JSON of all schemas that the table has had."""
        return [str(self._iceberg.SchemaParser.toJson(one)) for one in self._table.schemas().values()]

    def snapshot(self) -> int | None:
        """Return the id of the newest snapshot; None if nothing was written yet."""
        found = self._table.currentSnapshot()
        return None if found is None else int(found.snapshotId())

    def snapshots(self) -> Iterator[IcebergSnapshot]:
        """Yield the snapshots, the newest first."""
        table = self._table
        found = table.currentSnapshot()
        while found is not None:
            parent = found.parentId()
            yield IcebergSnapshot(
                int(found.snapshotId()), int(found.timestampMillis()), str(found.operation()), dict(found.summary())
            )
            found = None if parent is None else table.snapshot(parent)

    def has(self, snapshot: int) -> bool:
        """Return True if the table keeps a snapshot."""
        return self._table.snapshot(snapshot) is not None

    def files(self, snapshot: int | None) -> Files:
        """Return the files of a snapshot."""
        if snapshot is None:
            return Files(None)
        data, deletes = self._listed(snapshot, _location)
        return Files(snapshot, tuple(data), tuple(deletes))

    def entries(self, snapshot: int) -> tuple[list[Any], list[Any]]:
        """Return a snapshot's data files and delete files as Iceberg's objects."""
        # A reader reuses one object.
        return self._listed(snapshot, lambda file: file.copy())

    def _listed(self, snapshot: int, take: Callable[[Any], T]) -> tuple[list[T], list[T]]:
        io, found = self._table.io(), self._table.snapshot(snapshot)
        data = [file for one in found.dataManifests(io) for file in self._read(one, take)]
        return data, [file for one in found.deleteManifests(io) for file in self._read(one, take)]

    def _read(self, manifest: Any, take: Callable[[Any], T]) -> list[T]:
        """Return the results of `take` for the files in a manifest."""
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
        """Expire snapshots, and remove files that no other snapshot names."""
        # The time 1 expires no snapshot by age, only those named below.
        change = self._table.expireSnapshots().expireOlderThan(1)
        for snapshot in snapshots:
            change.expireSnapshotId(snapshot)
        with self._alone():
            change.commit()

    def sweep(self, until: float) -> int:
        """Remove files that no kept snapshot names and that are older than `until`, in s. Return their number."""
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
        """Return the files at any depth below a directory of the table, as Hadoop's `FileStatus`."""
        place, all_files = self._hadoop.fs.Path(f"{self.path}/{folder}"), []
        if self._system.exists(place):
            found = self._system.listFiles(place, True)
            while found.hasNext():
                all_files.append(found.next())
        return all_files

    def _named(self) -> set[str]:
        """Return the paths of all files that kept snapshots name, and of their manifests and manifest lists."""
        io, found = self._table.io(), set[str]()
        manifests: dict[str, Any] = {}
        for snapshot in self._table.snapshots():
            found.add(str(snapshot.manifestListLocation()))
            manifests |= {str(one.path()): one for one in snapshot.allManifests(io)}
        for manifest in manifests.values():
            found.update(self._read(manifest, _location))
        return found | manifests.keys()

    def written(self, folder: str) -> list[Any]:
        """Return the Parquet files in a directory, as Hadoop's `FileStatus`."""
        place = self._hadoop.fs.Path(folder)
        found = place.getFileSystem(self._conf).listStatus(place)
        return [status for status in found if str(status.getPath().getName()).endswith(".parquet")]

    def data_file(self, path: str, size: int) -> Any:
        """Return a data file for a commit; None if it has no rows."""
        metrics = self._metrics(path, self._iceberg.MetricsConfig.forTable(self._table))
        if metrics.recordCount() == 0:
            return None
        made = self._iceberg.DataFiles.builder(self._table.spec()).withPath(path).withFileSizeInBytes(size)
        return made.withFormat("parquet").withMetrics(metrics).build()

    def delete_file(self, path: str, size: int) -> Any:
        """Return a file of positional deletes for a commit; None if it has no rows."""
        metrics = self._metrics(path, self._iceberg.MetricsConfig.forPositionDelete())
        if metrics.recordCount() == 0:
            return None
        made = self._iceberg.FileMetadata.deleteFileBuilder(self._table.spec()).ofPositionDeletes().withPath(path)
        return made.withFileSizeInBytes(size).withFormat("parquet").withMetrics(metrics).build()

    def commit(
        self, base: Files, data: Sequence[Any], deletes: Sequence[Any], summary: Mapping[str, str], whole: bool = False
    ) -> int:
        """Add files to the snapshot `base`, or replace all its files if `whole`. Return the id of the new snapshot.

        Raises Iceberg's ValidationException if a conflicting commit was made since `base`.
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
        """Replace `old` files of the snapshot `base`. Return the id of the new snapshot.

        Files and deletes that were added since are kept. Raises Iceberg's ValidationException if an old file is gone or
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
        """Hold a lock during a commit if the table is on a local disk.

        Iceberg checks that the new metadata file does not exist, then renames; a local rename would replace a file that
        another process has created in between.
        """
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

    def _map(self, properties: Mapping[str, str]) -> Any:
        made = self._java.util.HashMap()
        for name, text in properties.items():
            made.put(name, text)
        return made


def _location(file: Any) -> str:
    return str(file.location())


def _below(path: str) -> str:
    """Return a path relative to the directory of its table."""
    found = _BELOW.fullmatch(path)
    return path if found is None else found[1]
