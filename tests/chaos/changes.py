"""A change as the database has committed it and as a record shows it, in one comparable form."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

UNAVAILABLE = "__debezium_unavailable_value"
"""The placeholder of a large value that an update has left unchanged."""

Row = Mapping[str, str]
"""A row's columns as texts, without null columns, so that a column that was added later makes no difference."""


@dataclass(frozen=True, slots=True)
class Change:
    """A record. `op` is c, u, d, t or r, and z for the tombstone after a delete.

    `key` is the text of the key's values, `row` the row afterwards, `lsn` and `transaction` the change's place in the
    log (0 in a tombstone, which does not show it). `incremental` is True for rows of an incremental snapshot. With
    `partial` the row has only the changed columns.
    """

    table: str
    op: str
    key: str
    row: Row | None
    lsn: int = 0
    transaction: int = 0
    incremental: bool = False
    partial: bool = False

    @property
    def identity(self) -> int:
        """Return 64 bits that identify the change within its table; tombstones of one key have the same."""
        return digest((self.op, self.key, self.row, self.lsn, self.transaction))

    def __str__(self) -> str:
        at = f" at {self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X} in transaction {self.transaction}" if self.lsn else ""
        return f"{self.op} {self.table}[{self.key}]{at}"


def digest(value: Any) -> int:
    """Return a 64-bit digest of a value of texts, numbers, tuples and dictionaries."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def row_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of an image as texts, without null columns."""
    return {
        name: value if isinstance(value, str) else str(value) for name, value in values.items() if value is not None
    }


def key_of(values: Mapping[str, Any]) -> str:
    """Return the text of a key, by the names of its columns."""
    return ",".join(str(values[name]) for name in sorted(values))


def from_document(topic: str, key: Any, value: Any, drop: int = 2) -> Change:
    """Return the change in a record of MongoDB in the format 3: documents are JSON in a text, updates are partial."""
    collection = topic.split(".", drop)[drop]
    text = str(json.loads(key["id"]))
    if value is None:
        return Change(collection, "z", text, None)
    source, op = value["source"], str(value["op"])
    if op == "r":
        read = row_of(json.loads(value["after"]))
        return Change(collection, op, text, read, incremental=source.get("snapshot") == "incremental")
    row: Row | None = None
    if op == "c":
        row = row_of(json.loads(value["after"]))
    elif op == "u":
        row = row_of(json.loads(value["updateDescription"]["updatedFields"]))
    at = int(source["ts_ms"]) // 1000 << 32 | int(source["ord"])
    return Change(collection, op, text, row, at, partial=op == "u")


def from_record(topic: str, key: Any, value: Any, drop: int = 2) -> Change:
    """Return the change in a record of PostgreSQL in the format 3. The table's name follows `drop`
    parts of the topic."""
    return _told(topic, key, value, drop, lambda source: (int(source["lsn"]), int(source["txId"])))


def from_captured(topic: str, key: Any, value: Any, drop: int) -> Change:
    """Return the change in a record of SQL Server or Db2 in the format 3, with positions in hexadecimal digits."""
    return _told(
        topic, key, value, drop, lambda source: (hexadecimal(source["change_lsn"]), hexadecimal(source["commit_lsn"]))
    )


def from_binlog(topic: str, key: Any, value: Any) -> Change:
    """Return the change in a record of MySQL or MariaDB, whose transactions have ids."""
    return _told(topic, key, value, 2, lambda source: (
        log_place(int(source["file"].rpartition(".")[2]), int(source["pos"])) + int(source["row"]),
        int(re.split("[:-]", source["gtid"])[-1]),
    ))  # fmt: skip


def log_place(file: int, pos: int) -> int:
    """Return the place of an event's first row, by the number of its file in the binary log."""
    return file << 64 | pos << 24


def hexadecimal(text: str) -> int:
    """Return the number in a position's text, as `00000027:00000758:0003`."""
    return int(text.replace(":", ""), 16)


def _told(topic: str, key: Any, value: Any, drop: int, place: Callable[[Mapping[str, Any]], tuple[int, int]]) -> Change:
    table = topic.split(".", drop)[drop]
    text = key_of(key) if key else ""
    if value is None:
        return Change(table, "z", text, None)
    source, op = value["source"], str(value["op"])
    after = value.get("after")
    row = None if after is None else row_of(after)
    if op == "r":
        return Change(table, op, text, row, incremental=source.get("snapshot") == "incremental")
    return Change(table, op, text, row, *place(source))
