"""A batch waits for more of a backlog under the right conditions."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tailrace.log.reader import LogReader


class Feed:
    """A log that has been read up to 10."""

    is_behind = False

    def has_read(self, target: int) -> bool:
        return target <= 10


@pytest.mark.parametrize(
    ("is_behind", "target", "waits"), [(False, None, False), (True, None, True), (False, 10, False), (False, 11, True)]
)
def test_a_batch_waits_for_a_backlog_and_for_what_precedes_a_target(
    is_behind: bool, target: int | None, waits: bool
) -> None:
    feed = Feed()
    feed.is_behind = is_behind
    reader: LogReader[Any, Any, Any, Any] = LogReader(cast(Any, feed), 0, memory_limit=1000, disk_limit=0)
    reader._has_begun = True
    assert reader.is_filling(100, target) is waits
    # Nothing more fits into a batch of size zero.
    assert not reader.is_filling(0, target)
