"""Maintenance of a table of Iceberg: small files and worn ones written anew, old snapshots and lost files removed.

Each commit is small, since one that the table's pipeline overtakes is lost. Driver, by Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.sinks.tables.formats.iceberg.library import MAINTAINED, WRITER, Files, Library

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TARGET = 128 << 20
"""Bytes of a file that is neither small nor large; what one commit writes anew is hardly more."""
_SMALL = _TARGET * 3 // 4
_WORN = 0.05
"""The share of a file's rows that are gone, from which on it is written anew."""
_MARK = {MAINTAINED: "true"}


class Table(Protocol):
    """What maintenance needs of a table; see `IcebergTable`."""

    session: SparkSession
    library: Library

    def now(self) -> Files: ...

    def live(self, files: Files, schema: str) -> DataFrame: ...

    def deleted(self, files: Files) -> DataFrame | None: ...

    def write_rows(self, rows: DataFrame) -> list[Any]: ...

    def write_places(self, places: DataFrame) -> list[Any]: ...


def compacted(table: Table) -> str:
    """Put small files together, write those anew of which many rows are gone, and make one file of all deletes; what
    was done. Raises Iceberg's ValidationException where the pipeline has written to the same files meanwhile."""
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
    return f"{removed} files made into {added}, {deletes[0]} of deletes into {deletes[1]}"


def _groups(table: Table, base: Files) -> Iterator[list[Any]]:
    """The files of rows to write anew, those of each commit."""
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


def _one_of_deletes(table: Table) -> tuple[int, int]:
    """Make one file of all files of deletes, without those in files that are no more; how many they were, and are."""
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


def cleaned(table: Table, version: int | None, hours: int) -> str:
    """Expire the snapshots that are older than `hours`, but for those from `version` on and from the newest of the
    pipeline on, which tells its batch; remove files that no kept one names. What was done."""
    table.library.refresh()
    chain = list(table.library.snapshots())
    until = time.time() - hours * 3600
    # the one that was the newest then is needed too
    kept = max(
        len(list(takewhile(lambda one: one.at > until * 1000, chain))),
        len(list(takewhile(lambda one: WRITER not in one.summary, chain))),
        len(list(takewhile(lambda one: one.id != version, chain))) if version is not None else 0,
    )
    old = [one.id for one in chain[kept + 1 :]]
    if old:
        table.library.expire(old)
    lost = table.library.sweep(until)
    return f"{len(old)} snapshots expired, {lost} files removed that none names"
