"""Offsets that Debezium has stored. No I/O."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Self

_UUID = r"[\da-fA-F]{8}(-[\da-fA-F]{4}){3}-[\da-fA-F]{12}"
_ONE = rf"{_UUID}(:[\w-]+)+|\d+-\d+-\d+"
_SET = re.compile(rf"({_ONE})(,({_ONE}))*|")
"""A set of transactions as MySQL or MariaDB writes it."""


@dataclass(frozen=True, slots=True)
class DebeziumOffset:
    """A stored offset: of the transaction at `pos`, `events` events have been read, and `rows` rows of the next
    event."""

    file: str
    pos: int
    gtids: str = ""
    events: int = 0
    rows: int = 0

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the offset of the JSON that Debezium stores. Raises ValueError with the reason if it cannot be
        used."""
        try:
            given = json.loads(text)
        except ValueError:
            raise ValueError("must be the JSON of an offset, such as {…}") from None
        if not isinstance(given, dict):
            raise ValueError("must be the JSON of an offset, such as {…}")
        if given.get("snapshot"):
            raise ValueError(
                "was stored within a snapshot, which has to be taken anew: leave it and snapshot.mode=no_data out"
            )
        if any(name.startswith("incremental_snapshot_") for name in given):
            raise ValueError("was stored within an incremental snapshot: let Debezium end it, or stop it by a signal")
        file, pos, gtids = given.get("file"), given.get("pos"), given.get("gtids") or ""
        counts = [given.get("event", 0), given.get("row", 0)]
        if not isinstance(file, str) or not file or not re.fullmatch(r".+\.\d+", file):
            raise ValueError("has no log file: `file` must be a name such as binlog.000001")
        if not all(type(one) is int and one >= 0 for one in (pos, *counts)):
            raise ValueError("has no place: `pos`, `event` and `row` must be numbers")
        gtids = re.sub(r"\s", "", gtids) if isinstance(gtids, str) else "?"
        if not _SET.fullmatch(gtids):
            raise ValueError("has no set of transactions in `gtids`")
        assert isinstance(pos, int)
        return cls(file, pos, gtids, *counts)


def offset_fault(text: str) -> str:
    """Return the fault of capture.start.offset; "" if none."""
    try:
        DebeziumOffset.from_text(text)
    except ValueError as fault:
        return str(fault)
    return ""
