"""Rows of a transaction that hand on keys to one another are in one block, however few rows a fetch has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.columns.blocks import Head, read
from tailrace.connectors.changetables import loading
from tailrace.connectors.changetables.capture_history import CaptureHistory, CapturePeriod
from tailrace.connectors.changetables.log.sessions import Retries, close_idle
from tailrace.connectors.changetables.log.tasks import LogTask, Part, TaskSource, change_batches
from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.values.conversions import FORM
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tests.unit.changetables.memory import MemoryDialect, Server, at

SOURCE = {
    "database.hostname": "h", "database.user": "u", "database.password": "p", "database.names": "db",
    "topic.prefix": "p", "row.blocks": "last", "message.key.columns": "dbo.t:n",
}  # fmt: skip


@pytest.mark.parametrize("fetch", [3, 100])
def test_a_statement_that_shifts_the_values_of_another_key_loses_no_row(fetch: int) -> None:
    """An update of columns outside the primary key has two rows in SQL Server's change tables, in the order of rows."""
    close_idle()
    server = Server("moved", fetch=fetch)
    server.table("dbo.t", ("id", "n"), ("id",))
    server.commit(*(("dbo.t", "c", None, (str(number), str(number))) for number in range(4)))
    work = [("dbo.t", "u", (str(number), str(number)), (str(number), str(number + 1))) for number in range(4)]
    last = server.commit(*work)
    dialect = MemoryDialect(server.name)
    session = dialect.connect("db")
    (described,) = session.describe(session.captures())
    eras = CaptureHistory().with_(CapturePeriod(described.capture, described.table, described.capture.start))
    (span,) = eras.spans(bytes(10), at(last))
    settings = EventSettings.from_options(parse("sqlserver", SOURCE), "run")
    table = replace(described.table, key=("n",), own=("id",))
    source = TaskSource(dialect, settings, Retries(0, 0.0), 0)
    copy: dict[str, str] = {}
    for batch in change_batches(source, [Part("db", span, table)]):
        for rows in to_rows(batch, settings, FORM):
            for value in rows["value"]:
                for row in read(value.as_py()).to_pylist():
                    if row["op"] == "d":
                        copy.pop(row["c1"], None)
                    else:
                        copy[row["c1"]] = row["c0"]
    assert copy == {"1": "0", "2": "1", "3": "2", "4": "3"}


def test_the_changes_of_another_table_with_the_same_topic_do_not_part_rows_that_hand_on_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    close_idle()
    monkeypatch.setattr(loading, "form", lambda connector: FORM)
    server = Server("moved", fetch=100)
    server.table("dbo.t", ("id", "n"), ("id",))
    server.table("dbo.o", ("id", "n"), ("id",))
    server.commit(*(("dbo.t", "c", None, (str(number), str(number))) for number in range(4)))
    work = []
    for number in range(4):
        work.append(("dbo.t", "u", (str(number), str(number)), (str(number), str(number + 1))))
        work.append(("dbo.o", "c", None, (str(number), str(number))))
    last = server.commit(*work)
    dialect = MemoryDialect(server.name)
    settings = EventSettings.from_options(parse("sqlserver", SOURCE), "run")
    parts = []
    session = dialect.connect("db")
    for one in session.describe(session.captures()):
        eras = CaptureHistory().with_(CapturePeriod(one.capture, one.table, one.capture.start))
        (span,) = eras.spans(bytes(10), at(last))
        is_moved = one.table.id.table == "t"
        parts.append(Part("db", span, replace(one.table, key=("n",), own=("id",)) if is_moved else one.table))
    copy: dict[str, dict[str, str]] = {"t": {}, "o": {}}
    for rows in LogTask(TaskSource(dialect, settings, Retries(0, 0.0), 0), (tuple(parts),)).read():
        for key, value in zip(rows["key"], rows["value"], strict=True):
            own = copy[Head.of(key.as_py()).table]
            for row in read(value.as_py()).to_pylist():
                if row["op"] == "d":
                    own.pop(row["c1"], None)
                else:
                    own[row["c1"]] = row["c0"]
    assert copy == {"t": {"1": "0", "2": "1", "3": "2", "4": "3"}, "o": {"0": "0", "1": "1", "2": "2", "3": "3"}}
