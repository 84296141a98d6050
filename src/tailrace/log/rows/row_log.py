"""RowLog: what only a database knows of the rows of its log, for the kit."""

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
    """A database's part of the kit.

    A task takes the value along: its class is an importable name, it is small, immutable and picklable, and its module
    imports what a process needs when that is first called. Every method depends on its arguments alone, which it does
    not change, and may run on several threads at once. None does I/O.

    Each message of a run or segment carries one row. If the log's records carry several, the connector cuts them when
    it indexes a run, with the records' heads as messages that are no rows. What a row's bytes then do not say, such as
    positions or the columns that its images have, is in the database's own arrays by row (`by_row`).
    """

    # --- planner: where a batch's rows may be cut ---------------------------------------------------------------------

    def key_kind(self, column: Column, table: TableSchema) -> Hashable | None:
        """Return what the values of a key's column are, None if two that differ in the log may be one in an event.

        Called by `partitioning` for each column of a key. Rows are spread by the columns that have a kind; tables that
        share a topic must have the same one. Raises nothing.
        """
        ...

    def key_hashes(
        self, run: RowRun[Own, Trans], rows: Int64s, table: TableSchema, names: Sequence[str]
    ) -> tuple[UInt64s, Flags]:
        """Return a hash of the columns `names` of each row's key, and whether the row moves from one key to another.

        Called by `partitioning` for rows of `table`, none of which is a truncate. The hash is that of the row after
        the change, or of the deleted one. It is the same in every process, and equal for keys that are equal in
        events, whichever table of a topic they are in. A key that is not wholly known counts as moved. Raises
        DecodeError for a message that is not understood as far as the key.
        """
        ...

    def last_changes(
        self, parts: Sequence[tuple[RowRun[Own, Trans], Int64s]], table: TableSchema, most: int
    ) -> list[Flags] | None:
        """Return which rows a reader of each key's last change needs, by part; None if all have to be looked at.

        Called by `partitioning` where only last changes are wanted, for all rows of `table` in a batch, which has a
        key, in log order. A row may be left out only if a later one of its key says all that there is to say of it.
        Messages of more than `most` bytes stay, unless that is 0. Raises DecodeError for runs that are at fault as a
        whole; of a message that is not understood it says None, as tasks name it.
        """
        ...

    # --- tasks: what segments become ----------------------------------------------------------------------------------

    @property
    def mapping(self) -> SourceForm:
        """The database's part of events: a constant, so that plans can be kept by it. Asked by `tasks` and
        `small_tables`; raises nothing."""
        ...

    def decode(self, segment: Segment[Own, Trans]) -> ChangeBatch:
        """Return the segment's changes as columns, without numbers and raw messages, which the caller adds.

        Called by `tasks` and, for the rows of a table that the planner itself wants, by `partitioning`; a segment has
        at most PIECE bytes, or one message. Raises DecodeError if any of its messages is not understood, or if a column
        would have too many bytes for a batch.
        """
        ...

    def decode_together(
        self, segment: MixedSegment[Own, Trans], places: Int32s, bounds: Int64s, width: int
    ) -> ChangeBatch | None:
        """Return changes of several tables as those of one that has `width` columns; None if that cannot be done.

        Called by `small_tables`. Column `i` of table `n` becomes column `places[bounds[n] + i]` of the batch; -1: it is
        left out. A column that a message's table does not have is null. Raises DecodeError, as `decode` does. After
        an error or None, the tables are decoded one by one: so a log may always answer None.
        """
        ...

    def check(self, segment: Segment[Own, Trans], row: int) -> None:
        """Raise DecodeError, with the reason, if message `row` is not understood. Called by `tasks` for each message of
        a segment that `decode` has refused, or that has a message which is too large."""
        ...

    def place(self, segment: Segment[Own, Trans], row: int) -> ChangePlace:
        """Return where message `row` stands. Called by `tasks` for messages that are quarantined; raises nothing."""
        ...
