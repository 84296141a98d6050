"""Iceberg's own Java library in Spark's JVM: tables, snapshots and their files, and commits. Driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.sinks.tables.formats.iceberg.schemas import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        """Make the table. Files without the numbers of columns are read by their names."""
        schema = self._iceberg.SchemaParser.fromJson(schema_of(columns))
        unparted = self._iceberg.PartitionSpec.unpartitioned()
        self._known = self._tables.create(schema, unparted, self._map({**_PROPERTIES, **properties}), self.path)
        mapping = self._iceberg.mapping.MappingUtil.create(self._known.schema())
        text = self._iceberg.mapping.NameMappingParser.toJson(mapping)
        self._known.updateProperties().set(_MAPPING, text).commit()

    def add(self, columns: Sequence[tuple[str, str]], properties: Mapping[str, str]) -> None:
        """Add columns and set properties, in one commit."""
        change = self._table.newTransaction()
        update = change.updateSchema()
        found = self._iceberg.SchemaParser.fromJson(schema_of(columns)).columns()
        for (name, _), field in zip(columns, found, strict=True):
            # with the parent that it has not, a name may have dots
            update.addColumn(None, name, field.type())
        update.commit()
        told = change.updateProperties()
        for name, text in properties.items():
            told.set(name, text)
        told.commit()
        change.commitTransaction()

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

    def snapshot(self) -> int | None:
        """The id of the newest snapshot; None where nothing was written yet."""
        found = self._table.currentSnapshot()
        return None if found is None else int(found.snapshotId())

    def snapshots(self) -> Iterator[tuple[int, str, dict[str, str]]]:
        """Id, operation and summary of the snapshots, the newest first."""
        table = self._table
        found = table.currentSnapshot()
        while found is not None:
            yield int(found.snapshotId()), str(found.operation()), dict(found.summary())
            parent = found.parentId()
            found = None if parent is None else table.snapshot(parent)

    def files(self, snapshot: int | None) -> Files:
        """The files of a snapshot."""
        if snapshot is None:
            return Files(None)
        table, found = self._table, self._table.snapshot(snapshot)
        io, read = table.io(), self._iceberg.ManifestFiles
        data = [read.read(manifest, io, table.specs()) for manifest in found.dataManifests(io)]
        deletes = [read.readDeleteManifest(manifest, io, table.specs()) for manifest in found.deleteManifests(io)]
        return Files(snapshot, _locations(data), _locations(deletes))

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
        for name, text in summary.items():
            change.set(name, text)
        change.commit()
        found = self.snapshot()
        assert found is not None
        return found

    def _change(self, whole: bool) -> Any:
        return self._table.newOverwrite() if whole else self._table.newRowDelta()

    def _metrics(self, path: str, config: Any) -> Any:
        mapping = self._iceberg.mapping.NameMappingParser.fromJson(self.properties()[_MAPPING])
        return self._iceberg.parquet.ParquetUtil.fileMetrics(self._table.io().newInputFile(path), config, mapping)

    def _map(self, told: Mapping[str, str]) -> Any:
        made = self._java.util.HashMap()
        for name, text in told.items():
            made.put(name, text)
        return made


def _locations(readers: Sequence[Any]) -> tuple[str, ...]:
    found = []
    for reader in readers:
        files = reader.iterator()
        while files.hasNext():
            found.append(str(files.next().location()))
        reader.close()
    return tuple(found)
