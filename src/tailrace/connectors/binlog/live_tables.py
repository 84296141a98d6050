"""Tables added to a pipeline while it runs: the listing of all tables, and the checks and definitions of new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.config import Config, TableFilter
from tailrace.connectors.binlog.dialect import MYSQL
from tailrace.connectors.binlog.log.form import form_of
from tailrace.connectors.binlog.log.identity import identify
from tailrace.connectors.binlog.log.position import START, BinlogPosition, number_of
from tailrace.connectors.binlog.log.statements import LogEnd
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.catalog import quoted
from tailrace.connectors.binlog.schema.ddl.tokens import Unparsable
from tailrace.connectors.binlog.schema.definition import Name, TableDefinition
from tailrace.connectors.binlog.schema.definitions import State, effect_on
from tailrace.connectors.binlog.schema.statement import Statement
from tailrace.connectors.binlog.schema.tables import schema_of
from tailrace.connectors.binlog.server.connection import connect, dialect_of, rows
from tailrace.connectors.binlog.server.errors import explained
from tailrace.connectors.binlog.server.errors import number_of as code_of
from tailrace.connectors.binlog.server.errors import refused as failure_of
from tailrace.connectors.binlog.setup.prerequisites import unlogged
from tailrace.connectors.binlog.setup.rights import DENIED
from tailrace.connectors.findings import value_findings
from tailrace.connectors.guardrail import guard_number
from tailrace.errors import ConfigError, ConnectionFailed, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.snapshot.table_states import listing

if TYPE_CHECKING:
    from pymysql.connections import Connection

MOST_LOG_BYTES = 128 << 20
"""The most bytes of log that are searched for statements: the pipeline waits some seconds for the search."""
_GONE = (1146, 1049, 1051, 1356)
"""The server's error codes for a table or a database that does not exist."""


