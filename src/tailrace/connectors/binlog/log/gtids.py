"""Sets of global transaction ids, of MySQL and of MariaDB. No I/O.

The id of a transaction has a source and a number. The source is a server's UUID, perhaps with a tag (`uuid:tag`), or a
domain and a server of MariaDB (`0-1`). A set of MySQL names every transaction, a set of MariaDB the last transaction of
each domain.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from typing import Protocol, Self
from uuid import UUID


class GtidSet(Protocol):
    """A mutable set of transactions."""

    def add(self, source: str, number: int) -> None: ...

    def has(self, source: str, number: int) -> bool: ...

    def contains(self, other: Self) -> bool:
        """Return True if every transaction of `other` is in this set."""
        ...

    def copy(self) -> Self: ...

    def __str__(self) -> str:
        """Return the set as the server writes it; equal sets have equal texts."""
        ...


class MysqlGtids:
    """Intervals of numbers by source."""

    def __init__(self, text: str = "") -> None:
        self._intervals: dict[str, list[tuple[int, int]]] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            uuid, *rest = part.split(":")
            source = str(UUID(uuid))
            name = source
            for one in rest:
                low, _, high = one.strip().partition("-")
                if not low.isdigit():
                    name = f"{source}:{one.strip().lower()}"
                    continue
                self._add(name, int(low), int(high or low) + 1)

    def add(self, source: str, number: int) -> None:
        self._add(source, number, number + 1)

    def _add(self, source: str, low: int, high: int) -> None:
        if not 0 < low < high:
            raise ValueError(f"{low}-{high - 1} is no interval of transactions")
        found = self._intervals.setdefault(source, [])
        if found and found[-1][1] == low:
            # usually transactions are added in order
            found[-1] = found[-1][0], high
            return
        first = bisect_right(found, low, key=lambda one: one[1])
        if first and found[first - 1][1] == low:
            first -= 1
        last = first
        while last < len(found) and found[last][0] <= high:
            low, high = min(low, found[last][0]), max(high, found[last][1])
            last += 1
        found[first:last] = [(low, high)]

    def has(self, source: str, number: int) -> bool:
        found = self._intervals.get(source, [])
        place = bisect_right(found, number, key=lambda one: one[0]) - 1
        return place >= 0 and number < found[place][1]

    def contains(self, other: MysqlGtids) -> bool:
        return all(
            any(low <= first and last <= high for low, high in self._intervals.get(source, ()))
            for source, intervals in other._intervals.items()
            for first, last in intervals
        )

    def without(self, other: MysqlGtids) -> MysqlGtids:
        """Return the transactions of this set that `other` does not have."""
        found = MysqlGtids()
        for source, intervals in self._intervals.items():
            taken = other._intervals.get(source, [])
            for low, high in intervals:
                at = low
                for first, last in taken:
                    if last <= at or first >= high:
                        continue
                    if first > at:
                        found._add(source, at, first)
                    at = max(at, last)
                if at < high:
                    found._add(source, at, high)
        return found

    def of(self, sources: Iterable[str]) -> MysqlGtids:
        """Return the transactions of these servers (UUIDs)."""
        found, wanted = MysqlGtids(), set(sources)
        found._intervals = {one: [*of] for one, of in self._intervals.items() if one.split(":")[0] in wanted}
        return found

    @property
    def sources(self) -> list[str]:
        return sorted(self._intervals)

    def copy(self) -> MysqlGtids:
        found = MysqlGtids()
        found._intervals = {source: [*intervals] for source, intervals in self._intervals.items()}
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MysqlGtids) and self._intervals == other._intervals

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def __str__(self) -> str:
        parts: dict[str, list[str]] = {}
        for source, intervals in sorted(self._intervals.items()):
            uuid, _, tag = source.partition(":")
            shown = [f"{low}" if high == low + 1 else f"{low}-{high - 1}" for low, high in intervals]
            parts.setdefault(uuid, [uuid]).extend([tag, *shown] if tag else shown)
        return ",".join(":".join(part) for part in parts.values())

    def encoded(self) -> bytes:
        """Return the set in the encoding of COM_BINLOG_DUMP_GTID."""
        is_tagged = any(":" in source for source in self._intervals)
        count = len(self._intervals)
        # with tags the first and the last byte of the count are the number of the format, 1
        parts = [struct.pack("<Q", 1 | count << 8 | 1 << 56 if is_tagged else count)]
        for source, intervals in sorted(self._intervals.items()):
            uuid, _, tag = source.partition(":")
            parts.append(UUID(uuid).bytes)
            if is_tagged:
                parts.append(bytes([len(tag) << 1]) + tag.encode())
            parts.append(struct.pack("<Q", len(intervals)))
            parts.extend(struct.pack("<qq", low, high) for low, high in intervals)
        return b"".join(parts)


class MariadbGtids:
    """The last transaction of each domain; a domain's transactions have rising numbers."""

    def __init__(self, text: str = "") -> None:
        self._last: dict[int, tuple[int, int]] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            domain, server, number = (int(one) for one in part.split("-"))
            if number >= self._last.get(domain, (0, -1))[1]:
                self._last[domain] = server, number

    def add(self, source: str, number: int) -> None:
        domain, _, server = source.partition("-")
        self._last[int(domain)] = int(server), number

    def has(self, source: str, number: int) -> bool:
        found = self._last.get(int(source.partition("-")[0]))
        return found is not None and number <= found[1]

    def contains(self, other: MariadbGtids) -> bool:
        return all(
            domain in self._last and number <= self._last[domain][1] for domain, (_, number) in other._last.items()
        )

    @property
    def domains(self) -> dict[int, tuple[int, int]]:
        """Server and number of the last transaction, by domain."""
        return dict(self._last)

    def copy(self) -> MariadbGtids:
        found = MariadbGtids()
        found._last = dict(self._last)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MariadbGtids) and self._last == other._last

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._last)

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self._last.items()))
