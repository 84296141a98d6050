"""The iteration order of Java's hash tables, which the recordings show."""

from __future__ import annotations

from collections.abc import Iterable


def in_java_order(texts: Iterable[str], others: int = 0) -> list[str]:
    """Return distinct `texts` in the order in which a HashSet or HashMap lists them when filled in this order.

    The table holds `others` more entries (java.util.HashMap).
    """
    listed = list(texts)
    capacity = 16
    while len(listed) + others > capacity * 3 // 4:
        capacity *= 2
    return sorted(listed, key=lambda text: _hash(text) & (capacity - 1))


def _hash(text: str) -> int:
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value ^ (value >> 16)
