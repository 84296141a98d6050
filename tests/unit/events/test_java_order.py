"""The order in which Java iterates over texts in a hash table, which recordings show, is reproduced."""

from __future__ import annotations

import pytest

from tailrace.events.control_records import in_java_order


@pytest.mark.parametrize(
    ("texts", "others", "order"),
    [
        # The hash of a letter is its code, 97, 98 and 112, of which a table of 16 uses the last four bits.
        (["b", "a", "p"], 0, ["p", "a", "b"]),
        # Beyond 12 entries a table has 32 places, beyond 24 it has 64.
        (["b", "a", "p"], 9, ["p", "a", "b"]),
        (["b", "a", "p"], 10, ["a", "b", "p"]),
        # In one place they keep the order of insertion.
        (["q", "a"], 0, ["q", "a"]),
        (["a", "q"], 0, ["a", "q"]),
        # 31 * 97 + 98 is 3105, so that it comes before the letter b.
        (["b", "ab"], 0, ["ab", "b"]),
        ([], 0, []),
    ],
)
def test_texts_come_by_the_places_of_their_hashes(texts: list[str], others: int, order: list[str]) -> None:
    assert in_java_order(texts, others) == order
