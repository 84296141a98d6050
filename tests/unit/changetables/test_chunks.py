"""After a lost connection, the read of a snapshot chunk continues where its key shows that it stopped."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns.blocks import Head
from tailrace.columns.blocks import read as read_block
from tailrace.columns.table import TableSchema
from tailrace.connectors.changetables.dialect import KeyRange
from tailrace.connectors.changetables.log.sessions import Retries
from tailrace.connectors.changetables.log.tasks import SnapshotTask, TaskSource
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError, StatementCutOff, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.snapshot.plan import Chunk, PlannedTable
from tests.unit.changetables.driving import OPTIONS
from tests.unit.changetables.memory import MemoryDialect, MemorySession, Server


def made(server: Server, *, key: bool = True, statement: str | None = None, retries: int = -1) -> SnapshotTask:
    server.table("dbo.t", ("id", "v"), ("id",))
    for number in range(7):
        server.commit(("dbo.t", "c", None, (str(number), f"v{number}")))
    session = MemoryDialect(server.name).connect("db")
    schema: TableSchema = session.describe(session.captures())[0].table
    settings = EventSettings.from_options(parse("sqlserver", OPTIONS), "run")
    source = TaskSource(MemoryDialect(server.name), settings, Retries(retries, 0.001), 0)
    chunk = Chunk(0, PlannedTable("dbo", "t", 1), 0, None, True, True, True, True)
    rows = KeyRange(("id",)) if key else KeyRange()
    return SnapshotTask(source, "db", schema, chunk, rows, statement, bytes(10), 0)


def read(task: SnapshotTask) -> list[str]:
    return [text.decode() for columns in task._rows() for text in columns[0].to_pylist()]


EVERY = [str(number) for number in range(7)]


@pytest.mark.parametrize("failing", [(), (0,), (1,), (2,), (0, 0, 1), (1, 0, 1), (2, 0, 0)])
def test_no_row_is_lost_and_none_comes_twice(failing: tuple[int, ...]) -> None:
    server = Server("db", fetch=3, failing_rows=failing)
    assert read(made(server)) == EVERY
    assert server.failing_rows == ()
    assert server.calls["rows"] == 1 + len(failing)


@pytest.mark.parametrize("failing", [(1,), (2,), (1, 2)])
def test_no_row_is_lost_where_rows_share_a_key(failing: tuple[int, ...]) -> None:
    """A capture table may have only a part of the key of its table."""
    server = Server("db", fetch=2, failing_rows=failing)
    task = replace(made(server), shared=True, rows=KeyRange(("v",)))
    rows = server.tables["dbo.t"].rows
    rows.update({key: (row[0], "same") for key, row in rows.items()})
    found = read(task)
    assert set(found) == set(EVERY)
    assert found[-len(EVERY) :] == EVERY
    with pytest.raises(ConnectionFailed, match="lost at fetch"):
        read(made_again(server, task, (1, 1)))


def made_again(server: Server, task: SnapshotTask, failing: tuple[int, ...]) -> SnapshotTask:
    """Return the task with one retry, on a server that fails at `failing`."""
    server.failing_rows = failing
    return replace(task, source=replace(task.source, retries=Retries(1, 0.001)))


def test_without_a_key_only_the_first_fetch_is_tried_again() -> None:
    assert read(made(Server("db", fetch=3, failing_rows=(0, 0)), key=False)) == EVERY
    task = made(Server("db", fetch=3, failing_rows=(1,)), key=False)
    with pytest.raises(ConnectionFailed, match=r"Reading dbo\.t for the snapshot failed") as caught:
        read(task)
    assert "the chunks that are done are not read again" in caught.value.remedy


def test_rows_of_a_statement_have_no_order_to_go_on_in() -> None:
    with pytest.raises(ConnectionFailed, match=r"Reading dbo\.t"):
        read(made(Server("db", fetch=3, failing_rows=(1,)), statement="select 1"))


def test_tries_are_counted_from_the_last_row_that_came() -> None:
    assert read(made(Server("db", fetch=3, failing_rows=(1, 1)), retries=1)) == EVERY
    with pytest.raises(ConnectionFailed, match="lost at fetch"):
        read(made(Server("db", fetch=3, failing_rows=(1, 0)), retries=1))


def fails(monkeypatch: pytest.MonkeyPatch, error: TailraceError) -> None:
    """Let the user's statements fail after their first rows, as a division by zero does."""
    whole = MemorySession.rows

    def rows(self: MemorySession, table: TableSchema, bounds: KeyRange, statement: str | None = None) -> Iterator[Any]:
        yield next(whole(self, table, bounds, statement))
        if statement is not None:
            raise error

    monkeypatch.setattr(MemorySession, "rows", rows)


@pytest.mark.parametrize("kind", [ConfigError, PrerequisiteError, StatementCutOff, TailraceError])
def test_a_failing_statement_of_a_signal_is_told_and_gone_on_from(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type[TailraceError]
) -> None:
    fails(monkeypatch, kind("The statement fails.", "Correct the statement."))
    task = replace(made(Server("db", fetch=3), statement="select 1 / 0"), asked=True)
    # In the first run, and when the batch is replayed.
    assert [read(task), read(task)] == [EVERY[:3]] * 2
    line = f"the statement of a signal for dbo.t fails ({kind.__name__}): the other rows are left out."
    assert [message.startswith(line) for message in caplog.messages] == [True] * 2
    # A statement of the configuration must be corrected there.
    with pytest.raises(TailraceError):
        read(replace(task, asked=False))


@pytest.mark.parametrize("key", [True, False])
def test_a_row_that_moves_while_it_is_read_is_no_row_of_its_own(monkeypatch: pytest.MonkeyPatch, key: bool) -> None:
    """Under read_committed a scan may find a row again at its new place: in key order directly after it, here in the
    next fetch."""
    whole = MemorySession.rows

    def rows(self: MemorySession, table: TableSchema, bounds: KeyRange, statement: str | None = None) -> Iterator[Any]:
        found = list(whole(self, table, bounds, statement))
        yield found[0]
        for before, columns in itertools.pairwise(found):
            yield [pa.concat_arrays([other[-1:], own]) for other, own in zip(before, columns, strict=True)]

    monkeypatch.setattr(MemorySession, "rows", rows)
    task = replace(made(Server("db", fetch=3), key=key), moving=True)
    settings = EventSettings.from_options(parse("sqlserver", {**OPTIONS, "row.blocks": "last"}), "run")
    found = list(replace(task, source=replace(task.source, settings=settings)).read())
    heads = [Head.of(block["key"][0].as_py()) for block in found]
    given = [row["c0"] for block in found for row in read_block(block["value"][0].as_py()).to_pylist()]
    assert len(given) == (len(EVERY) if key else len(EVERY) + 2)
    # Without an order, rows may repeat, so these blocks must not be appended without a merge.
    assert all(bool(head.snapshot) == key for head in heads)
    # Events are Debezium's, which shows the row twice.
    assert sum(len(block) for block in task.read()) == len(EVERY) + 2
