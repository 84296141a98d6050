"""A chunk of a snapshot whose condition fails on the server is handled."""

from __future__ import annotations

import pytest
from pymongo.errors import OperationFailure

from tailrace.connectors.mongodb.log.position import ChangePosition
from tailrace.connectors.mongodb.server.connection import Address
from tailrace.connectors.mongodb.snapshot import chunks
from tailrace.connectors.mongodb.snapshot.chunks import SnapshotTask
from tailrace.connectors.mongodb.snapshot.plan import Chunk

SECRET = "s3cret"


class Failing:
    """A cursor whose condition the server cannot evaluate."""

    alive = True

    def __init__(self, *_: object) -> None: ...

    def next(self) -> object:
        raise OperationFailure(f"can't $divide by zero {SECRET}", 2)


def made(asked: bool) -> SnapshotTask:
    condition = '{"$expr": {"$divide": [1, "$x"]}}'
    return SnapshotTask(
        Address("mongodb://h/"), Chunk(("d", "c")), condition, ChangePosition(1), 0, 0, None, 0, asked=asked
    )  # type: ignore[arg-type]


def test_a_failing_condition_of_a_signal_is_told_and_gone_on_from(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(chunks, "RawCursor", Failing)
    assert list(made(True)._segments(None)) == []  # type: ignore[arg-type]
    assert "the condition of a signal for d.c fails (code 2)" in caplog.messages[0]
    assert SECRET not in caplog.text
    # A condition in the configuration must be corrected there.
    with pytest.raises(OperationFailure):
        list(made(False)._segments(None))  # type: ignore[arg-type]
