"""The pipeline's records, read back from its files of JSON lines. Driver."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """A record, read from one line. `key`, `value` and the values of `headers` are parsed JSON or None."""

    topic: str
    key: Any
    value: Any
    headers: tuple[tuple[str, Any], ...]

    @property
    def op(self) -> str:
        """The operation's letter; `0` for a tombstone."""
        return "0" if self.value is None else str(self.value["op"])

    @classmethod
    def of(cls, line: str) -> Record:
        fields = json.loads(line)
        headers = tuple((header["key"], header["value"]) for header in fields["headers"])
        return cls(fields["topic"], fields["key"], fields["value"], headers)


class RecordFiles:
    """The record files of one directory. A file is complete when it appears; sorting by name gives their order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._seen: set[str] = set()

    def new(self) -> list[Record]:
        """Return the records of files that appeared since the last call."""
        found: list[Record] = []
        for path in sorted(self.directory.glob("batch-*.jsonl")):
            if path.name not in self._seen:
                self._seen.add(path.name)
                found.extend(Record.of(line) for line in path.read_text("utf-8").splitlines())
        return found
