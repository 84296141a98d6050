"""The transaction log as change data capture sees it: log sequence numbers, and the changes that wait for the agent."""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass, field

DELETE, INSERT, BEFORE, AFTER = 1, 2, 3, 4
"""__$operation of a change table ("cdc.<capture_instance>_CT")."""


@dataclass(slots=True)
class Change:
    """A future row of a change table: `lsn` is its __$seqval, `columns` are the ids of the values in `row`."""

    object_id: int
    operation: int
    lsn: bytes
    command: int
    columns: tuple[int, ...]
    row: tuple[object, ...]
    mask: frozenset[int]


@dataclass(slots=True)
class Transaction:
    """A committed transaction; times in storage form."""

    begin_lsn: bytes
    commit_lsn: bytes
    begin: int
    end: int
    id: int
    changes: list[Change]


@dataclass(slots=True)
class CaptureColumn:
    """A captured column: its id in the source, name and type as captured, place from 1 on."""

    id: int
    name: str
    type: str
    ordinal: int
    computed: bool


@dataclass(slots=True)
class CaptureInstance:
    """A row of cdc.change_tables with its columns; `table_id` is the change table's object id."""

    name: str
    table_id: int
    source_id: int
    start_lsn: bytes
    net_changes: bool
    role: str | None
    index: str | None
    index_columns: list[int]
    columns: list[CaptureColumn]
    created: int
    filegroup: str | None = None
    partition_switch: bool = True
    schema: str = ""
    table: str = ""


@dataclass(slots=True)
class DdlEntry:
    """A row of cdc.ddl_history."""

    source_id: int
    table_id: int
    required_update: bool
    command: str
    lsn: bytes
    time: int


@dataclass(slots=True)
class Cdc:
    """The state of change data capture in a database, apart from its change tables."""

    instances: list[CaptureInstance] = field(default_factory=list)
    ddl: list[DdlEntry] = field(default_factory=list)
    capturing: bool = True
    cleaning: bool = True
    retention: int = 4320
    mapping_id: int = 0
    pollinginterval: int = 5


class Log:
    """Log sequence numbers in the order in which they are given out; committed transactions wait in `pending`.

    An LSN is ten bytes: virtual log file (4), block (4), slot in the block (2). Records of transactions that run at
    the same time interleave, so a change may have a smaller number than the commit of an earlier transaction.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file, self._block, self._slot = 0x25, 0x1A8, 0
        self.pending: list[Transaction] = []
        self.cdc: Cdc | None = None
        self.next_transaction = 0x2D1

    def lsn(self) -> bytes:
        """Return the number of the next record."""
        with self._lock:
            self._slot += 1
            if self._slot > 0x50:
                self._flush()
                self._slot = 1
            return struct.pack(">IIH", self._file, self._block, self._slot)

    def transaction_id(self) -> int:
        """Return the number of the next transaction."""
        with self._lock:
            self.next_transaction += 1
            return self.next_transaction

    def flush(self) -> None:
        """End the present block, as every commit does."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        self._block += 8 * (1 + self._slot // 4)
        self._slot = 0
        if self._block > 0xF000:
            self._file, self._block = self._file + 1, 0x10


def increment(lsn: bytes, by: int = 1) -> bytes:
    """Return the next LSN, or the previous one for -1: sys.fn_cdc_increment_lsn and sys.fn_cdc_decrement_lsn."""
    return (int.from_bytes(lsn, "big") + by).to_bytes(10, "big")


NOTHING = bytes(10)
"""The answer of sys.fn_cdc_get_min_lsn for a capture instance that does not exist or may not be read."""
