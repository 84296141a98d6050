"""A table of Iceberg for one pipeline: rows are added as Parquet files and removed by positional deletes. Driver."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from tailrace.config.jar import Jar
from tailrace.errors import SinkError
from tailrace.sinks.tables.evolution import ColumnStep
from tailrace.sinks.tables.formats.base import Columns, StoredTable, TableCommit, TableFormat, WriteId
from tailrace.sinks.tables.formats.iceberg import schemas
from tailrace.sinks.tables.formats.iceberg.library import CONFLICT, MAINTAINED, WRITER, Files, Library, is_there
from tailrace.sinks.tables.formats.iceberg.merging import FILE, ROW, IcebergMerge
from tailrace.sinks.tables.statements import Merge, literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


# --- maintenance ------------------------------------------------------------------------------------------------------

_TARGET = 128 << 20
"""Bytes of a file of the wanted size; one commit of a compaction rewrites about this much."""
_SMALL = _TARGET * 3 // 4
_WORN = 0.05
"""A file is rewritten if more than this share of its rows is deleted."""
_MARK = {MAINTAINED: "true"}


class MaintainedTable(Protocol):
    """The interface that maintenance needs of a table; see `IcebergTable`."""

    session: SparkSession
    library: Library

    def now(self) -> Files: ...

    def live(self, files: Files, schema: str) -> DataFrame: ...

    def deleted(self, files: Files) -> DataFrame | None: ...

    def write_rows(self, rows: DataFrame) -> list[Any]: ...

    def write_places(self, places: DataFrame) -> list[Any]: ...


def compacted(table: MaintainedTable) -> str:
    """Compact small files, rewrite files with many deleted rows, and combine all delete files. Return a report.

    Raises Iceberg's ValidationException if the pipeline has written to the same files meanwhile.
    """
    base = table.now()
    removed = added = 0
    for group in _groups(table, base):
        files = Files(base.snapshot, tuple(str(file.location()) for file in group), base.deletes)
        size = sum(int(file.fileSizeInBytes()) for file in group)
        rows = table.live(files, table.library.schema()).coalesce(max(1, round(size / _TARGET)))
        data = table.write_rows(rows)
        assert base.snapshot is not None
        table.library.rewrite(base.snapshot, group, data, (), _MARK)
        removed, added = removed + len(group), added + len(data)
    deletes = _one_of_deletes(table)
    return f"{removed} files compacted into {added}, {deletes[0]} of deletes into {deletes[1]}"


def _groups(table: MaintainedTable, base: Files) -> Iterator[list[Any]]:
    """Yield the data files to rewrite, in groups for one commit each."""
    if base.snapshot is None:
        return
    deleted = table.deleted(base)
    gone = {} if deleted is None else {row[0]: row[1] for row in deleted.groupBy("file_path").count().collect()}
    found, size = [], 0
    for file in table.library.entries(base.snapshot)[0]:
        worn = gone.get(str(file.location()), 0) > _WORN * int(file.recordCount())
        if not worn and int(file.fileSizeInBytes()) >= _SMALL:
            continue
        found.append(file)
        size += int(file.fileSizeInBytes())
        if size >= _TARGET:
            yield found
            found, size = [], 0
    if len(found) > 1 or any(str(file.location()) in gone for file in found):
        yield found


def _one_of_deletes(table: MaintainedTable) -> tuple[int, int]:
    """Combine all delete files into one, without deletes in files that no longer exist.

    Return the numbers of delete files before and after, (0, 0) if nothing was done.
    """
    base = table.now()
    places = table.deleted(base)
    if base.snapshot is None or places is None:
        return 0, 0
    live = table.session.createDataFrame([(path,) for path in base.data], "file_path string")
    kept = places.join(live, "file_path", "left_semi")
    if len(base.deletes) == 1 and kept.count() == places.count():
        return 0, 0
    new = table.write_places(kept.select("file_path", "pos").coalesce(1))
    _, old = table.library.entries(base.snapshot)
    table.library.rewrite(base.snapshot, old, (), new, _MARK)
    return len(old), len(new)


def cleaned(table: MaintainedTable, version: int | None, hours: int) -> str:
    """Expire snapshots older than `hours`, and remove files that no kept snapshot names. Return a report.

    Snapshots from `version` on are kept, and from the pipeline's newest one on, which records its batch.
    """
    table.library.refresh()
    chain = list(table.library.snapshots())
    until = time.time() - hours * 3600
    # The snapshot that was the newest at that time is needed, too.
    kept = max(
        len(list(takewhile(lambda one: one.at > until * 1000, chain))),
        len(list(takewhile(lambda one: WRITER not in one.summary, chain))),
        len(list(takewhile(lambda one: one.id != version, chain))) if version is not None else 0,
    )
    old = [one.id for one in chain[kept + 1 :]]
    if old:
        table.library.expire(old)
    lost = table.library.sweep(until)
    return f"{len(old)} snapshots expired, {lost} unreferenced files removed"


# --- the table --------------------------------------------------------------------------------------------------------


_PIPELINE, _BATCH, _METADATA = "tailrace.pipeline", "tailrace.batch", "tailrace.metadata"
"""Further keys in the summary of a snapshot of a write, besides `WRITER`."""

_TRIES = 20

_OWN_FILE = re.compile(r"[0-9a-f-]{36}/[^/]+")
"""Matches a data file of this sink below the directory `data`; other writers have no directory for each write."""

_KEPT, _PAST = frozenset({"tailrace.key"}), ".before"
"""Properties whose earlier values are kept, and the suffix of the property that keeps them; Iceberg forgets them."""

_VIEW = "tailrace_stored"
_DELETES = "file_path string, pos bigint"
_PLACES = {"file_path": 2147483546, "pos": 2147483545}
"""Iceberg's ids for the columns of positional deletes."""


