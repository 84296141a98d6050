"""A batch waits for more of a backlog under the right conditions."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tailrace.log.reader import LogReader
from tests.unit.log.memory import At


class Feed:
    """A log that has been read up to 10."""

    is_behind = False

    def has_read(self, target: At) -> bool:
        return target.number <= 10


class Reader(LogReader[Any, At, Any, Any]):
    """The part of a log that reads; the test plans no batch."""

    acknowledge = is_far = window_end = changes = offset = tasks = cast(Any, None)


@pytest.mark.parametrize(
    ("is_behind", "target", "waits"), [(False, None, False), (True, None, True), (False, 10, False), (False, 11, True)]
)
def test_a_batch_waits_for_a_backlog_and_for_what_precedes_a_target(
    is_behind: bool, target: int | None, waits: bool
) -> None:
    feed = Feed()
    feed.is_behind = is_behind
    reader = Reader(cast(Any, feed), At(0), memory_limit=1000, disk_limit=0)
    reader._has_begun = True
    assert reader.is_filling(100, None if target is None else At(target)) is waits
    # Nothing more fits into a batch of size zero.
    assert not reader.is_filling(0, None if target is None else At(target))
