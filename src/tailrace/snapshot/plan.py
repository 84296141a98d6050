"""SnapshotPlan: which chunks a snapshot reads, in which order, and which markers its rows carry.

The plan is part of the offset while a snapshot runs: a batch is a range of chunk numbers, so that a restart reads
the chunks that are still missing and no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.columns.batch import Marker

# What a chunk costs beside its pages, in pages.
_FIXED = 4
# The most chunks for which a batch has room for one whole chunk.
_MOST_SMALL = 512


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table with rows: `pages` heap pages up to the last one with a row (1 where the table is read as a whole).

    `storage` names the heap that the pages belong to: a table that has another one later was written anew, and its
    rows have moved. 0 where that does not matter or is not known.
    """

    schema: str
    table: str
    pages: int
    storage: int = 0

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Pages `[first_page, last_page)` of one table; `last_page` None: to the end."""

    number: int
    table: PlannedTable
    first_page: int
    last_page: int | None
    opens_table: bool
    closes_table: bool
    opens_snapshot: bool
    closes_snapshot: bool

    @property
    def pages(self) -> int:
        """How many pages it has."""
        return (self.table.pages if self.last_page is None else self.last_page) - self.first_page

    @property
    def work(self) -> int:
        """About what it costs to read, in pages."""
        return self.pages + _FIXED


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The non-empty tables of a snapshot, in the order in which they are read, in chunks of `chunk_pages` pages.

    `first` says whether the first captured table has rows: if it is empty, no row is marked `first`, as in
    Debezium.
    """

    tables: tuple[PlannedTable, ...]
    chunk_pages: int
    first: bool = True

    def __len__(self) -> int:
        """The number of chunks."""
        return sum(self._count(table) for table in self.tables)

    def _count(self, table: PlannedTable) -> int:
        return max(1, -(-table.pages // self.chunk_pages))

    def chunks(self, first: int, last: int) -> list[Chunk]:
        """Chunks `[first, last)` by number."""
        found = []
        number = 0
        for place, table in enumerate(self.tables):
            count = self._count(table)
            for index in range(max(0, first - number), min(count, last - number)):
                closing = index == count - 1
                found.append(
                    Chunk(
                        number=number + index,
                        table=table,
                        first_page=index * self.chunk_pages,
                        last_page=None if closing else (index + 1) * self.chunk_pages,
                        opens_table=index == 0,
                        closes_table=closing,
                        opens_snapshot=index == 0 and place == 0 and self.first,
                        closes_snapshot=closing and place == len(self.tables) - 1,
                    )
                )
            number += count
        return found

    def reached(self, first: int, count: int) -> int:
        """The number of the chunk behind a batch that begins with `first`: `count` chunks, or more that are small.

        All together they have no more pages than `count` chunks of `chunk_pages`. What a small one costs beside its
        page is less than its share of what a batch costs.
        """
        found = self.chunks(first, min(first + count * _MOST_SMALL, len(self)))
        pages, most = 0, count * self.chunk_pages
        for number, chunk in enumerate(found):
            pages += chunk.pages
            if number >= count and pages > most:
                return first + number
        return first + len(found)

    def to_json(self) -> dict[str, Any]:
        return {
            "chunk_pages": self.chunk_pages,
            "first": self.first,
            "tables": [[table.schema, table.table, table.pages, table.storage] for table in self.tables],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> SnapshotPlan:
        # plans of earlier versions have no storage
        tables = tuple(PlannedTable(*table) for table in fields["tables"])
        return cls(tables, fields["chunk_pages"], fields["first"])


def markers(chunk: Chunk, rows: int, opened: bool, closes: bool) -> list[tuple[int, Marker]]:
    """The rows of a piece of `chunk` that are not plainly `true`: `(row, marker)`.

    The piece has `rows` rows; `opened` says that its first row is the chunk's first, `closes` that its last row is
    the chunk's last. A row that is both first and last of its table is its last; the single row of the first table
    is `first`.
    """
    found: dict[int, Marker] = {}
    if rows and opened and chunk.opens_table:
        found[0] = Marker.FIRST if chunk.opens_snapshot else Marker.FIRST_IN_DATA_COLLECTION
    if rows and closes and chunk.closes_table:
        if chunk.closes_snapshot:
            found[rows - 1] = Marker.LAST
        elif found.get(rows - 1) is not Marker.FIRST:
            found[rows - 1] = Marker.LAST_IN_DATA_COLLECTION
    return sorted(found.items())