class IcebergTable(StoredTable):
    """A table in a directory, as of Iceberg's `HadoopTables`: without a catalog, with metadata renamed into place."""

    title = "Iceberg"
    marker = "metadata"

    def __init__(self, session: SparkSession, path: str) -> None:
        super().__init__(session, path)
        self.library = Library(session, path)
        """Iceberg's view of the table."""
        self._files = Files(None)

    def is_there(self) -> bool:
        return super().is_there() and not self.library.is_unfinished()

    def held(self, kind: pa.DataType) -> pa.DataType:
        return schemas.held(kind)

    def name(self) -> str:
        self.rows().createOrReplaceTempView(_VIEW)
        return _VIEW

    def rows(self, version: int | None = None) -> DataFrame:
        if version is None:
            return self.live(self.now(), self.library.schema())
        # Version 0 is before the first snapshot.
        at = version or None
        if at is not None and not self.library.has(at):
            raise SinkError(
                f"The table {self.path} no longer keeps its version {version}.",
                "Name a newer moment; tailrace maintain --vacuum keeps the versions of all moments that it keeps.",
            )
        return self.live(self.library.files(at), self.library.schema(at))

    def columns(self) -> dict[str, DataType]:
        return schemas.columns_of(self.library.schema())

    def properties(self) -> dict[str, str]:
        return self.library.properties()

    def commits(self, most: int) -> list[TableCommit]:
        self.library.refresh()
        found = islice(self.library.snapshots(), most)
        return [TableCommit(one.id, one.summary.get(_METADATA), one.operation != "replace") for one in found]

    def past(self, name: str) -> tuple[frozenset[str], bool | None]:
        properties = self.properties()
        values = json.loads(properties.get(f"{name}{_PAST}", "[]")) + ([properties[name]] if name in properties else [])
        called: dict[int, set[str]] = {}
        for schema in self.library.schemas():
            for field in json.loads(schema)["fields"]:
                called.setdefault(field["id"], set()).add(field["name"])
        return frozenset(values), any(len(names) > 1 for names in called.values())

    def create(self, columns: Columns, properties: Mapping[str, str]) -> None:
        self.library.create(columns, properties)

    def announce(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        self._demand_promotions(steps)
        if not properties.items() <= self.properties().items():
            self.library.alter((), properties)

    def _demand_promotions(self, steps: Sequence[ColumnStep]) -> None:
        """Raise SinkError if a step widens a column in a way that Iceberg does not support."""
        kinds = {name: kind.simpleString() for name, kind in self.columns().items()}
        for step in steps:
            if step.what == "rename":
                kinds[step.to] = kinds.pop(step.name)
            elif step.what == "widen" and not schemas.widens(kinds[step.name], step.to):
                raise SinkError(
                    f"The table {self.path} cannot follow its source: the type of its column {step.name} is now "
                    f"{step.to}, and Iceberg cannot widen {kinds[step.name]} to it.",
                    "Begin anew with debezium.sink.tables.format = delta, another path and another checkpoint.",
                )

    def alter(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        known = self.properties()
        other = [name for name in _KEPT & properties.keys() if known.get(name, properties[name]) != properties[name]]
        past = {f"{name}{_PAST}": json.dumps(sorted(self.past(name)[0])) for name in other}
        self.library.alter(steps, {**properties, **past})

    def append(self, rows: DataFrame, once: WriteId) -> None:
        self._bring(once, lambda base: self._commit(base, self.write_rows(rows), (), once))

    def merge(self, merge: Merge, once: WriteId) -> None:
        self._bring(once, lambda base: self._merge(merge, base, once))

    def mend(self, merge: Merge) -> None:
        self._merge(merge, self.now(), None)

    def _merge(self, merge: Merge, base: Files, once: WriteId | None) -> None:
        merging = IcebergMerge(self.session, merge, self.columns())
        try:
            merging.begin(self._raw(base, self.library.schema(), list(merging.reads)), self.deleted(base))
            data = self.write_rows(merging.rows())
            deletes = () if merging.replaces else self.write_places(merging.places())
        finally:
            merging.end()
        self._commit(base, data, deletes, once, merging.replaces)

    def _bring(self, once: WriteId, write: Callable[[Files], None]) -> None:
        """Write to the newest snapshot, unless the batch is already written. Retry after a conflict with maintenance
        only."""
        for left in reversed(range(_TRIES)):
            base = self.now()
            if self._is_done(once):
                return
            try:
                write(base)
                return
            except Exception as error:
                if not left or not CONFLICT.search(str(error)) or not self._was_maintained(base):
                    raise

    def _was_maintained(self, base: Files) -> bool:
        """Return True if all commits since `base`, and at least one, are maintenance."""
        self.library.refresh()
        since = takewhile(lambda one: one.id != base.snapshot, self.library.snapshots())
        marks = [MAINTAINED in one.summary for one in since]
        return bool(marks) and all(marks)

    def remove(self, where: str) -> int:
        base = self.now()
        gone = self._placed(base, self.library.schema()).where(where)
        deletes = self.write_places(gone.selectExpr(f"{FILE} as file_path", f"{ROW} as pos"))
        if deletes:
            self._commit(base, (), deletes, None)
        return sum(int(file.recordCount()) for file in deletes)

    def compact(self) -> str:
        return compacted(self)

    def clean(self, version: int | None, hours: int) -> str:
        return cleaned(self, version, hours)

    def now(self) -> Files:
        """Return the files of the newest snapshot."""
        self.library.refresh()
        snapshot = self.library.snapshot()
        if snapshot != self._files.snapshot:
            self._files = self.library.files(snapshot)
        return self._files

    def _is_done(self, once: WriteId) -> bool:
        """Return True if the table has the batch or a later one."""
        for one in self.library.snapshots():
            summary = one.summary
            if summary.get(WRITER) in (once.application, replace(once, part=None).application):
                return int(summary[_BATCH]) >= once.batch
            if summary.get(_PIPELINE) == once.pipeline and int(summary[_BATCH]) < once.batch:
                return False
        return False

    def _commit(
        self, base: Files, data: Sequence[Any], deletes: Sequence[Any], once: WriteId | None, whole: bool = False
    ) -> None:
        summary = {MAINTAINED: "true"}
        if once is not None:
            own = {WRITER: once.application, _BATCH: str(once.batch), _METADATA: once.metadata}
            summary = {_PIPELINE: once.pipeline, **own}
        found = self.library.commit(base, data, deletes, summary, whole)
        parent = next(islice(self.library.snapshots(), 1, None), None)
        if (None if parent is None else parent.id) != base.snapshot:
            # Maintenance has committed meanwhile, so the list of files must be read.
            return
        before = Files(base.snapshot) if whole else base
        self._files = Files(
            found,
            (*before.data, *(str(file.location()) for file in data)),
            (*before.deletes, *(str(file.location()) for file in deletes)),
        )

    def write_rows(self, rows: DataFrame) -> list[Any]:
        """Write rows, whose columns may be in any order, and return their data files."""
        from pyspark.sql import functions as f

        schema = self.library.schema()
        ids, stored, columns = schemas.ids_of(schema), self._stored(schema), []
        for name, kind in schemas.columns_of(schema).items():
            numbered = {"metadata": {"parquet.field.id": ids[name]}} if name in ids else {}
            columns.append(f.col(quoted(name)).cast(kind).alias(stored[name], **numbered))
        return self._write(rows.select(*columns), self.library.data_file)

    def write_places(self, places: DataFrame) -> list[Any]:
        """Write the places of deleted rows, `file_path` and `pos`, and return their delete files."""
        from pyspark.sql import functions as f

        numbered = [f.col(name).alias(name, metadata={"parquet.field.id": number}) for name, number in _PLACES.items()]
        return self._write(places.select(*numbered).sortWithinPartitions("file_path", "pos"), self.library.delete_file)

    def _write(self, rows: DataFrame, described: Callable[[str, int], Any]) -> list[Any]:
        # Spark's default INT96 is not a type of Iceberg.
        self.session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        self.session.conf.set("spark.sql.parquet.fieldId.write.enabled", "true")
        folder = f"{self.path}/data/{uuid.uuid4()}"
        writer = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer.option("compression", "zstd").parquet(folder)
        found = [
            described(f"{folder}/{status.getPath().getName()}", status.getLen())
            for status in self.library.written(folder)
        ]
        return [file for file in found if file is not None]

    def _stored(self, schema: str) -> dict[str, str]:
        """Return the names in files of a schema's columns."""
        return schemas.stored_names(schema, self.library.mapping())

    def live(self, files: Files, schema: str) -> DataFrame:
        """Return the rows of a snapshot with the columns of a schema."""
        return self._placed(files, schema).drop(FILE, ROW)

    def _placed(self, files: Files, schema: str) -> DataFrame:
        """Return the rows of a snapshot with their places."""
        raw, deleted = self._raw(files, schema), self.deleted(files)
        if deleted is None:
            return raw
        return raw.join(deleted, (raw[FILE] == deleted["file_path"]) & (raw[ROW] == deleted["pos"]), "left_anti")

    def _raw(self, files: Files, schema: str, names: Sequence[str] | None = None) -> DataFrame:
        """Return all rows in a snapshot's files with their places, including deleted rows.

        They have the schema's columns `names`, or all columns if it is None.
        """
        from pyspark.sql.types import LongType, StringType, StructField, StructType

        columns = schemas.columns_of(schema)
        if names is not None:
            columns = {name: columns[name] for name in names}
        if not files.data:
            fields = [StructField(name, kind) for name, kind in columns.items()]
            places = [StructField(FILE, StringType()), StructField(ROW, LongType())]
            return self.session.createDataFrame([], StructType([*fields, *places]))
        stored = self._stored(schema)
        below = f"{self.path}/data/"
        for path in files.data:
            if not path.startswith(below) or not _OWN_FILE.fullmatch(path, len(below)):
                raise SinkError(
                    f"The table {self.path} has files that tailrace has not written.",
                    "Let only this pipeline write there, and maintain the table with tailrace maintain.",
                )
        fields = [StructField(stored[name], kind) for name, kind in columns.items()]
        found = self.session.read.schema(StructType(fields)).parquet(*files.data)
        # Spark gives the path as a URI, in which the directory may be spelled differently.
        file = f"concat({literal(below)}, substring_index(_metadata.file_path, '/data/', -1))"
        named = [f"{quoted(stored[name])} as {quoted(name)}" for name in columns]
        return found.selectExpr(*named, f"{file} {FILE}", f"_metadata.row_index {ROW}")

    def deleted(self, files: Files) -> DataFrame | None:
        """Return the places of deleted rows; None if there are none."""
        return self.session.read.schema(_DELETES).parquet(*files.deletes) if files.deletes else None


# --- the format -------------------------------------------------------------------------------------------------------


_VERSION = "1.12.0"
_SUMS = {
    "iceberg-api": "d476a6989edfe3882a47ce0eaa3e53df4d589ef5e7bd0a16ff113ae570bca8b6",
    "iceberg-bundled-guava": "8d27e319e3bc28f7f86e7fbd59f6758bfaa1f78d72d9f76aa93ad1f7cbd3ba34",
    "iceberg-common": "18a43330e3c5eb712a9bf88e8f70441971851400efb4646f0b6512ac40c5f357",
    "iceberg-core": "d3bbb331b7a907e134958d21ecccd91a736049e00768e07579ff60855bf28352",
    "iceberg-parquet": "fba0355f0d54bd68e21170e0e5f05632845d42ba346945017d2156e66297b85f",
}
_CAFFEINE = "7dd15f9df1be238ffaa367ce6f556737a88031de4294dad18eef57c474ddf1d3"


class Iceberg(TableFormat):
    """Iceberg through its own Java library, because Iceberg has no module for this version of Spark."""

    name = "iceberg"
    title = IcebergTable.title
    marker = IcebergTable.marker
    jars = (
        *(Jar("org.apache.iceberg", module, _VERSION, digest) for module, digest in _SUMS.items()),
        Jar("com.github.ben-manes.caffeine", "caffeine", "3.1.8", _CAFFEINE),
    )
    settings: ClassVar[Mapping[str, str]] = {}
    conflict = CONFLICT

    def demand(self, spark: SparkSession) -> None:
        if not is_there(spark):
            raise SinkError(
                "The Spark session is without Iceberg's library.",
                "Create it with tailrace.sinks.tables.formats.iceberg.table.Iceberg.jars.",
            )

    def table(self, session: SparkSession, path: str) -> StoredTable:
        return IcebergTable(session, path)
