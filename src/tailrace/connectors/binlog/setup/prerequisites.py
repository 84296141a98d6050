"""The prerequisites of MySQL and MariaDB for capture, checked one by one. Driver; only reads.

`check` returns the findings. `demand`, at the start of a pipeline, raises the errors among them as one exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.config import Config, TableFilter
from tailrace.config.files import checkpoint_directory
from tailrace.config.filters import table_name
from tailrace.config.rows import keeps_copies
from tailrace.connectors import advice, findings
from tailrace.connectors.binlog.dialect import MYSQL
from tailrace.connectors.binlog.log.form import form_of
from tailrace.connectors.binlog.log.identity import IN_FILES, counts_alone, in_engine
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.catalog import ListedTable, quoted
from tailrace.connectors.binlog.schema.ddl.tokens import Unparsable
from tailrace.connectors.binlog.schema.tables import schema_of, table_id
from tailrace.connectors.binlog.server.connection import connect, dialect_of, rows, variables
from tailrace.connectors.binlog.server.errors import explained, number_of
from tailrace.connectors.binlog.setup import coverage
from tailrace.connectors.binlog.setup.rights import DENIED, log_rights
from tailrace.connectors.checkpoint import stored_offset, table_filter
from tailrace.connectors.findings import Finding, demanded, listed, unmatched
from tailrace.errors import ConfigError, PositionLost, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.snapshot.mode import snapshot_mode

if TYPE_CHECKING:
    from pymysql.connections import Connection

CHECKPOINT = "checkpoint"
_VARIABLES = (
    "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "server_id", "gtid_mode",
    "log_slave_updates", "log_replica_updates", "binlog_expire_logs_seconds", "expire_logs_days",
    "binlog_rows_query_log_events", "binlog_annotate_row_events", "innodb_autoinc_lock_mode", "wsrep_on",
    "wsrep_gtid_mode", "binlog_storage_engine",
)  # fmt: skip
_DAY = 86_400


def check(config: Config) -> list[Finding]:
    """Return all findings, in the order of the checks, followed by advice.

    Raises ConnectionFailed or PrerequisiteError if it cannot connect.
    """
    with closing(connect(config)) as session:
        inspection = _Inspection(config, session)
        return [*inspection.run(), *inspection.values(), *explained(_encryption)(config, session)]


def demand(config: Config) -> list[Finding]:
    """Return the findings without the advice. If some are errors, raises PrerequisiteError with all of them.

    Findings on the checkpoint are left out, since the planner raises PositionLost for lost changes. Raises ConfigError
    if the lists contradict the commands in the checkpoint.
    """
    table_filter(config)
    with closing(connect(config)) as session:
        found = _Inspection(config, session).run()
    return demanded([finding for finding in found if finding.subject != CHECKPOINT])


def unmatched_lists(config: Config, there: Sequence[ListedTable], *, is_fresh: bool) -> Finding | None:
    """Return the finding for include lists that match none of the server's tables; None if they match."""
    chosen = TableFilter(config)
    if any(chosen.lists(*one.id) for one in there):
        return None
    return unmatched(config, map(_shown, there), is_fresh=is_fresh)


def misspelt(config: Config, session: Connection[Any], there: Sequence[ListedTable]) -> Iterator[Finding]:
    """Yield errors for names in options, and of captured tables, that have upper case though the server's log never
    has."""
    kept = variables(session, "lower_case_table_names").get("lower_case_table_names", "0")
    if kept == "0":
        return
    named = [config["signal.data.collection"] or "", *config["snapshot.select.statement.overrides"]]
    if upper := [name for name in named if name != name.lower()]:
        yield Finding(
            "error", "tables",
            f"The server has names in lower case (lower_case_table_names={kept}), and options name {listed(upper)}.",
            f"Write {listed([name.lower() for name in upper])}.",
        )  # fmt: skip
    includes = TableFilter(config).includes
    if mixed := [_shown(one) for one in there if _shown(one) != _shown(one).lower() and includes(*one.id)]:
        yield Finding(
            "error", "tables",
            f"The log has other names than the catalog (lower_case_table_names={kept}): {listed(mixed)}.",
            "Rename databases and tables to lower case, or leave them out.",
        )  # fmt: skip


