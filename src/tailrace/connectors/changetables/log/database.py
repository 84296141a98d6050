"""Database: the planner's view of one database: its newest position, and its change tables. Planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.changetables.capture_history import CaptureHistory, CapturePeriod, PeriodPart, begun_by
from tailrace.connectors.changetables.dialect import CaptureTable, Dialect, Position, Session, ordering
from tailrace.connectors.changetables.log.sessions import lost
from tailrace.connectors.changetables.offset import DatabaseProgress
from tailrace.connectors.changetables.position import Newest, Read, following, from_start, read_to
from tailrace.errors import ConnectionFailed, PositionLost, TailraceError

log = logging.getLogger("tailrace")

# The most transactions of a batch, unless max.iteration.transactions is set.
TRANSACTIONS = 100_000
# Most tables that a warning names.
NAMED = 20


class Database:
    """A source database as the planner reads it.

    `includes` returns True for a captured table, `admit` checks each new schema. `reads` is True if a snapshot reads
    the tables that exist at the start. Every method raises TailraceError; after ConnectionFailed, `lose` ends the
    session, and the next call opens a new one.
    """

    def __init__(
        self,
        dialect: Dialect,
        name: str,
        includes: Callable[[TableId], bool],
        admit: Callable[[TableSchema], TableSchema],
        transactions: int,
        *,
        reads: bool = True,
    ) -> None:
        self._reads = reads
        self.name = name
        self._dialect = dialect
        self._includes = includes
        self._admit = admit
        self._transactions = transactions or TRANSACTIONS
        self._session: Session | None = None
        self.was_connected = False
        self._warned: set[str] = set()
        # tables with a warning that they are captured late; change tables that were logged
        self._late: set[TableId] = set()
        self._named: set[tuple[str, int]] = set()
        self._lineage: str | None = None
        # numbers of rows by span, so that no batch is counted twice
        self._totals: dict[tuple[str, int, Position, Position], int] = {}
        self._empty: tuple[Position, Position] | None = None

    @property
    def pairs(self) -> bool:
        """True if updates may be pairs; see Dialect."""
        return self._dialect.pairs

    def ordering(self, table: TableSchema) -> tuple[str, ...]:
        """Return the key by whose ranges the table is read, () if there is none; see `dialect.ordering`."""
        return ordering(table, table.key, self._dialect.unordered)

    @property
    def session(self) -> Session:
        """The planner's own session, opened at its first use."""
        if self._session is None:
            self._session = self._dialect.connect(self.name)
            self.was_connected = True
        return self._session

    def lose(self) -> None:
        """Drop the session and the facts that it has read: the next session may connect to another server."""
        if self._session is not None:
            self._session.close()
            self._session = None
        self._totals.clear()
        self._empty = None

    # --- which change tables -----------------------------------------------------------------------------------------

    def begin(self) -> DatabaseProgress:
        """Return the start of a query without checkpoint: the newest position, and the change tables at it.

        A server that has captured nothing yet is read from its beginning.
        """
        self.session.check()
        newest = self.session.newest()
        if newest is None:
            log.warning(
                "%s has captured nothing yet: its newest position is unknown; is the capture process running?",
                self.name,
            )
        position = from_start(self._dialect.width) if newest is None else read_to(newest)
        groups = self._captured()
        chosen = []
        for table in sorted(groups):
            current = begun_by(groups[table], position)
            chosen.append(current)
            chosen += [one for one in groups[table] if one.start > max(position, current.start)]
        eras = self._with(CaptureHistory(), chosen)
        self._warn_of_uncaptured(set(groups))
        return DatabaseProgress(position, eras)

    @property
    def lineage(self) -> str:
        """The result of `Session.lineage` at the start, "" if it fails."""
        if self._lineage is None:
            try:
                self._lineage = self.session.lineage()
            except ConnectionFailed:
                raise
            except TailraceError:
                self._lineage = ""
        return self._lineage

    def resume(self, reached: DatabaseProgress, lineage: str = "") -> str:
        """Check a checkpoint at a start. Return a sentence on lost changes; "" if nothing is lost.

        `lineage` is the lineage of the database at the checkpoint, "" if unknown.
        """
        self.session.check()
        if lineage and self.lineage and lineage != self.lineage:
            self._warn_once(
                f"the database {self.name} was restored, or a failover lost changes of it, after the checkpoint: "
                "copies keep changes that it no longer has; remedy: tailrace verify --repair, "
                "or a new checkpoint"
            )
        try:
            newest = self.session.newest()
            if newest is not None and newest < reached.position:
                return self._restored().message
            eras = self._observed(reached, newest if newest is not None else reached.position)
            upto = max(newest or reached.position, following(reached.position))
            for span in eras.spans(reached.position, upto):
                if self.session.oldest(span.era.capture) > following(span.after):
                    raise lost(span)
        except PositionLost as error:
            return error.message
        self._warn_of_uncaptured({era.table.id for era in eras.latest()})
        return ""

    def observe(self, reached: DatabaseProgress) -> tuple[Newest | None, CaptureHistory]:
        """Return the newest position, and the change tables up to it; None and the change tables of `reached` if
        nothing is newer.

        The position is queried first, so that every change table that begins at or before it is found afterwards.
        """
        newest = self.session.newest()
        if newest is not None and newest < reached.position:
            raise self._restored()
        if newest is None or newest <= reached.position:
            return None, reached.eras
        return newest, self._observed(reached, newest)

    def verify(self, spans: Sequence[PeriodPart], upto: Position) -> None:
        """Raise PositionLost unless all rows of `spans`, which end at `upto` or before, still exist.

        Called after the rows were counted. A clean-up moves the start of a change table before it deletes rows. Rows
        after the present start therefore existed when they were counted.
        """
        newest = self.session.newest()
        if newest is not None and newest < upto:
            raise self._restored()
        starts = self.session.starts() if spans else {}
        for span in spans:
            self._check(span, starts.get((span.era.capture.name, span.era.capture.object_id)))

    def _restored(self) -> PositionLost:
        return PositionLost(
            f"The newest position of {self.name} is before the one that was read: the database was restored, "
            "capture was set up again, or another server answers that is behind.",
            "Start again with the same checkpoint when the server has caught up; if it never will, with a new "
            "checkpoint, or with snapshot.mode=when_needed, which takes a new snapshot.",
        )

    def _observed(self, reached: DatabaseProgress, newest: Position) -> CaptureHistory:
        """Return the change tables up to `newest`. Raises PositionLost if one is gone, or was cleaned up before it was
        read."""
        captures = self.session.captures()
        groups = self._groups(captures)
        eras = self._still_named(reached.eras.after(reached.position), captures)
        fresh = []
        for table in sorted(groups):
            known = eras.of(table)
            if not known:
                self._warn_of_late(groups[table])
                fresh += groups[table]
                continue
            seen = {(era.capture.name, era.capture.object_id) for era in known}
            last = known[-1].capture
            fresh += [
                one
                for one in groups[table]
                if (one.name, one.object_id) not in seen and (one.start, one.created_us) > (last.start, last.created_us)
            ]
            fresh += [one for one in groups[table] if _is_altered(one, last)]
        for one in fresh:
            if (one.name, one.object_id) not in self._named:
                self._named.add((one.name, one.object_id))
                log.info("%s is captured by %s from %s on", one.source, one.name, one.start.hex())
        eras = self._with(eras, fresh)
        starts = {(one.name, one.object_id): one.start for captures in groups.values() for one in captures}
        for span in eras.spans(reached.position, newest):
            self._check(span, starts.get((span.era.capture.name, span.era.capture.object_id)))
        return eras.noting(starts, reached.position)

    def _still_named(self, eras: CaptureHistory, captures: Sequence[CaptureTable]) -> CaptureHistory:
        """Return the eras of tables that still have their names.

        A change table follows its table when it is renamed: the old name gets no further changes, and the lists decide
        on the new name.
        """
        names = {(one.name, one.object_id): one.source for one in captures if one.object_id}
        gone = set()
        for era in eras.latest():
            was, now = era.table.id, names.get((era.capture.name, era.capture.object_id))
            if now is None or now == era.capture.source:
                continue
            gone.add(was)
            self._warn_once(
                f"{was} is called {now} now: the copy of the old name gets no further changes; remedy: "
                + (
                    f"remove that copy, and read {now} by a snapshot (signal execute-snapshot)"
                    if self._includes(now)
                    else f"rename it back, or let the lists capture {now}"
                )
            )
        return eras.without(gone) if gone else eras

    def _warn_of_late(self, captures: Sequence[CaptureTable]) -> None:
        """Warn of a table that is captured only after the start, if it has rows."""
        table = captures[0].source
        # keyed by table: a clean-up moves the start, which would change the sentence
        if self._reads and table not in self._late and self._has_rows(table):
            self._late.add(table)
            self._warn_once(
                f"{table} is captured from {captures[0].start.hex()} on, and the log does not bring rows that it had "
                "before; remedy: read it by a snapshot (signal execute-snapshot)"
            )

    def _has_rows(self, table: TableId) -> bool:
        """Return True if the table has rows, or may not be read."""
        try:
            return not self.session.is_empty(table)
        except ConnectionFailed:
            raise
        except TailraceError:
            return True

    @staticmethod
    def _check(span: PeriodPart, start: Position | None) -> None:
        """Raise PositionLost if rows of `span` are gone. `start` is the change table's present start, None if it is
        gone."""
        if start is None:
            capture = span.era.capture
            raise PositionLost(
                f"The change table {capture.name} of {capture.source} is gone, and its changes behind the position "
                f"{span.after.hex()} with it.",
                "Leave the table out by table.exclude.list, or start again with a new checkpoint, or with "
                "snapshot.mode=when_needed, which takes a new snapshot. To change what is captured, make the new "
                "capture table first, and drop the old one when the pipeline has read beyond the new one's start.",
            )
        # A change table without a start (zeros) may get one later, though nothing was cleaned up.
        is_known = any(span.era.capture.start)
        if is_known and not any(start):
            capture = span.era.capture
            raise PositionLost(
                f"The capture of {capture.source} was ended, and perhaps begun again: changes in between are lost.",
                "Start again with a new checkpoint, or with snapshot.mode=when_needed, which takes a new snapshot.",
            )
        if is_known and start > following(span.after) and start > span.era.since:
            raise lost(span)

    def _captured(self) -> dict[TableId, list[CaptureTable]]:
        """Return the change tables of the captured tables, older before newer."""
        return self._groups(self.session.captures())

    def _groups(self, found: Sequence[CaptureTable]) -> dict[TableId, list[CaptureTable]]:
        groups: dict[TableId, list[CaptureTable]] = {}
        for capture in found:
            if self._includes(capture.source):
                groups.setdefault(capture.source, []).append(capture)
        for captures in groups.values():
            captures.sort(key=lambda one: (one.start, one.created_us))
        return groups

    def _with(self, eras: CaptureHistory, captures: Sequence[CaptureTable]) -> CaptureHistory:
        if not captures:
            return eras
        for described in self.session.describe(captures):
            self._admit(described.table)
            older = eras.of(described.capture.source)
            # of two change tables that begin at one position the newer one comes last
            since = max(described.capture.start, following(older[-1].since)) if older else described.capture.start
            eras = eras.with_(CapturePeriod(described.capture, described.table, since))
        return eras

    def _warn_of_uncaptured(self, captured: set[TableId]) -> None:
        """Warn of included tables without a change table, and if no table is captured."""
        if not captured:
            self._warn_once(f"no table of {self.name} that the lists include has a change table: nothing is captured")
        bare = [str(table) for table in self.session.tables() if table not in captured and self._includes(table)]
        if bare:
            more = f" and {len(bare) - NAMED} more" if len(bare) > NAMED else ""
            self._warn_once(
                f"tables of {self.name} without a change table, whose changes are not captured: "
                f"{', '.join(bare[:NAMED])}{more}. Enable capture for them, or leave them out by table.exclude.list."
            )

    def warn(self, eras: CaptureHistory) -> None:
        """Log the server's warnings, and the columns that were altered, each sentence once."""
        latest = eras.latest()
        for sentence in self.session.warnings([era.capture for era in latest]):
            self._warn_once(sentence)
        there = {(one.name, one.object_id): one for one in self.session.captures()}
        found = [(era, there.get((era.capture.name, era.capture.object_id))) for era in latest]
        present = [era for era, one in found if one is not None and not _is_altered(one, era.capture)]
        for era, now in zip(present, self.session.describe([era.capture for era in present]), strict=True):
            for was, column in zip(era.table.columns, now.table.columns, strict=True):
                if (was.type_name, was.modifier) != (column.type_name, column.modifier):
                    self._warn_once(
                        f"the column {was.name} of {era.table.id} has another type than when its capture began: values "
                        f"are read as {was.type_name} still, and rows that the alteration changed may be old; remedy: "
                        "a new change table, then a snapshot (signal execute-snapshot)"
                    )

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            log.warning("%s", sentence)

    # --- how far a batch goes ----------------------------------------------------------------------------------------

    def limit(
        self, after: Read, newest: Newest, eras: CaptureHistory, max_rows: int | None, *, wholly: bool = False
    ) -> tuple[Read, int]:
        """Return the end of the batch after `after`, at most `newest`, and the number of its rows.

        A batch ends at the end of a transaction. It has as many transactions as the options allow, at least one.
        Transactions without rows are skipped in steps of the same size. A call takes one step, so that it is short;
        with `wholly` it takes all steps.
        """
        low: Position = self._empty[1] if self._empty is not None and self._empty[0] == after else after
        while True:
            nth = self.session.nth(low, self._transactions)
            upto = read_to(newest) if nth is None else read_to(newest, nth)
            if low >= upto:
                return upto, 0
            rows = sum(self.total(span) for span in eras.spans(low, upto))
            if rows:
                break
            self._empty = (after, upto)
            if not wholly:
                return upto, 0
            low = upto
        if max_rows is not None and rows > max_rows:
            last, rows = self._cut(eras, low, upto, max_rows)
            upto = read_to(newest, last)
        return upto, rows

    def _cut(self, eras: CaptureHistory, after: Position, upto: Position, max_rows: int) -> tuple[Position, int]:
        counts: dict[Position, int] = {}
        for span in eras.spans(after, upto):
            for position, rows in self.session.counts(span.era.capture, span.after, span.upto):
                counts[position] = counts.get(position, 0) + rows
        found, total = upto, 0
        for position in sorted(counts):
            if total and total + counts[position] > max_rows:
                break
            found, total = position, total + counts[position]
        return found, total

    def total(self, span: PeriodPart) -> int:
        """Return the number of rows of a span."""
        capture = span.era.capture
        name = (capture.name, capture.object_id, span.after, span.upto)
        if name not in self._totals:
            if len(self._totals) > 4096:
                self._totals.clear()
            self._totals[name] = self.session.total(capture, span.after, span.upto)
        return self._totals[name]


def _is_altered(now: CaptureTable, before: CaptureTable) -> bool:
    """Return True if a change table has other columns than before: it was altered, or recreated with the same name.

    Only for databases without object ids, which would identify a recreated table.
    """
    return not now.object_id and now.name == before.name and set(now.columns) != set(before.columns)