@explained
def listed(config: Config, offset: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return each table with its state; see descriptor.Listing. Driver."""
    known = BinlogOffset() if offset is None else BinlogOffset.from_json(dict(offset))
    with closing(connect(config)) as session:
        there = catalog.listed_names(catalog.names(session))

    def captured(chosen: TableFilter) -> list[Name]:
        return [name for name in there if chosen.includes(*name)]

    return listing(config, known.progress, captured, known.late)


class AddedTables:
    """Checks tables that a signal adds, and finds their definitions at the end of the signal's batch. Planner.

    Definitions come from the reader of the log if it knows them. Otherwise they are read from the catalog, which shows
    their current state: a table is refused if the log after the batch alters it.

    - `connect` returns the planner's session, `admit` a schema with the key of its events.
    - `between` returns the statements of the log between two places, None if it cannot find them.
    - `is_folded` returns True if the log has all names in lower case.
    - `count` returns the number of tables that are captured without those of the signal.
    - `writes` is True if incremental snapshots write watermarks.
    """

    def __init__(
        self,
        config: Config,
        settings: EventSettings,
        connect: Callable[[], Connection[Any]],
        admit: Callable[[TableSchema], TableSchema],
        between: Callable[[LogEnd, LogEnd], Sequence[Statement] | None],
        is_folded: Callable[[], bool],
        count: Callable[[], int],
        *,
        writes: bool,
    ) -> None:
        self._config, self._settings, self._dialect = config, settings, dialect_of(config)
        self._connect, self._admit, self._between, self._is_folded = connect, admit, between, is_folded
        self._writes, self._count = writes, count
        # the tables that signals of the batch have added
        self._accepted: set[Name] = set()
        # the end of the batch whose signals are handled, and the definitions there
        self._end, self._known = START, State()
        # the definitions from the catalog, and the place up to which the log does not alter them
        self._shown: dict[Name, TableDefinition] = {}
        self._upto: LogEnd = ("", 0)

    def begin(self, end: BinlogPosition, known: State) -> None:
        """Set the end of the next batch, and the definitions there."""
        self._end, self._known = end, known
        self._shown, self._accepted = {}, set()

    def every(self) -> list[Name]:
        """Return the tables of the server that may be captured, in the order of their names."""
        return catalog.listed_names(catalog.names(self._connect()))

    def prepared(self, added: Sequence[Name]) -> dict[Name, str]:
        """Return the reason for each table that cannot be captured from the end of the batch on."""
        session = self._connect()
        refused = {name: why for name in added if (why := self._unfit(session, name))}
        known, doubtful = self._known.tables, self._known.doubtful
        unknown = [name for name in added if name not in refused and (name not in known or name in doubtful)]
        refused |= self._look_up(session, unknown) if unknown else {}
        for name in added:
            if name in refused:
                continue
            try:
                guard_number(self._config, self._count() + len(self._accepted | {name}))
            except ConfigError as error:
                refused[name] = str(error)
                self._shown.pop(name, None)
            else:
                self._accepted.add(name)
        return refused

    def _unfit(self, session: Connection[Any], name: Name) -> str:
        """Return the reason why a table cannot be captured or copied; "" if it can."""
        import pymysql

        if self._is_folded() and name != (name[0].lower(), name[1].lower()):
            return "the log has names in lower case alone (lower_case_table_names): rename it."
        if not self._writes and self._dialect is MYSQL and not (self._end.gtids or self._end.gtid):
            return (
                "without GTIDs its rows cannot be read beside the stream: set gtid_mode=ON, or name a signal table in "
                "signal.data.collection and leave read.only out."
            )
        try:
            found = catalog.created(session, [name], self._dialect).get(name)
            if found is not None:
                rows(session, f"SELECT 1 FROM {quoted(*name)} LIMIT 0")
        except Unparsable as fault:
            return f"its definition is not understood: {fault.what}."
        except pymysql.err.Error as error:
            if code_of(error) in DENIED:
                return f"the user may not read it: GRANT SELECT ON {quoted(*name)} TO the user."
            if code_of(error) not in _GONE:
                reason = failure_of(error)
                if isinstance(reason, ConnectionFailed):
                    raise
                return str(reason)
            found = None
        if found is None:
            return "it is gone."
        try:
            table = self._admit(schema_of(found.table))
        except TailraceError as error:
            return str(error)
        if self._settings.copies and not table.key:
            return (
                "a copy tells rows apart by their keys, and it has none: give it a primary key, or name columns in "
                "message.key.columns."
            )
        findings = [*value_findings(self._settings, form_of(self._dialect), [table]), *unlogged(session, [name[0]])]
        return " ".join(f"{one.text} {one.remedy}" for one in findings if one.level == "error")

    def _look_up(self, session: Connection[Any], unknown: Sequence[Name]) -> dict[Name, str]:
        """Find the definitions of tables at the end of the batch. Return the reason for each that cannot be
        determined."""
        shown = catalog.created(session, unknown, self._dialect)
        server, end = identify(session), self._end
        if end.server and end.server != server.uuid:
            return dict.fromkeys(
                unknown, "the server was replaced, and its log is not read yet: send the signal again."
            )
        begin = end.file, end.end if end.consumed is None else end.start
        upto = max(begin, (server.file, server.end), key=_order)
        if _length(session, begin, upto) > MOST_LOG_BYTES:
            return dict.fromkeys(
                unknown,
                f"the {MOST_LOG_BYTES >> 20} MiB of log and more that are still to be read may alter it, and cannot be "
                "searched meanwhile: send the signal again when the pipeline has caught up.",
            )
        statements = self._between(begin, upto)
        refused: dict[Name, str] = {}
        for name in unknown:
            effects = [] if statements is None else [effect_on(name, one, self._dialect) for one in statements]
            effect = next(filter(None, effects), "") if statements is not None else "altered"
            if effect == "altered" or (not effect and name not in shown):
                refused[name] = "the log that is still to be read may alter it: send the signal again."
            elif not effect:
                self._shown[name] = shown[name].table
            # a table that the log creates is also defined there
        self._upto = upto
        return refused

    def defined(self, state: State, end: BinlogPosition) -> State:
        """Return the definitions at the end of the batch, together with those of its new tables.

        Raises ConnectionFailed if the log has altered one of the new tables meanwhile.
        """
        place = end.file, end.end
        if self._shown and _order(place) > _order(self._upto):
            statements = self._between(self._upto, place)
            if statements is None or any(
                effect_on(name, one, self._dialect) for name in self._shown for one in statements
            ):
                raise ConnectionFailed(
                    "Tables were altered while a signal added them.", "Start again when that is over."
                )
        for table in self._shown.values():
            state = state.with_learned(table)
        return state


def _length(session: Connection[Any], begin: LogEnd, end: LogEnd) -> int:
    """Return the number of bytes between two places of the server's log."""
    first, last = number_of(begin[0]), number_of(end[0])
    files = {number_of(str(row[0])): int(row[1]) for row in rows(session, "SHOW BINARY LOGS")}
    return end[1] - begin[1] + sum(size for number, size in files.items() if first <= number < last)


def _order(place: LogEnd) -> tuple[int, int]:
    return number_of(place[0]), place[1]