def unlogged(session: Connection[Any], databases: Sequence[str]) -> Iterator[Finding]:
    """Yield an error if the server leaves changes of `databases` out of its log (binlog_do_db and binlog_ignore_db)."""
    import pymysql

    for statement in ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"):
        try:
            found = rows(session, statement)
        except pymysql.err.Error:
            continue
        if not found:
            return
        kept, ignored = ({name for name in str(text or "").split(",") if name} for text in found[0][2:4])
        gone = [name for name in databases if name in ignored or (kept and name not in kept)]
        if gone:
            yield Finding(
                "error", "log",
                f"The server leaves changes of {listed(gone)} out of its log (binlog_do_db, binlog_ignore_db).",
                "Take these lines out of its configuration and restart it, or leave the databases out.",
            )  # fmt: skip
        return


def _encryption(config: Config, session: Connection[Any]) -> list[Finding]:
    host = config["database.hostname"]
    cipher = rows(session, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    if advice.is_elsewhere(host) and not (cipher and cipher[0][1]):
        words = {meaning: word for word, meaning in dialect_of(config).tls_modes.items()}
        remedy = f"Set database.ssl.mode={words['name']} and database.ssl.truststore, and switch TLS on in the server."
        return [advice.in_the_clear(host, remedy)]
    return []


class _Inspection:
    """The checks of one server, over one session."""

    def __init__(self, config: Config, session: Connection[Any]) -> None:
        self.config, self.session, self.dialect = config, session, dialect_of(config)
        self._defined: list[TableSchema] = []
        self.mode = snapshot_mode(config)
        self.user = config["database.user"]
        self.of = explained(variables)(session, *_VARIABLES)

    def run(self) -> list[Finding]:
        found = list(self._server())
        if any(one.level == "error" for one in found):
            return found
        for part in (self._log, self._rights, self._tables, self._signals, self._checkpoint):
            try:
                # those that are found before a session ends are kept
                explained(found.extend)(part())
            except TailraceError as error:
                found.append(Finding("error", "server", error.message, error.remedy))
        return found

    def _server(self) -> Iterator[Finding]:
        version = str(explained(rows)(self.session, "SELECT VERSION()")[0][0])
        number = tuple(map(int, re.findall(r"\d+", version)[:2]))
        oldest = (5, 6) if self.dialect is MYSQL else (10, 3)
        if number < oldest:
            yield Finding(
                "warning",
                "server",
                f"{self.dialect.title} {version} is older than all versions that were tried.",
                f"Use {self.dialect.title} {'.'.join(map(str, oldest))} or newer.",
            )
        else:
            yield Finding("ok", "server", f"{self.dialect.title} {version}.")

    # --- the log ------------------------------------------------------------------------------------------------------

    def _log(self) -> Iterator[Finding]:
        if not self.mode.streams:
            return
        if self.of.get("log_bin") != "ON":
            yield Finding(
                "error", "log", "The server writes no binary log.",
                "Set log_bin, server_id and binlog_format=ROW in its configuration, and restart it.",
            )  # fmt: skip
            return
        if self.of.get("binlog_format", "ROW").upper() != "ROW":
            yield Finding(
                "error", "log",
                f"binlog_format is {self.of['binlog_format']}: the log has statements instead of rows.",
                "SET GLOBAL binlog_format = ROW, and in the configuration; sessions that are open keep theirs.",
            )  # fmt: skip
        elif engine := self.of.get("binlog_storage_engine"):
            yield Finding("error", "log", in_engine(engine), IN_FILES)
            return
        else:
            yield Finding("ok", "log", "The binary log has rows.")
        yield from self._images()
        yield from self._ids()
        yield from self._retention()
        if self.config["include.query"]:
            yield from self._queries()
        yield from self._replica()

    def _replica(self) -> Iterator[Finding]:
        """Yield findings about a server that is a replica: changes missing from its log, and its delay."""
        sources = self._sources()
        if (self.of.get("log_slave_updates") or self.of.get("log_replica_updates")) == "OFF":
            known = "the server is a replica, and its log lacks" if sources else "on a replica, the log lacks"
            yield Finding(
                "error" if sources else "warning", "log",
                f"log_replica_updates is OFF: {known} what the replica gets from its source.",
                "Set log_replica_updates=ON (MariaDB, older MySQL: log_slave_updates) and restart it.",
            )  # fmt: skip
        for source in sources:
            behind = source.get("Seconds_Behind_Source", source.get("Seconds_Behind_Master"))
            what = "does not apply its source's log" if behind is None else f"is {behind} s behind its source"
            yield Finding(
                "ok" if behind is not None else "warning", "log",
                f"The server is a replica and {what}: changes come when it has applied them.",
                "" if behind is not None else "See SHOW REPLICA STATUS on the server.",
            )  # fmt: skip

    def _sources(self) -> list[dict[str, Any]]:
        """Return the rows of the replica status; none if the server is not a replica, or the user may not see the
        status."""
        import pymysql

        for statement in ("SHOW REPLICA STATUS", "SHOW ALL SLAVES STATUS", "SHOW SLAVE STATUS"):
            with self.session.cursor() as cursor:
                try:
                    cursor.execute(statement)
                except pymysql.err.Error:
                    # an older server, or the right REPLICA MONITOR is missing
                    continue
                names = [one[0] for one in cursor.description or ()]
                return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return []

    def _images(self) -> Iterator[Finding]:
        yield from coverage.images(self.of)
        metadata = self.of.get("binlog_row_metadata")
        if metadata is None:
            yield Finding(
                "warning", "definitions",
                "The server cannot write columns' names into its log: they come from the statements of the log, and a "
                "statement that cannot be followed stops the pipeline.",
                "See on.unknown.ddl. MySQL 8.0 and MariaDB 10.5 write names: binlog_row_metadata.",
            )  # fmt: skip
        elif metadata.upper() != "FULL":
            yield Finding(
                "warning", "definitions",
                f"binlog_row_metadata is {metadata}: columns' names come from the statements of the log, and a "
                "statement that cannot be followed stops the pipeline.",
                "SET GLOBAL binlog_row_metadata = FULL, and in the configuration.",
            )  # fmt: skip
        else:
            yield Finding("ok", "definitions", "The log names the columns of rows.")

    def _ids(self) -> Iterator[Finding]:
        if self.dialect is MYSQL and self.of.get("gtid_mode", "OFF").upper() != "ON":
            yield Finding(
                "warning", "transactions",
                "Transactions have no ids (gtid_mode): after a failover the position in the other server's log is "
                "unknown.",
                "Switch GTIDs on: enforce_gtid_consistency=ON, then gtid_mode step by step to ON.",
            )  # fmt: skip
        if counts_alone(self.of):
            yield Finding(
                "warning", "transactions",
                "The nodes of this Galera cluster number their transactions each by itself (wsrep_gtid_mode=OFF): the "
                "pipeline cannot go on at another node.",
                "Set wsrep_gtid_mode=ON, log_slave_updates=ON and the same wsrep_gtid_domain_id on all nodes.",
            )  # fmt: skip
        own = self.of.get("server_id", "")
        given = self.config["database.server.id"]
        if own == "0":
            yield Finding("error", "log", "server_id is 0, so nobody may read the log.", "Set server_id.")
        if given is not None and str(given) == own:
            yield Finding(
                "error", "replica", f"database.server.id = {given} is the server's own number.",
                "Choose another one, or leave the option out.",
            )  # fmt: skip

    def _retention(self) -> Iterator[Finding]:
        seconds = float(self.of.get("binlog_expire_logs_seconds") or 0)
        seconds = seconds or float(self.of.get("expire_logs_days") or 0) * _DAY
        if 0 < seconds < _DAY:
            yield Finding(
                "warning", "retention",
                f"The server purges its log after {seconds / 3600:.1f} hours: a pipeline that stands still for longer "
                "loses changes.",
                "Raise binlog_expire_logs_seconds; on RDS: mysql.rds_set_configuration('binlog retention hours', …).",
            )  # fmt: skip
        else:
            kept = f"{seconds / _DAY:.0f} days" if seconds else "until it is purged by hand"
            yield Finding("ok", "retention", f"The log is kept for {kept}." if seconds else f"The log is kept {kept}.")

    def _queries(self) -> Iterator[Finding]:
        name = "binlog_rows_query_log_events" if self.dialect is MYSQL else "binlog_annotate_row_events"
        if self.of.get(name) == "OFF":
            yield Finding(
                "warning", "statements",
                f"include.query is true, and {name} is OFF: the log has no statements.",
                f"SET GLOBAL {name} = ON, and in the configuration.",
            )  # fmt: skip

    # --- rights -------------------------------------------------------------------------------------------------------

    def _rights(self) -> Iterator[Finding]:
        if not self.mode.streams:
            return
        for right in log_rights(self.session, self.dialect):
            yield self._lacks(right)
        prepared = self._prepared()
        if prepared:
            yield Finding(
                "warning", "transactions",
                f"{prepared} XA transactions are prepared and neither committed nor rolled back.",
                "They are delivered when they are committed. A forgotten one holds up the log: XA RECOVER lists them.",
            )  # fmt: skip

    def _lacks(self, right: str) -> Finding:
        return Finding(
            "error", "rights", f"The user {self.user} may not read the log: it lacks {right}.",
            f"GRANT {right} ON *.* TO '{self.user}'@'…'.",
        )  # fmt: skip

    def _prepared(self) -> int:
        import pymysql

        try:
            return len(rows(self.session, "XA RECOVER"))
        except pymysql.err.Error:
            # MySQL 8.0 needs the right XA_RECOVER_ADMIN for it
            return 0

    # --- tables -------------------------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[Finding]:
        try:
            includes = table_filter(self.config).includes
        except ConfigError as error:
            yield Finding("error", "lists", error.message, error.remedy)
            return
        every = catalog.names(self.session)
        there = [one for one in every if catalog.holds_rows(one)]
        yield from coverage.views(self.config, every)
        captured = [one for one in there if includes(*one.id)]
        fault = unmatched_lists(self.config, there, is_fresh=stored_offset(checkpoint_directory(self.config)) is None)
        yield from misspelt(self.config, self.session, there)
        if fault is not None:
            yield fault
        elif not captured:
            yield Finding(
                "warning", "tables", "No table is captured.",
                "Check database.include.list, table.include.list and the exclude lists; the user sees only tables for "
                "which it has a right.",
            )  # fmt: skip
        if not captured:
            return
        count = "1 table is" if len(captured) == 1 else f"{len(captured)} tables are"
        yield Finding("ok", "tables", f"{count} captured: {listed([_shown(one) for one in captured])}.")
        if self.mode.streams:
            yield from unlogged(self.session, sorted({one.database for one in captured}))
        yield from findings.collisions(EventSettings.from_options(self.config), [table_id(one.id) for one in captured])
        yield from self._definitions(captured)
        copies = keeps_copies(self.config)
        yield from coverage.findings(self.session, there, {one.id for one in captured}, copies=copies)

    def values(self) -> list[Finding]:
        """Return the findings about columns whose values are left out, or that a copy cannot show unchanged."""
        settings = EventSettings.from_options(self.config)
        return findings.value_findings(settings, form_of(self.dialect), self._defined)

    def _definitions(self, captured: Sequence[ListedTable]) -> Iterator[Finding]:
        import pymysql

        keyless, denied, unknown = [], [], []
        for one in captured:
            try:
                rows(self.session, f"SELECT 1 FROM {quoted(*one.id)} LIMIT 0")
                found = catalog.created(self.session, [one.id], self.dialect)
            except Unparsable as fault:
                unknown.append(fault.what)
                continue
            except pymysql.err.Error as error:
                if number_of(error) not in DENIED:
                    raise
                denied.append(_shown(one))
                continue
            if one.id not in found:
                continue
            self._defined.append(schema_of(found[one.id].table))
            if not found[one.id].table.key():
                keyless.append(_shown(one))
        if denied:
            yield Finding(
                "error", "rights", f"The user {self.user} may not read {listed(denied)}.",
                f"GRANT SELECT ON {denied[0].partition('.')[0]}.* TO '{self.user}'@'…'.",
            )  # fmt: skip
        if unknown:
            yield Finding(
                "warning", "definitions", f"Definitions of tables are not understood: {listed(unknown)}.",
                "Set binlog_row_metadata=FULL, or leave the tables out.",
            )  # fmt: skip
        if keyless:
            yield Finding(
                "warning", "keys", f"Tables without a key: {listed(keyless)}. Their records have none.",
                "Add a primary key, or name columns in message.key.columns.",
            )  # fmt: skip

    def _signals(self) -> Iterator[Finding]:
        named = self.config["signal.data.collection"]
        writes = named and not self.config["read.only"]
        has_ids = self.dialect is not MYSQL or self.of.get("gtid_mode", "OFF").upper() == "ON"
        if not writes and not has_ids and (named or set(self.config["signal.enabled.channels"]) - {"source"}):
            yield Finding(
                "warning", "signals",
                "Without a signal table that is written, read-only incremental snapshots need GTIDs, and gtid_mode is "
                "not ON: a signal for one ends the run.",
                "Switch GTIDs on, or name a signal table in signal.data.collection and leave read.only out.",
            )  # fmt: skip
        if not named:
            return
        name = table_name(named)
        found = rows(
            self.session,
            "SELECT DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s "
            "ORDER BY ORDINAL_POSITION",
            *name,
        )
        statement = (
            f"CREATE TABLE {quoted(*name)} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
        )
        if not found:
            yield Finding("error", "signals", f"There is no signal table {named}.", f"{statement}.")
        elif len(found) < 3 or not all(kind in ("varchar", "char", "text", "longtext") for (kind,) in found[:3]):
            yield Finding(
                "error",
                "signals",
                f"The first three columns of the signal table {named} must be texts: id, type and data.",
                f"{statement}.",
            )
        else:
            yield Finding("ok", "signals", f"{named} is the signal table.")

    # --- the checkpoint -----------------------------------------------------------------------------------------------

    def _checkpoint(self) -> Iterator[Finding]:
        stored = stored_offset(checkpoint_directory(self.config))
        if stored is None or not self.mode.streams:
            return
        try:
            reached = BinlogOffset.from_json(stored).log
        except PositionLost as error:
            yield Finding("error", CHECKPOINT, error.message, error.remedy)
            return
        if not reached.file:
            return
        if self._is_there(reached):
            yield Finding("ok", CHECKPOINT, f"The server has the log from the checkpoint on, {reached}.")
            return
        mends = self.mode.mends
        remedy = "Start with a new checkpoint, or with snapshot.mode=when_needed; let the server keep its log longer."
        yield Finding(
            "warning" if mends else "error", CHECKPOINT,
            f"The server no longer has the log from the checkpoint on: {reached}.",
            "A new snapshot will be taken." if mends else remedy,
        )  # fmt: skip

    def _is_there(self, reached: BinlogPosition) -> bool:
        if self.dialect is MYSQL and reached.gtids:
            question = "SELECT GTID_SUBSET(@@GLOBAL.gtid_purged, %s)"
            return bool(explained(rows)(self.session, question, reached.gtids)[0][0])
        files = [str(row[0]) for row in explained(rows)(self.session, "SHOW BINARY LOGS")]
        return reached.resumes.file in files or bool(reached.gtids)


def _shown(one: ListedTable) -> str:
    return f"{one.database}.{one.table}"
