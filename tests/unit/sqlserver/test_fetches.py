"""The driver is asked for a suitable number of rows at once, with a simulated cursor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from tailrace.connectors.changetables.dialect import FIRST_FETCH, next_fetch
from tailrace.connectors.sqlserver.dialect import SqlServerSession


class Cursor:
    """A result of `left` rows with `size` bytes each."""

    def __init__(self, left: int, size: int) -> None:
        self.left, self.size = left, size
        self.asked: list[int] = []

    def execute(self, *_: Any) -> None:
        pass

    def arrow_batch(self, count: int) -> pa.RecordBatch:
        self.asked.append(count)
        given = min(count, self.left)
        self.left -= given
        return pa.record_batch({"v": pa.array([b"x" * self.size] * given, pa.binary())})


@pytest.mark.parametrize(
    ("size", "most", "asked"),
    [(100, 10_000, [10_000] * 2), (8_000_000, 500, [FIRST_FETCH, 8, 8, 8]), (100, 500, [FIRST_FETCH, 64, 256, 500])],
)
def test_large_rows_are_fetched_by_bytes(
    monkeypatch: pytest.MonkeyPatch, size: int, most: int, asked: list[int]
) -> None:
    cursor = Cursor(60 if size > 1000 else 10_000, size)

    @contextmanager
    def opened(_: object) -> Iterator[Cursor]:
        yield cursor

    monkeypatch.setattr(SqlServerSession, "_cursor", opened)
    one = SqlServerSession.__new__(SqlServerSession)
    found = sum(batch.num_rows for batch in one._batches("select", (), most))
    assert found == (60 if size > 1000 else 10_000)
    assert cursor.asked[: len(asked)] == asked


def test_a_fetch_has_one_row_at_least() -> None:
    assert next_fetch(1, 1 << 31, 500) == 1
