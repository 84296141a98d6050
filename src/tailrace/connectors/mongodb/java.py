"""The order in which Java goes through texts in a hash table, which recordings show."""

from __future__ import annotations

from collections.abc import Sequence


def java_order(names: Sequence[str]) -> list[str]:
    """`names` as a HashSet or HashMap lists them that they were put into in this order (java.util.HashMap)."""
    capacity = 16
    while len(names) > capacity * 3 // 4:
        capacity *= 2
    return sorted(names, key=lambda name: _hash(name) & (capacity - 1))


def _hash(name: str) -> int:
    value = 0
    for unit in memoryview(name.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value ^ (value >> 16)
