"""RowLog: the operations on rows of a log that each database implements for the modules of `tailrace.log.rows`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import ChangeBatch, Flags, Int32s, Int64s
from tailrace.columns.table import Column, TableSchema
from tailrace.events.mapping import ChangePlace, SourceForm
from tailrace.log.rows.segment import MixedSegment, Own, RowRun, Segment, Trans

UInt64s = npt.NDArray[np.uint64]


class RowLog(Protocol[Own, Trans]):
    """A database's operations on the rows of its log.

    Tasks contain the object: it is small, immutable and picklable, and its class can be imported by name. Its module
    imports what a process needs at the first call. Every method depends on its arguments alone, which it does not
    change, and may run on several threads at once. None does I/O.

    Each message of a run or segment carries one row. If the log's records carry several rows, the connector cuts them
    when it indexes a run; the records' heads become messages that are no rows. Facts that a row's bytes then lack, such
    as positions or the columns of its images, are in the database's own arrays by row (`by_row`).
    """

    # --- planner: where a batch's rows may be cut ---------------------------------------------------------------------

    def key_kind(self, column: Column, table: TableSchema) -> Hashable | None:
        """Return the kind of a key column's values; None if values that differ in the log may be equal in events.

        Called by `partitioning` for each column of a key. Rows are spread by the columns that have a kind; tables that
        share a topic must have the same kind. Raises nothing.
        """
        ...

    def key_hashes(
        self, run: RowRun[Own, Trans], rows: Int64s, table: TableSchema, names: Sequence[str]
    ) -> tuple[UInt64s, Flags]:
        """Return a hash of the columns `names` of each row's key, and a mask of the rows that change their key.

        Called by `partitioning` for rows of `table`, none of which is a truncate. The key is taken from the row after
        the change, for a delete from the deleted row. Its hash is the same in every process, and equal for keys that
        are equal in events, whichever table of a topic they are in. A key that is not wholly known counts as changed.
        Raises DecodeError for a message that cannot be decoded up to its key.
        """
        ...

    def last_changes(
        self, parts: Sequence[tuple[RowRun[Own, Trans], Int64s]], table: TableSchema, most: int
    ) -> list[Flags] | None:
        """Return by part a mask of the rows that determine the last state of each key; None if all rows are needed.

        Called by `partitioning` where only last changes are wanted, for all rows of `table` in a batch, in log order.
        The table has a key. A row may be left out only if a later row of its key replaces it completely. Messages of
        more than `most` bytes stay, unless that is 0. Raises DecodeError for runs that are corrupt as a whole. Returns
        None if a message cannot be decoded: the task that decodes the message reports it.
        """
        ...

    # --- tasks: what segments become ----------------------------------------------------------------------------------

    @property
    def form(self) -> SourceForm:
        """The database's part of events: a constant, because plans are cached by it. Used by `tasks` and
        `small_tables`; raises nothing."""
        ...

    def decode(self, segment: Segment[Own, Trans]) -> ChangeBatch:
        """Return the segment's changes as columns, without numbers and raw messages, which the caller adds.

        Called by `tasks` in workers and, for the rows that the planner itself needs, by `partitioning`. A segment has
        at most PIECE bytes, or one message. Raises DecodeError if a message cannot be decoded, or if a column would
        have too many bytes for a batch.
        """
        ...

    def decode_together(
        self, segment: MixedSegment[Own, Trans], places: Int32s, bounds: Int64s, width: int
    ) -> ChangeBatch | None:
        """Return changes of several tables as changes of one table of `width` columns; None if that is impossible.

        Called by `small_tables`. Column `i` of table `n` becomes column `places[bounds[n] + i]` of the batch; -1 leaves
        it out. A column that a message's table does not have is null. Raises DecodeError, as `decode` does. After an
        error or None, the tables are decoded one by one, so an implementation may always return None.
        """
        ...

    def check(self, segment: Segment[Own, Trans], row: int) -> None:
        """Raise DecodeError, with the reason, if message `row` cannot be decoded. Called by `tasks` for each message of
        a segment that `decode` has refused, or that has a message which is too large."""
        ...

    def place(self, segment: Segment[Own, Trans], row: int) -> ChangePlace:
        """Return the position of message `row`. Called by `tasks` for messages that are quarantined; raises nothing."""
        ...
