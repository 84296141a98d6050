"""Records are ordered by their places, numbers or bytes, in pieces, and left unchanged if nothing interleaves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from tailrace.log import interleaving
from tailrace.log.interleaving import merged


def records(*names: str) -> pa.RecordBatch:
    return pa.record_batch({"name": list(names)})


def names(found: list[pa.RecordBatch]) -> list[str]:
    return [name for rows in found for name in rows.column(0).to_pylist()]


@pytest.mark.parametrize("most_bytes", [1, 1 << 20])
@pytest.mark.parametrize("kind", ["int64", "S3"])
def test_records_of_one_place_stay_together_and_in_their_order(
    monkeypatch: pytest.MonkeyPatch, kind: str, most_bytes: int
) -> None:
    monkeypatch.setattr(interleaving, "_MOST_BYTES", most_bytes)

    def places(*given: int) -> npt.NDArray[np.generic]:
        if kind == "int64":
            return np.array(given, np.int64)
        # The last byte may be zero.
        return np.array([bytes([place, 0, 0]) for place in given], "S3")

    found = list(
        merged(
            [records("a2", "a2 again", "a5"), records("b1", "b3"), records("c5", "c6")],
            [places(2, 2, 5), places(1, 3), places(5, 6)],
        )
    )
    assert names(found) == ["b1", "a2", "a2 again", "b3", "a5", "c5", "c6"]
    assert len(found) > 1 or most_bytes > 1


def test_records_that_are_in_order_are_not_copied() -> None:
    parts = [records("a", "b"), records("c")]
    found = list(merged(parts, [np.array([1, 2]), np.array([2])]))
    assert all(one is part for one, part in zip(found, parts, strict=True))


def test_pieces_are_cut_by_bytes_where_large_records_stand_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """By number alone, all large records would come together, and their texts exceed an array."""
    monkeypatch.setattr(interleaving, "_MOST_BYTES", 10_000)
    small, large = ["s"] * 40, ["l" * 9000] * 4
    found = list(
        merged([records(*small, *large), records("b", "c")], [np.arange(0, 88, 2), np.array([1, 85])]),
    )
    assert names(found) == ["s", "b", *small[1:], *large[:3], "c", large[3]]
    assert max(rows.nbytes for rows in found) < 20_000
