"""SnapshotPlan: the chunks of a snapshot, their order, and the markers of their rows.

The plan is part of the offset while a snapshot runs. A batch is a range of chunk numbers, so that a restart reads only
the chunks that are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.columns.batch import Marker

# Fixed cost of a chunk, in pages.
_FIXED = 4
# The most small chunks of a batch per chunk of full size.
_MOST_SMALL = 512


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table with rows: `pages` heap pages up to the last one with a row (1 if the table is read as a whole).

    `storage` identifies the heap of the pages: if it changes, the table was rewritten and its rows have moved. 0 if
    that is irrelevant or unknown.
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
        """Number of pages."""
        return (self.table.pages if self.last_page is None else self.last_page) - self.first_page

    @property
    def work(self) -> int:
        """Approximate cost of reading, in pages."""
        return self.pages + _FIXED


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The non-empty tables of a snapshot, in reading order, in chunks of `chunk_pages` pages.

    `first`: the first captured table has rows. If it is empty, no row is marked `first`, as in Debezium.
    """

    tables: tuple[PlannedTable, ...]
    chunk_pages: int
    first: bool = True

    def __len__(self) -> int:
        """Return the number of chunks."""
        return sum(self._count(table) for table in self.tables)

    def _count(self, table: PlannedTable) -> int:
        return max(1, -(-table.pages // self.chunk_pages))

    def chunks(self, first: int, last: int) -> list[Chunk]:
        """Return the chunks `[first, last)` by number."""
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
        """Return the number of the chunk after a batch that begins with `first` and has `count` chunks.

        If chunks are small, the batch has more of them: together at most as many pages as `count` chunks of
        `chunk_pages`. The fixed cost of a small chunk is less than its share of the cost of a batch.
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
    """Return the rows of a piece of `chunk` whose marker is not the usual `true`, as `(row, marker)`.

    The piece has `rows` rows; `opened`: its first row is the chunk's first; `closes`: its last row is the chunk's last.
    A row that is both first and last of its table is marked as last; the single row of the first table is `first`.
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
