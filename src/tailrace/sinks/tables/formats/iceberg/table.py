"""A table of Iceberg under one pipeline: rows are added as files of Parquet and removed by their places. Driver."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.errors import SinkError
from tailrace.sinks.tables.evolution import Step
from tailrace.sinks.tables.formats.base import Columns, Commit, Once, Stored
from tailrace.sinks.tables.formats.iceberg import schemas
from tailrace.sinks.tables.formats.iceberg.library import Files, Library
from tailrace.sinks.tables.formats.iceberg.merging import FILE, ROW, Merging
from tailrace.sinks.tables.statements import Merge, literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_PIPELINE, _WRITER, _BATCH, _TOLD = "tailrace.pipeline", "tailrace.writer", "tailrace.batch", "tailrace.metadata"
"""What the summary of a snapshot has of its write."""

_VIEW = "tailrace_stored"
_DELETES = "file_path string, pos bigint"
_PLACES = {"file_path": 2147483546, "pos": 2147483545}
"""The numbers that Iceberg gives the columns of positional deletes."""


class IcebergTable(Stored):
    """A table in a directory, as Iceberg's `HadoopTables` keeps them: no catalog, metadata renamed into place."""

    title = "Iceberg"
    marker = "metadata"

    def __init__(self, session: SparkSession, path: str) -> None:
        super().__init__(session, path)
        self._library = Library(session, path)
        self._files = Files(None)

    def held(self, kind: pa.DataType) -> pa.DataType:
        return schemas.held(kind)

    def name(self) -> str:
        self.rows().createOrReplaceTempView(_VIEW)
        return _VIEW

    def rows(self, version: int | None = None) -> DataFrame:
        if version is None:
            return self._live(self._now(), self.columns())
        if not version:
            # before the first snapshot
            return self._live(Files(None), self.columns())
        return self._live(self._library.files(version), schemas.columns_of(self._library.schema(version)))

    def columns(self) -> dict[str, DataType]:
        return schemas.columns_of(self._library.schema())

    def properties(self) -> dict[str, str]:
        return self._library.properties()

    def commits(self, most: int) -> list[Commit]:
        self._library.refresh()
        found = islice(self._library.snapshots(), most)
        return [Commit(version, told.get(_TOLD), operation != "replace") for version, operation, told in found]

    def create(self, columns: Columns, properties: Mapping[str, str]) -> None:
        self._library.create(columns, properties)

    def announce(self, steps: Sequence[Step], properties: Mapping[str, str]) -> None:
        for step in steps:
            if step.what != "add":
                ignored = "" if step.what == "widen" else f" Or set debezium.sink.tables.schema.{step.what} = ignore."
                raise SinkError(
                    f"The table {self.path} cannot follow its source: a table of Iceberg gets new columns here, and "
                    f"the column {step.name} needs a {step.what}.",
                    "Begin anew with debezium.sink.tables.format = delta, another path and another checkpoint."
                    f"{ignored}",
                )
        if not properties.items() <= self.properties().items():
            self._library.add((), properties)

    def alter(self, steps: Sequence[Step], properties: Mapping[str, str]) -> None:
        self._library.add([(step.name, step.to) for step in steps], properties)

    def append(self, rows: DataFrame, once: Once) -> None:
        base = self._now()
        if not self._is_done(once):
            self._commit(base, self._write_rows(rows), (), once)

    def merge(self, merge: Merge, once: Once) -> None:
        base = self._now()
        if self._is_done(once):
            return
        merging = Merging(self.session, merge, self.columns())
        try:
            merging.begin(self._raw(base, merging.reads), self._deleted(base))
            data = self._write_rows(merging.rows())
            deletes = () if merging.replaces else self._write_places(merging.places())
        finally:
            merging.end()
        self._commit(base, data, deletes, once, merging.replaces)

    def _now(self) -> Files:
        """The files of the newest snapshot."""
        self._library.refresh()
        snapshot = self._library.snapshot()
        if snapshot != self._files.snapshot:
            self._files = self._library.files(snapshot)
        return self._files

    def _is_done(self, once: Once) -> bool:
        """Whether the table has the batch, or one behind it."""
        for _, _, told in self._library.snapshots():
            if told.get(_WRITER) == once.application:
                return int(told[_BATCH]) >= once.batch
            if told.get(_PIPELINE) == once.pipeline and int(told[_BATCH]) < once.batch:
                return False
        return False

    def _commit(
        self, base: Files, data: Sequence[Any], deletes: Sequence[Any], once: Once, whole: bool = False
    ) -> None:
        summary = {_PIPELINE: once.pipeline, _WRITER: once.application, _BATCH: str(once.batch), _TOLD: once.metadata}
        found = self._library.commit(base, data, deletes, summary, whole)
        before = Files(base.snapshot) if whole else base
        self._files = Files(
            found,
            (*before.data, *(str(file.location()) for file in data)),
            (*before.deletes, *(str(file.location()) for file in deletes)),
        )

    def _write_rows(self, rows: DataFrame) -> list[Any]:
        """The files with rows, whose columns may stand in any order."""
        from pyspark.sql import functions as f

        schema = self._library.schema()
        ids, columns = schemas.ids_of(schema), []
        for name, kind in schemas.columns_of(schema).items():
            numbered = {"metadata": {"parquet.field.id": ids[name]}} if name in ids else {}
            columns.append(f.col(quoted(name)).cast(kind).alias(name, **numbered))
        return self._write(rows.select(*columns), self._library.data_file)

    def _write_places(self, places: DataFrame) -> list[Any]:
        """The files with the places of rows that are gone: `file_path` and `pos`."""
        from pyspark.sql import functions as f

        numbered = [f.col(name).alias(name, metadata={"parquet.field.id": number}) for name, number in _PLACES.items()]
        return self._write(places.select(*numbered).sortWithinPartitions("file_path", "pos"), self._library.delete_file)

    def _write(self, rows: DataFrame, described: Callable[[str, int], Any]) -> list[Any]:
        # INT96, as Spark writes without, is none of Iceberg's
        self.session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        self.session.conf.set("spark.sql.parquet.fieldId.write.enabled", "true")
        folder = f"{self.path}/data/{uuid.uuid4()}"
        writer = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer.option("compression", "zstd").parquet(folder)
        found = [
            described(f"{folder}/{status.getPath().getName()}", status.getLen())
            for status in self._library.written(folder)
        ]
        return [file for file in found if file is not None]

    def _live(self, files: Files, columns: Mapping[str, DataType]) -> DataFrame:
        """The rows of a snapshot."""
        raw, deleted = self._raw(files, columns), self._deleted(files)
        if deleted is not None:
            raw = raw.join(deleted, (raw[FILE] == deleted["file_path"]) & (raw[ROW] == deleted["pos"]), "left_anti")
        return raw.drop(FILE, ROW)

    def _raw(self, files: Files, columns: Mapping[str, DataType]) -> DataFrame:
        """The columns of all rows that the files of a snapshot have, deleted ones too, with the place of each."""
        from pyspark.sql.types import LongType, StringType, StructField, StructType

        fields = [StructField(name, kind) for name, kind in columns.items()]
        if not files.data:
            places = [StructField(FILE, StringType()), StructField(ROW, LongType())]
            return self.session.createDataFrame([], StructType([*fields, *places]))
        below = f"{self.path}/data/"
        for path in files.data:
            if not path.startswith(below):
                raise SinkError(
                    f"The table {self.path} has files elsewhere: somebody else has written to it.",
                    "Let this pipeline alone write there.",
                )
        found = self.session.read.schema(StructType(fields)).parquet(*files.data)
        # Spark shows the path as a URI, in which the directory may be written otherwise
        file = f"concat({literal(below)}, substring_index(_metadata.file_path, '/data/', -1))"
        return found.selectExpr(*map(quoted, columns), f"{file} {FILE}", f"_metadata.row_index {ROW}")

    def _deleted(self, files: Files) -> DataFrame | None:
        """The places of rows that are gone; None where there are none."""
        return self.session.read.schema(_DELETES).parquet(*files.deletes) if files.deletes else None
