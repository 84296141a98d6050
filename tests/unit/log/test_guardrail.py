"""guardrail.collections.max gives a warning or an error if too many tables are captured."""

from __future__ import annotations

import logging

import pytest

from tailrace.connectors.guardrail import guard_number
from tailrace.errors import ConfigError


def options(most: int, action: str) -> dict[str, object]:
    return {"guardrail.collections.max": most, "guardrail.collections.limit.action": action}


@pytest.mark.parametrize(("most", "count"), [(0, 10_000), (5, 5), (5, 0)])
@pytest.mark.parametrize("action", ["warn", "fail"])
def test_as_many_as_are_allowed_are_no_matter(
    most: int, count: int, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    guard_number(options(most, action), count)
    assert not caplog.records


def test_more_are_told_or_end_the_query(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tailrace"):
        guard_number(options(5, "warn"), 6)
    assert [record.message for record in caplog.records] == [
        "6 tables are captured, more than guardrail.collections.max = 5"
    ]
    with pytest.raises(ConfigError, match="6 collections are captured, more than") as caught:
        guard_number(options(5, "fail"), 6, "collections")
    assert "Capture fewer collections" in str(caught.value)
