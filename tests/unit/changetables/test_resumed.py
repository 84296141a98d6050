"""Reading a span of a change table goes on after a lost connection, and each row has all that the first attempt had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tailrace.connectors.changetables.capture_history import CaptureHistory, CapturePeriod
from tailrace.connectors.changetables.dialect import AFTER, ChangeRows
from tailrace.connectors.changetables.log.sessions import Retries, changes, close_idle
from tests.unit.changetables.memory import MemoryDialect, MemorySession, Server, at


@pytest.mark.parametrize("failing", [-1, 1, 2])
def test_what_an_update_has_set_is_known_after_a_lost_connection(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A null that an update has set would otherwise count as a value that the log lacks, and a copy would keep the old
    value."""
    close_idle()
    server = Server("resumed", fetch=3, failing_fetch=failing)
    server.table("dbo.t", ("id", "t"), ("id",))
    server.commit(*(("dbo.t", "c", None, (str(number), "x")) for number in range(4)))
    last = server.commit(*(("dbo.t", "u", (str(number), "x"), (str(number), None)) for number in range(4)))
    given = MemorySession.changes

    def marked(session: MemorySession, *span: Any, **more: Any) -> Iterator[ChangeRows]:
        for rows in given(session, *span, **more):
            yield replace(rows, touched={1: rows.operation == AFTER})

    monkeypatch.setattr(MemorySession, "changes", marked)
    dialect = MemoryDialect(server.name)
    session = dialect.connect("db")
    (described,) = session.describe(session.captures())
    eras = CaptureHistory().with_(CapturePeriod(described.capture, described.table, described.capture.start))
    (span,) = eras.spans(bytes(10), at(last))
    found = list(changes(dialect, "db", span, described.table, Retries(-1, 0.0), masked=True))
    assert sum(map(len, found)) == 12
    for rows in found:
        assert np.array_equal(rows.touched[1], rows.operation == AFTER)
