"""A table of Iceberg under one pipeline: rows are added as files of Parquet and removed by their places. Driver."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.sinks.tables.formats.base import Columns, Commit, Once, Stored
from tailrace.sinks.tables.formats.iceberg import types
from tailrace.sinks.tables.formats.iceberg.library import Files, Library
from tailrace.sinks.tables.formats.iceberg.merging import FILE, ROW, Merging
from tailrace.sinks.tables.formats.merge import Merge
from tailrace.sinks.tables.statements import literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH, _WRITER, _TOLD = "tailrace.batch", "tailrace.writer", "tailrace.metadata"
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
        # INT96, as Spark writes without, is none of Iceberg's
        session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        session.conf.set("spark.sql.parquet.fieldId.write.enabled", "true")
        self._library = Library(session, path)
        self._files = Files(None)

    def name(self) -> str:
        self.rows().createOrReplaceTempView(_VIEW)
        return _VIEW

    def rows(self, version: int | None = None) -> DataFrame:
        if version is None:
            return self._live(self._now(), self.columns())
        if not version:
            return self._live(Files(None), self.columns())
        return self._live(self._library.files(version), types.columns_of(self._library.schema(version)))

    def columns(self) -> dict[str, str]:
        return self._library.columns()

    def held(self, kind: str) -> str:
        return types.held(kind)

    def properties(self) -> dict[str, str]:
        return self._library.properties()

    def version(self) -> int:
        return self._library.snapshot() or 0

    def commits(self, most: int) -> list[Commit]:
        told = self._library.summaries(most)
        return [Commit(summary.get(_TOLD), operation != "replace") for operation, summary in told]

    def create(self, columns: Columns, properties: Mapping[str, str]) -> None:
        self._library.create(columns, properties)

    def add_columns(self, columns: Columns) -> None:
        self._library.add_columns(columns)

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
        for _, summary in self._library.summaries(_COMMITS):
            if summary.get(_WRITER) == once.application:
                return int(summary[_BATCH]) >= once.batch
        return False

    def _commit(self, base: Files, data: Sequence[Any], deletes: Sequence[Any], once: Once, whole: bool = False) -> None:
        summary = {_WRITER: once.application, _BATCH: str(once.batch), _TOLD: once.metadata}
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
        ids, columns = types.ids_of(schema), []
        for name, kind in types.columns_of(schema).items():
            numbered = {"metadata": {"parquet.field.id": ids[name]}} if name in ids else {}
            columns.append(f.col(quoted(name)).cast(kind).alias(name, **numbered))
        return self._write(rows.select(*columns), self._library.data_file)

    def _write_places(self, places: DataFrame) -> list[Any]:
        """The files with the places of rows that are gone: `file_path` and `pos`."""
        from pyspark.sql import functions as f

        numbered = [f.col(name).alias(name, metadata={"parquet.field.id": number}) for name, number in _PLACES.items()]
        return self._write(places.select(*numbered).sortWithinPartitions("file_path", "pos"), self._library.delete_file)

    def _write(self, rows: DataFrame, described: Any) -> list[Any]:
        folder = f"{self.path}/data/{uuid.uuid4()}"
        writer = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer.option("compression", "zstd").parquet(folder)
        found = [
            described(f"{folder}/{status.getPath().getName()}", status.getLen())
            for status in self._library.written(folder)
        ]
        return [file for file in found if file is not None]

    def _live(self, files: Files, columns: Mapping[str, str]) -> DataFrame:
        """The rows of a snapshot."""
        raw, deleted = self._raw(files, columns), self._deleted(files)
        if deleted is not None:
            raw = raw.join(deleted, (raw[FILE] == deleted["file_path"]) & (raw[ROW] == deleted["pos"]), "left_anti")
        return raw.drop(FILE, ROW)

    def _raw(self, files: Files, columns: Mapping[str, str]) -> DataFrame:
        """The columns of all rows that the files of a snapshot have, deleted ones too, with the place of each."""
        declared = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        if not files.data:
            return self.session.createDataFrame([], f"{declared}, {FILE} string, {ROW} bigint")
        below = f"{self.path}/data/"
        for path in files.data:
            if not path.startswith(below):
                raise SinkError(
                    f"The table {self.path} has files elsewhere: somebody else has written to it.",
                    "Let this pipeline alone write there.",
                )
        found = self.session.read.schema(declared).parquet(*files.data)
        # Spark shows the path as a URI, in which the directory may be written otherwise
        file = f"concat({literal(below)}, substring_index(_metadata.file_path, '/data/', -1))"
        return found.selectExpr(*map(quoted, columns), f"{file} {FILE}", f"_metadata.row_index {ROW}")

    def _deleted(self, files: Files) -> DataFrame | None:
        """The places of rows that are gone; None where there are none."""
        return self.session.read.schema(_DELETES).parquet(*files.deletes) if files.deletes else None


_COMMITS = 20
