"""Incremental: what the planner does for signals and incremental snapshots, beside reading the log. Planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.log.identity import waiting
from tailrace.connectors.postgres.log.visible import Streamed
from tailrace.connectors.postgres.protocol.position import FlushedLsn
from tailrace.connectors.postgres.snapshot.reconcile import superseded
from tailrace.connectors.postgres.snapshot.windows import Changes, Chunk, Exported, PostgresWindows, Read
from tailrace.runtime import Runtime
from tailrace.snapshot.conditions import refusal
from tailrace.snapshot.pace import BatchPace
from tailrace.snapshot.windows import Windows

if TYPE_CHECKING:
    import psycopg


class Incremental(Windows[int, Exported, Chunk, FlushedLsn, Changes, Read]):
    """Signals and windows of one query over a PostgreSQL database. Planner, its main thread.

    `captured` lists the tables that may be read; see PostgresWindows for the rest.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        legacy: bool,
        parallelism: int,
        connect: Callable[[], psycopg.Connection[Any]],
        captured: Callable[[], Sequence[tuple[str, str]]],
        is_captured: Callable[[str, str], bool],
        admit: Callable[[TableSchema], TableSchema],
        comments: bool,
        runtime: Runtime,
    ) -> None:
        source = PostgresWindows(
            config,
            parallelism=parallelism,
            connect=connect,
            list_captured=captured,
            is_captured=is_captured,
            admit=admit,
            comments=comments,
            runtime=runtime,
        )
        pace = BatchPace(
            config["incremental.snapshot.window.chunks"],
            parallelism,
            config["incremental.snapshot.chunk.size"],
            config["poll.dispatch.interval.ms"] / 1000,
        )
        writes = source.signal_table is not None and not config["read.only"]
        super().__init__(config, source, pace, refusal(config), writes=writes, legacy=legacy, runtime=runtime)
        # With one chunk in each, batches end with their windows, so that events come as from Debezium.
        self.opens_ahead = config["incremental.snapshot.window.chunks"] != 1
        self.streamed: Streamed = source.streamed

    def follow(self, control: psycopg.Connection[Any]) -> None:
        """The log is going to be read: its transactions that wait for a standby may have been streamed before.

        Who waits is shown to members of pg_read_all_stats alone. Others take every running transaction for one that
        waits, where the server has standbys to wait for: the first window then comes when these have ended.
        """
        found = np.array(waiting(control), np.int64)
        if len(found):
            self.streamed.add(found, np.zeros(len(found), np.int64))

    def rehearse(self, changes: Changes) -> None:
        """Do with the first changes of the log, on a thread, what windows need: the first signal and the first window
        would wait for compiled kernels and modules otherwise, a third of a second each. Should it fail, they tell."""
        self._helper.submit(_rehearse, replace(changes, versions=list(changes.versions)))

    @staticmethod
    def spread(reads: Sequence[Read], count: int) -> list[tuple[Read, ...]]:
        """The chunks over at most `count` tasks; neighbours in one task are read by one query."""
        count = min(count, len(reads))
        parts = [reads[len(reads) * part // count : len(reads) * (part + 1) // count] for part in range(count)]
        return [tuple(_joined(part)) for part in parts]


def _rehearse(changes: Changes) -> None:
    for table in changes.versions:
        found = changes.of(table)
        if table.key and found:
            superseded(table, table.key, found, lambda batch: np.zeros(len(batch), np.bool_))
            return


def _joined(reads: Sequence[Read]) -> list[Read]:
    """The same rows with neighbouring chunks of a table as one."""
    found: list[Read] = []
    for read in reads:
        last = found[-1] if found else None
        if last is not None and last.table is read.table and last.chunk.upto == read.chunk.after:
            chunk = replace(last.chunk, upto=read.chunk.upto, rows=last.chunk.rows + read.chunk.rows)
            found[-1] = replace(last, chunk=chunk)
        else:
            found.append(read)
    return found
